"""Data sets: `DATASETS`, the table, and `load`, which fetches what is not there.

Each file is checked by its SHA-256 before it takes its name, and again whenever it is
read.
"""

from __future__ import annotations

import hashlib
import http.client
import math
import os
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from highway_suite.files import check_target, expanded, write_file
from highway_suite.terminal import say

NAMED = "--data-dir, data_dir= or $HIGHWAY_DATA_DIR"     # for commands, scripts, both
KRIZHEVSKY = "https://www.cs.toronto.edu/~kriz/"
TIMEOUT, DEADLINE = 20, 900     # seconds without a byte, and for one file in all
SLOWEST = 50_000                # bytes a second, that a large file may take longer at
EVERY = 5                       # seconds from one line of progress to the next


class MissingData(hn.DataError):
    """No file of the data set is there."""


class Dataset(NamedTuple):
    """A row of the table of data sets; `read` tells how its files are read."""

    title: str          # on pictures
    files: dict         # their official names -> SHA-256 of what is in them, unpacked
    images: tuple       # how many: training, test
    shape: tuple        # of one image: height, width; of colour: 3, height, width
    scale: float        # the largest pixel value
    classes: int
    read: Callable      # (folder, Dataset) -> training images, their labels, test
                        # images, theirs, all checked; raises hn.DataError
    cache: str = ""     # its own folder, in ~/.cache or in another that holds several
    mirrors: tuple = ()     # the addresses below which its downloads lie
    downloads: dict = {}    # their names -> SHA-256 and bytes of each, as it is fetched


# --------------------------------------------------------------------------------------
# Readers


