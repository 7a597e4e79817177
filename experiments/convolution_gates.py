"""Convolutional highway nets: is the guideline for b_T good, and must gates see 3x3?

The claims. P1, section 2.2, suggests b_T of about -1, -2 and -3 for convolutional nets
of 10, 20 and 30 layers. P2, section 5.1, on the highway nets of others that failed:
gates that are 1x1 convolutions seem to make learning unstable, so gates should be as
expressive as H, which here is 3x3.

The protocol. The nets of `convolution` of 10 and 30 layers and width 16, without batch
normalization; b_T of 0, -1, -3 and -5; gates that are 3x3 or 1x1 convolutions; and at
the guideline's b_T also gates that are one learned number for each map. All have He's
weights, a gate by what it sees. Learning rates 0.025, 0.05, 0.1 and 0.2, three seeds of
each: 12 runs of each net. 4000 training images, which the seed draws, in 3 epochs of
batches of 25 in an order drawn anew; the rate falls to a tenth after each; Nesterov's
momentum 0.9, weight decay 0.001, no dropout. The question is of optimization: the mean
training loss of the last epoch decides, and no test image is looked at.

A run trains if that loss is below 0.5, else it fails; what guesses has 2.3. Learning is
less stable where more of the runs of all rates and seeds fail. Where nets are compared
by their loss, each seed has the best of its rates.

Before the plan, 13 pilots with seed 100 (143 core-seconds) looked whether losses
leave the floor: with batches of 100 they had not in three epochs. At the guideline's
b_T and rates up to 0.1 they ended from 0.09 to 0.33; at 0.2 and 0.3 a net of 10 layers
with 3x3 gates ended at 1.4 and 2.3, with 1x1 gates at 0.2 at 0.20; one of 30 layers
with 1x1 gates and b_T = 0 guessed. Losses between 0.33 and 1.4 did not come up.

The papers are silent, we assume: all but nets, b_T and kernels. Deviations: the
nets that P2 speaks of are residual, of 110 layers, with batch normalization, on
CIFAR-10.

Cost: 50 minutes on one core. Finished trials are kept.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.convolution import STAGES
from experiments.convolution_trials import fit_net
from experiments.judging import (
    agreed,
    ahead,
    claim,
    every,
    listed,
    or_infinite,
    resting_on,
)
from experiments.lab.drawing import format_log, pale, title_of
from experiments.lab.papers import GUIDELINE
from experiments.old_lab import Experiment, Lab, main
from highway_suite.figures import LIGHT, TITLE

PROTOCOL = {
    "dataset": "mnist", "width": 16, "n_train": 4000, "epochs": 3, "batch": 25,
    "piece": 25, "momentum": 0.9, "decay": 0.001, "dropout": 0, "order": "shuffled",
    "depths": [10, 30], "biases": [0.0, -1.0, -3.0, -5.0],
    "lrs": [0.025, 0.05, 0.1, 0.2], "seeds": [0, 1, 2]}
SMOKE = {"dataset": "digits", "width": 2, "n_train": 100, "epochs": 1, "batch": 50,
         "piece": 50, "biases": [0.0, -1.0, -3.0], "lrs": [0.1], "seeds": [0]}
TRAINS = 0.5            # a run trains if its last training loss is below this
GATES = {3: "3x3 gates", 1: "1x1 gates", 0: "a number for each map"}

# --------------------------------------------------------------------------------------
# The trials


class Net(NamedTuple):
    """What tells the nets of the plan apart; gate: the side of its kernel."""

    depth: int
    gate: int
    gate_bias: float


def planned(protocol: dict) -> list[Net]:
    """The nets: all b_T of gates that see something, the guideline's of all gates."""
    return [Net(depth, gate, bias) for depth in protocol["depths"] for gate in GATES
            for bias in protocol["biases"] if gate or bias == GUIDELINE[depth]]


