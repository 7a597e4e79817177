"""Do plain nets fail because of depth, or because of initialisation and rate?

The README's command trains a highway net and a plain net of 30 blocks at one learning
rate, and the plain net guesses. Its settings are those of an earlier reproduction. P1
(section 3.1) gives each kind of net the best of many settings before it compares them,
and so do we; results/headline/README.md has the protocol.

These rules were fixed before the best settings were trained: a net trains if the median
of its seeds' test errors is below 20 %, and one kind is ahead of another if every one
of its seeds is. Orthogonal weights were added when the best settings of the three other
rules were known, because a reader found that plain nets train with them. When all this
was known, the best settings of three kinds were trained for five times as many epochs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, median
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, Trial, main, trial_function
from experiments.lab.experiment import for_figures
from experiments.lab.judging import (
    agreed,
    ahead,
    every,
    listed,
    mean_and_std,
    next_beyond,
    or_infinite,
    or_zero,
)

with for_figures():
    from matplotlib.figure import Figure

    from experiments.lab import drawing
    from highway_suite.figures import TINTS, fit_depths, label_right

    # kind: its label and line in the figure
    SHOWN: dict[str, tuple[str, dict]] = {
        "scaled residual": ("▲ scaled\nresidual", {"marker": "^"}),
        "plain": ("plain, best\nweights", {}),
        "highway": ("○ highway,\n$b_T$\xa0=\xa0−2", {
            "marker": "o", "markerfacecolor": TINTS.paper,
            "linestyle": drawing.DASHED}),
        "highway, auto": ("■ highway, at\nfirst T = 1/blocks", {"marker": "s"})}

KINDS = {       # name: block, b_T
    "plain": ("plain", -2.0), "residual": ("residual", -2.0),
    "scaled residual": ("scaled_residual", -2.0), "highway": ("highway", -2.0),
    "highway, auto": ("highway", "auto")}
CONFIG = {"hidden": 50, "activation": "tanh", "epochs": 12, "batch": 128,
          "optimizer": "adam", "lr_decay": 1.0, "momentum": 0.9, "clip": 5.0,
          "n_train": 6000, "n_test": 2000, "dtype": "float32"}
PLAN: dict[str, Any] = {
    "dataset": "mnist", "config": CONFIG, "seeds": [0, 1, 2, 3, 4],
    "sweep": {"kinds": ["highway", "plain"], "init": "uniform", "lr": 5e-3,
              "depths": [5, 10, 20, 30, 50]},
    "many": {"depths": [5, 50], "seeds": list(range(45))},
    "best": {"kinds": [*KINDS], "depths": [5, 10, 20, 30, 50, 100],
             "inits": [*hn.INITS], "lrs": [1e-4, 3e-4, 1e-3, 5e-3],
             "beyond": [1e-5, 3e-5, 5e-3, 2e-2],
             "deepest": {"depths": [300], "inits": ["glorot", "orthogonal"],
                         "lrs": [1e-4, 3e-4, 1e-3]}},
    # Of each kind, up to so many blocks.
    "longer": {"kinds": {"plain": 300, "scaled residual": 100, "highway, auto": 100},
               "epochs": 60}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "config": CONFIG | {"epochs": 2, "n_train": 400, "hidden": 16,
                                             "n_test": 200}, "seeds": [0, 1, 2],
    "sweep": PLAN["sweep"] | {"depths": [2, 20, 30]},
    "many": {"depths": [2, 30], "seeds": [0, 1, 2]},
    "best": PLAN["best"] | {"depths": [2, 20], "inits": ["glorot"], "lrs": [1e-3, 5e-3],
                            "deepest": {"depths": [30], "inits": ["glorot"],
                                        "lrs": [1e-3]}},
    "longer": PLAN["longer"] | {"epochs": 3}}
FAILS = 20.0            # % of test error from which on a net has not trained


class Net(NamedTuple):
    """One kind at one depth with one setting."""

    kind: str
    depth: int          # blocks
    init: str
    lr: float


@trial_function("headline.train")
def train_net(config: dict, data: hn.Data) -> dict:
    """One trial: its status, and per epoch training loss and test accuracy; the mean T
    of every block after the last epoch, where there are gates."""
    settings = hn.Config(**config)
    data = hn.scale_pixels(hn.take_subset(data, settings))
    net = hn.make_net(settings, data)
    history, layer_T, status = hn.train(net, data, settings)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "test_acc": history["test_acc"],
            "T": layer_T[-1].tolist() if status == "ok" else []}


def make_config(plan: dict, net: Net) -> dict:
    """The trial of a net, for hn.Config; it lacks the seed."""
    block, gate_bias = KINDS[net.kind]
    return plan["config"] | {"block": block, "gate_bias": gate_bias, "init": net.init,
                             "depth": net.depth, "lr": net.lr}


def train_all(lab: Lab, nets: Iterable[Net], seeds: list[int], **own: Any
              ) -> dict[Net, list[Trial]]:
    """{net: the trials of its seeds}; own: fields of hn.Config."""
    return lab.by_seed(train_net, {net: make_config(lab.plan, net) | own
                                   for net in nets}, seeds)


def row_of(net: Net, trials: list[Trial]) -> dict:
    """A net's row: the last values of its seeds, None where one diverged."""
    accuracy = [trial.result["test_acc"][-1] for trial in trials]
    return net._asdict() | {
        "test_acc": accuracy, **mean_and_std(accuracy),
        "train_loss": [trial.result["train_loss"][-1] for trial in trials],
        "trials": [trial.hash for trial in trials]}


