"""Figure 1: do plain nets stop training as they get deeper, and highway nets not?

The claim (P1, section 3.1). On MNIST, with the best of 100 random settings for each
kind of net, plain nets of 10 and 20 layers reach a mean training loss below 1e-4, and
deeper ones do not, while highway nets of 50 and 100 layers perform like those of 10 and
20; at 100 layers the highway net is more than two orders of magnitude better; and
highway nets need fewer epochs.

The protocol. 784 pixels -> one plain layer -> 9, 19, 49 or 99 layers -> softmax of 10;
"depth" counts the plain layer, as the paper does. Highway layers have 50 units and
plain ones 71, so that a layer of either has about 5100 parameters. All 60,000 training
images, momentum SGD, normalized initialisation: Glorot's for tanh, He's for relu. Each
of the eight nets tries the same 100 settings, drawn at random: learning rate, momentum,
decay of the learning rate per epoch, tanh or relu, and for highway nets the initial
b_T, a whole number from -1 to -10. Epochs are spent in rungs: all settings train 5,
each net's best ten train 20, the best four of these 60, the best two of these 60 with
two seeds more, and the best of these 200 with every seed; every rung starts anew and is
judged by the training loss of its last epoch, the fourth by the median of its seeds.
Training loss is the mean over an epoch's steps, each before its update. Test images
choose nothing. How the plan came about: results/optimization/README.md.

The paper is silent, we assume: pixels in [0, 1], as the MNIST of the authors' framework
has them; batches of 128, shuffled anew in each epoch; learning rate 1e-5 to 1 and
1 - momentum 0.01 to 0.5, both log-uniform; a factor per epoch with 1 - factor 0.001 to
0.1, log-uniform; no clipping, no weight decay; the same draws for all nets, so that
none has the luckier ones.

Deviations: the paper's search is of 100 runs; our 100 settings earn their epochs in
rungs, which favours those that start fast. Its figure's axis has 400 epochs, ours 200.

Cost on two cores: 80 minutes for the first rung, 35 for the second, 40 for the third
and for the fourth, 32 for each seed of the last. Finished trials are kept: a stopped
run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab.drawing import DASHES, colour_of, format_log, title_of
from experiments.judging import Claim, listed, or_infinite, resting_on
from experiments.old_lab import Experiment, Lab, main
from experiments.optimization_claims import TARGET, check_claims
from experiments.store import Trial
from highway_suite.figures import LIGHT, TITLE, label_right

WIDTHS = {"highway": 50, "plain": 71}
INITS = {"tanh": "glorot", "relu": "he"}

PROTOCOL = {"dataset": "mnist", "batch": 128, "depths": [10, 20, 50, 100],
            "rungs": [[100, 5, 1], [10, 20, 1], [4, 60, 1], [2, 60, 3], [1, 200, 3]],
            "seeds": [0, 1, 2],
            "search_seed": 1507}
SMOKE = {"dataset": "digits", "depths": [10, 20], "seeds": [0, 1],
         "rungs": [[4, 1, 1], [3, 1, 1], [2, 2, 1], [2, 2, 2], [1, 3, 2]]}


class Net(NamedTuple):
    """Depth in layers, the first plain one included."""

    block: str
    depth: int


class Run(NamedTuple):
    """The key of a trial; setting: its place in the search."""

    net: Net
    setting: int
    seed: int


def draw_settings(count: int, seed: int) -> list[dict]:
    """The random search's settings, in their order."""
    rng = np.random.default_rng(seed)

    def log_uniform(low, high):
        return hn.significant(10 ** rng.uniform(np.log10(low), np.log10(high)))
    return [{"lr": log_uniform(1e-5, 1),
             "momentum": hn.significant(1 - log_uniform(0.01, 0.5)),
             "lr_decay": hn.significant(1 - log_uniform(0.001, 0.1)),
             "activation": str(rng.choice(["tanh", "relu"])),
             "gate_bias": -float(rng.integers(1, 11))} for _ in range(count)]


def make_config(protocol: dict, net: Net, setting: dict, epochs: int, seed: int
                ) -> dict:
    """The trial of one net, for hn.Config. Plain nets have no b_T."""
    config = {"block": net.block, "depth": net.depth - 1, "hidden": WIDTHS[net.block],
              "init": INITS[setting["activation"]], "optimizer": "sgd", "clip": 0.0,
              "epochs": epochs, "seed": seed, "batch": protocol["batch"],
              "dataset": protocol["dataset"], **setting}
    if net.block == "plain":
        del config["gate_bias"]
    return config


def train_net(config: dict, data: hn.Data) -> dict:
    """One trial: its status, and per epoch the training loss and test accuracy."""
    settings = hn.Config(n_train=len(data.x_train), n_test=len(data.x_test), **{
        name: value for name, value in config.items() if name != "dataset"})
    data = hn.scale_pixels(data)
    for x in (data.x_train, data.x_test):       # from [-1, 1] to [0, 1]
        x += 1
        x /= 2
    net = hn.make_net(settings, data)
    history, _, status = hn.train(net, data, settings)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "test_acc": history["test_acc"]}


