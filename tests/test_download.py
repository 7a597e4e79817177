"""A misbehaving mirror on the loopback interface: nothing it does poisons the cache."""

import contextlib
import gzip
import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import pytest
import trustme

import highway_networks as hn
from highway_suite import mirrors
from highway_suite.datasets import obtain

MAIN = Path(__file__).with_name("patched_main.py")
NOBODY = "http://127.0.0.1:9/"      # listens there


class Answer(NamedTuple):
    """What a mirror sends for a file."""

    reason: str                 # that is given for passing over it
    chunks: Callable            # body -> what is sent of it, piece by piece
    status: int | None = 200    # None: no status line, nor headers
    phrase: str | None = None
    to: str | None = None       # where it redirects
    limit: str | None = None    # what ends it, made short; it drips then


def half(body):
    return [body[:len(body) // 2]]


def bytewise(body):
    return [bytes([byte]) for byte in body]


def dripping(*first):
    return lambda body: itertools.chain(first, itertools.repeat(b"X"))


GOOD = "good"
ANSWERS = {
    GOOD: Answer("", lambda body: [body]),
    "absent": Answer("404", half, 404), "busy": Answer("503", half, 503),
    "rude": Answer(r"500 \x1b[31mred\x07", half, 500, "\x1b[31mred\x07"),
    "cut": Answer("bytes expected", half),
    "page": Answer("an HTML page", lambda body: [b"\n<!DOCTYPE html><title>Log in"]),
    "other": Answer("its SHA-256 is another",
                    lambda body: [bytes([body[0] ^ 1]) + body[1:]]),
    "endless": Answer("more than the", itertools.repeat),
    "to_endless": Answer("more than the", itertools.repeat, 302, to="/good/not-asked"),
    "going_on": Answer("more than the", lambda body: itertools.repeat(
        b"HTTP/1.1 100 Continue\r\n\r\n"), None),
    "long_header": Answer("more than the", lambda body: [b"HTTP/1.0 200 OK\r\nX: "
                                                         + b"x" * 10**6], None),
    "elsewhere": Answer("not allowed", half, 302, to="file:///etc/hostname"),
    "to_ftp": Answer("another scheme", half, 302, to="ftp://127.0.0.1/{name}"),
    "to_http": Answer("", half, 302, to="{plain}/good/{name}"),
    "to_good": Answer("", half, 302, to="/good/{name}"),
    "hang": Answer("timed out", lambda body: itertools.repeat(b""), None,
                   limit="TIMEOUT"),
    "drip": Answer("not complete", bytewise, limit="DEADLINE"),
    "drip_headers": Answer("not complete", dripping(b"HTTP/1.0 200 OK\r\n"), None,
                           limit="DEADLINE"),
    "drip_redirect": Answer("not complete", dripping(), 302, to="/good/not-asked",
                            limit="DEADLINE"),
}


class Mirror(BaseHTTPRequestHandler):
    """/BEHAVIOUR/FILE gives the file, or what this answer does instead."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        behaviour, name = self.path.strip("/").split("/")
        self.server.asked.append(behaviour)
        answer, body = ANSWERS[behaviour], (self.server.folder / name).read_bytes()
        if answer.status:
            self.send_response(answer.status, answer.phrase)
            if answer.to:
                self.send_header("Location", answer.to.format(
                    name=name, plain=self.server.plain))
            if behaviour in (GOOD, "cut"):      # from others the end looks regular
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
        with contextlib.suppress(OSError):      # the client has gone, as it should
            for chunk in answer.chunks(body):
                self.wfile.write(chunk)
                self.wfile.flush()
                if answer.limit and self.server.closing.wait(0.05):
                    return


@pytest.fixture
def serve(small_mnist):
    """serve(context=None) starts a mirror of small_mnist and returns its address."""
    servers = []

    def start(context=None, plain=None):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
        server.daemon_threads = True
        server.folder, server.plain = small_mnist, plain
        server.asked, server.closing = [], threading.Event()
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        scheme = "https" if context else "http"
        return f"{scheme}://127.0.0.1:{server.server_port}", server
    yield start
    for server in servers:
        server.closing.set()
        server.shutdown()
        server.server_close()


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "mnist"


def test_of_an_endless_answer_one_byte_too_many_is_read(serve):
    address, _ = serve()
    file = hn.DATASETS["mnist"].files[0]._replace(gz_bytes=100_000)
    assert len(mirrors.read(f"{address}/endless/{file.name}", file)) == 100_001


def use_mirrors(monkeypatch, *mirrors):
    table = {**hn.DATASETS, "mnist": hn.DATASETS["mnist"]._replace(mirrors=mirrors)}
    monkeypatch.setattr(hn, "DATASETS", table)


@pytest.fixture
def good(serve, monkeypatch):
    """A good mirror, the only one."""
    address, server = serve()
    use_mirrors(monkeypatch, f"{address}/good/")
    return server


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def usual_umask():
    old = os.umask(0o022)
    yield
    os.umask(old)


FAULTS = [name for name, answer in ANSWERS.items() if answer.reason]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_mirror_is_passed_over(serve, cache, small_mnist, monkeypatch, fault,
                                        usual_umask):
    (address, server), answer = serve(), ANSWERS[fault]
    use_mirrors(monkeypatch, f"{address}/{fault}/")
    with monkeypatch.context() as patch:
        if answer.limit:
            patch.setattr(mirrors, answer.limit, 0.2)
        with pytest.raises(hn.MissingData) as caught:
            obtain("mnist", cache)
    assert f"{address}/{fault}/: " in str(caught.value)
    assert answer.reason in str(caught.value) and not cache.parent.exists()
    if answer.limit:
        return
    server.asked.clear()
    use_mirrors(monkeypatch, f"{address}/{fault}/", f"{address}/good/")
    obtain("mnist", cache)
    assert server.asked == [fault, "good"] * 4 and names(cache) == names(small_mnist)
    for path in cache.iterdir():
        assert path.read_bytes() == (small_mnist / path.name).read_bytes()
        assert path.stat().st_mode & 0o777 == 0o644     # so others may share the cache
    obtain("mnist", cache)
    assert len(server.asked) == 8, "a file that lies in the cache was asked for again"


def test_a_redirect_within_the_scheme_is_followed(serve, cache, monkeypatch):
    address, server = serve()
    use_mirrors(monkeypatch, f"{address}/to_good/")
    obtain("mnist", cache)
    assert server.asked == ["to_good", "good"] * 4


def tls_context(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_an_unknown_certificate_is_refused_and_never_downgraded(serve, cache,
                                                               monkeypatch):
    address, server = serve(tls_context(trustme.CA()))
    use_mirrors(monkeypatch, f"{address}/good/")
    with pytest.raises(hn.MissingData) as caught:
        obtain("mnist", cache)
    assert "certificate cannot be verified" in str(caught.value)
    assert "Install Certificates.command" in str(caught.value)
    assert "--data-dir" in str(caught.value) and server.asked == []


def test_https_is_not_left_by_a_redirect(serve, cache, tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    plain, plain_server = serve()
    address, server = serve(tls_context(authority), plain)
    use_mirrors(monkeypatch, f"{address}/to_http/")
    with pytest.raises(hn.MissingData, match="another scheme"):
        obtain("mnist", cache)
    assert server.asked == ["to_http"] and plain_server.asked == []
    use_mirrors(monkeypatch, f"{address}/good/")
    obtain("mnist", cache)


def spoil(path, how):
    content = path.read_bytes()
    path.write_bytes({"truncated": content[:-20], "empty": b"",
                      "flipped": content[:40] + bytes([content[40] ^ 4]) + content[41:],
                      "page": b"<html></html>"}[how])


@pytest.mark.parametrize("how", ["truncated", "empty", "flipped", "page"])
def test_a_poisoned_cache_is_mended(good, cache, small_mnist, capsys, how):
    obtain("mnist", cache)
    path = cache / "t10k-images-idx3-ubyte.gz"
    spoil(path, how)
    spoiled = path.read_bytes()
    obtain("mnist", cache)
    assert path.read_bytes() == (small_mnist / path.name).read_bytes()
    assert (cache / (path.name + ".bad")).read_bytes() == spoiled
    assert "Fetched a good copy" in capsys.readouterr().err
    assert len(good.asked) == 5


def test_a_poisoned_cache_without_a_mirror_is_an_error_and_stays(good, cache,
                                                                 monkeypatch):
    obtain("mnist", cache)
    path = cache / "train-labels-idx1-ubyte.gz"
    spoil(path, "truncated")
    before = names(cache)
    use_mirrors(monkeypatch, NOBODY)
    for _ in range(2):
        with pytest.raises(hn.DataError, match="end-of-stream") as caught:
            obtain("mnist", cache)
        assert not isinstance(caught.value, hn.MissingData) and names(cache) == before


@pytest.fixture
def table(tmp_path):
    """table(*mirrors) writes the small MNIST's table for a process of its own."""
    def write(*mirrors):
        path = tmp_path / "table.json"
        path.write_text(json.dumps({"files": hn.DATASETS["mnist"].files,
                                    "mirrors": mirrors}))
        return path
    return write


def start(table, *words):
    return subprocess.Popen([sys.executable, MAIN, table, *words], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_many_processes_with_an_empty_cache_all_succeed(serve, cache, table,
                                                        small_mnist):
    address, _ = serve()
    words = ("--dataset", "mnist", "--data-dir", str(cache), "--depth", "1", "--epochs",
             "1", "--batch", "10", "--jobs", "1", "--no-save")
    path = table(f"{address}/good/")        # written once: they read it side by side
    running = [start(path, *words) for _ in range(3)]
    for process in running:
        _, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
    assert names(cache) == names(small_mnist)


@pytest.mark.parametrize("sent, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_download_leaves_nothing(serve, cache, table, sent, code):
    address, server = serve()
    process = start(table(f"{address}/drip/"), "--data-dir", str(cache), "--jobs", "1")
    deadline = time.monotonic() + 20
    while not server.asked and time.monotonic() < deadline:
        time.sleep(0.02)
    assert server.asked, "the download is not under way"
    process.send_signal(sent)
    _, error = process.communicate(timeout=20)
    assert process.returncode == code and "Traceback" not in error
    assert not cache.parent.exists()


ABSURD = {"file": Path.touch, "fifo": os.mkfifo, "folder": Path.mkdir,
          "dangling link": lambda path: path.symlink_to(path.with_name("nowhere"))}


@pytest.mark.parametrize("kind, below", [("file", ""), ("fifo", ""), ("file", "mnist"),
                                         ("dangling link", "")])
def test_an_absurd_cache_folder_is_one_clear_line(tmp_path, kind, below):
    ABSURD[kind](tmp_path / "cache")
    folder = tmp_path / "cache" / below
    with pytest.raises(hn.DataError) as caught:
        obtain("mnist", folder)
    text = str(caught.value)
    assert str(folder) in text and "--data-dir" in text and "\n" not in text
    assert "$HIGHWAY_DATA_DIR" in text


def test_a_read_only_folder_is_read_and_never_written(good, cache, small_mnist,
                                                      monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", Mock(
        side_effect=PermissionError(13, "Permission denied")))
    with pytest.raises(hn.MissingData, match="Permission denied"):
        obtain("mnist", cache)
    assert len(obtain("mnist", small_mnist).x_train) == 20
    assert good.asked == []


def test_a_full_disk_is_one_clear_line(good, cache, monkeypatch):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=full))
    with pytest.raises(hn.MissingData, match="No space left on device"):
        obtain("mnist", cache)
    assert names(cache) == []


def test_no_home_is_one_clear_line(monkeypatch):
    monkeypatch.delenv("HIGHWAY_DATA_DIR", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(hn.DataError, match="no home folder.*--data-dir"):
        hn.data_folder(hn.DATASETS["mnist"])


@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling link"])
def test_an_absurd_cache_entry_is_no_hang_and_no_write(cache, small_mnist, monkeypatch,
                                                       kind):
    use_mirrors(monkeypatch, NOBODY)
    cache.mkdir(parents=True)
    path = cache / "train-images-idx3-ubyte.gz"
    ABSURD[kind](path)
    with pytest.raises(hn.DataError, match="not a regular file|No such file"):
        obtain("mnist", cache)
    assert os.path.lexists(path) and not (cache / "nowhere").exists()


def test_a_link_is_replaced_not_written_through(good, cache, tmp_path):
    cache.mkdir(parents=True)
    other = tmp_path / "precious"
    other.write_text("precious")
    (cache / "train-images-idx3-ubyte.gz").symlink_to(other)
    obtain("mnist", cache)
    assert other.read_text() == "precious"
    assert not (cache / "train-images-idx3-ubyte.gz").is_symlink()


@pytest.mark.parametrize("pack", [bytes, gzip.decompress,
                                  lambda b: gzip.compress(gzip.decompress(b), 1)])
def test_a_good_file_of_another_data_set_is_refused_and_left_alone(
        serve, small_mnist, monkeypatch, pack):
    """Two sets of the same names and shapes: official, unpacked and packed anew."""
    address, server = serve()
    stranger = [file._replace(sha256=file.sha256[::-1], gz_sha256=file.gz_sha256[::-1])
                for file in hn.DATASETS["mnist"].files]
    monkeypatch.setitem(hn.DATASETS, "stranger", hn.DATASETS["mnist"]._replace(
        title="Stranger", files=tuple(stranger), mirrors=(f"{address}/good/",)))
    for path in list(small_mnist.iterdir()):
        path.write_bytes(pack(path.read_bytes()))
    before = {path: path.read_bytes() for path in small_mnist.iterdir()}
    with pytest.raises(hn.ForeignData, match="train-images.*of MNIST.*--data-dir"):
        obtain("stranger", small_mnist)
    assert {path: path.read_bytes() for path in small_mnist.iterdir()} == before
    assert server.asked == []
