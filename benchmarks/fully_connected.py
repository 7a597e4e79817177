"""The fully connected training step: ours against PyTorch, JAX and scikit-learn.

A step gathers a batch from images in memory, and does forward, mean cross-entropy,
backward, the norm of the whole gradient, clip and Adam. scikit-learn's MLPClassifier
has no gates and clips nothing: it meets plain nets, which do not clip either. Images
and labels are drawn at random, so that no data set is needed.

Each framework gets the fastest of the programs that were tried for it (30 blocks of 50
units, batch 128, one core; PyTorch 2.13, JAX 0.10), with H and T in one stacked
product:

    all             examples as columns: rows took 20 % longer in JAX's scan, 5 to 15 %
                    in PyTorch.
    PyTorch         fused Adam, foreach clipping. No faster: one parameter for each
                    layer, F.linear, x + T (H - x) for lerp, index_select.
    compiled        gather, gradient (torch.func.grad), clip and Adam in one graph. The
                    gradient alone compiled, before fused Adam, took 15 % longer; the
                    loss compiled and loss.backward() 50 %, and no less with
                    max-autotune-no-cudagraphs, cpp_wrapper, or clip and Adam compiled
                    apart.
    JAX             a whole epoch under one jit, its buffers donated, optax; the layers
                    by lax.scan. No faster: the layers as straight code; scan with
                    unroll 2, 3, 5, 10; a jit for each step; all weights in one vector;
                    biases as a column of the weights; a sigmoid made of tanh; Adam by
                    hand; XLA's prefer_vector_width=512, enable_fast_math, use_onednn.
    scikit-learn    one partial_fit for each epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import highway_networks as hn
from benchmarks.harness import Contest, Contestant

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Task:
    """A net's settings, and for each step of an epoch a batch: rows of order (steps,
    B), of x (N, P) and labels (N,). clip: 0 for none."""

    def __init__(self, dtype: str, *, steps: int, batch: int = 128, lr: float = 5e-3,
                 clip: float = 5.0, images: int = 6000, inputs: int = 784, **net: Any):
        rng = np.random.default_rng(0)
        self.net: dict[str, Any] = {"inputs": inputs, "dtype": dtype, **net}
        self.x = rng.uniform(-1, 1, (images, inputs)).astype(dtype)
        self.labels = rng.integers(10, size=images)
        self.order = rng.integers(images, size=(steps, batch))
        self.lr, self.clip = lr, clip

    def first_batch(self) -> tuple[np.ndarray, np.ndarray]:
        """x (B, P) and labels (B,)."""
        return self.x[self.order[0]], self.labels[self.order[0]]

    def stacked(self) -> dict[str, np.ndarray]:
        """The initial weights with H and T as one: W (L, R, U), b (L, R, 1)."""
        net = hn.DeepNet(**self.net)
        w = net.views(net.params)
        W, b = (np.concatenate([w[kind + name] for name in "HT" if kind + name in w],
                               axis=1) for kind in ("W_", "b_"))
        return {"W_in": w["W_in"], "b_in": w["b_in"], "W": W, "b": b[:, :, None],
                "W_out": w["W_out"], "b_out": w["b_out"][:, None]}

    def unstacked(self, arrays: dict) -> dict[str, np.ndarray]:
        """Arrays laid out as `stacked` -> as DeepNet.views names them."""
        U = self.net["hidden"]
        named = {"W_in": arrays["W_in"], "b_in": arrays["b_in"],
                 "W_out": arrays["W_out"], "b_out": arrays["b_out"][:, 0]}
        for k, name in enumerate("HT"[:arrays["W"].shape[1] // U]):
            rows = slice(k * U, (k + 1) * U)
            named["W_" + name] = arrays["W"][:, rows]
            named["b_" + name] = arrays["b"][:, rows, 0]
        return named


# --------------------------------------------------------------------------------------
# NumPy


class Ours:
    """This suite's `train_step`."""

    def __init__(self, task: Task):
        self.task, batch = task, task.order.shape[1]
        self.net = hn.DeepNet(**task.net)
        self.cache, self.adam = self.net.cache(batch), hn.Adam(self.net.params)
        self.rows = np.empty((batch, task.x.shape[1]), task.x.dtype)

    def gradient(self) -> dict[str, np.ndarray]:
        x, labels = self.task.first_batch()
        _, grad = self.net.gradient((x.T, labels), self.cache)
        return self.net.views(grad)

    def weights(self) -> dict[str, np.ndarray]:
        return self.net.views(self.net.params)

    def answer(self, row: np.ndarray) -> np.ndarray:
        return self.net.predict_proba(row)

    def work(self) -> None:
        for chosen in self.task.order:
            np.take(self.task.x, chosen, axis=0, out=self.rows, mode="clip")
            batch = self.rows.T, self.task.labels[chosen]
            hn.train_step(self.net, batch, self.cache, self.adam, self.task.lr,
                          self.task.clip)