def final_loss(trial: Trial) -> float:
    """The training loss of a trial's last epoch, infinite where it diverged."""
    return float(or_infinite(trial.result["train_loss"][-1]))


def least(found: dict[int, list[Trial]], count: int) -> list[int]:
    """The settings of the least final losses, medians of their seeds; of equal ones
    those that come first."""
    return sorted(found, key=lambda number: float(np.median(
        [final_loss(trial) for trial in found[number]])))[:count]


def plan_rung(chosen: dict[Net, list[int]], seeds: list[int]) -> list[Run]:
    """The trials of a rung. Places in the choice outermost: a run that is stopped has
    tried as many settings for every net."""
    return [Run(net, settings[place], seed)
            for place in range(max(map(len, chosen.values())))
            for seed in seeds for net, settings in reversed(chosen.items())
            if place < len(settings)]


def search(lab: Lab, data: hn.Data, settings: list[dict]
           ) -> list[dict[Net, dict[int, list[Trial]]]]:
    """Run the rungs -> for each of them {net: {setting: its trials}}, in the order in
    which they were chosen."""
    protocol = lab.protocol
    rungs: list[dict[Net, dict[int, list[Trial]]]] = []
    nets = [Net(block, depth) for depth in protocol["depths"] for block in WIDTHS]
    chosen = dict.fromkeys(nets, list(range(len(settings))))
    for count, epochs, n in protocol["rungs"]:
        seeds = protocol["seeds"][:n]
        if rungs:
            chosen = {net: least(found, count) for net, found in rungs[-1].items()}
        trials = lab.trials(train_net, {
            run: make_config(protocol, run.net, settings[run.setting], epochs, run.seed)
            for run in plan_rung(chosen, seeds)}, data)
        rungs.append({net: {number: [trials[Run(net, number, seed)] for seed in seeds]
                            for number in numbers} for net, numbers in chosen.items()})
    return rungs


def curve(trials: list[Trial], name: str) -> np.ndarray:
    """Per-epoch values of trials, (trials, epochs); NaN where a run diverged."""
    return np.array([trial.result[name] for trial in trials], float)


def epochs_to(losses: Any, target: float) -> int | None:
    """The first epoch with a loss below target, or None."""
    below = np.flatnonzero(np.array(losses, float) < target)
    return int(below[0]) + 1 if len(below) else None


def describe_net(net: Net, rungs: list[dict]) -> dict:
    """One net's part of the record: all settings, the best ten, four, two and one."""
    first, ten, four, two, best = (rung[net] for rung in rungs)
    (number, runs), = best.items()
    curves = np.array([curve(trials, "train_loss")[0] for trials in ten.values()])
    loss = curve(runs, "train_loss")
    return {
        "block": net.block, "depth": net.depth, "hidden": WIDTHS[net.block],
        "parameters": runs[0].result["parameters"],
        "search": {"setting": list(first), "train_loss": listed(
            [final_loss(trials[0]) for trials in first.values()])},
        "ten": {"setting": list(ten), "mean": listed(curves.mean(axis=0)),
                "train_loss": listed(curves[:, -1])},
        "four": {"setting": list(four), "train_loss": listed(
            [final_loss(trials[0]) for trials in four.values()])},
        "two": {"setting": list(two), "train_loss": [listed(
            [final_loss(trial) for trial in trials]) for trials in two.values()]},
        "best": {"setting": number, "train_loss": [listed(row) for row in loss],
                 "test_acc": [listed(row) for row in curve(runs, "test_acc")],
                 "status": [trial.result["status"] for trial in runs],
                 "least": listed(or_infinite(loss).min(axis=1)),
                 "final": listed(loss[:, -1]),
                 "epochs_to": {f"{target:g}": [epochs_to(row, target) for row in loss]
                               for target in (1e-1, 1e-2, 1e-3, TARGET)}}}


def run(lab: Lab) -> dict:
    """The search -> the record."""
    settings = draw_settings(lab.protocol["rungs"][0][0], lab.protocol["search_seed"])
    rungs = search(lab, lab.load_data(), settings)
    return {"settings": settings,
            "nets": [describe_net(net, rungs) for net in rungs[0]]}


# --------------------------------------------------------------------------------------
# The figure


def depths_reaching(nets: list[dict], block: str) -> list[int]:
    """The depths at which the best run of that kind gets below TARGET."""
    return [net["depth"] for net in nets if net["block"] == block
            and or_infinite(net["best"]["least"]).min() < TARGET]


def message(record: dict) -> str:
    """What the search found, in a line."""
    found = {block: ", ".join(map(str, depths_reaching(record["nets"], block)))
             for block in WIDTHS}
    return (f"Loss below {TARGET:g}: highway nets at {found['highway'] or 'no'} "
            f"layers, plain nets at {found['plain'] or 'no'} layers")


