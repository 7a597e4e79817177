"""Figure 1: do plain nets train worse the deeper they are, and highway nets not?

The claim is P1's (section 3.1), on MNIST, with the best of 100 random settings for each
net. The protocol stands in results/optimization/README.md. The paper's 10 to 100 layers
are 9 to 99 blocks here. Pixels lie in [0, 1], as in the authors' framework; batches
have 128 images, and there is no weight decay. The training loss is the mean over an
epoch's steps, each before its update; the median over the seeds of the last one judges
a setting.

How it is judged. The paper speaks of the best net of each depth, and its claims are
judged by our best runs. A loss that is missed within our 200 epochs is open; a run that
diverged has missed it for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import highway_networks as hn
from experiments.lab import Claim, Experiment, Lab, Trial, main, trial_function
from experiments.lab.experiment import for_figures
from experiments.lab.judging import every, listed, or_infinite, over_nets
from experiments.lab.papers import FEWER_EPOCHS, FIGURE_1_EPOCHS

with for_figures():
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from experiments.lab.drawing import DASHED, colour_of, data_of, draw_level, sheet
    from highway_suite.figures import TINTS, label_right, label_y

    # by a net's name: label, colour and dashes of its line
    LOOKS: dict[str, tuple[str, str, Any]] = {
        "highway": ("highway", colour_of("highway"), "-"),
        "plain": ("plain,\nGlorot or He", colour_of("plain"), DASHED),
        "plain, orthogonal": ("plain,\northogonal", TINTS.own[0], ":")}

WIDTHS = {"highway": 50, "plain": 71}
INITS = {"tanh": "glorot", "relu": "he"}
TARGET = 1e-4           # the loss that the paper's claim is about
SHALLOW, DEEP = (9, 19), (49, 99)       # blocks: the paper's 10, 20 and 50, 100 layers

PLAN = {"dataset": "mnist", "batch": 128, "depths": [9, 19, 49, 99],
        # How many settings of each net train, for how many epochs, with how many seeds.
        "rungs": [[100, 5, 1], [10, 20, 1], [4, 60, 1], [2, 60, 3], [1, 200, 3]],
        # An epoch of 49 and 99 plain blocks takes 1.7 and 3.1 s: 1.6 core hours.
        "long": {"epochs": 400, "depths": [49, 99]},
        # Plain nets of these depths with orthogonal weights, too. Some 1900 epochs of
        # 2.6 s: 1.4 core hours, less where settings diverge.
        "orthogonal": [99],
        "seeds": [0, 1, 2], "search_seed": 1507}
SMOKE = {"dataset": "digits", "depths": [9, 49], "seeds": [0, 1],
         "long": {"epochs": 4, "depths": [49]}, "orthogonal": [9],
         "rungs": [[4, 1, 1], [3, 1, 1], [2, 2, 1], [2, 2, 2], [1, 3, 2]]}


class Net(NamedTuple):
    """A kind of block, how many, and the rule of their weights, if it is not that of
    INITS."""

    block: str
    depth: int
    init: str = ""


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


def make_config(plan: dict, net: Net, setting: dict, epochs: int) -> dict:
    """The trial of one net, for hn.Config, less its seed. Plain nets have no b_T."""
    config = {"block": net.block, "depth": net.depth, "hidden": WIDTHS[net.block],
              "init": net.init or INITS[setting["activation"]], "optimizer": "sgd",
              "clip": 0.0, "epochs": epochs, "batch": plan["batch"], **setting}
    if net.block == "plain":
        del config["gate_bias"]
    return config


@trial_function("optimization.train")
def train_net(config: dict, data: hn.Data) -> dict:
    """One trial: its status, and per epoch the training loss and test accuracy."""
    settings = hn.Config(n_train=len(data.x_train), n_test=len(data.x_test), **config)
    data = hn.scale_pixels(data)
    for x in (data.x_train, data.x_test):       # from [-1, 1] to [0, 1]
        x += 1
        x /= 2
    net = hn.make_net(settings, data)
    history, _, status = hn.train(net, data, settings)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "test_acc": history["test_acc"]}


def least(found: dict[int, list[Trial]], count: int) -> list[int]:
    """The settings of the least final losses, medians of their seeds; of equal ones
    those that come first."""
    return sorted(found, key=lambda number: float(np.median(or_infinite(
        losses_of(found[number])[:, -1]))))[:count]


def search(lab: Lab, settings: list[dict]) -> list[dict[Net, dict[int, list[Trial]]]]:
    """Run the rungs -> for each of them {net: {setting: its trials}}, in the order in
    which they were chosen."""
    plan = lab.plan
    rungs: list[dict[Net, dict[int, list[Trial]]]] = []
    nets = [Net(block, depth) for depth in plan["depths"] for block in WIDTHS]
    nets += [Net("plain", depth, "orthogonal") for depth in plan["orthogonal"]]
    chosen = dict.fromkeys(nets, list(range(len(settings))))
    for count, epochs, n in plan["rungs"]:
        if rungs:
            chosen = {net: least(found, count) for net, found in rungs[-1].items()}
        trials = lab.by_seed(train_net, {
            (net, number): make_config(plan, net, settings[number], epochs)
            for net, numbers in reversed(chosen.items()) for number in numbers},
            plan["seeds"][:n])
        rungs.append({net: {number: trials[net, number] for number in numbers}
                      for net, numbers in chosen.items()})
    return rungs


def losses_of(trials: Iterable[Trial]) -> np.ndarray:
    """The training losses of trials, (trials, epochs); NaN where a run diverged."""
    return np.array([trial.result["train_loss"] for trial in trials], float)


def epochs_to(losses: np.ndarray, target: float) -> int | None:
    """The first epoch with a loss below target, or None."""
    below = np.flatnonzero(losses < target)
    return int(below[0]) + 1 if len(below) else None


def fastest(net: Net, rungs: list[dict], settings: list[dict]) -> dict:
    """Of the settings that ran with all seeds the one that needs the fewest epochs to a
    loss of 0.01, by the median of its seeds and then by the slowest."""
    n = max(len(trials) for trials in rungs[-1][net].values())
    runs = {number: trials for rung in rungs for number, trials in rung[net].items()
            if len(trials) == n}
    epochs = {number: [epochs_to(row, 0.01) for row in losses_of(trials)]
              for number, trials in runs.items()}
    needed = {number: or_infinite(found) for number, found in epochs.items()}
    number = min(needed, key=lambda number: (float(np.median(needed[number])),
                                             max(needed[number])))
    return {"setting": settings[number], "epochs_to": {"0.01": epochs[number]},
            "trials": [trial.hash for trial in runs[number]]}


def describe_net(net: Net, rungs: list[dict], settings: list[dict]) -> dict:
    """One net's row: the ten settings that were best after the first rung, the best one
    after the last, and the fastest."""
    ten = [trials[0] for trials in rungs[1][net].values()]
    (number, runs), = rungs[-1][net].items()
    loss = losses_of(runs)
    return {
        "block": net.block, "depth": net.depth, "hidden": WIDTHS[net.block],
        **({"init": net.init} if net.init else {}),
        "ten": {"mean": listed(losses_of(ten)[:, -1].mean()),
                "trials": [trial.hash for trial in ten]},
        "fastest": fastest(net, rungs, settings),
        "best": {"setting": settings[number], "train_loss": listed(loss),
                 **ends_of(runs),
                 "epochs_to": {"0.01": [epochs_to(row, 0.01) for row in loss]}}}


def ends_of(runs: list[Trial]) -> dict:
    """Of a net's seeds the least and the last training loss, and the last test
    accuracy."""
    loss = losses_of(runs)
    return {"trials": [trial.hash for trial in runs], "final": listed(loss[:, -1]),
            "least": listed(or_infinite(loss).min(axis=1)),
            "test_acc": [trial.result["test_acc"][-1] for trial in runs]}


def train_long(lab: Lab, settings: list[dict], best: dict[Net, dict]) -> list[dict]:
    """The deep plain nets for as many epochs as the paper's, with the setting that the
    last rung has for each -> rows."""
    plan, own = lab.plan, lab.plan["long"]
    chosen = {net: number for net, (number,) in best.items()
              if net.block == "plain" and net.depth in own["depths"] and not net.init}
    trials = lab.by_seed(train_net, {
        net: make_config(plan, net, settings[number], own["epochs"])
        for net, number in reversed(chosen.items())}, plan["seeds"])
    return [{"block": net.block, "depth": net.depth, "best": ends_of(trials[net])}
            for net in chosen]


def run(lab: Lab) -> dict:
    """The search -> the record."""
    settings = draw_settings(lab.plan["rungs"][0][0], lab.plan["search_seed"])
    rungs = search(lab, settings)
    rows = {net: describe_net(net, rungs, settings) for net in rungs[0]}
    return {"nets": [row for net, row in rows.items() if not net.init],
            "orthogonal": [row for net, row in rows.items() if net.init],
            "long": train_long(lab, settings, rungs[-1])}


# --------------------------------------------------------------------------------------
# The figure


def name_of(net: dict) -> str:
    """What a net is called beside the others of its depth."""
    return ", ".join(filter(None, (net["block"], net.get("init"))))


def draw_curves(axes: Axes, nets: list[dict]) -> None:
    """The training losses of each net over epochs, on a log scale: thin each seed, a
    cross where it diverged, and thick their median."""
    for net in nets:
        rows = np.array(net["best"]["train_loss"], float)
        epochs, (_, colour, line) = np.arange(1, rows.shape[1] + 1), LOOKS[name_of(net)]
        axes.plot(epochs, np.median(or_infinite(rows), axis=0), color=colour,
                  linestyle=line)
        for row in rows:
            last = np.count_nonzero(np.isfinite(row))
            axes.plot(epochs, row, color=colour, linewidth=0.6)
            if 0 < last < len(row):
                axes.plot(last, row[last - 1], "x", color=colour, markersize=8,
                          markeredgewidth=2, zorder=4)
    draw_level(axes, TARGET)
    axes.set_yscale("log")


def times_higher(nets: list[dict], depths: Sequence[int]) -> dict[int, float]:
    """{depth: the last loss of the best plain net / that of the best highway net}."""
    def least(block, depth):
        return min(map(best_loss, of(nets, block, [depth])))
    return {depth: least("plain", depth) / least("highway", depth) for depth in depths}


def draw_panels(record: dict, depths: Sequence[int], title: str, height: float
                ) -> Figure:
    """Figure 1, left: the best setting of each net, a panel for each of these depths.
    """
    plan, columns = record["plan"], min(2, len(depths))
    nets = record["nets"] + record["orthogonal"]
    crosses = "; \N{MULTIPLICATION SIGN}: diverged" if columns > 1 else ""
    figure, panels = sheet(
        title, f"{data_of(plan)}, best of {plan['rungs'][0][0]} settings",
        f"{len(plan['seeds'])} seeds, thick their median{crosses}"
        f"; dotted: {TARGET:g}, of the paper's Figure 1", height=height,
        rows=-(-len(depths) // columns), columns=columns, sharex=True, sharey=True,
        squeeze=False)
    for axes, depth in zip(panels.flat, depths, strict=True):
        draw_curves(axes, [net for net in nets if net["depth"] == depth])
        axes.set_title(f"{depth} blocks", size=10, loc="right")
    for axes in panels[-1]:
        axes.set_xlabel("epoch")
    label_y(panels[0, 0], "training loss (log scale)" if columns == 1 else
            "training loss")
    label_right(axes, [(np.median(or_infinite(net["best"]["final"])),
                        *LOOKS[name_of(net)][:2])
                       for net in nets if net["depth"] == depth])
    return figure


def draw(record: dict) -> Figure:
    """The deepest nets."""
    deepest = record["plan"]["depths"][-1:]
    nets = record["nets"] + record["orthogonal"]
    times = times_higher(nets, deepest)[deepest[0]]
    init = min(of(nets, "plain", deepest), key=best_loss).get("init")
    weights = f" with {init} weights" if init else ""
    title = (f"After {plan_epochs(record)} epochs, plain nets of {deepest[0]} blocks"
             f"{weights} have {times:.2g} times the loss of highway nets")
    return draw_panels(record, deepest, title, 3.6)


def draw_depths(record: dict) -> Figure:
    """All depths."""
    depths = record["plan"]["depths"]
    times = times_higher(record["nets"], depths)
    first = max((depth for depth in depths if times[depth] < 1), default=0)
    above = [depth for depth in depths if depth > first]
    return draw_panels(record, depths, (
        f"After {plan_epochs(record)} epochs, plain nets have a higher training loss "
        f"than highway nets from {above[0]} blocks on" if above else
        "Plain nets end as low as highway nets"), 4.6)


# --------------------------------------------------------------------------------------
# Claims


def plan_epochs(record: dict) -> int:
    """The epochs of the last rung, after which nets are compared."""
    return record["plan"]["rungs"][-1][1]


def orders_apart(record: dict, plain: dict, highway: dict) -> dict:
    """How many orders of magnitude the best run of a plain net is above that of a
    highway net at each epoch, from the second rung's last on, and their test
    accuracies. The ratio is another one at each epoch."""
    best = [or_infinite(net["best"]["train_loss"]).min(axis=0)
            for net in (plain, highway)]
    first = record["plan"]["rungs"][1][1]
    with np.errstate(invalid="ignore"):
        orders = np.log10(best[0]) - np.log10(best[1])
    return {f"orders, epochs {first} to {len(orders)}": over_nets(orders[first - 1:])
            } | {f"test accuracy, {name_of(net)}": net["best"]["test_acc"]
                 for net in (highway, plain)}


def of(nets: list[dict], block: str, depths: Sequence[int]) -> list[dict]:
    """The nets of a kind, of these depths."""
    return [net for net in nets if net["block"] == block and net["depth"] in depths]


def by_depth(nets: list[dict], value: Callable) -> dict:
    """{"9 blocks": value of the net}."""
    return {f"{net['depth']} blocks": value(net) for net in nets}


def best_loss(net: dict) -> float:
    """The last loss of a net's best seed."""
    return float(or_infinite(net["best"]["final"]).min())


