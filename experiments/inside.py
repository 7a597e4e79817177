"""Which nets do Figures 2 to 4 look into? A highway, a residual and a plain one.

Of equal width and depth: 784 pixels -> one plain layer of 50 -> 49 layers of 50, tanh
-> softmax of 10; the paper's "50 layers" (P1, section 4) and b_T = -2, as its net for
MNIST had. The gates make it 289,660 parameters; the residual and the plain net have
164,710. Glorot's initialisation, all 60,000 training images, momentum SGD. Each net
trains at several learning rates for a few epochs, and anew at the best one to the end.
The training loss of the last epoch decides, no test image does.

    python3 -m experiments.inside       results/inside: the record, and BLOCK.npz

The weights are committed, for DeepNet.load. The analyses, gates.py and lesion.py, only
load them, and have them trained where there are none. A rerun on one machine with one
set of library versions writes the same. Assumptions, deviations and what came of it:
results/inside/README.md.

Cost: seven minutes on one core.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab import (
    COLOURS,
    Experiment,
    Lab,
    load_record,
    main,
    or_infinite,
)
from highway_suite.files import write_json
from highway_suite.records import RecordError

PROTOCOL = {"dataset": "mnist", "depth": 49, "hidden": 50, "activation": "tanh",
            "init": "glorot", "gate_bias": -2.0, "batch": 128, "momentum": 0.9,
            "lr_decay": 0.95, "seed": 0, "search_epochs": 4,
            "lrs": {"highway": [0.05, 0.1, 0.2, 0.4],
                    "residual": [0.001, 0.003, 0.01, 0.03],
                    "plain": [0.001, 0.003, 0.01, 0.03]},
            "epochs": {"highway": 60, "residual": 60, "plain": 60}}
SMOKE = {"dataset": "digits", "depth": 6, "hidden": 16, "search_epochs": 1,
         "lrs": {"highway": [0.1, 0.2], "residual": [0.01], "plain": [0.01]},
         "epochs": {"highway": 12, "residual": 8, "plain": 8}}


def mean_image(data: hn.Data) -> np.ndarray:
    """The mean training image of scaled Data (P,)."""
    return data.x_train.mean(axis=0, dtype="float64").astype(data.x_train.dtype)


def centred(data: hn.Data) -> hn.Data:
    """Scaled Data -> the same less the mean training image."""
    mean = mean_image(data)
    return replace(data, x_train=data.x_train - mean, x_test=data.x_test - mean)


def fold_mean(net: hn.DeepNet, mean: np.ndarray) -> None:
    """Let a net for centred images take scaled ones: W (x - m) = W x - W m."""
    weights = net.views(net.params)
    weights["b_in"] -= weights["W_in"] @ mean[:, None]


def make_config(protocol: dict, block: str, lr: float, epochs: int) -> hn.Config:
    """hn.Config of one net; every image takes part."""
    shared = ("depth", "hidden", "activation", "init", "gate_bias", "batch", "momentum",
              "lr_decay", "seed")
    n_train, n_test = hn.DATASETS[protocol["dataset"]].images
    return hn.Config(block=block, lr=lr, epochs=epochs, optimizer="sgd", clip=0.0,
                     n_train=n_train, n_test=n_test,
                     **{name: protocol[name] for name in shared})


def train(config: hn.Config, data: hn.Data) -> tuple[hn.DeepNet | None, dict]:
    """-> the trained net and its history; None for the net if it diverged."""
    net = hn.make_net(config, data)
    history, _, status = hn.train(net, data, config)
    print(f"{config.block}, lr {config.lr:g}, {config.epochs} epochs: training loss "
          f"{history['train_loss'][-1]}", flush=True)
    return net if status == "ok" else None, history


def train_best(protocol: dict, block: str, data: hn.Data) -> tuple[hn.DeepNet, dict]:
    """Search the learning rate, train to the end -> the net, its part of the record."""
    losses = []
    for lr in protocol["lrs"][block]:
        config = make_config(protocol, block, lr, protocol["search_epochs"])
        losses.append(train(config, data)[1]["train_loss"][-1])
    best = np.argmin(or_infinite(losses))
    config = make_config(protocol, block, protocol["lrs"][block][best],
                         protocol["epochs"][block])
    net, history = train(config, data)
    if net is None:
        raise RecordError(f"the {block} net diverged at lr {config.lr:g}")
    return net, {"block": block, "lr": config.lr, "epochs": config.epochs,
                 "parameters": net.params.size,
                 "search": {"lr": protocol["lrs"][block], "train_loss": losses},
                 "train_loss": history["train_loss"], "test_acc": history["test_acc"]}


def weights_hash(net: hn.DeepNet) -> str:
    """SHA-256 of a net's weights."""
    return hashlib.sha256(net.params.tobytes()).hexdigest()


