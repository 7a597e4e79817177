"""Convolutional highway nets: the paper's nets, one trial, and verdicts."""

import math

import numpy as np
import pytest

import highway_networks as hn
from experiments.convolution import claims, plan, rows, weights
from experiments.convolution import trials as ct
from experiments.lab import main
from experiments.lab.judging import judge
from experiments.lab.trials import Request, Trial, compute, write_packed
from experiments.nets.convolution.recipe import kernels
from highway_suite.checkpoints import Checkpoint
from highway_suite.datasets import content_hash
from highway_suite.records import RecordError
from tests.contracts import check_resumes

SMALL = plan.MNIST | plan.DIGITS | plan.START | {
    "block": "highway", "gate_bias": -1.0, "stages": [2, 3, 3], "width": 3,
    "momentum": 0.9, "epochs": 4, "seed": 0, "piece": 50, "measure": "test"}
COLOUR = plan.COLOUR | plan.PIECES | plan.START | {
    "block": "highway", "gate_bias": -1.0, "seed": 0,
    "centre": [100.0, 150.0, 50.0]}


def table_1_net(block="highway", width=16, stages=(2, 3, 3), seed=0, **more):
    return ct.make_net(SMALL | {"block": block, "width": width, "stages": stages,
                                "seed": seed} | more, 784)


# Nets


def test_initial_weights_are_the_authors_and_shared_by_twins():
    nets = [table_1_net(block, width=32, seed=5) for block in ("highway", "plain")]
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
    assert not np.array_equal(nets[0].params, table_1_net(width=32).params)


def test_multipliers_are_the_authors():
    net = table_1_net(gate=1)
    optimizer = ct.make_optimizer(net, SMALL | {"decay": 0.001})
    rates, decays = net.views(optimizer.rates), net.views(optimizer.decays)
    for i, name in rates:
        decay = 0 if name == "b" else 0.01 if net.layers[i][0] == "dense" else 0.001
        assert (rates[i, name] == (2 if name == "b" else 1)).all()
        np.testing.assert_allclose(decays[i, name], decay)


@pytest.mark.parametrize("optimizer", ["nesterov", "adam", "muon"])
def test_every_optimizer_decays_by_the_authors_multipliers(optimizer):
    """Without a gradient a first step only decays: at the middle of the first of ten
    steps, which rise for two, the rate is a quarter of lr."""
    net = table_1_net()
    before = net.params.copy()
    ct.make_optimizer(net, SMALL | {
        "optimizer": optimizer, "schedule": "linear", "decay": 0.001}, 10).step(
            net.params, np.zeros_like(before), 0.4)
    parts = zip(net.views(net.params).items(), net.views(before).values(), strict=True)
    step = 0.1 * (1.9 if optimizer == "nesterov" else 1)       # with what is ahead
    for ((i, name), after), old in parts:
        decay = 0 if name == "b" else 0.01 if net.layers[i][0] == "dense" else 0.001
        np.testing.assert_allclose(after, old * (1 - step * decay), atol=1e-6)


@pytest.mark.parametrize("block", ["highway", "plain"])
def test_unit_start_is_orthogonal_and_keeps_the_variance(block, digits):
    """Every direction of a kernel is as long as any other."""
    config = SMALL | {"block": block, "start": "unit", "width": 8, "dropout": 0}
    net = ct.make_net(config, 64)
    cache = net.cache(200)
    x = ct.pixels(digits.x_train[:200], config)
    ct.scale_to_unit_variance(net, x, cache)
    net.forward(x, cache)
    for kernel in kernels(net, net.params):
        lengths = np.linalg.svd(kernel, compute_uv=False)
        np.testing.assert_allclose(lengths, lengths[0], rtol=1e-4)
    for layer in cache.layers:
        if hasattr(layer, "H"):
            assert np.mean(np.maximum(layer.H, 0) ** 2) == pytest.approx(0.5, rel=1e-3)


# Rates and images


