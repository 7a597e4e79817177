"""Does a harder task use more layers?

The claims (P1, section 4). MNIST's net keeps most of its 50 layers idle; "for complex
problems a highway network can learn to utilize all of its layers": on CIFAR-100 each of
the first 40 layers matters, outputs change up to layer 40, the classes differ in all
layers, and b_T rises with depth, against the activity of the gates.

The protocol. The highway nets of experiments/inside.py with three seeds: one plain
layer and 49 highway layers of 50 units, tanh, Glorot's weights, momentum SGD, 60
epochs, all training images less their mean. MNIST's are those of five_nets.py. Beside
them CIFAR-10 as JPEGs of quality 75, a stand-in, with b_T = -4, the paper's for
CIFAR-100, and with MNIST's -2, or b_T could make the difference. For each b_T the
learning rate is the one with the best accuracy after ten epochs on 5000 held-out
training images, with seed 0; no test image chooses anything. The counts below are also
made of nets with each rate that is within half a point of the best there, and have to
agree with them; and of those with the lowest training error, by which P1 chose, of all
these rates and of 0.2, 0.4 and 0.8, for b_T = -4. Measured on the training
images, as in Figures 2 to 4: loss and error with one layer closed at a time, and of the
first k layers alone; the mean change of block outputs; where the mean T of the classes
differs; b_T over depth.

A harder task uses more layers if each of its nets has more that matter than each net of
the easier one. A layer matters if closing it costs more than half a point of training
error. This favours nets with many images near a border, as CIFAR's; so two more counts
stand beside it: of layers that double the loss, which favours MNIST's nets, whose loss
is a ten-thousandth, and of those needed, from the first on, to err within a point of
the whole net. The thresholds are older than all nets of CIFAR; MNIST's were known.

    python3 -m experiments.harder_data --dataset cifar100       the paper's own question

The paper is silent, we assume: epochs, momentum and decay are those of MNIST's nets.
Deviations, and what came of it: results/harder_data/README.md.

Cost on one core: 43 minutes, two and a half at most a net. Finished trials are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from operator import ge, gt, lt
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import highway_networks as hn
from experiments import five_nets, inside
from experiments.lab.drawing import plain_numbers, title_of
from experiments.five_claims import MORE, before_too, judged, trained
from experiments.gates import correlation, per_example
from experiments.judging import Claim, at_each, claim, listed, resting_on
from experiments.old_lab import Experiment, Lab, main
from experiments.lesion import columns, needed_layers
from experiments.probing import loss_and_error, mean_gates, prefix
from experiments.store import StoreError, Trial, hash_of, read_packed
from highway_suite.figures import LIGHT, TITLE
from highway_suite.records import RecordError

PROTOCOL: dict[str, Any] = {
    "dataset": "cifar10-jpeg75", "gate_biases": [-4.0, -2.0], "seeds": [0, 1, 2],
    "net": {name: inside.PROTOCOL[name] for name in (
        "depth", "hidden", "activation", "init", "batch", "momentum", "lr_decay")},
    "epochs": inside.PROTOCOL["epochs"]["highway"],
    "search": {"lrs": [0.0125, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6], "epochs": 10,
               "held_out": 5000, "seed": 0, "near": 0.005},
    "further": [0.2, 0.4, 0.8], "early": 15, "first": 40}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "seeds": [0, 1], "epochs": 4,
    "net": PROTOCOL["net"] | {"depth": 6, "hidden": 16},
    "search": {"lrs": [0.1, 0.2], "epochs": 1, "held_out": 237, "seed": 0,
               "near": 0.5}, "further": [0.2],
    "early": 2, "first": 5}

POINTS = (0.0025, 0.005, 0.01)      # half, given and twice a threshold of error

# --------------------------------------------------------------------------------------
# The trials


def make_config(protocol: dict, kind: str, gate_bias: float, lr: float, seed: int
                ) -> dict:
    """The trial of one net: of the search, or one that is looked into."""
    search = protocol["search"]
    own = ({"epochs": search["epochs"], "held_out": search["held_out"]}
           if kind == "search" else {"epochs": protocol["epochs"]})
    return {"kind": kind, "dataset": protocol["dataset"], **protocol["net"], **own,
            "gate_bias": gate_bias, "lr": lr, "seed": seed}


def scaled_and_centred(data: hn.Data) -> hn.Data:
    """Data as read -> pixels in [-1, 1] less the mean training image."""
    scaled = hn.scale_pixels(data)
    mean = inside.mean_image(scaled)
    for x in (scaled.x_train, scaled.x_test):
        x -= mean               # in place: they take most of a gigabyte
    return scaled


def train(config: dict, data: hn.Data) -> tuple[hn.DeepNet, hn.DeepNet, dict]:
    """A net for centred Data, trained; the same before it; status, rate, and per epoch
    the training loss and the accuracy on the data's test images."""
    settings = hn.Config(block="highway", optimizer="sgd", clip=0.0, **{
        name: value for name, value in config.items()
        if name not in ("kind", "dataset", "held_out")})
    net, fresh = (hn.make_net(settings, data) for _ in range(2))
    history, _, status = hn.train(net, data, settings)
    return net, fresh, {"status": status, "parameters": net.params.size, "lr":
                        config["lr"], "epochs": config["epochs"], "train_loss":
                        history["train_loss"], "test_acc": history["test_acc"]}


