"""What is measured of trained nets, how they are chosen, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
from experiments import trained_nets
from experiments.lab.experiment import folder_of, load_record
from experiments.lab.judging import Claim, judge
from experiments.nets.perceptrons import centred, hold_out, make_config
from experiments.nets.probes import loss_and_error
from experiments.trained_nets import measures, trials, verdicts, weights
from highway_suite.records import weights_hash
from highway_suite.samples import TRAINED, trained_net
from highway_suite.schema import RecordError
from tests.contracts import frozen
from tests.contracts import probed_net as small_net

SMALL = trained_nets.PLAN | trained_nets.SMOKE

# --------------------------------------------------------------------------------------
# Measures


@pytest.mark.parametrize("size", [7, 500])
def test_estimation_error_and_bias_of_steps(size, images):
    net, (x, _) = small_net(), images
    a = net.forward(x.T)[1].x[:, :5].astype(float)
    off = a - a[-1]
    mean, std, A_std = off.mean(axis=2), off.std(axis=2), a[-1].std(axis=1).mean()
    found = measures.estimation_error(net, x, size)
    np.testing.assert_allclose(found["mean"], mean.mean(axis=1) / A_std, rtol=1e-5,
                               atol=1e-12)
    np.testing.assert_allclose(found["std"], std.mean(axis=1) / A_std, rtol=1e-5,
                               atol=1e-7)

    def share(of):
        return (of.mean(axis=2) ** 2).sum(axis=1) / (of ** 2).mean(axis=2).sum(axis=1)
    np.testing.assert_allclose(found["bias_share"], share(off[:-1]), rtol=1e-5)
    np.testing.assert_allclose(measures.bias_of_steps(net, x, size),
                               share(np.diff(a, axis=0)))
    moved = np.abs(a[3:] - a[:-3])
    assert measures.still(net, x, 3, [0.3, 1.0], size) == pytest.approx(
        [(moved < 0.3).mean(), (moved < 1.0).mean()])


def test_optimal_mixing_has_the_least_variance(images):
    net, (x, _) = small_net(), images
    best = measures.optimal_mixing(net, x, 16)
    cache = net.forward(x.T)[1]
    a, H = cache.x[:, :5].astype(float), np.array([layer.rows[0]
                                                   for layer in cache.layers], float)

    def spread(T):
        return (a[:-1] + T[..., None] * (H - a[:-1]) - a[-1]).var(axis=2)
    for other in (best + 0.01, best - 0.01):
        assert (spread(best) < spread(other)).all()


def test_what_single_examples_show(images):
    net, (x, _) = small_net(), images
    cache = net.forward(x.T)[1]
    T, y = cache.T, cache.x[:, :5]
    np.testing.assert_allclose(measures.closed_gates(net, x, 0.2, 16),
                               (T < 0.2).mean(axis=(1, 2)))
    assert measures.sparsity(net, x, 16) == pytest.approx(np.mean(
        [measures.hoyer(T[..., i]) for i in range(40)]), rel=1e-5)
    steps = [[np.linalg.norm(y[l + 1, :, i] - y[l, :, i]) for i in range(40)]
             for l in range(4)]
    np.testing.assert_allclose(measures.change(net, x, 16), np.mean(steps, axis=1))
    assert measures.hoyer(np.full(9, 0.3)) == pytest.approx(0)
    assert measures.hoyer(np.eye(9)[4]) == pytest.approx(1)


def test_nearby_order_moves_no_block_further_than_allowed(rng):
    furthest = {}
    for distance in (0, 1, 3, 8):
        orders = [measures.nearby_order(20, distance, rng) for _ in range(300)]
        assert all(sorted(order) == list(range(20)) for order in orders)
        furthest[distance] = np.abs(np.array(orders) - np.arange(20)).max()
    assert 3 < furthest.pop(8) <= 8
    assert furthest == {0: 0, 1: 1, 3: 3}


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
    planted = np.zeros((3, 4, 5))
    planted[0, 1], planted[2, 3] = 1, 2
    assert measures.shares_of_blocks(planted, [0, 1])["two"] == [0, 1, 0, 0]
    assert measures.shares_of_blocks(planted, [0, 1])["all"] == [0, 0.2, 0, 0.8]


def test_the_nearest_class_is_that_of_the_nearest_mean_T(images):
    net, (x, labels) = small_net(), images
    T = net.forward(x.T)[1].T.reshape(-1, 40)
    means = np.array([T[:, labels == c].mean(axis=1) for c in range(3)])
    apart = ((T - means[..., None]) ** 2).sum(axis=1)       # (C, N)
    by_class = measures.class_gates(net, x, labels)
    np.testing.assert_allclose(by_class.reshape(3, -1), means)
    assert measures.nearest_class(net, x, labels, by_class) == pytest.approx(
        (apart.argmin(axis=0) == labels).mean())


# --------------------------------------------------------------------------------------
# Training


def test_untrained_is_the_net_before_training_with_its_mean_folded_in(digits):
    data, config = hn.scale_pixels(digits), trials.configs(SMALL)["highway", 0]
    net = trials.untrained_net(config, data)
    start = hn.make_net(make_config(config, lr=0.1, epochs=1), data)
    images = centred(data)
    assert np.allclose(images.x_train.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(net.forward(data.x_test.T)[0],
                               start.forward(images.x_test.T)[0], atol=1e-5)
    assert not np.allclose(net.forward(data.x_test.T)[0],
                           start.forward(data.x_test.T)[0], atol=1e-2)


def test_a_search_sees_no_test_image(digits):
    config = SMALL["net"] | {"lr": 0.2, "epochs": 1, "seed": 0, "held_out": 200}
    found = trials.search(config, digits)
    assert found == trials.search(config, replace(digits, x_test=digits.x_test * 0))
    assert found != trials.search(config | {"seed": 1}, digits)


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


def test_only_weights_of_the_hash_are_made(digits, tmp_path):
    config = trials.configs(SMALL)["plain", 0]
    net, training = trials.trained_net(config, hn.scale_pixels(digits))
    (tmp_path / "net.npz").write_bytes(weights.make(SMALL, "plain", digits,
                                                    training["sha256"]))
    assert np.array_equal(hn.DeepNet.load(tmp_path / "net.npz").params, net.params)
    with pytest.raises(RecordError):
        weights.make(SMALL, "plain", digits, "0" * 64)


# --------------------------------------------------------------------------------------
# Verdicts: worlds in which all that the papers say is so, or nothing is

STATES = ("trained", "untrained")
PLAN = trained_nets.PLAN | {
    "early": 2, "idle": [3, 7],
    "harder": trained_nets.PLAN["harder"] | {"changing": 6}}
YES, NO, OPEN, NOT_LEARNED = "holds", "does not hold", "open", "not learned"
NEVER_JUDGED = {"gates-sparse", "vgg-guesses", "resnet-hardly-hurt", "resnet-shuffle",
                "resnet50-error-mean"}


def verdicts_of(claims):
    return {claim["name"]: claim["verdict"] for claim in map(judge, claims)}


def both(trained, untrained):
    return dict(zip(STATES, (trained, untrained), strict=True))


def shares(*values):
    """Of eight blocks: the values of the first, 0 of the others; their sum is 1."""
    return [value / sum(values) for value in values] + [0.0] * (8 - len(values))


def state(so):
    """What is measured of a net of eight blocks after training, or before it."""
    change = shares(8, 0, 2) if so else shares(1, 1, 8)
    return {
        "estimation": {"std": [4, 3, 2, 1, 0], "mean": [0.2, -0.1, 0.1, 0.09, 0],
                       "bias_share": [0.01, 0.02, 0.09, 0.03]} if so else {
            "std": [4, 5, 2, 3, 0], "mean": [0.2, -1.1, 0.1, 0.1, 0],
            "bias_share": [0.01, 0.02, 0.19, 0.03]},
        "steps_bias": [0.01, 0.09 if so else 0.19], "still": [0.6 if so else 0.4] * 3,
        "closed": {"per_example": [0.5], "of_mean": [0.4 if so else 0.6]},
        "sparsity": 0.5 if so else 0.2, "hoyer_of_mean": 0.1, "change": change,
        "differences": {"two": change, "all": change}, "mixing": 0.7 if so else 0.3}


def net_of(so, before=False):
    """A net of MNIST, after and before training. Where it is so, its first blocks
    matter and the others do not."""
    after, earlier = state(so), state(before)
    return {name: both(after[name], earlier[name]) for name in after} | {
        "trials": ["0"], "loss": 0.1, "error": 0.0,
        "one_closed": {
            "loss": [50, 2, 0.1, 0.1, 0.11, 0.19, 0.1, 0.5] if so else
                    [0.15, 0.15, 0.5, 0.5, 0.5, 0.5, 0.5, 0.9],
            "error": [0.03, 0.03] + [0] * 6 if so else [0.9, 0.6] + [0.9] * 6},
        "shuffled": {"before": 0.01, "error": [
            [0.01, 0.1, 0.2, 0.3], [0.03, 0.1, 0.2, 0.3]] if so else [
            [0.2, 0.3, 0.1, 0.5]]},
        "bias": {"fell": 0.8 if so else 0.2}, "mean_fall": 0.1,
        "told": both(0.97 if so else 0.7, 0.97 if before else 0.7),
        "held": dict.fromkeys(("all", "its class"), [1.1, 0.04] if so else [0.9, 0.3])}


def other_net(so, cost=0.02):
    """A net of harder data. Where it is so, its first six blocks do the work, one as
    much as the other, and each costs so much error if closed; else two do."""
    used = 6 if so else 2
    costs = np.repeat([cost, 0], [used, 8 - used])
    change = shares(*[1] * 6) if so else shares(1, 1, 0, 0, 0, 0, 0.3, 0.3)
    return {"trials": ["0"], "error": 0.1, "one_closed": {"error": list(0.1 + costs)},
            "change": both(change, shares(*[1] * 8)),
            "sparsity": {"trained": 0.8 if so else 0.1},
            "differences": both({"two": change, "all": change},
                                {"two": shares(1), "all": shares(1)}),
            "bias": {"fell": 0.8 if so else 0.2, "with_depth": 0.8 if so else -0.8,
                     "with_activity": -0.8 if so else 0.8}}


def rates_of(fitted, held_out=None, **more):
    """Data with two rates, that of the lowest training error and the best on held-out
    images; whether it is so of each of their nets."""
    def rate(lr, group):
        return {"lr": lr, "nets": [other_net(so, **more) for so in group]}
    return {"gate_bias": -4.0, "fitted": 0.4, "held_out": 0.1,
            "rates": [rate(0.4, fitted), rate(0.1, held_out or fitted)]}


def world(so, before=False, plain=False, easy=None, harder=None):
    """The verdicts on three nets of each kind, on MNIST and on CIFAR-100. before:
    whether it is so of untrained nets; plain: whether plain nets' estimates are as
    good; easy: whether MNIST's nets are as those of harder data, not so by default."""
    nets = dict.fromkeys(("highway", "residual"), [net_of(so, before)] * 3)
    nets["plain"] = [net_of(plain, before) | {      # the contrary is said of their use
        "one_closed": net_of(not so)["one_closed"]}] * 3
    return verdicts_of(verdicts.claims({"nets": nets, "plan": PLAN, "harder": {
        "mnist": rates_of([(not so) if easy is None else easy] * 3),
        **(harder or {"cifar100": rates_of([so] * 3)})}}))


