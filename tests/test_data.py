"""The idx reader trusts nothing, and a machine without a network still runs."""

import gzip
import hashlib
import os
import shutil
import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from conftest import encode_idx

import highway_networks as hn
import highway_suite
from highway_suite.datasets import load_as_asked

LABELS = np.array([1, 2, 3, 9], np.uint8)
PACKED = gzip.compress(encode_idx(LABELS), mtime=0)


def read(path, array):
    digest = hashlib.sha256(encode_idx(array)).hexdigest()
    return hn.find_idx(path.parent, hn.DataFile("file", array.shape, digest))


@pytest.mark.parametrize("pack", [
    lambda b: b, gzip.compress, lambda b: gzip.compress(b, 1, mtime=7),
    lambda b: gzip.compress(b) + bytes(64),                 # zero padding is legal gzip
    lambda b: gzip.compress(b[:5]) + gzip.compress(b[5:])],
    ids=["unpacked", "official", "re-packed", "padded", "members"])
def test_good_files_are_accepted_by_their_content(tmp_path, pack):
    path = tmp_path / "file.gz"
    path.write_bytes(pack(encode_idx(LABELS)))
    assert np.array_equal(read(path, LABELS), LABELS)


def flipped(packed, position):
    return packed[:position] + bytes([packed[position] ^ 1]) + packed[position + 1:]


@pytest.mark.parametrize("content, found", [
    (b"", "SHA-256"), (PACKED[:-9], "broken gzip"), (PACKED[:5], "broken gzip"),
    (flipped(PACKED, -8), "broken gzip"), (flipped(PACKED, -1), "broken gzip"),
    (PACKED + b"x", "broken gzip"), (PACKED + PACKED, "SHA-256"),
    (b"<!DOCTYPE html>", "SHA-256"),
    (gzip.compress(bytes(2 * 10 ** 6), mtime=0), "more than"),
    (bytes(2 * 10 ** 6), "more than"),
    (bytes((0, 0, 13, 1, 0, 0, 0, 4)) + bytes(16 + 64), "idx type is 0x0d,"),
    (encode_idx(LABELS[:3]), "SHA-256"),
    (encode_idx(np.array([1, 2, 3, 8], np.uint8)), "SHA-256")])
def test_bad_files_are_one_line_with_path_and_fault(tmp_path, content, found):
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    with pytest.raises(hn.DataError, match=found) as caught:
        read(path, LABELS)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_no_more_is_read_or_unpacked_than_is_expected(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "bomb").write_bytes(gzip.compress(bytes(10 ** 7)))
    (tmp_path / "padded").write_bytes(gzip.compress(b"12345"))
    os.truncate(tmp_path / "padded", 10 ** 12)      # hours to read, and no disk
    assert hn.read_content(tmp_path / "padded", 5) == b"12345"
    assert hn.read_content(tmp_path / "file", 5) == b"12345"
    tracemalloc.start()
    try:
        for name, limit in (("file", 4), ("bomb", 100)):
            with pytest.raises(hn.DataError, match=f"more than the {limit} bytes"):
                hn.read_content(tmp_path / name, limit)
        assert tracemalloc.get_traced_memory()[1] < 10 ** 6
    finally:
        tracemalloc.stop()


def test_a_name_that_is_not_in_the_table_is_one_clear_line():
    with pytest.raises(hn.DataError, match="'fasion', only mnist, digits"):
        hn.load_dataset("fasion")


# --------------------------------------------------------------------------------------
# Where files lie, and under which names


FORMS = {       # of "NAME.gz": where it lies else, and whether unpacked
    "unpacked": ("{name}", True), "7-Zip": ("{dotted}", True),
    "Kaggle": ("{name}/{name}", True), "torchvision": ("MNIST/raw/{name}.gz", False),
    "torchvision, unpacked": ("MNIST/raw/{name}", True),
    "browser": ("{name} (1).gz", False), "renamed": ("my_{name}", False)}


