"""Convolutional highway nets: Winograd's products, layers, net, gradients."""

import math

import numpy as np
import pytest
from test_gradients import gates_swapped, without_carry, without_gate_on_H

import highway_networks as hn
from benchmarks import convolution as benchmark
from benchmarks.harness import gradient_error
from experiments.nets.convolution import layers as cl
from experiments.nets.convolution import probes, winograd
from experiments.nets.convolution.net import Cache, ConvNet, Nesterov
from experiments.nets.convolution.recipe import Muon, kernels
from highway_suite.gradients import WrongGradient, by_complex_step, compare
from tests.contracts import of_largest

SIDE = 13               # two tiles, and the last one is short
NETS = {        # every kind of layer above a convolution, so that its dx is checked too
    "resized": [("plain", 3, 3, 0), ("plain", 2, 5, 1), ("plain", 4, 2, 0),
                ("plain", 3, 1, 0), ("dense", 5)],
    "highway": [("plain", 3, 3, 1), ("highway", 3, 3, 1), ("highway", 3, 5, 2),
                ("highway", 3, 1, 0), ("dense", 5)],
    "narrow": [("plain", 3, 3, 1), ("narrow", 3, 3, 1, 1), ("narrow", 3, 5, 2, 3),
               ("narrow", 3, 3, 1, 0), ("dense", 5)],
    "pools": [("plain", 3, 3, 1), ("pool", 2, 1), ("pool", 3, 2), ("pool", 3, 3),
              ("dense", 5)],
    "average": [("plain", 3, 3, 1), ("plain", 5, 1, 0), ("average",)],
    "whole": [("dropout", 0.2), ("plain", 3, 3, 0), ("highway", 3, 3, 1),
              ("pool", 3, 2), ("dropout", 0.3), ("highway", 3, 3, 1), ("pool", 2, 2),
              ("dense", 5)],
}


@pytest.fixture(params=[10**6, 1], ids=["whole", "one by one"])
def block(request, monkeypatch):
    """A batch goes through the layers as one block, or in blocks of one example."""
    monkeypatch.setattr(cl, "BLOCK", request.param)


def small_net(layers, seed=0, dtype="float64"):
    """A net on 13x13 pixels. Biases are drawn: zero ones would hide an error in their
    use."""
    net = ConvNet(layers, SIDE, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])
    for (_, name), tensor in net.views(net.params).items():
        if name == "b":
            tensor += rng.normal(0, 0.3, tensor.shape)
    return net


def small_batch(seed=0, size=4):
    """x (P, size), labels (size,), and a generator that drops the same in every call.
    """
    rng = np.random.default_rng([seed, 2])
    return (rng.normal(size=(SIDE ** 2, size)), rng.integers(5, size=size),
            np.random.default_rng(3))


def gradient(net, seed=0):
    return net.gradient(small_batch(seed), net.cache(4))[1].copy()


def check_gradient(net, entries=9, seed=0):
    """Hold random entries of every tensor to their complex-step derivatives, to 1e-11
    of the tensor's largest. Raises WrongGradient."""
    twin = ConvNet(net.layers, SIDE, dtype="complex128")

    def loss(twin):
        x, labels, rng = small_batch(seed)
        logits, _ = twin.forward(x.astype(twin.dtype), rng=rng)
        return hn.cross_entropy(logits, labels)[0]
    compare(net, gradient(net, seed), by_complex_step(net, twin, loss), entries,
            of_largest, seed)


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_gradient_by_complex_step(layers, block, seed):
    check_gradient(small_net(layers, seed), seed=seed)


# Broken twins. Each of these is a way to get a backward pass wrong.


def unturned(self, W, load_back=winograd.Convolution.load_back):
    """The kernel is not turned round on the way back."""
    load_back(self, W[:, :, ::-1, ::-1])


def without_neighbours(self, backward_x=winograd.Convolution.backward_x):
    """What a tile gives to the rows that it shares is lost."""
    self.V_rest[...] = 0
    return backward_x(self)


def overwritten(d, x, y, taps, dx, part):
    """A pixel of several windows keeps what the last one gave."""
    dx.fill(0)
    for to, of in taps:
        won = x[of] == y[to]
        dx[of] = np.where(won, d[to], dx[of])


def beside_its_place(self, d, lowest=False):
    """The gradient of a narrow kernel is taken from a place beside its own."""
    dx = cl.Highway.backward(self, d, lowest)
    for dkernel, place in self.dkernels:
        np.copyto(dkernel, np.roll(place, 1, axis=1))
    return dx


