"""One rule for every depth? b_T = logit(1/L), tried from 10 to 10,000 layers.

The question. P1 asks for a negative initial b_T and gives a guideline for 10, 20 and 30
layers (section 2.2). A highway net carries prod(1 - T) of its input, about e^-S with S
the sum of the T of all L layers. Does S before training decide, whatever the depth, and
is S = 1, which is b_T = logit(1/L) = -log(L - 1), near the best everywhere?

The nets. 784 pixels -> one plain layer -> L blocks -> softmax of 10; L counts blocks,
P1's count is one more. 50 units, tanh, Glorot's weights, batches of 128, clip 5, 6000
training images, 12 epochs, constant rate, three seeds, unless it says otherwise. Loss:
training loss, mean over the last epoch's steps; a net trains if it is below ln(10) / 2.
Each optimiser has three rates and is judged by the best, by mean loss; from 300 layers
on by the rate that seed 0 chose, and where it trained with none no other seed runs.
Test images choose nothing. A verdict also says what half and twice its margin make it.

H1 collapse   10 to 1000 layers: a cubic in log S explains 80 % of the variance of log
              loss, depth 10 % more at most; b_T or depth alone less than half. At equal
              S, 0.1 to 3, the depths' mean losses lie within a factor 1.5.
H2 price      At every depth the loss at S = 1 is within 1.2 of that at the best S.
H3 border     The largest S that trains moves with rate, optimiser, eps and epochs, by
              more than 1.25, not with depth, width, dtype, initialisation and relu.
              50 layers, Adam 1e-3, five seeds; bisection over 33 values, 1 to 32.
H4 mechanism  Before training the gradient of W_in, dL/dy's decay and the carried part
              of the input fall as e^-S: slope of the logarithm -1 +- 0.2, R^2 >= 0.95.
H5 rules      Adam. S = 1 is within 1.2 of the best rule to 10,000 layers; b_T = -2 does
              not train from 300 on; -L/10, the guideline's line, loses by more than 1.5
              from 100 on; chrono (-log U(1, L - 1) for each unit) by less to 1000, more
              at 10,000. T-only blocks with S = 1 are within 1.2 of highway blocks.
H6 rescue     40 and 48 layers, five seeds: half-open gates (b_T = 0) train at no rate;
              S = 1 always, within 1.2 of 10 layers.
H7 10,000     S = 1, all of MNIST, five epochs: 96 % of the test images or more; more
              than 50 layers needed (prefix, as `very_deep` defines it).
H8 SGD        All of MNIST, S = 1: SGD's loss at 1000 layers is within 1.5 of that at
              100, in every seed; P1's "SGD did not stall".

Cost: 3.7 hours on two cores. Finished trials are kept. results/depth_law/README.md has
the plan in full, what pilots had shown before it, and what came out.
"""

from __future__ import annotations

import math

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

import highway_networks as hn
from experiments.common import (LIGHT, Experiment, claim, format_log, listed, main,
                                or_infinite)
from experiments.depth_law_trials import (ONE, PROTOCOL, RULES, SMOKE, TRAINS, Book,
                                          border_sum, bracket, conduct, deepest_config,
                                          full_config, highway_sums, is_first, logit,
                                          net_config, record_config, rules_at,
                                          start_config, train)

OPTIMIZERS = {"adam": "Adam", "sgd": "SGD"}
BLOCKS = {"highway": "highway", "t_only": "T-only"}
GUESSING = math.log(10)         # the loss that a diverged net is given among others
NEAR, FAR, MOVED = 1.2, 1.5, 1.25       # factors of H2, H5, H6; of H1, H5, H8; of H3
LAWFUL = (0.1, 3)               # the S of H1 at which the depths' losses are compared
SLOPES = {"W_in": "gradient of W_in", "gradient": "dL/dy over the layers",
          "carried": "carried part of the input"}

# --------------------------------------------------------------------------------------
# The record


def rule_of(gates):
    """The name of the rule."""
    return next(name for name, value in RULES.items() if value == gates)


