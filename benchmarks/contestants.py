"""The same training step by different means, each in a process of its own.

    python3 -m benchmarks.contestants NAME FOLDER/TASK.npz

builds NAME's net, trains one epoch, prints one JSON line (versions, seconds of that
first epoch), then obeys the commands on stdin, a line each, and answers with a line of
JSON. `peers`, `scaling` and `cold_start` do the asking.

    epoch           train one more -> its seconds
    gradient FILE   write the gradient of the first batch at the initial weights
    weights FILE    write the weights as they are now
    parts           train two more -> seconds of each part of a step ("floor" only)
    memory          -> the largest resident set of this process so far, in bytes
    environment     -> libraries, BLAS kernel and processor

The work is one for all, in float32: gather a batch from images in memory, forward, mean
cross-entropy, backward, the norm of the whole gradient, clip, Adam. Each framework gets
the fastest of the programs that were tried for it (depth 30, width 50, batch 128, one
core; PyTorch 2.13, JAX 0.10), with H and T in one stacked product:

    all             examples as columns: rows took 20 % longer in JAX's scan, 5 to 15 %
                    in PyTorch.
    PyTorch eager   fused Adam, foreach clipping. No faster: one parameter for each
                    layer, F.linear, x + T (H - x) for lerp, index_select.
    torch.compile   gather, gradient (torch.func.grad), clip and Adam in one graph. The
                    gradient alone compiled, before fused Adam, took 15 % longer; the
                    loss compiled and loss.backward() 50 %, and no less with
                    max-autotune-no-cudagraphs, cpp_wrapper, or clip and Adam compiled
                    apart.
    JAX             a whole epoch under one jit, its buffers donated, optax. The layers
                    by lax.scan ("jax scan") or as straight code ("jax"), which wins
                    where there are few and takes long to compile where there are many.
                    No faster: scan with unroll 2, 3, 5, 10; a jit for each step; all
                    weights in one vector; biases as a column of the weights; a sigmoid
                    made of tanh; Adam by hand; XLA's prefer_vector_width=512,
                    enable_fast_math, use_onednn. Slices W[l] of stacked weights cost
                    more than jnp.unstack: each one's gradient is as large as the stack.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import highway_networks as hn
from highway_suite.records import environment

LR, CLIP = 5e-3, 5.0                # of the headline
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


class Task:
    """What to train: a net's settings, the batches' order (steps, B), and from the file
    images.npz beside it x (N, P) and labels (N,)."""

    def __init__(self, path: str | Path):
        with np.load(path) as archive:
            self.settings = json.loads(str(archive["settings"]))
            self.order = archive["order"]
        with np.load(Path(path).with_name("images.npz")) as archive:
            self.x, self.labels = archive["x"], archive["labels"]

    @cached_property
    def initial(self) -> dict[str, np.ndarray]:
        """The weights to start from, as DeepNet.views names them."""
        net = hn.DeepNet(**self.settings)
        return net.views(net.params)

    def stacked(self) -> dict[str, np.ndarray]:
        """The initial weights with H and T as one: W (L, R, U), b (L, R, 1)."""
        w = self.initial
        W, b = (np.concatenate([w[kind + name] for name in "HT" if kind + name in w],
                               axis=1) for kind in ("W_", "b_"))
        return {"W_in": w["W_in"], "b_in": w["b_in"], "W": W, "b": b[:, :, None],
                "W_out": w["W_out"], "b_out": w["b_out"][:, None]}

    def unstacked(self, arrays: dict) -> dict[str, np.ndarray]:
        """Arrays laid out as `stacked` -> as `initial`."""
        U = self.settings["hidden"]
        named = {"W_in": arrays["W_in"], "b_in": arrays["b_in"],
                 "W_out": arrays["W_out"], "b_out": arrays["b_out"][:, 0]}
        for k, name in enumerate("HT"[:arrays["W"].shape[1] // U]):
            rows = slice(k * U, (k + 1) * U)
            named["W_" + name] = arrays["W"][:, rows]
            named["b_" + name] = arrays["b"][:, rows, 0]
        return named


class Ours:
    """This suite's `train_step`."""

    def __init__(self, task):
        self.task, batch = task, task.order.shape[1]
        self.net = hn.DeepNet(**task.settings)
        self.cache, self.adam = self.net.cache(batch), hn.Adam(self.net.params)
        self.rows = np.empty((batch, task.x.shape[1]), np.float32)
        self.versions = {"numpy": np.__version__}

    def gradient(self) -> dict[str, np.ndarray]:
        net, chosen = hn.DeepNet(**self.task.settings), self.task.order[0]
        logits, cache = net.forward(self.task.x[chosen].T)
        dlogits = hn.cross_entropy(logits, self.task.labels[chosen])[1]
        return net.views(net.backward(dlogits, cache))

    def weights(self) -> dict[str, np.ndarray]:
        return self.net.views(self.net.params)

    def gather(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        np.take(self.task.x, chosen, axis=0, out=self.rows, mode="clip")
        return self.rows.T, self.task.labels[chosen]

    def epoch(self):
        for chosen in self.task.order:
            hn.train_step(self.net, self.gather(chosen), self.cache, self.adam, LR,
                          CLIP)


class Floor(Ours):
    """The matrix products of `Ours` alone: no element-wise work, no optimiser."""

    def __init__(self, task):
        super().__init__(task)
        self.gather(task.order[0])      # what lay there may be slow to multiply

    def forward_products(self):
        cache = self.cache
        np.matmul(cache.weights["W_in"], self.rows.T, out=cache.d)
        for layer in cache.layers:
            np.matmul(layer.W, layer.x1, out=layer.z)
        np.matmul(cache.weights["out"], cache.x[-1], out=cache.logits)

    def backward_products(self):
        net, cache, dlogits = self.net, self.cache, self.cache.logits
        np.matmul(dlogits, cache.x[-1].T, out=cache.dW["out"])
        np.matmul(cache.weights["out"][:, :net.hidden].T, dlogits, out=cache.d)
        for layer in reversed(cache.layers):
            np.matmul(layer.z, layer.x1.T, out=layer.dW)
            np.matmul(layer.W_back, layer.z, out=cache.dH)
        np.matmul(cache.d, self.rows, out=cache.dW["W_in"])

    def epoch(self):
        for _ in self.task.order:
            self.forward_products()
            self.backward_products()

    def parts(self) -> dict[str, float]:
        """Seconds that an epoch spends in each part of the step, and in `train_step`
        undivided. Element-wise work is what a pass takes beyond its bare products."""
        net, cache, laps = self.net, self.cache, Laps()
        for chosen in self.task.order:
            laps.start()
            x, labels = self.gather(chosen)
            laps.end("gather")
            logits, _ = net.forward(x, cache)
            laps.end("forward")
            np.count_nonzero(logits.argmax(axis=0) == labels)
            dlogits = hn.cross_entropy(logits, labels)[1]
            laps.end("loss")
            grad = net.backward(dlogits, cache)
            laps.end("backward")
            hn.clip_norm(grad, CLIP)
            laps.end("clip")
            self.adam.step(net.params, grad, LR)
            laps.end("Adam")
        for _ in self.task.order:
            laps.start()
            self.forward_products()
            laps.end("forward products")
            self.backward_products()
            laps.end("backward products")
        laps.start()
        Ours.epoch(self)
        laps.end("step")
        for way in ("forward", "backward"):
            laps.seconds[way + " element-wise"] = (
                laps.seconds.pop(way) - laps.seconds[way + " products"])
        return laps.seconds


class Laps:
    """A stopwatch: seconds by name, added up."""

    def __init__(self):
        self.seconds, self.begin = {}, None

    def start(self):
        self.begin = time.perf_counter()

    def end(self, name):
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.begin
        self.begin = now


class TorchEager:
    """PyTorch, operation by operation, with fused Adam."""

    def __init__(self, task):
        import torch
        self.torch, self.task = torch, task
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.x, self.labels, self.order = map(
            torch.tensor, (task.x, task.labels, task.order))
        self.params = self.fresh()
        self.adam = torch.optim.Adam(self.params.values(), lr=LR, betas=(BETA1, BETA2),
                                     eps=EPS, fused=True)
        self.versions = {"torch": torch.__version__}

    def fresh(self) -> dict:
        return {name: self.torch.tensor(np.ascontiguousarray(value), requires_grad=True)
                for name, value in self.task.stacked().items()}

    def loss(self, w: dict, x: Any, labels: Any) -> Any:
        torch = self.torch
        h = torch.tanh(torch.addmm(w["b_in"], w["W_in"], x.T))
        for W, b in zip(w["W"].unbind(), w["b"].unbind(), strict=True):
            z = torch.addmm(b, W, h)
            if len(z) == len(h):
                h = torch.tanh(z)
            else:
                z_H, z_T = z.chunk(2)
                h = torch.lerp(h, torch.tanh(z_H), torch.sigmoid(z_T))
        logits = torch.addmm(w["b_out"], w["W_out"], h)
        return torch.nn.functional.cross_entropy(logits.T, labels)

    def backward(self, params: dict, chosen: Any) -> None:
        self.loss(params, self.x[chosen], self.labels[chosen]).backward()

    def gradient(self) -> dict[str, np.ndarray]:
        params = self.fresh()
        self.backward(params, self.order[0])
        return self.task.unstacked({k: w.grad.numpy() for k, w in params.items()})

    def weights(self) -> dict[str, np.ndarray]:
        return self.task.unstacked({k: w.detach().numpy()
                                    for k, w in self.params.items()})

    def epoch(self):
        params = list(self.params.values())
        for chosen in self.order:
            self.adam.zero_grad()
            self.backward(self.params, chosen)
            self.torch.nn.utils.clip_grad_norm_(params, CLIP, foreach=True)
            self.adam.step()


class TorchCompiled(TorchEager):
    """PyTorch with the whole step as one graph under torch.compile."""

    def __init__(self, task):
        super().__init__(task)
        torch, grad = self.torch, self.torch.func.grad(self.loss)
        self.params = {name: w.detach() for name, w in self.params.items()}
        self.m, self.v = ({name: torch.zeros_like(w) for name, w in self.params.items()}
                          for _ in range(2))
        self.steps = torch.zeros(())

        @torch.compile
        def step(params, m, v, steps, x, labels, chosen):
            grads = grad(params, x[chosen], labels[chosen])
            norm = torch.sqrt(sum((g * g).sum() for g in grads.values()))
            scale = torch.clamp(CLIP / norm, max=1.0)
            steps += 1
            first = LR / (1 - BETA1 ** steps)
            second = torch.sqrt(1 - BETA2 ** steps)
            for name, w in params.items():
                g = scale * grads[name]
                m[name].lerp_(g, 1 - BETA1)
                v[name].mul_(BETA2).addcmul_(g, g, value=1 - BETA2)
                w.sub_(first * m[name] / (torch.sqrt(v[name]) / second + EPS))
        self.step = step

    def epoch(self):
        for chosen in self.order:
            self.step(self.params, self.m, self.v, self.steps, self.x, self.labels,
                      chosen)


class Jax:
    """JAX with a whole epoch under one jit, the layers as straight code."""

    def __init__(self, task):
        import jax
        import optax
        self.jax, self.task = jax, task
        self.adam = optax.chain(optax.clip_by_global_norm(CLIP),
                                optax.adam(LR, BETA1, BETA2, EPS))
        self.params = self.fresh()
        self.state = self.adam.init(self.params)
        self.x, self.labels, self.order = map(
            jax.numpy.asarray, (task.x, task.labels, task.order))
        self.run = jax.jit(self.many_steps, donate_argnums=(0, 1))
        self.versions = {"jax": jax.__version__, "optax": optax.__version__}

    def fresh(self) -> dict:
        return {name: self.jax.numpy.asarray(value)
                for name, value in self.task.stacked().items()}

    def layer(self, h: Any, W: Any, b: Any) -> Any:
        jax, U, z = self.jax, len(h), W @ h + b
        H = jax.numpy.tanh(z[:U])
        return H if len(z) == U else h + jax.nn.sigmoid(z[U:]) * (H - h)

    def layers(self, h: Any, W: Any, b: Any) -> Any:
        for one_W, one_b in zip(*map(self.jax.numpy.unstack, (W, b)), strict=True):
            h = self.layer(h, one_W, one_b)
        return h

    def loss(self, w: dict, x: Any, labels: Any) -> Any:
        jax = self.jax
        h = jax.numpy.tanh(w["W_in"] @ x.T + w["b_in"])
        h = self.layers(h, w["W"], w["b"])
        logp = jax.nn.log_softmax(w["W_out"] @ h + w["b_out"], axis=0)
        return -logp[labels, jax.numpy.arange(len(labels))].mean()

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
        chosen = self.task.order[0]
        grads = self.jax.grad(self.loss)(self.fresh(), self.x[chosen],
                                         self.labels[chosen])
        return self.task.unstacked({k: np.asarray(g) for k, g in grads.items()})

    def weights(self) -> dict[str, np.ndarray]:
        return self.task.unstacked({k: np.asarray(w) for k, w in self.params.items()})

    def epoch(self):
        (self.params, self.state), losses = self.run(self.params, self.state, self.x,
                                                     self.labels, self.order)
        self.jax.block_until_ready((self.params, self.state, losses))


class JaxScan(Jax):
    """JAX with lax.scan over the layers: compiles as fast at any depth."""

    def layers(self, h: Any, W: Any, b: Any) -> Any:
        return self.jax.lax.scan(lambda h, W_b: (self.layer(h, *W_b), None),
                                 h, (W, b))[0]


CONTESTANTS = {"ours": Ours, "floor": Floor, "torch": TorchEager,
               "torch.compile": TorchCompiled, "jax": Jax, "jax scan": JaxScan}


def peak_memory() -> int | None:
    """The largest resident set of this process so far, in bytes: Python, libraries,
    data and net, all that was ever there at once. None where the system does not say.
    """
    try:        # ru_maxrss would count what the parent had when it started us
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def machine() -> dict:
    """The environment of a record, and the processor's model."""
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        _, found, rest = info.partition("model name")
        model = rest.split("\n")[0].strip("\t :") if found else None
    except OSError:
        model = None
    return {**environment(), "cpu": model or platform.processor() or None}


def obey(contestant: Any, command: str) -> Any:
    """One command -> its answer; see the module's docstring."""
    word, _, path = command.strip().partition(" ")
    if word == "epoch":
        begin = time.perf_counter()
        contestant.epoch()
        return time.perf_counter() - begin
    if word in ("gradient", "weights"):
        np.savez(path, **getattr(contestant, word)())
        return path
    return {"parts": lambda: contestant.parts(), "memory": peak_memory,
            "environment": machine}[word]()


def main(name: str, path: str) -> None:
    """Serve one contestant on stdin and stdout."""
    with threadpool_limits(1, "blas"):       # NumPy's; the others load theirs later
        contestant: Any = CONTESTANTS[name](Task(path))
        first = obey(contestant, "epoch")
        print(json.dumps({"versions": contestant.versions, "first_epoch": first}),
              flush=True)
        for command in sys.stdin:
            print(json.dumps(obey(contestant, command)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
