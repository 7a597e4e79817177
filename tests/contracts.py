"""The contract that every block must pass, and what its gradient check is worth.

Complex-step differentiation: for an analytic loss f, Im f(w + ih) / h is the derivative
to machine precision, because nothing is subtracted. So every entry of the gradient is
held to a relative error; there is no absolute tolerance that a tiny gradient deep in
the net could hide under.
"""

import numpy as np
import pytest

import highway_networks as hn

STEP = 1e-30
FORMS = {       # y of every form, as the ICLR 2017 paper's Table 1a writes it
    "plain": lambda x, H, T, C: H, "highway": lambda x, H, T, C: H * T + x * (1 - T),
    "residual": lambda x, H, T, C: H + x, "t_only": lambda x, H, T, C: H * T + x,
    "c_only": lambda x, H, T, C: H + x * C, "full": lambda x, H, T, C: H * T + x * C}


class WrongGradient(AssertionError):
    """An entry of the gradient differs from the complex-step derivative."""


def small_net(block, depth, activation="tanh", seed=0, dtype="float64"):
    """12 pixels, 7 units, 5 classes: small, and no two sizes alike. Biases are drawn,
    because zero ones would hide an error in their use. Where H T adds to all of x, a
    deep relu net would double its signal from layer to layer and press its gates to 0
    and 1; smaller weights keep them open."""
    net = hn.DeepNet(block, depth, 7, inputs=12, classes=5, init="glorot",
                     activation=activation, gate_bias=-1.0, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])
    for name, weights in net.views(net.params).items():
        if name.startswith("b_"):
            weights += rng.normal(0, 0.3, weights.shape)
        elif block not in ("plain", "highway"):
            weights /= np.sqrt(depth)
    return net


def probed_net(block="highway", depth=4, seed=0, dtype="float64"):
    """6 pixels, 5 units, 3 classes, every weight moved a little."""
    net = hn.DeepNet(block, depth, 5, inputs=6, classes=3, init="glorot",
                     gate_bias=-1.0, seed=seed, dtype=dtype)
    net.params += np.random.default_rng(seed).normal(0, 0.2, net.params.size).astype(
        dtype)
    return net


def frozen(net, values):
    """A net whose T has fixed values, whatever the image: {layer: (U,) or a number from
    0 to 1}; other layers keep theirs. W = 0 and b = logit of the value do it, to
    rounding; 0 and 1 are exact."""
    twin = hn.DeepNet(**net.settings, dtype=net.dtype)
    twin.params[...] = net.params
    weights = twin.views(twin.params)
    for layer, value in values.items():
        value = np.asarray(value, float)
        weights["W_T"][layer] = 0
        with np.errstate(divide="ignore"):          # logit(0) and logit(1) are infinite
            weights["b_T"][layer] = np.log(value) - np.log1p(-value)
    return twin


def small_batch(seed=0, size=6, dtype="float64"):
    """x (12, size) and labels (size,)."""
    rng = np.random.default_rng([seed, 2])
    return rng.normal(size=(12, size)).astype(dtype), rng.integers(5, size=size)


def gradient(net, x, labels):
    """Flat gradient of the mean cross-entropy, by backward."""
    logits, cache = net.forward(x)
    _, dlogits = hn.cross_entropy(logits, labels)
    return net.backward(dlogits, cache).copy()


def by_complex_step(net, twin, loss):
    """-> function of an entry of net.params: the derivative of loss(twin), a complex
    net's."""
    def derivative(entry):
        twin.params[...] = net.params
        twin.params[entry] += 1j * STEP
        return loss(twin).imag / STEP
    return derivative


def derivatives(net, x, labels):
    """The derivatives of the mean cross-entropy, by complex step."""
    twin = hn.DeepNet(**net.settings, dtype="complex128")
    twin.block, twin.activation = net.block, net.activation
    x, cache = x.astype("complex128"), twin.cache(len(labels))
    return by_complex_step(net, twin, lambda twin: hn.cross_entropy(
        twin.forward(x, cache)[0], labels)[0])


