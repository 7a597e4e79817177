"""Figures 2 and 3: what the transform gates of a trained highway net do.

The claims (P1, section 4 and 4.1), for the net of experiments/inside.py. Most transform
biases fall during training. For one example the gates are very sparse, although most
are active on average. Biases and mean gate activity are inversely correlated. Most of
the change in block outputs is in the early layers, about 15 on MNIST. The mean activity
differs between classes, on MNIST within the first 15 layers.

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
whose random gates tell classes apart as well: only the difference is learned. T of a
layer is a function of the outputs before it and holds no more about the class than
they. What depends on the class need not be used for it: no gate is changed here.

A statement about the trained net that is as true before training tells nothing, and is
left open.

The paper is silent, we assume: T below 0.1 counts as closed, just under sigma(-2) =
0.119, where the gates start; the change of a layer is |y_l - y_(l-1)|, also recorded
relative to |y_(l-1)|; sparsity in one number is Hoyer's, 0 for equal values and 1 for a
single one that is not 0. It is measured before training, too. Highway layers are
counted from 1, so that the plain layer before them is 0.

Deviations: one net, one seed. CIFAR-100, the other half of both figures, is left out.

Cost: two minutes on one core, after the net's training.
"""

from __future__ import annotations

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import highway_networks as hn
from experiments.common import LIGHT, Experiment, claim, listed, main, telling
from experiments.inside import load_nets, passes, untrained

PROTOCOL = {"dataset": "mnist", "seed": 0, "closed": 0.1, "ridge": 1e-4,
            "clustered": 10_000, "restarts": 10, "early": 15}
SMOKE = {"dataset": "digits", "clustered": 300, "restarts": 3, "early": 2}

# What is read off a forward pass: (L, U, B) of it, and for the block outputs the plain
# layer's before them, (L + 1, U, B).
VALUES = {"T": lambda cache: cache.T,
          "outputs": lambda cache: cache.x[:, :cache.net.hidden]}

# --------------------------------------------------------------------------------------
# Statistics over images; F features, of all layers together


class Moments:
    """First and second moments of F features over images, and their means by class.

    They are taken from an origin near the mean, (layers, U): from 0, the variance of
    gates that hardly move would be lost in float32.
    """

    def __init__(self, origin, classes):
        self.shape, self.origin = origin.shape, origin.reshape(-1, 1)
        size = origin.size
        self.count = np.zeros(classes)
        self.sums = np.zeros((size, classes))
        self.gram = np.zeros((size, size))

    def add(self, values, labels):
        """Take in values (layers, U, B) and labels (B,)."""
        flat = values.reshape(-1, len(labels)) - self.origin
        chosen = np.eye(len(self.count), dtype=flat.dtype)[labels]      # (B, C)
        self.count += chosen.sum(axis=0)
        self.sums += flat @ chosen
        self.gram += flat @ flat.T

    @property
    def mean(self):
        """(F,)"""
        return self.origin[:, 0] + self.sums.sum(axis=1) / self.count.sum()

    @property
    def class_means(self):
        """(F, C)"""
        return self.origin + self.sums / self.count

    @property
    def covariance(self):
        """(F, F)"""
        mean = self.mean - self.origin[:, 0]
        return self.gram / self.count.sum() - np.outer(mean, mean)

    def between(self):
        """The share of each layer's variance that lies between the classes, (layers,):
        both kinds are summed over its units."""
        weight = self.count / self.count.sum()
        apart = ((self.class_means - self.mean[:, None]) ** 2 @ weight)
        total = np.diag(self.covariance)
        return (apart.reshape(self.shape).sum(axis=1)
                / total.reshape(self.shape).sum(axis=1))

    def readouts(self, ridge):
        """Two linear readouts of all features and of each layer, as (W, b) for scores
        W^T f + b: {"means": ..., "ridge": ...}, each {"all": ..., "layers": [...]}."""
        layers, U = self.shape
        parts = [slice(l * U, l * U + U) for l in range(layers)]
        covariance = self.covariance
        fits = {"means": self.nearest_mean,
                "ridge": lambda part: self.regression(part, covariance, ridge)}
        return {name: {"all": fit(slice(None)), "layers": [fit(part) for part in parts]}
                for name, fit in fits.items()}

    def nearest_mean(self, part):
        """argmin |f - mean_c|^2 = argmax mean_c f - |mean_c|^2 / 2."""
        W = self.class_means[part]
        return W, -0.5 * (W ** 2).sum(axis=0)

    def regression(self, part, covariance, ridge):
        """Ridge regression to one-hot labels; the penalty is `ridge` times the mean
        variance of the features."""
        share, mean = self.count / self.count.sum(), self.mean[part]
        own = covariance[part, part]
        with_labels = (self.class_means[part] - mean[:, None]) * share
        penalty = ridge * np.trace(own) / len(own) * np.eye(len(own))
        W = np.linalg.solve(own + penalty, with_labels)
        return W, share - mean @ W


