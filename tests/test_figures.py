"""The pictures draw what the record says, on axes that hold it, and name it."""

import ast
import copy
import hashlib
import io
import json
import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from committed import tree
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from records_for_figures import (as_earlier, diverge, make_arm, make_record,
                                 sample_records, save)

import visualize_highway_networks as viz

ROOT = Path(viz.__file__).parent
SCRIPTS = ("visualize_highway_networks.py", "make_highway_networks_gif.py")
SAMPLES = sample_records()
SIGMA_2 = 1 / (1 + math.exp(2))


@pytest.fixture
def study(tmp_path):
    """A record -> its Study."""
    def load(record, **more):
        return viz.load(save(tmp_path / "r.json", record), viz.RUN[1], **more)
    return load


@pytest.fixture(autouse=True)
def few_pixels(monkeypatch):
    """A picture has the same parts in fewer pixels, sooner."""
    monkeypatch.setattr(viz, "DPI", 60)


def draw(name, study, theme=viz.LIGHT):
    """A picture as a Figure, not yet on a canvas."""
    with viz.style(theme):
        return viz.PICTURES[name](study, theme)


def lay_out(name, study):
    """A picture as a Figure whose texts have their places, at 100 dots per inch."""
    with viz.style(viz.LIGHT):
        figure = viz.PICTURES[name](study, viz.LIGHT)
        figure.set_dpi(100)
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
    return figure


def line(axes, label):
    """The one line of this label as (x, y)."""
    found, = (item for item in axes.lines if item.get_label() == label)
    return found.get_xdata(), found.get_ydata()


def dashed(axes):
    """The heights of the reference lines."""
    return [item.get_ydata()[0] for item in axes.lines if item.get_linestyle() == "--"]


def written(figure):
    """All text of a figure, axes included."""
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    return "\n".join(text.get_text() for text in texts)


def history(record, block, name, run=-1):
    return record["runs"][run][block]["history"][name]


# --------------------------------------------------------------------------------------
# What is drawn


@pytest.mark.parametrize("picture, series, mark, label", [
    ("learning_curves", "test_acc", 0.1, "chance 1/10"),
    ("plain_loss_collapse", "train_loss", math.log(10), "ln 10 = 2.3026")])
def test_curves_are_those_of_the_record(study, picture, series, mark, label):
    record = make_record()
    figure = draw(picture, study(record))
    axes, = figure.axes
    for block in ("highway", "plain"):
        x, y = line(axes, block)
        assert list(x) == history(record, block, "epoch")
        assert list(y) == history(record, block, series)
        low, high = axes.get_ylim()
        assert low < min(y) and max(y) < high
        assert f"{block} {y[-1]:.4f}" in written(figure)
    assert dashed(axes) == [mark] and low < mark < high
    assert label in written(figure)
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_the_axes_use_their_range(study):
    record = make_record()
    for picture in ("learning_curves", "plain_loss_collapse", "T_gate_final"):
        axes = draw(picture, study(record)).axes[0]
        box = axes.dataLim if picture != "T_gate_final" else axes.patches[0].get_data()
        values = (box.intervaly if picture != "T_gate_final"
                  else [*np.array(box.values)[::2], box.baseline])
        low, high = axes.get_ylim()
        assert max(values) - min(values) > 0.85 * (high - low), picture


@pytest.mark.parametrize("last, scale", [
    ([0.5, 0.03], "linear"), ([0.5, 0.01], "log"), ([0.5, 0], "linear"),
    ([0.01, 0], "log")])
def test_losses_of_many_magnitudes_are_drawn_on_a_log_scale(study, last, scale):
    record = make_record()
    history(record, "highway", "train_loss")[2:] = last
    axes, = draw("plain_loss_collapse", study(record)).axes
    assert axes.get_yscale() == scale == ("log" if "log" in axes.get_ylabel()
                                          else "linear")
    low, high = axes.get_ylim()
    assert low < min(value for value in last if value or scale == "linear")
    assert high > 2.3 and (low > 0 or scale == "linear")


def test_the_sweep_is_drawn_by_depth(study):
    record = make_record(depths=(50, 5, 10))     # in any order
    figure = draw("depth_sweep", study(record))
    axes, = figure.axes
    for block in ("highway", "plain"):
        x, y = line(axes, block)
        assert list(x) == [5, 10, 50]
        assert list(y) == [history(record, block, "test_acc", i)[-1] for i in (1, 2, 0)]
    assert axes.get_xscale() == "log" and dashed(axes) == [0.1]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "10", "50"]


