"""The pictures draw what the record says, on axes that hold it, and name it."""

import hashlib
import io
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
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import make_highway_networks_gif as gif
import visualize_highway_networks as viz
from highway_suite import figures
from highway_suite.figures import DARK, LIGHT
from highway_suite.studies import RUN, SWEEP, load
from tests.committed import tree
from tests.contracts import contrast
from tests.records_for_figures import diverge, make_record, sample_records, save

ROOT = Path(viz.__file__).parent
SCRIPTS = ("visualize_highway_networks.py", "make_highway_networks_gif.py")
SAMPLES = sample_records()
SIGMA_2 = 1 / (1 + math.exp(2))


@pytest.fixture(autouse=True)
def few_pixels(monkeypatch):
    """A picture has the same parts in fewer pixels, sooner."""
    monkeypatch.setattr(figures, "DPI", 60)
    monkeypatch.setattr(gif, "DPI", 40)


def draw(name, study, theme=LIGHT):
    """A picture as a Figure, not yet on a canvas."""
    with figures.style(theme):
        return viz.PICTURES[name](study, theme)


def lay_out(name, study):
    """A picture as a Figure whose texts have their places, at 100 dots per inch."""
    figure = draw(name, study)
    figure.set_dpi(100)
    FigureCanvasAgg(figure)
    with figures.style(LIGHT):
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


def test_the_sweep_is_drawn_by_depth(study):
    record = make_record(depths=(50, 5, 10))     # in any order
    figure = draw("depth_sweep", study(record))
    axes, = figure.axes
    for block in ("highway", "plain"):
        x, y = line(axes, block)
        assert list(x) == [6, 11, 51]       # layers: blocks and the projection
        assert list(y) == [history(record, block, "test_acc", i)[-1] for i in (1, 2, 0)]
    assert axes.get_xscale() == "log" and dashed(axes) == [0.1]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["6", "11", "51"]


@pytest.mark.parametrize("depth", [1, 100])
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
        assert {(x, round(y, 9)) for x, y in zip(range(1, 5), low_or_high,
                                                      strict=True)} <= corners
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


def test_every_kind_of_net_is_drawn_in_a_colour_of_its_own(study):
    record = SAMPLES["all forms"]
    blocks = list(record["config"]["blocks"])
    for theme in (LIGHT, DARK):
        curves, = draw("learning_curves", study(record), theme).axes
        sweep, = draw("depth_sweep", study(record), theme).axes
        for axes in (curves, sweep):
            drawn = {item.get_label(): item for item in axes.lines}
            assert set(blocks) < set(drawn)
            looks = {(drawn[block].get_color(), drawn[block].get_marker())
                     for block in blocks}
            assert len(looks) == len({colour for colour, _ in looks}) == len(blocks)
    gated = ["highway", "t_only", "full", "own_with_gates"]
    for name in ("T_gate_evolution", "T_gate_final"):
        figure = draw(name, study(record))
        panels = [axes for axes in figure.axes if axes.get_xlabel()]
        assert [axes.texts[0].get_text() for axes in panels
                if axes.texts[0].get_text() in gated] == gated, name
        assert "no gate was recorded" in written(draw(name, study(SAMPLES["no gates"])))


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
    assert "highway 7, 1 of 3" in written(figure)
    T = [record["runs"][i]["highway"]["final_T_per_layer"] for i in (0, 2)]
    bars = draw("T_gate_final", study(record)).axes[0].patches[0].get_data()
    assert bars.values[::2] == pytest.approx(np.mean(T, axis=0))
    T = [record["runs"][i]["highway"]["layer_T_history"][1][1] for i in (0, 2)]
    image, = draw("T_gate_evolution", study(record)).axes[0].images
    assert np.allclose(image.get_array()[:, 1], np.mean(T, axis=0))


# --------------------------------------------------------------------------------------
# Words, colours, places


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_colours_are_okabe_and_itos_and_stand_out(theme):
    okabe_ito = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2",
                 "#D55E00", "#CC79A7"}
    assert set(theme.blocks.values()) < okabe_ito and len({*theme.blocks.values()}) == 6
    for colour, least in ((theme.ink, 7), (theme.soft, 4.5),
                          (theme.blocks["highway"], 3), (theme.blocks["plain"], 3),
                          *((colour, 3) for colour in theme.own)):
        assert contrast(colour, theme.paper) > least


