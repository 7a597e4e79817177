"""Figures 2 and 3: what do the transform gates of a trained highway net do?

The claims (P1, section 4 and 4.1), for the net of experiments/inside.py. Most transform
biases fall during training. For one example the gates are very sparse, although most
are active on average; biases and mean gate activity are inversely correlated (both said
above all, or only, of CIFAR-100). Most of the change in block outputs is in the early
layers, about 15 on MNIST. The mean activity differs between classes, on MNIST within
the first 15 layers.

The protocol. b_T of every unit; the mean T over all training images, in all and by
class; T and block outputs of one training image, drawn at random. The paper shows
classes 0 and 7, we show all.

Routing, which the paper leaves to the eye, in numbers. How well T alone, without the
values that the gates let through, tells the class, by two linear readouts, fitted on
the training images and measured on the test images: the nearest class mean, and ridge
regression to one-hot labels; for each layer and for all layers together. How much of
the variance of T lies between the classes. Whether k-means, which sees no labels, finds
the classes in the T of all layers (adjusted Rand index, Hubert and Arabie 1985), and in
the pixels. Each beside the same for the block outputs, and for the net before training,
whose random gates tell classes apart as well: only the difference is learned. What the
paper says is judged by five such nets: five_nets.py.

What this can and cannot show, what the paper is silent about, deviations, and what came
of it: results/gates/README.md.

Cost: two minutes on one core, after the net's training.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

import highway_networks as hn
from experiments.lab.drawing import title_of
from experiments.inside import load_nets, untrained
from experiments.judging import listed
from experiments.old_lab import Experiment, Lab, main
from experiments.probing import passes
from experiments.readouts import (
    Moments,
    Readout,
    adjusted_rand,
    contingency,
    kmeans,
    readouts,
)
from highway_suite.figures import LIGHT

PROTOCOL = {"dataset": "mnist", "seed": 0, "closed": 0.1, "ridge": 1e-4,
            "clustered": 10_000, "restarts": 10}
SMOKE = {"dataset": "digits", "clustered": 300, "restarts": 3}

# What is read off a forward pass: (L, U, B) of it, and for the block outputs the plain
# layer's before them, (L + 1, U, B).
VALUES = {"T": lambda cache: cache.T,
          "outputs": lambda cache: cache.x[:, :cache.net.hidden]}

# --------------------------------------------------------------------------------------
# Statistics over images


def moments(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, values: str) -> Moments:
    """The Moments of one of VALUES over images x (N, P)."""
    found: Any = None
    for rows, _, cache in passes(net, x):
        batch = VALUES[values](cache)
        found = found or Moments(batch.mean(axis=2), net.classes)
        found.add(batch, labels[rows])
    return found


def accuracies(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray, values: str,
               fitted: list[Readout]) -> dict:
    """Share of images x (N, P) whose class each readout tells: {how: {"all": share,
    "layers": [share, ...]}}."""
    right = np.zeros(len(fitted), int)
    for rows, _, cache in passes(net, x):
        features = VALUES[values](cache).reshape(-1, cache.batch)
        right += [np.count_nonzero(
            (each.W.T @ features[each.part] + each.b[:, None]).argmax(axis=0)
            == labels[rows]) for each in fitted]
    told = {(each.how, each.layer): share
            for each, share in zip(fitted, listed(right / len(x)), strict=True)}
    return {how: {"all": told[how, None],
                  "layers": [told[how, each.layer] for each in fitted
                             if each.how == how and each.layer is not None]}
            for how in ("means", "ridge")}


def hoyer(values: np.ndarray, axis: int | None = None) -> Any:
    """Hoyer's sparsity: (sqrt n - |v|_1 / |v|_2) / (sqrt n - 1), in [0, 1]."""
    n = np.sqrt(values.size if axis is None else values.shape[axis])
    ratio = np.abs(values).sum(axis) / np.sqrt((values ** 2).sum(axis))
    return (n - ratio) / (n - 1)


class PerExample(NamedTuple):
    """What single images show, as means over images."""

    closed: np.ndarray      # (L,) share of closed gates
    hoyer: float            # sparsity of all gates
    change: np.ndarray      # (L,) |y_l - y_(l-1)|
    relative: np.ndarray    # (L,) the same divided by |y_(l-1)|


