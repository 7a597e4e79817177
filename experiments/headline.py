"""Do plain nets fail because of depth, or because of initialisation and rate?

The claim. The README's command trains a highway net and a plain net of 30 blocks at one
learning rate, and the plain net guesses. The command keeps the settings of an earlier
reproduction. That reproduction says: plain nets fail completely from 21 layers on,
depth costs highway nets nothing, and the lower layers have the higher T. P1 (section
3.1) gives each kind of net the best of many settings before it compares them.

The protocol. 784 pixels -> projection -> L blocks of 50 units, tanh -> softmax of 10.
The seed draws 6000 training and 2000 test images. The nets train for 12 epochs of Adam
with batches of 128 and gradients clipped at norm 5. All nets of a seed share the images
and the order of the batches.

One setting: that of the command, with rate 5e-3 and b_T = -2, from U(+-1/sqrt(fan_in))
and from Glorot's rule, with five seeds. Highway nets of the least and of the largest
depth have 45 seeds.

Best settings: each kind of net tries every initialisation with every learning rate at
each depth, with five seeds each. The setting with the lowest median of the seeds' last
training losses counts. If it lies at the lowest or at the highest rate, the next rate
beyond is tried, until it does not. Nets of 300 blocks try Glorot's rule with three
rates. Test images choose nothing.

The kinds: plain; residual, y = x + H; scaled residual, y = x + H / sqrt(L), which keeps
the variance of the sum of L blocks; highway with b_T = -2 and with b_T = logit(1 / L).

How it is judged. These rules were fixed before the best settings were trained: a net
trains if the median of its seeds' test errors is below 20 %, and one kind is ahead of
another if the exact rank test over the seeds says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import contextmanager
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, Trial, main, trial_function
from experiments.lab.drawing import GREY, colour_of, title_of
from experiments.lab.judging import (
    agreed,
    ahead,
    every,
    listed,
    mean_and_std,
    or_infinite,
)
from highway_suite.figures import TITLE

KINDS = {       # name: block, b_T
    "plain": ("plain", -2.0), "residual": ("residual", -2.0),
    "scaled residual": ("scaled_residual", -2.0), "highway": ("highway", -2.0),
    "highway, auto": ("highway", "auto")}
CONFIG = {"hidden": 50, "activation": "tanh", "epochs": 12, "batch": 128,
          "optimizer": "adam", "lr_decay": 1.0, "momentum": 0.9, "clip": 5.0,
          "n_train": 6000, "n_test": 2000, "dtype": "float32"}
PLAN: dict[str, Any] = {
    "dataset": "mnist", "config": CONFIG, "seeds": [0, 1, 2, 3, 4],
    "sweeps": {"kinds": ["highway", "plain"], "inits": ["uniform", "glorot"],
               "lr": 5e-3, "depths": [5, 10, 20, 30, 50]},
    "many": {"depths": [5, 50], "seeds": list(range(45))},
    "best": {"kinds": [*KINDS], "depths": [5, 10, 20, 30, 50, 100],
             "inits": ["uniform", "glorot", "he"], "lrs": [1e-4, 3e-4, 1e-3, 5e-3],
             "beyond": [1e-5, 3e-5, 2e-2],
             "deepest": {"depths": [300], "inits": ["glorot"],
                         "lrs": [1e-4, 3e-4, 1e-3]}}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "config": CONFIG | {"epochs": 2, "n_train": 400, "hidden": 16,
                                             "n_test": 200}, "seeds": [0, 1, 2],
    "sweeps": PLAN["sweeps"] | {"depths": [2, 20, 30]},
    "many": {"depths": [2, 30], "seeds": [0, 1, 2]},
    "best": PLAN["best"] | {"depths": [2, 20], "inits": ["glorot"], "lrs": [1e-3, 5e-3],
                            "deepest": {"depths": [30], "inits": ["glorot"],
                                        "lrs": [1e-3]}}}
FAILS = 20.0            # % of test error from which on a net has not trained


class Net(NamedTuple):
    """One kind at one depth with one setting."""

    kind: str
    depth: int          # blocks
    init: str
    lr: float


def scaled_residual(depth: int) -> hn.Block:
    """y = x + H / sqrt(L)."""
    scale = 1 / math.sqrt(depth)

    def forward(x, rows, y, scratch):
        """y = x + H / sqrt(L)"""
        np.multiply(rows[0], scale, out=y)
        np.add(y, x, out=y)

    def backward(d, x, rows, dH, scratch):
        """dH = dy / sqrt(L), dx = dy"""
        np.multiply(d, scale, out=dH)
    return hn.Block("", forward, backward)


@contextmanager
def added_blocks(depth: int) -> Any:
    """In the body hn.BLOCKS has the kinds of this experiment that need L."""
    hn.BLOCKS["scaled_residual"] = scaled_residual(depth)
    try:
        yield
    finally:
        del hn.BLOCKS["scaled_residual"]


@trial_function("headline.train")
def train_net(config: dict, data: hn.Data) -> dict:
    """One trial: its status, and per epoch training loss and test accuracy; the mean T
    of every block after the last epoch, where there are gates."""
    with added_blocks(config["depth"]):
        settings = hn.Config(**config)
        data = hn.scale_pixels(hn.take_subset(data, settings))
        net = hn.make_net(settings, data)
        history, layer_T, status = hn.train(net, data, settings)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "test_acc": history["test_acc"],
            "T": layer_T[-1].tolist() if status == "ok" else []}


def make_config(plan: dict, net: Net, seed: int) -> dict:
    """The trial of a net, for hn.Config."""
    block, gate_bias = KINDS[net.kind]
    return plan["config"] | {"block": block, "gate_bias": gate_bias, "init": net.init,
                             "depth": net.depth, "lr": net.lr, "seed": seed}


def train_all(lab: Lab, nets: Iterable[Net], seeds: list[int]
              ) -> dict[Net, list[Trial]]:
    """{net: the trials of its seeds}."""
    trials = lab.trials(train_net, {(net, seed): make_config(lab.plan, net, seed)
                                    for seed in seeds for net in nets})
    return {net: [trials[net, seed] for seed in seeds] for net in nets}


def row_of(net: Net, trials: list[Trial]) -> dict:
    """A net's row: the last values of its seeds, None where one diverged."""
    accuracy = [trial.result["test_acc"][-1] for trial in trials]
    return net._asdict() | {
        "test_acc": accuracy, **mean_and_std(accuracy),
        "train_loss": [trial.result["train_loss"][-1] for trial in trials],
        "trials": [trial.hash for trial in trials]}


