"""What is measured of trained nets, how they are chosen, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
from experiments import trained_nets
from experiments.lab.experiment import folder_of, load_record
from experiments.lab.judging import Claim, judge
from experiments.nets.perceptrons import KEPT, centred, kept_net, make_config
from experiments.nets.probes import loss_and_error
from experiments.trained_nets import measures, trials, verdicts, weights
from highway_suite.records import weights_hash
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
    found = measures.per_example(net, x, 0.2)
    np.testing.assert_allclose(found.closed, (T < 0.2).mean(axis=(1, 2)))
    assert found.hoyer == pytest.approx(np.mean([measures.hoyer(T[..., i])
                                                 for i in range(40)]), rel=1e-5)
    steps = [[np.linalg.norm(y[l + 1, :, i] - y[l, :, i]) for i in range(40)]
             for l in range(4)]
    np.testing.assert_allclose(found.change, np.mean(steps, axis=1), rtol=1e-5)
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


@pytest.mark.parametrize("block", ["highway", "t_only", "full"])
def test_blocks_that_are_given_their_own_T_change_nothing(block, images):
    net, (x, labels) = small_net(block), images
    found = measures.rerouted(net, x, labels, {
        "own": (range(4), lambda rows, T: T), "none": ((), lambda rows, T: None)}, 16)
    whole = loss_and_error(net, x, labels, size=16)
    assert found == {"own": whole, "none": whole}


def test_given_T_are_those_of_frozen_gates(images, rng):
    net, (x, labels) = small_net(), images
    held = rng.uniform(0.1, 0.9, (4, 5))
    found = measures.rerouted(net, x, labels, {
        "held": ([1, 2], lambda rows, T: held[..., None]),
        "shut": ([3], lambda rows, T: np.zeros_like(T))}, 16)
    twin = frozen(net, {1: held[1], 2: held[2]})
    assert found["held"] == pytest.approx(loss_and_error(twin, x, labels))
    assert found["shut"] == pytest.approx(loss_and_error(net, x, labels, closed=[3]))
    assert found["held"][0] != pytest.approx(loss_and_error(net, x, labels)[0],
                                             rel=1e-6)


@pytest.mark.parametrize("within", [True, False])
def test_permuted_images_keep_to_their_class(within, rng):
    labels = rng.integers(3, size=300)
    order = measures.permuted(labels, rng, within)
    assert sorted(order) == list(range(300)) and (order != np.arange(300)).mean() > 0.9
    assert (labels[order] == labels).all() == within


def test_a_mean_of_its_class_is_given_to_each_image(digits):
    """With T that hardly depends on the image, every way of giving it changes little;
    with T that does, giving that of others changes the loss."""
    data = hn.scale_pixels(digits)
    config = trials.configs(SMALL)["highway", 0]

    def rises(scale):
        net = hn.DeepNet("highway", 6, 8, inputs=64, init="glorot", gate_bias=0.0)
        net.views(net.params)["W_T"][...] *= scale
        loss, _ = loss_and_error(net, data.x_train, data.y_train)
        found = trials.reroute(net, data.x_train, data.y_train, config)
        return {way: abs(ranges["all"][0] - loss) for way, ranges in found.items()}
    assert max(rises(1e-4).values()) < 1e-4
    assert min(rises(5.0).values()) > 1e-3
    again = rises(5.0)
    config["measures"] = config["measures"] | {"ranges": dict(reversed(
        config["measures"]["ranges"].items()))}
    assert rises(5.0) == again          # their order is no part of a trial's hash


def test_class_differences_are_measured_where_they_are():
    """T of one block goes by the only pixel, of the others by nothing."""
    net = hn.DeepNet("highway", 4, 3, inputs=1, classes=3, init="glorot")
    parts = net.views(net.params)
    parts["W_T"][...] = 0
    parts["W_T"][2], parts["W_H"][...] = 1, 0
    x = np.linspace(-1, 1, 60, dtype="float32")[:, None]
    apart = trials.class_differences(net, x, np.repeat([0, 1, 2], 20))
    for classes in ([0, 1], [2, 0]):
        found = measures.shares_of_blocks(apart, classes)
        assert found["two"] == found["all"] == pytest.approx([0, 0, 1, 0], abs=1e-9)
    planted = np.zeros((3, 4, 5))
    planted[0, 1], planted[2, 3] = 1, 2
    assert measures.shares_of_blocks(planted, [0, 1])["two"] == [0, 1, 0, 0]
    assert measures.shares_of_blocks(planted, [0, 1])["all"] == [0, 0.2, 0, 0.8]


# --------------------------------------------------------------------------------------
# Readouts


def test_moments_are_those_of_the_whole(rng):
    values, labels = rng.normal(size=(2, 3, 50)), rng.integers(4, size=50)
    values[1, 2] += 5 * labels
    found = measures.Moments(rng.normal(size=(2, 3)), 4)
    found.add(values[..., :30], labels[:30])
    found.add(values[..., 30:], labels[30:])
    flat = values.reshape(6, 50)
    np.testing.assert_allclose(found.mean, flat.mean(axis=1))
    np.testing.assert_allclose(found.covariance, np.cov(flat, bias=True), atol=1e-12)
    means = np.array([flat[:, labels == c].mean(axis=1) for c in range(4)]).T
    np.testing.assert_allclose(found.class_means, means)


def test_moments_keep_the_variance_of_gates_that_hardly_move(rng):
    """A variance of 1e-8 about a mean of 0.1: from the origin 0 it is lost."""
    values = (0.12 + 1e-4 * rng.normal(size=(1, 2, 2000))).astype("float32")
    labels, exact = rng.integers(2, size=2000), np.cov(values[0].astype(float),
                                                       bias=True)
    found = measures.Moments(values[..., :500].mean(axis=2), 2)
    from_zero = measures.Moments(np.zeros((1, 2), "float32"), 2)
    for each in (found, from_zero):
        each.add(values, labels)
    np.testing.assert_allclose(found.covariance, exact, rtol=1e-3, atol=1e-12)
    assert not np.allclose(from_zero.covariance, exact, rtol=0.01, atol=0)


def test_regression_is_the_ridge_solution(rng):
    """The gradient of the penalised error is zero there."""
    values, labels = rng.normal(size=(1, 3, 60)), rng.integers(3, size=60)
    found = measures.Moments(np.full((1, 3), 0.3), 3)
    found.add(values, labels)
    for ridge in (0, 0.5):
        W, b = found.regression(ridge)
        error = W.T @ values[0] + b[:, None] - np.eye(3)[labels].T
        penalty = ridge * values[0].var(axis=1).mean()
        np.testing.assert_allclose(values[0] @ error.T / 60 + penalty * W, 0,
                                   atol=1e-10)
        np.testing.assert_allclose(error.mean(axis=1), 0, atol=1e-10)


def test_the_nearest_mean_is_told(images):
    net, (x, labels) = small_net(), images
    found = measures.moments(net, x, labels, "outputs")
    shares = measures.told(net, x, labels, "outputs", found, 1e-4)
    outputs = net.forward(x.T)[1].x[:, :5].reshape(-1, 40)
    means = np.array([outputs[:, labels == c].mean(axis=1) for c in range(3)])
    apart = ((outputs[None] - means[..., None]) ** 2).sum(axis=1)     # (C, N)
    assert shares["means"] == pytest.approx((apart.argmin(axis=0) == labels).mean())


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


def test_a_search_sees_no_test_image_and_holds_out_what_a_seed_draws(digits):
    """Also where the images are in order of their classes."""
    order = np.argsort(digits.y_train, kind="stable")
    data = replace(digits, x_train=digits.x_train[order], y_train=digits.y_train[order])
    config = SMALL["net"] | {"gate_bias": -2.0, "lr": 0.2, "epochs": 1, "seed": 0,
                             "held_out": 200}
    found = trials.search(config, data)
    assert found == trials.search(config, replace(data, x_test=data.x_test * 0))
    seen = []
    held_out = trials.train_at

    def train_at(config, images):
        seen.append(images)
        return held_out(config, images)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "train_at", train_at)
        for seed in (0, 0, 1):
            trials.search(config | {"seed": seed}, data)
    held = [images.x_test for images in seen]
    assert np.array_equal(held[0], held[1]) and not np.array_equal(held[0], held[2])
    for images in seen:
        assert set(images.y_test) == set(range(10)) and len(images.x_test) == 200
        assert len(images.x_train) == len(data.x_train) - 200


def test_the_best_rate_comes_first_then_those_near_it():
    accuracy = {0.1: 0.5, 0.2: 0.52, 0.4: 0.517, 0.8: 0.4}
    assert trained_nets.near_the_best(accuracy, 0.005) == [0.2, 0.4]


def test_the_kept_weights_are_those_of_the_record():
    record, _ = load_record(folder_of("trained_nets") / "record.json")
    for block in KEPT:
        net, training = kept_net(block)
        assert weights_hash(net) == training["sha256"]
        assert training == record["nets"][block][0]["training"]
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
# Verdicts

STATES = ("trained", "untrained")
PLAN = trained_nets.PLAN | {"early": 1, "first": 1, "idle": [3, 4]}
YES, NO, OPEN, NOT_LEARNED = "holds", "does not hold", "open", "not learned"


def net_of(closed, error=(0.0,) * 4, **more):
    """A net of four blocks, of loss 0.1 and error 0: its loss and error with each block
    closed, and what else the claims at hand read."""
    return {"loss": 0.1, "error": 0.0, "trials": ["0"],
            "one_closed": {"loss": list(closed), "error": list(error)}} | more


def both(trained, untrained):
    return {"trained": trained, "untrained": untrained}


def check(found, expected):
    found = {claim["name"]: claim["verdict"] for claim in map(judge, found)}
    assert {name: found[name] for name in expected} == expected


def test_a_verdict_is_that_of_all_nets_and_their_controls():
    def found(*values):
        about = verdicts.about([{"trials": []}], [both(*value) for value in values],
                             lambda value, limit: value > limit)
        claim = judge(Claim(name="", source="", text="", limit=2, **about))
        return [claim["at"][limit] for limit in ("1", "2", "4")]
    assert found((3, 0), (5, 1)) == [YES, YES, OPEN]
    assert found((3, 3), (5, 1)) == [NOT_LEARNED, NOT_LEARNED, OPEN]
    assert found((1, 1), (3, 3)) == [OPEN, OPEN, NO]


@pytest.mark.parametrize("closed, expected", [
    ([50, 2.0, 0.1, 0.11], [YES, YES, YES, YES, NO]),
    ([50, 0.15, 0.1, 0.19], [NO, YES, YES, YES, YES]),
    ([1.5, 1.5, 0.4, 0.1], [YES, YES, NO, NO, NO])])
def test_claims_on_lesions(closed, expected):
    check(verdicts.claims_on_lesions([net_of(closed)] * 2, PLAN), dict(zip((
        "early-blocks-matter", "first-blocks-tenfold", "first-blocks-hundredfold",
        "idle-blocks", "spared-blocks"), expected, strict=True)))


def test_claims_on_kinds():
    ruined, whole = ([net_of([9, 5, 1, 1], error)] for error in (
        (0.9, 0.85, 0.9, 0.82), (0.03,) * 4))
    check(verdicts.claims_on_kinds({"plain": ruined, "highway": whole,
                                  "residual": ruined}),
          {"plain-destroyed": YES, "vgg-guesses": OPEN, "resnet-hardly-hurt": OPEN,
           "highway-survives": YES, "highway-hardly-hurt": YES,
           "highway-early-matter": YES, "residual-survives": NO})
    late = [net_of([1, 1, 5, 9], (0.4, 0, 0, 0))]
    check(verdicts.claims_on_kinds({"plain": whole, "highway": late,
                                    "residual": whole}),
          {"plain-destroyed": NO, "highway-survives": YES, "highway-hardly-hurt": NO,
           "highway-early-matter": NO, "residual-survives": YES})


@pytest.mark.parametrize("draws, expected", [
    ([[0.01, 0.1, 0.2, 0.3], [0.03, 0.1, 0.2, 0.3]], YES),
    ([[0.01, 0.01, 0.01, 0.9]], NO),            # one step, not smooth
    ([[0.2, 0.3, 0.4, 0.5]], NO),               # much from the first step on
    ([[0.02, 0.2, 0.1, 0.3]], NO)])             # not in order
def test_claims_on_shuffling(draws, expected):
    nets = [net_of([1] * 4, shuffled={"before": 0.01, "error": draws})] * 2
    check(verdicts.claims_on_shuffling({"highway": nets, "residual": nets}), {
        "highway-shuffle": expected, "residual-shuffle": expected,
        "resnet-shuffle": OPEN})
    assert verdicts.rank_correlation([5, 5, 5]) == 0
    assert verdicts.rank_correlation([1, 1, 2, 2]) == pytest.approx(0.8 ** 0.5)


GOOD = {"std": [4, 3, 2, 1, 0], "mean": [0.2, -0.1, 0.1, 0.09, 0],
        "bias_share": [0.01, 0.02, 0.09, 0.03]}
POOR = {"std": [4, 5, 2, 3, 0], "mean": [0.2, -1.1, 0.1, 0.1, 0],
        "bias_share": [0.01, 0.02, 0.19, 0.03]}


@pytest.mark.parametrize("trained, untrained, plain, expected", [
    (GOOD, POOR, POOR, YES), (POOR, GOOD, POOR, NO), (POOR, POOR, POOR, NO),
    (GOOD, GOOD, POOR, NOT_LEARNED), (GOOD, POOR, GOOD, NOT_LEARNED)])
def test_claims_on_estimation(trained, untrained, plain, expected):
    def net(*states):
        return {"trials": [], "estimation": both(*states),
                "steps_bias": both(*(state["bias_share"] for state in states))}
    check(verdicts.claims_on_estimation(
        {"highway": [net(trained, untrained)], "plain": [net(plain, POOR)]}, "highway"),
        {f"highway-{name}": expected for name in (
            "error-shrinks", "error-mean", "error-bias", "step-bias")})


@pytest.mark.parametrize("loss, error, expected", [(5.0, 0.03, YES), (0.5, 0.3, NO)])
def test_claims_on_routing(loss, error, expected):
    """T held in every way at the same cost."""
    ranges = dict.fromkeys(("all", "1 to 15", "16 to 49"), [loss, error])
    nets = [net_of([1] * 4, rerouted=dict.fromkeys(
        ("mean of all", "mean of its class", "of its class"), ranges))] * 2
    check(verdicts.claims_on_routing({"highway": nets, "t_only": nets}), dict.fromkeys((
        "routing-not-static", "early-routing-not-static", "late-routing-not-static",
        "t-only-routing-not-static", "routing-by-class", "routing-like-its-class"),
        expected))


def gated(fell, told, closed_means, hoyers, shares, still):
    """What claims on gates read; each but the first is a pair: after training and
    before."""
    return {"trials": [], "bias": {"fell": fell, "mean_change": -0.1},
            "told": {"T, means": both(*told)}, "still": both(*([s] * 3 for s in still)),
            "sparsity": both(*({"closed_per_example": [0.5], "closed_of_mean": [closed],
                                "hoyer_per_example": hoyer, "hoyer_of_mean": 0.1}
                               for closed, hoyer in zip(closed_means, hoyers,
                                                        strict=True))),
            "change": both(*([s, 1 - s] for s in shares)),
            "differences": both(*({"two": [s, 1 - s], "all": [s, 1 - s]}
                                  for s in shares))}


@pytest.mark.parametrize("net, expected", [
    (gated(0.8, (0.97, 0.7), (0.1, 0.7), (0.5, 0.2), (0.8, 0.2), (0.7, 0.1)),
     [YES, YES, YES, YES, YES, YES, YES]),
    (gated(0.2, (0.97, 0.965), (0.7, 0.1), (0.2, 0.5), (0.2, 0.8), (0.3, 0.1)),
     [NO, NO, NO, NO, NO, NO, NO]),
    (gated(0.8, (0.97, 0.7), (0.1, 0.1), (0.5, 0.2), (0.8, 0.8), (0.7, 0.7)),
     [YES, YES, NOT_LEARNED, YES, NOT_LEARNED, NOT_LEARNED, NOT_LEARNED])])
def test_claims_on_gates(net, expected):
    nets = {"highway": [net], "plain": [net | {"still": both([0.2] * 3, [0.2] * 3)}]}
    check([*verdicts.claims_on_gates(nets, PLAN),
           *verdicts.claims_on_depth(nets, PLAN)], {"gates-sparse": OPEN} | dict(zip((
              "biases-fall", "gates-tell-class", "gates-active", "gates-selective",
              "early-change", "class-differences-early", "stripes"), expected,
              strict=True)))


def test_claims_on_the_best_mixing():
    for trained, untrained, expected in ((0.7, 0.1, YES), (0.2, 0.1, NO),
                                         (0.7, 0.7, NOT_LEARNED)):
        check(verdicts.claims_on_mixing([{"trials": [], "mixing": both(
            {"rank_correlation": trained}, {"rank_correlation": untrained})}]),
            {"best-mixing": expected})


# --------------------------------------------------------------------------------------
# Harder data


def harder_net(costs, change, rose=1.0, error=0.1):
    """A net of 49 blocks: what each costs in error, and in units of its loss, if
    closed; how it changes the outputs; the correlations of b_T."""
    costs, change = np.broadcast_to(costs, 49), np.broadcast_to(change, 49)
    shares, first = list(change / change.sum()), [1, *[0] * 48]
    return {"trials": ["0"], "loss": 0.1, "error": error,
            "one_closed": {"error": list(error + costs),
                           "loss": list(0.1 * (1 + 100 * costs))},
            "first_only": {"error": list(error + np.append(costs, 0))},
            "change": both(list(change), first),
            "differences": both({"two": shares, "all": shares},
                                {"two": first, "all": first}),
            "bias": {"fell": (1 + rose) / 2, "with_depth": rose,
                     "with_activity": -rose}}


EARLY, ALL = np.repeat([1.0, 0], [10, 39]), np.repeat([1.0, 0.001], [40, 9])


def few(error=0.1):
    return harder_net(0.02 * EARLY, EARLY, -1, error)


def many(error=0.1, cost=0.02):
    return harder_net(cost * ALL, ALL, error=error)


def on_harder(dataset, easy, near, fitted=None, same_bias=None):
    """The claims on a data set whose best rate is 0.1, with another near it and one
    that fits better; of makers of nets."""
    def row(makers, lr, bias=-4.0, near=True, error=0.1):
        return {"gate_bias": bias, "lr": lr, "near": near,
                "nets": [make(error) for make in makers]}
    rows = [row(near, 0.1), row(near, 0.2),
            row(fitted or near, 0.4, near=False, error=0.05),
            row(same_bias or near, 0.1, bias=-2.0)]
    return verdicts.claims_on_harder({
        "plan": trained_nets.PLAN | {"early": 15}, "harder": {dataset: rows},
        "nets": {"highway": [make() for make in easy]}}, dataset)


COUNTS = ("more-blocks-matter", "change-later", "more-blocks-matter-near",
          "more-blocks-double", "more-blocks-needed", "more-blocks-matter-same-bias")
THEIRS = ("biases-fall", "bias-rises-with-depth", "bias-against-activity",
          "class-differences-spread", "each-of-first-matters")


@pytest.mark.parametrize("dataset", ["cifar10-jpeg75", "cifar100"])
def test_claims_on_harder_data(dataset):
    def all_are(verdict, names):
        return {f"{name}-{dataset}": verdict for name in names}
    check(on_harder(dataset, [few] * 3, [many] * 3), all_are(YES, COUNTS + THEIRS))
    check(on_harder(dataset, [many] * 3, [few] * 3), all_are(NO, COUNTS + THEIRS))
    check(on_harder(dataset, [few] * 3, [few, many, many]),
          all_are(OPEN, ("more-blocks-matter-near", *THEIRS)))
    sources = {claim.source for claim in on_harder(dataset, [few], [many])
               if claim.name.startswith(THEIRS)}
    assert sources == ({"P1 4", "P1 4.1", "P1 4.2"} if dataset == "cifar100" else
                       {"ours"})


def test_each_group_of_rates_decides_its_own_claims():
    names = [f"{name}-cifar100" for name in COUNTS]
    check(on_harder("cifar100", [few] * 3, [few] * 3, fitted=[many] * 3), {
        names[0]: YES, names[2]: OPEN, names[5]: OPEN})
    check(on_harder("cifar100", [few] * 3, [few] * 3, same_bias=[many] * 3), {
        names[0]: OPEN, names[2]: OPEN, names[5]: YES})
    slightly = [lambda error: many(error, cost=0.007)] * 3
    found = judge(on_harder("cifar100", [few] * 3, slightly)[0])
    assert found["at"] == {"0.25": YES, "0.5": YES, "1": NO} and found["after_data"]


def test_each_rate_is_compared_with_each_of_mnists_where_it_has_several():
    def claim(first, second):
        rows = [{"gate_bias": -2.0, "lr": lr, "near": True, "nets": [make()] * 3}
                for lr, make in ((0.1, first), (0.2, second))]
        return [claim for claim in verdicts.claims_on_harder({
            "plan": trained_nets.PLAN, "harder": {
                "mnist": rows, "cifar100": [rows[0] | {"nets": [many()] * 3}]}},
            "cifar100") if claim.name == "more-blocks-matter-near-cifar100"]
    check(claim(few, few), {"more-blocks-matter-near-cifar100": YES})
    check(claim(few, many), {"more-blocks-matter-near-cifar100": OPEN})


def test_without_cifar100_its_claims_are_open():
    found = verdicts.claims_on_cifar100([few()], trained_nets.PLAN, "cifar100",
                                      judged=False)
    assert len(found) == 6
    for claim in map(judge, found):
        assert claim["verdict"] == OPEN and claim["why"] and claim["ours"]
