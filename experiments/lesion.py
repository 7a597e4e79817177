"""Figure 4 and "unrolled iterative estimation": which layers a trained net can spare.

The claims. P1, section 4.2: closing the gates of one early layer raises the training
loss significantly, layers 15 to 45 have close to no effect on MNIST, and about 60 % of
the layers do not contribute. P2 (Greff et al., ICLR 2017), sections 2, 4.2 and 4.4: a
plain net falls to chance where one layer is removed, highway and residual nets lose
little, the more the earlier the layer; layers of these may be shuffled at a loss that
grows smoothly with the amount; and their block outputs a_k are estimates of one value
A, E[a_k - A] = 0 (its Eq. 1), whose spread falls from block to block (its Figure 3).

The protocol, for the three nets of experiments/inside.py. Close one layer at a time and
measure loss and error on all training images; a layer of the residual and the plain net
is taken out instead, which is the same: it copies its input. Keep only the first k
layers, on all training images. Close ever more layers in a random order, and shuffle
the layers so that none moves further than a given distance; ten draws of each, on the
first 10,000 training images. Estimation error, on all training images: mean and
standard deviation of a_k - A for each unit over the images, then their means over the
units, as P2 has it. The error grows smoothly if it is in order with the distance, by
rank, and no step between two distances makes half of the whole rise.

Beyond P2: A is a_L, so the error ends at 0 by definition, and would shrink along any
net that changes x little by little, trained or not; and the mean over units cancels a
bias that is positive in one unit and negative in another. So the same is measured for
the nets before training, and with it the share of the squared error that is bias, sum
m^2 / sum (m^2 + s^2) over the units, with m and s a unit's mean and deviation. What is
as true before training tells nothing, and is left open.

The paper is silent, we assume: A is the output of the stage's last block; the stage
begins with the plain layer's output, k = 0; errors are given in units of the standard
deviation of A over images, averaged over units. Early layers are the first five, a
tenth of all, with those before the 15th recorded beside them; an effect is visible
where the loss doubles, which Figure 4 would show as a third of a decade. A permutation
that moves no layer by more than d is drawn by sorting l + u, with u uniform in [0, d +
1).

Deviations: one net of each kind, one seed; P2's nets were convolutional, for ImageNet.

Cost: three minutes on one core, after the nets' training.
"""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import highway_networks as hn
from experiments.common import COLOURS, LIGHT, Experiment, claim, main, telling
from experiments.inside import load_nets, passes, untrained

PROTOCOL = {"dataset": "mnist", "seed": 0, "sampled": 10_000, "draws": 10,
            "closed": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48],
            "distances": [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48], "early": 5,
            "idle": [15, 45]}
SMOKE = {"dataset": "digits", "sampled": 300, "draws": 3, "closed": [1, 2, 4],
         "distances": [1, 2, 4], "early": 1, "idle": [3, 5]}

# --------------------------------------------------------------------------------------
# Measurements


def evaluate(net, x, labels, closed=()):
    """Mean cross-entropy and error rate on images x (N, P), layers closed."""
    loss, wrong = 0.0, 0
    for rows, logits, _ in passes(net, x, closed):
        wrong += np.count_nonzero(logits.argmax(axis=0) != labels[rows])
        loss += float(hn.cross_entropy(logits, labels[rows])[0]) * logits.shape[1]
    return [hn.significant(loss / len(x)), hn.significant(wrong / len(x))]


def columns(pairs):
    """Pairs (loss, error) -> the two as lists."""
    loss, error = zip(*pairs)
    return {"loss": list(loss), "error": list(error)}


def keep_first(net, x, labels):
    """Loss and error of the first k layers alone, k = 0..L: the others would copy y_k,
    so it is what the output layer reads from y_k, and one pass tells all."""
    weights, found = net.views(net.params), np.zeros((net.depth + 1, 2))
    for rows, _, cache in passes(net, x):
        for k, y in enumerate(cache.x[:, :net.hidden]):
            logits = weights["W_out"] @ y + weights["b_out"][:, None]
            found[k] += (hn.cross_entropy(logits, labels[rows])[0] * cache.batch,
                         np.count_nonzero(logits.argmax(axis=0) != labels[rows]))
    return columns((hn.significant(loss), hn.significant(wrong))
                   for loss, wrong in found / len(x))


