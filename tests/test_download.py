"""Mirrors on the loopback interface: what goes wrong for users harms no file."""

import itertools
import os
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import highway_networks as hn
import highway_suite
from highway_suite import datasets
from highway_suite.datasets import DATASETS, MissingData, load

NOBODY = "http://127.0.0.1:9/"      # listens there

# What a mirror sends instead of a file: its status and its pieces, one in 20 ms.
ANSWERS = {
    "good": lambda body: (200, [body]), "absent": lambda body: (404, [body]),
    "truncated": lambda body: (200, [body[:len(body) // 2]]),
    "other": lambda body: (200, [bytes([body[0] ^ 1]) + body[1:]]),
    "longer": lambda body: (200, itertools.chain([body], itertools.repeat(b"x"))),
    "hang": lambda body: (200, itertools.repeat(b"")),
    "drip": lambda body: (200, (body[n:n + 1] for n in range(len(body))))}


class Mirror(BaseHTTPRequestHandler):
    """/ANSWER/FILE gives the file, or what this answer does instead."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        answer, name = self.path.strip("/").split("/")
        self.server.asked.append(answer)
        body = (self.server.folder / name).read_bytes()
        status, pieces = ANSWERS[answer](body)
        self.send_response(status)
        if answer in ("good", "truncated"):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for piece in pieces:
            try:
                self.wfile.write(piece)
            except OSError:         # the client has gone, as it should
                return
            if answer != "longer" and self.server.closing.wait(0.02):
                return


@pytest.fixture
def server(small_mnist):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    server.daemon_threads = True
    server.folder, server.asked, server.closing = small_mnist, [], threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def use(server, monkeypatch):
    """use(*answers) makes the table name mirrors that answer so."""
    def put(*answers):
        addresses = tuple(answer if "/" in answer else
                          f"http://127.0.0.1:{server.server_port}/{answer}/"
                          for answer in answers)
        monkeypatch.setitem(DATASETS, "mnist",
                            DATASETS["mnist"]._replace(mirrors=addresses))
        return addresses
    return put


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache" / "mnist"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("fault", [NOBODY, *list(ANSWERS)[1:]])
def test_a_mirror_that_fails_is_passed_over(server, use, cache, small_mnist, fault,
                                            monkeypatch):
    if fault in ("hang", "drip"):
        limit = {"hang": "TIMEOUT", "drip": "DEADLINE"}[fault]
        monkeypatch.setattr(datasets, limit, 0.2)
        monkeypatch.setattr(datasets, "SLOWEST", 1e9)
    (address,) = use(fault)
    with pytest.raises(MissingData, match=address) as caught:
        load("mnist", cache)
    assert "\n" not in str(caught.value) and not cache.parent.exists()
    server.asked.clear()
    use(fault, "good")
    assert len(load("mnist", cache).x_train) == 20
    assert server.asked == (["good"] if fault == NOBODY else [fault, "good"]) * 4
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == {
        path.name: path.read_bytes() for path in small_mnist.iterdir()}


def test_what_is_there_is_read_and_only_the_rest_is_fetched(server, use, cache,
                                                            small_mnist):
    use("good")
    cache.mkdir(parents=True)
    for name in names(small_mnist)[:3]:
        shutil.copy(small_mnist / name, cache)
    load("mnist", cache)
    highway_suite.load("mnist", cache)
    assert server.asked == ["good"] and names(cache) == names(small_mnist)


def test_a_wrong_file_is_neither_replaced_nor_fetched_anew(server, use, cache):
    use("good")
    load("mnist", cache)
    path = cache / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(before := path.read_bytes()[:-20])
    with pytest.raises(hn.DataError):
        load("mnist", cache)
    assert path.read_bytes() == before and len(server.asked) == 4


def test_a_full_disk_is_one_line(use, cache, monkeypatch):
    use("good")

    def refuse(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(MissingData) as caught:
        load("mnist", cache)
    assert "\n" not in str(caught.value) and names(cache) == []