def test_rate_falls_after_thirds_or_warms_up_and_falls_as_a_cosine():
    for schedule, epochs, expected in (
            ("thirds", (1, 100, 101, 200, 201, 300), (1, 1, 0.1, 0.1, 0.01, 0.01)),
            ("eighths", (1, 200, 201, 301, 351, 400), (1, 1, 0.1, 0.01, 1e-3, 1e-3))):
        config = {"lr": 1.0, "epochs": epochs[-1], "schedule": schedule}
        found = [ct.learning_rate(config, epoch) for epoch in epochs]
        np.testing.assert_allclose(found, expected)
    config = {"lr": 0.1, "epochs": 31, "schedule": "cosine"}
    rates = [ct.learning_rate(config, epoch) for epoch in range(1, 32)]
    assert rates[:2] == [pytest.approx(0.01), 0.1] and rates[16] == pytest.approx(0.05)
    assert all(np.diff(rates[1:]) < 0) and 0 < rates[-1] < 0.001
    assert ct.learning_rate(config | {"epochs": 1}, 1) == rates[0]


def test_planes_meet_the_channels(rng):
    net = ct.ConvNet([("plain", 1, 1, 0), ("average",)], 32, 3, dtype="float64")
    x = rng.random((3072, 2))
    for channel in range(3):
        net.params[...] = 0
        net.views(net.params)[0, "W"][0, 0, 0, channel] = 1
        found, _ = net.forward(x)
        np.testing.assert_allclose(found[0], x.reshape(3, 1024, 2)[channel].mean(0))


def test_whitened_channels_are_uncorrelated(rng):
    colours = rng.normal(100, 20, (3, 2, 900)) + rng.normal(0, 30, (1, 2, 900))
    images = np.clip(colours, 0, 255).astype(np.uint8).swapaxes(0, 1).reshape(2, 2700)
    config = {"scale": 64, "centre": ct.channel_means(images),
              "mix": ct.whitening(images, 64)}
    planes = ct.pixels(images, config).reshape(3, -1)
    np.testing.assert_allclose(planes.mean(axis=1), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(planes), np.eye(3), atol=1e-4)
    np.testing.assert_allclose(config["mix"], np.transpose(config["mix"]))


def test_a_shrunk_pixel_is_the_mean_of_what_it_covers(rng):
    x = rng.random((192, 5))
    planes = x.reshape(-1, 8, 8, 5)
    odd = ct.shrunk(x, 5).reshape(-1, 5, 5, 5)
    np.testing.assert_allclose(odd.mean((1, 2)), planes.mean((1, 2)))
    corner = np.outer([1, 0.6], [1, 0.6])[..., None] * planes[0, :2, :2]
    np.testing.assert_allclose(odd[0, 0, 0], corner.sum((0, 1)) / 1.6 ** 2)


def test_crops_are_windows_of_the_padded_image(rng):
    """Each place as often as any other, half of them mirrored, all channels alike."""
    image = np.arange(1, 1 + 32 * 32).reshape(32, 32) % 251
    images = np.tile(np.stack([image, image + 1, image + 2]).astype(np.uint8).ravel(),
                     (900, 1))
    moved = ct.cropped(images, COLOUR, rng).reshape(900, 3, 32, 32)
    padded = [np.pad(plane, 4, constant_values=value) for plane, value in zip(
        images[0].reshape(3, 32, 32), (100, 150, 50), strict=True)]
    windows = {}
    for top in range(9):
        for left in range(9):
            window = np.stack([each[top:top + 32, left:left + 32] for each in padded])
            windows[window.tobytes()] = top, left, False
            windows[window[..., ::-1].tobytes()] = top, left, True
    found = [windows[one.tobytes()] for one in moved]
    tops, lefts, mirrored = np.array(found).T
    for places in (tops, lefts):
        assert np.bincount(places, minlength=9).min() > 50
    assert abs(mirrored.mean() - 0.5) < 0.09