def thirds(T: list[float]) -> list[float]:
    """The mean T of the first and of the last third of the blocks."""
    count = len(T) // 3
    return [hn.significant(fmean(part)) for part in (T[:count], T[-count:])]


def train_best(lab: Lab) -> list[dict]:
    """Try every setting of every kind and depth -> a row for the best one of each, with
    all that was tried. The best has the least median of its last losses; of equal ones,
    the lowest rate. Where this is the lowest or the highest that was tried with its
    initialisation, the next one beyond is tried, too."""
    best = lab.plan["best"]
    nets = [Net(kind, depth, init, lr) for grid in (best, best["deepest"])
            for depth in grid["depths"] for kind in best["kinds"]
            for init in grid["inits"] for lr in grid["lrs"]]
    found: dict[Net, list[Trial]] = {}
    while nets:
        found |= train_all(lab, nets, lab.plan["seeds"])
        groups: dict[tuple, dict[Net, float]] = {}
        for net, trials in found.items():
            last = or_infinite([trial.result["train_loss"][-1] for trial in trials])
            groups.setdefault((net.kind, net.depth), {})[net] = float(np.median(last))
        chosen = [min(losses, key=lambda net: (losses[net], net.lr))
                  for losses in groups.values()]
        nets = [net._replace(lr=lr) for net in chosen for lr in next_beyond(
            [other.lr for other in found if other._replace(lr=net.lr) == net], net.lr,
            best["beyond"])]
    return [row_of(net, found[net]) | {"tried": [
        {"init": other.init, "lr": other.lr, "train_loss": listed(loss),
         "error": listed(error_of(row_of(other, found[other]))),
         "trials": [trial.hash for trial in found[other]]}
        for other, loss in groups[net.kind, net.depth].items()]} for net in chosen]


def error_of(row: dict) -> float:
    """The median of the seeds' test errors in %; 100 where one diverged."""
    return 100 - 100 * median(or_zero(row["test_acc"]))


def run(lab: Lab) -> dict:
    """The sweep and the best settings -> the record."""
    plan, sweep, many = lab.plan, lab.plan["sweep"], lab.plan["many"]

    def net(kind, depth):
        return Net(kind, depth, sweep["init"], sweep["lr"])
    trained = train_all(lab, [net(kind, depth) for kind in sweep["kinds"]
                              for depth in sweep["depths"]], plan["seeds"])
    deep = train_all(lab, [net("highway", depth) for depth in many["depths"]],
                     many["seeds"])
    best = train_best(lab)
    kinds, epochs = plan["longer"]["kinds"], plan["longer"]["epochs"]
    longer = train_all(lab, [Net(*(row[name] for name in Net._fields)) for row in best
                             if row["depth"] <= kinds.get(row["kind"], 0)],
                       plan["seeds"], epochs=epochs)
    return {"sweep": [row_of(*item) for item in trained.items()],
            "T_thirds": [thirds(trial.result["T"])
                         for trial in trained[net("highway", 30)]],
            "many": [row_of(*item) for item in deep.items()], "best": best,
            "longer": [row_of(*item) for item in longer.items()]}


