"""Six members of the family y = H T + x C at equal size: which ranking, at which depth?

The claim (P2, section 5.2, Table 1a). In a character-level language model with two
such layers, by test perplexity: full 79.09, coupled (the highway layer) 79.13 and
C-only 79.15 are about equal, T-only 82.94 is behind them, residual 91.32 far behind
and close to plain 92.60. P2 expects this of a task that must replace features; it says
nothing of depth, nor of MNIST. Here the same six forms are ranked on MNIST from 10 to
100 layers. A test of how far the ranking carries over, not of the table itself.

The protocol. 784 pixels -> one plain layer -> 9, 19, 49 or 99 layers of one form ->
softmax of 10; "depth" counts the plain layer, as P1 does. H is tanh, weights are
Glorot's, a learned carry gate starts at -b_T. Each form is as wide as brings its
number of parameters nearest to that of the highway net of 50 units at that depth: the
nearest whole width is at most 1.4 % off. Adam, gradients clipped at norm 5, batches of
128, learning rate times 0.8 after each epoch. For each form and depth the learning
rate, of five, and with it the initial b_T, of three, where there is a gate, are those
with the highest accuracy on 10,000 held-out training images, after 3 epochs on the
other 50,000. The chosen setting trains 10 epochs on all 60,000 with five seeds. Test
images choose nothing; training loss is the mean over an epoch's steps, each before its
update.

The verdicts. At one depth a form is ahead of another if each of its seeds has a higher
test accuracy than every seed of the other, and level with it if the two ranges overlap.
Of two forms of equal merit one would be ahead of a given other in 1 of 252 cases. That
one is ahead does not hold where it is behind; where they are level it is open. Two
forms are similar if their mean accuracies differ by less than half a point (our
margin), by two standard errors of the difference, and not similar if by as much more;
else that is open too. A seed that diverges is below all others. "Trains" means half of
the held-out images.

P2 is silent, we assume: b_C = -b_T; pixels in [-1, 1]; all of the above. Deviations:
Table 1a gives full half more parameters than coupled, and residual twice the layers;
ours have equal parameters and equal depth.

Cost on two cores, at 1.0, 2.1, 5.0 and 10.3 ms a step for 10, 20, 50 and 100 layers:
14 minutes for the search, 23 for the seeds. Finished trials are kept.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

import highway_networks as hn
from experiments.common import (COLOURS, LIGHT, Experiment, claim, compare, main,
                                or_infinite, plain_numbers, spread)
from visualize_highway_networks import DATASETS

# Test perplexities of Table 1a, in its order: the name in BLOCKS, P2's name.
PAPER = {"plain": ("Plain", 92.60), "residual": ("Residual", 91.32),
         "t_only": ("T-only", 82.94), "c_only": ("C-only", 79.15),
         "highway": ("Coupled", 79.13), "full": ("Full", 79.09)}
WIDTH = 50              # of the highway nets that the others are matched to
TRAINS = 0.5            # held-out accuracy from which on we say that a net trains
MARGIN = 0.005          # two forms are similar within this mean test accuracy

PROTOCOL = {"dataset": "mnist", "depths": [10, 20, 50, 100], "batch": 128, "clip": 5.0,
            "lr_decay": 0.8, "lrs": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
            "gate_biases": [-1.0, -3.0, -5.0], "held_out": 10_000, "split_seed": 1612,
            "search_epochs": 3, "epochs": 10, "seeds": [0, 1, 2, 3, 4]}
SMOKE = {"dataset": "digits", "depths": [3, 5], "lrs": [1e-3, 1e-2], "held_out": 237,
         "gate_biases": [-1.0, -3.0], "search_epochs": 1, "epochs": 2, "seeds": [0, 1]}


def count_parameters(block, depth, hidden, dataset):
    """Weights and biases of the whole net; depth counts the projection."""
    dataset = hn.DATASETS[dataset]
    pixels = math.prod(dataset.files[0].shape[1:])
    matrices = 1 + len(hn.BLOCKS[block].gates)
    return (hidden * (pixels + 1) + (depth - 1) * matrices * hidden * (hidden + 1)
            + dataset.classes * (hidden + 1))


def match_width(block, depth, dataset):
    """The width whose parameters are nearest to those of the highway net."""
    target = count_parameters("highway", depth, WIDTH, dataset)
    # No form has fewer matrices than one to the highway's two: none is twice as wide.
    return min(range(1, 2 * WIDTH), key=lambda hidden: abs(
        count_parameters(block, depth, hidden, dataset) - target))


def hold_out(data, protocol):
    """uint8 Data -> Data of the search: both parts are training images."""
    order = np.random.default_rng(protocol["split_seed"]).permutation(len(data.x_train))
    held, rest = np.split(order, [protocol["held_out"]])
    return hn.Data(data.x_train[rest], data.y_train[rest],
                   data.x_train[held], data.y_train[held])


def settings_of(block, protocol):
    """What the search tries for a form: learning rates, and b_T if it has a gate."""
    if not hn.BLOCKS[block].gates:
        return [{"lr": lr} for lr in protocol["lrs"]]
    return [{"lr": lr, "gate_bias": bias} for lr, bias in itertools.product(
        protocol["lrs"], protocol["gate_biases"])]


def make_config(protocol, net, setting, data, **rest):
    """The trial of one net; data only says how many images there are."""
    block, depth = net
    return {"block": block, "depth": depth - 1, "init": "glorot",
            "hidden": match_width(block, depth, protocol["dataset"]),
            "n_train": len(data.x_train), "n_test": len(data.x_test),
            **{name: protocol[name] for name in ("dataset", "batch", "clip",
                                                 "lr_decay")}, **setting, **rest}


def train_net(config, x_train, y_train, x_test, y_test):
    """One trial: its status, and per epoch the training loss and the accuracy on the
    images it is judged by. config: of hn.Config, and in the search what drew the
    images."""
    config = hn.Config(**{name: value for name, value in config.items()
                          if name != "split_seed"})
    data = hn.scale_pixels(hn.Data(x_train, y_train, x_test, y_test), config.dataset)
    net = hn.make_net(config, data.x_train.shape[1])
    history, _, status = hn.train(net, data, config)
    return {"status": status, "parameters": net.params.size,
            "train_loss": history["train_loss"], "acc": history["test_acc"]}


def last(trial, name):
    """The last epoch's value of a trial, None if it diverged."""
    return trial.result[name][-1]


