"""Does the carry path save data movement?

Moving numbers costs more than computing with them, and the earlier reproduction of this
paper leaves open whether a highway layer's carry path, which hands on what it gets,
saves any of it. The question is ours, not the paper's. Two models price what is read:
ByteDMD, ceil(sqrt(depth)) of a byte in a stack of live values, and ceil(sqrt(address)).
experiments/movement.py has both, follows the core's own passes, and says its rules.

The protocol. MNIST's 784 pixels -> projection -> L blocks of U units -> 10 classes.
Depth counts blocks here, but layers where nets of Figure 1 are meant. A pass is
DeepNet.forward, or a training step: forward, loss, backward, norm of the gradient,
Adam. Six forms at the same width, plain and residual at the highway net's parameters
too, over width and depth, batches of 1, 16 and 128. Until a training loss of 0.01: the
price of a step (batch 128, momentum SGD) times the steps that the nets of
experiments/optimization.py took. Skipping, one image at a time, on the highway net of
experiments/inside.py: T is read first, and of H only the units whose T is above a
threshold; the control skips as many units of each layer and image at random. Layers
left out: those whose closing costs least by experiments/lesion.py, least first; the
control draws them at random. How much to skip is chosen on training images, by the most
accuracy that may be lost there; what is reported is of the test images. Beside it the
seconds of this processor, with the same skipping in NumPy.

What we expect, written before the run. Nothing is saved by carrying: no form is a tenth
cheaper than plain at the same width, in any pass; the residual net, which is all carry
and no gate, is at most a tenth dearer; and at the same parameters highway and plain are
within a tenth of each other. At batch 1 the cost grows with the parameters to the power
1.5, give or take 0.1. Until the loss is reached, the highway net is at least a tenth
cheaper, for it takes fewer steps. Skipping saves a tenth of the forward pass for one
point of accuracy, and as many gates at random cost five points more; leaving layers out
saves half. NumPy is slower with skipping at the net's 50 units, faster at 2000.

What the models leave out: lines of a cache and what it fetches ahead, vector units and
registers, writes, arithmetic, several cores. They price loops as the core has them,
pass by pass: Adam alone goes over all weights ten times.

Deviations: one trained net, one seed; two of three seeds of the plain net of 50 layers
never reach the loss. Cost: 15 minutes on one core.
"""

from __future__ import annotations

import time

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import highway_networks as hn
from experiments import movement
from experiments.common import (COLOURS, LIGHT, Experiment, claim, listed, load_record,
                                main)
from experiments.inside import digest, load_nets, passes
from experiments.lesion import evaluate

MODELS = ("bytedmd", "address")
PROTOCOL = {"dataset": "mnist", "seed": 0, "clip": 5.0,
            "widths": [8, 16, 32, 50], "depths": [5, 10, 20, 30, 49], "depth": 30,
            "hidden": 50, "batches": [1, 16, 128], "largest": 30, "loss": "0.01",
            "layers": [10, 20, 50, 100],
            "thresholds": [0.0, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8],
            "left_out": [0, 10, 20, 25, 30, 33, 35, 37, 39, 41, 43, 45, 47],
            "images": 10_000, "traced": 16, "draws": 3, "lost": 0.01,
            "saving": 0.1, "exponent": [1.5, 0.1], "apart": 0.05, "spared": 0.5,
            "timed": [50, 200, 500, 1000, 2000], "open": [0.6, 0.3, 0.1],
            "timed_depth": 4, "repeats": 15}
SMOKE = {"dataset": "digits", "widths": [4, 8], "depths": [2, 4], "depth": 3,
         "hidden": 8, "batches": [1, 3], "layers": [10], "thresholds": [0.0, 0.1, 0.5],
         "left_out": [0, 2, 4], "images": 300, "traced": 2, "draws": 2,
         "timed": [16, 32], "open": [0.5], "repeats": 2}

# --------------------------------------------------------------------------------------
# Costs of the passes


