"""A training that was killed goes on and ends with the same bits, or refuses to."""

import os
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
import highway_suite
from highway_suite import checkpoints, cli
from highway_suite.checkpoints import STATE, CheckpointError, of_training
from tests.contracts import check_resumes

ADAM = hn.Config(depth=3, hidden=8, epochs=4, batch=50, n_train=200, n_test=60,
                 lr_decay=0.7)


class Killed(Exception):
    """The process dies."""


@pytest.fixture(scope="module")
def data():
    return hn.scale_pixels(hn.take_subset(highway_suite.load("digits"), ADAM))


def train(config, data, path=None, kill=None, anyway=False):
    """-> weights and what `train` returns; killed after so many epochs, if so."""
    net = hn.make_net(config, data)

    def report(row):
        if row["epoch"] == kill:
            raise Killed
    kept = path and (of_training(path, config, data, anyway) if anyway else str(path))
    history, layer_T, status = hn.train(net, data, config, report, kept)
    return net.params.tobytes(), history, layer_T.tolist(), status


def killed(config, data, path, kill, **more):
    with pytest.raises(Killed):
        train(config, data, path, kill, **more)


def test_it_goes_on_to_the_bit_also_to_more_epochs(data, tmp_path, monkeypatch):
    path, longer = tmp_path / "run.npz", replace(ADAM, epochs=7)
    killed(ADAM, data, path, 2)
    killed(ADAM, data, path, 3)
    assert train(ADAM, data, path) == train(ADAM, data)
    here = checkpoints.environment() | {"git": "another", "git_dirty": True}
    monkeypatch.setattr(checkpoints, "environment", lambda threads: here)
    killed(longer, data, path, 5)       # the next one after the four
    assert train(longer, data, path) == train(longer, data)
    assert os.listdir(tmp_path) == ["run.npz"]
    with pytest.raises(CheckpointError, match="7 epochs"):
        train(ADAM, data, path)


@pytest.mark.parametrize("change", [{}, {"optimizer": "sgd", "momentum": 0.9}],
                         ids=["adam", "sgd"])
