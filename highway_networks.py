"""Highway networks, trained by hand: "Training Very Deep Networks" in NumPy.

R. K. Srivastava, K. Greff, J. Schmidhuber, NIPS 2015, arXiv:1507.06228. This module is
the whole machine: data, blocks, net, loss, optimisers, training, records, command line.
The mathematics is in the sections from "Activations and blocks" to "Training".

    python3 highway_networks.py --seed 0       one highway and one plain net -> run.json

Legend: N examples, B batch, P pixels, U units (--hidden), L blocks (--depth), C classes
where it is a size, R rows of a block's weights, U for H and U for each gate. Columns
are examples, so activations are (U, B); * is by element, ^T transposes. T is always the
gate; d<name> is the derivative of the loss with respect to <name>; z_H and z_T are
pre-activations. A block is a whole layer; the paper calls each of its units one. Depth
counts the blocks after the input projection; the paper counts the projection too, so
its "50 layers" are depth 49 here.

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
it is all matrix products. The gradient of all weights together, shortened to --clip if
its norm is larger, is what Adam or momentum SGD steps along.

Why b_T starts negative. W_T x is small at first, so T = sigmoid(b_T) nearly everywhere,
and each layer scales signal and gradient by 1 - T. With b_T = -2 that is 0.88 a layer
and 0.02 after thirty: little, but 300,000 times what the plain net has left. With -4 it
is 0.58. So the deeper the net, the more negative b_T must be (section 2.2); but H
learns through T alone, and a gate that starts too far closed opens late, or never where
T rounds to 0 and with it every gradient of its layer (float32: z_T below about -20).
From there on dT = (H - x) * dy decides: gates open where the transform serves the loss
better than the input does, and the rest of the depth is carried through. Which layers
those are is what experiments/ looks into.

The family. y = H * T + x * C, with C the carry gate, has six members here, by which of
T and C are learned. BLOCKS is their table: plain T = 1, C = 0; highway C = 1 - T;
residual T = C = 1; t_only C = 1; c_only T = 1; full learns both. All share the net
around them.

One batch on its way: idx bytes -> `load_dataset`, uint8 (N, P) -> `scale_pixels`, [-1,
1] -> `batches`, (P, B) -> `DeepNet.forward`, logits (C, B), leaving H, T and x of every
layer in a `Cache` -> `cross_entropy`, the loss and dlogits -> `DeepNet.backward`, one
flat gradient -> `clip_norm` -> `Adam` or `SGD`, in place on one flat vector of weights.
`train` repeats it, `make_record` keeps what happened.
"""

from __future__ import annotations

import argparse
import errno
import hashlib
import importlib.util
import io
import json
import math
import os
import platform
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import NamedTuple

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."
try:
    import numpy as np
    from threadpoolctl import threadpool_info, threadpool_limits
    from tqdm import tqdm
except ImportError as error:
    if __name__ != "__main__":
        raise
    raise SystemExit(f"highway_networks.py needs {error.name}. Install: {INSTALL}")

HERE = Path(__file__).resolve().parent

# --------------------------------------------------------------------------------------
# Configuration


def setting(default, text, *, low=None, high=None, choices=None):
    """A Config field that is also a flag: its default, help text and allowed values."""
    allowed = {"help": text, "low": low, "high": high, "choices": choices}
    return field(default=default, metadata=allowed)


@dataclass(frozen=True)
class Config:
    """One net and its training, complete: two equal Configs give the same weights on
    one machine with one set of library versions.

    The command line is generated from these fields, and every record holds them all.
    Raises ValueError for a value that is not allowed.
    """

    block: str = "highway"
    dataset: str = "mnist"
    seed: int = setting(0, "fixes subset, weights and batches", low=0, high=2**32 - 1)
    depth: int = setting(30, "blocks after the input projection", low=1, high=10_000)
    hidden: int = setting(50, "units of every block", low=1, high=10_000)
    activation: str = setting("tanh", "of H", choices=("tanh", "relu"))
    init: str = setting("uniform", "of weights; uniform is U(+-1/sqrt(fan_in)), a "
                        "third of glorot's variance",
                        choices=("uniform", "glorot", "he"))
    gate_bias: float = setting(-2.0, "initial b_T; a learned carry gate has minus it",
                               low=-100, high=100)
    epochs: int = setting(12, "passes over the training images", low=1, high=100_000)
    batch: int = setting(128, "images per step", low=1, high=60_000)
    optimizer: str = setting("adam", "or momentum SGD", choices=("adam", "sgd"))
    lr: float = setting(5e-3, "learning rate", low=1e-9, high=1e3)
    lr_decay: float = setting(1.0, "factor on --lr after each epoch", low=1e-6, high=1)
    momentum: float = setting(0.9, "of --optimizer sgd", low=0, high=0.9999)
    clip: float = setting(5.0, "largest gradient norm; 0 is no limit", low=0, high=1e9)
    n_train: int = setting(6000, "training images, drawn by seed", low=1, high=60_000)
    n_test: int = setting(2000, "test images, drawn by seed", low=1, high=10_000)
    dtype: str = setting("float32", "of every array", choices=("float32", "float64"))

    def __post_init__(self):
        for name, table in (("block", BLOCKS), ("dataset", DATASETS)):
            if getattr(self, name) not in table:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: "
                                 f"{tuple(table)}")
        for item in fields(self):
            value, meta = getattr(self, item.name), item.metadata
            kind = (int, float) if isinstance(item.default, float) else int
            if not meta or (value in meta["choices"] if meta["choices"] else
                            isinstance(value, kind)
                            and meta["low"] <= value <= meta["high"]):
                continue
            allowed = meta["choices"] or f"{meta['low']} to {meta['high']}"
            raise ValueError(f"{item.name} is {value!r}; allowed: {allowed}")


QUICK = {"depth": 10, "epochs": 5, "n_train": 2000, "n_test": 1000}

# --------------------------------------------------------------------------------------
# Data


class DataError(ValueError):
    """A data file is missing or wrong: which one, what was found, and what to do."""


class MissingData(DataError):
    """The files are not there and no mirror gave them."""


class IdxFile(NamedTuple):
    """One idx file of a data set, as it must be."""

    name: str       # the gzipped file; the same name without .gz may lie unpacked
    shape: tuple    # (N, height, width) of images, (N,) of labels
    sha256: str     # of the payload, which re-packing does not change
    gz_sha256: str = ""     # of the official .gz, for the download,
    gz_bytes: int = 0       # and its size


class Dataset(NamedTuple):
    """Four idx files: training images and labels, test images and labels."""

    files: tuple
    scale: int          # the largest pixel value
    classes: int
    folder: Path | None = None      # where it is shipped, if it is
    mirrors: tuple = ()


