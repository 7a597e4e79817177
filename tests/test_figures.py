"""The pictures draw what the record says, on axes that hold it, and name it."""

import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.style
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

import make_highway_networks_gif as gif
import visualize_highway_networks as viz
from highway_suite import figures
from highway_suite.figures import (
    plot_depth_sweep,
    plot_gate_history,
    plot_gates,
    plot_history,
)
from highway_suite.pictures import PICTURES
from highway_suite.studies import RUN, SWEEP, as_study
from tests.committed import tree
from tests.records_for_figures import as_earlier, diverge, make_record, save

ROOT = Path(viz.__file__).parent


@pytest.fixture(autouse=True)
def few_pixels(monkeypatch):
    """A picture has the same parts in fewer pixels, sooner."""
    monkeypatch.setattr(figures, "DPI", 60)


def draw(name, record):
    with figures.style():
        return PICTURES[name](as_study(record))


def line(axes, label):
    """The one line of this label as (x, y)."""
    found, = (item for item in axes.lines if item.get_label() == label)
    return list(found.get_xdata()), list(found.get_ydata())


def dashed(axes):
    return [item.get_ydata()[0] for item in axes.lines if item.get_linestyle() == "--"]


def bars(axes):
    """(heights, where they start) of the bars of an axes, the gaps left out."""
    outline, = axes.patches
    values, _, baseline = outline.get_data()
    return values[np.isfinite(values)], baseline


def written(figure):
    return "\n".join(text.get_text() for part in (figure, *figure.axes)
                     for text in part.texts)


def history(record, block, name, run=-1):
    return record["runs"][run][block]["history"][name]


# What is drawn


@pytest.mark.parametrize("picture, series, mark, label", [
    ("learning_curves", "test_acc", 0.1, "chance 1/10"),
    ("plain_loss_collapse", "train_loss", math.log(10), "ln 10 = 2.3026")])
def test_curves_are_those_of_the_record(picture, series, mark, label):
    record = make_record()
    figure = draw(picture, record)
    axes, = figure.axes
    for block in ("highway", "plain"):
        x, y = line(axes, block)
        assert x == history(record, block, "epoch")
        assert y == history(record, block, series)
        assert f"{block} {y[-1]:.4f}" in written(figure)
    assert dashed(axes) == [mark] and label in written(figure)


def test_the_sweep_is_drawn_by_depth_in_blocks():
    record = make_record(depths=(50, 5, 10))     # in any order
    axes, = draw("depth_sweep", record).axes
    for block in ("highway", "plain"):
        x, y = line(axes, block)
        assert x == [5, 10, 50] and y == [
            history(record, block, "test_acc", i)[-1] for i in (1, 2, 0)]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "10", "50"]


@pytest.mark.parametrize("depth, bias", [(1, -2.0), (6, -4.0), (100, 0.5)])
def test_gates_are_drawn_by_block_and_epoch(depth, bias):
    record = make_record((depth,), epochs=3, gate_bias=bias)
    T = np.array([row for _, row in record["runs"][0]["highway"]["layer_T_history"]])
    axes, = draw("T_gate_evolution", record).axes
    image, = axes.images
    assert np.array_equal(image.get_array(), T.T)       # with block 1 at the bottom:
    assert image.get_extent() == pytest.approx([-0.5, 3.5, 0.5, depth + 0.5])
    assert axes.get_ylim()[0] < axes.get_ylim()[1] and image.origin == "lower"
    assert axes.child_axes[0].get_title("left"), "the scale has a name"
    axes, = draw("T_gate_final", record).axes
    heights, baseline = bars(axes)
    start = 1 / (1 + math.exp(-bias))
    assert list(heights) == list(T[-1])
    assert baseline == pytest.approx(start) and dashed(axes) == [pytest.approx(start)]
    low, high = axes.get_ylim()
    assert 0 <= low < min(*heights, start) and max(*heights, start) < high <= 1
    assert np.mean(axes.get_xlim()) == pytest.approx((depth + 1) / 2)


def test_several_seeds_are_a_mean_in_a_band():
    record = make_record(seeds=(3, 5, 8))
    table = np.array([history(record, "highway", "test_acc", i) for i in range(3)])
    axes, = draw("learning_curves", record).axes
    assert line(axes, "highway")[1] == pytest.approx(table.mean(axis=0))
    band, = (item.get_paths()[0].vertices for item in axes.collections
             if item.get_label() == "highway range")
    for epoch, values in enumerate(table.T, 1):
        ends = band[band[:, 0] == epoch, 1]
        assert ends.min() == values.min() and ends.max() == values.max()
    sweep, = draw("depth_sweep", record).axes
    assert sorted(line(sweep, "highway seeds")[1]) == sorted(table[:, -1])
    T = np.array([run["highway"]["final_T_per_layer"] for run in record["runs"]])
    gates, = draw("T_gate_final", record).axes
    assert bars(gates)[0] == pytest.approx(T.mean(axis=0))
    whiskers = np.reshape(line(gates, "T range")[1], (-1, 3))[:, :2]
    assert np.allclose(whiskers, np.stack([T.min(axis=0), T.max(axis=0)], axis=1))