def search(config: dict, data: hn.Data) -> dict:
    """A trial of the search: trained without the last training images, on which its
    accuracy is taken."""
    images = scaled_and_centred(data)
    kept, held = slice(-config["held_out"]), slice(-config["held_out"], None)
    net, _, found = train(config, replace(
        images, x_train=images.x_train[kept], y_train=images.y_train[kept],
        x_test=images.x_train[held], y_test=images.y_train[held]))
    return found


def look_into(config: dict, data: hn.Data) -> dict:
    """A net, trained -> what Figures 2 to 4 show of it on the training images, and some
    of it before training."""
    images = scaled_and_centred(data)
    net, fresh, found = train(config, images)
    if found["status"] != "ok":
        return {"training": found}
    x, labels = images.x_train, images.y_train
    loss, error = loss_and_error(net, x, labels)
    states = {"trained": net, "untrained": fresh}
    return {
        "training": found, "loss": hn.significant(loss), "error": hn.significant(error),
        "one_closed": columns(loss_and_error(net, x, labels, [layer])
                              for layer in range(net.depth)),
        "first_only": {"error": listed(prefix(net, x, labels)[1])},
        "change": {state: listed(per_example(each, x, 0.1).change)
                   for state, each in states.items()},
        "differences": {state: differences(each, x, labels)
                        for state, each in states.items()},
        "bias": about_bias(net, x, config["gate_bias"])}


def differences(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray) -> dict:
    """Of the squared differences of the classes' mean T from that of all images, the
    share of each layer (L,): of classes 0 and 1, as in Figure 3, and of all."""
    by_class = np.stack([mean_gates(net, x[labels == c]) for c in range(net.classes)])
    weights = np.bincount(labels, minlength=net.classes) / len(labels)
    apart = by_class - np.tensordot(weights, by_class, 1)           # (C, L, U)
    squares = (apart ** 2).sum(axis=2)
    return {name: listed(rows.sum(axis=0) / rows.sum())
            for name, rows in (("two", squares[:2]), ("all", squares))}


def about_bias(net: hn.DeepNet, x: np.ndarray, start: float) -> dict:
    """b_T after training: how many fell, by how much each layer rose in the mean, and
    how the means go with depth and with the mean T."""
    b_T = net.views(net.params)["b_T"].astype(float)                # (L, U)
    layers = b_T.mean(axis=1)
    return {"fell": hn.significant((b_T < start).mean()),
            "rose": listed(layers - start),
            "with_depth": correlation(layers, np.arange(len(layers))),
            "with_activity": correlation(layers, mean_gates(net, x).mean(axis=1))}


