"""The ledger: each claim of the papers beside what this suite found, or why it is open.

    python3 -m experiments.claims           records -> CLAIMS.md
    python3 -m experiments.claims --check   only say whether CLAIMS.md is up to date

It trains and measures nothing: the verdicts stand in the committed records, beside
their numbers, and are collected here. Exits with 1 if a record is missing, wrong or
made from a changed checkout, and if CLAIMS.md was stale; without --check it is then
written anew.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import highway_networks as hn
from experiments import NAMES
from experiments.lab import agreed, claim, load_record
from highway_suite.files import write_file
from highway_suite.records import RecordError, read_record

LEDGER = "CLAIMS.md"
PAPERS = {
    "P1": "R. K. Srivastava, K. Greff, J. Schmidhuber: *Training Very Deep Networks*, "
          "NIPS 2015, [arXiv:1507.06228](https://arxiv.org/abs/1507.06228)",
    "P2": "K. Greff, R. K. Srivastava, J. Schmidhuber: *Highway and Residual Networks "
          "learn Unrolled Iterative Estimation*, ICLR 2017, "
          "[arXiv:1612.07771](https://arxiv.org/abs/1612.07771)",
    "reproduction": "An earlier reproduction of P1's contrast in plain NumPy, whose "
                    "commands, settings and records this suite keeps: what its text "
                    "says of its own figures",
    "tutorial": "J. Fleming: [*Highway Networks with TensorFlow*](https://medium.com/"
                "jim-fleming/highway-networks-with-tensorflow-1e6dfa667daa), 2015",
    "ours": "Questions of this suite that no paper answers; counted apart"}
SWEEPS = ("sweep_five_seeds", "sweep_glorot_five_seeds", "depth_45_seeds")
HEADLINE = "headline_five_seeds"
RECORDS = (*(f"results/headline/{name}.json" for name in (*SWEEPS, HEADLINE)),
           *(f"results/{name}/record.json" for name in NAMES))
VERDICTS = {True: "**holds**", False: "**does not hold**", None: "open"}

class Open(NamedTuple):
    """A claim that no record here can tell."""

    section: str
    text: str
    paper: str      # their figure
    needs: str      # what it would take


OPEN = [Open(*about) for about in (
    ("P1 Table 2", "11 layers, 236 K parameters, match Fitnet A without its hints: "
     "accuracy on CIFAR-10", "89.18 %, Fitnet A 89.01 %", "CIFAR-10; the layout is "
     "documented in part"),
    ("P1 Table 2", "19 layers, 2.3 M parameters, exceed Fitnet B: accuracy on "
     "CIFAR-10", "92.46 % (92.28 ± 0.16), Fitnet B 91.61 %", "CIFAR-10; the layout "
     "is documented in part"),
    ("P1 Table 2", "32 layers, 1.25 M parameters, exceed the fitnets' teacher of 9 M: "
     "accuracy on CIFAR-10", "91.20 %, teacher 90.18 %", "CIFAR-10; the layout is "
     "documented in part"),
    ("P1 Table 3", "19 convolutional layers, by the authors' code: accuracy on "
     "CIFAR-10", "92.40 % (92.31 ± 0.12)", "CIFAR-10, and about 100 TFLOP an epoch"),
    ("P1 Table 3", "19 convolutional layers, by the authors' code: accuracy on "
     "CIFAR-100", "67.76 % (67.61 ± 0.15)", "CIFAR-100, and about 100 TFLOP an epoch"),
    ("P1 4", "b_T rises with depth, and mean activity falls with b_T", "Figure 2",
     "CIFAR-100"),
    ("P1 4", "outputs change within the first 40 layers", "Figure 2", "CIFAR-100"),
    ("P1 4.1", "class differences are sparser and in all layers", "Figure 3",
     "CIFAR-100"),
    ("P1 4.2", "each of the first 40 layers matters", "Figure 4", "CIFAR-100"),
    ("P2 2", "a ResNet-110 bears many shuffles within a stage", "error rises smoothly",
     "CIFAR-10"),
    ("P2 4.2", "the mean estimation error of a ResNet-50 is near zero in stages 1 to "
     "3, not in stage 4", "Figure 3", "ImageNet and a trained ResNet-50"),
    ("P2 5.1", "50 layers with batch normalization, highway beside residual: top-5 "
     "error on ImageNet", "coupled 7.53 ± 0.05 %, full 7.29 ± 0.11 %, residual "
     "7.17 ± 0.14 %", "ImageNet"),
    ("P2 5.1", "50 layers without batch normalization, highway beside residual: top-5 "
     "error on ImageNet", "coupled 10.03 ± 0.17 %, full "
     "10.21 ± 0.03 %, residual 9.40 ± 0.18 %", "ImageNet"),
    ("P2 5.1", "gates that are 1x1 convolutions make learning unstable, gates as "
     "expressive as H do not", "He et al. 2016", "convolutional nets with both kinds "
     "of gate; ours of one gate a layer are fully connected"),
    ("P2 5.1", "without batch normalization highway and residual nets reach a lower "
     "training error and a higher validation error than with it", "Figure 5",
     "ImageNet"),
    ("P2 Table 1a", "test perplexities of six forms in a character-aware language "
     "model", "full 79.09, coupled 79.13, C-only 79.15, T-only 82.94, residual 91.32, "
     "plain 92.60", "Penn Treebank and an LSTM"),
)]


class Row(NamedTuple):
    """One line of the ledger."""

    claim: dict         # as `claim` makes it
    source: str         # the record, in Markdown


def words(value: Any) -> str:
    """A value of a record as a reader would write it, numbers with four digits."""
    if value is None or isinstance(value, bool):
        return {None: "–", True: "yes", False: "no"}[value]
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(words, value))
    if isinstance(value, dict):
        deep = any(isinstance(item, (dict, list)) for item in value.values())
        return ("; " if deep else ", ").join(
            f"{re.sub('(?<=[a-z])_(?=[a-z])', ' ', name)}{':' if deep else ''} "
            f"{words(item)}"
            for name, item in value.items())
    return value


def loses(ends: Sequence[dict], points: float) -> bool | None:
    """Whether the second of two rows of a record's summary has a test accuracy so many
    points below the first's; None within two standard errors of that."""
    difference = ends[0]["test_acc_mean"] - ends[1]["test_acc_mean"] - points / 100
    error = math.hypot(*(row["test_acc_std"] / math.sqrt(row["n"] - row["diverged"])
                         for row in ends))
    return difference > 0 if abs(difference) > 2 * error else None


