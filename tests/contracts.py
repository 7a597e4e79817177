"""The gradient check that every block must pass, and what a check is worth.

Complex-step differentiation: for an analytic loss f, Im f(w + ih) / h is the derivative
to machine precision, because nothing is subtracted. So every entry of the gradient is
held to a relative error; there is no absolute tolerance that a tiny gradient deep in
the net could hide under.
"""

import numpy as np

import highway_networks as hn

STEP = 1e-30


class WrongGradient(AssertionError):
    """An entry of the gradient differs from the complex-step derivative."""


def small_net(block, depth, activation="tanh", seed=0, dtype="float64"):
    """12 pixels, 7 units, 5 classes: small, and no two sizes alike. Biases are drawn,
    because zero ones would hide an error in their use. Where H T adds to all of x, a
    deep relu net would double its signal from layer to layer and press its gates to 0
    and 1; smaller weights keep them open."""
    net = hn.DeepNet(block, depth, 7, inputs=12, classes=5, activation=activation,
                     init="glorot", gate_bias=-1.0, seed=seed, dtype=dtype)
    rng = np.random.default_rng([seed, 1])
    for name, weights in net.views(net.params).items():
        if name.startswith("b_"):
            weights += rng.normal(0, 0.3, weights.shape)
        elif block not in ("plain", "highway"):
            weights /= np.sqrt(depth)
    return net


def small_batch(seed=0, size=6, dtype="float64"):
    """x (12, size) and labels (size,)."""
    rng = np.random.default_rng([seed, 2])
    return rng.normal(size=(12, size)).astype(dtype), rng.integers(5, size=size)


def gradient(net, x, labels):
    """Flat gradient of the mean cross-entropy, by backward."""
    logits, cache = net.forward(x)
    _, dlogits = hn.cross_entropy(logits, labels)
    return net.backward(dlogits, cache).copy()


def derivatives(net, x, labels):
    """-> function of an entry of params: the same derivative, by complex step."""
    twin = hn.DeepNet(**net.settings, dtype="complex128")
    twin.block, twin.activation = net.block, net.activation
    x, cache = x.astype("complex128"), twin.cache(len(labels))

    def derivative(entry):
        twin.params[...] = net.params
        twin.params[entry] += 1j * STEP
        return hn.cross_entropy(twin.forward(x, cache)[0], labels)[0].imag / STEP
    return derivative


def check_gradient(net, x, labels, entries=60, rtol=1e-9, seed=0):
    """Compare random entries of every named tensor; raise WrongGradient with both
    values for the first that is off. Returns the largest relative error."""
    found, derivative = gradient(net, x, labels), derivatives(net, x, labels)
    worst = 0.0
    rng = np.random.default_rng([seed, 3])
    places = net.views(np.arange(found.size))
    for name, where in places.items():
        where = where.ravel()
        for entry in rng.choice(where, min(entries // len(places) + 1, where.size),
                                replace=False):
            expected = derivative(entry)
            error = abs(found[entry] - expected)
            if not error <= rtol * abs(expected):
                raise WrongGradient(f"{name}[{entry}]: backward {found[entry]}, "
                                    f"complex step {expected}")
            if expected:
                worst = max(worst, error / abs(expected))
    return worst
