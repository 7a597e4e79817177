"""Highway networks, trained by hand: "Training Very Deep Networks" in NumPy.

R. K. Srivastava, K. Greff, J. Schmidhuber, NIPS 2015, arXiv:1507.06228. This module is
the whole machine, to be read from top to bottom: data, blocks, net, loss, optimisers,
training, record, command line. It needs NumPy and four idx files, and runs alone; where
highway_suite is beside it, it downloads, trains side by side and has more flags.

    python3 highway_networks.py --seed 0       one highway and one plain net -> run.json

Legend: N examples, B batch, P pixels, U units (--hidden), L blocks (--depth), C classes
where it is a size, R rows of a block's weights, U for H and U for each gate. Columns
are examples, so activations are (U, B); * is elementwise, ^T transposes. T is always
the gate; d<name> is the derivative of the loss with respect to <name>; z_H and z_T are
pre-activations. Here a block is a whole layer; the paper calls every unit of a layer a
block. Depth counts the blocks after the input projection; the paper counts the
projection too, so its 50 layers are depth 49 here.

The trouble with depth. A plain net stacks L layers y = H = tanh(W_H x + b_H), and the
chain rule takes the gradient through all of them, from the last to the first:

    dx = W_H^T (dy * (1 - H * H))

A product of L random matrices does not keep its size. Weights drawn evenly between
-1 / sqrt(U) and 1 / sqrt(U), a common default, have a variance of 1 / (3 U), so each
layer divides the length of what passes it by about sqrt(3), both ways: thirty of them
by 10^7. What comes out at the top is the same for all images, what comes back at the
bottom is nothing, and the net keeps guessing, with a loss of ln 10. Glorot's rule
(--init glorot; he for relu) triples that variance, which nearly makes up for it and
buys some depth: the paper's plain nets of 10 and 20 layers train very well with it.
Deeper ones stay hard to train all the same.

The highway layer also learns when to leave its input alone:

    H = tanh(W_H x + b_H)         the transform                                (Eq. 1)
    T = sigmoid(W_T x + b_T)      the transform gate; 1 - T is the carry gate
    y = H * T + x * (1 - T)       the block output                             (Eq. 3)

Every unit has its own T, and a new one for each image. Where T = 1 this is a plain
layer; where T = 0 it is none: y = x, and the gradient passes as it came.

Backward. y depends on H, on T and on x itself, so dy goes three ways,

    dH = T * dy      dT = (H - x) * dy      dx = (1 - T) * dy                  (Eq. 9)

and on through what H and T are functions of, with tanh' = 1 - H * H and
sigmoid' = T * (1 - T):

    dz_H = dH * (1 - H * H)       dW_H = dz_H x^T      db_H = sum of dz_H over images
    dz_T = dT * T * (1 - T)       dW_T = dz_T x^T      db_T = sum of dz_T over images
    dx += W_H^T dz_H + W_T^T dz_T

The code does just this, and nothing twice: W_H, W_T and their biases are stacked, so a
layer is one matrix product [W_H b_H; W_T b_T] [x; 1] forward and two backward; and
dz_T is T * (H - x) times (1 - T) * dy, the direct part of dx, which is there already.

The ends. An image p becomes the first x = tanh(W_in p + b_in); the last y becomes
logits = W_out y + b_out and p_c = softmax(logits). The loss is the mean over the batch
of -log p_label, so dlogits = (softmax(logits) - onehot(label)) / B, and from there back
it is all matrix products. The gradient of all weights together, scaled down to norm
--clip if it is longer, is what Adam or momentum SGD is given.

Why b_T starts negative. W_T x is small at first, so T = sigmoid(b_T) nearly everywhere,
and each layer scales signal and gradient by 1 - T. With b_T = -2 that is 0.88 a layer
and 0.02 after thirty: little, but 300,000 times what the plain net has left. With -4,
0.58 is left after thirty. So b_T starts below 0 (section 2.2), and the deeper the net
the lower: with logit(1 / L), for which the T of all L layers sum to 1 at the
start, nets of 10 and of 10,000 learn alike with Adam (results/depth). But H learns
only through T, and a gate that starts too far closed opens late, or never: where T
rounds to 0, so does every gradient of its layer (float32: z_T below about -20).
From that start on dT = (H - x) * dy decides: gates open where the transform serves the
loss better than the input does, and the rest of the depth is carried through. Which
layers those are is what experiments/ looks into.

The family. y = H * T + x * C, with C the carry gate, has six members here, which differ
in what T and C are and which of them are learned. BLOCKS lists them: plain T = 1, C =
0; highway C = 1 - T; residual T = C = 1; t_only C = 1; c_only T = 1; full learns both.
All share the net around them.

One batch on its way: idx bytes -> `load_dataset`, uint8 (N, P) -> `scale_pixels`, [-1,
1] -> `Batches`, (P, B) -> `DeepNet.forward`, logits (C, B), leaving H, T and x of every
layer in a `Cache` -> `cross_entropy`, the loss and dlogits -> `DeepNet.backward`, one
flat gradient -> `clip_norm` -> `Adam` or `SGD`, in place on one flat vector of weights.
`fit` repeats it, here and for every other net of this repository.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import os
import platform
import secrets
import shlex
import stat
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TextIO

__version__ = "1.0.0"
__all__ = (     # what others may rely on
    "ACTIVATIONS", "Adam", "BLOCKS", "Batches", "Block", "Cache", "Config",
    "DATASETS", "Data", "DataError", "DataFile", "Dataset", "DeepNet", "Diverged",
    "Download", "MissingData", "OPTIMIZERS", "Parameters", "Progress", "SGD",
    "blas_threads", "clip_norm", "cross_entropy", "data_folder", "environment",
    "evaluate", "fit", "initial_bias", "load_dataset", "main", "make_net",
    "make_record", "pieces", "scale_pixels", "softmax", "streams", "take_subset",
    "threads_for", "train", "train_arm", "train_epoch", "train_step")


def __dir__() -> list[str]:
    return sorted(__all__)


if __name__ == "__main__" and find_spec("threadpoolctl") is None:
    # BLAS reads these once, when NumPy loads it; see `blas_threads`.
    for library in ("OMP", "OPENBLAS", "MKL", "BLIS"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.environ["VECLIB_MAXIMUM_THREADS"] = "1"

try:
    import numpy as np
except ImportError:
    if __name__ != "__main__":
        raise
    raise SystemExit("highway_networks.py needs numpy. Install: python3 -m venv .venv "
                     "&& .venv/bin/pip install numpy") from None
try:
    import threadpoolctl
except ImportError:
    threadpoolctl = None

HERE: Path = Path(__file__).resolve().parent

# --------------------------------------------------------------------------------------
# Configuration


def setting(default: Any, text: str, *, low: float | None = None,
            high: float | None = None, choices: tuple | None = None,
            words: tuple = ()) -> Any:
    """A Config field that is also a flag: its default, help text and allowed values,
    which are choices, or numbers and the words that may stand for one."""
    allowed = {"help": text, "low": low, "high": high, "choices": choices,
               "words": words}
    return field(default=default, metadata=allowed)


def is_allowed(value: Any, default: Any, allowed: Mapping) -> bool:
    """Whether a field may have this value: a choice, or a number of its kind in range,
    or a word for one."""
    if allowed["choices"]:
        return value in allowed["choices"]
    if isinstance(value, str):
        return value in allowed["words"]
    kinds = (int, float) if isinstance(default, float) else (int,)     # never a bool
    return type(value) in kinds and allowed["low"] <= value <= allowed["high"]


@dataclass(frozen=True)
class Config:
    """One net and its training, complete: two equal Configs give the same weights for
    the same data, on one machine with one set of library versions.

    The command line is generated from these fields, and every record holds them all.
    Raises ValueError for a value that is not allowed.
    """

    block: str = "highway"
    seed: int = setting(0, "fixes subset, weights and batches", low=0, high=2**32 - 1)
    depth: int = setting(30, "blocks after the input projection", low=1, high=10_000)
    hidden: int = setting(50, "units of every block", low=1, high=10_000)
    activation: str = setting("tanh", "of H", choices=("tanh", "relu"))
    init: str = setting("uniform", "of weights; uniform is U(+-1/sqrt(fan_in)), a "
                        "third of glorot's variance",
                        choices=("uniform", "glorot", "he"))
    gate_bias: float | str = setting(
        -2.0, "initial b_T; a learned carry gate has minus it; auto: logit(1 / depth), "
        "so that the T of all blocks start with a sum of 1", low=-100, high=100,
        words=("auto",))
    epochs: int = setting(12, "passes over the training images", low=1, high=100_000)
    batch: int = setting(128, "images per step", low=1, high=10**7)
    optimizer: str = setting("adam", "or momentum SGD", choices=("adam", "sgd"))
    lr: float = setting(5e-3, "learning rate", low=1e-9, high=1e3)
    lr_decay: float = setting(1.0, "factor on --lr after each epoch", low=1e-6, high=1)
    momentum: float = setting(0.9, "of --optimizer sgd", low=0, high=0.9999)
    clip: float = setting(5.0, "largest gradient norm; 0 is no limit", low=0, high=1e9)
    n_train: int = setting(6000, "training images, drawn by seed", low=1, high=10**7)
    n_test: int = setting(2000, "test images, drawn by seed", low=1, high=10**7)
    dtype: str = setting("float32", "of every array", choices=("float32", "float64"))

    def __post_init__(self):
        if self.block not in BLOCKS:
            raise ValueError(f"block is {self.block!r}; allowed: {tuple(BLOCKS)}")
        for item in fields(self):
            value, allowed = getattr(self, item.name), item.metadata
            if isinstance(value, np.generic):       # NumPy's integers are integers
                value = value.item()
                object.__setattr__(self, item.name, value)
            if allowed and not is_allowed(value, item.default, allowed):
                among = allowed["choices"] or ", ".join(
                    (f"{allowed['low']} to {allowed['high']}", *allowed["words"]))
                raise ValueError(f"{item.name} is {value!r}; allowed: {among}")


# --------------------------------------------------------------------------------------
# Data


class DataError(ValueError):
    """Data are missing or wrong: where, what was expected and found, and what to do."""


class MissingData(DataError):
    """No file of the data set is there."""


NAMED = "--data-dir, data_dir= or $HIGHWAY_DATA_DIR"     # for commands, scripts, both


class DataFile(NamedTuple):
    """One file of a data set: what must be in it, once it is unpacked."""

    name: str       # the official one; unpackers give others
    shape: tuple    # (N, height, width) of images, (N,) of labels
    sha256: str


class Download(NamedTuple):
    """One file as mirrors have it."""

    name: str
    sha256: str
    size: int       # bytes


class Dataset(NamedTuple):
    """A row of the table of data sets; `read` tells how its files are read."""

    title: str          # on pictures
    files: tuple        # of DataFile
    images: tuple       # how many: training, test
    shape: tuple        # of one image: height, width; of colour: 3, height, width
    scale: float        # the largest pixel value
    classes: int
    read: Callable      # (folder, Dataset) -> training images, their labels, test
                        # images, theirs, all checked; raises DataError
    folder: Path | None = None      # where it is shipped, if it is
    cache: str = ""                 # else its folder in ~/.cache,
    mirrors: tuple = ()             # the addresses below which it is to be had,
    downloads: tuple = ()           # and its files there


@dataclass(frozen=True, repr=False)
class Data:
    """Images and labels: numbers as read, or in [-1, 1] by `scale_pixels`.

    Raises DataError where they do not fit together.
    """

    x_train: np.ndarray     # (N, P)
    y_train: np.ndarray     # (N,) whole numbers, 0 to classes - 1
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int = 10
    scale: float | None = 255   # the largest value of a pixel; None: scaled already

    def __post_init__(self):
        if self.scale is not None and not self.scale > 0:
            raise DataError(f"scale={self.scale}: the largest value of a pixel must be "
                            "above 0")
        for x, y in ((self.x_train, self.y_train), (self.x_test, self.y_test)):
            if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
                raise DataError("images and labels must be NumPy arrays, as np.asarray "
                                "makes them")
            if (x.ndim != 2 or y.shape != x.shape[:1] or not x.size
                    or x.shape[1] != self.x_train.shape[1]):
                raise DataError(f"images {x.shape} and labels {y.shape}: they must be "
                                "(N, P) and (N,), not empty, with one P for all")
            check_pixels(x)
            check_labels(y, self.classes)

    def __repr__(self) -> str:
        return (f"Data(x_train {self.x_train.shape} {self.x_train.dtype}, x_test "
                f"{self.x_test.shape}, {self.classes} classes, scale {self.scale})")


def check_pixels(x: np.ndarray) -> None:
    """Raise DataError unless they are finite numbers."""
    if x.dtype.kind not in "uif":
        raise DataError(f"pixels are {x.dtype}: they must be integers or floats, as "
                        "x.astype('float32') makes them; True becomes 1, so scale=1")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise DataError("pixels must be finite numbers, and in image "
                        f"{np.isfinite(x).all(axis=1).argmin()} there are NaN or "
                        "infinities: leave it out, or use np.nan_to_num(x)")


def check_labels(y: np.ndarray, classes: int) -> None:
    """Raise DataError unless they are whole numbers from 0 to classes - 1."""
    wanted = f"labels must be whole numbers from 0 to {classes - 1}"
    if y.dtype.kind not in "iu":
        raise DataError(f"{wanted} of an integer type, as y.astype(int) makes them; "
                        f"these are {y.dtype}")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= classes:
        raise DataError(f"{wanted}; these go from {low} to {high}" + (
            ": use y - 1" if (low, high) == (1, classes) else
            f": is classes={classes} right?"))


def decode_idx(payload: bytes) -> np.ndarray:
    """The bytes of an idx file -> read-only uint8 array. Raises DataError.

    The sizes are multiplied as Python integers and compared with the bytes that are
    there before any array is made, so no header can wrap around or ask for memory.
    """
    if payload[:2] != b"\0\0" or len(payload) < 4:
        raise DataError(f"starts with {payload[:4]!r}, which no idx file does")
    if payload[2] != 0x08:
        raise DataError(f"an idx file of type {payload[2]:02x}; expected 08, unsigned "
                        "bytes, as for pixels from 0 to 255")
    ndim = payload[3]
    start = 4 + 4 * ndim
    if not 1 <= ndim <= 4 or len(payload) < start:
        raise DataError(f"an idx file of {ndim} dimensions, expected 1 to 4, in "
                        f"{len(payload)} bytes")
    shape = [int(n) for n in np.frombuffer(payload, ">u4", ndim, 4)]
    if math.prod(shape) != len(payload) - start:
        raise DataError(f"an idx file of shape {shape} with {len(payload) - start} "
                        f"data bytes; expected {math.prod(shape)}")
    return np.frombuffer(payload, np.uint8, offset=start).reshape(shape)


def read_content(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most so many, unpacked if they are gzip, of one
    member or several. Raises DataError."""
    if not path.is_file():          # before it is opened: a FIFO would block
        raise MissingData(f"{path}: there is no such regular file")
    packed = False
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            content = (gzip.GzipFile(fileobj=file) if packed else file).read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: {'broken gzip: ' if packed else ''}"
                        f"{getattr(error, 'strerror', '') or error}") from error
    if len(content) > most:
        raise DataError(f"{path}: more than the {most} bytes expected")
    return content


