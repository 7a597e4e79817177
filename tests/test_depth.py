"""Depth: starts, training, use of layers, and verdicts that planted worlds must get."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments.depth import EXPERIMENT, claims, plan, training, tutorial
from experiments.depth.plan import PLAN, Book, Net, net_config
from experiments.lab import Lab, Trial
from experiments.lab.judging import judge
from tests.contracts import small_batch, small_net

CONFIG = net_config(PLAN, Net(6, {"sum": 1.5}, "adam"), 2e-3, 3, epochs=2, batch=64,
                    n_train=200, n_test=100)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


# --------------------------------------------------------------------------------------
# Starts and training


@pytest.mark.parametrize("rule, depth, bias", [
    ({"sum": 0.03}, 10, math.log(0.003 / 0.997)), ({"sum": 20.0}, 30, math.log(2)),
    ({"sum": 1.0}, 10_000, -math.log(9999)),
    ("-L/10", 10, -1), ("-L/10", 20, -2), ("-L/10", 30, -3),    # the guideline
    *(("constant T", depth, training.logit(PLAN["constant_T"]))
      for depth in (30, 300, 10_000))])
def test_gates_start_as_the_rule_says(rule, depth, bias):
    gates = rule if isinstance(rule, dict) else plan.gates_of(PLAN, rule, depth)
    found = training.initial_biases(gates, depth, 3, 0)
    assert found.shape == (depth, 3) and found == pytest.approx(bias)


def test_chrono_draws_time_scales_evenly_for_each_unit():
    bias = training.initial_biases({"rule": "chrono"}, 200, 500, 0)
    scales = np.exp(-bias)
    assert 1 <= scales.min() < 1.05 and 198.95 < scales.max() <= 199
    assert scales.mean() == pytest.approx(100, rel=0.01)
    # sum of 1 / (1 + u), u even from 1 to L - 1
    assert sigmoid(bias).sum(axis=0).mean() == pytest.approx(
        200 / 198 * math.log(100), rel=0.01)


def test_nets_train_as_hn_train_does(digits):
    """Told by S and told by b_T."""
    result = training.train(CONFIG, digits)
    names = ("depth", "hidden", "seed", "epochs", "batch", "lr", "n_train", "n_test",
             "init")
    bias = math.log(1.5 / 4.5)
    shared = {name: CONFIG[name] for name in names}
    config = hn.Config(**shared, gate_bias=bias)
    data = hn.scale_pixels(hn.take_subset(digits, config))
    history, layer_T, _ = hn.train(hn.make_net(config, data), data, config)
    assert result["train_loss"] == history["train_loss"]
    assert result["test_acc"] == history["test_acc"][-1]
    assert result["S_before"] == pytest.approx(sum(layer_T[0]), rel=1e-4)
    assert result["S_after"] == pytest.approx(sum(layer_T[-1]), rel=1e-4)
    same = training.by_bias(shared | {"gate_bias": bias}, digits)
    assert same == {name: result[name] for name in ("status", "train_loss", "test_acc")}


def test_what_starts_carry_is_exact_where_nothing_else_does(digits, monkeypatch):
    make_net = training.make_net

    def carrying(config, data):
        net = make_net(config, data)
        for name in ("W_H", "W_T"):
            net.views(net.params)[name][...] = 0
        return net
    monkeypatch.setattr(training, "make_net", carrying)
    config = plan.start_configs(PLAN)[30, 3.0, 0] | {"depth": 15, "dtype": "float64"}
    result = training.start(config, digits)
    assert result["S"] == pytest.approx(3, rel=1e-5)
    assert result["carried"] == pytest.approx(0.8 ** 15, rel=1e-5)
    gradient, output = (result[name]["rms"] for name in ("gradient", "output"))
    assert gradient[0] / gradient[-1] == pytest.approx(0.8 ** 14, rel=1e-5)
    assert output[-1] / output[0] == pytest.approx(0.8 ** 15, rel=1e-5)


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_watching_leaves_the_gradient_alone(block):
    net, (x, labels) = small_net(block, 4), small_batch()
    own, expected = net.block, net.gradient((x, labels), net.cache(len(labels)))[1]
    with training.watching(net) as found:
        grad = net.gradient((x, labels), net.cache(len(labels)))[1]
    assert np.array_equal(grad, expected) and net.block is own and len(found) == 4
    dlogits = hn.cross_entropy(net.forward(x)[0], labels)[1]
    last = net.views(net.params)["W_out"].T @ dlogits
    assert found[0] == pytest.approx(training.rms(last), rel=1e-12)


def test_the_tutorials_start(digits):
    config = {"block": "highway", "start": "tutorial", "depth": 18, "gate_bias": -2.0,
              "seed": 3}
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


def test_the_tutorials_steps_are_on_the_summed_loss(digits):
    """Of 50 images: that is 50 times the rate, by plain SGD without a clip, on pixels
    from 0 to 1, epoch after epoch in new orders."""
    config = {"block": "plain", "start": "he", "depth": 3, "gate_bias": -2.0, "seed": 0,
              "batch": 50, "lr": 0.002, "steps": 65, "n_train": 1437}
    result = tutorial.train(config, digits)
    assert result["status"] == "ok" and result["test_acc"] > 0.5
    steps, step = [], hn.train_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hn, "train_step", lambda net, batch, cache, optimizer, lr, clip: (
            steps.append((batch[0].min(), batch[0].max(), len(batch[1]), lr, clip,
                          optimizer.momentum)),
            step(net, batch, cache, optimizer, lr, clip))[1])
        assert tutorial.train(config, digits) == result
    assert steps == [(0, 1, 50, 50 * 0.002, 0, 0)] * 65     # more than two epochs of 28
    assert tutorial.train(config | {"lr": 1e6}, digits) == {
        "status": "diverged", "test_acc": None}


# --------------------------------------------------------------------------------------
# Which layers are used

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
    used = training.measure_use(net, start, x, labels, MEASURE)
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
    used = training.measure_use(net, net, x, labels, MEASURE)
    assert (used["open"], used["prefix"]) == (3, 7)
    row = {"test_acc": [1.0], "used": [used]}
    found = [claims.uses_more(row, blocks) for blocks in (2, 3, 4, 6)]
    assert found == [True, False, False, None]


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
    assert training.weight_change(net, start) == pytest.approx([0, 0.5, 1 / norm, 0],
                                                               rel=1e-5)


def test_gates_that_start_at_minus_20_carry_to_rounding(digits):
    """In float32 T is 0 or a few 2^-25, and the depth is all one."""
    config = {"depth": 3, "gate_bias": -20.0, "epochs": 2, "lr": 5e-3, "batch": 64,
              "hidden": 50, "init": "glorot", "seed": 0, "n_train": 640, "n_test": 360,
              "measure": MEASURE | {"measured": 640}}
    trained, deeper = (training.by_bias(config | {"depth": depth}, digits)
                       for depth in (3, 9))
    for result in (trained, deeper):
        used = result["used"]
        assert used["prefix"] == 0 and used["open"] == 0
        assert used["closed_loss"] == pytest.approx(used["loss"], rel=1e-5)
    assert deeper["train_loss"] == pytest.approx(trained["train_loss"], rel=1e-5)
    assert deeper["test_acc"] == trained["test_acc"] > 0.8


# --------------------------------------------------------------------------------------
# Worlds: what every trial would give if a law held; no net is trained


def start_of(config):
    """A trial's S before training, and its mean b_T."""
    gates = config.get("gates", {"bias": config.get("gate_bias")})
    bias = training.initial_biases(gates, config["depth"], 4, config["seed"])
    return sigmoid(bias).sum() / 4, bias.mean()


