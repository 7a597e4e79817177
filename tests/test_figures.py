"""The pictures draw what the record says, on axes that hold it, and name it."""

import hashlib
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import highway_networks as hn
import make_highway_networks_gif as gif
import visualize_highway_networks as viz
from highway_suite import figures
from highway_suite.figures import (
    plot_depth_sweep,
    plot_gate_history,
    plot_gates,
    plot_history,
)
from highway_suite.pictures import PICTURES, render
from highway_suite.studies import RUN, SWEEP, as_study
from tests.committed import tree
from tests.records_for_figures import diverge, make_record, samples, save

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
    assert "earlier reproduction" in written(draw(picture, samples()["earlier"]))
    assert all(tick == int(tick) for tick in axes.get_xticks())


def test_the_sweep_is_drawn_by_depth_in_blocks():
    record = make_record(depths=(50, 5, 10))     # in any order
    axes, = draw("depth_sweep", record).axes
    assert "accuracy" in axes.get_ylabel()
    for block in ("highway", "plain"):
        x, y = line(axes, block)
        assert x == [5, 10, 50] and y == [
            history(record, block, "test_acc", i)[-1] for i in (1, 2, 0)]
    assert axes.get_xscale() == "log" and dashed(axes) == [0.1]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["5", "10", "50"]


@pytest.mark.parametrize("depth", [1, 100])
def test_the_heat_map_holds_each_block_and_epoch(depth):
    record = make_record(depths=(depth,), epochs=3)
    T = np.array([row for _, row in record["runs"][0]["highway"]["layer_T_history"]])
    axes, = draw("T_gate_evolution", record).axes
    image, = axes.images
    assert np.array_equal(image.get_array(), T.T)       # with block 1 at the bottom:
    assert image.get_extent() == pytest.approx([-0.5, 3.5, 0.5, depth + 0.5])
    assert axes.get_ylim()[0] < axes.get_ylim()[1] and image.origin == "lower"
    assert min(axes.get_yticks()) == 1 and max(axes.get_yticks()) <= depth


@pytest.mark.parametrize("depth, bias", [(6, -4.0), (101, 0.5)])
def test_the_bars_rise_from_sigma_of_the_recorded_bias(depth, bias):
    record = make_record((depth,), gate_bias=bias)
    figure = draw("T_gate_final", record)
    axes, = figure.axes
    heights, baseline = bars(axes)
    start = 1 / (1 + math.exp(-bias))
    assert list(heights) == record["runs"][0]["highway"]["final_T_per_layer"]
    assert baseline == pytest.approx(start) and dashed(axes) == [pytest.approx(start)]
    assert f"$\\sigma({bias:g})$ = {start:.3g}" in written(figure)
    low, high = axes.get_ylim()
    assert 0 <= low < min(*heights, start) and max(*heights, start) < high <= 1
    assert np.mean(axes.get_xlim()) == pytest.approx((depth + 1) / 2)


def test_several_seeds_are_a_mean_in_a_band():
    record = make_record(seeds=(3, 5, 8))
    table = np.array([history(record, "highway", "test_acc", i) for i in range(3)])
    figure = draw("learning_curves", record)
    axes, = figure.axes
    assert line(axes, "highway")[1] == pytest.approx(table.mean(axis=0))
    band, = (item for item in axes.collections
             if item.get_label() == "highway range")
    corners = {(x, round(y, 9)) for x, y in band.get_paths()[0].vertices}
    for ends in (table.min(axis=0), table.max(axis=0)):
        assert {(i + 1, round(y, 9)) for i, y in enumerate(ends)} <= corners
    assert "3 seeds (3, 5, 8)" in written(figure) and "band: " in written(figure)
    sweep, = draw("depth_sweep", record).axes
    assert sorted(line(sweep, "highway seeds")[1]) == sorted(table[:, -1])
    T = np.array([run["highway"]["final_T_per_layer"] for run in record["runs"]])
    gates, = draw("T_gate_final", record).axes
    assert bars(gates)[0] == pytest.approx(T.mean(axis=0))
    whiskers = np.reshape(line(gates, "T range")[1], (-1, 3))[:, :2]
    assert np.allclose(whiskers, np.stack([T.min(axis=0), T.max(axis=0)], axis=1))
    image, = draw("T_gate_evolution", record).axes[0].images
    assert np.allclose(image.get_array()[:, -1], T.mean(axis=0))