def compare(net, found, derivative, entries, off, seed=0):
    """So many random entries of every named tensor: found, the net's flat gradient, and
    derivative(entry), apart by off(expected, the tensor's gradient) at most. Raises
    WrongGradient with both values for the first that is not."""
    rng = np.random.default_rng([seed, 3])
    for name, places in net.views(np.arange(found.size)).items():
        for entry in rng.permutation(places.ravel())[:entries]:
            expected = derivative(entry)
            if not abs(found[entry] - expected) <= off(expected, found[places]):
                raise WrongGradient(f"{name}[{entry}]: backward {found[entry]}, "
                                    f"complex step {expected}")


def of_largest(expected, tensor, rtol=1e-11):
    """A part of the tensor's largest entry."""
    return rtol * abs(tensor).max(initial=0)


def check_gradient(net, x, labels, entries=60, rtol=1e-9, seed=0):
    """Every entry is held to its own size."""
    compare(net, gradient(net, x, labels), derivatives(net, x, labels),
            entries // len(net.views(net.params)) + 1,
            lambda expected, tensor: rtol * abs(expected), seed)


def check_block(block, dtype, seed=0):
    """What DeepNet asks of a block's pair of functions beside the right gradient: one
    dtype, no input or weight written, nothing of an old pass used, columns apart,
    finite at depth 100."""
    net = small_net(block, 4, seed=seed, dtype=dtype)
    x, labels = small_batch(seed, dtype=dtype)
    x_before, params_before = x.copy(), net.params.copy()
    logits, cache = net.forward(x)
    assert logits.shape == (5, 6) and logits.dtype == cache.grad.dtype == dtype
    first = gradient(net, x, labels)
    assert first.dtype == dtype and np.isfinite(first).all()
    assert np.array_equal(x, x_before) and np.array_equal(net.params, params_before)
    for buffer in (cache.z, cache.d, cache.dH, cache.scratch, cache.x[:, :-1],
                   cache.grad):
        buffer.fill(np.nan)
    logits_again, cache = net.forward(x, cache)
    again = net.backward(hn.cross_entropy(logits_again, labels)[1], cache)
    assert np.array_equal(again, first)
    for columns in ([4], [5, 0, 3]):
        np.testing.assert_allclose(net.forward(x[:, columns])[0],
                                   logits_again[:, columns], rtol=1e-4, atol=1e-6)
    deep = small_net(block, 100, seed=seed, dtype=dtype)
    assert np.isfinite(gradient(deep, x, labels)).all()


def contrast(*colours):
    """The WCAG's ratio of contrast of two "#RRGGBB"."""
    light = []
    for colour in colours:
        parts = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92,
                          ((parts + 0.055) / 1.055) ** 2.4)
        light.append(linear @ (0.2126, 0.7152, 0.0722) + 0.05)
    return max(light) / min(light)


def check_resumes(monkeypatch, train, folder, kill, left):
    """A trial, train(folder) -> result, that is stopped in its step `kill` goes on from
    its checkpoint with `left` steps, not one more, and ends as one that was never
    stopped; a finished one takes no step."""
    def result(folder):
        return {name: value for name, value in train(str(folder)).items()
                if name != "seconds_before"}
    expected = result(folder / "uninterrupted")
    step, allowed = hn.train_step, kill - 1

    def counted(*args):
        nonlocal allowed
        allowed -= 1
        if allowed < 0:
            raise KeyboardInterrupt
        return step(*args)
    monkeypatch.setattr(hn, "train_step", counted)
    with pytest.raises(KeyboardInterrupt):
        train(str(folder))
    for allowed in (left, 0):       # `counted` takes them away
        assert result(folder) == expected and allowed == 0
    monkeypatch.setattr(hn, "train_step", step)
