"""Six members of the family y = H T + x C at equal size: which ranking, at which depth?

The claim (P2, section 5.2, Table 1a). In a character-aware language model with two such
layers (residual four, plain one), by test perplexity: full 79.09, coupled (the highway
layer) 79.13 and C-only 79.15 are about equal, T-only 82.94 is behind them, residual
91.32 far behind and close to plain 92.60. P2 expects this of a task that must replace
features; it says nothing of depth, nor of MNIST. Here the same six forms are ranked on
MNIST from 10 to 100 layers. A test of how far the ranking carries over, not of the
table itself.

The protocol. 784 pixels -> one plain layer -> 9, 19, 49 or 99 layers of one form ->
softmax of 10; "depth" counts the plain layer, as P1 does. H is tanh, weights are
Glorot's, a learned carry gate starts at -b_T. Each form is as wide as brings its
number of parameters nearest to that of the highway net of 50 units at that depth: the
nearest whole width is at most 1.4 % off. Adam, gradients clipped at norm 5, batches of
128, learning rate times 0.8 after each epoch. For each form and depth the learning
rate, of five, and with it the initial b_T, of three, where there is a gate, are those
with the highest accuracy on 10,000 held-out training images, after 3 epochs on the
other 50,000; where the best lies at an edge of the grid, the next value beyond it is
tried, until it does not. The chosen setting trains 10 epochs on all 60,000 with five
seeds; C-only, coupled and full at 10 layers, which five did not tell apart, with 15.
Test images choose nothing; training loss is the mean over an epoch's steps, each before
its update. When a form is ahead of another, or similar: blocks_claims.py.

P2 is silent, we assume: b_C = -b_T; pixels in [-1, 1]; all of the above. Deviations:
Table 1a gives full half more parameters than coupled, and residual twice the layers;
ours have equal parameters and equal depth.

Cost on two cores, at 1.0, 2.1, 5.0 and 10.3 ms a step for 10, 20, 50 and 100 layers:
17 minutes for the search, 25 for the seeds. Finished trials are kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

import highway_networks as hn
from experiments import sizes
from experiments.blocks_claims import check_claims
from experiments.lab.drawing import colour_of, plain_numbers, title_of
from experiments.judging import mean_and_std, or_infinite
from experiments.old_lab import Experiment, Lab, main
from experiments.lab.papers import TABLE_1A, forms, name_of
from experiments.store import Trial
from highway_suite.figures import LIGHT, TITLE, label_right

WIDTH = 50              # of the highway nets that the others are matched to

PROTOCOL = {"dataset": "mnist", "depths": [10, 20, 50, 100], "batch": 128, "clip": 5.0,
            "lr_decay": 0.8, "lrs": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
            "gate_biases": [-1.0, -3.0, -5.0], "held_out": 10_000, "split_seed": 1612,
            "search_epochs": 3, "epochs": 10, "seeds": [0, 1, 2, 3, 4],
            "beyond": {"lr": [1e-5, 3e-5, 3e-2, 1e-1],
                       "gate_bias": [-9.0, -7.0, 1.0, 3.0]},
            "more": {"depths": [10], "blocks": ["c_only", "highway", "full"],
                     "seeds": [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]}}
SMOKE = {"dataset": "digits", "depths": [3, 5], "lrs": [1e-3, 1e-2], "held_out": 237,
         "gate_biases": [-1.0, -3.0], "search_epochs": 1, "epochs": 2, "seeds": [0, 1],
         "beyond": {"lr": [3e-4], "gate_bias": [1.0]},
         "more": {"depths": [3], "blocks": ["full"], "seeds": [2]}}


class Net(NamedTuple):
    """A form at a depth, which counts the projection."""

    block: str
    depth: int


class Setting(NamedTuple):
    """What the search varies."""

    lr: float
    gate_bias: float | None = None      # None: the form has no gate

    def fields(self) -> dict:
        """Those that there are, for hn.Config and the record."""
        return {name: value for name, value in self._asdict().items()
                if value is not None}


def count_parameters(net: Net, hidden: int, dataset: str) -> int:
    """Weights and biases of the whole net at a width."""
    row = hn.DATASETS[dataset]
    return sizes.count_parameters(net.block, net.depth - 1, hidden,
                                  math.prod(row.shape), row.classes)


def match_width(net: Net, dataset: str) -> int:
    """The width whose parameters are nearest to those of the highway net."""
    row = hn.DATASETS[dataset]
    return sizes.matched_width(net.block, net.depth - 1, WIDTH, math.prod(row.shape),
                               row.classes)


def hold_out(data: hn.Data, protocol: dict) -> hn.Data:
    """uint8 Data -> Data of the search: both parts are training images."""
    order = np.random.default_rng(protocol["split_seed"]).permutation(len(data.x_train))
    held, rest = np.split(order, [protocol["held_out"]])
    return replace(data, x_train=data.x_train[rest], y_train=data.y_train[rest],
                   x_test=data.x_train[held], y_test=data.y_train[held])


def settings_of(block: str, protocol: dict) -> list[Setting]:
    """What the search tries for a form: learning rates, and b_T if it has a gate."""
    biases = protocol["gate_biases"] if hn.BLOCKS[block].gates else [None]
    return [Setting(*both) for both in itertools.product(protocol["lrs"], biases)]


def tried_values(settings: Iterable[Setting]) -> dict[str, list]:
    """The values that were tried, in order, {"lr": [...], "gate_bias": [...]}."""
    rows = [setting.fields() for setting in settings]
    return {name: sorted({row[name] for row in rows}) for name in rows[0]}


def untried(accuracies: dict[Setting, float | None], protocol: dict) -> list[Setting]:
    """Settings not tried yet: the next value beyond each edge of the grid that the best
    one lies at, with all the values there are of the other."""
    chosen, values = best(accuracies).fields(), tried_values(accuracies)
    for name in at_edge(best(accuracies), values):
        beyond, old = protocol["beyond"][name], values[name]
        values[name] = sorted({*old, *(
            [v for v in beyond if v < old[0]][-1:] if chosen[name] == old[0] else
            [v for v in beyond if v > old[-1]][:1])})
    return [setting for setting in map(Setting, *zip(*itertools.product(
        values["lr"], values.get("gate_bias", [None])), strict=True))
        if setting not in accuracies]


def make_config(protocol: dict, net: Net, setting: Setting, data: hn.Data, **rest: int
                ) -> dict:
    """The trial of one net; data only says how many images there are."""
    return {"block": net.block, "depth": net.depth - 1, "init": "glorot",
            "hidden": match_width(net, protocol["dataset"]),
            "n_train": len(data.x_train), "n_test": len(data.x_test),
            **{name: protocol[name] for name in ("dataset", "batch", "clip",
                                                 "lr_decay")},
            **setting.fields(), **rest}


def train_net(config: dict, data: hn.Data) -> dict:
    """One trial: its status, and per epoch the training loss and the accuracy on the
    images it is judged by. config: of hn.Config, and the data set's name, and in the
    search what drew the images."""
    settings = hn.Config(**{name: value for name, value in config.items()
                            if name not in ("dataset", "split_seed")})
    net = hn.make_net(settings, data)
    history, _, status = hn.train(net, hn.scale_pixels(data), settings)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "acc": history["test_acc"]}


def last(trial: Trial, name: str) -> float | None:
    """The last epoch's value of a trial, None if it diverged."""
    return trial.result[name][-1]


