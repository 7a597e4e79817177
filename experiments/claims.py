"""The ledger: each claim of the papers beside what this suite found, or why it is open.

    python3 -m experiments.claims               records -> CLAIMS.md; the tables of the
                                                pages: python3 -m experiments.texts
    python3 -m experiments.claims --check       only say whether CLAIMS.md is up to date
    python3 -m experiments.claims --recheck ID  compute again what decides a claim

It trains and measures nothing but for a recheck: the verdicts stand in the committed
records, beside their numbers, and are collected here. Exits with 1 if a record is
missing, wrong or made from a changed checkout, if CLAIMS.md was stale (without --check
it is then written anew), and if a recheck finds a difference.

A claim's ID is its record's name and a hash of its words: other claims do not move it.
A recheck makes the claim's record again from the committed trials and trains those that
decide the claim: all of them where that takes two minutes on two cores, else those that
fit, the cheapest first, and of one that is longer by itself the first epoch.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import highway_networks as hn
from experiments import NAMES, headline_claims
from experiments.judging import Claim, claim, resting_on
from experiments.lab import Experiment, Lab, failing_in_a_line, load_record, sound
from experiments.ledger import (
    Row,
    check_of,
    count,
    count_table,
    full_table,
    ledger_table,
    measured,
    table_lines,
    words,
)
from experiments.recheck import (
    Choice,
    Planned,
    affordable,
    costs,
    recheck,
    train_again,
    words_of,
)
from experiments.store import Trial, hash_of, load_trials, make_trial, scratch_in
from highway_suite.cli import in_range
from highway_suite.datasets import obtain
from highway_suite.files import path_of, write_file
from highway_suite.records import COMMAND, RecordError, read_record, train_arm
from highway_suite.schema import VERDICTS, nets_of

LEDGER = "CLAIMS.md"
PAPERS = {      # whose claims: title, source
    "P1": ("P1, the paper", "R. K. Srivastava, K. Greff, J. Schmidhuber: *Training "
           "Very Deep Networks*, NIPS 2015, [arXiv:1507.06228]"
           "(https://arxiv.org/abs/1507.06228)"),
    "P2": ("P2, its successor", "K. Greff, R. K. Srivastava, J. Schmidhuber: *Highway "
           "and Residual Networks learn Unrolled Iterative Estimation*, ICLR 2017, "
           "[arXiv:1612.07771](https://arxiv.org/abs/1612.07771)"),
    "Kim": ("Kim et al., of a layer between characters and an LSTM", "Y. Kim, Y. "
            "Jernite, D. Sontag, A. M. Rush: *Character-Aware Neural Language Models*, "
            "AAAI 2016, [arXiv:1508.06615](https://arxiv.org/abs/1508.06615)"),
    "reproduction": ("An earlier reproduction", "Of P1's contrast, in plain NumPy; "
                     "this suite keeps its commands, its settings and the names of its "
                     "records. The claims are what its text says of its own figures"),
    "tutorial": ("A tutorial", "J. Fleming: [*Highway Networks with TensorFlow*]"
                 "(https://medium.com/jim-fleming/highway-networks-with-tensorflow-"
                 "1e6dfa667daa), 2015"),
    "ours": ("Our own questions", "Those that no paper answers; counted apart")}
SWEEPS = {      # and what makes them
    "sweep_five_seeds": "--seeds 0,1,2,3,4 --depths 5,10,20,30,50",
    "sweep_glorot_five_seeds":
        "--seeds 0,1,2,3,4 --depths 5,10,20,30,50 --init glorot",
    "depth_45_seeds": f"--seeds {','.join(map(str, range(45)))} --depths 5,50 "
                      "--blocks highway",
    "headline_five_seeds": "--seeds 0,1,2,3,4"}
STARTS = 5      # seconds that a recheck takes to start and to read
RECORDS = (*(f"results/headline/{name}.json" for name in SWEEPS),
           *(f"results/{name}/record.json" for name in NAMES))


class Open(NamedTuple):
    """A claim that no record here can tell."""

    section: str
    text: str
    paper: str      # their figure
    needs: str      # what it would take


CIFAR_100 = ("CIFAR-100, on which `python3 -m experiments.harder_data --dataset "
             "cifar100` tests it")
OPEN = [Open(*about) for about in (
    ("P1 Table 2", "19 layers, 2.3 M parameters, exceed Fitnet B: accuracy on "
     "CIFAR-10", "92.46 % (92.28 ± 0.16), Fitnet B 91.61 %", "CIFAR-10; the layout "
     "is documented in part"),
    ("P1 Table 2", "32 layers, 1.25 M parameters, exceed the fitnets' teacher of 9 M: "
     "accuracy on CIFAR-10", "91.20 %, teacher 90.18 %", "CIFAR-10; the layout is "
     "documented in part"),
    ("P1 Table 3", "a convolutional net, 19 layers by the authors' code: accuracy on "
     "CIFAR-10", "92.40 % (92.31 ± 0.12)", "CIFAR-10, and about 100 TFLOP an epoch"),
    ("P1 Table 3", "a convolutional net, 19 layers by the authors' code: accuracy on "
     "CIFAR-100", "67.76 % (67.61 ± 0.15)", "CIFAR-100, and about 100 TFLOP an epoch"),
    ("P1 4", "b_T rises with depth, and mean activity falls with b_T", "Figure 2",
     CIFAR_100),
    ("P1 4", "outputs change within the first 40 layers", "Figure 2", CIFAR_100),
    ("P1 4.1", "class differences are sparser and in all layers", "Figure 3",
     CIFAR_100),
    ("P1 4.2", "each of the first 40 layers matters", "Figure 4", CIFAR_100),
    ("P2 2", "a ResNet-110 bears many shuffles within a stage", "error rises smoothly",
     "CIFAR-10"),
    ("P2 4.2", "the mean estimation error of a ResNet-50 is near zero in stages 1 to "
     "3, not in stage 4", "Figure 3", "ImageNet and a trained ResNet-50"),
    ("P2 5.1", "50 layers with batch normalization, highway beside residual: top-5 "
     "error on ImageNet", "coupled 7.53 ± 0.05 %, with a third relu in H 7.29 ± "
     "0.11 %, residual 7.17 ± 0.14 %", "ImageNet"),
    ("P2 5.1", "50 layers without batch normalization, highway beside residual: top-5 "
     "error on ImageNet", "coupled 10.03 ± 0.17 %, with a third "
     "relu in H 10.21 ± 0.03 %, residual 9.40 ± 0.18 %", "ImageNet"),
    ("P2 5.1", "without batch normalization highway and residual nets reach a lower "
     "training error and a higher validation error than with it", "Figure 5",
     "ImageNet"),
)]


class Source(NamedTuple):
    """A record, its claims by their IDs, and the committed trials behind it."""

    path: Path
    record: dict
    claims: dict[str, dict]
    trials: list[Trial]
    cost: dict[str, float]      # of the trials, as `costs` has it


def name_of(path: Path) -> str:
    """What a reader calls a record: by its file, or its folder."""
    return path.parent.name if path.stem == "record" else path.stem


def module_of(path: Path) -> Experiment:
    """The experiment that made a record."""
    return importlib.import_module(f"experiments.{path.parent.name}").EXPERIMENT


def arms_of(record: dict) -> list[Trial]:
    """The nets of a sweep's record, as trials."""
    found = []
    for run in record["runs"]:
        for arm in nets_of(run).values():
            config = {name: value for name, value in record["config"].items()
                      if name in hn.Config.__dataclass_fields__}
            config |= {name: arm[name] for name in ("block", "depth", "hidden", "seed")}
            result = {name: value for name, value in arm.items()
                      if name != "wallclock_sec"}
            found.append(make_trial(hash_of(None), config, "ok", None, result,
                                    arm["wallclock_sec"])._replace(env=record["env"]))
    return found


