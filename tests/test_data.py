"""Files are trusted by their content alone, and a machine without a network runs."""

import gzip
import hashlib
import os
from dataclasses import replace

import numpy as np
import pytest
from conftest import encode_idx

import highway_networks as hn
import highway_suite
from highway_suite import datasets
from highway_suite.datasets import MissingData, load_as_asked

LABELS = np.array([1, 2, 3, 9], np.uint8)
PACKED = gzip.compress(encode_idx(LABELS), mtime=0)


def read(path):
    return hn.read_idx(path, hashlib.sha256(encode_idx(LABELS)).hexdigest())


@pytest.mark.parametrize("pack", [
    lambda b: b, gzip.compress, lambda b: gzip.compress(b) + bytes(64)],
    ids=["unpacked", "packed", "padded"])
def test_good_files_are_accepted_by_their_content(tmp_path, pack):
    path = tmp_path / "file.gz"
    path.write_bytes(pack(encode_idx(LABELS)))
    assert np.array_equal(read(path), LABELS)
    assert np.array_equal(read(tmp_path / "file"), LABELS)      # the packed one beside


@pytest.mark.parametrize("content", [
    b"", PACKED[:-9], PACKED + PACKED, b"<!DOCTYPE html>", encode_idx(LABELS + 1)])
def test_bad_files_are_one_line_with_the_path(tmp_path, content):
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    with pytest.raises(hn.DataError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_name_that_is_not_in_the_table_is_refused():
    with pytest.raises(hn.DataError):
        highway_suite.load("fasion")


FORMS = {       # of "NAME.gz": where it lies else, and whether unpacked
    "unpacked": ("{name}", True), "7-Zip": ("{dotted}", True),
    "Kaggle": ("{name}/{name}", True), "torchvision": ("MNIST/raw/{name}.gz", False),
    "browser": ("{name} (1).gz", False)}


@pytest.mark.parametrize("form", FORMS)
def test_files_as_people_have_them(small_mnist, form):
    before = highway_suite.load("mnist", small_mnist)
    place, is_unpacked = FORMS[form]
    for path in list(small_mnist.iterdir()):
        content, name = path.read_bytes(), path.name.removesuffix(".gz")
        path.unlink()
        new = small_mnist / place.format(name=name, dotted=name.replace("-idx", ".idx"))
        new.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(gzip.decompress(content) if is_unpacked else content)
    after = highway_suite.load("mnist", small_mnist)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(before, name), getattr(after, name))
        assert not getattr(after, name).flags.writeable


def test_two_sets_in_one_folder_are_told_apart_by_their_hashes(small_mnist, monkeypatch,
                                                               rng):
    files, folder = {}, small_mnist / "FashionMNIST" / "raw"
    folder.mkdir(parents=True)
    for name in hn.MNIST:
        shape = (20, 28, 28) if "images" in name else (20,)
        payload = encode_idx(rng.integers(10, size=shape).astype(np.uint8))
        (folder / name).write_bytes(payload)
        files[name] = hashlib.sha256(payload).hexdigest()
    monkeypatch.setitem(datasets.DATASETS, "own", datasets.DATASETS["mnist"]._replace(
        files=files))
    mnist, own = (highway_suite.load(name, small_mnist) for name in ("mnist", "own"))
    assert not np.array_equal(mnist.x_train, own.x_train)


def test_where_the_folder_is_looked_for(monkeypatch, tmp_path):
    mnist = datasets.DATASETS["mnist"]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HIGHWAY_DATA_DIR", "~/environment")
    assert datasets.data_folder(mnist, "given").as_posix() == "given"
    assert datasets.data_folder(mnist, "~/given") == tmp_path / "given"
    assert datasets.data_folder(mnist) == tmp_path / "environment"
    (tmp_path / "environment" / "hinton-mnist").mkdir(parents=True)
    assert datasets.data_folder(mnist) == tmp_path / "environment" / "hinton-mnist"
    monkeypatch.delenv("HIGHWAY_DATA_DIR")
    assert datasets.data_folder(mnist) == tmp_path / ".cache" / "hinton-mnist"
    assert len(highway_suite.load("digits", tmp_path).x_train) == 1437