def search(lab: Lab, data: hn.Data, nets: list[Net]) -> dict[Net, dict]:
    """Every setting of every net, judged on held-out images, and of those whose best
    one lies at an edge ever more -> {net: {setting: accuracy}}."""
    data, protocol = hold_out(data, lab.protocol), lab.protocol
    settings = {net: settings_of(net.block, protocol) for net in nets}
    found: dict[Net, dict] = {net: {} for net in nets}
    while any(settings.values()):
        # Settings outermost: a run that is stopped has tried as many for every net.
        rounds = itertools.zip_longest(*(settings[net] for net in reversed(nets)))
        trials = lab.trials(train_net, {
            (net, setting): make_config(
                protocol, net, setting, data, seed=protocol["seeds"][0],
                epochs=protocol["search_epochs"], split_seed=protocol["split_seed"])
            for each in rounds for net, setting in zip(reversed(nets), each,
                                                       strict=True) if setting}, data)
        for (net, setting), trial in trials.items():
            found[net][setting] = last(trial, "acc")
        found = {net: dict(sorted(tried.items(), key=lambda item: (
            item[0].lr, -(item[0].gate_bias or 0)))) for net, tried in found.items()}
        settings = {net: untried(found[net], protocol) for net in nets}
    return found


def best(accuracies: dict[Setting, float | None]) -> Setting:
    """The setting of the highest accuracy, of equal ones the first; None is lowest."""
    known = {setting: -1 if value is None else value
             for setting, value in accuracies.items()}
    return max(known, key=lambda setting: known[setting])