def best_row(book, configs_by_lr):
    """{lr: configs, one for each seed} -> what their nets did at the rate of the lowest
    mean loss: of the rates that most seeds ran with, so that none wins by one lucky
    seed. Losses and accuracies are None where a net diverged."""
    found = {lr: [result for config in configs if (result := book.get(config))]
             for lr, configs in configs_by_lr.items()}
    most = max(map(len, found.values()), default=0)
    if not most:
        return None
    means = {lr: np.mean(or_infinite([final_loss(result) for result in results]))
             for lr, results in found.items() if len(results) == most}
    lr = min(means, key=means.get)
    return {"lr": lr, "train_loss": [final_loss(result) for result in found[lr]],
            **{name: [result[name] for result in found[lr]]
               for name in ("test_acc", "S_before", "S_after")}}


def final_loss(result):
    return result["train_loss"][-1] if result["status"] == "ok" else None


def row_of(book, protocol, depth, gates, optimizer, block="highway", seeds=None):
    """`best_row` over the protocol's rates, with what it is of. None if nothing ran."""
    row = best_row(book, {lr: [
        net_config(protocol, depth, gates, optimizer, lr, seed, block=block)
        for seed in seeds or protocol["seeds"]] for lr in protocol["lrs"][optimizer]})
    return row and {"depth": depth, "optimizer": optimizer} | row


def describe_collapse(book, protocol):
    """A row for each depth, optimiser and S."""
    depths = [*protocol["depths"], *protocol["deeper"], *protocol["deep"]]
    rows = []
    for depth in depths:
        for optimizer in OPTIMIZERS:
            for gates, _ in highway_sums(protocol["sums"], depth):
                row = row_of(book, protocol, depth, gates, optimizer)
                if row:
                    S = gates["sum"]
                    rows.append({"S": S, "b_T": hn.significant(logit(S / depth))} | row)
    return rows


def mean_loss(row):
    """The mean over seeds of a row's final losses; infinite if one diverged."""
    return float(np.mean(or_infinite(row["train_loss"])))


def explained(y, *columns):
    """The part of the variance of y that a sum of cubics in the columns explains; None
    where there is none."""
    if np.ptp(y) == 0:
        return None
    scaled = [(x - np.mean(x)) / (np.std(x) or 1) for x in columns]
    design = np.column_stack([np.ones(len(y)), *(x ** power for x in scaled
                                                 for power in (1, 2, 3))])
    rest = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return hn.significant(1 - rest @ rest / ((y - y.mean()) @ (y - y.mean())))


def describe_variance(rows):
    """For each optimiser: what explains the variance of log loss over all its nets, and
    by which factor the depths' mean losses differ at equal S."""
    record = {}
    for optimizer in dict.fromkeys(row["optimizer"] for row in rows):
        own = [row for row in rows if row["optimizer"] == optimizer]
        y = np.log(np.minimum([mean_loss(row) for row in own], GUESSING))
        S, L = (np.log([row[name] for row in own]) for name in ("S", "depth"))
        b_T = np.array([row["b_T"] for row in own])
        factors = {}
        for sum_ in sorted({row["S"] for row in own}):
            losses = [mean_loss(row) for row in own if row["S"] == sum_]
            factors[f"{sum_:g}"] = listed([max(losses) / min(losses)])[0]
        record[optimizer] = {
            "nets": len(own), "S": explained(y, S), "b_T": explained(y, b_T),
            "L": explained(y, L), "S and L": explained(y, S, L),
            "b_T and L": explained(y, b_T, L), "S and b_T": explained(y, S, b_T),
            "factor between depths": factors}
    return record


def describe_price(rows):
    """For each depth and optimiser: the best S, loss at S = 1 over its loss, by means
    and by seed, and which S tried around the best are within NEAR of it."""
    record = []
    for depth, optimizer in sorted({(row["depth"], row["optimizer"]) for row in rows}):
        own = {row["S"]: row for row in rows
               if (row["depth"], row["optimizer"]) == (depth, optimizer)}
        if 1.0 not in own:
            continue
        losses = {S: mean_loss(row) for S, row in own.items()}
        best, sums = min(losses, key=losses.get), sorted(own)
        low = high = sums.index(best)
        while low and losses[sums[low - 1]] <= NEAR * losses[best]:
            low -= 1
        while high < len(sums) - 1 and losses[sums[high + 1]] <= NEAR * losses[best]:
            high += 1
        one, other = (or_infinite(own[S]["train_loss"]) for S in (1.0, best))
        seeds = min(len(one), len(other))
        record.append({
            "depth": depth, "optimizer": optimizer, "best_S": best,
            "price": hn.significant(losses[1.0] / losses[best]),
            "by_seed": listed(one[:seeds] / other[:seeds]),
            "near": [sums[low], sums[high]]})
    return record


