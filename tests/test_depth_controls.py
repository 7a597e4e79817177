"""Controls of depth: how rates are chosen, and verdicts on rows that are made up."""

import math

import pytest

from experiments.depth import controls
from experiments.depth.plan import PLAN, Book, Net, by_rate
from experiments.lab import Trial
from experiments.lab.judging import judge


def book_of(loss):
    """A book whose trials end with loss(config)."""
    return Book(lambda configs: {name: Trial(
        "depth.train", 1, None, config, "ok", None,
        {"status": "ok", "train_loss": [loss(config)], "test_acc": 0.9}, 0.0, {})
        for name, config in configs.items()})


@pytest.mark.parametrize("best, tried", [
    (1e-3, [5e-4, 1e-3, 2e-3]), (2e-3, [5e-4, 1e-3, 2e-3, 4e-3]),
    (1.6e-2, [5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2]),
    (1.25e-4, [1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3])])
def test_rates_are_tried_until_the_best_lies_inside(best, tried):
    book = book_of(lambda config: 0.1 + abs(math.log(config["lr"] / best)))
    for depth, seeds in ((30, [0, 1, 2]), (300, [0])):
        net = Net(depth, {"sum": 1.0}, "adam")
        while any(config not in book for configs in controls.search(
                book, PLAN, net).values() for config in configs):
            book.run(config for configs in controls.search(book, PLAN, net).values()
                     for config in configs)
        found = controls.search(book, PLAN, net)
        assert [*found] == tried
        assert [config["seed"] for config in found[best]] == seeds
        judged = controls.judged_configs(book, PLAN, net)
        assert {config["lr"] for config in judged} == {best}
        assert not {config["seed"] for config in judged} & {*seeds}


def test_what_chooses_a_rate_is_what_the_rules_have_trained():
    """So that finished trials are found again."""
    net = Net(30, {"sum": 1.0}, "adam")
    there = controls.search(book_of(None), PLAN, net)
    for lr, configs in by_rate(book_of(None), PLAN, net).items():
        assert there[lr] == configs


# --------------------------------------------------------------------------------------
# Verdicts


def row(rule, depth, losses, needed=0, **more):
    return {"rule": rule, "depth": depth, "train_loss": losses, "trials": [],
            "needed": [needed + place for place in range(len(losses))],
            "test_acc": [1 - loss for loss in losses], **more}


def about(mean):
    return [mean * (1 + part) for part in (-0.04, -0.01, 0.01, 0.04)]


def judged(*, constant=1.0, deep=1.0, need=0.5, longer=0.5, deepest=1.0):
    """{name: verdict} of rows whose losses are so many times those of ten blocks."""
    depths = PLAN["controls"]["depths"]
    ones = {depth: about(0.07 * (deep if depth > 10 else 1)) for depth in depths}
    nets = [row("S = 1", depth, losses, needed=int(1000 * depth ** need))
            for depth, losses in ones.items()]
    nets += [row("constant T", depth, [constant * loss for loss in losses])
             for depth, losses in ones.items()]
    nets += [row("shallow", depth, about(0.09)) for depth in (1, 3)]
    schedule = [row("", depth, about(0.04)) for depth in (1, 3, 10)]
    record = {"plan": PLAN, "rules": [], "controls": {
        "nets": nets, "schedule": schedule,
        "longer": [row("", 10, about(0.07 * longer), epochs=epochs)
                   for epochs in PLAN["controls"]["longer"]["epochs"]]},
        "full": [row("", 10_000, about(0.04 * deepest))]}
    return {claim["name"]: claim["verdict"]
            for claim in map(judge, controls.claims(record))}


FOUND = dict.fromkeys(("sum-1-near-best-rule", "constant-t-as-good",
                       "ten-blocks-as-good", "need-grows", "equal-compute",
                       "ten-as-good-as-10000"), "holds") | dict.fromkeys(
                           ("depth-beats-ten", "ten-thousand-beat-ten"), "open")
NOT = "does not hold"


@pytest.mark.parametrize("world, others", [
    ({}, {}),
    ({"constant": 1.4}, {"constant-t-as-good": NOT}),
    ({"constant": 1.2}, {"constant-t-as-good": "open"}),    # within its noise
    ({"constant": 0.7}, {"sum-1-near-best-rule": NOT}),
    ({"deep": 0.4}, {"ten-blocks-as-good": NOT, "depth-beats-ten": "holds",
                     "equal-compute": NOT}),
    ({"deep": 1.5}, {"depth-beats-ten": NOT, "sum-1-near-best-rule": NOT}),
    ({"need": 0}, {"need-grows": "open"}), ({"need": -0.5}, {"need-grows": NOT}),
    ({"longer": 1.5}, {"equal-compute": NOT}),
    ({"deepest": 0.7}, {"ten-thousand-beat-ten": "holds",
                        "ten-as-good-as-10000": NOT}),
    ({"deepest": 1.5}, {"ten-thousand-beat-ten": NOT})])
def test_verdicts_follow_the_numbers(world, others):
    assert judged(**world) == FOUND | others


def test_the_noise_of_a_ratio_is_that_of_drawn_means(rng):
    """A thousand ratios of means of eight have the deviation that each one states."""
    drawn = [controls.compared(rng.normal(1, 0.1, 8), rng.normal(2, 0.1, 8))
             for _ in range(1000)]
    ratios = [each["ratio"] for each in drawn]
    mean = sum(ratios) / 1000
    spread = math.sqrt(sum((ratio - mean) ** 2 for ratio in ratios) / 1000)
    assert mean == pytest.approx(0.5, rel=0.01)
    assert sum(each["error"] for each in drawn) / 1000 == pytest.approx(spread, rel=0.1)