def classical():
    """The reference's own programs: what they published and what we find. ByteDMD's are
    its README's, one byte a number; the others' are of fixed addresses."""
    found = []

    def note(program, size, published, cost):
        found.append({"program": program, "size": size, "published": published,
                      "ours": int(cost)})
    for n, matvec, vecmat, matmul in ((2, 26, 25, 57), (4, 157, 150, 720),
                                      (8, 896, 832, 8867), (16, 5354, 4688, 109_783)):
        for program, published, shapes in (
                ("matrix by vector", matvec, ((n, n), (n, 1))),
                ("vector by matrix", vecmat, ((1, n), (n, n))),
                ("matrix by matrix", matmul, ((n, n), (n, n)))):
            tape = movement.Tape()
            a, b = (tape.cells_of(np.empty(shape)) for shape in shapes)
            # The first argument is on top, and the matrix is the first of two.
            order = (a, b) if program == "vector by matrix" else (b, a)
            tape.begin = [cells.ravel() for cells in order]
            out = tape.cells_of(np.empty((len(a), b.shape[1])))
            tape.product(out, a, b)
            tape.kept = [out.ravel()]
            note(f"ByteDMD, {program}", n, published,
                 movement.movement(tape, size=1)["bytedmd"])
    tape = movement.Tape()
    a, b = (tape.cells_of(np.empty(2)) for _ in range(2))
    tape.begin = [b, a]
    tape.product(tape.cells_of(np.empty((1, 1))), a[None], b[:, None])
    note("ByteDMD, dot product", 2, 12, movement.movement(tape, size=1)["bytedmd"])
    for n, published in ((4, 1316), (16, 340_704)):
        # A, B, C and one more number follow each other; C is summed in place and read
        # once more in the end.
        reads = np.repeat([n, n, n, n * n * (n - 1)], [n * n, n * n, n * n, 1])
        note("addresses, matrix by matrix", n, published,
             reads @ movement.price(np.arange(1, len(reads) + 1), size=1))
    return found


def inputs_of(protocol):
    """Pixels and classes of the protocol's data set."""
    dataset = hn.DATASETS[protocol["dataset"]]
    return {"inputs": int(np.prod(dataset.files[0].shape[1:])),
            "classes": dataset.classes}


def matched(block, depth, hidden, ends):
    """The width whose parameters are nearest to the highway net's of this width."""
    def parameters(block, hidden):
        matrices = 1 + len(hn.BLOCKS[block].gates)
        return (hidden * (ends["inputs"] + 1) + ends["classes"] * (hidden + 1)
                + depth * matrices * hidden * (hidden + 1))
    target = parameters("highway", hidden)
    return min(range(1, 2 * hidden), key=lambda units: abs(
        parameters(block, units) - target))


def sizes(protocol):
    """(depth, width) of the nets, and the batches that each is priced at."""
    pairs = [(protocol["depth"], hidden) for hidden in protocol["widths"]]
    pairs += [(depth, protocol["hidden"]) for depth in protocol["depths"]]
    large = (protocol["largest"], protocol["hidden"])
    return {pair: [batch for batch in protocol["batches"] if batch < 128
                   or pair == large] for pair in dict.fromkeys(pairs)}


def priced(block, depth, hidden, batch, ends, clip):
    """The passes of one net -> two rows of the record's `passes`."""
    rows = []
    for name in ("forward", "step"):
        net = hn.DeepNet(block, depth, hidden, **ends)
        tape = (movement.trace_forward(net, batch) if name == "forward" else
                movement.trace_steps(net, batch, hn.Adam(net.params), clip))
        rows.append({"block": block, "depth": depth, "hidden": hidden, "batch": batch,
                     "pass": name, "parameters": net.params.size}
                    | movement.movement(tape))
    return rows


def price_passes(protocol):
    """All forms and sizes -> rows; `size` is the width of the highway net that a net is
    as wide as, or has as many parameters as: `matched`."""
    rows, ends = [], inputs_of(protocol)
    for (depth, hidden), batches in sizes(protocol).items():
        nets = [(block, hidden, False) for block in hn.BLOCKS]
        nets += [(block, matched(block, depth, hidden, ends), True)
                 for block in ("plain", "residual")]
        for batch in batches:
            for block, units, is_matched in nets:
                rows += [row | {"size": hidden, "matched": is_matched} for row in
                         priced(block, depth, units, batch, ends, protocol["clip"])]
            print(f"{depth} blocks of {hidden}, batch {batch}: priced", flush=True)
    return rows