# --------------------------------------------------------------------------------------
# MNIST's nets


def as_ours(found: dict) -> dict:
    """A net of five_nets.py, by the names that ours have; its two classes are 0 and 7,
    as in Figure 3."""
    gates, lesions = found["gates"], found["lesion"]
    shares = gates["difference_shares"]
    return {
        "training": found["training"] | {"status": "ok"},
        **{name: lesions[name] for name in ("loss", "error", "one_closed")},
        "first_only": {"error": lesions["first_only"]["error"]},
        "change": {state: gates["sparsity"][state]["change"]
                   for state in ("trained", "untrained")},
        "differences": {state: {"two": shares[f"share_of_layer_0_7{suffix}"],
                                "all": shares[f"share_of_layer{suffix}"]}
                        for state, suffix in (("trained", ""),
                                              ("untrained", "_untrained"))},
        "bias": {"fell": gates["bias"]["fell"],
                 "with_depth": gates["bias_depth_correlation"],
                 "with_activity": gates["bias_activity_correlation"]["layer_means"]}}


def nets_of_mnist(lab: Lab) -> dict[int, Trial]:
    """The committed trials of five_nets.py, by seed; a smoke run trains small ones.
    Raises StoreError where they are not there."""
    plan = five_nets.PROTOCOL | (five_nets.SMOKE if lab.options.smoke else {})
    configs = {seed: config for (block, seed), config in five_nets.configs(
        plan | {"seeds": lab.protocol["seeds"]}).items() if block == "highway"}
    if lab.options.smoke:
        return lab.trials(five_nets.look_into, configs, lab.load_data())
    path = hn.HERE / "results" / "five_nets" / "trials" / "highway.jsonl"
    there = read_packed([path], {"experiment": "five_nets", "dataset": "mnist"})
    missing = [seed for seed, config in configs.items() if hash_of(config) not in there]
    if missing:
        raise StoreError(f"{path}: no net of seed {missing[0]}. Make it with: python3 "
                         "-m experiments.five_nets")
    return {seed: there[hash_of(config)] for seed, config in configs.items()}


# --------------------------------------------------------------------------------------
# Claims


def rises(net: dict) -> np.ndarray:
    """By how much the training error rises with each layer closed, (L,)."""
    return np.array(net["one_closed"]["error"]) - net["error"]


def costly(net: dict, limit: float) -> int:
    """How many layers cost more than that share of the training images."""
    return int((rises(net) > limit).sum())


def multiplying(net: dict, limit: float) -> int:
    """How many layers multiply the loss by more."""
    return int((np.array(net["one_closed"]["loss"]) > limit * net["loss"]).sum())


def late(net: dict, early: float) -> float:
    """The share of the change in outputs that the layers after the early ones make."""
    steps = np.array(net["change"]["trained"])
    return hn.significant(steps[int(early):].sum() / steps.sum())


def by_rate(record: dict, group: str) -> dict[str, list[dict]]:
    """Nets of a group: those of the chosen rate first, then of those near it."""
    chosen = record["nets"][group]
    return {f"{chosen[0]['training']['lr']:g}": chosen, **record["near"][group]}


def fitted_best(record: dict) -> dict[str, list[dict]]:
    """The nets of the rate with the least mean training error, by that rate."""
    groups = by_rate(record, "harder") | record["further"]
    best = min(groups, key=lambda lr: np.mean([net["error"] for net in groups[lr]]))
    return {best: groups[best]}


def trials_of(gate_bias: float, rates: Iterable[str]) -> dict:
    """What the trials of nets of these rates have in common."""
    return {"kind": "net", "gate_bias": gate_bias, "lr": [float(lr) for lr in rates]}


