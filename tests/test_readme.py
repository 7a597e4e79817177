"""The Python in the README and in USAGE.md runs and does what the sentences say."""

import re
from pathlib import Path

import numpy as np
import pytest

import highway_networks as hn
from tests.contracts import (
    WrongGradient,
    check_block,
    check_gradient,
    small_batch,
    small_net,
)

SNIPPETS = [snippet for name in ("README.md", "docs/usage.md") for snippet in re.findall(
    r"```python\n(.*?)```", (Path(hn.__file__).parent / name).read_text("utf-8"), re.S)]


def run(word, text=None):
    """Run the one Python block with this word in it -> its names."""
    found, = [text for text in SNIPPETS if word in text]
    space = {"np": np, "hn": hn}
    exec(found if text is None else text(found), space)
    return space


def test_own_block_is_under_the_contracts(monkeypatch, seed):
    monkeypatch.setattr(hn, "BLOCKS", dict(hn.BLOCKS))
    run('hn.BLOCKS["')
    for depth in (1, 10):
        check_gradient(small_net("halfway", depth, seed=seed), *small_batch(seed),
                       seed=seed)
    check_block("halfway", "float32", seed)
    run('hn.BLOCKS["', lambda text: text.replace("np.multiply(d, 0.5, out=d)", "pass"))
    with pytest.raises(WrongGradient):
        check_gradient(small_net("halfway", 10, seed=seed), *small_batch(seed),
                       seed=seed)


def test_the_layer_shown_is_that_of_the_module(rng):
    shown = run("def highway_forward")
    x, H, T, d = rng.uniform(0.1, 0.9, (4, 3, 5))
    results = []
    for space in (shown, vars(hn)):
        y, dH, scratch, dy = (np.empty_like(x) for _ in range(4))
        rows, dy[:] = (H.copy(), T.copy()), d
        space["highway_forward"](x, rows, y, scratch)
        space["highway_backward"](dy, x, rows, dH, scratch)
        results.append([y, dH, dy, *rows])
    assert np.array_equal(*results)


def test_the_library_example_runs(mnist, tmp_path, monkeypatch):
    folder = hn.data_folder(hn.DATASETS["mnist"]).resolve()
    monkeypatch.setenv("HIGHWAY_DATA_DIR", str(folder))
    monkeypatch.chdir(tmp_path)         # it saves its net
    space = run('load_dataset("mnist")')
    assert space["status"] == "ok" and space["T"].shape == (2000, 20, 50)
    again = hn.DeepNet.load("net.npz").predict(space["data"].x_test)
    assert np.array_equal(again, space["digits"]) and again.shape == (2000,)


def test_the_example_with_images_of_ones_own_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)         # it keeps its training
    first, space = run("predict_proba"), run("predict_proba")
    assert (tmp_path / "training.npz").exists()
    assert np.array_equal(first["net"].params, space["net"].params)
    p, data = space["p"], space["data"]
    assert p.shape == (3, 100) and np.allclose(p.sum(axis=0), 1)
    assert data.x_train.dtype == "float64" and space["status"] == "ok"
    for labels in (data.y_train + 1, data.y_train - 1, data.y_train * 1.0):
        with pytest.raises(ValueError, match="label.*whole numbers from 0 to 2"):
            hn.Data(data.x_train, labels, data.x_test, data.y_test, classes=3)
