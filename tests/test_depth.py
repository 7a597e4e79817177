"""The depth law: its starts, its plan, and verdicts that planted worlds must get."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments.depth_law import nets, plan
from experiments.depth_law.plan import PROTOCOL, Book, net_config
from experiments.depth_law.record import describe
from experiments.depth_law.verdicts import check_claims
from experiments.store import hash_of
from tests.fake_lab import trial_of

CONFIG = net_config(PROTOCOL | {"dataset": "digits"}, 6, {"sum": 1.5}, "adam", 2e-3, 3,
                    epochs=2, batch=64, n_train=200, n_test=100)


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize("depth, S", [(10, 0.03), (30, 20.0), (10_000, 1.0)])
def test_gates_start_with_the_sum_that_was_asked_for(depth, S):
    bias = nets.initial_biases({"sum": S}, depth, 3, 0)
    assert bias.shape == (depth, 3)
    assert sigmoid(bias).sum(axis=0) == pytest.approx(S)


@pytest.mark.parametrize("depth, bias", [(10, -1), (20, -2), (30, -3)])
def test_the_line_goes_through_the_guideline(depth, bias):
    assert (nets.initial_biases({"rule": "guideline"}, depth, 2, 0) == bias).all()


def test_chrono_draws_time_scales_evenly_for_each_unit():
    bias = nets.initial_biases({"rule": "chrono"}, 200, 500, 0)
    scales = np.exp(-bias)
    assert 1 <= scales.min() < 1.05 and 198.95 < scales.max() <= 199
    assert scales.mean() == pytest.approx(100, rel=0.01)
    # sum of 1 / (1 + u), u even from 1 to L - 1
    assert sigmoid(bias).sum(axis=0).mean() == pytest.approx(
        200 / 198 * math.log(100), rel=0.01)


def test_a_net_trains_as_hn_train_does(digits):
    result = nets.train_net(CONFIG, digits)
    names = ("block", "depth", "seed", "epochs", "batch", "lr", "n_train", "n_test",
             "init")
    config = hn.Config(**{name: CONFIG[name] for name in names},
                       gate_bias=math.log(1.5 / 4.5))
    data = hn.scale_pixels(hn.take_subset(digits, config))
    net = hn.make_net(config, data)
    history, layer_T, _ = hn.train(net, data, config)
    assert result["train_loss"] == history["train_loss"]
    assert result["test_acc"] == history["test_acc"][-1]
    assert result["S_before"] == pytest.approx(sum(layer_T[0][1]), rel=1e-4)
    assert result["S_after"] == pytest.approx(sum(layer_T[-1][1]), rel=1e-4)


def test_what_starts_carry_is_exact_where_nothing_else_does(digits, monkeypatch):
    make_net = nets.make_net

    def carrying(config, data):
        net = make_net(config, data)
        for name in ("W_H", "W_T"):
            net.views(net.params)[name][...] = 0
        return net
    monkeypatch.setattr(nets, "make_net", carrying)
    config = plan.start_config(PROTOCOL | {"dataset": "digits"}, 20, {"sum": 4.0}, 0)
    result = nets.measure_start(config | {"dtype": "float64"}, digits)
    assert result["S"] == pytest.approx(4, rel=1e-5)
    assert result["carried"] == pytest.approx(0.8 ** 20, rel=1e-5)
    gradient, output = (result[name]["rms"] for name in ("gradient", "output"))
    assert gradient[0] / gradient[-1] == pytest.approx(0.8 ** 19, rel=1e-5)
    assert output[-1] / output[0] == pytest.approx(0.8 ** 20, rel=1e-5)


# --------------------------------------------------------------------------------------
# Worlds: what every trial would give if a law held; no net is trained


def start_of(config):
    """A trial's S before training, and its mean b_T."""
    bias = nets.initial_biases(config["gates"], config["depth"], 4, config["seed"])
    return sigmoid(bias).sum() / 4, bias.mean()


def border_of(config):
    """The largest S that trains: what should move it does, the rest leaves it."""
    lr = config["lr"] / {"adam": 1, "sgd": 200}[config["optimizer"]]
    return (12 * (1e-3 / lr) ** 0.3 * (config["epochs"] / 12) ** 0.3
            * {1e-4: 0.5, 1e-8: 1, 1e-16: 2}[config.get("eps", 1e-8)])


def lawful_loss(config):
    """Loss by S alone, with a border."""
    S, _ = start_of(config)
    if border_of(config) < S:
        return 2.3
    return min(0.07 * math.exp(0.01 * math.log(S) ** 2 + 0.12 * S), 2.3) * (
        1 + 0.01 * config["seed"])