def border_of(config):
    """The largest S that trains: what should move it does, the rest leaves it."""
    lr = config["lr"] / {"adam": 1, "sgd": 200}[config.get("optimizer", "adam")]
    return (12 * (1e-3 / lr) ** 0.3 * (config["epochs"] / 12) ** 0.3
            * {1e-4: 0.5, 1e-8: 1, 1e-16: 2}[config.get("eps", 1e-8)])


def lawful_loss(config):
    """Loss by S alone, with a border."""
    S, _ = start_of(config)
    if border_of(config) < S:
        return 2.3
    return min(0.07 * math.exp(0.005 * math.log(S) ** 2 + 0.12 * S), 2.3) * (
        1 + 0.01 * config["seed"])


def lawless_loss(config):
    """Loss by b_T alone, least at -2."""
    _, bias = start_of(config)
    return min(0.07 * math.exp(0.3 * abs(bias + 2)), 2.3)


class World:
    """A source of trials, what each of which gives follows from its config."""

    def __init__(self, loss):
        self.loss = loss

    def give(self, name, config):
        if name == "depth.tutorial":
            return {"status": "ok", "test_acc": 0.11 if config["block"] == "plain"
                    else 0.95}
        S, _ = start_of(config)
        if name == "depth.start":
            ends = {"layer": [0, config["depth"]], "rms": [math.exp(-S), 1.0]}
            return {"S": S, "carried": math.exp(-S), "output": ends, "gradient": ends,
                    "W_in": 3 * math.exp(-S)}
        loss = self.loss(config)
        result = {"status": "ok", "train_loss": [2.3, loss], "S_before": S,
                  "S_after": S, "test_acc": 0.98 if loss < plan.TRAINS else 0.1}
        if "measure" in config:
            kept = [m for m in config["measure"]["kept"] if m < config["depth"]]
            times = 1 if S < 1e-3 else 3        # shut gates are not used
            result["used"] = {
                "layers": config["depth"], "loss": loss, "closed_loss": times * loss,
                "open": 0, "prefix": 70 * (times > 1), "lesions": {},
                "kept": {"layers": kept, "loss": [times * loss] * len(kept)},
                "curves": {"cut_loss": [times * loss, loss]}}
        return result

    def trials(self, requests, load):
        return [Trial(request.function.declared.name, 1, request.dataset,
                      request.config, "ok", None, self.give(
                          request.function.declared.name, request.config), 0.0, {})
                for request in requests]


