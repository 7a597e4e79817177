"""The five pictures of a record, with titles and captions that come from it.

    learning_curves        test accuracy after each epoch
    plain_loss_collapse    training loss of each epoch, with ln C, the loss of a guess
    depth_sweep            test accuracy after the last epoch, by depth
    T_gate_evolution       mean transform gate T of each block, epoch by epoch
    T_gate_final           the same after the last epoch, as bars from sigma(b_T)
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

import highway_networks as hn
from highway_suite.figures import (
    arm_colour,
    chosen_gates,
    gated_arms,
    mean_and_range,
    new_figure,
    plot_depth_sweep,
    plot_gate_history,
    plot_gates,
    plot_history,
    saved,
    style,
    title_of,
)
from highway_suite.files import read_file, write_file
from highway_suite.records import JUST_GUESSING, RecordError
from highway_suite.studies import RUN, Arm, Study
from highway_suite.terminal import say

INITS = {"uniform": "U(±1/√fan_in), a third of Glorot's variance",
         "glorot": "Glorot", "he": "He", "orthogonal": "orthogonal"}

MEAN = "mean over seeds"
RANGE = f"line: {MEAN}; band: lowest to highest"

# --------------------------------------------------------------------------------------
# Titles and captions


def few(values: list) -> str:
    """Values, of many the first three and the last."""
    return ", ".join(map(str, values if len(values) <= 10 else
                         [*values[:3], "…", values[-1]]))


def plural(values: list, noun: str) -> str:
    """One value with its noun, or their number and them."""
    return (f"{noun} {values[0]}" if len(values) == 1 else
            f"{len(values)} {noun}s ({few(values)})")


def caption(study: Study, arms: list[Arm], several: str, *notes: str) -> list[str]:
    """What was measured, and on what: data set, images, seeds, weights, parameters.

    several: how the picture shows more than one seed; notes: parts of their own.
    """
    parts = [f"{title_of(study.dataset)}: {study.n_train:,} training and "
             f"{study.n_test:,} test images", plural(study.seeds, "seed"),
             f"weights {INITS[study.init]}"]
    if len({arm.depth for arm in arms}) == 1:
        counts = [f"{arm.block} {arm.parameters:,}" for arm in arms if arm.parameters]
        parts += [f"parameters: {', '.join(counts)}"] if counts else []
        if len(study.arms) > 1:
            parts.append(f"the deepest of {plural(list(study.arms), 'depth')} recorded")
    if len(study.seeds) > 1:
        parts.append(several)
    parts += notes
    lost = [f"{arm.block} {arm.depth}, {arm.diverged.sum()} of {len(arm.diverged)}"
            for arm in arms if arm.diverged.any()]
    if lost:
        left = " and left out of means" if len(study.seeds) > 1 else ""
        parts.append(f"× diverged{left}: {few(lost)}")
    if study.assumed:
        parts.append("record of the earlier reproduction: MNIST, these weights and "
                     "gate bias −2 assumed")
    return parts


def fate(arm: Arm, study: Study) -> str:
    """What became of an arm: the mean of its nets that did not diverge decides."""
    acc = arm.history["test_acc"][~arm.diverged, -1]
    return ("diverged" if not len(acc) else
            "learns" if acc.mean() > study.chance + JUST_GUESSING else "guesses")


def learns(study: Study, word: str = "learns") -> str:
    """What a title means by this word, as a note of a caption."""
    known = study.deepest[0].chance is not None
    return (f"{word}: over {100 * JUST_GUESSING:g} points better than chance"
            + ", the share of the commonest test label" * known)


def blocks(depth: int) -> str:
    """A depth with its noun."""
    return f"{depth} block{'s' * (depth > 1)}"


def who_learns(study: Study) -> str:
    """What became of the deepest nets, as a title."""
    arms = study.deepest
    fates = [f"{arm.block} {fate(arm, study)}" for arm in arms]
    if len(arms) > 3:
        learn = sum(fate(arm, study) == "learns" for arm in arms)
        fates = [f"{learn} of {len(arms)} kinds of nets learn"]
    return f"{blocks(study.depth)}: {', '.join(fates)}"


def where_it_learns(study: Study) -> str:
    """At which depths the nets learn, as a title."""
    found = []
    for block in study.blocks:
        arms = [arms[block] for arms in study.arms.values() if block in arms]
        learn = [arm.depth for arm in arms if fate(arm, study) == "learns"]
        found.append(f"{block} at " + (
            "every depth" if len(learn) == len(arms) else
            f"{few(learn)} blocks only" if learn else "no depth"))
    return f"Above chance: {', '.join(found)}"


# --------------------------------------------------------------------------------------
# The five pictures


def history_figure(study: Study, series: str) -> Figure:
    """A series of each epoch, of the deepest net of each kind."""
    note, title = learns(study), who_learns(study)
    if series == "train_loss":
        note = "loss: mean over the steps of the epoch"
        title = "Training loss, " + title.replace("learns", "falls").replace(
            "guesses", "stays")
    figure, axes = new_figure(title, caption(study, study.deepest, RANGE, note))
    plot_history(study, axes, series=series)
    return figure


def depth_sweep(study: Study) -> Figure:
    """Test accuracy after the last epoch by depth."""
    arms = [arm for found in study.arms.values() for arm in found.values()]
    epochs = sorted({int(arm.epoch[-1]) for arm in arms})
    figure, axes = new_figure(where_it_learns(study), caption(
        study, arms, RANGE, f"accuracy after {few(epochs)} epoch"
        f"{'s' * (epochs != [1])}", learns(study, "above chance")))
    plot_depth_sweep(study, axes)
    return figure


def name_panel(axes: Axes, arm: Arm) -> None:
    """Write whose gates an axes shows, right above it."""
    axes.text(1, 1.025, arm.block, ha="right", va="bottom", weight="bold",
              color=arm_colour(arm), transform=axes.transAxes)


def gate_figure(study: Study, plot: Callable[..., Axes], title: str, several: str,
                note: str) -> Figure:
    """A figure with a panel for each of the deepest nets with gates, named by it unless
    it is a highway net alone; note: in the caption, where there are gates."""
    arms = gated_arms(study)
    if len(arms) == 1:
        last = next(mean_and_range(chosen_gates(arms[0])[1][:, -1]))
        below = (last < study.T_start).sum()
        title += f": it ends below its start in {below} of {blocks(len(last))}"
    else:
        title += f", {blocks(study.depth)}"
    figure, *panels = new_figure(
        title, caption(study, arms or study.deepest, several, *[note] * bool(arms)),
        (2.4,) if len(arms) < 2 else (1.7,) * len(arms))
    if not arms:
        plot(study, *panels)
    for arm, axes in zip(arms, panels, strict=False):
        plot(study, axes, block=arm.block)
        if [arm.block for arm in arms] != ["highway"]:
            name_panel(axes, arm)
    return figure


def T_gate_evolution(study: Study) -> Figure:
    """Mean T of each block over training, a heat map for each kind with gates."""
    return gate_figure(
        study, plot_gate_history, "Mean T over training", MEAN,
        f"line on the scale: the initial σ(b_T) = {study.T_start:.3g}")


def T_gate_final(study: Study) -> Figure:
    """Mean T of each block after the last epoch recorded, as bars from sigma(b_T)."""
    ends = sorted({int(chosen_gates(arm)[0][-1]) for arm in gated_arms(study)})
    after = f"epoch {' or '.join(map(str, ends))}" if ends else "training"
    return gate_figure(study, plot_gates, f"Mean T after {after}",
                       f"bar: {MEAN}; whisker: lowest to highest",
                       "bars start at the initial σ(b_T)")


PICTURES: dict[str, Callable[[Study], Figure]] = {
    "learning_curves": partial(history_figure, series="test_acc"),
    "plain_loss_collapse": partial(history_figure, series="train_loss"),
    "depth_sweep": depth_sweep, "T_gate_evolution": T_gate_evolution,
    "T_gate_final": T_gate_final}


def render(name: str, study: Study, kind: str = "png") -> bytes:
    """A picture's name and its Study -> the bytes of its file."""
    with style():
        return saved(PICTURES[name](study), kind, name, study.command, study.sha256)


