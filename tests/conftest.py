"""What all tests share: no network, one seed, one small data set."""

import os
import socket

import numpy as np
import pytest

import highway_networks as hn


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """Only the loopback interface may be reached."""
    connect = socket.socket.connect

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            if address[0] not in ("127.0.0.1", "::1", "localhost"):
                raise OSError(f"a test tried to reach {address}")
        return connect(self, address)

    def no_lookup(host, *rest, **more):
        raise socket.gaierror(f"a test tried to look up {host}")

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setattr(socket, "getaddrinfo", no_lookup)


@pytest.fixture(autouse=True)
def global_state_untouched():
    """No code of ours draws from NumPy's global generator."""
    before = np.random.get_state()[1].copy()
    yield
    assert np.array_equal(before, np.random.get_state()[1])


@pytest.fixture
def seed():
    """The seed of every test that draws: HIGHWAY_TEST_SEED, 0 unless set."""
    return int(os.environ.get("HIGHWAY_TEST_SEED", "0"))


@pytest.fixture
def rng(seed):
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def digits():
    """The shipped digits, uint8 Data."""
    return hn.load_dataset("digits")


@pytest.fixture(scope="session")
def mnist():
    """MNIST as uint8 Data, where its files lie already."""
    folder = hn.data_folder()
    for expected in hn.DATASETS["mnist"].files:
        path = folder / expected.name
        if not (path.exists() or path.with_suffix("").exists()):
            pytest.skip(f"no MNIST files in {folder}")
    return hn.load_dataset("mnist")