def seeds_of(net: Net, protocol: dict) -> list[int]:
    """Those that a net's chosen setting trains with."""
    more = protocol["more"]
    return protocol["seeds"] + (more["seeds"] if net.depth in more["depths"]
                                and net.block in more["blocks"] else [])


def repeat(lab: Lab, data: hn.Data, chosen: dict[Net, Setting]) -> dict:
    """The chosen setting of each net, with every seed -> {(net, seed): trial}."""
    # Seeds outermost: a run that is stopped has as many of every net.
    seeds = sorted({seed for net in chosen for seed in seeds_of(net, lab.protocol)})
    return lab.trials(train_net, {
        (net, seed): make_config(lab.protocol, net, chosen[net], data, seed=seed,
                                 epochs=lab.protocol["epochs"])
        for seed in seeds for net in reversed(chosen)
        if seed in seeds_of(net, lab.protocol)}, data)


def at_edge(setting: Setting, values: dict[str, list]) -> list[str]:
    """Which of a setting's values are the first or the last of those tried."""
    return [name for name, value in setting.fields().items()
            if value in (values[name][0], values[name][-1])]


def describe_net(net: Net, protocol: dict, accuracies: dict[Setting, float | None],
                 runs: list[Trial]) -> dict:
    """One net's part of the record: its size, its search and its seeds."""
    tried, chosen = [setting.fields() for setting in accuracies], best(accuracies)
    hidden = match_width(net, protocol["dataset"])
    count = count_parameters(net, hidden, protocol["dataset"])
    target = count_parameters(Net("highway", net.depth), WIDTH, protocol["dataset"])
    record = {"block": net.block, "depth": net.depth, "hidden": hidden,
              "parameters": count, "above_highway": hn.significant(count / target - 1),
              "search": {name: [fields[name] for fields in tried]
                         for name in tried[0]} | {
                             "held_out_acc": list(accuracies.values())},
              "chosen": chosen.fields() | {"held_out_acc": accuracies[chosen],
                                           "at_edge": at_edge(
                                               chosen, tried_values(accuracies))}}
    for name, there in (("train_loss", "train_loss"), ("test_acc", "acc")):
        finals = [last(trial, there) for trial in runs]
        record[name] = {"final": finals, **mean_and_std(finals),
                        "epochs": [trial.result[there] for trial in runs]}
    return record


def run(lab: Lab) -> dict:
    """Search and seeds -> the record."""
    protocol, data = lab.protocol, lab.load_data()
    nets = [Net(block, depth) for depth in protocol["depths"] for block in forms()]
    found = search(lab, data, nets)
    trials = repeat(lab, data, {net: best(found[net]) for net in nets})
    return {"width_of_highway": WIDTH, "nets": [
        describe_net(net, protocol, found[net],
                     [trials[net, seed] for seed in seeds_of(net, protocol)])
        for net in nets]}


# --------------------------------------------------------------------------------------
# The figure

MARKERS = dict(zip(TABLE_1A, "sD^vo*", strict=True))


def finals(net: dict, name: str) -> np.ndarray:
    """A net's last values as an array, NaN for None; test accuracy as error in %."""
    values = np.array(net[name]["final"], float)
    return 100 - 100 * values if name == "test_acc" else values