@pytest.mark.parametrize("form", FORMS)
def test_files_as_people_have_them(small_mnist, form):
    before = hn.load_dataset("mnist", small_mnist)
    place, is_unpacked = FORMS[form]
    for path in list(small_mnist.iterdir()):
        content, name = path.read_bytes(), path.name.removesuffix(".gz")
        path.unlink()
        new = small_mnist / place.format(name=name, dotted=name.replace("-idx", ".idx"))
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(gzip.decompress(content) if is_unpacked else content)
    after = hn.load_dataset("mnist", small_mnist)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(before, name), getattr(after, name))
        assert not getattr(after, name).flags.writeable


def test_two_sets_in_one_folder_are_told_apart_by_their_hashes(small_mnist, monkeypatch,
                                                               rng):
    files, folder = [], small_mnist / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for file in hn.DATASETS["mnist"].files:
        payload = encode_idx(rng.integers(10, size=file.shape).astype(np.uint8))
        (folder / file.name).write_bytes(payload)
        files.append(file._replace(sha256=hashlib.sha256(payload).hexdigest()))
    monkeypatch.setitem(hn.DATASETS, "fashion", hn.DATASETS["mnist"]._replace(
        title="Fashion", files=tuple(files), cache="FashionMNIST"))
    mnist, fashion = (hn.load_dataset(name, small_mnist)
                      for name in ("mnist", "fashion"))
    assert not np.array_equal(mnist.x_train, fashion.x_train)
    for file in files:
        shutil.move(small_mnist / f"{file.name}.gz", folder.parent)
        (folder / file.name).unlink()
    with pytest.raises(hn.DataError, match="this is train-images-.* of MNIST"):
        hn.load_dataset("fashion", small_mnist)


def test_where_nothing_fits_the_message_says_what_is_there(tmp_path):
    for found, folder in (("nothing", tmp_path), ("no such folder", tmp_path / "no")):
        with pytest.raises(hn.MissingData, match=found):
            hn.load_dataset("mnist", folder)
    (tmp_path / "0.npz").touch()
    with pytest.raises(hn.MissingData, match=r"train-images-idx3-ubyte.* 0.npz"):
        hn.load_dataset("mnist", tmp_path)


def test_where_the_folder_is_looked_for(monkeypatch, tmp_path):
    mnist = hn.DATASETS["mnist"]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HIGHWAY_DATA_DIR", "~/environment")
    assert hn.data_folder(mnist, "given").as_posix() == "given"
    assert hn.data_folder(mnist, "~/given") == tmp_path / "given"
    assert hn.data_folder(mnist) == tmp_path / "environment"
    (tmp_path / "environment" / "hinton-mnist").mkdir(parents=True)
    assert hn.data_folder(mnist) == tmp_path / "environment" / "hinton-mnist"
    monkeypatch.delenv("HIGHWAY_DATA_DIR")
    assert hn.data_folder(mnist) == tmp_path / ".cache" / "hinton-mnist"
    assert len(highway_suite.load("digits", tmp_path).x_train) == 1437


def test_without_a_network_the_digits_stand_in_and_say_so(tmp_path, capfd):
    name, data = load_as_asked("auto", tmp_path)
    assert name == "digits" and data.x_train.shape == (1437, 64)
    warning = capfd.readouterr().err
    assert "NO MNIST" in warning and "USING THE SHIPPED 8x8 DIGITS" in warning
    assert list(tmp_path.iterdir()) == [], "a failed download left something behind"