def listing(folder: Path) -> str:
    """What lies in a folder, in a few words."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else ["no such folder"]
    shown = names[:6] + ["..."] if len(names) > 6 else names
    return f"found there: {', '.join(shown) or 'nothing'}"


def find_idx(folder: Path, name: str, sha256: str) -> np.ndarray:
    """The array of one idx file, in the folder or below it, packed or not, under its
    official name or as unpackers leave it, NAME.idx3-ubyte: its SHA-256 decides. Raises
    hn.DataError where a wrong file has the official name, else MissingData."""
    faults = {}
    for path in sorted(folder.rglob(f"*{name.replace('-idx', '?idx')}*")):
        if path.is_file():
            try:
                return hn.read_idx(path, sha256)
            except hn.DataError as error:
                faults[path.relative_to(folder).as_posix()] = str(error)
    for official in (name, f"{name}.gz"):
        if official in faults:
            raise hn.DataError(faults[official])
    raise MissingData("; ".join([f"{folder}: no {name}, packed or not, "
                                 f"{listing(folder)}", *faults.values()]))


def read_idx_files(folder: Path, dataset: Dataset) -> list[np.ndarray]:
    """The idx files of a data set -> their arrays. Raises hn.DataError."""
    return [find_idx(folder, *file) for file in dataset.files.items()]


def read_digits(folder: Path, dataset: Dataset) -> list[np.ndarray]:
    """The digits that ship with the suite, wherever other data lie."""
    return read_idx_files(Path(__file__).parent / "digits", dataset)


def read_cifar(folder: Path, dataset: Dataset) -> list[np.ndarray]:
    """The images and labels of CIFAR. Raises hn.DataError."""
    from highway_suite import cifar  # which takes this module
    return cifar.read(folder, dataset)


# --------------------------------------------------------------------------------------
# The table


def idx_set(title: str, train: int, test: int, side: int, scale: int, hashes: Iterable,
            cache: str, mirrors: tuple = (), *downloads: tuple) -> Dataset:
    """The row of a set of square images, ten classes, in four idx files of the usual
    names, with the SHA-256 of each; downloads: hash and size of each, packed."""
    packed = dict(zip([f"{name}.gz" for name in hn.MNIST], downloads,
                      strict=bool(downloads)))
    return Dataset(title, dict(zip(hn.MNIST, hashes, strict=True)), (train, test),
                   (side, side), scale, 10, read_idx_files, cache, mirrors, packed)


def cifar_row(title: str, classes: int, train: str, test: str, *download: Any
              ) -> Dataset:
    """A row of the table, with the hashes of the sorted rows to train and to test;
    download: hash and size of its archive."""
    name = title.lower()
    return Dataset(title, {"train.bin": train, "test.bin": test}, (50000, 10000),
                   (3, 32, 32), 255, classes, read_cifar, name.replace("-", ""),
                   (KRIZHEVSKY,), {f"{name}-binary.tar.gz": download})


DATASETS: dict[str, Dataset] = {
    # LeCun, Cortes, Burges; the hashes are those of the files of 1998.
    "mnist": idx_set(
        "MNIST", 60000, 10000, 28, 255, hn.MNIST.values(), "hinton-mnist",
        ("https://ossci-datasets.s3.amazonaws.com/mnist/",
         "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542)),
    # UCI optical digits, 8x8; see digits/README.md.
    "digits": idx_set("UCI digits, 8×8 pixels (not MNIST)", 1437, 360, 8, 16, (
        "5f7350bc1a400f722695b561e85a3860dfd1d04df1be94ad585900b51f1a4be3",
        "285f5abc6b458ff9816638ffbebb4c02b09af05624dfa54459e8e375dc4943a6",
        "045e47932e3ba7e00b615823d06700cd192451196741bda8ad0f44874686afb3",
        "59712ac0fec7f148717d68d3f29ac991b3411addd133c0b8e6976cf4b564fdcb"),
        "digits")._replace(read=read_digits),
    # Xiao, Rasul, Vollgraf 2017.
    "fashion": idx_set("Fashion-MNIST", 60000, 10000, 28, 255, (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
        "fashion-mnist",
        ("https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
         "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148)),
    # Krizhevsky 2009.
    "cifar10": cifar_row(
        "CIFAR-10", 10,
        "72083841cd0fa633f09b24c0833cf6d6a1809caff400317117334e0aa6b0ed46",
        "f1bbb931260cda782c84c1948c82d910e2c193cb1d56756293f445027090946b",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171),
    "cifar100": cifar_row(
        "CIFAR-100", 100,
        "37a2b72bd30f9438ff20798c661450f58f138c034f556846cd744a56bbb09967",
        "b9ad4d741ee82873becf8846c246715e789a57766586a9677a8bbe26c8b30279",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", 168513733),
}


def row_of(name: str) -> Dataset:
    """The row of a data set. Raises hn.DataError for a name without one."""
    if name not in DATASETS:
        raise hn.DataError(f"no data set {name!r}, only {', '.join(DATASETS)}")
    return DATASETS[name]


def content_hash(name: str) -> str:
    """What a data set is, in 64 hex digits: the SHA-256 of the SHA-256 values that its
    row of the table demands, in their order. The files need not be there, and it is the
    same whatever they were packed in. Raises hn.DataError for a name without a row."""
    known = "\n".join(row_of(name).files.values())
    return hashlib.sha256(known.encode()).hexdigest()


# --------------------------------------------------------------------------------------
# Loading


def data_folder(dataset: Dataset, data_dir: str | Path | None = None) -> Path:
    """Where a data set lies: in data_dir, $HIGHWAY_DATA_DIR or ~/.cache, the first that
    is named; there in a folder of its own, if there is one. Raises MissingData where
    none is named, and there is no home."""
    named = data_dir or os.environ.get("HIGHWAY_DATA_DIR")
    folder = expanded(named or "~/.cache")
    if str(folder).startswith("~"):
        raise MissingData(f"{folder}: there is no such home")
    own = folder / dataset.cache
    return own if os.path.isdir(own) or not named else folder


def read(name: str, data_dir: str | Path | None = None) -> hn.Data:
    """A row of DATASETS -> Data as it lies in the files; the arrays are read-only.
    Raises hn.DataError; MissingData where nothing of it is there."""
    dataset = row_of(name)
    try:        # what ships needs no folder
        folder = (Path() if dataset.read is read_digits else
                  data_folder(dataset, data_dir))
        arrays = dataset.read(folder, dataset)
    except (hn.DataError, OSError) as error:    # a folder that one may not look into
        kind = type(error) if isinstance(error, hn.DataError) else MissingData
        own = ("" if kind is hn.DataError or dataset.cache in str(error) else
               f", into a folder named {dataset.cache}")
        raise kind(f"{error}. Put the files of {dataset.title} there{own}, or name "
                   f"another folder with {NAMED}") from error
    x_train, y_train, x_test, y_test = arrays = [
        array.reshape(len(array), -1) if array.ndim > 1 else array[:]
        for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    there = (len(x_train), len(x_test)), x_train.shape[1]
    if there != (told := (tuple(dataset.images), math.prod(dataset.shape))):
        raise hn.DataError(f"images and pixels of {name!r} are {there}; its row of "
                           f"DATASETS says {told}")
    return hn.Data(x_train, y_train, x_test, y_test, dataset.classes, dataset.scale)


def download(url: str, sha256: str, size: int) -> bytes:
    """What an address gives, if it has this hash; size: how many bytes it should have.
    Says every few seconds how much is there. Raises OSError, in one line."""
    request = urllib.request.Request(url, headers={"User-Agent": "highway-networks"})
    body, start, shown = bytearray(), time.monotonic(), -math.inf
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            while chunk := answer.read1(min(size + 1 - len(body), 1 << 16)):
                body += chunk
                now = time.monotonic()
                if now - start > max(DEADLINE, size / SLOWEST):
                    raise OSError(f"{len(body)} of {size} bytes when time was up")
                if now - shown >= EVERY:
                    say(f"{url}: {len(body) / 1e6:.1f} of {size / 1e6:.1f} MB")
                    shown = now
    except (OSError, ValueError, http.client.HTTPException) as error:
        inner = getattr(error, "reason", None)
        reason = str(inner if isinstance(inner, Exception) else error) or repr(error)
        reason = " ".join(reason.split())[:200]
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            reason += " (on macOS run Install Certificates.command)"
        raise OSError(reason) from error
    if hashlib.sha256(body).hexdigest() != sha256:
        count = "more" if len(body) > size else len(body)
        page = ", an HTML page (a login portal?)" if body.lstrip()[:1] == b"<" else ""
        raise OSError(f"not the file, by its SHA-256: {count} of {size} bytes{page}")
    return bytes(body)


def fetch(dataset: Dataset, name: str, folder: Path) -> None:
    """Download one file from the first mirror that has it; only the right content takes
    its name, and only for it is the folder made. Raises MissingData with every mirror's
    reason."""
    reasons, path = [], folder / name
    try:
        check_target(path)
        for mirror in dataset.mirrors:
            try:
                content = download(mirror + name, *dataset.downloads[name])
            except OSError as error:
                reasons.append(f"{mirror}: {error}")
                continue
            folder.mkdir(parents=True, exist_ok=True)
            return write_file(path, content)
    except OSError as error:
        reasons.append(error.strerror or str(error))
    raise MissingData(f"{path} is missing and cannot be fetched "
                      f"({'; '.join(reasons)}). Put the files there, or name their "
                      f"folder with {NAMED}")


def load(name: str, data_dir: str | Path | None = None) -> hn.Data:
    """A data set by name -> highway_networks.Data, pixels as they lie in its files.

    What is not in data_dir, else $HIGHWAY_DATA_DIR, else ~/.cache, is fetched first;
    what is there is never replaced. Raises highway_networks.DataError.
    """
    try:
        return read(name, data_dir)
    except MissingData:
        if not (dataset := DATASETS[name]).mirrors:
            raise
    folder = data_folder(dataset, data_dir)
    for file in dataset.downloads:
        if not os.path.isfile(folder / file):
            fetch(dataset, file, folder)
    return read(name, data_dir)


def load_as_asked(dataset: str, data_dir: str | Path | None = None
                  ) -> tuple[str, hn.Data]:
    """What a flag --dataset names -> (name, Data). "auto" is MNIST if it is there or
    can be fetched, else the shipped digits, with a warning; files that are there and
    wrong raise hn.DataError all the same."""
    if dataset != "auto":
        return dataset, load(dataset, data_dir)
    try:
        return "mnist", load("mnist", data_dir)
    except MissingData as error:
        rule = "!" * 88
        say(f"{rule}\nNO MNIST: {error}\nUSING THE SHIPPED 8x8 DIGITS INSTEAD. These "
            f"are not MNIST results.\n{rule}")
        return "digits", load("digits")
