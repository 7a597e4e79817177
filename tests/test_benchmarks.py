"""The benchmarks compare equal work, compute their ratios rightly and write whole
records. No test here measures a speed."""

import hashlib
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import highway_networks as hn
from benchmarks import contestants, peers, scaling
from benchmarks.contestants import Floor, Ours, Task


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The digits' images.npz and a small task of each block beside it."""
    path = tmp_path_factory.mktemp("tasks")
    _, shape = peers.load_images(path, "digits", None)
    for block in ("highway", "plain"):
        peers.write_task(path / f"{block}.npz", shape, block, 3, 8, 32, 10)
    return path


@pytest.fixture
def task(folder):
    return Task(folder / "highway.npz")


class InThisProcess:
    """What `peers` needs of a Process, without another one."""

    def __init__(self, contestant, folder):
        self.contestant, self.folder = contestant, folder

    def arrays(self, what):
        path = contestants.obey(self.contestant, f"{what} {self.folder / 'a.npz'}")
        with np.load(path) as archive:
            return dict(archive)


# --------------------------------------------------------------------------------------
# Equal work


class HalfTheGate(Ours):
    """Ours, but for a factor in one tensor of the gradient."""

    def gradient(self):
        grads = super().gradient()
        return grads | {"b_T": 0.5 * grads["b_T"]}


class OneWrongEntry(Ours):
    """Ours, but for a thousandth in a single entry, of the largest size."""

    def gradient(self):
        grads = {name: grad.copy() for name, grad in super().gradient().items()}
        where = np.unravel_index(abs(grads["W_H"]).argmax(), grads["W_H"].shape)
        grads["W_H"][where] *= 1.001
        return grads


class NoNumber(Ours):
    def gradient(self):
        return super().gradient() | {"b_out": np.full(10, np.nan, np.float32)}


@pytest.mark.parametrize("broken", [HalfTheGate, OneWrongEntry, NoNumber])
def test_a_wrong_gradient_is_refused(broken, task, tmp_path):
    ours = InThisProcess(Ours(task), tmp_path)
    theirs = InThisProcess(broken(task), tmp_path)
    with pytest.raises(SystemExit, match="it does other work: its gradient is off by"):
        peers.check_work("it", theirs, ours, task.initial)


def test_the_same_work_is_accepted(task, tmp_path):
    ours = InThisProcess(Ours(task), tmp_path)
    other = InThisProcess(Ours(task), tmp_path)
    for process in (ours, other):
        process.contestant.epoch()
    assert peers.check_work("it", other, ours, task.initial) == {
        "gradient_error": 0.0, "weights_apart": 0.0}


def test_the_gradient_belongs_to_the_initial_weights(task):
    """It may be asked for after any number of epochs."""
    contestant = Ours(task)
    before = contestant.gradient()
    contestant.epoch()
    after = contestant.gradient()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert not np.array_equal(contestant.weights()["W_H"], task.initial["W_H"])


def test_distance_is_in_parts_of_our_way():
    start = {"a": np.zeros(2), "b": np.zeros((1, 2))}
    ours = {"a": np.array([3.0, 0.0]), "b": np.array([[0.0, 4.0]])}     # 5 from start
    theirs = {"a": np.array([3.0, 0.3]), "b": np.array([[0.4, 4.0]])}   # 0.5 from ours
    assert peers.distance(ours, theirs, start) == pytest.approx(0.1)


@pytest.mark.parametrize("block", ["highway", "plain"])
def test_stacked_weights_come_back(folder, block):
    task = Task(folder / f"{block}.npz")
    again = task.unstacked(task.stacked())
    assert again.keys() == task.initial.keys()
    assert all(np.array_equal(again[name], task.initial[name]) for name in again)


@pytest.mark.parametrize("name, block", [
    ("torch", "highway"), ("torch", "plain"), ("torch.compile", "highway"),
    ("jax", "highway"), ("jax scan", "highway"), ("jax scan", "plain")])