class Products(Ours):
    """The matrix products of `Ours` alone: no element-wise work, no optimiser."""

    def __init__(self, task: Task):
        super().__init__(task)
        self.gradient()                 # what lay there may be slow to multiply
        self.rows[...] = task.first_batch()[0]

    def forward(self) -> None:
        cache = self.cache
        np.matmul(cache.weights["W_in"], self.rows.T, out=cache.d)
        for layer in cache.layers:
            np.matmul(layer.W, layer.x1, out=layer.z)
        np.matmul(cache.weights["out"], cache.x[-1], out=cache.logits)

    def backward(self) -> None:
        net, cache, dlogits = self.net, self.cache, self.cache.logits
        np.matmul(dlogits, cache.x[-1].T, out=cache.dW["out"])
        np.matmul(cache.weights["out"][:, :net.hidden].T, dlogits, out=cache.d)
        for layer in reversed(cache.layers):
            np.matmul(layer.z, layer.x1.T, out=layer.dW)
            np.matmul(layer.W_back, layer.z, out=cache.dH)
        np.matmul(cache.d, self.rows, out=cache.dW["W_in"])

    def work(self) -> None:
        for _ in self.task.order:
            self.forward()
            self.backward()


class ScikitLearn:
    """MLPClassifier from our weights, an epoch by one partial_fit."""

    def __init__(self, task: Task):
        self.task = task
        rows = task.order.ravel()
        self.x, self.labels = task.x[rows], task.labels[rows]
        self.net = self.make(solver="adam", learning_rate_init=task.lr)

    def make(self, **options: Any) -> Any:
        """A net that starts from our weights."""
        from sklearn.neural_network import MLPClassifier
        start = self.task.stacked()
        layers = len(start["W"]) + 1
        net = MLPClassifier((self.task.net["hidden"],) * layers, activation="tanh",
                            alpha=0.0, batch_size=self.task.order.shape[1],
                            beta_1=BETA1, beta_2=BETA2, epsilon=EPS,
                            random_state=0, **options)
        net.partial_fit(*self.task.first_batch(), classes=np.arange(10))
        W = [start["W_in"], *start["W"], start["W_out"]]
        b = [start["b_in"], *start["b"], start["b_out"]]
        for own, ours in zip(net.coefs_ + net.intercepts_,
                             [w.T for w in W] + [w[:, 0] for w in b], strict=True):
            own[...] = ours
        return net

    def gradient(self) -> dict[str, np.ndarray]:
        """What a step of plain gradient descent takes from the weights."""
        net = self.make(solver="sgd", learning_rate_init=1.0, momentum=0.0)
        before = [own.copy() for own in net.coefs_ + net.intercepts_]
        net.partial_fit(*self.task.first_batch())
        taken = [old - new for old, new in zip(
            before, net.coefs_ + net.intercepts_, strict=True)]
        W, b = taken[:len(net.coefs_)], taken[len(net.coefs_):]
        return self.task.unstacked({
            "W_in": W[0].T, "b_in": b[0][:, None],
            "W": np.array([w.T for w in W[1:-1]]), "b": np.array(b[1:-1])[:, :, None],
            "W_out": W[-1].T, "b_out": b[-1][:, None]})

    def work(self) -> None:
        self.net.partial_fit(self.x, self.labels)


# --------------------------------------------------------------------------------------
# PyTorch