def per_example(net: hn.DeepNet, x: np.ndarray, closed: float) -> PerExample:
    """What the images x (N, P) show; gates below `closed` count as closed."""
    shut: Any = 0
    sparsity, change, relative = shut, shut, shut
    for _, _, cache in passes(net, x):
        T, y = (VALUES[values](cache) for values in ("T", "outputs"))
        norms = np.linalg.norm(y, axis=1)                       # (L + 1, B)
        step = np.linalg.norm(np.diff(y, axis=0), axis=1)       # (L, B)
        shut += np.less(T, closed).mean(axis=1).sum(axis=1)
        sparsity += hoyer(T.reshape(-1, cache.batch), axis=0).sum(dtype=float)
        change += step.sum(axis=1, dtype=float)
        relative += (step / norms[:-1]).sum(axis=1, dtype=float)
    return PerExample(*(total / len(x) for total in (shut, sparsity, change, relative)))


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's correlation of two arrays of one shape; None where one is constant."""
    a, b = np.ravel(a) - np.mean(a), np.ravel(b) - np.mean(b)
    norm = np.sqrt((a @ a) * (b @ b))
    return hn.significant(a @ b / norm) if norm else None


def cluster(points: np.ndarray, labels: np.ndarray, protocol: dict) -> dict:
    """k-means, k the number of classes -> adjusted Rand index and counts of digits by
    cluster, the clusters in the order of the digit they hold most of."""
    rng = np.random.default_rng(protocol["seed"])
    centred = points - points.mean(axis=0)      # distances keep more digits
    found = kmeans(centred, labels.max() + 1, rng, protocol["restarts"])
    table = contingency(found, labels)
    order = np.lexsort((-table.max(axis=1), table.argmax(axis=1)))
    return {"adjusted_rand": hn.significant(adjusted_rand(found, labels)),
            "counts": table[order].tolist()}


# --------------------------------------------------------------------------------------
# The record


def three_decimals(matrix: np.ndarray) -> list:
    """A matrix as a picture needs it."""
    return [[round(float(v), 3) for v in row] for row in matrix]


def collected(net: hn.DeepNet, x: np.ndarray, values: str) -> np.ndarray:
    """One of VALUES for images x (N, P), all layers in a row, (N, F)."""
    return np.concatenate([VALUES[values](cache).reshape(-1, cache.batch).T
                           for _, _, cache in passes(net, x)])


def sparsity(net: hn.DeepNet, x: np.ndarray, found: Moments, closed: float) -> dict:
    """How sparse T is in one image, on average, and how sparse the mean of T is; and
    how far each layer changes its input."""
    T_mean = found.mean.reshape(found.shape)
    single = per_example(net, x, closed)
    return {"closed_per_example": listed(single.closed),
            "closed_of_mean": listed((T_mean < closed).mean(axis=1)),
            "hoyer_per_example": hn.significant(single.hoyer),
            "hoyer_of_mean": hn.significant(hoyer(T_mean)),
            "change": listed(single.change), "relative_change": listed(single.relative)}


def figure_2(net: hn.DeepNet, x: np.ndarray, found: Moments, seed: int) -> dict:
    """The paper's four panels, and how biases, activity and depth go together."""
    T_mean = found.mean.reshape(found.shape)
    biases = net.views(net.params)["b_T"].astype(float)
    chosen = int(np.random.default_rng(seed).integers(len(x)))
    one = x[chosen:chosen + 1]
    return {
        "image": chosen, "biases": three_decimals(biases),
        "T_mean": three_decimals(T_mean),
        "T_one": three_decimals(net.gates(one)[0]),
        "outputs_one": three_decimals(net.block_outputs(one)[0]),
        "bias_activity_correlation": {
            "layers": [correlation(*pair) for pair in zip(biases, T_mean, strict=True)],
            "all": correlation(biases, T_mean),
            "layer_means": correlation(biases.mean(axis=1), T_mean.mean(axis=1))},
        "bias_depth_correlation": correlation(biases.mean(axis=1),
                                              np.arange(len(biases)))}


def class_differences(found: Moments) -> dict:
    """Class mean of T less the overall mean, by class (L, U); and the share of its
    square that each layer holds, for the paper's two classes and for all."""
    apart = (found.class_means - found.mean[:, None]).reshape(*found.shape, -1)

    def shares(classes):
        energy = (apart[..., classes] ** 2).sum(axis=(1, 2))
        return listed(energy / energy.sum())
    return {"difference": {str(c): three_decimals(apart[..., c])
                           for c in range(apart.shape[2])},
            "share_of_layer": shares(slice(None)), "share_of_layer_0_7": shares([0, 7])}


def figure_3(trained: dict, before: dict) -> dict:
    """The class differences after training, and their shares before it too."""
    return trained | {f"{name}_untrained": before[name]
                      for name in ("share_of_layer", "share_of_layer_0_7")}


def route(net: hn.DeepNet, data: hn.Data, values: str, found: Moments, protocol: dict
          ) -> dict:
    """Readouts, variances and clusters of T or block outputs of a net."""
    few = slice(protocol["clustered"])
    return {
        "accuracy": accuracies(net, data.x_test, data.y_test, values,
                               readouts(found, protocol["ridge"])),
        "between": listed(found.between()),
        "clusters": cluster(collected(net, data.x_test[few], values), data.y_test[few],
                            protocol)}