def run(lab: Lab) -> dict:
    """Train the nets, write their files once all are trained -> the record."""
    scaled = hn.scale_pixels(lab.load_data())
    data, mean = centred(scaled), mean_image(scaled)
    trained = [train_best(lab.protocol, block, data) for block in lab.protocol["lrs"]]
    described = []
    for net, fields in trained:
        fold_mean(net, mean)
        path = lab.folder / f"{fields['block']}.npz"
        net.save(path)
        described.append(fields | {"file": path.name, "sha256": weights_hash(net)})
    return {"nets": described}


def draw(record: dict) -> Figure:
    """The record -> training loss and test error of the nets, epoch by epoch."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    loss, error = figure.subplots(1, 2)
    for net in record["nets"]:
        epochs = np.arange(1, net["epochs"] + 1)
        look = {"color": COLOURS[net["block"]], "linewidth": 1.6,
                "label": f"{net['block']}, learning rate {net['lr']:g}"}
        loss.plot(epochs, net["train_loss"], **look)
        error.plot(epochs, 100 - 100 * np.array(net["test_acc"]), **look)
    loss.set(yscale="log", xlabel="epoch", ylabel="mean cross-entropy, nats",
             title="Training loss of each epoch")
    error.set(xlabel="epoch", ylabel="test error, %", ylim=(0, 20),
              title="Test error after each epoch")
    figure.legend(*loss.get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside lower center")
    protocol = record["protocol"]
    figure.suptitle(f"{record['dataset']}: nets of {protocol['depth']} layers of "
                    f"{protocol['hidden']}, one seed", fontsize=11)
    return figure


EXPERIMENT = Experiment(name="experiments.inside", doc=__doc__, minutes=7,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw)

# --------------------------------------------------------------------------------------
# For the analyses


def load_nets(lab: Lab) -> tuple[dict[str, hn.DeepNet], dict]:
    """The trained nets {block: DeepNet} and their record. They are trained first where
    there are none, and in a smoke run. Raises RecordError."""
    nets_lab = Lab(EXPERIMENT, lab.options)
    if lab.options.smoke or not nets_lab.record.exists():
        nets_lab.folder.mkdir(parents=True, exist_ok=True)
        write_json(nets_lab.record, nets_lab.header() | run(nets_lab))
    record, _ = load_record(nets_lab.record)
    again = f"Make both anew with: {record['command']}"
    if record["protocol"] != nets_lab.protocol:
        raise RecordError(f"{nets_lab.record}: another protocol than "
                          f"experiments/inside.py has. {again}")
    nets = {}
    for fields in record["nets"]:
        path = nets_lab.folder / Path(fields["file"]).name      # never elsewhere
        try:
            nets[fields["block"]] = net = hn.DeepNet.load(path)
        except ValueError as error:
            raise RecordError(f"{error}. {again}") from error
        if weights_hash(net) != fields["sha256"]:
            raise RecordError(f"{path}: not the weights of {nets_lab.record}. {again}")
    return nets, record


def untrained(record: dict, block: str, data: hn.Data) -> hn.DeepNet:
    """The net of that block as it was before training on this scaled Data."""
    net = hn.make_net(make_config(record["protocol"], block, 1.0, 1), data)
    fold_mean(net, mean_image(data))
    return net


if __name__ == "__main__":
    main(EXPERIMENT)