class Torch:
    """PyTorch, operation by operation, with fused Adam."""

    def __init__(self, task: Task):
        import torch
        self.torch, self.task = torch, task
        self.x, self.labels, self.order = map(
            torch.tensor, (task.x, task.labels, task.order))
        self.params, self.forward = self.fresh(), self.logits
        self.adam = torch.optim.Adam(self.params.values(), lr=task.lr,
                                     betas=(BETA1, BETA2), eps=EPS, fused=True)

    def fresh(self) -> dict:
        return {name: self.torch.tensor(np.ascontiguousarray(value), requires_grad=True)
                for name, value in self.task.stacked().items()}

    def logits(self, w: dict, x: Any) -> Any:
        torch = self.torch
        h = torch.tanh(torch.addmm(w["b_in"], w["W_in"], x.T))
        for W, b in zip(w["W"].unbind(), w["b"].unbind(), strict=True):
            z = torch.addmm(b, W, h)
            if len(z) == len(h):
                h = torch.tanh(z)
            else:
                z_H, z_T = z.chunk(2)
                h = torch.lerp(h, torch.tanh(z_H), torch.sigmoid(z_T))
        return torch.addmm(w["b_out"], w["W_out"], h).T

    def loss(self, w: dict, x: Any, labels: Any) -> Any:
        return self.torch.nn.functional.cross_entropy(self.logits(w, x), labels)

    def answer(self, row: np.ndarray) -> np.ndarray:
        with self.torch.no_grad():
            return self.forward(self.params, self.torch.from_numpy(row)).softmax(
                1).numpy()

    def backward(self, params: dict, chosen: Any) -> None:
        self.loss(params, self.x[chosen], self.labels[chosen]).backward()

    def gradient(self) -> dict[str, np.ndarray]:
        params = self.fresh()
        self.backward(params, self.order[0])
        return self.task.unstacked({k: w.grad.numpy() for k, w in params.items()})

    def weights(self) -> dict[str, np.ndarray]:
        return self.task.unstacked({k: w.detach().numpy()
                                    for k, w in self.params.items()})

    def work(self) -> None:
        params = list(self.params.values())
        for chosen in self.order:
            self.adam.zero_grad()
            self.backward(self.params, chosen)
            if self.task.clip:
                self.torch.nn.utils.clip_grad_norm_(params, self.task.clip,
                                                    foreach=True)
            self.adam.step()


class TorchCompiled(Torch):
    """PyTorch with the whole step as one graph under torch.compile."""

    def __init__(self, task: Task):
        super().__init__(task)
        torch, grad = self.torch, self.torch.func.grad(self.loss)
        lr, clip = task.lr, task.clip
        self.params = {name: w.detach() for name, w in self.params.items()}
        self.m, self.v = ({name: torch.zeros_like(w) for name, w in self.params.items()}
                          for _ in range(2))
        self.steps = torch.zeros(())

        @torch.compile
        def step(params, m, v, steps, x, labels, chosen):
            grads = grad(params, x[chosen], labels[chosen])
            norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))
            scale = torch.clamp(clip / norm, max=1.0)
            steps += 1
            first = lr / (1 - BETA1 ** steps)
            second = torch.sqrt(1 - BETA2 ** steps)
            for name, w in params.items():
                g = scale * grads[name]
                m[name].lerp_(g, 1 - BETA1)
                v[name].mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                w.sub_(first * m[name] / (torch.sqrt(v[name]) / second + EPS))
        self.step, self.forward = step, torch.compile(self.logits)

    def work(self) -> None:
        for chosen in self.order:
            self.step(self.params, self.m, self.v, self.steps, self.x, self.labels,
                      chosen)


# --------------------------------------------------------------------------------------
# JAX