def permuted(net, order):
    """A net with the same layers in another order: layer l is the old order[l]."""
    twin = hn.DeepNet(**net.settings, dtype=net.dtype)
    twin.params[...] = net.params
    layers = twin.tensors(twin.params)["blocks"]
    layers[...] = layers[order]
    return twin


def nearby_order(layers, distance, rng):
    """A random permutation that moves no layer by more than `distance`: an l can only
    be overtaken by those whose l + u is smaller, which are at most so far off."""
    return np.argsort(np.arange(layers) + rng.uniform(0, distance + 1, layers))


def close_at_random(net, x, labels, protocol):
    """Close ever more layers -> loss and error, a row for each draw."""
    rng, draws = np.random.default_rng([protocol["seed"], 1]), []
    for _ in range(protocol["draws"]):
        order = rng.permutation(net.depth)
        draws.append(columns(evaluate(net, x, labels, order[:count])
                             for count in protocol["closed"]))
    return {name: [draw[name] for draw in draws] for name in ("loss", "error")}


def shuffle(net, x, labels, protocol):
    """Shuffle layers ever further -> loss, error and mean distance moved, a row for
    each draw."""
    rng, draws = np.random.default_rng([protocol["seed"], 2]), []
    for _ in range(protocol["draws"]):
        orders = [nearby_order(net.depth, distance, rng)
                  for distance in protocol["distances"]]
        moved = [hn.significant(np.abs(order - np.arange(net.depth)).mean())
                 for order in orders]
        draws.append(columns(evaluate(permuted(net, order), x, labels)
                             for order in orders) | {"moved": moved})
    return {name: [draw[name] for draw in draws] for name in ("loss", "error", "moved")}


def estimation_error(net, x):
    """a_k - A for k = 0..L, A = a_L, in units of A's standard deviation: the means over
    units of its mean and standard deviation over images, and the share of bias."""
    shape = (net.depth + 1, net.hidden)
    total, squares, A_total, A_squares = (np.zeros(size) for size in (
        shape, shape, net.hidden, net.hidden))
    for _, _, cache in passes(net, x):
        a = cache.x[:, :net.hidden].astype("float64")
        error = a - a[-1]
        total += error.sum(axis=2)
        squares += (error ** 2).sum(axis=2)
        A_total += a[-1].sum(axis=1)
        A_squares += (a[-1] ** 2).sum(axis=1)
    mean = total / len(x)                                           # (L + 1, U)
    variance = np.maximum(squares / len(x) - mean ** 2, 0)
    A_std = np.sqrt(A_squares / len(x) - (A_total / len(x)) ** 2).mean()
    bias = (mean ** 2).sum(axis=1)[:-1]
    return {"A_std": hn.significant(A_std),
            "mean": [hn.significant(v) for v in mean.mean(axis=1) / A_std],
            "std": [hn.significant(v) for v in np.sqrt(variance).mean(axis=1) / A_std],
            "bias_share": [hn.significant(v) for v in
                           bias / (bias + variance.sum(axis=1)[:-1])]}


def examine(net, fresh, data, protocol):
    """All measurements of one net; fresh: the same before training."""
    x, labels, L = data.x_train, data.y_train, net.depth
    few = x[:protocol["sampled"]], labels[:protocol["sampled"]]
    loss, error = evaluate(net, x, labels)
    return {
        "loss": loss, "error": error,
        "one_closed": columns(evaluate(net, x, labels, [l]) for l in range(L)),
        "first_only": keep_first(net, x, labels),
        "sampled": columns([evaluate(net, *few)]),
        "closed": close_at_random(net, *few, protocol),
        "shuffled": shuffle(net, *few, protocol),
        "estimation": {"trained": estimation_error(net, x),
                       "untrained": estimation_error(fresh, x)}}


# --------------------------------------------------------------------------------------
# Claims


def spared(net):
    """Whether each layer alone can be closed without visible effect, (L,)."""
    return np.array(net["one_closed"]["loss"]) < 2 * net["loss"]


