"""Table 1 in a tenth of its epochs: schedule, search, runs, verdicts, the figure."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import convolution, table_1
from experiments import convolution_trials as ct
from experiments.convolution_search import search
from tests.contracts import check_resumes
from tests.fake_lab import FakeLab, verdicts

CONFIG = table_1.base({"dataset": "digits", "batch": 200, "piece": 50, "momentum": 0.9},
                      "highway", 3, 0) | table_1.START | {"epochs": 3}
HELD_OUT = CONFIG | {"held_out": 200}
CROPPED = CONFIG | {"crop": 1, "centre": [5.0]}


def test_rate_warms_up_and_falls_as_a_cosine():
    config = {"lr": 0.1, "epochs": 31, "schedule": "cosine"}
    rates = [ct.learning_rate(config, epoch) for epoch in range(1, 32)]
    assert rates[:2] == [pytest.approx(0.01), 0.1] and rates[16] == pytest.approx(0.05)
    assert all(np.diff(rates[1:]) < 0) and 0 < rates[-1] < 0.001
    assert ct.learning_rate(config | {"epochs": 1}, 1) == rates[0], "as a recheck of it"


def test_dropout_is_a_part_of_the_authors():
    full, half = (ct.layers(CONFIG | {"dropout": factor}) for factor in (1, 0.5))
    pairs = [(one[1], other[1]) for one, other in zip(full, half, strict=True)
             if one[0] == "dropout"]
    assert pairs == [(0.2, 0.1), (0.3, 0.15), (0.4, 0.2), (0.5, 0.25)]
    assert ct.layers({**CONFIG, "dropout": 1}) == ct.layers(
        {name: value for name, value in CONFIG.items() if name != "dropout"})


def test_each_epoch_has_an_order_of_its_own_and_twins_the_same(digits):
    images, labels = digits.x_train[:600], np.arange(600)
    one, twin = (ct.Shuffled(images, labels, CONFIG | {"block": block})
                 for block in ("highway", "plain"))
    first, again = (np.concatenate([chosen for _, chosen, _ in one]) for _ in range(2))
    assert sorted(first) == sorted(again) == list(range(600))
    assert not np.array_equal(first, again) and not np.array_equal(first, labels)
    for x, chosen, _ in twin:
        expected, first = first[:200], first[200:]
        assert np.array_equal(chosen, expected)
        assert np.array_equal(x, ct.pixels(images[chosen], CONFIG))


@pytest.mark.parametrize("train, config", [(ct.train_held_out, HELD_OUT),
                                           (ct.train_and_test, CONFIG),
                                           (ct.train_and_test, CROPPED)])
def test_a_killed_trial_ends_with_the_same_bits(digits, tmp_path, monkeypatch, train,
                                                config):
    per_epoch = (len(digits.x_train) - config.get("held_out", 0)) // 200
    check_resumes(monkeypatch, lambda folder: train(config, digits, folder), tmp_path,
                  kill=per_epoch + 3, left=2 * per_epoch)
    diverged = train(config | {"lr": 1e9}, digits, str(tmp_path))
    assert diverged["status"] == "diverged" and diverged["train_loss"][-1] is None


def test_images_are_trained_on_or_held_out(digits, monkeypatch):
    """And those of the test are not looked at before the end."""
    seen = {}

    def fit(config, images, labels, folder, evaluate=None):
        seen.update(images=images, evaluate=evaluate)
        net = ct.make_net(config, 64)
        return ct.Trained(net, net.cache(50), [], "ok")

    def judge(net, images, labels, config, cache):
        seen["judged"] = images
        return 0.5, 1.0
    monkeypatch.setattr(ct, "fit_net", fit)
    monkeypatch.setattr(ct, "right_and_loss", judge)
    ct.train_held_out(HELD_OUT, digits, "")
    seen["evaluate"](None, None)
    both = np.concatenate([seen["images"], seen["judged"]])
    assert len(seen["judged"]) == 200
    assert np.array_equal(*(np.sort(rows.view("S64"), axis=0)
                            for rows in (np.ascontiguousarray(both), digits.x_train)))
    assert ct.train_and_test(CONFIG, digits, "")["final_test_acc"] == 0.5
    assert seen["evaluate"] is None and seen["images"] is digits.x_train
    assert seen["judged"] is digits.x_test


def test_judged_in_pieces_as_at_once(digits):
    net, labels = ct.make_net(CONFIG, 64), digits.y_test.astype(np.intp)
    logits, _ = net.forward(ct.pixels(digits.x_test, CONFIG))
    for size in (50, 360):
        right, loss = ct.right_and_loss(net, digits.x_test, labels, CONFIG,
                                        net.cache(size))
        assert right == np.mean(logits.argmax(axis=0) == labels)
        assert loss == pytest.approx(hn.cross_entropy(logits, labels)[0], rel=1e-5)


def test_a_search_keeps_the_least_held_out_loss_of_each_setting():
    """With what the steps before it chose; what diverged is not chosen."""
    def fake(config):
        loss = (abs(math.log(config["lr"] / 0.03)) + config["decay"]
                + config["dropout"] * (1 if config["block"] == "plain" else -1))
        return {name: [9.0, None if config["lr"] > 1 else loss] for name in (
            "held_out_loss", "held_out_acc", "train_loss")}
    lab = FakeLab({}, None, fake)
    found = search(lab, None, None, {
        block: {"block": block} for block in ("highway", "plain")},
        {"lr": 0.1, "decay": 0.5, "dropout": 0.5},
        [{"epochs": 2, "lr": [5, 0.01, 0.03]},
         {"epochs": 4, "decay": [0.5, 0.1], "dropout": [0.5, 1]},
         {"epochs": 6, "gate_bias": {"highway": [-1, -3]}}])
    assert [found[block]["chosen"] for block in found] == [
        {"lr": 0.03, "decay": 0.1, "dropout": 1, "gate_bias": -1},
        {"lr": 0.03, "decay": 0.1, "dropout": 0.5}]
    assert [(c["lr"], c["decay"], c["dropout"]) for c in lab.seen if c["epochs"] == 4
            ][:4] == [(0.03, 0.5, 0.5), (0.03, 0.1, 0.5), (0.03, 0.5, 0.5),
                      (0.03, 0.5, 1)]
    assert found["plain"]["tried"][0]["held_out_loss"][0] is None


def test_a_search_ends_with_the_best_of_the_longest_trials():
    """Not with values that are best one at a time and bad together."""
    def fake(config):
        a, b, epochs = (config[name] for name in ("a", "b", "epochs"))
        loss = 9 if a and b else 1 - 0.1 * a - 0.2 * b - 0.5 * (epochs == 1)
        return {name: [loss] for name in (
            "held_out_loss", "held_out_acc", "train_loss")}
    found = search(FakeLab({}, None, fake), None, None, {"net": {}}, {"a": 0, "b": 0},
                   [{"epochs": 1, "a": [0]}, {"epochs": 2, "a": [0, 1], "b": [0, 1]},
                    {"epochs": 2, "a": [1]}])
    assert found["net"]["chosen"] == {"a": 0, "b": 1}


def fake_net(schedule, block, width, *percent, epochs=30, parameters=1):
    return {**table_1.planned(schedule, block, width, epochs, len(percent)),
            "final_test_percent": list(percent), "parameters": parameters,
            "settings": {"epochs": epochs, "schedule": schedule},
            **convolution.statistics(percent)}


@pytest.mark.parametrize("narrow, wide, plain, expected", [
    ((99.44, 99.46), (99.56, 99.58), (99.2,), [True] * 8),
    ((99.41, 99.43), (99.53, 99.55), (99.2,), [True, False, True, False,
                                               True, True, True, True]),
    ((99.3, 99.6), (99.4, 99.5), (99.7,), [True, True, None, False,
                                           None, True, False, None]),
    ((99.5, None), (99.49, 99.48), (99.5,), [None, False, None, False,
                                            None, None, None, None])])
def test_verdicts_follow_the_numbers(narrow, wide, plain, expected):
    nets = [fake_net("chosen", "highway", 16, *narrow),
            fake_net("chosen", "highway", 32, *wide, parameters=151_690),
            fake_net("chosen", "plain", 16, *plain),
            fake_net("narrow", "highway", 32, 99.9, 99.9),
            fake_net("authors", "highway", 16, 99.35, 99.3),
            fake_net("authors", "highway", 16, 99.9, epochs=60)]    # one run alone
    claims = table_1.check_claims({"nets": nets})
    found = verdicts(claims)
    # mean and best of width 16, of 32; wider, competitive, twin, authors' schedule
    assert found == expected
    run = {"block": "highway", "width": 16, "epochs": 30, "seed": 3}
    assert [[item.rests_on(run | {"schedule": schedule}) for item in claims]
            for schedule in ("chosen", "authors")] == [
        [True, True, False, False, True, False, True, True],
        [False] * 7 + [True]]


@pytest.mark.parametrize("epochs, best, expected", [
    (30, 99.51, True), (30, 99.0, None), (300, 99.51, True), (300, 99.0, False)])
def test_competitive_is_who_is_small_and_good(epochs, best, expected):
    """Who is only small is not, after as many epochs as the paper's."""
    net = fake_net("chosen", "highway", 32, best, epochs=epochs, parameters=151_690)
    assert table_1.check_competitive(net)["holds"] is expected


def test_smoke(smoke):
    """The whole path; runs have what the search chose for their kind, or the authors'
    settings."""
    record, folder = smoke(table_1.EXPERIMENT)
    assert len(list((folder / "trials").glob("*.jsonl"))) == 6
    for net in record["nets"]:
        wide = (net["schedule"], net["width"]) == ("chosen", 32)
        chosen = (table_1.AUTHORS if net["schedule"] == "authors" else record["search"][
            table_1.WIDE if wide else net["block"]]["chosen"])
        assert net["settings"] == chosen | {"epochs": net["epochs"]}
        assert np.shape(net["train_loss"]) == (len(net["seeds"]), net["epochs"])
    assert len(record["claims"]) == 7