def passed_on(self, d):
    """The gradient is only handed on."""
    return np.broadcast_to(d[:, :1, :1] if d.size < self.x.size else d,
                           self.x.shape).copy()


@pytest.mark.parametrize("name, where, what, broken", [
    *(("highway", cl.Highway, "block", cl.Highway.block._replace(backward=backward))
      for backward in (gates_swapped, without_carry, without_gate_on_H)),
    ("highway", winograd.Convolution, "load_back", unturned),
    ("highway", winograd.Convolution, "backward_x", without_neighbours),
    ("resized", cl, "RELU", cl.RELU._replace(backward=lambda dH, H: np.copyto(H, dH))),
    ("pools", cl, "largest_backward", overwritten),
    ("narrow", cl.Narrow, "backward", beside_its_place),
    ("whole", cl.Dropout, "backward", passed_on),
    ("average", cl.Average, "backward", passed_on)])
def test_a_broken_backward_pass_is_caught(name, where, what, broken, monkeypatch, seed):
    monkeypatch.setattr(where, what, broken)
    with pytest.raises(WrongGradient):
        check_gradient(small_net(NETS[name], seed), seed=seed)


@pytest.mark.parametrize("table, size", [(1, 4), (2, 4), (3, 1)])
def test_gradient_agrees_with_torch(table, size):
    """Of the experiments' whole nets, by automatic differentiation."""
    pytest.importorskip("torch")
    task = benchmark.Task(f"Table {table}", "float64", batch=size, piece=size, width=3)
    ours, theirs = (contestant(task).gradient()
                    for contestant in (benchmark.Ours, benchmark.Torch))
    assert gradient_error(ours, theirs) < 1e-10


def test_a_batch_of_other_images_leaves_no_trace(block, seed):
    for layers in (NETS["resized"], NETS["narrow"], NETS["whole"]):
        net = small_net(layers, seed)
        cache = net.cache(4)
        net.gradient(small_batch(seed + 1), cache)
        assert np.array_equal(net.gradient(small_batch(seed), cache)[1],
                              gradient(net, seed))


def test_dropout_draws_piece_by_piece(seed):
    """For each piece of the batch in turn all layers draw: a batch drops what its
    pieces, one after the other, drop."""
    net, (x, labels, _) = small_net(NETS["whole"], seed), small_batch(seed, 12)
    one, other = np.random.default_rng(seed), np.random.default_rng(seed)
    measures, grad = net.gradient((x, labels, one), net.cache(12, 4))
    pieces = [slice(start, start + 4) for start in (0, 4, 8)]
    parts = [net.gradient((x[:, each], labels[each], other), net.cache(4))
             for each in pieces]
    assert measures["train_loss"] == pytest.approx(
        np.mean([part["train_loss"] for part, _ in parts]), rel=1e-12)
    np.testing.assert_allclose(grad, np.mean([part for _, part in parts], axis=0),
                               atol=1e-14)


# Layers


def one_layer(kind, numbers, x, tensors=None):
    """A single layer at work on x (B, S, S, C), and its y (B, side, side, C')."""
    B, S, _, C = x.shape
    cache = object.__new__(Cache)
    cache.free = np.empty(0, np.uint8)
    cache.batch, cache.piece, cache.dtype, cache.buffers = B, B, x.dtype, {}
    (side, channels), shapes = cl.LAYERS[kind].plan((S, C), *numbers)
    grads = {name: np.zeros(shape, x.dtype) for name, shape in shapes.items()}
    layer = cl.LAYERS[kind](cache, (S, C), tensors, grads, *numbers)
    layer.x[...] = x
    y = np.full((B, side, side, channels), np.nan, x.dtype)
    if kind == "dropout":
        layer.draw(slice(B), np.random.default_rng(0))
    layer.forward(y)
    return layer, y, grads


def by_definition(x, W, b, p):
    """z[i, j, r] = b[r] + sum of W[r, u, v, c] x[i + u - p, j + v - p, c]."""
    k = W.shape[1]
    padded = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
    side = padded.shape[1] - k + 1
    return b[:, 0] + sum(
        padded[:, u:u + side, v:v + side] @ W[:, u, v].T
        for u in range(k) for v in range(k))


@pytest.mark.parametrize("side", [4, 13])
@pytest.mark.parametrize("kind, width, k, p, gate", [
    ("plain", 4, 3, 1, 0), ("plain", 2, 5, 1, 0), ("plain", 3, 4, 0, 0),
    ("plain", 3, 1, 0, 0), ("highway", 3, 3, 1, 3), ("highway", 3, 5, 2, 5),
    ("narrow", 3, 3, 1, 1), ("narrow", 3, 5, 2, 3), ("narrow", 3, 3, 1, 0)])