def thirds(trials: list[Trial]) -> list[list[float]]:
    """Of each seed the mean T of the first and of the last third of the blocks."""
    found = []
    for trial in trials:
        T = trial.result["T"]
        count = len(T) // 3
        found.append([hn.significant(fmean(part)) for part in (T[:count], T[-count:])])
    return found


def final_loss(trials: list[Trial]) -> float:
    """The median of the seeds' last training losses; one that diverged is infinite."""
    return float(np.median(or_infinite([trial.result["train_loss"][-1]
                                        for trial in trials])))


def untried(found: dict[Net, list[Trial]], beyond: list[float]) -> list[Net]:
    """Nets to be tried next: where the best setting of a kind and depth has the lowest
    or the highest rate tried with its initialisation, the next one beyond."""
    nets = []
    for kind, depth in dict.fromkeys((net.kind, net.depth) for net in found):
        best = best_of(found, kind, depth)
        tried = [net.lr for net in found if net._replace(lr=best.lr) == best]
        lower = [lr for lr in beyond if lr < min(tried)][-1:]
        higher = [lr for lr in beyond if lr > max(tried)][:1]
        nets += [best._replace(lr=lr) for lr in (
            lower if best.lr == min(tried) else []) + (
            higher if best.lr == max(tried) else [])]
    return nets


def best_of(found: dict[Net, list[Trial]], kind: str, depth: int) -> Net:
    """The net of a kind and depth with the least median of its last losses; of equal
    ones that with the lowest rate."""
    own = [net for net in found if (net.kind, net.depth) == (kind, depth)]
    return min(own, key=lambda net: (final_loss(found[net]), net.lr))