def second_step(protocol):
    """The second of two steps in units of the first: is one step like the others?"""
    net = hn.DeepNet("highway", min(protocol["depths"]), protocol["hidden"],
                     **inputs_of(protocol))
    tape = movement.trace_steps(net, 1, hn.Adam(net.params), protocol["clip"], steps=2)
    parts = movement.movement(tape)["parts"]
    costs = [sum(cost for part, cost in parts.items() if part.endswith(step))
             for step in ("step 1", "step 2")]
    return hn.significant(costs[1] / costs[0])


def fit_laws(rows):
    """cost = factor parameters^exponent, by least squares of the logarithms, for each
    pass, batch and model; worst: the largest ratio of a cost to the law or back."""
    laws = []
    for name, batch in sorted({(row["pass"], row["batch"]) for row in rows}):
        own = [row for row in rows if (row["pass"], row["batch"]) == (name, batch)]
        for model in MODELS:
            x, y = (np.log([row[key] for row in own]) for key in ("parameters", model))
            exponent, offset = np.polyfit(x, y, 1)
            worst = np.exp(np.abs(y - exponent * x - offset).max())
            laws.append({"pass": name, "batch": batch, "model": model, "n": len(own)}
                        | {key: hn.significant(value) for key, value in (
                            ("exponent", exponent), ("factor", np.exp(offset)),
                            ("worst", worst))})
    return laws


def until_loss(lab):
    """Figure 1's nets -> the price of a step and of all steps to the loss, by seed,
    None where it is not reached."""
    protocol = lab.protocol
    record, sha256 = load_record(hn.HERE / "experiments" / "optimization.json")
    found, batch = [], record["protocol"]["batch"]
    steps = hn.DATASETS[record["dataset"]].files[0].shape[0] // batch
    for fields in record["nets"]:
        if fields["depth"] not in protocol["layers"]:
            continue
        setting = record["settings"][fields["best"]["setting"]]
        net = hn.DeepNet(fields["block"], fields["depth"] - 1, fields["hidden"],
                         activation=setting["activation"])
        optimizer = hn.SGD(net.params, setting["momentum"])
        costs = movement.movement(movement.trace_steps(net, batch, optimizer, 0.0))
        epochs = fields["best"]["epochs_to"][protocol["loss"]]
        found.append({
            "block": fields["block"], "layers": fields["depth"],
            "hidden": fields["hidden"], "parameters": net.params.size,
            "epochs": epochs, "step": costs,
            "total": {model: [epoch and epoch * steps * costs[model]
                              for epoch in epochs] for model in MODELS}})
        print(f"{fields['block']} of {fields['depth']} layers: priced", flush=True)
    return {"optimization_sha256": sha256, "steps_per_epoch": steps, "nets": found}


# --------------------------------------------------------------------------------------
# Skipping


def skip(net, x, threshold, layers, opened=None):
    """Images x (P, B) through these layers, closed gates skipped -> logits (C, B), and
    which gates were open, (layers, U, B): T above the threshold, or those given."""
    w, used = net.views(net.params), []
    x = np.tanh(w["W_in"] @ x + w["b_in"])
    for number, layer in enumerate(layers):
        T = 0.5 + 0.5 * np.tanh(
            0.5 * (w["W_T"][layer] @ x + w["b_T"][layer][:, None]))
        H = np.tanh(w["W_H"][layer] @ x + w["b_H"][layer][:, None])
        used.append(T > threshold if opened is None else opened[number])
        x = x + np.where(used[-1], T * (H - x), 0)
    return w["W_out"] @ x + w["b_out"][:, None], np.array(used)


def shuffled_gates(opened, rng):
    """As many open gates in every layer and image, which ones drawn at random."""
    return rng.permuted(opened, axis=1)


