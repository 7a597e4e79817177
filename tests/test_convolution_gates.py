"""b_T and what gates see in convolutional nets: a trial, the verdicts, the figure."""

import numpy as np
import pytest

from experiments import convolution_gates as cg
from experiments import convolution_trials as ct
from experiments.convolution_gates import Net
from tests.fake_lab import FakeLab, verdicts

PROTOCOL = cg.PROTOCOL


@pytest.mark.parametrize("gate, count", [
    (3, 38_986), (1, 38_986 - 8 * 8 * 16 * 16), (0, 38_986 - 8 * 9 * 16 * 16)])
def test_a_gate_has_the_parameters_of_what_it_sees(gate, count):
    config = cg.make_config(PROTOCOL, Net(10, gate, -1.0), 0.1, 0)
    net = ct.make_net(config, 784)
    assert net.params.size == count
    assert len(net.gates(np.zeros((784, 1), "float32"))) == 8


def test_decay_is_that_of_weights_for_the_gate_too():
    config = cg.make_config(PROTOCOL, Net(10, 1, -1.0), 0.1, 0)
    net = ct.make_net(config, 784)
    decays = net.views(ct.make_optimizer(net, config).decays)
    assert {(name, float(decay)) for (i, name), tensor in decays.items()
            for decay in np.unique(tensor) if net.layers[i][0] == "narrow"} == {
        ("W", np.float32(0.001)), ("W_T", np.float32(0.001)), ("b", 0.0)}


def test_the_plan_has_every_net_once():
    nets = cg.planned(PROTOCOL)
    assert len(set(nets)) == len(nets) == 18
    assert [net for net in nets if not net.gate] == [Net(10, 0, -1.0), Net(30, 0, -3.0)]


def test_a_seed_draws_the_images_of_all_its_nets(digits, monkeypatch):
    seen = []

    def fit(config, images, labels, folder):
        seen.append((images, labels))
        net = ct.make_net(config, 64)
        return ct.Trained(net, None, [], "diverged")
    monkeypatch.setattr(cg, "fit_net", fit)
    protocol = PROTOCOL | {"dataset": "digits", "n_train": 30}
    for net, seed in ((Net(10, 3, 0.0), 0), (Net(30, 1, -3.0), 0), (Net(10, 3, 0.0), 1)
                      ):
        result = cg.train(cg.make_config(protocol, net, 0.1, seed), digits, "")
    assert result["train_loss"] == [None] * 3
    (one, labels), (same, _), (other, _) = seen
    assert np.array_equal(one, same) and not np.array_equal(one, other)
    where = {image.tobytes(): label for image, label in zip(
        digits.x_train, digits.y_train, strict=True)}
    assert len(one) == 30
    assert [where[image.tobytes()] for image in one] == labels.tolist()


def record_of(loss):
    """The record of a plan whose runs end with loss(net, lr, seed)."""
    def fake(config):
        last = loss(Net(*(config[name] for name in Net._fields)), config["lr"],
                    config["seed"])
        return {"status": "diverged" if last is None else "ok", "parameters": 1,
                "train_loss": [2.0, 1.0, last]}
    lab = FakeLab(PROTOCOL, None, fake)
    lab.store = cg.hn.HERE
    return {"protocol": PROTOCOL, "dataset": "mnist", **cg.run(lab)}


def as_told(net, lr, seed):
    """What the papers tell: the guideline's b_T is best, 1x1 gates fail at most rates,
    and differ by seed where they do not."""
    guided = cg.GUIDELINE[net.depth]
    loss = 0.1 + 0.01 * seed + 0.1 * abs(net.gate_bias - guided)
    if net == Net(30, 3, 0.0) and lr > 0.1 or net.gate == 1 and lr > 0.025:
        return 2.3
    return loss * (1 if net.gate == 3 else 2 * 5 ** seed if net.gate else 30)


def alike(net, lr, seed):
    """No setting matters."""
    return 0.1 + 0.01 * seed


def turned(net, lr, seed):
    """Of all that is told the opposite."""
    depth = {10: 30, 30: 10}[net.depth]
    loss = 0.1 + 0.1 * abs(net.gate_bias - cg.GUIDELINE[depth])
    if net.gate == 3 and lr > 0.05:
        return None if lr > 0.1 else 2.3
    return loss * {3: 3, 1: 1, 0: 0.5}[net.gate] * (1 + 0.001 * seed)


# guideline, deeper, zero; stability; rate, spread, 3x3 below 1x1, 1x1 below a number
@pytest.mark.parametrize("loss, expected", [
    (as_told, [True, True, True, True, True, True, True, True]),
    (alike, [True, None, False, False, None, False, None, None]),
    (turned, [False, False, False, False, False, False, False, False])])
def test_verdicts_follow_the_numbers(loss, expected):
    record = record_of(loss)
    assert verdicts(cg.check_claims(record)) == expected


def test_depths_that_disagree_leave_it_open():
    claims = cg.check_claims(record_of(lambda net, lr, seed: (
        as_told if net.depth == 10 else alike)(net, lr, seed)))
    assert verdicts(claims)[3:] == [None] * 5


def test_a_rate_bears_every_seed_or_counts_for_nothing():
    net = {"lrs": [0.1, 0.2, 0.4], "train_loss": [
        [[9, 0.2], [9, 0.1]], [[9, 0.3], [9, None]], [[9, 0.4], [9, 0.6]]]}
    assert cg.largest_rate(net) == 0.1 and cg.largest_rate(net, 1.0) == 0.4
    assert cg.largest_rate(net, 0.15) == 0
    assert cg.failed([net]) == pytest.approx(2 / 6)
    assert cg.best_losses(net).tolist() == [0.2, 0.1]
    assert cg.apart(net) == pytest.approx(2) and cg.apart(
        net | {"train_loss": net["train_loss"][1:2]}) == np.inf


def test_smoke(smoke):
    """The whole path."""
    record, folder = smoke(cg.EXPERIMENT)
    assert len(list((folder / "trials").glob("*.jsonl"))) == 6
    assert len(record["claims"]) == 8 and len(record["nets"]) == 14
    counts = {net["gate"]: net["parameters"] for net in record["nets"]
              if net["depth"] == 10}
    assert counts[3] > counts[1] > counts[0]
    assert all(np.shape(net["train_loss"]) == (1, 1, 1) for net in record["nets"])