def make_config(protocol: dict, net: Net, lr: float, seed: int) -> dict:
    """One trial."""
    shared = {name: protocol[name] for name in (
        "dataset", "width", "n_train", "epochs", "batch", "piece", "momentum", "decay",
        "dropout", "order")}
    return shared | net._asdict() | {"block": "highway", "stages": STAGES[net.depth],
                                     "lr": lr, "seed": seed}


def train(config: dict, data: hn.Data, folder: str) -> dict:
    """One trial: the mean training loss of each epoch."""
    rng = np.random.default_rng(hn.streams(config["seed"])["subset"])
    chosen = rng.permutation(len(data.x_train))[:config["n_train"]]
    found = fit_net(config, data.x_train[chosen],
                    data.y_train[chosen].astype(np.intp), folder)
    return {"status": found.status, "parameters": found.net.params.size,
            **found.columns(config, "train_loss")}


def run(lab: Lab) -> dict:
    """All trials -> the record; losses by learning rate, seed and epoch."""
    protocol, nets = lab.protocol, planned(lab.protocol)
    lrs, seeds = protocol["lrs"], protocol["seeds"]
    trials = lab.trials(
        partial(train, folder=str(lab.store / "checkpoints")),
        {(net, lr, seed): make_config(protocol, net, lr, seed)
         for net in nets for lr in lrs for seed in seeds}, lab.load_data())

    def all_of(net, name):
        return [[trials[net, lr, seed].result[name] for seed in seeds] for lr in lrs]
    return {"nets": [net._asdict() | {
        "parameters": all_of(net, "parameters")[0][0], "lrs": lrs, "seeds": seeds,
        "status": all_of(net, "status"), "train_loss": all_of(net, "train_loss")}
        for net in nets]}


# --------------------------------------------------------------------------------------
# What the numbers say


def last_losses(net: dict) -> np.ndarray:
    """(rates, seeds), infinite where a run diverged."""
    return or_infinite(net["train_loss"])[..., -1]


def best_losses(net: dict) -> np.ndarray:
    """Of each seed the least last training loss of its rates."""
    return last_losses(net).min(axis=0)


def failed(nets: list[dict], limit: float = TRAINS) -> float:
    """The share of the nets' runs that do not train."""
    return float(np.mean([last_losses(net) >= limit for net in nets]))


def largest_rate(net: dict, limit: float = TRAINS) -> float:
    """The largest rate at which every seed trains; 0 if there is none."""
    return max([lr for lr, losses in zip(net["lrs"], last_losses(net), strict=True)
                if losses.max() < limit], default=0.0)


def apart(net: dict) -> float:
    """How many times the least last loss of the seeds their largest is, at the rate
    with the least median; infinite if one diverged there."""
    losses = last_losses(net)
    chosen = losses[np.argmin(np.median(losses, axis=1))]
    return float(chosen.max() / chosen.min()) if np.isfinite(chosen).all() else np.inf


def loses_less(one: dict, other: dict) -> bool | None:
    """Whether a net's loss is below another's, each seed's below each seed's; False if
    above; None where they mingle."""
    return ahead(best_losses(other), best_losses(one))


def ordered(one: float, other: float) -> bool | None:
    """Whether one number is larger; None if they are equal."""
    return None if one == other else one > other


def name_of(net: Net) -> str:
    """For the numbers of a claim about gates as wide as H."""
    return f"{net.depth} layers, b_T {net.gate_bias:g}"


# --------------------------------------------------------------------------------------
# The claims


