"""The language model's layers: gradients by complex step and against PyTorch."""

import numpy as np
import pytest

from experiments.nets import recurrent as rl
from highway_suite.gradients import by_complex_step, compare
from tests.contracts import of_largest

FORMS = [("plain", 0), ("plain", 1), ("highway", 2), ("t_only", 2), ("c_only", 2),
         ("full", 2), ("residual", 4)]
STREAMS, STEPS = 3, 5


def small_spelling(rng, words=14, places=7, letters=4):
    """So few letters that windows of one word are often equal, and words of all lengths
    from 1: some leave room for padding alone, the longest does not."""
    lengths = np.sort(np.append(rng.integers(1, places, words - 1), places))[::-1]
    letters = rng.integers(1, letters + 1, (words, places))
    return np.where(np.arange(places) < lengths[:, None], letters, 0)


def small_net(block="highway", depth=1, seed=0, dtype="float64", **more):
    """scale 0.5 draws biases as well: zero ones would hide an error in their use."""
    sizes = {"units": 6, "numbers": 3, "widths": (1, 2, 3), "maps": 2, "scale": 0.5}
    return rl.LanguageModel(small_spelling(np.random.default_rng([seed, 1])), block,
                            depth, seed=seed, dtype=dtype, **sizes | more)


def small_batch(net, seed=0, steps=STEPS, first=True, dropped=True):
    rng = np.random.default_rng([seed, 2])
    words = rng.integers(net.words, size=(steps + 1, STREAMS))
    return rl.Batch(words[:-1], words[1:], first,
                    np.random.default_rng(3) if dropped else None)


def small_cache(net, seed=0):
    return with_state(net.cache(STREAMS, STEPS), seed)


def with_state(cache, seed=0):
    rng = np.random.default_rng([seed, 4])
    for lstm in cache.lstms:
        for state in (lstm.h, lstm.c):
            state[:, -STREAMS:] = rng.normal(size=(len(state), STREAMS))
    return cache


def loss_of(net, seed):
    """Sum over steps of means over streams, the same dropped in every call."""
    batch = small_batch(net, seed, first=False)
    return net.forward(batch, small_cache(net, seed)).sum() / STREAMS


def gradient(net, seed):
    cache = small_cache(net, seed)
    net.forward(small_batch(net, seed, first=False), cache)
    return net.backward(cache).copy()


def complex_twin(net):
    twin = small_net("plain", 0, dtype="complex128")
    twin.__dict__.update({**net.__dict__, "dtype": np.dtype("complex128"),
                          "params": net.params.astype("complex128")})
    return twin


# Gradients


@pytest.mark.parametrize("block, depth", FORMS)
def test_gradient_by_complex_step(block, depth, seed):
    """Of random entries of every tensor; padding is no parameter."""
    net = small_net(block, depth, seed)
    padding = net.views(np.arange(net.params.size))["E"][rl.PADDING]
    derivative = by_complex_step(net, complex_twin(net),
                                 lambda twin: loss_of(twin, seed))
    compare(net, gradient(net, seed), lambda entry: 0 if entry in padding
            else derivative(entry), 4, of_largest, seed)


@pytest.mark.parametrize("block, depth", FORMS)
def test_gradient_agrees_with_torch(block, depth):
    """PyTorch's own LSTM, convolution and cross-entropy, and its automatic derivatives,
    the state carried over three batches."""
    pytest.importorskip("torch")
    from benchmarks import language_model as benchmark
    task = benchmark.Task(STREAMS, STEPS, block=block, depth=depth, words=40,
                          characters=7, places=8, dtype="float64", units=6, numbers=3,
                          widths=(1, 2, 3), maps=2, scale=0.5)
    ours, theirs = (contestant(task).gradient()
                    for contestant in (benchmark.Ours, benchmark.Torch))
    for name, expected in theirs.items():
        assert abs(ours[name] - expected).max() <= 1e-9 * abs(expected).max(), name


# From batch to batch


def test_the_state_goes_on_from_batch_to_batch(seed):
    """One long batch, or two short ones; or two that begin anew."""
    net = small_net("full", 2, seed)
    long = small_batch(net, seed, 2 * STEPS, dropped=False)
    whole = net.forward(long, net.cache(STREAMS, 2 * STEPS))
    halves = [long._replace(words=long.words[part], following=long.following[part],
                            first=part.start is None)
              for part in (slice(STEPS), slice(STEPS, None))]
    cache = net.cache(STREAMS, STEPS)
    parts = [net.forward(half, cache) for half in halves]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-12)
    again = net.forward(halves[0], cache)
    assert np.array_equal(again, parts[0]), "what was before is not forgotten"


def test_dropout_drops_at_its_rate_and_keeps_the_mean(seed):
    net = small_net(seed=seed, units=200, dropout=0.3)
    cache = net.cache(STREAMS, STEPS)
    x = np.asfortranarray(np.ones((200, STREAMS * STEPS)))
    y = cache.dropouts[0].forward(x, np.random.default_rng(seed))
    assert (y[-1] == 1).all(), "the row that meets the bias is never dropped"
    assert set(np.unique(y[:-1])) == {0, 1 / 0.7}
    assert (y[:-1] == 0).mean() == pytest.approx(0.3, abs=5 * (0.21 / x.size) ** 0.5)
    assert np.array_equal(cache.dropouts[0].forward(x, None)[:-1], x)


# Net


def test_sizes_and_first_weights_are_kims():
    """10,000 words of up to 19 letters, 50 characters: the small model of one layer."""
    spelling = np.zeros((10_000, 21), int)
    spelling[:, :3] = 1
    spelling[0] = 50
    net = rl.LanguageModel(spelling)
    assert net.features == 525
    F, M = 525, 300
    assert net.params.size == (
        51 * 15 + sum(25 * k * (15 * k + 1) for k in range(1, 7)) + 2 * F * (F + 1)
        + 4 * M * (F + 1 + M) + 4 * M * (2 * M + 1) + 10_000 * (M + 1))
    weights = net.views(net.params)
    assert abs(weights["layers"][:, F:, F] + 2).max() <= 0.05
    weights["layers"][:, F:, F] = 0
    assert 0.0499 < abs(net.params).max() <= 0.05
    assert (weights["E"][rl.PADDING] == 0).all() and weights["E"][1:].all()


def test_forms_share_what_they_both_have():
    full = small_net("full", 4, seed=3)
    theirs, F = full.views(full.params), full.features
    for block, depth in FORMS:
        net = small_net(block, depth, seed=3)
        own = net.views(net.params)
        for k, gate in enumerate("H" + net.block.gates):
            at = "HTC".index(gate) * F
            assert np.array_equal(own["layers"][:, k * F:(k + 1) * F],
                                  theirs["layers"][:depth, at:at + F])
        for name in set(own) - {"layers"}:
            assert np.array_equal(own[name], theirs[name])
    assert not np.array_equal(small_net(seed=4).params, small_net(seed=3).params)


def test_a_batch_of_other_words_leaves_no_trace_but_the_state(seed):
    net = small_net("full", 2, seed)
    expected, cache = gradient(net, seed), net.cache(STREAMS, STEPS)
    net.forward(small_batch(net, seed + 1), cache)
    net.backward(cache)
    net.forward(small_batch(net, seed, first=False), with_state(cache, seed))
    assert np.array_equal(net.backward(cache), expected)