@pytest.fixture(scope="module")
def worlds():
    """The plan's record in a lawful and in a lawless world."""
    return {name: Lab(EXPERIMENT, World(loss)).record(name) for name, loss in (
        ("lawful", lawful_loss), ("lawless", lawless_loss))}


def verdicts(record):
    return {claim["name"]: claim["verdict"] for claim in record["claims"]}


def test_a_lawful_world_gets_its_law(worlds):
    """Shut gates do as well with SGD there, and half-open ones train at some rate."""
    found = verdicts(worlds["lawful"])
    assert "open" not in found.values()
    assert {name: verdict for name, verdict in found.items() if verdict != "holds"} == {
        "sgd-1000-blocks": "not learned", "thousand-layers-train": "not learned",
        "half-open-fails": "does not hold", "chrono-loses": "does not hold",
        "line-loses": "does not hold"}


def test_a_lawless_world_does_not(worlds):
    found = verdicts(worlds["lawless"])
    assert {found[name] for name in (
        "loss-follows-sum", "loss-not-by-bias-or-depth", "equal-sum-equal-loss",
        "sum-1-near-best-sum", "sum-1-near-best-rule", "constant-t-as-good",
        "bias-2-fails", "border-moves", "sgd-1000-blocks")} == {"does not hold"}


def test_the_bisection_ends_around_the_border(worlds):
    own = PLAN["border"]
    step = 2 ** (own["octaves"] / 2 ** own["rounds"])
    for row in worlds["lawful"]["border"]:
        assert len(row["S"]) == len(own["seeds"])
        for seed, border in enumerate(row["S"]):
            below, above = (lawful_loss(net_config(
                PLAN, Net(50, {"sum": S}, "adam"), 1e-3, seed) | row["change"] | {
                    "depth": 50}) < plan.TRAINS
                for S in (border / step, border * step))
            assert below and not above


def test_margins_bend_a_verdict_the_right_way(worlds):
    order = ["does not hold", "not learned", "holds"]
    for claim in worlds["lawful"]["claims"] + worlds["lawless"]["claims"]:
        if claim["name"].startswith(("sum-1", "equal-sum", "border-stays", "lower")):
            half, given, twice = map(order.index, claim["at"].values())
            assert half <= given <= twice


def test_rates_are_chosen_by_the_first_seed_and_only_where_it_trains():
    losses = {5e-4: 0.5, 1e-3: 0.2, 2e-3: 2.3}

    def run(configs):
        return {name: Trial("depth.train", 1, None, config, "ok", None, {
            "status": "ok", "train_loss": [2.3 if config["gates"]["sum"] == 20 else
                                           losses[config["lr"]]]}, 0.0, {})
            for name, config in configs.items()}
    book = Book(run)
    for S, lr in ((1.0, 1e-3), (20.0, 1e-3)):       # 1e-3 is the middle one, too
        net = Net(300, {"sum": S}, "adam")
        first = plan.by_rate(book, PLAN, net)
        assert [len(configs) for configs in first.values()] == [1, 1, 1]
        book.run(config for configs in first.values() for config in configs)
        again = plan.by_rate(book, PLAN, net)
        assert [config["seed"] for config in again[lr]] == [0, 1, 2]
        assert sum(map(len, again.values())) == 5
    assert plan.chosen_lr(book, PLAN, net._replace(gates={"sum": 1.0})) == 1e-3
    assert plan.chosen_lr(book, PLAN, net) is None


# --------------------------------------------------------------------------------------
# Verdicts on rows

BIASES = (1.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0)


def cells(accuracy, depths=(9, 19, 29)):
    """Rows of three seeds of the map, whose losses go with -accuracy(depth, b_T)."""
    return [{"depth": depth, "gate_bias": bias, "trials": [],
             "test_acc": [accuracy(depth, bias) + noise for noise in (0, 1e-3, -1e-3)],
             "train_loss": [1 - accuracy(depth, bias)] * 3}
            for depth in depths for bias in BIASES]


@pytest.mark.parametrize("gain, expected", [
    (0.0, ["holds"] * 3), (0.007, ["does not hold", "holds", "holds"]),
    (0.015, ["does not hold", "does not hold", "holds"]), (None, ["open"] * 3)])