def reached(nets: list[dict], epochs: int, target: float) -> bool | None:
    """Whether the best seed of each net got below a loss. None where one did not that
    might with the paper's epochs: not one whose seeds all diverged."""
    verdicts = []
    for net in nets:
        there = or_infinite(net["best"]["least"]).min() < target
        hopeless = epochs >= FIGURE_1_EPOCHS or np.isinf(best_loss(net))
        verdicts.append(True if there else False if hopeless else None)
    return every(verdicts)


def missed(nets: list[dict], epochs: int, target: float) -> bool | None:
    """Whether even the best seed of each net stays above a loss. None where one does
    that might not with the paper's epochs."""
    verdicts = [reached([net], epochs, target) for net in nets]
    return None if None in verdicts else True not in verdicts


def claims_on_losses(record: dict) -> list[Claim]:
    """Which nets get below the paper's loss."""
    nets, epochs = record["nets"], plan_epochs(record)

    def claim(name, which, found, test, paper, epochs=epochs):
        return Claim(
            name=f"fig1-{name}", source="P1 3.1", text=f"the best {which} a training "
            f"loss below 1e-4, here within {epochs} epochs", paper=paper, limit=TARGET,
            ours=by_depth(found, lambda net: [
                "diverged" if last is None else value for value, last in zip(
                    net["best"]["least"], net["best"]["final"], strict=True)]),
            rows=[net["best"] for net in found], why=FEWER_EPOCHS, after_data=True,
            n=len(record["plan"]["seeds"]),
            test=lambda target: test(found, epochs, target))
    return [
        claim("plain-shallow", "plain nets of 10 and 20 layers reach",
              of(nets, "plain", SHALLOW), reached, "< 1e-4"),
        claim("highway", "highway nets of all depths reach",
              of(nets, "highway", SHALLOW + DEEP), reached,
              "similar to 10 and 20 layers; plain: < 1e-4"),
        claim("plain-deep", "plain nets of 50 and 100 layers do not reach",
              record["long"], missed, "> 1e-4", record["plan"]["long"]["epochs"])]


