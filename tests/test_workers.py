"""What runs side by side in processes: nets and trials."""

import contextlib
import os
import subprocess
import sys

import pytest

import highway_networks as hn
from highway_suite.terminal import check_libraries


def test_without_threadpoolctl_programs_of_a_package_have_one_thread(monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    monkeypatch.setattr(sys, "argv", ["-m"])
    monkeypatch.setattr(os, "environ", {})
    check_libraries("experiments")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


SEALED = """
import _multiprocessing, os
def refused(*words, **named):
    raise OSError(38, "Function not implemented")
_multiprocessing.SemLock = refused
from highway_suite.workers import side_by_side
assert [*side_by_side(os.getpid, [()] * 4)] == 4 * [os.getpid()]
"""


def test_without_shared_memory_one_process_does_all_and_a_line_says_so():
    pytest.importorskip("joblib")
    ended = subprocess.run([sys.executable, "-c", SEALED], cwd=hn.HERE, text=True,
                           capture_output=True)
    assert ended.returncode == 0 and ended.stderr.count("\n") == 1


def test_nets_side_by_side_do_not_draw_on_one_line_of_a_terminal(tmp_path):
    pytest.importorskip("tqdm")
    pty = pytest.importorskip("pty")
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, hn.__file__, "--dataset", "digits", "--jobs", "2", "--depth",
         "2", "--epochs", "3", "--no-save"], cwd=tmp_path, stderr=end,
        stdout=subprocess.DEVNULL)
    os.close(end)
    told = b""
    with contextlib.suppress(OSError):          # as which a terminal ends
        while part := os.read(terminal, 4096):
            told += part
    os.close(terminal)
    assert process.wait() == 0
    lines = told.decode().split("\r\n")
    assert len(lines) == 2 * 3 + 1 and not any("\r" in line for line in lines)
