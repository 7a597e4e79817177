"""The numbers and tables that stand in the texts, each computed from a record.

A function marked `about` is given one record, or several, and returns {name: text}; in
a text the name is that of the function, a dot, and this one: `lesion.worst`. A name
without a dot, as `headline`, is that of a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import highway_networks as hn
from experiments import skipping
from experiments.data_movement import chosen
from experiments.harder_data import POINTS, costly
from experiments.judging import or_infinite
from experiments.lab import load_record
from experiments.lesion import needed_layers
from experiments.papers import TABLE_1, TABLE_1A
from experiments.very_deep.nets import TRAINS
from experiments.very_deep.use import best_bias, left_with
from highway_suite.files import parse_json, read_file
from highway_suite.schema import INITS, RecordError
from highway_suite.studies import RUN, SEEDS, SWEEP, Arm, Study, load

ABOUT: dict[str, tuple] = {}    # function's name -> (function, paths of its records)


def about(*paths: str) -> Callable:
    """Mark a function as that of these records, which it is called with."""
    def mark(function):
        ABOUT[function.__name__] = function, paths
        return function
    return mark


def read(path: Path) -> Any:
    """A record of whatever kind: a Study, an experiment's or benchmark's dict. Raises
    RecordError."""
    if path.name == "record.json":
        return load_record(path)[0]
    if path.parent.name == "benchmarks":
        try:
            return parse_json(read_file(path).decode())
        except ValueError as error:
            raise RecordError(f"{path}: {error}. Make it with: python3 -m benchmarks."
                              f"{path.stem}") from error
    glorot = " --init glorot" if "glorot" in path.name else ""
    study = load(path, dict((RUN, SWEEP)).get(path.name, SEEDS + glorot))
    if study.dataset != "mnist":        # as without a network
        raise RecordError(f"{path}: of {hn.DATASETS[study.dataset].title}; the texts "
                          "speak of MNIST")
    return study


def collect(root: Path) -> dict[str, str]:
    """The folder of the records -> {name: text} of all values and tables."""
    found: dict[str, str] = {}
    for name, (function, paths) in ABOUT.items():
        values = function(*(read(root / path) for path in paths))
        found |= ({name: values} if isinstance(values, str) else
                  {f"{name}.{key}": text for key, text in values.items()})
    return found


def percent(fraction: float, digits: int = 0) -> str:
    """0.967 -> "97", or with a digit "96.7"."""
    return f"{100 * fraction:.{digits}f}"


def mean_and_std(values: Iterable[float], digits: int) -> str:
    """Values of the seeds -> "0.9037 ± 0.0059", or the one there is. The ± is the
    standard deviation with n - 1."""
    values = list(values)
    std = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{std}"


def table(head: str, rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; in its head, a column that ends in ":" is of numbers."""
    names = head.split("|")
    lines = [[name.rstrip(":") for name in names],
             ["---:" if name.endswith(":") else "---" for name in names], *rows]
    text = [f"| {' | '.join(line)} |" for line in lines]
    text[1] = text[1].replace(" ", "")
    return "\n".join(text)


def look_up(record: dict, words: str) -> Any:
    """Our numbers of the one claim of a record with these words."""
    ours, = (claim["ours"] for claim in record["claims"] if words in claim["claim"])
    return ours


# --------------------------------------------------------------------------------------
# The headline and the sweep


def last(arm: Arm, series: str, digits: int) -> str:
    """The last value of an arm's series over the seeds that did not diverge, or –."""
    good = ~arm.diverged
    values = getattr(arm, series)[good, -1]
    return mean_and_std(values, digits) if good.any() else "–"


def net_table(study: Study) -> str:
    """A row for each kind and depth, with n and parameters."""
    def row(arm):
        lost, n = int(arm.diverged.sum()), str(len(arm.diverged))
        return (arm.block, str(arm.depth + 1),
                f"{arm.parameters:,}" if arm.parameters else "–",
                f"{n}, of which {lost} diverged" if lost else n,
                last(arm, "test_acc", 4), last(arm, "train_loss", 3))
    return table("net|layers:|parameters:|n:|test accuracy:|last training loss:",
                 (row(arm) for arms in study.arms.values() for arm in arms.values()))