def claims_on_depth(record: dict) -> list[Claim]:
    """How the end depends on depth, by the best runs of each net."""
    nets, epochs = record["nets"], plan_epochs(record)
    kinds = {block: (of(nets, block, SHALLOW), of(nets, block, DEEP))
             for block in WIDTHS}

    def losses(block):
        return [[best_loss(net) for net in part] for part in kinds[block]]

    def degrades(times):
        shallow, deep = losses("plain")
        return min(deep) > times * max(shallow)

    def similar(times):
        found = sum(losses("highway"), [])
        return max(found) < times * min(found)

    def about(block):
        found = sum(kinds[block], [])
        return {"source": "P1 3.1", "ours": by_depth(found, lambda net: listed(
            best_loss(net))), "rows": [net["best"] for net in found], "limit": 10.0,
            "n": len(record["plan"]["seeds"]), "after_data": True}
    return [
        Claim(name="fig1-plain-degrades", text="plain nets get worse with depth: the "
              "training loss of the best run of 50 and 100 layers ends more than ten "
              f"times above that of 10 and 20, here after {epochs} epochs",
              paper="significantly degrades", test=degrades, **about("plain")),
        Claim(name="fig1-highway-similar", text="highway nets of 50 and 100 layers "
              "perform like those of 10 and 20: the training losses of their best runs "
              "differ by less than a factor of ten", paper="similar", test=similar,
              **about("highway"))]