# --------------------------------------------------------------------------------------
# The figure


def draw_best(record: dict) -> Figure:
    """Every kind at its best setting: median and range of the seeds, by depth."""
    depths = sorted({row["depth"] for row in record["best"]})
    nets = {kind: [row for row in record["best"] if row["kind"] == kind]
            for kind in record["plan"]["best"]["kinds"]}
    glorot = [min((item for item in row["tried"] if item["init"] == "glorot"),
                  key=lambda item: item["train_loss"] or math.inf)["error"]
              for row in nets["plain"]]
    best = {kind: f"{error_of(rows[-1]):.0f}\xa0%" for kind, rows in nets.items()}
    figure, axes = drawing.sheet(
        f"At {depths[-1]} blocks the best plain nets misread {best['plain']} of the "
        f"digits, highway nets {best['highway, auto']}, scaled residual nets "
        f"{best['scaled residual']}",
        f"{drawing.data_of(record['plan'])}: median and range of "
        f"{len(record['plan']['seeds'])} seeds (Glorot: median), at "
        "the best settings; a highway block has twice the parameters of a plain one",
        height=4.2)
    labels = [(90, "chance", TINTS.soft)]
    for kind, (label, line) in SHOWN.items():
        seeds = 100 - 100 * np.array([or_zero(row["test_acc"]) for row in nets[kind]]).T
        colour = drawing.colour_of(kind.split(",")[0].removeprefix("scaled "))
        drawing.draw_band(axes, depths, seeds, colour, **line)
        labels.append((median(seeds[:, -1]), label, colour))
    axes.plot(depths, glorot, color=drawing.colour_of("plain"), linestyle=":")
    labels.append((glorot[-1], "plain,\nGlorot's weights", drawing.colour_of("plain")))
    drawing.draw_level(axes, 90)
    fit_depths(axes, depths)
    drawing.log_y(axes, "test error, %")
    label_right(axes, labels)
    return figure


# --------------------------------------------------------------------------------------
# Claims


def flat(ends: list[dict], points: float) -> bool | None:
    """Whether the second of two rows has a mean test accuracy less than so many points
    below the first's; None within two standard errors of that."""
    if any(row["mean"] is None or row["std"] is None for row in ends):
        return None
    difference = ends[0]["mean"] - ends[1]["mean"] - points / 100
    error = math.hypot(*(row["std"] / math.sqrt(row["n"]) for row in ends))
    return difference <= 0 if abs(difference) > 2 * error else None


def accuracies(rows: Iterable[dict]) -> dict[str, str]:
    """Mean and standard deviation of rows, by depth."""
    return {f"{row['depth']} blocks": f"{row['mean']:.3f} ± {row['std']:.3f}"
            for row in rows}


def claims_of_reproduction(record: dict) -> list[Claim]:
    """What the earlier reproduction says: plain nets fail, depth costs highway nets
    nothing, lower layers have higher T."""
    deep = [row for row in record["sweep"]
            if row["kind"] == "plain" and row["depth"] >= 20]
    (opened,) = (row for row in record["sweep"]
                 if (row["kind"], row["depth"]) == ("highway", 30))
    ends, thirds, n = record["many"], record["T_thirds"], len(record["plan"]["seeds"])
    return [
        Claim(name="sweep-plain-guess", source="reproduction", text="plain nets of 20 "
              "and more blocks fail completely: their mean test accuracy is below 0.2",
              paper="at chance", ours=accuracies(deep), rows=deep, n=n, limit=0.2,
              test=lambda accuracy: all(row["mean"] < accuracy for row in deep),
              after_data=True),
        Claim(name="depth-free", source="reproduction", text="depth costs highway nets "
              f"nothing: with {ends[1]['depth']} blocks they lose less than two points "
              f"of mean test accuracy against {ends[0]['depth']} blocks (with more "
              "seeds than the table)", paper="essentially flat", limit=2.0,
              ours=accuracies(ends), rows=ends, n=ends[0]["n"],
              why="the difference is within two standard errors of the limit",
              test=lambda points: flat(ends, points)),
        Claim(name="lower-layers-open", source="reproduction", text="the lower layers "
              "have the higher T: in every seed, the mean T of the first third of the "
              "blocks, divided by that of the last third, is above 1",
              paper="lower layers develop higher T",
              ours={"first third": [first for first, _ in thirds],
                    "last third": [last for _, last in thirds]},
              rows=[opened], n=len(thirds), limit=1.0, after_data=True,
              test=lambda times: agreed(first > times * last
                                        for first, last in thirds))]


