"""Data sets: what is missing is downloaded, what is broken is fetched anew.

Each file is checked by its SHA-256 before it takes its name, and again whenever it is
read (highway_networks.read_idx, highway_suite.cifar). This module adds the rows of the
table that the core does not need.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

import highway_networks as hn
from highway_suite.cifar import ROWS
from highway_suite.files import check_target, write_file
from highway_suite.terminal import say

hn.DATASETS["fashion"] = hn.Dataset("Fashion-MNIST", images=(60000, 10000),
                                    shape=(28, 28), files=hn.idx_files(
    60000, 10000, 28,   # Xiao, Rasul, Vollgraf 2017
    ("c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
    ("bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
    ("5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
    ("0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148)),
    scale=255, classes=10, read=hn.read_idx, cache="fashion-mnist",
    mirrors=("https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
             "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/"
             "fashion/"))
hn.DATASETS |= ROWS


def content_hash(name: str) -> str:
    """What a data set is, in 64 hex digits: the SHA-256 of the SHA-256 values that its
    row of the table demands, in their order. The files need not be there, and it is the
    same whatever they were packed in. Raises KeyError for a name without a row."""
    row = hn.DATASETS[name]
    known = row.contents or [file.sha256 or file.gz_sha256 for file in row.files]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()


def fetch(expected: hn.DataFile, dataset: hn.Dataset, folder: Path) -> Path:
    """Download one file from the first mirror that has it; only the right content takes
    its name, and only for it is the folder made. Raises MissingData with every mirror's
    reason."""
    from highway_suite.mirrors import MirrorError, download
    reasons, mirrors, path = [], dataset.mirrors, folder / expected.name
    try:
        check_target(path)
    except OSError as error:
        reasons, mirrors = [f"{folder}: {error.strerror}"], ()
    for mirror in mirrors:
        try:
            content = download(mirror + expected.name, expected)
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
            return path
        except MirrorError as error:
            reasons.append(f"{mirror}: {error}")
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            break
    raise hn.MissingData(f"{path} is missing and cannot be fetched "
                         f"({'; '.join(reasons)}). Put the files of "
                         f"{dataset.title} there, or name their folder with "
                         f"{hn.NAMED}")


def mend(path: Path, expected: hn.DataFile, dataset: hn.Dataset,
         error: hn.DataError) -> Path:
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
        good = fetch(expected, dataset, path.parent)
    except BaseException as failure:
        if os.path.lexists(aside) and not os.path.lexists(path):
            os.replace(aside, path)
        raise (error if isinstance(failure, hn.DataError) else failure) from None
    say(f"{error}\nFetched a good copy; the other is {aside.name} now.")
    return good


def obtain_file(path: Path, file: hn.DataFile, dataset: hn.Dataset
                ) -> np.ndarray | tuple[np.ndarray, ...]:
    """One file of a data set, as `hn.load_dataset` wants it read: fetched if it is not
    there, fetched anew if it is broken. A good file of another set is left alone."""
    if not os.path.lexists(path) and dataset.mirrors:
        path = fetch(file, dataset, path.parent)
    try:
        return dataset.read(path, file, dataset.classes)
    except hn.ForeignData:
        raise
    except hn.DataError as error:
        if not dataset.mirrors:
            raise
        path = mend(path, file, dataset, error)
        return dataset.read(path, file, dataset.classes)


def obtain(name: str, data_dir: str | Path | None = None) -> hn.Data:
    """A data set by name, downloaded if it is not there. Raises hn.DataError."""
    return hn.load_dataset(name, data_dir, obtain_file)


def obtain_auto(data_dir: str | Path | None = None) -> tuple[str, hn.Data]:
    """MNIST if it is there or can be fetched, else the shipped digits: (name, Data).

    A file that is there and wrong raises DataError: only an absent one falls back.
    """
    try:
        return "mnist", obtain("mnist", data_dir)
    except hn.MissingData as error:
        rule = "!" * 88
        say(f"{rule}\nNO MNIST: {error}\nUSING THE SHIPPED 8x8 DIGITS INSTEAD. These "
            f"are not MNIST results.\n{rule}")
        return "digits", obtain("digits")


def obtain_as_asked(dataset: str, data_dir: str | Path | None = None
                    ) -> tuple[str, hn.Data]:
    """What a flag --dataset names, or "auto" -> (name, Data). Raises hn.DataError."""
    if dataset == "auto":
        return obtain_auto(data_dir)
    return dataset, obtain(dataset, data_dir)