def test_all_holds_in_a_world_in_which_it_is_so_and_nothing_in_its_contrary():
    for so, verdict in ((True, YES), (False, NO)):
        found = world(so)
        assert {name for name in found if found[name] == OPEN} == NEVER_JUDGED
        assert set(found.values()) == {verdict, OPEN}


def test_what_was_so_before_training_or_of_plain_nets_is_not_learned():
    estimates = {f"{kind}-{what}" for kind in ("highway", "residual") for what in (
        "error-shrinks", "error-mean", "error-bias", "step-bias")}
    for controls, expected in (
            ({"plain": True}, estimates | {"stripes"}),
            ({"before": True}, estimates | {
                "stripes", "gates-active", "early-change", "class-differences-early",
                "best-mixing"})):
        found = world(True, **controls)
        assert {name for name in found if found[name] == NOT_LEARNED} == expected


def test_a_verdict_is_that_of_all_nets_and_their_controls():
    def found(*values):
        about = verdicts.about([{"trials": []}], [both(*value) for value in values],
                             lambda value, limit: value > limit)
        claim = judge(Claim(name="", source="", text="", limit=2, **about))
        return [claim["at"][limit] for limit in ("1", "2", "4")]
    assert found((3, 0), (5, 1)) == [YES, YES, OPEN]
    assert found((3, 3), (5, 1)) == [NOT_LEARNED, NOT_LEARNED, OPEN]
    assert found((1, 1), (3, 3)) == [OPEN, OPEN, NO]