def moments(net, x, labels, values):
    """The Moments of one of VALUES over images x (N, P)."""
    found = None
    for rows, _, cache in passes(net, x):
        batch = VALUES[values](cache)
        found = found or Moments(batch.mean(axis=2), net.classes)
        found.add(batch, labels[rows])
    return found


def accuracies(net, x, labels, values, readouts):
    """Share of images x whose class each of Moments.readouts tells, in its form."""
    right = {name: {"all": 0, "layers": [0] * len(kind["layers"])}
             for name, kind in readouts.items()}
    for rows, _, cache in passes(net, x):
        batch = VALUES[values](cache)
        flat = batch.reshape(-1, batch.shape[2])

        def hits(fit, features):
            W, b = fit
            told = (W.T @ features + b[:, None]).argmax(axis=0)
            return int(np.count_nonzero(told == labels[rows]))
        for name, kind in readouts.items():
            right[name]["all"] += hits(kind["all"], flat)
            for l, fit in enumerate(kind["layers"]):
                right[name]["layers"][l] += hits(fit, batch[l])
    return {name: {"all": hn.significant(kind["all"] / len(x)),
                   "layers": [hn.significant(n / len(x)) for n in kind["layers"]]}
            for name, kind in right.items()}


def hoyer(values, axis=None):
    """Hoyer's sparsity: (sqrt n - |v|_1 / |v|_2) / (sqrt n - 1), in [0, 1]."""
    n = np.sqrt(values.size if axis is None else values.shape[axis])
    ratio = np.abs(values).sum(axis) / np.sqrt((values ** 2).sum(axis))
    return (n - ratio) / (n - 1)


def per_example(net, x, closed):
    """Means over images x of what each of them shows by itself: the share of closed
    gates by layer (L,), Hoyer's sparsity of all gates, and |y_l - y_(l-1)| by layer
    (L,), as it is and divided by |y_(l-1)|."""
    shut, sparsity, change, relative = 0, 0, 0, 0
    for _, _, cache in passes(net, x):
        y = VALUES["outputs"](cache)
        norms = np.linalg.norm(y, axis=1)                       # (L + 1, B)
        step = np.linalg.norm(np.diff(y, axis=0), axis=1)       # (L, B)
        shut += (cache.T < closed).mean(axis=1).sum(axis=1)
        sparsity += hoyer(cache.T.reshape(-1, cache.batch), axis=0).sum(dtype=float)
        change += step.sum(axis=1, dtype=float)
        relative += (step / norms[:-1]).sum(axis=1, dtype=float)
    return [total / len(x) for total in (shut, sparsity, change, relative)]


def correlation(a, b):
    """Pearson's correlation of two arrays of one shape; None where one is constant."""
    a, b = np.ravel(a) - np.mean(a), np.ravel(b) - np.mean(b)
    norm = np.sqrt((a @ a) * (b @ b))
    return hn.significant(a @ b / norm) if norm else None


# --------------------------------------------------------------------------------------
# Clusters


def kmeans(points, k, rng, restarts, most=100):
    """Lloyd's k-means from k-means++ starts (Arthur, Vassilvitskii 2007), the best of
    so many by the sum of squared distances -> cluster of each of points (N, F)."""
    best, best_cost = None, np.inf
    squares = (points ** 2).sum(axis=1)

    def distances(centres):
        return np.maximum(squares[:, None] - points @ (2 * centres.T)
                          + (centres ** 2).sum(axis=1), 0)      # (N, k)
    for _ in range(restarts):
        centres = points[rng.integers(len(points))][None]
        while len(centres) < k:
            near = distances(centres).min(axis=1).astype("float64")
            drawn = rng.choice(len(points), p=near / near.sum())
            centres = np.vstack([centres, points[drawn]])
        labels = None
        for _ in range(most):
            apart, before = distances(centres), labels
            labels = apart.argmin(axis=1)
            if before is not None and (labels == before).all():
                break
            chosen = np.eye(k, dtype=points.dtype)[labels]      # (N, k)
            count = chosen.sum(axis=0)
            there = count > 0       # a centre that has lost all its points stays
            centres[there] = (chosen.T @ points)[there] / count[there, None]
        cost = apart.min(axis=1).sum(dtype=float)
        if cost < best_cost:
            best, best_cost = labels, cost
    return best


