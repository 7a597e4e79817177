"""Harder data: what is measured of a net, and when it uses more layers than another."""

import copy
from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
from experiments import five_nets, harder_data
from experiments.old_lab import Lab, build_parser
from experiments.store import StoreError, hash_of, make_trial, pack_trials
from tests.fake_lab import FakeLab, verdicts


def test_smoke(smoke):
    record, _ = smoke(harder_data.EXPERIMENT)
    assert {name: len(nets) for name, nets in record["nets"].items()} == {
        "mnist": 2, "harder": 2, "same b_T": 2}
    assert all(item["ours"] is not None and item["n"] == 2
               for item in record["claims"])
    assert all(item["section"] == "ours" or item["section"].startswith("P1 4")
               for item in record["claims"])
    for nets in record["nets"].values():
        for net in nets:
            assert len(net["one_closed"]["error"]) == 6
            for shares in net["differences"]["trained"].values():
                assert sum(shares) == pytest.approx(1, abs=1e-4)


def test_the_rate_is_that_of_the_best_held_out_accuracy(digits, monkeypatch):
    monkeypatch.setattr(harder_data, "nets_of_mnist", lambda lab: {})
    protocol = harder_data.PROTOCOL | harder_data.SMOKE
    seen = {"status": "ok", "train_loss": [0.1], "parameters": 1, "epochs": 1}

    def fake(config):
        found = seen | {"lr": config["lr"], "test_acc": [
            None if config["lr"] == 0.2 else config["gate_bias"] + 5]}
        return found if config["kind"] == "search" else {"training": found | {
            "status": "diverged" if config["lr"] == 0.2 else "ok"}}
    lab = FakeLab(protocol, digits, fake)
    record = harder_data.run(lab)
    assert len(record["nets"]["harder"]) == 2 and record["further"] == {}
    looked = [config for config in lab.seen if config["kind"] == "net"]
    assert len(looked) == 2 * 3 and {(config["gate_bias"], config["lr"])
                                     for config in looked} == {
        (-4.0, 0.1), (-4.0, 0.2), (-2.0, 0.1)}      # 0.2: the further rate
    assert all(config["seed"] == 0 for config in lab.seen if config["kind"] != "net")


def test_a_search_sees_no_test_image_and_holds_out_the_last(digits):
    protocol = harder_data.PROTOCOL | harder_data.SMOKE
    config = harder_data.make_config(protocol, "search", -2.0, 0.2, 0)
    found = harder_data.search(config, digits)
    assert found == harder_data.search(config, replace(
        digits, x_test=digits.x_test * 0))
    labels = digits.y_train.copy()
    labels[-237:] = (labels[-237:] + 1) % 10
    wrong = harder_data.search(config, replace(digits, y_train=labels))
    assert wrong["train_loss"] == found["train_loss"]
    assert wrong["test_acc"][-1] < found["test_acc"][-1]


def test_mnists_nets_are_those_of_five_nets(home):
    """Not trained again; and where one is missing, what makes it is said."""
    lab = Lab(harder_data.EXPERIMENT,
              build_parser(harder_data.EXPERIMENT).parse_args([]))
    configs = five_nets.configs(five_nets.PROTOCOL)
    protocol = {"experiment": "five_nets", "dataset": "mnist"}
    folder = home / "results" / "five_nets" / "trials"
    folder.mkdir(parents=True)
    trials = [make_trial(hash_of(protocol), configs["highway", seed], "ok", None,
                         {"seed": seed}, 1) for seed in range(3)]
    pack_trials(folder / "highway.jsonl", protocol, trials)
    assert harder_data.nets_of_mnist(lab) == dict(enumerate(trials))
    pack_trials(folder / "highway.jsonl", protocol, trials[:2])
    with pytest.raises(StoreError, match="no net of seed 2.*experiments.five_nets"):
        harder_data.nets_of_mnist(lab)


def test_class_differences_are_measured_where_they_are():
    """T of one layer goes by the only pixel, of the others by nothing."""
    net = hn.DeepNet("highway", 4, 3, inputs=1, classes=2, init="glorot")
    weights = net.views(net.params)
    weights["W_T"][...] = 0
    weights["W_T"][2], weights["W_H"][...] = 1, 0
    x = np.linspace(-1, 1, 50, dtype="float32")[:, None]
    for shares in harder_data.differences(net, x, (x[:, 0] > 0).astype(int)).values():
        assert shares == pytest.approx([0, 0, 1, 0], abs=1e-9)