def test_runs_that_diverged_end_in_a_cross_and_are_left_out_of_the_mean():
    record = make_record(seeds=(0, 1, 2))
    diverge(record["runs"][1]["highway"], 2)
    figure = draw("learning_curves", record)
    axes, = figure.axes
    kept = np.array([history(record, "highway", "test_acc", i) for i in (0, 2)])
    assert line(axes, "highway")[1] == pytest.approx(kept.mean(axis=0))
    alone, lost = line(axes, "highway alone")[1], history(record, "highway", "test_acc",
                                                          1)
    assert alone[:2] == lost[:2] and np.isnan(alone[2:]).all()
    assert line(axes, "highway diverged") == ([2], [lost[1]])
    assert "highway 6, 1 of 3" in written(figure)
    T = [record["runs"][i]["highway"]["final_T_per_layer"] for i in (0, 2)]
    assert bars(draw("T_gate_final", record).axes[0])[0] == pytest.approx(
        np.mean(T, axis=0))
    figure = draw("T_gate_evolution", samples()["one lost"])
    image, = figure.axes[0].images
    assert image.get_array().shape == (6, 3)                # epochs 0, 1 and 2
    assert image.axes.get_xlim()[1] == 4.5 and "diverged" in written(figure)


def test_chance_is_the_share_of_the_commonest_label_where_it_is_known():
    record = make_record()
    for block in ("highway", "plain"):
        record["runs"][0][block]["chance"] = 0.83
    figure = draw("learning_curves", record)
    assert dashed(figure.axes[0]) == [0.83] and "chance 0.8300" in written(figure)
    assert "highway guesses" in written(figure)


# Nothing leaves its place


def texts_of(axes):
    """The texts of an axes, its colour scale included, that can be seen."""
    if not axes.axison:
        return list(axes.texts)
    texts = [*axes.texts, axes.xaxis.label, axes.yaxis.label, axes.title,
             axes._left_title, axes.yaxis.get_offset_text()]
    for axis in (axes.xaxis, axes.yaxis):
        low, high = axis.get_view_interval()
        texts += [label for tick in axis.get_major_ticks()
                  if low <= tick.get_loc() <= high
                  for label in (tick.label1, tick.label2) if label.get_visible()]
    return texts + [text for child in axes.child_axes for text in texts_of(child)]


def check_places(figure):
    """Raise AssertionError where a text leaves the figure or covers another, or a line
    leaves its axes."""
    with figures.style():
        figure.canvas.draw()
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
    for axes in figure.axes:
        for item in axes.lines:
            if item.get_transform() == axes.transData:
                for values, (low, high) in ((item.get_xdata(), axes.get_xlim()),
                                            (item.get_ydata(), axes.get_ylim())):
                    there = np.asarray(values)[np.isfinite(values)]
                    assert ((there >= low) & (there <= high)).all(), item.get_label()


GATED = ("all forms", "no gates", "3000 blocks", "auto 400", "gates shut", "gates open",
         "one lost", "none left")
HARD = {        # the records that may bring each picture into trouble
    "learning_curves": ("all forms", "long names", "one block", "1000 epochs", "lost",
                        "none left"),
    "plain_loss_collapse": ("loss 0", "loss to 0", "one lost"),
    "depth_sweep": ("long names", "many depths", "deepest", "lost", "none left"),
    "T_gate_evolution": GATED, "T_gate_final": GATED}


@pytest.mark.parametrize("name, kind", [
    (name, kind) for name, kinds in HARD.items() for kind in kinds])
def test_no_text_leaves_the_picture_and_no_line_its_axes(name, kind, monkeypatch):
    monkeypatch.setattr(figures, "DPI", 100)
    check_places(draw(name, samples()[kind]))     # and there is no warning


@pytest.mark.parametrize("title, shown", [
    ("Ziffern, größer", "Ziffern, größer"), ("手書き数字", "own"),
    ("x" * 500, "x" * 35 + "…"), ("$x^$ {", "$x^$ {")])
def test_the_title_of_own_data_is_readable_or_replaced(title, shown, monkeypatch):
    own = hn.DATASETS["digits"]._replace(title=title)
    monkeypatch.setitem(hn.DATASETS, "own", own)
    figure = draw("learning_curves", make_record(dataset="own"))
    assert f"{shown}: 6,000 training" in written(figure)
    check_places(figure)


# From Python