def contingency(a, b):
    """Two labellings (N,) -> the counts of their pairs."""
    table = np.zeros((a.max() + 1, b.max() + 1), int)
    np.add.at(table, (a, b), 1)
    return table


def adjusted_rand(a, b):
    """Agreement of two partitions: 1 if they are equal, 0 on average if one of them is
    shuffled (Hubert, Arabie 1985). Cluster names do not matter."""
    table = contingency(a, b)

    def pairs(counts):
        return (counts * (counts - 1) / 2).sum()
    both, left, right = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = left * right / pairs(table.sum())
    most = (left + right) / 2
    return float((both - expected) / (most - expected)) if most > expected else 1.0


def cluster(points, labels, protocol):
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


def rounded(matrix):
    """A matrix as a picture needs it."""
    return [[round(float(v), 3) for v in row] for row in matrix]


def collected(net, x, values):
    """One of VALUES for images x (N, P), all layers in a row, (N, F)."""
    return np.concatenate([VALUES[values](cache).reshape(-1, cache.batch).T
                           for _, _, cache in passes(net, x)])


def sparsity(net, x, found, closed):
    """How sparse T is in one image, on average, and how sparse the mean of T is; and
    how far each layer changes its input."""
    T_mean = found.mean.reshape(found.shape)
    shut, hoyers, change, relative = per_example(net, x, closed)
    return {"closed_per_example": listed(shut),
            "closed_of_mean": listed((T_mean < closed).mean(axis=1)),
            "hoyer_per_example": hn.significant(hoyers),
            "hoyer_of_mean": hn.significant(hoyer(T_mean)),
            "change": listed(change), "relative_change": listed(relative)}


def figure_2(net, x, found, seed):
    """The paper's four panels, and how biases, activity and depth go together."""
    T_mean = found.mean.reshape(found.shape)
    biases = net.views(net.params)["b_T"].astype(float)
    chosen = int(np.random.default_rng(seed).integers(len(x)))
    one = x[chosen:chosen + 1].T
    return {
        "image": chosen, "biases": rounded(biases), "T_mean": rounded(T_mean),
        "T_one": rounded(net.gates(one)[..., 0]),
        "outputs_one": rounded(net.block_outputs(one)[..., 0]),
        "bias_activity_correlation": {
            "layers": [correlation(*pair) for pair in zip(biases, T_mean)],
            "all": correlation(biases, T_mean),
            "layer_means": correlation(biases.mean(axis=1), T_mean.mean(axis=1))},
        "bias_depth_correlation": correlation(biases.mean(axis=1),
                                              np.arange(len(biases)))}


def figure_3(found):
    """Class mean of T less the overall mean, by class, after training; and the share of
    its square that each layer holds, for the paper's two classes and for all, before
    training too. found: the moments of T by state."""
    apart = {state: (own.class_means - own.mean[:, None]).reshape(*own.shape, -1)
             for state, own in found.items()}

    def shares(state, classes):
        energy = (apart[state][..., classes] ** 2).sum(axis=(1, 2))
        return listed(energy / energy.sum())
    return {"difference": {str(c): rounded(apart["trained"][..., c])
                           for c in range(apart["trained"].shape[2])},
            **{f"share_of_layer{which}{suffix}": shares(state, classes)
               for state, suffix in (("trained", ""), ("untrained", "_untrained"))
               for which, classes in (("", slice(None)), ("_0_7", [0, 7]))}}


def routing(nets, data, T_moments, protocol):
    """Readouts, variances and clusters of T and block outputs, trained and not."""
    few = slice(protocol["clustered"])
    found = {"pixels": {"clusters": cluster(data.x_test[few], data.y_test[few],
                                            protocol)}}
    for state, net in nets.items():
        found[state] = {}
        for values in VALUES:
            stats = T_moments[state] if values == "T" else moments(
                net, data.x_train, data.y_train, values)
            found[state][values] = {
                "accuracy": accuracies(net, data.x_test, data.y_test, values,
                                       stats.readouts(protocol["ridge"])),
                "between": listed(stats.between()),
                "clusters": cluster(collected(net, data.x_test[few], values),
                                    data.y_test[few], protocol)}
    return found