def check_guideline(nets: dict[Net, dict], depths: list[int]) -> list[dict]:
    """P1's guideline beside other b_T, with gates as wide as H."""
    wide = {key: net for key, net in nets.items() if key.gate == 3}
    best = {key: float(np.median(best_losses(net))) for key, net in wide.items()}
    n = len(next(iter(wide.values()))["seeds"])

    over = {depth: best[Net(depth, 3, GUIDELINE[depth])] / min(
        loss for key, loss in best.items() if key.depth == depth) for depth in depths}

    def near(times):
        return all(ratio <= times for ratio in over.values())
    ends = min(depths), max(depths)
    swap = [loses_less(*(wide[Net(depth, 3, GUIDELINE[of])] for of in (depth, other)))
            for depth, other in (ends, ends[::-1])]
    zero, ours = (wide[Net(ends[1], 3, bias)] for bias in (0.0, GUIDELINE[ends[1]]))

    def needed(share, limit=TRAINS):
        return failed([zero], limit) - failed([ours], limit) >= share
    return [
        claim(section="ours", text="in convolutional nets the b_T of P1's guideline, "
              "-1 for 10 layers and -3 for 30, is as good as any of 0, -1, -3, -5: at "
              "both depths its last training loss, the median of the seeds, each at "
              "its best rate, is at most 1.25 times the least of the four",
              paper=None, ours={f"{depth} layers, times the least": listed(ratio)
                    for depth, ratio in over.items()}
              | {f"at {name_of(key)}": listed(loss) for key, loss in best.items()},
              holds=near(1.25), n=n, also={"1.125": near(1.125), "1.5": near(1.5)}),
        claim(section="ours", text="in convolutional nets b_T of -1 ends with a "
              "lower training loss than -3 at 10 layers, and -3 with a lower one than "
              "-1 at 30: each seed against each, at its best rate",
              paper=None, ours={
                  name_of(key): listed(best_losses(wide[key]))
                  for key in (Net(depth, 3, GUIDELINE[of]) for depth in ends
                              for of in ends)},
              holds=every(swap), n=n),
        claim(section="ours", text="at 30 layers a b_T of 0 makes at least a quarter "
              "more of the runs fail (four rates, three seeds; last training loss 0.5 "
              "or more) than the guideline's", paper=None, ours={
                  name: listed(failed([net])) for name, net in (
                      ("b_T 0", zero), ("guideline", ours))},
              holds=needed(0.25), n=n, also={
                  "an eighth": needed(0.125), "a half": needed(0.5),
                  "loss 0.25": needed(0.25, 0.25), "loss 1": needed(0.25, 1.0)})]


def check_stability(nets: dict[Net, dict], depths: list[int]) -> dict:
    """P2's statement about gates that are 1x1 convolutions."""
    def all_of(depth, gate, only=None):
        return [net for key, net in nets.items() if key[:2] == (depth, gate)
                and only in (None, key.gate_bias)]

    def unstable(share=0.25, limit=TRAINS, guided=False):
        def failing(depth, gate):
            return failed(all_of(depth, gate, GUIDELINE[depth] if guided else None),
                          limit)
        return agreed(failing(depth, 1) - failing(depth, 3) >= share
                      for depth in depths)
    found = {f"{words}{depth} layers, {GATES[gate]}": listed(
        failed(all_of(depth, gate, GUIDELINE[depth] if words else None)))
        for words in ("", "at the guideline's b_T, ") for depth in depths
        for gate in (3, 1)}
    return claim(
        section="P2 5.1", text="gates that are 1x1 convolutions make learning "
        "unstable (theirs: in 110 layers with batch normalization), gates as "
        "expressive as H do not: of the runs with four b_T, four rates and three seeds "
        "at least a quarter more fail (last training loss 0.5 or more), at 10 and at "
        "30 layers", paper="He et al. 2016", ours=found,
        holds=unstable(), n=len(all_of(depths[0], 1)[0]["seeds"]), also={
            "an eighth": unstable(0.125), "a half": unstable(0.5),
            "loss 0.25": unstable(limit=0.25), "loss 1": unstable(limit=1.0),
            "guideline's b_T alone": unstable(guided=True)})


