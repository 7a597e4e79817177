"""DeepNet: exact identities, what is shared between nets, probes, and its door."""

import math

import numpy as np
import pytest

import highway_networks as hn
from highway_suite import load_net, save_net
from highway_suite.gradients import small_batch, small_net
from tests.contracts import FORMS


def test_layer_copies_its_input_bit_for_bit_where_T_is_0(rng):
    """Eq. 4 and 5: y = x and dx = dy; sigmoid(-200) by tanh is 0 exactly."""
    net = hn.DeepNet("highway", 30, 20, inputs=16, gate_bias=-200.0)
    x = rng.normal(size=(16, 9)).astype("float32")
    outputs = net.block_outputs(x.T)
    assert np.count_nonzero(net.gates(x.T)) == 0
    for layer in range(30):
        assert np.array_equal(outputs[:, layer + 1], outputs[:, 0])
    logits, cache = net.forward(x)
    grad = net.views(net.backward(np.ones_like(logits), cache))
    assert np.count_nonzero(grad["W_H"]) == np.count_nonzero(grad["W_T"]) == 0
    shallow = hn.DeepNet("highway", 1, 20, inputs=16, gate_bias=-200.0)
    logits, cache = shallow.forward(x)
    expected = shallow.views(shallow.backward(np.ones_like(logits), cache))
    assert np.array_equal(grad["W_in"], expected["W_in"]) and grad["W_in"].any()


@pytest.mark.parametrize("depth", [1, 2, 10, 1000])
def test_auto_gate_bias_opens_one_layer_in_all(depth):
    """But one alone starts half open."""
    net = hn.DeepNet("full", depth, 5, inputs=4, gate_bias="auto", dtype="float64")
    weights = net.views(net.params)
    T = 1 / (1 + np.exp(-weights["b_T"]))
    assert T.sum(axis=0) == pytest.approx(1 if depth > 1 else 0.5)
    assert np.array_equal(weights["b_C"], -weights["b_T"])


def test_nets_of_one_seed_share_what_they_can():
    highway = hn.DeepNet("highway", 12, 20, inputs=16, seed=3)
    plain = hn.DeepNet("plain", 12, 20, inputs=16, seed=3)
    deeper = hn.DeepNet("highway", 20, 20, inputs=16, seed=3)
    other = hn.DeepNet("highway", 12, 20, inputs=16, seed=4)
    one, two, three, four = (n.views(n.params) for n in (highway, plain, deeper, other))
    for name in ("W_in", "W_H", "W_out"):
        assert np.array_equal(one[name], two[name])
        assert not np.array_equal(one[name], four[name])
    for name in ("W_H", "W_T"):
        assert np.array_equal(one[name], three[name][:12])
    assert not np.array_equal(one["W_H"], one["W_T"])
    assert np.all(one["b_T"] == -2) and not np.any(one["b_H"])
    unsaid, zero = hn.DeepNet(depth=2), hn.DeepNet(depth=2, seed=0)
    assert np.array_equal(unsaid.params, zero.params)


@pytest.mark.parametrize("init, variance", [
    ("uniform", lambda fan_in, fan_out: 1 / (3 * fan_in)),
    ("glorot", lambda fan_in, fan_out: 2 / (fan_in + fan_out)),
    ("he", lambda fan_in, fan_out: 2 / fan_in)])
def test_initial_weights_have_the_deviation_of_their_rule(init, variance, seed):
    net = hn.DeepNet("highway", 2, 200, inputs=300, init=init, seed=seed)
    weights = net.views(net.params)
    for name, fans, near in (("W_H", (200, 200), 0.02), ("W_T", (200, 200), 0.02),
                             ("W_in", (300, 200), 0.02), ("W_out", (200, 10), 0.08)):
        deviation = math.sqrt(variance(*fans))
        assert weights[name].std() == pytest.approx(deviation, rel=near)
        assert abs(weights[name].mean()) < 4 * near * deviation


def test_orthogonal_weights_keep_lengths(seed):
    net = hn.DeepNet("highway", 2, 20, inputs=30, init="orthogonal", seed=seed)
    weights = net.views(net.params)
    for W in (*weights["W_H"], *weights["W_T"], weights["W_in"], weights["W_out"]):
        np.testing.assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-6)
    assert not np.array_equal(weights["W_H"][0], weights["W_H"][1])


