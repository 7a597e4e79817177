"""What `convolution` claims: of depth, of layers, of b_T and gates, of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from experiments.convolution.plan import BIASES, GATES
from experiments.lab import Claim, papers
from experiments.lab.judging import agreed, ahead, listed, or_infinite, or_zero
from experiments.nets.probes import sequential_depth

TRAINS = 0.5            # a run of 4000 images trains if its last loss is below this


def in_words(depth: int, gate: int | None = None) -> str:
    """A net by its depth and what its gates see."""
    return f"{depth} blocks" + ("" if gate is None else f", {GATES[gate]}")


# --------------------------------------------------------------------------------------
# Depth


def on_ink(row: dict, when: str) -> np.ndarray:
    """Of each seed's highway layers (S, L) T where there is ink, divided by T on blank
    paper."""
    return np.divide(row[when]["ink"], row[when]["blank"])


def claims_on_depths(rows: list[dict]) -> list[Claim]:
    """Whether nets of all depths train, and what gates there see."""
    nets = {block: [row for row in rows if row["block"] == block]
            for block in ("highway", "plain")}
    highway, n = nets["highway"], len(rows[0]["train_loss"])
    times = {block: or_infinite(found[-1]["train_loss"]) / np.array(
        found[0]["train_loss"], float) for block, found in nets.items()}
    ratios = {when: {in_words(net["depth"]): listed(np.mean(on_ink(net, key)), 3)
                     for net in highway}
              for when, key in (("trained", "T"), ("untrained", "T_untrained"))}
    grown = [on_ink(net, "T") > on_ink(net, "T_untrained") for net in highway]
    return [
        Claim(name="conv-depths-train", source="P1 2.2", text="convolutional highway "
              "nets of 10, 20 and 30 layers train with b_T of -1, -2 and -3: each run "
              "at the best rate has a test accuracy of at least 90, in %",
              paper="a general guideline", rows=highway, n=n, limit=10,     # % of error
              ours={in_words(net["depth"]): net["test_percent"] for net in highway},
              test=lambda error: all((value or 0) >= 100 - error for net in highway
                                     for value in net["test_percent"])),
        Claim(name="conv-plain-degrades", text="depth makes plain convolutional nets "
              "much harder to train than highway nets: from 8 to 28 blocks, the factor "
              "by which their last training loss grows is more than twice that of "
              "highway nets. Ours are the factors",
              rows=rows, n=n,
              ours={block: listed(found, 3) for block, found in times.items()}, limit=2,
              test=lambda limit: ahead(times["plain"], limit * times["highway"])),
        Claim(name="conv-open-on-ink", text="training opens gates where there is ink, "
              "in every highway layer of every seed: the ratio of T there to T on "
              "blank paper grows. Ours are means over layers and seeds, and in how "
              "many of the layers of all seeds it grows", n=n, rows=[*highway, *(
                  {"trials": net["untrained"]} for net in highway)], ours=ratios | {
                  "it grows in": f"{sum(np.sum(found) for found in grown)} of "
                  f"{sum(found.size for found in grown)}"},
              test=lambda: all(found.all() for found in grown), after_data=True)]


# --------------------------------------------------------------------------------------
# Layers of a stage


def lost(name: str, of: Callable) -> Callable[[dict], float]:
    """stage -> how many points of accuracy its variations cost."""
    return lambda stage: 100 * (stage["acc"] - of(stage[name]))


def groups_needed(stage: dict) -> int:
    """The sequential depth of a stage."""
    return sequential_depth(dict(enumerate(stage["in_groups"], 1)))


def claims_on_layers(start: str, net: str, rows: list[dict]) -> list[Claim]:
    """What the layers of each stage of a convolutional highway net are to each other.
    """
    def numbers(of, state):
        return [[of(stage | {"acc": row[state]["acc"]}) for stage in row[state][
            "stages"]] for row in rows]

    def claim(name, source, text, of, limit, *, learned=False, ours=None, **more):
        def passes(state, limit):
            return [max(found) < limit for found in numbers(of, state)]
        states = ("trained", "untrained")[:1 + learned]
        return Claim(
            name=f"{start}-{name}", source=source, text=f"in every stage of {net}, "
            + text, rows=rows, n=len(rows), limit=limit, ours={
                state: listed(numbers(ours or of, state), 3) for state in states},
            test=lambda limit: agreed(passes("trained", limit)),
            control=(lambda limit: any(passes("untrained", limit))) if learned else
            None, **more)
    alone = "if the others stay as they are"
    return [
        claim("hardly-hurt", "P2 2", f"{alone}, closing any one highway layer costs "
              "less than 5 points of accuracy on 2000 test images. Ours is the worst "
              "layer of each stage", lost("closed", min), 5, paper="a minor drop"),
        claim("shuffle", "P2 4.4", f"{alone}, putting its highway layers in a random "
              "order costs less than 10 points of accuracy on 2000 test images, the "
              "mean of five orders", lost("shuffled", np.mean), 10,
              paper="interchangeable to a certain degree"),
        claim("error-mean", "P2 4.2", "the mean of the estimation error a_k - A over "
              "images and units is smaller than a tenth of its standard deviation, at "
              "every k. Ours is the largest ratio of each stage", lambda stage: np.max(
                  np.divide(np.abs(stage["mean"]), stage["std"])), 0.1, learned=True,
              paper="close to zero"),
        claim("error-shrinks", "P2 4.2", "the standard deviation of the estimation "
              "error over images falls at every layer. Ours is the largest ratio to "
              "that of the layer before", lambda stage: np.max(np.divide(
                  stage["std"][1:], stage["std"][:-1])), 1, learned=True,
              paper="decreases"),
        claim("side-by-side", "ours", f"{alone}, its highway layers can work in fewer "
              "groups than half their number, and 95 % of the net's answers are kept. "
              "Those of a group work side by side, the groups one after the other. "
              "Ours is the number of groups from which on it is so",
              lambda stage: groups_needed(stage) / len(stage["closed"]), 0.5,
              learned=True, ours=groups_needed)] if rows else []


# --------------------------------------------------------------------------------------
# b_T and what gates see


def best_losses(row: dict) -> np.ndarray:
    """Of each seed the least last training loss of its rates."""
    return or_infinite(row["train_loss"]).min(axis=0)


def failed(rows: Iterable[dict]) -> float:
    """How many % of the rows' runs do not train."""
    return 100 * float(np.mean([or_infinite(row["train_loss"]) >= TRAINS
                                for row in rows]))