def claims_on_pairs(record: dict) -> list[Claim]:
    """The highway net beside the plain net of the same depth."""
    nets, epochs = record["nets"], plan_epochs(record)
    highway, plain = ([net for net in nets if net["block"] == block]
                      for block in ("highway", "plain"))
    deepest = [plain[-1], highway[-1]]
    other, own = (float(np.log10(best_loss(net))) for net in deepest)
    orders = other - own                # infinite less infinite tells nothing
    pairs = {f"{net['depth']} blocks": [median_epochs(net), median_epochs(other)]
             for net, other in zip(highway, plain, strict=True)}
    there = [pair for pair in pairs.values() if not np.isinf(pair).all()]
    n = len(record["plan"]["seeds"])
    return [
        Claim(name="fig1-orders", source="P1 3.1", text="the training loss of the "
              "best highway net of 100 layers ends more than two orders of magnitude "
              "below that of the best plain net with Glorot's or He's weights, here "
              f"after {epochs} epochs",
              paper="> 2", n=n, limit=2.0, rows=[net["best"] for net in deepest],
              after_data=True, ours={"orders, best runs": listed(orders)}
              | orders_apart(record, *deepest),
              test=lambda limit: None if np.isnan(orders) else orders > limit),
        Claim(name="fig1-epochs", source="P1 3.1", text="highway nets need fewer "
              "epochs than plain nets to reach a training loss of 0.01, at every depth "
              "where one of them reaches it: the median of plain nets, divided by that "
              "of highway nets, is above 1", paper="significantly faster", n=n,
              ours={depth: dict(zip(WIDTHS, listed(pair), strict=True))
                    for depth, pair in pairs.items()},
              rows=[net["best"] for net in nets], limit=1.0, test=lambda times: (
                  all(times * one < other for one, other in there) if there else None))]


