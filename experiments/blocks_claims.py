"""Which ranking of the six forms holds: what P2 says, judged by a record of blocks.py.

Two forms are compared by their test accuracies over seeds: `is_ahead`, `is_similar`.
"""

from __future__ import annotations

import math

from experiments.judging import (
    ahead,
    claim,
    compare,
    every,
    or_infinite,
    resting_on,
)
from experiments.lab.papers import TABLE_1A, name_of

TRAINS = 0.5            # held-out accuracy from which on we say that a net trains
MARGIN = 0.005          # two forms are similar within this mean test accuracy: chosen
                        # when the numbers of five seeds were known


def is_ahead(one: dict, other: dict) -> tuple[bool | None, str]:
    """Whether a form is ahead of another, and that in words: test_acc of both.

    It is if each of its seeds has a higher test accuracy than every seed of the other:
    of two forms of equal merit one of five seeds each would be ahead of a given other
    in 1 of 252 cases, and more rarely with more seeds.
    Where it is behind, it is not; where the two ranges overlap, that is open. A seed
    that diverged is below all others.
    """
    both = one["final"], other["final"]
    return ahead(*both), compare(*both)


def is_similar(one: dict, other: dict, margin: float = MARGIN
               ) -> tuple[bool | None, str]:
    """Whether two forms are similar, and their difference in words.

    They are if their mean accuracies differ by less than the margin by two standard
    errors of the difference, and not if by as much more; else that is open.
    """
    if None in [*one["final"], *other["final"], one["std"], other["std"]]:
        return None, "not to be compared with"
    difference = one["mean"] - other["mean"]
    error = math.hypot(*(form["std"] / math.sqrt(form["n"]) for form in (one, other)))
    about = f"{100 * difference:+.2f} ± {200 * error:.2f} points from"
    if abs(difference) + 2 * error < margin:
        return True, about
    return False if abs(difference) - 2 * error > margin else None, about


# P2's statements about Table 1a: (text, what must hold of which pairs of forms).
STATEMENTS = (
    ("every gated form is ahead of residual", is_ahead, [
        (form, "residual") for form in ("t_only", "c_only", "highway", "full")]),
    ("residual is close to plain", is_similar, [("residual", "plain")]),
    ("C-only, coupled and full are similar", is_similar, [
        ("c_only", "highway"), ("c_only", "full"), ("highway", "full")]),
    ("C-only, coupled and full are ahead of T-only", is_ahead, [
        (form, "t_only") for form in ("c_only", "highway", "full")]),
)


def check_ranking(nets: list[dict], depth: int) -> list[dict]:
    """P2's statements at one depth: the perplexities, our accuracies and relations,
    and the verdict: it fails with any of its pairs, and holds with all of them."""
    found = {net["block"]: net["test_acc"] for net in nets if net["depth"] == depth}
    claims = []
    for text, relation, pairs in STATEMENTS:
        blocks = dict.fromkeys(block for pair in pairs for block in pair)
        verdicts, relations = zip(*(relation(found[one], found[other])
                                    for one, other in pairs), strict=True)
        also = {} if relation is is_ahead else {
            f"{100 * margin:g} points": every(
                is_similar(found[one], found[other], margin)[0] for one, other in pairs)
            for margin in (MARGIN / 2, 2 * MARGIN)}
        claims.append(claim(
            section="ours", text=f"{text}, as in P2's language model (5.2, by "
            f"perplexity), by test accuracy on MNIST: {depth} layers",
            paper={name_of(block): TABLE_1A[block].perplexity for block in blocks},
            ours={"mean accuracy": {name_of(block): found[block]["mean"]
                                    for block in blocks},
                  "relations": [f"{name_of(one)} {how} {name_of(other)}"
                                for how, (one, other) in
                                zip(relations, pairs, strict=True)]},
            holds=every(verdicts), also=also, younger=relation is is_similar,
            n=one_or_all([len(found[block]["final"]) for block in blocks])))
    return claims


def check_t_only(nets: list[dict], least: int) -> dict:
    """Our own finding, made on these numbers: T-only leads."""
    found = {(net["depth"], net["block"]): net["test_acc"] for net in nets
             if net["depth"] >= least}
    depths = sorted({depth for depth, _ in found})
    leads = [is_ahead(found[depth, "t_only"], form)[0] for depth in depths
             for (own, block), form in found.items()
             if own == depth and block != "t_only"]
    return claim(
        section="ours", text="T-only is ahead of every other form with "
        f"{', '.join(map(str, depths))} layers, by test accuracy on MNIST",
        paper=None, younger=True, ours={
            f"{depth} layers": {"T-only, least": min(
                value or 0 for value in found[depth, "t_only"]["final"]),
                                "others, largest": max(
                    value for (own, block), form in found.items()
                    if own == depth and block != "t_only"
                    for value in form["final"] if value is not None)}
            for depth in depths}, holds=every(leads),
        n=one_or_all([len(form["final"]) for form in found.values()]))


def one_or_all(counts: list[int]) -> int | list[int]:
    """Equal numbers as one."""
    return counts[0] if len(set(counts)) == 1 else counts


def check_plain(nets: list[dict]) -> list[dict]:
    """What is said of deep plain nets: P1 section 3.1, and of those that do not train.
    None where the depths of the run cannot tell."""
    plain = {net["depth"]: net for net in nets if net["block"] == "plain"}
    losses = {depth: or_infinite(net["train_loss"]["final"])
              for depth, net in plain.items()}
    deep = [depth for depth in plain if depth >= 50]
    tried = {f"{depth} layers": plain[depth]["search"]["held_out_acc"]
             for depth in deep}
    top = [max(-1 if v is None else v for v in values) for values in tried.values()]
    worse = [min(losses[depth]) > max(losses[min(losses)]) for depth in deep]
    return [
        claim(section="P1 3.1", text="the training loss of plain nets degrades with "
              "depth: that of 50 and more layers ends above that of the shallowest, in "
              "every seed, each with the best of the learning rates tried for ten "
              "epochs of Adam", paper="significantly degrades",
              ours={f"{depth} layers": net["train_loss"]["final"]
                    for depth, net in plain.items()},
              holds=all(worse) if deep else None, n=max(map(len, losses.values()))),
        claim(section="ours", text="plain nets of 50 and more layers do not train at "
              "any learning rate of the search: held-out accuracy below "
              f"{TRAINS}", paper=None, ours=tried,
              holds=all(acc < TRAINS for acc in top) if deep else None)]


def check_claims(record: dict) -> list[dict]:
    """All claims of a record."""
    nets = record["nets"]
    plain = [net for net in nets if net["block"] == "plain"]
    degrades, fails = check_plain(nets)
    return [*(item for depth in record["protocol"]["depths"]
              for made, (_, _, pairs) in zip(check_ranking(nets, depth), STATEMENTS,
                                             strict=True)
              for item in resting_on([made], *trials_of([
                  net for net in nets if net["depth"] == depth
                  and any(net["block"] in pair for pair in pairs)]))),
            *resting_on([check_t_only(nets, 20)],
                        *trials_of([net for net in nets if net["depth"] >= 20])),
            *resting_on([degrades], *trials_of(plain)),
            *resting_on([fails],
                        *trials_of([net for net in plain if net["depth"] >= 50]))]


def trials_of(nets: list[dict]) -> list[dict]:
    """What the trials of the settings that nets chose have in common, net by net."""
    return [{"block": net["block"], "depth": net["depth"] - 1} | {
        name: net["chosen"][name] for name in ("lr", "gate_bias")
        if name in net["chosen"]} for net in nets]
