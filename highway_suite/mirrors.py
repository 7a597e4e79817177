"""One file from one mirror, bounded in bytes and in seconds, and checked."""

from __future__ import annotations

import hashlib
import http.client
import math
import time
import urllib.request

from highway_suite.terminal import say

TIMEOUT, DEADLINE = 20, 900     # seconds without a byte, and for one file in all
SLOWEST = 50_000                # bytes a second, that a large file may take longer at
EVERY = 5                       # seconds from one line of progress to the next


def download(url: str, sha256: str, size: int) -> bytes:
    """What an address gives, if it has this hash; size: how many bytes it should have.
    Says every few seconds how much is there. Raises OSError, in one line."""
    request = urllib.request.Request(url, headers={"User-Agent": "highway-networks"})
    body, start, shown = bytearray(), time.monotonic(), -math.inf
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            while chunk := answer.read1(min(size + 1 - len(body), 1 << 16)):
                body += chunk
                now = time.monotonic()
                if now - start > max(DEADLINE, size / SLOWEST):
                    raise OSError(f"{len(body)} of {size} bytes when time was up")
                if now - shown >= EVERY:
                    say(f"{url}: {len(body) / 1e6:.1f} of {size / 1e6:.1f} MB")
                    shown = now
    except (OSError, ValueError, http.client.HTTPException) as error:
        inner = getattr(error, "reason", None)
        reason = str(inner if isinstance(inner, Exception) else error) or repr(error)
        reason = " ".join(reason.split())[:200]
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            reason += " (on macOS run Install Certificates.command)"
        raise OSError(reason) from error
    if hashlib.sha256(body).hexdigest() != sha256:
        count = "more" if len(body) > size else len(body)
        page = ", an HTML page (a login portal?)" if body.lstrip()[:1] == b"<" else ""
        raise OSError(f"not the file, by its SHA-256: {count} of {size} bytes{page}")
    return bytes(body)