def check_idx(path: Path, file: DataFile) -> np.ndarray:
    """An idx file, packed or not -> its array, if it is the one expected. Raises
    DataError."""
    # Eight bytes for each number: so of doubles it can be said what they are.
    content = read_content(path, 2**20 + 8 * math.prod(file.shape))
    found = hashlib.sha256(content).hexdigest()
    for row in DATASETS.values() if found != file.sha256 else ():
        for other in row.files:
            if found == other.sha256:
                raise DataError(f"{path}: this is {other.name} of {row.title}; "
                                f"expected {file.name}")
    try:
        array = decode_idx(content)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    if array.shape != file.shape:
        raise DataError(f"{path}: shape {array.shape}, expected {file.shape}")
    if found != file.sha256:
        expected = file.sha256 or "none is stated in its row of DATASETS: put it there"
        raise DataError(f"{path}: other data of the same shape: their SHA-256 is "
                        f"{found}, expected {expected}")
    return array


def find_files(folder: Path, name: str) -> Iterator[Path]:
    """Files of about this name, the nearest and the shortest names first: as unpackers
    and other libraries leave them, below, with other punctuation or more letters."""
    def letters(text):
        return "".join(filter(str.isalnum, text.lower()))
    for level in ("*", "*/*", "*/*/*"):
        for path in sorted(folder.glob(level), key=lambda path: (len(path.name), path)):
            if letters(name) in letters(path.name) and path.is_file():
                yield path


def listing(folder: Path) -> str:
    """What lies in a folder, in a few words."""
    names = sorted(os.listdir(folder)) if folder.is_dir() else ["no such folder"]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return f"found there: {', '.join(names[:6]) or 'nothing'}{more}"


def find_idx(folder: Path, file: DataFile) -> np.ndarray:
    """The array of one idx file, whatever it is named and packed in: its SHA-256
    decides. Raises DataError where another has its very name, else MissingData."""
    faults = {}
    for path in find_files(folder, file.name):
        try:
            return check_idx(path, file)
        except DataError as error:
            faults[path] = error
    for name in (file.name, f"{file.name}.gz"):
        if folder / name in faults:
            raise faults[folder / name]
    told = "; ".join(map(str, [listing(folder), *faults.values()][:2]))
    raise MissingData(f"{folder}: no {file.name}, packed or not; {told}")


def read_idx(folder: Path, dataset: Dataset) -> list[np.ndarray]:
    """The idx files of a data set -> their arrays, uint8 and read-only. Raises
    DataError."""
    return [find_idx(folder, file) for file in dataset.files]


def idx_set(title: str, train: int, test: int, side: int, scale: int, hashes: tuple,
            *downloads: tuple, **more: Any) -> Dataset:
    """The row of a set of square images, ten classes, in four idx files of the usual
    names: the files' hashes, hash and size of each download, other fields."""
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    shapes = ((train, side, side), (train,), (test, side, side), (test,))
    return Dataset(title, tuple(map(DataFile, names, shapes, hashes)), (train, test),
                   (side, side), scale, 10, read_idx, downloads=tuple(
                       Download(f"{name}.gz", *facts) for name, facts in
                       zip(names, downloads, strict=False)), **more)


DATASETS: dict[str, Dataset] = {
    # LeCun, Cortes, Burges; the hashes are those of the files of 1998.
    "mnist": idx_set(
        "MNIST", 60000, 10000, 28, 255,
        ("ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
         "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
         "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
         "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
        cache="hinton-mnist",
        mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/",
                 "https://storage.googleapis.com/cvdf-datasets/mnist/")),
    # UCI optical digits, 8x8; see highway_suite/digits/README.md.
    "digits": idx_set(
        "UCI digits, 8×8 pixels (not MNIST)", 1437, 360, 8, 16,
        ("5f7350bc1a400f722695b561e85a3860dfd1d04df1be94ad585900b51f1a4be3",
         "285f5abc6b458ff9816638ffbebb4c02b09af05624dfa54459e8e375dc4943a6",
         "045e47932e3ba7e00b615823d06700cd192451196741bda8ad0f44874686afb3",
         "59712ac0fec7f148717d68d3f29ac991b3411addd133c0b8e6976cf4b564fdcb"),
        folder=HERE / "highway_suite" / "digits"),
}


def data_folder(dataset: Dataset, data_dir: str | Path | None = None) -> Path:
    """Where a data set lies: in data_dir, or where it is shipped, or in
    $HIGHWAY_DATA_DIR or ~/.cache; there in a folder of its own, if there is one."""
    if dataset.folder and not data_dir:
        return dataset.folder
    chosen = data_dir or os.environ.get("HIGHWAY_DATA_DIR") or "~/.cache"
    folder = Path(os.path.expanduser(chosen))
    if str(folder).startswith("~"):
        raise DataError(f"{chosen}: there is no home folder. Name the folder of the "
                        f"files with {NAMED}")
    own = folder / dataset.cache
    return own if own.is_dir() or chosen == "~/.cache" else folder


