"""The trained nets that gates.py and lesion.py look into.

A highway, a residual and a plain net of equal width and depth: 784 pixels -> one plain
layer of 50 -> 49 layers of 50, tanh -> softmax of 10; the paper's "50 layers" (P1,
section 4) and b_T = -2, as its net for MNIST had. The gates make it 289,660 parameters;
the residual and the plain net have 164,710. Glorot's initialisation, all 60,000
training images, momentum SGD. Each net trains at several learning rates for a few
epochs, and anew at the best one to the end. The training loss of the last epoch
decides, no test image does.

    python3 -m experiments.inside       inside.json, inside.png and inside_BLOCK.npz

The weights are committed, for DeepNet.load. The analyses only load them, and have them
trained where there are none. A rerun on one machine with one set of library versions
writes the same.

The paper is silent, we assume: momentum 0.9, batches of 128, a learning rate that falls
by 5 % per epoch, no clipping, no weight decay, seed 0, and pixels less their mean over
the training images (LeCun et al. 1998), of which most would else be -1. The means are
folded into b_in after training: the nets that are kept take images of hn.scale_pixels.

Deviation: the paper took the best of many random settings; we vary one, and b_T stays.

Cost: seven minutes on one core.
"""

from __future__ import annotations

import hashlib

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import highway_networks as hn
from experiments.common import COLOURS, Experiment, Lab, load_record, main, or_infinite

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


def centred(data):
    """Scaled Data -> the same less the mean training image, and that mean (P,)."""
    mean = data.x_train.mean(axis=0, dtype="float64").astype(data.x_train.dtype)
    return data._replace(x_train=data.x_train - mean, x_test=data.x_test - mean), mean


def fold_mean(net, mean):
    """Let a net for centred images take scaled ones: W (x - m) = W x - W m."""
    weights = net.views(net.params)
    weights["b_in"] -= weights["W_in"] @ mean[:, None]


def make_config(protocol, block, lr, epochs):
    """hn.Config of one net; every image takes part."""
    shared = ("dataset", "depth", "hidden", "activation", "init", "gate_bias", "batch",
              "momentum", "lr_decay", "seed")
    files = hn.DATASETS[protocol["dataset"]].files
    return hn.Config(block=block, lr=lr, epochs=epochs, optimizer="sgd", clip=0.0,
                     n_train=files[0].shape[0], n_test=files[2].shape[0],
                     **{name: protocol[name] for name in shared})


def train_net(config, data):
    """-> the trained net and its history; None for the net if it diverged."""
    net = hn.make_net(config, data.x_train.shape[1])
    history, _, status = hn.train(net, data, config)
    print(f"{config.block}, lr {config.lr:g}, {config.epochs} epochs: training loss "
          f"{history['train_loss'][-1]}", flush=True)
    return net if status == "ok" else None, history


def train_best(protocol, block, data):
    """Search the learning rate, train to the end -> the net, its part of the record."""
    losses = []
    for lr in protocol["lrs"][block]:
        config = make_config(protocol, block, lr, protocol["search_epochs"])
        losses.append(train_net(config, data)[1]["train_loss"][-1])
    best = np.argmin(or_infinite(losses))
    config = make_config(protocol, block, protocol["lrs"][block][best],
                         protocol["epochs"][block])
    net, history = train_net(config, data)
    if net is None:
        raise hn.RecordError(f"the {block} net diverged at lr {config.lr:g}")
    return net, {"block": block, "lr": config.lr, "epochs": config.epochs,
                 "parameters": net.params.size,
                 "search": {"lr": protocol["lrs"][block], "train_loss": losses},
                 "train_loss": history["train_loss"], "test_acc": history["test_acc"]}


def digest(net):
    """SHA-256 of a net's weights."""
    return hashlib.sha256(net.params.tobytes()).hexdigest()


def run(lab):
    """Train the nets, write their files once all are trained -> the record."""
    data, mean = centred(hn.scale_pixels(lab.load_data(), lab.protocol["dataset"]))
    trained = [train_best(lab.protocol, block, data) for block in lab.protocol["lrs"]]
    described = []
    for net, fields in trained:
        fold_mean(net, mean)
        path = lab.record.with_name(f"inside_{fields['block']}.npz")
        net.save(path)
        described.append(fields | {"file": path.name, "sha256": digest(net)})
    return {"nets": described}


def draw(record):
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


EXPERIMENT = Experiment("experiments.inside", __doc__, PROTOCOL, SMOKE, run, draw)

# --------------------------------------------------------------------------------------
# For the analyses


def load_nets(lab):
    """The trained nets {block: DeepNet} and their record. They are trained first where
    there are none, and in a smoke run. Raises hn.RecordError."""
    nets_lab = Lab(EXPERIMENT, lab.options)
    if lab.options.smoke or not nets_lab.record.exists():
        nets_lab.record.parent.mkdir(parents=True, exist_ok=True)
        hn.write_record(nets_lab.record, nets_lab.header() | run(nets_lab))
    record, _ = load_record(nets_lab.record)
    again = f"Make both anew with: {record['command']}"
    if record["protocol"] != nets_lab.protocol:
        raise hn.RecordError(f"{nets_lab.record}: another protocol than "
                             f"experiments/inside.py has. {again}")
    nets = {}
    for fields in record["nets"]:
        path = nets_lab.record.with_name(fields["file"])
        try:
            nets[fields["block"]] = net = hn.DeepNet.load(path)
        except ValueError as error:
            raise hn.RecordError(f"{error}. {again}") from error
        if digest(net) != fields["sha256"]:
            raise hn.RecordError(f"{path}: not the weights of {nets_lab.record}. "
                                 f"{again}")
    return nets, record


def untrained(record, block, x):
    """The net of that block as it was before training; x: training images (N, P)."""
    config = make_config(record["protocol"], block, 1.0, 1)
    net = hn.make_net(config, x.shape[1])
    fold_mean(net, x.mean(axis=0, dtype="float64").astype(x.dtype))
    return net


def passes(net, x, closed=(), size=500):
    """Forward passes over images x (N, P) in batches -> (rows, logits, cache), one BLAS
    thread. Logits and cache are overwritten by the next."""
    cache = net.cache(size)
    with threadpool_limits(1, "blas"):
        for start in range(0, len(x), size):
            rows = slice(start, start + size)
            logits, cache = net.forward(x[rows].T, cache, closed)
            yield rows, logits, cache


if __name__ == "__main__":
    main(EXPERIMENT)