def test_records_and_arrays_are_drawn_on_the_axes_that_are_given(tmp_path):
    record = make_record(depths=(3, 6))
    path = save(tmp_path / "r.json", record)
    arm = record["runs"][-1]["highway"]
    T = np.array([row for _, row in arm["layer_T_history"]])
    expected = history(record, "highway", "test_acc")
    for source in (path, record, {"highway": arm["history"]}):
        figure = Figure(layout="constrained")
        axes = figure.subplots(2)[1]
        assert plot_history(source, axes) is axes
        assert line(axes, "highway")[1] == expected
        FigureCanvasAgg(figure)
        check_places(figure)
    assert line(plot_history(arm["history"], series="train_acc"), "net")[1] == expected
    for source in (record, T, arm["layer_T_history"]):
        assert list(bars(plot_gates(source))[0]) == arm["final_T_per_layer"]
        image, = plot_gate_history(source).images
        assert np.array_equal(image.get_array(), T.T)
    assert line(plot_depth_sweep(path), "highway")[0] == [3, 6]
    lost = plot_history({"epoch": [1, 2, 3], "test_acc": [0.5, 0.6, None]})
    assert line(lost, "net diverged") == ([2], [0.6])


def test_what_cannot_be_drawn_is_said():
    for source in ({}, {"epoch": []}, {"a": {"test_acc": [1.0]}}, [], 3):
        with pytest.raises(ValueError, match="neither a record|no net"):
            plot_history(source)
    with pytest.raises(ValueError, match="sweep"):
        plot_depth_sweep({"epoch": [1], "train_loss": [1.0]})


# Files


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
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
        assert not re.search(rb"CreationDate|<dc:date>|Matplotlib v", content)


def test_a_picture_that_is_there_is_not_written_again(tmp_path, monkeypatch, capsys):
    """But a broken one is, and one of another record."""
    monkeypatch.setattr(viz, "PICTURES", {
        name: PICTURES[name] for name in ("depth_sweep", "T_gate_final")})
    run, path = tmp_path / "run.json", tmp_path / "viz" / "T_gate_final.png"
    save(run, make_record())

    def drawn():
        viz.main(["--run", str(run), "--out-dir", str(tmp_path / "viz")])
        return capsys.readouterr().out
    assert drawn().count(".png") == 2 and drawn() == "nothing changed\n"
    path.write_bytes(path.read_bytes()[:500])
    assert drawn() == f"wrote {path}\n"
    save(run, make_record(seeds=(1,)))
    assert drawn().count(".png") == 2


def test_no_setting_and_no_backend_of_the_user_matters(tmp_path):
    path = save(tmp_path / "r.json", make_record())
    expected = render("T_gate_final", as_study(path))
    (tmp_path / "matplotlibrc").write_text(
        "font.size: 30\nlines.linewidth: 9\naxes.grid: True\nfont.family: monospace\n"
        "savefig.dpi: 33\nsavefig.bbox: tight\n")
    code = f"""if True:
        import sys
        from highway_suite import figures, pictures, studies
        figures.DPI = {figures.DPI}
        study = studies.load("r.json")
        sys.stdout.buffer.write(pictures.render("T_gate_final", study))
        sys.exit("matplotlib.pyplot" in sys.modules)"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7",
             "MPLBACKEND": "module://not_installed.backend"})
    assert done.stdout == expected


def test_the_records_of_the_folder_come_before_those_of_the_scripts(tmp_path,
                                                                   monkeypatch):
    """Found beside the scripts from any folder; a record of one's own is drawn here."""
    monkeypatch.setattr(viz, "PICTURES", {"depth_sweep": PICTURES["depth_sweep"]})
    scripts, here = tmp_path / "scripts", tmp_path / "here"
    for folder in (scripts, here):
        folder.mkdir()
    save(scripts / "run.json", make_record(epochs=1))
    monkeypatch.setattr("highway_networks.HERE", scripts)
    monkeypatch.chdir(here)
    assert {path.parent for path in viz.main([])} == {scripts / "viz"}
    assert gif.main([]) == [scripts / "highway_networks.gif"]
    assert not any(here.iterdir())
    mine = save(tmp_path / "mine.json", make_record(depths=(3, 4), epochs=1))
    assert {path.parent for path in viz.main(["--run", mine])} == {Path("viz")}
    assert gif.main(["--run", mine]) == [Path("highway_networks.gif")]
    save(here / "run.json", make_record())
    assert {path.parent for path in viz.main([])} == {Path("viz")}
    monkeypatch.setattr("highway_networks.HERE", here)      # a checkout's are its own
    for flag in ("--run", "--sweep"):
        assert {path.parent for path in viz.main([flag, mine])} == {Path("runs/viz")}
    assert gif.main(["--run", mine]) == [Path("runs/highway_networks.gif")]


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_repository_are_of_its_records(name):
    record = tree() / (SWEEP if name == "depth_sweep" else RUN)[0]
    with Image.open(tree() / "viz" / f"{name}.png") as image:
        assert image.text["Record-SHA-256"] == hashlib.sha256(
            record.read_bytes()).hexdigest(), "visualize_highway_networks.py draws it"
