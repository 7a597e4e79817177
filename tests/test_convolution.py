"""Convolutional highway nets: layers, net, step, and the experiment of Table 1."""

import io
import json
import math
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from contracts import STEP, WrongGradient
from test_gradients import BROKEN

import highway_networks as hn
from experiments import common, convolution
from experiments import convolution_layers as cl
from experiments.store import hash_of

ROOT = Path(hn.__file__).parent
SIDE = 7
NETS = {        # every kind of layer above a convolution, so that its dx is checked too
    "plain": [("plain", 3, 3, 1), ("plain", 4, 3, 1), ("dense", 5)],
    "resized": [("plain", 3, 3, 0), ("plain", 2, 5, 1), ("plain", 3, 1, 0),
                ("dense", 5)],
    "highway": [("plain", 3, 3, 1), ("highway", 3, 3, 1), ("highway", 3, 5, 2),
                ("highway", 3, 1, 0), ("dense", 5)],
    "overlapping pool": [("plain", 3, 3, 1), ("pool", 3, 2), ("dense", 5)],
    "pool over the edge": [("plain", 3, 3, 1), ("pool", 2, 2), ("pool", 3, 3),
                           ("dense", 5)],
    "pool by one": [("plain", 3, 3, 1), ("pool", 2, 1), ("dense", 5)],
    "dropout": [("plain", 3, 3, 1), ("dropout", 0.4), ("dense", 5)],
    "average": [("plain", 3, 3, 1), ("plain", 5, 1, 0), ("average",)],
    "nothing below": [("dropout", 0.2), ("dense", 5)],
    "whole": [("dropout", 0.2), ("plain", 3, 3, 0), ("highway", 3, 3, 1),
              ("pool", 3, 2), ("dropout", 0.3), ("highway", 3, 3, 1), ("pool", 2, 2),
              ("dense", 5)],
}


def small_net(layers, seed=0, dtype="float64"):
    """A net on 7x7 pixels. Biases are drawn: zero ones would hide an error in their
    use."""
    net = cl.ConvNet(layers, SIDE, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])
    for tensors in net.views(net.params):
        if tensors:
            tensors["b"] += rng.normal(0, 0.3, tensors["b"].shape)
    return net


def small_batch(seed=0, size=4):
    """x (49, size) and labels (size,)."""
    rng = np.random.default_rng([seed, 2])
    return rng.normal(size=(SIDE ** 2, size)), rng.integers(5, size=size)


def loss_of(net, x, labels):
    """Loss, dlogits and cache; the same is dropped in every call."""
    logits, cache = net.forward(x, rng=np.random.default_rng(3))
    return *hn.cross_entropy(logits, labels), cache


def gradient(net, x, labels):
    _, dlogits, cache = loss_of(net, x, labels)
    return net.backward(dlogits, cache).copy()


def check_gradient(net, x, labels, entries=9, seed=0):
    """Hold random entries of every tensor to their complex-step derivatives, to 1e-11
    of the tensor's largest. Raises WrongGradient."""
    found = gradient(net, x, labels)
    twin = cl.ConvNet(net.layers, net.side, dtype="complex128")
    rng = np.random.default_rng([seed, 4])
    for layer, where in enumerate(net.views(np.arange(found.size))):
        for name, places in where.items():
            places = places.ravel()
            most = abs(found[places]).max()
            assert most > 0
            for entry in rng.choice(places, min(entries, len(places)), replace=False):
                twin.params[...] = net.params
                twin.params[entry] += 1j * STEP
                expected = loss_of(twin, x.astype("complex128"), labels)[0].imag / STEP
                if not abs(found[entry] - expected) <= 1e-11 * most:
                    raise WrongGradient(f"layer {layer} {name}[{entry}]: backward "
                                        f"{found[entry]}, complex step {expected}")


# --------------------------------------------------------------------------------------
# Gradients


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_gradient_by_complex_step(layers, seed):
    check_gradient(small_net(layers, seed), *small_batch(seed), seed=seed)


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_gradient_by_central_difference(layers, seed):
    """A second oracle that shares nothing with complex arithmetic."""
    net, (x, labels) = small_net(layers, seed), small_batch(seed)
    direction = np.random.default_rng(seed).normal(size=net.params.size)
    expected, losses = gradient(net, x, labels) @ direction, []
    start = net.params.copy()
    for sign in (1, -1):
        net.params[...] = start + sign * 1e-7 * direction
        losses.append(loss_of(net, x, labels)[0])
    assert (losses[0] - losses[1]) / 2e-7 == pytest.approx(expected, rel=1e-5)


def caught(layers, seed):
    with pytest.raises(WrongGradient):
        check_gradient(small_net(layers, seed), *small_batch(seed), seed=seed)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda function: function.__name__)
