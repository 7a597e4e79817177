"""Backward is the derivative of forward, for every block; broken ones are caught."""

import numpy as np
import pytest

import highway_networks as hn
from highway_suite.gradients import WrongGradient, gradient, small_batch, small_net
from tests.contracts import check_block, check_gradient

KINDS = list(hn.BLOCKS)


@pytest.mark.parametrize("depth", [1, 2, 10, 50])
@pytest.mark.parametrize("activation", list(hn.ACTIVATIONS))
@pytest.mark.parametrize("block", KINDS)
def test_gradient_by_complex_step(block, activation, depth, seed):
    net = small_net(block, depth, activation, seed)
    check_gradient(net, *small_batch(seed), seed=seed)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("block", KINDS)
def test_block_contract(block, dtype, seed):
    check_block(block, dtype, seed)


# Blocks, activations and nets with one fault each


def without_minus_x(d, x, rows, dH, scratch):
    """dT = H dy: the gate's gradient forgets the carried input."""
    H, T = rows
    np.multiply(T, d, out=dH)
    d -= dH
    T *= H * d


def gates_swapped(d, x, rows, dH, scratch):
    """dH = (1 - T) dy, dx = T dy"""
    H, T = rows
    np.multiply(1 - T, d, out=dH)
    dT = (H - x) * d
    d *= T
    T *= dT * (1 - T)


def without_carry(d, x, rows, dH, scratch):
    """dx = 0: no gradient along the highway."""
    hn.highway_backward(d, x, rows, dH, scratch)
    d.fill(0)


def without_sigmoid_slope(d, x, rows, dH, scratch):
    """dz_T = dT"""
    H, T = rows
    np.multiply(T, d, out=dH)
    dT = (H - x) * d
    d -= dH
    T[...] = dT


def without_gate_on_H(d, x, rows, dH, scratch):
    """dH = dy"""
    before = d.copy()
    hn.highway_backward(d, x, rows, dH, scratch)
    dH[...] = before


@pytest.mark.parametrize("depth", [1, 10, 50])
@pytest.mark.parametrize("broken", [
    without_minus_x, gates_swapped, without_carry, without_sigmoid_slope,
    without_gate_on_H], ids=lambda function: function.__name__)
def test_broken_block_is_caught(broken, depth, seed):
    net = small_net("highway", depth, seed=seed)
    net.block = net.block._replace(backward=broken)
    with pytest.raises(WrongGradient):
        check_gradient(net, *small_batch(seed), seed=seed)


def gate_without_slope(net, patch):
    """dz without the sigmoid's 1 - G."""
    patch.setattr(hn, "gate_backward", lambda G, scaled, through:
                  np.multiply(scaled, through, out=G))


def activation_without_slope(net, patch):
    """dz_H = dH"""
    net.activation = net.activation._replace(backward=lambda dH, H: np.copyto(H, dH))


def without_bias(net, patch):
    """db_H = 0"""
    def zeroed(dlogits, cache):
        net.views(right(dlogits, cache))["b_H"][...] = 0
        return cache.grad
    right, net.backward = net.backward, zeroed


def without_scale(net, patch):
    """dH = dy"""
    net.block = net.block._replace(backward=hn.residual_backward)


def with_back(of_W):
    """dx by another matrix than W^T, made of W."""
    def breaks(net, patch):
        def cache(batch):
            made = right(batch)
            made.layers = [layer._replace(W_back=of_W(layer.W[:, :-1]))
                           for layer in made.layers]
            return made
        right, net.cache = net.cache, cache
    return breaks


@pytest.mark.parametrize("block, breaks", [
    ("t_only", gate_without_slope), ("c_only", gate_without_slope),
    ("full", gate_without_slope), ("plain", activation_without_slope),
    ("scaled_residual", without_scale),
    ("plain", without_bias), ("plain", with_back(lambda W: W)),
    ("plain", with_back(lambda W: 0 * W.T))])
def test_broken_net_is_caught(block, breaks, monkeypatch, seed):
    net = small_net(block, 3, seed=seed)
    check_gradient(net, *small_batch(seed), seed=seed)
    breaks(net, monkeypatch)
    with pytest.raises(WrongGradient):
        check_gradient(net, *small_batch(seed), seed=seed)


def broken_contract(change):
    """A highway block whose forward pass does something that no gradient shows."""
    def forward(x, rows, y, scratch):
        hn.highway_forward(x, rows, y, scratch)
        change(x, y, scratch)
    return hn.BLOCKS["highway"]._replace(forward=forward)


@pytest.mark.parametrize("change", [
    lambda x, y, scratch: np.add(y, 0 * scratch, out=y),      # of an old pass
    lambda x, y, scratch: np.add(y, y.mean(axis=1, keepdims=True), out=y),
    lambda x, y, scratch: y.fill(np.nan)], ids=["old", "columns", "not finite"])
def test_broken_contract_is_caught(change, monkeypatch, seed):
    check_block("highway", "float64", seed)
    monkeypatch.setitem(hn.BLOCKS, "highway", broken_contract(change))
    with pytest.raises(AssertionError):
        check_block("highway", "float64", seed)


# Another implementation: autograd


@pytest.mark.parametrize("activation", hn.ACTIVATIONS)
@pytest.mark.parametrize("block", KINDS)
def test_logits_and_gradient_as_torch_has_them(block, activation, seed):
    """In the module that examples/to_pytorch.py makes of a net."""
    torch = pytest.importorskip("torch", reason="torch is not installed; it is an "
                                                "independent oracle, not a dependency")
    from examples.to_pytorch import TorchNet
    net, (x, labels) = small_net(block, 6, activation, seed), small_batch(seed)
    twin = TorchNet(net)
    logits = twin(torch.tensor(x.T))
    torch.nn.functional.cross_entropy(logits, torch.tensor(labels)).backward()
    np.testing.assert_allclose(net.forward(x)[0].T, logits.detach().numpy(), rtol=1e-10)
    for name, view in net.views(gradient(net, x, labels)).items():
        expected = twin.get_parameter(name).grad.numpy()
        assert abs(view - expected).max() <= 1e-10 * abs(expected).max(), name
