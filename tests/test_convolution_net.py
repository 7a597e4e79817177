"""Convolutional highway nets: layers, net, training step, gradients."""

import math

import numpy as np
import pytest
from test_gradients import gates_swapped, without_carry, without_gate_on_H

import highway_networks as hn
from benchmarks import convolution as benchmark
from benchmarks.harness import gradient_error
from experiments import convolution_layers as cl
from experiments import convolution_net
from experiments import convolution_trials as ct
from experiments.convolution_net import ConvNet, Nesterov
from tests.contracts import STEP, WrongGradient, compare, of_largest

SIDE = 7
NETS = {        # every kind of layer above a convolution, so that its dx is checked too
    "resized": [("plain", 3, 3, 0), ("plain", 2, 5, 1), ("plain", 3, 1, 0),
                ("dense", 5)],
    "highway": [("plain", 3, 3, 1), ("highway", 3, 3, 1), ("highway", 3, 5, 2),
                ("highway", 3, 1, 0), ("dense", 5)],
    "narrow": [("plain", 3, 3, 1), ("narrow", 3, 3, 1, 1), ("narrow", 3, 5, 2, 3),
               ("narrow", 3, 3, 1, 0), ("dense", 5)],
    "overlapping pool": [("plain", 3, 3, 1), ("pool", 3, 2), ("dense", 5)],
    "other pools": [("plain", 3, 3, 1), ("pool", 2, 2), ("pool", 2, 1), ("pool", 3, 3),
                    ("dense", 5)],
    "average": [("plain", 3, 3, 1), ("plain", 5, 1, 0), ("average",)],
    "nothing below": [("dropout", 0.2), ("dense", 5)],
    "whole": [("dropout", 0.2), ("plain", 3, 3, 0), ("highway", 3, 3, 1),
              ("pool", 3, 2), ("dropout", 0.3), ("highway", 3, 3, 1), ("pool", 2, 2),
              ("dense", 5)],
}


def small_net(layers, seed=0, dtype="float64", shape=(SIDE, 1)):
    """A net on 7x7 pixels. Biases are drawn: zero ones would hide an error in their
    use."""
    net = ConvNet(layers, *shape, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])
    for (_, name), tensor in net.views(net.params).items():
        if name == "b":
            tensor += rng.normal(0, 0.3, tensor.shape)
    return net


def small_batch(seed=0, size=4, shape=(SIDE, 1)):
    """x (P, size), labels (size,), and a generator that drops the same in every call.
    """
    rng, (side, channels) = np.random.default_rng([seed, 2]), shape
    return (rng.normal(size=(channels * side ** 2, size)), rng.integers(5, size=size),
            np.random.default_rng(3))


def gradient(net, seed=0):
    return net.gradient(small_batch(seed, shape=net.shapes[0]), net.cache(4))[1].copy()


def loss_of(net, seed=0):
    x, labels, rng = small_batch(seed, shape=net.shapes[0])
    return hn.cross_entropy(net.forward(x.astype(net.dtype), rng=rng)[0], labels)[0]


def check_gradient(net, entries=9, seed=0):
    """Hold random entries of every tensor to their complex-step derivatives, to 1e-11
    of the tensor's largest. Raises WrongGradient."""
    twin = ConvNet(net.layers, *net.shapes[0], dtype="complex128")

    def derivative(entry):
        twin.params[...] = net.params
        twin.params[entry] += 1j * STEP
        return loss_of(twin, seed).imag / STEP
    compare(net, gradient(net, seed), derivative, entries, of_largest, seed)


@pytest.mark.parametrize("layers", NETS.values(), ids=NETS)
def test_gradient_by_complex_step(layers, seed):
    check_gradient(small_net(layers, seed), seed=seed)


@pytest.mark.parametrize("table, depth", [("table 2", 11), ("table 3", 19)])
def test_gradient_in_colour_by_complex_step(table, depth, seed):
    """The nets of CIFAR, narrower."""
    layers = ct.layers({"net": table, "dataset": "cifar10", "block": "highway",
                        "widths": (3, 4, 5)})
    assert sum(kind in ("plain", "highway", "dense") for kind, *_ in layers) == depth
    check_gradient(small_net(layers, seed, shape=(32, 3)), entries=2, seed=seed)


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