def test_a_framework_does_our_work(name, block, folder):
    """Gradient, clip and Adam: ten steps later the weights are still the same."""
    for library in peers.NEEDS[name]:
        if hn.importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    task, core = folder / f"{block}.npz", peers.available_cores()[:1]
    with (peers.Process("ours", task, core) as ours,
          peers.Process(name, task, core) as theirs):
        ours.wait()
        theirs.wait()
        found = peers.check_work(name, theirs, ours, Task(task).initial)
    assert 0 < found["gradient_error"] < 1e-5 and found["weights_apart"] < 1e-2


def test_the_floor_has_the_products_of_a_step(task):
    """Each product of the two passes, and nothing else, from the cache's own arrays."""
    floor = Floor(task)
    x, _ = floor.gather(task.order[0])
    net, cache = floor.net, floor.cache
    net.forward(x, cache)
    weights, inputs = net.tensors(net.params), cache.x.copy()
    floor.forward_products()
    np.testing.assert_allclose(cache.d, weights["W_in"] @ x, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(cache.z, weights["blocks"] @ inputs[:-1], rtol=1e-4,
                               atol=1e-6)
    np.testing.assert_allclose(cache.logits, weights["out"] @ inputs[-1], rtol=1e-4,
                               atol=1e-6)
    floor.backward_products()
    np.testing.assert_allclose(cache.dW["blocks"], cache.z @ inputs[:-1].swapaxes(1, 2),
                               rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(cache.dW["W_in"], cache.d @ x.T, rtol=1e-4, atol=1e-4)
    assert np.array_equal(cache.x, inputs)


def test_the_parts_make_a_step(task, monkeypatch):
    """Under a clock that ticks once a reading, each part's share is known."""
    clock = iter(range(10**6))
    monkeypatch.setattr(contestants.time, "perf_counter", lambda: float(next(clock)))
    parts = Floor(task).parts()
    assert parts.keys() == {*peers.PARTS, "step"}
    steps = len(task.order)
    for name in ("gather", "loss", "clip", "Adam", "forward products"):
        assert parts[name] == steps
    assert parts["step"] == 1
    assert parts["forward element-wise"] == parts["backward element-wise"] == 0


# --------------------------------------------------------------------------------------
# Numbers


def test_ratios_are_taken_within_a_round():
    """A slow second round changes no ratio: the median is not 30 / 20."""
    seconds, ours = [30.0, 300.0, 36.0], [10.0, 100.0, 20.0]
    assert peers.times_ours(seconds, ours) == {"median": 3.0, "least": 1.8,
                                               "largest": 3.0}


def test_preparation_is_what_the_first_epoch_took_longer():
    assert peers.summary([2.0, 4.0, 9.0], first=10.0) == {
        "seconds": [2.0, 4.0, 9.0], "median": 4.0, "preparation": 6.0}
    assert peers.summary([2.0], first=1.5)["preparation"] == 0.0


def test_a_pair_is_judged_by_its_better_way():
    side, turn = peers.WAYS
    part = peers.compare_pairs(
        {("ours", side): [1.0, 1.0, 2.0], ("ours", turn): [3.0, 3.0, 3.0],
         ("jax", side): [9.0, 9.0, 9.0], ("jax", turn): [2.0, 3.0, 5.0]},
        {("ours", side): 1.5, ("ours", turn): 0.0,
         ("jax", side): 0.0, ("jax", turn): 15.0})
    ours, jax = part["ours"], part["jax"]
    assert (ours["better"], jax["better"]) == (side, turn)
    assert ours["headline_seconds"] == 12 and jax["headline_seconds"] == 36
    assert ours["headline_seconds_prepared"] == 12.5
    assert jax["headline_seconds_prepared"] == 48                   # 36 + (15 - 3)
    assert jax["times_ours"] == {"median": 2.5, "least": 2.0, "largest": 3.0}
    assert jax["times_ours_prepared"] == 3.84                       # 48 / 12.5
    assert ours["times_ours_prepared"] == 1 == ours["times_ours"]["median"]


def test_the_profile_adds_up():
    names = [*peers.PARTS, "step"]
    parts = [dict.fromkeys(names, value * peers.STEPS) for value in (1.0, 2.0, 9.0)]
    profile = peers.profile(parts)
    assert profile["step_ms"] == 2000 and profile["sum_ms"] == 16000
    assert set(profile["parts"]) == set(peers.PARTS)
    assert all(part == {"ms": 2000.0, "share": 0.125}
               for part in profile["parts"].values())


def test_jax_is_stood_for_by_its_faster_program():
    part = {name: {"median": median} for name, median in (
        ("ours", 1), ("floor", 0.5), ("torch", 3), ("jax", 2), ("jax scan", 1.5))}
    assert peers.contenders(part) == ["ours", "torch", "jax scan"]
    part["jax"]["median"] = 1.2
    assert peers.contenders(part) == ["ours", "torch", "jax"]
    del part["jax"], part["jax scan"]
    assert peers.contenders(part) == ["ours", "torch"]


def test_a_line_is_linear_and_a_parabola_is_not():
    depths = [10, 20, 50, 100, 200, 500, 1000]
    d = np.array(depths, float)
    law = scaling.depth_law(depths, 0.004 + 0.002 * d)
    assert law["linear"] and law["largest_deviation"] < 1e-9
    assert law["line"] == {"seconds": 0.004, "seconds_per_block": 0.002}
    assert 0.9 < law["exponent"] < 1            # the constant bends it
    law = scaling.depth_law(depths, 1e-6 * d**2)
    assert not law["linear"] and law["exponent"] == 2
    late = 0.002 * d
    late[-1] *= 1.3
    law = scaling.depth_law(depths, late)
    assert not law["linear"]
    assert law["largest_deviation"] == max(map(abs, law["deviation"]))


def test_the_law_is_about_its_own_depths():
    points = [{**scaling.CENTRE, "depth": depth, "median": 2.0 * depth,
               "least": 1.0 * depth} for depth in (1000, 5, 10, 50, 2000)]
    points.append({**scaling.CENTRE, "hidden": 7, "median": 1.0, "least": 1.0})
    laws = scaling.depth_laws(points)
    assert laws["median"]["depths"] == [10, 50, 1000]
    assert laws["median"]["line"]["seconds_per_block"] == 2
    assert laws["least"]["line"]["seconds_per_block"] == 1
    assert scaling.depth_laws(points[:3]) is None


def test_points_change_one_thing_at_a_time():
    points = scaling.points_of(SimpleNamespace(
        depths=[5, 30], widths=[10, 50], batches=[128, 256]))
    centre = scaling.CENTRE
    assert points == [{**centre, "depth": 5}, centre, {**centre, "hidden": 10},
                      {**centre, "batch": 256}]
    assert scaling.steps_of(centre) == scaling.STEPS
    assert scaling.steps_of({**centre, "depth": 1000}) < 6


def test_peak_memory_is_in_bytes():
    block = np.ones(2**23)          # 64 MiB
    assert block.nbytes < contestants.peak_memory() < 2**37


# --------------------------------------------------------------------------------------
# Processes and whole runs


def test_a_contestant_that_cannot_run_is_skipped(folder, monkeypatch):
    core = peers.available_cores()[:1]
    with peers.Process("nobody", folder / "highway.npz", core) as process:
        with pytest.raises(peers.Skipped, match="ended with 1: KeyError: 'nobody'"):
            process.wait()
    monkeypatch.setattr(peers, "PATIENCE", 0)
    with peers.Process("ours", folder / "highway.npz", core) as process:
        with pytest.raises(peers.Skipped, match="no epoch trained within 0 s"):
            process.wait()


def test_processes_are_bound_and_we_are_not(folder):
    if not hasattr(os, "sched_getaffinity"):
        pytest.skip("this system binds no processes")
    cores = peers.available_cores()
    with peers.Process("ours", folder / "highway.npz", cores[-1:]) as process:
        assert os.sched_getaffinity(process.process.pid) == {cores[-1]}
        assert peers.available_cores() == cores
        process.wait()
        assert process.ask("environment").keys() == {*hn.environment(), "cpu"}


def check_files(out, record):
    """The record is on disk as returned, and its picture is one."""
    assert json.loads(out.read_text(encoding="utf-8")) == record
    with Image.open(out.with_suffix(".png")) as image:
        image.load()
        assert image.size[0] == 1800 and image.info["Source"] == record["command"]


def test_peers_without_frameworks(tmp_path, monkeypatch, capsys):
    find = hn.importlib.util.find_spec
    monkeypatch.setattr(hn.importlib.util, "find_spec", lambda name: None if name in (
        "torch", "jax", "optax") else find(name))
    out = tmp_path / "p.json"
    record = peers.main(["--depth", "2", "--hidden", "4", "--batch", "16", "--repeats",
                         "1", "--dataset", "digits", "--out", str(out)])
    printed = capsys.readouterr().out
    for name, why in (("torch", "torch"), ("torch.compile", "torch"),
                      ("jax", "jax and optax"), ("jax scan", "jax and optax")):
        assert f"{name}: skipped, {why} not installed" in printed
        assert record["skipped"][name] == f"{why} not installed"
    assert list(record["one_core"]) == ["ours", "floor"]
    assert list(record["all_cores"]) == ["ours"]
    ours = record["one_core"]["ours"]
    assert ours["times_ours"] == {"median": 1.0, "least": 1.0, "largest": 1.0}
    assert ours["gradient_error"] == 0 and ours["seconds"] == [ours["median"]]
    assert "gradient_error" not in record["one_core"]["floor"]
    assert "blas_kernel" in record["env"] and record["dataset"] == "digits"
    check_files(out, record)


def test_scaling_of_small_nets(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scaling, "SEARCH_REPEATS", 1)
    monkeypatch.setattr(scaling, "STEPS", 2)
    out = tmp_path / "s.json"
    record = scaling.main([
        "--depths", "10,11,12", "--widths", "4", "--batches", "8", "--repeats", "1",
        "--runs", "2", "--dataset", "digits", "--out", str(out)])
    assert [p["depth"] for p in record["points"]] == [10, 11, 12, 30, 30]
    for point in record["points"]:
        assert point["least"] == point["median"] == point["seconds_per_step"][0] > 0
        assert 20 < point["peak_mb"] < 1000
    assert record["depth_law"]["median"]["depths"] == [10, 11, 12]
    whole = record["whole_run"]
    assert whole["depth"] == 12 and "--depth 12 --epochs 1" in whole["command"]
    assert whole["under_limit"] == (whole["peak_mb"] < 700)
    assert record["search"][0]["jobs"] == 1 and record["search"][0]["times_one"] == 1
    for row in record["search"]:
        assert row["runs_per_second"] == pytest.approx(2 / row["seconds"][0], rel=1e-5)
    assert "2 runs, 1 processes" in capsys.readouterr().out
    check_files(out, record)
    hn.write_record(out, record | {"depth_law": None})      # too few depths: no law
    scaling.main(["--plot", "--out", str(out)])
    with pytest.raises(SystemExit, match="is not 'highway-networks/peers'"):
        peers.main(["--plot", "--out", str(out)])


def test_a_failed_part_of_scaling_ends_in_one_line(tmp_path):
    core = peers.available_cores()[:1]
    with pytest.raises(ValueError, match="ZeroDivisionError: division by zero"):
        scaling.ask_python("1 / 0", [], core)
    with pytest.raises(SystemExit, match=r"absent.json: .*Make it with: python3 -m"):
        scaling.main(["--plot", "--out", str(tmp_path / "absent.json")])


@pytest.mark.parametrize("record", sorted((hn.HERE / "benchmarks").glob("*.json")),
                         ids=lambda path: path.stem)
def test_the_pictures_of_the_repository_are_of_their_records(record):
    assert json.loads(record.read_text())["env"]["git_dirty"] is False
    digest = hashlib.sha256(record.read_bytes()).hexdigest()
    assert digest.encode() in record.with_suffix(".png").read_bytes(), (
        f"run: python3 -m benchmarks.{record.stem} --plot")