@pytest.mark.parametrize("kill", [1, 4, 5, 9, 16])
def test_killed_in_any_step_it_goes_on_to_the_bit(kill, change, data, tmp_path,
                                                  monkeypatch):
    config = replace(ADAM, **change)        # four steps in each epoch
    check_resumes(monkeypatch, lambda folder: {
        "all": train(config, data, f"{folder}/run.npz")}, tmp_path, kill,
                  left=16 - (kill - 1) // 4 * 4)


def rewrite(path, state=bytes, **change):
    with np.load(path) as members:
        arrays = {name: members[name] for name in members.files if name != STATE}
        text = state(members[STATE])
    np.savez(path, **arrays | {name: how(arrays[name]) for name, how in change.items()})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(STATE, text)


BROKEN = {
    "half-written": lambda path: path.write_bytes(path.read_bytes()[:3000]),
    "zeros in it": lambda path: path.write_bytes(
        path.read_bytes()[:1500] + bytes(9) + path.read_bytes()[1509:]),
    "another archive": lambda path: np.savez(path, params=np.zeros(3)),
    "a short array": lambda path: rewrite(path, v=lambda v: v[:1]),
    "another type": lambda path: rewrite(path, v=lambda v: v.astype("int8")),
    "no seconds": lambda path: rewrite(path, state=lambda state: state.replace(
        b'"seconds"', b'"minutes"'))}


@pytest.fixture(scope="module")
def halfway(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("halfway") / "run.npz"
    killed(ADAM, data, path, 2)
    return path.read_bytes()


def check_refused(path, config, data, words=""):
    """The error names the file, which stays as it is, and nothing is changed."""
    before, net = path.read_bytes(), hn.make_net(config, data)
    optimizer, rng = hn.Adam(net.params), np.random.default_rng(1)
    arrays = {"params": net.params} | {name: getattr(optimizer, name)
                                       for name in optimizer.kept}
    held = {name: array.copy() for name, array in arrays.items()}
    state = rng.bit_generator.state
    with hn.blas_threads(1), pytest.raises(CheckpointError) as caught:
        of_training(path, config, data).load(arrays, {"batches": rng})
    assert str(caught.value).startswith(str(path)) and words in str(caught.value)
    assert all(np.array_equal(held[name], arrays[name]) for name in arrays)
    assert rng.bit_generator.state == state
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused_and_kept(kind, data, halfway, tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(halfway)
    BROKEN[kind](path)
    check_refused(path, ADAM, data)


def test_another_training_is_refused_and_kept(data, halfway, tmp_path):
    """Other settings, images or labels; the words of the data are the same."""
    path = tmp_path / "run.npz"
    path.write_bytes(halfway)
    check_refused(path, replace(ADAM, lr=ADAM.lr * 2), data, "lr is 0.005, here 0.01")
    check_refused(path, replace(ADAM, hidden=9), data, "hidden")
    kept, other_seed = of_training(path, ADAM, data), replace(ADAM, seed=99)
    with pytest.raises(ValueError, match="checkpoint is for seed"):
        hn.train(hn.make_net(other_seed, data), data, other_seed, checkpoint=kept)
    other = replace(data, y_train=np.roll(data.y_train, 1))
    check_refused(path, ADAM, other, "other data")
    check_refused(path, ADAM, replace(data, x_train=-data.x_train), "other data")


def test_other_starting_weights_are_refused(data, halfway, tmp_path):
    path, net = tmp_path / "run.npz", hn.make_net(replace(ADAM, seed=1), data)
    path.write_bytes(halfway)
    with pytest.raises(CheckpointError, match="other weights"):
        hn.train(net, data, ADAM, checkpoint=path)


def test_a_block_that_has_changed_is_refused(data, tmp_path, monkeypatch):
    def scaled(by):
        """y = x + H, or x + by H where H is below 0."""
        def slope(H):
            return np.where(H < 0, by, 1).astype(H.dtype)

        def forward(x, rows, y, scratch):
            np.add(x, slope(rows[0]) * rows[0], out=y)

        def backward(d, x, rows, dH, scratch):
            np.multiply(d, slope(rows[0]), out=dH)
        return hn.Block("", forward, backward)
    monkeypatch.setitem(hn.BLOCKS, "scaled", scaled(1))
    config = replace(ADAM, block="scaled")
    done = train(config, data, tmp_path / "t.npz")
    assert train(config, data, tmp_path / "t.npz") == done
    for changed in (scaled(0.1), lambda L: scaled(L / 10)):
        monkeypatch.setitem(hn.BLOCKS, "scaled", changed)
        with pytest.raises(CheckpointError, match="block computes"):
            train(config, data, tmp_path / "t.npz")


def test_another_processor_goes_on_when_asked_and_is_noted(data, halfway, tmp_path,
                                                           monkeypatch):
    path = tmp_path / "run.npz"
    path.write_bytes(halfway)
    with hn.blas_threads(1):
        there = checkpoints.this_process()
    here = there | {"blas_kernel": "Abacus"}
    monkeypatch.setattr(checkpoints, "environment", lambda threads: here)
    check_refused(path, ADAM, data, "Abacus")
    killed(ADAM, data, path, 3, anyway=True)
    assert train(ADAM, data, path) == train(ADAM, data)
    arm = hn.train_arm(ADAM, hn.take_subset(highway_suite.load("digits"), ADAM),
                       checkpoint=of_training(path, ADAM, data))
    assert arm["environments"] == [there, here]


def test_the_command_goes_on_with_its_checkpoints(tmp_path, monkeypatch):
    """Each net has its own; a run of more epochs takes up those of a shorter one."""
    monkeypatch.chdir(tmp_path)
    words = ["--dataset", "digits", "--depth", "2", "--jobs", "1", "--seeds", "0,1",
             "--checkpoint", "c.npz", "--no-save", "--epochs"]
    cli.main([*words, "2"])
    assert sorted(os.listdir()) == [f"c-{block}-2-{seed}.npz" for block in
                                    ("highway", "plain") for seed in (0, 1)]
    steps, step = [], hn.train_step
    monkeypatch.setattr(hn, "train_step",
                        lambda *args: steps.append(1) or step(*args))
    resumed = cli.main([*words, "3"])
    assert len(steps) == 4 * (1437 // 128)
    for file in tmp_path.iterdir():
        file.unlink()
    whole = cli.main([*words, "3"])
    for one, other in zip(resumed["runs"], whole["runs"], strict=True):
        for block in ("highway", "plain"):
            assert one[block]["history"] == other[block]["history"]
    for more in (["2"], ["4", "--threads", "2"]):       # other last bits
        with pytest.raises(SystemExit, match="c-highway-2-0.npz"):
            cli.main([*words, *more])
    (tmp_path / "c-plain-2-0.npz").unlink()
    (tmp_path / "c-plain-2-0.npz").mkdir()
    with pytest.raises(SystemExit, match="c-plain-2-0.npz: not a regular file"):
        cli.main([*words, "3"])
