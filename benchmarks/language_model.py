"""The language model's training step: ours against PyTorch.

The net is the one of the language experiment with one highway layer. Nobody needs its
text for this: 10,000 words of random letters, as long as English ones, are drawn by
Zipf's law, which gives a batch of 700 about as many distinct words as newspapers do,
360. A step is all of it: distinct words, dropout, forward, loss, backward, the
gradient's norm, the update. For the comparison of gradients nothing is dropped.

PyTorch has nn.LSTM; characters and highway layer, as ours, once for each distinct word;
fused cross-entropy, foreach clipping and SGD.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import highway_networks as hn
from benchmarks.harness import Contest, Contestant
from experiments.nets.recurrent import Batch, LanguageModel

STEPS = 3               # of a round
LR, CLIP = 1.0, 5.0
WORDS, CHARACTERS, PLACES = 10_000, 51, 21


class Task:
    """A net's arguments and a few batches."""

    def __init__(self, batch: int = 20, steps: int = 35, *, block: str = "highway",
                 depth: int = 1, words: int = WORDS, characters: int = CHARACTERS,
                 places: int = PLACES, dtype: str = "float32", **sizes: Any):
        rng = np.random.default_rng(0)
        self.batch, self.steps = batch, steps
        # Random words (V, P), the longest first; their lengths as in English.
        lengths = np.sort(np.clip(np.rint(rng.normal(9.5, 2.8, words)), 3, places))
        letters = rng.integers(1, characters, (words, places))
        letters[0, 0] = characters - 1              # the last character occurs
        self.spelling = np.where(np.arange(places) < lengths[::-1, None], letters, 0)
        self.net: dict[str, Any] = {"block": block, "depth": depth, "dtype": dtype,
                                    **sizes}
        zipf = 1 / np.arange(1, words + 1)
        text = rng.permutation(words)[rng.choice(
            words, size=(STEPS * steps + 1, batch), p=zipf / zipf.sum())]
        self.batches = [Batch(text[t:t + steps], text[t + 1:t + steps + 1], t == 0)
                        for t in range(0, STEPS * steps, steps)]


class Ours:
    """This suite's step."""

    def __init__(self, task: Task):
        self.task, self.net = task, LanguageModel(task.spelling, **task.net)
        self.cache = self.net.cache(task.batch, task.steps)
        self.optimizer = hn.SGD(self.net.params, momentum=0)
        self.rng = np.random.default_rng(0)

    def gradient(self) -> dict[str, np.ndarray]:
        """Of the last batch after the first ones, with nothing dropped, by name."""
        for batch in self.task.batches:
            self.net.forward(batch, self.cache)
        return self.net.views(self.net.backward(self.cache))

    def work(self) -> None:
        for batch in self.task.batches:
            hn.train_step(self.net, batch._replace(rng=self.rng), self.cache,
                          self.optimizer, LR, CLIP)