class Nets(NamedTuple):
    """What is looked into: the net by state, "trained" and "untrained"."""

    states: dict[str, hn.DeepNet]
    data: hn.Data


def look(config: dict, nets: Nets) -> dict:
    """One trial: all that is asked of T or of the block outputs of a net; or of the
    pixels, whose clusters alone."""
    values, data = config["values"], nets.data
    if values == "pixels":
        few = slice(config["clustered"])
        return {"routing": {"clusters": cluster(data.x_test[few], data.y_test[few],
                                                config)}}
    net = nets.states[config["state"]]
    found = moments(net, data.x_train, data.y_train, values)
    result = {"routing": route(net, data, values, found, config)}
    if values == "T":
        result |= {"sparsity": sparsity(net, data.x_train, found, config["closed"]),
                   "figure_3": class_differences(found)}
        if config["state"] == "trained":
            result["figure_2"] = figure_2(net, data.x_train, found, config["seed"])
        else:
            del result["figure_3"]["difference"]        # no figure shows it
    return result


def plan(protocol: dict, digest: str) -> dict[tuple[str, str], dict]:
    """The trials by state and values; digest: of the trained net's weights."""
    shared = {name: protocol[name] for name in ("dataset", "seed", "closed", "ridge",
                                                "clustered", "restarts")}
    asked = [("pixels", "pixels"), *((state, values) for values in VALUES
                                     for state in ("trained", "untrained"))]
    return {(state, values): shared | {"state": state, "values": values,
                                       "sha256": digest} for state, values in asked}


def run(lab: Lab) -> dict:
    """Look into the highway net -> the record."""
    nets, made = load_nets(lab)
    data = hn.scale_pixels(lab.load_data())
    states = {"trained": nets["highway"],
              "untrained": untrained(made, "highway", data)}
    (described,) = (fields for fields in made["nets"] if fields["block"] == "highway")
    trials = lab.trials(look, plan(lab.protocol, described["sha256"]),
                        Nets(states, data))
    found = {key: trial.result for key, trial in trials.items()}
    biases = nets["highway"].views(nets["highway"].params)["b_T"]
    two = found["trained", "T"]["figure_2"] | {"fell": hn.significant(
        (biases < made["protocol"]["gate_bias"]).mean())}
    return {
        "net": {name: described[name] for name in ("file", "sha256", "parameters")}
        | {"gate_bias": made["protocol"]["gate_bias"],
           "train_loss": described["train_loss"][-1],
           "test_acc": described["test_acc"][-1]},
        "n_train": len(data.x_train), "n_test": len(data.x_test),
        "figure_2": two | {"label": int(data.y_train[two["image"]])},
        "sparsity": {state: found[state, "T"]["sparsity"] for state in states},
        "figure_3": figure_3(*(found[state, "T"]["figure_3"] for state in states)),
        "routing": {"pixels": found["pixels", "pixels"]["routing"]}
        | {state: {values: found[state, values]["routing"] for values in VALUES}
           for state in states}}


# --------------------------------------------------------------------------------------
# The figure


def heat(axes: Axes, matrix: list, **look: Any) -> AxesImage:
    """Layers by units, the first layer on top."""
    rows, columns = np.shape(matrix)
    image = axes.imshow(matrix, aspect="auto", interpolation="nearest",
                        extent=(0.5, columns + 0.5, rows + 0.5, 0.5),
                        **look)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, labelsize=7.5)
    return image


def draw_figure_2(figure: SubFigure, record: dict) -> None:
    """The paper's four panels."""
    two, start = record["figure_2"], record["net"]["gate_bias"]
    panels = figure.subplots(1, 4, sharey=True)
    images = [
        heat(panels[0], two["biases"], cmap="RdBu_r", norm=CenteredNorm(start)),
        heat(panels[1], two["T_mean"], cmap="viridis", vmin=0),
        heat(panels[2], two["T_one"], cmap="viridis", vmin=0, vmax=1),
        heat(panels[3], two["outputs_one"][1:], cmap="RdBu_r", norm=CenteredNorm())]
    titles = [f"$b_T$ after training\n(white: {start:g}, before it)",
              f"mean $T$ of {record['n_train']:,}\ntraining images",
              f"$T$ of one image\n(a {two['label']})",
              "block outputs $y$\nof the same image"]
    for axes, image, title in zip(panels, images, titles, strict=True):
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("unit", fontsize=8.5)
        figure.colorbar(image, ax=axes, location="bottom", aspect=18,
                        pad=0.02).ax.tick_params(labelsize=7.5)
    panels[0].set_ylabel("highway layer", fontsize=8.5)


