"""The language model."""

from __future__ import annotations

import numpy as np

from experiments.judging import or_infinite
from experiments.language_claims import (
    GATED_INPUT,
    KIM,
    costs_of_holding,
    test_perplexities,
)
from experiments.language_model import label_of
from experiments.values.common import about, in_words, span, table


@about("results/language_model/record.json")
def language_table(record: dict) -> str:
    theirs = {(row["block"], row["depth"]): row for row in record["papers"]}

    def cell(net, model):
        value = theirs[net["block"], net["depth"]][model]
        return f"{value:.1f}" if value else "–"
    nets = sorted(record["nets"], key=lambda net: np.median(
        or_infinite(net["test_perplexity"])))
    return table("between characters and LSTM|parameters:|seeds:|training:|"
                 "validation:|test:|Kim et al., small:|P2, large:", (
        (label_of(net), f"{net['parameters']:,}", str(len(net["seeds"])),
         in_words([losses[-1] and np.exp(losses[-1]) for losses in net["train_loss"]]),
         in_words([values[-1] for values in net["valid_perplexity"]]),
         in_words(net["test_perplexity"]), cell(net, "small"), cell(net, "large"))
        for net in nets))


@about("results/language_model/record.json")
def language_held_table(record: dict) -> str:
    """What the validation text says of the first seed's nets, changed."""
    def cell(value):
        return "–" if value is None else f"{value:,.0f}" if value >= 1000 else (
            f"{value:.1f}")
    return table("net|as trained:|gates held at their means:|without layer 1, 2, 3, 4",
                 ((label_of(net), cell(net["valid_perplexity"][0][-1]),
                   cell(net["instead"][0]["held_gates"]), ", ".join(
                       "beyond numbers" if value is None else cell(value)
                       for value in net["instead"][0]["without_layer"]))
                  for net in record["nets"] if net["depth"] and net["instead"][0]))


@about("results/language_model/record.json")
def language(record: dict) -> dict[str, str]:
    """Test perplexities, costs of held gates and differences, lowest to highest of the
    seeds."""
    test = test_perplexities(record["nets"])

    def behind(worse, better):
        return span((test[worse][seed] - test[better][seed]
                     for seed in {*test[worse]} & {*test[better]}), ".1f")

    def over(key):
        return span((value - KIM[key] for value in test[key].values()), ".1f")

    def apart(measure, *keys):
        """Of each seed that all these nets have."""
        return span((measure([test[key][seed] for key in keys]) for seed in
                     set.intersection(*(set(test[key]) for key in keys))), ".1f")
    nothing, one, two, plain = (
        ("plain", 0), ("highway", 1), ("highway", 2), ("plain", 1))
    full, = (net["gates"] for net in record["nets"] if net["block"] == "full")
    three, others = list(GATED_INPUT.values()), [
        key for key in test if key[0] in ("plain", "t_only", "residual")]
    return {
        **{f"{block}_{depth}": span(values.values(), ".1f")
           for (block, depth), values in test.items()},
        **{f"held_{block}": span(costs.values(), ",.0f")
           for (block, _), costs in costs_of_holding(record["nets"]).items()},
        **{f"full_{name}": " and ".join(f"{mean:.2f}" for mean in full[name]["mean"])
           for name in full},
        "seeds_apart": span((max(values.values()) - min(values.values())
                             for values in test.values() if len(values) > 1), ".1f"),
        "one_over": over(one), "two_over": over(two), "none_over": over(nothing),
        "second": behind(one, two), "plain_ahead": behind(nothing, plain),
        "t_only_behind": behind(("t_only", 2), two),
        "residual_behind": behind(("residual", 4), plain),
        "three": span((value for key in three for value in test[key].values()), ".1f"),
        "three_apart": apart(lambda found: max(found) - min(found), *three),
        "gated_ahead": apart(lambda found: min(found[3:]) - max(found[:3]), *three,
                             *others)}