def draw_curves(axes: Axes, nets: list[dict], lines: Callable) -> None:
    """Of each net over epochs, on a log scale: the median of its lines(net), and each
    of them thin where it has several; a cross where one diverged."""
    for net in nets:
        rows = np.array(lines(net), float)
        epochs, colour = np.arange(1, rows.shape[1] + 1), colour_of(net["block"])
        axes.plot(epochs, np.median(or_infinite(rows), axis=0), color=colour,
                  linestyle=DASHES[net["block"]], linewidth=2, label=net["block"])
        for row in rows:
            last = np.count_nonzero(np.isfinite(row))
            if len(rows) > 1:
                axes.plot(epochs, row, color=colour, linewidth=0.6)
            if 0 < last < len(row):
                axes.plot(last, row[last - 1], "x", color=colour, markersize=8,
                          markeredgewidth=2, zorder=4)
    axes.set(yscale="log", xlabel="epoch")


def draw_ranges(axes: Axes, nets: list[dict]) -> None:
    """Beside the curves of the best settings' means, the range of their last losses,
    without those that diverged."""
    for i, net in enumerate(nets):
        last = np.array(net["ten"]["train_loss"], float)
        axes.plot([len(net["ten"]["mean"]) * (1.05 + 0.05 * i)] * 2,
                  [np.nanmin(last), np.nanmax(last)], linewidth=2.5,
                  color=colour_of(net["block"]), solid_capstyle="butt")


def draw_settings_of(axes: Axes, net: dict, settings: list[dict]) -> None:
    """Learning rate and initial b_T of all settings, the best ten larger, the best one
    ringed."""
    for number in net["search"]["setting"]:
        ten, best = number in net["ten"]["setting"], number == net["best"]["setting"]
        axes.scatter(settings[number]["lr"], settings[number]["gate_bias"],
                     s=34 if ten else 7, zorder=2 + ten + best, linewidth=1.6,
                     color=LIGHT.highway if ten else LIGHT.soft,
                     edgecolor=LIGHT.ink if best else "none")
    axes.set(xscale="log", xlabel="learning rate")


def draw_depth(column: Sequence[Axes], nets: list[dict], settings: list[dict]) -> None:
    """One depth: the paper's two panels, and two that it did not show."""
    best, ten, error, winners_of = column
    draw_curves(best, nets, lambda net: net["best"]["train_loss"])
    best.axhline(TARGET, color=LIGHT.soft, linewidth=1, linestyle=":")
    best.set_title(f"{nets[0]['depth']} layers", weight="bold")
    draw_curves(ten, nets, lambda net: [net["ten"]["mean"]])
    draw_ranges(ten, nets)
    draw_curves(error, nets,
                lambda net: 100 - 100 * np.array(net["best"]["test_acc"], float))
    format_log(error.yaxis)
    for net in nets:
        if net["block"] == "highway":
            draw_settings_of(winners_of, net, settings)


def draw(record: dict) -> Figure:
    """The record -> the figure: a column for each depth, on common scales."""
    nets, depths = record["nets"], record["protocol"]["depths"]
    rungs, n = record["protocol"]["rungs"], len(record["protocol"]["seeds"])
    figure = Figure(figsize=(9, 10.5), layout="constrained")
    panels = figure.subplots(4, len(depths), sharex="row", sharey="row", squeeze=False,
                             height_ratios=(1.5, 1, 1, 1))
    for column, depth in zip(panels.T, depths, strict=True):
        draw_depth(column, [net for net in nets if net["depth"] == depth],
                   record["settings"])
    labels = (f"training loss\n(best of {rungs[0][0]} settings)",
              f"training loss\n(mean of the {rungs[1][0]} best)",
              "test error, %\n(of the best)", "initial $b_T$\n(highway)")
    for axes, label in zip(panels[:, 0], labels, strict=True):
        axes.set_ylabel(label)
    label_right(panels[0, -1], [
        (float(np.median(or_infinite(net["best"]["final"]))), net["block"],
         colour_of(net["block"])) for net in nets if net["depth"] == depths[-1]])
    figure.suptitle(message(record), **TITLE)
    figure.supxlabel(
        f"{title_of(record)}. Dotted: {TARGET:g}. Best: "
        f"{n} seeds, thick their median; ×: diverged. Mean of {rungs[1][0]}: one seed,"
        f"\nthose best after {rungs[0][1]} epochs; bars: their last losses. Below: "
        "blue, the same; ringed, the best; grey, the rest.", size=8.5)
    return figure


def check(record: dict) -> list[Claim]:
    """All claims of a record. Figure 1's right panel rests on the ten best settings
    of each net in the rung that it shows, all others on the best, whatever the rung."""
    def trials(kept, **rest):
        return [{"block": net["block"], "depth": net["depth"] - 1, "lr": [
            record["settings"][number]["lr"] for number in kept(net)], **rest}
            for net in record["nets"]]
    ten = trials(lambda net: net["ten"]["setting"],
                 epochs=record["protocol"]["rungs"][1][1])
    best = trials(lambda net: [net["best"]["setting"]])
    return [made for item in check_claims(record) for made in resting_on(
        [item], *(ten if item["section"] == "P1 Fig. 1" else best))]


EXPERIMENT = Experiment(
    name="experiments.optimization", doc=__doc__, minutes=290, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw, check=check,
    pack_by=lambda config: f"{config['block']}_{config['depth'] + 1}")

if __name__ == "__main__":
    main(EXPERIMENT)