def check_gates(nets: dict[Net, dict], depths: list[int]) -> list[dict]:
    """Our questions about what gates see, at the guideline's b_T."""
    by_gate = {(depth, gate): nets[Net(depth, gate, GUIDELINE[depth])]
               for depth in depths for gate in GATES}
    n = len(by_gate[depths[0], 3]["seeds"])

    def numbers(measure, gates=(3, 1)):
        return {f"{depth} layers, {GATES[gate]}": listed(measure(by_gate[depth, gate]))
                for depth in depths for gate in gates}

    def faster(limit=TRAINS):
        return agreed(ordered(*(largest_rate(by_gate[depth, gate], limit)
                                for gate in (3, 1))) for depth in depths)

    def wider(times):
        return agreed(apart(by_gate[depth, 1]) > times * apart(by_gate[depth, 3])
                      for depth in depths)
    return [
        claim(section="ours", text="gates that are 3x3 convolutions tolerate a larger "
              "learning rate than 1x1: the largest at which every seed trains, at 10 "
              "and at 30 layers, with the guideline's b_T", paper=None,
              ours=numbers(largest_rate), holds=faster(), n=n,
              also={"loss 0.25": faster(0.25), "loss 1": faster(1.0)}),
        claim(section="ours", text="with 1x1 gates seeds differ more: at its best rate "
              "the largest last training loss over the least is more than twice that "
              "of 3x3 gates, at 10 and at 30 layers, with the guideline's b_T",
              paper=None, ours=numbers(apart), holds=wider(2), n=n,
              also={"1": wider(1), "4": wider(4)}),
        *(claim(section="ours", text=f"{GATES[more]} learn faster than {words}: they "
                "end with a lower training loss, each seed against each, at its best "
                "rate, at 10 and at 30 layers, with the guideline's b_T", paper=None,
                ours=numbers(best_losses, (more, less)), holds=agreed(
                    loses_less(by_gate[depth, more], by_gate[depth, less])
                    for depth in depths), n=n)
          for more, less, words in ((3, 1, GATES[1]),
                                    (1, 0, f"gates that are {GATES[0]}")))]


def check_claims(record: dict) -> list[dict]:
    """All statements with our numbers and whether they hold."""
    nets = {Net(*(net[name] for name in Net._fields)): net for net in record["nets"]}
    depths = sorted({net.depth for net in nets})
    good, swapped, zero = check_guideline(nets, depths)
    *wider, least = check_gates(nets, depths)
    guided = [GUIDELINE[depth] for depth in depths]

    def at_guideline(*gates):
        return [{"depth": depth, "gate_bias": bias, "gate": list(gates)}
                for depth, bias in zip(depths, guided, strict=True)]
    return [*resting_on([good], {"gate": 3}),
            *resting_on([swapped], {"gate": 3, "gate_bias": guided}),
            *resting_on([zero], {"gate": 3, "depth": depths[-1],
                                 "gate_bias": [0.0, guided[-1]]}),
            *resting_on([check_stability(nets, depths)], {"gate": [3, 1]}),
            *resting_on(wider, *at_guideline(3, 1)),
            *resting_on([least], *at_guideline(1, 0))]


# --------------------------------------------------------------------------------------
# The figure

STRENGTH, MARKS = {3: 1.0, 1: 0.65, 0: 0.4}, {3: "o", 1: "s", 0: "D"}


