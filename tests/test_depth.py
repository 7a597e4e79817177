"""Depth: starts, training, use of blocks, and what is said of it."""

import math

import numpy as np
import pytest
from test_training import trained

import highway_networks as hn
from experiments.depth import claims, plan, training
from experiments.depth.plan import PLAN, Net, net_config
from experiments.lab.judging import judge

CONFIG = net_config(PLAN, Net(6, {"sum": 1.5}), 2e-3, seed=3, epochs=2, batch=64,
                    n_train=200, n_test=100)


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


def test_nets_train_as_hn_train_does(digits):
    result = training.train(CONFIG, digits)
    names = ("depth", "hidden", "seed", "epochs", "batch", "lr", "n_train", "n_test",
             "init")
    config = hn.Config(**{name: CONFIG[name] for name in names},
                       gate_bias=math.log(1.5 / 4.5))
    history, _, _ = trained(digits, config)
    assert result["train_loss"] == history["train_loss"]
    assert result["test_acc"] == history["test_acc"][-1]


def test_the_tutorials_steps_are_on_the_summed_loss(digits):
    """Of 50 images: that is 50 times the rate, by plain SGD without a clip, on pixels
    from 0 to 1, epoch after epoch in new orders."""
    config = {"start": "he", "depth": 3, "seed": 0, "batch": 50, "lr": 0.002,
              "steps": 65, "n_train": 1437}
    result = training.train_tutorial(config, digits)
    assert result["status"] == "ok" and result["test_acc"] > 0.5
    steps, step = [], hn.train_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hn, "train_step", lambda net, batch, cache, optimizer, lr, clip: (
            steps.append((batch[0].min(), batch[0].max(), len(batch[1]), lr, clip,
                          optimizer.momentum)),
            step(net, batch, cache, optimizer, lr, clip))[1])
        assert training.train_tutorial(config, digits) == result
    assert steps == [(0, 1, 50, 50 * 0.002, 0, 0)] * 65     # more than two epochs of 28


# Which blocks are used

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


@pytest.mark.parametrize("layers, prefix, more", [
    ([0, 1, 2], 3, [True, False, False, False]),
    # Three scattered blocks need a prefix of seven, but no more than three are kept.
    ([1, 4, 6], 7, [True, False, False, None])])
def test_a_net_that_uses_three_blocks(layers, prefix, more):
    net, x, labels = gated_net(layers)
    used = training.measure_use(net, x, labels, [1, 2, 3, 5], 32)
    assert used["prefix"] == prefix and used["closed_loss"] > 2 * used["loss"]
    assert min(used["kept"]["loss"][:2]) > 2 * used["loss"]
    assert used["kept"]["loss"][2:] == pytest.approx([used["loss"]] * 2, rel=5e-3)
    assert used["cut_loss"][prefix:] == pytest.approx([used["loss"]] * (9 - prefix),
                                                      rel=5e-3)
    row = {"test_acc": [1.0], "used": [used]}
    assert [claims.uses_more(row, blocks) for blocks in (2, 3, 4, 6)] == more


@pytest.mark.parametrize("used, verdict", [
    ([{"prefix": 51}, {"prefix": 9000}], "holds"),
    ([{"prefix": 50}, {"prefix": 9000}], "does not hold"),
    ([None, {"prefix": 9000}], "does not hold")])       # one has diverged
def test_ten_thousand_blocks_are_used_if_every_net_uses_more(used, verdict):
    row = {"depth": 10_000, "used": used, "trials": [], "train_loss": [0.1, 0.1],
           "test_acc": [0.97, 0.97]}
    record = {"full": [row], "controls": {"schedule": [row]}}
    _, claim = claims.claims_on_deepest(record)
    assert judge(claim)["verdict"] == verdict