@about("run.json")
def headline(study: Study) -> str:
    return net_table(study)


@about("run_sweep.json")
def sweep(study: Study) -> str:
    return net_table(study)


@about("results/headline/sweep_five_seeds.json",
       "results/headline/sweep_glorot_five_seeds.json")
def depths(*studies: Study) -> str:
    """Test accuracy, a row for each depth, a column for each kind and study."""
    heads = [f"{arm.block}, {INITS[study.init]}, n = {len(study.seeds)}:"
             for study in studies for arm in study.deepest]

    def cell(arm):
        return last(arm, "test_acc", 3) + (
            f", {arm.diverged.sum()} diverged" if arm.diverged.any() else "")
    return table("|".join(["layers:", *heads]), (
        [str(depth + 1), *(cell(arm) for study in studies
                       for arm in study.arms[depth].values())]
        for depth in studies[0].arms))


@about("run.json")
def run(study: Study) -> dict[str, str]:
    return {"highway": percent(study.arms[study.depth]["highway"].test_acc[0, -1])}


@about()
def sizes() -> dict[str, str]:
    def block(kind, hidden):
        one, two = (hn.DeepNet(kind, depth, hidden).params.size for depth in (1, 2))
        return f"{two - one:,}"
    plain, highway = (hn.DeepNet(kind, 30, hidden).params.size
                      for kind, hidden in (("plain", 71), ("highway", 50)))
    return {"plain_71": block("plain", 71), "highway_50": block("highway", 50),
            "larger": percent(plain / highway - 1)}


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
    lucky = {net["depth"]: net["best"]["final"][0] for net in record["nets"]
             if net["block"] == "plain"}
    orders = look_up(record, "orders of magnitude")
    return {"plain_50": f"{lucky[50]:.1e}", "plain_100": f"{lucky[100]:.1e}",
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
    return {"fell": percent(two["fell"], 1),
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
            "other_error": middle((error for _, error in held(
                highway, "of another image")), 100),
            "t_only_error": middle((error for _, error in held(
                gated, "mean of all")), 100)}


@about("results/harder_data/record.json")
def harder_data(record: dict) -> dict[str, str]:
    nets, found = record["nets"], {}
    for name, group in (("cifar", "harder"), ("cifar_same", "same b_T"),
                        ("mnist", "mnist")):
        matter = sorted(costly(net, POINTS[1]) for net in nets[group])
        found |= {f"{name}_matter": f"{matter[0]} to {matter[-1]}",
                  f"{name}_test": percent(np.mean(
                      [net["training"]["test_acc"] for net in nets[group]]), 1),
                  f"{name}_error": percent(np.mean(
                      [net["error"] for net in nets[group]]))}
    needed = [sorted(needed_layers(net) for net in nets[group])
              for group in ("harder", "mnist")]
    return found | {f"{name}_needed": f"{some[0]} to {some[-1]}" for name, some in
                    zip(("cifar", "mnist"), needed, strict=True)}


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
                     f"{net['mean']:.2f}" + (f" ± {net['std']:.2f}" if net["n"] > 1
                                             else ""),
                     "{mean:.2f} ± {std:.2f}".format(**paper) if block == "highway"
                     else "–"))
    return table("net|parameters:|runs:|20 epochs:|the paper's, 300 epochs:", rows)


@about("results/convolution/record.json")
def convolution(record: dict) -> dict[str, str]:
    return {f"mean_{net['width']}": f"{net['mean']:.2f}" for net in record["nets"]
            if (net["part"], net["block"]) == ("table", "highway")}


