"""The loss, the clip and the two optimisers, against scalars worked one by one."""

import math

import numpy as np
import pytest

import highway_networks as hn


def scalar_adam(w, grads, lr, beta1=0.9, beta2=0.999, eps=1e-8):
    """Algorithm 1 of Kingma and Ba, for one number."""
    m = v = 0.0
    for t, g in enumerate(grads, 1):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        m_hat = m / (1 - beta1 ** t)
        v_hat = v / (1 - beta2 ** t)
        w -= lr * m_hat / (math.sqrt(v_hat) + eps)
    return w


def scalar_sgd(w, grads, lr, momentum):
    v = 0.0
    for g in grads:
        v = momentum * v - lr * g
        w += v
    return w


@pytest.mark.parametrize("optimizer, scalar, settings", [
    (hn.Adam, scalar_adam, {}),
    (hn.Adam, scalar_adam, {"beta1": 0.5, "beta2": 0.9, "eps": 1e-3}),
    (hn.SGD, scalar_sgd, {"momentum": 0.8}), (hn.SGD, scalar_sgd, {"momentum": 0.0})])
def test_optimiser_is_the_scalar_algorithm(optimizer, scalar, settings, rng):
    """Gradients from 1e-9 to 1: where Adam's eps rules and where it does not."""
    start, scale = rng.normal(size=50), np.logspace(-9, 0, 50)
    grads, params = rng.normal(size=(30, 50)) * scale, start.copy()
    made = optimizer(params, **settings)
    for grad in grads:
        before = grad.copy()
        made.step(params, grad, 0.01)
        assert np.array_equal(grad, before)
    expected = [scalar(w, g, 0.01, **settings)
                for w, g in zip(start, grads.T, strict=True)]
    np.testing.assert_allclose(params, expected, rtol=1e-12, atol=1e-14)


def test_moments_without_gradient_end_in_zeros():
    """They halve every seven steps: from about 830 on numbers were subnormal."""
    params, grad = np.ones(50, "float32"), np.ones(50, "float32")
    adam = hn.Adam(params, beta2=0.9)
    for step in range(1200):
        adam.step(params, grad * (step < 10), 0.01)
        for moment in (adam.m, adam.v):
            assert not np.any((moment != 0) & (moment < np.finfo("float32").tiny))
    assert not adam.m.any() and not adam.v.any()


def test_clip_keeps_direction_and_bounds_the_norm(rng):
    grad = rng.normal(size=100)
    norm = np.linalg.norm(grad)
    clipped = grad.copy()
    assert hn.clip_norm(clipped, 2.0) == pytest.approx(norm)
    np.testing.assert_allclose(clipped, grad * 2 / norm)
    for limit in (norm * 1.01, 0):          # large enough, and none
        untouched = grad.copy()
        assert hn.clip_norm(untouched, limit) == pytest.approx(norm)
        assert np.array_equal(untouched, grad)


def test_cross_entropy_and_softmax_by_their_definition(rng):
    logits, labels = rng.normal(size=(10, 7)), rng.integers(10, size=7)
    before = logits.copy()
    p = np.exp(logits) / np.exp(logits).sum(axis=0)
    np.testing.assert_allclose(hn.softmax(logits), p, rtol=1e-13)
    loss, dlogits = hn.cross_entropy(logits, labels)
    assert np.array_equal(logits, before)
    assert loss == pytest.approx(-np.log(p[labels, range(7)]).mean(), rel=1e-12)
    np.testing.assert_allclose(dlogits * 7, p - np.eye(10)[labels].T, atol=1e-14)
    np.testing.assert_allclose(dlogits.sum(axis=0), 0, atol=1e-15)
    uniform = hn.cross_entropy(np.zeros((10, 3)), np.array([1, 2, 3]))[0]
    assert uniform == pytest.approx(math.log(10), rel=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nothing_overflows_or_underflows_in_the_loss(rng, dtype):
    """Columns whose logits lie far apart, each with a maximum of its own; and a label
    whose probability underflows, but not its logarithm, 1000."""
    offsets, labels = np.array([-2000, 0, 3000], dtype), np.array([0, 1, 2])
    together = rng.normal(size=(4, 3)).astype(dtype) + offsets
    apart = together - offsets
    np.testing.assert_allclose(hn.softmax(together), hn.softmax(apart), rtol=1e-6)
    one, two = hn.cross_entropy(together, labels), hn.cross_entropy(apart, labels)
    assert one[0] == pytest.approx(two[0], rel=1e-6) and np.isfinite(one[0])
    np.testing.assert_allclose(one[1], two[1], rtol=1e-5)
    impossible = np.array([[1000.0], [0.0]], dtype)
    assert np.array_equal(hn.softmax(impossible), [[1], [0]])
    loss, dlogits = hn.cross_entropy(impossible, np.array([1]))
    assert loss == 1000 and np.array_equal(dlogits, [[1], [-1]])
