"""Convolutional highway nets: do they train at any depth, and where are gates open?

The claims. P1, section 2.2, suggests b_T of -1, -2 and -3 for convolutional nets of
about 10, 20 and 30 layers. Section 3.2, Table 1: two nets of nine convolutional layers
and a softmax have 39 K parameters with 16 filters in each layer, and 151 K with 32.
What accuracies they reach, `table_1` asks, with settings made for its epochs; here they
keep the authors' decay and dropout.

The protocol is that of the authors' Caffe fork (`convolution_trials`): a plain 5x5
convolution, eight highway layers of 3x3 on 24x24, 12x12 and 6x6 pixels, ten outputs;
relu, dropout, max pooling; He's weights, N(0, 0.1^2) for the outputs; pixels divided by
256. Nesterov's momentum 0.9; the learning rate falls to a tenth after a third of the
epochs and to a hundredth after two thirds; weight decay 0.001, ten times that for the
outputs; biases have twice the rate and no decay. Batches of 100, in the files' order,
of all 60,000 training images. The test images are classified after each epoch, to draw
the curve, and choose nothing: the last epoch counts.

What we add. A plain twin: the same layers without gates. Nets of 20 and 30 layers of
both kinds, with more layers between the poolings and the guideline's b_T, beside 10
layers trained as long. And where on the image the trained gates are open.

Deviations: 20 epochs instead of 300, and 3 to compare depths, with the rate dropping
after the same parts of them. The authors' first rate, 0.01, is made for 300 epochs:
each kind and depth tries several for three epochs and keeps the one with the least
training loss in the last. Three runs at most of a net, not five. How the plan came
about: results/convolution/README.md.

Cost on two cores: three and three quarter hours. A trial saves itself after each epoch:
what is stopped goes on from there and ends with the same bits.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import MaxNLocator, NullFormatter

import highway_networks as hn
from experiments.convolution_trials import train_net
from experiments.judging import claim, listed, mean_and_std, or_infinite, resting_on
from experiments.lab.drawing import DASHES, format_log, pale
from experiments.lab.papers import GUIDELINE, TABLE_1, TABLE_1_EPOCHS
from experiments.old_lab import Experiment, Lab, main
from experiments.store import Trial
from highway_suite.figures import LIGHT, TITLE

# By depth, which counts the first convolution and the softmax, as the paper does: the
# highway layers before each pooling.
STAGES = {10: [2, 3, 3], 20: [4, 7, 7], 30: [6, 11, 11]}
STALLED = 0.9           # a run that ends below this test accuracy has stalled


def planned(part: str, block: str, depth: int, width: int, epochs: int, seeds: int,
            maps: int = 0) -> dict:
    """One net of the plan; maps: of so many test images its first seed keeps T.

    part: "depth" chooses its learning rate; "table" takes that of the net of its kind
    and depth there.
    """
    return {"part": part, "block": block, "depth": depth, "width": width,
            "epochs": epochs, "seeds": list(range(seeds)), "maps": maps}


PROTOCOL = {
    "dataset": "mnist", "batch": 100, "piece": 25, "momentum": 0.9,
    "lrs": {"highway": [0.01, 0.03, 0.1, 0.3],
            "plain": [0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3]},
    "decay": 0.001,
    "nets": [
        *(planned("depth", block, depth, 16, 3, 3)
          for block, depth in (("highway", 30), ("highway", 20), ("plain", 30),
                               ("plain", 20), ("highway", 10), ("plain", 10))),
        planned("table", "highway", 10, 32, 20, 2),
        planned("table", "highway", 10, 16, 20, 3, maps=3),
        planned("table", "plain", 10, 16, 20, 1)]}
SMOKE = {
    "batch": 200, "piece": 100, "dataset": "digits",
    "lrs": {"highway": [0.01, 0.03], "plain": [0.003, 0.01]}, "nets": [
        *(planned("depth", block, depth, 4, 1, 1)
          for depth in (20, 10) for block in ("highway", "plain")),
        planned("table", "highway", 10, 32, 2, 1),
        planned("table", "highway", 10, 16, 2, 2, maps=2),
        planned("table", "plain", 10, 16, 2, 2)]}

# --------------------------------------------------------------------------------------
# The trials


class Net(NamedTuple):
    """What tells the nets of the plan apart."""

    part: str
    block: str
    depth: int
    width: int


def net_of(plan: dict) -> Net:
    """The key of a net of the plan."""
    return Net(*(plan[name] for name in Net._fields))


def make_config(protocol: dict, plan: dict, lr: float, seed: int) -> dict:
    """The trial of one net of the plan at a learning rate."""
    shared = {name: protocol[name] for name in (
        "dataset", "batch", "piece", "momentum", "decay")}
    bias = ({"gate_bias": GUIDELINE[plan["depth"]]} if plan["block"] == "highway"
            else {})
    return {**shared, **bias, "lr": lr, "block": plan["block"], "depth": plan["depth"],
            "stages": STAGES[plan["depth"]], "width": plan["width"],
            "epochs": plan["epochs"], "seed": seed,
            "maps": plan["maps"] if seed == plan["seeds"][0] else 0}


def last_loss(trial: Trial) -> float | None:
    """The training loss of a trial's last epoch; None where it diverged."""
    return trial.result["train_loss"][-1]