def test_without_a_network_the_digits_stand_in_and_say_so(tmp_path, capfd):
    name, data = load_as_asked("auto", tmp_path)
    assert name == "digits" and data.x_train.shape == (1437, 64)
    assert "MNIST" in capfd.readouterr().err
    assert list(tmp_path.iterdir()) == [], "a failed download left something behind"


def test_what_ships_needs_no_home(monkeypatch):
    """A user of a container: no $HOME, and no entry in the list of users."""
    monkeypatch.delenv("HIGHWAY_DATA_DIR", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert len(highway_suite.load("digits").x_train) == 1437
    assert load_as_asked("auto")[0] == "digits"
    with pytest.raises(MissingData):
        highway_suite.load("mnist")


def test_a_wrong_file_is_an_error_even_where_a_missing_one_is_not(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(PACKED)
    with pytest.raises(hn.DataError) as caught:
        load_as_asked("auto", tmp_path)
    assert not isinstance(caught.value, MissingData)
    assert [path.name for path in tmp_path.iterdir()] == ["train-images-idx3-ubyte.gz"]


# Arrays


ONES = np.ones((4, 2))


def data_of(x=ONES, **more):
    y = np.array([0, 1, 2, 1])
    return hn.Data(x, y, x, y, classes=3, **more)


@pytest.mark.parametrize("change", [
    {"y": np.array([0., 1, 2, 1])}, {"y": np.array([1, 2, 3, 1])},
    {"y": np.array([-1, 0, 1, 2])}, {"x": ONES * 1j}, {"x": ONES * np.nan},
    {"x": ONES[:3]}, {"x": ONES[:, 0]}, {"x": ONES[:, :1]},
    {"y": np.ones((4, 1), int)}])
@pytest.mark.parametrize("part", ["train", "test"])
def test_arrays_of_another_kind_are_refused(change, part):
    with pytest.raises(hn.DataError):
        replace(data_of(), **{f"{name}_{part}": array
                              for name, array in change.items()})


def test_tables_and_lists_are_taken_by_their_order():
    pandas = pytest.importorskip("pandas")
    rows = [2, 0, 3, 1]
    x, y = pandas.DataFrame(ONES.cumsum(axis=0)), pandas.Series([0, 1, 2, 1])
    made = hn.Data(x.loc[rows], y.loc[rows], [[1, 2]], [0], classes=3)
    assert made.y_train.tolist() == [2, 0, 1, 1]
    assert made.x_train[:, 0].tolist() == [3, 1, 4, 2]
    assert made.x_test.shape == (1, 2)


def test_data_can_be_compared_and_be_keys():
    one, other = data_of(), data_of()
    assert one == one and one != other and len({one, other}) == 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pixels_are_scaled_once(digits, dtype):
    scaled = hn.scale_pixels(digits, dtype)
    for x, raw in ((scaled.x_train, digits.x_train), (scaled.x_test, digits.x_test)):
        assert x.dtype == dtype
        np.testing.assert_array_equal(x, raw / np.dtype(dtype).type(8) - 1)
    with pytest.raises(hn.DataError):
        hn.scale_pixels(scaled)


@pytest.mark.parametrize("low, high, scale", [(-1, 1, 255), (0, 256, 255), (0, 255, 16),
                                              (-0.1, 1, 1), (0, 1.5, 1), (0, 1, 255)])
def test_pixels_out_of_their_range_are_refused(low, high, scale):
    x = np.array([[low, high]] * 4)
    for made in (data_of(x, scale=scale), hn.Data(
            0 * x, np.zeros(4, int), x, np.zeros(4, int), scale=scale)):
        with pytest.raises(hn.DataError):
            hn.scale_pixels(made)