def train_best(lab: Lab) -> list[dict]:
    """Every setting of every kind and depth -> a row for the best of each, with what
    else was tried."""
    best = lab.plan["best"]
    grids = [best, best["deepest"]]
    nets = [Net(kind, depth, init, lr) for grid in grids for depth in grid["depths"]
            for kind in best["kinds"] for init in grid["inits"] for lr in grid["lrs"]]
    found: dict[Net, list[Trial]] = {}
    while nets:
        found |= train_all(lab, nets, lab.plan["seeds"])
        nets = untried(found, best["beyond"])
    rows = []
    for kind, depth in dict.fromkeys((net.kind, net.depth) for net in found):
        chosen = best_of(found, kind, depth)
        tried = {net: trials for net, trials in found.items()
                 if (net.kind, net.depth) == (kind, depth)}
        rows.append(row_of(chosen, found[chosen]) | {
            "tried": [{"init": net.init, "lr": net.lr,
                       "train_loss": listed(final_loss(trials)),
                       "error": listed(error_of(row_of(net, trials)))}
                      for net, trials in tried.items()],
            "all_trials": [trial.hash for trials in tried.values()
                           for trial in trials]})
    return rows


def error_of(row: dict) -> float:
    """The median of the seeds' test errors in %; 100 where one diverged."""
    return 100 - 100 * median(value or 0 for value in row["test_acc"])


def run(lab: Lab) -> dict:
    """The sweeps and the best settings -> the record."""
    plan, sweeps, many = lab.plan, lab.plan["sweeps"], lab.plan["many"]
    nets = [Net(kind, depth, init, sweeps["lr"]) for init in sweeps["inits"]
            for kind in sweeps["kinds"] for depth in sweeps["depths"]]
    trained = train_all(lab, nets, plan["seeds"])
    rows = {net: row_of(net, trials) for net, trials in trained.items()}
    net = Net("highway", 30, "uniform", sweeps["lr"])
    rows[net]["T_thirds"] = thirds(trained[net])
    return {"sweeps": list(rows.values()), "many": [
        row_of(net, trials) for net, trials in train_all(
            lab, [Net("highway", depth, "uniform", sweeps["lr"])
                  for depth in many["depths"]], many["seeds"]).items()],
        "best": train_best(lab)}


# --------------------------------------------------------------------------------------
# The figure


def draw_over_depth(axes: Axes, rows: list[dict], **style: Any) -> None:
    """Test accuracy over depth: the median of the seeds, and their range."""
    x = [row["depth"] for row in rows]
    values = [[100 * (value or 0) for value in row["test_acc"]] for row in rows]
    axes.plot(x, [median(found) for found in values], **style)
    axes.fill_between(x, [min(found) for found in values],
                      [max(found) for found in values], color=style["color"],
                      alpha=0.15, linewidth=0)


SHOWN = {       # kind: its label and line in the figure
    "plain": ("plain", "-"), "residual": ("residual", "-"),
    "scaled residual": (r"residual, $H / \sqrt{L}$", (0, (3, 1.2))),
    "highway": ("highway, $b_T = -2$", "-"),
    "highway, auto": ("highway, $b_T = logit(1/L)$", (0, (3, 1.2)))}