@about("results/convolution/record.json")
def convolution_depth_table(record: dict) -> str:
    nets = {(net["block"], net["depth"]): net for net in record["nets"]
            if net["part"] == "depth"}

    def cells(net):
        return (f"{net['lr']:g}",
                ", ".join(f"{loss:.3f}" for loss in net["final_train_loss"]),
                ", ".join(f"{value:.1f}" for value in net["final_test_percent"]))
    return table("layers:|highway: rate:|training loss:|accuracy, %:|plain: rate:|"
                 "training loss:|accuracy, %:",
                 ([str(depth), *cells(nets["highway", depth]),
                   *cells(nets["plain", depth])] for depth in (10, 20, 30)))


# --------------------------------------------------------------------------------------
# Data movement


def one_pass(record: dict, block: str, depth: int, size: int, batch: int, name: str,
             matched: bool = False) -> dict:
    """The row of one net and pass; matched: of the parameters of a highway net of this
    size, else of its width."""
    row, = (row for row in record["passes"] if (
        row["block"], row["depth"], row["size"], row["batch"], row["pass"],
        row["matched"]) == (block, depth, size, batch, name, matched))
    return row


def ratio(record: dict, block: str, depth: int, size: int, batch: int, name: str,
          matched: bool = False, model: str = "bytedmd") -> float:
    """Movement in units of the plain net's."""
    net = depth, size, batch, name
    return (one_pass(record, block, *net)[model]
            / one_pass(record, "plain", *net, matched=matched)[model])


@about("results/data_movement/record.json")
def movement_table(record: dict) -> str:
    rows = []
    for depth, size in ((30, 8), (30, 50), (49, 50)):
        batches = sorted({row["batch"] for row in record["passes"]
                          if (row["depth"], row["size"]) == (depth, size)})
        for batch, name in ((batch, name) for batch in batches
                            for name in ("forward", "step")):
            net = depth, size, batch, name
            rows.append([f"{depth} × {size}", name, str(batch), *(
                f"{ratio(record, block, *net):.2f} "
                f"({ratio(record, block, *net, model='address'):.2f})"
                for block in ("residual", "t_only", "c_only", "highway", "full"))] + [
                f"{ratio(record, 'highway', *net, matched=True):.2f} "
                f"({ratio(record, 'highway', *net, matched=True, model='address'):.2f})"
            ])
    return table("layers × units|pass|batch:|residual:|T-only:|C-only:|highway:|full:|"
                 "highway, plain of the same parameters:", rows)


@about("results/data_movement/record.json")
def movement_laws_table(record: dict) -> str:
    return table("pass|batch:|nets:|ByteDMD ~:|off by at most:|addresses ~:|"
                 "off by at most:", (
        [law["pass"], str(law["batch"]), str(law["n"]), f"n^{law['exponent']:.2f}",
         f"{100 * (law['worst'] - 1):.0f} %", f"n^{other['exponent']:.2f}",
         f"{100 * (other['worst'] - 1):.0f} %"]
        for law, other in zip(record["laws"][::2], record["laws"][1::2], strict=True)))


@about("results/data_movement/record.json")
def movement_loss_table(record: dict) -> str:
    nets = {(net["block"], net["layers"]): net for net in record["until_loss"]["nets"]}
    rows = []
    for layers in record["protocol"]["layers"]:
        cells = [str(layers)]
        for block in ("highway", "plain"):
            net = nets[block, layers]
            cells += [f"{net['parameters']:,}", ", ".join(
                str(epochs or "never") for epochs in net["epochs"]),
                f"{net['step']['bytedmd']:.2e}"]
        middles = [np.median(or_infinite(nets[block, layers]["total"]["bytedmd"]))
                   for block in ("highway", "plain")]
        rows.append([*cells, f"{middles[0] / middles[1]:.2f}"])
    return table("layers:|highway: parameters:|epochs:|ByteDMD of a step:|"
                 "plain: parameters:|epochs:|ByteDMD of a step:|"
                 "until the loss, highway / plain:", rows)


