"""Do five nets of each kind agree on what one of them shows inside?

The claims are those of Figures 2 to 4 (P1, section 4) and of unrolled iterative
estimation (P2, sections 2 to 4), which gates.py and lesion.py draw for one net of each
kind. Here each is judged by five. P1 4.1 asks too whether the nets "just learn a static
routing": so T is held at its mean over images, at its mean over the images of a class,
or is that of another image, in all layers or in some. P2's Eqs. 7 and 9 want steps of
mean 0, and its Eqs. 10 to 12 say what T would be optimal. P1's "stripes" are counted.

The protocol. Highway, residual and plain nets of experiments/inside.py, and T-only nets
by the same rules, with five seeds each: for each the learning rate is searched and the
net trained anew. The committed nets of `inside` are those of seed 0. All measurements
are on the 60,000 training images, as P1's, but for random lesions (the first 10,000)
and for readouts, which are judged on the test images. T of another image: of the next
500 images they are permuted, among all or within each class.

A verdict over nets: it holds if it does for each net, does not hold if for none, and is
open in between; or if it was as true before training, or is as true of a plain net, so
that it says nothing of what the gates learned. The thresholds stand in five_claims.py,
older than all nets but those of seed 0.

Assumptions, deviations and what came of it: results/five_nets/README.md.

Cost on two cores: 40 minutes. Finished trials are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from experiments import gates, inside, lesion
from experiments.lab.drawing import GREY, colour_of, title_of
from experiments.five_claims import check_claims
from experiments.judging import listed, or_infinite
from experiments.old_lab import Experiment, Lab, load_record, main
from experiments.lab.papers import spoken
from experiments.probing import (
    bias_of_steps,
    mean_gates,
    optimal_mixing,
    rerouted,
    still,
)
from experiments.readouts import readouts
from highway_suite.figures import TITLE
from highway_suite.records import RecordError, load_net, weights_hash

MEASURES = {"closed": 0.1, "ridge": 1e-4, "apart": 10, "within": [0.05, 0.1, 0.2],
            "ranges": {"all": [1, 49], "1 to 5": [1, 5], "1 to 15": [1, 15],
                       "16 to 49": [16, 49], "30 to 49": [30, 49]}}
PROTOCOL = {"dataset": "mnist", "seeds": [0, 1, 2, 3, 4],
            "nets": {name: value for name, value in inside.PROTOCOL.items()
                     if name not in ("dataset", "seed")}
            | {"lrs": inside.PROTOCOL["lrs"] | {"t_only": [0.01, 0.03, 0.1, 0.3]},
               "epochs": inside.PROTOCOL["epochs"] | {"t_only": 60}},
            "measures": MEASURES, "lesions": lesion.PROTOCOL,
            "early": 15, "idle": [15, 45]}
SMOKE = {"dataset": "digits", "seeds": [0, 1],
         "nets": {name: value for name, value
                  in (inside.PROTOCOL | inside.SMOKE).items()
                  if name not in ("dataset", "seed")}
         | {"lrs": inside.SMOKE["lrs"] | {"t_only": [0.1]},
            "epochs": inside.SMOKE["epochs"] | {"t_only": 4}},
         "measures": MEASURES | {"apart": 2, "ranges": {
             "all": [1, 6], "1 to 15": [1, 2], "16 to 49": [3, 6]}},
         "lesions": lesion.PROTOCOL | lesion.SMOKE, "early": 2, "idle": [3, 5]}

# --------------------------------------------------------------------------------------
# A trial: one net, trained and looked into


def configs(protocol: dict) -> dict[tuple[str, int], dict]:
    """{(block, seed): config of its trial}."""
    nets = protocol["nets"]
    return {(block, seed): {
        "block": block, "seed": seed, "dataset": protocol["dataset"],
        "nets": nets | {"lrs": nets["lrs"][block], "epochs": nets["epochs"][block]},
        "measures": protocol["measures"], "lesions": protocol["lesions"]}
        for seed in protocol["seeds"] for block in nets["lrs"]}


def trained_net(config: dict, data: hn.Data) -> tuple[hn.DeepNet, dict]:
    """A trial's config and scaled Data -> its net, trained, and how."""
    nets, block = config["nets"], config["block"]
    protocol = nets | {"dataset": config["dataset"], "seed": config["seed"],
                       "lrs": {block: nets["lrs"]}, "epochs": {block: nets["epochs"]}}
    if protocol == only(inside.PROTOCOL, block):
        return committed_net(block)
    net, fields = train_best(protocol, block, inside.centred(data))
    inside.fold_mean(net, inside.mean_image(data))
    return net, fields | {"sha256": weights_hash(net)}