DATASETS = {
    # LeCun, Cortes, Burges; the hashes are those of the files of 1998.
    "mnist": Dataset(
        files=(
            IdxFile("train-images-idx3-ubyte.gz", (60000, 28, 28),
                    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                    9912422),
            IdxFile("train-labels-idx1-ubyte.gz", (60000,),
                    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                    28881),
            IdxFile("t10k-images-idx3-ubyte.gz", (10000, 28, 28),
                    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                    1648877),
            IdxFile("t10k-labels-idx1-ubyte.gz", (10000,),
                    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                    4542),
        ),
        scale=255, classes=10,
        mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/",
                 "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    ),
    # UCI optical digits, 8x8; see data/digits/README.md.
    "digits": Dataset(
        files=(
            IdxFile("train-images-idx3-ubyte.gz", (1437, 8, 8),
                    "5f7350bc1a400f722695b561e85a3860dfd1d04df1be94ad585900b51f1a4be3"),
            IdxFile("train-labels-idx1-ubyte.gz", (1437,),
                    "285f5abc6b458ff9816638ffbebb4c02b09af05624dfa54459e8e375dc4943a6"),
            IdxFile("t10k-images-idx3-ubyte.gz", (360, 8, 8),
                    "045e47932e3ba7e00b615823d06700cd192451196741bda8ad0f44874686afb3"),
            IdxFile("t10k-labels-idx1-ubyte.gz", (360,),
                    "59712ac0fec7f148717d68d3f29ac991b3411addd133c0b8e6976cf4b564fdcb"),
        ),
        scale=16, classes=10, folder=HERE / "data" / "digits",
    ),
}


# Files of other data sets that come under the same names, by the SHA-256 of the .gz.
STRANGERS = {
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84": "Fashion-MNIST",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845": "Fashion-MNIST",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073": "Fashion-MNIST",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5": "Fashion-MNIST",
}
TIMEOUT, DEADLINE = 20, 900     # seconds without a byte, and for one file in all


class Data(NamedTuple):
    """Images and labels: uint8 as read, or a float dtype in [-1, 1] once scaled."""

    x_train: np.ndarray     # (N, P)
    y_train: np.ndarray     # (N,)
    x_test: np.ndarray
    y_test: np.ndarray


def encode_idx(array):
    """uint8 array of any shape -> the bytes of an idx file."""
    header = b"\0\0\x08" + bytes([array.ndim])
    return header + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def decode_idx(payload):
    """The bytes of an idx file -> read-only uint8 array. Raises DataError.

    The sizes are multiplied as Python integers and compared with the bytes that are
    there before any array is made, so no header can wrap around or ask for memory.
    """
    if len(payload) < 4 or payload[:3] != b"\0\0\x08":
        found = payload[:4].hex() or "nothing"
        raise DataError(f"an idx file of bytes starts 0000 08; found {found}")
    ndim = payload[3]
    start = 4 + 4 * ndim
    if not 1 <= ndim <= 3 or len(payload) < start:
        raise DataError(f"bad idx header: {ndim} dimensions in {len(payload)} bytes")
    shape = [int(n) for n in np.frombuffer(payload, ">u4", ndim, 4)]
    if math.prod(shape) != len(payload) - start:
        raise DataError(f"an idx header of shape {shape} wants {math.prod(shape)} data "
                        f"bytes; found {len(payload) - start}")
    return np.frombuffer(payload, np.uint8, offset=start).reshape(shape)


def read_file(path, most):
    """The bytes of a regular file of at most so many. Raises DataError."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):      # before opening it: a FIFO would block
            raise DataError("not a regular file")
        if info.st_size > most:
            raise DataError(f"{info.st_size} bytes, {most} allowed")
        return Path(path).read_bytes()
    except OSError as error:
        raise DataError(error.strerror or str(error)) from error


def gunzip(packed, size):
    """The payload of one gzip stream, checked to its end, of at most `size` bytes."""
    inflate = zlib.decompressobj(wbits=31)      # 31: gzip, with its CRC and length
    try:
        payload = inflate.decompress(packed, size + 1)
    except zlib.error as error:
        raise DataError(f"broken gzip: {error}") from error
    if len(payload) > size:
        raise DataError(f"unpacks to more than the {size} bytes expected")
    if not inflate.eof:
        raise DataError("gzip ends before its end-of-stream marker")
    if inflate.unused_data.strip(b"\0"):
        raise DataError("there is something after the end of the gzip stream")
    return payload


def read_idx(path, expected, classes):
    """One checked file of a data set -> uint8 array. DataError: path and remedy."""
    ndim = len(expected.shape)
    size = 4 + 4 * ndim + math.prod(expected.shape)
    try:
        content = read_file(path, size + 4096)      # no gzip of good data is longer
        digest = hashlib.sha256(content).hexdigest()
        if digest in STRANGERS:
            raise DataError(f"this is a file of {STRANGERS[digest]}")
        payload = gunzip(content, size) if content[:2] == b"\x1f\x8b" else content
        array = decode_idx(payload)
        if array.ndim != ndim:
            raise DataError(f"idx magic {0x800 + array.ndim}, expected {0x800 + ndim}")
        if array.shape != expected.shape:
            raise DataError(f"shape {array.shape}, expected {expected.shape}")
        if ndim == 1 and array.max() >= classes:
            raise DataError(f"label {array.max()}, largest allowed {classes - 1}")
        if digest != expected.gz_sha256:            # not the official .gz: re-packed?
            digest = hashlib.sha256(payload).hexdigest()
            if digest != expected.sha256:
                raise DataError(f"SHA-256 {digest[:16]}, expected "
                                f"{expected.sha256[:16]}: other data of the same shape")
    except DataError as error:
        remedy = ("Delete it and run again to fetch a good copy, or name another "
                  "folder with --data-dir" if expected.gz_sha256 else
                  "Restore it from the repository")
        raise DataError(f"{path}: {error}. {remedy}") from error
    return array


def download(url, target, expected):
    """One file from one mirror, as pooch's downloader. Raises OSError or DataError.

    Only the mirror's own scheme is spoken, so no redirect leaves https.
    """
    import requests
    from urllib3.exceptions import HTTPError
    session, size, stop = requests.Session(), 0, time.monotonic() + DEADLINE
    session.adapters.clear()
    session.mount(url.partition("//")[0], requests.adapters.HTTPAdapter())
    bar = tqdm(total=expected.gz_bytes, desc=expected.name, unit="B", unit_scale=True,
               disable=not sys.stderr.isatty())
    with session, bar, open(target, "wb") as file:
        with session.get(url, stream=True, timeout=TIMEOUT) as response:
            response.raise_for_status()
            try:
                # read1 hands over what is there, so a dripping server meets the clock.
                while chunk := response.raw.read1(1 << 16):
                    if not size and chunk.lstrip()[:1] == b"<":
                        raise DataError("an HTML page, not the file (a login portal?)")
                    size += len(chunk)
                    if size > expected.gz_bytes:
                        raise DataError(f"more than the {expected.gz_bytes} bytes "
                                        "expected")
                    if time.monotonic() > stop:
                        raise DataError(f"not complete after {DEADLINE} s")
                    file.write(chunk)
                    bar.update(len(chunk))
            except HTTPError as error:
                raise DataError(repr(error)) from error


def reason_of(error):
    """The line of an exception that a user can act on."""
    text = " ".join(str(error).rpartition("Caused by ")[2].split())
    if "CERTIFICATE_VERIFY_FAILED" in text:
        text = "the certificate cannot be verified (on macOS: run Install " \
               "Certificates.command). " + text
    return text[:200]


def fetch(expected, mirrors, folder):
    """Download one file from the first mirror that has it; the SHA-256 is checked
    before the file takes its name. Raises MissingData with every mirror's reason."""
    import pooch
    reasons = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "no right to write there")
    except OSError as error:
        reasons, mirrors = [f"{folder}: {error.strerror}"], ()
    for mirror in mirrors:
        try:
            return Path(pooch.retrieve(
                mirror + expected.name, fname=expected.name, path=folder,
                known_hash="sha256:" + expected.gz_sha256,
                downloader=lambda url, target, _: download(url, target, expected)))
        except (OSError, ValueError) as error:
            reasons.append(f"{mirror}: {reason_of(error)}")
    raise MissingData(f"{folder / expected.name} is missing and cannot be fetched "
                      f"({'; '.join(reasons)}). Put the four MNIST idx files there, "
                      "or name their folder with --data-dir or $HIGHWAY_DATA_DIR, or "
                      "use --dataset digits")