def least(losses: dict) -> float:
    """The rate with the least loss."""
    return min(losses, key=lambda lr: or_infinite(losses[lr]))


def run(lab: Lab) -> dict:
    """All trials -> the record."""
    protocol, data = lab.protocol, lab.load_data()
    plan = {net_of(each): each for each in protocol["nets"]}
    train = partial(train_net, folder=str(lab.store / "checkpoints"))
    tried = {(net, lr): make_config(protocol, plan[net], lr, plan[net]["seeds"][0])
             for net in plan if net.part == "depth"
             for lr in protocol["lrs"][net.block]}
    losses: dict[Net, dict] = {}
    for (net, lr), trial in lab.trials(train, tried, data).items():
        losses.setdefault(net, {})[lr] = last_loss(trial)
    best = {(net.block, net.depth): least(found) for net, found in losses.items()}
    trials = lab.trials(train, {
        (net, seed): make_config(protocol, each, best[net.block, net.depth], seed)
        for net, each in plan.items() for seed in each["seeds"]}, data)
    maps = [{"width": net.width, "seed": seed, **kept}
            for (net, seed), trial in trials.items()
            for kept in trial.result.get("maps", [])]
    return {"nets": [describe_net(each, [trials[net, seed] for seed in each["seeds"]],
                                  losses.get(net, {})) for net, each in plan.items()],
            "paper": TABLE_1, "maps": maps}


# --------------------------------------------------------------------------------------
# The record


def statistics(values: list) -> dict:
    """Mean, standard deviation, number and largest of the values that are not None."""
    return mean_and_std(values) | {"best": max(
        (value for value in values if value is not None), default=None)}


def describe_net(net: dict, trials: list[Trial], losses: dict) -> dict:
    """The record's part of one net of the plan, with the trials of its seeds; test
    accuracies at the end in %. losses: of the rates that it tried, {lr: last training
    loss}."""
    results = [trial.result for trial in trials]
    percent = [None if result["test_acc"][-1] is None else
               hn.significant(100 * result["test_acc"][-1]) for result in results]
    T = [result["T"] for result in results if "T" in result]
    return {
        **{name: net[name] for name in ("part", "block", "depth", "width", "epochs",
                                        "seeds")},
        "gate_bias": GUIDELINE[net["depth"]] if net["block"] == "highway" else None,
        "stages": STAGES[net["depth"]], "parameters": results[0]["parameters"],
        "lr": trials[0].config["lr"], "search": {
            "lr": list(losses), "final_train_loss": list(losses.values())},
        "status": [result["status"] for result in results],
        "final_test_percent": percent, **statistics(percent),
        "final_train_loss": [result["train_loss"][-1] for result in results],
        "train_loss": [result["train_loss"] for result in results],
        "test_acc": [result["test_acc"] for result in results],
        "T": {name: listed(np.mean([t[name] for t in T], axis=0))
              for name in ("all", "ink", "blank")} if T else None}


