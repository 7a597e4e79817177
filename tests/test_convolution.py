"""Table 1: the authors' nets, one trial, its gates, the verdicts, the figure."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import convolution
from experiments import convolution_trials as ct
from tests.contracts import check_resumes
from tests.fake_lab import verdicts


def config_of(block="highway", depth=10, width=16, dataset="mnist", **more):
    plan = convolution.planned("table", block, depth, width, 3, 1)
    protocol = convolution.PROTOCOL | {"dataset": dataset}
    return convolution.make_config(protocol, plan, 0.01, 0) | more


SMALL = config_of(width=3, dataset="digits", batch=200, piece=50, epochs=4, maps=1)


@pytest.mark.parametrize("block, width, count", [
    ("highway", 16, 38_986), ("highway", 32, 151_690), ("plain", 16, 20_426)])
def test_nets_have_the_papers_parameters(block, width, count):
    net = ct.make_net(config_of(block, width=width), 784)
    assert net.params.size == count
    assert [*dict.fromkeys(side for side, _ in net.shapes)] == [28, 24, 12, 6, 3, 1]


@pytest.mark.parametrize("dataset", ["mnist", "digits"])
@pytest.mark.parametrize("depth", convolution.STAGES)
def test_depth_counts_the_first_convolution_and_the_softmax(depth, dataset):
    layers, twin = (ct.layers(config_of(block, depth, dataset=dataset))
                    for block in ("highway", "plain"))
    kinds = [kind for kind, *_ in layers]
    assert kinds.count("highway") == depth - 2
    assert kinds.count("plain") == kinds.count("dense") == 1
    assert twin == [(kind.replace("highway", "plain"), *numbers)
                    for kind, *numbers in layers]


def test_initial_weights_are_the_authors_and_shared_by_twins():
    nets = [ct.make_net(config_of(block, width=32, seed=5), 784)
            for block in ("highway", "plain")]
    one, other = (net.views(net.params) for net in nets)
    for (i, name), tensor in one.items():
        kind, twin = nets[0].layers[i][0], other[i, name]
        assert np.array_equal(tensor[:len(twin)], twin), "all but the gate is shared"
        if name == "b":
            assert not twin.any() and (tensor[len(twin):] == -1).all()
            continue
        expected = 0.1 if kind == "dense" else math.sqrt(2 / np.prod(tensor.shape[1:]))
        assert tensor.std() == pytest.approx(expected,
                                             rel=5 / math.sqrt(2 * tensor.size))
        assert len(tensor) == (2 if kind == "highway" else 1) * len(twin)
    assert not np.array_equal(nets[0].params, ct.make_net(config_of(width=32),
                                                          784).params)


def test_multipliers_are_the_authors():
    net = ct.make_net(config_of(), 784)
    optimizer = ct.make_optimizer(net, config_of())
    rates, decays = net.views(optimizer.rates), net.views(optimizer.decays)
    for i, name in rates:
        decay = 0 if name == "b" else 0.01 if net.layers[i][0] == "dense" else 0.001
        assert (rates[i, name] == (2 if name == "b" else 1)).all()
        np.testing.assert_allclose(decays[i, name], decay)


def test_rate_drops_after_a_third_and_two_thirds():
    found = [ct.learning_rate({"lr": 0.01, "epochs": 300}, epoch)
             for epoch in (1, 100, 101, 200, 201, 300)]
    np.testing.assert_allclose(found, [1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4])


def test_a_killed_trial_ends_with_the_same_bits(digits, tmp_path, monkeypatch):
    """Stopped in the middle of the third of four epochs."""
    check_resumes(monkeypatch, lambda folder: ct.train_net(SMALL, digits, folder),
                  tmp_path, kill=2 * 7 + 4, left=2 * 7)


def test_divergence_is_recorded(digits, tmp_path):
    lost = ct.train_net(SMALL | {"lr": 1e9}, digits, str(tmp_path))
    assert lost["status"] == "diverged" and "T" not in lost
    assert lost["train_loss"][-1] is None and len(lost["test_acc"]) == 4
    net = ct.make_net(SMALL, 64)
    net.views(net.params)[max(net.layout.shapes)][0] = np.inf       # the outputs' b
    with pytest.raises(hn.Diverged):
        ct.right_and_loss(net, digits.x_test, digits.y_test, SMALL, net.cache(50))


def test_gates_and_accuracy_by_hand(digits):
    """In pieces, the last of which reaches back, against one large batch."""
    net = ct.make_net(SMALL, 64)
    T = net.gates(ct.pixels(digits.x_test, SMALL))
    found = ct.look_at_gates(net, digits.x_test, SMALL, net.cache(50))
    assert np.array_equal(np.ravel(found["maps"][0]["image"]), digits.x_test[0])
    assert len(found["maps"]) == 1 and len(found["T"]["blank"]) == 8
    ink = (digits.x_test > 8).reshape(-1, 8, 8)
    assert found["T"]["all"] == pytest.approx([gates.mean() for gates in T], rel=1e-5)
    assert found["T"]["ink"][0] == pytest.approx(T[0].mean(axis=-1)[ink].mean(),
                                                 rel=1e-5)
    np.testing.assert_allclose(found["maps"][0]["T3"], T[2][0].mean(axis=-1),
                               atol=0.0051)


def test_ink_follows_the_poolings():
    x = np.zeros((28, 28, 1))
    x[2, 2] = x[14, 15] = 1             # the first and some inner pixel of 24x24
    x[0, 27] = 1                        # outside of it
    maps = ct.ink_maps(ct.make_net(config_of(), 784), x.reshape(-1, 1))
    assert [len(ink) for ink in maps] == [24] * 2 + [12] * 3 + [6] * 3
    where = [np.argwhere(maps[layer][..., 0]).tolist() for layer in (0, 2, 5)]
    assert where == [[[0, 0], [12, 13]],
                     [[0, 0], [5, 6], [6, 6]],  # windows 10-12 and 12-14; 12-14
                     [[0, 0], [2, 2], [2, 3], [3, 2], [3, 3]]]


def deep_net(block, depth, losses, percent=(99.0, 98.0)):
    return {"part": "depth", "block": block, "depth": depth, "final_train_loss": losses,
            "final_test_percent": list(percent), "lr": 0.1, "epochs": 3}


@pytest.mark.parametrize("size, verdict", [(151_690, True), (152_100, False)])
def test_parameters_are_held_to_the_papers(size, verdict):
    nets = [{"part": "table", "block": "highway", "width": width, "parameters": count,
             "epochs": 20} for width, count in ((32, size), (16, 38_986))]
    nets += [deep_net(block, depth, [0.1], (99.0,)) for block in ("highway", "plain")
             for depth in (10, 30)]
    assert verdicts(convolution.check_claims({"nets": nets}))[0] is verdict


@pytest.mark.parametrize("highway, percent, plain, expected", [
    ([0.2, 0.1], (99.0, 98.0), [0.5, 2.3], [True, True]),
    ([2.3, 2.3], (11.0, 99.0), [0.5, 2.3], [False, False]),
    ([0.1, 0.1], (None, 99.0), [0.3, None], [False, True]),
    ([0.1, 0.1], (99.0, 99.0), [0.1, 2.3], [True, None]),       # seeds disagree
    ([0.11, 0.11], (99.0, 99.0), [0.2, 0.2], [True, False]),
    ([0.1, None], (99.0, 99.0), [0.3, None], [True, None])])    # both diverge
def test_verdicts_on_depth_follow_the_numbers(highway, percent, plain, expected):
    nets = [deep_net("highway", 10, [0.1, 0.1]),
            deep_net("highway", 30, highway, percent),
            deep_net("plain", 10, [0.1, 0.1]), deep_net("plain", 30, plain)]
    claims = convolution.check_depths(nets)
    assert verdicts(claims) == expected
    assert claims[1]["ours"]["plain"]["growth"] == pytest.approx(
        [None if loss is None else 10 * loss for loss in plain])
    nets[2]["final_train_loss"] = [None, None]
    assert verdicts(convolution.check_depths(nets))[1] is None, "grows from nothing"


def test_smoke(smoke):
    """The whole path; nets that compare depths have the best of their rates, those of
    the table the rate of the net of their kind and depth."""
    record, folder = smoke(convolution.EXPERIMENT)
    plan = record["protocol"]["nets"]
    assert len(list((folder / "trials").glob("*.jsonl"))) == 7
    assert [each["width"] for each in record["maps"]] == [16, 16]
    assert len(record["claims"]) == 3
    chosen = {}
    for net, planned in zip(record["nets"], plan, strict=True):
        assert np.shape(net["test_acc"]) == (len(planned["seeds"]), planned["epochs"])
        assert (net["T"] is None) == (net["block"] == "plain")
        key, search = (net["block"], net["depth"]), net["search"]
        if net["part"] == "depth":
            assert search["lr"] == record["protocol"]["lrs"][net["block"]]
            losses = dict(zip(search["lr"], search["final_train_loss"], strict=True))
            assert losses[net["lr"]] == min(losses.values()) == (
                net["final_train_loss"][0])
            chosen[key] = net["lr"]
        assert net["lr"] == chosen[key]