def test_ticks_of_near_depths_make_room_and_the_deepest_has_one(study):
    depths = (*range(1, 41), 1000)
    axes, = lay_out("depth_sweep", study(make_record(depths, epochs=1))).axes
    boxes = [text.get_window_extent() for text in axes.get_xticklabels()]
    assert axes.get_xticklabels()[-1].get_text() == "1000" and len(boxes) > 5
    assert all(left.x1 < right.x0 for left, right in zip(boxes, boxes[1:]))


@pytest.mark.parametrize("depth", [1, 6, 100, 1000])
def test_the_heat_map_holds_each_layer_and_epoch(study, depth):
    record = make_record(depths=(depth,), epochs=3)
    T = np.array([row for _, row in record["runs"][0]["highway"]["layer_T_history"]])
    axes, scale = draw("T_gate_evolution", study(record)).axes
    image, = axes.images
    assert np.array_equal(image.get_array(), T.T)           # layer 1 at the bottom
    assert image.get_extent() == pytest.approx([-0.5, 3.5, 0.5, depth + 0.5])
    assert image.get_clim() == pytest.approx([min(T.min(), SIGMA_2),
                                              max(T.max(), SIGMA_2)])
    assert list(axes.get_xticks()) == [0, 1, 2, 3]
    assert 1 in axes.get_yticks() and len(axes.get_yticks()) <= 14
    assert all(1 <= tick <= depth for tick in axes.get_yticks())
    assert scale.get_yticks()[-1] == pytest.approx(SIGMA_2)
    assert scale.get_yticklabels()[-1].get_text() == "$\\sigma(-2)$\n0.119"


def test_epochs_without_gates_do_not_shift_the_others(study):
    record = make_record(epochs=4)
    arm = record["runs"][0]["highway"]
    arm["layer_T_history"] = [arm["layer_T_history"][i] for i in (0, 1, 4)]
    axes = draw("T_gate_evolution", study(record)).axes[0]
    image, = axes.images
    assert list(image._Ax) == [-0.5, 0.5, 2.5, 5.5]         # 0, 1 and 4 within theirs
    del arm["layer_T_history"][-1]
    figure = draw("T_gate_evolution", study(record))
    assert figure.axes[0].get_xlim() == (-0.5, 4.5)
    assert "not recorded" in written(figure)


@pytest.mark.parametrize("bias", [-4.0, -2.0, 0.5])
def test_the_bars_rise_from_sigma_of_the_recorded_bias(study, bias):
    record = make_record(gate_bias=bias)
    final = record["runs"][0]["highway"]["final_T_per_layer"]
    figure = draw("T_gate_final", study(record))
    axes, = figure.axes
    bars, = axes.patches
    values, edges, baseline = bars.get_data()
    start = 1 / (1 + math.exp(-bias))
    assert list(values[::2]) == final and np.isnan(values[1::2]).all()
    assert (edges[::2] + edges[1::2]) / 2 == pytest.approx(range(1, 7))
    assert baseline == pytest.approx(start) and dashed(axes) == [pytest.approx(start)]
    assert f"$\\sigma({bias:g})$ = {start:.3g}" in written(figure)
    low, high = axes.get_ylim()
    assert 0 <= low < min(*final, start) and max(*final, start) < high <= 1


def test_several_seeds_are_a_mean_in_a_band(study):
    record = make_record(seeds=(3, 5, 8))
    table = np.array([history(record, "highway", "test_acc", i) for i in range(3)])
    loaded = study(record)
    figure = draw("learning_curves", loaded)
    axes, = figure.axes
    assert line(axes, "highway")[1] == pytest.approx(table.mean(axis=0))
    band, = (item for item in axes.collections
             if item.get_label() == "highway range")
    corners = {(x, round(y, 9)) for x, y in band.get_paths()[0].vertices}
    for low_or_high in (table.min(axis=0), table.max(axis=0)):
        assert {(x, round(y, 9)) for x, y in zip(range(1, 5), low_or_high)} <= corners
    assert "3 seeds (3, 5, 8)" in written(figure) and "band: " in written(figure)

    sweep, = draw("depth_sweep", loaded).axes
    assert sorted(line(sweep, "highway seeds")[1]) == sorted(table[:, -1])
    T = np.array([run["highway"]["final_T_per_layer"] for run in record["runs"]])
    gates, = draw("T_gate_final", loaded).axes
    assert gates.patches[0].get_data().values[::2] == pytest.approx(T.mean(axis=0))
    whiskers = np.array(gates.collections[0].get_segments())[:, :, 1]
    assert np.allclose(whiskers, np.stack([T.min(axis=0), T.max(axis=0)], axis=1))
    image, = draw("T_gate_evolution", loaded).axes[0].images
    assert np.allclose(image.get_array()[:, -1], T.mean(axis=0))