def data_folder(data_dir=None):
    """--data-dir, else $HIGHWAY_DATA_DIR, else the usual cache for these files."""
    chosen = data_dir or os.environ.get("HIGHWAY_DATA_DIR") or "~/.cache/hinton-mnist"
    folder = os.path.expanduser(chosen)
    if folder.startswith("~"):
        raise DataError(f"{chosen}: there is no home folder. Name the folder of the "
                        "four MNIST idx files with --data-dir or $HIGHWAY_DATA_DIR")
    return Path(folder)


def mend(path, expected, mirrors, error):
    """Replace a broken file from a mirror; it stays beside the good one as .bad. Raises
    the DataError it was found with, and leaves it where it is, if no mirror helps."""
    aside = path.with_name(path.name + ".bad")
    try:
        os.replace(path, aside)
    except FileNotFoundError:       # another process is at it
        pass
    except OSError:
        raise error from None
    try:
        good = fetch(expected, mirrors, path.parent)
    except BaseException as failure:
        if os.path.lexists(aside) and not os.path.lexists(path):
            os.replace(aside, path)
        raise (error if isinstance(failure, DataError) else failure) from None
    print(f"{error}\nFetched a good copy; the other is {aside.name} now.",
          file=sys.stderr)
    return good


def load_dataset(name, data_dir=None):
    """"mnist" or "digits" -> uint8 Data: images (N, P), labels (N,). Raises DataError.

    Every file is checked on every read, down to the SHA-256 of its payload. The arrays
    are read-only.
    """
    dataset = DATASETS[name]
    folder = dataset.folder or data_folder(data_dir)
    arrays = []
    for expected in dataset.files:
        path = folder / expected.name
        if not os.path.lexists(path) and path.with_suffix("").exists():
            path = path.with_suffix("")
        if not os.path.lexists(path) and dataset.mirrors:
            path = fetch(expected, dataset.mirrors, folder)
        try:
            array = read_idx(path, expected, dataset.classes)
        except DataError as error:
            if not dataset.mirrors:
                raise
            path = mend(path, expected, dataset.mirrors, error)
            array = read_idx(path, expected, dataset.classes)
        arrays.append(array.reshape(len(array), -1) if array.ndim == 3 else array)
    return Data(*arrays)


def load_auto(data_dir=None):
    """MNIST if it is there or can be fetched, else the shipped digits: (name, Data).

    A file that is there and wrong raises DataError: only an absent one falls back.
    """
    try:
        return "mnist", load_dataset("mnist", data_dir)
    except MissingData as error:
        rule = "!" * 88
        print(f"{rule}\nNO MNIST: {error}\nUSING THE SHIPPED 8x8 DIGITS INSTEAD. These "
              f"are not MNIST results.\n{rule}", file=sys.stderr)
        return "digits", load_dataset("digits")


def streams(seed):
    """seed -> the independent random streams of one run, by name (SeedSequence)."""
    names = ("subset", "weights", "batches")
    return dict(zip(names, np.random.SeedSequence(seed).spawn(len(names))))


def take_subset(data, config):
    """n_train training and n_test test images, drawn by the seed for both arms alike,
    so that a mean over seeds estimates the accuracy on the whole test set."""
    rng = np.random.default_rng(streams(config.seed)["subset"])
    train = rng.permutation(len(data.x_train))[:config.n_train]
    test = rng.permutation(len(data.x_test))[:config.n_test]
    return Data(data.x_train[train], data.y_train[train],
                data.x_test[test], data.y_test[test])


def scale_pixels(data, dataset, dtype="float32"):
    """uint8 Data -> Data with pixels in [-1, 1] and labels as indices."""
    def scaled(x):
        x = x.astype(dtype)
        x *= 2 / DATASETS[dataset].scale
        x -= 1
        return x
    return Data(scaled(data.x_train), data.y_train.astype(np.intp),
                scaled(data.x_test), data.y_test.astype(np.intp))


# --------------------------------------------------------------------------------------
# Activations and blocks


class Activation(NamedTuple):
    """forward(z): z -> H in place. backward(dH, H): H -> dz_H in place."""

    forward: Callable
    backward: Callable


def tanh_forward(z):
    np.tanh(z, out=z)


def tanh_backward(dH, H):
    """dz_H = dH (1 - H^2) = dH - dH H^2"""
    np.multiply(H, H, out=H)
    np.multiply(dH, H, out=H)
    np.subtract(dH, H, out=H)


def relu_forward(z):
    np.maximum(z, 0, out=z)


def relu_backward(dH, H):
    """dz_H = dH where H > 0, else 0"""
    np.greater(H, 0, out=H)         # np.sign would take thrice as long
    np.multiply(dH, H, out=H)


ACTIVATIONS = {
    "tanh": Activation(tanh_forward, tanh_backward),
    "relu": Activation(relu_forward, relu_backward),
}


def activate(z, H, gates, activation, half):
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
    forward: Callable
    backward: Callable


def gate_backward(G, scaled, through):
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
# DeepNet


def initial_weights(rng, init, shape, fan_out):
    """Random weights (..., fan_in) by the named rule, drawn in float64."""
    fan_in = shape[-1]
    if init == "he":                                    # He et al. 2015, for relu
        return rng.normal(0, math.sqrt(2 / fan_in), shape)
    bound = {"uniform": math.sqrt(1 / fan_in),
             "glorot": math.sqrt(6 / (fan_in + fan_out))}[init]     # Glorot et al. 2010
    return rng.uniform(-bound, bound, shape)