def load_dataset(name: str, data_dir: str | Path | None = None) -> Data:
    """A row of DATASETS -> Data as it lies in the files. Raises DataError, also for
    whatever else its reader fails with; MissingData where nothing of it is there.

    Every file is checked on every read, down to the SHA-256 of its content. The arrays
    are read-only. `highway_suite.load` also fetches what is missing.
    """
    if name not in DATASETS:
        raise DataError(f"no data set {name!r}, only {', '.join(DATASETS)}; import "
                        "highway_suite.datasets adds more")
    dataset = DATASETS[name]
    folder = data_folder(dataset, data_dir)
    try:
        if not folder.exists():
            raise MissingData(f"{folder}: there is no such folder")
        arrays = dataset.read(folder, dataset)
        x_train, y_train, x_test, y_test = (
            a if a.ndim == 1 else a.reshape(len(a), -1) for a in arrays)
        data = Data(x_train, y_train, x_test, y_test, dataset.classes, dataset.scale)
        there = (len(x_train), len(x_test)), x_train.shape[1]
        if there != (told := (tuple(dataset.images), math.prod(dataset.shape))):
            raise DataError(f"{folder}: images and pixels are {there}; the row of "
                            f"{name!r} in DATASETS says {told}")
        return data
    except Exception as error:
        known = isinstance(error, DataError)
        fault = str(error) if known else f"{type(error).__name__}: {error}"
        fault = " ".join((f"{folder}: " * (str(folder) not in fault) + fault).split())
        cure = ("What is not there, or is moved away, highway_suite fetches"
                if dataset.mirrors else
                f"The files must be what the row of {name!r} in DATASETS says")
        raise (type(error) if known else DataError)(
            f"{fault}. {cure}; or name another folder with {NAMED}") from error


def streams(seed: int) -> dict[str, np.random.SeedSequence]:
    """seed -> the independent random streams of one run, by name (SeedSequence)."""
    names = ("subset", "weights", "batches")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names)), strict=True))


def take_subset(data: Data, config: Config) -> Data:
    """n_train training and n_test test images, drawn by the seed for both arms alike,
    so that a mean over seeds estimates the accuracy on the whole test set."""
    rng = np.random.default_rng(streams(config.seed)["subset"])
    train = rng.permutation(len(data.x_train))[:config.n_train]
    test = rng.permutation(len(data.x_test))[:config.n_test]
    return replace(data, x_train=data.x_train[train], y_train=data.y_train[train],
                   x_test=data.x_test[test], y_test=data.y_test[test])


def scale_pixels(data: Data, dtype: str = "float32") -> Data:
    """Data with pixels from 0 to data.scale -> in [-1, 1], and labels as indices; its
    scale is None.

    Raises DataError for pixels out of that range, or scaled before. Warns where none is
    above 1 and the scale is: floats from 0 to 1 have scale=1.
    """
    if data.scale is None:
        raise DataError("these pixels are scaled already, and that is done once")
    low = min(data.x_train.min(), data.x_test.min())
    high = max(data.x_train.max(), data.x_test.max())
    if low < 0 or high > data.scale:
        raise DataError(f"pixels go from {low:g} to {high:g}: to be scaled they must "
                        f"lie between 0 and the largest possible, {data.scale=:g}")
    if 0 < high <= 1 < data.scale:
        warnings.warn(f"no pixel is above {high:g}, and scale={data.scale:g}: for "
                      "pixels from 0 to 1 set scale=1", stacklevel=2)

    def scaled(x, factor=2 / data.scale):
        x = x.astype(dtype)
        x *= factor
        x -= 1
        return x
    return replace(data, x_train=scaled(data.x_train), x_test=scaled(data.x_test),
                   y_train=data.y_train.astype(np.intp),
                   y_test=data.y_test.astype(np.intp), scale=None)


# --------------------------------------------------------------------------------------
# Activations and blocks


class Activation(NamedTuple):
    """forward(z): z -> H in place. backward(dH, H): H -> dz_H in place."""

    forward: Callable[[np.ndarray], None]
    backward: Callable[[np.ndarray, np.ndarray], None]


def tanh_forward(z: np.ndarray) -> None:
    np.tanh(z, out=z)


def tanh_backward(dH: np.ndarray, H: np.ndarray) -> None:
    """dz_H = dH (1 - H^2) = dH - dH H^2"""
    np.multiply(H, H, out=H)
    np.multiply(dH, H, out=H)
    np.subtract(dH, H, out=H)


def relu_forward(z: np.ndarray) -> None:
    np.maximum(z, 0, out=z)


def relu_backward(dH: np.ndarray, H: np.ndarray) -> None:
    """dz_H = dH where H > 0, else 0"""
    np.greater(H, 0, out=H)         # np.sign would take thrice as long
    np.multiply(dH, H, out=H)


ACTIVATIONS = {
    "tanh": Activation(tanh_forward, tanh_backward),
    "relu": Activation(relu_forward, relu_backward),
}


def activate(z: np.ndarray, H: np.ndarray, gates: np.ndarray, activation: Activation,
             half: np.ndarray) -> None:
    """z (R, B) -> H and the gates in place; H and gates are the two parts of z's rows.

    sigmoid(z) = 0.5 + 0.5 tanh(z / 2), so one tanh call can serve H and every gate. In
    float32 T is a multiple of 2^-25, and 0 below about z = -20: it then never opens.
    half is 0.5 as an array: NumPy converts a Python number on every call.
    """
    if not gates.size:
        activation.forward(H)
        return
    np.multiply(gates, half, out=gates)
    if activation.forward is tanh_forward:
        tanh_forward(z)
    else:
        activation.forward(H)
        tanh_forward(gates)
    np.multiply(gates, half, out=gates)
    np.add(gates, half, out=gates)


Rows = tuple[np.ndarray, ...]


class Block(NamedTuple):
    """One member of the family y = H T + x C.

    gates: the learned gates, in the order of their rows below H: "", "T", "C" or "TC".
    forward(x, rows, y, scratch): x and rows = (H, *gates) -> y, which is never x.
    backward(d, x, rows, dH, scratch): d is dy on entry and the direct part of dx on
        exit, the part through H and the gates is added by DeepNet; dH is written; each
        gate's row becomes its dz, so the sigmoid's derivative belongs here.

    Each of them is (U, B); scratch is free to use.
    """

    gates: str
    forward: Callable[[np.ndarray, Rows, np.ndarray, np.ndarray], None]
    backward: Callable[[np.ndarray, np.ndarray, Rows, np.ndarray, np.ndarray], None]


def gate_backward(G: np.ndarray, scaled: np.ndarray, through: np.ndarray) -> None:
    """Gate G -> dz in place, where y has the term scaled * G and through = G dy:

    dz = dG G (1 - G) = scaled dy G (1 - G) = (1 - G) scaled through
    """
    np.subtract(1, G, out=G)
    np.multiply(G, scaled, out=G)
    np.multiply(G, through, out=G)


def plain_forward(x, rows, y, scratch):
    """y = H                                                                  (Eq. 1)"""
    np.copyto(y, rows[0])


def plain_backward(d, x, rows, dH, scratch):
    """dH = dy, dx = 0"""
    np.copyto(dH, d)
    d.fill(0)


def highway_forward(x, rows, y, scratch):
    """y = H T + x (1 - T) = x + T (H - x): exactly x where T = 0             (Eq. 3)"""
    H, T = rows
    np.subtract(H, x, out=y)
    np.multiply(T, y, out=y)
    np.add(x, y, out=y)


def highway_backward(d, x, rows, dH, scratch):
    """dH = T dy, dT = (H - x) dy, dx = (1 - T) dy                            (Eq. 9)

    and dz_T = dT T (1 - T) = T (H - x) dx, which needs no more factors.
    """
    H, T = rows
    np.multiply(T, d, out=dH)
    np.subtract(d, dH, out=d)       # dx = dy - T dy
    np.subtract(H, x, out=scratch)
    np.multiply(T, scratch, out=scratch)
    np.multiply(scratch, d, out=T)  # dz_T


def residual_forward(x, rows, y, scratch):
    """y = H + x                                              (He et al. 2015, Eq. 1)"""
    np.add(rows[0], x, out=y)


def residual_backward(d, x, rows, dH, scratch):
    """dH = dy, dx = dy"""
    np.copyto(dH, d)


def t_only_forward(x, rows, y, scratch):
    """y = H T + x"""
    H, T = rows
    np.multiply(H, T, out=y)
    np.add(y, x, out=y)


def t_only_backward(d, x, rows, dH, scratch):
    """dH = T dy, dT = H dy, dx = dy"""
    H, T = rows
    np.multiply(T, d, out=dH)
    gate_backward(T, H, dH)


def c_only_forward(x, rows, y, scratch):
    """y = H + x C"""
    H, C = rows
    np.multiply(x, C, out=y)
    np.add(H, y, out=y)


def c_only_backward(d, x, rows, dH, scratch):
    """dH = dy, dC = x dy, dx = C dy"""
    H, C = rows
    np.copyto(dH, d)
    np.multiply(C, d, out=d)
    gate_backward(C, x, d)


def full_forward(x, rows, y, scratch):
    """y = H T + x C                                                          (Eq. 2)"""
    H, T, C = rows
    np.multiply(H, T, out=y)
    np.multiply(x, C, out=scratch)
    np.add(y, scratch, out=y)


def full_backward(d, x, rows, dH, scratch):
    """dH = T dy, dT = H dy, dC = x dy, dx = C dy"""
    H, T, C = rows
    np.multiply(T, d, out=dH)
    np.multiply(C, d, out=d)
    gate_backward(T, H, dH)
    gate_backward(C, x, d)


# The only place that knows the mathematics of each kind: which of T and C are learned.
BLOCKS = {
    "plain": Block("", plain_forward, plain_backward),              # T = 1, C = 0
    "highway": Block("T", highway_forward, highway_backward),       # C = 1 - T, coupled
    "residual": Block("", residual_forward, residual_backward),     # T = C = 1
    "t_only": Block("T", t_only_forward, t_only_backward),          # C = 1
    "c_only": Block("C", c_only_forward, c_only_backward),          # T = 1
    "full": Block("TC", full_forward, full_backward),
}

# --------------------------------------------------------------------------------------
# Parameters and DeepNet