def range_of(values):
    """Lowest, median and highest."""
    return {name: hn.significant(of(values)) for name, of in (
        ("lowest", np.min), ("median", np.median), ("highest", np.max))}


def rank_correlation(values):
    """Spearman's, of a series and its index; equal values share the mean of their
    ranks, and of a constant series nothing can be said: 0."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    if len(counts) == 1:
        return 0.0
    return hn.significant(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])


def check_lesions(nets, protocol):
    """The statements about one layer closed; "idle" in the protocol: the first and the
    last layer of those that P1 found to be so, from 1."""
    idle = protocol["idle"]
    plain_error = np.array(nets["plain"]["one_closed"]["error"])
    rise = np.array(nets["highway"]["one_closed"]["loss"]) / nets["highway"]["loss"]
    early, late = rise[:protocol["early"]], rise[idle[0] - 1:idle[1]]
    share = hn.significant(spared(nets["highway"]).mean())
    gentle = {name: range_of(nets[name]["one_closed"]["error"])
              for name in ("highway", "residual")}
    return [
        claim("P1 4.2", "closing any one of the early layers, here the first "
              f"{protocol['early']}, raises the loss significantly, at least tenfold",
              "factor of loss >= 10", range_of(early), early.min() >= 10),
        claim("ours", f"closing any one of the first {protocol['early']} layers "
              "raises the loss by orders of magnitude, at least a hundredfold", None,
              range_of(early), early.min() >= 100),
        claim("ours", f"closing any one of layers 1 to {idle[0] - 1}, all before those "
              "that P1 found idle, raises the loss at least tenfold", None,
              range_of(rise[:idle[0] - 1]), rise[:idle[0] - 1].min() >= 10),
        claim("P1 4.2", f"closing one of layers {idle[0]} to {idle[1]} has close to no "
              "effect", "factor of loss < 2", range_of(late), late.max() < 2),
        claim("P1 4.2", "more than half of the layers, about 60 %, can be closed one "
              "at a time without visible effect", "0.6", share, share > 0.5),
        claim("P2 2", "a plain net (theirs: a VGG of 15 layers) is destroyed without "
              "any one layer: it errs on most images", "error > 0.5",
              range_of(plain_error), plain_error.min() > 0.5),
        claim("P2 2", "the error of a plain net without one layer is about 90 %, that "
              "of guessing, whichever the layer", "error >= 0.8",
              range_of(plain_error), plain_error.min() >= 0.8),
        claim("P2 2", "highway and residual nets stay far better than guessing without "
              "one layer, whichever", "error < 0.5", gentle,
              max(found["highest"] for found in gentle.values()) < 0.5),
        *(claim("P2 2", f"a {name} net without one layer, whichever, performs only a "
                "little worse: its error rises by at most 5 points", "a minor drop",
                gentle[name] | {"whole": nets[name]["error"]},
                gentle[name]["highest"] - nets[name]["error"] <= 0.05)
          for name in gentle),
        *(check_thirds(name, nets[name]) for name in gentle)]


def check_thirds(name, net):
    """P2 says that the drop is larger for the early layers."""
    rise = np.array(net["one_closed"]["loss"]) / net["loss"]
    third = len(rise) // 3
    medians = {"first": hn.significant(np.median(rise[:third])),
               "last": hn.significant(np.median(rise[-third:]))}
    return claim("P2 2", f"the loss of a {name} net rises more without one of the "
                 "early layers", "median factor of the first third > of the last",
                 medians, medians["first"] > medians["last"])


def std_by_block(found):
    """Rank correlation of the estimation error's standard deviation with k < L."""
    return rank_correlation(found["std"][:-1])


def mean_by_std(found):
    """The largest size of its mean, in standard deviations at the same k < L."""
    mean, std = (np.abs(found[part][:-1]) for part in ("mean", "std"))
    return hn.significant((mean / std).max())


def largest_bias(found):
    """The largest share of bias."""
    return max(found["bias_share"])


def largest_step(values):
    """The largest rise between neighbours, as a share of that from first to last."""
    rise = values[-1] - values[0]
    return hn.significant(np.diff(values).max() / rise) if rise > 0 else 1.0


