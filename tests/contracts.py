"""The contract that every block must pass."""

from functools import partial

import numpy as np
import pytest

import highway_networks as hn
from highway_suite import gradients
from highway_suite.gradients import gradient, small_batch, small_net

FORMS = {       # y of every form, as the ICLR 2017 paper's Table 1a writes it
    "plain": lambda x, H, T, C: H, "highway": lambda x, H, T, C: H * T + x * (1 - T),
    "residual": lambda x, H, T, C: H + x,
    "scaled_residual": lambda x, H, T, C: H * T + x,
    "t_only": lambda x, H, T, C: H * T + x,
    "c_only": lambda x, H, T, C: H + x * C, "full": lambda x, H, T, C: H * T + x * C}

check_gradient = partial(gradients.check_gradient, entries=9)       # all take too long


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
            logit = np.log(value) - np.log1p(-value)
        # To OpenBLAS for AVX-512, products with infinite numbers are invalid.
        weights["b_T"][layer] = np.clip(logit, -1000, 1000)
    return twin


def of_largest(expected, tensor, rtol=1e-11):
    """A part of the tensor's largest entry."""
    return rtol * abs(tensor).max(initial=0)


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


def exit_of(program, *arguments):
    """The code, or the line, with which a call ends its process."""
    with pytest.raises(SystemExit) as caught:
        program(*arguments)
    return caught.value.code


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