@pytest.mark.parametrize("crop", [0, 4])
def test_each_epoch_has_an_order_of_its_own_and_twins_the_same(rng, crop):
    images = rng.integers(256, size=(600, 3072), dtype=np.uint8)
    config = COLOUR | {"crop": crop, "batch": 200}
    one, twin = (ct.Batches(images, np.arange(600), config | {"block": block})
                 for block in ("highway", "plain"))
    for (x, chosen, _), (other, same, _) in zip(one, twin, strict=True):
        assert np.array_equal(chosen, same) and np.array_equal(x, other)
        assert np.array_equal(x, ct.pixels(images[chosen], config)) == (not crop)
    first, again = (np.concatenate([chosen for _, chosen, _ in one]) for _ in range(2))
    assert sorted(first) == sorted(again) == list(range(600))
    assert not np.array_equal(first, again) and not np.array_equal(first, range(600))


@pytest.mark.parametrize("more", [{"measure": "held out", "held_out": 200},
                                  {"measure": "nothing", "n_train": 300},
                                  {"measure": "test"}])
def test_the_seed_alone_draws_the_images(more):
    train, held = ct.split(SMALL | more, 1000)
    again, _ = ct.split(SMALL | more | {"block": "plain", "lr": 1}, 1000)
    other, _ = ct.split(SMALL | more | {"seed": 1}, 1000)
    assert np.array_equal(train, again)
    assert np.array_equal(train, other) == (more["measure"] == "test")
    assert len({*train, *held}) == len(train) + len(held) == more.get("n_train", 1000)
    assert len(held) == more.get("held_out", 0)


# A trial


def averaged(config, side, classes):
    return [("plain", 4, 3, 1), ("highway", 4, 3, 1), ("pool", 2, 2),
            ("plain", classes, 1, 0), ("average",)]


def test_a_net_learns_from_images_of_many_sides(digits, tmp_path, monkeypatch):
    """Two epochs of small ones, then two of whole ones, also if it is stopped between;
    its small twin has the gradient of a net for small images."""
    monkeypatch.setitem(ct.NETS, "averaged", averaged)
    config = SMALL | {"net": "averaged", "sides": [4, 8]}
    epoch = len(digits.x_train) // 200
    check_resumes(monkeypatch, lambda folder: ct.train(config, digits, Checkpoint(
        f"{folder}/trial.npz", config, "")), tmp_path, kill=2 * epoch + 3,
                  left=2 * epoch)
    net = ct.make_net(config, 64)
    learner, caches = ct.learner_of(net, net.cache(50), config)
    net.params += 0.01
    alone = ct.make_net(config, 16)
    alone.params[...] = net.params
    x, labels = ct.pixels(digits.x_train[:50], config), digits.y_train[:50].astype(int)
    batch = ct.shrunk(x, 4), labels, None
    assert np.array_equal(learner.gradient(batch, caches)[1],
                          alone.gradient(batch, alone.cache(50))[1])


def test_threads_have_the_gradient_of_one(digits):
    net = ct.make_net(SMALL, 64, "float64")
    learner, caches = ct.learner_of(net, net.cache(200, 50), SMALL | {"threads": 4})
    batch = (ct.pixels(digits.x_train[:200], SMALL),
             digits.y_train[:200].astype(np.intp), None)
    found, expected = (of.gradient(batch, cache) for of, cache in (
        (learner, caches), (net, net.cache(200))))
    assert found[0] == pytest.approx(expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9, atol=1e-12)
    dropping = *batch[:2], np.random.default_rng(0)
    learner.gradient(dropping, caches)
    masks = [layer.mask for cache in caches for layer in cache.layers[:1]]
    assert not np.array_equal(*masks[:2])
    for images, piece in ((202, 1), (200, 40)):
        with pytest.raises(ValueError, match="not to be shared by 4 threads"):
            learner.cache(images, piece)