def test_a_broken_block_is_caught(broken, monkeypatch, seed):
    monkeypatch.setattr(cl.Highway, "block",
                        cl.Highway.block._replace(backward=broken))
    caught(NETS["highway"], seed)


def unturned(self, d, add_below=cl.Plain.add_below):
    """The kernel is not turned round on the way back."""
    W = self.tensors["W"]
    self.tensors = {"W": W[:, ::-1, ::-1], "b": self.tensors["b"]}
    add_below(self, d)
    self.tensors = {"W": W, "b": self.tensors["b"]}


def unmoved(self, d, add_below=cl.Plain.add_below):
    """What every version of the image got is added where it stands."""
    add_below(self, np.zeros_like(d))
    d += self.spread.sum(axis=1).reshape(d.shape)


def round_the_edge(self, d):
    """What leaves the image enters on its other side."""
    S, C, B, k, p, side = self.size
    np.matmul(self.W_back.reshape(k * C, -1), self.dz_fields, out=self.spread_parts)
    self.spread[:, :, :, side:] = 0
    for j in range(k):
        d += np.roll(self.spread[:, j].reshape(d.shape), (j - p) * B, axis=2)


@pytest.mark.parametrize("broken", [unturned, unmoved, round_the_edge])
def test_a_broken_convolution_is_caught(broken, monkeypatch, seed):
    monkeypatch.setattr(cl.Plain, "add_below", broken)
    caught(NETS["highway"], seed)


def without_slope(dH, H):
    """dz_H = dH"""
    H[...] = dH


def test_a_broken_relu_is_caught(monkeypatch, seed):
    monkeypatch.setattr(cl, "RELU", cl.RELU._replace(backward=without_slope))
    caught(NETS["plain"], seed)


def to_all(d, x, y, taps, dx, part, mask):
    """Every pixel of a window gets what the window got."""
    dx.fill(0)
    for to, of in taps:
        dx[of] += d[to]


def overwritten(d, x, y, taps, dx, part, mask):
    """A pixel of several windows keeps what the last one gave."""
    dx.fill(0)
    for to, of in taps:
        won = x[of] == y[to]
        dx[of] = np.where(won, d[to], dx[of])


@pytest.mark.parametrize("broken", [to_all, overwritten])
def test_a_broken_pooling_is_caught(broken, monkeypatch, seed):
    monkeypatch.setattr(cl, "largest_backward", broken)
    caught(NETS["overlapping pool"], seed)


@pytest.mark.parametrize("name, kind", [("dropout", cl.Dropout),
                                        ("average", cl.Average)])
def test_a_gradient_that_is_only_passed_on_is_caught(name, kind, monkeypatch, seed):
    def passed_on(self, d):
        return np.broadcast_to(d[..., :1] if d.size < self.x.size else d,
                               self.x.shape).copy()
    monkeypatch.setattr(kind, "backward", passed_on)
    caught(NETS[name], seed)


def test_gradient_agrees_with_torch(digits):
    """Of the experiment's whole net, by automatic differentiation."""
    pytest.importorskip("torch")
    from benchmarks import convolution as benchmark
    args = benchmark.make_parser().parse_args(["--batch", "20", "--piece", "20"])
    for width in (3, 8):
        task = benchmark.Task("digits", digits, width, args)
        ours, theirs = (contestant(task).gradient()
                        for contestant in (benchmark.Ours, benchmark.Torch))
        assert benchmark.same_gradient("torch", ours, theirs) < 1e-5


# --------------------------------------------------------------------------------------
# Layers


def one_layer(kind, numbers, x, tensors=None):
    """A single layer at work on x (S, C, S, B), and its y (side, C', side, B)."""
    S, C, _, B = x.shape
    cache = object.__new__(cl.Cache)
    cache.batch, cache.dtype, cache.buffers = B, x.dtype, {}
    (side, channels), shapes = cl.LAYERS[kind].plan((S, C), *numbers)
    grads = {name: np.zeros(shape) for name, shape in shapes.items()}
    layer = cl.LAYERS[kind](cache, (S, C), tensors, grads, *numbers)
    layer.x[...] = x.reshape(S, C, S * B)
    y = np.full((side, channels, side * B), np.nan)
    layer.forward(y, np.random.default_rng(0))
    return layer, y.reshape(side, channels, side, B)


def by_definition(x, W, b, p):
    """z[i, r, j] = b[r] + sum of W[r, u, v, c] x[i + u - p, c, j + v - p]."""
    S, _, _, B = x.shape
    R, k, _, _ = W.shape
    side = S + 2 * p - k + 1
    padded = np.pad(x, ((p, p), (0, 0), (p, p), (0, 0)))
    z = np.empty((side, R, side, B))
    for i in range(side):
        for j in range(side):
            field = padded[i:i + k, :, j:j + k]                 # (k, C, k, B)
            z[i, :, j] = np.einsum("ruvc,ucvb->rb", W, field) + b
    return z