def search(lab, data, nets):
    """Every setting of every net, judged on held-out images -> {net: accuracies}."""
    data = hold_out(data, lab.protocol)
    settings = {net: settings_of(net[0], lab.protocol) for net in nets}
    # Settings outermost: a run that is stopped has tried as many for every net.
    keys = [(net, settings[net][number])
            for number in range(max(map(len, settings.values())))
            for net in reversed(nets) if number < len(settings[net])]
    trials = lab.trials(train_net, [
        make_config(lab.protocol, net, setting, data, seed=lab.protocol["seeds"][0],
                    epochs=lab.protocol["search_epochs"],
                    split_seed=lab.protocol["split_seed"])
        for net, setting in keys], data)
    found = {net: [] for net in nets}
    for (net, _), trial in zip(keys, trials):
        found[net].append(last(trial, "acc"))
    return found


def best(accuracies):
    """The number of the highest accuracy, of equal ones the first; None is lowest."""
    return max(range(len(accuracies)), key=lambda i: (
        -1 if accuracies[i] is None else accuracies[i], -i))


def repeat(lab, data, chosen):
    """The chosen setting of each net, with every seed -> {net: trials}."""
    # Seeds outermost: a run that is stopped has as many of every net.
    keys = [(net, seed) for seed in lab.protocol["seeds"] for net in reversed(chosen)]
    trials = lab.trials(train_net, [
        make_config(lab.protocol, net, chosen[net], data, seed=seed,
                    epochs=lab.protocol["epochs"]) for net, seed in keys], data)
    runs = {net: [] for net in chosen}
    for (net, _), trial in zip(keys, trials):
        runs[net].append(trial)
    return runs


def at_edge(setting, protocol):
    """Which of a setting's values are the first or the last of those tried."""
    grids = {"lr": protocol["lrs"], "gate_bias": protocol["gate_biases"]}
    return [name for name, value in setting.items()
            if value in (grids[name][0], grids[name][-1])]


def describe_net(net, protocol, accuracies, runs):
    """One net's part of the record: its size, its search and its seeds."""
    block, depth = net
    settings, number = settings_of(block, protocol), best(accuracies)
    hidden = match_width(block, depth, protocol["dataset"])
    count, target = (count_parameters(kind, depth, width, protocol["dataset"])
                     for kind, width in ((block, hidden), ("highway", WIDTH)))
    record = {"block": block, "depth": depth, "hidden": hidden, "parameters": count,
              "above_highway": hn.significant(count / target - 1),
              "search": {name: [setting[name] for setting in settings]
                         for name in settings[0]} | {"held_out_acc": accuracies},
              "chosen": settings[number] | {
                  "held_out_acc": accuracies[number],
                  "at_edge": at_edge(settings[number], protocol)}}
    for name, there in (("train_loss", "train_loss"), ("test_acc", "acc")):
        finals = [last(trial, there) for trial in runs]
        record[name] = {"final": finals, **spread(finals),
                        "epochs": [trial.result[there] for trial in runs]}
    return record


