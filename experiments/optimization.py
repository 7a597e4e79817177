"""Figure 1: plain nets stop training as they get deeper, highway nets do not.

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
each net's best ten train 20, the best four of these 60, and the best of these 200 with
every seed; every rung starts anew, up to the last with one seed, and is judged by the
training loss of its last epoch. Training loss is the mean over an epoch's steps, each
before its update. Test images choose nothing. (The first plan had no third rung. It was
added when the second showed plain nets of 10 and 20 layers led by learning rates that
fall by 4 and 5 % an epoch, which suits 20 epochs better than 200. It had three settings
of each net at first; the fourth was added, for all nets, after seed 0 had trained to
the end, and gave one of them, plain of 10 layers, another setting.)

The paper is silent, we assume: pixels in [0, 1], as the MNIST of the authors' framework
has them; batches of 128, shuffled anew in each epoch; learning rate 1e-5 to 1 and
1 - momentum 0.01 to 0.5, both log-uniform; a factor per epoch with 1 - factor 0.001 to
0.1, log-uniform; no clipping, no weight decay; the same draws for all nets, so that
none has the luckier ones.

Deviations: the paper ran its 100 settings to the end; ours earn their epochs in rungs,
which favours settings that start fast. Its figure's axis has 400 epochs, ours 200.

Cost on two cores: 80 minutes for the first rung, 35 for the second, 40 for the third,
32 for each seed of the last. Finished trials are kept: a stopped run goes on where it
was.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.common import (DASHES, LIGHT, Experiment, claim, format_log, listed,
                                main, or_infinite, pale)

WIDTHS = {"highway": 50, "plain": 71}
INITS = {"tanh": "glorot", "relu": "he"}
TARGET = 1e-4           # the loss that the paper's claim is about
PAPER_EPOCHS = 400      # the axis of its figure

PROTOCOL = {"dataset": "mnist", "batch": 128, "depths": [10, 20, 50, 100],
            "rungs": [[100, 5], [10, 20], [4, 60], [1, 200]], "seeds": [0, 1, 2],
            "search_seed": 1507}
SMOKE = {"dataset": "digits", "depths": [10, 20], "seeds": [0, 1],
         "rungs": [[4, 2], [3, 2], [2, 3], [1, 4]]}


def draw_settings(count, seed):
    """The random search's settings, in their order."""
    rng = np.random.default_rng(seed)

    def log_uniform(low, high):
        return hn.significant(10 ** rng.uniform(np.log10(low), np.log10(high)))
    return [{"lr": log_uniform(1e-5, 1),
             "momentum": hn.significant(1 - log_uniform(0.01, 0.5)),
             "lr_decay": hn.significant(1 - log_uniform(0.001, 0.1)),
             "activation": str(rng.choice(["tanh", "relu"])),
             "gate_bias": -float(rng.integers(1, 11))} for _ in range(count)]


def make_config(protocol, net, setting, epochs, seed):
    """The trial of one net, for hn.Config. Plain nets have no b_T."""
    block, depth = net
    config = {"block": block, "depth": depth - 1, "hidden": WIDTHS[block],
              "init": INITS[setting["activation"]], "optimizer": "sgd", "clip": 0.0,
              "epochs": epochs, "seed": seed, "batch": protocol["batch"],
              "dataset": protocol["dataset"], **setting}
    if block == "plain":
        del config["gate_bias"]
    return config


def train_net(config, x_train, y_train, x_test, y_test):
    """One trial: its status, and per epoch the training loss and test accuracy."""
    config = hn.Config(**config, n_train=len(x_train), n_test=len(x_test))
    data = hn.scale_pixels(hn.Data(x_train, y_train, x_test, y_test), config.dataset)
    for x in (data.x_train, data.x_test):       # from [-1, 1] to [0, 1]
        x += 1
        x /= 2
    net = hn.make_net(config, data.x_train.shape[1])
    history, _, status = hn.train(net, data, config)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "test_acc": history["test_acc"]}


def final_loss(trial):
    """The training loss of a trial's last epoch, infinite where it diverged."""
    return float(or_infinite(trial.result["train_loss"][-1]))