@pytest.mark.parametrize("more", [
    {"threads": 2},
    {"measure": "held out", "held_out": 200, "crop": 1, "centred": True},
    {"measure": "curve", "held_out": 200, "schedule": "linear", "optimizer": "muon",
     "start": "unit"}])
def test_a_killed_trial_ends_with_the_same_bits(digits, tmp_path, monkeypatch, more):
    """Stopped in the middle of the third of four epochs."""
    config = SMALL | more
    epoch = (len(digits.x_train) - config.get("held_out", 0)) // 200
    check_resumes(monkeypatch, lambda folder: ct.train(config, digits, Checkpoint(
        f"{folder}/trial.npz", config, "")), tmp_path, kill=2 * epoch + 3,
                  left=2 * epoch)


def test_a_trial_measures_what_it_says(digits):
    """Beside the net itself, untrained; no test image is looked at before the end."""
    found = {measure: ct.train(SMALL | more | {"measure": measure, "epochs": 0}, digits)
             for measure, more in (("held out", {"held_out": 200}), ("gates", {}),
                                   ("test", {}), ("nothing", {"n_train": 400}))}
    net = ct.make_net(SMALL, 64)
    for measure, images, labels in (
            ("test", digits.x_test, digits.y_test),
            ("held out", *(part[ct.split(SMALL | {"measure": "held out", "held_out":
                                                  200}, len(digits.x_train))[1]]
                           for part in (digits.x_train, digits.y_train)))):
        logits, _ = net.forward(ct.pixels(images, SMALL))
        assert found[measure]["acc"] == pytest.approx(
            np.mean(logits.argmax(axis=0) == labels), rel=1e-5)
    assert found["held out"]["loss"] == pytest.approx(
        hn.cross_entropy(logits, labels.astype(np.intp))[0], rel=1e-5)
    assert found["gates"]["acc"] == found["test"]["acc"] and "T" in found["gates"]
    look = {"measure": "test", "epochs": 0, "look": {"images": 200, "draws": 1}}
    layers = ct.train(SMALL | look, digits)["layers"]
    right = net.forward(ct.pixels(digits.x_test[:200], SMALL))[0].argmax(axis=0)
    assert layers["acc"] == np.mean(right == digits.y_test[:200])
    assert [len(stage["closed"]) for stage in layers["stages"]] == [2, 3, 3]
    assert set(found["nothing"]) == {"status", "parameters", "train_loss"}


def test_committed_weights_read_what_their_trial_read(digits, tmp_path, monkeypatch,
                                                       capsys):
    """Rounded to float16; zeros in their place read one of ten."""
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    about = {"name": "digits", "content": content_hash("digits")}
    config = SMALL | {"optimizer": "adam", "lr": 0.01, "dropout": 0}
    trial = compute(Request(ct.train, about, config), digits)
    path = tmp_path / "weights/net.npz"
    weights.keep(trial, digits, tmp_path / "training.npz", path)
    write_packed(tmp_path / "trials", [trial])
    with pytest.raises(RecordError, match="does not come out again"):
        weights.keep(trial._replace(result={}), digits, tmp_path / "training.npz",
                     tmp_path / "weights/other.npz")
    main("convolution", ["--weights"])
    said, params = capsys.readouterr().out, np.load(path)["params"]
    rounded = weights.accuracy(params, trial, digits)
    assert params.dtype == "float16" and abs(rounded - trial.result["acc"]) < 0.01
    assert f"{100 * rounded:.2f} %" in said
    assert f"{100 * trial.result['acc']:.2f} %" in said
    assert weights.accuracy(0 * params, trial, digits) < 0.15 < rounded


def test_curves_end_at_what_is_measured_at_the_end(digits):
    curve, held, test, tests = (
        ct.train(SMALL | {"measure": measure, "held_out": 1037, "epochs": 2}, digits)
        for measure in ("curve", "held out", "test", "test by epoch"))
    assert curve["held_out_acc"][-1] == held["acc"] != curve["held_out_acc"][0]
    assert curve["held_out_loss"][-1] == held["loss"]
    assert curve["train_loss"] == held["train_loss"] != test["train_loss"]
    assert 0 < curve["acc"] != held["acc"]
    assert tests["test_acc"][-1] == tests["acc"] == test["acc"] != tests["test_acc"][0]
    assert tests["train_loss"] == test["train_loss"]