def claims_on_biases(nets: dict[tuple, dict], shallow: int, deep: int) -> list[Claim]:
    """P1's guideline beside other b_T, with gates as wide as H."""
    wide = {(depth, bias): row for (depth, gate, bias), row in nets.items()
            if gate == 3}
    best = {key: float(np.median(best_losses(row))) for key, row in wide.items()}
    n = len(best_losses(wide[shallow, BIASES[shallow]]))
    over = {depth: best[depth, BIASES[depth]] / min(
        loss for (of, _), loss in best.items() if of == depth)
        for depth in (shallow, deep)}
    zero, guided = wide[deep, 0.0], wide[deep, BIASES[deep]]
    return [
        Claim(name="conv-guideline-best", text="the b_T of P1's guideline, -1 for 10 "
              "layers and -3 for 30, is as good as any of 0, -1, -3, -5: at both "
              "depths its last training loss, the median of the seeds at their best "
              "rates, is at most 25 % above the least", rows=[*wide.values()], n=n,
              ours={f"{in_words(depth)}, times the least": listed(ratio, 3)
                    for depth, ratio in over.items()}, limit=25,
              test=lambda limit: all(ratio <= 1 + limit / 100
                                     for ratio in over.values())),
        Claim(name="conv-open-gates-fail", text="at 28 blocks more runs fail with "
              "b_T = 0 than with the guideline's, by at least 25 points. A run fails "
              "if its last training loss is 0.5 or more. Ours is % of the runs",
              rows=[zero, guided], n=n, limit=25,
              ours={"b_T 0": failed([zero]), "guideline": failed([guided])},
              test=lambda points: failed([zero]) - failed([guided]) >= points)]


def claims_on_narrow(nets: dict[tuple, dict], depths: Sequence[int]) -> list[Claim]:
    """What 1x1 gates do to learning, over all b_T."""
    def all_of(depth, gate):
        return [row for key, row in nets.items() if key[:2] == (depth, gate)]
    rows = [row for depth in depths for gate in (3, 1) for row in all_of(depth, gate)]
    return [
        Claim(name="narrow-gates-unstable", source="P2 5.1", text="gates that are 1x1 "
              "convolutions seem to make learning unstable (theirs: residual nets of "
              "110 layers with batch normalization; for ours see "
              "narrow-gates-fail)", paper="He et al. 2016", ours=None, rows=(), n=None,
              test=None, why=papers.OTHER_NETS),
        Claim(name="narrow-gates-fail", text="more runs fail with 1x1 gates than with "
              "3x3 gates, by at least 25 points, at 8 and at 28 blocks. A run fails if "
              "its last training loss is 0.5 or more. Ours is % of the runs", rows=rows,
              n=len(best_losses(rows[0])), limit=25, ours={
                  in_words(depth, gate): listed(failed(all_of(depth, gate)), 3)
                  for depth in depths for gate in (3, 1)},
              test=lambda points: agreed(
                  failed(all_of(depth, 1)) - failed(all_of(depth, 3)) >= points
                  for depth in depths))]


