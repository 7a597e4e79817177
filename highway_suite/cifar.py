"""CIFAR: colour images of 32 x 32 pixels, whatever they are packed in.

They come as the official archives, binary or of Python, unpacked or not, or as
train.bin and test.bin. All of them hold rows of bytes: the label (of CIFAR-100 the fine
one), then 3072 pixels, the red, the green and the blue plane, each row by row.

Sorted as byte strings, the rows have one SHA-256 for all sources: it decides. But
sorted rows are sorted by label, so that a part of them would lack classes. So they are
then permuted, always in the same way: by NumPy's default generator with seed `ORDER`.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from highway_suite.datasets import Dataset, MissingData, listing

PIXELS = 3072
ORDER = 0           # the seed of the order of the images
BATCH = re.compile(r"(?:(?P<top>.*)/)?(?P<part>data_batch_[1-5]|test_batch|train|test)"
                   r"(?P<kind>\.bin|)")


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The name and the content of each of CIFAR's files in a folder or a tar."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            name = file.relative_to(path).as_posix()
            if BATCH.fullmatch(name) and file.is_file():
                yield name, file.read_bytes()
    else:
        with tarfile.open(path) as packed:
            for member in packed:
                file = BATCH.fullmatch(member.name) and packed.extractfile(member)
                if file:        # not for a folder
                    yield member.name, file.read()


class Arrays(pickle.Unpickler):
    """Lists, dicts and NumPy arrays, and nothing else that a pickle may ask for."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or function that a pickle names, if an array needs it."""
        if module.startswith("numpy.") and name == "_reconstruct" or (
                module == "numpy" and name in ("ndarray", "dtype")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a pickle that asks for {module}.{name}")


def rows_of(content: bytes, kind: str) -> np.ndarray:
    """A file of the official archives, binary or a pickle -> rows (N, 1 + 3072)."""
    if kind == ".bin":      # of CIFAR-100 the coarse label stands before the fine one
        width = PIXELS + (2 if len(content) % (PIXELS + 2) == 0 else 1)
        return np.frombuffer(content, np.uint8).reshape(-1, width)[:, -PIXELS - 1:]
    batch = Arrays(io.BytesIO(content), encoding="bytes").load()
    labels = batch.get(b"fine_labels", batch.get(b"labels"))
    return np.column_stack([np.array(labels, np.uint8), batch[b"data"]])


def arrays_of(files: list[tuple], name: str, sha256: str) -> list[np.ndarray]:
    """The files of a part, in any order -> its images (N, 3072) and labels (N,). Raises
    hn.DataError unless they are those expected."""
    rows = np.concatenate([rows_of(*file) for file in files])
    content = b"".join(sorted(map(bytes, rows)))
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise hn.DataError(f"{len(rows)} images of {name}, whose SHA-256 is {found}, "
                           f"expected {sha256}: other images")
    rows = np.frombuffer(content, np.uint8).reshape(rows.shape)
    rows = rows[np.random.default_rng(ORDER).permutation(len(rows))]
    return [rows[:, 1:].copy(), rows[:, 0].copy()]


def sets_of(path: Path) -> list[dict[str, list]]:
    """The sets of images in a folder or tar, {part: its files, each with its kind}: the
    files of one kind that lie together."""
    sets: dict[tuple, dict[str, list]] = defaultdict(lambda: {"train": [], "test": []})
    for name, content in members(path) if path.exists() else ():
        found = BATCH.fullmatch(name)
        assert found is not None
        part = "test" if found["part"].startswith("test") else "train"
        sets[found["top"], found["kind"]][part].append((content, found["kind"]))
    return [*sets.values()]


def read(folder: Path, dataset: Dataset) -> list[np.ndarray]:
    """The first set of images in a folder, or in what is packed there, that is the one
    expected -> training images, labels, test images, labels. Raises hn.DataError where
    others are there, MissingData where none are."""
    faults = []
    for path in (folder, *sorted(folder.glob("*.tar")), *sorted(folder.glob("*.t*gz"))):
        try:
            sets = sets_of(path)
        except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
            faults.append(f"{path}: {error}")
            continue
        for found in sets:
            try:
                if not (found["train"] and found["test"]):
                    raise hn.DataError("images to train and to test are not both there")
                return [array for files, expected in zip(
                            found.values(), dataset.files.items(), strict=True)
                        for array in arrays_of(files, *expected)]
            except Exception as error:      # of a damaged pickle: of many kinds
                faults.append(f"{path}: {error}")
    if faults:
        raise hn.DataError("; ".join(faults[:2]))
    raise MissingData(f"{folder}: no archive or images of {dataset.title}, "
                      f"{listing(folder)}")