def more(record: dict, groups: dict[str, list], of: Callable, limits: tuple) -> dict:
    """Whether a number of every net, with every rate, is larger than that of every net
    of MNIST, with the middle one of three limits and the others: fields of a claim. It
    is not if none is; else it is open."""
    _, given, _ = limits
    numbers = {limit: {f"rate {lr}": [of(net, limit) for net in nets]
                       for lr, nets in groups.items()} for limit in limits}
    mnist = {limit: [of(net, limit) for net in record["nets"]["mnist"]]
             for limit in limits}

    def holds(limit):
        found = [value for values in numbers[limit].values() for value in values]
        return True if min(found) > max(mnist[limit]) else (
            False if max(found) <= min(mnist[limit]) else None)
    return {"ours": numbers[given] | {"MNIST": mnist[given]}, "n": len(mnist[given]),
            "younger": True, **at_each(holds, limits)}


def check_counts(record: dict, title: str) -> list[Claim]:
    """Whether harder data use more layers than MNIST, by three measures. That all near
    rates have to agree was added when the chosen one alone was known to decide."""
    protocol, near = record["protocol"], by_rate(record, "harder")
    about, beside = f"on {title}, ", (
        "; each net of a rate near the best against each of MNIST's")
    found = [
        claim(section="P1 4.2", text=about + "more layers than on MNIST cost more than "
              "half a point of training error if closed" + beside,
              paper="about 40 of CIFAR-100, 15 of MNIST",
              **more(record, near, costly, POINTS)),
        claim(section="P1 4", text=about + "outputs change later than on MNIST: the "
              f"share of the change after layer {protocol['early']}" + beside,
              paper="40 layers, MNIST 15", **more(
                  record, near, late, (protocol["early"] // 2, protocol["early"],
                                       2 * protocol["early"]))),
        claim(section="ours", text=about + "more layers than on MNIST double the loss "
              "if closed" + beside, paper=None,
              **more(record, near, multiplying, (1.5, 2, 3))),
        claim(section="ours", text=about + "more layers than on MNIST, counted from "
              "the first, are needed to err within a point of the whole net" + beside,
              paper=None, **more(record, near, needed_layers, (0.005, 0.01, 0.02)))]
    fair = claim(section="ours", text=about + "with MNIST's b_T, too, more layers "
                 "than on MNIST cost more than half a point of training error if closed"
                 + beside, paper=None, **more(
                     record, by_rate(record, "same b_T"), costly, POINTS))
    as_theirs = claim(
        section="P1 4.2", text=about + "in nets with the lowest training error, by "
        "which P1 chose, more layers than on MNIST cost more than half a point of "
        "training error if closed; each net against each of MNIST's",
        paper="about 40 of CIFAR-100, 15 of MNIST",
        **more(record, fitted_best(record), costly, POINTS))
    theirs, same = protocol["gate_biases"]
    return [*resting_on(found, trials_of(theirs, near)),
            *resting_on([as_theirs], trials_of(theirs, fitted_best(record))),
            *resting_on([fair], trials_of(same, by_rate(record, "same b_T")))]


def check_layers(nets: list[dict], protocol: dict) -> list[dict]:
    """What P1 says of the inside of its net for CIFAR-100."""
    first, early = protocol["first"], protocol["early"]
    bias = [net["bias"] for net in nets]

    def change(net, state):
        steps = np.array(net["change"][state])
        return steps[:first].sum() / steps.sum()

    def classes(net, state):
        return max(float(np.sum(shares[:early]))
                   for shares in net["differences"][state].values())
    return [
        claim(section="P1 4", text="most transform biases fall during training",
              paper="> 0.5", **judged(trained(bias, lambda b: b["fell"]), gt, MORE)),
        claim(section="P1 4", text="b_T rises with depth: correlation of its mean in a "
              "layer with depth above 0.5", paper="forming a gradient",
              **judged(trained(bias, lambda b: b["with_depth"]), gt, MORE)),
        claim(section="P1 4", text="b_T over depth is inversely correlated with the "
              "activity of the gates: of the means of layers, below -0.5",
              paper="inversely", **judged(trained(
                  bias, lambda b: b["with_activity"]), lt, (-0.25, -0.5, -0.75))),
        claim(section="P1 4", text="most of the change in outputs, more than nine "
              f"tenths, is in the first {first} layers", paper="about 40",
              **judged(before_too(nets, change), gt, (0.8, 0.9, 0.95))),
        claim(section="P1 4.1", text="class differences of mean T are spread out over "
              "all layers: less than half of their squares are in the first "
              f"{early}, for the paper's two classes and for all", paper="all layers",
              **judged(before_too(nets, classes), lt, MORE[::-1])),
        claim(section="P1 4.2", text=f"closing any one of the first {first} layers "
              "costs noticeably, at least half a point of training error",
              paper="noticeably", **judged(
                  trained(nets, lambda net: rises(net)[:first].min()), ge, POINTS))]