@pytest.mark.parametrize("small", [10**6, 200, 1])      # whole, in parts, by columns
@pytest.mark.parametrize("width, k, p", [(4, 3, 1), (2, 5, 0), (5, 5, 2), (3, 1, 0)])
def test_convolution_by_its_definition(width, k, p, small, monkeypatch, rng):
    monkeypatch.setattr(cl, "SMALL", small)
    x = rng.normal(size=(6, 3, 6, 4))
    W, b = rng.normal(size=(width, k, k, 3)), rng.normal(size=(width, 1))
    _, y = one_layer("plain", (width, k, p), x, {"W": W, "b": b})
    np.testing.assert_allclose(y, np.maximum(by_definition(x, W, b, p), 0), atol=1e-13)


def test_highway_layer_by_its_equation(rng):
    x = rng.normal(size=(5, 3, 5, 4))
    W, b = rng.normal(size=(6, 3, 3, 3)), rng.normal(size=(6, 1))
    _, y = one_layer("highway", (3, 3, 1), x, {"W": W, "b": b})
    H = np.maximum(by_definition(x, W[:3], b[:3], 1), 0)
    T = 1 / (1 + np.exp(-by_definition(x, W[3:], b[3:], 1)))
    np.testing.assert_allclose(y, H * T + x * (1 - T), atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_closed_highway_layers_copy_their_input(dtype, rng):
    """T = 0 exactly: all ten highway layers hand on the very same bits, and dy."""
    layers = [("plain", 3, 3, 1), *[("highway", 3, 3, 1)] * 10, ("dense", 5)]
    net = cl.ConvNet(layers, SIDE, gate_bias=-1000.0, dtype=dtype)
    logits, cache = net.forward(rng.normal(size=(SIDE ** 2, 4)).astype(dtype))
    xs = [layer.x for layer in cache.layers[1:]]
    assert xs[0].any() and all(np.array_equal(x, xs[0]) for x in xs)
    assert all((T == 0).all() for T in net.gates(np.ones((SIDE ** 2, 4), dtype)))
    net.forward(rng.normal(size=(SIDE ** 2, 4)).astype(dtype), cache)
    d = rng.normal(size=xs[0].shape).astype(dtype)
    assert np.array_equal(cache.layers[5].backward(d.copy()), d)


@pytest.mark.parametrize("size, stride, sides", [
    (3, 2, {24: 12, 12: 6, 6: 3, 8: 4, 4: 2, 2: 1, 1: 1, 7: 3}),
    (2, 2, {6: 3, 5: 3, 1: 1}), (2, 1, {3: 2}), (3, 3, {7: 3})])
def test_pooling_sizes_are_caffes(size, stride, sides, rng):
    for before, after in sides.items():
        assert cl.MaxPool.plan((before, 4), size, stride) == ((after, 4), {})
        x = rng.normal(size=(before, 4, before, 3))
        _, y = one_layer("pool", (size, stride), x)
        spans = [slice(i * stride, i * stride + size) for i in range(after)]
        for i, rows in enumerate(spans):
            for j, columns in enumerate(spans):
                assert np.array_equal(y[i, :, j], x[rows, :, columns].max(axis=(0, 2)))


def test_of_tied_pixels_one_gets_the_gradient():
    """The uppermost in the leftmost column; windows do not take it from each other."""
    x = np.zeros((4, 1, 4, 1))
    layer, _ = one_layer("pool", (2, 2), x)
    dx = layer.backward(np.array([[1.0, 2], [3, 4]]).reshape(2, 1, 2)).reshape(4, 4)
    assert np.array_equal(dx, [[1, 0, 2, 0], [0] * 4, [3, 0, 4, 0], [0] * 4])
    x[1, 0, 0], x[0, 0, 1], x[1, 0, 1] = 5, 5, 5
    layer, _ = one_layer("pool", (2, 2), x)
    dx = layer.backward(np.ones((2, 1, 2))).reshape(4, 4)
    assert np.array_equal(dx, [[0, 0, 1, 0], [1, 0, 0, 0], [1, 0, 1, 0], [0] * 4])
    layer, _ = one_layer("pool", (3, 2), np.ones((5, 2, 5, 3)))
    dx = layer.backward(np.ones((2, 2, 6)))
    assert dx.sum() == 2 * 2 * 6 and set(dx.ravel()) == {0, 1}


def test_dropout_drops_at_its_rate_and_keeps_the_mean(rng):
    x = np.ones((40, 5, 40, 10))
    layer, y = one_layer("dropout", (0.3,), x)
    assert set(np.unique(y)) == {0, 1 / (1 - 0.3)}
    assert (y == 0).mean() == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / y.size))
    d = rng.normal(size=layer.x.shape)
    assert np.array_equal(layer.backward(d.copy()), d * y.reshape(d.shape))
    x = rng.normal(size=layer.x.shape)
    layer.x[...] = x
    layer.forward(y := np.empty_like(x), None)
    assert np.array_equal(y, x), "nothing is dropped without a generator"