class Jax:
    """JAX with a whole epoch under one jit, the layers by lax.scan."""

    def __init__(self, task: Task):
        import jax
        import optax
        self.jax, self.task = jax, task
        self.adam = optax.chain(optax.clip_by_global_norm(task.clip),
                                optax.adam(task.lr, BETA1, BETA2, EPS))
        self.params = self.fresh()
        self.state = self.adam.init(self.params)
        self.x, self.labels, self.order = map(
            jax.numpy.asarray, (task.x, task.labels, task.order))
        self.run = jax.jit(self.many_steps, donate_argnums=(0, 1))
        self.answers = jax.jit(lambda w, x: jax.nn.softmax(self.logits(w, x)))

    def fresh(self) -> dict:
        return {name: self.jax.numpy.asarray(value)
                for name, value in self.task.stacked().items()}

    def layer(self, h: Any, W_b: tuple) -> tuple[Any, None]:
        jax, (W, b) = self.jax, W_b
        U, z = len(h), W @ h + b
        H = jax.numpy.tanh(z[:U])
        return (H if len(z) == U else h + jax.nn.sigmoid(z[U:]) * (H - h)), None

    def logits(self, w: dict, x: Any) -> Any:
        jax = self.jax
        h = jax.numpy.tanh(w["W_in"] @ x.T + w["b_in"])
        h, _ = jax.lax.scan(self.layer, h, (w["W"], w["b"]))
        return (w["W_out"] @ h + w["b_out"]).T

    def loss(self, w: dict, x: Any, labels: Any) -> Any:
        logp = self.jax.nn.log_softmax(self.logits(w, x), axis=1)
        return -logp[self.jax.numpy.arange(len(labels)), labels].mean()

    def answer(self, row: np.ndarray) -> np.ndarray:
        return np.asarray(self.answers(self.params, row))

    def many_steps(self, params: dict, state: Any, x: Any, labels: Any, order: Any
                   ) -> Any:
        jax = self.jax

        def step(carry, chosen):
            params, state = carry
            loss, grads = jax.value_and_grad(self.loss)(params, x[chosen],
                                                        labels[chosen])
            updates, state = self.adam.update(grads, state, params)
            return (jax.tree.map(jax.numpy.add, params, updates), state), loss
        return jax.lax.scan(step, (params, state), order)

    def gradient(self) -> dict[str, np.ndarray]:
        grads = self.jax.grad(self.loss)(self.fresh(), *self.task.first_batch())
        return self.task.unstacked({k: np.asarray(g) for k, g in grads.items()})

    def weights(self) -> dict[str, np.ndarray]:
        return self.task.unstacked({k: np.asarray(w) for k, w in self.params.items()})

    def work(self) -> None:
        (self.params, self.state), losses = self.run(self.params, self.state, self.x,
                                                     self.labels, self.order)
        self.jax.block_until_ready((self.params, self.state, losses))


# --------------------------------------------------------------------------------------
# The contests


OURS, PRODUCTS = Contestant(Ours), Contestant(Products, rival=False)
FRAMEWORKS = {"PyTorch": Contestant(Torch, ("torch",)),
              "PyTorch compiled": Contestant(TorchCompiled, ("torch", "c++")),
              "JAX": Contestant(Jax, ("jax", "optax"))}
SCIKIT_LEARN = {"scikit-learn": Contestant(ScikitLearn, ("sklearn",))}


def contest(contestants: dict[str, Contestant], *, threads: int = 1,
            checked_in: str = "float32", **settings: Any) -> Contest:
    """The contest on a Task of these settings."""
    return Contest(lambda dtype: Task(dtype, **settings), {"ours": OURS, **contestants},
                   settings, settings["steps"], threads, checked_in)


def plain(depth: int) -> Contest:
    """What scikit-learn can do: no gates, no clip; Glorot's weights, which learn."""
    return contest({"products": PRODUCTS, **SCIKIT_LEARN}, checked_in="float64",
                   block="plain", depth=depth, hidden=50, init="glorot", lr=1e-3,
                   clip=0.0, steps=46)


CONTESTS = {
    "highway, 30 blocks of 50": contest({"products": PRODUCTS, **FRAMEWORKS},
                                        block="highway", depth=30, hidden=50, steps=46),
    "plain, 3 blocks of 50": plain(3),
    "plain, 30 blocks of 50": plain(30),
    "highway, 5 blocks of 1000, two threads": contest(
        {"PyTorch": FRAMEWORKS["PyTorch"]}, threads=2, block="highway", depth=5,
        hidden=1000, steps=3)}
