"""The benchmarks: equal work is checked, ratios and records are as they say."""

import hashlib

import numpy as np
import pytest
from PIL import Image

import benchmarks.__main__ as program
from benchmarks import accuracy, as_users, convolution, fully_connected, records
from benchmarks.contests import CONTESTS
from benchmarks.harness import Contest, Contestant, OtherWork, measure

SMALL = {"hidden": 8, "inputs": 16, "images": 100, "batch": 32, "steps": 10}


class Twin:
    """A program whose work takes so many seconds by `clock`, round after round."""

    now = 0.0

    def __init__(self, *seconds, slope=2.0):
        self.seconds, self.slope, self.rounds = seconds, slope, 0

    def gradient(self):
        return {"W": np.array([1.0, self.slope])}

    def work(self):
        Twin.now += self.seconds[self.rounds % len(self.seconds)]
        self.rounds += 1


def twins(ours, other):
    """The contest of two programs, without a task."""
    made = {"ours": Contestant(lambda task: ours), "other": Contestant(
        lambda task: other), "absent": Contestant(Twin, ("no_such_library",))}
    return Contest(lambda dtype: None, made, {"size": 1}, steps=2,
                   clock=lambda: Twin.now)


def measured(ours, other, rounds=4):
    return measure(twins(ours, other), rounds)


@pytest.mark.parametrize("seconds, verdict", [
    ([6.0], "ahead"), ([4.0], "level"), ([4.1], "level"), ([3.0], "behind"),
    ([6.0, 3.9], "level"),              # two rounds of four: no verdict
    ([3.0, 3.9], "behind")])
def test_who_is_ahead(seconds, verdict):
    found = measured(Twin(4.0), Twin(*seconds))["contestants"]
    assert found["other"]["verdict"] == verdict and found["ours"]["verdict"] is None


def test_ratios_are_taken_within_a_round():
    """Their median is not that of the seconds: the first round only warms up."""
    found = measured(Twin(50.0, 1.0, 1.0, 4.0), Twin(90.0, 2.0, 3.0, 4.0), 3)
    ours, other = (found["contestants"][name] for name in ("ours", "other"))
    assert other["times_ours"] == {"median": 2.0, "least": 1.0, "largest": 3.0}
    assert ours["seconds"] == [0.5, 0.5, 2.0] and other["median"] == 1.5    # of a step
    assert found["skipped"] == {"absent": ["no_such_library"]}
    assert found["rounds"] == 3 and found["settings"] == {"size": 1}


@pytest.mark.parametrize("slope", [2.001, 1.0, np.nan])
def test_another_gradient_is_refused(slope):
    with pytest.raises(OtherWork, match="other does other work"):
        measured(Twin(1.0), Twin(1.0, slope=slope))


def test_pytorch_does_our_work_and_gives_our_answers():
    pytest.importorskip("torch")
    contest = fully_connected.contest(
        {"PyTorch": fully_connected.FRAMEWORKS["PyTorch"]}, block="highway", depth=3,
        clip=0.1, **SMALL)
    found = measure(contest, 1)["contestants"]["PyTorch"]
    assert found["gradient_error"] < 1e-5 and found["weights_apart"] < 1e-2
    task = fully_connected.Task("float32", block="highway", **as_users.NET)
    ours, theirs = (as_users.OneRow(task, name).gradient()["answers"]
                    for name in ("ours", "PyTorch"))
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-6)


def test_pytorch_computes_our_gradient_of_a_convolutional_net():
    pytest.importorskip("torch")
    task = convolution.Task("Table 2", "float64", batch=4, piece=2, dropout=0)
    net, batch = task.make_net(), (task.x, task.labels, None)
    learner = accuracy.InTorch(net)
    for _ in range(2):      # also at the weights that an optimiser left
        theirs, gradient = learner.gradient(batch, None)
        ours, expected = net.gradient(batch, net.cache(4, 2))
        assert theirs == pytest.approx(ours)
        np.testing.assert_allclose(gradient, expected, rtol=1e-8, atol=1e-10)
        net.params -= 0.01 * expected


def test_the_products_are_those_of_a_step():
    """Each product of the two passes, and nothing else, from the cache's own arrays."""
    products = fully_connected.Products(fully_connected.Task(
        "float64", block="highway", depth=3, **SMALL))
    net, cache, x = products.net, products.cache, products.rows.T
    weights, inputs = net.tensors(net.params), cache.x.copy()
    products.forward()
    found = [cache.d.copy(), cache.z.copy(), cache.logits.copy()]
    products.backward()
    expected = [weights["W_in"] @ x, weights["blocks"] @ inputs[:-1],
                weights["out"] @ inputs[-1], cache.z @ inputs[:-1].swapaxes(1, 2),
                cache.d @ x.T]
    for one, other in zip([*found, cache.dW["blocks"], cache.dW["W_in"]], expected,
                          strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    assert np.array_equal(cache.x, inputs)


# The record and the command line


@pytest.mark.parametrize("path", [records.RECORD, accuracy.RECORD])
def test_the_committed_picture_is_of_its_record(path):
    with Image.open(path.with_suffix(".png")) as picture:
        assert picture.info["Record-SHA-256"] == hashlib.sha256(
            path.read_bytes()).hexdigest()


def test_the_committed_record_is_of_commits():
    record = records.read()
    assert record["processors"]
    for entry in record["processors"]:
        assert entry["contests"].keys() <= CONTESTS.keys()
        assert not any(contest["env"]["git_dirty"]
                       for contest in entry["contests"].values())


def test_a_contest_in_a_process_of_its_own():
    answer = program.ask("plain, 3 blocks of 50", 1, 0.0)
    assert answer["kind"]["vendor"] == records.processor()["vendor"]
    assert answer["contest"]["contestants"]["ours"]["median"] > 0
    assert answer["contest"]["env"]["blas_threads"] == 1
