"""The experiments that train nets."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from experiments.convolution_gates import GATES, best_losses, last_losses
from experiments.convolution_gates import TRAINS as GATES_TRAIN
from experiments.harder_data import (
    POINTS,
    by_rate,
    costly,
    fitted_best,
    late,
    multiplying,
)
from experiments.judging import or_infinite
from experiments.lesion import needed_layers
from experiments.papers import TABLE_1, TABLE_1A
from experiments.table_1 import chosen_nets
from experiments.values.common import (
    about,
    in_words,
    look_up,
    mean_in_words,
    percent,
    span,
    table,
)
from experiments.variants import TRAINS as TRAINS_HERE
from experiments.variants import all_train
from experiments.very_deep.nets import TRAINS
from experiments.very_deep.use import best_bias, left_with

# --------------------------------------------------------------------------------------
# Figure 1 and the six forms


@about("results/optimization/record.json")
def figure_1_table(record: dict) -> str:
    def cells(net):
        best = net["best"]
        accuracy = np.median([row[-1] or 0 for row in best["test_acc"]])
        epochs = np.median(or_infinite(best["epochs_to"]["0.01"]))
        return (f"{np.median(or_infinite(best['final'])):.1e}",
                f"{epochs:.0f}" if math.isfinite(epochs) else "never",
                f"{accuracy:.4f}")
    nets = {(net["block"], net["depth"]): net for net in record["nets"]}
    return table("layers:|highway: loss:|epochs to 0.01:|accuracy:|plain: loss:|"
                 "epochs to 0.01:|accuracy:",
                 ([str(depth), *cells(nets["highway", depth]),
                   *cells(nets["plain", depth])] for depth in (10, 20, 50, 100)))


@about("results/optimization/record.json")
def figure_1(record: dict) -> dict[str, str]:
    plain = {net["depth"]: np.median(or_infinite(net["best"]["final"]))
             for net in record["nets"] if net["block"] == "plain"}
    orders = look_up(record, "orders of magnitude")
    return {"plain_50": f"{plain[50]:.1e}", "plain_100": f"{plain[100]:.1e}",
            **{name: f"{orders[way]:.1f}" for name, way in (
                ("orders", "best runs"), ("orders_of_medians",
                                          "medians of the seeds"))}}


@about("results/blocks/record.json")
def forms_table(record: dict) -> str:
    nets = {(net["block"], net["depth"]): net["test_acc"] for net in record["nets"]}
    return table("form|10:|20:|50:|100:|perplexity:", (
        [form.name, *("{mean:.4f} ± {std:.4f}".format(**nets[block, depth])
                      for depth in (10, 20, 50, 100)), f"{form.perplexity:.2f}"]
        for block, form in TABLE_1A.items()))


@about("results/blocks/record.json")
def forms(record: dict) -> dict[str, str]:
    nets = {(net["block"], net["depth"]): net for net in record["nets"]}
    plain_50, plain_100 = nets["plain", 50], nets["plain", 100]
    return {"plain_50": percent(plain_50["test_acc"]["mean"], 1),
            "plain_50_lr": f"{plain_50['chosen']['lr']:g}",
            "plain_100": percent(plain_100["test_acc"]["mean"], 1),
            "plain_100_lr": f"{plain_100['chosen']['lr']:g}",
            "chosen": str(len(nets)), "at_edge": str(sum(
                bool(net["chosen"]["at_edge"]) for net in nets.values()))}


# --------------------------------------------------------------------------------------
# Looking inside


@about("results/inside/record.json")
def nets_table(record: dict) -> str:
    return table("net|parameters:|training loss:|test accuracy:", (
        (net["block"], f"{net['parameters']:,}", f"{net['train_loss'][-1]:.1e}",
         f"{net['test_acc'][-1]:.4f}") for net in record["nets"]))


@about("results/gates/record.json")
def gates(record: dict) -> dict[str, str]:
    two, sparse = record["figure_2"], record["sparsity"]["trained"]
    told = {(state, how): record["routing"][state]["T"]["accuracy"][words]["all"]
            for state in ("trained", "untrained")
            for how, words in (("nearest", "means"), ("ridge", "ridge"))}
    layers = np.mean(two["T_mean"], axis=1)
    return {"fell": percent(two["fell"], 1),
            "first": f"{layers[0]:.2f}", "last": f"{layers[-1]:.2f}",
            "closed": percent(np.mean(sparse["closed_per_example"])),
            "closed_mean": percent(np.mean(sparse["closed_of_mean"])),
            "correlation": f"{two['bias_activity_correlation']['all']:+.2f}"} | {
        f"{how}_{state}": percent(share, 1) for (state, how), share in told.items()}


@about("results/lesion/record.json")
def lesion(record: dict) -> dict[str, str]:
    nets = record["nets"]
    rise = np.array(nets["highway"]["one_closed"]["loss"]) / nets["highway"]["loss"]
    bias = max(nets["highway"]["estimation"]["trained"]["bias_share"])
    return {"lowest": f"{rise[:5].min():.0f}", "highest": f"{rise[:5].max():.0f}",
            "sixth": f"{rise[5]:.1f}", "bias": percent(bias),
            "spared": percent(nets["highway"]["spared"]),
            "spared_residual": percent(nets["residual"]["spared"]),
            "worst_residual": percent(max(nets["residual"]["one_closed"]["error"]), 1),
            "best_plain": percent(min(nets["plain"]["one_closed"]["error"]), 1)}


@about("results/five_nets/record.json")
def five_nets(record: dict) -> dict[str, str]:
    def middle(values, scale=1.0, digits=3):
        return f"{scale * np.median(list(values)):.{digits}g}"
    highway, gated = record["nets"]["highway"], record["nets"]["t_only"]

    def held(nets, way, layers="all"):
        return [net["rerouted"][way][layers] for net in nets]
    fell = [100 * net["gates"]["bias"]["fell"] for net in highway]
    spared = look_up(record, "can be closed one at a time")["2 times"]["median"]
    return {"spared": percent(spared),
            "fell_least": f"{min(fell):.0f}", "fell_most": f"{max(fell):.0f}",
            "moved": middle((net["gates"]["bias"]["mean_change"] for net in highway),
                            digits=2),
            "held_error": middle((error for _, error in held(highway, "mean of all")),
                                 100),
            "held_loss": middle(loss for loss, _ in held(highway, "mean of all")),
            "loss": middle((net["lesion"]["loss"] for net in highway), digits=2),
            "early_error": middle((error for _, error in held(
                highway, "mean of all", "1 to 15")), 100),
            "class_error": middle((error for _, error in held(
                highway, "mean of its class")), 100, 2),
            "class_times": span((loss / net["lesion"]["loss"] for net, (loss, _) in zip(
                highway, held(highway, "mean of its class"), strict=True)), ",.0f"),
            "other_error": middle((error for _, error in held(
                highway, "of another image")), 100),
            "t_only_error": middle((error for _, error in held(
                gated, "mean of all")), 100)}


@about("results/harder_data/record.json")
def harder_data(record: dict) -> dict[str, str]:
    """Layers that matter: of nets with the chosen rate, and with all near it."""
    found = {"mnist_matter": span(costly(net, POINTS[1])
                                     for net in record["nets"]["mnist"])}
    for name, group in (("cifar", "harder"), ("cifar_same", "same b_T")):
        found[f"{name}_all_matter"] = span(
            costly(net, POINTS[1]) for nets in by_rate(record, group).values()
            for net in nets)
    (fitted,) = fitted_best(record).values()
    with_activity = {name: np.median([net["bias"]["with_activity"] for net in nets])
                     for name, nets in (("fitted", fitted),
                                        ("chosen", record["nets"]["harder"]))}
    return found | {
        "fitted_matter": span(costly(net, POINTS[1]) for net in fitted),
        **{f"{name}_activity": f"{value:+.2f}" for name, value in
           with_activity.items()}}


@about("results/harder_data/record.json")
def harder_data_table(record: dict) -> str:
    held_out = {(row["gate_bias"], f"{lr:g}"): percent(value, 1)
                for row in record["search"]
                for lr, value in zip(row["lr"], row["held_out_acc"], strict=True)}
    theirs, same = record["protocol"]["gate_biases"]
    mnist = record["nets"]["mnist"]
    rows = [("MNIST", same, f"{mnist[0]['training']['lr']:g}", mnist)] + [
        (record["dataset"], bias, lr, nets)
        for bias, found in ((theirs, by_rate(record, "harder") | record["further"]),
                            (same, by_rate(record, "same b_T")))
        for lr, nets in sorted(found.items(), key=lambda item: float(item[0]))]
    return table("data|b_T:|rate:|held out, %:|training error, %:|test, %:|layers that "
                 "matter:|double the loss:|needed:|change after layer 15, %:", (
        (data, f"{bias:g}", lr,
         "–" if data == "MNIST" else held_out[bias, lr],
         span((100 * net["error"] for net in nets), ".1f"),
         span((100 * net["training"]["test_acc"] for net in nets), ".1f"),
         span(costly(net, POINTS[1]) for net in nets),
         span(multiplying(net, 2) for net in nets),
         span(needed_layers(net) for net in nets),
         span((100 * late(net, 15) for net in nets), ".0f"))
        for data, bias, lr, nets in rows))


# --------------------------------------------------------------------------------------
# A thousand layers; convolution


def sums_of_T(record: dict, trains: bool) -> list[float]:
    """Sum of T over the layers before training, of the nets of the map that train, or
    do not, from 50 layers on."""
    plan, accuracies = record["protocol"]["map"], record["map"]["better"]["test_acc"]
    return [(depth - 1) / (1 + math.exp(-bias))
            for bias, row in zip(plan["gate_biases"], accuracies, strict=True)
            for depth, accuracy in zip(plan["depths"], row, strict=True)
            if depth >= 50 and ((accuracy or 0) >= TRAINS) is trains]


@about("results/very_deep/record.json")
def very_deep(record: dict) -> dict[str, str]:
    border = {row["depth"]: row["gate_bias"] for row in record["map"]["border"]}
    best = {depth: best_bias(record["deep"], depth) for depth in (100, 1000, 2000)}
    used = [net["used"] for net in best[1000]]
    times = sorted(left_with(one, 50) or math.nan for one in used)
    rise = max(max(one["lesions"]["loss"]) / one["loss"] for one in used)
    shut = [net["test_acc"] for net in record["deep"] if net["gate_bias"] == -20]
    rescued, = (arm["test_acc"] for arm in record["tutorial"]
                if (arm["block"], arm["start"], arm["lr"]) == ("plain", "he", 0.001))
    return {"bias_30": f"{border[30]:+g}", "bias_1000": f"{border[1000]:g}",
            "trains": f"{max(sums_of_T(record, True)):.0f}",
            "fails": f"{min(sums_of_T(record, False)):.0f}",
            "open": str(max(one["open"] for one in used)),
            "rise": percent(rise - 1), "left_least": f"{times[0]:.1f}",
            "left_most": f"{times[-1]:.1f}", "shut": percent(min(shut), 1),
            "prefix_least": str(min(one["prefix"] for one in used)),
            "prefix_most": str(max(one["prefix"] for one in used)),
            "rescued_least": percent(min(rescued), 1),
            "rescued_most": percent(max(rescued), 1)} | {
        f"accuracy_{depth}": percent(np.mean([net["test_acc"] for net in nets]), 1)
        for depth, nets in best.items()} | {
        f"best_{depth}": f"{nets[0]['gate_bias']:g}" for depth, nets in best.items()}


@about("results/convolution/record.json")
def convolution_table(record: dict) -> str:
    nets = {(net["block"], net["width"]): net for net in record["nets"]
            if net["part"] == "table"}
    rows = []
    for block, width in (("highway", 16), ("highway", 32), ("plain", 16)):
        net, paper = nets[block, width], TABLE_1[width]
        rows.append((f"{block}, width {width}", f"{net['parameters']:,}", str(net["n"]),
                     with_deviation(net),
                     with_deviation(paper) if block == "highway" else "–"))
    return table("net|parameters:|runs:|20 epochs:|the paper's:", rows)


@about("results/convolution/record.json")
def convolution_depth_table(record: dict) -> str:
    nets = {(net["block"], net["depth"]): net for net in record["nets"]
            if net["part"] == "depth"}

    def cells(net):
        return (f"{net['lr']:g}", in_words(net["final_train_loss"], 3),
                in_words(net["final_test_percent"]))
    return table("layers:|highway: rate:|training loss:|accuracy, %:|plain: rate:|"
                 "training loss:|accuracy, %:",
                 ([str(depth), *cells(nets["highway", depth]),
                   *cells(nets["plain", depth])] for depth in (10, 20, 30)))


def with_deviation(found: dict) -> str:
    """Mean and standard deviation of accuracies in %, "diverged" where all did."""
    return ("diverged" if found["mean"] is None else f"{found['mean']:.2f}" if
            found["std"] is None else "{mean:.2f} ± {std:.2f}".format(**found))


WHOSE = {"chosen": "its search's", "narrow": "width 16's", "authors": "the authors'"}


def runs_table(record: dict, last: str, name: Callable[[dict], str],
               cell: Callable[[dict], str]) -> str:
    """The runs of each net, with a column of its own at the end."""
    return table(f"net|parameters:|settings|epochs:|runs:|mean:|best:|{last}:", (
        (name(net), f"{net['parameters']:,}", WHOSE[net["schedule"]],
         str(net["epochs"]), str(len(net["seeds"])), with_deviation(net),
         "–" if net["best"] is None else f"{net['best']:.2f}", cell(net))
        for net in record["nets"]))


def search_table(record: dict) -> str:
    """What each net chose, and its trial with that: the best of the longest."""
    rows = []
    for net, found in record["search"].items():
        longest = max(one["epochs"] for one in found["tried"])
        loss, right = min(pair for one in found["tried"] if one["epochs"] == longest
                          for pair in zip(or_infinite(one["held_out_loss"]),
                                          or_infinite(one["held_out_acc"]),
                                          strict=True))
        chosen = found["chosen"]
        rows.append((net, *(f"{chosen[name]:g}" for name in ("lr", "decay", "dropout")),
                     chosen["schedule"],
                     f"{chosen['gate_bias']:g}" if "gate_bias" in chosen else "–",
                     f"{loss:.4f}", percent(right, 2)))
    return table("net|rate:|decay:|dropout:|schedule|b_T:|held-out loss:|"
                 "held-out accuracy, %:", rows)


def least_mean_best(name: str, net: dict) -> dict[str, str]:
    """Test accuracies in % of a net's runs that did not diverge."""
    runs = [value for value in net["final_test_percent"] if value is not None]
    return {f"{of}_{name}": f"{value:.2f}" for of, value in (
        ("mean", net["mean"]), ("least", min(runs)), ("best", max(runs)))}