class Torch:
    """PyTorch with its own LSTM."""

    def __init__(self, task: Task):
        import torch
        self.torch, self.task = torch, task
        self.net = LanguageModel(task.spelling, **task.net)
        self.spelling = torch.tensor(task.spelling)
        own = self.net.views(self.net.params)
        self.tensors = {name: torch.tensor(W).requires_grad_()
                        for name, W in self.theirs(own).items()}
        dtype, M = self.tensors["E"].dtype, self.net.units
        self.lstm = torch.nn.LSTM(self.net.features, M, 2, dropout=self.net.dropout,
                                  dtype=dtype)
        for name, parameter in self.lstm.named_parameters():
            # Its second bias, of the recurrent part, is held at 0: one is enough.
            parameter.requires_grad_(not name.startswith("bias_hh"))
            parameter.data = self.tensors.get(name, torch.zeros_like(parameter)).data
        self.tensors |= dict(self.lstm.named_parameters())
        self.learnt = [W for W in self.tensors.values() if W.requires_grad]
        self.state = torch.zeros(2, 2, task.batch, M, dtype=dtype)
        self.optimizer = torch.optim.SGD(self.learnt, lr=LR, foreach=True)

    def theirs(self, views: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Our tensors by PyTorch's names and shapes: biases apart, as it likes them, an
        LSTM's rows i, f, g, o."""
        own, M, c = dict(views), self.net.units, self.net.numbers
        order = np.r_[:2 * M, 3 * M:4 * M, 2 * M:3 * M]
        stacked = {"out": own.pop("W_out"), **{
            f"layer_{n}": W for n, W in enumerate(own.pop("layers"))}, **{
            f"ih_l{n - 1}": own.pop(f"W_{n}")[order] for n in (1, 2)}}
        for name, W in stacked.items():
            own[f"weight_{name}"] = W[:, :-1].copy()
            own[f"bias_{name}"] = W[:, -1].copy()
        for n in (1, 2):
            own[f"weight_hh_l{n - 1}"] = own.pop(f"W_h_{n}")[order]
        return own | {
            f"K_{k}": own[f"K_{k}"].reshape(-1, k, c).transpose(0, 2, 1).copy()
            for k in self.net.widths}

    def ours(self, W: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The way back: PyTorch's tensors as {name: array} of ours."""
        M, c = self.net.units, self.net.numbers
        order = np.r_[:2 * M, 3 * M:4 * M, 2 * M:3 * M]

        def stacked(name):
            return np.column_stack([W[f"weight_{name}"], W[f"bias_{name}"]])
        found = {name: W[name] for name in ("E", "b_K")} | {
            f"K_{k}": W[f"K_{k}"].transpose(0, 2, 1).reshape(-1, k * c)
            for k in self.net.widths}
        for n in (1, 2):
            found[f"W_{n}"] = stacked(f"ih_l{n - 1}")[order]
            found[f"W_h_{n}"] = W[f"weight_hh_l{n - 1}"][order]
        layers = [stacked(f"layer_{n}") for n in range(self.net.depth)]
        return found | {"W_out": stacked("out")} | (
            {"layers": np.array(layers)} if layers else {})

    def linear(self, name: str, x: Any) -> Any:
        """x W^T + b"""
        return self.torch.nn.functional.linear(
            x, self.tensors[f"weight_{name}"], self.tensors[f"bias_{name}"])

    def features(self, words: Any) -> Any:
        """Distinct words (D,) -> what the LSTM reads, (D, F)."""
        torch, W, F = self.torch, self.tensors, self.torch.nn.functional
        x = F.embedding(self.spelling[words], W["E"], padding_idx=0).transpose(1, 2)
        x = torch.cat([F.conv1d(x, W[f"K_{k}"]).amax(dim=2)
                       for k in self.net.widths], dim=1)
        x = torch.tanh(x + W["b_K"])
        U, gates = self.net.features, self.net.block.gates
        for n in range(self.net.depth):
            z = self.linear(f"layer_{n}", x)
            H = torch.relu(z[:, :U])
            gate = {name: torch.sigmoid(z[:, k * U:(k + 1) * U])
                    for k, name in enumerate(gates, 1)}
            x = FORMS[self.task.net["block"]](torch, x, H, gate)
        return x

    def loss(self, batch: Batch, training: bool) -> Any:
        """Sum over steps of the mean over streams."""
        torch, F = self.torch, self.torch.nn.functional
        distinct, where = torch.unique(torch.tensor(batch.words), return_inverse=True)
        if batch.first:
            self.state.zero_()
        self.lstm.train(training)
        h, state = self.lstm(self.features(distinct)[where], tuple(self.state))
        self.state = torch.stack(state).detach()
        h = F.dropout(h, self.net.dropout, training).flatten(0, 1)
        following = torch.tensor(batch.following).flatten()
        return F.cross_entropy(self.linear("out", h), following,
                               reduction="sum") / self.task.batch

    def gradient(self) -> dict[str, np.ndarray]:
        """As `Ours.gradient` gives it."""
        for batch in self.task.batches:
            loss = self.loss(batch, training=False)
        self.optimizer.zero_grad()
        loss.backward()
        return self.ours({name: W.grad.numpy() for name, W in self.tensors.items()
                          if W.grad is not None})

    def work(self) -> None:
        for batch in self.task.batches:
            self.optimizer.zero_grad()
            self.loss(batch, training=True).backward()
            self.torch.nn.utils.clip_grad_norm_(self.learnt, CLIP, foreach=True)
            self.optimizer.step()


FORMS = {       # of PyTorch's layers; gate by its name
    "plain": lambda torch, x, H, gate: H,
    "highway": lambda torch, x, H, gate: torch.lerp(x, H, gate["T"]),
    "residual": lambda torch, x, H, gate: H + x,
    "t_only": lambda torch, x, H, gate: H * gate["T"] + x,
    "c_only": lambda torch, x, H, gate: H + x * gate["C"],
    "full": lambda torch, x, H, gate: H * gate["T"] + x * gate["C"]}

CONTESTS = {"language model, LSTM": Contest(
    lambda dtype: Task(dtype=dtype),
    {"ours": Contestant(Ours), "PyTorch": Contestant(Torch, ("torch",))},
    {"batch": 20, "steps": 35, "words": WORDS}, steps=STEPS)}