def test_a_wrong_file_is_an_error_even_where_a_missing_one_is_not(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(PACKED)
    with pytest.raises(hn.DataError, match="expected"):
        load_as_asked("auto", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train-images-idx3-ubyte.gz"]


# --------------------------------------------------------------------------------------
# Arrays


ONES = np.ones((4, 2))


def data_of(x=ONES, **more):
    y = np.array([0, 1, 2, 1])
    return hn.Data(x, y, x, y, classes=3, **more)


@pytest.mark.parametrize("change, cure", [
    ({"y": np.array([0., 1, 2, 1])}, "float64|astype"),
    ({"y": np.array([True, False] * 2)}, "bool"),
    ({"y": np.array([1, 2, 3, 1])}, "y - 1"), ({"y": np.array([0, 1, 5, 1])}, "to 5"),
    ({"y": np.array([-1, 0, 1, 2])}, "-1"), ({"x": ONES > 0}, "bool.*astype"),
    ({"x": ONES * 1j}, "complex"), ({"x": ONES * np.nan}, "row 0.*nan_to_num"),
    ({"x": np.array([[0, 1], [0, np.inf], [0, 1], [0, 1]])}, "row 1"),
    ({"x": ONES.tolist()}, "NumPy arrays"), ({"x": ONES[:3]}, r"\(N, [P12]\)"),
    ({"x": ONES[:, 0]}, r"\(N, [P12]\)"), ({"x": np.ones((4, 0))}, r"\(N, [P12]\)"),
    ({"x": np.ma.masked_less(ONES, 2)}, "filled"),
    ({"x": np.ones((4, 2, 1))}, r"\(N, [P12]\)"), ({"x": ONES[:, :1]}, r"\(N, [P12]\)"),
    ({"y": np.ones((4, 1), int)}, r"\(N,\)"), ({"y": [0, 1, 2, 1]}, "NumPy arrays")])
@pytest.mark.parametrize("part", ["train", "test"])
def test_arrays_of_another_kind_are_told_the_kind_wanted(change, cure, part):
    good = data_of()
    with pytest.raises(hn.DataError, match=cure) as caught:
        replace(good, **{f"{name}_{part}": array for name, array in change.items()})
    assert "must" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pixels_are_scaled_once(digits, dtype):
    scaled = hn.scale_pixels(digits, dtype)
    for x, y, raw in ((scaled.x_train, scaled.y_train, digits.x_train),
                      (scaled.x_test, scaled.y_test, digits.x_test)):
        assert x.dtype == dtype and y.dtype == np.intp
        np.testing.assert_array_equal(x, raw / np.dtype(dtype).type(8) - 1)
    with pytest.raises(hn.DataError, match="already"):
        hn.scale_pixels(scaled)
    with pytest.raises(hn.DataError, match="already"):     # a part of it, no pixel < 0
        hn.scale_pixels(replace(scaled, x_train=abs(scaled.x_train),
                                x_test=abs(scaled.x_test)))


@pytest.mark.parametrize("low, high, scale", [(-1, 1, 255), (0, 256, 255), (0, 255, 16),
                                              (-0.1, 1, 1), (0, 1.5, 1)])
def test_pixels_out_of_their_range_are_refused(low, high, scale):
    x = np.array([[low, high]] * 4)
    for made in (data_of(x, scale=scale), hn.Data(
            0 * x, np.zeros(4, int), x, np.zeros(4, int), scale=scale)):
        with pytest.raises(hn.DataError, match=f"{low:g} to {high:g}|0 to {high:g}"):
            hn.scale_pixels(made)


def test_pixels_from_0_to_1_need_a_scale_of_1():
    x = np.linspace(0, 1, 8).reshape(4, 2)
    for made in (data_of(x), hn.Data(255 * x, np.zeros(4, int), x, np.zeros(4, int))):
        with pytest.warns(UserWarning, match="scale=1"):
            hn.scale_pixels(made)
    assert hn.scale_pixels(data_of(x, scale=1)).x_test.max() == 1
    hn.scale_pixels(data_of(0 * x))     # black images: no word


def test_a_table_that_nothing_scales_is_warned_of(rng):
    x, y = rng.normal(size=(40, 3)), rng.integers(2, size=40)
    config = hn.Config(depth=1, hidden=4, epochs=1, batch=20)
    for times in (1, 100):
        data = hn.Data(times * x, y, times * x, y, classes=2, scale=None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            hn.train(hn.make_net(config, data), data, config)
        assert ["spread" in str(word.message) for word in told] == [True] * (times > 1)