def test_average_is_the_mean_of_each_channel(rng):
    x = rng.normal(size=(6, 3, 6, 4))
    layer, y = one_layer("average", (), x)
    np.testing.assert_allclose(y[0, :, 0], x.mean(axis=(0, 2)), atol=1e-15)
    dx = layer.backward(np.ones((1, 3, 4)))
    assert (dx == 1 / 36).all()


# --------------------------------------------------------------------------------------
# Net


def config_of(block="highway", depth=10, width=16, dataset="mnist", **more):
    plan = convolution.planned("table", block, depth, width, 3, 1)
    protocol = convolution.PROTOCOL | {"dataset": dataset}
    return convolution.make_configs(protocol, plan, 0.01)[0] | more


@pytest.mark.parametrize("block, depth, width, count", [
    ("highway", 10, 16, 38_986), ("highway", 10, 32, 151_690),
    ("plain", 10, 16, 20_426)])
def test_nets_have_the_papers_parameters(block, depth, width, count):
    net = cl.ConvNet(convolution.layers(config_of(block, depth, width)), 28)
    assert net.params.size == count
    sides = [shape[0] for shape in net.shapes]
    assert [side for i, side in enumerate(sides) if side != sides[i - 1]] == [
        28, 24, 12, 6, 3, 1]


@pytest.mark.parametrize("depth", convolution.STAGES)
def test_depth_counts_the_first_convolution_and_the_softmax(depth):
    for dataset in ("mnist", "digits"):
        layers = convolution.layers(config_of(depth=depth, dataset=dataset))
        kinds = [kind for kind, *_ in layers]
        assert kinds.count("highway") == depth - 2
        assert kinds.count("plain") == kinds.count("dense") == 1
        twin = convolution.layers(config_of("plain", depth, dataset=dataset))
        assert [("highway" if i and kind == "plain" and i != 1 else kind, *numbers)
                for i, (kind, *numbers) in enumerate(twin)] == layers


def test_initial_weights_are_the_authors_and_shared_by_twins():
    nets = [cl.ConvNet(convolution.layers(config_of(block, width=32)), 28, seed=5,
                       gate_bias=-1.0) for block in ("highway", "plain")]
    for (kind, *_), one, other in zip(nets[0].layers, *(
            net.views(net.params) for net in nets)):
        if kind == "highway":
            assert np.array_equal(one["W"][:32], other["W"])
            assert not np.array_equal(one["W"][32:], other["W"])
            assert (one["b"][:32] == 0).all() and (one["b"][32:] == -1).all()
            deviation = one["W"].std() / math.sqrt(2 / (9 * 32))
            assert deviation == pytest.approx(1, abs=5 / math.sqrt(2 * one["W"].size))
        elif one:
            assert np.array_equal(one["W"], other["W"]) and not one["b"].any()
    assert one["W"].std() == pytest.approx(0.1, rel=5 / math.sqrt(2 * one["W"].size))
    assert not np.array_equal(nets[0].params, cl.ConvNet(nets[0].layers, 28).params)


def test_garbage_in_the_buffers_changes_nothing(seed):
    """Whatever lies in an array between passes that no pass is to read."""
    net, (x, labels) = small_net(NETS["whole"], seed), small_batch(seed)
    expected = gradient(net, x, labels)
    cache = net.cache(x.shape[1])
    for buffer in cache.buffers.values():
        buffer.fill(np.nan)
    for layer in cache.layers:
        layer.x.fill(np.nan)
        for name in ("dx", "dy", "y", "z", "mask", "draws"):
            if getattr(layer, name, None) is not None:
                getattr(layer, name).fill(np.nan)
    cache.grad.fill(np.nan)
    logits, _ = net.forward(x, cache, np.random.default_rng(3))
    assert np.array_equal(net.backward(hn.cross_entropy(logits, labels)[1], cache),
                          expected)


def test_the_door():
    net, x = small_net(NETS["whole"]), small_batch()[0]
    for wrong in (x[:-1], x[:, 0], x.astype("float32")):
        with pytest.raises(ValueError, match="the net takes float64"):
            net.forward(wrong)
    logits, cache = net.forward(x)
    net.backward(np.ones_like(logits), cache)
    with pytest.raises(ValueError, match="fresh"):
        net.backward(np.ones_like(logits), cache)
    net.forward(x, cache)
    with pytest.raises(ValueError, match="fresh"):
        small_net(NETS["whole"]).backward(np.ones_like(logits), cache)