def check_estimation(nets):
    """The statements about shuffling and estimation error; for the latter, nets before
    training and the plain one, of which P2 says nothing, stand beside as controls."""
    claims = []
    for name in ("highway", "residual"):
        error = np.mean(nets[name]["shuffled"]["error"], axis=0)
        order = rank_correlation(error)
        near = hn.significant(error[0] - nets[name]["sampled"]["error"][0])
        step = largest_step(error)
        claims.append(claim(
            "P2 4.4" if name == "highway" else "P2 2",
            f"{name}: the error grows smoothly with the amount of shuffling, and "
            "little where layers only move to the next place (theirs: a ResNet-110)",
            "rank correlation > 0.9, largest step < 0.5 of all, first rise < 0.1",
            {"rank_correlation": order, "largest_step": step, "first_rise": near},
            order > 0.9 and step < 0.5 and near < 0.1))
    for name in ("highway", "residual"):
        falls, ratio, share = ({
            state: of(found) for state, found in (
                ("trained", nets[name]["estimation"]["trained"]),
                ("untrained", nets[name]["estimation"]["untrained"]),
                ("plain", nets["plain"]["estimation"]["trained"]))}
            for of in (std_by_block, mean_by_std, largest_bias))
        claims += [
            claim("P2 4.2", f"{name}: the standard deviation of a_k - A falls from "
                  "block to block", "rank correlation with k < -0.9", falls,
                  telling(falls["trained"] < -0.9, falls["untrained"] < -0.9)),
            claim("P2 4.2", f"{name}: the mean of a_k - A over images and units stays "
                  "near zero, at every k", "at most a tenth of the standard deviation",
                  ratio, telling(ratio["trained"] <= 0.1, ratio["untrained"] <= 0.1)),
            claim("P2 Eq. 1", f"{name}: the mean of each unit's a_k - A is near zero, "
                  "so that little of the squared error is bias", "share < 0.1 at every "
                  "k", share,
                  telling(share["trained"] < 0.1, share["untrained"] < 0.1))]
    return claims


def check_claims(record):
    """All claims of a record."""
    return (check_lesions(record["nets"], record["protocol"])
            + check_estimation(record["nets"]))


def needed_layers(net):
    """The smallest k for which the first k layers alone, and all more, err by at most
    one percentage point more than the whole net."""
    off = np.flatnonzero(np.array(net["first_only"]["error"]) > net["error"] + 0.01)
    return int(off.max(initial=-1)) + 1


def run(lab):
    """Lesion the nets -> the record."""
    trained, made = load_nets(lab)
    data = hn.scale_pixels(lab.load_data(), lab.protocol["dataset"])
    nets = {}
    with threadpool_limits(1, "blas"):
        for fields in made["nets"]:
            name = fields["block"]
            found = examine(trained[name], untrained(made, name, data.x_train), data,
                            lab.protocol)
            nets[name] = {key: fields[key] for key in ("file", "sha256", "parameters")}
            nets[name] |= {"test_acc": fields["test_acc"][-1], **found,
                           "spared": hn.significant(spared(found).mean()),
                           "needed_layers": needed_layers(found)}
            print(f"{name}: loss {found['loss']}, {nets[name]['spared']:.0%} of the "
                  "layers spared", flush=True)
    return {"n_train": len(data.x_train), "nets": nets}


# --------------------------------------------------------------------------------------
# The figure


def draw_one_closed(panels, nets):
    """Figure 4, as the loss and as the error."""
    for name, net in nets.items():
        layers = np.arange(1, len(net["one_closed"]["loss"]) + 1)
        for axes, part, scale in zip(panels, ("loss", "error"), (1, 100)):
            values = scale * np.array(net["one_closed"][part])
            axes.plot(layers, values, color=COLOURS[name], marker="o", markersize=2.5,
                      linewidth=1.2, label=name)
            axes.axhline(scale * net[part], color=COLOURS[name], linewidth=1,
                         linestyle="--")
    panels[0].set(yscale="log", ylabel="mean cross-entropy, nats",
                  title="Loss, one layer closed (dashed: none)")
    panels[1].set(ylabel="training error, %", title="Error, one layer closed")
    for axes in panels:
        axes.set_xlabel("closed layer")


