"""Data sets: what is missing is downloaded, what is broken is fetched anew.

Each file is checked by its SHA-256 before it takes its name, and again whenever it is
read (highway_networks.read_idx). This module adds the rows of the table that the core
does not need.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

from tqdm import tqdm

import highway_networks as hn

TIMEOUT, DEADLINE = 20, 900     # seconds without a byte, and for one file in all

hn.DATASETS["fashion"] = hn.Dataset("Fashion-MNIST", images=(60000, 10000),
                                    shape=(28, 28), files=hn.idx_files(
    # Xiao, Rasul, Vollgraf 2017; of the packed files alone the hashes are known.
    60000, 10000, 28,
    ("", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
    ("", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
    ("", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
    ("", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148)),
    scale=255, classes=10, read=hn.read_idx, cache="fashion-mnist",
    mirrors=("https://storage.googleapis.com/tensorflow/tf-keras-datasets/",))


def download(url: str, target: str, expected: hn.DataFile) -> None:
    """One file from one mirror, as pooch's downloader. Raises OSError or hn.DataError.

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
                        raise hn.DataError("an HTML page, not the file (a login "
                                           "portal?)")
                    size += len(chunk)
                    if size > expected.gz_bytes:
                        raise hn.DataError(f"more than the {expected.gz_bytes} bytes "
                                           "expected")
                    if time.monotonic() > stop:
                        raise hn.DataError(f"not complete after {DEADLINE} s")
                    file.write(chunk)
                    bar.update(len(chunk))
            except HTTPError as error:
                raise hn.DataError(repr(error)) from error


def reason_of(error: Exception) -> str:
    """The line of an exception that a user can act on."""
    text = " ".join(str(error).rpartition("Caused by ")[2].split())
    if "CERTIFICATE_VERIFY_FAILED" in text:
        text = "the certificate cannot be verified (on macOS: run Install " \
               "Certificates.command). " + text
    return text[:200]


def fetch(expected: hn.DataFile, dataset: hn.Dataset, folder: Path) -> Path:
    """Download one file from the first mirror that has it; the SHA-256 is checked
    before the file takes its name. Raises MissingData with every mirror's reason."""
    import pooch
    reasons, mirrors = [], dataset.mirrors
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
    raise hn.MissingData(f"{folder / expected.name} is missing and cannot be fetched "
                         f"({'; '.join(reasons)}). Put the {len(dataset.files)} files "
                         f"of {dataset.title} there, or name their folder with "
                         "--data-dir or $HIGHWAY_DATA_DIR, or use --dataset digits")


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
    print(f"{error}\nFetched a good copy; the other is {aside.name} now.",
          file=sys.stderr)
    return good


def obtain_file(path: Path, file: hn.DataFile, dataset: hn.Dataset):
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
        print(f"{rule}\nNO MNIST: {error}\nUSING THE SHIPPED 8x8 DIGITS INSTEAD. These "
              f"are not MNIST results.\n{rule}", file=sys.stderr)
        return "digits", obtain("digits")
