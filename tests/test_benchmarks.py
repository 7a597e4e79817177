"""The benchmarks: equal work is checked, ratios and laws are as they say."""

import hashlib
import importlib.util
import json
import os

import numpy as np
import pytest
from PIL import Image

import highway_networks as hn
from benchmarks import (
    cold_start,
    convolution,
    lab,
    language_model,
    peers,
    processes,
    scaling,
)
from benchmarks.contestants import CONTESTANTS, Floor, Ours, Task
from highway_suite.files import write_json
from highway_suite.records import environment

ONE_CORE = processes.available_cores()[:1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, digits):
    """The digits' images.npz and small tasks of each block beside it; those of one
    layer are compiled sooner."""
    path = tmp_path_factory.mktemp("tasks")
    shape = processes.write_images(path, digits)
    for block in ("highway", "plain"):
        processes.write_task(path / f"{block}.npz", shape, block, 3, 8, 32, 10)
        processes.write_task(path / f"{block}_1.npz", shape, block, 1, 8, 32, 10)
    return path


@pytest.fixture
def task(folder):
    return Task(folder / "highway.npz")


def test_a_task_has_the_classes_of_its_data(tmp_path, rng):
    x = np.zeros((6, 4), np.uint8)
    labels = np.arange(6) * 2
    shape = processes.write_images(tmp_path, hn.Data(x, labels, x, labels, classes=12))
    task = Task(processes.write_task(tmp_path / "a.npz", shape, "highway", 2, 3, 5, 2))
    assert task.settings["classes"] == 12


class InThisProcess:
    """What `peers` needs of a Process, without another one."""

    def __init__(self, contestant):
        self.contestant = contestant

    def arrays(self, what):
        return {name: array.copy()
                for name, array in getattr(self.contestant, what)().items()}


def half_the_gate(grads):
    grads["b_T"] *= 0.5


def one_wrong_entry(grads):
    """A thousandth in a single entry, of the largest size."""
    where = np.unravel_index(abs(grads["W_H"]).argmax(), grads["W_H"].shape)
    grads["W_H"][where] *= 1.001


def no_number(grads):
    grads["b_out"][...] = np.nan


@pytest.mark.parametrize("breaking", [half_the_gate, one_wrong_entry, no_number])
def test_a_wrong_gradient_is_refused(breaking, task):
    class Broken(Ours):
        def gradient(self):
            grads = {name: grad.copy() for name, grad in super().gradient().items()}
            breaking(grads)
            return grads
    ours, theirs = (InThisProcess(kind(task)) for kind in (Ours, Broken))
    with pytest.raises(SystemExit, match="it does other work"):
        peers.check_work("it", theirs, ours, task.initial)


def test_the_same_work_is_accepted(task):
    """And the gradient belongs to the initial weights, after any number of epochs."""
    ours, other = (InThisProcess(Ours(task)) for _ in range(2))
    before = ours.arrays("gradient")
    for process in (ours, other):
        process.contestant.epoch()
    assert peers.check_work("it", other, ours, task.initial) == {
        "gradient_error": 0.0, "weights_apart": 0.0}
    after = ours.arrays("gradient")
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert not np.array_equal(ours.arrays("weights")["W_H"], task.initial["W_H"])


def check_framework(found):
    """Gradient, clip and Adam: ten steps later the weights are still the same."""
    assert 0 < found["gradient_error"] < 1e-5 and found["weights_apart"] < 1e-2