def test_divergence_is_recorded(digits):
    lost = ct.train(SMALL | {"lr": 1e9}, digits)
    assert lost["status"] == "diverged" and "acc" not in lost
    assert lost["train_loss"][-1] is None and len(lost["train_loss"]) == 4
    lost = ct.train(SMALL | {"lr": 1e9, "measure": "curve", "held_out": 200}, digits)
    assert lost["held_out_acc"] == [None] * 4 and "acc" not in lost
    lost = ct.train(SMALL | {"lr": 1e9, "measure": "test by epoch", "look": {
        "images": 200, "draws": 1}}, digits)
    assert lost["test_acc"] == [None] * 4 and "layers" not in lost
    net = ct.make_net(SMALL, 64)
    net.views(net.params)[max(net.layout.shapes)][0] = np.inf       # the outputs' b
    with pytest.raises(hn.Diverged):
        ct.right_and_loss(net, digits.x_test, digits.y_test, SMALL, net.cache(50))


def test_gates_on_ink_by_hand(digits):
    """In pieces, the last of which reaches back, against one large batch."""
    net = ct.make_net(SMALL, 64)
    T = net.gates(ct.pixels(digits.x_test, SMALL))
    found = ct.look_at_gates(net, digits.x_test, SMALL, net.cache(50))
    ink = (digits.x_test > 8).reshape(-1, 8, 8)
    assert len(found["ink"]) == len(found["blank"]) == 8
    for cells, chosen in (("ink", ink), ("blank", ~ink)):
        assert found[cells][0] == pytest.approx(T[0].mean(axis=-1)[chosen].mean(),
                                                rel=1e-5)


# The ladder


class Found:
    """A lab whose trials find what is said of their settings: the accuracy on images
    held out, None where it diverged, and on test images."""

    def __init__(self, changes, accuracy):
        rungs = [[str(change), change] for change in changes]
        self.plan = plan.SMOKE | {"ladder": plan.SMOKE["ladder"] | {
            "rungs": rungs, "seeds": [0, 1]}}
        self.accuracy = accuracy

    def by_seed(self, function, configs, seeds, dataset):
        assert dataset == "digits"
        return {key: [self.trial(config | {"seed": seed}) for seed in seeds]
                for key, config in configs.items()}

    def trial(self, config):
        held, test = self.accuracy(config)
        result = {"status": "ok", "parameters": 7, "train_loss": [1.0],
                  "held_out_acc": [held], "test_acc": [test], "test_loss": [2.0]}
        return Trial("convolution.train", 5, None, config, "ok", None, result | (
            {} if held is None else {"acc": test}), 1.0, {})


def test_a_rung_is_kept_if_images_held_out_say_so():
    """Each is tried with what was kept before it; test images say the opposite."""
    def accuracy(config):
        held = 0.5 + sum(config.get(name, 0) for name in "abc") / 10
        return (None if "lost" in config and config["seed"] else held), 1 - held
    lab = Found([{}, {"a": 1}, {"b": -1}, {"lost": 1}, {"c": 2}, {"d": 1}], accuracy)
    table = rows.ladder(lab)
    rungs = table["rungs"]
    assert [rung["kept"] for rung in rungs] == [True, True, False, False, True, False]
    assert rungs[-1]["settings"] == {"a": 1, "c": 2, "d": 1}
    assert rungs[3]["test_percent"][1] is None and rungs[3]["held_out_mean"] == 0
    first, last = table["twins"]
    assert first["settings"] == {} and last["settings"] == {"a": 1, "c": 2}
    assert {rung["block"] for rung in table["twins"]} == {"plain"}
    nets = rows.by_ladder(lab, "table_2", table)["nets"]
    assert [(net["net"], net["a"]) for net in nets] == [("highway", 1), ("plain", 1)]
    assert nets[0]["settings_of"] == rungs[4]["rung"] and "d" not in nets[0]
    wanted = [hn.significant(100 * accuracy({"a": 1, "c": 2})[1])]
    assert nets[0]["test_by_epoch"] == [wanted] * nets[0]["n"]
    assert (nets[0]["train_loss"], nets[0]["test_loss"]) == ([1.0], [2.0])