def draw_draws(axes, nets, part, at, label, title):
    """Error of random draws, median and range, over at(net); at 0 the net itself."""
    for name, net in nets.items():
        places = [0, *at(net)]
        draws = 100 * np.array(net[part]["error"])
        start = np.full((len(draws), 1), 100 * net["sampled"]["error"][0])
        draws = np.hstack([start, draws])
        axes.plot(places, np.median(draws, axis=0), color=COLOURS[name], marker="o",
                  markersize=3, linewidth=1.4)
        axes.fill_between(places, draws.min(axis=0), draws.max(axis=0),
                          color=COLOURS[name], alpha=0.15, linewidth=0)
    axes.set(xlabel=label, ylabel="training error, %", title=title)


def draw_first(axes, nets):
    """The first k layers alone."""
    for name, net in nets.items():
        error = 100 * np.array(net["first_only"]["error"])
        axes.plot(np.arange(len(error)), error, color=COLOURS[name], linewidth=1.6)
    axes.set(xlabel="layers kept, from the input on", ylabel="training error, %",
             title="The first layers alone")


def draw_estimation(panels, nets):
    """P2's Figure 3, its deviation beside the untrained net's, and the bias."""
    mean, std, share = panels
    for name, net in nets.items():
        found, colour = net["estimation"], COLOURS[name]
        k = np.arange(len(found["trained"]["mean"]))
        middle, spread = (np.array(found["trained"][part]) for part in ("mean", "std"))
        mean.plot(k, middle, color=colour, linewidth=1.8)
        for edge in (middle - spread, middle + spread):
            mean.plot(k, edge, color=colour, linewidth=0.9)
        mean.fill_between(k, middle - spread, middle + spread, color=colour, alpha=0.06,
                          linewidth=0)
        for state, dashes in (("trained", "-"), ("untrained", ":")):
            std.plot(k, np.array(found[state]["std"]) / found[state]["std"][0],
                     color=colour, linestyle=dashes, linewidth=1.6)
            share.plot(k[:-1], 100 * np.array(found[state]["bias_share"]), color=colour,
                       linestyle=dashes, linewidth=1.6)
    mean.axhline(0, color=LIGHT.soft, linewidth=0.8)
    mean.set(ylabel="in standard deviations of $A$",
             title="Estimation error $a_k-A$: mean ± s.d.")
    std.set(ylabel="relative to $k=0$", ylim=(0, None),
            title="Its s.d. (dotted: before training)")
    share.set(ylabel="% of the squared error", ylim=(0, None),
              title="Bias of single units (dotted: before training)")
    for axes in panels:
        axes.set_xlabel("block $k$")


def draw(record):
    """The record -> the paper's Figure 4, P2's Figure 3, and what lies between."""
    nets, protocol = record["nets"], record["protocol"]
    figure = Figure(figsize=(9, 12.2), layout="constrained")
    panels = figure.subplots(4, 2)
    draw_one_closed(panels[0], nets)
    draw_first(panels[1, 0], nets)
    draw_draws(panels[1, 1], nets, "closed", lambda net: protocol["closed"],
               "layers closed", "Random layers closed")
    draw_draws(panels[2, 0], nets, "shuffled", lambda net: np.mean(
        net["shuffled"]["moved"], axis=0), "mean distance moved, layers",
        "Layers shuffled")
    draw_estimation(panels.flat[5:], nets)
    for axes in panels.flat:
        axes.title.set_fontsize(10)
        axes.xaxis.label.set_fontsize(9)
        axes.yaxis.label.set_fontsize(9)
        axes.tick_params(labelsize=8)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), ncols=3, frameon=False,
                  loc="outside upper center")
    figure.supxlabel(
        f"{record['dataset']}: {record['n_train']:,} training images; where layers are "
        f"drawn, {protocol['sampled']:,} of them,\nmedian and range of "
        f"{protocol['draws']} draws. One net of each kind.", fontsize=8.5)
    return figure


EXPERIMENT = Experiment("experiments.lesion", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims)

if __name__ == "__main__":
    main(EXPERIMENT)