class Parameters:
    """Named tensors that lie one after the other in one flat vector, so that a step of
    an optimiser is one call. shapes: {name: shape}, in their order."""

    def __init__(self, shapes: Mapping[Any, tuple]):
        self.shapes = dict(shapes)
        self.size = sum(math.prod(shape) for shape in self.shapes.values())

    def views(self, flat: np.ndarray) -> dict[Any, np.ndarray]:
        """(size,) -> {name: view of its part}."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            views[name] = flat[start:stop].reshape(shape)
            start = stop
        return views


def initial_weights(rng: np.random.Generator, init: str, shape: tuple) -> np.ndarray:
    """Random weights (..., fan_out, fan_in) by the named rule, drawn in float64."""
    *_, fan_out, fan_in = shape
    if init == "he":                                    # He et al. 2015, for relu
        return rng.normal(0, math.sqrt(2 / fan_in), shape)
    bound = {"uniform": math.sqrt(1 / fan_in),
             "glorot": math.sqrt(6 / (fan_in + fan_out))}[init]     # Glorot et al. 2010
    return rng.uniform(-bound, bound, shape)


def initial_bias(gate_bias: float | str, depth: int) -> float:
    """b_T as a number: "auto" is logit(1/L) = -log(L - 1), with which the T of L layers
    start with a sum of 1; a single layer has no such b_T and starts half open. Raises
    ValueError for another word, and for what is not finite."""
    if gate_bias == "auto":
        return 0.0 - math.log(max(depth - 1, 1))        # -log(1) would be -0.0
    if isinstance(gate_bias, str) or not math.isfinite(gate_bias):
        raise ValueError(f"gate_bias {gate_bias!r:.40} is no finite number and not "
                         "'auto'")
    return float(gate_bias)


def aligned(shape: tuple, dtype: Any) -> np.ndarray:
    """Zeros that begin at a line of the processor's cache, a multiple of 64 bytes.

    NumPy's own begin at any multiple of 16, so that the widest loads reach over two
    lines: a step takes up to 1.15 times as long.
    """
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start:start + size].view(dtype).reshape(shape)


class Layer(NamedTuple):
    """Every view of a cache that the two passes need of one layer."""

    W: np.ndarray           # (R, U + 1) weights of H and gates, biases last
    W_back: np.ndarray      # (U, R) the same without biases, transposed
    dW: np.ndarray          # (R, U + 1)
    x1: np.ndarray          # (U + 1, B) the input, and a row of ones for the biases
    x: np.ndarray           # (U, B) the input
    y: np.ndarray           # (U, B) the output, which is the next one's input
    z: np.ndarray           # (R, B) pre-activations -> H and gates -> dz
    rows: Rows              # its parts, H and each gate (U, B)
    gates: np.ndarray       # (R - U, B) its part below H


class Cache:
    """All that a forward pass of one net leaves for its backward pass, allocated once.

    It is made by `DeepNet.cache(batch)` and serves every batch of that size. Backward
    overwrites what forward left, so each forward pass serves one backward pass.
    """

    @staticmethod
    def shapes(L: int, U: int, R: int, C: int, B: int) -> dict[str, tuple]:
        """Its arrays, which also tell what memory it takes."""
        return {"x": (L + 1, U + 1, B), "z": (L, R, B), "logits": (C, B),
                "d": (U, B), "dH": (U, B), "scratch": (U, B)}

    def __init__(self, net: DeepNet, batch: int):
        L, U, dtype = net.depth, net.hidden, net.dtype
        shapes = self.shapes(L, U, net.rows, net.classes, batch)
        self.net, self.batch = net, batch
        self.pixels: np.ndarray | None = None           # of a pass not yet taken back
        self.x = aligned(shapes["x"], dtype)            # block inputs
        self.x[:, U] = 1        # stays: it meets the biases, the weights' last column
        self.z = aligned(shapes["z"], dtype)            # z -> H and gates -> dz
        k = net.block.gates.find("T") + 1
        self.T = self.z[:, k * U:(k + 1) * U] if k else None    # (L, U, batch)
        self.logits = aligned(shapes["logits"], dtype)
        self.d = aligned(shapes["d"], dtype)            # dy -> dx, layer after layer
        self.dH = aligned(shapes["dH"], dtype)
        self.scratch = aligned(shapes["scratch"], dtype)
        self.half = np.array(0.5, dtype)
        self.grad = aligned(net.params.shape, dtype)
        self.weights, self.dW = net.tensors(net.params), net.tensors(self.grad)
        # Made here, once, the views cost nothing in a step.
        H_and_gates = self.z.reshape(L, net.rows // U, U, batch)
        self.layers = [
            Layer(W, W[:, :U].T, dW, x, x[:U], y[:U], z, tuple(rows), z[U:])
            for W, dW, x, y, z, rows in zip(
                self.weights["blocks"], self.dW["blocks"], self.x[:-1], self.x[1:],
                self.z, H_and_gates, strict=True)]


COLUMNS = 500           # examples that `DeepNet.predict` takes at a time


class DeepNet:
    """P pixels -> projection -> L blocks of U units -> C logits.  (sections 2, 3.1)

    Weights are one flat vector, `params`, to be written into, never replaced;
    `views(flat)` names the parts of it, or of any other vector laid out alike:

        W_in (U, P), b_in (U, 1), W_H (L, U, U), b_H (L, U), W_out (C, U), b_out (C,)
        and for each gate of the block, here T: W_T (L, U, U), b_T (L, U)

    Nets of equal seed, hidden and init share W_in, W_out, and W_H and W_T as far as
    they have them, whatever their block and depth. gate_bias: see `initial_bias`.
    Raises ValueError for an unknown block, activation or init and for a size below 1.
    """

    def __init__(self, block: str = "highway", depth: int = 30, hidden: int = 50, *,
                 inputs: int = 784, classes: int = 10, activation: str = "tanh",
                 init: str = "uniform", gate_bias: float | str = -2.0, seed: int = 0,
                 dtype: Any = "float32"):
        for name, value, table in (("block", block, BLOCKS),
                                   ("activation", activation, ACTIVATIONS),
                                   ("init", init, ("uniform", "glorot", "he"))):
            if value not in table:
                raise ValueError(f"{name} {value!r}: choose from {', '.join(table)}")
        if min(depth, hidden, inputs, classes) < 1:
            raise ValueError(f"depth {depth}, hidden {hidden}, inputs {inputs}, "
                             f"classes {classes}: each must be at least 1")
        kind = BLOCKS[block]
        if not isinstance(kind, Block) or kind.gates not in ("", "T", "C", "TC"):
            raise ValueError(f"block {block!r} must be a Block, its gates '', 'T', 'C' "
                             "or 'TC'")
        self.settings = {"block": block, "depth": depth, "hidden": hidden,
                         "inputs": inputs, "classes": classes, "activation": activation}
        self.block, self.activation = kind, ACTIVATIONS[activation]
        self.depth, self.hidden = depth, hidden
        self.inputs, self.classes = inputs, classes
        self.rows = hidden * (1 + len(self.block.gates))        # R: H and the gates
        self.dtype = np.dtype(dtype)
        self.layout = Parameters(self.shapes(depth, hidden, self.rows, inputs, classes))
        self.tensors = self.layout.views        # as they lie in memory, by these names
        self.params = np.zeros(self.layout.size, self.dtype)
        self._initialize(init, initial_bias(gate_bias, depth), seed)

    @staticmethod
    def shapes(L: int, U: int, R: int, P: int, C: int) -> dict[str, tuple]:
        """Its tensors, as they lie in memory."""
        return {"W_in": (U, P), "b_in": (U, 1), "blocks": (L, R, U + 1),
                "out": (C, U + 1)}

    def _initialize(self, init, gate_bias, seed):
        weights = self.views(self.params)
        names = ("W_in", "W_out", "W_H", "W_T", "W_C")
        for name, stream in zip(names, streams(seed)["weights"].spawn(len(names)),
                                strict=True):
            if name in weights:
                shape = weights[name].shape
                weights[name][...] = initial_weights(np.random.default_rng(stream),
                                                     init, shape)
        for gate, bias in (("T", gate_bias), ("C", -gate_bias)):    # both carry alike
            if gate in self.block.gates:
                weights["b_" + gate][...] = bias

    def views(self, flat: np.ndarray) -> dict[str, np.ndarray]:
        """flat -> {name: view}, named as in the paper (class docstring)."""
        U, tensors = self.hidden, self.tensors(flat)
        named = {"W_in": tensors["W_in"], "b_in": tensors["b_in"],
                 "W_out": tensors["out"][:, :U], "b_out": tensors["out"][:, U]}
        for k, name in enumerate("H" + self.block.gates):
            rows = tensors["blocks"][:, k * U:(k + 1) * U]
            named["W_" + name], named["b_" + name] = rows[:, :, :U], rows[:, :, U]
        return named

    def cache(self, batch: int) -> Cache:
        """A Cache for batches of this size."""
        return Cache(self, batch)

    def forward(self, x: np.ndarray, cache: Cache | None = None,
                closed: Collection[int] = ()) -> tuple[np.ndarray, Cache]:
        """(P, B) -> logits (C, B) and the cache, filled.

        closed: layers 0..L-1 that copy their input, whatever their block; their gates
        read 0 (lesioning, section 4.2). The logits belong to the cache, which also
        keeps x itself until backward. Raises ValueError for an x or a layer that does
        not fit.
        """
        if x.ndim != 2 or len(x) != self.inputs or x.dtype != self.dtype:
            raise ValueError(f"x is {x.dtype} {x.shape}; the net takes {self.dtype} "
                             f"({self.inputs}, B)")
        layers = list(closed) if np.iterable(closed) else [None]
        if not all(isinstance(l, (int, np.integer)) and type(l) is not bool
                   and 0 <= l < self.depth for l in layers):   # a mask's True is no 1
            raise ValueError(f"closed is {closed!r:.60}, not a list of layers, 0 to "
                             f"{self.depth - 1}")
        closed = frozenset(layers)
        if cache is None or cache.net is not self or cache.batch != x.shape[1]:
            cache = self.cache(x.shape[1])
        weights, first = cache.weights, cache.x[0, :self.hidden]
        np.matmul(weights["W_in"], x, out=first)
        np.add(first, weights["b_in"], out=first)
        self.activation.forward(first)
        for l, layer in enumerate(cache.layers):
            np.matmul(layer.W, layer.x1, out=layer.z)
            activate(layer.z, layer.rows[0], layer.gates, self.activation, cache.half)
            self.block.forward(layer.x, layer.rows, layer.y, cache.scratch)
            if l in closed:
                layer.gates.fill(0)
                np.copyto(layer.y, layer.x)
        np.matmul(weights["out"], cache.x[-1], out=cache.logits)
        cache.pixels = None if closed else x
        return cache.logits, cache

    def backward(self, dlogits: np.ndarray, cache: Cache) -> np.ndarray:
        """dlogits (C, B) and a filled cache -> the flat gradient, in `params`' layout.

        The vector belongs to the cache: the next backward pass overwrites it. Raises
        ValueError if the cache does not come fresh from this net's forward pass.
        """
        if cache.net is not self or cache.pixels is None:
            raise ValueError("backward needs a cache fresh from forward, none closed")
        pixels, cache.pixels = cache.pixels, None
        weights, grads = cache.weights, cache.dW
        d, dH, scratch = cache.d, cache.dH, cache.scratch
        np.matmul(dlogits, cache.x[-1].T, out=grads["out"])
        np.matmul(weights["out"][:, :self.hidden].T, dlogits, out=d)
        for layer in reversed(cache.layers):
            self.block.backward(d, layer.x, layer.rows, dH, scratch)    # dy -> dH, dx
            self.activation.backward(dH, layer.rows[0])     # z now holds dz
            np.matmul(layer.z, layer.x1.T, out=layer.dW)
            np.matmul(layer.W_back, layer.z, out=dH)
            np.add(d, dH, out=d)                            # dx += W^T dz
        first = cache.x[0, :self.hidden]
        self.activation.backward(d, first)
        np.matmul(first, pixels.T, out=grads["W_in"])
        np.sum(first, axis=1, keepdims=True, out=grads["b_in"])
        return cache.grad

    def gradient(self, batch: tuple, cache: Cache) -> tuple[dict, np.ndarray]:
        """x (P, B) and labels (B,) -> loss and accuracy, and the flat gradient."""
        x, labels = batch
        logits, cache = self.forward(x, cache)
        right = np.count_nonzero(logits.argmax(axis=0) == labels)
        loss, dlogits = cross_entropy(logits, labels)
        measures = {"train_loss": float(loss), "train_acc": right / len(labels)}
        return measures, self.backward(dlogits, cache)

    def _columns(self, x):
        """Rows (N, P) -> columns (P, N) in the net's dtype: the one place where what
        users have is turned into what the machine takes."""
        x = np.asarray(x)
        if x.ndim != 2 or x.shape[1] != self.inputs or x.dtype.kind not in "iuf":
            turned = x.ndim == 2 and len(x) == self.inputs
            expected = x.shape[1] if turned else "N"
            raise ValueError(f"({expected}, {self.inputs}) expected, got {x.dtype} "
                             f"{x.shape}" + ": transpose?" * turned)
        if not np.isfinite(x).all():
            raise ValueError("x has a NaN or an infinity")
        return x.astype(self.dtype, copy=False).T

    def _logits(self, x, closed):
        """(N, C), some rows at a time: the cache of a deep net takes much memory."""
        columns = self._columns(x)
        closed = list(closed) if np.iterable(closed) else closed    # a generator?
        parts = np.split(columns, range(COLUMNS, columns.shape[1], COLUMNS), axis=1)
        return np.vstack([self.forward(part, closed=closed)[0].T for part in parts])

    def predict(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P), any floats or whole numbers -> the most probable class of each row,
        (N,). closed: see `forward`. Raises ValueError for an x that does not fit."""
        return self._logits(x, closed).argmax(axis=1)

    def predict_proba(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the probability of each class, (N, C): softmax of the logits."""
        return softmax(self._logits(x, closed).T).T

    def gates(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the transform gates T of every block, (N, L, U); ValueError if
        the block has none."""
        T = self.forward(self._columns(x), closed=closed)[1].T
        if T is None:
            raise ValueError(f"{self.settings['block']} blocks have no transform gate")
        return np.moveaxis(T, 2, 0)

    def block_outputs(self, x: np.ndarray, closed: Collection[int] = ()) -> np.ndarray:
        """x (N, P) -> the projection's output and every block's, (N, L + 1, U)."""
        cache = self.forward(self._columns(x), closed=closed)[1]
        return np.moveaxis(cache.x[:, :self.hidden], 2, 0)

    def __repr__(self) -> str:
        """Such as DeepNet(highway, depth=30, hidden=50, 784 -> 10, 192,760 parameters)
        """
        return (f"DeepNet({self.settings['block']}, depth={self.depth}, "
                f"hidden={self.hidden}, {self.inputs} -> {self.classes}, "
                f"{self.params.size:,} parameters)")

    def save(self, file: Any) -> None:
        """Write settings and weights as one .npz, without pickles, to a binary file or
        a path, which gets .npz at its end if it lacks it. Raises OSError."""
        np.savez_compressed(file, params=self.params, **self.settings)  # type: ignore

    @classmethod
    def load(cls, path: str | Path) -> DeepNet:
        """The net that `save` wrote. Raises OSError for a file that cannot be opened,
        ValueError for one that is something else, before it asks for much memory."""
        try:
            if os.path.exists(path) and not os.path.isfile(path):
                raise ValueError("not a regular file")      # a FIFO would block
            with open(path, "rb") as file:
                if file.read(2) != b"PK":
                    raise ValueError("not a .npz file")
            with open(path, "rb") as file, np.load(file) as archive:    # no pickles
                names = "block", "depth", "hidden", "inputs", "classes", "activation"
                if any(archive.zip.getinfo(f"{name}.npy").file_size > 4096
                       for name in names):
                    raise ValueError("a setting that is no single value")
                settings = {name: archive[name].item() for name in names}
                block, L, U, P, C, _ = settings.values()
                if block not in BLOCKS:
                    raise ValueError(f"its block {block!r} is none of "
                                     f"{', '.join(BLOCKS)}; add it to BLOCKS first")
                R = U * (1 + len(BLOCKS[block].gates))
                size = Parameters(cls.shapes(L, U, R, P, C)).size
                if archive.zip.getinfo("params.npy").file_size > 8 * size + 4096:
                    raise ValueError(f"more than its {size} weights")
                params = archive["params"]
            if (params.shape != (size,) or params.dtype not in ("float32", "float64")
                    or not np.isfinite(params).all()):
                raise ValueError(f"{params.dtype} {params.shape} is not its {size} "
                                 "weights, each a finite float")
            net = cls(**settings, dtype=params.dtype)
            net.params[...] = params
        except OSError:
            raise
        except Exception as error:      # zipfile, zlib, numpy: each its own kind
            raise ValueError(f"{path} is not a saved DeepNet: {error}") from error
        return net


# --------------------------------------------------------------------------------------
# Loss


def softmax(logits: np.ndarray) -> np.ndarray:
    """(C, B) -> probabilities (C, B); each column is shifted by its own maximum."""
    p = np.exp(logits - logits.max(axis=0))
    p /= p.sum(axis=0)
    return p


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[Any, np.ndarray]:
    """(C, B), (B,) -> mean of -log softmax(logits)[label], and dlogits (C, B).

    By log-sum-exp: exact where the probability of the label underflows.
    """
    B = len(labels)
    examples = np.arange(B)
    shifted = logits - logits.max(axis=0)
    dlogits = np.exp(shifted)
    total = dlogits.sum(axis=0)
    loss = (np.log(total) - shifted[labels, examples]).sum() / B
    dlogits /= total                    # softmax
    dlogits[labels, examples] -= 1
    dlogits /= B
    return loss, dlogits


# --------------------------------------------------------------------------------------
# Optimisers: in place, on flat vectors; `kept` names what a checkpoint must hold


def clip_norm(grad: np.ndarray, limit: float) -> float:
    """Scale grad in place to an L2 norm of at most `limit` (0: no limit); return the
    norm it had. Pascanu et al. 2013."""
    norm = math.sqrt(np.dot(grad, grad))
    if limit and limit < norm < math.inf:
        np.multiply(grad, limit / norm, out=grad)
    return norm


class Adam:
    """Kingma, Ba 2015. The moments are kept without their factors (1 - beta), which go
    into the step size instead: two passes over the vectors less, the same update.

        m = sum of beta1^i grad,  v = sum of beta2^i grad^2,  i steps ago
        params -= lr * m_hat / (sqrt(v_hat) + eps)
    """

    kept = ("m", "v", "steps")

    def __init__(self, params: np.ndarray, beta1: float = 0.9, beta2: float = 0.999,
                 eps: float = 1e-8):
        self.m, self.v = np.zeros_like(params), np.zeros_like(params)
        self.scratch, self.steps = np.empty_like(params), np.zeros(1, int)
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        m, v, scratch = self.m, self.v, self.scratch
        self.steps += 1
        t = int(self.steps[0])
        first = (1 - self.beta1) / (1 - self.beta1 ** t)        # m_hat = first m
        second = math.sqrt((1 - self.beta2) / (1 - self.beta2 ** t))
        np.multiply(m, self.beta1, out=m)
        np.add(m, grad, out=m)
        np.multiply(v, self.beta2, out=v)
        np.multiply(grad, grad, out=scratch)
        np.add(v, scratch, out=v)
        np.sqrt(v, out=scratch)                     # sqrt(v_hat) = second * scratch
        np.add(scratch, self.eps / second, out=scratch)
        np.divide(m, scratch, out=scratch)
        np.multiply(scratch, lr * first / second, out=scratch)
        np.subtract(params, scratch, out=params)


class SGD:
    """Momentum SGD: v = momentum v - lr grad, params += v.    (paper, section 3.1)"""

    kept = ("v",)

    def __init__(self, params: np.ndarray, momentum: float):
        self.v, self.scratch = np.zeros_like(params), np.empty_like(params)
        self.momentum = momentum

    def step(self, params: np.ndarray, grad: np.ndarray, lr: float) -> None:
        np.multiply(self.v, self.momentum, out=self.v)
        np.multiply(grad, lr, out=self.scratch)
        np.subtract(self.v, self.scratch, out=self.v)
        np.add(params, self.v, out=params)


OPTIMIZERS = {
    "adam": lambda params, config: Adam(params),
    "sgd": lambda params, config: SGD(params, config.momentum),
}

# --------------------------------------------------------------------------------------
# Threads of BLAS

WIDE = 200          # units of a block from which one training gains by more threads


class Blas:
    """What this process's BLAS is set to: one number for all of its threads."""

    def __init__(self):
        self.changed = threading.Condition()    # guards what follows
        self.bodies = 0             # of `blas_threads` that run now
        self.threads: int | None = None         # that they use
        self.free: int | None = None            # that BLAS uses without them
        self.limits: Any = None     # what sets it free again
        self.here = threading.local()           # .inside: this thread runs a body

    def default(self) -> int | None:
        """The threads that BLAS uses unless told otherwise: those of its environment
        variables, or one per core. None where only threadpoolctl would know."""
        if self.bodies:
            return self.threads if hasattr(self.here, "inside") else self.free
        if threadpoolctl is None:
            told = os.environ.get("OPENBLAS_NUM_THREADS", "")
            return int(told) if told.isdecimal() else None
        return max((library["num_threads"] for library in
                    threadpoolctl.threadpool_info() if library["user_api"] == "blas"),
                   default=1)

    def set(self, limit: Callable) -> Any:
        """Call what changes the number. Since 3.8, threadpoolctl lets only the thread
        do so that did first, unless it is told that this one has ended; here the count
        decides whose turn it is."""
        with suppress(AttributeError):
            openblas = threadpoolctl.OpenBLASController     # type: ignore
            openblas.clear_controlling_thread(force=True)
        return limit()


BLAS = Blas()


@contextmanager
def blas_threads(threads: int | None) -> Iterator[int | None]:
    """BLAS uses so many threads while the body runs; yields the number it then uses.

    Several threads of one process may be in such a body: the first sets the number, the
    last restores what was; who wants another number waits until they have ended. Inside
    another body of the same thread the outer number holds.

    Without threadpoolctl nothing is limited, and the number yielded is that of
    $OPENBLAS_NUM_THREADS, or None. Run as the program this module has set it to 1
    before. A script of your own should, too, before it imports NumPy: on all cores the
    products of narrow nets take no less time, and the last bits may differ.
    """
    if threadpoolctl is None or hasattr(BLAS.here, "inside"):
        yield BLAS.default()
        return
    with BLAS.changed:
        BLAS.changed.wait_for(lambda: not BLAS.bodies or BLAS.threads == threads)
        if not BLAS.bodies:
            BLAS.free = BLAS.default()
        limits = BLAS.set(lambda: threadpoolctl.threadpool_limits(threads, "blas"))
        if not BLAS.bodies:
            BLAS.threads, BLAS.limits = threads, limits
        BLAS.bodies += 1
    BLAS.here.inside = True
    try:
        yield threads
    finally:
        del BLAS.here.inside
        with BLAS.changed:
            BLAS.bodies -= 1
            if not BLAS.bodies:
                BLAS.set(BLAS.limits.restore_original_limits)
            BLAS.changed.notify_all()


def threads_for(hidden: int, asked: int | None = None) -> int | None:
    """The rule: the threads asked for; else one for a narrow net, and for a wide one,
    trained alone, all that BLAS uses by default. On two cores all gain 1.08 times at 50
    units, 1.66 at 200, 1.88 at 1000."""
    return asked or (BLAS.default() if hidden >= WIDE else 1)


# --------------------------------------------------------------------------------------
# Training


def significant(value: float) -> float:
    """Six significant digits: what a record keeps of a measured number."""
    return float(f"{value:.6g}")


class Progress:
    """What a training shows on stderr: a bar, where tqdm is installed and somebody
    looks on, else a line after each epoch, and one every ten seconds within it."""

    def __init__(self, config: Config, bar: Any = None):
        """bar: tqdm, or a class of its kind; None chooses, False is for lines."""
        self.config, self.told = config, time.monotonic()
        self.label = f"{config.block:>7} {config.depth} seed {config.seed}"
        if bar is None and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            with suppress(ImportError):
                import tqdm
                bar = tqdm.tqdm
        self.bar = bar(total=config.epochs, desc=self.label, unit="epoch", ncols=88,
                       bar_format="{l_bar}{bar}| {n:.1f}/{total} {elapsed}<{remaining}"
                       "{postfix}") if bar else None

    def step(self, part: float) -> None:
        """Called after each update: this part of the epoch is done."""
        if self.bar is not None:
            self.bar.update(part - self.bar.n % 1)
        elif time.monotonic() > self.told + 10:
            self.told = time.monotonic()
            say(f"{self.label}  {part:.0%} of an epoch")

    def report(self, row: dict) -> None:
        """Called after each epoch."""
        of = next(of for of in ("test", "validation", "train") if f"{of}_acc" in row)
        loss, accuracy, last = row["train_loss"], row[f"{of}_acc"], self.config.epochs
        if self.bar is None:
            say(f"{self.label}  epoch {row['epoch']:{len(str(last))}}/{last}  train "
                f"loss {loss:.4f}  {of} accuracy {accuracy:.4f}")
            self.told = time.monotonic()
            return
        self.bar.set_postfix_str(f"loss {loss:.4f}, {of} {accuracy:.4f}", refresh=False)
        self.bar.update(row["epoch"] - self.bar.n)
        if row["epoch"] == last:
            self.bar.close()


class Watched:
    """Batches, each of which tells a `Progress` when it has been learned from."""

    def __init__(self, batches: Batches, progress: Progress):
        self.batches, self.progress = batches, progress
        self.streams, self.size = batches.streams, batches.size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        count = len(self.batches.x) // self.size
        for i, batch in enumerate(self.batches, 1):
            yield batch
            self.progress.step(i / count)


class Diverged(ArithmeticError):
    """The loss, a weight or the norm of the gradient is no longer finite."""


class Batches:
    """Shuffled batches of `size` images x (N, P) and their labels; each pass over them
    is an epoch, drawn from rng. The N mod size last images sit out. Each batch, x (P,
    size) and labels (size,), overwrites the one before."""

    def __init__(self, x: np.ndarray, labels: np.ndarray, size: int,
                 rng: np.random.Generator):
        self.x = np.ascontiguousarray(x)    # of other arrays np.take copies all of it
        self.labels, self.size = labels, size
        self.streams = {"batches": rng}
        self.chosen = np.empty((size, x.shape[1]), x.dtype)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = self.streams["batches"].permutation(len(self.x))
        for start in range(0, len(order) - self.size + 1, self.size):
            rows = order[start:start + self.size]
            np.take(self.x, rows, axis=0, out=self.chosen, mode="clip")   # no buffer
            yield self.chosen.T, self.labels[rows]


def train_step(net: Any, batch: Any, cache: Any, optimizer: Any, lr: float,
               clip: float) -> dict[str, float]:
    """One update -> what the net measured on the batch, and the gradient's norm, before
    it. Raises Diverged and leaves the weights alone if one is not finite."""
    measures, grad = net.gradient(batch, cache)
    measures["grad_norm"] = clip_norm(grad, clip)
    if not all(map(math.isfinite, measures.values())):
        raise Diverged(str(measures))
    optimizer.step(net.params, grad, lr)
    return measures


def train_epoch(net: Any, batches: Iterable, cache: Any, optimizer: Any, lr: float,
                clip: float) -> dict[str, float]:
    """One pass over the batches -> means over its steps. Raises Diverged; ValueError if
    there is no batch."""
    steps = [train_step(net, batch, cache, optimizer, lr, clip) for batch in batches]
    if not steps:
        raise ValueError("there is no batch: it takes more examples than there are")
    if not np.isfinite(net.params).all():       # the last update is no step's loss yet
        raise Diverged("a weight is not finite")
    means = np.mean([list(step.values()) for step in steps], axis=0)
    return {name: significant(mean) for name, mean in zip(steps[0], means, strict=True)}


def fit(net: Any, batches: Any, optimizer: Any, schedule: Callable,
        report: Callable | None = None, *, epochs: int, clip: float = 0.0,
        measure: Callable | None = None, untrained: bool = False, cache: Any = None,
        checkpoint: Any = None, threads: int | None = 1
        ) -> tuple[list[dict], str]:
    """The training loop of every net here -> history and status, on so many threads of
    BLAS (`blas_threads`).

    net: has `params`, a flat vector that is written in place, cache(size), and
        gradient(batch, cache) -> measures {name: number} and the flat gradient.
    batches: one epoch per iteration, of `size`; its `streams` {name: Generator} are all
        that is random in training.
    optimizer: step(params, grad, lr); the arrays named by `kept` are its state.
    schedule(epoch, history) -> the learning rate of an epoch; they count from 1.
    measure(net, cache) -> what is measured after each epoch, {name: value}; if
        untrained, before the first one too, as row 0.
    checkpoint: load(arrays, streams) -> the history kept, or [], with arrays and
        streams set to where it ends; save(arrays, streams, history), after each epoch.

    history has a row {"epoch": ..., ...} for each epoch; report(row) gets it too, but
    for row 0. A run that stops being finite ends there, with status "diverged", else
    "ok". Killed and resumed it gives the same bits as in one piece.
    """
    cache = net.cache(batches.size) if cache is None else cache
    arrays = {"params": net.params} | {
        name: getattr(optimizer, name) for name in optimizer.kept}
    history = checkpoint.load(arrays, batches.streams) if checkpoint else []
    done = history[-1]["epoch"] if history else -1 if untrained else 0
    with blas_threads(threads), np.errstate(all="ignore"):
        for epoch in range(done + 1, epochs + 1):
            row: dict[str, Any] = {"epoch": epoch}
            try:
                if epoch:
                    lr = schedule(epoch, history)
                    row |= train_epoch(net, batches, cache, optimizer, lr, clip)
                if measure:
                    row |= measure(net, cache)
            except Diverged:
                return history, "diverged"
            history.append(row)
            if checkpoint:
                checkpoint.save(arrays, batches.streams, history)
            if report and epoch:
                report(row)
    return history, "ok"


def pieces(count: int, size: int) -> Iterator[tuple[slice, int]]:
    """Slices of one size that cover so many images, and how many of each are repeated:
    the last one reaches back. Raises ValueError for fewer images than one takes."""
    if count < size:
        raise ValueError(f"{count} images, fewer than a piece of {size}")
    for start in range(0, count, size):
        back = max(start + size - count, 0)
        yield slice(start - back, start - back + size), back


def evaluate(net: DeepNet, x: np.ndarray, labels: np.ndarray, cache: Cache
             ) -> tuple[float, np.ndarray]:
    """x (N, P) -> accuracy, and the mean T of each layer (L,), empty without gates.

    Raises Diverged if a logit is not finite.
    """
    right, T_sum = 0, np.zeros(0 if cache.T is None else net.depth)
    for rows, back in pieces(len(x), min(cache.batch, len(x))):
        logits, cache = net.forward(x[rows].T, cache)
        if not np.isfinite(logits).all():
            raise Diverged("a logit is not finite")
        right += np.count_nonzero((logits.argmax(axis=0) == labels[rows])[back:])
        if cache.T is not None:
            T_sum += cache.T[:, :, back:].sum(axis=(1, 2))
    return right / len(x), T_sum / (net.hidden * len(x))


def make_net(config: Config, data: Data) -> DeepNet:
    """The untrained DeepNet of a configuration for such images."""
    names = ("block", "depth", "hidden", "activation", "init", "gate_bias", "seed",
             "dtype")
    return DeepNet(**{name: getattr(config, name) for name in names},
                   inputs=data.x_train.shape[1], classes=data.classes)


def train(net: DeepNet, data: Data, config: Config, report: Callable | None = None,
          checkpoint: Any = None, *, threads: int | None = None, progress: Any = None
          ) -> tuple[dict[str, list], np.ndarray, str]:
    """Train on scaled Data -> (history, layer_T, status), by `fit`.

    threads: of BLAS; None is the rule of `threads_for`. Equal threads give equal bits.
    progress: True, or a `Progress`, shows the training on stderr.

    history: a list for each name, with an item for each epoch. `train_loss`,
    `train_acc` and `grad_norm` are means over the epoch's steps, each taken before its
    update; `test_acc` is taken after the epoch. layer_T (epochs + 1, L): row e is the
    mean T of each block on the test images after epoch e, row 0 that before training;
    L is 0 for a block without T. From the epoch on in which a run diverged, history has
    None and layer_T NaN. Raises ValueError if there are fewer images than a batch
    takes, or the net is not of this Config or not for these Data.
    """
    of_data = {"inputs": data.x_train.shape[1], "classes": data.classes}
    for name, made in (net.settings | {"dtype": net.dtype.name}).items():
        if made != (told := of_data.get(name, getattr(config, name, made))):
            whose = "Data" if name in of_data else "Config"
            raise ValueError(f"{name} of the net is {made!r}, of the {whose} {told!r}")
    if config.batch > len(data.x_train):
        raise ValueError(f"batch {config.batch} of {len(data.x_train)} training images")
    x_train, x_test = (np.asarray(x, net.dtype) for x in (data.x_train, data.x_test))

    def test(net, cache):
        accuracy, mean_T = evaluate(net, x_test, data.y_test, cache)
        return {"test_acc": significant(accuracy),
                "layer_T": [significant(T) for T in mean_T]}
    rng = np.random.default_rng(streams(config.seed)["batches"])
    batches: Any = Batches(x_train, data.y_train, config.batch, rng)
    reports = [report] if report else []
    if progress:
        progress = Progress(config) if progress is True else progress
        batches = Watched(batches, progress)
        reports.insert(0, progress.report)
    rows, status = fit(
        net, batches, OPTIMIZERS[config.optimizer](net.params, config),
        lambda epoch, history: config.lr * config.lr_decay ** (epoch - 1),
        lambda row: [tell(row) for tell in reports],
        epochs=config.epochs, clip=config.clip, measure=test, untrained=True,
        checkpoint=checkpoint, threads=threads_for(net.hidden, threads))
    layer_T = np.full((config.epochs + 1, net.depth if "T" in net.block.gates else 0),
                      math.nan)
    for row in rows:
        layer_T[row["epoch"]] = row["layer_T"]
    missing = [None] * (config.epochs + 1 - max(len(rows), 1))
    history = {"epoch": list(range(1, config.epochs + 1))} | {
        name: [row[name] for row in rows[1:]] + missing
        for name in ("train_loss", "train_acc", "grad_norm", "test_acc")}
    return history, layer_T, status


# --------------------------------------------------------------------------------------
# Record: what a run keeps as JSON

SCHEMA, SCHEMA_VERSION = "highway-networks/run", 1
COMMAND = ("highway-networks" if list(HERE.glob("highway_networks-*.dist-info")) else
           "python3 highway_networks.py")       # as pip installs it, or from a folder
CODE = ("highway_networks.py", "highway_suite/*.py", "experiments/*.py",
        "benchmarks/*.py")                      # what results depend on


@lru_cache(maxsize=1)
def git_state() -> tuple[str | None, bool | None]:
    """(revision, whether code differs from it) of the checkout this file lies in; None
    where there is none."""
    def git(*words):
        return os.fsdecode(subprocess.run(      # without locks: it may be killed midway
            ("git", "--no-optional-locks", *words), cwd=HERE, capture_output=True,
            check=True, timeout=10).stdout).strip()
    try:
        if not os.path.samefile(git("rev-parse", "--show-toplevel"), HERE):
            return None, None
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", *CODE))
    except (OSError, subprocess.SubprocessError):
        return None, None


@lru_cache(maxsize=1)
def blas_in_use() -> dict:
    """What threadpoolctl knows of it; to ask takes longer than to train a small net."""
    return next((library for library in threadpoolctl.threadpool_info()
                 if library["user_api"] == "blas"), {}) if threadpoolctl else {}


def environment(threads: int | None = 1) -> dict:
    """What may change the last bits or the speed of a run; no user, host or path."""
    blas, (revision, dirty) = blas_in_use(), git_state()
    return {"python": platform.python_version(), "numpy": np.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "blas": blas.get("internal_api"), "blas_version": blas.get("version"),
            "blas_kernel": blas.get("architecture"),
            "blas_threads": threads, "git": revision, "git_dirty": dirty}


def train_arm(config: Config, data: Data, progress: Any = None,
              checkpoint: Any = None) -> dict:
    """Configuration and unscaled subset -> one arm of the record."""
    start = time.perf_counter()
    net = make_net(config, data)
    history, layer_T, status = train(net, scale_pixels(data, config.dtype), config,
                                     checkpoint=checkpoint, progress=progress)
    seconds = (time.perf_counter() - start
               + getattr(checkpoint, "seconds_before", 0.0))
    own = {}
    if isinstance(config.gate_bias, str):       # else it is that of the record's config
        own["gate_bias"] = initial_bias(config.gate_bias, config.depth)
    if len(getattr(checkpoint, "environments", ())) > 1:
        own["environments"] = checkpoint.environments
    return {
        "label": f"{config.block} {config.depth}", "block": config.block,
        "depth": config.depth, "hidden": config.hidden, "epochs": config.epochs,
        "batch_size": config.batch, "lr": config.lr, "seed": config.seed,
        "parameters": net.params.size, "status": status,
        # What the best constant answer would get.
        "chance": significant(np.bincount(data.y_test).max() / len(data.y_test)),
        "history": history,
        **{"final_" + name: history[name][-1]
           for name in ("train_acc", "test_acc", "train_loss")},
        "wallclock_sec": round(seconds, 3),
        "layer_T_history": [[epoch, row.tolist()] for epoch, row in enumerate(layer_T)
                            if row.size and np.isfinite(row).all()],
        "final_T_per_layer": layer_T[-1].tolist() if status == "ok" else [],
        **own,
    }


def summarize(arms: list[dict]) -> list[dict]:
    """Mean and standard deviation (n - 1) over the seeds, per depth and block."""
    groups: dict[tuple, list] = {}
    for arm in arms:
        groups.setdefault((arm["depth"], arm["block"]), []).append(arm)
    rows = []
    for (depth, block), group in groups.items():
        row = {"depth": depth, "block": block, "n": len(group),
               "diverged": sum(arm["status"] != "ok" for arm in group)}
        for name in ("test_acc", "train_loss"):
            values = [arm["final_" + name] for arm in group if arm["status"] == "ok"]
            row[name + "_mean"] = significant(np.mean(values)) if values else None
            row[name + "_std"] = (significant(np.std(values, ddof=1))
                                  if len(values) > 1 else None)
        rows.append(row)
    return rows


def make_record(settings: dict, arms: list[dict], command: str,
                threads: int | None = 1) -> dict:
    """Settings of the command line and its arms -> the record of the run. Of depths
    that have each their own b_T it names the deepest one's; every arm names its own."""
    settings = settings | {"gate_bias": initial_bias(settings["gate_bias"],
                                                     max(settings["depths"]))}
    pairs: dict[tuple, dict] = {}
    for arm in arms:
        pairs.setdefault((arm["depth"], arm["seed"]), {})[arm["block"]] = arm
    runs = [{"depth": depth, "seed": seed, **pair, "wallclock_sec":
             round(sum(arm["wallclock_sec"] for arm in pair.values()), 3)}
            for (depth, seed), pair in pairs.items()]
    return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, "command": command,
            "dataset": settings["dataset"],
            "seed": settings["seeds"][0], "seeds": settings["seeds"],
            "hidden": settings["hidden"], "depth": max(settings["depths"]),
            "epochs": settings["epochs"], "batch_size": settings["batch"],
            "lr": settings["lr"], "n_train": settings["n_train"],
            "n_test": settings["n_test"], "config": settings,
            "env": environment(threads), "summary": summarize(arms), "runs": runs}