def low_to_high(values: Iterable[float], digits: int = 0) -> str:
    """Of several nets the least and the largest, or both in one."""
    ends = (f"{end:.{digits}f}" for end in (min(values), max(values)))
    return " to ".join(dict.fromkeys(ends))


def middle_of(values: Iterable[float], digits: int = 0) -> str:
    """Of several nets the median, and in brackets the least and the largest."""
    values = list(values)
    middle, ends = f"{np.median(values):.{digits}f}", low_to_high(values, digits)
    return middle if middle == ends else f"{middle} ({ends})"


def same_rows(nets: list[dict], part: str, key: str, value: float) -> list[dict]:
    """The row of each net with that threshold or number of layers, its movement in
    units of the whole net's, and the accuracy of its control."""
    found = []
    for net in nets:
        row, = (row for row in net[part] if row[key] == value)
        found.append(row | {name: row[name] / net["whole"][name]
                            for name in skipping.COSTS})
        if row.get("random"):
            found[-1]["control"] = np.median(row["random"])
    return found


@about("results/data_movement/record.json")
def movement_skipping_table(record: dict) -> str:
    nets, rows = record["skipping"]["nets"], []
    highway, (whole, *_) = nets["highway"], nets["highway"]

    def note(what, found):
        costs = ({name: row[name] for name in skipping.COSTS} for row in found)
        rows.append([what, *(middle_of(column, 2) for column in zip(
            *(cost.values() for cost in costs), strict=True)),
            middle_of([100 * row["test"] for row in found], 1),
            middle_of([100 * row["control"] for row in found], 1)
            if "control" in found[0] else "–"])
    for block, own in nets.items():
        note(f"{block}, whole", [net["whole"] | {
            name: net["whole"][name] / whole["whole"][name] for name in skipping.COSTS}
            for net in own])
    for threshold in (0.05, 0.08, 0.1, 0.12, 0.15, 0.2):
        found = same_rows(highway, "gates", "threshold", threshold)
        share = middle_of([100 * (1 - row["used"]) for row in found])
        note(f"units with T ≤ {threshold:g}: {share} % of all", found)
    for count in (10, 20, 25, 28, 30, 35):
        note(f"highway, {count} of 49 layers",
             same_rows(highway, "left_out", "left_out", count))
    for count in (5, 10):
        found = same_rows(nets["residual"], "left_out", "left_out", count)
        times = {name: nets["residual"][0]["whole"][name] / whole["whole"][name]
                 for name in skipping.COSTS}
        note(f"residual, {count} of 49 layers", [row | {
            name: row[name] * times[name] for name in times} for row in found])
    for threshold in (0.05, 0.08):
        note(f"the chosen layers, and units with T ≤ {threshold:g}",
             same_rows(highway, "both", "threshold", threshold))
    return table("skipped|ByteDMD:|addresses:|bytes read:|test accuracy, %:|"
                 "as many at random, %:", rows)


@about("results/data_movement/record.json")
def movement_nets_table(record: dict) -> str:
    rows = []
    for net, gates, layers in zip(
            record["skipping"]["nets"]["highway"], chosen(record, "gates"),
            chosen(record, "left_out"), strict=True):
        rows.append([str(net["seed"]), percent(net["whole"]["test"], 2),
                     f"{gates.row['threshold']:g}", percent(1 - gates.row["used"]),
                     f"{gates.movement:.2f}", percent(gates.lost, 2),
                     percent(gates.apart, 1), str(layers.row["left_out"]),
                     f"{layers.movement:.2f}", percent(layers.lost, 2)])
    return table("seed:|whole, %:|threshold of T:|units skipped, %:|movement:|"
                 "points lost:|points ahead of random units:|layers left out:|"
                 "movement:|points lost:", rows)