def check_claims(record: dict) -> list[dict]:
    """All claims of a record. Of other data than CIFAR-100 those that P1 makes of it
    are our own questions. They are asked of the nets that P1 would have chosen, which
    was decided when they had been asked of those that held-out images chose."""
    protocol, title = record["protocol"], title_of(record)
    best = fitted_best(record)
    (fitted,) = best.values()
    told = [item | {"younger": True} for item in check_layers(fitted, protocol)]
    if record["dataset"] != "cifar100":
        told = [item | {"section": "ours", "claim": "what P1 says of CIFAR-100, "
                        f"on {title}: {item['claim']}"} for item in told]
    return [*check_counts(record, title),
            *resting_on(told, trials_of(protocol["gate_biases"][0], best))]


# --------------------------------------------------------------------------------------
# The record and its figure


def shown(seed: int, found: dict) -> dict:
    """A net of the record: what was measured, and how its training ended."""
    training = found["training"]
    if training["status"] != "ok":
        raise RecordError(f"the net of seed {seed} diverged at lr {training['lr']:g}")
    ends = {name: training[name][-1] for name in ("train_loss", "test_acc")}
    return {"seed": seed, **found, "training": ends | {
        name: training[name] for name in ("lr", "epochs", "parameters")}}


def run(lab: Lab) -> dict:
    """Search, train, look into the nets -> the record."""
    protocol, data = lab.protocol, lab.load_data()
    nets = {"mnist": [shown(seed, as_ours(trial.result))
                      for seed, trial in nets_of_mnist(lab).items()]}
    biases, lrs, seed = (protocol["gate_biases"], protocol["search"]["lrs"],
                         protocol["search"]["seed"])
    searched = lab.trials(search, {
        (bias, lr): make_config(protocol, "search", bias, lr, seed)
        for bias in biases for lr in lrs}, data)
    accuracy = {key: trial.result["test_acc"][-1] for key, trial in searched.items()}
    kept = {bias: near_the_best({lr: accuracy[bias, lr] or 0 for lr in lrs},
                                protocol["search"]["near"]) for bias in biases}
    further = [lr for lr in protocol["further"] if lr not in kept[biases[0]]]
    looked = lab.trials(look_into, {
        (bias, lr, seed): make_config(protocol, "net", bias, lr, seed)
        for bias in biases for seed in protocol["seeds"]
        for lr in kept[bias] + further * (bias == biases[0])}, data)

    def of_rate(bias, lr):
        return [shown(seed, looked[bias, lr, seed].result)
                for seed in protocol["seeds"]]

    def of_rates(bias, rates):      # but for those with which a net diverged
        return {f"{lr:g}": of_rate(bias, lr) for lr in rates if all(
            looked[bias, lr, seed].result["training"]["status"] == "ok"
            for seed in protocol["seeds"])}
    near = {}
    for name, bias in zip(("harder", "same b_T"), biases, strict=True):
        best, *others = kept[bias]
        nets[name] = of_rate(bias, best)
        near[name] = of_rates(bias, others)
    return {"n_train": len(data.x_train), "search": [
        {"gate_bias": bias, "lr": lrs,
         "held_out_acc": [accuracy[bias, lr] for lr in lrs]}
        for bias in biases], "nets": nets, "near": near,
        "further": of_rates(biases[0], further)}


