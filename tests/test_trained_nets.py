"""What is measured of trained nets, how they are chosen, and what is said of them."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import highway_networks as hn
from experiments import trained_nets
from experiments.lab.experiment import folder_of, load_record
from experiments.lab.judging import judge
from experiments.nets.perceptrons import hold_out, make_config, make_still, train
from experiments.nets.probes import loss_and_error, over_images
from experiments.trained_nets import measures, trials, weights
from experiments.trained_nets.claims import claims_on_picture
from highway_suite.nets import TRAINED, trained_net, weights_hash
from highway_suite.records import RecordError
from tests.contracts import frozen
from tests.contracts import probed_net as small_net

SMALL = trained_nets.PLAN | trained_nets.SMOKE

# Measures


@pytest.fixture
def in_batches(monkeypatch):
    """Measure seven of the forty images at a time, and five at last."""
    monkeypatch.setattr(measures, "over_images", partial(over_images, size=7))


def test_estimation_error_and_bias_of_steps(images, in_batches):
    net, (x, _) = small_net(), images
    a = net.forward(x.T)[1].x[:, :5].astype(float)
    off = a - a[-1]
    mean, std, A_std = off.mean(axis=2), off.std(axis=2), a[-1].std(axis=1).mean()
    found = measures.estimation_error(net, x)
    np.testing.assert_allclose(found["mean"], mean.mean(axis=1) / A_std, rtol=1e-5,
                               atol=1e-12)
    np.testing.assert_allclose(found["std"], std.mean(axis=1) / A_std, rtol=1e-5,
                               atol=1e-7)

    def share(of):
        return (of.mean(axis=2) ** 2).sum(axis=1) / (of ** 2).mean(axis=2).sum(axis=1)
    np.testing.assert_allclose(found["bias_share"], share(off[:-1]), rtol=1e-5)
    np.testing.assert_allclose(measures.bias_of_steps(net, x),
                               share(np.diff(a, axis=0)), rtol=1e-5)
    moved = np.abs(a[3:] - a[:-3])
    assert measures.still(net, x, 3, [0.3, 1.0]) == pytest.approx(
        [(moved < 0.3).mean(), (moved < 1.0).mean()], rel=1e-5)


def test_optimal_mixing_has_the_least_variance(images, in_batches):
    net, (x, _) = small_net(), images
    best = measures.optimal_mixing(net, x)
    cache = net.forward(x.T)[1]
    a, H = cache.x[:, :5].astype(float), np.array([layer.rows[0]
                                                   for layer in cache.layers], float)

    def spread(T):
        return (a[:-1] + T[..., None] * (H - a[:-1]) - a[-1]).var(axis=2)
    for other in (best + 0.01, best - 0.01):
        assert (spread(best) < spread(other)).all()


def test_what_single_examples_show(images, in_batches):
    net, (x, _) = small_net(), images
    cache = net.forward(x.T)[1]
    T, y = cache.T, cache.x[:, :5]
    np.testing.assert_allclose(measures.closed_gates(net, x, 0.2),
                               (T < 0.2).mean(axis=(1, 2)))
    assert measures.sparsity(net, x) == pytest.approx(np.mean(
        [measures.hoyer(T[..., i]) for i in range(40)]), rel=1e-5)
    steps = [[np.linalg.norm(y[l + 1, :, i] - y[l, :, i]) for i in range(40)]
             for l in range(4)]
    np.testing.assert_allclose(measures.change(net, x), np.mean(steps, axis=1),
                               rtol=1e-5)
    assert measures.hoyer(np.full(9, 0.3)) == pytest.approx(0)
    assert measures.hoyer(np.eye(9)[4]) == pytest.approx(1)


@pytest.mark.parametrize("block", ["highway", "full"])
def test_T_that_are_held_are_those_of_frozen_gates(block, images, rng):
    net, (x, labels) = small_net(block), images
    fixed = rng.uniform(0.1, 0.9, (4, 5))
    found = measures.held(net, x, labels, lambda rows: fixed[..., None])
    assert found == pytest.approx(loss_and_error(frozen(net, dict(enumerate(fixed))), x,
                                                 labels))
    own = net.forward(x.T)[1].T.copy()
    assert measures.held(net, x, labels, lambda rows: own[..., rows]) == pytest.approx(
        loss_and_error(net, x, labels))


def test_T_are_held_at_the_mean_of_the_class_of_each_image(images):
    net, (x, labels) = small_net(), images
    T = net.forward(x.T)[1].T.copy()
    of_class = np.stack([T[..., labels == label].mean(axis=2) for label in labels], 2)
    found = trials.hold_gates(net, x, labels)
    for name, given in {"all": T.mean(axis=2, keepdims=True), "its class": of_class
                        }.items():
        assert found[name] == pytest.approx(measures.held(
            net, x, labels, lambda rows, given=given: given), rel=1e-5)


def test_class_differences_are_measured_where_they_are():
    """T of one block goes by the only pixel, of the others by nothing."""
    net = hn.DeepNet("highway", 4, 3, inputs=1, classes=3, init="glorot")
    parts = net.views(net.params)
    parts["W_T"][...] = 0
    parts["W_T"][2], parts["W_H"][...] = 1, 0
    x = np.linspace(-1, 1, 60, dtype="float32")[:, None]
    sizes = [10, 20, 30]
    apart = measures.class_differences(net, x, np.repeat([0, 1, 2], sizes))
    np.testing.assert_allclose(np.average(apart, axis=0, weights=sizes), 0, atol=1e-9)
    for classes in ([0, 1], [2, 0]):
        found = measures.shares_of_blocks(apart, classes)
        assert found["two"] == found["all"] == pytest.approx([0, 0, 1, 0], abs=1e-9)


# Training


def test_what_is_held_out_are_training_images_of_all_classes(digits):
    """Also where they are in order of their classes; a seed draws them."""
    order = np.argsort(digits.y_train, kind="stable")
    numbered = replace(digits, x_train=order[:, None], y_train=digits.y_train[order],
                       x_test=digits.x_test[:, :1])
    data, again, other = (hold_out(numbered, 200, [seed, 4]) for seed in (0, 0, 1))
    assert sorted(np.concatenate([data.x_train, data.x_test])[:, 0]) == sorted(order)
    assert len(data.x_test) == 200 and set(data.y_test) == set(range(10))
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        assert np.array_equal(y, digits.y_train[x[:, 0]])
    assert np.array_equal(data.x_test, again.x_test)
    assert not np.array_equal(data.x_test, other.x_test)


def test_the_kept_weights_are_those_of_the_record():
    record, _ = load_record(folder_of("trained_nets") / "record.json")
    for block in TRAINED:
        net, training = trained_net(block), record["nets"][block][0]["training"]
        assert weights_hash(net) == training["sha256"]
        assert net.settings["depth"] == record["plan"]["net"]["depth"]


def test_only_weights_of_the_hash_are_made(digits):
    config = trials.configs(SMALL)["plain", 0]
    net, training = trials.trained_net(config, hn.scale_pixels(digits))
    made = weights.make(SMALL, "plain", digits, training["sha256"])
    assert np.array_equal(made.params, net.params)
    with pytest.raises(RecordError):
        weights.make(SMALL, "plain", digits, "0" * 64)
    with pytest.raises(RecordError):
        trials.run_in_stages(config | {"weights": "0" * 64, "images": 9}, digits)


def test_gates_that_cannot_move_are_the_same_for_all_images(digits):
    config = trials.configs(SMALL)["highway", 0]
    net, about = trials.trained_net(config, hn.scale_pixels(digits), make_still)
    T = net.gates(hn.scale_pixels(digits).x_test[:9])
    searched = make_config(config, lr=config["lrs"][0], epochs=config["search_epochs"])
    _, history = train(searched, hn.scale_pixels(digits), make_still)
    assert about["search"]["train_loss"][0] == history["train_loss"][-1]
    b_T = net.views(net.params)["b_T"].reshape(T.shape[1:])
    np.testing.assert_allclose(T, np.broadcast_to(1 / (1 + np.exp(-b_T)), T.shape),
                               rtol=1e-5)
    assert np.ptp(b_T) > 0


# Verdicts


@pytest.mark.parametrize("T, step, found", [
    (0.2, 0.009, ["holds", "holds"]), (0.02, 0.011, ["does not hold"] * 2)])
def test_the_picture_of_one_net_is_judged_by_most_of_its_gates_and_outputs(T, step,
                                                                           found):
    """Of five units two do not do as most. step: by how much a block moves them."""
    T_mean = np.tile(np.where(np.arange(5) < 2, 0.22 - T, T), (30, 1))
    steps = np.where(np.arange(5) < 2, 0.02 - step, step)
    outputs = np.arange(31)[:, None] * steps
    picture = {"T_mean": T_mean, "outputs_one": outputs, "trials": []}
    assert [judge(claim)["verdict"] for claim in claims_on_picture(
        picture, trained_nets.PLAN)] == found