@pytest.mark.parametrize("layers, message", [
    ([("highway", 3, 3, 1), ("dense", 5)], "gated layer"),
    ([("plain", 3, 3, 1), ("highway", 3, 3, 0), ("dense", 5)], "gated layer"),
    ([("plain", 3, 9, 0), ("dense", 5)], "kernel 9"),
    ([("plain", 3, 3, 2), ("dense", 5)], "would grow"),
    ([("pool", 2, 3), ("dense", 5)], "left out"),
    ([("dropout", 1.0), ("dense", 5)], "rate 1.0"),
    ([("plain", 3, 3, 1)], "7 x 7 pixels")])
def test_lists_that_do_not_fit_are_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        cl.ConvNet(layers, SIDE)


# --------------------------------------------------------------------------------------
# Step


def test_nesterov_by_hand():
    """Two steps of one weight and one bias. lr 0.1, momentum 0.5; the weight decays at
    0.2, the bias has twice the rate.

    weight  g = 1 + 0.2 * 2 = 1.4     v' = 0.14    2 - 1.5 * 0.14           = 1.79
    bias    g = 3                     v' = 0.6     1 - 1.5 * 0.6            = 0.1
    weight  g = 1 + 0.2 * 1.79        v' = 0.07 + 0.1358 = 0.2058
            1.79 - 1.5 * 0.2058 + 0.5 * 0.14 = 1.5513
    bias    v' = 0.3 + 0.6 = 0.9      0.1 - 1.5 * 0.9 + 0.5 * 0.6           = -0.95
    """
    params, grad = np.array([2.0, 1.0]), np.array([1.0, 3.0])
    optimizer = cl.Nesterov(params, np.array([1.0, 2.0]), np.array([0.2, 0.0]), 0.5)
    optimizer.step(params, grad, 0.1)
    np.testing.assert_allclose(params, [1.79, 0.1], rtol=1e-14)
    np.testing.assert_allclose(optimizer.v, [0.14, 0.6], rtol=1e-14)
    optimizer.step(params, grad, 0.1)
    np.testing.assert_allclose(params, [1.5513, -0.95], rtol=1e-14)
    assert np.array_equal(grad, [1, 3])


def test_multipliers_are_the_authors():
    config = config_of()
    net = cl.ConvNet(convolution.layers(config), 28)
    optimizer = convolution.make_optimizer(net, config)
    rates, decays = net.views(optimizer.rates), net.views(optimizer.decays)
    for (kind, *_), rate, decay in zip(net.layers, rates, decays):
        if rate:
            assert (rate["W"] == 1).all() and (rate["b"] == 2).all()
            assert not decay["b"].any()
            np.testing.assert_allclose(decay["W"], 0.01 if kind == "dense" else 0.001)


def test_rate_drops_after_a_third_and_two_thirds():
    rates = [convolution.learning_rate({"lr": 0.01, "epochs": 12}, epoch)
             for epoch in range(1, 13)]
    np.testing.assert_allclose(rates, np.repeat([1e-2, 1e-3, 1e-4], 4))
    rates = [convolution.learning_rate({"lr": 0.01, "epochs": 300}, epoch)
             for epoch in (100, 101, 200, 201, 300)]
    np.testing.assert_allclose(rates, [1e-2, 1e-3, 1e-3, 1e-4, 1e-4])


class Recorder:
    """An optimiser that keeps the gradient and changes nothing."""

    def step(self, params, grad, lr):
        self.grad = grad.copy()


def test_a_batch_in_pieces_is_the_batch(seed):
    net, (x, labels) = small_net(NETS["highway"], seed), small_batch(seed, 12)
    expected, recorder = gradient(net, x, labels), Recorder()
    for size in (12, 4, 1):
        loss = cl.train_step(net, x, labels, net.cache(size), recorder, 0.1, None)
        assert loss == pytest.approx(loss_of(net, x, labels)[0], rel=1e-12)
        np.testing.assert_allclose(recorder.grad, expected, atol=1e-14)
    with pytest.raises(ValueError, match="pieces of 5"):
        cl.train_step(net, x, labels, net.cache(5), recorder, 0.1, None)


def test_a_highway_net_learns_the_digits(digits):
    """Five epochs of a small one: 9 of 10 test images. (About a tenth at the start.)"""
    layers = [("plain", 8, 3, 1), ("highway", 8, 3, 1), ("pool", 3, 2),
              ("highway", 8, 3, 1), ("dense", 10)]
    run = convolution.Run(config_of(dataset="digits", batch=50, lr=0.02), 8)
    run.net = cl.ConvNet(layers, 8)
    run.optimizer = convolution.make_optimizer(run.net, run.config)
    cache, labels = run.net.cache(50), digits.y_test.astype(np.intp)
    assert run.accuracy(digits.x_test, labels, cache) < 0.3
    losses = [run.epoch(digits.x_train, digits.y_train.astype(np.intp), cache)
              for _ in range(5)]
    assert run.accuracy(digits.x_test, labels, cache) > 0.9
    assert losses[-1] < 0.3 < losses[0]


# --------------------------------------------------------------------------------------
# Trials


