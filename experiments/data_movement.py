"""Does the carry path save data movement?

Moving numbers costs more than computing with them, and the earlier reproduction of this
paper left open whether the carry path, which hands on what it gets, saves any of it.
Two models price what is read: ByteDMD, ceil(sqrt(depth)) of a byte in a stack of live
values, and ceil(sqrt(address)). experiments/movement.py has both and their sources;
experiments/tracing.py follows the core's own passes, and says by which rules.

The protocol. MNIST's 784 pixels -> projection -> L blocks of U units -> 10 classes;
where nets of Figure 1 are meant, layers count the projection. A pass is
DeepNet.forward, or a training step: forward, loss, backward, norm of the gradient,
Adam. Six forms at the same width, plain and residual at the highway net's parameters
too, over width and depth, batches of 1, 16 and 128. Until a training loss of 0.01: the
price of a step (batch 128, momentum SGD) times the steps that the nets of
experiments/optimization.py took. Skipping, one image at a time, on five highway nets
trained as in trained_nets: T is read first, and of H only the units whose T is above a
threshold; the control skips as many units of each layer and image at random. Layers
left out: those whose closing costs least, as lesion.py closes them; the control draws
them. How much to skip is chosen for each net on training images, by the most accuracy
that may be lost there; reported are test images. A verdict holds if it does for each
net, does not hold if for none. Beside it the seconds of NumPy, five nets of each width.

What we expect, written before the run. Nothing is saved by carrying: no form is a tenth
cheaper than plain at the same width, in any pass; residual, all carry and no gate, is
at most a tenth dearer; at the same parameters highway and plain are within a tenth of
each other. At batch 1 the cost grows with the parameters to the power 1.5 +- 0.1. The
ratio of highway to plain changes by less than a tenth under other rules: all products
image by image, or weights that vanish after their last read. Until the loss, highway is
at least a tenth cheaper, for it takes fewer steps. Skipping units saves a tenth of the
forward pass for one point of accuracy, and as many at random cost five points more;
leaving layers out saves half. NumPy is slower with skipping at 50 units, faster at
2000. What the models leave out, and deviations: results/data_movement/README.md.

Cost: half an hour on one shared core. Finished trials are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

import highway_networks as hn
from experiments import pricing, skipping, skipping_seconds
from experiments.judging import (
    agreed,
    at_each,
    claim,
    or_infinite,
    over_nets,
    resting_on,
)
from experiments.lab.papers import spoken
from experiments.nets.perceptrons import EPOCHS, SETTINGS
from experiments.old_lab import Experiment, Lab, main
from experiments.pricing import FORMS, MODELS
from highway_suite.figures import COLOURS, TITLE

# As trained_nets trains them, at the learning rates that it chose on training images.
SHAPE = SETTINGS | {"epochs": dict.fromkeys(("highway", "residual", "plain"), EPOCHS)}
PROTOCOL = {"dataset": "mnist", "seeds": [0, 1, 2, 3, 4],
            "nets": SHAPE | {"lrs": {"highway": 0.2, "residual": 0.003,
                                     "plain": 0.003}},
            "widths": [8, 16, 32, 50], "depths": [5, 10, 20, 30, 49], "depth": 30,
            "hidden": 50, "batches": [1, 16, 128], "largest": 30, "few": 16,
            "loss": "0.01", "loss_batch": 128, "layers": [10, 20, 50, 100],
            "thresholds": [0.0, 0.03, 0.05, 0.08, 0.1, 0.11, 0.12, 0.13, 0.15, 0.2, 0.3,
                           0.5, 0.8],
            "left_out": [0, 5, 10, 15, 20, 25, 28, 30, 31, 32, 33, 35, 38, 42, 46],
            "images": 10_000, "traced": 16, "draws": 3, "lost": 0.01,
            "saving": 0.1, "exponent": [1.5, 0.1], "apart": 0.05, "spared": 0.5,
            "timed": [50, 200, 500, 1000, 2000], "used": [0.6, 0.3, 0.1],
            "timed_depth": 4, "repeats": 31}
SMOKE = {"dataset": "digits", "seeds": [0, 1], "widths": [4, 8], "depths": [2, 4],
         "depth": 3, "nets": SHAPE | {
             "depth": 6, "hidden": 16, "epochs": {
                 "highway": 12, "residual": 8, "plain": 8},
             "lrs": {"highway": 0.2, "residual": 0.01, "plain": 0.01}},
         "hidden": 8, "batches": [1, 3, 5], "largest": 3, "few": 3, "layers": [10],
         "loss_batch": 2, "thresholds": [0.0, 0.1, 0.5],
         "left_out": [0, 2, 4], "images": 300, "traced": 2, "draws": 2,
         "timed": [16, 32], "used": [0.5], "repeats": 2}

# --------------------------------------------------------------------------------------
# Verdicts


def ratios(record: dict, model: str, block: str, matched: bool = False
           ) -> dict[tuple, float]:
    """{(depth, size, batch, pass): movement in units of the plain net's} of the same
    width, or of the same parameters if matched."""
    def rows(block, is_matched):
        return {(row["depth"], row["size"], row["batch"], row["pass"]): row[model]
                for row in record["passes"] if row["block"] == block
                and row["matched"] == is_matched}
    plain = rows("plain", matched)
    return {key: cost / plain[key] for key, cost in rows(block, False).items()}


def judged(text: str, ours: dict, threshold: float, holds: Callable, n: int | None
           ) -> dict:
    """A claim of ours; holds(threshold) is its verdict, also told at half and twice.
    n: the seeds behind it, None where none plays a part."""
    return claim(section="ours", text=text, paper=None, ours=ours, n=n,
                 **at_each(holds, (threshold / 2, threshold, 2 * threshold)))


def check_passes(record: dict) -> list[dict]:
    """The claims about single passes, which shapes decide."""
    saving, (exponent, within) = (record["protocol"][name]
                                  for name in ("saving", "exponent"))
    forms = [block for block in FORMS if block != "plain"]
    least = {block: hn.significant(min(min(ratios(record, model, block).values())
                                       for model in MODELS)) for block in forms}
    most = hn.significant(max(max(ratios(record, model, "residual").values())
                              for model in MODELS))
    same = {model: ratios(record, model, "highway", matched=True) for model in MODELS}
    low, high = (hn.significant(end(end(found.values()) for found in same.values()))
                 for end in (min, max))
    rules = {}
    for row in record["other_rules"]:
        rules.setdefault(row["pass"], {})[row["rule"]] = row["highway"]["bytedmd"]
    turned = hn.significant(max(abs(ratio / rows["as everywhere"] - 1)
                                for rows in rules.values() for ratio in rows.values()))
    fits = {f"{law['pass']}, {law['model']}": law["exponent"] for law in record["laws"]
            if law["batch"] == 1}
    wrong = sum(row["ours"] != row["published"] for row in record["reference"])
    return [
        claim(section="ours", text="the cost models give the numbers that their "
              f"authors published, all {len(record['reference'])}", paper=None,
              ours={"wrong": wrong}, holds=wrong == 0, n=None),
        judged("no form with a carry moves a tenth less than the plain net of the same "
               "width, in any pass, at any size and batch: least ratio", least, saving,
               lambda part: min(least.values()) > 1 - part, None),
        judged("the residual net, all carry and no gate, moves at most a tenth more "
               "than the plain net of the same width: largest ratio",
               {"residual": most}, saving, lambda part: most <= 1 + part, None),
        judged("at the same parameters the highway net's movement is within a tenth of "
               "the plain net's, in any pass, at any size and batch: ratio",
               {"lowest": low, "highest": high}, saving,
               lambda part: 1 - part <= low and high <= 1 + part, None),
        judged("at batch 1 movement grows with the parameters to the power "
               f"{exponent}, give or take {within}", fits, within, lambda part: all(
                   abs(found - exponent) <= part for found in fits.values()), None),
        judged("the ratio of highway to plain of the same width changes by less than a "
               "tenth where products run image by image and where weights vanish: "
               "largest change", {"change": turned}, saving,
               lambda part: turned < part, None)]


def loss_ratios(record: dict) -> dict[str, float]:
    """{layers: highway's movement until the loss in units of plain's, medians of seeds;
    0 where plain's median does not reach it} by ByteDMD."""
    totals = {(net["block"], net["layers"]): np.median(or_infinite(
        net["total"]["bytedmd"])) for net in record["until_loss"]["nets"]}
    return {f"{layers} layers": hn.significant(totals["highway", layers] / cost)
            for (block, layers), cost in totals.items() if block == "plain"}


def check_loss(record: dict) -> list[dict]:
    """The claim about movement until the loss."""
    found, seeds = loss_ratios(record), len(record["until_loss"]["nets"][0]["epochs"])
    return [judged(
        f"until a training loss of {record['protocol']['loss']} the highway net moves "
        "at least a tenth less than the plain net of as many layers and about as many "
        "parameters, at each depth: ratio of medians, 0 where most plain nets never "
        "reach it", found, record["protocol"]["saving"],
        lambda part: max(found.values()) <= 1 - part, seeds)]


class Chosen(NamedTuple):
    """What a net skips, chosen on its training images, and what that costs it."""

    row: dict           # of `gates` or of `left_out`
    movement: float     # in units of the whole net's, by ByteDMD
    lost: float         # test accuracy
    apart: float        # from the control


def chosen(record: dict, rows: str) -> list[Chosen]:
    """Of each highway net; rows: "gates" or "left_out"."""
    found = []
    for net in record["skipping"]["nets"]["highway"]:
        row, whole = (skipping.best_within(net[rows], record["protocol"]["lost"]),
                      net["whole"])
        found.append(Chosen(row, *map(hn.significant, (
            row["bytedmd"] / whole["bytedmd"], whole["test"] - row["test"],
            row["test"] - np.median(row["random"])))))
    return found


def check_skipping(record: dict) -> list[dict]:
    """The claims about what need not be read."""
    protocol = record["protocol"]
    gates, layers = chosen(record, "gates"), chosen(record, "left_out")

    def numbers(nets, **more):
        return over_nets([{"movement": net.movement, "accuracy lost": net.lost} | {
            name: net.row[key] for name, key in more.items()} for net in nets])

    def saves(nets):
        return lambda part: agreed(net.movement <= 1 - part and net.lost
                                   <= protocol["lost"] for net in nets)
    return [
        judged("one image at a time, skipping the units of closed gates saves a tenth "
               "of the forward pass for one point of test accuracy",
               numbers(gates), protocol["saving"], saves(gates), len(gates)),
        judged("as many units skipped at random cost five points more",
               {"difference": over_nets([net.apart for net in gates])},
               protocol["apart"], lambda part: agreed(
                   net.apart >= part for net in gates), len(gates)),
        judged("leaving out the layers that lesions spare saves half of the forward "
               "pass for one point of test accuracy",
               numbers(layers, layers="left_out"), protocol["spared"], saves(layers),
               len(layers))]


def check_seconds(record: dict) -> list[dict]:
    """The claim about NumPy: of each seed's nets the narrowest and the widest."""
    widths = [record["protocol"]["timed"][end] for end in (0, -1)]
    times: dict[str, list] = {}
    by_seed: dict[int, tuple[list, list]] = {}
    for row in record["timed"]:
        if row["hidden"] in widths:
            ratio, name = row["seconds"]["ratio"], (
                f"{row['hidden']} units, {row['used']:.0%} used")
            times.setdefault(name, []).append(ratio)
            by_seed.setdefault(row["seed"], ([], []))[
                widths.index(row["hidden"])].append(ratio)
    return [claim(section="ours", text="skipping units in NumPy is slower than the "
                  f"whole pass at {widths[0]} units and faster at {widths[1]}: ratio "
                  "of seconds", paper=None, n=len(by_seed),
                  ours={name: over_nets(found) for name, found in times.items()},
                  holds=agreed(min(narrow) > 1 > max(wide)
                               for narrow, wide in by_seed.values()))]


def check_claims(record: dict) -> list[dict]:
    """All claims."""
    published, *passes, rules = check_passes(record)
    return [*resting_on([published], {"part": "reference"}),
            *resting_on(passes, {"part": "pass"}),
            *resting_on([rules], {"part": "rules"}),
            *resting_on(check_loss(record), {"part": "loss"}),
            *resting_on(check_skipping(record), {"part": "net", "block": "highway"}),
            *resting_on(check_seconds(record), {"part": "seconds", "what": "widths"})]


# --------------------------------------------------------------------------------------
# The figure

SIZES = {"residual": 7, "c_only": 7, "t_only": 9}     # or others hide them
PASSES = (("forward", 1, "v"), ("forward", 16, "s"), ("step", 1, "o"))


def draw_sizes(axes: Axes, record: dict) -> None:
    """Movement of a pass over parameters, all forms, with the fitted laws."""
    for name, batch, marker in PASSES:
        rows = [row for row in record["passes"]
                if (row["pass"], row["batch"]) == (name, batch)]
        if not rows:
            continue
        (law,) = (law for law in record["laws"] if (law["pass"], law["batch"],
                  law["model"]) == (name, batch, "bytedmd"))
        ends = np.array([min(row["parameters"] for row in rows),
                         max(row["parameters"] for row in rows)])
        fitted = law["factor"] * ends ** law["exponent"]
        axes.plot(ends, fitted, color="0.75", linewidth=1, zorder=0)
        axes.annotate({"forward": "forward pass,\n", "step": "training step,\n"}[name]
                      + f"batch {batch}: $n^{{{law['exponent']:.2f}}}$",
                      (ends[1], fitted[1]), xytext=(7, 0), textcoords="offset points",
                      fontsize=7, va="center")
        for row in sorted(rows, key=lambda row: row["block"] in ("plain", "highway")):
            axes.plot(row["parameters"], row["bytedmd"], marker, markerfacecolor="none",
                      markersize=SIZES.get(row["block"], 4),
                      color=COLOURS[row["block"]])
    for block in FORMS:
        axes.plot([], [], "o", color=COLOURS[block], markersize=4,
                  label=spoken(block))
    axes.set(xscale="log", yscale="log", xlabel="parameters $n$", ylabel="ByteDMD",
             xlim=(0.7 * ends[0], 9 * ends[1]),
             title="One pass, by size\n(lines: fitted powers)")
    axes.legend(fontsize=7, frameon=False, loc="lower right", handletextpad=0.2)


def draw_loss(axes: Axes, record: dict) -> None:
    """Movement until the loss, each seed; above: those that never reach it."""
    nets = record["until_loss"]["nets"]
    reached = [cost for net in nets for cost in net["total"]["bytedmd"] if cost]
    top = 3 * max(reached)
    for block in ("plain", "highway"):
        own = [net for net in nets if net["block"] == block]
        middles = []
        for place, net in enumerate(own):
            costs = net["total"]["bytedmd"]
            never = sum(cost is None for cost in costs)
            axes.plot([place] * len(costs), [cost or np.nan for cost in costs], "o",
                      color=COLOURS[block], markersize=4, alpha=0.8)
            if never:
                axes.plot(place, top, "^", color=COLOURS[block], markersize=6)
                axes.annotate(f"{never} of {len(costs)}", (place, top), fontsize=7,
                              xytext=(0, 5 if block == "plain" else -11), ha="center",
                              textcoords="offset points", color=COLOURS[block])
            middles.append(np.median(or_infinite(costs)))
        axes.plot(range(len(own)), np.where(np.isfinite(middles), middles, np.nan),
                  color=COLOURS[block], label=f"{block}, {own[0]['hidden']} units")
    axes.set(yscale="log", xticks=range(len(own)), xlabel="layers", ylabel="ByteDMD",
             xticklabels=[net["layers"] for net in own],
             title=f"Training until a loss of {record['protocol']['loss']}\n"
                   "(triangles: seeds that never reach it)")
    axes.margins(y=0.15)
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=7, frameon=False, loc="lower right")


def draw_skipping(axes: Axes, record: dict) -> None:
    """Test accuracy over movement of one image's forward pass; thin: other seeds."""
    nets = record["skipping"]["nets"]
    first, *others = nets["highway"]
    whole, highway = first["whole"]["bytedmd"], COLOURS["highway"]

    def line(rows, dashes, of=lambda row: row["test"], **look):
        axes.plot([row["bytedmd"] / whole for row in rows],
                  [100 * of(row) for row in rows], dashes, **look)
    for rows, colour, dashes, label in (
            (first["gates"], highway, "-", "closed gates skipped"),
            (first["left_out"], highway, "--", "layers left out"),
            (first["both"], highway, ":", "gates, after layers"),
            (nets["residual"][0]["left_out"], COLOURS["residual"], "--",
             "residual, layers left out")):
        line(rows, dashes, color=colour, marker="o", markersize=2.5, linewidth=1.3,
             label=label)
    for name, dashes, label in (("gates", "-", "as many gates at random"),
                                ("left_out", "--", "as many layers at random")):
        line(first[name], dashes, lambda row: np.median(row["random"]), color="0.65",
             linewidth=1.1, label=label)
        for net in others:
            line(net[name], dashes, color=highway, linewidth=0.6, alpha=0.5)
    for block, (net, *_) in nets.items():
        at = net["whole"]["bytedmd"] / whole, 100 * net["whole"]["test"]
        axes.plot(*at, "D", markersize=6, color=COLOURS[block], zorder=3)
        is_left = at[0] < 0.9
        axes.annotate(block, at, fontsize=7.5, textcoords="offset points",
                      xytext=(6, -3) if is_left else (4, 6),
                      ha="left" if is_left else "right")
    best = 100 * max(net["whole"]["test"] for own in nets.values() for net in own)
    axes.set(xlabel="ByteDMD (the whole highway net: 1)",
             ylabel="test accuracy, %", xlim=(0, 1.08), ylim=(best - 17, best + 2),
             title="Forward pass, one image at a time\n"
                   f"(seed {first['seed']}; thin: {len(others)} other highway nets)")
    axes.legend(fontsize=7, frameon=False, loc="lower right")


def message(record: dict) -> str:
    """What leaving out the layers that lesions spare costs and saves, in a line."""
    nets = chosen(record, "left_out")
    counts = [net.row["left_out"] for net in nets]
    return (f"Without {' to '.join(map(str, sorted({min(counts), max(counts)})))} of "
            f"{record['protocol']['nets']['depth']} highway layers a net moves "
            f"{np.median([net.movement for net in nets]):.2f} of the data and is "
            f"{100 * np.median([net.lost for net in nets]):.1f} points worse (medians "
            f"of {len(nets)})")


def draw(record: dict) -> Figure:
    """The record -> three panels: one pass, training, skipping."""
    figure = Figure(figsize=(11, 4.3), layout="constrained")
    panels = figure.subplots(1, 3)
    figure.suptitle(message(record), **TITLE)
    for axes, paint in zip(panels, (draw_sizes, draw_loss, draw_skipping),
                           strict=True):
        paint(axes, record)
        axes.title.set_fontsize(9.5)
        axes.xaxis.label.set_fontsize(8.5)
        axes.yaxis.label.set_fontsize(8.5)
        axes.tick_params(labelsize=7.5)
    return figure


def run(lab: Lab) -> dict:
    """Price, skip, time -> the record."""
    rows = pricing.price_passes(lab)
    priced = {"reference": pricing.reference(lab), "passes": rows,
              "laws": pricing.fit_laws(rows), "second_step": pricing.second_step(lab),
              "other_rules": pricing.other_rules(lab),
              "until_loss": pricing.until_loss(lab)}
    data = lab.load_data()
    nets = skipping.look_at_all(lab, data)
    return priced | {"skipping": {
        "nets": nets, "timed": skipping_seconds.of_trained(
            lab, nets["highway"][0], data)}, "timed": skipping_seconds.of_widths(
                lab, pricing.inputs_of(lab.protocol))}


EXPERIMENT = Experiment(name="experiments.data_movement", doc=__doc__, minutes=15,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw,
                        check=check_claims, pack_by=lambda config: config["part"])

if __name__ == "__main__":
    main(EXPERIMENT)