def to_json(value: Any, indent: str = "") -> str:
    """JSON with every array of numbers on one line, so that a diff can be read.

    Raises ValueError for NaN and the infinities, which JSON does not have.
    """
    deeper = indent + " "
    if isinstance(value, dict) and value:
        inner = [f"{json.dumps(str(key))}: {to_json(item, deeper)}"
                 for key, item in value.items()]
    elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        inner = [to_json(item, deeper) if isinstance(item, dict)
                 else json.dumps(item, allow_nan=False) for item in value]
    else:
        return json.dumps(value, allow_nan=False)
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{deeper}" + f",\n{deeper}".join(inner) + f"\n{indent}{right}"


def check_target(path: Path) -> None:
    """Raise OSError unless a file can be written there, so that it is known before the
    work that fills it. Only a regular file is replaced: a link is not what its owner
    meant. A missing folder is taken for one that will be made."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise OSError(22, "not a regular file, which alone is replaced", str(path))
    there = next((folder for folder in path.parents if folder.exists()), path.parent)
    with tempfile.TemporaryFile(dir=there):
        pass


def write_file(path: str | Path, content: bytes) -> None:
    """Write all of the bytes or nothing. Raises OSError, which names the file."""
    path = Path(path)
    check_target(path)
    beside = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:        # its mode is what the umask says
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        beside.unlink(missing_ok=True)


# --------------------------------------------------------------------------------------
# Command line

QUICK = {"depth": 10, "epochs": 5, "n_train": 2000, "n_test": 1000}
PROGRAM = COMMAND.split()[-1]


def say(text: str, stream: TextIO | None = None, end: str = "\n") -> bool:
    """Write to a stream, stderr unless another is given -> whether it took it.

    It may be closed, full, or a pipe that nobody reads any more: no reason to lose what
    was computed. What else is said to such a stream goes nowhere.
    """
    stream = stream or sys.stderr
    try:
        stream.write(text + end)
        stream.flush()
        return True
    except (AttributeError, OSError, ValueError):   # None, broken, closed or ASCII only
        with suppress(AttributeError, OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())       # or Python fails again as it ends
            os.close(nowhere)
        return False


def in_range(kind: type, low: float, high: float, words: tuple = ()) -> Callable:
    """An argparse type: a number of this kind within the range, both ends allowed, or a
    word for one."""
    def parse(text):
        if text in words:
            return text
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {noun} from {low} to {high}"
                + "".join(f", nor {word}" for word in words))
        return value
    return parse


def several(parse: Callable) -> Callable:
    """An argparse type: values separated by commas, each once."""
    def parse_all(text):
        values = [parse(part) for part in text.split(",")]
        if len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"{text!r} names a value twice")
        return values
    return parse_all


def block_name(text: str) -> str:
    """An argparse type: a kind of BLOCKS."""
    if text not in BLOCKS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(BLOCKS)}")
    return text


def path_of(text: str) -> Path:
    """An argparse type: a path that a record can name and a terminal show; ~ is the
    home folder, also after a = where no shell sees it."""
    if not text or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!a} is not the name of a file")
    return Path(os.path.expanduser(text))


def add_settings(parser: argparse.ArgumentParser) -> None:
    """One flag for each setting of Config, two for those that may have several values.
    """
    for item in fields(Config):
        if not item.metadata:
            continue
        flag, meta = "--" + item.name.replace("_", "-"), item.metadata
        text = f"{meta['help']} (default: {item.default})".replace("%", "%%")
        if meta["choices"]:
            parser.add_argument(flag, choices=meta["choices"], help=text)
            continue
        kind = in_range(type(item.default), meta["low"], meta["high"], meta["words"])
        where: Any = parser
        if item.name in ("seed", "depth"):
            where = parser.add_mutually_exclusive_group()
            where.add_argument(flag + "s", type=several(kind), metavar="A,B,...",
                               help=f"several values of {flag}")
        where.add_argument(flag, type=kind, metavar="N", help=text)


def build_parser() -> argparse.ArgumentParser:
    """The command line; what is no setting of the run has a default."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, allow_abbrev=False, argument_default=argparse.SUPPRESS,
        description="Train nets of different blocks, in NumPy: a highway net and a "
                    "plain net, unless told otherwise.",
        epilog="Only the headline (all defaults, on MNIST) writes run.json unasked; "
               "any other run without --out goes to runs/, named by its settings. A "
               "negative number with an exponent needs a =, as in --gate-bias=-1e-1.")
    add_settings(parser)
    parser.add_argument("--blocks", type=several(block_name), metavar="A,B,...",
                        help=f"kinds of nets, of {', '.join(BLOCKS)} (default: "
                             "highway,plain)")
    parser.add_argument("--plain-hidden", type=in_range(int, 1, 10_000), metavar="N",
                        help="units of the plain net (default: --hidden); 71 matches "
                             "the parameters of 50 highway units, as in the paper")
    parser.add_argument("--quick", action="store_true", default=False, help="; ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in QUICK.items())
        + ", each unless given")
    parser.add_argument("--data-dir", metavar="FOLDER", default=None, type=path_of,
                        help="of the data set's files (default: "
                             "$HIGHWAY_DATA_DIR, or one of its own in ~/.cache)")
    parser.add_argument("--out", metavar="FILE", default=None, type=path_of,
                        help="the record; a file of that name is replaced")
    return parser