def name_change(change):
    """What a row of the border differs in, in words."""
    words = {"lr": "rate {:g}", "eps": "eps {:g}", "epochs": "{} epochs",
             "depth": "{} layers", "hidden": "{} units", "init": "{}",
             "dtype": "{}", "activation": "{}", "optimizer": "{}"}
    shown = ", ".join(words[name].format(value).replace("sgd", "SGD")
                      for name, value in change.items())
    return shown or "50 layers, Adam 0.001"


def describe_border(book, protocol):
    """For each change: the largest S that trains, for each seed the geometric mean of
    the last step that trained and the first that did not; None if not finished."""
    rows = []
    for change in protocol["border"]["changes"]:
        borders = []
        for seed in protocol["border"]["seeds"]:
            low, high = bracket(book, protocol, change, seed)
            if low is not None:
                borders.append(hn.significant(math.sqrt(
                    border_sum(protocol, low) * border_sum(protocol, high))))
        rows.append({"change": change, "name": name_change(change), "S": borders,
                     "median": hn.significant(np.median(borders)) if borders else None})
    return rows


def fit_line(x, y):
    """Least squares -> slope and R^2."""
    slope, start = np.polyfit(x, y, 1)
    rest = y - slope * x - start
    return {"slope": hn.significant(slope),
            "R2": hn.significant(1 - rest @ rest / ((y - y.mean()) @ (y - y.mean())))}


def describe_mechanism(book, protocol):
    """For each depth: slopes of the three logarithms in S before training, and the
    means over seeds behind them."""
    own, rows = protocol["mechanism"], []
    for depth in own["depths"]:
        sums = [S for S in protocol["sums"] if 0.1 <= S <= 10 and S < depth]
        starts = [[book.get(start_config(protocol, depth, {"sum": S}, seed))
                   for seed in own["seeds"]] for S in sums]
        if any(None in group for group in starts):
            continue
        values = {"W_in": [[start["W_in"] for start in group] for group in starts],
                  "gradient": [[start["gradient"]["rms"][0] / start["gradient"]["rms"][
                      -1] for start in group] for group in starts],
                  "carried": [[start["carried"] for start in group]
                              for group in starts]}
        S = np.array([[start["S"] for start in group] for group in starts])
        # A carried part may be negative by chance where next to nothing is carried.
        logs = {name: np.log(np.abs(table)) for name, table in values.items()}
        rows.append({
            "depth": depth, "S": listed(S.mean(axis=1)), "n": len(own["seeds"]),
            "fits": {name: fit_line(S.ravel(), log.ravel())
                     for name, log in logs.items()},
            **{name: listed(np.exp(log.mean(axis=1))) for name, log in logs.items()}})
    return rows


def describe_rules(book, protocol):
    """A row for each depth, rule, block and optimiser; 10,000 layers have one rate."""
    rows = []

    def add(row, gates, block):
        if row:
            rows.append({"rule": rule_of(gates), "block": block} | row)
    for depth in (*protocol["depths"], *protocol["deeper"], *protocol["deep"]):
        for gates, block in rules_at(protocol, depth):
            for optimizer in OPTIMIZERS:
                add(row_of(book, protocol, depth, gates, optimizer, block), gates,
                    block)
    own = protocol["ten_thousand"]
    for gates, block in rules_at(protocol, own["depth"]):
        config = deepest_config(book, protocol, gates, block)
        row = best_row(book, {config["lr"]: [config]})
        add(row and {"depth": own["depth"], "optimizer": "adam",
                     "epochs": config["epochs"]} | row, gates, block)
    return rows


def describe_full(book, protocol):
    """A row for each net of the rules on all images, its seeds side by side."""
    rows = []
    for depth in protocol["full"]["depths"]:
        for gates, block in rules_at(protocol, depth):
            for optimizer in OPTIMIZERS:
                configs = [full_config(book, protocol, depth, gates, block, optimizer,
                                       seed) for seed in protocol["seeds"]]
                row = configs[0] and best_row(book, {configs[0]["lr"]: configs})
                if row:
                    used = [result.get("used") for config in configs
                            if (result := book.get(config))]
                    rows.append({"depth": depth, "rule": rule_of(gates), "block": block,
                                 "optimizer": optimizer, **row,
                                 "prefix": [u and u["prefix"] for u in used]})
    return rows


