"""The headline: its nets, and what is concluded from them."""

import pytest

import highway_networks as hn
from experiments import headline
from experiments.lab.judging import judge, mean_and_std
from tests.contracts import WrongGradient, check_gradient, small_batch, small_net


@pytest.mark.parametrize("depth", [1, 9])
def test_the_scaled_residual_block_is_under_the_contract(depth, seed):
    """Its gradient against the complex step; without its scale it is wrong."""
    with headline.added_blocks(depth):
        check_gradient(small_net("scaled_residual", depth, seed=seed),
                       *small_batch(seed), seed=seed)
        right = hn.BLOCKS["scaled_residual"]
        hn.BLOCKS["scaled_residual"] = right._replace(
            backward=hn.BLOCKS["residual"].backward)
        if depth > 1:
            with pytest.raises(WrongGradient):
                check_gradient(small_net("scaled_residual", depth, seed=seed),
                               *small_batch(seed), seed=seed)
    assert "scaled_residual" not in hn.BLOCKS


def test_a_trial_is_the_commands_net(digits):
    net = headline.Net("highway", 3, "uniform", 5e-3)
    config = headline.make_config(headline.PLAN | headline.SMOKE, net, 1)
    found = headline.train_net(config, digits)
    settings = hn.Config(**config)
    data = hn.scale_pixels(hn.take_subset(digits, settings))
    history, layer_T, _ = hn.train(hn.make_net(settings, data), data, settings)
    assert found["train_loss"] == history["train_loss"]
    assert found["test_acc"] == history["test_acc"]
    assert found["T"] == layer_T[-1].tolist()


def row(kind, depth, *accuracies, init="uniform", **more):
    return {"kind": kind, "depth": depth, "init": init, "lr": 0.005, "trials": [],
            "test_acc": accuracies, **mean_and_std(accuracies), **more}


def verdicts(plain=(0.1, 0.1), deep=(0.9, 0.9), thirds=((1, 1), (1, 1)),
             best=lambda kind, depth: 0.9):
    record = {"plan": headline.PLAN, "T_thirds": thirds, "best": best_rows(best),
              "sweep": [row("plain", 30, *plain), row("highway", 30, 0.9, 0.9)],
              "many": [row("highway", 5, 0.9, 0.91), row("highway", 50, *deep)]}
    return {claim.name: judge(claim)["verdict"] for claim in headline.claims(record)}


def best_rows(accuracy):
    """Rows of every kind and depth; accuracy(kind, depth) is about its seeds'."""
    plan = headline.PLAN["best"]
    return [row(kind, depth, *(accuracy(kind, depth) + seed / 1e4 for seed in range(5)),
                tried=[{"init": "he", "lr": 1e-3, "error": 100 - 100 * accuracy(
                    kind, depth), "trials": []}])
            for kind in plan["kinds"] for depth in plan["depths"] + [300]]


@pytest.mark.parametrize("accuracy, expected", [
    (lambda kind, depth: {"plain": 0.9 - depth / 400, "highway, auto": 0.95
                          }.get(kind, 0.9), "holds"),
    (lambda kind, depth: {"plain": 0.7 + depth / 400, "highway, auto": 0.5
                          }.get(kind, 0.6), "does not hold")])
def test_the_best_settings_are_judged_by_kind_and_depth(accuracy, expected):
    assert {verdict for name, verdict in verdicts(best=accuracy).items()
            if name.startswith("best-")} == {expected}


@pytest.mark.parametrize("plain, deep, thirds, expected", [
    ((0.1, 0.1), (0.9, 0.91), [[0.3, 0.1], [0.2, 0.1]], ["holds"] * 3),
    ((0.9, 0.7), (0.5, 0.51), [[0.1, 0.3], [0.1, 0.2]], ["does not hold"] * 3),
    ((0.9, 0.7), (0.95, 0.8), [[0.1, 0.3], [0.3, 0.1]],
     ["does not hold", "open", "open"])])
def test_the_reproductions_claims_follow_the_numbers(plain, deep, thirds, expected):
    found = verdicts(plain, deep, thirds)
    assert [found[name] for name in ("sweep-plain-guess", "depth-free",
                                     "lower-layers-open")] == expected