# Verdicts


@pytest.mark.parametrize("failing, expected", [
    ({(28, 1), (8, 1)}, "holds"), ({(8, 3), (28, 3)}, "does not hold"),
    ({(28, 1)}, "open")])
def test_narrow_gates_fail_at_both_depths_or_it_is_open(failing, expected):
    nets = {net: {"trials": [], "train_loss": [[
        2.3 if net[:2] in failing else 0.1] * 3]}
            for net in rows.gate_nets(plan.PLAN["gates"])}
    _, fail = claims.claims_on_narrow(nets, (8, 28))
    assert judge(fail)["verdict"] == expected


@pytest.mark.parametrize("ink, verdict", [
    ([[0.5, 0.6], [0.5, 0.6]], "holds"), ([[0.5, 0.6], [0.5, 0.2]], "does not hold")])
def test_gates_open_on_ink_in_every_layer_of_every_seed(ink, verdict):
    blank = [[0.1, 0.2]] * 2
    row = {"depth": 8, "train_loss": [0.1, 0.1], "test_percent": [97, 98], "trials": []}
    highway = row | {"block": "highway", "T": {"ink": ink, "blank": blank},
                     "T_untrained": {"ink": [[0.2, 0.3]] * 2, "blank": blank},
                     "untrained": []}
    found = {claim.name: judge(claim)["verdict"] for claim in
             claims.claims_on_depths([highway, row | {"block": "plain"}])}
    assert found["conv-open-on-ink"] == verdict


@pytest.mark.parametrize("change, falling", [
    ({"closed": [0.9, 0.9, 0.9, 0.84]}, "conv-hardly-hurt"),
    ({"shuffled": [0.9, 0.68]}, "conv-shuffle"),
    ({"mean": [-0.2, 0.0]}, "conv-error-mean"),
    ({"std": [0.5, 0.5001]}, "conv-error-shrinks"),
    ({"in_groups": [0.94, 1.0]}, "conv-side-by-side")])
def test_claims_on_layers_are_of_every_stage(change, falling):
    """One stage in which it is not so is enough; seeds must agree. If it is so in one
    untrained net, it is not learned."""
    good = {"closed": [0.9, 0.88, 0.9, 0.9], "shuffled": [0.9, 0.84],
            "std": [0.6, 0.5999], "mean": [-0.04, 0.0],
            "in_groups": [0.95, 0.97, 0.99, 1.0]}
    poor = good | {"mean": [-0.2, 0.0], "std": [0.5, 0.6], "in_groups": [0.5, 1.0]}
    bad = good | change

    def verdicts(*nets, untrained=(poor, poor)):
        rows = [{"trials": [], "trained": {"acc": 0.9, "stages": stages},
                 "untrained": {"acc": 0.1, "stages": [other]}}
                for stages, other in zip(nets, untrained, strict=False)]
        return {claim.name: judge(claim)["verdict"]
                for claim in claims.claims_on_layers("conv", "a net", rows)}
    assert set(verdicts([good, good]).values()) == {"holds"}
    for nets, expected in (([[good, bad]], "does not hold"),
                           ([[good, good], [bad, good]], "open")):
        found = verdicts(*nets)
        assert found.pop(falling) == expected and set(found.values()) == {"holds"}
    assert verdicts([good], [good], untrained=[poor, good])[
        "conv-error-mean"] == "not learned"
    assert not verdicts()