@about("results/table_1/record.json")
def table_1_table(record: dict) -> str:
    def theirs(net):
        if net["schedule"] == "authors" or net["block"] == "plain":
            return "–"
        paper = TABLE_1[net["width"]]
        return f"{with_deviation(paper)}, {paper['best']}"
    return runs_table(record, "the paper's mean, best",
                      lambda net: f"{net['block']}, width {net['width']}", theirs)


@about("results/table_1/record.json")
def table_1_search(record: dict) -> str:
    return search_table(record)


@about("results/table_1/record.json")
def table_1(record: dict) -> dict[str, str]:
    found = {}
    for (block, width), net in chosen_nets(record["nets"]).items():
        found |= least_mean_best("plain" if block == "plain" else str(width), net)
    for net in record["nets"]:
        if net["schedule"] == "narrow":
            found |= least_mean_best(f"{net['width']}_narrow", net)
    return found | {f"authors_{net['epochs']}": f"{net['mean']:.2f}"
                    for net in record["nets"] if net["schedule"] == "authors"}


@about("results/table_2/record.json")
def table_2_table(record: dict) -> str:
    return runs_table(record, "last training losses", lambda net: net["block"],
                      lambda net: ", ".join(f"{losses[-1]:.3f}"
                                            for losses in net["train_loss"]))


