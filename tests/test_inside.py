"""The nets that are looked into, and what is found in them."""

import itertools
import json
import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import gates, inside, lesion
from experiments.common import Lab, build_parser, load_record, main

MODULES = (inside, gates, lesion)


def lab_of(module, *flags):
    return Lab(module.EXPERIMENT, build_parser(module.EXPERIMENT).parse_args(flags))


def small_net(block="highway", depth=4, units=5, seed=0):
    net = hn.DeepNet(block, depth, units, inputs=6, classes=3, init="glorot",
                     gate_bias=-1.0, seed=seed)
    net.params += np.random.default_rng(seed).normal(
        0, 0.2, net.params.size).astype("float32")
    return net


@pytest.fixture
def images(rng):
    """x (40, 6) and labels (40,)"""
    return rng.normal(size=(40, 6)).astype("float32"), rng.integers(3, size=40)


# --------------------------------------------------------------------------------------
# The whole path


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_smoke(module, smoke):
    record, _ = smoke(module.EXPERIMENT)
    lab = lab_of(module, "--smoke")
    assert lab.picture.stat().st_size > 10_000
    assert all(claim["ours"] is not None for claim in record.get("claims", []))
    again = json.loads(json.dumps(module.EXPERIMENT.run(lab)))
    assert {name: record[name] for name in again} == again


def test_the_analyses_load_the_nets_and_refuse_others(home, monkeypatch):
    main(inside.EXPERIMENT, ["--smoke"])
    folder = home / "runs" / "smoke"
    lab = lab_of(gates, "--smoke")
    monkeypatch.setattr(inside, "run", lambda lab: pytest.fail("trained again"))
    lab.options.smoke = False           # only a smoke run trains anew
    monkeypatch.setattr(inside, "Lab", lambda *_: lab_of(inside, "--smoke"))
    nets, record = inside.load_nets(lab)
    assert set(nets) == {"highway", "residual", "plain"}
    assert nets["highway"].settings["depth"] == record["protocol"]["depth"]

    good = nets["plain"].params.copy()
    nets["plain"].params[0] += 1e-3
    nets["plain"].save(folder / "inside_plain.npz")
    with pytest.raises(hn.RecordError, match="inside_plain.npz: not the weights"):
        inside.load_nets(lab)
    nets["plain"].params[...] = good
    nets["plain"].save(folder / "inside_plain.npz")
    inside.load_nets(lab)

    (folder / "inside_plain.npz").write_bytes(b"no archive")
    with pytest.raises(hn.RecordError, match="python3 -m experiments.inside --smoke"):
        inside.load_nets(lab)
    record["protocol"]["seed"] = 1
    hn.write_record(folder / "inside.json", record)
    with pytest.raises(hn.RecordError, match="another protocol"):
        inside.load_nets(lab)


