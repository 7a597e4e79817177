"""Data movement."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from experiments import skipping
from experiments.data_movement import chosen
from experiments.judging import or_infinite
from experiments.values.common import about, look_up, percent, span, table


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
    return table("blocks × units|pass|batch:|residual:|T-only:|C-only:|highway:|full:|"
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


def middle_of(values: Iterable[float], digits: int = 0) -> str:
    """Of several nets the median, and in brackets the least and the largest."""
    values = list(values)
    middle, ends = f"{np.median(values):.{digits}f}", span(values, f".{digits}f")
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
        "layers": span([net.row["left_out"] for net in layers], ".0f"),
        "layers_cost": span([net.movement for net in layers], ".2f"),
        "layers_lost": span([100 * net.lost for net in layers], ".1f"),
        "layers_accuracy": span([100 * net.row["test"] for net in layers], ".1f"),
        "plain_cost": "{:.2f}".format(
            nets["plain"][0]["whole"]["bytedmd"] / wholes[0]["bytedmd"]),
        "plain_accuracy": span(plain, ".1f"),
        "residual_lost": percent(nets["residual"][0]["whole"]["test"]
                                 - spared[0]["test"], 1),
        "gates_used": span([100 * row["used"] for row in tenth], ".0f"),
        "gates_cost": span([row["bytedmd"] for row in tenth], ".2f"),
        "gates_lost": span([100 * (whole["test"] - row["test"]) for whole, row
                            in zip(wholes, tenth, strict=True)], ".1f"),
        "gates_random": span([100 * (whole["test"] - row["control"])
                              for whole, row in zip(wholes, tenth, strict=True)],
                             ".1f"),
        "gates_seconds": f"{times['gates']['ratio']:.1f}",
        "layers_seconds": f"{times['left_out']['ratio']:.2f}",
        "chosen_lost": span([100 * net.lost for net in gates], ".2f"),
        "chosen_within": str(sum(net.lost <= record["protocol"]["lost"]
                                 for net in gates))}