def search(lab, data, settings):
    """Run the rungs -> for each of them {(block, depth): {setting: its trials}}."""
    nets = [(block, depth) for depth in lab.protocol["depths"] for block in WIDTHS]
    chosen, rungs = dict.fromkeys(nets, list(range(len(settings)))), []
    for i, (_, epochs) in enumerate(lab.protocol["rungs"]):
        last = i == len(lab.protocol["rungs"]) - 1
        seeds = lab.protocol["seeds"] if last else lab.protocol["seeds"][:1]
        # Settings outermost: a run that is stopped has tried as many for every net.
        keys = [(net, number, seed) for rank in range(lab.protocol["rungs"][i][0])
                for seed in seeds for net in reversed(nets)
                for number in chosen[net][rank:rank + 1]]
        trials = lab.trials(train_net, [
            make_config(lab.protocol, net, settings[number], epochs, seed)
            for net, number, seed in keys], data)
        rung = {net: {} for net in nets}
        for (net, number, _), trial in zip(keys, trials):
            rung[net].setdefault(number, []).append(trial)
        rungs.append(rung)
        if not last:
            following = lab.protocol["rungs"][i + 1][0]
            chosen = {net: sorted(rung[net], key=lambda number: final_loss(
                rung[net][number][0]))[:following] for net in nets}
    return rungs


def curve(trials, name):
    """Per-epoch values of trials, (trials, epochs); NaN where a run diverged."""
    return np.array([trial.result[name] for trial in trials], float)


def epochs_to(losses, target):
    """The first epoch with a loss below target, or None."""
    below = np.flatnonzero(np.array(losses, float) < target)
    return int(below[0]) + 1 if len(below) else None


def describe_net(net, rungs):
    """One net's part of the record: all settings, the best ten, four and one."""
    first, ten, four, best = (rung[net] for rung in rungs)
    number, runs = next(iter(best.items()))
    curves = np.array([curve(trials, "train_loss")[0] for trials in ten.values()])
    loss = curve(runs, "train_loss")
    return {
        "block": net[0], "depth": net[1], "hidden": WIDTHS[net[0]],
        "parameters": runs[0].result["parameters"],
        "search": {"setting": list(first), "train_loss": listed(
            [final_loss(trials[0]) for trials in first.values()])},
        "ten": {"setting": list(ten), "mean": listed(curves.mean(axis=0)),
                "train_loss": listed(curves[:, -1])},
        "four": {"setting": list(four), "train_loss": listed(
            [final_loss(trials[0]) for trials in four.values()])},
        "best": {"setting": number, "train_loss": [listed(row) for row in loss],
                 "test_acc": [listed(row) for row in curve(runs, "test_acc")],
                 "status": [trial.result["status"] for trial in runs],
                 "least": listed(or_infinite(loss).min(axis=1)),
                 "final": listed(loss[:, -1]),
                 "epochs_to": {f"{target:g}": [epochs_to(row, target) for row in loss]
                               for target in (1e-1, 1e-2, 1e-3, TARGET)}}}


def of(nets, block, *depths):
    """The nets of a kind, of these depths."""
    return [net for net in nets if net["block"] == block and net["depth"] in depths]


def reached(nets, epochs):
    """Whether all seeds of these nets got below TARGET; None where one did not, but in
    fewer epochs than the paper's."""
    if all(max(or_infinite(net["best"]["least"])) < TARGET for net in nets):
        return True
    return None if epochs < PAPER_EPOCHS else False


def missed(nets):
    """Whether no seed of these nets got below TARGET; None where some of a net did."""
    counts = [np.count_nonzero(or_infinite(net["best"]["least"]) < TARGET)
              for net in nets]
    if not any(counts):
        return True if nets else None
    return False if any(count == len(net["best"]["least"])
                        for count, net in zip(counts, nets)) else None


def median_epochs(net):
    """The seeds' median of the epochs to a loss of 0.01; "never" is infinite."""
    return np.median(or_infinite(net["best"]["epochs_to"]["0.01"]))


