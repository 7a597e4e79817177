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


def test_adam_is_the_scalar_algorithm(rng):
    """Gradients from 1e-9 to 1: where eps rules and where it does not."""
    start, scale = rng.normal(size=50), np.logspace(-9, 0, 50)
    grads = rng.normal(size=(30, 50)) * scale
    params = start.copy()
    adam = hn.Adam(params)
    for grad in grads:
        adam.step(params, grad.copy(), 0.01)
    expected = [scalar_adam(w, g, 0.01) for w, g in zip(start, grads.T)]
    np.testing.assert_allclose(params, expected, rtol=1e-12, atol=1e-14)


def test_first_adam_step_is_the_learning_rate(rng):
    params, grad = np.zeros(20), rng.normal(size=20)
    hn.Adam(params).step(params, grad, 0.005)
    np.testing.assert_allclose(params, -0.005 * np.sign(grad), rtol=1e-5)


def test_sgd_is_the_scalar_algorithm(rng):
    params, v, w = np.array([0.7]), 0.0, 0.7
    sgd = hn.SGD(params, momentum=0.8)
    for g in rng.normal(size=10):
        sgd.step(params, np.array([g]), 0.1)
        v = 0.8 * v - 0.1 * g
        w += v
    assert params[0] == pytest.approx(w, rel=1e-12)


@pytest.mark.parametrize("make", [hn.Adam, lambda params: hn.SGD(params, 0.9)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_optimisers_work_in_place_and_in_one_dtype(make, dtype, rng):
    params = rng.normal(size=5).astype(dtype)
    optimizer, before = make(params), params.copy()
    optimizer.step(params, np.ones(5, dtype), 0.1)
    assert (params < before).all() and params.dtype == dtype
    for buffer in vars(optimizer).values():
        assert not isinstance(buffer, np.ndarray) or buffer.dtype == dtype


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
    assert math.isnan(hn.clip_norm(np.array([np.nan]), 1.0))
    assert hn.clip_norm(np.array([np.inf]), 1.0) == math.inf


def test_cross_entropy_by_its_definition(rng):
    logits, labels = rng.normal(size=(10, 7)), rng.integers(10, size=7)
    p = np.exp(logits) / np.exp(logits).sum(axis=0)
    loss, dlogits = hn.cross_entropy(logits, labels)
    assert loss == pytest.approx(-np.log(p[labels, range(7)]).mean(), rel=1e-12)
    np.testing.assert_allclose(dlogits * 7, p - np.eye(10)[labels].T, atol=1e-14)
    np.testing.assert_allclose(dlogits.sum(axis=0), 0, atol=1e-15)
    shifted = hn.cross_entropy(logits + 1000, labels)
    assert shifted[0] == pytest.approx(loss, rel=1e-10)


def test_cross_entropy_of_an_impossible_label():
    """The probability underflows; its logarithm, 1000, does not."""
    loss, dlogits = hn.cross_entropy(np.array([[1000.0], [0.0]]), np.array([1]))
    assert loss == 1000 and np.array_equal(dlogits, [[1], [-1]])
    uniform = hn.cross_entropy(np.zeros((10, 3)), np.array([1, 2, 3]))[0]
    assert uniform == pytest.approx(math.log(10), rel=1e-15)