def beside_its_place(self, d, lowest=False):
    """The gradient of a kernel is taken from a place beside its own."""
    dx = cl.Highway.backward(self, d, lowest)
    self.grads["W"][...] = np.roll(self.grads["W"], 1, axis=1)
    for dkernel, place in self.dkernels:
        np.copyto(dkernel, place)
    return dx


def passed_on(self, d):
    """The gradient is only handed on."""
    return np.broadcast_to(d[..., :1] if d.size < self.x.size else d,
                           self.x.shape).copy()


@pytest.mark.parametrize("name, where, what, broken", [
    *(("highway", cl.Highway, "block", cl.Highway.block._replace(backward=backward))
      for backward in (gates_swapped, without_carry, without_gate_on_H)),
    *(("highway", cl.Plain, "add_below", broken)
      for broken in (unturned, unmoved, round_the_edge)),
    ("resized", cl, "RELU", cl.RELU._replace(backward=lambda dH, H: np.copyto(H, dH))),
    *(("overlapping pool", cl, "largest_backward", broken)
      for broken in (to_all, overwritten)),
    ("narrow", cl.Narrow, "backward", beside_its_place),
    ("whole", cl.Dropout, "backward", passed_on),
    ("average", cl.Average, "backward", passed_on)])
def test_a_broken_backward_pass_is_caught(name, where, what, broken, monkeypatch, seed):
    monkeypatch.setattr(where, what, broken)
    with pytest.raises(WrongGradient):
        check_gradient(small_net(NETS[name], seed), seed=seed)


@pytest.mark.parametrize("table", [1, 2, 3])
def test_gradient_agrees_with_torch(table):
    """Of the experiments' whole nets, by automatic differentiation."""
    pytest.importorskip("torch")
    size = {1: 20, 2: 4, 3: 1}[table]
    task = benchmark.Task(f"Table {table}", "float64", batch=size, piece=size, width=3)
    ours, theirs = (contestant(task).gradient()
                    for contestant in (benchmark.Ours, benchmark.Torch))
    assert gradient_error(ours, theirs) < 1e-10


@pytest.mark.parametrize("piece", [4, 1])
def test_a_batch_in_pieces_is_the_batch(piece, seed):
    net, (x, labels, _) = small_net(NETS["highway"], seed), small_batch(seed, 12)
    batch = x, labels, None
    whole, expected = net.gradient(batch, net.cache(12))
    measures, grad = net.gradient(batch, net.cache(piece))
    assert measures["train_loss"] == pytest.approx(whole["train_loss"], rel=1e-12)
    np.testing.assert_allclose(grad, expected, atol=1e-14)
    with pytest.raises(ValueError, match="pieces of 5"):
        net.gradient(batch, net.cache(5))


@pytest.mark.parametrize("layers", [NETS["resized"], NETS["narrow"], NETS["whole"]],
                         ids=len)
def test_garbage_in_the_buffers_changes_nothing(layers, seed):
    """Whatever lies in an array between passes that no pass is to read."""
    net = small_net(layers, seed)
    expected, cache = gradient(net, seed), net.cache(4)
    for buffer in [*cache.buffers.values(), cache.grad, cache.total]:
        buffer.fill(np.nan)
    for layer in cache.layers:
        layer.x.fill(np.nan)
        for name in ("dx", "dy", "y", "z", "mask", "draws"):
            if getattr(layer, name, None) is not None:
                getattr(layer, name).fill(np.nan)
    assert np.array_equal(net.gradient(small_batch(seed), cache)[1], expected)


def one_layer(kind, numbers, x, tensors=None):
    """A single layer at work on x (S, C, S, B), and its y (side, C', side, B)."""
    S, C, _, B = x.shape
    cache = object.__new__(convolution_net.Cache)
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
@pytest.mark.parametrize("kind, width, k, p", [
    ("plain", 4, 3, 1), ("plain", 2, 5, 0), ("plain", 3, 1, 0), ("highway", 3, 5, 2)])