def draw_figure_3(figure: SubFigure, record: dict) -> None:
    """Class mean of T less the overall mean, all classes on one scale; the colours of
    the largest half percent are all the same."""
    apart = record["figure_3"]["difference"]
    most = np.quantile(np.abs(list(apart.values())), 0.995)
    panels = figure.subplots(2, (len(apart) + 1) // 2, sharex=True, sharey=True)
    for axes, (digit, matrix) in zip(panels.flat, apart.items(), strict=False):
        image = heat(axes, matrix, cmap="RdBu_r", vmin=-most, vmax=most)
        axes.set_title(digit, fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("unit", fontsize=8.5)
    for axes in panels[:, 0]:
        axes.set_ylabel("highway layer", fontsize=8.5)
    bar = figure.colorbar(image, ax=panels, aspect=40, pad=0.01, extend="both")
    bar.ax.tick_params(labelsize=7.5)


LINES = (("trained", "outputs", "#CC79A7", "-"), ("trained", "T", LIGHT.highway, "-"),
         ("untrained", "outputs", "#CC79A7", ":"),
         ("untrained", "T", LIGHT.highway, ":"))


def draw_routing(figure: SubFigure, record: dict) -> None:
    """Readouts and shares of variance over layers, and the clusters of T."""
    routes = record["routing"]
    panels = figure.subplots(1, 3, width_ratios=(1, 1, 0.8))
    for state, values, colour, dashes in LINES:
        found = routes[state][values]
        name = {"T": "$T$", "outputs": "$y$"}[values] + f", {state}"
        layers = np.arange(len(found["between"])) + (values == "T")
        panels[0].plot(layers, 100 * np.array(found["accuracy"]["ridge"]["layers"]),
                       color=colour, linestyle=dashes, linewidth=1.6, label=name)
        panels[1].plot(layers, 100 * np.array(found["between"]), color=colour,
                       linestyle=dashes, linewidth=1.6)
    panels[0].set(xlabel="highway layer", ylabel="test accuracy, %", ylim=(None, 100),
                  title="Class told by ridge regression\non one layer, test images")
    panels[1].set(xlabel="highway layer", ylabel="% of the variance", ylim=(0, 100),
                  title="Variance of one layer between\nclasses, training images")
    figure.legend(*panels[0].get_legend_handles_labels(), ncols=4, frameon=False,
                  fontsize=8, loc="outside lower left")
    clusters = routes["trained"]["T"]["clusters"]
    counts = np.array(clusters["counts"])
    panels[2].imshow(counts, cmap="viridis", aspect="auto")
    for (row, column), count in np.ndenumerate(counts):
        if count:
            panels[2].text(column, row, count, ha="center", va="center", fontsize=5.5,
                           color="white" if count < counts.max() / 2 else "black")
    panels[2].set(xticks=range(counts.shape[1]), yticks=[],
                  xlabel="class" if "cifar" in record["dataset"] else "digit",
                  ylabel="cluster", title="k-means on $T$ of test images\n"
                  f"adjusted Rand index {clusters['adjusted_rand']:.2f}")
    for axes in panels:
        axes.title.set_fontsize(9)
        axes.xaxis.label.set_fontsize(8.5)
        axes.yaxis.label.set_fontsize(8.5)
        axes.tick_params(labelsize=7.5)


def draw(record: dict) -> Figure:
    """The record -> the paper's two figures and the routing, below each other."""
    figure = Figure(figsize=(9, 13), layout="constrained")
    parts: Any = figure.subfigures(3, 1, height_ratios=(4.4, 5, 3))
    painted = {
        "Transform gates and block outputs (the paper's Figure 2)": draw_figure_2,
        "Mean $T$ of a class less that of all images (Figure 3, all classes)":
            draw_figure_3,
        f"Routing by class ({record['n_train']:,} training, {record['n_test']:,} test "
        "images)": draw_routing}
    for part, (title, paint) in zip(parts, painted.items(), strict=True):
        paint(part, record)
        part.suptitle(title, fontsize=11, weight="bold")
    layers = len(record["figure_2"]["T_mean"]) + 1
    figure.supxlabel(f"{title_of(record)}: one highway net of {layers} layers, b_T = "
                     f"{record['net']['gate_bias']:g}", fontsize=9)
    return figure


EXPERIMENT = Experiment(name="experiments.gates", doc=__doc__, minutes=2,
                        protocol=PROTOCOL, smoke=SMOKE, run=run, draw=draw,
                        pack_by=lambda config: config["state"],
                        others=dict.fromkeys(("cifar10", "cifar10-jpeg75"), False))

if __name__ == "__main__":
    main(EXPERIMENT)