def test_two_of_the_class_differences_are_those_of_the_first_two_classes(seed):
    rng = np.random.default_rng(seed)
    net = hn.DeepNet("highway", 4, 3, inputs=2, classes=3, init="glorot", seed=seed)
    x = rng.standard_normal((60, 2)).astype("float32")
    labels = rng.permutation(60) % 3            # as many of each

    def shares(*names):
        return harder_data.differences(net, x, np.array(names)[labels])
    as_is, swapped, turned = shares(0, 1, 2), shares(1, 0, 2), shares(1, 2, 0)
    for name, equal in (("two", False), ("all", True)):
        assert swapped[name] == pytest.approx(as_is[name])
        assert (turned[name] == pytest.approx(as_is[name])) == equal


# --------------------------------------------------------------------------------------
# Verdicts


def net_of(costs, change, rose=1.0, error=0.1, loss=0.1):
    """A net of 49 layers: what each costs if closed, in error and in units of its loss;
    how it changes the outputs; the correlations of b_T."""
    costs, change = np.broadcast_to(costs, 49), np.broadcast_to(change, 49)
    shares = {"two": list(change / change.sum()), "all": list(change / change.sum())}
    return {"error": error, "loss": loss, "one_closed": {
                "error": list(error + costs), "loss": list(loss * (1 + 100 * costs))},
            "first_only": {"error": list(error + np.append(costs, 0))},
            "training": {"lr": 0.1},
            "change": {"trained": list(change), "untrained": [1, *[0] * 48]},
            "differences": {"trained": shares, "untrained": {
                name: [1, *[0] * 48] for name in shares}},
            "bias": {"fell": (1 + rose) / 2, "with_depth": rose,
                     "with_activity": -rose}}


EARLY, ALL = np.repeat([1.0, 0], [10, 39]), np.repeat([1.0, 0.001], [40, 9])


def judged(dataset, mnist, harder, same=None, near=None, best=None):
    return harder_data.check_claims({
        "dataset": dataset, "protocol": harder_data.PROTOCOL, "nets": {
            "mnist": mnist, "harder": harder, "same b_T": same or harder},
        "near": {"harder": {"0.3": near or harder}, "same b_T": {}},
        "further": {"0.5": best or harder}})


@pytest.mark.parametrize("dataset", ["cifar10-jpeg75", "cifar100"])
def test_claims_follow_the_numbers(dataset):
    """They hold, they do not, and nets that differ leave them open."""
    few, many = net_of(0.02 * EARLY, EARLY, -1), net_of(0.02 * ALL, ALL)
    found = judged(dataset, [few, few], [many, many])
    assert verdicts(found) == [True] * 6 + [True, True, True, None, True, True]
    other = judged(dataset, [many, few], [few, few])
    assert verdicts(other) == [False] * 6 + [False, False, False, None, False, False]
    mixed = verdicts(judged(dataset, [few, few], [few, many]))
    assert mixed == [None] * 12
    theirs = [item["section"] for item in found[6:]]
    if dataset == "cifar100":
        assert theirs == ["P1 4"] * 4 + ["P1 4.1", "P1 4.2"]
    else:
        assert theirs == ["ours"] * 6 and all(
            "CIFAR-10, JPEG quality 75" in item["claim"] for item in found)


def test_verdicts_at_other_thresholds():
    mnist, harder = net_of(0.003 * EARLY, EARLY), net_of(0.007 * ALL, ALL)
    first = judged("cifar100", [mnist], [harder])[0]
    assert first["ours"] == {"rate 0.1": [40], "rate 0.3": [40], "MNIST": [0]}
    assert judged("cifar100", [mnist], [harder], near=[mnist])[0]["holds"] is None
    fitted = harder | {"error": 0.01}
    asked = judged("cifar100", [mnist], [mnist], best=[fitted])
    assert verdicts(asked[:5:4]) == [False, True]
    assert {item.get("younger") for item in asked} == {True}
    assert first["holds"] and first["also"] == {"0.0025": True, "0.01": False}
    before = copy.deepcopy(harder)
    before["change"]["untrained"] = before["change"]["trained"]
    told = judged("cifar100", [mnist], [before])[9]
    assert told["holds"] is None and told["why"] == "as true without"
