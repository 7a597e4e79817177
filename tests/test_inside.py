"""The nets that are looked into, and what is found in them."""

import itertools
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
from experiments import gates, inside, lesion, readouts
from experiments.old_lab import Lab, build_parser, load_record
from highway_suite.files import write_json
from highway_suite.records import RecordError, weights_hash
from tests import committed
from tests.contracts import probed_net as small_net

MODULES = (inside, gates, lesion)


def lab_of(module, *flags):
    return Lab(module.EXPERIMENT, build_parser(module.EXPERIMENT).parse_args(flags))


# --------------------------------------------------------------------------------------
# The whole path


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_smoke(module, smoke):
    smoke(module.EXPERIMENT)


def test_the_analyses_load_the_nets_and_refuse_others(smoke, home, monkeypatch):
    smoke(inside.EXPERIMENT)
    folder = home / "results" / "inside"
    shutil.copytree(home / "runs" / "smoke" / "inside", folder)
    monkeypatch.setattr(inside, "run", lambda lab: pytest.fail("trained again"))
    monkeypatch.setattr(inside, "EXPERIMENT", replace(
        inside.EXPERIMENT, protocol=inside.PROTOCOL | inside.SMOKE))
    lab = lab_of(gates)
    nets, record = inside.load_nets(lab)
    assert set(nets) == {"highway", "residual", "plain"}
    assert nets["highway"].settings["depth"] == record["protocol"]["depth"]

    good = nets["plain"].params.copy()
    nets["plain"].params[0] += 1e-3
    nets["plain"].save(folder / "plain.npz")
    with pytest.raises(RecordError, match="plain.npz: not the weights"):
        inside.load_nets(lab)
    nets["plain"].params[...] = good
    nets["plain"].save(folder / "plain.npz")
    inside.load_nets(lab)

    (folder / "plain.npz").write_bytes(b"no archive")
    with pytest.raises(RecordError, match="python3 -m experiments.inside --smoke"):
        inside.load_nets(lab)
    record["protocol"]["seed"] = 1
    write_json(folder / "record.json", record)
    with pytest.raises(RecordError, match="another protocol"):
        inside.load_nets(lab)