# --------------------------------------------------------------------------------------
# Tables 1 to 3


def mean_of(row: dict) -> float:
    """The mean accuracy in %; if a run diverged, below all others."""
    return -np.inf if None in row["test_percent"] else row["mean"]


def ours_of(row: dict) -> dict:
    """The numbers of a net's runs, as a claim keeps them."""
    return {"mean": row["mean"], "standard error": row["standard_error"],
            "runs": row["test_percent"], "b_T": row["gate_bias"]}


def claim_on_width(row: dict, name: str, chosen_late: bool) -> Claim:
    """One width's row of Table 1: our mean beside the paper's. Less than theirs says
    nothing after a tenth of the epochs."""
    paper, width = papers.TABLE_1[row["width"]], row["width"]
    return Claim(
        name=name, source="P1 3.2", text=f"10 layers of width {width}, after "
        f"{row['epochs']} epochs, have at least the paper's mean test accuracy, in %",
        paper=paper, rows=[row], n=row["n"], ours=ours_of(row), after_data=chosen_late,
        why=papers.FEWER_EPOCHS, test=lambda: mean_of(row) >= paper["mean"] or (
            None if row["epochs"] < papers.TABLE_1_EPOCHS else False))


def claims_on_table_1(rows: list[dict]) -> list[Claim]:
    """Table 1 with the settings that each width's own search chose."""
    narrow, wide, plain = (
        next(row for row in rows if row["net"] == row["settings_of"] == net)
        for net in ("highway 16", "highway 32", "plain 16"))
    return [
        claim_on_width(narrow, "table-1-narrow", False),
        claim_on_width(wide, "table-1-wide", True),
        Claim(name="table-1-wider", source="P1 3.2", text="the wider net of Table 1 is "
              "the better one: test accuracy in %", rows=[narrow, wide],
              n=[narrow["n"], wide["n"]], after_data=True, why=papers.FEWER_EPOCHS,
              paper={f"width {width}": paper["mean"]
                     for width, paper in papers.TABLE_1.items()},
              ours={"width 16": narrow["test_percent"],
                    "width 32": wide["test_percent"]},
              test=lambda: ahead(wide["test_percent"], narrow["test_percent"]) or None),
        claim_competitive(wide),
        claim_on_twins("table-1-twins", "after equal epochs and equal searches, "
                       "highway nets of width 16", narrow, plain)]


def claim_on_twins(name: str, text: str, highway: dict, plain: dict) -> Claim:
    """Of nets that differ by their gates alone."""
    share = plain["parameters"] / highway["parameters"]
    return Claim(
        name=name, text=f"{text} are better than their plain twins, which have "
        f"{100 * share:.0f} % of the parameters: test accuracy in %",
        rows=[highway, plain],
        ours={row["block"]: row["test_percent"] for row in (highway, plain)},
        n=[highway["n"], plain["n"]], why="so few runs tell no order",
        test=lambda: ahead(highway["test_percent"], plain["test_percent"]))


def claim_competitive(row: dict) -> Claim:
    """P1's comparison with nets of others: by the best run, as theirs."""
    other = papers.TABLE_1_OTHERS["Maxout"]["accuracy"]
    small = row["parameters"] < papers.TABLE_1_OTHERS["DSN"]["parameters"] / 2

    def near(points):
        reached = (row["best"] or 0) >= other - points
        return small and reached if reached or (
            row["epochs"] >= papers.TABLE_1_EPOCHS) else None
    return Claim(
        name="table-1-competitive", source="P1 3.2", text="the wider net competes with "
        "nets of far more parameters: its best run is within 0.05 points of Maxout, "
        f"with less than half the parameters of Maxout or DSN, after {row['epochs']} "
        "epochs", paper=papers.TABLE_1_OTHERS, n=row["n"], why=papers.FEWER_EPOCHS,
        rows=[row], ours={"accuracy": row["best"], "parameters": row["parameters"]},
        test=near, limit=0.05, after_data=True)


