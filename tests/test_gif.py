"""The animation has a frame for each epoch of the record, timed for browsers."""

import hashlib
import importlib.util
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import make_highway_networks_gif as gif
from highway_suite.figures import LIGHT, style
from tests.committed import tree
from tests.records_for_figures import as_earlier, make_record, sample_records, save

ROOT = Path(gif.__file__).parent
SAMPLES = sample_records()
SMALL = 40      # dots per inch: the frames of most tests are 300 pixels wide


@pytest.fixture
def small(monkeypatch):
    """Small frames, and few, which are drawn sooner."""
    monkeypatch.setattr(gif, "DPI", SMALL)
    monkeypatch.setattr(gif, "MOST_FRAMES", 14)


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


def drawn_at(study, epoch):
    """The artists of one epoch, by label, and the texts among them."""
    with style(LIGHT):
        stage = gif.set_stage(study, LIGHT)
        artists = gif.draw_frame(study, LIGHT, stage, epoch)
    texts = [item.get_text() for item in artists if hasattr(item, "get_text")]
    return {item.get_label(): item for item in artists}, texts


def test_a_frame_for_each_epoch_and_the_last_is_held_first(tmp_path, small):
    run = save(tmp_path / "r.json", make_record(epochs=12))
    path, = gif.main(["--run", run, "--out", str(tmp_path / "a.gif")])
    frames, times, header = decode(path)
    assert len(frames) == 13                    # the gates before training, 12 epochs
    assert times == [3000] + [380] * 12         # a still preview shows the end
    assert header["loop"] == 0                  # for ever
    assert header["comment"].decode() == "record SHA-256 " + hashlib.sha256(
        Path(run).read_bytes()).hexdigest()


def test_frames_that_differ_in_nothing_but_the_epoch_are_not_merged(small, study):
    record = make_record(epochs=5)
    for block in ("highway", "plain"):
        record["runs"][0][block]["history"]["test_acc"] = [0.5] * 5
    record["runs"][0]["highway"]["layer_T_history"] = [[0, [0.1] * 6]]
    frames = gif.draw_frames(study(record))
    decoded, times, _ = decode(gif.encode_gif(frames, ""))
    assert len(decoded) == 6 and times[0] == 3000
    one = gif.draw_frames(study(as_earlier(make_record(epochs=1))))
    assert decode(gif.encode_gif(one, ""))[1] == [3000]


def test_a_frame_draws_the_record_up_to_its_epoch(study):
    record = make_record(epochs=5)
    loaded = study(record)
    for epoch in range(6):
        items, texts = drawn_at(loaded, epoch)
        assert f"epoch {epoch} of 5" in texts and "chance 1/10" in texts
        for block in ("highway", "plain"):
            expected = record["runs"][0][block]["history"]["test_acc"][:epoch]
            assert list(items[block].get_ydata()) == expected
            assert list(items[block].get_xdata()) == list(range(1, epoch + 1))
            shown = [text for text in texts if text.startswith(block)]
            assert shown == [f"{block} {acc:.4f}" for acc in expected[-1:]]
        bars = items["T"].get_data()
        assert list(bars.values[::2]) == (
            record["runs"][0]["highway"]["layer_T_history"][epoch][1])
        assert bars.baseline == pytest.approx(loaded.T_start)


def test_the_file_shows_what_was_drawn_in_the_very_colours(study):
    frames = gif.draw_frames(study(make_record(epochs=3)))
    decoded, _, _ = decode(gif.encode_gif(frames, ""))
    for drawn, shown in zip(frames, np.roll(decoded, -1, axis=0), strict=True):
        away = np.abs(drawn.astype(int) - shown).max(axis=2)
        assert away.max() < 100 and (away > 0).mean() < 0.02    # shades of edges
        for colour in (LIGHT.paper, LIGHT.blocks["highway"], LIGHT.grid):
            rgb = [int(colour[i:i + 2], 16) for i in (1, 3, 5)]
            same = (drawn == rgb).all(axis=2)
            assert same.any() and (shown[same] == rgb).all()


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_of_record_makes_an_animation(study, small, kind):
    loaded = study(SAMPLES[kind])
    frames, epochs = gif.draw_frames(loaded), gif.frame_epochs(loaded.deepest)
    decoded, times, _ = decode(gif.encode_gif(frames, ""))
    assert len(decoded) == len(times) == len(epochs)
    assert epochs[-1] == loaded.deepest[-1].epoch[-1] and len(epochs) <= 14
    if kind not in ("none left", "no gates"):
        assert epochs[0] == (1 if kind == "earlier" else 0)


def test_the_same_record_gives_the_same_bytes(tmp_path, small):
    words = ["--run", save(tmp_path / "r.json", make_record()), "--out"]
    paths = [gif.main([*words, str(tmp_path / name)])[0] for name in ("a.gif", "b.gif")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("out", ["a.mp4", "a", ".", "no folder/a.gif", "link.gif", "",
                                 "n" * 300 + ".gif"])
def test_a_wrong_out_exits_2(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.gif").symlink_to("nowhere")
    with pytest.raises(SystemExit) as stop:
        gif.main(["--out", out])
    assert stop.value.code == 2 and "argument --out" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["link.gif"]


def test_mp4_gets_every_frame_the_last_one_held(tmp_path, monkeypatch, small):
    run = save(tmp_path / "r.json", make_record(epochs=12))
    words = ["--run", run, "--out", str(tmp_path / "a.gif"), "--mp4"]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="--mp4 needs imageio-ffmpeg. Install: pip"):
        gif.main(words)
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    calls = []

    def imwrite(place, frames, extension, **more):
        calls.append((np.array(frames), extension, more))
        return b"film"
    monkeypatch.setattr(gif.iio, "imwrite", imwrite)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    paths = gif.main(words)
    assert [path.name for path in paths] == ["a.gif", "a.mp4"]
    assert paths[1].read_bytes() == b"film"
    (_, _, _), (frames, extension, more) = calls
    assert extension == ".mp4" and more["plugin"] == "FFMPEG"
    held = (frames == frames[-1]).all(axis=(1, 2, 3)).sum()
    assert len(frames) - held == 12
    assert held / more["fps"] == pytest.approx(3, abs=0.5)
    assert frames.shape[1] % 2 == frames.shape[2] % 2 == 0


def test_the_animation_of_the_repository_is_of_its_record():
    frames, _, header = decode(tree() / "highway_networks.gif")
    assert header["comment"].decode() == "record SHA-256 " + hashlib.sha256(
        (tree() / "run.json").read_bytes()).hexdigest(), (
        "run: python3 make_highway_networks_gif.py")
    assert len(frames) == 1 + json.loads((tree() / "run.json").read_text())["epochs"]
    assert (tree() / "highway_networks.gif").stat().st_size < 1_000_000