def describe_rescue(book, protocol):
    """Half-open gates and the rule: a row for each depth and optimiser, with how many
    of all their trials (rates and seeds) train, and the lowest loss of any."""
    own, rows = protocol["rescue"], []
    for depth in own["depths"]:
        for start, gates in (("half open", {"bias": 0.0}), ("S = 1", ONE)):
            for optimizer in OPTIMIZERS:
                row = row_of(book, protocol, depth, gates, optimizer,
                             seeds=own["seeds"])
                losses = [loss for seed in own["seeds"]
                          for lr in protocol["lrs"][optimizer]
                          if (loss := book.loss(net_config(
                              protocol, depth, gates, optimizer, lr, seed))) is not None]
                if row:
                    rows.append({"start": start} | row | {
                        "tried": len(losses), "lowest": listed([min(losses)])[0],
                        "trained": sum(loss < TRAINS for loss in losses)})
    return rows


def describe_ten_thousand(book, protocol):
    """The net of 10,000 layers on all images, None if it has not run; and the losses of
    10,000 layers on the few images, by S."""
    own = protocol["ten_thousand"]
    sums = {}
    for S in sorted({1.0, *own["sums"]}):
        loss = book.loss(deepest_config(book, protocol, {"sum": S}, "highway"))
        if loss is not None:
            sums[f"{S:g}"] = listed([loss])[0]
    return {"depth": own["depth"], "by_S": sums,
            "net": book.get(record_config(protocol, protocol["seeds"][0]))}


def describe(book, protocol):
    """The results of the trials that have run -> the record."""
    rows = describe_collapse(book, protocol)
    return {"collapse": rows, "variance": describe_variance(rows),
            "price": describe_price(rows), "border": describe_border(book, protocol),
            "mechanism": describe_mechanism(book, protocol),
            "rules": describe_rules(book, protocol),
            "full": describe_full(book, protocol),
            "rescue": describe_rescue(book, protocol),
            "ten_thousand": describe_ten_thousand(book, protocol)}


def run(lab):
    """The plan -> the record."""
    data = lab.load_data()
    book = Book(lambda configs: lab.trials(train, configs, data))
    conduct(book, lab.protocol)
    return describe(book, lab.protocol)


# --------------------------------------------------------------------------------------
# The verdicts


def judged(text, ours, verdict, n, section="ours", paper=None):
    """A claim whose margin was stated before the runs; verdict(scale) is what it would
    be with that many times the margin."""
    return claim(section, text, paper, ours | {
        "with half the margin": verdict(0.5), "with twice the margin": verdict(2)},
        verdict(1), n)


def widened(factor, scale):
    """A factor whose distance from 1 is so many times as large."""
    return 1 + scale * (factor - 1)


def every(verdicts):
    """True if all are, False if any is, else None: also where there are none."""
    verdicts = list(verdicts)
    return (False if False in verdicts else
            None if None in verdicts or not verdicts else True)


def check_collapse(record, complete):
    """H1."""
    table = record["variance"]
    names = {name: {OPTIMIZERS[key]: row[name] for key, row in table.items()}
             for name in ("S", "b_T", "L", "S and L")}
    factors = {OPTIMIZERS[key]: {S: value for S, value in row[
        "factor between depths"].items() if LAWFUL[0] <= float(S) <= LAWFUL[1]}
        for key, row in table.items()}

    def alone(scale):
        return complete and all(
            row["S"] >= 1 - 0.2 * scale and row["S and L"] - row["S"] <= 0.1 * scale
            for row in table.values())

    def others(scale):
        return complete and all(max(row["b_T"], row["L"]) < 0.5 * scale
                                for row in table.values())

    def equal(scale):
        return complete and all(
            value is not None and value <= widened(FAR, scale)
            for row in factors.values() for value in row.values())
    return [
        judged("from 10 to 1000 layers S decides the loss: a cubic in log S explains "
               "80 % of the variance of log loss, adding depth at most 10 % more",
               {"S": names["S"], "S and L": names["S and L"]}, alone, 3),
        judged("neither b_T nor depth alone explains half of the variance of log loss",
               {"b_T": names["b_T"], "L": names["L"]}, others, 3),
        judged(f"at equal S, from {LAWFUL[0]:g} to {LAWFUL[1]:g}, the mean losses of "
               f"all depths lie within a factor {FAR:g}", factors, equal, 3)]