def is_ahead(one, other):
    """Whether a form is ahead of another, and that in words: test_acc of both."""
    relation = compare(one["final"], other["final"])
    return {"ahead of": True, "behind": False, "level with": None}[relation], relation


def is_similar(one, other):
    """Whether two forms are similar, and their difference in words."""
    if None in [*one["final"], *other["final"], one["std"], other["std"]]:
        return None, "not to be compared with"
    difference = one["mean"] - other["mean"]
    error = math.hypot(*(form["std"] / math.sqrt(form["n"]) for form in (one, other)))
    about = f"{100 * difference:+.2f} ± {200 * error:.2f} points from"
    if abs(difference) + 2 * error < MARGIN:
        return True, about
    return False if abs(difference) - 2 * error > MARGIN else None, about


# P2's statements about Table 1a: (text, what must hold of which pairs of forms).
STATEMENTS = (
    ("every gated form is ahead of residual", is_ahead, [
        (form, "residual") for form in ("t_only", "c_only", "highway", "full")]),
    ("residual is close to plain", is_similar, [("residual", "plain")]),
    ("C-only, coupled and full are similar", is_similar, [
        ("c_only", "highway"), ("c_only", "full"), ("highway", "full")]),
    ("C-only, coupled and full are ahead of T-only", is_ahead, [
        (form, "t_only") for form in ("c_only", "highway", "full")]),
)


def check_ranking(nets, depth):
    """P2's statements at one depth: the perplexities, our accuracies and relations,
    and the verdict: it fails with any of its pairs, and holds with all of them."""
    found = {net["block"]: net["test_acc"] for net in nets if net["depth"] == depth}
    claims = []
    for text, relation, pairs in STATEMENTS:
        forms = dict.fromkeys(form for pair in pairs for form in pair)
        verdicts, relations = zip(*(relation(found[one], found[other])
                                    for one, other in pairs))
        claims.append(claim(
            "ours", f"{text}, as in P2's language model (5.2, by perplexity), by test "
            f"accuracy on MNIST: {depth} layers",
            {PAPER[form][0]: PAPER[form][1] for form in forms},
            {"mean accuracy": {PAPER[form][0]: found[form]["mean"] for form in forms},
             "relations": [f"{PAPER[one][0]} {how} {PAPER[other][0]}"
                           for how, (one, other) in zip(relations, pairs)]},
            False if False in verdicts else None if None in verdicts else True,
            len(found["highway"]["final"])))
    return claims


def check_plain(nets):
    """What is said of deep plain nets: P1 section 3.1, and of those that do not train.
    None where the depths of the run cannot tell."""
    plain = {net["depth"]: net for net in nets if net["block"] == "plain"}
    losses = {depth: or_infinite(net["train_loss"]["final"])
              for depth, net in plain.items()}
    deep = [depth for depth in plain if depth >= 50]
    tried = {f"{depth} layers": plain[depth]["search"]["held_out_acc"]
             for depth in deep}
    top = [max(-1 if v is None else v for v in values) for values in tried.values()]
    worse = [min(losses[depth]) > max(losses[min(losses)]) for depth in deep]
    return [
        claim("P1 3.1", "the training loss of plain nets degrades with depth: that of "
              "50 and more layers ends above that of the shallowest, in every seed, "
              "each with the best of the learning rates tried for ten epochs of Adam",
              "significantly degrades", {f"{depth} layers": net["train_loss"]["final"]
                                         for depth, net in plain.items()},
              all(worse) if deep else None, max(map(len, losses.values()))),
        claim("ours", "plain nets of 50 and more layers do not train at any learning "
              f"rate of the search: held-out accuracy below {TRAINS}", None, tried,
              all(acc < TRAINS for acc in top) if deep else None)]


def check_claims(record):
    """All claims of a record."""
    return [item for depth in record["protocol"]["depths"]
            for item in check_ranking(record["nets"], depth)
            ] + check_plain(record["nets"])


def run(lab):
    """Search and seeds -> the record."""
    protocol, data = lab.protocol, lab.load_data()
    nets = [(block, depth) for depth in protocol["depths"] for block in PAPER]
    found = search(lab, data, nets)
    chosen = {net: settings_of(net[0], protocol)[best(found[net])] for net in nets}
    runs = repeat(lab, data, chosen)
    return {"width_of_highway": WIDTH, "nets": [
        describe_net(net, protocol, found[net], runs[net]) for net in nets]}