class Cache:
    """All that a forward pass of one net leaves for its backward pass, allocated once.

    It is made by `DeepNet.cache(batch)` and serves every batch of that size. Backward
    overwrites what forward left, so each forward pass serves one backward pass.
    """

    def __init__(self, net, batch):
        L, U, R = net.depth, net.hidden, net.rows
        self.net, self.batch, self.filled, self.pixels = net, batch, False, None
        # x's last row stays 1: it meets the biases, the last column of the weights.
        self.x = np.ones((L + 1, U + 1, batch), net.dtype)      # block inputs
        self.z = np.empty((L, R, batch), net.dtype)     # z -> H and gates -> dz
        k = net.block.gates.find("T") + 1
        self.T = self.z[:, k * U:(k + 1) * U] if k else None    # (L, U, batch)
        self.logits = np.empty((net.classes, batch), net.dtype)
        self.d = np.empty((U, batch), net.dtype)        # dy -> dx, layer after layer
        self.dH = np.empty((U, batch), net.dtype)
        self.scratch = np.empty((U, batch), net.dtype)
        self.half = np.array(0.5, net.dtype)
        self.grad = np.zeros_like(net.params)
        self.weights, self.dW = net.tensors(net.params), net.tensors(self.grad)
        # Every view that the two passes need, layer by layer: made here they cost once.
        H_and_gates = self.z.reshape(L, -1, U, batch)
        self.layers = [
            (W, W[:, :U].T, dW, x, x[:U], y[:U], z, tuple(rows), z[U:])
            for W, dW, x, y, z, rows in zip(
                self.weights["blocks"], self.dW["blocks"], self.x, self.x[1:], self.z,
                H_and_gates)]


class DeepNet:
    """P pixels -> projection -> L blocks of U units -> C logits.  (sections 2, 3.1)

    Weights are one flat vector, `params`, to be written into, never replaced;
    `views(flat)` names the parts of it, or of any other vector laid out alike:

        W_in (U, P), b_in (U, 1), W_H (L, U, U), b_H (L, U), W_out (C, U), b_out (C,)
        and for each gate of the block, here T: W_T (L, U, U), b_T (L, U)

    Nets of equal seed, hidden and init share W_in, W_out, and W_H and W_T as far as
    they have them, whatever their block and depth. Raises ValueError for an unknown
    block, activation or init and for a size below 1.
    """

    def __init__(self, block="highway", depth=30, hidden=50, *, inputs=784, classes=10,
                 activation="tanh", init="uniform", gate_bias=-2.0, seed=0,
                 dtype="float32"):
        for name, value, table in (("block", block, BLOCKS),
                                   ("activation", activation, ACTIVATIONS),
                                   ("init", init, ("uniform", "glorot", "he"))):
            if value not in table:
                raise ValueError(f"{name} {value!r}: choose from {', '.join(table)}")
        if min(depth, hidden, inputs, classes) < 1:
            raise ValueError(f"depth {depth}, hidden {hidden}, inputs {inputs}, "
                             f"classes {classes}: each must be at least 1")
        self.settings = {"block": block, "depth": depth, "hidden": hidden,
                         "inputs": inputs, "classes": classes, "activation": activation}
        self.block, self.activation = BLOCKS[block], ACTIVATIONS[activation]
        self.depth, self.hidden = depth, hidden
        self.inputs, self.classes = inputs, classes
        self.rows = hidden * (1 + len(self.block.gates))        # R: H and the gates
        self.dtype = np.dtype(dtype)
        self.shapes = {"W_in": (hidden, inputs), "b_in": (hidden, 1),
                       "blocks": (depth, self.rows, hidden + 1),
                       "out": (classes, hidden + 1)}
        size = sum(math.prod(shape) for shape in self.shapes.values())
        self.params = np.zeros(size, self.dtype)
        self._initialize(init, gate_bias, seed)

    def _initialize(self, init, gate_bias, seed):
        weights = self.views(self.params)
        names = ("W_in", "W_out", "W_H", "W_T", "W_C")
        for name, stream in zip(names, streams(seed)["weights"].spawn(len(names))):
            if name in weights:
                shape = weights[name].shape
                weights[name][...] = initial_weights(np.random.default_rng(stream),
                                                     init, shape, shape[-2])
        for gate, bias in (("T", gate_bias), ("C", -gate_bias)):    # both carry alike
            if gate in self.block.gates:
                weights["b_" + gate][...] = bias

    def tensors(self, flat):
        """flat -> {name: view} of the tensors as they lie in memory, by `shapes`."""
        views, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + math.prod(shape)
            views[name] = flat[start:stop].reshape(shape)
            start = stop
        return views

    def views(self, flat):
        """flat -> {name: view}, named as in the paper (class docstring)."""
        U, tensors = self.hidden, self.tensors(flat)
        named = {"W_in": tensors["W_in"], "b_in": tensors["b_in"],
                 "W_out": tensors["out"][:, :U], "b_out": tensors["out"][:, U]}
        for k, name in enumerate("H" + self.block.gates):
            rows = tensors["blocks"][:, k * U:(k + 1) * U]
            named["W_" + name], named["b_" + name] = rows[:, :, :U], rows[:, :, U]
        return named

    def cache(self, batch):
        """A Cache for batches of this size."""
        return Cache(self, batch)

    def forward(self, x, cache=None, closed=()):
        """(P, B) -> logits (C, B) and the cache, filled.

        closed: layers 0..L-1 whose gates are held at 0, so that they copy their input
        (lesioning, section 4.2); a block without gates is taken out all the same. The
        logits belong to the cache, which also keeps x itself until backward. Raises
        ValueError for an x or a layer that does not fit.
        """
        if x.ndim != 2 or len(x) != self.inputs or x.dtype != self.dtype:
            raise ValueError(f"x is {x.dtype} {x.shape}; the net takes {self.dtype} "
                             f"({self.inputs}, B)")
        closed = frozenset(closed)
        if closed - set(range(self.depth)):
            raise ValueError(f"closed {sorted(closed)}: layers are 0 to "
                             f"{self.depth - 1}")
        if cache is None or cache.net is not self or cache.batch != x.shape[1]:
            cache = self.cache(x.shape[1])
        weights, first = cache.weights, cache.x[0, :self.hidden]
        np.matmul(weights["W_in"], x, out=first)
        np.add(first, weights["b_in"], out=first)
        self.activation.forward(first)
        for l, (W, _, _, x1, x_l, y, z, rows, gates) in enumerate(cache.layers):
            np.matmul(W, x1, out=z)
            activate(z, rows[0], gates, self.activation, cache.half)
            self.block.forward(x_l, rows, y, cache.scratch)
            if l in closed:
                gates.fill(0)
                np.copyto(y, x_l)
        np.matmul(weights["out"], cache.x[-1], out=cache.logits)
        cache.pixels, cache.filled = x, not closed
        return cache.logits, cache

    def backward(self, dlogits, cache):
        """dlogits (C, B) and a filled cache -> the flat gradient, in `params`' layout.

        The vector belongs to the cache: the next backward pass overwrites it. Raises
        ValueError if the cache does not come fresh from this net's forward pass.
        """
        if cache.net is not self or not cache.filled:
            raise ValueError("backward needs a cache fresh from forward, none closed")
        cache.filled = False
        weights, grads = cache.weights, cache.dW
        d, dH, scratch = cache.d, cache.dH, cache.scratch
        np.matmul(dlogits, cache.x[-1].T, out=grads["out"])
        np.matmul(weights["out"][:, :self.hidden].T, dlogits, out=d)
        for _, W_back, dW, x1, x_l, _, z, rows, _ in reversed(cache.layers):
            self.block.backward(d, x_l, rows, dH, scratch)  # dy -> dH, gates' dz, dx
            self.activation.backward(dH, rows[0])       # z now holds dz
            np.matmul(z, x1.T, out=dW)
            np.matmul(W_back, z, out=dH)
            np.add(d, dH, out=d)                        # dx += W^T dz
        first = cache.x[0, :self.hidden]
        self.activation.backward(d, first)
        np.matmul(first, cache.pixels.T, out=grads["W_in"])
        np.sum(first, axis=1, keepdims=True, out=grads["b_in"])
        return cache.grad

    def _probe(self, x, closed=()):
        x = np.asarray(x, self.dtype)
        if not np.isfinite(x).all():
            raise ValueError("x has a NaN or an infinity")
        return self.forward(x, closed=closed)

    def predict(self, x, closed=()):
        """(P, B) -> the most probable class of each column, (B,)."""
        return self._probe(x, closed)[0].argmax(axis=0)

    def gates(self, x, closed=()):
        """(P, B) -> the transform gates T of every layer, (L, U, B); ValueError if the
        block has none."""
        if "T" not in self.block.gates:
            raise ValueError(f"{self.settings['block']} blocks have no transform gate")
        return self._probe(x, closed)[1].T

    def block_outputs(self, x, closed=()):
        """(P, B) -> the projection's output and every block's, (L + 1, U, B)."""
        return self._probe(x, closed)[1].x[:, :self.hidden]

    def save(self, path):
        """Write settings and weights to one .npz, without pickles. Raises OSError."""
        file = io.BytesIO()
        np.savez_compressed(file, settings=json.dumps(self.settings),
                            params=self.params)
        write_file(path, file.getvalue())

    @classmethod
    def load(cls, path):
        """The net that `save` wrote. Raises OSError for a file that cannot be opened,
        ValueError for one that is something else."""
        try:
            with open(path, "rb") as file, np.load(file) as archive:    # no pickles
                params = archive["params"]
                net = cls(**json.loads(str(archive["settings"])), dtype=params.dtype)
            net.params[...] = params
        except OSError:
            raise
        except Exception as error:      # zipfile, zlib, json, numpy: each its own kind
            raise ValueError(f"{path} is not a saved DeepNet: {error}") from error
        return net