def train_best(protocol: dict, block: str, data: hn.Data) -> tuple[hn.DeepNet, dict]:
    """Search the learning rate, train to the end at the best -> the net, and how."""
    def train(lr, epochs):
        config = inside.make_config(protocol, block, lr, epochs)
        net = hn.make_net(config, data)
        history, _, status = hn.train(net, data, config)
        return net, history, status
    lrs = protocol["lrs"][block]
    losses = [train(lr, protocol["search_epochs"])[1]["train_loss"][-1] for lr in lrs]
    lr, epochs = lrs[int(np.argmin(or_infinite(losses)))], protocol["epochs"][block]
    net, history, status = train(lr, epochs)
    if status != "ok":
        raise RecordError(f"the {block} net diverged at lr {lr:g}")
    return net, {"block": block, "lr": lr, "epochs": epochs,
                 "parameters": net.params.size,
                 "search": {"lr": lrs, "train_loss": losses},
                 "train_loss": history["train_loss"], "test_acc": history["test_acc"]}


def only(protocol: dict, block: str) -> dict:
    """The protocol of `inside`, of one block."""
    return protocol | {name: {block: protocol[name].get(block)}
                       for name in ("lrs", "epochs")}


def committed_net(block: str) -> tuple[hn.DeepNet, dict]:
    """The net of seed 0, and how it was trained. Raises RecordError."""
    folder = hn.HERE / "results" / "inside"
    record, _ = load_record(folder / "record.json")
    (fields,) = (net for net in record["nets"] if net["block"] == block)
    net = load_net(folder / fields["file"], fields["sha256"])
    return net, {name: value for name, value in fields.items() if name != "file"}


def look_into(config: dict, data: hn.Data) -> dict:
    """Train one net, or load it -> all that is measured of it, before training too."""
    scaled = hn.scale_pixels(data)
    net, fields = trained_net(config, scaled)
    fresh = inside.untrained({"protocol": config["nets"] | {
        "dataset": config["dataset"], "seed": config["seed"]}}, config["block"], scaled)
    states, x = {"trained": net, "untrained": fresh}, scaled.x_train
    measures = config["measures"]
    lesions = {name: of(net, fresh, scaled, config["lesions"])
               for name, of in lesion.MEASURES.items()}
    found = {"training": fields, "lesion": lesions.pop("whole") | lesions,
             "steps_bias": {state: listed(bias_of_steps(each, x))
                            for state, each in states.items()},
             "still": {state: listed(still(each, x, measures["apart"],
                                           measures["within"]))
                       for state, each in states.items()}}
    if "T" in net.block.gates:
        found["gates"] = about_gates(states, scaled, config)
        found["rerouted"] = reroute(net, scaled, config)
    if config["block"] == "highway":
        found["mixing"] = {state: mixing(each, x) for state, each in states.items()}
    return found