def skip_accuracy(net, x, labels, threshold, layers, rng=None, size=500):
    """Images x (N, P) -> accuracy, and the share of open gates; rng: the control."""
    right = share = 0
    for start in range(0, len(x), size):
        batch = x[start:start + size].T
        logits, opened = skip(net, batch, threshold, layers)
        if rng is not None:
            logits, _ = skip(net, batch, threshold, layers, shuffled_gates(opened, rng))
        right += np.count_nonzero(logits.argmax(axis=0) == labels[start:start + size])
        share += opened.mean() * batch.shape[1] if opened.size else 0
    return hn.significant(right / len(x)), hn.significant(share / len(x))


def subnet(net, layers):
    """The net without its other layers."""
    small = hn.DeepNet(**net.settings | {"depth": len(layers)}, dtype=net.dtype)
    for name, values in small.views(small.params).items():
        old = net.views(net.params)[name]
        values[...] = old[layers] if name[-2:] in ("_H", "_T") else old
    return small


def skip_cost(net, x, threshold, layers):
    """Mean movement of one image of x (N, P), one after the other."""
    _, opened = skip(net, x.T, threshold, layers)
    small = subnet(net, layers)
    costs = movement.movement(movement.trace_skipping(small, opened.transpose(2, 0, 1)))
    return {name: hn.significant(costs[name] / len(x)) for name in (*MODELS, "bytes")}


def skip_gates(net, images, protocol, layers):
    """Accuracy and movement for each threshold, and of the control."""
    rows = []
    for threshold in protocol["thresholds"]:
        row = {"threshold": threshold, "layers": len(layers)}
        for name, (x, labels) in images.items():
            row[name], row["open_" + name] = skip_accuracy(net, x, labels, threshold,
                                                           layers)
            row["random_" + name] = [
                skip_accuracy(net, x, labels, threshold, layers, np.random.default_rng(
                    [protocol["seed"], draw]))[0] for draw in range(protocol["draws"])]
        rows.append(row | skip_cost(net, images["test"][0][:protocol["traced"]],
                                    threshold, layers))
    return rows


def leave_out(net, images, protocol, order):
    """Accuracy and movement without the first layers of the order, and of the control,
    which leaves out others: their movement is the same."""
    rng = np.random.default_rng([protocol["seed"], 9])
    drawn = [rng.permutation(net.depth) for _ in range(protocol["draws"])]
    rows = []
    for count in protocol["left_out"]:
        row = {"left_out": count}
        for name, (x, labels) in images.items():
            row[name], *row["random_" + name] = [
                hn.significant(1 - evaluate(net, x, labels, chosen[:count])[1])
                for chosen in (order, *drawn)]
        small = hn.DeepNet(**net.settings | {"depth": net.depth - count})
        costs = movement.movement(movement.trace_forward(small, 1))
        rows.append(row | {name: costs[name] for name in (*MODELS, "bytes")})
    return rows


def spared_order(lab, net, data):
    """Layers, from the one whose closing raises the training loss least; by the record
    of experiments/lesion.py, and in a smoke run anew."""
    if lab.options.smoke:
        losses = [evaluate(net, data.x_train, data.y_train, [layer])[0]
                  for layer in range(net.depth)]
    else:
        record, _ = load_record(hn.HERE / "experiments" / "lesion.json")
        fields = record["nets"]["highway"]
        if fields["sha256"] != digest(net):
            raise hn.RecordError("experiments/lesion.json: not of this highway net. "
                                 f"Make it anew with: {record['command']}")
        losses = fields["one_closed"]["loss"]
    return [int(layer) for layer in np.argsort(losses, kind="stable")]


def best_within(rows, lost):
    """The row of least movement that loses at most so much accuracy, in training."""
    allowed = [row for row in rows if row["train"] >= rows[0]["train"] - lost]
    return min(allowed, key=lambda row: row["bytedmd"])