def draw_best(record: dict) -> Figure:
    """Every kind at its best setting, by depth."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    depths = sorted({row["depth"] for row in record["best"]})
    trained = []
    for kind in record["plan"]["best"]["kinds"]:
        label, line = SHOWN[kind]
        rows = [row for row in record["best"] if row["kind"] == kind]
        draw_over_depth(axes, rows, marker="o", linestyle=line, label=label,
                        color=colour_of(kind.split(",")[0].removeprefix("scaled ")))
        trained += [label] * (error_of(rows[-1]) < FAILS)
    over_depths(axes, depths)
    axes.set_ylabel("test accuracy, %")
    axes.legend(handlelength=3.5, loc="lower left", bbox_to_anchor=(0, 0.18))
    figure.suptitle(f"{len(trained)} of {len(SHOWN)} kinds of nets train with "
                    f"{depths[-1]} blocks, each at its best setting", **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}; median and range of "
                     f"{len(record['plan']['seeds'])} seeds; dotted: guessing",
                     size=8.5)
    return figure


def over_depths(axes: Axes, depths: list[int]) -> None:
    """An axis of depths, and the line of guessing."""
    axes.axhline(10, color=GREY, linewidth=1, linestyle=":")
    axes.set(xscale="log", xlabel="blocks", ylim=(0, 100))
    axes.xaxis.set_major_locator(FixedLocator(depths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")


def draw_sweeps(record: dict) -> Figure:
    """Both kinds at the command's setting, by depth, from two initialisations."""
    sweeps = record["plan"]["sweeps"]
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(1, len(sweeps["inits"]), sharey=True)
    for axes, init in zip(panels, sweeps["inits"], strict=True):
        for kind in sweeps["kinds"]:
            draw_over_depth(axes, of(record["sweeps"], kind, init), marker="o",
                            color=colour_of(kind), label=kind)
        over_depths(axes, sweeps["depths"])
        axes.set_title(f"{init} weights")
    panels[0].set_ylabel("test accuracy, %")
    panels[0].legend()
    figure.suptitle(f"At one learning rate, {sweeps['lr']:g}, deep plain nets guess",
                    **TITLE)
    figure.supxlabel(f"{title_of(record['plan'])}; median and range of "
                     f"{len(record['plan']['seeds'])} seeds; dotted: guessing",
                     size=8.5)
    return figure


# --------------------------------------------------------------------------------------
# Claims


def of(rows: list[dict], kind: str, init: str) -> list[dict]:
    """The rows of a kind with an initialisation, in rising depth."""
    return [row for row in rows if (row["kind"], row["init"]) == (kind, init)]


def loses(ends: list[dict], points: float) -> bool | None:
    """Whether the second of two rows has a mean test accuracy so many points below the
    first's; None within two standard errors of that."""
    if any(row["mean"] is None or row["std"] is None for row in ends):
        return None
    difference = ends[0]["mean"] - ends[1]["mean"] - points / 100
    error = math.hypot(*(row["std"] / math.sqrt(row["n"]) for row in ends))
    return difference > 0 if abs(difference) > 2 * error else None


def accuracies(rows: Iterable[dict]) -> dict[str, str]:
    """Mean and standard deviation of rows, by depth."""
    return {f"{row['depth']} blocks": f"{row['mean']:.3f} ± {row['std']:.3f}"
            for row in rows}


def claims_on_sweeps(record: dict) -> list[Claim]:
    """What depth does at the command's setting."""
    plan, n = record["plan"], len(record["plan"]["seeds"])
    claims = []
    for init in plan["sweeps"]["inits"]:
        for kind in plan["sweeps"]["kinds"]:
            rows = of(record["sweeps"], kind, init)
            ends = [rows[0], rows[-1]]
            claims.append(Claim(
                name=f"sweep-{kind}-{init}", source="ours", text=f"{kind} nets of "
                f"{ends[1]['depth']} blocks have a mean test accuracy more than two "
                f"points below that of {ends[0]['depth']} blocks, with {init} weights "
                f"and a rate of {plan['sweeps']['lr']:g}",
                ours=accuracies(ends), rows=ends, n=n, limit=2.0, after_data=True,
                test=lambda points, ends=ends: loses(ends, points)))
    deep = [row for row in of(record["sweeps"], "plain", "uniform")
            if row["depth"] >= 20]
    return [*claims, Claim(
        name="sweep-plain-guess", source="reproduction", text="plain nets of 20 and "
        "more blocks fail completely: their mean test accuracy is below 0.2",
        paper="at chance", ours=accuracies(deep), rows=deep, n=n, limit=0.2,
        test=lambda accuracy: all(row["mean"] < accuracy for row in deep),
        after_data=True)]