def test_layers_by_their_equations(kind, width, k, p, small, monkeypatch, rng):
    monkeypatch.setattr(cl, "SMALL", small)
    rows = width * (1 + (kind == "highway"))
    x = rng.normal(size=(6, 3, 6, 4))
    W, b = rng.normal(size=(rows, k, k, 3)), rng.normal(size=(rows, 1))
    _, y = one_layer(kind, (width, k, p), x, {"W": W, "b": b})
    z = by_definition(x, W, b, p)
    H, T = np.maximum(z[:, :width], 0), 1 / (1 + np.exp(-z[:, width:]))
    np.testing.assert_allclose(y, H * T + x * (1 - T) if T.size else H, atol=1e-13)


def narrow_tensors(rng, width, k, gate, C):
    """Parameters of a narrow layer, and Highway's, with zeros around the gate's."""
    own = {"W": rng.normal(size=(width, k, k, C)),
           "W_T": rng.normal(size=(width, gate, gate, C)),
           "b": rng.normal(size=(2 * width, 1))}
    around = (k - gate) // 2
    padding = ((0, 0), (around,) * 2, (around,) * 2, (0, 0))
    W_T = np.pad(own["W_T"], padding) if gate else 0 * own["W"]
    if not gate:
        del own["W_T"]
    return own, {"W": np.concatenate([own["W"], W_T]), "b": own["b"]}


