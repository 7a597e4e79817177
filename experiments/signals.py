"""What passes through a hundred blocks before any training?

A net can learn only if differences between images reach its last block, and in many
directions (docs/lecture.md). Glorot's weights keep the length of a signal on average,
orthogonal weights in every direction (Saxe et al. 2014), and gates of T = 1/L hand it
on. 50 directions are too many to show: the eleventh, compared with the longest, stands
for them. Ten directions could tell the classes apart. The protocol stands in
results/signals/README.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, main, trial_function
from experiments.lab.experiment import for_figures
from experiments.lab.judging import agreed, listed

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab.drawing import DASHED, colour_of, data_of, draw_band, sheet
    from highway_suite.figures import label_right, label_y

    # by b_T of highway nets, by weights of plain ones: label and line
    LINES: dict[Any, tuple[str, dict]] = {
        "uniform": ("┈ plain, uniform", {"linestyle": ":"}),
        "glorot": ("╌ plain, Glorot", {"linestyle": DASHED}),
        "orthogonal": ("─ plain,\northogonal", {}),
        -2: ("╌ highway,\n$b_T$\xa0=\xa0−2", {"linestyle": DASHED}),
        "auto": ("─ highway,\n$b_T$ = logit(1/L)", {})}

PLAN: dict[str, Any] = {
    "dataset": "mnist", "depth": 100, "hidden": 50, "images": 1000,
    "seeds": [0, 1, 2, 3, 4],
    "nets": [["plain", -2, "uniform"], ["plain", -2, "glorot"],
             ["plain", -2, "orthogonal"], ["highway", -2, "glorot"],
             ["highway", "auto", "glorot"]]}
SMOKE = {"dataset": "digits", "depth": 30, "hidden": 16, "images": 200, "seeds": [0, 1]}


@trial_function("signals.measure")
def measure(config: dict, data: hn.Data) -> dict:
    """Before the first block of an untrained net and after each one, (L + 1,): the
    length of the differences between images, as a part of the first; and that of their
    eleventh principal direction, as a part of the longest."""
    settings = hn.Config(**config)
    data = hn.scale_pixels(hn.take_subset(data, settings), settings.dtype)
    x = hn.make_net(settings, data).block_outputs(data.x_train)     # (N, L + 1, U)
    x -= x.mean(axis=0)
    directions = np.linalg.svd(x.swapaxes(0, 1), compute_uv=False)  # (L + 1, U)
    length = np.linalg.norm(directions, axis=1)
    return {"length": listed(length / length[0]),
            "eleventh": listed(directions[:, 10] / directions[:, 0])}


def run(lab: Lab) -> dict:
    """A row for each kind of net, with the curves of its seeds."""
    plan = lab.plan
    nets = lab.by_seed(measure, {
        (block, bias, init): {
            "block": block, "gate_bias": bias, "init": init, "depth": plan["depth"],
            "hidden": plan["hidden"], "n_train": plan["images"], "n_test": 10,
            "dtype": "float64"} for block, bias, init in plan["nets"]}, plan["seeds"])
    return {"rows": [
        {"block": block, "gate_bias": bias, "init": init,
         "length": [trial.result["length"] for trial in trials],
         "eleventh": [trial.result["eleventh"] for trial in trials],
         "trials": [trial.hash for trial in trials]}
        for (block, bias, init), trials in nets.items()]}


def draw(record: dict) -> Figure:
    """Both lengths by block: median and range of the seeds."""
    plan = record["plan"]
    figure, panels = sheet(
        "Orthogonal weights, or gates with T\xa0=\xa01/L, carry images through "
        f"{plan['depth']} blocks",
        f"{data_of(plan)}: {plan['images']} images in untrained nets of "
        f"{plan['depth']} blocks; median and range of {len(plan['seeds'])} seeds",
        height=5.4, rows=2, sharex=True)
    for axes, name, title, least in (
            (panels[0], "length", "length of the differences between images", 1e-8),
            (panels[1], "eleventh", "their eleventh longest direction / the longest",
             1e-5)):
        axes.set_yscale("log")
        axes.set_ylim(least, 2)
        labels = []
        for row in record["rows"]:
            label, line = LINES[row["gate_bias"] if row["block"] == "highway"
                                else row["init"]]
            colour, values = colour_of(row["block"]), np.array(row[name])
            draw_band(axes, range(values.shape[1]), values, colour, **line)
            labels.append((max(np.median(values[:, -1]), least), label, colour))
        label_y(axes, title)
        label_right(axes, labels)
    panels[1].set_xlabel("block")
    return figure


def claims(record: dict) -> list[Claim]:
    """What reaches the last block of plain nets, by the rule of their weights."""
    depth, n = record["plan"]["depth"], len(record["plan"]["seeds"])
    plain = {row["init"]: row for row in record["rows"] if row["block"] == "plain"}
    ends = {name: {init: [curve[-1] for curve in row[name]]
                   for init, row in plain.items()} for name in ("length", "eleventh")}
    length, eleventh = ends["length"], ends["eleventh"]
    return [
        Claim(name="signal-length", text=f"after {depth} plain blocks "
              "more than a hundredth of the length of the differences between images "
              "is left with Glorot's and with orthogonal weights, and less with "
              "uniform weights of a third of Glorot's variance", ours=length, n=n,
              limit=0.01, after_data=True, rows=list(plain.values()),
              test=lambda limit: agreed(
                  uniform < limit < min(others)
                  for uniform, *others in zip(*length.values(), strict=True))),
        Claim(name="signal-directions", text="in the same nets the "
              "eleventh direction of these differences, as a part of the longest, is "
              "more than a hundred times longer with orthogonal weights than with "
              "Glorot's", ours=eleventh, n=n, limit=100.0, after_data=True,
              rows=list(plain.values()), test=lambda times: agreed(
                  orthogonal > times * glorot
                  for _, glorot, orthogonal in zip(*eleventh.values(), strict=True)))]


EXPERIMENT = Experiment(name="signals", doc=__doc__, plan=PLAN, smoke=SMOKE,
                        run=run, claims=claims, figures={"figure": draw})

if __name__ == "__main__":
    main("signals")
