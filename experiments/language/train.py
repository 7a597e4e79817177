"""One trial of the language model: the net, its training by `hn.fit`, and its
perplexity with its gates held."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import trial_function
from experiments.lab.judging import listed
from experiments.lab.running import epoch_reporter
from experiments.language.text import Batches, Text
from experiments.nets.recurrent import Cache, LanguageModel


def learning_rate(config: dict, history: list[dict]) -> float:
    """The learning rate of the next epoch. From the third epoch on it is halved after
    each epoch in which the validation perplexity fell by less than 1. history: a row of
    each epoch before."""
    valid = [row["valid_perplexity"] for row in history]
    small = sum(before - now < config["least_gain"]
                for before, now in pairwise(valid[1:]))
    return config["lr"] * config["lr_decay"] ** small


def perplexity(loss: float) -> float:
    """Mean -log p per word -> its exponential; infinite where that would overflow."""
    return math.exp(loss) if loss < 700 else math.inf


def mean_loss(net: LanguageModel, batches: Batches, cache: Cache) -> float:
    """Mean -log p of the words of a text, without dropout."""
    return np.mean([net.forward(batch, cache).mean(dtype=float) for batch in batches])


def read_through(net: LanguageModel, text: np.ndarray, steps: int) -> float:
    """Mean -log p of all words of a text but the first; the text is one stream."""
    cache, count = net.cache(1, steps), len(text) - 1
    padded, total = np.pad(text, (0, -count % steps)), 0.0
    for batch, left in zip(Batches(padded, 1, steps), range(count, 0, -steps),
                           strict=True):
        total += net.forward(batch, cache)[:left].sum(dtype=float)
    return total / count


class Training(NamedTuple):
    """A net, its arrays and its texts."""

    net: LanguageModel
    cache: Cache
    batches: Batches        # of the training text
    valid: Batches


def make_training(config: dict, text: Text) -> Training:
    """A trial before its first epoch."""
    names = ("block", "depth", "units", "numbers", "widths", "maps", "dropout",
             "gate_bias", "scale", "seed")
    net = LanguageModel(text.spell(text.vocabulary), **{
        name: config[name] for name in names if name in config})
    size, steps = config["batch"], config["steps"]
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    return Training(net, net.cache(size, steps), Batches(text.train, size, steps, rng),
                    Batches(text.valid, size, steps))


@trial_function("language.train", resumable=True)
def train_model(config: dict, text: Text, checkpoint: Any = None) -> dict:
    """One trial: losses of each epoch, the test perplexity, and the validation
    perplexity with its gates held (None without gates)."""
    training = make_training(config, text)

    def validate(net, cache):
        loss = mean_loss(net, training.valid, cache)
        if not math.isfinite(perplexity(loss)):
            raise hn.Diverged(f"validation loss {loss}")
        return {"valid_perplexity": hn.significant(perplexity(loss))}
    history, status = hn.fit(
        training.net, training.batches, hn.SGD(training.net.params, momentum=0),
        lambda epoch, history: learning_rate(config, history), epoch_reporter(config),
        epochs=config["epochs"], clip=config["clip"], measure=validate,
        cache=training.cache, checkpoint=checkpoint)
    found: dict[str, Any] = {"test_perplexity": None, "held_gates": None}
    if status == "ok":
        loss = read_through(training.net, text.test, config["batch"] * config["steps"])
        found = {"test_perplexity": listed(perplexity(loss)),
                 "held_gates": held_perplexity(training)}
    missing = [None] * (config["epochs"] - len(history))
    return {"status": status, "parameters": int(training.net.params.size), **found,
            **{name: [row[name] for row in history] + missing
               for name in ("train_loss", "valid_perplexity")}}


# --------------------------------------------------------------------------------------
# The trained net with its gates held


def held_perplexity(training: Training) -> float | None:
    """Validation perplexity of a trained net with all gates held at their means over
    all words of the training text; None without gates, or where it is infinite."""
    net, cache, batches, valid = training
    if not (net.depth and net.block.gates):
        return None
    reader = net.cache(1, net.words)
    net.read(np.arange(net.words), reader)
    counts = np.bincount(batches.words.ravel(), minlength=net.words)
    cache.family.held = {
        layer: np.average(z[net.features:], axis=1, weights=counts)[:, None]
        for layer, z in enumerate(reader.family.z)}         # (R - F, 1) each
    held = perplexity(mean_loss(net, valid, cache))
    cache.family.held = {}
    return listed(held)