def trials_of(nets: list[dict]) -> list[dict]:
    """What the trials behind nets have in common, net by net."""
    return [{name: net[name] for name in ("block", "depth", "lr", "epochs")}
            for net in nets]


def check_claims(record: dict) -> list[dict]:
    """The paper's statements with our numbers and whether they hold. How good the nets
    of Table 1 get, `table_1` asks, with settings made for its epochs."""
    table = {net["width"]: net for net in record["nets"]
             if net["part"] == "table" and net["block"] == "highway"}
    depths = [net for net in record["nets"] if net["part"] == "depth"]
    counts = [table[width]["parameters"] for width in TABLE_1]
    train, harder = check_depths(depths)
    return [*resting_on([claim(
        section="P1 3.2", text="these nets have 39 K and 151 K parameters, to 1 K",
        paper=[39_000, 151_000], ours=counts,
        holds=np.allclose(counts, [39_000, 151_000], rtol=0, atol=1000), n=None)],
        {"block": "highway", "epochs": table[16]["epochs"]}),
        *resting_on([train], *trials_of(
            [net for net in depths if net["block"] == "highway"])),
        *resting_on([harder], *trials_of(depths))]


def growth(losses: dict) -> np.ndarray:
    """By depth, final losses of the seeds -> for each seed how many times it grows from
    the least depth to the largest; NaN where nothing can be said."""
    first, last = (or_infinite(losses[depth]) for depth in (min(losses), max(losses)))
    return last / np.where(np.isinf(first), np.nan, first)


def steeper(plain: np.ndarray, highway: np.ndarray, times: float = 2) -> bool | None:
    """Whether for each seed one growth is more than so many times another, or for none;
    None where the seeds do not agree and where nothing can be said."""
    unknown = (np.isnan(plain) | np.isnan(highway)
               | (np.isinf(plain) & np.isinf(highway)))
    found = {bool(verdict) for verdict in plain > times * highway}
    return found.pop() if len(found) == 1 and not unknown.any() else None


def check_depths(nets: list[dict]) -> list[dict]:
    """The statements about depth."""
    loss = {block: {net["depth"]: net["final_train_loss"] for net in nets
                    if net["block"] == block} for block in ("highway", "plain")}
    accuracy = {net["depth"]: net["final_test_percent"] for net in nets
                if net["block"] == "highway"}

    def labelled(values):
        return {f"{depth} layers": values[depth] for depth in sorted(values)}
    times = {block: growth(losses) for block, losses in loss.items()}

    def learnt(stalled):
        return all(value is not None and value >= 100 * stalled
                   for values in accuracy.values() for value in values)
    n = max(map(len, accuracy.values()))
    return [
        claim(section="P1 2.2", text="convolutional highway nets of 10, 20, 30 layers "
              "train with b_T of -1, -2, -3: test accuracy in %, of each run at least "
              f"{100 * STALLED:g}", paper="a general guideline",
              ours=labelled(accuracy), holds=learnt(STALLED), n=n,
              also={"95": learnt(0.95), "80": learnt(0.8)}),
        claim(section="ours", text="depth makes plain convolutional nets much harder "
              "to train than highway nets: each with the best of its learning rates, "
              "from the least depth to the largest, their last training loss grows by "
              "more than twice the factor, with every seed", paper=None,
              ours={block: labelled(losses) | {"growth": listed(times[block])}
                    for block, losses in loss.items()},
              holds=steeper(times["plain"], times["highway"]), n=n, also={
                  f"{limit:g} times": steeper(times["plain"], times["highway"], limit)
                  for limit in (1.5, 3)})]


# --------------------------------------------------------------------------------------
# The figure


MARKS = "os^D"      # by depth


def shade(net: dict) -> tuple:
    """By kind, the wider the darker."""
    narrow = net["width"] == min(TABLE_1)
    return pale(getattr(LIGHT, net["block"]), 0.5 if narrow else 1)


def label_of(net: dict) -> str:
    """Kind, width and learning rate."""
    return f"{net['block']}, width {net['width']}, rate {net['lr']:g}"