SMALL = config_of(width=3, dataset="digits", batch=200, piece=50, epochs=4, maps=1)
KILLED = """
import sys, time
import highway_networks as hn
from experiments import convolution
config, folder, steps = {config!r}, {folder!r}, [0]
def counted(*args, step=convolution.train_step):
    steps[0] += 1
    if steps[0] == {steps}:
        print("now", flush=True)
        time.sleep(60)
    return step(*args)
convolution.train_step = counted
convolution.train_net(config, *hn.load_dataset("digits"), folder)
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The result of a small trial and its folder."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return convolution.train_net(SMALL, *hn.load_dataset("digits"), folder), folder


def state(folder):
    with np.load(folder / f"{hash_of(SMALL)}.npz") as archive:
        return {name: archive[name] for name in archive.files}


def test_a_killed_trial_ends_with_the_same_bits(uninterrupted, digits, tmp_path):
    """SIGKILL in the middle of the third of four epochs; then it goes on."""
    expected, folder = uninterrupted
    text = KILLED.format(config=SMALL, folder=str(tmp_path), steps=7 * 2 + 4)
    with subprocess.Popen([sys.executable, "-c", text], cwd=ROOT, text=True,
                          stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)
    assert len(json.loads(str(state(tmp_path)["state"]))["history"]["test_acc"]) == 2
    assert convolution.train_net(SMALL, *digits, tmp_path) == expected
    ours, theirs = state(tmp_path), state(folder)
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)


def test_a_finished_checkpoint_is_not_trained_again(uninterrupted, digits, monkeypatch):
    expected, folder = uninterrupted
    monkeypatch.setattr(convolution, "train_step", None)
    assert convolution.train_net(SMALL, *digits, folder) == expected


def other_config(path, parts):
    convolution.Run(SMALL | {"seed": 9}, 8).save(path)


def other_size(path, parts):
    np.savez(path, **parts | {"params": parts["params"][1:]})


def other_library(path, parts):
    about = json.loads(str(parts["state"]))
    about["numerics"]["numpy"] = "1.0"
    np.savez(path, **parts | {"state": json.dumps(about)})


def no_history(path, parts):
    about = json.loads(str(parts["state"]))
    del about["history"]
    np.savez(path, **parts | {"state": json.dumps(about)})


@pytest.mark.parametrize("content", [b"", b"PK\3\4 cut", b"{}", other_config,
                                     other_size, other_library, no_history])
def test_a_broken_checkpoint_begins_anew(content, uninterrupted, digits, tmp_path,
                                         capsys):
    expected, folder = uninterrupted
    path = tmp_path / f"{hash_of(SMALL)}.npz"
    if callable(content):
        content(path, state(folder))
    else:
        path.write_bytes(content)
    assert convolution.train_net(SMALL, *digits, tmp_path) == expected
    assert "begins anew" in capsys.readouterr().err


def test_a_failed_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    run = convolution.Run(SMALL, 8)
    path = tmp_path / "run.npz"
    run.save(path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(hn.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        run.save(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_divergence_is_recorded(digits, tmp_path):
    config = SMALL | {"lr": 1e9}
    result = convolution.train_net(config, *digits, tmp_path)
    assert result["status"] == "diverged" and "T" not in result
    assert result["train_loss"][-1] is None and len(result["test_acc"]) == 4


def test_the_gates_of_a_trial(uninterrupted, digits):
    """Mean T lies between its values on ink and on blank paper; maps are of the first
    test image, of every highway layer."""
    result, _ = uninterrupted
    T = result["T"]
    assert len(T["all"]) == 8
    for everywhere, ink, blank in zip(T["all"], T["ink"], T["blank"]):
        assert min(ink, blank) <= everywhere <= max(ink, blank)
    only, = result["maps"]
    assert np.array_equal(np.ravel(only["image"]), digits.x_test[0])
    assert [np.shape(only[f"T{l}"]) for l in range(1, 9)] == [
        (8, 8)] * 2 + [(4, 4)] * 3 + [(2, 2)] * 3


def test_gates_by_hand(digits):
    """look_at_gates against the gates of one large batch."""
    run = convolution.Run(SMALL, 8)
    T = run.net.gates(convolution.pixels(digits.x_test, SMALL))
    found = convolution.look_at_gates(run, digits.x_test, run.net.cache(50))
    np.testing.assert_allclose(found["T"]["all"], [gates.mean() for gates in T],
                               rtol=1e-5)
    np.testing.assert_allclose(found["maps"][0]["T3"], T[2][..., 0].mean(axis=1),
                               atol=0.0051)
    ink = (digits.x_test > 8).T.reshape(8, 8, -1)
    np.testing.assert_allclose(found["T"]["ink"][0], T[0].mean(axis=1)[ink].mean(),
                               rtol=1e-5)


def test_ink_follows_the_poolings(rng):
    net = cl.ConvNet(convolution.layers(config_of()), 28)
    x = np.zeros((28, 28, 1))
    x[2, 2] = x[14, 15] = 1             # the first and some inner pixel of 24x24
    x[0, 27] = 1                        # outside of it
    maps = convolution.ink_maps(net, x.reshape(-1, 1))
    assert [len(ink) for ink in maps] == [24] * 2 + [12] * 3 + [6] * 3
    where = [np.argwhere(ink[..., 0]).tolist() for ink in maps]
    assert where[0] == [[0, 0], [12, 13]]
    assert where[2] == [[0, 0], [5, 6], [6, 6]]     # windows 10-12 and 12-14; 12-14
    assert where[5] == [[0, 0], [2, 2], [2, 3], [3, 2], [3, 3]]
    mask = rng.random((7, 7, 5)) < 0.2
    layer, y = one_layer("pool", (3, 2), mask.astype(float)[:, None])
    assert np.array_equal(convolution.any_pixel(mask, 3, 3, 2), y[:, 0] > 0)


# --------------------------------------------------------------------------------------
# Experiment


def fake_net(*percent, epochs=12, **more):
    return {"final_test_percent": list(percent), "epochs": epochs,
            **convolution.statistics(percent), **more}


def test_verdicts_follow_the_numbers():
    paper = {"mean": 99.4, "std": 0.03}
    assert convolution.reached(fake_net(99.3, 99.4), paper) is True
    assert convolution.reached(fake_net(99.3, 99.36), paper) is None
    assert convolution.reached(fake_net(99.3, 99.36, epochs=300), paper) is False
    assert convolution.reached(fake_net(99.5, None), paper) is None
    high, low = fake_net(99.6, 99.5), fake_net(99.4, 99.3)
    assert convolution.better(high, low) is True
    assert convolution.better(low, high) is None, "not fair after so few epochs"
    assert convolution.better(low | {"epochs": 300}, high) is False
    assert convolution.better(high, fake_net(99.5, 99.3)) is None
    assert convolution.better(fake_net(99.6, None), low) is None


def test_verdicts_on_the_table():
    """Each width is held to its own row of the paper's table."""
    wide, narrow = (fake_net(*runs, part="table", block="highway", width=width,
                             parameters=size)
                    for runs, width, size in (((99.5, 99.6), 32, 151_690),
                                              ((99.4, 99.4), 16, 38_986)))
    plain = narrow | {"block": "plain"}
    depth = [deep_net(block, n, [0.1], (99.0,)) | {"part": "depth"}
             for block in ("highway", "plain") for n in (10, 30)]

    def verdicts(*nets):
        return [c["holds"] for c in convolution.check_claims(
            {"nets": [*nets, plain, *depth]})]
    assert verdicts(wide, narrow)[:4] == [True, True, True, True]
    assert verdicts(wide | {"mean": 99.4}, narrow)[:2] == [True, None]
    assert verdicts(wide, narrow | {"mean": 99.3})[:2] == [None, True]
    assert verdicts(wide, narrow | {"parameters": 40_100})[2] is False
    assert verdicts(wide | {"final_test_percent": [99.4, 99.6]}, narrow)[3] is None