def near_the_best(accuracy: dict[float, float], within: float) -> list[float]:
    """The rate with the best accuracy, and then those that are within so much of it."""
    best = max(accuracy, key=accuracy.__getitem__)
    return [best, *(lr for lr, value in accuracy.items()
                    if lr != best and value >= accuracy[best] - within)]


def draw_nets(axes: Axes, record: dict, of: Callable) -> None:
    """A line for each net over its layers; of(net) -> values, None where there are
    none."""
    title, (theirs, same) = title_of(record), record["protocol"]["gate_biases"]
    (fitted,) = fitted_best(record).values()
    looks = [("MNIST", same, LIGHT.highway, record["nets"]["mnist"]),
             (title, theirs, LIGHT.own[0], record["nets"]["harder"]),
             (title, theirs, LIGHT.own[2], fitted),
             (title, same, LIGHT.blocks["t_only"], record["nets"]["same b_T"])]
    for name, start, colour, nets in looks:
        label = (f"{name}, $b_T$ from {start:g}, "
                 f"rate {nets[0]['training']['lr']:g}")
        for number, net in enumerate(nets):
            values = of(net)
            if values is not None:
                axes.plot(np.arange(1, len(values) + 1), values, color=colour,
                          linewidth=1.3, alpha=0.85,
                          label=None if number else label)
    axes.set_xlabel("highway layer")


def message(record: dict) -> str:
    """How many layers matter of the nets fitted best and of MNIST's, in a line."""
    (fitted,), mnist = fitted_best(record).values(), record["nets"]["mnist"]
    counts = [sorted({costly(net, POINTS[1]) for net in nets})
              for nets in (fitted, mnist)]
    theirs, ours = (" to ".join(map(str, dict.fromkeys((found[0], found[-1]))))
                    for found in counts)
    return (f"Of {len(rises(mnist[0]))} highway layers of the nets with the least "
            f"training error\n{theirs} matter for {title_of(record)}; {ours} for MNIST")


def draw(record: dict) -> Figure:
    """The record -> lesions, change of outputs and b_T over depth, a line a net."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(1.25, 1))
    lesions = figure.add_subplot(grid[0, :])
    change, bias = (figure.add_subplot(grid[1, i]) for i in range(2))
    draw_nets(lesions, record, lambda net: np.maximum(100 * rises(net), 0.01))
    lesions.axhline(100 * POINTS[1], color=LIGHT.soft, linewidth=1, linestyle="--")
    lesions.set(yscale="log", xlabel="closed layer", ylabel="points of training error",
                title="What closing one layer costs (0.01 and less: at the edge; "
                "dashed: above it a layer matters)")
    plain_numbers(lesions.yaxis)
    draw_nets(change, record, lambda net: 100 * np.cumsum(net["change"]["trained"])
              / np.sum(net["change"]["trained"]))
    change.set(ylabel="% up to this layer", ylim=(0, 102),
               title="Change of block outputs, cumulated")
    draw_nets(bias, record, lambda net: net["bias"].get("rose"))
    bias.set(ylabel="mean of the layer", title="Rise of $b_T$ on the harder data")
    for axes in figure.axes:
        axes.title.set_fontsize(10)
        axes.tick_params(labelsize=8)
    figure.legend(*lesions.get_legend_handles_labels(), ncols=2, frameon=False,
                  fontsize=9, loc="outside upper center", title=message(record),
                  title_fontproperties=TITLE)
    theirs = record["protocol"]["gate_biases"][0]
    figure.supxlabel(f"a line for each of {len(record['protocol']['seeds'])} nets; for "
                     f"$b_T$ from {theirs:g} the rate with the best held-out accuracy, "
                     "and that with the lowest training error, as in the title",
                     fontsize=8.5)
    return figure


EXPERIMENT = Experiment(name="experiments.harder_data", doc=__doc__, minutes=22,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw,
                        check=check_claims, besides=26,
                        others={"cifar10": True, "cifar100": True},
                        pack_by=lambda config: config.get("kind", "mnist"))

if __name__ == "__main__":
    main(EXPERIMENT)