def about_gates(states: dict[str, hn.DeepNet], data: hn.Data, config: dict) -> dict:
    """What gates.py measures and the verdicts need."""
    measures = config["measures"]
    biases = states["trained"].views(states["trained"].params)["b_T"].astype(float)
    change = biases - config["nets"]["gate_bias"]
    T = {state: gates.moments(net, data.x_train, data.y_train, "T")
         for state, net in states.items()}
    differences = gates.figure_3(*(gates.class_differences(T[state])
                                   for state in ("trained", "untrained")))
    T_mean = T["trained"].mean.reshape(biases.shape)
    told: dict[str, dict] = {}
    for state, net in states.items():
        for values in gates.VALUES:
            stats = T[state] if values == "T" else gates.moments(
                net, data.x_train, data.y_train, values)
            right = gates.accuracies(net, data.x_test, data.y_test, values,
                                     readouts(stats, measures["ridge"]))
            for how, shares in right.items():
                told.setdefault(f"{values}, {how}", {})[state] = shares["all"]
    return {
        "bias": {"fell": hn.significant((change < 0).mean()),
                 "mean_change": hn.significant(change.mean()),
                 "std_of_change": hn.significant(change.std()),
                 "moved_less_than_0.05": hn.significant((abs(change) < 0.05).mean())},
        "bias_activity_correlation": {
            "all": gates.correlation(biases, T_mean),
            "layer_means": gates.correlation(biases.mean(axis=1), T_mean.mean(axis=1))},
        "bias_depth_correlation": gates.correlation(biases.mean(axis=1),
                                                    np.arange(len(biases))),
        "sparsity": {state: gates.sparsity(net, data.x_train, T[state],
                                           measures["closed"])
                     for state, net in states.items()},
        "difference_shares": {name: share for name, share in differences.items()
                              if name.startswith("share")},
        "told": told}


def permuted(labels: np.ndarray, rng: np.random.Generator, within: bool) -> np.ndarray:
    """A permutation of a batch; within: each image keeps to its class."""
    if not within:
        return rng.permutation(len(labels))
    order = np.arange(len(labels))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        order[own] = own[rng.permutation(len(own))]
    return order


def reroute(net: hn.DeepNet, data: hn.Data, config: dict) -> dict:
    """Loss and error with T held or exchanged: {way: {range of layers: [loss, error]}}.
    """
    x, labels = data.x_train, data.y_train
    rng = np.random.default_rng([config["seed"], 3])
    mean = mean_gates(net, x)[..., None].astype(net.dtype)
    by_class = np.stack([mean_gates(net, x[labels == c])
                         for c in range(net.classes)], axis=2).astype(net.dtype)
    shape = (net.depth, net.hidden, 1)
    ways: dict[str, Any] = {
        "mean of all": lambda rows, T: np.broadcast_to(mean, shape),
        "mean of its class": lambda rows, T: by_class[..., labels[rows]],
        "of another image": lambda rows, T: T[..., permuted(labels[rows], rng, False)],
        "of its class": lambda rows, T: T[..., permuted(labels[rows], rng, True)]}
    ranges = {name: range(first - 1, last)
              for name, (first, last) in config["measures"]["ranges"].items()}
    found = rerouted(net, x, labels, {
        f"{way}|{name}": (layers, given) for way, given in ways.items()
        for name, layers in ranges.items()})
    return {way: {name: listed(found[f"{way}|{name}"]) for name in ranges}
            for way in ways}


def mixing(net: hn.DeepNet, x: np.ndarray) -> dict:
    """How the T that is there goes with the one that would mix best, over the gates of
    all layers but the last, where they are one by definition."""
    best, T = optimal_mixing(net, x)[:-1], mean_gates(net, x)[:-1]
    ranks = [np.argsort(np.argsort(values, axis=None)) for values in (best, T)]
    near = (best > T / 2) & (best < 2 * T)
    return {"rank_correlation": gates.correlation(*ranks),
            "within_a_factor_of_2": hn.significant(near.mean()),
            "median_best": hn.significant(np.median(best)),
            "median_T": hn.significant(np.median(T)),
            "outside_0_1": hn.significant(((best < 0) | (best > 1)).mean())}


# --------------------------------------------------------------------------------------
# The record and its figure


def run(lab: Lab) -> dict:
    """All nets -> the record: what each trial found, by block, in order of seeds."""
    trials = lab.trials(look_into, configs(lab.protocol), lab.load_data())
    nets: dict[str, list] = {}
    for (block, seed), trial in trials.items():
        nets.setdefault(block, []).append({"seed": seed} | trial.result)
    return {"nets": nets}


def by_depth(axes: Any, nets: dict, of: Any, scale: float = 1.0, first: int = 1
             ) -> None:
    """Lines over layers from the first on, one for each net; of(net) -> values."""
    for block, found in nets.items():
        for number, net in enumerate(found):
            values = scale * np.asarray(of(net), float)
            axes.plot(np.arange(len(values)) + first, values, color=colour_of(block),
                      linewidth=0.9, alpha=0.8,
                      label=spoken(block) if not number else None)