def test_parameter_counts_are_the_papers():
    """784 -> 50 -> 9, 19, 49, 99 highway layers -> 10, and plain layers of 71."""
    for layers, highway, plain in ((9, 85_660, 102_463), (19, 136_660, 153_583),
                                   (49, 289_660, 306_943), (99, 544_660, 562_543)):
        assert hn.DeepNet("highway", layers, 50).params.size == highway
        assert hn.DeepNet("plain", layers, 71).params.size == plain


def test_cache_serves_one_backward_pass_of_its_own_net(seed):
    net, twin = small_net("highway", 2), small_net("highway", 2)
    x, labels = small_batch(seed)
    logits, cache = net.forward(x)
    dlogits = hn.cross_entropy(logits, labels)[1]
    with pytest.raises(ValueError):
        twin.backward(dlogits, cache)
    assert twin.forward(x, cache)[1] is not cache, "its weights are the other net's"
    logits, cache = net.forward(x)
    net.backward(dlogits, cache)
    with pytest.raises(ValueError):
        net.backward(dlogits, cache)
    _, cache = net.forward(x, closed=[0])
    with pytest.raises(ValueError):
        net.backward(dlogits, cache)


@pytest.mark.parametrize("closed", [(), (1, 3)])
@pytest.mark.parametrize("activation", list(hn.ACTIVATIONS))
@pytest.mark.parametrize("block", FORMS)
def test_probes(block, activation, closed, seed):
    net, (x, _) = small_net(block, 5, activation, seed), small_batch(seed)
    act = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}[activation]
    w, outputs = net.views(net.params), net.block_outputs(x.T, closed)
    assert outputs.shape == (6, 6, 7)
    outputs = np.moveaxis(outputs, 0, 2)
    np.testing.assert_allclose(outputs[0], act(w["W_in"] @ x + w["b_in"]), atol=1e-14)
    for layer in range(5):
        before = outputs[layer]

        def affine(name, x=before, layer=layer):
            return w["W_" + name][layer] @ x + w["b_" + name][layer][:, None]
        gates = {name: 1 / (1 + np.exp(-affine(name))) for name in net.block.gates}
        y = FORMS[block](before, act(affine("H")), gates.get("T", 5 ** -0.5),
                         gates.get("C"))
        if layer in closed:
            assert np.array_equal(outputs[layer + 1], before)
            y, gates = before, dict.fromkeys(gates, 0)
        np.testing.assert_allclose(outputs[layer + 1], y, rtol=1e-10, atol=1e-14)
        if "T" in gates:
            T = net.gates(x.T, closed)[:, layer].T
            np.testing.assert_allclose(T, gates["T"] + 0 * T, rtol=1e-12)
    logits = w["W_out"] @ outputs[-1] + w["b_out"][:, None]
    assert np.array_equal(net.predict(x.T, closed), logits.argmax(axis=0))
    p = np.exp(logits) / np.exp(logits).sum(axis=0)
    np.testing.assert_allclose(net.predict_proba(x.T, closed), p.T, rtol=1e-10)


@pytest.mark.parametrize("of", ["predict", "predict_proba", "gates", "block_outputs"])
@pytest.mark.parametrize("count", [0, 7, 22])
def test_few_rows_are_taken_at_a_time(monkeypatch, count, of):
    net, x = small_net("full", 4), np.random.default_rng(1).normal(size=(count, 12))
    whole = getattr(net, of)(x, closed=[2])
    monkeypatch.setattr(hn, "COLUMNS", 7)
    found = getattr(net, of)(x, closed=(k for k in (2,)))
    np.testing.assert_allclose(found, whole, rtol=1e-12, atol=1e-15)