# --------------------------------------------------------------------------------------
# Loss


def cross_entropy(logits, labels):
    """(C, B), (B,) -> mean of -log softmax(logits)[label], and dlogits (C, B).

    By log-sum-exp: exact where the probability of the label underflows.
    """
    B = len(labels)
    examples = np.arange(B)
    shifted = logits - logits.real.max(axis=0)
    dlogits = np.exp(shifted)
    total = dlogits.sum(axis=0)
    loss = (np.log(total) - shifted[labels, examples]).sum() / B
    dlogits /= total                    # softmax
    dlogits[labels, examples] -= 1
    dlogits /= B
    return loss, dlogits


# --------------------------------------------------------------------------------------
# Optimisers: in place, on flat vectors


def clip_norm(grad, limit):
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

    def __init__(self, params, beta1=0.9, beta2=0.999, eps=1e-8):
        self.m, self.v = np.zeros_like(params), np.zeros_like(params)
        self.scratch = np.empty_like(params)
        self.beta1, self.beta2, self.eps, self.steps = beta1, beta2, eps, 0

    def step(self, params, grad, lr):
        m, v, scratch = self.m, self.v, self.scratch
        self.steps += 1
        first = (1 - self.beta1) / (1 - self.beta1 ** self.steps)      # m_hat = first m
        second = math.sqrt((1 - self.beta2) / (1 - self.beta2 ** self.steps))
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

    def __init__(self, params, momentum):
        self.v, self.scratch = np.zeros_like(params), np.empty_like(params)
        self.momentum = momentum

    def step(self, params, grad, lr):
        np.multiply(self.v, self.momentum, out=self.v)
        np.multiply(grad, lr, out=self.scratch)
        np.subtract(self.v, self.scratch, out=self.v)
        np.add(params, self.v, out=params)


OPTIMIZERS = {
    "adam": lambda params, config: Adam(params),
    "sgd": lambda params, config: SGD(params, config.momentum),
}

# --------------------------------------------------------------------------------------
# Training


def significant(value):
    """Six significant digits: what a record keeps of a measured number."""
    return float(f"{value:.6g}")


class Diverged(ArithmeticError):
    """The loss, a weight or the norm of the gradient is no longer finite."""


def train_step(net, x, labels, cache, optimizer, lr, clip):
    """One update on a batch x (P, B) -> its loss, number right and gradient norm, all
    before the update. Raises Diverged and leaves the weights alone if not finite."""
    logits, cache = net.forward(x, cache)
    right = np.count_nonzero(logits.argmax(axis=0) == labels)
    loss, dlogits = cross_entropy(logits, labels)
    grad = net.backward(dlogits, cache)
    norm = clip_norm(grad, clip)
    if not math.isfinite(loss) or not math.isfinite(norm):
        raise Diverged(f"loss {loss}, gradient norm {norm}")
    optimizer.step(net.params, grad, lr)
    return float(loss), right, norm


def batches(x, labels, size, rng):
    """One epoch of shuffled (P, size) batches and their labels; the N mod size last
    images sit out. Each batch overwrites the one before."""
    order = rng.permutation(len(x))
    rows = np.empty((size, x.shape[1]), x.dtype)
    for start in range(0, len(x) - size + 1, size):
        chosen = order[start:start + size]
        np.take(x, chosen, axis=0, out=rows, mode="clip")   # "raise" would buffer
        yield rows.T, labels[chosen]


def train_epoch(net, data, config, epoch, cache, optimizer, rng):
    """One pass in shuffled batches -> mean loss, accuracy and gradient norm of its
    steps. Raises Diverged."""
    lr = config.lr * config.lr_decay ** (epoch - 1)
    steps = [train_step(net, x, labels, cache, optimizer, lr, config.clip)
             for x, labels in batches(data.x_train, data.y_train, config.batch, rng)]
    if not np.isfinite(net.params).all():       # the last update is no step's loss yet
        raise Diverged("a weight is not finite")
    loss, right, norm = np.mean(steps, axis=0)
    return loss, right / config.batch, norm