@pytest.mark.parametrize("name", viz.PICTURES)
def test_the_dark_picture_differs_in_colours_alone(study, name):
    loaded = study(make_record())
    assert written(draw(name, loaded)) == written(draw(name, loaded, DARK))
    for theme in (LIGHT, DARK):
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


@settings(deadline=None, database=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=6), st.floats(0.01, 1))
def test_spread_labels_lie_apart_in_their_order_around_their_mean(heights, gap):
    moved = figures.push_apart(heights, gap)
    order = np.argsort(moved)
    assert np.diff(moved[order]).min(initial=gap) >= gap - 1e-9
    assert (np.diff(np.array(heights)[order]) >= 0).all()
    assert moved.mean() == pytest.approx(np.mean(heights), abs=1e-9)
    assert figures.push_apart(moved, gap - 1e-9) == pytest.approx(moved, abs=1e-6)


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
    digests = {load(tmp_path / f"{name}.json").sha256 for name in ("run", "sweep")}
    for content in contents:
        assert content.startswith(MAGIC[kind])
        assert any(digest.encode() in content for digest in digests)
        assert not re.search(rb"CreationDate|<dc:date>|Matplotlib v", content)


def test_the_bytes_depend_on_no_setting_of_the_user(tmp_path, study):
    loaded = study(make_record())
    expected = viz.render("T_gate_final", loaded)
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\n"
                                           "savefig.dpi: 33\nsavefig.bbox: tight\n")
    done = subprocess.run(
        [sys.executable, "-c", "import sys, visualize_highway_networks as v; "
         f"from highway_suite import figures; figures.DPI = {figures.DPI}; "
         "study = v.load('r.json'); "
         "sys.stdout.buffer.write(v.render('T_gate_final', study)); "
         "sys.exit('matplotlib.pyplot' in sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"},
        cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == expected
    with matplotlib.rc_context({"axes.grid": True, "font.family": "monospace"}):
        assert viz.render("T_gate_final", loaded) == expected
        assert matplotlib.rcParams["font.family"] == ["monospace"]  # and put back


@pytest.mark.parametrize("content", [None, b"{", b"\xff\xfe"])
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
        told = "Make it with: python3 highway_networks.py --seed 0" in stop.value.code
        assert told is (content is None)    # never to replace what is there
        assert not told or stop.value.code.endswith(f" --out '{path}'")
    file, = (tmp_path / "out").iterdir()
    assert file.read_bytes() == b"old"


def test_the_records_of_the_folder_come_before_those_of_the_scripts(tmp_path,
                                                                   monkeypatch):
    """Found beside the scripts from any folder; a record of one's own is drawn here."""
    monkeypatch.setattr(viz, "PICTURES", {"depth_sweep": viz.depth_sweep})
    scripts, here = tmp_path / "scripts", tmp_path / "here"
    for folder in (scripts, here):
        folder.mkdir()
    save(scripts / "run.json", make_record())
    monkeypatch.setattr("highway_networks.HERE", scripts)
    monkeypatch.chdir(here)
    assert {path.parent for path in viz.main([])} == {scripts / "viz"}
    assert gif.main([]) == [scripts / "highway_networks.gif"]
    assert not any(here.iterdir())
    mine = save(tmp_path / "mine.json", make_record(depths=(3, 4)))
    assert {path.parent for path in viz.main(["--run", mine])} == {Path("viz")}
    assert gif.main(["--run", mine]) == [Path("highway_networks.gif")]
    with Image.open(here / "viz" / "depth_sweep.png") as image:
        assert image.text["Record-SHA-256"] == load(mine).sha256
    save(here / "run.json", make_record())
    assert {path.parent for path in viz.main(["--dark"])} == {Path("viz")}
    monkeypatch.setattr("highway_networks.HERE", here)      # a checkout's are its own
    for flag in ("--run", "--sweep"):
        assert {path.parent for path in viz.main([flag, mine])} == {Path("runs/viz")}
    assert gif.main(["--run", mine]) == [Path("runs/highway_networks.gif")]


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


@pytest.mark.parametrize("name", viz.PICTURES)
def test_the_pictures_of_the_repository_are_of_its_records(name):
    record = tree() / (SWEEP if name == "depth_sweep" else RUN)[0]
    paths = sorted((tree() / "viz").glob(f"{name}*.png"))
    assert paths and paths[0].name == f"{name}.png"
    for path in paths:
        with Image.open(path) as image:
            assert image.text["Record-SHA-256"] == hashlib.sha256(
                record.read_bytes()).hexdigest(), (
                "run: python3 visualize_highway_networks.py, also with --dark")