def draw_rerouted(axes: Any, nets: dict, ranges: dict) -> None:
    """The loss with T held or exchanged, by range of layers, for each gated net."""
    gated = {block: found for block, found in nets.items() if "rerouted" in found[0]}
    ways = list(next(iter(gated.values()))[0]["rerouted"])
    markers = dict(zip(ways, "osv^", strict=True))
    for shift, (block, found) in enumerate(gated.items()):
        for place, name in enumerate(ranges):
            for step, way in enumerate(ways):
                values = [net["rerouted"][way][name][0] for net in found]
                at = place + (shift - 0.5) * 0.4 + (step - 1.5) * 0.08
                axes.plot([at] * len(values), values, markers[way], markersize=3.2,
                          color=colour_of(block), alpha=0.75, markeredgewidth=0)
        whole = [net["lesion"]["loss"] for net in found]
        axes.axhline(np.median(whole), color=colour_of(block), linewidth=1,
                     linestyle="--")
    for way, marker in markers.items():
        axes.plot([], [], marker, color=GREY, markersize=4, label=f"T {way}")
    axes.set(yscale="log", xticks=range(len(ranges)),
             xticklabels=[f"layers {name}".replace("layers all", "all layers")
                          for name in ranges], ylabel="mean cross-entropy, nats",
             title="Training loss where layers are given T (dashed: with their own)")
    axes.set_ylim(top=6 * axes.get_ylim()[1])       # room for the legend
    axes.legend(frameon=False, fontsize=7.5, ncols=4, loc="upper right")


def draw(record: dict) -> Figure:
    """The record -> Figure 4, estimation error and routing, a line for each net."""
    nets, protocol = record["nets"], record["protocol"]
    figure = Figure(figsize=(9, 8.6), layout="constrained")
    grid = figure.add_gridspec(3, 2)
    shares = {block: np.median([lesion.spared(net["lesion"]).mean() for net in found])
              for block, found in nets.items()}
    loss, error = (figure.add_subplot(grid[0, i]) for i in range(2))
    std, bias = (figure.add_subplot(grid[1, i]) for i in range(2))
    by_depth(loss, nets, lambda net: net["lesion"]["one_closed"]["loss"])
    by_depth(error, nets, lambda net: net["lesion"]["one_closed"]["error"], 100)
    by_depth(std, nets, lambda net: np.array(
        net["lesion"]["estimation"]["trained"]["std"])
        / net["lesion"]["estimation"]["trained"]["std"][0], first=0)
    by_depth(bias, nets, lambda net: net["lesion"]["estimation"]["trained"][
        "bias_share"], 100, first=0)
    loss.set(yscale="log", ylabel="mean cross-entropy, nats", xlabel="closed layer",
             title="Loss, one layer closed")
    error.set(ylabel="training error, %", xlabel="closed layer",
              title="Error, one layer closed")
    std.set(ylabel="relative to $k=0$", xlabel="layer $k$", ylim=(0, None),
            title="s.d. of the estimation error $a_k-A$")
    bias.set(ylabel="% of the squared error", xlabel="layer $k$", ylim=(0, None),
             title="Its bias, unit by unit")
    draw_rerouted(figure.add_subplot(grid[2, :]), nets, protocol["measures"]["ranges"])
    for axes in figure.axes:
        axes.title.set_fontsize(10)
        axes.tick_params(labelsize=8)
    figure.legend(*loss.get_legend_handles_labels(), ncols=4, frameon=False,
                  loc="outside upper center", title_fontproperties=TITLE,
                  title="Layers that can be closed alone, medians: " + ", ".join(
                      f"{spoken(block)} {100 * share:.0f} %"
                      for block, share in shares.items()))
    figure.supxlabel(f"{title_of(record)}: all training images; a line or mark for "
                     f"each of {len(protocol['seeds'])} nets of each kind; layers are "
                     "counted after the projection.\nCan be closed: the loss does not "
                     "double", fontsize=8.5)
    return figure


EXPERIMENT = Experiment(name="experiments.five_nets", doc=__doc__, minutes=40,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw,
                        check=check_claims, pack_by=lambda config: config["block"])

if __name__ == "__main__":
    main(EXPERIMENT)