def resolve(given: dict, quick: bool) -> dict:
    """Defaults, preset, flags given, the last one wins -> the settings of the run."""
    values = {"dataset": "mnist"} | {
        item.name: item.default for item in fields(Config) if item.metadata}
    values |= (QUICK if quick else {}) | given
    values.setdefault("plain_hidden", values["hidden"])
    return {"seeds": [values.pop("seed")], "depths": [values.pop("depth")],
            "blocks": ["highway", "plain"]} | values


def cap_images(settings: dict) -> dict:
    """The settings with no more images than the data set has."""
    n_train, n_test = DATASETS[settings["dataset"]].images
    return settings | {"n_train": min(settings["n_train"], n_train),
                       "n_test": min(settings["n_test"], n_test)}


def fit_to_data(settings: dict, given: dict, fail: Callable) -> dict:
    """`cap_images`, but fail where the number was given; and a batch must fit."""
    def check(name, most, of):
        if settings[name] > most:
            fail(f"argument --{name.replace('_', '-')}: {settings[name]} is not a "
                 f"whole number from 1 to {most}, the {of}")
    capped = cap_images(settings)
    for name in ("n_train", "n_test"):
        if name in given:
            check(name, capped[name], f"images of {settings['dataset']}")
    check("batch", capped["n_train"], "training images")
    return capped


