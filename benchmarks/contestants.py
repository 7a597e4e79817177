"""The same training step by different means, each in a process of its own.

    python3 -m benchmarks.contestants NAME TASK.npz

builds NAME's net from the task's weights, prints one JSON line (versions, seconds of
preparation, the gradient of the first batch as a file), then trains one epoch for every
line it is sent and answers with its seconds. `peers` does the asking.

The work is one for all: gather a batch, forward, mean cross-entropy, backward, the norm
of the whole gradient, clip, Adam. The frameworks get what suits them best: examples as
rows, H and T in one stacked product, fused Adam, a whole epoch under one jit.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

import highway_networks as hn


class Task:
    """What to train: weights by name, images (N, P), labels, and the batches' order."""

    def __init__(self, path):
        with np.load(path) as archive:
            arrays = dict(archive)
        self.settings = json.loads(str(arrays.pop("settings")))
        self.x, self.labels = arrays.pop("x"), arrays.pop("labels")
        self.order = arrays.pop("order")            # (steps, B) rows of x
        self.weights = arrays                       # as DeepNet.views names them
        self.lr, self.clip = 5e-3, 5.0

    def stacked(self):
        """Weights for examples as rows: [W_H; W_T] transposed (L, U, R), its biases
        (L, R), and the rest transposed too."""
        names = [n for n in ("H", "T") if "W_" + n in self.weights]
        W = np.concatenate([self.weights["W_" + n] for n in names], axis=1)
        b = np.concatenate([self.weights["b_" + n] for n in names], axis=1)
        w = self.weights
        return {"W_in": w["W_in"].T, "b_in": w["b_in"].ravel(),
                "W": W.transpose(0, 2, 1), "b": b,
                "W_out": w["W_out"].T, "b_out": w["b_out"]}

    def unstacked(self, grads):
        """The gradient of `stacked` weights -> by the names of `weights`."""
        U = self.settings["hidden"]
        named = {"W_in": grads["W_in"].T, "b_in": grads["b_in"][:, None],
                 "W_out": grads["W_out"].T, "b_out": grads["b_out"]}
        for k, name in enumerate("HT"[:grads["b"].shape[1] // U]):
            rows = slice(k * U, (k + 1) * U)
            named["W_" + name] = grads["W"][:, :, rows].transpose(0, 2, 1)
            named["b_" + name] = grads["b"][:, rows]
        return named


class Ours:
    """This suite's `train_step`."""

    def __init__(self, task):
        self.task = task
        self.net = hn.DeepNet(**task.settings)
        for name, view in self.net.views(self.net.params).items():
            view[...] = task.weights[name]
        self.cache = self.net.cache(task.order.shape[1])
        self.adam = hn.Adam(self.net.params)
        self.rows = np.empty((task.order.shape[1], task.x.shape[1]), np.float32)
        self.versions = {"numpy": np.__version__}

    def gradient(self):
        chosen = self.task.order[0]
        logits, _ = self.net.forward(self.task.x[chosen].T, self.cache)
        dlogits = hn.cross_entropy(logits, self.task.labels[chosen])[1]
        return self.net.views(self.net.backward(dlogits, self.cache))

    def epoch(self):
        for chosen in self.task.order:
            np.take(self.task.x, chosen, axis=0, out=self.rows, mode="clip")
            hn.train_step(self.net, self.rows.T, self.task.labels[chosen], self.cache,
                          self.adam, self.task.lr, self.task.clip)


class Floor(Ours):
    """The matrix products of `Ours` alone: no element-wise work, no optimiser."""

    def epoch(self):
        net, cache, x = self.net, self.cache, self.task.x[self.task.order[0]]
        W, dW, dlogits = cache.weights, cache.dW, np.ones_like(cache.logits)
        for _ in self.task.order:
            np.matmul(W["W_in"], x.T, out=cache.d)
            for block, _, _, x1, _, _, z, _, _, _ in cache.layers:
                np.matmul(block, x1, out=z)
            np.matmul(W["out"], cache.x[-1], out=cache.logits)
            np.matmul(dlogits, cache.x[-1].T, out=dW["out"])
            np.matmul(W["out"][:, :net.hidden].T, dlogits, out=cache.d)
            for _, back, dblock, x1, _, _, z, _, _, _ in reversed(cache.layers):
                np.matmul(z, x1.T, out=dblock)
                np.matmul(back, z, out=cache.dH)
            np.matmul(cache.d, x, out=dW["W_in"])


class TorchEager:
    """PyTorch, operation by operation, with fused Adam."""

    def __init__(self, task):
        import torch
        self.torch, self.task = torch, task
        torch.set_num_threads(len(hn.os.sched_getaffinity(0)))
        self.weights = {name: torch.tensor(np.ascontiguousarray(value),
                                           requires_grad=True)
                        for name, value in task.stacked().items()}
        self.x, self.order = torch.tensor(task.x), torch.tensor(task.order)
        self.labels = torch.tensor(task.labels)
        self.adam = torch.optim.Adam(self.weights.values(), lr=task.lr, fused=True)
        self.loss = self.make_loss()
        self.versions = {"torch": torch.__version__}

    def make_loss(self):
        torch, U = self.torch, self.task.settings["hidden"]

        def loss(w, x, labels):
            h = torch.tanh(torch.addmm(w["b_in"], x, w["W_in"]))
            for W, b in zip(w["W"].unbind(), w["b"].unbind()):
                z = torch.addmm(b, h, W)
                H = torch.tanh(z[:, :U])
                h = H if z.shape[1] == U else torch.lerp(h, H, torch.sigmoid(z[:, U:]))
            logits = torch.addmm(w["b_out"], h, w["W_out"])
            return torch.nn.functional.cross_entropy(logits, labels)
        return loss

    def backward(self, chosen):
        self.adam.zero_grad()
        self.loss(self.weights, self.x[chosen], self.labels[chosen]).backward()

    def gradient(self):
        self.backward(self.order[0])
        return self.task.unstacked({name: weight.grad.numpy()
                                    for name, weight in self.weights.items()})

    def epoch(self):
        for chosen in self.order:
            self.backward(chosen)
            self.torch.nn.utils.clip_grad_norm_(self.weights.values(), self.task.clip)
            self.adam.step()


class TorchCompiled(TorchEager):
    """PyTorch with torch.compile around the loss, so around its backward pass too."""

    def make_loss(self):
        return self.torch.compile(super().make_loss())


class Jax:
    """JAX with a whole epoch, batches gathered inside, under one jit, and optax."""

    unroll = True       # the layers as straight code; False: lax.scan over them

    def __init__(self, task):
        import jax
        import optax
        self.jax, self.task = jax, task
        self.adam = optax.chain(optax.clip_by_global_norm(task.clip),
                                optax.adam(task.lr))
        self.weights = {k: jax.numpy.asarray(v) for k, v in task.stacked().items()}
        self.state = self.adam.init(self.weights)
        self.x, self.labels, self.order = map(
            jax.numpy.asarray, (task.x, task.labels, task.order))
        self.run = jax.jit(self.make_epoch(), donate_argnums=(0, 1))
        self.versions = {"jax": jax.__version__, "optax": optax.__version__}

    def loss(self, w, x, labels):
        jax, U = self.jax, self.task.settings["hidden"]

        def layer(h, W_b):
            z = h @ W_b[0] + W_b[1]
            H = jax.numpy.tanh(z[:, :U])
            if z.shape[1] == U:
                return H, None
            return h + jax.nn.sigmoid(z[:, U:]) * (H - h), None
        h = jax.numpy.tanh(x @ w["W_in"] + w["b_in"])
        if self.unroll:
            for l in range(w["W"].shape[0]):
                h, _ = layer(h, (w["W"][l], w["b"][l]))
        else:
            h, _ = jax.lax.scan(layer, h, (w["W"], w["b"]))
        logp = jax.nn.log_softmax(h @ w["W_out"] + w["b_out"])
        return -logp[jax.numpy.arange(len(labels)), labels].mean()

    def make_epoch(self):
        jax = self.jax

        def epoch(weights, state, x, labels, order):
            def step(carry, chosen):
                weights, state = carry
                loss, grads = jax.value_and_grad(self.loss)(weights, x[chosen],
                                                            labels[chosen])
                updates, state = self.adam.update(grads, state, weights)
                weights = jax.tree.map(jax.numpy.add, weights, updates)
                return (weights, state), loss
            return jax.lax.scan(step, (weights, state), order)
        return epoch

    def gradient(self):
        chosen = self.task.order[0]
        grads = self.jax.grad(self.loss)(self.weights, self.x[chosen],
                                         self.labels[chosen])
        return self.task.unstacked({k: np.asarray(v) for k, v in grads.items()})

    def epoch(self):
        (self.weights, self.state), losses = self.run(self.weights, self.state, self.x,
                                                      self.labels, self.order)
        losses.block_until_ready()


class JaxScan(Jax):
    """JAX with lax.scan over the layers: compiles in seconds at any depth."""

    unroll = False


CONTESTANTS = {"ours": Ours, "floor": Floor, "torch": TorchEager,
               "torch.compile": TorchCompiled, "jax": Jax, "jax scan": JaxScan}


def main(name, path):
    """Answer on stdout; see the module's docstring."""
    with hn.threadpool_limits(1, "blas"):
        contestant = CONTESTANTS[name](Task(path))
        gradient = str(Path(path).with_suffix(f".{name.replace(' ', '_')}.npz"))
        np.savez(gradient, **contestant.gradient())
        begin = time.perf_counter()
        contestant.epoch()
        first = time.perf_counter() - begin
        print(json.dumps({"versions": contestant.versions, "gradient": gradient,
                          "first_epoch": first}), flush=True)
        for _ in sys.stdin:
            begin = time.perf_counter()
            contestant.epoch()
            print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