def evaluate(net, x, labels, cache):
    """x (N, P) -> accuracy, and the mean T of each layer (L,), empty without gates.

    Raises Diverged if a logit is not finite.
    """
    size, right = min(cache.batch, len(x)), 0
    T_sum = np.zeros(0 if cache.T is None else net.depth)
    for start in range(0, len(x), size):
        # All batches are of one size: the last reaches back and skips what it repeats.
        back = max(start + size - len(x), 0)
        rows = slice(start - back, start - back + size)
        logits, cache = net.forward(x[rows].T, cache)
        if not np.isfinite(logits).all():
            raise Diverged("a logit is not finite")
        right += np.count_nonzero((logits.argmax(axis=0) == labels[rows])[back:])
        if cache.T is not None:
            T_sum += cache.T[:, :, back:].sum(axis=(1, 2))
    return right / len(x), T_sum / (net.hidden * len(x))


def train_epochs(net, data, config, report):
    """The work of `train`."""
    cache, rng = net.cache(config.batch), np.random.default_rng(
        streams(config.seed)["batches"])
    optimizer = OPTIMIZERS[config.optimizer](net.params, config)
    names = ("train_loss", "train_acc", "grad_norm", "test_acc")
    history, layer_T = {name: [None] * config.epochs for name in names}, []
    history = {"epoch": list(range(1, config.epochs + 1)), **history}
    for epoch in range(config.epochs + 1):
        try:
            with np.errstate(all="ignore"):
                if epoch:
                    means = train_epoch(net, data, config, epoch, cache, optimizer, rng)
                test_acc, mean_T = evaluate(net, data.x_test, data.y_test, cache)
        except Diverged:
            return history, layer_T, "diverged"
        if len(mean_T):
            layer_T.append([epoch, [significant(T) for T in mean_T]])
        if epoch:
            for name, value in zip(names, (*means, test_acc)):
                history[name][epoch - 1] = significant(value)
            if report:
                report(epoch, history)
    return history, layer_T, "ok"


def make_net(config, inputs):
    """The untrained DeepNet of a configuration, for images of so many pixels."""
    names = ("block", "depth", "hidden", "activation", "init", "gate_bias", "seed",
             "dtype")
    return DeepNet(**{name: getattr(config, name) for name in names}, inputs=inputs,
                   classes=DATASETS[config.dataset].classes)


def train(net, data, config, report=None):
    """Train on scaled Data -> (history, layer_T_history, status), on one BLAS thread:
    more slow these sizes down and change the last bits.

    history: per epoch, `train_loss`, `train_acc` and `grad_norm` are means over its
    steps, each taken before its update; `test_acc` is taken after the epoch. The
    gates' mean T on the test images, per layer, starts at epoch 0. A run whose loss
    stops being finite ends there, status "diverged", and has None from that epoch on.
    report(epoch, history), if given, is called after each epoch. Raises ValueError if
    there are fewer images than a batch takes.
    """
    if config.batch > len(data.x_train):
        raise ValueError(f"batch {config.batch} of {len(data.x_train)} training images")
    with threadpool_limits(1, "blas"):
        return train_epochs(net, data, config, report)


def train_arm(config, data, report=None):
    """Configuration and uint8 subset -> one arm of the record."""
    start = time.perf_counter()
    net = make_net(config, data.x_train.shape[1])
    scaled = scale_pixels(data, config.dataset, config.dtype)
    history, layer_T, status = train(net, scaled, config, report)
    seconds = time.perf_counter() - start
    return {
        "label": f"{config.block} {config.depth}", "block": config.block,
        "depth": config.depth, "hidden": config.hidden, "epochs": config.epochs,
        "batch_size": config.batch, "lr": config.lr, "seed": config.seed,
        "parameters": net.params.size, "status": status,
        "history": history,
        **{"final_" + name: history[name][-1]
           for name in ("train_acc", "test_acc", "train_loss")},
        "wallclock_sec": round(seconds, 3),
        "layer_T_history": layer_T,
        "final_T_per_layer": layer_T[-1][1] if layer_T and status == "ok" else [],
    }


# --------------------------------------------------------------------------------------
# Records

SCHEMA, SCHEMA_VERSION = "highway-networks/run", 1
RECORD_LIMIT = 64 * 2**20       # bytes; a longer file is no record of ours


class RecordError(ValueError):
    """A record cannot be read: the file, the field, and the command that makes it."""


def git_state():
    """(revision, dirty) of the checkout this file lies in; None where there is none."""
    def git(*words):
        return subprocess.run(("git", *words), cwd=HERE, capture_output=True, text=True,
                              check=True, timeout=10).stdout.strip()
    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != HERE:
            return None, None
        return (git("rev-parse", "HEAD"),
                bool(git("status", "--porcelain", "--untracked-files=no")))
    except (OSError, subprocess.SubprocessError):
        return None, None


def environment():
    """What may change the last bits or the speed of a run; no user, host or path."""
    blas = next((lib for lib in threadpool_info() if lib["user_api"] == "blas"), {})
    revision, dirty = git_state()
    return {"python": platform.python_version(), "numpy": np.__version__,
            "platform": f"{platform.system()} {platform.machine()}",
            "blas": blas.get("internal_api"), "blas_version": blas.get("version"),
            "blas_kernel": blas.get("architecture"),
            "blas_threads": 1, "git": revision, "git_dirty": dirty}


def summarize(arms):
    """Mean and standard deviation (n - 1) over the seeds, per depth and block."""
    groups = {}
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


def make_record(settings, arms, command):
    """Settings of the command line and its arms -> the record of the run."""
    pairs = {}
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
            "env": environment(), "summary": summarize(arms), "runs": runs}


def to_json(value, indent=""):
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


