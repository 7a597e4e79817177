"""The Python in README and docs runs and does what the sentences say."""

import re
from pathlib import Path

import numpy as np
import pytest

import highway_networks as hn

PAGES = ("README.md", "CONTRIBUTING.md", "docs/usage.md", "docs/classifier.md")
SNIPPETS = [snippet for page in PAGES for snippet in re.findall(
    r"```python\n(.*?)```", (Path(hn.__file__).parent / page).read_text("utf-8"), re.S)]


def run(word, **space):
    """Run the one Python block with this word in it -> its names."""
    text, = [text for text in SNIPPETS if word in text]
    space = {"np": np, "hn": hn} | space
    exec(text, space)
    return space


def test_own_data_are_learned():
    pytest.importorskip("sklearn")
    space = run("HighwayClassifier(depth=20")
    assert space["net"].score(space["x"][1000:], space["y"][1000:]) > 0.8


def test_a_table_in_a_file_is_learned(tmp_path, monkeypatch, rng):
    pytest.importorskip("sklearn")
    x = rng.normal(size=(400, 3))
    lines = [f"{a},{b},{c},{'up' if a > b else 'down'}" for a, b, c in x.tolist()]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,c,kind", *lines]))
    monkeypatch.chdir(tmp_path)
    space = run("genfromtxt")
    assert space["net"].score(space["X_test"], space["y_test"]) > 0.9
    assert set(space["net"].classes_) == {"up", "down"}
    space |= run("GridSearchCV(net", **space)
    assert space["search"].best_score_ > 0.9
    loaded = space["joblib"].load("net.joblib")
    assert np.array_equal(loaded.predict(space["X_test"]),
                          space["search"].predict(space["X_test"]))


def test_a_table_with_words_and_gaps_is_learned(tmp_path, monkeypatch, rng):
    pytest.importorskip("sklearn")
    pytest.importorskip("pandas")
    x, names = rng.normal(size=(400, 2)), rng.choice(["a", "b", ""], size=400)
    lines = [f"{p if k % 9 else ''},{q},{name},{'up' if p > 0 or name == 'b' else ''}n"
             for k, ((p, q), name) in enumerate(zip(x.tolist(), names, strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(["p,q,name,kind", *lines]))
    monkeypatch.chdir(tmp_path)
    space = run("read_csv")
    assert space["net"].score(space["X_test"], space["y_test"]) > 0.8


def test_a_hundred_blocks_learn():
    space = run("depth=100, epochs")
    assert space["status"] == "ok" and space["history"]["test_acc"][-1] > 0.9