@about("results/data_movement/record.json")
def movement_seconds_table(record: dict) -> str:
    groups: dict[tuple, list] = {}
    for row in record["timed"]:
        groups.setdefault((row["hidden"], row["used"]), []).append(row)
    return table("units:|used:|bytes, skipping / whole:|whole, ms:|skipping / whole:", (
        [str(hidden), f"{used:.0%}",
         f"{rows[0]['gates_bytes'] / rows[0]['whole_bytes']:.2f}",
         f"{1000 * np.median([row['seconds']['whole'] for row in rows]):.3f}",
         middle_of([row["seconds"]["ratio"] for row in rows], 2)]
        for (hidden, used), rows in groups.items()))


def about_passes(record: dict) -> dict[str, str]:
    """What is said of the passes and of training until the loss."""
    residual = [ratio(record, "residual", row["depth"], row["size"], row["batch"],
                      row["pass"], model=model) for row in record["passes"]
                for model in ("bytedmd", "address")]
    same, loss = (look_up(record, words) for words in (
        "at the same parameters", "until a training loss"))
    return {
        "residual_least": f"{min(residual):.2f}",
        "residual_most": f"{max(residual):.2f}",
        **{f"highway_{size}": f"{ratio(record, 'highway', 30, size, 1, 'step'):.2f}"
           for size in (8, 50)},
        **{f"same_{size}": "{:.2f}".format(
            ratio(record, "highway", 30, size, 1, "step", matched=True))
           for size in (8, 50)},
        "same_least": f"{same['lowest']:.2f}", "same_most": f"{same['highest']:.2f}",
        **{f"loss_{depth}": f"{loss[f'{depth} layers']:.2f}" for depth in (10, 20)},
        "second_step": f"{record['second_step']:.2f}",
        "turned": percent(look_up(record, "image by image")["change"])}


@about("results/data_movement/record.json", "results/five_nets/record.json")
def data_movement(record: dict, five: dict) -> dict[str, str]:
    nets = record["skipping"]["nets"]
    gates, layers = chosen(record, "gates"), chosen(record, "left_out")
    tenth = same_rows(nets["highway"], "gates", "threshold", 0.1)
    wholes = [net["whole"] for net in nets["highway"]]
    times = record["skipping"]["timed"]["seconds"]
    plain = [100 * net["training"]["test_acc"][-1] for net in five["nets"]["plain"]]
    spared = same_rows(nets["residual"], "left_out", "left_out", 5)
    return about_passes(record) | {
        "layers": low_to_high([net.row["left_out"] for net in layers]),
        "layers_cost": low_to_high([net.movement for net in layers], 2),
        "layers_lost": low_to_high([100 * net.lost for net in layers], 1),
        "layers_accuracy": low_to_high([100 * net.row["test"] for net in layers], 1),
        "plain_cost": "{:.2f}".format(
            nets["plain"][0]["whole"]["bytedmd"] / wholes[0]["bytedmd"]),
        "plain_accuracy": low_to_high(plain, 1),
        "residual_lost": percent(nets["residual"][0]["whole"]["test"]
                                 - spared[0]["test"], 1),
        "gates_used": low_to_high([100 * row["used"] for row in tenth]),
        "gates_cost": low_to_high([row["bytedmd"] for row in tenth], 2),
        "gates_lost": low_to_high([100 * (whole["test"] - row["test"]) for whole, row
                                   in zip(wholes, tenth, strict=True)], 1),
        "gates_random": low_to_high([100 * (whole["test"] - row["control"])
                                     for whole, row in zip(wholes, tenth, strict=True)],
                                    1),
        "gates_seconds": f"{times['gates']['ratio']:.1f}",
        "layers_seconds": f"{times['left_out']['ratio']:.2f}",
        "chosen_lost": low_to_high([100 * net.lost for net in gates], 2),
        "chosen_within": str(sum(net.lost <= record["protocol"]["lost"]
                                 for net in gates))}


# --------------------------------------------------------------------------------------
# Speed