# --------------------------------------------------------------------------------------
# What the two scripts share


def record_home() -> Path:
    """The folder whose records are drawn unasked: the current one, if it has a
    run.json, else that of the scripts."""
    here = Path(), hn.HERE
    return next((folder for folder in here if os.path.exists(folder / RUN[0])), Path())


def picture_home(own: bool) -> Path:
    """The folder for pictures: of records that a user named (own) the current one, but
    in the checkout runs/, for the pictures there are those of its own records."""
    if not own:
        return record_home()
    return Path("runs") if os.path.samefile(os.curdir, hn.HERE) else Path()


def shown(content: bytes) -> Any:
    """What a PNG or a GIF shows and says of itself, whichever library packed it; of
    another file its bytes."""
    if content[:4] not in (b"\x89PNG", b"GIF8"):
        return content
    with Image.open(io.BytesIO(content)) as image:
        return [(dict(frame.info), frame.convert("RGB").tobytes())
                for frame in ImageSequence.Iterator(image)]


def is_there(path: Path, content: bytes) -> bool:
    """Whether a file shows this picture already."""
    try:
        return shown(read_file(path)) == shown(content)
    except (OSError, ValueError, SyntaxError):      # Pillow's, of a broken file
        return False


def write_pictures(program: str, draw: Callable[[], dict[Path, bytes]],
                   place: Any) -> list[Path]:
    """Write what draw() gives, but for what is there already; say so and return the
    paths. Exits with 1 and one line on stderr where a record or a file is wrong, by
    default that place."""
    try:
        contents = draw()
        changed = {path: content for path, content in contents.items()
                   if not is_there(path, content)}
        for path, content in changed.items():
            write_file(path, content)
    except RecordError as error:
        sys.exit(f"{program}: {error}")
    except OSError as error:
        sys.exit(f"{program}: {error.filename or place}: {error.strerror}")
    told = "wrote " + ", ".join(map(str, changed)) if changed else "nothing changed"
    say(told, sys.stdout)
    return list(contents)