@pytest.mark.parametrize("draws", [
    [[0.01, 0.011, 0.012, 0.9]], [[0.2, 0.3, 0.4, 0.5]], [[0.02, 0.2, 0.1, 0.3]]],
    ids=["one step", "much from the first step on", "not in order"])
def test_an_error_that_does_not_grow_smoothly(draws):
    nets = [net_of(True) | {"shuffled": {"before": 0.01, "error": draws}}]
    assert verdicts_of(verdicts.claims_on_shuffling(
        {"highway": nets, "residual": nets}))["highway-shuffle"] == NO


def test_one_block_decides_what_is_said_of_any_block():
    """The worst of a highway net, the gentlest of a plain one."""
    one = [0.6] + [0] * 7
    nets = {kind: [net_of(True) | {"one_closed": {"error": error, "loss": [0.1] * 8}}]
            for kind, error in (("highway", one), ("plain", [0.9] * 7 + [0.4]),
                                ("residual", one))}
    found = verdicts_of(verdicts.claims_on_lesions(nets["highway"], [3, 7])
                        + verdicts.claims_on_plain_and_residual(nets))
    for name in ("highway-survives", "highway-hardly-hurt", "plain-destroyed"):
        assert found[name] == NO


def test_equal_values_share_their_rank():
    assert verdicts.rank_correlation([5, 5, 5]) == 0
    assert verdicts.rank_correlation([1, 1, 2, 2]) == pytest.approx(0.8 ** 0.5)


@pytest.mark.parametrize("groups, expected", [
    ({"fitted": [True] * 3}, [YES, YES]),
    ({"fitted": [False, True, True]}, [OPEN, OPEN]),        # seeds disagree
    ({"fitted": [False] * 3, "held_out": [True] * 3}, [OPEN, YES]),
    ({"fitted": [True] * 3, "cost": 0.004}, [NO, NO])])     # less than half a point
def test_each_rate_decides_its_own_claims(groups, expected):
    found = world(True, harder={"cifar100": rates_of(**groups)})
    assert [found[f"more-blocks-matter{of}-cifar100"]
            for of in ("", "-held-out")] == expected


@pytest.mark.parametrize("easy, expected", [(False, YES), (True, OPEN)])
def test_harder_data_are_compared_with_mnist_chosen_alike(easy, expected):
    found = world(True, easy=easy, harder={"cifar10": rates_of([True] * 3)})
    assert found["more-blocks-matter-cifar10"] == expected
    assert "biases-fall-cifar10" not in found