def train_net(config: dict, data: hn.Data) -> dict:
    """A net of a sweep again."""
    settings = hn.Config(**config)
    arm = train_arm(settings, hn.take_subset(data, settings))
    del arm["wallclock_sec"]
    return arm


def identified(name: str, claims: Iterable[dict]) -> dict[str, dict]:
    """Claims of a record by their IDs. Raises RecordError where two have the same."""
    found: dict[str, dict] = {}
    for item in claims:
        identity = f"{name}-{hash_of([item['section'], item['claim']])[:4]}"
        if identity in found:
            raise RecordError(f"two claims have the ID {identity}: reword one")
        found[identity] = item
    return found


def with_trials(item: dict, made: dict | None) -> dict:
    """A record's claim and the same one as its module makes it now -> the former, with
    the trials of the latter, which a record does not keep."""
    return resting_on([item], *made.trials)[0] if isinstance(made, Claim) else item


def load(path: Path) -> Source:
    """A record, its claims and trials. Raises RecordError, also for a record that no
    commit can make again; StoreError."""
    trials: list[Trial] = []
    name = name_of(path)
    if name in SWEEPS:
        record = read_record(
            path, f"{COMMAND} {SWEEPS[name]} --out results/headline/{name}.json")
        with sound(path, record["command"]):
            claims = identified(name, headline_claims.check(record))
            trials = arms_of(record)
    else:
        record, _ = load_record(path)
        check = module_of(path).check
        with sound(path, record["command"]):
            made = identified(name, check(record) if check else [])
        claims = {identity: with_trials(item, made.get(identity)) for identity, item
                  in identified(name, record.get("claims", [])).items()}
        for packed in sorted(path.parent.glob("trials/*.jsonl")):
            trials += load_trials(packed)[1]
    if record["env"]["git_dirty"] is not False:
        raise RecordError(f"{path}: made from a changed checkout. Make it again with: "
                          f"{record['command']}")
    return Source(path, record, claims, trials, costs(trials))