def median_and_range(values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Values (seeds, epochs), NaN where a run diverged -> three rows over epochs."""
    values = or_infinite(values)
    return np.median(values, axis=0), values.min(axis=0), values.max(axis=0)


def draw_curves(axes: Axes, nets: list[dict]) -> None:
    """Test error, median and range over the seeds, epoch by epoch."""
    for net in nets:
        errors = 100 - 100 * np.array(net["test_acc"], float)
        median, low, high = median_and_range(errors)
        epochs = np.arange(1, net["epochs"] + 1)
        axes.plot(epochs, median, color=shade(net), linewidth=1.5,
                  linestyle=DASHES[net["block"]], markersize=4, label=label_of(net),
                  marker="o" if net["width"] == min(TABLE_1) else "s")
        axes.fill_between(epochs, low, high, color=shade(net), alpha=0.15, linewidth=0)
    for third in (1, 2):
        axes.axvline(math.ceil(third * nets[0]["epochs"] / 3) + 0.5, color=LIGHT.soft,
                     linewidth=0.8, linestyle=":")
    axes.set(yscale="log", xlabel="epoch (dotted: learning rate x 0.1)",
             ylabel="test error, %", title="10 layers: test error\n(median and range "
             "of the seeds)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    format_log(axes.yaxis)
    axes.legend(edgecolor="none", framealpha=1, fontsize=7.5)


def draw_rates(axes: Axes, nets: list[dict]) -> None:
    """Of each kind and depth the last training loss by learning rate, and that of the
    other seeds at the one that was chosen."""
    for net in nets:
        colour = pale(getattr(LIGHT, net["block"]),
                      0.3 + 0.7 * net["depth"] / max(STAGES))
        losses = np.array(net["search"]["final_train_loss"], float)
        marker = MARKS[sorted(STAGES).index(net["depth"]) % len(MARKS)]
        axes.plot(net["search"]["lr"], losses, marker, color=colour, markersize=4.5,
                  linestyle=DASHES[net["block"]], linewidth=1.5,
                  label=f"{net['block']} {net['depth']}")
        others = np.array(net["final_train_loss"][1:], float)
        axes.plot([net["lr"]] * len(others), others, marker, color=colour, markersize=7,
                  fillstyle="none")
    axes.set(xscale="log", yscale="log", xlabel="first learning rate (hollow: another "
             "seed at the chosen one)", ylabel="last mean cross-entropy",
             title=f"Width {nets[0]['width']}, {nets[0]['epochs']} epochs:\ntraining "
                   "loss by depth and learning rate")
    axes.set_xticks(max((net["search"]["lr"] for net in nets), key=len))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    format_log(axes.yaxis)
    axes.legend(frameon=False, fontsize=7.5, title="layers", loc="lower left",
                title_fontsize=7.5)


def draw_table(axes: Axes, nets: list[dict], paper: dict) -> None:
    """Final test accuracy of every run, ours and the paper's mean and deviation."""
    for at, net in enumerate(nets):
        runs = [value for value in net["final_test_percent"] if value is not None]
        axes.plot([at - 0.16] * len(runs), runs, "o", markersize=4, markeredgewidth=0,
                  color=shade(net))
        if net["std"] is not None:
            axes.errorbar(at, net["mean"], net["std"], color=LIGHT.ink, fmt="_",
                          capsize=3, linewidth=1.2)
        if net["block"] == "highway":
            theirs = paper[str(net["width"])]
            axes.errorbar(at + 0.16, theirs["mean"], theirs["std"], color=LIGHT.soft,
                          fmt="D", markersize=4, capsize=3, linewidth=1.2)
    axes.set_xticks(range(len(nets)), [
        f"{net['block']}\nwidth {net['width']}\n{net['parameters']:,}\n"
        f"rate {net['lr']:g}" for net in nets])
    axes.tick_params(axis="x", labelsize=8)
    axes.set(xlim=(-0.5, len(nets) - 0.5), ylabel="test accuracy, %",
             title=f"Table 1: runs, mean and deviation, {nets[0]['epochs']} epochs\n"
                   f"(diamonds: the paper's, {TABLE_1_EPOCHS} epochs, rate 0.01)")


def draw_gates(axes: Axes, net: dict) -> None:
    """Mean T of each layer on ink, on blank paper and on all cells."""
    layers = np.arange(1, len(net["T"]["all"]) + 1)
    for name, colour, label in (("ink", LIGHT.ink, "on ink"),
                                ("all", LIGHT.highway, "everywhere"),
                                ("blank", LIGHT.soft, "on blank paper")):
        axes.plot(layers, net["T"][name], "o-", color=colour, linewidth=1.4,
                  markersize=4, label=label)
    axes.axhline(0.5 + 0.5 * math.tanh(net["gate_bias"] / 2), color=LIGHT.soft,
                 linewidth=0.8, linestyle=":", label="sigmoid($b_T$) at the start")
    for pooled in np.cumsum(net["stages"])[:2]:
        axes.axvline(pooled + 0.5, color=LIGHT.grid, linewidth=1)
    axes.set(xlabel="highway layer (at the lines: max pooling)", ylabel="mean T",
             ylim=(0, None), title=f"Gates after training, width {net['width']}\n"
                                   f"(test images, mean of {net['n']} seeds)")
    axes.legend(edgecolor="none", framealpha=1, fontsize=7.5)


def draw_maps(figure: SubFigure, maps: list[dict]) -> None:
    """The first test images and T of each highway layer, averaged over its channels."""
    names = [name for name in maps[0] if name.startswith("T")]
    every = np.concatenate([np.ravel(each[name]) for each in maps for name in names])
    panels = figure.subplots(len(maps), 1 + len(names), squeeze=False)
    for row, each in zip(panels, maps, strict=True):
        row[0].imshow(each["image"], cmap="gray_r")
        for axes, name in zip(row[1:], names, strict=True):
            shown = axes.imshow(each[name], cmap="viridis", vmin=every.min(),
                                vmax=every.max())
    for axes, name in zip(panels[0], ["image", *names], strict=True):
        axes.set_title(name.replace("T", "layer "), fontsize=8.5)
    for axes in panels.ravel():
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    figure.colorbar(shown, ax=panels, fraction=0.02, pad=0.01, label="T")
    figure.suptitle(f"T of the net of width {maps[0]['width']}, seed "
                    f"{maps[0]['seed']}: mean over channels, first test images",
                    fontsize=10)


def message(depths: list[dict]) -> str:
    """What depth does to both kinds, in a line: medians of the deepest nets."""
    deepest = max(net["depth"] for net in depths)
    loss = {net["block"]: np.median(or_infinite(net["final_train_loss"]))
            for net in depths if net["depth"] == deepest}
    n = len(depths[0]["seeds"])
    return (f"{deepest} layers end at a training loss of {loss['highway']:.2g} with "
            f"gates, {loss['plain']:.2g} without (medians, n = {n})")


def draw(record: dict) -> Figure:
    """The record -> the figure: curves, Table 1, rates, gates, and maps of T."""
    table, depths = (
        sorted((net for net in record["nets"] if net["part"] == part),
               key=lambda net: (net["depth"], net["block"], net["width"]))
        for part in ("table", "depth"))
    figure = Figure(figsize=(9, 10.8), layout="constrained")
    upper, lower = figure.subfigures(
        2, 1, squeeze=False, height_ratios=(7, 0.3 + len(record["maps"]))).flat
    panels = upper.subplots(2, 2)
    draw_curves(panels[0, 0], table)
    draw_table(panels[0, 1], table, record["paper"])
    draw_rates(panels[1, 0], depths)
    if record["maps"]:      # else the net that keeps them diverged
        mapped = record["maps"][0]["width"]
        draw_gates(panels[1, 1], next(net for net in table if net["T"]
                                      and net["width"] == mapped))
        draw_maps(lower, record["maps"])
    for axes in panels.ravel():
        axes.title.set_fontsize(10)
    upper.suptitle(message(depths), **TITLE)
    return figure


EXPERIMENT = Experiment(
    name="experiments.convolution", doc=__doc__, minutes=225, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw, check=check_claims, pack_by=lambda config:
    f"{config['block']}_{config['depth']}_width_{config['width']}")

if __name__ == "__main__":
    main(EXPERIMENT)
