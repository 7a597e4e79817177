"""Data movement."""

from __future__ import annotations

import numpy as np

from experiments.judging import or_infinite
from experiments.values.common import about, look_up, percent, table


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


@about("results/data_movement/record.json")
def movement_skipping_table(record: dict) -> str:
    skipped = record["skipping"]
    nets, rows = skipped["nets"], []

    def note(what, row):
        random = row.get("random")
        rows.append([what, *(f"{row[name] / nets['highway'][name]:.2f}"
                             for name in ("bytedmd", "address", "bytes")),
                     percent(row["test"], 2),
                     percent(np.median(random), 2) if random else "–"])
    for block in ("highway", "plain", "residual"):
        note(f"{block}, whole", nets[block])
    for row in skipped["gates"]:
        if row["threshold"] in (0.05, 0.08, 0.1, 0.12, 0.15, 0.2):
            note(f"units with T ≤ {row['threshold']:g} ({1 - row['used']:.0%} of all)",
                 row)
    for block, counts in (("highway", (10, 20, 25, 28, 30, 35)), ("residual", (5, 10))):
        for row in skipped["left_out"][block]:
            if row["left_out"] in counts:
                note(f"{block}, {row['left_out']} of 49 layers", row)
    for row in skipped["both"]:
        if row["threshold"] in (0.05, 0.08):
            note(f"{49 - skipped['seconds']['layers']} layers, and units with T ≤ "
                 f"{row['threshold']:g}", row)
    return table("skipped|ByteDMD:|addresses:|bytes read:|test accuracy, %:|"
                 "as many at random, %:", rows)


@about("results/data_movement/record.json")
def movement_seconds_table(record: dict) -> str:
    return table("units:|used:|bytes, skipping / whole:|whole, ms:|skipping / whole:", (
        [str(row["hidden"]), f"{row['used']:.0%}",
         f"{row['gates_bytes'] / row['whole_bytes']:.2f}",
         f"{1000 * row['whole_seconds']:.3f}",
         f"{row['gates_seconds'] / row['whole_seconds']:.2f}"]
        for row in record["timed"]))


@about("results/data_movement/record.json")
def data_movement(record: dict) -> dict[str, str]:
    skipped, loss = record["skipping"], look_up(record, "until a training loss")
    whole, layers = skipped["nets"]["highway"], look_up(record, "that lesions spare")
    chosen, = (row for row in skipped["left_out"]["highway"]
               if row["left_out"] == 49 - skipped["seconds"]["layers"])
    gates, = (row for row in skipped["gates"] if row["threshold"] == 0.1)
    residual = [ratio(record, "residual", row["depth"], row["size"], row["batch"],
                      row["pass"], model=model) for row in record["passes"]
                for model in ("bytedmd", "address")]
    same = look_up(record, "at the same parameters")
    times = skipped["seconds"]
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
        "layers": str(chosen["left_out"]), "layers_cost": f"{layers['movement']:.2f}",
        "layers_lost": percent(layers["accuracy lost"], 1),
        "layers_accuracy": percent(chosen["test"], 1),
        "plain_cost": f"{skipped['nets']['plain']['bytedmd'] / whole['bytedmd']:.2f}",
        "plain_accuracy": percent(skipped["nets"]["plain"]["test"], 1),
        "gates_used": percent(gates["used"]),
        "gates_cost": f"{gates['bytedmd'] / whole['bytedmd']:.2f}",
        "gates_lost": percent(whole["test"] - gates["test"], 1),
        "gates_random": percent(whole["test"] - np.median(gates["random"]), 1),
        "gates_seconds": f"{times['gates'] / times['whole']:.1f}",
        "layers_seconds": f"{times['left_out'] / times['whole']:.2f}",
        "chosen_lost": percent(look_up(record, "units of closed gates")[
            "accuracy lost"], 2),
        "second_step": f"{record['second_step']:.2f}",
        "turned": percent(look_up(record, "image by image")["change"])}
