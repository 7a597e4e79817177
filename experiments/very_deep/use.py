"""Which of its 100, 1000 or 2000 layers does a trained highway net use?

Measured on training images, of the net and in part of the same net untrained:

    open      layers whose mean T exceeds 1 %; beside it, how many did before training,
              for b_T = -4 opens every gate to 1.8 %
    prefix    the least k for which the net with all layers after the k-th closed keeps
              its loss within 10 % of the whole net's
    moved     layers whose weights W_H and W_T changed by more than 1 % of their initial
              norm; alone it shows no use: Adam's steps hardly depend on the gradient
    kept      loss with only the m layers left open that change their input most (rms of
              y - x)
    lesions   loss with 50 neighbouring layers closed, at each place

A net uses more than 50 layers if its prefix exceeds 50 and the 50 layers that change
their input most do not keep its loss within 10 %.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

import highway_networks as hn
from experiments.lab.drawing import plain_numbers
from experiments.judging import Claim, claim, listed, resting_on
from experiments.nets.probes import loss_and_error, mean_change, mean_gates, prefix
from experiments.very_deep.nets import TRAINS, highway_config, train_highway
from highway_suite.figures import LIGHT

KEEPS = 1.1             # a net keeps its loss up to this factor
USED = 50               # the layers of which the verdict asks whether there are more
OPEN = MOVED = 0.01     # mean T and relative change of weights that count


class Net(NamedTuple):
    """A trial; depth in layers."""

    depth: int
    gate_bias: float
    seed: int


def configs(protocol: dict) -> dict[Net, dict]:
    """The trials in the order of the plan."""
    own = protocol["deep"]
    measure = {name: own[name] for name in ("measured", "lesioned", "kept")}
    return {Net(nets["depth"], bias, seed): highway_config(
        protocol, "deep", depth=nets["depth"] - 1, gate_bias=bias, lr=own["lr"],
        lr_decay=own["lr_decay"], seed=seed, epochs=nets["epochs"], measure=measure)
        for nets in own["nets"] for seed in nets["seeds"]
        for bias in nets["gate_biases"]}


# --------------------------------------------------------------------------------------
# One trial


def train(config: dict, data: hn.Data) -> dict:
    """A very deep net: status, training losses, test accuracy, and which layers it
    uses."""
    measure = config.pop("measure")
    trained = train_highway(config, data)
    if trained.result["status"] == "ok":
        few = slice(measure["measured"])
        trained.result["used"] = measure_use(
            trained.net, trained.start, trained.data.x_train[few],
            trained.data.y_train[few], measure | {"batch": config["batch"]})
    return trained.result


def thin(curve: np.ndarray, points: int = 100) -> list[float]:
    """A curve over layers -> at most so many means over neighbouring layers."""
    parts = np.array_split(curve, min(points, len(curve)))
    return listed([part.mean() for part in parts], 3)


def weight_change(net: hn.DeepNet, start: hn.DeepNet) -> np.ndarray:
    """By how much the weights W_H, W_T of each layer differ from the untrained net's,
    as a part of their initial norm (L,)."""
    now, before = (np.concatenate([views["W_H"], views["W_T"]], axis=1)
                   for views in (net.views(net.params), start.views(start.params)))
    return (np.linalg.norm(now - before, axis=(1, 2))
            / np.linalg.norm(before, axis=(1, 2)))


def measure_use(net: hn.DeepNet, start: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
                measure: dict) -> dict:
    """A trained net, the same untrained, images (N, P) -> which layers it uses, as the
    module's docstring defines it."""
    size, L = measure["batch"], net.depth
    cut, _ = prefix(net, x, labels, size)
    T_before, T = (mean_gates(each, x, size).mean(axis=1) for each in (start, net))
    change, moved = mean_change(net, x, size), weight_change(net, start)
    order = np.argsort(-change, kind="stable")
    kept = [m for m in measure["kept"] if m < L]
    places = range(0, L, measure["lesioned"])

    def loss_without(layers):
        return loss_and_error(net, x, labels, layers, size)[0]
    return {
        "layers": L, "loss": hn.significant(cut[-1]),
        "open": int((T > OPEN).sum()), "open_before": int((T_before > OPEN).sum()),
        "prefix": int(np.argmax(cut <= KEEPS * cut[-1])),
        "moved": int((moved > MOVED).sum()),
        "kept": {"layers": kept,
                 "loss": listed([loss_without(order[m:].tolist()) for m in kept], 3)},
        "closed_loss": hn.significant(cut[0]),      # all layers
        "lesions": {"first": list(places), "loss": listed([
            loss_without(range(first, min(first + measure["lesioned"], L)))
            for first in places], 3)},
        "curves": {"T": thin(T), "change": thin(np.sqrt(change)), "moved": thin(moved),
                   "cut_loss": thin(cut)}}


# --------------------------------------------------------------------------------------
# Record and claims