def test_one_seed_has_no_band(study):
    for name in viz.PICTURES:
        figure = draw(name, study(make_record()))
        assert not any(axes.collections for axes in figure.axes[:1])
        assert "band" not in written(figure) and "seed 0" in written(figure)


def test_of_several_depths_the_deepest_is_drawn_and_named(study):
    record = make_record(depths=(9, 3))
    figure = draw("learning_curves", study(record))
    assert list(line(figure.axes[0], "highway")[1]) == history(record, "highway",
                                                               "test_acc", 0)
    assert "9 blocks" in written(figure)
    assert "the deepest of 2 depths (3, 9)" in written(figure)


# --------------------------------------------------------------------------------------
# Runs that diverged


def test_a_run_that_diverged_ends_in_a_cross_before_a_gap(study):
    record = make_record()
    diverge(record["runs"][0]["highway"], 2)
    figure = draw("learning_curves", study(record))
    axes, = figure.axes
    x, y = line(axes, "highway alone")
    expected = history(record, "highway", "test_acc")[:2]
    assert list(y[:2]) == expected and np.isnan(y[2:]).all() and len(x) == 4
    assert line(axes, "highway diverged") == ([2], [expected[-1]])
    assert "highway diverged" in written(figure)
    assert len(line(axes, "plain")[0]) == 4
    image = draw("T_gate_evolution", study(record)).axes[0].images[0]
    assert image.get_array().shape == (6, 3)                # epochs 0, 1 and 2
    assert image.axes.get_xlim()[1] == 4.5 and "diverged" in written(image.figure)
    assert "after epoch 2" in written(draw("T_gate_final", study(record)))


def test_seeds_that_diverged_are_left_out_of_mean_and_band(study):
    record = make_record(seeds=(0, 1, 2))
    diverge(record["runs"][1]["highway"], 2)
    kept = np.array([history(record, "highway", "test_acc", i) for i in (0, 2)])
    figure = draw("learning_curves", study(record))
    axes, = figure.axes
    assert line(axes, "highway")[1] == pytest.approx(kept.mean(axis=0))
    assert line(axes, "highway diverged")[0] == [2]
    assert "highway 6, 1 of 3" in written(figure)
    T = [record["runs"][i]["highway"]["final_T_per_layer"] for i in (0, 2)]
    bars = draw("T_gate_final", study(record)).axes[0].patches[0].get_data()
    assert bars.values[::2] == pytest.approx(np.mean(T, axis=0))
    T = [record["runs"][i]["highway"]["layer_T_history"][1][1] for i in (0, 2)]
    image, = draw("T_gate_evolution", study(record)).axes[0].images
    assert np.allclose(image.get_array()[:, 1], np.mean(T, axis=0))


def test_the_sweep_has_a_gap_and_a_cross_where_no_seed_is_left(study):
    record = make_record(depths=(3, 6, 9))
    diverge(record["runs"][1]["plain"], 1)
    axes, = draw("depth_sweep", study(record)).axes
    _, y = line(axes, "plain")
    assert np.isnan(y).tolist() == [False, True, False]
    x, height = line(axes, "plain diverged")
    assert x == [6] and 0 < height[0] < 0.2     # of the axes: at their foot
    assert not np.isnan(line(axes, "highway")[1]).any()


def test_a_run_without_any_value_is_still_marked(study):
    figure = draw("learning_curves", study(SAMPLES["none left"], gates=True))
    for block in ("highway", "plain"):
        assert line(figure.axes[0], f"{block} diverged")[0] == [1]
    for name in ("T_gate_evolution", "T_gate_final"):
        figure = draw(name, study(SAMPLES["none left"]))
        assert "no gate was recorded" in written(figure)


# --------------------------------------------------------------------------------------
# Words, colours, places


def test_captions_name_data_images_seeds_and_weights(study):
    for record, words in (
            (make_record(), ("MNIST: 6,000 training and 2,000 test images", "seed 0",
                             "weights U(±1/√fan_in)")),
            (make_record(dataset="digits"), ("UCI digits", "not MNIST")),
            (make_record(seeds=range(30)), ("30 seeds (0, 1, 2, …, 29)",)),
            (as_earlier(make_record()), ("earlier reproduction",
                                         "gate bias −2 assumed"))):
        for name in viz.PICTURES:
            text = written(draw(name, study(record)))
            assert all(word in text for word in words), name
    text = written(draw("learning_curves", study(make_record())))
    assert "parameters: highway 12,000, plain 6,000" in text