@about("benchmarks/peers.json")
def peers(record: dict) -> dict[str, str]:
    one, pair = record["one_core"], record["all_cores"]
    parts = record["profile"]["parts"]
    rounds = [pair[name]["times_ours"][end] for end in ("least", "largest")
              for name in ("jax scan", "torch.compile")]

    def times(name, cores=one):
        return f"{cores[name]['times_ours']['median']:.2f}"

    def share(word):
        return percent(sum(part["share"] for name, part in parts.items()
                           if word in name))
    return {"ms": f"{one['ours']['ms_per_step']:.2f}",
            "products_times": f"{1 / one['floor']['times_ours']['median']:.2f}",
            "torch": times("torch"), "compiled": times("torch.compile"),
            "jax": times("jax scan"), "jax_pair": times("jax scan", pair),
            "compiled_pair": times("torch.compile", pair),
            "jax_prepared": f"{pair['jax scan']['times_ours_prepared']:.2f}",
            "compiled_prepared": f"{pair['torch.compile']['times_ours_prepared']:.2f}",
            "least": f"{min(rounds):.2f}", "largest": f"{max(rounds):.2f}",
            "element_wise": share("element-wise"), "products": share("products"),
            "torch_version": one["torch"]["versions"]["torch"].partition("+")[0],
            "jax_version": one["jax scan"]["versions"]["jax"]}


@about("benchmarks/scaling.json")
def scaling(record: dict) -> dict[str, str]:
    law = record["depth_law"]["median"]
    return {"ms": f"{1e3 * law['line']['seconds']:.2f}",
            "ms_per_block": f"{1e3 * law['line']['seconds_per_block']:.3f}",
            "deviation": percent(law["largest_deviation"], 1),
            "mb": f"{record['whole_run']['peak_mb']:.0f}"}


@about("benchmarks/cold_start.json")
def cold_start(record: dict) -> dict[str, str]:
    found = record["contestants"]
    names = {"ours": "ours", "torch": "torch", "compiled": "torch.compile",
             "jax": "jax scan", "jax_straight": "jax"}
    return {key: f"{found[name]['seconds']['median']:.1f}"
            for key, name in names.items()} | {
        f"{key}_times": f"{found[name]['times_ours']['median']:.1f}"
        for key, name in names.items()} | {
        "rounds": str(record["repeats"]), "cores": str(record["cores"])}


@about("benchmarks/cold_start.json")
def cold_start_table(record: dict) -> str:
    found = sorted(record["contestants"].items(),
                   key=lambda item: item[1]["seconds"]["median"])
    return table("program|seconds:|times ours:|start, imports:|first epoch:|"
                 "eleven others:", (
        ["this suite" if name == "ours" else name, f"{part['seconds']['median']:.1f}",
         f"{part['times_ours']['median']:.1f}", *(
             ["–"] * 3 if name == "ours" else [f"{p:.1f}" for p in part["parts"]])]
        for name, part in found))


@about("benchmarks/convolution.json")
def convolution_speed(record: dict) -> dict[str, str]:
    """By width for Table 1, else by table; of 19 layers the hours, on one core, that an
    epoch of 50,000 images and the authors' 400 take."""
    nets = {net["width"] or f"table_{net['table']}": net["contestants"]
            for net in record["nets"]}
    rounds = [net["torch"]["times_ours"] for net in nets.values()]
    found = {"least": f"{min(each['least'] for each in rounds):.2f}",
             "largest": f"{max(each['largest'] for each in rounds):.2f}"} | {
        f"{name}_{key}": f"{net[name]['times_ours']['median']:.2f}"
        for key, net in nets.items() for name in ("torch", "floor")}
    epoch = 50_000 / record["batch"] * nets["table_3"]["ours"]["median"]
    return found | {"minutes_19": f"{epoch / 60:.0f}",
                    "hours_19": f"{400 * epoch / 3600:.0f}"}


@about("benchmarks/language_model.json")
def language_model_speed(record: dict) -> dict[str, str]:
    found = record["contestants"]
    return {"ms": f"{1e3 * found['ours']['median']:.0f}",
            "torch": f"{found['torch']['times_ours']['median']:.2f}",
            "floor": f"{found['floor']['times_ours']['median']:.2f}",
            "mb": str(record["memory_mb"])}