def test_runs_that_diverged_end_in_a_cross_and_are_left_out_of_the_mean():
    record = make_record(seeds=(0, 1, 2))
    diverge(record["runs"][1]["highway"], 2)
    axes, = draw("learning_curves", record).axes
    kept = np.array([history(record, "highway", "test_acc", i) for i in (0, 2)])
    assert line(axes, "highway")[1] == pytest.approx(kept.mean(axis=0))
    alone, lost = line(axes, "highway alone")[1], history(record, "highway", "test_acc",
                                                          1)
    assert alone[:2] == lost[:2] and np.isnan(alone[2:]).all()
    assert line(axes, "highway diverged") == ([2], [lost[1]])

    def widths(axes):
        return {item.get_label(): item.get_linewidth() for item in axes.lines}
    assert widths(axes)["highway alone"] < widths(axes)["highway"]
    all_lost, = draw("learning_curves", lost_record()).axes
    assert widths(all_lost)["plain alone"] == widths(axes)["highway"]
    T = [record["runs"][i]["highway"]["final_T_per_layer"] for i in (0, 2)]
    assert bars(draw("T_gate_final", record).axes[0])[0] == pytest.approx(
        np.mean(T, axis=0))


def test_chance_is_the_share_of_the_commonest_label_where_it_is_known():
    record = make_record()
    for block in ("highway", "plain"):
        record["runs"][0][block]["chance"] = 0.83
    figure = draw("learning_curves", record)
    assert dashed(figure.axes[0]) == [0.83] and "chance 0.8300" in written(figure)
    assert "highway guesses" in written(figure)


# Nothing leaves its place


def check_places(figure):
    """Raise AssertionError where something leaves the figure, a text or an axes covers
    another, or a line leaves its axes."""
    figure.draw_without_rendering()
    box, whole = figure.get_tightbbox(), figure.bbox_inches
    assert min(box.min) >= 0 and (box.max <= whole.max).all()
    titles = [text for text in figure.texts if text.get_text()]
    for parts in ([*titles, *figure.axes], *(axes.texts for axes in figure.axes)):
        boxes = [part.get_tightbbox().padded(-1) for part in parts]     # a line's space
        assert not any(one.overlaps(other) for i, one in enumerate(boxes)
                       for other in boxes[:i])
    for axes in figure.axes:
        for item in axes.lines:
            values, (low, high) = np.array(item.get_ydata(), float), axes.get_ylim()
            values = values[np.isfinite(values)]
            assert (item.get_transform() != axes.transData
                    or (low <= values).all() and (values <= high).all())


def lost_record():
    """A record of nets that diverged, one of them in its third epoch."""
    record = make_record(seeds=(0, 1))
    for i, block in ((0, "highway"), (0, "plain"), (1, "plain")):
        diverge(record["runs"][i][block], -1)
    diverge(record["runs"][1]["highway"], 2)
    return record


RECORDS = {
    "one block": lambda: make_record(depths=(1,), epochs=1),
    "1000 blocks": lambda: make_record((10, 1000), epochs=2, gate_bias=-math.log(999)),
    "1000 epochs": lambda: make_record((3,), (0, 1), epochs=1000),
    "all kinds": lambda: make_record((3, 6), (0, 1), blocks=(
        *figures.MARKERS, "own_with_gates", "a_block_of_long_name")),
    "no gates": lambda: make_record(blocks=("residual", "plain"), dataset="digits"),
    "lost": lost_record, "earlier": lambda: as_earlier(make_record(depths=(3, 6)))}


@pytest.mark.parametrize("kind", RECORDS)
def test_nothing_leaves_the_picture_or_covers_a_text(kind):
    for name in PICTURES:
        check_places(draw(name, RECORDS[kind]()))     # and there is no warning


@pytest.mark.parametrize("look", ["default", "dark_background"])
def test_own_axes_in_a_grid_keep_apart_in_any_style(look):
    record = make_record((3, 6), blocks=("highway", "scaled_residual"))
    with matplotlib.style.context(look):
        figure = Figure(figsize=(10, 7))
        for plot, axes in zip(
                (plot_history, plot_gates, plot_gate_history, plot_depth_sweep),
                figure.subplots(2, 2).flat, strict=True):
            assert plot(record, axes) is axes
            assert all(to_rgb(item.get_color()) != to_rgb(axes.get_facecolor())
                       for item in axes.lines)
        check_places(figure)
    engine = (figure := Figure(layout="tight")).get_layout_engine()
    plot_gates(record, figure.subplots())
    assert figure.get_layout_engine() is engine, "the user's own"


# From Python


