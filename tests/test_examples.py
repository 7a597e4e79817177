"""The examples run as they stand, in a folder of the user's, and show what they say."""

import re
import runpy
import sys

import numpy as np
import pytest
from test_readme import run

import highway_networks as hn
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
    monkeypatch.setattr(datasets, "load_digits", lambda return_X_y: (X, y))
    with pytest.raises(SystemExit, match="another table"):
        example("long_night")


def test_a_search_on_all_cores(example):
    pytest.importorskip("sklearn")
    assert int(re.search(r"(\d+)%", example("search_all_cores").out)[1]) > 85


def test_a_net_becomes_pytorchs(example):
    pytest.importorskip("torch")
    assert example("to_pytorch").out == "equal answers: 100%\n"


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
    assert "plain: 98% right" in "".join(output.get("text", "") for output in outputs)
