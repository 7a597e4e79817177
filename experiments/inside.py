"""Which nets do Figures 2 to 4 look into? A highway, a residual and a plain one.

Of equal width and depth: 784 pixels -> one plain layer of 50 -> 49 layers of 50, tanh
-> softmax of 10; the paper's 50 layers (P1, section 4) and b_T = -2, as its net for
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

import argparse
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab.drawing import title_of
from experiments.judging import or_infinite
from experiments.old_lab import Experiment, Lab, load_record, main, sound
from highway_suite.figures import COLOURS, TITLE
from highway_suite.files import read_file, write_file, write_json
from highway_suite.records import RecordError, load_net, weights_hash

PROTOCOL: dict[str, Any] = {
    "dataset": "mnist", "depth": 49, "hidden": 50, "activation": "tanh",
    "init": "glorot", "gate_bias": -2.0, "batch": 128, "momentum": 0.9,
    "lr_decay": 0.95, "seed": 0, "search_epochs": 4,
    "lrs": {"highway": [0.05, 0.1, 0.2, 0.4],
            "residual": [0.001, 0.003, 0.01, 0.03],
            "plain": [0.001, 0.003, 0.01, 0.03]},
    "epochs": {"highway": 60, "residual": 60, "plain": 60}}
SMOKE: dict[str, Any] = {
    "dataset": "digits", "depth": 6, "hidden": 16, "search_epochs": 1,
    "lrs": {"highway": [0.1, 0.2], "residual": [0.01], "plain": [0.01]},
    "epochs": {"highway": 12, "residual": 8, "plain": 8}}
# There are no claims to ask of them.
OTHERS = {"cifar10": False, "cifar100": False, "cifar10-jpeg75": False}


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


def make_settings(protocol: dict, block: str, lr: float, epochs: int) -> dict:
    """The trial of one net, for hn.Config; every image takes part."""
    shared = ("depth", "hidden", "activation", "init", "gate_bias", "batch", "momentum",
              "lr_decay", "seed")
    n_train, n_test = hn.DATASETS[protocol["dataset"]].images
    return {"block": block, "lr": lr, "epochs": epochs, "optimizer": "sgd", "clip": 0.0,
            "n_train": n_train, "n_test": n_test,
            **{name: protocol[name] for name in shared}}


def make_config(protocol: dict, block: str, lr: float, epochs: int) -> hn.Config:
    """hn.Config of one net."""
    return hn.Config(**make_settings(protocol, block, lr, epochs))


class Images(NamedTuple):
    """What the nets train on, and where their weights are kept."""

    data: hn.Data           # scaled, less its mean
    mean: np.ndarray        # (P,), which was subtracted
    folder: str


def weights_file(folder: str | Path, digest: str) -> Path:
    """Where the weights of that hash lie, in the folder of unfinished work."""
    return Path(folder) / f"{digest[:16]}.npz"


def train(config: dict, images: Images) -> dict:
    """One trial: its status, and per epoch the training loss and test accuracy; if all
    went well, the hash of its weights, which it keeps."""
    settings = hn.Config(**config)
    net = hn.make_net(settings, images.data)
    history, _, status = hn.train(net, images.data, settings)
    result = {"status": status, "parameters": net.params.size, "sha256": None,
              "train_loss": history["train_loss"], "test_acc": history["test_acc"]}
    if status == "ok":
        fold_mean(net, images.mean)
        result["sha256"] = weights_hash(net)
        Path(images.folder).mkdir(parents=True, exist_ok=True)
        net.save(weights_file(images.folder, result["sha256"]))
    return result


def keep_weights(lab: Lab, block: str, digest: str) -> str:
    """See to it that results have the weights of this hash -> their file's name. Raises
    RecordError."""
    path = lab.folder / f"{block}.npz"
    if lab.options.recheck:
        return path.name
    committed = hn.HERE / "results" / lab.name / path.name
    for source in (weights_file(lab.working / "weights", digest), committed):
        with suppress(ValueError, OSError):
            if weights_hash(hn.DeepNet.load(source)) == digest:
                content = read_file(source)
                if not path.exists() or read_file(path) != content:
                    write_file(path, content)
                return path.name
    which = (f"--dataset {lab.options.dataset}" if lab.options.dataset else
             f"--only {block}")
    raise RecordError(f"{path}: not the weights of its finished trial. Restore it, or "
                      f"train it anew: python3 -m {lab.experiment.name} --fresh "
                      f"{which}")


def run(lab: Lab) -> dict:
    """Search the learning rates, train to the end at the best -> the record."""
    protocol, scaled = lab.protocol, hn.scale_pixels(lab.load_data())
    images = Images(centred(scaled), mean_image(scaled),
                    str(lab.working / "weights"))
    searched = lab.trials(train, {
        (block, lr): make_settings(protocol, block, lr, protocol["search_epochs"])
        for block, lrs in protocol["lrs"].items() for lr in lrs}, images)
    losses = {key: trial.result["train_loss"][-1] for key, trial in searched.items()}
    best = {block: min(lrs, key=lambda lr: float(or_infinite(losses[block, lr])))
            for block, lrs in protocol["lrs"].items()}
    trained = lab.trials(train, {
        block: make_settings(protocol, block, lr, protocol["epochs"][block])
        for block, lr in best.items()}, images)
    nets = []
    for block, trial in trained.items():
        if trial.result["status"] != "ok":
            raise RecordError(f"the {block} net diverged at lr {best[block]:g}")
        lrs, digest = protocol["lrs"][block], trial.result["sha256"]
        nets.append({
            "block": block, "lr": best[block], "epochs": protocol["epochs"][block],
            "parameters": trial.result["parameters"],
            "search": {"lr": lrs, "train_loss": [losses[block, lr] for lr in lrs]},
            "train_loss": trial.result["train_loss"],
            "test_acc": trial.result["test_acc"],
            "file": keep_weights(lab, block, digest), "sha256": digest})
    return {"nets": nets}


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
             title=f"Training loss of each epoch ({title_of(record)})")
    error.set(xlabel="epoch", ylabel="test error, %", ylim=(0, 20),
              title="Test error after each epoch (one seed)")
    figure.legend(*loss.get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside lower center")
    protocol = record["protocol"]
    figure.suptitle(f"{protocol['depth'] + 1} layers, training loss: " + ", ".join(
        f"{net['block']} {net['train_loss'][-1]:.2g}" for net in record["nets"]),
        **TITLE)
    return figure


EXPERIMENT = Experiment(name="experiments.inside", doc=__doc__, minutes=7,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw,
                        pack_by=lambda config: config["block"], others=OTHERS)

# --------------------------------------------------------------------------------------
# For the analyses


def load_nets(lab: Lab) -> tuple[dict[str, hn.DeepNet], dict]:
    """The trained nets {block: DeepNet} and their record. They are trained first where
    there are none, and in a smoke run. Raises RecordError."""
    options = argparse.Namespace(**vars(lab.options) | {
        "fresh": False, "only": None, "recheck": None})
    nets_lab = Lab(EXPERIMENT, options, lab.working)
    if lab.options.smoke or not nets_lab.record.exists():
        nets_lab.folder.mkdir(parents=True, exist_ok=True)
        write_json(nets_lab.record, nets_lab.answer())
    record, _ = load_record(nets_lab.record)
    again = f"Make both anew with: {record['command']}"
    if record["protocol"] != nets_lab.protocol:
        raise RecordError(f"{nets_lab.record}: another protocol than "
                          f"experiments/inside.py has. {again}")
    nets = {}
    with sound(nets_lab.record, record["command"]):
        for block, digest in [(net["block"], net["sha256"]) for net in record["nets"]]:
            if block not in nets_lab.protocol["lrs"]:       # it names a file
                raise RecordError(f"{nets_lab.record}: a net {block!r:.40}. {again}")
            try:
                nets[block] = load_net(nets_lab.folder / f"{block}.npz", digest)
            except RecordError as error:
                raise RecordError(f"{error}. {again}") from error
    return nets, record


def untrained(record: dict, block: str, data: hn.Data) -> hn.DeepNet:
    """The net of that block as it was before training on this scaled Data."""
    net = hn.make_net(make_config(record["protocol"], block, 1.0, 1), data)
    fold_mean(net, mean_image(data))
    return net


if __name__ == "__main__":
    main(EXPERIMENT)