def write_file(path, content):
    """Write all of the bytes or nothing: a temporary file beside it, then a rename."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_record(path, record):
    """Write a record as JSON, all of it or nothing."""
    write_file(path, f"{to_json(record)}\n".encode())


def parse_json(text):
    """JSON as the standard has it -> value. Raises ValueError; also for NaN, numbers
    too large for a float and a key that stands twice, which Python lets pass."""
    def unique(pairs):
        keys = [key for key, _ in pairs]
        if len(set(keys)) < len(keys):
            raise ValueError(f"key {max(keys, key=keys.count)!r} stands there twice")
        return dict(pairs)

    def finite(number):
        if not math.isfinite(float(number)):
            raise ValueError(f"{number[:20]} is not JSON, or too large")
        return float(number)

    def whole(number):
        finite(number)
        return int(number)
    return json.loads(text, object_pairs_hook=unique, parse_constant=finite,
                      parse_float=finite, parse_int=whole)


def check_record(record):
    """Raise RecordError, naming the field, unless this record can be drawn."""
    def need(holder, name, kind, place=""):
        if not isinstance(holder, dict) or not isinstance(holder.get(name), kind):
            raise RecordError(f"field '{place}{name}' is missing or not a "
                              f"{kind.__name__}")
        return holder[name]
    if need({"record": record}, "record", dict).get("schema", SCHEMA) != SCHEMA:
        raise RecordError(f"field 'schema' is {record['schema']!r:.40}, not {SCHEMA!r}")
    version = record.get("schema_version", SCHEMA_VERSION)
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise RecordError(f"field 'schema_version' is {version!r:.40}; this code reads "
                          f"up to {SCHEMA_VERSION}")
    if not need(record, "runs", list):
        raise RecordError("field 'runs' is empty")
    for number, run in enumerate(record["runs"]):
        place = f"runs[{number}]."
        need(run, "depth", int, place)
        for name in ("highway", "plain"):
            history = need(need(run, name, dict, place), "history", dict,
                           f"{place}{name}.")
            inner = f"{place}{name}.history."
            epochs = len(need(history, "epoch", list, inner))
            for series in ("epoch", "train_loss", "train_acc", "test_acc"):
                values = need(history, series, list, inner)
                if len(values) != epochs:
                    raise RecordError(f"field '{inner}{series}' is not {epochs} long")
                if not all(v is None or type(v) in (int, float) for v in values):
                    raise RecordError(f"field '{inner}{series}' holds no numbers")


def read_record(path, command="python3 highway_networks.py --seed 0"):
    """A checked record. Records without our `schema` key, by the earlier reproduction,
    are read too. Raises RecordError, one line that names file, field and remedy."""
    try:
        record = parse_json(read_file(path, RECORD_LIMIT).decode())
        check_record(record)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}: {error}. Make it with: {command}") from error
    return record


# --------------------------------------------------------------------------------------
# Command line


def number(kind, low, high):
    """An argparse type: a number of this kind within the range, both ends allowed."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            noun = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {noun} from {low} to {high}")
        return value
    return parse


def listed(parse):
    """An argparse type: values separated by commas, each once."""
    def parse_all(text):
        values = [parse(part) for part in text.split(",")]
        if len(set(values)) < len(values):
            raise argparse.ArgumentTypeError(f"{text!r} names a value twice")
        return values
    return parse_all


def block_name(text):
    """An argparse type: a kind of BLOCKS."""
    if text not in BLOCKS:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(BLOCKS)}")
    return text


def build_parser():
    """The command line: one flag for each setting of Config, and the run's own."""
    parser = argparse.ArgumentParser(
        prog="highway_networks.py", allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Train nets of different blocks side by side, in NumPy: a highway "
                    "net and a plain net, unless told otherwise.",
        epilog="Only the headline (all defaults, on MNIST) writes run.json unasked; "
               "any other run without --out goes to runs/, named by its settings.")
    for item in fields(Config):
        if not item.metadata:
            continue
        flag, meta = "--" + item.name.replace("_", "-"), item.metadata
        text = f"{meta['help']} (default: {item.default})".replace("%", "%%")
        if meta["choices"]:
            parser.add_argument(flag, choices=meta["choices"], help=text)
            continue
        kind = number(type(item.default), meta["low"], meta["high"])
        where = parser
        if item.name in ("seed", "depth"):
            where = parser.add_mutually_exclusive_group()
            where.add_argument(flag + "s", type=listed(kind), metavar="A,B,...",
                               help=f"several values of {flag}")
        where.add_argument(flag, type=kind, metavar="N", help=text)
    parser.add_argument("--blocks", type=listed(block_name), metavar="A,B,...",
                        help=f"kinds of nets, of {', '.join(BLOCKS)} (default: "
                             "highway,plain, the two that the figures need)")
    parser.add_argument("--plain-hidden", type=number(int, 1, 10_000), metavar="N",
                        help="units of the plain net (default: --hidden); 71 matches "
                             "the parameters of 50 highway units, as in the paper")
    parser.add_argument("--dataset", choices=("auto", *DATASETS),
                        help="auto: MNIST, or with a warning the shipped digits where "
                             "it cannot be had (default: auto)")
    parser.add_argument("--quick", action="store_true", default=False, help="; ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in QUICK.items())
        + ", each unless given")
    parser.add_argument("--data-dir", metavar="FOLDER", default=None,
                        help="of the four MNIST idx files (default: "
                             "$HIGHWAY_DATA_DIR, or ~/.cache/hinton-mnist)")
    parser.add_argument("--jobs", type=number(int, 1, 1024), metavar="N", default=None,
                        help="processes (default: one per core)")
    parser.add_argument("--out", metavar="FILE", default=None, help="the record")
    parser.add_argument("--no-save", action="store_true", default=False,
                        help="write no record")
    return parser


def resolve(given, quick):
    """Defaults, preset, flags given, the last one wins -> the settings of the run."""
    values = {"dataset": "auto"} | {item.name: item.default for item in fields(Config)
                                    if item.metadata}
    values |= (QUICK if quick else {}) | given
    values.setdefault("plain_hidden", values["hidden"])
    return {"seeds": [values.pop("seed")], "depths": [values.pop("depth")],
            "blocks": ["highway", "plain"]} | values


def cap_images(settings):
    """The settings with no more images than the data set has."""
    files = DATASETS[settings["dataset"]].files
    return settings | {"n_train": min(settings["n_train"], files[0].shape[0]),
                       "n_test": min(settings["n_test"], files[2].shape[0])}


def fit_to_data(settings, given, fail):
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


def width(settings, block):
    """Units of a block of this kind."""
    return settings["plain_hidden" if block == "plain" else "hidden"]


def check_memory(settings, jobs, fail):
    """Fail before the start where the largest nets, side by side, exceed the machine's
    memory: five vectors of parameters, and each layer's x and z."""
    L, B = max(settings["depths"]), settings["batch"]
    P = math.prod(DATASETS[settings["dataset"]].files[0].shape[1:])
    kinds = ((width(settings, block), 1 + len(BLOCKS[block].gates))
             for block in settings["blocks"])
    floats, U = max((5 * U * (L * k * (U + 1) + P) + (k + 1) * L * U * B, U)
                    for U, k in kinds)
    needed = jobs * np.dtype(settings["dtype"]).itemsize * floats
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        fail(f"argument --depth: {L} blocks of {U} units on {jobs} processes need "
             f"about {needed / 2**30:.0f} GiB; this machine has "
             f"{present / 2**30:.0f} GiB")


def flags_of(settings):
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


def default_out(flags):
    """run.json for the headline on MNIST, else runs/<its flags>.json."""
    if flags == [("seed", "0")]:
        return Path("run.json")
    name = "_".join("=".join(flag) for flag in flags)
    if len(name) > 120:     # a file name holds 255 bytes; keep it legible and unique
        name = name[:100] + "_" + hashlib.sha256(name.encode()).hexdigest()[:16]
    return Path("runs") / f"{name}.json"


def command_of(flags, out):
    """The command that makes this record again, without paths of this machine."""
    if out is not None and out != default_out(flags):
        flags = [*flags, ("out", out.name if out.is_absolute() else out.as_posix())]
    words = (f"--{k}={v}" if v.startswith("-") else f"--{k} {shlex.quote(v)}"
             for k, v in flags)
    return " ".join(["python3 highway_networks.py", *words])