def test_untrained_is_the_net_before_training(home, digits):
    data = hn.scale_pixels(digits, "digits")
    record = {"protocol": inside.PROTOCOL | inside.SMOKE}
    net = inside.untrained(record, "highway", data.x_train)
    config = inside.make_config(record["protocol"], "highway", 0.1, 1)
    start = hn.make_net(config, 64)
    centred, _ = inside.centred(data)
    assert np.allclose(centred.x_train.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(net.forward(data.x_test.T)[0],
                               start.forward(centred.x_test.T)[0], atol=1e-5)
    assert not np.allclose(net.forward(data.x_test.T)[0],
                           start.forward(data.x_test.T)[0], atol=1e-2)


def test_the_committed_files_belong_together():
    """Weights, records and pictures are of one making, and as small as promised."""
    folder = hn.HERE / "experiments"
    made, _ = load_record(folder / "inside.json")
    assert made["protocol"] == json.loads(json.dumps(inside.PROTOCOL))
    hashes = {}
    for net in made["nets"]:
        path = folder / net["file"]
        assert path.stat().st_size < 2_000_000
        hashes[net["block"]] = inside.digest(hn.DeepNet.load(path))
        assert hashes[net["block"]] == net["sha256"]
    assert min(made["nets"][0]["train_loss"]) < 1e-3 and "highway" in hashes
    found, _ = load_record(folder / "gates.json")
    assert found["net"]["sha256"] == hashes["highway"]
    found, _ = load_record(folder / "lesion.json")
    assert {name: net["sha256"] for name, net in found["nets"].items()} == hashes
    for module in MODULES:
        name = module.EXPERIMENT.name.rpartition(".")[2]
        _, digest = load_record(folder / f"{name}.json")
        assert digest.encode() in (folder / f"{name}.png").read_bytes()


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
    assert gates.adjusted_rand(np.array(a), np.array(b)) == pytest.approx(expected)
    assert gates.adjusted_rand(np.array(b), np.array(a)) == pytest.approx(expected)


def test_adjusted_rand_of_shuffled_labels_is_zero_on_average(rng):
    labels = rng.integers(4, size=60)
    found = [gates.adjusted_rand(labels, rng.permutation(labels)) for _ in range(300)]
    assert abs(np.mean(found)) < 0.01


def test_kmeans_finds_the_best_of_all_partitions(rng):
    points = rng.normal(size=(9, 2))

    def cost(labels):
        return sum(((points[labels == c] - points[labels == c].mean(axis=0)) ** 2).sum()
                   for c in set(labels))
    least = min(cost(np.array(labels)) for labels in itertools.product((0, 1, 2),
                                                                       repeat=9))
    found = gates.kmeans(points, 3, rng, restarts=300)
    assert cost(found) == pytest.approx(least)


def test_kmeans_parts_what_is_apart(rng):
    labels = np.repeat(np.arange(5), 40)
    points = rng.normal(size=(200, 3)) + 40 * np.eye(5)[labels][:, :3] + 90 * (
        labels[:, None] == 4)
    found = gates.kmeans(points.astype("float32"), 5, rng, restarts=5)
    assert gates.adjusted_rand(found, labels) == 1


def test_moments_are_those_of_the_whole(rng):
    values, labels = rng.normal(size=(2, 3, 50)), rng.integers(4, size=50)
    values[1, 2] += 5 * labels
    found = gates.Moments(rng.normal(size=(2, 3)), 4)
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

    W, b = found.readouts(0.1)["means"]["layers"][1]
    distance = ((values[1][:, None] - means[3:, :, None]) ** 2).sum(axis=0)
    assert ((W.T @ values[1] + b[:, None]).argmax(axis=0)
            == distance.argmin(axis=0)).all()


def test_moments_keep_the_variance_of_gates_that_hardly_move(rng):
    """A variance of 1e-8 about a mean of 0.1: from the origin 0 it is lost."""
    values = (0.12 + 1e-4 * rng.normal(size=(1, 2, 2000))).astype("float32")
    found = gates.Moments(values[..., :500].mean(axis=2), 2)
    found.add(values, rng.integers(2, size=2000))
    exact = np.cov(values[0].astype(float), bias=True)
    np.testing.assert_allclose(found.covariance, exact, rtol=1e-3, atol=1e-12)
    from_zero = gates.Moments(np.zeros((1, 2), "float32"), 2)
    from_zero.add(values, rng.integers(2, size=2000))
    assert not np.allclose(from_zero.covariance, exact, rtol=0.01, atol=0)


def test_regression_is_the_ridge_solution(rng):
    values, labels = rng.normal(size=(1, 3, 60)), rng.integers(3, size=60)
    found = gates.Moments(np.full((1, 3), 0.3), 3)
    found.add(values, labels)
    design = np.vstack([values[0], np.ones(60)])
    wanted = np.eye(3)[labels].T
    W, b = found.readouts(0)["ridge"]["all"]
    exact = np.linalg.lstsq(design.T, wanted.T, rcond=None)[0]
    np.testing.assert_allclose(np.vstack([W, b]), exact, atol=1e-10)

    W, b = found.readouts(0.5)["ridge"]["layers"][0]    # the gradient is zero there
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
    T, y = net.gates(x.T), net.block_outputs(x.T)
    shut, sparsity, change, relative = gates.per_example(net, x, 0.2)
    np.testing.assert_allclose(shut, (T < 0.2).mean(axis=(1, 2)))
    assert sparsity == pytest.approx(np.mean([gates.hoyer(T[..., i])
                                              for i in range(40)]), rel=1e-5)
    steps = np.array([[np.linalg.norm(y[l + 1, :, i] - y[l, :, i]) for i in range(40)]
                      for l in range(4)])
    before = np.array([[np.linalg.norm(y[l, :, i]) for i in range(40)]
                       for l in range(4)])
    np.testing.assert_allclose(change, steps.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(relative, (steps / before).mean(axis=1), rtol=1e-5)


def test_correlation(rng):
    a, b = rng.normal(size=(2, 3, 4))
    assert gates.correlation(a, b) == pytest.approx(
        np.corrcoef(a.ravel(), b.ravel())[0, 1], rel=1e-5)
    assert gates.correlation(a, np.ones((3, 4))) is None


def test_accuracies_count_what_is_told(images):
    net, (x, labels) = small_net(), images
    found = gates.moments(net, x, labels, "outputs")
    told = gates.accuracies(net, x, labels, "outputs", found.readouts(1e-4))
    outputs = net.block_outputs(x.T)
    means = np.array([outputs[..., labels == c].mean(axis=2) for c in range(3)])
    apart = ((outputs[None] - means[..., None]) ** 2).sum(axis=2)     # (C, L + 1, B)
    expected = (apart.argmin(axis=0) == labels).mean(axis=1)
    assert told["means"]["layers"] == pytest.approx(expected)
    assert told["means"]["all"] == pytest.approx(
        (apart.sum(axis=1).argmin(axis=0) == labels).mean())


# --------------------------------------------------------------------------------------
# Lesions


def test_evaluate_is_the_mean_over_all_images(images, monkeypatch):
    net, (x, labels) = small_net(), images
    logits, _ = net.forward(x.T, closed=[1])
    loss, _ = hn.cross_entropy(logits, labels)
    passes = inside.passes
    for size in (7, 40):        # 40 is no multiple of 7: the last batch is smaller
        monkeypatch.setattr(lesion, "passes", lambda net, x, closed: passes(
            net, x, closed, size))
        found = lesion.evaluate(net, x, labels, [1])
        assert found[0] == pytest.approx(float(loss), rel=1e-4)
        assert found[1] == np.mean(logits.argmax(axis=0) != labels)


@pytest.mark.parametrize("block", ["highway", "residual", "plain"])
def test_the_first_layers_alone_are_the_net_with_all_others_closed(block, images):
    net, (x, labels) = small_net(block), images
    found = lesion.keep_first(net, x, labels)
    for k in range(net.depth + 1):
        loss, error = lesion.evaluate(net, x, labels, range(k, net.depth))
        assert found["loss"][k] == pytest.approx(loss, rel=1e-4)
        assert found["error"][k] == error


def test_permuted_runs_the_layers_in_that_order(images):
    net, (x, _) = small_net(), images
    before = net.params.copy()
    order = np.array([2, 0, 3, 1])
    twin = lesion.permuted(net, order)
    assert np.array_equal(net.params, before)
    for name, weights in net.views(net.params).items():
        expected = weights[order] if name[-1] in "HT" else weights
        assert np.array_equal(twin.views(twin.params)[name], expected)
    back = lesion.permuted(twin, np.argsort(order))
    assert np.array_equal(back.params, before)
    # One layer open at a time: the twin's layer l does what layer order[l] did.
    for l in range(4):
        shut = [i for i in range(4) if i != l], [i for i in range(4) if i != order[l]]
        assert np.array_equal(twin.forward(x.T, closed=shut[0])[0],
                              net.forward(x.T, closed=shut[1])[0])


def test_nearby_order_moves_no_layer_further_than_allowed(rng):
    furthest = {}
    for distance in (0, 1, 3, 8):
        orders = [lesion.nearby_order(20, distance, rng) for _ in range(300)]
        assert all(sorted(order) == list(range(20)) for order in orders)
        furthest[distance] = np.abs(np.array(orders) - np.arange(20)).max()
    assert 3 < furthest.pop(8) <= 8
    assert furthest == {0: 0, 1: 1, 3: 3}


def test_estimation_error_by_hand(images):
    """Without weights a residual layer adds tanh(b): all error is bias. The spread of A
    is then that of the projection."""
    net, (x, _) = small_net("residual", depth=3), images
    weights = net.views(net.params)
    weights["W_H"][...] = 0
    weights["b_H"][...] = 0.5
    found = lesion.estimation_error(net, x)
    A_std = net.block_outputs(x.T)[-1].std(axis=1).mean()
    assert found["A_std"] == pytest.approx(A_std, rel=1e-4)
    np.testing.assert_allclose(found["mean"], np.tanh(0.5) / A_std * np.array(
        [-3, -2, -1, 0]), rtol=1e-4)
    assert max(found["std"]) < 1e-3 and min(found["bias_share"]) > 0.999


def test_estimation_error_is_that_of_the_outputs(images):
    net, (x, _) = small_net(), images
    y = net.block_outputs(x.T).astype(float)
    error = y - y[-1]
    mean, std, A_std = error.mean(axis=2), error.std(axis=2), y[-1].std(axis=1).mean()
    found = lesion.estimation_error(net, x)
    np.testing.assert_allclose(found["mean"], mean.mean(axis=1) / A_std, rtol=1e-4,
                               atol=1e-6)
    np.testing.assert_allclose(found["std"], std.mean(axis=1) / A_std, rtol=1e-4)
    share = (mean ** 2).sum(axis=1) / (error ** 2).mean(axis=2).sum(axis=1).clip(1e-9)
    np.testing.assert_allclose(found["bias_share"], share[:-1], rtol=1e-4)


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

    lesioned = net | {"one_closed": {"loss": [50.0, 0.1, 0.1, 0.1],
                                     "error": [0.4, 0.02, 0.02, 0.02]}}
    ruined = net | {"one_closed": {"loss": [9.0] * 4, "error": [0.9, 0.85, 0.9, 0.7]}}
    claims = lesion.check_lesions({"highway": lesioned, "residual": lesioned,
                                   "plain": ruined}, {"early": 1, "idle": [2, 3]})
    verdicts = {claim["claim"]: claim["holds"] for claim in claims}
    fails = [text for text, holds in verdicts.items() if not holds]
    assert len(verdicts) == len(claims) == 12 and [text[:30] for text in fails] == [
        "the error of a plain net witho", "a highway net without one laye",
        "a residual net without one lay"]
    ruined["one_closed"]["error"] = [0.3] * 4
    lesioned["one_closed"] = {"loss": [0.1, 0.1, 0.1, 50.0], "error": [0.05] * 4}
    claims = lesion.check_lesions({"highway": lesioned, "residual": lesioned,
                                   "plain": ruined}, {"early": 1, "idle": [2, 4]})
    assert [claim["claim"] for claim in claims if claim["holds"]] == [
        text for text in verdicts if "more than half of" in text or "stay far" in text
        or "little worse" in text]


def test_claims_about_estimation_follow_the_numbers():
    good = {"std": [4, 3, 2, 1, 0], "mean": [0.2, -0.1, 0.1, 0.1, 0],
            "bias_share": [0.01, 0.02, 0.09, 0.03]}
    poor = {"std": [4, 5, 2, 3, 0], "mean": [0.2, -1.1, 0.1, 0.1, 0],
            "bias_share": [0.01, 0.02, 0.19, 0.03]}

    def net(found, errors, before=poor):
        return {"estimation": {"trained": found, "untrained": before},
                "shuffled": {"error": errors}, "sampled": {"error": [0.01]}}
    nets = {"highway": net(good, [[0.01, 0.1, 0.2, 0.3], [0.03, 0.1, 0.2, 0.3]]),
            "residual": net(poor, [[0.2, 0.1, 0.3, 0.4]], good),
            "plain": net(poor, [[0.9, 0.9, 0.9, 0.9]])}
    claims = lesion.check_estimation(nets)
    for claim in claims:
        assert claim["holds"] is claim["claim"].startswith("highway"), claim
    nets["highway"]["shuffled"]["error"] = [[0.01, 0.01, 0.01, 0.9]]
    assert lesion.check_estimation(nets)[0]["holds"] is False, "one step, not smooth"
    nets["highway"]["estimation"]["untrained"] = good
    assert [claim["holds"] for claim in lesion.check_estimation(nets)[2:5]] == [
        None, None, None], "as true before training"
    ratio = next(c["ours"] for c in claims if "images and units" in c["claim"])
    assert ratio == {"trained": 0.1, "untrained": 0.22, "plain": 0.22}


def gates_record(biases, sparse, untrained, outputs, shares, told, before=(0.3, 0.7)):
    """What gates.check_claims reads of a record; told: trained and untrained; before:
    the shares of an untrained net."""
    return {
        "net": {"gate_bias": -2.0}, "protocol": {"closed": 0.1, "early": 1},
        "sparsity": {"trained": sparse, "untrained": untrained},
        "figure_2": {"biases": biases, "outputs_one": outputs,
                     "bias_activity_correlation": {"all": 0.5, "layer_means": None}},
        "figure_3": {"share_of_layer": shares, "share_of_layer_0_7": [0.6, 0.4],
                     "share_of_layer_untrained": before,
                     "share_of_layer_0_7_untrained": [0.6, 0.4]},
        "routing": {state: {values: {"accuracy": {"means": {"all": right},
                                                  "ridge": {"all": 0.9 + right / 100}}}
                            for values in gates.VALUES}
                    for state, right in zip(("trained", "untrained"), told)}}


OPEN_GATES = {"closed_per_example": [0.1, 0.0], "closed_of_mean": [0.9, 0.8],
              "hoyer_per_example": 0.1, "hoyer_of_mean": 0.2,
              "change": [0.1, 0.9], "relative_change": [0.9, 0.1]}
SPARSE_GATES = {"closed_per_example": [0.9, 0.6], "closed_of_mean": [0.1, 0.3],
                "hoyer_per_example": 0.6, "hoyer_of_mean": 0.2,
                "change": [0.9, 0.1], "relative_change": [0.9, 0.1]}


def test_claims_about_gates_follow_the_numbers():
    """Biases that rose, gates that stay open and differ late: no claim may hold. The
    opposite: all do, but what another data set or a picture decides. Where that was so
    before training it tells nothing."""
    late, early = [[0, 0], [0, 0.1], [1, 1]], [[0, 0], [1, 1], [1, 1.1]]

    def verdicts(*parts):
        return [claim["holds"] for claim in gates.check_claims(gates_record(*parts))]
    rose, fell = [[-1.0, -1.5], [-1.8, -0.5]], [[-3.0, -2.5], [-1.8, -2.5]]
    assert verdicts(rose, OPEN_GATES, OPEN_GATES, late, [0.2, 0.8], (0.3, 0.5)) == [
        False, None, False, False, None, False, False, False]
    assert verdicts(fell, SPARSE_GATES, OPEN_GATES, early, [0.8, 0.2], (0.5, 0.3)) == [
        True, None, True, True, None, True, True, True]
    assert verdicts(fell, SPARSE_GATES, SPARSE_GATES, early, [0.8, 0.2], (0.5, 0.3),
                    (0.7, 0.3)) == [True, None, None, False, None, None, None, True]