def lawless_loss(config):
    """Loss by b_T alone, least at -2."""
    _, bias = start_of(config)
    return min(0.07 * math.exp(0.3 * abs(bias + 2)), 2.3)


def world(loss):
    """-> what a trial gives there."""
    def give(config, *_):
        S, _ = start_of(config)
        if config["kind"] == "start":
            ends = {"layer": [0, config["depth"]], "rms": [math.exp(-S), 1.0]}
            return {"S": S, "carried": math.exp(-S), "output": ends, "gradient": ends,
                    "W_in": 3 * math.exp(-S)}
        used = {"prefix": 400} if "measure" in config else None
        return {"status": "ok", "train_loss": [2.3, loss(config)], "test_acc": 0.97,
                "S_before": S, "S_after": S, "used": used}
    return give


def record_of(book):
    record = describe(book, PROTOCOL) | {"protocol": PROTOCOL}
    return record | {"claims": check_claims(record)}


@pytest.fixture(scope="module")
def worlds():
    """The plan's record in a lawful and in a lawless world."""
    def conducted(give):
        book = Book(lambda configs: {name: trial_of(give(config), config)
                                     for name, config in configs.items()})
        plan.conduct(book, PROTOCOL)
        return record_of(book)
    return {"lawful": conducted(world(lawful_loss)),
            "lawless": conducted(world(lawless_loss))}


def verdicts(record):
    return {item["claim"][:40]: item["holds"] for item in record["claims"]}


def test_a_lawful_world_gets_its_law(worlds):
    found = verdicts(worlds["lawful"])
    assert None not in found.values()
    failed = {text for text, holds in found.items() if not holds}
    assert all(text.startswith(("gates that start half open", "chrono", "the line"))
               for text in failed)


def test_a_lawless_world_does_not(worlds):
    found = verdicts(worlds["lawless"])
    for text in ("from 10 to 1000 blocks S decides", "neither b_T nor depth alone",
                 "at equal S, from 0.1 to 3", "at every depth the loss at S = 1",
                 "the largest S that trains is no const"):
        assert [holds for claim, holds in found.items()
                if claim.startswith(text)] == [False], text


def test_the_bisection_ends_around_the_border(worlds):
    own = PROTOCOL["border"]
    step = 2 ** (own["octaves"] / 2 ** own["rounds"])
    for row in worlds["lawful"]["border"]:
        assert len(row["S"]) == len(own["seeds"])
        for seed, border in enumerate(row["S"]):
            below, above = (lawful_loss(net_config(
                PROTOCOL, 50, {"sum": S}, "adam", 1e-3, seed) | row["change"] | {
                    "depth": 50}) < plan.TRAINS
                for S in (border / step, border * step))
            assert below and not above


def test_margins_bend_a_verdict_the_right_way(worlds):
    for item in worlds["lawful"]["claims"] + worlds["lawless"]["claims"]:
        if item["claim"].startswith(("at every depth", "at equal S", "depth, width")):
            half, twice = item["also"].values()
            assert half <= item["holds"] <= twice


def test_no_verdict_before_its_trials_have_run():
    book = Book()
    give = world(lawful_loss)
    for config in plan.shallow_configs(PROTOCOL)[:400]:
        book.add({hash_of(config): trial_of(give(config), config)})
    found = [item["holds"] for item in record_of(book)["claims"]
             if not item["claim"].startswith(("before training", "gates that start",
                                              "with S = 1 the same"))]
    assert set(found) == {None}


def test_rates_are_chosen_by_the_first_seed_and_only_where_it_trains():
    book = Book()
    losses = {5e-4: 0.5, 1e-3: 0.2, 2e-3: 2.3}

    def put(gates, losses):
        for lr, loss in losses.items():
            config = net_config(PROTOCOL, 300, gates, "adam", lr, 0)
            book.add({hash_of(config): trial_of({
                "status": "ok", "train_loss": [loss]}, config)})
    put({"sum": 1.0}, losses)
    put({"sum": 20.0}, dict.fromkeys(losses, 2.3))
    starts = [({"sum": S}, "highway") for S in (1.0, 20.0)]
    again = plan.repeats(book, PROTOCOL, 300, starts, ["adam"])
    assert [(c["gates"]["sum"], c["lr"], c["seed"]) for c in again] == [
        (1.0, 1e-3, 1), (1.0, 1e-3, 2)]