def accuracy_of(rows: Iterable[dict]) -> dict[str, str]:
    """Rows of a record's summary, in words."""
    return {f"{row['depth']} blocks": "{test_acc_mean:.3f} ± {test_acc_std:.3f}".format(
        **row) for row in rows}


def check_sweep(record: dict) -> list[dict]:
    """P1's question in the setting of the headline, and what the earlier reproduction
    says of it: a sweep over seeds -> claims."""
    config, claims, n = record["config"], [], len(record["seeds"])
    setting = (f"init {config['init']}, {config['optimizer']}, {record['n_train']} "
               f"images, {record['epochs']} epochs")
    summary = {block: sorted((row for row in record["summary"]
                              if row["block"] == block), key=lambda row: row["depth"])
               for block in ("plain", "highway")}
    for block, rows in summary.items():
        if not rows:
            continue
        ends = rows[0], rows[-1]
        claims.append(claim(
            section="ours", text=f"{block} nets lose more than two points of test "
            f"accuracy from the least depth to the largest ({setting})", paper=None,
            ours=accuracy_of(ends), holds=loses(ends, 2), n=n,
            also={f"{points} points": loses(ends, points) for points in (1, 4)}))
    if config["init"] != "uniform":
        return claims
    if not summary["plain"]:
        ends = summary["highway"][0], summary["highway"][-1]

        def flat(points):
            lost = loses(ends, points)
            return None if lost is None else not lost
        claims.append(claim(
            section="reproduction", text="depth costs highway nets nothing: from the "
            "least depth to the largest they lose less than two points of test "
            "accuracy", paper="essentially flat", ours=accuracy_of(ends), holds=flat(2),
            n=n, also={f"{points} points": flat(points) for points in (1, 4)}))
    elif deep := [row for row in summary["plain"] if row["depth"] >= 20]:
        def fails(accuracy):
            return all(row["test_acc_mean"] < accuracy for row in deep)
        claims.append(claim(
            section="reproduction", text="plain nets of 20 and more blocks fail "
            "completely: a mean test accuracy below 0.2", paper="at chance",
            ours=accuracy_of(deep), holds=fails(0.2), n=n,
            also={"0.15": fails(0.15), "0.3": fails(0.3)}))
    return claims


