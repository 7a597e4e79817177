"""One file from one mirror: what that may cost is bounded, in bytes and in seconds.

Whatever a mirror sends passes a `Meter`: status lines, headers and what comes with a
redirect as well as the file. So nothing can be endless, and nothing dripped for ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from tqdm import tqdm

import highway_networks as hn

TIMEOUT, DEADLINE = 20, 900     # seconds without a byte, and for one file in all
SLOWEST = 50_000                # bytes a second, that a large file may take longer at
HEADERS = 1 << 16               # bytes that may come beside the file


class MirrorError(ValueError):
    """A mirror does not give the file: why, in a line fit for a terminal."""


class Meter:
    """The bytes and the time that are left to all the responses for one file."""

    def __init__(self, size: int, report: Callable[[int], Any]):
        self.left, self.report = size + HEADERS, report
        self.seconds = max(DEADLINE, size / SLOWEST)
        self.stop = time.monotonic() + self.seconds

    def response(self, sock: Any, **more: Any) -> http.client.HTTPResponse:
        """A connection's next response, as http.client makes it, read through this."""
        response = http.client.HTTPResponse(sock, **more)
        response.fp = io.BufferedReader(Metered(self, sock, response.fp.detach()))
        return response


class Metered(io.RawIOBase):
    """What a socket sends. Raises MirrorError for more, or later, than its meter has.
    """

    def __init__(self, meter: Meter, sock: Any, raw: io.RawIOBase):
        self.meter, self.sock, self.raw = meter, sock, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        meter = self.meter
        seconds = meter.stop - time.monotonic()
        self.sock.settimeout(max(min(TIMEOUT, seconds), 1e-3))
        try:
            count = self.raw.readinto(buffer)
        except TimeoutError:
            if seconds > TIMEOUT:
                raise
            seconds = count = 0
        if seconds <= 0:
            raise MirrorError(f"not complete after {meter.seconds:.0f} s")
        meter.left -= count
        if meter.left < 0:
            raise MirrorError("more than the bytes expected")
        meter.report(count)
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class SameScheme(urllib.request.HTTPRedirectHandler):
    """Redirects, but none that leaves https, nor to a file or ftp."""

    def redirect_request(self, request: Any, file: Any, code: int, message: str,
                         headers: Any, url: str) -> urllib.request.Request | None:
        if urlsplit(url).scheme != request.type:
            raise MirrorError(f"redirected to another scheme: {url!a:.80}")
        return super().redirect_request(request, file, code, message, headers, url)


def tls_context() -> ssl.SSLContext:
    """The system's certificates, and others for where it keeps none, as on macOS."""
    context = ssl.create_default_context()
    with contextlib.suppress(ImportError):
        import certifi
        context.load_verify_locations(certifi.where())
    return context


def opener_for(meter: Meter) -> urllib.request.OpenerDirector:
    """What opens an address, through a proxy where the environment names one."""
    def metered(kind):
        def connect(*args, **more):
            connection = kind(*args, **more)
            connection.response_class = meter.response
            return connection
        return connect

    class HTTP(urllib.request.HTTPHandler):
        def http_open(self, request):
            return self.do_open(metered(http.client.HTTPConnection), request)

    class HTTPS(urllib.request.HTTPSHandler):
        def https_open(self, request):
            return self.do_open(metered(http.client.HTTPSConnection), request,
                                context=tls_context())
    return urllib.request.build_opener(HTTP, HTTPS, SameScheme)


def read(url: str, expected: hn.DataFile) -> bytes:
    """What an address gives, no more than a byte longer than the file should be."""
    size, body = expected.gz_bytes, bytearray()
    request = urllib.request.Request(url, headers={"User-Agent": "highway-networks"})
    with tqdm(total=size, desc=expected.name, unit="B", unit_scale=True,
              disable=not sys.stderr.isatty()) as bar:
        meter = Meter(size, bar.update)
        with opener_for(meter).open(request, timeout=min(TIMEOUT, DEADLINE)) as answer:
            while chunk := answer.read(min(size + 1 - len(body), 1 << 16)):
                body += chunk
    return bytes(body)


def reason_of(error: Exception) -> str:
    """The line of an exception that a user can act on, fit for a terminal."""
    text = str(getattr(error, "reason", None) or error) or repr(error)
    text = " ".join(text.split())
    if isinstance(error, urllib.error.HTTPError):
        text = f"{error.code} {text}"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        text = "the certificate cannot be verified (on macOS: run Install " \
               "Certificates.command). " + text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)[:200]


def download(url: str, expected: hn.DataFile) -> bytes:
    """The right content of a file. Raises MirrorError for all that may go wrong."""
    try:
        body = read(url, expected)
    except MirrorError:
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise MirrorError(reason_of(error)) from error
    if body.lstrip()[:1] == b"<":
        raise MirrorError("an HTML page, not the file (a login portal?)")
    if len(body) != expected.gz_bytes:
        more = "more than" if len(body) > expected.gz_bytes else f"{len(body)} of"
        raise MirrorError(f"{more} the {expected.gz_bytes} bytes expected")
    if hashlib.sha256(body).hexdigest() != expected.gz_sha256:
        raise MirrorError("not the file: its SHA-256 is another")
    return body
