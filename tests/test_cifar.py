"""CIFAR is one data set, whatever it is packed in: small sets of each layout."""

import hashlib
import io
import pickle
import tarfile

import numpy as np
import pytest

import highway_networks as hn
from highway_suite.datasets import DATASETS, load

COUNTS = {"train": 5, "test": 2}        # images of each class


def sha256(rows):
    return hashlib.sha256(b"".join(sorted(map(bytes, rows)))).hexdigest()


@pytest.fixture(params=["cifar10", "cifar100"])
def name(request):
    return request.param


@pytest.fixture
def parts(name, rng, monkeypatch):
    """{part: rows (N, 3073)}, shuffled, which the table asks for."""
    row, parts = DATASETS[name], {}
    for part, count in COUNTS.items():
        labels = rng.permutation(np.repeat(np.arange(row.classes), count))
        parts[part] = np.column_stack([
            labels, rng.integers(256, size=(len(labels), 3072))]).astype(np.uint8)
    files = dict(zip(row.files, map(sha256, parts.values()), strict=True))
    monkeypatch.setitem(DATASETS, name, row._replace(
        files=files, images=tuple(map(len, parts.values()))))
    return parts


class Python2(pickle._Pickler):
    """Pickles as Python 2 wrote them: every string is one of bytes."""

    dispatch = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        content = text.encode() if isinstance(text, str) else text
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
    dispatch[str] = dispatch[bytes] = save_string


def python_2(batch):
    """A pickle as those of the official archives."""
    packed = io.BytesIO()
    Python2(packed, protocol=2).dump(batch)
    return packed.getvalue().replace(b"numpy._core.multiarray",
                                     b"numpy.core.multiarray")


def batches(name, parts, kind):
    """{file: content} of the official archive, binary or of Python."""
    if name == "cifar10":
        files = {f"data_batch_{n + 1}": rows
                 for n, rows in enumerate(np.split(parts["train"], 5))}
        files["test_batch"] = parts["test"]
    else:
        files = dict(parts)
    contents = {}
    for file, rows in files.items():
        coarse = rows[:, :1] // 5
        if kind == ".bin":
            body = np.hstack([coarse, rows]) if name == "cifar100" else rows
            contents[f"cifar-batches/{file}.bin"] = body.tobytes()
        else:
            labels = {b"labels": rows[:, 0].tolist()} if name == "cifar10" else {
                b"coarse_labels": coarse[:, 0].tolist(),
                b"fine_labels": rows[:, 0].tolist()}
            contents[f"cifar-batches/{file}"] = python_2(
                {b"data": rows[:, 1:].copy(), **labels})
    return contents | {"cifar-batches/batches.meta": b"no matter",
                       "cifar-batches/readme.html": b"<html>"}


def tar_of(contents, path):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def folder_of(contents, folder):
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def sources(name, parts):
    """{source: (how to put it there, its contents, the name of an archive)}"""
    binary, python = batches(name, parts, ".bin"), batches(name, parts, "")
    return {
        "official": (tar_of, binary, "cifar-10-binary.tar.gz"),
        "official, unpacked": (folder_of, binary, ""),
        "Python": (tar_of, python, "cifar-10-python.tar.gz"),
        "Python, unpacked": (folder_of, python, ""),
        "rows": (folder_of, {f"{part}.bin": rows.tobytes()
                             for part, rows in parts.items()}, ""),
        "sorted rows": (folder_of, {f"{part}.bin": b"".join(sorted(map(bytes, rows)))
                                    for part, rows in parts.items()}, "")}


def test_every_source_gives_the_same_arrays(name, parts, tmp_path):
    found = {}
    for source, (put, contents, file) in sources(name, parts).items():
        folder = tmp_path / source
        folder.mkdir()
        put(contents, folder / file)
        before = sorted(folder.rglob("*"))
        found[source] = load(name, folder)
        assert sorted(folder.rglob("*")) == before, "nothing is left beside the files"
    first = found.pop("official")
    for part in parts:
        x, y = (getattr(first, f"{letter}_{part}") for letter in "xy")
        assert sha256(np.column_stack([y, x])) == sha256(parts[part])
        assert y.dtype == np.uint8 and not x.flags.writeable
        assert not (y[1:] >= y[:-1]).all()
    for source, data in found.items():
        for array in ("x_train", "y_train", "x_test", "y_test"):
            assert np.array_equal(getattr(data, array), getattr(first, array)), source


class Command:
    """A pickle of it calls a function when it is read."""

    def __reduce__(self):
        return print, ("this must not be called",)


FAULTS = {
    "cut": lambda content: content[:len(content) // 2],
    "command": lambda content: pickle.dumps(Command(), protocol=2)}


@pytest.mark.parametrize("name", ["cifar10"], indirect=True)
@pytest.mark.parametrize("fault", [*FAULTS, "absent"])
@pytest.mark.parametrize("source", ["official", "Python", "rows"])
def test_whatever_is_wrong_inside_is_one_line(name, parts, tmp_path, source, fault,
                                              capsys):
    put, contents, file = sources(name, parts)[source]
    last = [key for key in contents if "test" in key][-1]
    spoiled = {key: content for key, content in contents.items() if key != last}
    if fault != "absent":
        spoiled[last] = FAULTS[fault](contents[last])
    put(spoiled, tmp_path / file)
    with pytest.raises(hn.DataError) as caught:
        load(name, tmp_path)
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""