def deep_net(block, depth, losses, percent=(99.0, 98.0)):
    return {"block": block, "depth": depth, "final_train_loss": losses,
            "final_test_percent": list(percent)}


def test_verdicts_on_depth_follow_the_numbers():
    nets = [deep_net("highway", 10, [0.1, 0.1]), deep_net("highway", 30, [0.2, 0.1]),
            deep_net("plain", 10, [0.1, 0.1]), deep_net("plain", 30, [0.5, 2.3])]
    assert [c["holds"] for c in convolution.check_depths(nets)] == [True, True]
    assert convolution.check_depths(nets)[1]["ours"]["plain"]["growth"] == [5.0, 23.0]
    nets[1] = deep_net("highway", 30, [2.3, 2.3], (11.0, 99.0))
    assert [c["holds"] for c in convolution.check_depths(nets)] == [False, False]
    nets[1] = deep_net("highway", 30, [0.1, 0.1], (None, 99.0))
    nets[3] = deep_net("plain", 30, [0.3, None])
    assert [c["holds"] for c in convolution.check_depths(nets)] == [False, True]
    nets[3] = deep_net("plain", 30, [0.1, 2.3])
    assert convolution.check_depths(nets)[1]["holds"] is None, "the seeds do not agree"
    nets[1], nets[3] = (deep_net(kind, 30, [loss] * 2)
                        for kind, loss in (("highway", 0.11), ("plain", 0.2)))
    assert [c["holds"] for c in convolution.check_depths(nets)] == [True, False]
    nets[1] = deep_net("highway", 30, [0.1, None])
    nets[3] = deep_net("plain", 30, [0.3, None])
    assert convolution.check_depths(nets)[1]["holds"] is None, "both diverge"
    nets[2], nets[3] = (deep_net("plain", depth, losses)
                        for depth, losses in ((10, [None, None]), (30, [1.0, 1.0])))
    nets[1] = deep_net("highway", 30, [0.1, 0.1])
    assert convolution.check_depths(nets)[1]["holds"] is None, "grows from nothing"