def draw_over_depth(axes: Axes, nets: list[dict], name: str, title: str) -> None:
    """One line per form: mean over seeds against depth, bars from lowest to highest.
    Forms stand side by side at each depth, so that their bars are not on top of one
    another."""
    depths = sorted({net["depth"] for net in nets})
    blocks = list(dict.fromkeys(net["block"] for net in nets))
    for place, block in enumerate(blocks):
        values = [finals(net, name) for net in nets if net["block"] == block]
        values = [found[np.isfinite(found)] for found in values]    # by depth
        x = np.array(depths) * 1.035 ** (place - (len(blocks) - 1) / 2)
        y = np.array([found.mean() if len(found) else np.nan for found in values])
        bars = np.array([[middle - found.min(), found.max() - middle] if len(found)
                         else [0, 0] for found, middle in zip(values, y, strict=True)])
        axes.errorbar(x, y, yerr=bars.T, color=colour_of(block),
                      marker=MARKERS.get(block, "X"), markersize=5, linewidth=1.3,
                      elinewidth=1.3, label=name_of(block))
    axes.set(xscale="log", yscale="log", xlabel="depth (layers, projection included)",
             title=title)
    axes.xaxis.set_major_locator(FixedLocator(depths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    plain_numbers(axes.yaxis)
    axes.grid(axis="y", which="both")


def write_setting(net: dict) -> str:
    """The chosen setting, in short; starred what is the first or last value tried."""
    chosen = net["chosen"]
    return ", ".join(f"{chosen[name]:g}" + "*" * (name in chosen["at_edge"])
                     for name in ("lr", "gate_bias") if name in chosen)


def draw_dots(axes: Axes, nets: list[dict], depth: int) -> None:
    """One depth: a row for each form, a dot for each seed's test error, its mean, and
    right of it learning rate and b_T."""
    rows = {net["block"]: net for net in nets if net["depth"] == depth}
    for row, (block, net) in enumerate(rows.items()):
        values = finals(net, "test_acc")
        axes.plot(values, np.full(len(values), row), ".", color=colour_of(block),
                  alpha=0.6, markersize=6)
        if np.isfinite(values).any():
            axes.plot(np.nanmean(values), row, "|", color=colour_of(block),
                      markersize=10, markeredgewidth=2)
        if np.isnan(values).any():
            axes.text(0.02, row + 0.28, f"{np.isnan(values).sum()} diverged", size=6.5,
                      transform=axes.get_yaxis_transform())
        axes.text(1.0, row - 0.3, write_setting(net), size=7.5, ha="right",
                  color=LIGHT.soft, transform=axes.get_yaxis_transform())
    axes.set(title=f"{depth} layers", xscale="log", xlabel="test error, %",
             ylim=(-0.6, len(rows) - 0.3))
    axes.title.set_fontsize(10)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(rows)), [
        f"{name_of(block)}  {TABLE_1A[block].perplexity:.2f}" if block in TABLE_1A else
        block for block in rows])
    axes.grid(axis="x")


def message(nets: list[dict], depths: list[int]) -> str:
    """Which form has the least mean test error, by depth, in a line."""
    best: dict[str, list] = {}
    for depth in depths:
        means = {net["block"]: np.mean(or_infinite(finals(net, "test_acc")))
                 for net in nets if net["depth"] == depth}
        best.setdefault(name_of(min(means, key=means.__getitem__)), []).append(depth)
    return "Least mean test error at equal size: " + "; ".join(
        f"{name} at {', '.join(map(str, found))} layers" for name, found in
        best.items())


def draw(record: dict) -> Figure:
    """The record -> the figure: two panels over depth, one of dots for each depth."""
    nets, protocol = record["nets"], record["protocol"]
    figure = Figure(figsize=(9, 8), layout="constrained")
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.15, 1)).flat
    loss, error = upper.subplots(1, 2)
    seeds = " or ".join(map(str, sorted({len(net["test_acc"]["final"])
                                         for net in nets})))
    draw_over_depth(loss, nets, "train_loss", "Training loss after "
                    f"{protocol['epochs']} epochs\n(mean and range of "
                    f"{seeds} seeds)")
    draw_over_depth(error, nets, "test_acc",
                    f"Test error, %\n({title_of(record)})")
    loss.set_ylabel("mean cross-entropy")
    depths = protocol["depths"]
    upper.suptitle(message(nets, depths), **TITLE)
    label_right(error, [(float(np.nanmean(finals(net, "test_acc"))),
                         name_of(net["block"]), colour_of(net["block"]))
                        for net in nets if net["depth"] == max(depths)])
    panels = np.ravel(lower.subplots(1, len(depths), sharex=True, sharey=True))
    for depth, axes in zip(depths, panels, strict=True):
        draw_dots(axes, nets, depth)
    panels[0].xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    panels[0].xaxis.set_major_formatter("{x:g}")
    panels[0].xaxis.set_minor_locator(NullLocator())
    star = " (*: first or last tried)" * any(net["chosen"]["at_edge"] for net in nets)
    lower.suptitle("Test error of each seed; right: learning rate and initial $b_T$ "
                   f"(C-only: $-b_C$) chosen{star}; left: P2's test perplexity, Table "
                   "1a", size=10)
    return figure


EXPERIMENT = Experiment(
    name="experiments.blocks", doc=__doc__, minutes=42, protocol=PROTOCOL, smoke=SMOKE,
    run=run, draw=draw, check=check_claims,
    pack_by=lambda config: f"{config['block']}_{config['depth'] + 1}")

if __name__ == "__main__":
    main(EXPERIMENT)
