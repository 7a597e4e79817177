"""Figure 1: do plain nets stop training as they get deeper, and highway nets not?

The claim (P1, section 3.1). On MNIST, with the best of 100 random settings for each
net, plain nets of 10 and 20 layers reach a mean training loss below 1e-4 and deeper
ones do not, while highway nets of 10, 20, 50 and 100 layers all do; at 100 layers the
highway net is more than two orders of magnitude better; and highway nets need fewer
epochs.

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

Deviations: the paper ran its 100 settings to the end; ours earn their epochs in rungs,
which favours settings that start fast. Its figure's axis has 400 epochs, ours 200.

Cost on two cores: 80 minutes for the first rung, 35 for the second, 40 for the third
and for the fourth, 32 for each seed of the last. Finished trials are kept: a stopped
run goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.judging import listed, or_infinite, resting_on
from experiments.lab import DASHES, Experiment, Lab, format_log, main, pale
from experiments.optimization_claims import TARGET, check_claims, of
from experiments.store import Trial
from highway_suite.figures import LIGHT

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


def shade(net: dict, depths: list[int]) -> tuple:
    """The colour of a net: its kind's, the deeper the darker."""
    strength = 0.35 + 0.65 * depths.index(net["depth"]) / max(len(depths) - 1, 1)
    return pale(getattr(LIGHT, net["block"]), strength)


def draw_curves(axes: Axes, nets: list[dict], depths: list[int], lines: Callable,
                title: str) -> None:
    """Of every net over epochs, on a log scale: the median of its lines(net), and each
    of them thin where it has several; a cross where one diverged."""
    for net in nets:
        rows = np.array(lines(net), float)
        epochs, colour = np.arange(1, rows.shape[1] + 1), shade(net, depths)
        axes.plot(epochs, np.median(or_infinite(rows), axis=0), color=colour,
                  linestyle=DASHES[net["block"]], linewidth=1.6,
                  label=f"{net['block']} {net['depth']}")
        for row in rows:
            last = np.count_nonzero(np.isfinite(row))
            if len(rows) > 1:
                axes.plot(epochs, row, color=colour, linewidth=0.6)
            if last < len(row):
                axes.plot(last, row[last - 1], "x", color=colour, markersize=8,
                          markeredgewidth=2, zorder=4)
    axes.set(yscale="log", xlabel="epoch", title=title)


def draw_ranges(axes: Axes, nets: list[dict], depths: list[int]) -> None:
    """Beside the curves of the best settings' means, the range of their last losses,
    without those that diverged."""
    epochs = len(nets[0]["ten"]["mean"])
    for i, net in enumerate(nets):
        last = np.array(net["ten"]["train_loss"], float)
        axes.plot([epochs * (1.03 + 0.02 * i)] * 2, [np.nanmin(last), np.nanmax(last)],
                  linewidth=2.5, color=shade(net, depths), solid_capstyle="butt")


def draw_winners(axes: Axes, record: dict, depths: list[int]) -> None:
    """Initial b_T of all settings against depth, the best ten larger, the best one
    ringed."""
    rng = np.random.default_rng(0)      # only spreads the dots
    for net in of(record["nets"], "highway", *depths):
        at = depths.index(net["depth"]) + rng.uniform(-0.3, 0.3,
                                                      len(record["settings"]))
        for number in net["search"]["setting"]:
            ten, best = (number in net["ten"]["setting"],
                         number == net["best"]["setting"])
            axes.scatter(at[number], record["settings"][number]["gate_bias"],
                         s=34 if ten else 7, zorder=2 + ten + best, linewidth=1.6,
                         color=LIGHT.highway if ten else LIGHT.grid,
                         edgecolor=LIGHT.ink if best else "none")
    axes.set_xticks(range(len(depths)), list(map(str, depths)))
    axes.set(xlabel="depth", ylabel="initial $b_T$",
             title="Settings of the highway nets\n(blue: in the second rung, ringed: "
                   "the best)")


def draw(record: dict) -> Figure:
    """The record -> the figure: the paper's two panels, and two it did not show."""
    nets, depths = record["nets"], record["protocol"]["depths"]
    rungs, n = record["protocol"]["rungs"], len(record["protocol"]["seeds"])
    seeds = "one seed" if n == 1 else f"{n} seeds, the thick line their median"
    figure = Figure(figsize=(9, 7.4), layout="constrained")
    panels = figure.subplots(2, 2)
    draw_curves(
        panels[0, 0], nets, depths, lambda net: net["best"]["train_loss"],
        f"Training loss, best of {rungs[0][0]} settings\n({seeds}; ×: diverged)")
    draw_curves(panels[0, 1], nets, depths, lambda net: [net["ten"]["mean"]],
                f"Training loss, mean of the {rungs[1][0]} best of {rungs[0][1]} epochs"
                f"\n(×: one of them diverged; bars: range)")
    draw_ranges(panels[0, 1], nets, depths)
    draw_curves(
        panels[1, 0], nets, depths,
        lambda net: 100 - 100 * np.array(net["best"]["test_acc"], float),
        "Test error of the same runs")
    panels[1, 0].set_ylabel("test error, %")
    format_log(panels[1, 0].yaxis)
    draw_winners(panels[1, 1], record, depths)
    panels[0, 0].axhline(TARGET, color=LIGHT.soft, linewidth=1, linestyle=":")
    for axes in panels[0]:
        axes.set_ylabel("mean cross-entropy")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center",
                  ncols=4, frameon=False)
    return figure


def winners(record: dict) -> list[dict]:
    """The settings that became each net's best, whatever the rung."""
    return [{"block": net["block"], "depth": net["depth"] - 1,
             "lr": record["settings"][net["best"]["setting"]]["lr"]}
            for net in record["nets"]]


EXPERIMENT = Experiment(
    name="experiments.optimization", doc=__doc__, minutes=290, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw,
    check=lambda record: resting_on(check_claims(record), *winners(record)),
    pack_by=lambda config: f"{config['block']}_{config['depth'] + 1}")

if __name__ == "__main__":
    main(EXPERIMENT)