def check_price(record, complete):
    """H2."""
    ours = {OPTIMIZERS[key]: {f"{row['depth']} layers": {
        "price": row["price"], "best S": row["best_S"]}
        for row in record["price"] if row["optimizer"] == key} for key in OPTIMIZERS}
    return judged(
        f"at every depth the loss at S = 1 is within {NEAR:g} of that at the best S",
        ours, lambda scale: complete and all(row["price"] <= widened(NEAR, scale)
                                             for row in record["price"]), 3)


def factor_of(change):
    """What a change of the border's setting is about."""
    names = {"optimizer": "optimiser", "epochs": "epochs", "lr": "rate", "eps": "eps",
             "depth": "depth", "hidden": "width", "dtype": "dtype",
             "activation": "relu", "init": "initialisation"}
    return next((word for name, word in names.items() if name in change), None)


def moves(row, rows, seeds, factor):
    """Whether a row's border lies apart from that of its reference: True, False where
    the medians are within the factor, None between the two or where seeds lack."""
    before = {name: value for name, value in row["change"].items()
              if name == "lr" and "epochs" in row["change"]}
    reference = next(other for other in rows if other["change"] == before)
    one, other = row["S"], reference["S"]
    if min(len(one), len(other)) < seeds:
        return None
    ratio = max(row["median"], reference["median"]) / min(row["median"],
                                                          reference["median"])
    if ratio <= factor:
        return False
    return True if min(one) > max(other) or max(one) < min(other) else None


def check_border(record, seeds):
    """H3: what moves the border, and what leaves it."""
    rows = record["border"]

    def found(factors, scale):
        return {factor: [moves(row, rows, seeds, widened(MOVED, scale)) for row in rows
                         if factor_of(row["change"]) == factor] for factor in factors}

    def moving(scale):
        return every(True if True in each else every(each)
                     for each in found(movers, scale).values())

    def staying(scale):
        return every(False if True in each else None if None in each or not each
                     else True for each in found(rest, scale).values())
    movers = ("rate", "optimiser", "eps", "epochs")
    rest = ("depth", "width", "dtype", "initialisation", "relu")

    def medians(factors):
        return {row["name"]: row["median"] for row in rows
                if factor_of(row["change"]) in (None, *factors)}
    return [
        judged("the largest S that trains is no constant: it moves with rate, "
               f"optimiser, Adam's eps and epochs, by more than a factor {MOVED:g}",
               medians(movers), moving, seeds),
        judged("depth, width, dtype, initialisation and relu leave the largest S that "
               f"trains within a factor {MOVED:g}", medians(rest), staying, seeds)]


def check_mechanism(record, depths):
    """H4, a claim for each of the three quantities."""
    rows = record["mechanism"]

    def check(name):
        fits = [row["fits"][name] for row in rows]
        return judged(
            f"before training the {words} falls as e^-S: slope -1 +- 0.2 and "
            "R^2 >= 0.95 at every depth",
            {f"{row['depth']} layers": row["fits"][name] for row in rows},
            lambda scale: all(abs(fit["slope"] + 1) <= 0.2 * scale
                              and fit["R2"] >= 1 - 0.05 * scale for fit in fits)
            if len(rows) == depths else None, rows[0]["n"] if rows else 0)
    claims = []
    for name, words in SLOPES.items():
        claims.append(check(name))
    return claims


def rule_losses(record, block="highway", optimizer="adam"):
    """{depth: {rule: mean loss}}."""
    losses = {}
    for row in record["rules"]:
        if (row["block"], row["optimizer"]) == (block, optimizer):
            losses.setdefault(row["depth"], {})[row["rule"]] = mean_loss(row)
    return losses


def shown(losses):
    """Losses by depth and rule, as a claim keeps them: None where a net diverged."""
    return {f"{depth} layers": {rule: listed([value])[0] for rule, value in row.items()}
            for depth, row in losses.items()}