def check_headline(record: dict) -> list[dict]:
    """What the earlier reproduction says of the gates over depth: a record of the
    headline over seeds -> claims."""
    thirds = []
    for run in record["runs"]:
        T = run["highway"]["final_T_per_layer"]
        thirds.append([sum(part) / len(part)
                       for part in (T[:len(T) // 3], T[-(len(T) // 3):])])

    def higher(times):
        return agreed(lower > times * upper for lower, upper in thirds)
    return [claim(
        section="reproduction", text="the lower layers have the higher T: mean T of "
        "the first third of the layers above that of the last, with every seed",
        paper="lower layers develop higher T", ours={
            "first third": [hn.significant(first) for first, _ in thirds],
            "last third": [hn.significant(last) for _, last in thirds]},
        n=len(thirds), holds=higher(1), also={"0.5 times": higher(0.5),
                                              "2 times": higher(2)})]


def name_of(path: Path) -> str:
    """What a reader calls a record: by its file, or its folder."""
    return path.parent.name if path.stem == "record" else path.stem


def load(path: Path) -> tuple[dict, list[dict]]:
    """A record and its claims. Raises RecordError, also for a record that no commit can
    make again."""
    if name_of(path) in SWEEPS:
        record = read_record(path)
        claims = check_sweep(record)
    elif name_of(path) == HEADLINE:
        record = read_record(path)
        claims = check_headline(record)
    else:
        record, _ = load_record(path)
        claims = record.get("claims", [])       # that of `inside` only has the weights
    if record["env"]["git_dirty"] is not False:
        raise RecordError(f"{path}: made from a changed checkout. Make it again with: "
                          f"{record['command']}")
    return record, claims


def link(path: Path) -> str:
    """A record of the checkout, in Markdown."""
    return f"[{name_of(path)}]({path.relative_to(hn.HERE).as_posix()})"


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    """The lines of a Markdown table."""
    cells = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *cells]]


def verdict(item: dict) -> str:
    """A claim's verdict, why it is open, and whether its threshold is the younger."""
    why = f": {item.get('why', 'undecided')}" if item["holds"] is None else ""
    return VERDICTS[item["holds"]] + why + (" †" if item.get("younger") else "")


def at_others(item: dict) -> str:
    """The verdict at other thresholds."""
    return "; ".join(f"{name}: {VERDICTS[holds].strip('*')}"
                     for name, holds in item.get("also", {}).items()) or "–"


def rows_of(paper: str, rows: list[Row]) -> list[str]:
    """The table of one paper's claims."""
    return table(
        ["section", "claim", "theirs", "ours", "n", "verdict",
         "at half and twice the threshold", "record"],
        [[row.claim["section"].removeprefix(paper).strip() or "–", row.claim["claim"],
          words(row.claim["paper"]), words(row.claim["ours"]), words(row.claim["n"]),
          verdict(row.claim), at_others(row.claim), row.source] for row in rows])


def is_alone(n: Any) -> bool:
    """Whether one seed stands behind a number."""
    return 1 in n if isinstance(n, list) else n == 1


def count(rows: list[Row]) -> str:
    """How many claims there are, with which verdicts."""
    holds, fails, is_open = (sum(row.claim["holds"] is found for row in rows)
                             for found in VERDICTS)
    lone = sum(row.claim["holds"] is True and is_alone(row.claim["n"]) for row in rows)
    return (f"{len(rows)} claims, of which {holds} hold ({lone} of them with one "
            f"seed), {fails} do not and {is_open} are open")


def reasons(rows: list[Row]) -> str:
    """Why claims are open."""
    found = Counter(row.claim.get("why", "undecided") for row in rows
                    if row.claim["holds"] is None)
    return ", ".join(f"{number} {why}" for why, number in found.most_common())


INTRODUCTION = """\
Written by `python3 -m experiments.claims` from the committed records; a test \
compares them. A verdict is of the numbers beside it, on MNIST. Where a paper gives \
no threshold, the claim names the one that we chose, before the runs that it judges; \
a dagger (†) says that the numbers were known by then. The column after the verdict \
says what it would be at half and at twice that threshold: of a share, as far from 0 \
or 1; of a factor, by what it rises. Where a paper speaks of its best run, so do we. \
n is the number of seeds behind the numbers that decide, each with weights and \
batches of its own; – where nothing is random. Several nets of a kind decide only if \
they agree. A claim is open for want of `data`, of `epochs`, of a number of theirs, \
because our numbers leave it `undecided`, or because it is `as true without`: before \
training, or of plain nets."""


def write_ledger(paths: Iterable[Path]) -> str:
    """Records -> the text of CLAIMS.md. Raises RecordError."""
    made = [(path, *load(path)) for path in paths]
    rows = [Row(item, link(path)) for path, _, claims in made for item in claims]
    rows += [Row(claim(section=item.section, text=item.text, paper=item.paper,
                       ours=f"needs {item.needs}", holds=None, n=None, why="data"), "–")
             for item in OPEN]
    ours = [row for row in rows if row.claim["section"] == "ours"]
    theirs = [row for row in rows if row.claim["section"] != "ours"]
    lines = [
        "# Claims", "", "What the papers say, and what this suite measured: "
        f"{count(theirs)} ({reasons(theirs)}). Beside them our own questions: "
        f"{count(ours)}.", "", INTRODUCTION]
    for paper, title in PAPERS.items():
        if own := [row for row in rows if row.claim["section"].split()[0] == paper]:
            lines += ["", f"## {paper}", "", f"{title}.", "", *rows_of(paper, own)]
    lines += ["", "## Records", "", "Each made by its command from the commit named, "
              "with nothing changed; trials packed beside a record, of earlier "
              "commits too, name their own.", "", *table(
                  ["record", "command", "commit", "NumPy", "BLAS kernel"],
                  [[link(path), f"`{record['command']}`", *(record["env"][name] for name
                    in ("git", "numpy", "blas_kernel"))] for path, record, _ in made])]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m experiments.claims", allow_abbrev=False,
        description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options, ledger = parser.parse_args(argv), hn.HERE / LEDGER
    try:
        text = write_ledger([hn.HERE / name for name in RECORDS])
        stale = not ledger.exists() or ledger.read_text(encoding="utf-8") != text
        if stale and not options.check:
            write_file(ledger, text.encode())
    except (RecordError, OSError) as error:
        sys.exit(f"experiments.claims: {error}")
    if stale:
        remedy = ("write it with python3 -m experiments.claims" if options.check else
                  "it is written anew")
        sys.exit(f"{LEDGER} was stale: {remedy}")
    print(f"{LEDGER} is up to date")


if __name__ == "__main__":
    main()
