"""The examples run as they stand, in a folder of the user's, and show what they say."""

import gzip
import re
import runpy
import sys
from dataclasses import replace
from itertools import chain, islice, repeat

import numpy as np
import pytest
from conftest import encode_idx
from test_readme import run

import highway_networks as hn
from examples import minimal
from highway_suite import nets


@pytest.fixture
def example(tmp_path, monkeypatch, capfd):
    """Run an example -> what it prints, and on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hn, "BLOCKS", dict(hn.BLOCKS))

    def run(name):
        monkeypatch.delitem(sys.modules, f"examples.{name}", raising=False)
        runpy.run_module(f"examples.{name}", run_name="__main__", alter_sys=True)
        return capfd.readouterr()
    return run


@pytest.fixture
def idx_digits(tmp_path, monkeypatch, digits):
    """The shipped digits in MNIST's files, which the minimal example reads -> Data."""
    digits = replace(digits, x_train=digits.x_train * 15, x_test=digits.x_test * 15,
                     scale=255)
    for name, x, y in (("train", digits.x_train, digits.y_train),
                       ("t10k", digits.x_test, digits.y_test)):
        for kind, array in (("images-idx3", x.reshape(-1, 8, 8)), ("labels-idx1", y)):
            (tmp_path / f"{name}-{kind}-ubyte.gz").write_bytes(
                gzip.compress(encode_idx(array.astype(np.uint8))))
    monkeypatch.setattr(minimal, "FOLDER", tmp_path)
    monkeypatch.setattr(minimal, "N_TRAIN", 1400)
    monkeypatch.setattr(minimal, "N_TEST", 300)
    with hn.blas_threads(1):
        yield digits


@pytest.mark.parametrize("block", ["highway", "plain"])
def test_the_minimal_nets_are_the_machines(idx_digits, block):
    """Twenty steps, two passes over the images: the same losses, in float64."""
    config = hn.Config(block, dtype="float64", n_train=1400, n_test=300)
    data = hn.scale_pixels(hn.take_subset(idx_digits, config), "float64")
    net, seeds = hn.make_net(config, data), hn.streams(config.seed)
    batches = hn.Batches(data.x_train, data.y_train, config.batch,
                         np.random.default_rng(seeds["batches"]))
    cache, adam = net.cache(config.batch), hn.Adam(net.params)
    wanted = [hn.train_step(net, batch, cache, adam, config.lr, config.clip)[
        "train_loss"] for batch in islice(chain.from_iterable(repeat(batches)), 20)]

    subset, weights, order = hn.streams(config.seed).values()
    rng = np.random.default_rng(subset)
    x, labels = minimal.draw_images("train", 1400, rng)
    x_test, labels_test = minimal.draw_images("t10k", 300, rng)
    w = minimal.draw_weights(block, 64, weights)
    found = [*islice(minimal.train(w, x, labels, np.random.default_rng(order)), 20)]
    assert np.allclose(found, wanted, rtol=0, atol=1e-10)
    read, _ = minimal.forward(w, x_test.T)
    assert np.array_equal(read.argmax(axis=0), net.predict(data.x_test))
    assert np.array_equal(labels_test, data.y_test)


def test_the_minimal_example_reads_and_trains(idx_digits, monkeypatch, capsys):
    """Highway blocks learn in five passes over the digits, and plain ones guess."""
    monkeypatch.setattr(minimal, "EPOCHS", 5)
    minimal.main()
    highway, plain = map(float, re.findall(r"accuracy (\S+)", capsys.readouterr().out))
    assert highway > 0.5 > 0.2 > plain


def test_a_block_of_ones_own(example):
    own, _, plain = map(float, re.findall(r"\d\.\d+", example("own_block").out))
    assert own > 0.9 and plain < 0.5


def test_a_search_goes_on(example):
    first, again = example("search"), example("search")
    assert "trial 6/6" in first.err and again.err == ""
    assert first.out == again.out and "best: {" in again.out


def test_a_layer_is_closed(example):
    right = {word[0]: [int(number) for number in word[1:]] for word in map(
        str.split, example("close_a_layer").out.splitlines()[1:])}
    images, labels = nets.mnist_images()
    x = hn.scale_pixels(hn.Data(images, labels, images, labels)).x_test
    assert right == {block: [
        np.sum(nets.trained_net(block).predict(x, closed) == labels)
        for closed in ((), (20,), range(9, 25))] for block in nets.TRAINED}
    assert min(right["highway"]) >= 38 and right["residual"][2] < 30
    assert right["plain"][0] >= 38 and max(right["plain"][1:]) < 20


def test_a_record_is_drawn(example, tmp_path):
    example("plot_record")
    assert (tmp_path / "runs" / "example.png").stat().st_size > 5000


def test_a_training_goes_on(example, tmp_path):
    first = example("resume")
    assert "ok: test accuracy 0." in first.out and "epoch 6/6" in first.err
    again = example("resume")
    assert again.out == first.out and again.err == ""


def test_a_long_night_goes_on(example, monkeypatch):
    """It is stopped in its tenth pass, and ends with the net of one fit."""
    joblib = pytest.importorskip("joblib")
    datasets = pytest.importorskip("sklearn.datasets")
    from sklearn.model_selection import train_test_split

    from highway_suite import HighwayClassifier
    X, y = (part[:300] for part in datasets.load_digits(return_X_y=True))
    monkeypatch.setattr(datasets, "load_digits", lambda return_X_y: (X, y))
    a_pass, left = HighwayClassifier.partial_fit, 10

    def partial_fit(self, *args, **kwargs):
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return a_pass(self, *args, **kwargs)
    monkeypatch.setattr(HighwayClassifier, "partial_fit", partial_fit)
    with pytest.raises(KeyboardInterrupt):
        example("long_night")
    told = example("long_night").out
    assert told.count("pass ") == 50 and float(told.split()[-1]) > 0.8
    scaler, net, *_ = joblib.load("runs/night.joblib")
    X, _, y, _ = train_test_split(X, y, random_state=0)
    whole = HighwayClassifier(depth=30, max_iter=50, random_state=0)
    whole.fit(scaler.transform(X), y)
    assert np.array_equal(net.net_.params, whole.net_.params)
    run("runs/best.joblib", X_test=X)


def test_a_search_on_all_cores(example):
    pytest.importorskip("sklearn")
    assert int(re.search(r"(\d+)%", example("search_all_cores").out)[1]) > 85


def test_the_notebook_runs(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(hn.HERE))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    notebook = nbformat.read(hn.HERE / "examples" / "tour.ipynb", 4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=120, resources={
        "metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