def test_untrained_is_the_net_before_training(digits):
    data = hn.scale_pixels(digits)
    record = {"protocol": inside.PROTOCOL | inside.SMOKE}
    net = inside.untrained(record, "highway", data)
    config = inside.make_config(record["protocol"], "highway", 0.1, 1)
    start = hn.make_net(config, data)
    centred = inside.centred(data)
    assert np.allclose(centred.x_train.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(net.forward(data.x_test.T)[0],
                               start.forward(centred.x_test.T)[0], atol=1e-5)
    assert not np.allclose(net.forward(data.x_test.T)[0],
                           start.forward(data.x_test.T)[0], atol=1e-2)


def test_the_committed_files_belong_together():
    """Weights, records and pictures are of one making, and as small as promised."""
    results = committed.tree() / "results"
    made, _ = load_record(results / "inside" / "record.json")
    hashes = {}
    for net in made["nets"]:
        path = results / "inside" / net["file"]
        assert path.stat().st_size < 2_000_000
        hashes[net["block"]] = weights_hash(hn.DeepNet.load(path))
        assert hashes[net["block"]] == net["sha256"]
    assert min(made["nets"][0]["train_loss"]) < 1e-3 and "highway" in hashes
    found, _ = load_record(results / "gates" / "record.json")
    assert found["net"]["sha256"] == hashes["highway"]
    found, _ = load_record(results / "lesion" / "record.json")
    assert {name: net["sha256"] for name, net in found["nets"].items()} == hashes


# --------------------------------------------------------------------------------------
# Statistics of gates.py


@pytest.mark.parametrize("a, b, expected", [
    ([0, 0, 1, 1], [1, 1, 0, 0], 1),            # names do not matter
    ([0, 0, 1, 1], [0, 0, 1, 2], 4 / 7),        # scikit-learn's examples
    ([0, 0, 0, 0], [0, 1, 2, 3], 0),
    ([0, 0, 1, 1], [0, 1, 0, 1], -0.5),
    ([0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], 8 / 33),
])
def test_adjusted_rand(a, b, expected):
    assert readouts.adjusted_rand(np.array(a), np.array(b)) == pytest.approx(expected)
    assert readouts.adjusted_rand(np.array(b), np.array(a)) == pytest.approx(expected)


def test_kmeans_finds_the_best_of_all_partitions(rng):
    points = rng.normal(size=(8, 2))

    def cost(labels):
        return sum(((points[labels == c] - points[labels == c].mean(axis=0)) ** 2).sum()
                   for c in set(labels))
    least = min(cost(np.array(labels)) for labels in itertools.product((0, 1, 2),
                                                                       repeat=8))
    found = readouts.kmeans(points, 3, rng, restarts=100)
    assert cost(found) == pytest.approx(least)


def test_moments_are_those_of_the_whole(rng):
    values, labels = rng.normal(size=(2, 3, 50)), rng.integers(4, size=50)
    values[1, 2] += 5 * labels
    found = readouts.Moments(rng.normal(size=(2, 3)), 4)
    found.add(values[..., :30], labels[:30])
    found.add(values[..., 30:], labels[30:])
    flat = values.reshape(6, 50)
    np.testing.assert_allclose(found.mean, flat.mean(axis=1))
    np.testing.assert_allclose(found.covariance, np.cov(flat, bias=True), atol=1e-12)
    means = np.array([flat[:, labels == c].mean(axis=1) for c in range(4)]).T
    np.testing.assert_allclose(found.class_means, means)
    within = (flat - means[:, labels]).var(axis=1).reshape(2, 3).sum(axis=1)
    total = flat.var(axis=1).reshape(2, 3).sum(axis=1)
    np.testing.assert_allclose(found.between(), 1 - within / total)

    W, b = found.nearest_mean(found.parts()[1])
    distance = ((values[1][:, None] - means[3:, :, None]) ** 2).sum(axis=0)
    assert ((W.T @ values[1] + b[:, None]).argmax(axis=0)
            == distance.argmin(axis=0)).all()


def test_moments_keep_the_variance_of_gates_that_hardly_move(rng):
    """A variance of 1e-8 about a mean of 0.1: from the origin 0 it is lost."""
    values = (0.12 + 1e-4 * rng.normal(size=(1, 2, 2000))).astype("float32")
    found = readouts.Moments(values[..., :500].mean(axis=2), 2)
    found.add(values, rng.integers(2, size=2000))
    exact = np.cov(values[0].astype(float), bias=True)
    np.testing.assert_allclose(found.covariance, exact, rtol=1e-3, atol=1e-12)
    from_zero = readouts.Moments(np.zeros((1, 2), "float32"), 2)
    from_zero.add(values, rng.integers(2, size=2000))
    assert not np.allclose(from_zero.covariance, exact, rtol=0.01, atol=0)


def test_regression_is_the_ridge_solution(rng):
    values, labels = rng.normal(size=(1, 3, 60)), rng.integers(3, size=60)
    found = readouts.Moments(np.full((1, 3), 0.3), 3)
    found.add(values, labels)
    design = np.vstack([values[0], np.ones(60)])
    wanted = np.eye(3)[labels].T
    W, b = found.regression(slice(None), found.covariance, 0)
    exact = np.linalg.lstsq(design.T, wanted.T, rcond=None)[0]
    np.testing.assert_allclose(np.vstack([W, b]), exact, atol=1e-10)

    W, b = found.regression(found.parts()[0], found.covariance, 0.5)
    # The gradient is zero there.
    error = W.T @ values[0] + b[:, None] - wanted
    penalty = 0.5 * values[0].var(axis=1).mean()
    np.testing.assert_allclose(values[0] @ error.T / 60 + penalty * W, 0, atol=1e-10)
    np.testing.assert_allclose(error.mean(axis=1), 0, atol=1e-10)


def test_hoyer():
    assert gates.hoyer(np.full(9, 0.3)) == pytest.approx(0)
    assert gates.hoyer(np.eye(9)[4]) == pytest.approx(1)
    values = np.array([[3.0, 1], [4, 1]])
    np.testing.assert_allclose(gates.hoyer(values, axis=0),
                               [(2 ** 0.5 - 1.4) / (2 ** 0.5 - 1), 0], atol=1e-12)


def test_per_example(images):
    net, (x, _) = small_net(), images
    T, y = (np.moveaxis(found, 0, 2) for found in
            (net.gates(x), net.block_outputs(x)))
    found = gates.per_example(net, x, 0.2)
    np.testing.assert_allclose(found.closed, (T < 0.2).mean(axis=(1, 2)))
    assert found.hoyer == pytest.approx(np.mean([gates.hoyer(T[..., i])
                                                 for i in range(40)]), rel=1e-5)
    steps = np.array([[np.linalg.norm(y[l + 1, :, i] - y[l, :, i]) for i in range(40)]
                      for l in range(4)])
    before = np.array([[np.linalg.norm(y[l, :, i]) for i in range(40)]
                       for l in range(4)])
    np.testing.assert_allclose(found.change, steps.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(found.relative, (steps / before).mean(axis=1), rtol=1e-5)


def test_correlation(rng):
    a, b = rng.normal(size=(2, 3, 4))
    assert gates.correlation(a, b) == pytest.approx(
        np.corrcoef(a.ravel(), b.ravel())[0, 1], rel=1e-5)
    assert gates.correlation(a, np.ones((3, 4))) is None


def test_accuracies_count_what_is_told(images):
    net, (x, labels) = small_net(), images
    found = gates.moments(net, x, labels, "outputs")
    told = gates.accuracies(net, x, labels, "outputs", readouts.readouts(found, 1e-4))
    outputs = np.moveaxis(net.block_outputs(x), 0, 2)
    means = np.array([outputs[..., labels == c].mean(axis=2) for c in range(3)])
    apart = ((outputs[None] - means[..., None]) ** 2).sum(axis=2)     # (C, L + 1, B)
    expected = (apart.argmin(axis=0) == labels).mean(axis=1)
    assert told["means"]["layers"] == pytest.approx(expected)
    assert told["means"]["all"] == pytest.approx(
        (apart.sum(axis=1).argmin(axis=0) == labels).mean())


# --------------------------------------------------------------------------------------
# Lesions


def test_verdicts_follow_the_numbers():
    net = {"loss": 0.1, "error": 0.02, "one_closed": {"loss": [0.5, 0.21, 0.19, 0.1]},
           "first_only": {"error": [0.9, 0.02, 0.4, 0.025, 0.02]}}
    assert lesion.spared(net).tolist() == [False, False, True, True]
    assert lesion.needed_layers(net) == 3       # a later, worse k counts
    assert lesion.rank_correlation([9, 7, 4, 1]) == -1
    assert lesion.rank_correlation([1, 3, 2, 4]) == pytest.approx(0.8)
    assert lesion.rank_correlation([5, 5, 5]) == 0
    assert lesion.rank_correlation([1, 1, 2, 2]) == pytest.approx(math.sqrt(0.8))
    assert lesion.largest_step([1, 2, 4, 5]) == 0.5
    assert lesion.largest_step([2, 2, 2]) == lesion.largest_step([2, 9, 1]) == 1