def describe(found: dict[Net, dict], own: dict) -> list[dict]:
    """One entry per net, in the order of the protocol."""
    return [net._asdict() | {name: result.get(name) for name in (
        "status", "train_loss", "test_acc", "used")} for net, result in found.items()]


def left_with(used: dict, layers: int) -> float | None:
    """How many times its loss a net has with only so many layers open, those that
    change their input most. None where that was not measured."""
    kept = dict(zip(used["kept"]["layers"], used["kept"]["loss"], strict=True))
    return hn.significant(kept[layers] / used["loss"]) if layers in kept else None


def uses_more(used: dict, layers: int) -> bool | None:
    """Whether a net uses more than so many layers, as the docstring defines it; None
    where that was not measured."""
    times = left_with(used, layers)
    return None if times is None else used["prefix"] > layers and times > KEEPS


def best_bias(nets: list[dict], depth: int) -> list[dict]:
    """The trained nets of a depth with the b_T of the lowest mean training loss; those
    of which a seed diverged do not count."""
    groups: dict[float, list] = {}
    for net in nets:
        if net["depth"] == depth:
            groups.setdefault(net["gate_bias"], []).append(net)
    good = [group for group in groups.values()
            if all(net["status"] == "ok" for net in group)]
    return min(good, default=[], key=lambda group: np.mean(
        [net["train_loss"][-1] for net in group]))


def by_bias(nets: list[dict], depth: int, value: Callable) -> dict[str, list]:
    """{"b_T -5": [value(net) for each seed]} of the nets of a depth."""
    found: dict[str, list] = {}
    for net in nets:
        if net["depth"] == depth:
            found.setdefault(f"b_T {net['gate_bias']:g}", []).append(value(net))
    return found


def check_use(nets: list[dict]) -> dict:
    """Whether with one b_T all nets of 1000 layers use more than USED of them."""
    used = [net for net in nets if net["depth"] == 1000 and net["used"]]

    def of_seeds(layers):
        return by_bias(nets, 1000, lambda net: bool(net["used"])
                       and net["test_acc"] >= TRAINS
                       and uses_more(net["used"], layers)).values()

    def verdict(layers):
        found = [None if None in values else all(values) for values in of_seeds(layers)]
        return (True if True in found else None if None in found or not found
                else False)
    return claim(
        section="ours", text="there is a b_T with which all our nets of 1000 layers "
        f"train and use more than {USED} of them: to keep the loss within "
        f"{100 * KEEPS - 100:.0f} % takes more than their first {USED} layers "
        f"(needed), and with only the {USED} that change their input most it is more "
        f"than {KEEPS:g} times as large (times)", paper=None,
        ours={"needed": by_bias(used, 1000, lambda net: net["used"]["prefix"]),
              "times": by_bias(used, 1000, lambda net: left_with(net["used"], USED))},
        holds=verdict(USED), n=max(
            (len(values) for values in of_seeds(USED)
             if verdict(USED) is None or all(values) == verdict(USED)), default=0),
        also={f"{layers} layers": verdict(layers) for layers in (20, 2 * USED)})


def trials_of(depth: int, nets: list[dict]) -> dict:
    """What the trials of nets of a depth have in common: their b_T, if it is told."""
    return {"part": "deep", "depth": depth - 1} | (
        {"gate_bias": nets[0]["gate_bias"]} if nets else {})


def check(nets: list[dict]) -> list[Claim]:
    """Verdicts on 100 and 1000 layers. None where the run has no such net."""
    claims: list[Claim] = []
    for depth, target in (1000, 0.95), (100, 0.97):
        best = best_bias(nets, depth)
        mean = np.mean([net["test_acc"] for net in best]) if best else None

        def reaches(least, mean=mean):
            return None if mean is None else mean >= least
        claims += resting_on([claim(
            section="ours", text=f"{depth} highway layers train, with Adam: with the "
            f"b_T of the lowest training loss, {100 * target:g} % test accuracy",
            paper=None,
            ours=by_bias(nets, depth, lambda net: net["test_acc"]),
            holds=reaches(target), n=len(best), also={
                f"{100 * least:g} %": reaches(least)
                for least in (target - (1 - target), target + (1 - target) / 2)})],
            trials_of(depth, best))
    return [*claims, *resting_on([check_use(nets)], trials_of(1000, [])),
            *check_carrying(nets)]