def early_share(record, early):
    """The share of all change in block outputs that the first layers make."""
    steps = np.linalg.norm(np.diff(record["figure_2"]["outputs_one"], axis=0), axis=1)
    means = {state: np.array(found["change"])
             for state, found in record["sparsity"].items()}
    return {name: hn.significant(values[:early].sum() / values.sum())
            for name, values in (("one image", steps),
                                 ("mean of all", means["trained"]),
                                 ("untrained", means["untrained"]))}


def early_differences(record, early):
    """The share of the squared class differences of mean T in the first layers."""
    return {name: hn.significant(sum(record["figure_3"][key][:early]))
            for name, key in (("0 and 7", "share_of_layer_0_7"),
                              ("all", "share_of_layer"),
                              ("untrained, 0 and 7", "share_of_layer_0_7_untrained"),
                              ("untrained, all", "share_of_layer_untrained"))}


def class_told(record):
    """The share of the test images whose class each readout tells, from T of all layers
    or from the block outputs, before and after training."""
    return {f"{values}, {how}": {
        state: record["routing"][state][values]["accuracy"][name]["all"]
        for state in ("trained", "untrained")}
        for values in VALUES
        for how, name in (("nearest mean", "means"), ("ridge", "ridge"))}


def one_and_mean(sparse, name):
    """A measure of sparsity for single images and for the mean of T, by state."""
    return {state: {of: hn.significant(np.mean(found[f"{name}_{of}"]))
                    for of in ("per_example", "of_mean")}
            for state, found in sparse.items()}


def check_claims(record):
    """The paper's statements, with our numbers and whether they hold."""
    threshold, early = (record["protocol"][name] for name in ("closed", "early"))
    two, sparse = record["figure_2"], record["sparsity"]
    fell = float((np.array(two["biases"]) < record["net"]["gate_bias"]).mean())
    closed, hoyers = (one_and_mean(sparse, name) for name in ("closed", "hoyer"))
    gaps = {state: pair["per_example"] - pair["of_mean"]
            for state, pair in hoyers.items()}
    correlations = {name: two["bias_activity_correlation"][name]
                    for name in ("all", "layer_means")}
    early_change = early_share(record, early)
    differing = early_differences(record, early)
    told = class_told(record)
    return [
        claim("P1 4", "most transform biases fall during training", "> 0.5",
              hn.significant(fell), fell > 0.5),
        claim("P1 4", "T of a single example is very sparse, on MNIST to a lesser "
              f"extent: the share of gates below {threshold} (open: theirs is a "
              "picture, and at 0.12, where these gates start, it would be another)",
              "Figure 2", closed, None),
        claim("P1 4.1", "most gates are active on average, said above all of "
              f"CIFAR-100: fewer than half have a mean T below {threshold}", "< 0.5",
              closed, telling(*(closed[state]["of_mean"] < 0.5
                                for state in ("trained", "untrained")))),
        claim("P1 4.1", "T is sparser for a single example than on average (Hoyer), "
              "by more than before training", "per_example > of_mean", hoyers,
              gaps["trained"] > max(gaps["untrained"], 0)),
        claim("P1 4", "biases are inversely correlated with mean gate activity: said "
              "of CIFAR-100, ours is MNIST", "< 0", correlations, None),
        claim("P1 4", "more than half of the change in outputs is in the first "
              f"{early} layers, for one image and for the mean of all", "> 0.5",
              early_change, telling(min(early_change["one image"],
                                        early_change["mean of all"]) > 0.5,
                                    early_change["untrained"] > 0.5)),
        claim("P1 4.1", "more than half of the squared class differences of mean T are "
              f"in the first {early} layers, for the paper's two classes and for all",
              "> 0.5", differing, telling(
                  min(differing["0 and 7"], differing["all"]) > 0.5,
                  min(differing["untrained, 0 and 7"],
                      differing["untrained, all"]) > 0.5)),
        claim("P1 4.1", "the gates differ by class: each readout of T tells more than "
              "before training (and no more than the block outputs do)",
              "trained > untrained", told, all(
                  found["trained"] > found["untrained"]
                  for what, found in told.items() if what.startswith("T")))]