def claim_on_table(name: str, source: str, layers: str, title: str, net: dict,
                   paper: dict, least: float, runs: int) -> Claim:
    """A net of Table 2 or 3 by the ladder's best rung: our mean beside the paper's.
    With fewer runs than these it is open."""
    few = net["n"] < runs
    return Claim(
        name=name, source=source, text=f"{layers} parameters, have at least the "
        f"paper's accuracy in {net['epochs']} epochs on {title}: mean test accuracy in "
        "%", paper=paper, rows=[net], n=net["n"], ours=ours_of(net),
        why="so few runs tell no mean" if few else papers.FEWER_EPOCHS,
        test=lambda: None if few else mean_of(net) >= least or (
            None if net["epochs"] < papers.TABLE_2_EPOCHS else False))


def claims_on_tables(two: dict, three: dict) -> list[Claim]:
    """Tables 2 and 3, by the settings that the ladder keeps."""
    highway, *others = two["nets"]
    return [
        claim_on_table("table-2-11-layers", "P1 Table 2", "11 layers, 236 K",
                       two["title"], highway, papers.TABLE_2,
                       papers.TABLE_2["Highway A"], 3),
        *(claim_on_twins("table-2-twins", f"after equal epochs on {two['title']}, by "
                         "settings chosen for the highway net, highway nets", highway,
                         plain)
          for plain in others),
        *(claim_on_table("table-3-19-layers", "P1 Table 3", "19 layers, 2.3 M",
                         three["title"], net, papers.TABLE_3, papers.TABLE_3["mean"], 1)
          for net in three["nets"])]


def claims_on_ladder(table: dict) -> list[Claim]:
    """What the kept rungs are worth together, and gates at both ends."""
    kept, twins = [rung for rung in table["rungs"] if rung["kept"]], table["twins"]
    first, last = kept[0], kept[-1]
    gains = [top - foot for top, foot in zip(or_zero(last["test_percent"]), or_zero(
        first["test_percent"]), strict=True)]
    return [
        Claim(name="ladder-gains", text="all rungs that were kept together are worth "
              "at least 5 points of test accuracy to the highway net of 11 layers, in "
              f"every run, at equal epochs on {table['title']}", rows=[first, last],
              n=len(gains),
              ours={rung["rung"]: rung["test_percent"] for rung in (first, last)},
              limit=5, test=lambda points: agreed(gain >= points for gain in gains)),
        Claim(name="ladder-twins", text="highway nets are ahead of their plain twins "
              "both by the authors' way and by all rungs that were kept for the "
              "highway net, by test accuracy. Ours are means in %",
              rows=[first, last, *twins], n=len(gains),
              ours={f"{rung['rung']}, {rung['block']}": listed(np.mean(or_zero(
                  rung["test_percent"]))) for rung in (first, last, *twins)},
              test=lambda: agreed(ahead(rung["test_percent"], twin["test_percent"])
                                  for rung, twin in zip((first, last), twins[:1]
                                                        + twins[-1:], strict=True)))]


def claims_on_parameters(found: dict[str, int]) -> list[Claim]:
    """The nets that are built here have the sizes of the paper's."""
    def same(name, source, text, paper, within, keys):
        ours = [found[key] for key in keys]
        return Claim(name=name, source=source, text=text, paper=paper, ours=ours,
                     rows=(), n=None, test=lambda: np.allclose(
                         ours, paper, rtol=0, atol=within))
    return [
        same("table-1-parameters", "P1 3.2", "the nets of Table 1 have 39 K and 151 K "
             "parameters, to 1 K", [39_000, 151_000], 1000,
             ("Table 1, width 16", "Table 1, width 32")),
        same("table-3-parameters", "P1 Table 3", "the authors' 19 layers, built here, "
             "have the parameters of their logs, on CIFAR-10 and CIFAR-100",
             [2_256_838, 2_265_928], 0, ("Table 3, CIFAR-10", "Table 3, CIFAR-100"))]


def claims(record: dict) -> list[Claim]:
    """All claims of a record."""
    nets = {(row["depth"], row["gate"], row["gate_bias"]): row
            for row in record["gates"]}
    shallow, deep = record["plan"]["gates"]["depths"]
    return [
        *claims_on_parameters(record["parameters"]),
        *claims_on_table_1(record["table_1"]["nets"]),
        *claims_on_tables(record["table_2"], record["table_3"]),
        *claims_on_ladder(record["ladder"]),
        *claims_on_layers("conv", "a net of 28 highway layers for MNIST",
                          record["layers"]),
        *claims_on_layers("cifar", "the 19 layers", record["table_3"]["layers"]),
        *claims_on_depths(record["depths"]),
        *claims_on_biases(nets, shallow, deep),
        *claims_on_narrow(nets, (shallow, deep))]