@about("results/table_2/record.json")
def table_2_search(record: dict) -> str:
    return search_table(record)


@about("results/table_2/record.json")
def table_2(record: dict) -> dict[str, str]:
    """What the runs of both kinds reach; of highway nets also how far below Fitnet A,
    and the losses they end with."""
    nets = {net["block"]: net for net in record["nets"]}
    highway = nets["highway"]
    return least_mean_best("highway", highway) | least_mean_best(
        "plain", nets["plain"]) | {
            "short": f"{record['paper']['Fitnet A'] - highway['mean']:.1f}",
            "share": f"{100 * nets['plain']['parameters'] / highway['parameters']:.0f}",
            "train_loss": span([losses[-1] for losses in highway["train_loss"]], ".2f"),
            "test_loss": span(highway["final_test_loss"], ".2f")}


@about("results/variants/record.json")
def variants(record: dict) -> dict[str, str]:
    """Of the starts how many train and what the worst seed has; what ties cost."""
    found = {}
    for block in ("highway", "plain"):
        own = [net["test_acc"] for net in record["starts"] if net["block"] == block]
        found[f"{block}_train"] = str(sum(all_train([net], TRAINS_HERE) for net in
                                          record["starts"] if net["block"] == block))
        found[f"{block}_least"] = percent(min(
            value or 0 for values in own for value in values), 1)

    def cost(*nets):        # of the second, with two standard errors
        one, other = (100 * np.array([value or 0 for value in net["test_acc"]])
                      for net in nets)
        error = math.hypot(*(np.std(values, ddof=1) / math.sqrt(len(values))
                             for values in (one, other)))
        return f"{one.mean() - other.mean():.2f} ± {2 * error:.2f}"
    ties = record["ties"]
    return found | {"starts": str(len(record["starts"]) // 2)} | {
        f"{block}_shared": cost(ties[block], ties[f"{block}, all shared"])
        for block in ("highway", "residual")}


@about("results/variants/record.json")
def variants_table(record: dict) -> str:
    return table("net|parameters:|test accuracy, five seeds:|least:", (
        (name, f"{net['parameters']:,}", mean_in_words(net["test_acc"], 4),
         f"{min(value or 0 for value in net['test_acc']):.4f}")
        for name, net in record["ties"].items()))


@about("results/convolution_gates/record.json")
def convolution_gates_table(record: dict) -> str:
    nets = {(net["depth"], net["gate"], net["gate_bias"]): net
            for net in record["nets"]}
    biases = record["protocol"]["biases"]

    def cell(net):
        if net is None:
            return "–"
        losses = last_losses(net)
        return (f"{np.median(best_losses(net)):.3f}, "
                f"{(losses < GATES_TRAIN).sum()} of {losses.size}")
    return table("layers:|gates|" + "|".join(f"b_T = {bias:g}" for bias in biases), (
        [str(depth), name, *(cell(nets.get((depth, gate, bias))) for bias in biases)]
        for depth in record["protocol"]["depths"] for gate, name in GATES.items()))
