"""A new block is a row and its pair of functions, a new data set a row and its reader:
each is added here, and taken by contracts, training and the command line."""

import hashlib

import numpy as np
import pytest
from test_readme import run

import highway_networks as hn
import visualize_highway_networks as viz
from highway_suite.cli import main
from highway_suite.datasets import DATASETS, Dataset, content_hash, load
from highway_suite.figures import plot_depth_sweep
from highway_suite.files import read_file
from highway_suite.gradients import small_batch, small_net
from highway_suite.records import read_record
from tests.contracts import check_block, check_gradient


def test_a_block_of_ones_own(monkeypatch, tmp_path, seed):
    """That of the README."""
    monkeypatch.setattr(hn, "BLOCKS", dict(hn.BLOCKS))
    monkeypatch.chdir(tmp_path)
    run('hn.BLOCKS["own"]')
    assert list((tmp_path / "runs").glob("*.json"))
    for depth in (1, 10):
        check_gradient(small_net("own", depth, seed=seed), *small_batch(seed),
                       seed=seed)
    for dtype in ("float32", "float64"):
        check_block("own", dtype, seed)
    words = ["--depth", "25", "--init", "glorot", "--lr", "1e-3", "--epochs", "6"]
    record = main(["--dataset", "digits", "--blocks", "own,plain", *words,
                   "--jobs", "1", "--out", str(tmp_path / "r.json")])
    assert read_record(tmp_path / "r.json") == record
    assert record["runs"][0]["own"]["final_test_acc"] > 0.8


def test_a_block_with_a_gate(monkeypatch, seed):
    """That of CONTRIBUTING."""
    monkeypatch.setattr(hn, "BLOCKS", dict(hn.BLOCKS))
    run('hn.BLOCKS["mine"]')
    for dtype in ("float32", "float64"):
        check_block("mine", dtype, seed)


def read_text(folder, dataset):
    arrays = []
    for name, sha256 in dataset.files.items():
        content = read_file(folder / name)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise hn.DataError(f"{folder / name}: other numbers")
        rows = np.loadtxt(content.decode().splitlines(), np.uint8)
        arrays.append(rows.reshape(-1, 2, 6) if rows.ndim > 1 else rows)
    return arrays


@pytest.fixture
def stripes(tmp_path, monkeypatch, rng):
    """Images of 2 x 6 pixels with a bright column, which is the label: 3 classes."""
    files = {}
    for part, size in (("train", 300), ("test", 60)):
        labels = rng.integers(3, size=size)
        images = rng.integers(20, size=(size, 2, 6))
        images[np.arange(size), :, labels] += 30
        for name, array in (("images", images), ("labels", labels)):
            lines = [" ".join(map(str, row)) for row in array.reshape(size, -1)]
            content = "\n".join(lines).encode()
            (tmp_path / f"{part}-{name}.txt").write_bytes(content)
            files[f"{part}-{name}.txt"] = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(DATASETS, "stripes", Dataset(
        "Stripes", images=(300, 60), shape=(2, 6), files=files, scale=50,
        classes=3, read=read_text))
    monkeypatch.setenv("HIGHWAY_DATA_DIR", str(tmp_path))
    return tmp_path


def test_a_data_set_of_ones_own(stripes, monkeypatch):
    data = load("stripes")
    assert data.x_train.shape == (300, 12) and data.y_test.shape == (60,)
    assert (data.classes, data.scale) == (3, 50)
    record = main(["--dataset", "stripes", "--jobs", "1", "--out", str(stripes / "r"),
                   "--depth", "3", "--epochs", "8", "--batch", "20"])
    assert read_record(stripes / "r") == record and record["dataset"] == "stripes"
    assert (record["n_train"], record["n_test"]) == (300, 60)
    assert record["runs"][0]["highway"]["final_test_acc"] > 0.95
    monkeypatch.delitem(DATASETS, "stripes")        # as in another process
    for block in ("highway", "plain"):
        del record["runs"][0][block]["chance"]
    plot_depth_sweep(record)
    viz.main(["--run", str(stripes / "r"), "--out-dir", str(stripes / "viz")])
    assert (stripes / "viz" / "learning_curves.png").exists()


def test_its_content_has_a_hash(stripes, monkeypatch):
    """By which trials of experiments tell data from other data of the name."""
    known, row = content_hash("stripes"), DATASETS["stripes"]
    monkeypatch.setitem(DATASETS, "stripes", row._replace(
        files=row.files | {"test-labels.txt": "0" * 64}))
    assert content_hash("stripes") != known


@pytest.mark.parametrize("change", [{"images": (60, 300)}, {"shape": (28, 28)}])
def test_files_that_its_row_does_not_describe_are_refused(stripes, monkeypatch, change):
    """The record would state the row's numbers."""
    monkeypatch.setitem(DATASETS, "stripes",
                        DATASETS["stripes"]._replace(**change))
    with pytest.raises(hn.DataError):
        load("stripes")