def check_rules(record, depths):
    """H5. depths: of the plan, the last is 10,000."""
    losses, t_only = rule_losses(record), rule_losses(record, "t_only")

    def ratios(rule, least=0):
        return {depth: row[rule] / row["S = 1"] for depth, row in losses.items()
                if depth >= least and rule in row and "S = 1" in row}
    done = list(losses) == depths
    best = {depth: row["S = 1"] / min(row.values()) for depth, row in losses.items()
            if "S = 1" in row}
    fixed = {depth: row["b_T = -2"] for depth, row in losses.items()
             if depth >= 300 and "b_T = -2" in row}
    line, chrono = ratios("guideline", 100), ratios("chrono")
    both = {depth: row["S = 1"] / losses[depth]["S = 1"] for depth, row in
            t_only.items() if "S = 1" in row and "S = 1" in losses.get(depth, {})}

    def within(table, factor):
        return lambda scale: all(value <= widened(factor, scale)
                                 for value in table.values()) if done else None

    def beyond(table, factor):
        return lambda scale: all(value > widened(factor, scale)
                                 for value in table.values()) if table else None

    def of_chrono(scale):
        return (all(value <= widened(FAR, scale) for depth, value in chrono.items()
                    if depth < depths[-1])
                and chrono[depths[-1]] > widened(FAR, scale)) if done else None

    def rounded(table):
        return {f"{depth} layers": listed([value])[0] for depth, value in table.items()}
    return [
        judged(f"Adam: the loss with S = 1 is within {NEAR:g} of that of the best of "
               "the rules, from 10 to 10,000 layers", shown(losses), within(best, NEAR),
               3),
        judged("a fixed b_T = -2 does not train from 300 layers on (margin: the loss, "
               "ln(10) / 2)", rounded(fixed),
               lambda scale: all(loss >= TRAINS * scale for loss in fixed.values())
               if done else None, 3),
        judged("the line through the guideline, b_T = -L/10, loses to S = 1 by more "
               f"than {FAR:g} from 100 layers on", rounded(line), beyond(line, FAR), 3),
        judged(f"chrono initialisation loses to S = 1 by less than {FAR:g} up to 1000 "
               "layers and by more at 10,000", rounded(chrono), of_chrono, 3),
        judged(f"T-only blocks with S = 1 are within {NEAR:g} of highway blocks with "
               "S = 1", rounded(both), within(both, NEAR), 3)]


def check_rescue(record, depths):
    """H6."""
    rows, shallow = record["rescue"], min(depths)
    ours = {start: {f"{row['depth']} layers, {OPTIMIZERS[row['optimizer']]}":
                    f"{row['trained']} of {row['tried']} train, lowest loss "
                    f"{row['lowest']}" for row in rows if row["start"] == start
                    and row["depth"] >= 40} for start in ("half open", "S = 1")}
    deep = [row for row in rows if row["depth"] >= 40]
    ten = {row["optimizer"]: mean_loss(row) for row in rows
           if row["start"] == "S = 1" and row["depth"] == shallow}

    def fails(scale):
        found = [row["lowest"] for row in deep if row["start"] == "half open"]
        return all(loss >= TRAINS * scale for loss in found) if found else None

    def trains(scale):
        found = [row for row in deep if row["start"] == "S = 1"]
        return all(max(or_infinite(row["train_loss"])) < TRAINS and mean_loss(row)
                   <= widened(NEAR, scale) * ten[row["optimizer"]] for row in found
                   ) if found else None
    n = max((len(row["train_loss"]) for row in rows), default=0)
    return [
        judged("gates that start half open (b_T = 0) keep 40 and 48 layers from "
               "training, at every rate tried, with Adam and SGD (margin: the loss, "
               "ln(10) / 2)", ours["half open"], fails, n),
        judged("with S = 1 the same nets train in every seed, with a mean loss within "
               f"{NEAR:g} of that of {shallow} layers",
               ours["S = 1"] | {f"{shallow} layers": listed(list(ten.values()))},
               trains, n)]


def check_ten_thousand(record):
    """H7."""
    net = record["ten_thousand"]["net"]
    used = net and net.get("used")
    return [
        judged("10,000 highway layers train: with S = 1, all of MNIST and five epochs "
               "of Adam 96 % of the test images", {"test accuracy": net and
                                                   net["test_acc"]},
               lambda scale: net and (net["test_acc"] or 0) >= 1 - 0.04 * scale, 1),
        judged("10,000 highway layers are used: to keep the loss within 10 % takes "
               "more than the first 50", {"prefix": used and used["prefix"]},
               lambda scale: used and used["prefix"] > 50 * scale, 1)]