def test_titles_do_not_depend_on_results(study):
    record = make_record()
    swapped = copy.deepcopy(record)
    for name in ("history", "parameters"):
        for block, other in (("highway", "plain"), ("plain", "highway")):
            swapped["runs"][0][block][name] = record["runs"][0][other][name]
    for name in viz.PICTURES:
        titles = [draw(name, study(each)).texts[0].get_text()
                  for each in (record, swapped)]
        assert titles[0] == titles[1] and titles[0]


def test_records_of_the_earlier_reproduction_give_the_same_pictures(study):
    record = make_record(depths=(3, 6))
    ours, theirs = study(record), study(as_earlier(record), gates=True)
    assert theirs.T_start == pytest.approx(SIGMA_2) and theirs.assumed
    for name in ("learning_curves", "plain_loss_collapse", "depth_sweep"):
        lines = [[item.get_xydata().tolist() for item in draw(name, it).axes[0].lines]
                 for it in (ours, theirs)]
        assert lines[0] == lines[1]
    image = draw("T_gate_evolution", theirs).axes[0].images[0]
    assert image.get_extent()[:2] == (0.5, 4.5)             # they begin at epoch 1


def luminance(colour):
    """The WCAG's relative luminance of "#RRGGBB"."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4
              for p in parts]
    return np.dot(linear, [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("theme", [viz.LIGHT, viz.DARK])
def test_colours_are_okabe_and_itos_and_stand_out(theme):
    okabe_ito = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2",
                 "#D55E00", "#CC79A7"}
    assert {theme.highway, theme.plain} < okabe_ito and theme.highway != theme.plain
    for colour, least in ((theme.ink, 7), (theme.soft, 4.5), (theme.highway, 3),
                          (theme.plain, 3)):
        pair = sorted((luminance(colour), luminance(theme.paper)))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) > least


@pytest.mark.parametrize("name", viz.PICTURES)
def test_the_dark_picture_differs_in_colours_alone(study, name):
    loaded = study(make_record())
    assert written(draw(name, loaded)) == written(draw(name, loaded, viz.DARK))
    for theme in (viz.LIGHT, viz.DARK):
        with Image.open(io.BytesIO(viz.render(name, loaded, theme))) as image:
            corner = image.convert("RGB").getpixel((0, 0))
        assert "#{:02X}{:02X}{:02X}".format(*corner) == theme.paper


def texts_of(axes):
    """The texts of an axes that can be seen."""
    if not axes.axison:
        return list(axes.texts)
    texts = [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title,
             axes._left_title, axes.yaxis.get_offset_text()]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        texts += [tick.label1 if axes.yaxis.get_ticks_position() != "right" or
                  axis is axes.xaxis else tick.label2
                  for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return texts


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("name", viz.PICTURES)
def test_no_text_leaves_the_picture_or_covers_another(study, name, kind):
    figure = lay_out(name, study(SAMPLES[kind]))
    texts = [*figure.texts, *(text for axes in figure.axes for text in texts_of(axes))]
    boxes = [(text.get_text(), text.get_window_extent())
             for text in texts if text.get_text().strip()]
    for i, (text, box) in enumerate(boxes):
        assert box.x0 >= 0 and box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
        for other, box_of_other in boxes[:i]:
            wide = min(box.x1, box_of_other.x1) - max(box.x0, box_of_other.x0)
            high = min(box.y1, box_of_other.y1) - max(box.y0, box_of_other.y0)
            assert wide <= 0 or high <= 2, (text, other)    # pixels of line spacing


def test_a_label_stands_where_its_line_ends(study):
    record = make_record()
    for block, end in (("highway", 0.9), ("plain", 0.4)):   # far apart and from chance
        history(record, block, "test_acc")[-1] = end
    axes, = draw("learning_curves", study(record)).axes
    places = {text.get_text(): text.xy for text in axes.texts}
    low, high = axes.get_ylim()
    ends = {"highway 0.9000": 0.9, "plain 0.4000": 0.4, "chance 1/10": 0.1}
    assert places == {label: (1, pytest.approx((height - low) / (high - low)))
                      for label, height in ends.items()}


@settings(deadline=None, database=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6), st.floats(0.01, 1))
def test_spread_labels_lie_apart_in_their_order_around_their_mean(heights, gap):
    moved = viz.spread(heights, gap)
    order = np.argsort(moved)
    assert np.diff(moved[order]).min(initial=gap) >= gap - 1e-9
    assert (np.diff(np.array(heights)[order]) >= 0).all()
    assert moved.mean() == pytest.approx(np.mean(heights), abs=1e-9)
    assert viz.spread(moved, gap - 1e-9) == pytest.approx(moved, abs=1e-6)


# --------------------------------------------------------------------------------------
# Files


def run_main(tmp_path, record=None, sweep=None, *flags):
    """main on two records, pictures in tmp_path/out. Returns the paths."""
    run = save(tmp_path / "run.json", record or make_record())
    sweep = save(tmp_path / "sweep.json", sweep or make_record(depths=(3, 6)))
    return viz.main(["--run", run, "--sweep", sweep, "--out-dir", str(tmp_path / "out"),
                     *flags])


MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("kind", MAGIC)
def test_five_files_of_the_format_and_nothing_else(tmp_path, kind):
    paths = run_main(tmp_path, None, None, "--format", kind)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        f"{name}.{kind}" for name in viz.PICTURES)
    contents = {path.read_bytes() for path in paths}
    assert len(contents) == 5
    assert all(content.startswith(MAGIC[kind]) for content in contents)


@pytest.mark.parametrize("name, kind", [
    *((name, "png") for name in viz.PICTURES), ("learning_curves", "svg"),
    ("T_gate_evolution", "svg"), ("T_gate_evolution", "pdf")])
def test_a_rerun_gives_the_same_bytes(study, name, kind):
    loaded = study(make_record(seeds=(0, 1)))
    assert viz.render(name, loaded, kind=kind) == viz.render(name, loaded, kind=kind)


def test_the_bytes_depend_on_no_setting_of_the_user(tmp_path, study):
    loaded = study(make_record())
    expected = viz.render("T_gate_final", loaded)
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\n"
                                           "savefig.dpi: 33\nsavefig.bbox: tight\n")
    done = subprocess.run(
        [sys.executable, "-c", "import sys, visualize_highway_networks as v; "
         f"v.DPI = {viz.DPI}; study = v.load('r.json', ''); "
         "sys.stdout.buffer.write(v.render('T_gate_final', study))"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
        cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == expected
    with matplotlib.rc_context({"axes.grid": True, "font.family": "monospace"}):
        assert viz.render("T_gate_final", loaded) == expected
        assert matplotlib.rcParams["font.family"] == ["monospace"]  # and put back


def test_a_picture_names_its_record(tmp_path):
    paths = run_main(tmp_path)
    for path in paths:
        record = "sweep" if path.stem == "depth_sweep" else "run"
        with Image.open(path) as image:
            assert image.size[0] == 7.5 * viz.DPI
            assert image.text == {
                "Title": path.stem, "Source": "python3 highway_networks.py --seed 0",
                "Record-SHA-256": hashlib.sha256(
                    (tmp_path / f"{record}.json").read_bytes()).hexdigest()}


@pytest.mark.parametrize("kind", ["svg", "pdf"])
def test_vector_formats_name_the_record_and_no_date(study, kind):
    loaded = study(make_record())
    content = viz.render("T_gate_final", loaded, kind=kind)
    assert b"record SHA-256 " + loaded.sha256.encode() in content
    assert not re.search(rb"CreationDate|<dc:date>|Matplotlib v", content)


def test_dark_pictures_lie_beside_the_light_ones(tmp_path):
    light, dark = run_main(tmp_path), run_main(tmp_path, None, None, "--dark")
    assert [path.name for path in dark] == [f"{path.stem}_dark.png" for path in light]
    assert all(path.exists() for path in light + dark)
    assert light[0].read_bytes() != dark[0].read_bytes()


def test_a_full_disk_leaves_the_old_pictures(tmp_path, monkeypatch):
    paths = run_main(tmp_path)
    old = {path: path.read_bytes() for path in paths}
    sync, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        sync(handle)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SystemExit, match="No space left"):
        run_main(tmp_path, make_record(epochs=2))
    assert old == {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}


# --------------------------------------------------------------------------------------
# Bad records


def set_to(value, *keys):
    """A change of a record: the item at these keys becomes `value`."""
    def change(record):
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = value
    return change


def without(*keys):
    """A change of a record: the item at these keys is gone."""
    def change(record):
        for key in keys[:-1]:
            record = record[key]
        del record[keys[-1]]
    return change


HIGHWAY = ("runs", 0, "highway")
T_HISTORY = (*HIGHWAY, "layer_T_history")
BAD = [
    (set_to("other/schema", "schema"), "schema"),
    (set_to(99, "schema_version"), "schema_version"),
    (set_to([], "runs"), "runs"),
    (without("runs"), "runs"),
    (set_to(0, "runs", 0, "depth"), "runs[0].depth"),
    (set_to(True, "runs", 0, "depth"), "runs[0].depth"),
    (set_to("0", "runs", 0, "seed"), "runs[0].seed"),
    (without("runs", 0, "plain"), "runs[0].plain"),
    (set_to(["0.1"] * 4, *HIGHWAY, "history", "test_acc"), "history.test_acc"),
    (set_to([0.5, 1.5, 0.5, 0.5], *HIGHWAY, "history", "test_acc"),
     "history.test_acc[1]"),
    (set_to([0.5] * 3, *HIGHWAY, "history", "test_acc"), "history.test_acc"),
    (set_to([-1, 1, 1, 1], *HIGHWAY, "history", "train_loss"), "history.train_loss[0]"),
    (set_to([10**40, 1, 1, 1], *HIGHWAY, "history", "train_loss"),
     "history.train_loss[0]"),
    (set_to([1, 2, 2, 3], *HIGHWAY, "history", "epoch"), "history.epoch[2]"),
    (set_to([1, 2, 3, 4.0], *HIGHWAY, "history", "epoch"), "history.epoch[3]"),
    (set_to({"epoch": [], "train_loss": [], "train_acc": [], "test_acc": []}, *HIGHWAY,
            "history"), "history.epoch"),
    (set_to(None, *HIGHWAY, "history", "test_acc", 1), "highway.status"),
    (set_to("tired", *HIGHWAY, "status"), "highway.status"),
    (set_to(1.5, *HIGHWAY, "parameters"), "highway.parameters"),
    (without(*T_HISTORY), "layer_T_history"),
    (set_to([], *T_HISTORY), "layer_T_history"),
    (set_to("gates", *T_HISTORY), "layer_T_history"),
    (set_to(0.1, *T_HISTORY, 2), "layer_T_history[2]"),
    (set_to([0.1] * 5, *T_HISTORY, 2, 1), "layer_T_history[2][1]"),
    (set_to(["0.1"] * 6, *T_HISTORY, 2, 1), "layer_T_history[2][1][0]"),
    (set_to(1.01, *T_HISTORY, 2, 1, 4), "layer_T_history[2][1][4]"),
    (set_to(1, *T_HISTORY, 2, 0), "layer_T_history epoch[2]"),
    (without("config"), "config"),
    (without("config", "gate_bias"), "config.gate_bias"),
    (set_to("small", "config", "init"), "config.init"),
    (set_to("cifar", "dataset"), "dataset"),
    (set_to(["mnist"], "dataset"), "dataset"),
    (set_to(None, "n_train"), "n_train"),
    (set_to("a\nb", "command"), "command"),
    (set_to("\ud800", "command"), "command"),
]


@pytest.mark.parametrize("change, field", BAD)
def test_a_bad_record_is_one_line_and_no_picture(tmp_path, change, field):
    record = make_record()
    change(record)
    (tmp_path / "out").mkdir()
    with pytest.raises(SystemExit) as stop:
        run_main(tmp_path, record)
    message = stop.value.code
    assert message.startswith("visualize_highway_networks.py: ")
    assert "\n" not in message and str(tmp_path / "run.json") in message
    assert f"{field}'" in message and len(message) < 400
    assert message.endswith("Make it with: python3 highway_networks.py --seed 0 --out "
                            + str(tmp_path / "run.json"))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("change, field", [
    (lambda record: record["runs"].append(record["runs"][0]), "runs[5]'"),
    (lambda record: record["runs"][1].update(highway=make_arm("highway", 6, 1, 3)),
     "history.epoch' of highway 6")])
def test_seeds_that_do_not_fit_together_are_refused(tmp_path, change, field):
    record = make_record(seeds=range(5))
    change(record)
    with pytest.raises(SystemExit, match=re.escape(field)):
        run_main(tmp_path, record)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[1]", b'{"runs": [NaN]}',
                                     b"\xff\xfe", b"[" * 100_000])
def test_a_missing_or_broken_file_is_one_line(tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "depth_sweep.png").write_bytes(b"old")
    for name, flag in (("run", "--run"), ("sweep", "--sweep")):
        path = tmp_path / f"bad {name}.json"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(SystemExit) as stop:
            run_main(tmp_path, None, None, flag, str(path))
        assert str(path) in stop.value.code and "\n" not in stop.value.code
        assert "Make it with: python3 highway_networks.py --seed 0" in stop.value.code
    file, = (tmp_path / "out").iterdir()
    assert file.read_bytes() == b"old"


def test_the_process_exits_1_with_one_line_on_stderr(tmp_path):
    done = subprocess.run(
        [sys.executable, "-O", "-W", "error", ROOT / SCRIPTS[0]], cwd=tmp_path,
        capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "visualize_highway_networks.py: run.json: No such file or directory. Make it "
        "with: python3 highway_networks.py --seed 0\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [["--format", "jpg"], ["--form", "png"], ["x"]])
def test_wrong_flags_exit_2(flags, capsys):
    with pytest.raises(SystemExit) as stop:
        viz.main(flags)
    assert stop.value.code == 2 and "usage:" in capsys.readouterr().err


def test_an_out_dir_that_is_a_file_is_one_line(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(SystemExit, match="visualize_highway_networks.py: .*out"):
        run_main(tmp_path)
    assert (tmp_path / "out").read_text() == "mine"


# --------------------------------------------------------------------------------------
# The scripts themselves


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_takes_of_the_core_its_record_reader_alone(script):
    taken = set()
    for node in ast.walk(ast.parse((ROOT / script).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "highway_networks":
            taken |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            assert all(alias.name != "highway_networks" for alias in node.names)
    assert taken and taken <= {"read_record", "RecordError"}


@pytest.mark.parametrize("script, library", [
    (SCRIPTS[0], "matplotlib"), (SCRIPTS[1], "matplotlib"), (SCRIPTS[1], "imageio")])
def test_a_missing_library_is_one_line(monkeypatch, script, library):
    for name in [name for name in sys.modules
                 if name.split(".")[0] in (library, "visualize_highway_networks")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert stop.value.code == (f"{script} needs {library}. Install: python3 -m venv "
                               ".venv && .venv/bin/pip install -e .")


def test_importing_does_nothing_and_starts_no_pyplot(tmp_path):
    code = ("import make_highway_networks_gif, visualize_highway_networks, sys, os; "
            "sys.exit('matplotlib.pyplot' in sys.modules or bool(os.listdir('.')))")
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --------------------------------------------------------------------------------------
# Tables, and what is committed


README = """a
<!-- table: headline -->
| old | 0.1 |
<!-- end -->
b
<!-- table: sweep -->
<!-- end -->
"""


def test_a_table_has_a_row_for_each_net_and_depth(study):
    record = make_record(depths=(3, 6), seeds=(0, 1, 2))
    diverge(record["runs"][0]["plain"], 1)
    for i in (3, 4, 5):
        diverge(record["runs"][i]["plain"], 1)
    acc, loss = ([history(record, "highway", name, i)[-1] for i in range(3)]
                 for name in ("test_acc", "train_loss"))
    kept = [history(record, "plain", "test_acc", i)[-1] for i in (1, 2)]
    rows = [[cell.strip() for cell in row.strip("|").split("|")]
            for row in viz.render_table(study(record)).splitlines()]
    assert rows[0] == ["net", "depth", "parameters", "n", "test accuracy",
                       "last training loss"]
    assert rows[2] == ["highway", "3", "6,000", "3",
                       f"{np.mean(acc):.4f} ± {np.std(acc, ddof=1):.4f}",
                       f"{np.mean(loss):.3f} ± {np.std(loss, ddof=1):.3f}"]
    assert rows[3][:5] == ["plain", "3", "3,000", "3, of which 1 diverged",
                           f"{np.mean(kept):.4f} ± {np.std(kept, ddof=1):.4f}"]
    assert rows[5] == ["plain", "6", "6,000", "3, of which 3 diverged", "–", "–"]
    assert len(rows) == 6


def test_a_table_of_one_seed_has_no_spread(study):
    record = make_record()
    row = viz.render_table(study(record)).splitlines()[2]
    assert row == (f"| highway | 6 | 12,000 | 1 | "
                   f"{history(record, 'highway', 'test_acc')[-1]:.4f} | "
                   f"{history(record, 'highway', 'train_loss')[-1]:.3f} |")


def test_a_table_of_two_records_has_a_row_for_each_depth(study):
    one, two = (make_record(depths=(3, 6), seeds=(0, 1)) for _ in range(2))
    two["config"]["init"] = "glorot"
    diverge(two["runs"][0]["plain"], 1)
    rows = [[cell.strip() for cell in row.strip("|").split("|")]
            for row in viz.render_depths(study(one), study(two)).splitlines()]
    assert rows[0] == ["depth", "highway, U(±1/√fan_in), n = 2",
                       "plain, U(±1/√fan_in), n = 2", "highway, Glorot, n = 2",
                       "plain, Glorot, n = 2"]
    values = [history(one, "plain", "test_acc", i)[-1] for i in (0, 1)]
    assert rows[2][0] == "3" and rows[2][2] == (
        f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}")
    left = history(two, "plain", "test_acc", 1)[-1]
    assert rows[2][4] == f"{left:.3f}, 1 diverged" and len(rows) == 4


def test_tables_replace_what_stands_between_their_markers():
    tables = {"headline": "| x |", "sweep": "| y |"}
    new = viz.replace_tables(README, tables)
    assert new == README.replace("| old | 0.1 |", "| x |").replace(
        "sweep -->\n", "sweep -->\n| y |\n")
    assert viz.replace_tables(new, tables) == new


@pytest.mark.parametrize("text, words", [
    ("<!-- table: headline -->\n| x |\n", "'headline' has no end"),
    ("<!-- table: headline -->\n<!-- table: sweep -->\n<!-- end -->\n",
     "line 2: table 'headline' has no end"),
    ("a\n<!-- end -->\n", "line 2: an end marker without a table"),
    ("<!-- table: headlines -->\n<!-- end -->\n", "line 1: no table 'headlines'"),
    ("no marker at all\n", "no line is a marker"),
    ("\udcff", "decode")])
def test_wrong_markers_are_one_line_and_change_nothing(tmp_path, text, words):
    readme = tmp_path / "README.md"
    readme.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(SystemExit) as stop:
        run_main(tmp_path, None, None, "--readme", str(readme))
    assert words in stop.value.code and str(readme) in stop.value.code
    assert "\n" not in stop.value.code
    assert readme.read_bytes() == text.encode(errors="surrogateescape")
    assert not (tmp_path / "out").exists()


def test_readme_tables_come_from_the_records_beside_it(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(README)
    save(tmp_path / "run_sweep.json", make_record(depths=(3, 6)))
    paths = run_main(tmp_path, None, None, "--readme", str(readme))
    tables = viz.render_tables(tmp_path, ["headline", "sweep"])
    assert paths[0] == readme and len(paths) == 6
    assert readme.read_text() == viz.replace_tables(README, tables)
    (tmp_path / "run_sweep.json").unlink()
    with pytest.raises(SystemExit, match="--depths 5,10,20,30,50 --out .*run_sweep"):
        run_main(tmp_path, None, None, "--readme", str(readme))


def test_the_readme_of_the_repository_agrees_with_its_records():
    text = (tree() / "README.md").read_bytes().decode()
    names = {marker[1] for marker in viz.MARKER.finditer(text) if marker[1]}
    assert names == set(viz.TABLES)
    assert viz.replace_tables(text, viz.render_tables(tree())) == text, (
        "run: python3 visualize_highway_networks.py --readme README.md")


def test_a_changed_digit_in_readme_or_record_is_noticed(tmp_path):
    save(tmp_path / "run.json", make_record())
    tables = viz.render_tables(tmp_path, ["headline"])
    text = viz.replace_tables(README.split("b\n")[0], tables)
    value = re.search(r"0\.\d{4}", text)[0]
    wrong = text.replace(value, f"{float(value) + 0.0001:.4f}", 1)
    assert wrong != text and viz.replace_tables(wrong, tables) == text
    record = make_record()
    history(record, "highway", "test_acc")[-1] += 0.0002
    save(tmp_path / "run.json", record)
    assert viz.replace_tables(text, viz.render_tables(tmp_path, ["headline"])) != text


@pytest.mark.parametrize("name", viz.PICTURES)
def test_the_pictures_of_the_repository_are_of_its_records(name):
    record = tree() / (viz.SWEEP if name == "depth_sweep" else viz.RUN)[0]
    paths = sorted((tree() / "viz").glob(f"{name}*.png"))
    assert paths and paths[0].name == f"{name}.png"
    for path in paths:
        with Image.open(path) as image:
            assert image.text["Record-SHA-256"] == hashlib.sha256(
                record.read_bytes()).hexdigest(), (
                "run: python3 visualize_highway_networks.py, also with --dark")


def test_every_table_names_the_command_of_its_record():
    for path, flags in {record for records in viz.TABLES.values()
                        for record in records}:
        command = json.loads((tree() / path).read_text(encoding="utf-8"))["command"]
        expected = flags if path == "run.json" else f"{flags} --out {path}"
        assert sorted(command.split()[2:]) == sorted(expected.split())
