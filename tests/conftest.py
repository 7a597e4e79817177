"""What all tests share: no network, one seed, one small data set."""

import gzip
import hashlib
import os
import signal
import socket

# Read as NumPy loads: tests run side by side, and more threads would only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest

import highway_networks as hn
import highway_suite
from experiments.lab.trials import Store
from highway_suite import datasets

LOOPBACK = ("127.0.0.1", "::1", "localhost")

# A shell starts what it puts in the background with Ctrl-C ignored, and the programs
# that the tests start and interrupt would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Only the loopback interface may be reached."""
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def guarded_connect(self, address):
        internet = self.family in (socket.AF_INET, socket.AF_INET6)
        if internet and address[0] not in LOOPBACK:
            raise OSError(f"a test tried to reach {address}")
        return connect(self, address)

    def guarded_look_up(host, *rest, **more):
        if host not in LOOPBACK:
            raise socket.gaierror(f"a test tried to look up {host}")
        return look_up(host, *rest, **more)

    for name in ("https_proxy", "HTTPS_PROXY"):     # for the processes we start:
        monkeypatch.setenv(name, "http://127.0.0.1:9")      # nobody listens there
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
    monkeypatch.setattr(socket, "getaddrinfo", guarded_look_up)


@pytest.fixture(autouse=True)
def global_state_untouched():
    """No code of ours draws from NumPy's global generator."""
    def state():
        _, keys, *rest = np.random.get_state()
        return keys.tobytes(), rest
    before = state()
    yield
    assert state() == before


@pytest.fixture
def seed():
    """The seed of every test that draws: HIGHWAY_TEST_SEED, 0 unless set."""
    return int(os.environ.get("HIGHWAY_TEST_SEED", "0"))


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture
def images(rng):
    """x (40, 6) and labels (40,)"""
    return rng.normal(size=(40, 6)), rng.integers(3, size=40)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store" / "trials.sqlite")


@pytest.fixture(scope="session")
def digits():
    """The shipped digits, uint8 Data."""
    return highway_suite.load("digits")


@pytest.fixture(scope="session")
def mnist():
    """MNIST as uint8 Data, where its files lie already."""
    try:
        return datasets.read("mnist")
    except datasets.MissingData as error:
        pytest.skip(str(error))


def encode_idx(array):
    """uint8 array -> the bytes of an idx file."""
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes()


@pytest.fixture
def small_mnist(tmp_path, monkeypatch, rng):
    """MNIST's table, hashes included, for four tiny files in a folder."""
    folder, files, downloads = tmp_path / "data", {}, {}
    folder.mkdir()
    for name in hn.MNIST:
        shape = (20, 28, 28) if "images" in name else (20,)
        payload = encode_idx(rng.integers(10, size=shape).astype(np.uint8))
        packed = gzip.compress(payload)
        (folder / f"{name}.gz").write_bytes(packed)
        files[name] = hashlib.sha256(payload).hexdigest()
        downloads[f"{name}.gz"] = hashlib.sha256(packed).hexdigest(), len(packed)
    monkeypatch.setattr(hn, "MNIST", files)
    monkeypatch.setitem(datasets.DATASETS, "mnist", datasets.DATASETS["mnist"]._replace(
        files=files, images=(20, 20), downloads=downloads))
    return folder