def run(lab):
    """Look into the highway net -> the record."""
    nets, made = load_nets(lab)
    protocol = lab.protocol
    data = hn.scale_pixels(lab.load_data(), protocol["dataset"])
    states = {"trained": nets["highway"],
              "untrained": untrained(made, "highway", data.x_train)}
    (described,) = (fields for fields in made["nets"] if fields["block"] == "highway")
    with threadpool_limits(1, "blas"):
        found = {state: moments(net, data.x_train, data.y_train, "T")
                 for state, net in states.items()}
        sparse = {state: sparsity(net, data.x_train, found[state], protocol["closed"])
                  for state, net in states.items()}
        two = figure_2(states["trained"], data.x_train, found["trained"],
                       protocol["seed"])
        routes = routing(states, data, found, protocol)
    return {
        "net": {name: described[name] for name in ("file", "sha256", "parameters")}
        | {"gate_bias": made["protocol"]["gate_bias"],
           "train_loss": described["train_loss"][-1],
           "test_acc": described["test_acc"][-1]},
        "n_train": len(data.x_train), "n_test": len(data.x_test),
        "figure_2": two | {"label": int(data.y_train[two["image"]])},
        "sparsity": sparse, "figure_3": figure_3(found), "routing": routes}


# --------------------------------------------------------------------------------------
# The figure


def heat(axes, matrix, first, **look):
    """Layers by units, the first layer on top."""
    rows, columns = np.shape(matrix)
    image = axes.imshow(matrix, aspect="auto", interpolation="nearest",
                        extent=(0.5, columns + 0.5, first + rows - 0.5, first - 0.5),
                        **look)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=2, labelsize=7.5)
    return image


def draw_figure_2(figure, record):
    """The paper's four panels."""
    two, start = record["figure_2"], record["net"]["gate_bias"]
    panels = figure.subplots(1, 4, sharey=True)
    images = [
        heat(panels[0], two["biases"], 1, cmap="RdBu_r", norm=CenteredNorm(start)),
        heat(panels[1], two["T_mean"], 1, cmap="viridis", vmin=0),
        heat(panels[2], two["T_one"], 1, cmap="viridis", vmin=0, vmax=1),
        heat(panels[3], two["outputs_one"][1:], 1, cmap="RdBu_r", norm=CenteredNorm())]
    titles = [f"$b_T$ after training\n(white: {start:g}, before it)",
              f"mean $T$ of {record['n_train']:,}\ntraining images",
              f"$T$ of one image\n(a {two['label']})",
              "block outputs $y$\nof the same image"]
    for axes, image, title in zip(panels, images, titles):
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("unit", fontsize=8.5)
        figure.colorbar(image, ax=axes, location="bottom", aspect=18,
                        pad=0.02).ax.tick_params(labelsize=7.5)
    panels[0].set_ylabel("highway layer", fontsize=8.5)


def draw_figure_3(figure, record):
    """Class mean of T less the overall mean, all classes on one scale; the colours of
    the largest half percent are all the same."""
    apart = record["figure_3"]["difference"]
    most = np.quantile(np.abs(list(apart.values())), 0.995)
    panels = figure.subplots(2, (len(apart) + 1) // 2, sharex=True, sharey=True)
    for axes, (digit, matrix) in zip(panels.flat, apart.items()):
        image = heat(axes, matrix, 1, cmap="RdBu_r", vmin=-most, vmax=most)
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


def draw_routing(figure, record):
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
    panels[2].set(xticks=range(counts.shape[1]), xlabel="digit", yticks=[],
                  ylabel="cluster", title="k-means on $T$ of test images\n"
                  f"adjusted Rand index {clusters['adjusted_rand']:.2f}")
    for axes in panels:
        axes.title.set_fontsize(9)
        axes.xaxis.label.set_fontsize(8.5)
        axes.yaxis.label.set_fontsize(8.5)
        axes.tick_params(labelsize=7.5)


def draw(record):
    """The record -> the paper's two figures and the routing, below each other."""
    figure = Figure(figsize=(9, 13), layout="constrained")
    parts = figure.subfigures(3, 1, height_ratios=(4.4, 5, 3))
    for part, paint, title in zip(parts, (draw_figure_2, draw_figure_3, draw_routing), (
            "Transform gates and block outputs (the paper's Figure 2)",
            "Mean $T$ of a class less that of all images (Figure 3, all classes)",
            f"Routing by class ({record['n_train']:,} training, {record['n_test']:,} "
            "test images)")):
        paint(part, record)
        part.suptitle(title, fontsize=11, weight="bold")
    return figure


EXPERIMENT = Experiment("experiments.gates", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims)

if __name__ == "__main__":
    main(EXPERIMENT)