def test_records_and_arrays_are_drawn(tmp_path):
    record = make_record(depths=(3, 6))
    path = save(tmp_path / "r.json", record)
    arm = record["runs"][-1]["highway"]
    T = np.array([row for _, row in arm["layer_T_history"]])
    expected = history(record, "highway", "test_acc")
    for source in (path, record, {"highway": arm["history"]}):
        assert line(plot_history(source), "highway")[1] == expected
    assert line(plot_history(record, series="grad_norm"), "plain")[1] == [1.0] * 4
    for source in (record, T):
        assert list(bars(plot_gates(source))[0]) == arm["final_T_per_layer"]
        image, = plot_gate_history(source).images
        assert np.array_equal(image.get_array(), T.T)
    assert line(plot_depth_sweep(path), "highway")[0] == [3, 6]


def test_training_and_validation_are_drawn_together():
    """By default; where validation was not measured on, its line ends."""
    net = {"epoch": [1, 2, 3], "train_loss": [2.0, 1.0, 0.5],
           "train_acc": [0.5, 0.75, 1.0], "validation_acc": [0.25, 0.5, None]}
    axes = plot_history(net)
    assert axes.get_ylabel() == "accuracy"       # of both
    assert line(axes, "net training")[1] == net["train_acc"]
    assert line(axes, "net validation")[1][:2] == [0.25, 0.5]
    check_places(axes.figure)
    assert line(plot_history(net, series="validation_acc"), "net")[0] == [1, 2, 3]
    del net["validation_acc"]
    assert line(plot_history(net), "net")[1] == net["train_acc"]


def test_what_cannot_be_drawn_is_refused():
    for source in ({}, {"a": {"test_acc": [1.0]}}, 3,
                   {"epoch": [1, 2], "test_acc": [1.0]}, [0.5, 0.4],
                   [{"epoch": [1], "test_acc": [1.0]}]):
        with pytest.raises(ValueError):
            plot_history(source)
    with pytest.raises(ValueError):
        plot_depth_sweep({"epoch": [1], "train_loss": [1.0], "test_acc": [0.5]})


# Files


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_five_files_of_the_format_that_name_their_record(tmp_path, kind):
    run = save(tmp_path / "run.json", make_record())
    sweep = save(tmp_path / "sweep.json", make_record(depths=(3, 6)))
    paths = viz.main(["--run", run, "--sweep", sweep, "--format", kind,
                      "--out-dir", str(tmp_path / "out")])
    assert {path.name for path in paths} == {f"{name}.{kind}" for name in PICTURES}
    for path in paths:
        content = path.read_bytes()
        record = Path(sweep if path.stem == "depth_sweep" else run)
        assert hashlib.sha256(record.read_bytes()).hexdigest().encode() in content
        assert kind.encode() in content[:300].lower()


def test_no_setting_and_no_backend_of_the_user_matters(tmp_path):
    """A notebook's, but as if IPython were not installed."""
    save(tmp_path / "run.json", make_record(epochs=2))
    (tmp_path / "matplotlibrc").write_text(
        "font.size: 30\nlines.linewidth: 9\naxes.grid: True\nfont.family: monospace\n"
        "savefig.dpi: 33\nsavefig.bbox: tight\n")
    made = []
    for env in ({}, {"MPLBACKEND": "module://matplotlib_inline.backend_inline",
                     "MATPLOTLIBRC": str(tmp_path)}):
        code = "import sys, runpy; sys.modules['matplotlib_inline'] = None; "
        for script in (viz, gif):
            subprocess.run([sys.executable, "-c", f"{code}runpy.run_path("
                            f"{script.__file__!r}, run_name='__main__')"], check=True,
                           cwd=tmp_path, env={**os.environ, **env, "PYTHONPATH": ROOT})
        made.append([path.read_bytes() for path in sorted(tmp_path.rglob("*.[pg]?[gf]"))
                     ])
    assert len(made[0]) == 6 and made[0] == made[1]


def test_the_records_of_the_folder_come_before_those_of_the_scripts(tmp_path,
                                                                   monkeypatch):
    """What another record shows goes to runs/, and replaces no other picture."""
    scripts, here = tmp_path / "scripts", tmp_path / "here"
    for folder in (scripts, here):
        folder.mkdir()
    save(scripts / "run.json", make_record(epochs=1))
    monkeypatch.setattr("highway_networks.HERE", scripts)
    monkeypatch.chdir(here)
    assert gif.main([]) == [scripts / "highway_networks.gif"]
    mine = save(here / "run.json", make_record(depths=(3, 4), epochs=1))
    assert {path.parent for path in viz.main([])} == {Path("viz")}
    assert {path.parent for path in viz.main(["--run", mine])} == {Path("runs/viz")}
    assert gif.main(["--run", mine]) == [Path("runs/highway_networks.gif")]


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_repository_are_of_its_records(name):
    record = tree() / (SWEEP if name == "depth_sweep" else RUN)[0]
    with Image.open(tree() / "viz" / f"{name}.png") as image:
        assert image.text["Record-SHA-256"] == hashlib.sha256(
            record.read_bytes()).hexdigest(), "visualize_highway_networks.py draws it"
