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


@pytest.mark.parametrize("sep, point", [(",", "."), (";", ","), ("\t", ".")])
def test_a_table_in_a_file_is_learned(tmp_path, monkeypatch, rng, sep, point):
    """With seconds since 1970, words, gaps, and blanks around names and labels."""
    pytest.importorskip("skrub")
    x, words = rng.normal(size=(400, 2)), rng.choice(["a", "b", ""], size=400)
    kinds = ["up" if p > 0 or word == "b" else "down"
             for p, word in zip(x[:, 0], words, strict=True)]
    lines = [sep.join(map(str, (1.7e9 + p, q if k % 9 else "", words[k], " " * (k % 2)
                                + f'"{kinds[k] + " " * (k % 3)}"')))
             for k, (p, q) in enumerate(x.tolist())]
    table = "\n".join([sep.join(["p", "q ", "word", "kind "]), *lines])
    (tmp_path / "table.csv").write_text(table.replace(".", point))
    monkeypatch.chdir(tmp_path)
    given = f'decimal="{point}", skipinitialspace'
    monkeypatch.setattr(f"{__name__}.SNIPPETS", [
        text.replace("skipinitialspace", given) for text in SNIPPETS])
    space = run("read_csv")
    assert space["net"].score(space["X_test"], space["y_test"]) > 0.8
    assert set(space["net"].classes_) == {"up", "down"}
    if sep == ",":
        space |= run("GridSearchCV(net", **space)
        assert space["search"].best_score_ > 0.8
        loaded = space["joblib"].load("net.joblib")
        assert np.array_equal(loaded.predict(space["X_test"]),
                              space["search"].predict(space["X_test"]))


def test_a_hundred_blocks_learn():
    space = run("depth=100, epochs")
    assert space["status"] == "ok" and space["history"]["test_acc"][-1] > 0.9
