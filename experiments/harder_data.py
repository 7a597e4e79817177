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
training images, with seed 0; no test image chooses anything. Measured on the training
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

Cost on one core: 16 minutes, two and a half at most a net. Finished trials are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import inside
from experiments.five_claims import MORE, above, before_too, below, judged, trained
from experiments.lab import Claim, claim, resting_on
from experiments.lesion import needed_layers

PROTOCOL: dict[str, Any] = {
    "dataset": "cifar10-jpeg75", "gate_biases": [-4.0, -2.0], "seeds": [0, 1, 2],
    "net": {name: inside.PROTOCOL[name] for name in (
        "depth", "hidden", "activation", "init", "batch", "momentum", "lr_decay")},
    "epochs": inside.PROTOCOL["epochs"]["highway"],
    "search": {"lrs": inside.PROTOCOL["lrs"]["highway"], "epochs": 10,
               "held_out": 5000, "seed": 0},
    "early": 15, "first": 40}

POINTS = (0.0025, 0.005, 0.01)      # half, given and twice a threshold of error

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


def more(nets: dict[str, list], group: str, of: Callable, limits: tuple) -> dict:
    """Whether a number of every net of a group is larger than that of every net of
    MNIST, with the middle one of three limits and the others: fields of a claim. It is
    not if none is; else it is open."""
    numbers = {limit: [[of(net, limit) for net in nets[name]]
                       for name in (group, "mnist")] for limit in limits}
    holds = {limit: True if min(one) > max(other) else
             False if max(one) <= min(other) else None
             for limit, (one, other) in numbers.items()}
    half, given, twice = limits
    return {"ours": dict(zip(("harder", "mnist"), numbers[given], strict=True)),
            "holds": holds[given], "n": len(nets[group]),
            "also": {f"{limit:g}": holds[limit] for limit in (half, twice)}}


def check_counts(nets: dict[str, list], title: str, protocol: dict) -> list[Claim]:
    """Whether harder data use more layers than MNIST, by three measures."""
    about, beside = f"asked of {title}: ", "; every net beside every net"
    found = [
        claim(section="P1 4.2", text=about + "more layers than on MNIST matter, which "
              "cost more than half a point of training error if closed" + beside,
              paper="about 40 of CIFAR-100, 15 of MNIST",
              **more(nets, "harder", costly, POINTS)),
        claim(section="P1 4", text=about + "outputs change later than on MNIST: the "
              f"share of the change after layer {protocol['early']}" + beside,
              paper="40 layers, MNIST 15", **more(
                  nets, "harder", late, (protocol["early"] // 2, protocol["early"],
                                         2 * protocol["early"]))),
        claim(section="ours", text=about + "more layers than on MNIST double the loss "
              "if closed" + beside, paper=None,
              **more(nets, "harder", multiplying, (1.5, 2, 3))),
        claim(section="ours", text=about + "more layers than on MNIST are needed, from "
              "the first on, to err within a point of the whole net" + beside,
              paper=None, **more(nets, "harder", needed_layers, (0.005, 0.01, 0.02)))]
    fair = claim(section="ours", text=about + "with the same b_T, too, more layers "
                 "than on MNIST cost more than half a point of training error if closed"
                 + beside, paper=None, **more(nets, "same b_T", costly, POINTS))
    return [*resting_on(found, {"kind": "net", "gate_bias": -4.0}),
            *resting_on([fair], {"kind": "net", "gate_bias": -2.0})]


def check_layers(nets: list[dict], protocol: dict) -> list[dict]:
    """What P1 says of the inside of its net for CIFAR-100."""
    first, early = protocol["first"], protocol["early"]
    bias = [net["bias"] for net in nets]

    def change(net, state):
        steps = np.array(net["change"][state])
        return steps[:first].sum() / steps.sum()

    def classes(net, state):
        return max(sum(shares[:early]) for shares in net["differences"][state].values())
    return [
        claim(section="P1 4", text="most transform biases fall during training",
              paper="> 0.5", **judged(trained(bias, lambda b: b["fell"]), above, MORE)),
        claim(section="P1 4", text="b_T rises with depth: correlation of its mean in a "
              "layer with depth above 0.5", paper="forming a gradient",
              **judged(trained(bias, lambda b: b["with_depth"]), above, MORE)),
        claim(section="P1 4", text="this gradient is inversely correlated with the "
              "activity of the gates: of the means of layers, below -0.5",
              paper="inversely", **judged(trained(
                  bias, lambda b: b["with_activity"]), below, (-0.25, -0.5, -0.75))),
        claim(section="P1 4", text="most of the change in outputs, more than nine "
              f"tenths, is in the first {first} layers", paper="about 40",
              **judged(before_too(nets, change), above, (0.8, 0.9, 0.95))),
        claim(section="P1 4.1", text="class differences of mean T are spread out over "
              "all layers: less than half of their squares are in the first "
              f"{early}, for the paper's two classes and for all", paper="all layers",
              **judged(before_too(nets, classes), below, MORE[::-1])),
        claim(section="P1 4.2", text=f"closing any one of the first {first} layers "
              "costs noticeably, at least half a point of training error",
              paper="noticeably", **judged(
                  trained(nets, lambda net: rises(net)[:first].min()),
                  lambda value, limit: value >= limit, POINTS))]


def check_claims(record: dict) -> list[dict]:
    """All claims of a record. Of other data than CIFAR-100 those that P1 makes of it
    are our own questions."""
    nets, protocol, dataset = record["nets"], record["protocol"], record["dataset"]
    title = hn.DATASETS[dataset].title
    told = check_layers(nets["harder"], protocol)
    if dataset != "cifar100":
        told = [item | {"section": "ours", "claim": "said of CIFAR-100, asked of "
                        f"{title}: {item['claim']}"} for item in told]
    return [*check_counts(nets, title, protocol),
            *resting_on(told, {"kind": "net", "gate_bias": -4.0})]
