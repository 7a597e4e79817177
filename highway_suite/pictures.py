"""The five pictures of a record, with titles and captions that come from it.

    learning_curves        test accuracy after each epoch
    plain_loss_collapse    training loss of each epoch, with ln C, the loss of a guess
    depth_sweep            test accuracy after the last epoch, by depth
    T_gate_evolution       mean transform gate T of each block, epoch by epoch
    T_gate_final           the same after the last epoch, as bars from sigma(b_T)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from highway_suite import figures
from highway_suite.datasets import DATASETS
from highway_suite.files import write_file
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


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def named(values: list, noun: str) -> str:
    """One value with its noun, or their number and them."""
    return (f"{noun} {values[0]}" if len(values) == 1 else
            f"{counted(len(values), noun)} ({few(values)})")


def caption(study: Study, arms: list[Arm], several: str, *notes: str) -> list[str]:
    """What was measured, and on what: data set, images, seeds, weights, parameters.

    several: how the picture shows more than one seed; notes: parts of their own.
    """
    row = DATASETS.get(study.dataset)
    parts = [f"{row.title if row else study.dataset}: {study.n_train:,} training and "
             f"{study.n_test:,} test images", named(study.seeds, "seed"),
             f"weights {INITS.get(study.init, study.init)}"]
    if len({arm.depth for arm in arms}) == 1:
        counts = [f"{arm.block} {arm.parameters:,}" for arm in arms if arm.parameters]
        parts += [f"parameters: {', '.join(counts)}"] if counts else []
        if len(study.arms) > 1:
            parts.append(f"the deepest of {named(list(study.arms), 'depth')} recorded")
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
    meant = ", the share of the commonest test label" if known else ""
    return f"{word}: over {100 * JUST_GUESSING:g} points better than chance{meant}"


def who_learns(study: Study) -> str:
    """What became of the deepest nets, as a title."""
    arms = study.deepest
    fates = [f"{arm.block} {fate(arm, study)}" for arm in arms]
    if len(arms) > 3:
        learn = sum(fate(arm, study) == "learns" for arm in arms)
        fates = [f"{learn} of {len(arms)} kinds of nets learn"]
    return f"{counted(study.depth, 'block')}: {', '.join(fates)}"


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


def page(title: str, notes: Sequence[str], *panels: float) -> tuple:
    """A sheet with axes of about these heights in inches, one below the other -> the
    figure, and them. A title or a caption of more lines makes it higher."""
    figure, axes = figures.sheet(title, *notes, rows=len(panels), squeeze=False,
                                 height_ratios=panels)
    figure.set_figheight(
        1.37 + sum(panels) + 0.9 * (len(panels) - 1)
        + 0.2 * figure.get_suptitle().count("\n")
        + 0.16 * figure.get_supxlabel().count("\n"))
    return figure, *axes[:, 0]


def history_figure(study: Study, series: str) -> Figure:
    """A series of each epoch, of the deepest net of each kind."""
    note, title = learns(study), who_learns(study)
    if series == "train_loss":
        note = "loss: mean over the steps of the epoch"
        title = "Training loss, " + title.replace("learns", "falls").replace(
            "guesses", "stays")
    figure, axes = page(title, caption(study, study.deepest, RANGE, note), 2.4)
    figures.plot_history(study, axes, series=series)
    return figure


def depth_sweep(study: Study) -> Figure:
    """Test accuracy after the last epoch by depth."""
    arms = [arm for found in study.arms.values() for arm in found.values()]
    epochs = few(sorted({int(arm.epoch[-1]) for arm in arms}))
    after = f"accuracy after {epochs} epoch{'' if epochs == '1' else 's'}"
    figure, axes = page(where_it_learns(study), caption(
        study, arms, RANGE, after, learns(study, "above chance")), 2.4)
    figures.plot_depth_sweep(study, axes)
    return figure


def name_panel(axes: Axes, arm: Arm) -> None:
    """Write whose gates an axes shows, right above it."""
    axes.set_title(arm.block, size=10, weight="bold", loc="right",
                   color=figures.arm_colour(arm))


def gate_figure(study: Study, plot: Callable[..., Axes], title: str, several: str,
                note: str) -> Figure:
    """A figure with a panel for each of the deepest nets with gates, named by it unless
    it is a highway net alone; note: in the caption, where there are gates."""
    arms, deep = figures.gated_arms(study), counted(study.depth, "block")
    if len(arms) == 1:
        below = (next(figures.mean_and_range(arms[0].T[:, -1])) < study.T_start).sum()
        title += f": it ends below its start in {below} of {deep}"
    else:
        title += f", {deep}"
    if not arms:
        figure, axes = page(title, caption(study, study.deepest, several), 2.4)
        plot(study, axes)
        return figure
    figure, *panels = page(title, caption(study, arms, several, note),
                           *[1.7 if len(arms) > 1 else 2.4] * len(arms))
    for arm, axes in zip(arms, panels, strict=True):
        plot(study, axes, block=arm.block)
        if [arm.block for arm in arms] != ["highway"]:
            name_panel(axes, arm)
    return figure


def T_gate_evolution(study: Study) -> Figure:
    """Mean T of each block over training, a heat map for each kind with gates."""
    return gate_figure(
        study, figures.plot_gate_history, "Mean T over training", MEAN,
        f"line on the scale: the initial σ(b_T) = {study.T_start:.3g}")


def T_gate_final(study: Study) -> Figure:
    """Mean T of each block after the last epoch recorded, as bars from sigma(b_T)."""
    ends = sorted({int(arm.T_epoch[-1]) for arm in figures.gated_arms(study)})
    after = f"epoch {' or '.join(map(str, ends))}" if ends else "training"
    return gate_figure(study, figures.plot_gates, f"Mean T after {after}",
                       f"bar: {MEAN}; whisker: lowest to highest",
                       "bars start at the initial σ(b_T)")


PICTURES: dict[str, Callable[[Study], Figure]] = {
    "learning_curves": partial(history_figure, series="test_acc"),
    "plain_loss_collapse": partial(history_figure, series="train_loss"),
    "depth_sweep": depth_sweep, "T_gate_evolution": T_gate_evolution,
    "T_gate_final": T_gate_final}


def render(name: str, study: Study, kind: str = "png") -> bytes:
    """A picture's name and its Study -> the bytes of its file."""
    with figures.style():
        return figures.saved(PICTURES[name](study), kind, name, study.command,
                             study.sha256)


# --------------------------------------------------------------------------------------
# What the two scripts share


def record_home() -> Path:
    """The folder whose records are drawn unasked: the current one, if it has a
    run.json, else that of the scripts."""
    here = Path(), hn.HERE
    return next((folder for folder in here if os.path.exists(folder / RUN[0])), Path())


def write_pictures(program: str, draw: Callable[[], dict[Path, bytes]]) -> list[Path]:
    """Write what draw() gives, say so and return the paths. Exits with 1 and one line
    on stderr where a record or a file is wrong."""
    try:
        contents = draw()
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, content)
    except (RecordError, OSError) as error:
        sys.exit(f"{program}: {error}")
    say(f"wrote {', '.join(map(str, contents))}", sys.stdout)
    return list(contents)