def check_sgd(record, depths, seeds):
    """H8."""
    rows = {row["depth"]: row for row in record["full"]
            if (row["rule"], row["block"], row["optimizer"])
            == ("S = 1", "highway", "sgd")}
    ours = {f"{depth} layers": {name: row[name] for name in ("train_loss", "test_acc")}
            for depth, row in rows.items()}
    pairs = [or_infinite(rows[depth]["train_loss"]) if depth in rows else []
             for depth in depths]
    done = all(len(losses) == seeds for losses in pairs)
    return judged(
        "1000 highway layers train with momentum SGD: on all of MNIST, S = 1, four "
        f"epochs, the loss is within {FAR:g} of that of 100 layers, in every seed",
        ours, lambda scale: bool(np.all(pairs[1] <= widened(FAR, scale) * pairs[0]))
        if done else None, seeds, "P1 2.2", "SGD did not stall")


def check_claims(record):
    """All verdicts on the hypotheses; None where their trials have not run."""
    protocol = record["protocol"]
    full = [*protocol["depths"], *protocol["deeper"], *protocol["deep"]]
    sums = sum(len(highway_sums(protocol["sums"], depth)) for depth in full[:-1])
    deep = len(highway_sums(protocol["deep_sums"], full[-1]))
    complete = True if len(record["collapse"]) == 2 * (sums + deep) and all(
        len(row["train_loss"]) == len(protocol["seeds"]) or mean_loss(row) >= TRAINS
        for row in record["collapse"]) else None
    return [
        *check_collapse(record, complete), check_price(record, complete),
        *check_border(record, len(protocol["border"]["seeds"])),
        *check_mechanism(record, len(protocol["mechanism"]["depths"])),
        *check_rules(record, [*full, protocol["ten_thousand"]["depth"]]),
        *check_rescue(record, protocol["rescue"]["depths"]),
        *check_ten_thousand(record),
        check_sgd(record, protocol["full"]["depths"], len(protocol["seeds"]))]


# --------------------------------------------------------------------------------------
# The figure


def depth_colours(depths):
    """A colour for each depth, the deeper the darker."""
    return {depth: colormaps["viridis_r"](0.1 + 0.9 * place / max(len(depths) - 1, 1))
            for place, depth in enumerate(depths)}


def draw_collapse(axes, rows):
    """Loss against S, a line for each depth; Adam's below, SGD's above and dashed."""
    depths = sorted({row["depth"] for row in rows})
    colours = depth_colours(depths)
    for depth in depths:
        for optimizer, dashes in (("adam", "-"), ("sgd", (0, (3, 1.2)))):
            own = [row for row in rows if (row["depth"], row["optimizer"])
                   == (depth, optimizer)]
            axes.plot([row["S"] for row in own], np.minimum(
                [mean_loss(row) for row in own], GUESSING), color=colours[depth],
                linestyle=dashes, linewidth=1.5, marker="o", markersize=3,
                label=f"{depth:,}" if optimizer == "adam" else None)
    axes.set(xscale="log", yscale="log", xlabel="S: sum of T over all layers, before "
             "training", ylabel="training loss",
             title="S decides the loss, whatever the depth")
    axes.axvline(1, color=LIGHT.soft, linewidth=1, linestyle=":")
    for optimizer, down in (("sgd", 1.25), ("adam", 0.74)):
        first = [mean_loss(row) for row in rows if row["optimizer"] == optimizer
                 and row["S"] == min(other["S"] for other in rows)]
        edge = max if optimizer == "sgd" else min
        axes.text(min(row["S"] for row in rows), down * edge(first),
                  OPTIMIZERS[optimizer], va="center")
    axes.legend(title="layers", frameon=False, fontsize=8, loc="upper left")
    format_log(axes.xaxis)
    format_log(axes.yaxis)


