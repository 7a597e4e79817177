"""The idx reader trusts nothing, and a machine without a network still runs."""

import gzip
import hashlib
import tracemalloc

import numpy as np
import pytest
from conftest import encode_idx

import highway_networks as hn
from highway_suite.cli import main
from highway_suite.datasets import obtain, obtain_auto

GOOD = encode_idx(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize("payload, message", [
    (b"", "found nothing"), (b"\0\0", "starts 0000 08; found 0000"),
    (b"<html>", "found 3c68746d"), (b"\0\0\x0d\x01\0\0\0\0", "found 00000d01"),
    (b"\x08\x03\0\0", "found 08030000"),                        # little-endian
    (b"\0\0\x08\0", "0 dimensions"), (b"\0\0\x08\xff" + bytes(40), "255 dimensions"),
    (GOOD[:9], "bad idx header"), (GOOD[:-1], "wants 12 data bytes; found 11"),
    (GOOD + b"\0", "wants 12 data bytes; found 13"),
    (b"\0\0\x08\x03" + b"\xff" * 12 + bytes(9), r"found 9"),    # 7.9e28 bytes wanted
    (b"\0\0\x08\x02" + b"\0\1\0\0" * 2, r"4294967296 data bytes; found 0")])
def test_bad_idx(payload, message):
    with pytest.raises(hn.DataError, match=message):
        hn.decode_idx(payload)


def expected_of(array):
    payload = encode_idx(array)
    return hn.DataFile("file.gz", array.shape, hashlib.sha256(payload).hexdigest(),
                       "gz")


def read(path, array):
    return hn.read_idx(path, expected_of(array), 10)


LABELS = np.array([1, 2, 3, 9], np.uint8)


@pytest.mark.parametrize("pack", [
    lambda b: b, gzip.compress, lambda b: gzip.compress(b, 1, mtime=7),
    lambda b: gzip.compress(b) + bytes(64)],            # zero padding is legal gzip
    ids=["unpacked", "official", "re-packed", "padded"])
def test_good_files_are_accepted_by_their_payload(tmp_path, pack):
    path = tmp_path / "file.gz"
    path.write_bytes(pack(encode_idx(LABELS)))
    assert np.array_equal(read(path, LABELS), LABELS)


def flipped(packed, position):
    return packed[:position] + bytes([packed[position] ^ 1]) + packed[position + 1:]


PACKED = gzip.compress(encode_idx(LABELS), mtime=0)


@pytest.mark.parametrize("content, message", [
    (b"", "found nothing"), (PACKED[:-9], "end-of-stream"),
    (PACKED[:5], "end-of-stream"), (flipped(PACKED, -8), "broken gzip"),
    (flipped(PACKED, -1), "broken gzip"), (PACKED + b"x", "after the end"),
    (PACKED + PACKED, "after the end"), (b"<!DOCTYPE html>", "found 3c21444f"),
    (gzip.compress(bytes(10 ** 6), mtime=0), "unpacks to more than"),
    (bytes(10 ** 6), "more than the 4108 bytes"),
    (encode_idx(LABELS[:3]), r"shape \(3,\), expected \(4,\)"),
    (encode_idx(LABELS.reshape(2, 2)[:1, :1]), "idx magic 2050, expected 2049"),
    (encode_idx(np.array([1, 2, 3, 10], np.uint8)), "label 10, largest allowed 9"),
    (encode_idx(np.array([1, 2, 3, 8], np.uint8)), "other data of the same shape")])
def test_bad_files_are_one_line_with_path_and_remedy(tmp_path, content, message):
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    with pytest.raises(hn.DataError, match=message) as caught:
        read(path, LABELS)
    text = str(caught.value)
    assert text.startswith(str(path)) and "Delete it" in text and "\n" not in text


def test_folders_and_absent_files_are_refused(tmp_path):
    for path, message in ((tmp_path, "not a regular file"),
                          (tmp_path / "absent", "no such file. The command line")):
        with pytest.raises(hn.DataError, match=message):
            read(path, LABELS)


def test_the_remedy_fits_whose_file_it_is(tmp_path):
    """Ours can be restored, one's own cannot; what can be fetched is fetched."""
    ours = hn.DATASETS["digits"].folder / "absent"
    own = expected_of(LABELS)._replace(gz_sha256="")
    for path, remedy in ((ours, "Restore it from the repository"),
                         (tmp_path / "absent", "its row of DATASETS")):
        with pytest.raises(hn.MissingData, match=remedy):
            hn.read_idx(path, own, 10)


def test_a_name_that_is_not_in_the_table_is_one_clear_line():
    with pytest.raises(hn.DataError, match="'fasion', only mnist, digits.*import"):
        hn.load_dataset("fasion")


def test_shipped_digits(digits):
    assert digits.x_train.shape == (1437, 64) and digits.x_test.shape == (360, 64)
    assert digits.x_train.max() == digits.x_test.max() == 16
    assert set(digits.y_train) == set(digits.y_test) == set(range(10))
    rows = {row.tobytes() for row in np.vstack([digits.x_train, digits.x_test])}
    assert len(rows) == 1797, "an image stands on both sides of the split"


def test_mnist_as_it_is(mnist):
    assert mnist.x_train.shape == (60000, 784) and mnist.x_test.shape == (10000, 784)
    assert mnist.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.x_train.mean() == pytest.approx(33.318421, abs=1e-6)
    assert np.bincount(mnist.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958,
                                                  1028, 974, 1009]


def test_files_may_lie_unpacked(small_mnist):
    packed = hn.load_dataset("mnist", small_mnist)
    for path in list(small_mnist.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    unpacked = hn.load_dataset("mnist", small_mnist)
    for name in ("x_train", "y_train", "x_test", "y_test"):
        assert np.array_equal(getattr(packed, name), getattr(unpacked, name))


def test_an_unpacked_file_that_nothing_can_judge_is_left_alone(small_mnist):
    """Of Fashion-MNIST only the packed files' hashes are known."""
    row = hn.DATASETS["mnist"]
    hn.DATASETS["mnist"] = row._replace(mirrors=(), files=tuple(
        file._replace(sha256="") for file in row.files))
    packed = hn.load_dataset("mnist", small_mnist)
    for path in list(small_mnist.iterdir()):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
    assert np.array_equal(hn.load_dataset("mnist", small_mnist).x_train,
                          packed.x_train)
    for path in small_mnist.glob("*.gz"):
        path.unlink()
    before = sorted(small_mnist.iterdir())
    with pytest.raises(hn.MissingData, match="there is no such"):
        obtain("mnist", small_mnist)
    assert sorted(small_mnist.iterdir()) == before


def test_swapped_files_are_refused(small_mnist):
    train, test = (small_mnist / f"{part}-labels-idx1-ubyte.gz"
                   for part in ("train", "t10k"))
    content = train.read_bytes()
    train.write_bytes(test.read_bytes())
    test.write_bytes(content)
    with pytest.raises(hn.DataError, match="train-labels.*this is t10k-labels"):
        hn.load_dataset("mnist", small_mnist)


def test_where_the_folder_is_looked_for(monkeypatch, tmp_path):
    mnist = hn.DATASETS["mnist"]
    monkeypatch.setenv("HIGHWAY_DATA_DIR", "/from/environment")
    assert hn.data_folder(mnist, "given").as_posix() == "given"
    assert hn.data_folder(mnist).as_posix() == "/from/environment"
    monkeypatch.delenv("HIGHWAY_DATA_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert hn.data_folder(mnist) == tmp_path / ".cache" / "hinton-mnist"
    digits = hn.DATASETS["digits"]
    assert hn.data_folder(digits) == digits.folder
    assert hn.data_folder(digits, tmp_path) == tmp_path
    with pytest.raises(SystemExit, match="no such file"):
        main(["--dataset", "digits", "--data-dir", str(tmp_path), "--jobs", "1"])


def test_without_a_network_the_digits_stand_in_and_say_so(tmp_path, capfd):
    name, data = obtain_auto(tmp_path)
    assert name == "digits" and data.x_train.shape == (1437, 64)
    warning = capfd.readouterr().err
    assert "NO MNIST" in warning and "USING THE SHIPPED 8x8 DIGITS" in warning
    assert list(tmp_path.iterdir()) == [], "a failed download left something behind"


def test_mnist_by_name_never_falls_back(tmp_path):
    with pytest.raises(hn.MissingData) as caught:
        obtain("mnist", tmp_path)
    for mirror in hn.DATASETS["mnist"].mirrors:
        assert mirror in str(caught.value)
    for way in ("--data-dir", "data_dir=", "$HIGHWAY_DATA_DIR"):
        assert way in str(caught.value)
    with pytest.raises(SystemExit, match="or use --dataset digits$"):
        main(["--dataset", "mnist", "--data-dir", str(tmp_path)])


def test_a_wrong_file_is_an_error_even_where_a_missing_one_is_not(tmp_path):
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(PACKED)
    with pytest.raises(hn.DataError, match="idx magic 2049, expected 2051"):
        obtain_auto(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["train-images-idx3-ubyte.gz"]


def test_a_gzip_bomb_is_not_unpacked():
    bomb = gzip.compress(bytes(10 ** 7))
    tracemalloc.start()
    try:
        with pytest.raises(hn.DataError, match="more than the 100 bytes"):
            hn.gunzip(bomb, 100)
        assert tracemalloc.get_traced_memory()[1] < 10 ** 6
    finally:
        tracemalloc.stop()