def check_speed(highway, plain, n):
    """Whether highway nets converge in fewer epochs: nets of both kinds by depth."""
    pairs = {f"{net['depth']} layers": [median_epochs(net), median_epochs(other)]
             for net, other in zip(highway, plain)}
    there = [pair for pair in pairs.values() if not np.isinf(pair).all()]
    return claim("P1 3.1", "highway nets need fewer epochs than plain ones to a loss "
                 "of 0.01, at each depth where either gets there: medians of the seeds",
                 "fewer", {depth: dict(zip(("highway", "plain"), listed(pair)))
                           for depth, pair in pairs.items()},
                 all(one < other for one, other in there) if there else None, n)


def check_claims(record):
    """The paper's statements about Figure 1, with our numbers and whether they hold."""
    nets, epochs = record["nets"], record["protocol"]["rungs"][-1][1]
    depths = sorted({net["depth"] for net in nets})
    highway, plain = (of(nets, block, *depths) for block in ("highway", "plain"))
    shallow, deep = of(nets, "plain", 10, 20), of(nets, "plain", 50, 100)
    n = max(len(net["best"]["least"]) for net in nets)
    final = [np.median(or_infinite(net["best"]["final"]))
             for net in (plain[-1], highway[-1])]
    with np.errstate(invalid="ignore"):     # infinite / infinite tells nothing
        orders = np.log10(final[0] / final[1])

    def least(nets):
        return {f"{net['depth']} layers": [
            "diverged" if last is None else value for value, last in
            zip(net["best"]["least"], net["best"]["final"])] for net in nets}
    within = f"a loss below 1e-4, here within {epochs} epochs"
    return [
        claim("P1 3.1", f"plain nets of 10 and 20 layers reach {within}, with every "
              "seed", "< 1e-4", least(shallow), reached(shallow, epochs), n),
        claim("P1 3.1", f"plain nets of 50 and 100 layers do not reach {within}, with "
              "any seed", "> 1e-4", least(deep), missed(deep), n),
        claim("P1 3.1", f"highway nets of all depths reach {within}, with every seed",
              "< 1e-4", least(highway), reached(highway, epochs), n),
        claim("P1 3.1", "the deepest highway net ends more than two orders of "
              "magnitude below the deepest plain one: medians of the seeds", "> 2",
              *listed([orders]), None if np.isnan(orders) else orders > 2, n),
        check_speed(highway, plain, n)]


def run(lab):
    """The search -> the record."""
    settings = draw_settings(lab.protocol["rungs"][0][0], lab.protocol["search_seed"])
    rungs = search(lab, lab.load_data(), settings)
    return {"settings": settings,
            "nets": [describe_net(net, rungs) for net in rungs[0]]}


# --------------------------------------------------------------------------------------
# The figure


def shade(net, depths):
    """The colour of a net: its kind's, the deeper the darker."""
    strength = 0.35 + 0.65 * depths.index(net["depth"]) / max(len(depths) - 1, 1)
    return pale(getattr(LIGHT, net["block"]), strength)


def draw_curves(axes, nets, depths, lines, title):
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


def draw_spreads(axes, nets, depths):
    """Beside the curves of the best settings' means, the range of their last losses,
    without those that diverged."""
    epochs = len(nets[0]["ten"]["mean"])
    for i, net in enumerate(nets):
        last = np.array(net["ten"]["train_loss"], float)
        axes.plot([epochs * (1.03 + 0.02 * i)] * 2, [np.nanmin(last), np.nanmax(last)],
                  linewidth=2.5, color=shade(net, depths), solid_capstyle="butt")


def draw_winners(axes, record, depths):
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
    axes.set_xticks(range(len(depths)), depths)
    axes.set(xlabel="depth", ylabel="initial $b_T$",
             title="Settings of the highway nets\n(blue: in the second rung, ringed: "
                   "the best)")


def draw(record):
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
    draw_spreads(panels[0, 1], nets, depths)
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


EXPERIMENT = Experiment("experiments.optimization", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims,
                        lambda config: f"{config['block']}_{config['depth'] + 1}")

if __name__ == "__main__":
    main(EXPERIMENT)