def test_what_does_not_fit_is_refused():
    net, (x, _) = small_net("highway", 2), small_batch()
    for bad in (x[:5], x[0], x.astype("float32")):
        with pytest.raises(ValueError):
            net.forward(bad)
    for layers in ([-1], [2], [0.5]):
        with pytest.raises(ValueError):
            net.predict(x.T, closed=layers)
    with pytest.raises(ValueError):
        net.gradient((x, np.zeros((6, 1), int)), net.cache(6))
    with pytest.raises(ValueError):
        small_net("c_only", 2).gates(x.T)
    for name in ("block", "activation", "init"):
        with pytest.raises(LookupError):
            hn.DeepNet(**{name: "no"})


@pytest.mark.parametrize("dtype", ["u1", ">f4", "f8"])
def test_any_numbers_are_rows(dtype):
    net = hn.DeepNet("highway", 3, 8, inputs=5, classes=3)
    x = np.random.default_rng(2).integers(2, size=(7, 5)).astype(dtype)
    logits = net.forward(x.T.astype("f4"))[0]
    assert np.array_equal(net.predict(x), logits.argmax(axis=0))
    assert np.array_equal(net.predict(x.tolist()), logits.argmax(axis=0))
    np.testing.assert_allclose(net.predict_proba(x).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("x", [
    np.zeros((5, 12)), np.zeros(5), np.full((2, 5), np.nan), np.full((2, 5), np.inf)])
def test_what_are_no_rows_of_the_net_is_refused(x):
    net = hn.DeepNet("highway", 3, 8, inputs=5, classes=3)
    for ask in (net.predict, net.predict_proba, net.gates, net.block_outputs):
        with pytest.raises(ValueError):
            ask(x)


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:
        save_net(hn.DeepNet(depth=2), tmp_path / "file" / "net.npz")
    assert caught.value.filename == str(tmp_path / "file" / "net.npz")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("block", list(hn.BLOCKS))
def test_a_saved_net_is_the_same_net(tmp_path, block, dtype, seed):
    net, (x, _) = small_net(block, 3, "relu", seed, dtype), small_batch(dtype=dtype)
    save_net(net, tmp_path / "net")
    twin = load_net(tmp_path / "net")
    assert np.array_equal(net.params, twin.params) and twin.settings == net.settings
    assert twin.dtype == dtype and np.array_equal(net.forward(x)[0], twin.forward(x)[0])


@pytest.mark.parametrize("change", [
    {"params": np.ones(1)}, {"depth": 2}, {"depth": "3"}, {"hidden": None},
    {"block": "gone"}, {"params": np.array([print], object)}], ids=str)
def test_what_is_no_saved_net_is_refused(change, tmp_path):
    """Nothing is broadcast or converted, and no pickle is read."""
    net, path = small_net("highway", 3), tmp_path / "net.npz"
    whole = {"params": net.params, **net.settings} | change
    np.savez_compressed(path, **{
        name: value for name, value in whole.items() if value is not None})
    for content in (path.read_bytes(), path.read_bytes()[:200]):
        path.write_bytes(content)
        with pytest.raises(ValueError):
            load_net(path)


@pytest.mark.parametrize("block, gate_bias, factor", [
    ("plain", 0, 1 / math.sqrt(3)), ("highway", -2, 0.88), ("highway", -4, 0.98)])
def test_untrained_layers_scale_signal_and_gradient_as_the_lecture_says(
        block, gate_bias, factor, seed):
    """By 1 / sqrt(3) a plain layer, by 1 - sigmoid(b_T) a highway one, both ways."""
    rng, seen = np.random.default_rng(seed), []
    net = hn.DeepNet(block, 30, 50, gate_bias=gate_bias, seed=seed)

    def backward(d, *rest):
        seen.append(np.linalg.norm(d))
        kind.backward(d, *rest)
    kind, net.block = net.block, net.block._replace(backward=backward)
    logits, cache = net.forward(rng.uniform(-1, 1, (784, 128)).astype("float32"))
    lengths = np.linalg.norm(cache.x[:, :50], axis=(1, 2))
    net.backward(hn.cross_entropy(logits, rng.integers(0, 10, 128))[1], cache)
    assert (lengths[-1] / lengths[0]) ** (1 / 30) == pytest.approx(factor, rel=0.06)
    assert (seen[-1] / seen[0]) ** (1 / 29) == pytest.approx(factor, rel=0.06)
