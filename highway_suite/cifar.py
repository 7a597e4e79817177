"""CIFAR: colour images of 32 x 32 pixels, whatever they are packed in.

People have them as the official archives, binary or of Python, unpacked or not, as PNG
files train/CLASS/NAME.png and test/CLASS/NAME.png in a folder, a zip or a tar, or as
train.bin and test.bin. All of them become rows of bytes: the label (of CIFAR-100 the
fine one), then 3072 pixels, the red, the green and the blue plane, each row by row.

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
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import highway_networks as hn
from highway_suite.terminal import say

PIXELS = 3072
ORDER = 0           # the seed of the order of the images
BATCH = re.compile(r"(?:(?P<top>.*)/)?(?P<part>data_batch_[1-5]|test_batch|train|test)"
                   r"(?P<kind>\.bin|)")
IMAGE = re.compile(r"(?:(?P<top>.*)/)?(?P<part>train|test)/(?:.*/)?(?P<label>[^/]+)/"
                   r"[^/.][^/]*(?P<kind>\.png)")
MOST = 1 << 28      # bytes of a file; the largest has 155 MB
PACKED = (".zip", ".tar", ".tar.gz", ".tgz")


def known(name: str) -> re.Match | None:
    """What the name of one of CIFAR's files says, or None."""
    return BATCH.fullmatch(name) or IMAGE.fullmatch(name)


def bounded(file: Any, size: int) -> Any:
    """The file, if it is of at most MOST bytes. Raises DataError."""
    if size > MOST:
        raise hn.DataError(f"a file of {size:,} bytes: no file of CIFAR is so large")
    return file


def members(path: Path) -> Iterator[tuple[str, Path | bytes]]:
    """The files of a folder, which are read later, or of a zip or a tar: name, file."""
    if path.is_dir():
        for level in range(1, 6):
            for file in sorted(path.glob("/".join("*" * level))):
                name = file.relative_to(path).as_posix()
                if known(name) and file.is_file():
                    yield name, bounded(file, file.stat().st_size)
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            yield from ((info.filename, packed.read(bounded(info, info.file_size)))
                        for info in packed.infolist() if known(info.filename))
    else:
        with tarfile.open(path) as packed:
            for member in packed:
                file = packed.extractfile(member) if known(member.name) else None
                if file:        # not for a folder
                    yield member.name, bounded(file, member.size).read()


def groups_of(path: Path) -> dict[tuple[str, str], dict[str, list]]:
    """{(folder, kind of files): {part: (name, label, file) of each}} in a folder, zip
    or tar: the sets of images that may be CIFAR's."""
    groups = defaultdict(lambda: {"train": [], "test": []})
    for name, file in members(path):
        found = known(name).groupdict()     # type: ignore[union-attr]
        part = "test" if found["part"].startswith("test") else "train"
        groups[found["top"] or "", found["kind"]][part].append(
            (name, found.get("label"), file))
    return groups


class Arrays(pickle.Unpickler):
    """Lists, dicts and NumPy arrays, and nothing else that a pickle may ask for."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or function that a pickle names, if an array needs it."""
        if module.startswith("numpy.") and name == "_reconstruct" or (
                module == "numpy" and name in ("ndarray", "dtype")):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a pickle that asks for {module}.{name}")


def rows_of_batch(content: bytes, kind: str) -> np.ndarray:
    """A file of the official archives, binary or a pickle -> rows (N, 1 + 3072)."""
    if kind == ".bin":      # of CIFAR-100 the coarse label stands before the fine one
        width = PIXELS + (2 if len(content) % (PIXELS + 2) == 0 else 1)
        return np.frombuffer(content, np.uint8).reshape(-1, width)[:, -PIXELS - 1:]
    batch = Arrays(io.BytesIO(content), encoding="bytes").load()
    labels = batch.get(b"fine_labels", batch.get(b"labels"))
    return np.column_stack([np.array(labels, np.uint8), batch[b"data"]])


def row_of_image(content: bytes, label: int) -> np.ndarray:
    """A picture -> its row (1, 1 + 3072)."""
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    if pixels.shape != (32, 32, 3):
        raise hn.DataError(f"{pixels.shape[:2]} pixels, expected 32 x 32")
    return np.append(np.uint8(label), pixels.transpose(2, 0, 1))[None]


def rows_of(files: list[tuple], kind: str, labels: list[str]) -> np.ndarray:
    """The files of a part -> its rows. The number of a label is its place in the
    alphabet, as the official numbers are."""
    found = []
    for name, label, file in files:
        content = file.read_bytes() if isinstance(file, Path) else file
        try:
            found.append(row_of_image(content, labels.index(label)) if labels else
                         rows_of_batch(content, kind))
        except Exception as error:      # of a broken one Pillow raises many kinds
            raise hn.DataError(f"{name}: {error}") from error
    return np.concatenate(found)


def arrays_of(rows: np.ndarray, expected: hn.DataFile) -> list[np.ndarray]:
    """The rows of a part, in any order -> its images (N, 3072) and labels (N,), if they
    are those expected. Raises DataError."""
    content = b"".join(sorted(map(bytes, rows)))
    found = hashlib.sha256(content).hexdigest()
    if found != expected.sha256:
        raise hn.DataError(f"{len(rows)} images of {expected.name}, whose SHA-256 is "
                           f"{found}, expected {expected.sha256}: other images")
    rows = np.frombuffer(content, np.uint8).reshape(rows.shape)
    rows = rows[np.random.default_rng(ORDER).permutation(len(rows))]
    return [rows[:, 1:].copy(), rows[:, 0].copy()]


def arrays_of_group(path: Path, group: dict[str, list], kind: str, dataset: hn.Dataset
                    ) -> list[np.ndarray]:
    """A set of images -> training images, labels, test images, labels, if they are
    those of the data set. Raises DataError."""
    labels, counts = [], tuple(len(files) for files in group.values())
    if not all(counts):
        raise hn.DataError("images to train and to test are not both there")
    if kind == ".png":
        if counts != tuple(dataset.images):
            raise hn.DataError(f"{counts} images to train and to test, expected "
                               f"{dataset.images}")
        labels = sorted({label for files in group.values() for _, label, _ in files})
        say(f"Decoding {sum(counts):,} images of {path}")
    return [array for files, expected in zip(group.values(), dataset.files, strict=True)
            for array in arrays_of(rows_of(files, kind, labels), expected)]


@contextmanager
def noting(faults: list[str], where: Path) -> Iterator[None]:
    """Any exception of the body, or of a library that it uses, is added to `faults`."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, hn.DataError) else f"{type(error).__name__}: "
        faults.append(f"{where}: {kind}{' '.join(str(error).split())}")


def read(folder: Path, dataset: hn.Dataset) -> list[np.ndarray]:
    """The first set of images in a folder, or in what is packed there, that is the one
    expected -> training images, labels, test images, labels. Raises DataError where
    others are there, MissingData where none are."""
    faults = []
    packed = sorted(path for path in folder.glob("*") if path.name.endswith(PACKED))
    for path in (folder, *packed) if folder.is_dir() else ():
        with noting(faults, path):
            for (top, kind), group in groups_of(path).items():
                with noting(faults, path / top):
                    return arrays_of_group(path / top, group, kind, dataset)
    if faults:
        raise hn.DataError("; ".join(faults[:2]))
    raise hn.MissingData(f"{folder}: no archive or images of {dataset.title}, "
                         f"{hn.listing(folder)}")