def make_configs(settings: dict) -> list[Config]:
    """One Config for each seed, depth and block of the run, in the record's order."""
    shared = {name: settings[name] for name in settings
              if name not in ("dataset", "seeds", "depths", "blocks", "plain_hidden")}
    common = Config(**shared)
    return [replace(common, block=block, depth=depth, seed=seed, hidden=settings[
                "plain_hidden" if block == "plain" else "hidden"])
            for depth in settings["depths"] for seed in settings["seeds"]
            for block in settings["blocks"]]


def flags_of(settings: dict) -> list[tuple[str, str]]:
    """The flags that make this run: the seeds, and what differs from the headline."""
    headline = cap_images(resolve({"dataset": settings["dataset"]}, quick=False))
    headline |= {"dataset": "mnist", "plain_hidden": settings["hidden"]}
    flags = []
    for name, value in settings.items():
        if name != "seeds" and value == headline[name]:
            continue
        if name in ("seeds", "depths") and len(value) == 1:
            name = name[:-1]
        if isinstance(value, list):
            value = ",".join(map(str, value))
        flags.append((name.replace("_", "-"), str(value)))
    return flags


def default_out(flags: list[tuple[str, str]]) -> Path:
    """run.json for the headline on MNIST, else runs/<its flags>.json."""
    if flags == [("seed", "0")]:
        return Path("run.json")
    name = "_".join("=".join(flag) for flag in flags)
    if len(name) > 120:     # a file name holds 255 bytes; keep it legible and unique
        name = name[:100] + "_" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return Path("runs") / f"{name}.json"


