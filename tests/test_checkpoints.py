"""A training that was killed goes on and ends with the same bits, or refuses to."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
import highway_suite
from highway_suite import checkpoints, cli
from highway_suite.checkpoints import Checkpoint, CheckpointError, of_training
from highway_suite.training import train_arm
from tests.contracts import check_resumes, exit_of

ADAM = hn.Config(depth=3, hidden=8, epochs=4, batch=50, n_train=200, n_test=60,
                 lr_decay=0.7)


class Killed(Exception):
    """The process dies."""


@pytest.fixture(scope="module")
def data():
    return hn.scale_pixels(hn.take_subset(highway_suite.load("digits"), ADAM))


def train(config, data, path=None, kill=None, stop=None):
    """-> weights and what `train` returns; killed after so many epochs, or stopped by
    its report, if so."""
    net = hn.make_net(config, data)

    def report(row):
        if row["epoch"] == kill:
            raise Killed
        return row["epoch"] == stop
    history, layer_T, status = highway_suite.train(net, data, config, report,
                                                   checkpoint=path and str(path))
    return net.params.tobytes(), history, layer_T.tolist(), status


def killed(config, data, path, kill):
    with pytest.raises(Killed):
        train(config, data, path, kill)


def test_it_goes_on_to_the_bit_also_to_more_epochs(data, tmp_path):
    path, longer = tmp_path / "run.npz", replace(ADAM, epochs=7)
    killed(ADAM, data, path, 2)
    killed(ADAM, data, path, 3)
    assert train(ADAM, data, path) == train(ADAM, data)
    killed(longer, data, path, 5)       # the next one after the four
    assert train(longer, data, path) == train(longer, data)
    with pytest.raises(CheckpointError):
        train(ADAM, data, path)


def test_a_training_that_its_report_ended_is_not_gone_on_with(data, tmp_path):
    path = tmp_path / "run.npz"
    stopped = train(ADAM, data, path, stop=2)
    assert len(stopped[1]["epoch"]) == 2 and stopped == train(ADAM, data, stop=2)
    assert train(ADAM, data, path) == stopped


@pytest.mark.parametrize("change", [{}, {"optimizer": "sgd", "momentum": 0.9}],
                         ids=["adam", "sgd"])
@pytest.mark.parametrize("kill", [1, 5, 9, 16])
def test_killed_in_any_step_it_goes_on_to_the_bit(kill, change, data, tmp_path,
                                                  monkeypatch):
    config = replace(ADAM, **change)        # four steps in each epoch
    check_resumes(monkeypatch, lambda folder: {
        "all": train(config, data, f"{folder}/run.npz")}, tmp_path, kill,
                  left=16 - (kill - 1) // 4 * 4)


def test_a_save_writes_one_epoch_however_many_there_were(tmp_path):
    """The history of a long training of a deep net has tens of megabytes."""
    kept, net = Checkpoint(tmp_path / "c.npz", {}, ""), np.zeros(3)
    streams = {"batches": np.random.default_rng(0)}
    arrays, history, sizes = {"params": net}, [], []
    assert kept.load(arrays, streams) == []
    for epoch in range(1, 301):
        net += 1
        history.append({"epoch": epoch, "layer_T": [0.123456] * 100})
        kept.save(arrays, streams, history)
        sizes.append((tmp_path / "c.npz").stat().st_size)
    assert max(sizes) < sizes[0] + 100
    again = Checkpoint(tmp_path / "c.npz", {}, "")
    assert again.load(arrays, streams) == history and net[0] == 300


@pytest.fixture
def halfway(data, tmp_path):
    path = tmp_path / "run.npz"
    killed(ADAM, data, path, 3)
    return path


def check_refused(path, config, data):
    """The error names the file, which stays as it is."""
    before = path.read_bytes()
    with pytest.raises(CheckpointError) as caught:
        train(config, data, path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_broken_file_is_refused_and_kept(data, halfway):
    whole = halfway.read_bytes()
    for content in (whole[:len(whole) // 2], b"GIF89a"):
        halfway.write_bytes(content)
        check_refused(halfway, ADAM, data)


def test_another_training_is_refused_and_kept(data, halfway):
    """Other settings, images or labels."""
    check_refused(halfway, replace(ADAM, lr=ADAM.lr * 2), data)
    check_refused(halfway, replace(ADAM, hidden=9), data)
    check_refused(halfway, ADAM, replace(data, y_train=np.roll(data.y_train, 1)))
    check_refused(halfway, ADAM, replace(data, x_train=-data.x_train))


def test_the_history_of_another_training_is_refused_and_kept(data, halfway):
    """Of two that had one name, and of one that is cut."""
    whole, log = halfway.read_bytes(), halfway.with_name("run.npz.history")
    own = log.read_text()
    halfway.unlink()
    killed(replace(ADAM, lr=ADAM.lr / 9), data, halfway, 4)
    halfway.write_bytes(whole)
    for text in (log.read_text(), "".join(own.splitlines(keepends=True)[:1])):
        log.write_text(text)
        check_refused(halfway, ADAM, data)
        assert log.read_text() == text
    log.write_text(own)
    assert train(ADAM, data, halfway) == train(ADAM, data)


@pytest.mark.parametrize("change", [{"depth": 4}, {"block": "plain"}, {"hidden": 9},
                                    {"activation": "relu"}], ids=str)
def test_a_net_of_other_settings_is_refused(change, data):
    with pytest.raises(ValueError, match=next(iter(change))):
        highway_suite.train(hn.make_net(ADAM, data), data, replace(ADAM, **change))


def test_another_processor_goes_on_and_is_noted(data, halfway, monkeypatch):
    there = checkpoints.numerics(checkpoints.environment())
    here = there | {"blas_kernel": "Abacus"}
    monkeypatch.setattr(checkpoints, "environment", lambda: here)
    assert train(ADAM, data, halfway) == train(ADAM, data)
    arm = train_arm(ADAM, hn.take_subset(highway_suite.load("digits"), ADAM),
                    of_training(halfway, ADAM, data))
    assert arm["environments"] == [there, here]


def test_the_command_goes_on_with_its_checkpoints(tmp_path, monkeypatch):
    """Each net has its own; a run of more epochs takes up those of a shorter one."""
    monkeypatch.chdir(tmp_path)
    words = ["--dataset", "digits", "--depth", "2", "--jobs", "1", "--seeds", "0,1",
             "--checkpoint", "c.npz", "--no-save", "--epochs"]
    began = time.perf_counter()
    cli.main([*words, "2"])
    assert {f"c-{block}-2-{seed}.npz" for block in ("highway", "plain")
            for seed in (0, 1)} <= {*os.listdir()}
    steps, step = [], hn.train_step
    monkeypatch.setattr(hn, "train_step",
                        lambda *args: steps.append(1) or step(*args))
    resumed = cli.main([*words, "3"])
    took = sum(run[block]["wallclock_sec"] for run in resumed["runs"]
               for block in ("highway", "plain"))
    assert took < time.perf_counter() - began
    assert len(steps) == 4 * (1437 // 128)
    for file in tmp_path.iterdir():
        file.unlink()
    whole = cli.main([*words, "3"])
    for one, other in zip(resumed["runs"], whole["runs"], strict=True):
        for block in ("highway", "plain"):
            assert one[block]["history"] == other[block]["history"]
    assert exit_of(cli.main, [*words, "2"]) == 1