def deciding(item: dict, trials: Iterable[Trial]) -> list[Trial]:
    """The trials that decide a claim."""
    return [trial for trial in trials if not isinstance(item, Claim)
            or item.rests_on(trial.config)]


def cost_of(source: Source, item: dict) -> tuple[str, str]:
    """What a recheck of a claim takes, in words: the seconds, and what it trains."""
    trials = deciding(item, source.trials)
    if not trials:
        return f"{module_of(source.path).minutes} min", "all of it"
    besides = 0 if name_of(source.path) in SWEEPS else module_of(source.path).besides
    chosen, epochs, seconds = affordable(trials, source.cost, besides)
    return f"{math.ceil(seconds + STARTS)} s", words_of(chosen, trials, epochs)


def rows_of(source: Source) -> list[Row]:
    """The claims of a record. Its page lies in the record's folder."""
    return [Row(item, source.path.parent.name, name, *cost_of(source, item))
            for name, item in source.claims.items()]


def open_rows() -> list[Row]:
    """The claims that no record tells."""
    return [Row(claim(section=item.section, text=item.text, paper=item.paper,
                      ours=f"needs {item.needs}", holds=None, n=None, why="data"))
            for item in OPEN]


def parted(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Claims by whose they are, in the order of PAPERS. RecordError."""
    found: dict[str, list[Row]] = {paper: [] for paper in PAPERS}
    for row in rows:
        paper = row.claim["section"].split()[0]
        if paper not in found:
            raise RecordError(f"claim {row.name}: its section, "
                              f"{row.claim['section']!r}, begins with none of "
                              f"{', '.join(PAPERS)}")
        found[paper].append(row)
    return {paper: own for paper, own in found.items() if own}


INTRODUCTION = """\
Written by `python3 -m experiments.claims` from the committed records; a test \
compares them. n is the number of seeds behind the deciding numbers, each with \
weights of its own; of several values the least and the largest are given, or the \
median, followed by these two in brackets. Where a paper speaks of its best run, or of \
a mean, so do we, whatever its error; otherwise several nets of a kind decide only if \
they agree. A claim is open for want of `data`, of `epochs` or of a number of theirs, \
because our numbers leave it `undecided`, or because it is `as true without`: as true \
before training, or of plain nets. Where a paper gives no threshold, the claim names \
ours, chosen before the runs that it judges (in `five_nets`, before most of them); a \
dagger (†) says that the numbers were already known when the threshold, or which nets \
count, was chosen.

Doubt a line? `python3 -m experiments.claims --recheck ID` retrains what decides it, \
in about as many seconds on two cores as the line says, and compares the results: all \
trials where that takes two minutes at most, otherwise some, and if none is that \
short, one or its first epoch. The ID \
leads to the claim's page, with the paper's numbers, all of ours, and the verdict at \
half and at twice the threshold."""


def write_ledger(paths: Iterable[Path]) -> str:
    """Records -> the text of CLAIMS.md. Raises RecordError."""
    made = [load(path) for path in paths]
    papers = parted([*(row for source in made for row in rows_of(source)),
                     *open_rows()])
    theirs = {PAPERS[paper][0]: own for paper, own in papers.items()
              if paper != "ours"}
    lines = ["# Claims", "", "What the papers say, and what this suite measured.", "",
             *count_table(theirs | {"**all of these**": sum(theirs.values(), []),
                                    "**ourselves**": papers.get("ours", [])}),
             "", INTRODUCTION]
    for paper, own in papers.items():
        title, source = PAPERS[paper]
        lines += ["", f"## {title}", "", f"{source}.", "", *ledger_table(paper, own)]
    lines += ["", "## Records", "", "Each made by its command from the commit named, "
              "with nothing changed; trials packed beside a record, of earlier "
              "commits too, name their own.", "", *table_lines(
                  ["record", "command", "commit", "NumPy", "BLAS kernel"],
                  [[link(path), f"`{record['command']}`", *(record["env"][name] for name
                    in ("git", "numpy", "blas_kernel"))] for path, record, *_ in made])]
    return "\n".join(lines) + "\n"


def link(path: Path) -> str:
    """A record of the checkout, in Markdown."""
    return f"[{name_of(path)}]({path.relative_to(hn.HERE).as_posix()})"


def from_claims(root: Path) -> dict[str, str]:
    """What texts say of the claims of a checkout's records: {name: text}. A claim's ID
    stands for its n and its check, with ".ours" for our numbers, "claims.NAME" for the
    table of a page, "ledger.…" for counts. Raises RecordError."""
    pages: dict[str, list[Row]] = {}
    for record in RECORDS:
        for row in rows_of(load(root / record)):
            pages.setdefault(row.page, []).append(row)
    papers = parted([*(row for own in pages.values() for row in own), *open_rows()])
    ours = papers.pop("ours", [])
    found = {f"claims.{page}": "\n".join(full_table(own))
             for page, own in pages.items()}
    for whose, own in (("theirs", sum(papers.values(), [])), ("ours", ours)):
        found |= {f"ledger.{whose}_{name}": str(value)
                  for name, value in count(own)._asdict().items()}
    for row in (row for own in pages.values() for row in own):
        found[row.name] = f"{words(row.claim['n'])} | {check_of(row)}"
        found[f"{row.name}.ours"] = measured(row.claim)
    return found


# --------------------------------------------------------------------------------------
# Rechecks


def find(name: str) -> tuple[Source, dict]:
    """The record and the claim of an ID. Raises RecordError."""
    near = []
    for path in (hn.HERE / record for record in RECORDS):
        if name.startswith(f"{name_of(path)}-"):
            source = load(path)
            if name in source.claims:
                return source, source.claims[name]
            near = list(source.claims)
    raise RecordError(f"no claim {name!a}" + (f"; there are {', '.join(near)}" if near
                      else f". Its ID stands in {LEDGER}, in the last column"))


def recheck_sweep(source: Source, item: dict, options: argparse.Namespace,
                  working: Path) -> bool:
    """Train nets of a sweep again -> whether nothing differs."""
    trials = deciding(item, source.trials)
    chosen, epochs, _ = affordable(trials, source.cost)
    dataset = source.record["dataset"]
    data = obtain(dataset, options.data_dir)
    return train_again(Choice(
        [Planned(trial, train_net, data) for trial in chosen], epochs,
        words_of(chosen, trials, epochs)), working, {"dataset": dataset}, options.jobs)


def recheck_claim(name: str, options: argparse.Namespace, working: Path) -> bool:
    """Compute again what decides a claim, and say what comes of it -> whether nothing
    differs. Raises RecordError, StoreError, hn.DataError."""
    source, item = find(name)
    print(f"{item['section']}: {item['claim']}\ntheirs: {words(item['paper'])}\nours: "
          f"{words(item['ours'])}\nverdict, as committed: {VERDICTS[item['holds']]}\n"
          f"about {': '.join(cost_of(source, item))}", flush=True)

    def choose(planned):
        there = {each.trial.hash: each for each in planned}
        trials = [trial for trial in deciding(item, source.trials)
                  if trial.hash in there]
        if not trials:
            raise RecordError(f"claim {name}: the plan has none of its trials")
        chosen, epochs, _ = affordable(trials, source.cost)
        return Choice([there[trial.hash] for trial in chosen], epochs,
                      words_of(chosen, trials, epochs))
    if name_of(source.path) in SWEEPS:
        return recheck_sweep(source, item, options, working)
    lab = Lab(module_of(source.path), options, working)
    return recheck(lab, source.record, choose)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python3 -m experiments.claims", allow_abbrev=False,
        description=(__doc__ or "").partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--check", action="store_true", help="write nothing")
    which.add_argument("--recheck", metavar="ID", help="compute again what decides a "
                       f"claim; its ID stands in {LEDGER}")
    parser.add_argument("--jobs", type=in_range(int, 1, 1024), metavar="N",
                        help="processes of a recheck (default: one per core)")
    parser.add_argument("--data-dir", metavar="FOLDER", type=path_of,
                        help="of the data set's files")
    parser.set_defaults(smoke=False, fresh=False, only=None, cluster=None, dataset=None,
                        retry_failed=False)
    return parser


def update(check: bool) -> None:
    """Write the ledger, or only look whether it is up to date; exit with 1 if not."""
    ledger = hn.HERE / LEDGER
    text = write_ledger([hn.HERE / name for name in RECORDS])
    stale = not ledger.exists() or ledger.read_text(encoding="utf-8") != text
    if stale and not check:
        write_file(ledger, text.encode())
    if stale:
        remedy = ("write it with python3 -m experiments.claims" if check else
                  "it is written anew")
        sys.exit(f"{LEDGER} was stale: {remedy}")
    print(f"{LEDGER} is up to date")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    options = build_parser().parse_args(argv)
    with failing_in_a_line("experiments.claims"):
        if not options.recheck:
            return update(options.check)
        with scratch_in(hn.HERE / "runs" / "recheck") as working:
            if not recheck_claim(options.recheck, options, working):
                sys.exit(1)
    return None


if __name__ == "__main__":
    main()
