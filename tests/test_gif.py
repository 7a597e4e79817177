"""The animation has a frame for each epoch of the record, timed for browsers."""

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import make_highway_networks_gif as gif
from highway_suite import animation, figures
from highway_suite.animation import draw_frames, encode_gif, frame_epochs
from highway_suite.figures import plot_gates, plot_history
from highway_suite.studies import as_study
from tests.committed import tree
from tests.contracts import exit_of
from tests.records_for_figures import diverge, make_record, save


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Small frames, and few, which are drawn sooner."""
    monkeypatch.setattr(figures, "DPI", 66)
    monkeypatch.setattr(animation, "MOST_FRAMES", 7)


def decode(path_or_bytes):
    """A GIF -> (frames (F, height, width, 3), milliseconds of each, its header)."""
    if isinstance(path_or_bytes, bytes):
        path_or_bytes = io.BytesIO(path_or_bytes)
    frames, times = [], []
    with Image.open(path_or_bytes) as image:
        header = dict(image.info)
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
            times.append(image.info["duration"])
    return np.array(frames), times, header


def test_a_frame_for_each_epoch_and_the_last_is_held_first(tmp_path):
    run = save(tmp_path / "r.json", make_record(epochs=3))
    paths = [gif.main(["--run", run, "--out", str(tmp_path / name)])[0]
             for name in ("a.gif", "b.gif")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    frames, times, header = decode(paths[0])
    assert list(frame_epochs(as_study(run))) == [0, 1, 2, 3]
    assert len(frames) == 4 and times == [3000] + [600] * 3     # previews show the end
    assert header["loop"] == 0                  # for ever
    assert header["comment"].decode() == "record SHA-256 " + hashlib.sha256(
        Path(run).read_bytes()).hexdigest()


def test_a_frame_draws_the_record_up_to_its_epoch_on_the_same_axes():
    record = make_record(epochs=5)
    diverge(record["runs"][0]["plain"], 3)
    nets, limits = record["runs"][0], set()
    for epoch in range(6):
        curves = plot_history(record, upto=epoch)
        gates = plot_gates(record, upto=epoch)
        limits.add((curves.get_xlim(), curves.get_ylim(), gates.get_ylim()))
        drawn = {item.get_label(): [y for y in item.get_ydata() if np.isfinite(y)]
                 for item in curves.lines}
        acc = nets["highway"]["history"]["test_acc"][:epoch]
        assert drawn["highway"] == acc
        assert ("plain diverged" in drawn) == (epoch > 3)
        values, _, baseline = gates.patches[0].get_data()
        assert list(values[::2]) == nets["highway"]["layer_T_history"][epoch][1]
        assert baseline == as_study(record).T_start
    assert len(limits) == 1


@pytest.mark.parametrize("record", [
    make_record((1,), (0, 1), epochs=300), make_record(blocks=("residual", "plain"))],
    ids=["long", "no gates"])
def test_every_kind_of_record_makes_an_animation(record):
    study = as_study(record)
    epochs = frame_epochs(study)
    decoded, times, _ = decode(encode_gif(draw_frames(study), ""))
    assert len(decoded) == len(times) == len(epochs) <= 7
    assert epochs[-1] == study.deepest[-1].epoch[-1]


@pytest.mark.parametrize("out", ["a.mp4", "file/a.gif"])
def test_a_wrong_out_ends_in_a_line(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert exit_of(gif.main, ["--out", out])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_animation_of_the_repository_is_of_its_record():
    frames, _, header = decode(tree() / "highway_networks.gif")
    assert header["comment"].decode() == "record SHA-256 " + hashlib.sha256(
        (tree() / "run.json").read_bytes()).hexdigest(), (
        "run: python3 make_highway_networks_gif.py")
    assert len(frames) == 1 + json.loads((tree() / "run.json").read_text())["epochs"]