# --------------------------------------------------------------------------------------
# The figure

MARKERS = dict(zip(PAPER, "sD^vo*"))


def finals(net, name):
    """A net's last values as an array, NaN for None; test accuracy as error in %."""
    values = np.array(net[name]["final"], float)
    return 100 - 100 * values if name == "test_acc" else values


def draw_over_depth(axes, nets, name, title):
    """One line per form: mean over seeds against depth, bars from lowest to highest.
    Forms stand side by side at each depth, so that their bars are not on top of one
    another."""
    depths = sorted({net["depth"] for net in nets})
    for place, form in enumerate(PAPER):
        values = np.ma.masked_invalid([finals(net, name) for net in nets
                                       if net["block"] == form])     # (depths, seeds)
        x = np.array(depths) * 1.035 ** (place - 2.5)
        y = values.mean(axis=1)
        bars = np.ma.array([y - values.min(axis=1), values.max(axis=1) - y])
        axes.errorbar(x, y.filled(np.nan), yerr=bars.filled(0), color=COLOURS[form],
                      marker=MARKERS[form], markersize=5, linewidth=1.3, elinewidth=1.3,
                      label=PAPER[form][0])
    axes.set(xscale="log", yscale="log", xlabel="depth (layers, projection included)",
             title=title)
    axes.xaxis.set_major_locator(FixedLocator(depths))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    plain_numbers(axes.yaxis)
    axes.grid(axis="y", which="both")


def write_setting(net):
    """The chosen setting, in short; starred what is the first or last value tried."""
    chosen = net["chosen"]
    return ", ".join(f"{chosen[name]:g}" + "*" * (name in chosen["at_edge"])
                     for name in ("lr", "gate_bias") if name in chosen)


def draw_dots(axes, nets, depth):
    """One depth: a row for each form, a dot for each seed's test error, its mean, and
    right of it learning rate and b_T."""
    rows = {net["block"]: net for net in nets if net["depth"] == depth}
    for row, form in enumerate(PAPER):
        values = finals(rows[form], "test_acc")
        axes.plot(values, np.full(len(values), row), ".", color=COLOURS[form],
                  alpha=0.6, markersize=6)
        if np.isfinite(values).any():
            axes.plot(np.nanmean(values), row, "|", color=COLOURS[form], markersize=10,
                      markeredgewidth=2)
        if np.isnan(values).any():
            axes.text(0.02, row + 0.28, f"{np.isnan(values).sum()} diverged", size=6.5,
                      transform=axes.get_yaxis_transform())
        axes.text(1.0, row - 0.34, write_setting(rows[form]), size=6.5, ha="right",
                  color=LIGHT.soft, transform=axes.get_yaxis_transform())
    axes.set(title=f"{depth} layers", xscale="log", xlabel="test error, %",
             ylim=(-0.6, len(PAPER) - 0.3))
    axes.title.set_fontsize(10)
    axes.margins(x=0.12)
    axes.set_yticks(range(len(PAPER)), [f"{name}  {perplexity:.2f}"
                                        for name, perplexity in PAPER.values()])
    plain_numbers(axes.xaxis)
    axes.grid(axis="x")


def draw(record):
    """The record -> the figure: two panels over depth, one of dots for each depth."""
    nets, protocol = record["nets"], record["protocol"]
    figure = Figure(figsize=(9, 8), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    loss, error = upper.subplots(1, 2)
    draw_over_depth(loss, nets, "train_loss", "Training loss after "
                    f"{protocol['epochs']} epochs\n(mean and range of "
                    f"{len(protocol['seeds'])} seeds)")
    draw_over_depth(error, nets, "test_acc",
                    f"Test error, %\n({DATASETS[record['dataset']][0]})")
    loss.set_ylabel("mean cross-entropy")
    upper.legend(*loss.get_legend_handles_labels(), ncols=6, frameon=False,
                 loc="outside lower center")
    depths = protocol["depths"]
    for depth, axes in zip(depths, np.ravel(lower.subplots(1, len(depths),
                                                           sharey=True))):
        draw_dots(axes, nets, depth)
    lower.suptitle("Test error of each seed; right: learning rate and initial $b_T$ "
                   "chosen (*: first or last tried); left: test perplexity of P2, "
                   "Table 1a", size=10)
    return figure


EXPERIMENT = Experiment("experiments.blocks", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims,
                        lambda config: f"{config['block']}_{config['depth'] + 1}")

if __name__ == "__main__":
    main(EXPERIMENT)