def claim_on_orthogonal(record: dict) -> Claim:
    """The deepest plain net with orthogonal weights beside the highway net."""
    plain = record["orthogonal"][-1]
    highway, = of(record["nets"], "highway", [plain["depth"]])
    rows = {name_of(net): net for net in (highway, plain)}
    orders = float(np.log10(best_loss(plain)) - np.log10(best_loss(highway)))
    return Claim(
        name="orthogonal-orders", text="with orthogonal weights, too, "
        f"the best plain net of {plain['depth']} blocks ends at a training loss more "
        "than two orders of magnitude (100 times) above that of the best highway net, "
        f"here after {plan_epochs(record)} epochs",
        n=len(record["plan"]["seeds"]), limit=2.0,
        rows=[row["best"] for row in rows.values()], ours={"orders": listed(orders)} | {
            name: listed(or_infinite(row["best"]["final"])) for name, row in
            rows.items()} | orders_apart(record, plain, highway),
        test=lambda limit: orders > limit)


def median_epochs(net: dict) -> float:
    """The median of the epochs that its seeds need to a loss of 0.01."""
    return float(np.median(or_infinite(net["best"]["epochs_to"]["0.01"])))


def claim_on_ten(record: dict) -> Claim:
    """Figure 1, right: the mean of the ten best settings. One that diverged makes it
    infinite."""
    ends = {block: {net["depth"]: float(or_infinite(net["ten"]["mean"]))
                    for net in record["nets"] if net["block"] == block}
            for block in WIDTHS}
    low, high = min(ends["plain"]), max(ends["plain"])

    def grows(times):
        with np.errstate(invalid="ignore"):
            worse = {block: found[high] / found[low] for block, found in ends.items()}
        return bool(worse["plain"] > times and worse["highway"] < times)
    return Claim(
        name="fig1-ten", source="P1 Fig. 1", text="from the least depth to the "
        "largest, the mean training loss of the ten best settings, a seed each, "
        "grows more than tenfold for plain nets and not for highway nets, here after "
        f"{record['plan']['rungs'][1][1]} epochs", paper="much harder; "
        "still optimized well", rows=[net["ten"] for net in record["nets"]],
        limit=10.0, test=grows, after_data=True, ours={block: {
            f"{depth} blocks": "a net diverged" if np.isinf(value) else value
            for depth, value in found.items()} for block, found in ends.items()})


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    return [*claims_on_losses(record), *claims_on_depth(record),
            *claims_on_pairs(record), claim_on_ten(record), claim_on_orthogonal(record)]


EXPERIMENT = Experiment(
    name="optimization", doc=__doc__, plan=PLAN, smoke=SMOKE, run=run,
    claims=claims, figures={"figure": draw, "depths": draw_depths})

if __name__ == "__main__":
    main("optimization")