@pytest.mark.parametrize("k, p, gate", [(3, 1, 3), (3, 1, 1), (5, 2, 3), (3, 1, 0)])
def test_a_narrow_gate_is_a_wide_one_with_zeros_around_it(k, p, gate, rng):
    """To the bit; so is what passes down, and each parameter's gradient."""
    x, d = rng.normal(size=(2, 6, 3, 6, 4))
    own, stacked = narrow_tensors(rng, 3, k, gate, 3)
    layer, y = one_layer("narrow", (3, k, p, gate), x, own)
    wide, expected = one_layer("highway", (3, k, p), x, stacked)
    assert np.array_equal(y, expected)
    one, other = (each.backward(d.reshape(6, 3, 24).copy()) for each in (layer, wide))
    assert np.array_equal(one, other) and d.any()
    found, whole = layer.dkernels, wide.grads["W"]
    middle = np.s_[(k - gate) // 2:(k + gate) // 2]
    assert len(found) == (2 if gate else 1)
    for (dkernel, _), part in zip(found, (whole[:3], whole[3:, middle, middle]),
                                  strict=False):
        assert np.array_equal(dkernel, part) and dkernel.any()


@pytest.mark.parametrize("gate", [1, 3])
def test_a_narrow_gate_agrees_with_torch(gate, rng):
    """Whose kernel of the gate is as small as ours."""
    torch = pytest.importorskip("torch")
    x, d = rng.normal(size=(2, 6, 3, 6, 4))
    own, _ = narrow_tensors(rng, 3, 5, gate, 3)
    layer, y = one_layer("narrow", (3, 5, 2, gate), x, own)
    dx = layer.backward(d.reshape(6, 3, 24).copy()).reshape(x.shape)
    theirs = {name: torch.tensor(tensor, requires_grad=True)
              for name, tensor in (own | {"x": x}).items()}
    h = theirs["x"].permute(3, 1, 0, 2)                         # (B, C, S, S)
    W, W_T = (theirs[name].permute(0, 3, 1, 2) for name in ("W", "W_T"))
    b_H, b_T = theirs["b"][:, 0].split(3)
    conv = torch.nn.functional.conv2d
    H, T = torch.relu(conv(h, W, b_H, padding=2)), torch.sigmoid(
        conv(h, W_T, b_T, padding=gate // 2))
    out = (H * T + h * (1 - T)).permute(2, 1, 3, 0)
    np.testing.assert_allclose(y, out.detach().numpy(), atol=1e-13)
    out.backward(torch.tensor(d))
    for name, found in (("x", dx), ("W", layer.dkernels[0][0]),
                        ("W_T", layer.dkernels[1][0]), ("b", layer.grads["b"])):
        np.testing.assert_allclose(found, theirs[name].grad.numpy(), atol=1e-12)


@pytest.mark.parametrize("gate", [3, 1, 0])
def test_narrow_gates_start_as_wide_ones(gate):
    """H's weights are the twin's; a gate's have the deviation that what it sees asks
    for, and with as many as H's are the twin's too."""
    nets = [ConvNet([("plain", 40, 3, 1), layer, ("dense", 5)], SIDE, gate_bias=-2.0,
                    seed=3) for layer in (("narrow", 40, 3, 1, gate),
                                          ("highway", 40, 3, 1))]
    narrow, wide = (net.views(net.params) for net in nets)
    assert np.array_equal(narrow[1, "W"], wide[1, "W"][:40])
    assert np.array_equal(narrow[1, "b"], wide[1, "b"]) and (
        narrow[1, "b"].ravel() == [0] * 40 + [-2] * 40).all()
    assert ((1, "W_T") in narrow) is (gate > 0)
    if gate:
        W_T = narrow[1, "W_T"]
        assert W_T.std() == pytest.approx(math.sqrt(2 / (40 * gate ** 2)), rel=0.1)
        assert np.array_equal(W_T, wide[1, "W"][40:]) is (gate == 3)


def test_closed_highway_layers_copy_their_input(rng, dtype="float32"):
    """T = 0 exactly: all ten highway layers hand on the very same bits, and dy."""
    layers = [("plain", 3, 3, 1), *[("highway", 3, 3, 1)] * 10, ("dense", 5)]
    net = ConvNet(layers, SIDE, gate_bias=-1000.0, dtype=dtype)
    logits, cache = net.forward(rng.normal(size=(SIDE ** 2, 4)).astype(dtype))
    xs = [layer.x for layer in cache.layers[1:]]
    assert xs[0].any() and all(np.array_equal(x, xs[0]) for x in xs)
    assert all((T == 0).all() for T in net.gates(np.ones((SIDE ** 2, 4), dtype)))
    net.forward(rng.normal(size=(SIDE ** 2, 4)).astype(dtype), cache)
    d = rng.normal(size=xs[0].shape).astype(dtype)
    assert np.array_equal(cache.layers[5].backward(d.copy()), d)


@pytest.mark.parametrize("size, stride, sides", [
    (3, 2, {24: 12, 6: 3, 2: 1, 1: 1, 7: 3}), (2, 2, {6: 3, 5: 3}), (2, 1, {3: 2}),
    (3, 3, {7: 3})])
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
    """The uppermost in the leftmost column."""
    x = np.zeros((4, 1, 4, 1))
    x[1, 0, 0], x[0, 0, 1], x[1, 0, 1] = 5, 5, 5
    layer, _ = one_layer("pool", (2, 2), x)
    dx = layer.backward(np.array([[1.0, 2], [3, 4]]).reshape(2, 1, 2)).reshape(4, 4)
    assert np.array_equal(dx, [[0, 0, 2, 0], [1, 0, 0, 0], [3, 0, 4, 0], [0] * 4])


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


def test_the_door():
    net, (x, *_) = small_net(NETS["whole"]), small_batch()
    for wrong in (x[:-1], x[:, 0], x.astype("float32")):
        with pytest.raises(ValueError, match="the net takes float64"):
            net.forward(wrong)
    logits, cache = net.forward(x)
    net.backward(np.ones_like(logits), cache)
    other = small_net(NETS["whole"], seed=1)
    for user in (net, other):       # a cache that was used, and one of another net
        with pytest.raises(ValueError, match="fresh"):
            user.backward(np.ones_like(logits), cache)
        net.forward(x, cache)
    assert np.array_equal(other.forward(x, cache)[0], other.forward(x)[0])


@pytest.mark.parametrize("layers", [
    [("highway", 3, 3, 1), ("dense", 5)],                           # other channels
    [("plain", 3, 3, 1), ("highway", 3, 3, 0), ("dense", 5)],       # another size
    *([("plain", 3, 3, 1), ("narrow", 3, 3, 1, gate), ("dense", 5)]
      for gate in (2, 5, -1)),                                      # no middle place
    [("plain", 3, 8, 0), ("dense", 5)], [("plain", 3, 3, 2), ("dense", 5)],
    [("pool", 2, 3), ("dense", 5)], [("dropout", 1.0), ("dense", 5)],
    [("plain", 3, 3, 1)]], ids=str)
def test_lists_that_do_not_fit_are_refused(layers):
    with pytest.raises(ValueError):
        ConvNet(layers, SIDE)


def test_nesterov_by_scalars():
    """Two steps of a weight, which decays, and of a bias of twice the rate."""
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
