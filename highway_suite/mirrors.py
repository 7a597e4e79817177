"""One file from one mirror, bounded in bytes and in seconds, and checked."""

from __future__ import annotations

import hashlib
import http.client
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import highway_networks as hn
from highway_suite.terminal import say

TIMEOUT, DEADLINE = 20, 900     # seconds without a byte, and for one file in all
SLOWEST = 50_000                # bytes a second, that a large file may take longer at


class MirrorError(ValueError):
    """A mirror does not give the file: why, in a line."""


class Lines:
    """What tqdm shows, where it is not installed, in a line every few seconds."""

    def __init__(self, desc: str, total: int, **_: Any):
        self.name, self.total, self.done, self.next = desc, total, 0, 0.0

    def update(self, count: int) -> None:
        """So many more bytes are there."""
        self.done += count
        if time.monotonic() > self.next:
            say(f"{self.name}: {self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB")
            self.next = time.monotonic() + 5

    def close(self) -> None:
        """Nothing is left to say."""


def progress(file: hn.Download) -> Any:
    """A bar that is updated with the bytes that came."""
    try:
        from tqdm import tqdm
    except ImportError:
        return Lines(file.name, file.size)
    return tqdm(desc=file.name, total=file.size, unit="B", unit_scale=True,
                disable=not sys.stderr.isatty())


def read(url: str, file: hn.Download) -> bytes:
    """What an address gives: at most a byte more than expected, within the deadline."""
    request = urllib.request.Request(url, headers={"User-Agent": "highway-networks"})
    stop, body = time.monotonic() + max(DEADLINE, file.size / SLOWEST), bytearray()
    bar = progress(file)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            while chunk := answer.read1(min(file.size + 1 - len(body), 1 << 16)):
                body += chunk
                bar.update(len(chunk))
                if time.monotonic() > stop:
                    raise MirrorError(f"{len(body)} of {file.size} bytes when time was "
                                      "up")
    finally:
        bar.close()
    return bytes(body)


def download(url: str, file: hn.Download) -> bytes:
    """The right content of a file. Raises MirrorError for all that may go wrong."""
    try:
        body = read(url, file)
    except MirrorError:
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = " ".join(str(getattr(error, "reason", None) or error).split())
        if isinstance(error, urllib.error.HTTPError):
            reason = f"{error.code} {reason}"
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            reason += " (on macOS run Install Certificates.command)"
        raise MirrorError(reason[:200] or repr(error)) from error
    if hashlib.sha256(body).hexdigest() != file.sha256:
        count = "more" if len(body) > file.size else len(body)
        page = ", an HTML page (a login portal?)" if body.lstrip()[:1] == b"<" else ""
        raise MirrorError(f"not the file, by its SHA-256: {count} of {file.size} bytes"
                          f"{page}")
    return body
