"""Figure 4 and "unrolled iterative estimation": which layers can a trained net spare?

The claims. P1, section 4.2: closing the gates of one early layer raises the training
loss significantly, layers 15 to 45 have close to no effect on MNIST, and about 60 % of
the layers do not contribute. P2 (Greff et al., ICLR 2017), sections 2, 4.2 and 4.4: a
plain net falls to chance where one layer is removed, highway and residual nets lose
little, the more the earlier the layer; a ResNet's layers may be shuffled at an error
that grows smoothly with the amount, and those of a highway net should be
interchangeable to a certain degree; and their block outputs a_k are estimates of one
value A, E[a_k - A] = 0 (its Eq. 1), whose spread falls from block to block (its Figure
3).

The protocol, for the three nets of experiments/inside.py. Close one layer at a time and
measure loss and error on all training images; a layer of the residual and the plain net
is taken out instead, which is the same: it copies its input. Keep only the first k
layers, on all training images. Close ever more layers in a random order, and shuffle
the layers so that none moves further than a given distance; ten draws of each, on the
first 10,000 training images. Estimation error, on all training images: mean and
standard deviation of a_k - A for each unit over the images, then their means over the
units, as P2 has it. The error grows smoothly if it is in order with the distance, by
rank, and no step between two distances makes half of the whole rise.

Beyond P2, the same for the nets before training, and the share of the squared error
that is bias: sum m^2 / sum (m^2 + s^2) over the units, with m and s a unit's mean and
deviation. What the papers say is judged by five nets of each kind: five_nets.py.

Why these controls, what the paper is silent about, deviations, and what came of it:
results/lesion/README.md.

Cost: three minutes on one core, after the nets' training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab.drawing import title_of
from experiments.inside import OTHERS, load_nets, untrained
from experiments.judging import listed
from experiments.old_lab import Experiment, Lab, main
from experiments.probing import (
    estimation_error,
    loss_and_error,
    nearby_order,
    prefix,
    reordered,
)
from highway_suite.figures import COLOURS, LIGHT, TITLE

PROTOCOL = {"dataset": "mnist", "seed": 0, "sampled": 10_000, "draws": 10,
            "closed": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48],
            "distances": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48], "early": 5,
            "idle": [15, 45]}
SMOKE = {"dataset": "digits", "sampled": 300, "draws": 3, "closed": [1, 2, 4],
         "distances": [1, 2, 4], "early": 1, "idle": [3, 5]}

# --------------------------------------------------------------------------------------
# Measurements


def columns(pairs: Iterable[tuple]) -> dict[str, list]:
    """Pairs (loss, error) -> the two as lists."""
    loss, error = zip(*pairs, strict=True)
    return {"loss": listed(loss), "error": listed(error)}


def close_at_random(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                    protocol: dict) -> dict:
    """Close ever more layers -> loss and error, a row for each draw."""
    rng, draws = np.random.default_rng([protocol["seed"], 1]), []
    for _ in range(protocol["draws"]):
        order = rng.permutation(net.depth)
        draws.append(columns(loss_and_error(net, x, labels, order[:count])
                             for count in protocol["closed"]))
    return {name: [draw[name] for draw in draws] for name in ("loss", "error")}


def shuffle(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, protocol: dict) -> dict:
    """Shuffle layers ever further -> loss, error and mean distance moved, a row for
    each draw."""
    rng, draws = np.random.default_rng([protocol["seed"], 2]), []
    for _ in range(protocol["draws"]):
        orders = [nearby_order(net.depth, distance, rng)
                  for distance in protocol["distances"]]
        moved = [np.abs(order - np.arange(net.depth)).mean() for order in orders]
        draws.append(columns(loss_and_error(reordered(net, order), x, labels)
                             for order in orders) | {"moved": listed(moved)})
    return {name: [draw[name] for draw in draws] for name in ("loss", "error", "moved")}


# What is measured of a net: {name: of(net, untrained, data, protocol)}.
MEASURES: dict[str, Callable] = {
    "whole": lambda net, _, data, protocol: dict(zip(
        ("loss", "error"), map(hn.significant, loss_and_error(
            net, data.x_train, data.y_train)), strict=True)),
    "one_closed": lambda net, _, data, protocol: columns(
        loss_and_error(net, data.x_train, data.y_train, [layer])
        for layer in range(net.depth)),
    "first_only": lambda net, _, data, protocol: dict(zip(
        ("loss", "error"), map(listed, prefix(net, data.x_train, data.y_train)),
        strict=True)),
    "sampled": lambda net, _, data, protocol: columns(
        [loss_and_error(net, *sample(data, protocol))]),
    "closed": lambda net, _, data, protocol: close_at_random(
        net, *sample(data, protocol), protocol),
    "shuffled": lambda net, _, data, protocol: shuffle(
        net, *sample(data, protocol), protocol),
    "estimation": lambda net, fresh, data, protocol: {
        state: {name: listed(values) for name, values in
                estimation_error(each, data.x_train)._asdict().items()}
        for state, each in (("trained", net), ("untrained", fresh))}}


def sample(data: hn.Data, protocol: dict) -> tuple[np.ndarray, np.ndarray]:
    """The images of the measures that are drawn, and their labels."""
    few = slice(protocol["sampled"])
    return data.x_train[few], data.y_train[few]


class Nets(NamedTuple):
    """What is measured, and on which images."""

    trained: dict[str, hn.DeepNet]
    untrained: dict[str, hn.DeepNet]
    data: hn.Data


def measure(config: dict, nets: Nets) -> dict:
    """One trial: one of MEASURES of one net."""
    name = config["net"]
    return MEASURES[config["measure"]](nets.trained[name], nets.untrained[name],
                                       nets.data, config)


# --------------------------------------------------------------------------------------
# What the verdicts read, for five_claims.py


def spared(net: dict) -> np.ndarray:
    """Whether each layer alone can be closed without visible effect, (L,)."""
    return np.array(net["one_closed"]["loss"]) < 2 * net["loss"]


def rank_correlation(values: Sequence[float]) -> float:
    """Spearman's, of a series and its index; equal values share the mean of their
    ranks, and of a constant series nothing can be said: 0."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    if len(counts) == 1:
        return 0.0
    return hn.significant(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def std_by_block(found: dict) -> float:
    """Rank correlation of the estimation error's standard deviation with k < L."""
    return rank_correlation(found["std"][:-1])


def mean_by_std(found: dict) -> float:
    """The largest size of its mean, in standard deviations at the same k < L."""
    mean, std = (np.abs(found[part][:-1]) for part in ("mean", "std"))
    return hn.significant((mean / std).max())


def largest_bias(found: dict) -> float:
    """The largest share of bias."""
    return max(found["bias_share"])


def largest_step(values: Sequence[float]) -> float:
    """The largest rise between neighbours, as a share of that from first to last."""
    rise = values[-1] - values[0]
    return hn.significant(np.diff(values).max() / rise) if rise > 0 else 1.0


def needed_layers(net: dict, more: float = 0.01) -> int:
    """The smallest k for which the first k layers alone, and all larger k, err on at
    most this share of the images more than the whole net."""
    off = np.flatnonzero(np.array(net["first_only"]["error"]) > net["error"] + more)
    return int(off.max(initial=-1)) + 1


def run(lab: Lab) -> dict:
    """Lesion the nets -> the record."""
    trained, made = load_nets(lab)
    data = hn.scale_pixels(lab.load_data())
    nets = Nets(trained, {name: untrained(made, name, data) for name in trained}, data)
    described = {fields["block"]: fields for fields in made["nets"]}
    protocol = {name: value for name, value in lab.protocol.items()
                if name not in ("early", "idle")}       # for explorer and verdicts
    trials = lab.trials(measure, {
        (name, part): {"net": name, "measure": part,
                       "sha256": described[name]["sha256"], **protocol}
        for name in described for part in MEASURES}, nets)
    found: dict[str, dict] = {}
    for name, fields in described.items():
        parts = {part: trials[name, part].result for part in MEASURES}
        net = found[name] = {key: fields[key] for key in ("file", "sha256",
                                                          "parameters")}
        net |= {"test_acc": fields["test_acc"][-1], **parts.pop("whole"), **parts}
        net |= {"spared": hn.significant(spared(net).mean()),
                "needed_layers": needed_layers(net)}
    return {"n_train": len(data.x_train), "nets": found}


# --------------------------------------------------------------------------------------
# The figure


def draw_one_closed(panels: np.ndarray, nets: dict) -> None:
    """Figure 4, as the loss and as the error."""
    for name, net in nets.items():
        layers = np.arange(1, len(net["one_closed"]["loss"]) + 1)
        for axes, part, scale in zip(panels, ("loss", "error"), (1, 100), strict=True):
            values = scale * np.array(net["one_closed"][part])
            axes.plot(layers, values, color=COLOURS[name], marker="o", markersize=2.5,
                      linewidth=1.2, label=name)
            axes.axhline(scale * net[part], color=COLOURS[name], linewidth=1,
                         linestyle="--")
    panels[0].set(yscale="log", ylabel="mean cross-entropy, nats",
                  title="Loss, one layer closed (dashed: none)")
    panels[1].set(ylabel="training error, %", title="Error, one layer closed")
    for axes in panels:
        axes.set_xlabel("closed layer")


def draw_draws(axes: Axes, nets: dict, part: str, at: Callable, label: str,
               title: str) -> None:
    """Error of random draws, median and range, over at(net); at 0 the net itself."""
    for name, net in nets.items():
        places = [0, *at(net)]
        draws = 100 * np.array(net[part]["error"])
        start = np.full((len(draws), 1), 100 * net["sampled"]["error"][0])
        draws = np.hstack([start, draws])
        axes.plot(places, np.median(draws, axis=0), color=COLOURS[name], marker="o",
                  markersize=3, linewidth=1.4)
        axes.fill_between(places, draws.min(axis=0), draws.max(axis=0),
                          color=COLOURS[name], alpha=0.15, linewidth=0)
    axes.set(xlabel=label, ylabel="training error, %", title=title)


def draw_first(axes: Axes, nets: dict) -> None:
    """The first k layers alone."""
    for name, net in nets.items():
        error = 100 * np.array(net["first_only"]["error"])
        axes.plot(np.arange(len(error)), error, color=COLOURS[name], linewidth=1.6)
    axes.set(xlabel="layers kept, from the input on", ylabel="training error, %",
             title="The first layers alone")


def draw_estimation(panels: np.ndarray, nets: dict) -> None:
    """P2's Figure 3, its deviation beside the untrained net's, and the bias."""
    mean, std, share = panels
    for name, net in nets.items():
        found, colour = net["estimation"], COLOURS[name]
        k = np.arange(len(found["trained"]["mean"]))
        middle, width = (np.array(found["trained"][part]) for part in ("mean", "std"))
        mean.plot(k, middle, color=colour, linewidth=1.8)
        for edge in (middle - width, middle + width):
            mean.plot(k, edge, color=colour, linewidth=0.9)
        mean.fill_between(k, middle - width, middle + width, color=colour, alpha=0.06,
                          linewidth=0)
        for state, dashes in (("trained", "-"), ("untrained", ":")):
            std.plot(k, np.array(found[state]["std"]) / found[state]["std"][0],
                     color=colour, linestyle=dashes, linewidth=1.6)
            share.plot(k[:-1], 100 * np.array(found[state]["bias_share"]), color=colour,
                       linestyle=dashes, linewidth=1.6)
    mean.axhline(0, color=LIGHT.soft, linewidth=0.8)
    mean.set(ylabel="in standard deviations of $A$",
             title="Estimation error $a_k-A$: mean ± s.d.")
    std.set(ylabel="relative to $k=0$", ylim=(0, None),
            title="Its s.d. (dotted: before training)")
    share.set(ylabel="% of the squared error", ylim=(0, None),
              title="Bias of single units (dotted: before training)")
    for axes in panels:
        axes.set_xlabel("layer $k$")


def draw(record: dict) -> Figure:
    """The record -> the paper's Figure 4, P2's Figure 3, and what lies between."""
    nets, protocol = record["nets"], record["protocol"]
    figure = Figure(figsize=(9, 12.2), layout="constrained")
    panels = figure.subplots(4, 2)
    draw_one_closed(panels[0], nets)
    draw_first(panels[1, 0], nets)
    draw_draws(panels[1, 1], nets, "closed", lambda net: protocol["closed"],
               "layers closed", "Random layers closed")
    draw_draws(panels[2, 0], nets, "shuffled", lambda net: np.mean(
        net["shuffled"]["moved"], axis=0), "mean distance moved, layers",
        "Layers shuffled")
    draw_estimation(panels.flat[5:], nets)
    for axes in panels.flat:
        axes.title.set_fontsize(10)
        axes.xaxis.label.set_fontsize(9)
        axes.yaxis.label.set_fontsize(9)
        axes.tick_params(labelsize=8)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside upper center", title_fontproperties=TITLE,
                  title="Layers that can be closed alone: " + ", ".join(
                      f"{name} {100 * net['spared']:.0f} %"
                      for name, net in nets.items()))
    figure.supxlabel(
        f"{title_of(record)}: {record['n_train']:,} training images; where layers are "
        f"drawn, {protocol['sampled']:,} of them,\nmedian and range of "
        f"{protocol['draws']} draws. One net of each kind; layers are counted after "
        "the projection. Can be closed: the loss does not double.", fontsize=8.5)
    return figure


EXPERIMENT = Experiment(name="experiments.lesion", doc=__doc__, minutes=3,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw,
                        pack_by=lambda config: config["net"], others=OTHERS)

if __name__ == "__main__":
    main(EXPERIMENT)