def claims_on_highway(record: dict) -> list[Claim]:
    """What the earlier reproduction says of highway nets: depth costs nothing, lower
    layers have higher T."""
    ends = record["many"]

    def flat(points):
        lost = loses(ends, points)
        return None if lost is None else not lost
    row, = (row for row in record["sweeps"] if "T_thirds" in row)
    return [
        Claim(name="depth-free", source="reproduction", text="depth costs highway nets "
              f"nothing: with {ends[1]['depth']} blocks they lose less than two points "
              f"of mean test accuracy against {ends[0]['depth']} blocks",
              paper="essentially flat", limit=2.0,
              ours=accuracies(ends), rows=ends, n=ends[0]["n"], test=flat),
        Claim(name="lower-layers-open", source="reproduction", text="the lower layers "
              "have the higher T: in every seed, mean T of the first third of the "
              "blocks is above that of the last third",
              paper="lower layers develop higher T",
              ours={"first third": [first for first, _ in row["T_thirds"]],
                    "last third": [last for _, last in row["T_thirds"]]},
              rows=[row], n=len(row["T_thirds"]), limit=1.0, after_data=True,
              test=lambda times: agreed(first > times * last
                                        for first, last in row["T_thirds"]))]


def claims_on_best(record: dict) -> list[Claim]:
    """Which nets train, and which are ahead, at their best settings."""
    rows = {(row["kind"], row["depth"]): row for row in record["best"]}
    depths, n = record["plan"]["best"]["depths"], len(record["plan"]["seeds"])
    deepest = depths + record["plan"]["best"]["deepest"]["depths"]

    def trains(name, kind, at, text):
        own = [rows[kind, depth] for depth in at]
        return Claim(name=name, source="ours", text=f"{text} with their best "
                     "initialisation and rate: their median test error is below 20 %",
                     ours={f"{row['depth']} blocks": {"init": row["init"], "lr": row[
                         "lr"], "error, %": listed(error_of(row), 3)} for row in own},
                     rows=own, n=n, limit=FAILS,
                     test=lambda limit: all(error_of(row) < limit for row in own))

    def leads(name, kind, other, at):
        pairs = [(rows[kind, depth], rows[other, depth]) for depth in at]
        return Claim(name=name, source="ours", text=f"{kind} nets have a higher test "
                     f"accuracy than {other} nets of as many blocks, each with its "
                     f"best initialisation and rate, at {', '.join(map(str, at))} "
                     "blocks, by an exact rank test",
                     ours={f"{one['depth']} blocks": {kind: one["test_acc"],
                                                      other: two["test_acc"]}
                           for one, two in pairs}, n=n,
                     rows=[row for pair in pairs for row in pair],
                     test=lambda: every(ahead(one["test_acc"], two["test_acc"])
                                        for one, two in pairs))
    last = rows["plain", depths[-1]]
    middle = [depth for depth in depths if depth <= 30]
    return [
        trains("best-plain-30", "plain", middle, "plain nets of up to 30 blocks train"),
        Claim(name="best-plain-100", source="ours", text=f"plain nets of {depths[-1]} "
              "blocks train at no setting that was tried: with each of them, the "
              "median test error is 20 % or more",
              ours={f"{item['init']}, {item['lr']:g}": item["error"]
                    for item in last["tried"]}, limit=FAILS, n=n,
              rows=[{"trials": last["all_trials"]}], test=lambda limit: all(
                  item["error"] >= limit for item in last["tried"])),
        *(trains(f"best-{name}", kind, deepest, f"{kind} nets of up to {deepest[-1]} "
                 "blocks train") for name, kind in (
            ("residual", "residual"), ("scaled", "scaled residual"),
            ("highway", "highway"), ("auto", "highway, auto"))),
        *(leads(f"best-auto-{name}", "highway, auto", other, depths)
          for name, other in (("plain", "plain"), ("residual", "residual"),
                              ("scaled", "scaled residual")))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [*claims_on_sweeps(record), *claims_on_highway(record),
            *claims_on_best(record)]


EXPERIMENT = Experiment(
    name="headline", doc=__doc__, minutes=45, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw_best, "sweeps": draw_sweeps})

if __name__ == "__main__":
    main("headline")