@pytest.mark.parametrize("block", ["highway", "plain"])
def test_torch_does_our_work(block, folder, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task = Task(folder / f"{block}.npz")
    ours, theirs = (InThisProcess(CONTESTANTS[name](task))
                    for name in ("ours", "torch"))
    for process in (ours, theirs):
        process.contestant.epoch()
    check_framework(peers.check_work("torch", theirs, ours, task.initial))


@pytest.mark.parametrize("name, block", [("torch.compile", "highway"),
                                         ("jax", "highway"), ("jax scan", "plain")])
def test_a_compiled_program_does_our_work(name, block, folder, monkeypatch):
    for library in peers.NEEDS[name]:       # not imported here: it may draw from NumPy
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")    # no workers for so few
    monkeypatch.setattr(processes, "PATIENCE", 3600)
    task = folder / f"{block}_1.npz"
    with (processes.Process("ours", task, ONE_CORE) as ours,
          processes.Process(name, task, ONE_CORE) as theirs):
        ours.wait()
        try:
            theirs.wait()
        except processes.Skipped as reason:
            pytest.skip(f"{name}: {reason}")
        check_framework(peers.check_work(name, theirs, ours, Task(task).initial))


def test_the_floor_has_the_products_of_a_step(task):
    """Each product of the two passes, and nothing else, from the cache's own arrays."""
    floor = Floor(task)
    x, _ = floor.gather(task.order[0])
    net, cache = floor.net, floor.cache
    net.forward(x, cache)
    weights, inputs = net.tensors(net.params), cache.x.copy()
    floor.forward_products()
    found = [cache.d.copy(), cache.z.copy(), cache.logits.copy()]
    floor.backward_products()
    expected = [weights["W_in"] @ x, weights["blocks"] @ inputs[:-1],
                weights["out"] @ inputs[-1], cache.z @ inputs[:-1].swapaxes(1, 2),
                cache.d @ x.T]
    for one, other in zip([*found, cache.dW["blocks"], cache.dW["W_in"]], expected,
                          strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert np.array_equal(cache.x, inputs)


def test_a_pair_is_judged_by_its_better_way():
    """And ratios are taken within a round: the median is not 3 / 1."""
    side, turn = peers.WAYS
    part = peers.compare_pairs(
        {("ours", side): [1.0, 1.0, 2.0], ("ours", turn): [3.0, 3.0, 3.0],
         ("jax", side): [9.0, 9.0, 9.0], ("jax", turn): [2.0, 3.0, 5.0]},
        {("ours", side): 1.5, ("ours", turn): 0.0,
         ("jax", side): 0.0, ("jax", turn): 15.0})
    assert part["ours"][turn]["preparation"] == 0       # never less
    ours, jax = ({name: value for name, value in part[who].items()
                  if name not in (side, turn)} for who in ("ours", "jax"))
    assert ours == {"better": side, "headline_seconds": 12, "times_ours_prepared": 1,
                    "headline_seconds_prepared": 12.5,
                    "times_ours": {"median": 1, "least": 1, "largest": 1}}
    assert jax == {"better": turn, "headline_seconds": 36,
                   "headline_seconds_prepared": 48,         # 36 + (15 - 3)
                   "times_ours_prepared": 3.84,             # 48 / 12.5
                   "times_ours": {"median": 2.5, "least": 2.0, "largest": 3.0}}


def test_jax_is_stood_for_by_its_faster_program():
    part = {name: {"median": median} for name, median in (
        ("ours", 1), ("floor", 0.5), ("jax", 2), ("torch", 3), ("jax scan", 1.5))}
    assert peers.contenders(part) == ["ours", "torch", "jax scan"]


DEPTHS = np.array([10, 20, 50, 100, 200, 500, 1000], float)


@pytest.mark.parametrize("seconds, linear, exponent", [
    (0.004 + 0.002 * DEPTHS, True, 0.965), (1e-6 * DEPTHS ** 2, False, 2),
    (0.002 * DEPTHS * np.where(DEPTHS < 1000, 1, 1.3), False, 1.03)])
def test_a_line_is_linear_and_a_parabola_is_not(seconds, linear, exponent):
    law = scaling.depth_law(DEPTHS.tolist(), seconds)
    assert law["linear"] is linear
    assert law["exponent"] == pytest.approx(exponent, abs=0.02)
    assert law["largest_deviation"] == max(map(abs, law["deviation"]))
    points = [{**scaling.CENTRE, "depth": int(depth), "median": 2.0 * second,
               "least": second} for depth, second in zip(DEPTHS, seconds, strict=True)]
    other = {**scaling.CENTRE, "hidden": 7, "median": 1.0, "least": 1.0}
    beyond = points[0] | {"depth": 2000}, points[0] | {"depth": 5}
    assert scaling.depth_laws([*points, other, *beyond])["least"] == law
    assert scaling.depth_laws(points[:2]) is None


def test_a_contestant_is_bound_to_its_core_and_skipped_if_it_cannot_run(
        folder, monkeypatch):
    cores, task = processes.available_cores(), folder / "highway.npz"
    with (processes.Process("nobody", task, ONE_CORE) as process,
          pytest.raises(processes.Skipped, match="ended with 1: KeyError: 'nobody'")):
        process.wait()
    with (monkeypatch.context() as patch,
          processes.Process("ours", task, ONE_CORE) as process,
          pytest.raises(processes.Skipped, match="no epoch trained")):
        patch.setattr(processes, "PATIENCE", 0)     # before it has started to train
        process.wait()
    with processes.Process("ours", task, cores[-1:]) as process:
        if hasattr(os, "sched_getaffinity"):
            assert os.sched_getaffinity(process.process.pid) == {cores[-1]}
        assert processes.available_cores() == cores
        process.wait()
        assert process.ask("environment").keys() == {*environment(), "cpu"}


def check_files(out, record):
    """The record is on disk as returned, and its picture is one."""
    assert json.loads(out.read_text(encoding="utf-8")) == record
    with Image.open(out.with_suffix(".png")) as image:
        image.load()
        assert image.info["Source"] == record["command"]


@pytest.fixture
def no_frameworks(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None
                        if name in ("torch", "jax", "optax") else find(name, *rest))


def test_peers_without_frameworks(tmp_path, no_frameworks):
    out = tmp_path / "p.json"
    record = lab.main(peers.BENCHMARK, [
        "--depth", "2", "--hidden", "4", "--batch", "16", "--repeats", "1",
        "--dataset", "digits", "--out", str(out)])
    assert record["skipped"].keys() == {"torch", "torch.compile", "jax", "jax scan"}
    assert list(record["one_core"]) == ["ours", "floor"]
    assert list(record["all_cores"]) == ["ours"]
    ours, floor = record["one_core"].values()
    assert ours["times_ours"] == {"median": 1.0, "least": 1.0, "largest": 1.0}
    assert ours["gradient_error"] == 0 and "gradient_error" not in floor
    check_files(out, record)
    with pytest.raises(SystemExit, match="not 'highway-networks/scaling'"):
        lab.main(scaling.BENCHMARK, ["--plot", "--out", str(out)])


def test_a_cold_start(tmp_path, no_frameworks, folder, monkeypatch):
    out = tmp_path / "c.json"
    record = lab.main(cold_start.BENCHMARK, ["--depth", "2", "--repeats", "1",
                                             "--dataset", "digits", "--out", str(out)])
    ours, = record["contestants"].values()
    assert ours["times_ours"]["median"] == 1 and ours["parts"][0] > 0
    check_files(out, record)
    monkeypatch.setattr(cold_start, "EPOCHS", 2)
    start, first, others = cold_start.time_parts(
        "ours", [folder / "highway.npz", folder / "plain.npz"], [ONE_CORE, ONE_CORE])
    assert start > 0 and first > 0 and others > 0


def test_scaling_of_small_nets(tmp_path, monkeypatch):
    for name, value in (("SEARCH_REPEATS", 1), ("STEPS", 2),
                        ("available_cores", lambda: ONE_CORE)):
        monkeypatch.setattr(scaling, name, value)
    out = tmp_path / "s.json"
    record = lab.main(scaling.BENCHMARK, [
        "--depths", "10,11,12", "--widths", "4", "--batches", "8", "--repeats", "1",
        "--runs", "1", "--deepest", "7", "--dataset", "digits", "--out", str(out)])
    assert [p["depth"] for p in record["points"]] == [10, 11, 12, 30, 30]
    for point in record["points"]:
        assert point["least"] == point["median"] == point["seconds_per_step"][0] > 0
        assert 20 < point["peak_mb"] < 1000
    assert record["depth_law"]["median"]["depths"] == [10, 11, 12]
    whole = record["whole_run"]
    assert whole["under_limit"] == (whole["peak_mb"] < 700) and whole["depth"] == 12
    assert record["search"][0]["jobs"] == 1
    deepest = record["deepest"]
    assert deepest["depth"] == 7 and 0 < deepest["test_acc"] <= 1
    assert "--depth 7" in deepest["command"] and deepest["seconds"] > 0
    check_files(out, record)
    write_json(out, record | {"depth_law": None})       # too few depths: no law
    lab.main(scaling.BENCHMARK, ["--plot", "--out", str(out)])


@pytest.mark.parametrize("benchmark, flags", [
    (convolution, "--dataset digits --widths 3 --tables 2 --batch 4 --piece 2"),
    (language_model, "--batch 3 --steps 4 --words 60")])
def test_steps_that_take_turns(benchmark, flags, tmp_path, no_frameworks, capsys):
    out, cores = tmp_path / "steps.json", processes.available_cores()
    flags = [*flags.split(), "--repeats", "2", "--out", str(out)]
    record = lab.main(benchmark.BENCHMARK, flags)
    assert processes.available_cores() == cores
    assert "torch: not installed, skipped" in capsys.readouterr().out
    for net in record.get("nets", [record]):
        ours, floor = (net["contestants"][name] for name in ("ours", "floor"))
        assert ours["times_ours"] == {"median": 1, "least": 1, "largest": 1}
        ratios = np.array(floor["seconds"]) / ours["seconds"]
        assert floor["times_ours"]["median"] == pytest.approx(np.median(ratios), 1e-4)
    check_files(out, record)
    picture = out.with_suffix(".png").read_bytes()
    assert lab.main(benchmark.BENCHMARK, ["--plot", "--out", str(out)]) == record
    assert out.with_suffix(".png").read_bytes() == picture


def test_only_the_committed_settings_replace_the_committed_record(home):
    committed, runs = home / "benchmarks" / "x.json", home / "runs" / "benchmarks"
    record = {"schema": "x", "command": "c --depth 30", "dataset": "mnist", "n": 1}
    assert lab.place_of(record, committed) == committed, "there is none yet"
    committed.parent.mkdir()
    write_json(committed, record)
    assert lab.place_of(record | {"n": 2}, committed) == committed
    for other in ({"command": "c --depth 5"}, {"dataset": "digits"}):
        assert lab.place_of(record | other, committed) == runs / "x.json"


@pytest.mark.parametrize("benchmark", [cold_start, convolution, language_model, peers,
                                       scaling],
                         ids=lambda module: module.__name__)
def test_the_defaults_are_the_committed_settings(benchmark):
    """So the command of the README makes the committed record again."""
    record = json.loads(benchmark.RECORD.read_text("utf-8"))
    args = vars(benchmark.make_parser().parse_args(record["command"].split()[3:]))
    assert args == vars(benchmark.make_parser().parse_args([]))
    assert record["env"]["git_dirty"] is False
    digest = hashlib.sha256(benchmark.RECORD.read_bytes()).hexdigest()
    with Image.open(benchmark.RECORD.with_suffix(".png")) as picture:
        assert picture.info["Record-SHA-256"] == digest


def test_a_record_is_not_written_where_its_picture_goes(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        lab.main(scaling.BENCHMARK, ["--out", str(tmp_path / "x.png")])
    assert "is the name of a picture" in capsys.readouterr().err


def test_a_failed_part_of_scaling_ends_in_one_line(tmp_path):
    with pytest.raises(ValueError, match="ZeroDivisionError: division by zero"):
        scaling.ask_python("1 / 0", [], ONE_CORE)
    with pytest.raises(SystemExit, match=r"absent.json: .*Make it with: python3 -m"):
        lab.main(scaling.BENCHMARK, ["--plot", "--out", str(tmp_path / "absent.json")])


def test_a_place_for_the_record_is_looked_for_before_measuring(tmp_path):
    benchmark = scaling.BENCHMARK._replace(measure=lambda _: pytest.fail("measured"))
    with pytest.raises(SystemExit, match="not a regular file"):
        lab.main(benchmark, ["--out", str(tmp_path)])


def test_a_record_without_a_field_is_one_line(tmp_path):
    record = json.loads(scaling.RECORD.read_text("utf-8"))
    del record["points"], record["deepest"]
    (tmp_path / "r.json").write_text(json.dumps(record))
    with pytest.raises(SystemExit, match="a field is missing or wrong"):
        lab.main(scaling.BENCHMARK, ["--plot", "--out", str(tmp_path / "r.json")])