def test_the_guideline_is_judged_beside_other_gate_biases(gain, expected):
    """None: seeds that do not decide."""
    rows = cells(lambda depth, bias: 0.9 + (
        (0.02 if gain is None else gain) if (depth, bias) == (19, -4.0) else
        1e-4 if bias == -(depth + 1) / 10 else 0))
    for row in rows:
        if gain is None and row["gate_bias"] != -4:
            row["test_acc"] = [0.87, 0.92, 0.93]
    found = judge(claims.claim_on_guideline(rows))
    assert [*found["at"].values()] == expected and found["n"] == 3


@pytest.mark.parametrize("trains, expected", [
    (lambda bias: bias <= -1, "holds"),
    (lambda bias: -3 <= bias <= -1, "does not hold"),
    (lambda bias: False, "open")])
def test_more_negative_is_judged_with_every_seed(trains, expected):
    rows = cells(lambda depth, bias: 0.9 if trains(bias) else 0.1)
    assert judge(claims.claim_on_advice(rows))["verdict"] == expected
    rows[-1]["test_acc"][1] = None          # one seed of one net diverged
    assert judge(claims.claim_on_advice(rows))["verdict"] == (
        expected if expected == "open" else "does not hold")


MANY = {"prefix": 900, "kept": {"layers": [10, 50], "loss": [0.9, 0.12]}}
FEW = {"prefix": 900, "kept": {"layers": [10, 50], "loss": [0.9, 0.105]}}
UNKNOWN = {"prefix": 900, "kept": {"layers": [10], "loss": [0.9]}}
NONE = {"prefix": 0, "kept": {"layers": [10, 50], "loss": [0.1, 0.1]}}


def deep(depth, bias, *nets, loss=0.1, closed_loss=0.1):
    """A row of nets on all images, (accuracy, what is used) for each seed."""
    return {"depth": depth, "gate_bias": bias, "trials": [""] * len(nets),
            "train_loss": [loss if used else None for _, used in nets],
            "test_acc": [accuracy for accuracy, _ in nets],
            "used": [used and {"loss": 0.1, "closed_loss": closed_loss} | used
                     for _, used in nets]}


HUNDRED, SHUT = deep(99, -3.0, (0.975, MANY)), deep(999, -20.0, (0.9, NONE), loss=0.2)


@pytest.mark.parametrize("found, expected", [
    # The b_T is chosen by training loss; the better test accuracy does not count.
    ([deep(999, -7.0, (0.96, MANY)), deep(999, -5.0, (0.99, NONE), loss=0.2), SHUT,
      HUNDRED], ["holds", "holds", "holds"]),
    ([deep(999, -7.0, (0.94, FEW)), SHUT, deep(99, -3.0, (0.963, MANY))],
     ["does not hold"] * 3),
    # One seed does not use them, one diverged; not measured.
    ([deep(999, -7.0, (0.96, MANY), (0.96, MANY | {"prefix": 50})), SHUT, HUNDRED],
     ["holds", "holds", "does not hold"]),
    ([deep(999, -7.0, (0.96, MANY), (None, None)), SHUT, HUNDRED],
     ["does not hold", "holds", "does not hold"]),
    ([deep(999, -7.0, (0.96, UNKNOWN)), SHUT, HUNDRED], ["holds", "holds", "open"]),
    # What shut gates reach, too, is not learned; the tutorial counts all seeds.
    ([deep(999, -7.0, (0.96, MANY)), deep(999, -20.0, (0.951, NONE), loss=0.2),
      HUNDRED], ["not learned", "holds", "holds", "holds", "holds"]),
    ([deep(999, -20.0, (0.95, NONE), (0.9, NONE), closed_loss=0.1002), HUNDRED],
     ["does not hold", "holds"] + ["does not hold"] * 3)])
def test_verdicts_on_deep_nets(found, expected):
    made = [judge(claim)["verdict"] for claim in claims.claims_on_deep(found, -20.0)]
    assert made[:len(expected)] == expected


@pytest.mark.parametrize("own, he, expected", [
    ([0.11, None], [0.1, 0.9], ["holds", "holds"]),
    ([0.11, 0.16], [0.8, 0.9], ["does not hold", "does not hold"]),
    ([0.7, 0.1], [0.8, None], ["does not hold", "holds"])])
def test_verdicts_on_the_tutorial(own, he, expected):
    arms = [{"block": "plain", "start": start, "lr": lr, "test_acc": values,
             "trials": []}
            for start, lr, values in (("tutorial", 0.01, own), ("he", 0.001, he))]
    assert [judge(claim)["verdict"]
            for claim in claims.claims_on_tutorial(arms)] == expected
