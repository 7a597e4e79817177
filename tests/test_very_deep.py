"""Very deep nets: the map, the layers in use, the tutorial, norms before training."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import very_deep
from experiments.very_deep import gate_bias_map, more_seeds, nets, norms, tutorial, use
from experiments.very_deep.gate_bias_map import Cell
from tests.contracts import small_batch, small_net
from tests.fake_lab import verdicts


def test_smoke_of_very_deep(smoke, monkeypatch):
    """With a block that was added."""
    monkeypatch.setitem(hn.BLOCKS, "halved", hn.BLOCKS["residual"])
    record, folder = smoke(very_deep.EXPERIMENT)
    assert {path.stem for path in (folder / "trials").iterdir()} == {
        "deep_4", "deep_12", "map", "norms", "tutorial"}
    found = [(net["depth"], net["gate_bias"], net["seed"]) for net in record["deep"]]
    assert found == [(4, -1, 0), (4, -1, 1), (12, -2, 0), (12, -20, 0)]
    assert len(record["tutorial"]) == 8 and record["norms"]
    assert record["norms"][-1]["block"] == "halved"
    for line in record["norms"]:
        assert (len(line["output"]), len(line["gradient"])) == (8, 7)
    assert len({claim["claim"] for claim in record["claims"]}) == len(record["claims"])


MEASURE = {"batch": 32, "kept": [1, 2, 3, 5, 50], "lesioned": 2}


def gated_net(open_layers, depth=8):
    """A net whose gates are exactly 1 in some layers and exactly 0 in the others, and
    images with the labels it gives them, of small loss."""
    net = hn.DeepNet("highway", depth, 10, inputs=12, gate_bias=-100.0, init="glorot")
    weights = net.views(net.params)
    weights["W_T"][...] = 0
    weights["b_T"][open_layers] = 100
    weights["W_out"] *= 40
    x = np.random.default_rng(5).normal(size=(64, 12)).astype("float32")
    return net, x, net.predict(x)


def test_a_net_that_uses_its_first_three_layers():
    net, x, labels = gated_net([0, 1, 2])
    start, _, _ = gated_net([0, 1, 2, 5])
    used = use.measure_use(net, start, x, labels, MEASURE)
    assert (used["layers"], used["open"], used["open_before"]) == (8, 3, 4)
    assert used["prefix"] == 3 and used["moved"] == 0
    assert used["kept"]["layers"] == [1, 2, 3, 5]
    assert used["lesions"]["first"] == [0, 2, 4, 6]
    for losses in (used["kept"]["loss"], used["lesions"]["loss"]):
        assert min(losses[:2]) > 2 * used["loss"]
        assert losses[2:] == pytest.approx([used["loss"]] * 2, rel=5e-3)
    assert used["curves"]["T"] == [1] * 3 + [0] * 5
    assert min(used["curves"]["change"][:3]) > 0.1
    assert used["curves"]["change"][3:] == [0] * 5
    assert used["closed_loss"] > 2 * used["loss"]
    # Three scattered layers need a prefix of seven, but no more than three are kept.
    net, x, labels = gated_net([1, 4, 6])
    used = use.measure_use(net, net, x, labels, MEASURE)
    assert (used["open"], used["prefix"]) == (3, 7)
    assert [use.uses_more(used, m) for m in (2, 3, 4)] == [True, False, None]


def test_the_change_of_weights_leaves_biases_out():
    net, start = (hn.DeepNet("highway", 4, 6, inputs=12, seed=2) for _ in range(2))
    weights = net.views(net.params)
    for name in ("W_H", "W_T"):
        weights[name][1] *= 1.5
    weights["W_H"][2, 0, 0] += 1
    weights["b_T"][3] += 7
    weights["W_in"][...] = 0
    norm = math.sqrt(sum((start.views(start.params)[name][2] ** 2).sum()
                         for name in ("W_H", "W_T")))
    assert use.weight_change(net, start) == pytest.approx([0, 0.5, 1 / norm, 0],
                                                          rel=1e-5)


def test_gates_that_start_at_minus_20_carry_to_rounding(digits):
    """In float32 T is 0 or a few 2^-25, trained or not, and the depth is all one."""
    config = {"depth": 3, "gate_bias": -20.0, "epochs": 2, "lr": 5e-3, "batch": 64,
              "hidden": 50, "init": "glorot", "dataset": "digits", "seed": 0,
              "n_train": 640, "n_test": 360}
    trained = nets.train_highway(config, digits)
    x, labels = trained.data.x_train, trained.data.y_train
    for net in (trained.start, trained.net):
        assert set(2 ** 25 * np.unique(net.gates(x))) <= {0, 1, 2, 3, 4}
    used = use.measure_use(trained.net, trained.start, x, labels, MEASURE)
    assert used["prefix"] == 0 and used["open"] == 0
    assert used["closed_loss"] == pytest.approx(used["loss"], rel=1e-5)
    deeper = gate_bias_map.train(config | {"depth": 9}, digits)
    assert deeper["train_loss"] == pytest.approx(trained.result["train_loss"], rel=1e-5)
    assert deeper["test_acc"] == trained.result["test_acc"] > 0.8


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_watching_leaves_the_gradient_alone(block):
    net, (x, labels) = small_net(block, 4), small_batch()
    own, expected = net.block, net.gradient((x, labels), net.cache(len(labels)))[1]
    with norms.watching(net) as found:
        grad = net.gradient((x, labels), net.cache(len(labels)))[1]
    assert np.array_equal(grad, expected) and net.block is own and len(found) == 4
    dlogits = hn.cross_entropy(net.forward(x)[0], labels)[1]
    last = net.views(net.params)["W_out"].T @ dlogits
    assert found[0] == pytest.approx(norms.rms(last), rel=1e-12)


def test_norms_are_of_one_images_loss_and_in_the_order_of_layers(digits):
    """At b_T = -1 outputs shrink towards the end, gradients towards the start."""
    config = {"block": "highway", "depth": 6, "gate_bias": -1.0, "seed": 4,
              "dataset": "digits"}
    few, many = (norms.train(config | {"images": n}, digits) for n in (40, 160))
    assert (len(few["output"]), len(few["gradient"])) == (7, 6)
    assert few["output"][::-1] == sorted(few["output"])
    assert few["gradient"] == sorted(few["gradient"])
    assert few["gradient"] == pytest.approx(many["gradient"], rel=0.1)
    net = hn.DeepNet(init="glorot", depth=6, inputs=64, seed=4)
    # W_out^T (p - label): for p = 1/10 the difference has the norm 0.95.
    last = 0.95 * norms.rms(net.views(net.params)["W_out"])
    assert few["gradient"][-1] == pytest.approx(last, rel=0.1)


def test_the_tutorials_start(digits):
    config = {"block": "highway", "start": "tutorial", "depth": 18, "gate_bias": -2.0,
              "seed": 3, "dataset": "digits"}
    net = tutorial.make_net(config, digits)
    for name, values in net.views(net.params).items():
        if name.startswith("b_"):
            assert (values == np.float32(-2.0 if name == "b_T" else 0.1)).all()
        else:       # 0.8796: of a normal cut at two standard deviations
            assert np.abs(values).max() <= np.float32(0.2)
            assert values.std() == pytest.approx(0.08796, rel=3 / values.size ** 0.5)
    he = tutorial.make_net(config | {"start": "he"}, digits)
    named = he.views(he.params)
    assert not named["b_H"].any() and he.activation is hn.ACTIVATIONS["relu"]
    assert named["W_H"].std() == pytest.approx(math.sqrt(2 / 50), rel=0.02)


def test_the_tutorials_steps_are_on_the_summed_loss(digits, monkeypatch):
    calls, step = [], hn.train_step

    def watched(net, batch, cache, optimizer, lr, clip):
        x, _ = batch
        calls.append((x.shape, x.min(), x.max(), lr, clip, optimizer.momentum))
        return step(net, batch, cache, optimizer, lr, clip)
    monkeypatch.setattr(hn, "train_step", watched)
    config = {"block": "plain", "start": "he", "depth": 3, "gate_bias": -2.0, "seed": 0,
              "dataset": "digits", "batch": 50, "lr": 0.002, "steps": 65,
              "n_train": 1437}
    result = tutorial.train(config, digits)
    assert result["status"] == "ok" and result["test_acc"] > 0.5
    assert len(calls) == 65                         # more than two epochs of 28
    assert {(shape, low, lr, clip, momentum) for shape, low, _, lr, clip, momentum
            in calls} == {((64, 50), 0, 50 * 0.002, 0, 0)}
    assert calls[0][2] == 1
    diverged = tutorial.train(config | {"lr": 1e6}, digits)
    assert diverged == {"status": "diverged", "test_acc": None}


def map_of(accuracy, depths=(10, 20, 30), biases=(0.0, -1.0, -2.0, -3.0, -20.0)):
    """A map of one learning rate that is better and one that diverges, from
    accuracy(depth, bias); its description and its part of the protocol."""
    own = {"depths": list(depths), "gate_biases": list(biases), "lrs": [1e-3, 5e-3]}
    lost = {"status": "diverged", "train_loss": [3.0, None], "test_acc": None}
    found = {Cell(lr, bias, depth): lost if lr == 1e-3 else {
        "status": "ok", "train_loss": [3.0, 1 - accuracy(depth, bias)],
        "test_acc": accuracy(depth, bias)}
        for lr in own["lrs"] for bias in biases for depth in depths}
    return gate_bias_map.describe(found, own), own


def test_the_map_is_of_the_better_rate():
    record, _ = map_of(lambda depth, bias: 0.9 if depth <= -10 * bias else 0.1)
    assert record["better"]["lr"][0] == [5e-3] * 3
    assert record["lr 0.001"]["train_loss"][0] == [None] * 3
    assert record["lr 0.005"]["test_acc"] == record["better"]["test_acc"]
    assert record["better"]["test_acc"][2] == [0.9, 0.9, 0.1]
    assert [row["gate_bias"] for row in record["border"]] == [-1, -2, -3]
    assert record["border"][1]["sum_of_T"] == pytest.approx(19 / (1 + math.e ** 2),
                                                            rel=1e-5)


BIASES = (1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0)


def several(accuracy, depths=(10, 20, 30)):
    """Rows of three seeds, whose losses go with -accuracy(depth, b_T)."""
    return [{"depth": depth, "gate_bias": bias,
             "test_acc": [accuracy(depth, bias) + noise for noise in (0, 1e-3, -1e-3)],
             "train_loss": [1 - accuracy(depth, bias)] * 3}
            for depth in depths for bias in BIASES]


@pytest.mark.parametrize("gain, expected, half, twice", [
    (0.0, True, True, True), (0.007, True, False, True), (0.015, False, False, True),
    (0.03, False, False, False)])
def test_the_guideline_is_judged_beside_other_gate_biases(gain, expected, half, twice):
    found = more_seeds.check_guideline(several(
        lambda depth, bias: 0.9 + (gain if (depth, bias) == (20, -4.0) else
                                   1e-4 if bias == -depth / 10 else 0)))
    assert (found["holds"], found["also"]) == (expected, {"0.5 points": half,
                                                          "2 points": twice})
    assert found["n"] == 3 and found["ours"]["20 layers"]["b_T -4"] == pytest.approx(
        0.9 + gain)


def test_a_guideline_that_the_seeds_do_not_decide_is_open():
    rows = several(lambda depth, bias: 0.92 if bias == -4 else 0.9)
    for row in rows:
        if row["gate_bias"] != -4:
            row["test_acc"] = [0.87, 0.92, 0.93]
    assert more_seeds.check_guideline(rows)["holds"] is None


@pytest.mark.parametrize("trains, expected", [
    (lambda bias: bias <= -1, True), (lambda bias: -3 <= bias <= -1, False),
    (lambda bias: False, None)])
def test_more_negative_is_judged_with_every_seed(trains, expected):
    rows = several(lambda depth, bias: 0.9 if trains(bias) else 0.1)
    assert more_seeds.check_advice(rows)["holds"] is expected
    if expected:
        rows[-1]["test_acc"][1] = None          # one seed of one net diverged
        assert more_seeds.check_advice(rows)["holds"] is False


@pytest.mark.parametrize("values, expected", [
    ([0.1, 0.2, None], True), ([0.1, 0.9, 0.1], None), ([0.9, 0.9, 0.9], False)])
def test_the_largest_gate_bias(values, expected):
    found = more_seeds.check_largest([{"depth": 1000, "gate_bias": 1.0,
                                       "test_acc": values}])
    assert found["holds"] is expected


def deep_net(depth, bias, accuracy, loss=0.1, seed=0, status="ok", **used):
    own = {"layers": depth - 1, "loss": loss, "prefix": 0, "closed_loss": loss,
           "kept": {"layers": [10, 50], "loss": [loss, loss]}}
    return {"depth": depth, "gate_bias": bias, "seed": seed, "status": status,
            "train_loss": [1.0, loss if status == "ok" else None], "test_acc": accuracy,
            "used": own | used if status == "ok" else None}


MANY = {"prefix": 900, "kept": {"layers": [10, 50], "loss": [0.9, 0.12]}}
FEW = {"prefix": 900, "kept": {"layers": [10, 50], "loss": [0.9, 0.105]}}
EARLY = MANY | {"prefix": 50}
UNKNOWN = {"kept": {"layers": [10], "loss": [0.9]}}
LOST = deep_net(1000, -7.0, None, seed=1, status="diverged")
HUNDRED = [deep_net(100, -3.0, 0.975), deep_net(100, -3.0, 0.967, seed=1)]


@pytest.mark.parametrize("found, expected", [
    # The b_T is chosen by training loss; the better test accuracy does not count.
    ([deep_net(1000, -7.0, 0.96, **MANY), deep_net(1000, -5.0, 0.99, loss=0.2),
      *HUNDRED], [True, True, True]),
    ([deep_net(1000, -7.0, 0.94, **FEW), HUNDRED[0],
      deep_net(100, -3.0, 0.963, seed=1)], [False, False, False]),
    ([deep_net(1000, -5.0, 0.99), deep_net(100, -3.0, None, status="diverged")],
     [True, None, False]),
    # One seed does not use them, one diverged, one does not train; not measured.
    ([deep_net(1000, -7.0, 0.96, **MANY), deep_net(1000, -7.0, 0.96, seed=1, **EARLY)],
     [True, None, False]),
    ([deep_net(1000, -7.0, 0.96, **MANY), LOST], [None, None, False]),
    ([deep_net(1000, -4.0, 0.11, loss=2.3, **MANY), deep_net(1000, -7.0, 0.9, **FEW)],
     [False, None, False]),
    ([deep_net(1000, -7.0, 0.9, **UNKNOWN)], [False, None, None]),
    # The tutorial's b_T.
    ([deep_net(1000, -20.0, 0.951)], [True, None, False, True, True]),
    ([deep_net(1000, -20.0, 0.9, closed_loss=0.1002)],
     [False, None, False, False, False]),
    ([], [None] * 5)])
def test_verdicts_on_deep_nets(found, expected):
    made = verdicts(use.check(found))
    assert made[:3] == expected[:3]
    assert made[3:] == (expected[3:5] or [None, None])


def test_every_seed_of_the_tutorials_1000_layers_counts():
    def judged(*accuracies, **used):
        return verdicts(use.check_carrying([deep_net(1000, -20.0, accuracy, seed=seed,
                                                     **used)
                                            for seed, accuracy in enumerate(
                                                accuracies)]))
    assert judged(0.95, 0.96) == [True, True]
    assert judged(0.95, 0.9, closed_loss=0.2) == [False, False]


@pytest.mark.parametrize("own, he, expected", [
    ([0.11, None], [0.1, 0.9], [True, True]),
    ([0.11, 0.16], [0.8, 0.9], [False, False]),
    ([0.7, 0.1], [0.8, None], [False, True])])
def test_verdicts_on_the_tutorial(own, he, expected):
    arms = [{"block": "plain", "start": start, "lr": lr, "test_acc": values}
            for start, lr, values in (("tutorial", 0.01, own), ("he", 0.001, he))]
    assert verdicts(tutorial.check(arms)) == expected