def test_layers_by_their_equations(kind, width, k, p, gate, side, block, rng):
    """A narrow gate is a wide one with zeros around its kernel."""
    rows = width * (1 + (kind != "plain"))
    x = rng.normal(size=(4, side, side, 3))
    W, b = np.zeros((rows, k, k, 3)), rng.normal(size=(rows, 1))
    middle = slice((k - gate) // 2, (k + gate) // 2)
    W[:width] = rng.normal(size=(width, k, k, 3))
    W[width:, middle, middle] = rng.normal(size=(rows - width, gate, gate, 3))
    z = by_definition(x, W, b, p)
    H, T = np.maximum(z[..., :width], 0), 1 / (1 + np.exp(-z[..., width:]))
    expected = H * T + x * (1 - T) if T.size else H
    own, numbers = {"W": W, "b": b}, (width, k, p)
    if kind == "narrow":
        own |= {"W": W[:width], "W_T": W[width:, middle, middle]}
        numbers += (gate,)
        if not gate:
            del own["W_T"]
    for dtype, bound in (("float64", 2e-13), ("float32", 3e-4)):
        _, y, _ = one_layer(kind, numbers, x.astype(dtype), {
            name: tensor.astype(dtype) for name, tensor in own.items()})
        np.testing.assert_allclose(y, expected, atol=bound)


@pytest.mark.parametrize("size, stride, before, after", [
    (3, 2, 24, 12), (3, 2, 7, 3), (3, 2, 1, 1), (2, 2, 5, 3), (2, 1, 3, 2)])
def test_pooling_sizes_are_caffes(size, stride, before, after, block, rng):
    x = rng.normal(size=(3, before, before, 4))
    _, y, _ = one_layer("pool", (size, stride), x)
    assert y.shape == (3, after, after, 4)
    spans = [slice(i * stride, i * stride + size) for i in range(after)]
    for i, rows in enumerate(spans):
        for j, columns in enumerate(spans):
            assert np.array_equal(y[:, i, j], x[:, rows, columns].max(axis=(1, 2)))


def test_dropout_drops_at_its_rate_and_keeps_the_mean(rng):
    layer, y, _ = one_layer("dropout", (0.3,), np.ones((10, 40, 40, 5)))
    assert set(np.unique(y)) == {0, 1 / (1 - 0.3)}
    assert (y == 0).mean() == pytest.approx(0.3, abs=5 * math.sqrt(0.21 / y.size))
    d = rng.normal(size=y.shape)
    assert np.array_equal(layer.backward(d.copy()), d * y)
    layer.x[...] = d
    layer.draw(slice(10), None)
    layer.forward(y)
    assert np.array_equal(y, d), "nothing is dropped without a generator"


# The net and its optimiser


def test_nesterov_by_scalars():
    start, grad, rates, decays = [2.0, 1.0], [1.0, 3.0], [1.0, 2.0], [0.2, 0.0]
    params = np.array(start)
    optimizer = Nesterov(params, np.array(rates), np.array(decays), momentum=0.5)
    p, v = list(start), [0.0, 0.0]
    for _ in range(2):
        optimizer.step(params, np.array(grad), 0.1)
        for i in range(2):
            new = 0.5 * v[i] + 0.1 * rates[i] * (grad[i] + decays[i] * p[i])
            p[i], v[i] = p[i] - 1.5 * new + 0.5 * v[i], new
    assert [*params, *optimizer.v] == pytest.approx([*p, *v], rel=1e-14)


def test_muon_moves_kernels_by_orthogonal_steps_and_the_rest_by_adam(seed):
    """The second step, whose momentum is known; H's kernels and the gate's apart."""
    net = small_net(NETS["whole"], seed)
    optimizer, adam, twin = Muon(net), hn.Adam(net.params), net.params.copy()
    grads = np.random.default_rng(seed).normal(size=(2, net.params.size))
    for grad in grads:
        before = net.params.copy()
        optimizer.step(net.params, grad, 0.01)
        adam.step(twin, grad, 0.01)
    momentum = grads[1] + 0.95 * (0.95 * grads[0] + grads[1])
    steps = kernels(net, before - net.params)
    assert [step.shape for step in steps] == [(3, 9)] + [(3, 27)] * 4
    for step, wanted in zip(steps, kernels(net, momentum), strict=True):
        U, lengths, V = np.linalg.svd(step, full_matrices=False)
        lengths /= 0.2 * 0.01 * math.sqrt(max(step.shape))
        assert lengths.min() > 0.6 and lengths.max() < 1.3
        U_wanted, _, V_wanted = np.linalg.svd(wanted, full_matrices=False)
        cosine = np.sum((U_wanted @ V_wanted) * step) / np.linalg.norm(step)
        assert cosine / math.sqrt(len(step)) > 0.97
    views, others = net.views(net.params), net.views(twin)
    for i, name in views:
        moves_alike = name == "b" or net.layers[i][0] == "dense"
        assert np.allclose(views[i, name], others[i, name]) == moves_alike
    optimizer.velocity.fill(1e-32)      # and ends in zeros, not in subnormal numbers
    optimizer.step(net.params, 0 * grad, 0.01)
    assert not optimizer.velocity.any()


# What is measured stage by stage

STAGED = [("plain", 4, 3, 1), *[("highway", 4, 3, 1)] * 3, ("pool", 2, 2),
          *[("highway", 4, 3, 1)] * 2, ("average",), ("dense", 5)]


def twin(net, order, closed=()):
    """A net whose layers have the parameters of others, some with T = 0."""
    other = ConvNet(net.layers, SIDE, dtype=net.dtype)
    own, others = net.by_layer(net.params), other.by_layer(other.params)
    for to, of in zip(others, order, strict=True):
        for name, tensor in to.items():
            tensor[...] = own[of][name]
    for place in closed:
        others[place]["b"][4:] = -1e9
    return other


def test_variations_of_a_stage_are_nets_of_their_own():
    """Layers in another order, and closed, are twins with their parameters moved, and
    with b_T of -1e9; layers side by side go by the equations."""
    net, (x, _, _) = small_net(STAGED), small_batch()
    stage, other = probes.places_of_stages(net)
    assert (stage, other) == (range(1, 4), range(5, 7))
    cache = net.forward(x)[1]
    start, end = (cache.layers[k].x.copy() for k in (1, 4))
    for groups, expected in (
            ([[1], [2], [3]], net), ([[1], [3]], twin(net, range(9), [2])),
            ([[3], [1], [2]], twin(net, [0, 3, 1, 2, *range(4, 9)]))):
        found = probes.in_groups(cache, start, groups)
        np.testing.assert_allclose(found, expected.forward(x)[1].layers[4].x,
                                   rtol=1e-10, atol=1e-12)
        assert np.array_equal(probes.answers(cache, 4, found),
                              expected.forward(x)[0].argmax(axis=0))
    y = start.copy()
    for place in (1, 2):
        alone = twin(net, [0, place, *range(2, 9)]).forward(x)[1].layers[1]
        y += alone.gates[0] * (alone.H - y)
    np.testing.assert_allclose(probes.in_groups(cache, start, [[1, 2]]), y)
    assert not np.allclose(y, end)


def test_stages_are_measured_over_all_batches():
    net, (x, _, _) = small_net(STAGED), small_batch(size=12)
    logits, whole = net.forward(x)
    right = logits.argmax(axis=0)
    labels = np.where(np.arange(12) < 9, right, (right + 1) % 5)
    found = probes.look_at_stages(net, [
        (x[:, i:i + 4], labels[i:i + 4]) for i in (0, 4, 8)], 2,
        np.random.default_rng(0))
    rng = np.random.default_rng(0)
    assert found["acc"] == 0.75 and len(found["stages"]) == 2
    for stage, places, A in zip(found["stages"], probes.places_of_stages(net), (4, 7),
                                strict=True):
        varied = probes.variations(places, 2, rng)
        twins = {"closed": [twin(net, range(9), [place]) for place in places],
                 "shuffled": [twin(net, [*range(places.start), *(k for k, in groups),
                                         *range(places.stop, 9)])
                              for groups in varied["shuffled"]]}
        for name, nets in twins.items():
            assert stage[name] == pytest.approx([np.mean(
                other.forward(x)[0].argmax(axis=0) == labels) for other in nets])
        outputs = [probes.in_groups(whole, whole.layers[places.start].x.copy(), groups)
                   for groups in varied["in_groups"]]
        assert stage["in_groups"] == pytest.approx([np.mean(
            probes.answers(whole, places.stop, output) == right) for output in outputs])
        net.forward(x, whole)
        for i, place in enumerate(places):
            a, last = whole.layers[place].x, whole.layers[A].x
            scale = last.std(axis=0).mean()
            assert stage["mean"][i] == pytest.approx((a - last).mean() / scale)
            assert stage["std"][i] == pytest.approx(
                (a - last).std(axis=0).mean() / scale)
    assert varied["in_groups"] == [[[5, 6]], [[5], [6]]]