def make_configs(settings):
    """One Config for each seed, depth and block of the run, in the record's order."""
    shared = {name: settings[name] for name in settings
              if name not in ("seeds", "depths", "blocks", "plain_hidden")}
    common = Config(**shared)
    return [replace(common, block=block, depth=depth, seed=seed,
                    hidden=width(settings, block))
            for depth in settings["depths"] for seed in settings["seeds"]
            for block in settings["blocks"]]


class Bar(tqdm):
    """A progress bar that several processes may draw at once: each keeps to its own row
    below the cursor and draws it in a single write."""

    def display(self, msg=None, pos=None):
        row = abs(self.pos)
        sys.stderr.write("\n" * row + f"\r{self}\x1b[K" + "\x1b[A" * row)
        sys.stderr.flush()

    def close(self):
        self.refresh()
        self.disable = True


def reporter(config, row):
    """What `train` calls after each epoch: a bar in this row, or a line without one."""
    label = f"{config.block:>7} {config.depth} seed {config.seed}"
    bar = None if row is None else Bar(total=config.epochs, desc=label, position=row,
                                       unit="epoch", ncols=88)

    def report(epoch, history):
        loss = history["train_loss"][epoch - 1]
        accuracy = history["test_acc"][epoch - 1]
        if bar is None:
            print(f"{label}  epoch {epoch:{len(str(config.epochs))}}/{config.epochs}  "
                  f"train loss {loss:.4f}  test accuracy {accuracy:.4f}",
                  file=sys.stderr, flush=True)
            return
        bar.set_postfix_str(f"loss {loss:.4f}, test {accuracy:.4f}", refresh=False)
        bar.update()
        if epoch == config.epochs:
            bar.close()
    return report


def train_reported(config, data, row):
    """`train_arm` with its progress on stderr: the work of one process. Without a
    configuration nothing but the imports."""
    if config is None:
        return None
    return train_arm(config, data, reporter(config, row))


@contextmanager
def sparing_children_ctrl_c():
    """Processes started in the body ignore Ctrl-C: the parent gets it and ends them."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextmanager
def starting_workers(jobs):
    """Start the processes, with NumPy, while the body reads the data."""
    if jobs == 1:
        yield
        return
    from joblib import Parallel, delayed
    with sparing_children_ctrl_c():
        started = Parallel(n_jobs=jobs, return_as="generator")(
            delayed(train_reported)(None, None, None) for _ in range(jobs))
    try:
        yield
    finally:
        list(started)


def train_all(configs, data, jobs):
    """Train every configuration, the costliest first, on so many processes."""
    from joblib import Parallel, delayed

    def cost(i):
        config = configs[i]
        return config.depth * config.hidden ** 2 * (1 + len(BLOCKS[config.block].gates))
    order = sorted(range(len(configs)), key=cost, reverse=True)
    bars = sys.stderr.isatty() and len(configs) < os.get_terminal_size(2).lines
    subsets = {seed: take_subset(data, replace(configs[0], seed=seed))
               for seed in {config.seed: 0 for config in configs}}
    arms = dict(zip(order, Parallel(n_jobs=jobs)(
        delayed(train_reported)(configs[i], subsets[configs[i].seed],
                                i if bars else None)
        for i in order)))
    if bars:
        print("\n" * len(configs), end="", file=sys.stderr)
    return [arms[i] for i in range(len(configs))]


def print_table(arms, gate_bias):
    """The small table at the end, and advice where a highway net did not start."""
    print("         net   seed  parameters  test acc  train loss  seconds")
    for arm in arms:
        shown = "diverged           -"
        if arm["status"] == "ok":
            shown = f"{arm['final_test_acc']:8.4f}  {arm['final_train_loss']:10.4f}"
        print(f"{arm['label']:>12}  {arm['seed']:>5}  {arm['parameters']:>10,}  {shown}"
              f"  {arm['wallclock_sec']:7.2f}")
    for row in summarize(arms):
        if row["test_acc_std"] is not None:
            print(f"{row['block']} {row['depth']}: test accuracy "
                  f"{row['test_acc_mean']:.4f} +- {row['test_acc_std']:.4f} "
                  f"over {row['n'] - row['diverged']} seeds")
    for arm in arms:
        if arm["block"] == "highway" and (arm["final_train_acc"] or 0) < 0.2:
            print(f"{arm['label']}, seed {arm['seed']}, did not learn: try a more "
                  f"negative --gate-bias than {gate_bias:g}, or a smaller --lr",
                  file=sys.stderr)


def save(record, out):
    """Write the record, or exit with 1 and a line that says why not."""
    try:
        out.parent.mkdir(exist_ok=True)
        write_record(out, record)
    except OSError as error:
        sys.exit(f"highway_networks.py: {out}: {error.strerror}; nothing written")
    print(f"wrote {out}")


def run(settings, given, own, fail):
    """Load the data while the processes start, train every net -> settings, arms."""
    from joblib import cpu_count
    nets = math.prod(len(settings[name]) for name in ("depths", "seeds", "blocks"))
    jobs = min(own["jobs"] or cpu_count(), nets)
    with starting_workers(jobs):
        if settings["dataset"] == "auto":
            settings["dataset"], data = load_auto(own["data_dir"])
        else:
            data = load_dataset(settings["dataset"], own["data_dir"])
        settings = fit_to_data(settings, given, fail)
        check_memory(settings, jobs, fail)
    return settings, train_all(make_configs(settings), data, jobs)


def main(argv=None):
    """Run the command line; return the record. Exits with 2 for a wrong flag, 1 for
    wrong data or a failed write, 130 after Ctrl-C."""
    for library in ("joblib", "pooch"):
        if importlib.util.find_spec(library) is None:
            sys.exit(f"highway_networks.py needs {library}. Install: {INSTALL}")
    parser = build_parser()
    given = vars(parser.parse_args(argv))
    own = {name: given.pop(name)
           for name in ("quick", "data_dir", "jobs", "out", "no_save")}
    out = Path(own["out"]) if own["out"] else None
    folder = out.parent if out else Path()
    if not own["no_save"] and ((out and out.is_dir()) or not folder.is_dir()
                               or not os.access(folder, os.W_OK)):
        parser.error(f"argument --out: {out or folder.resolve()} is not a file in a "
                     "folder to write to")
    try:
        settings, arms = run(resolve(given, own["quick"]), given, own, parser.error)
    except DataError as error:
        sys.exit(f"highway_networks.py: {error}")
    except KeyboardInterrupt:
        print("\nhighway_networks.py: interrupted; no record written", file=sys.stderr)
        sys.exit(130)
    flags = flags_of(settings)
    record = make_record(settings, arms, command_of(flags, out))
    print_table(arms, settings["gate_bias"])
    if not own["no_save"]:
        save(record, out or default_out(flags))
    return record


if __name__ == "__main__":
    # As an exception a SIGTERM cleans up behind itself, like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