def command_of(flags: list[tuple[str, str]], out: Path | None) -> str:
    """The command that makes this record again, without paths of this machine."""
    if out is not None and out != default_out(flags):
        flags = [*flags, ("out", out.name if out.is_absolute() else out.as_posix())]
    words = (f"--{k}{'=' if v.startswith('-') else ' '}{shlex.quote(v)}"
             for k, v in flags)
    return " ".join([COMMAND, *words])


def table_of(arms: list[dict]) -> str:
    """The small table at the end."""
    lines = [" net, blocks   seed  parameters  test acc  train loss  seconds"]
    for arm in arms:
        shown = "diverged           -"
        if arm["status"] == "ok":
            shown = f"{arm['final_test_acc']:8.4f}  {arm['final_train_loss']:10.4f}"
        lines.append(f"{arm['label']:>12}  {arm['seed']:>5}  {arm['parameters']:>10,}  "
                     f"{shown}  {arm['wallclock_sec']:7.2f}")
    for row in summarize(arms):
        if row["test_acc_std"] is not None:
            lines.append(f"{row['block']} {row['depth']}: test accuracy "
                         f"{row['test_acc_mean']:.4f} +- {row['test_acc_std']:.4f} "
                         f"over {row['n'] - row['diverged']} seeds")
    return "\n".join(lines)


def check_out(out: Path | None, fail: Callable, flag: str = "--out") -> None:
    """Fail before the start where a file cannot be written, or its folder is missing.
    """
    try:
        if out:
            check_target(out)
            if not out.parent.is_dir() and out.parent != Path("runs"):
                raise OSError(2, f"{out.parent} is not a folder")
    except OSError as error:
        fail(f"argument {flag}: {out}: {error.strerror}")


def finish(record: dict, arms: list[dict], out: Path | None) -> None:
    """Write the record, if it has a place, then say what came out: so no stream can
    lose it. Exits with 1 and a line that says why, if nothing could be written."""
    error = None
    try:
        if out:
            out.parent.mkdir(exist_ok=True)
            write_file(out, f"{to_json(record)}\n".encode())
    except OSError as caught:
        error = caught
    said = say(table_of(arms), sys.stdout)
    if error:
        sys.exit(f"{PROGRAM}: {out}: {error.strerror}; nothing written")
    if out:
        say(f"wrote {out}", sys.stdout)
    elif not said:
        sys.exit(1)


def run_command(parser: argparse.ArgumentParser, argv: list[str] | None,
                obtain: Callable, train_all: Callable) -> dict:
    """What every command line of this repository does -> the record. Exits with 2 for a
    wrong flag, 1 for wrong data or a failed write, 130 after Ctrl-C.

    obtain(settings, own) -> the data set's name and Data; own: the flags that are no
        settings of the nets.
    train_all(configs, data, own) -> the arms and their number of BLAS threads.
    """
    own = vars(parser.parse_args(argv))
    plan = {item.name for item in fields(Config)} | {
        "seeds", "depths", "blocks", "plain_hidden", "dataset"}
    given = {name: own.pop(name) for name in plan & set(own)}
    settings, out = resolve(given, own["quick"]), own["out"]
    check_out(out, parser.error)
    try:
        settings["dataset"], data = obtain(settings, own)
        settings = fit_to_data(settings, given, parser.error)
        flags = flags_of(settings)
        place = None if own.get("no_save") else out or default_out(flags)
        check_out(place, parser.error)
        arms, threads = train_all(make_configs(settings), data, own)
    except DataError as error:
        sys.exit(f"{PROGRAM}: {error}")
    except KeyboardInterrupt:
        say(f"\n{PROGRAM}: interrupted; no record written")
        sys.exit(130)
    record = make_record(settings, arms, command_of(flags, out), threads)
    finish(record, arms, place)
    return record


def main(argv: list[str] | None = None) -> dict:
    """The command line without highway_suite: MNIST from its files, one net after the
    other."""
    def obtain(settings, own):
        return "mnist", load_dataset("mnist", own["data_dir"])

    def train_all(configs, data, own):
        with blas_threads(threads_for(max(config.hidden for config in configs))
                          ) as threads:
            return [train_arm(config, take_subset(data, config), True)
                    for config in configs], threads
    return run_command(build_parser(), argv, obtain, train_all)


if __name__ == "__main__":
    if find_spec("highway_suite"):
        from highway_suite.cli import run_as_program
        run_as_program()
    else:
        main()