def check_carrying(nets: list[dict]) -> list[Claim]:
    """The tutorial's 1000 layers with b_T = -20: all seeds."""
    found = [net for net in nets if (net["depth"], net["gate_bias"]) == (1000, -20.0)]
    used = [net["used"] for net in found if net["used"]]
    rises = [abs(each["closed_loss"] / each["loss"] - 1) for each in used]

    def reach(target):
        return all((net["test_acc"] or 0) >= target for net in found) if found else None

    def carry(most):
        return all(rise < most for rise in rises) if used else None
    return resting_on([
        claim(section="tutorial", text="1000 layers with b_T = -20 reach about 95 % on "
              "MNIST, here with Adam 94 % or more", paper="around 95 %",
              ours=[net["test_acc"] for net in found] or None, n=len(found),
              holds=reach(0.94), also={"92 %": reach(0.92), "94.5 %": reach(0.945)}),
        claim(section="tutorial", text="of 1000 layers with b_T = -20 the last 980 "
              "only learn to carry, and here all: with all blocks closed the loss is "
              "within 0.1 % of the whole net's",
              paper="just learning to carry the last 980 layers",
              ours={name: [each[name] for each in used]
                    for name in ("loss", "closed_loss")} if used else None,
              n=len(used), holds=carry(1e-3), also={
                  "0.05 %": carry(5e-4), "0.2 %": carry(2e-3)})],
        trials_of(1000, found))


# --------------------------------------------------------------------------------------
# The figure


def shown(nets: list[dict]) -> list[dict]:
    """The nets whose use of layers is drawn: all but the shallowest ones, of the first
    seed, by depth and b_T."""
    least = min(net["depth"] for net in nets)
    there = [net for net in nets if net["used"] and net["seed"] == 0
             and net["depth"] > least]
    return sorted(there, key=lambda net: (net["depth"], net["gate_bias"]))


def look(net: dict, nets: list[dict]) -> dict:
    """Colour and mark of a net's line: by its b_T."""
    biases = sorted({other["gate_bias"] for other in nets})
    place = biases.index(net["gate_bias"])
    return {"color": colormaps["viridis"](0.9 * place / max(len(biases) - 1, 1)),
            "marker": "os^DvP"[place % 6], "markevery": 0.25, "markersize": 4}


def draw_losses(axes: Axes, nets: list[dict], lines: Callable, title: str,
                xlabel: str) -> None:
    """Losses of trained nets over layers; lines(net) -> x, y, the whole net's loss."""
    for net in nets:
        x, y, whole = lines(net)
        dashes = "-" if net["depth"] == nets[0]["depth"] else (0, (3, 1.2))
        axes.plot(x, np.array(y, float) / whole, **look(net, nets), linewidth=1.4,
                  linestyle=dashes, label=f"{net['depth']}, $b_T$ {net['gate_bias']:g}")
    axes.axhline(KEEPS, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(yscale="log", xlabel=xlabel, title=title,
             ylabel="loss / loss of the whole net")
    plain_numbers(axes.yaxis)


def cut_line(net: dict) -> tuple[np.ndarray, list, float]:
    """Layers left open from the input on, and the loss with the rest closed."""
    curve = net["used"]["curves"]["cut_loss"]
    return np.linspace(0, net["used"]["layers"], len(curve)), curve, net["used"]["loss"]


def lesion_line(net: dict) -> tuple[np.ndarray, list, float]:
    """Middles of the lesioned groups, and the loss without each."""
    first = np.array(net["used"]["lesions"]["first"] + [net["used"]["layers"]])
    return ((first[1:] + first[:-1]) / 2, net["used"]["lesions"]["loss"],
            net["used"]["loss"])


def draw_counts(axes: Axes, nets: list[dict]) -> None:
    """A row for each net: three counts of layers; its depth, b_T and test accuracy."""
    marks = (("open", "o", "layers with mean T > 1 %"),
             ("moved", "s", "layers with weights moved > 1 %"),
             ("prefix", "D", "layers needed from the input on"))
    for name, marker, label in marks:
        axes.plot([net["used"][name] for net in nets], range(len(nets)), marker,
                  label=label, markersize=5, fillstyle="none", markeredgewidth=1.6)
    axes.axvline(USED, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set_xscale("symlog", linthresh=1)
    axes.set_yticks(range(len(nets)), [
        f"{net['depth']}, {net['gate_bias']:g}: {100 * net['test_acc']:.1f} %"
        for net in nets], size=7.5)
    axes.set(xlabel="layers", ylim=(-0.6, len(nets) - 0.4),
             xlim=(-0.4, 1.6 * nets[-1]["depth"]),
             title="Layers in use, seed 0\n(depth, $b_T$: test accuracy)")
    axes.grid(axis="y")


def draw(figure: SubFigure, record: dict) -> None:
    """Three panels: prefixes, lesions, counts."""
    nets = shown(record["deep"])
    cut, lesions, counts = figure.subplots(1, 3)
    draw_losses(cut, nets, cut_line, "Layers left open from\nthe input on (seed 0)",
                "layers left open")
    draw_losses(lesions, nets, lesion_line,
                f"{record['protocol']['deep']['lesioned']} layers closed\n"
                "at a time (seed 0)",
                "middle of the closed layers")
    lesions.set_ylabel("")
    draw_counts(counts, nets)
    figure.legend(*cut.get_legend_handles_labels(), ncols=3, frameon=False, fontsize=8,
                  loc="outside lower left")
    figure.legend(*counts.get_legend_handles_labels(), frameon=False, fontsize=8,
                  loc="outside lower right")