def nets(kind: str) -> str:
    """A kind of net in words."""
    return f"{kind} nets".replace(", auto nets", " nets with b_T = logit(1/L)")


def claims_on_best(record: dict) -> list[Claim]:
    """Which nets train, and which are ahead, at their best settings."""
    rows = {(row["kind"], row["depth"]): row for row in record["best"]}
    depths, n = record["plan"]["best"]["depths"], len(record["plan"]["seeds"])

    def trains(name, kind):
        row = rows[kind, deepest]
        return Claim(name=name, text=f"with {deepest} blocks, {nets(kind)} train at "
                     "their best setting: their median test error, in %, is below 20. "
                     "Ours are the test accuracies", rows=[row], n=n, limit=FAILS,
                     ours=row["test_acc"], test=lambda limit: error_of(row) < limit)

    def leads(name, kind, other):
        pairs = [(rows[kind, depth], rows[other, depth]) for depth in depths]
        return Claim(name=name, text=f"{nets(kind)} are ahead of {other} "
                     "nets by test accuracy, each at its best setting, at every depth "
                     f"from {depths[0]} to {depths[-1]} blocks. Ours are medians", n=n,
                     ours={f"{one['depth']} blocks": {
                         nets(name): round(median(row["test_acc"]), 4)
                         for name, row in ((kind, one), (other, two))}
                         for one, two in pairs},
                     rows=[row for pair in pairs for row in pair],
                     test=lambda: every(ahead(one["test_acc"], two["test_acc"])
                                        for one, two in pairs))
    deepest = record["plan"]["best"]["deepest"]["depths"][-1]
    return [
        trains("best-plain-300", "plain"), trains("best-auto", "highway, auto"),
        leads("best-auto-plain", "highway, auto", "plain"),
        leads("best-auto-scaled", "highway, auto", "scaled residual")]


def claims_at_end(record: dict) -> list[Claim]:
    """What a gate, and what carrying, buys at the largest depth that tries all
    settings."""
    depth, n = record["plan"]["best"]["depths"][-1], len(record["plan"]["seeds"])
    plain, scaled, gated = (next(
        row for row in record["best"] if (row["kind"], row["depth"]) == (kind, depth))
        for kind in ("plain", "scaled residual", "highway, auto"))

    def about(name, *both):
        return {"rows": both, "n": n, "after_data": True, "ours": {
            nets(row["kind"]): row[name] for row in both}}
    return [
        Claim(name="no-gate-100", text=f"nets of {depth} blocks need no gate: at their "
              "best settings, the worst seed of scaled residual nets is at most one "
              "point of test accuracy below the best seed of highway nets with b_T = "
              "logit(1/L)", limit=1, test=lambda points: 100 * (
                  max(or_zero(gated["test_acc"])) - min(or_zero(scaled["test_acc"]))
              ) <= points, **about("test_acc", scaled, gated)),
        Claim(name="carry-fits-100", text=f"with {depth} blocks, scaled residual nets "
              "and highway nets with b_T = logit(1/L) fit their training images better "
              "than plain nets, at their best settings: the training loss of each "
              "plain net is more than twice that of each of these", limit=2,
              test=lambda times: bool(
                  min(or_infinite(plain["train_loss"])) > times * max(
                      max(or_infinite(row["train_loss"])) for row in (scaled, gated))),
              **about("train_loss", plain, scaled, gated))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [*claims_of_reproduction(record), *claims_on_best(record),
            *claims_at_end(record)]


EXPERIMENT = Experiment(
    name="headline", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw_best})

if __name__ == "__main__":
    main("headline")