def test_statistics_leave_out_what_diverged():
    assert convolution.statistics([99.0, None, 98.0]) == {
        "mean": 98.5, "std": hn.significant(math.sqrt(0.5)), "best": 99.0, "n": 2}
    assert convolution.statistics([None]) == {"mean": None, "std": None, "best": None,
                                              "n": 0}


def test_smoke(smoke):
    """The whole path on the digits: trials, record, packed files, picture."""
    record, packed = smoke(convolution.EXPERIMENT)
    assert len(record["nets"]) == 7
    for net, plan in zip(record["nets"], record["protocol"]["nets"], strict=True):
        assert np.shape(net["test_acc"]) == (len(plan["seeds"]), plan["epochs"])
        assert set(net["status"]) == {"ok"}
        assert (net["T"] is None) == (net["block"] == "plain")
    assert [each["width"] for each in record["maps"]] == [16, 16]
    assert len(record["claims"]) == 6
    assert len(list(packed.glob("*.jsonl"))) == 5
    check_rates(record)
    checkpoints = packed.with_suffix(".trials") / "checkpoints"
    assert len(list(checkpoints.iterdir())) == 2 * 2 + 2 * 2 + 1 + 2 * 2


def test_the_figure_without_maps():
    """The net that keeps them diverged in the end, and so did a seed of another."""
    def net(part, block, width, *losses):
        return fake_net(99.0, 98.0, part=part, block=block, width=width, depth=10,
                        epochs=2, lr=0.1, parameters=width, T=None, stages=[2, 3, 3],
                        search={"lr": [0.1, 0.3], "final_train_loss": [0.1, None]},
                        final_train_loss=losses, std=None,
                        test_acc=[[0.9, 0.95], [0.9, None]])
    figure = convolution.draw({"maps": [], "paper": {"16": convolution.PAPER[16]},
                               "nets": [net("table", "highway", 16, 0.1, None),
                                        net("depth", "plain", 16, 0.1, 0.2)]})
    figure.savefig(io.BytesIO(), format="png")


def check_rates(record):
    """Nets that compare depths have the best of their rates, those of the table the
    rate of the net of their kind and depth."""
    nets = {part: [net for net in record["nets"] if net["part"] == part]
            for part in ("depth", "table")}
    for net in nets["depth"]:
        tried = dict(zip(net["search"]["lr"], net["search"]["final_train_loss"]))
        assert list(tried) == record["protocol"]["lrs"][net["block"]]
        assert tried[net["lr"]] == min(tried.values()) == net["final_train_loss"][0]
    chosen = {(net["block"], net["depth"]): net["lr"] for net in nets["depth"]}
    assert len(nets["table"]) == 3
    for net in nets["table"]:
        assert net["lr"] == chosen[net["block"], net["depth"]]


def test_the_rate_of_the_least_loss_is_chosen():
    assert convolution.least({0.01: 0.3, 0.1: 0.2, 0.3: None}) == 0.1
    assert convolution.least({0.01: None, 0.1: 2.3}) == 0.1


def test_the_benchmark(tmp_path, monkeypatch, capsys):
    """A small round of it; what is not installed is said to be skipped."""
    from benchmarks import convolution as benchmark
    monkeypatch.setattr(benchmark.importlib.util, "find_spec", lambda name: None)
    out, cores = tmp_path / "steps.json", benchmark.available_cores()
    record = benchmark.main(["--dataset", "digits", "--widths", "2,3", "--batch", "20",
                             "--piece", "10", "--repeats", "2", "--out", str(out)])
    assert benchmark.available_cores() == cores
    assert "torch: not installed, skipped" in capsys.readouterr().out
    for net, width in zip(record["nets"], (2, 3), strict=True):
        assert net["width"] == width and list(net["contestants"]) == ["ours", "floor"]
        ours, floor = net["contestants"].values()
        assert ours["times_ours"] == {"median": 1, "least": 1, "largest": 1}
        ratios = np.array(floor["seconds"]) / ours["seconds"]
        assert floor["times_ours"]["median"] == pytest.approx(np.median(ratios), 1e-4)
    picture = out.with_suffix(".png").read_bytes()
    assert benchmark.main(["--plot", "--out", str(out)]) == record
    assert out.with_suffix(".png").read_bytes() == picture


def test_a_failed_trial_is_named(home, monkeypatch):
    monkeypatch.setattr(convolution, "Run", None)
    with pytest.raises(SystemExit, match="failed: TypeError.*--retry-failed"):
        common.main(convolution.EXPERIMENT, ["--smoke", "--jobs", "1"])