def skipping(lab):
    """Everything that is skipped on the trained highway net."""
    protocol, (nets, _) = lab.protocol, load_nets(lab)
    data = hn.scale_pixels(lab.load_data(), protocol["dataset"])
    few, net = slice(protocol["images"]), nets["highway"]
    images = {"train": (data.x_train[few], data.y_train[few]),
              "test": (data.x_test[few], data.y_test[few])}
    order = spared_order(lab, net, data)
    dense = {}
    for block, twin in nets.items():
        right = sum(np.count_nonzero(logits.argmax(axis=0) == images["test"][1][rows])
                    for rows, logits, _ in passes(twin, images["test"][0]))
        costs = movement.movement(movement.trace_forward(
            hn.DeepNet(**twin.settings), 1))
        dense[block] = {"parameters": twin.params.size,
                        "test": hn.significant(right / len(images["test"][1]))} | {
                            name: costs[name] for name in (*MODELS, "bytes")}
    print("skipping: accuracies", flush=True)
    left_out = leave_out(net, images, protocol, order)
    chosen = best_within(left_out, protocol["lost"])["left_out"]
    layers = sorted(order[chosen:])
    return {"nets": dense, "order": order,
            "gates": skip_gates(net, images, protocol, list(range(net.depth))),
            "left_out": left_out,
            "both": skip_gates(net, images, protocol | {"draws": 0}, layers)}


# --------------------------------------------------------------------------------------
# Seconds


def skip_one(net, pixels, threshold):
    """The way of one image (P, 1) that reads W_H only where a gate is open, in NumPy:
    the rows that are read are gathered first. -> logits (C, 1)."""
    w, U = net.tensors(net.params), net.hidden
    x = np.ones((U + 1, 1), net.dtype)
    x[:U] = np.tanh(w["W_in"] @ pixels + w["b_in"])
    half = np.array(0.5, net.dtype)
    for W in w["blocks"]:
        T = np.tanh((W[U:] @ x) * half) * half + half
        units = np.flatnonzero(T > threshold)
        H = np.tanh(W[units] @ x)
        x[units] += T[units] * (H - x[units])
    return w["out"] @ x


def seconds(function, repeats):
    """The least of several timings of one call."""
    calls = 1
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            function()
        if time.perf_counter() - start > 0.01:
            break
        calls *= 2
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def time_skipping(protocol):
    """Nets of growing width, untrained, with thresholds that leave these shares of all
    gates open: seconds of the dense pass and of the skipping one, one image each."""
    rng, rows = np.random.default_rng(protocol["seed"]), []
    for hidden in protocol["timed"]:
        net = hn.DeepNet("highway", protocol["timed_depth"], hidden, init="glorot",
                         **inputs_of(protocol))
        x = rng.uniform(-1, 1, (net.inputs, 1)).astype(net.dtype)
        cache = net.cache(1)
        T = net.gates(x)
        dense = seconds(lambda: net.forward(x, cache), protocol["repeats"])
        for share in protocol["open"]:
            threshold = float(np.quantile(T, 1 - share))
            rows.append({"hidden": hidden, "open": share,
                         "dense_bytes": int(net.params.nbytes),
                         "skipping_bytes": int(net.params.nbytes - (1 - share) * (
                             net.depth * hidden * (hidden + 1) * net.dtype.itemsize)),
                         "dense_seconds": hn.significant(dense),
                         "skipping_seconds": hn.significant(seconds(
                             lambda: skip_one(net, x, threshold),
                             protocol["repeats"]))})
    return rows


def run(lab):
    """Price, skip, time -> the record."""
    protocol = lab.protocol
    with threadpool_limits(1, "blas"):
        skipped = skipping(lab)
        timed = time_skipping(protocol)
        rows = price_passes(protocol)
        return {"reference": classical(), "second_step": second_step(protocol),
                "passes": rows, "laws": fit_laws(rows), "until_loss": until_loss(lab),
                "skipping": skipped, "timed": timed}

def draw(record):
    return Figure()
def check_claims(record):
    return []
EXPERIMENT = Experiment("experiments.data_movement", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims)

if __name__ == "__main__":
    main(EXPERIMENT)