def draw_losses(axes: Axes, nets: list[dict], depth: int, name_them: bool) -> None:
    """Of nets of one depth the last training loss by b_T: seeds and their median."""
    for gate, name in GATES.items():
        own = [net for net in nets if net["gate"] == gate]
        colour, biases = pale(LIGHT.highway, STRENGTH[gate]), [
            net["gate_bias"] for net in own]
        losses = np.array([best_losses(net) for net in own])
        at = np.array(biases) + 0.07 * (1 - gate)
        axes.plot(at, np.median(losses, axis=1), MARKS[gate], color=colour, label=name,
                  linestyle="-" if gate == 3 else "--", linewidth=1.5, markersize=6,
                  fillstyle="none")
        axes.plot(at, losses, MARKS[gate], color=colour, markersize=3)
    axes.axhline(TRAINS, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.axvline(GUIDELINE[depth], color=LIGHT.grid, linewidth=14, zorder=0)
    axes.set(yscale="log", xlabel="b_T (grey: the guideline's)",
             ylabel="last training loss",
             title=f"{depth} layers: each seed at its best rate\n(dots; rings: their "
                   "median)")
    axes.set_xticks(sorted({net["gate_bias"] for net in nets}))
    axes.invert_xaxis()
    format_log(axes.yaxis)
    if name_them:
        axes.legend(frameon=False, fontsize=8)


def draw_runs(axes: Axes, nets: list[dict]) -> None:
    """How many of the seeds train: a row for each depth and gate, a column for each b_T
    and rate."""
    first = nets[0]
    biases = list(dict.fromkeys(net["gate_bias"] for net in nets))
    rows = list(dict.fromkeys((net["depth"], net["gate"]) for net in nets))
    counts = np.full((len(rows), len(biases), len(first["lrs"])), np.nan)
    for net in nets:
        counts[rows.index((net["depth"], net["gate"])),
               biases.index(net["gate_bias"])] = (last_losses(net) < TRAINS).sum(axis=1)
    shown, most = counts.reshape(len(rows), -1), len(first["seeds"])
    axes.imshow(shown, cmap="Blues", vmin=0, vmax=1.3 * most, aspect="auto")
    for (row, column), count in np.ndenumerate(shown):
        if not np.isnan(count):
            axes.text(column, row, f"{count:g}", ha="center", va="center", fontsize=8,
                      color=LIGHT.paper if count > 0.6 * most else LIGHT.ink)
    axes.set(title=f"Seeds of {most} that train, by b_T and learning rate (last "
             f"training loss below {TRAINS:g}; blank: not tried)")
    axes.set_xticks(range(shown.shape[1]), [
        f"{lr:g}" + (f"\nb_T = {bias:g}" if i == 0 else "") for bias in biases
        for i, lr in enumerate(first["lrs"])])
    axes.set_yticks(range(len(rows)), [f"{depth} layers,\n{GATES[gate]}"
                                       for depth, gate in rows])
    for i in range(1, len(biases)):
        axes.axvline(i * len(first["lrs"]) - 0.5, color=LIGHT.paper, linewidth=3)
    axes.tick_params(labelsize=7.5, length=0)


def message(record: dict) -> str:
    """How many runs of the deepest nets train, by b_T, in a line."""
    depth = max(record["protocol"]["depths"])
    runs: dict[float, list[np.ndarray]] = {}
    for net in record["nets"]:
        if net["depth"] == depth:
            runs.setdefault(net["gate_bias"], []).append(last_losses(net).ravel())
    return (f"{title_of(record)}, {depth} layers: runs that train with b_T = "
            + ", ".join(f"{bias:g}: {sum((own < TRAINS).sum() for own in found)} of "
                        f"{sum(own.size for own in found)}"
                        for bias, found in sorted(runs.items(), reverse=True)))


def draw(record: dict) -> Figure:
    """The record -> the figure: losses of each depth above, all runs below."""
    figure = Figure(figsize=(9, 7.6), layout="constrained")
    depths = record["protocol"]["depths"]
    grid = figure.add_gridspec(2, len(depths))
    first = None
    for i, depth in enumerate(depths):
        axes = figure.add_subplot(grid[0, i], sharey=first)
        draw_losses(axes, [net for net in record["nets"] if net["depth"] == depth],
                    depth, first is None)
        first = first or axes
    draw_runs(figure.add_subplot(grid[1, :]), record["nets"])
    for axes in figure.axes:
        axes.title.set_fontsize(10)
    figure.suptitle(message(record), **TITLE)
    return figure


EXPERIMENT = Experiment(
    name="experiments.convolution_gates", doc=__doc__, minutes=25, protocol=PROTOCOL,
    smoke=SMOKE, run=run, draw=draw, check=check_claims, pack_by=lambda config:
    f"{config['depth']}_layers_gate_{config['gate']}")

if __name__ == "__main__":
    main(EXPERIMENT)