def draw_price(axes, rows):
    """For each depth the best S, the S within NEAR of it, and the price of S = 1."""
    depths = sorted({row["depth"] for row in rows})
    for row in rows:
        place = depths.index(row["depth"]) + (-0.14 if row["optimizer"] == "adam"
                                              else 0.14)
        colour = LIGHT.highway if row["optimizer"] == "adam" else LIGHT.plain
        axes.plot([place] * 2, row["near"], color=colour, linewidth=5, alpha=0.3,
                  solid_capstyle="round")
        axes.plot(place, row["best_S"], "o", color=colour, markersize=6)
        axes.text(place, 1.25 * row["near"][1], f"{100 * (row['price'] - 1):.0f}",
                  color=colour, ha="center", va="bottom", size=8)
    axes.axhline(1, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(yscale="log", xlabel="layers", ylabel="S", ylim=(0.02, 20),
             title="The best S (dot; bar: within 20 % of it)")
    axes.set_xticks(range(len(depths)), [f"{depth:,}" for depth in depths])
    axes.text(0.02, 0.98, "Adam", color=LIGHT.highway, va="top",
              transform=axes.transAxes)
    axes.text(0.14, 0.98, "SGD", color=LIGHT.plain, va="top", transform=axes.transAxes)
    axes.text(0.98, 0.98, "numbers: what S = 1 costs, %", size=8, color=LIGHT.soft,
              ha="right", va="top", transform=axes.transAxes)
    format_log(axes.yaxis)


RULE_COLOURS = {"S = 1": LIGHT.highway, "b_T = -2": LIGHT.plain,
                "guideline": "#CC79A7", "chrono": "#009E73"}
RULE_NAMES = {"S = 1": "S = 1", "b_T = -2": "$b_T$ = −2",
              "guideline": "$b_T$ = −L/10", "chrono": "chrono"}


def draw_rules(axes, record):
    """Loss over depth for each rule: highway blocks, and dashed T-only blocks."""
    for block, dashes in (("highway", "-"), ("t_only", (0, (3, 1.2)))):
        losses = rule_losses(record, block)
        for rule, colour in RULE_COLOURS.items():
            line = [(depth, min(row[rule], GUESSING)) for depth, row in losses.items()
                    if rule in row]
            if not line:
                continue
            axes.plot(*zip(*line, strict=True), color=colour, linestyle=dashes,
                      linewidth=1.6, marker="o", markersize=4,
                      fillstyle="full" if block == "highway" else "none")
            if block == "highway":
                axes.annotate(RULE_NAMES[rule], line[-1], xytext=(6, 0),
                              textcoords="offset points", color=colour, va="center")
    axes.axhline(GUESSING, color=LIGHT.soft, linewidth=1, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="layers", ylabel="training loss",
             title="Rules for $b_T$, Adam (dashed: T-only)")
    axes.set_xlim(8, 60_000)
    axes.set_xticks([10, 30, 100, 300, 1000, 10_000],
                    ["10", "30", "100", "300", "1000", "10,000"])
    axes.minorticks_off()
    format_log(axes.yaxis)


def draw_border(axes, rows):
    """A row for each setting: the largest S that trains, a dot for each seed."""
    rows = sorted((row for row in rows if row["S"]), key=lambda row: row["median"])
    for place, row in enumerate(rows):
        base = not row["change"]
        colour = LIGHT.ink if base else LIGHT.highway
        axes.plot(row["S"], [place] * len(row["S"]), "o", color=colour, alpha=0.5,
                  markersize=4)
        axes.plot(row["median"], place, "|", color=colour, markersize=10)
        if base:
            axes.axvspan(row["median"] / MOVED, row["median"] * MOVED,
                         color=LIGHT.grid, alpha=0.5, linewidth=0)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], size=7.5)
    axes.set(xscale="log", xlabel="largest S that trains",
             title="The border is the training's, not the net's")
    format_log(axes.xaxis)
    axes.grid(axis="y")


def draw(record):
    """The record -> the figure of four panels."""
    figure = Figure(figsize=(10, 8), layout="constrained")
    (collapse, price), (rules, border) = figure.subplots(2, 2)
    draw_collapse(collapse, record["collapse"])
    draw_price(price, record["price"])
    draw_rules(rules, record)
    draw_border(border, record["border"])
    return figure


def pack_by(config):
    """The packed file of a trial: by kind and depth."""
    return f"{config['kind']}_{config['depth']}"


EXPERIMENT = Experiment("experiments.depth_law", __doc__, PROTOCOL, SMOKE, run, draw,
                        check_claims, pack_by)

if __name__ == "__main__":
    main(EXPERIMENT)
