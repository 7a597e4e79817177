"""Convert committed trials of schema 1 to trials that name their function and data.

    python3 -m experiments.lab.convert OLD NEW      results/OLD/trials -> results/NEW
    python3 -m experiments.lab.convert prune NEW    drop trials that no row asks for

Once per old experiment; idempotent, for what is converted is no longer of schema 1, and
trials that lie in the new folder already are kept. RULES says for each old experiment
what became of a config: the function, its data set (None: it has none) and the config.
Nothing is retrained: results, seconds and environments are copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import highway_networks as hn
from experiments.lab.experiment import Lab, Replay, get
from experiments.lab.trials import Trial, read_packed, write_packed
from highway_suite.files import parse_json


def without(config: dict, *names: str) -> dict:
    """A config less these fields."""
    return {name: value for name, value in config.items() if name not in names}


DROPPED = {     # old experiment: what nobody reads of its results
    "language_model": ("gates", "neighbours")}
RULES: dict[str, Callable[[dict, str], tuple[str, str | None, dict]]] = {
    # old experiment: (config, data set) -> function, data set, config
    "language_model": lambda config, dataset: ("language.train", dataset, without(
        config, "look_up")),
    "blocks": lambda config, dataset: ("blocks.train", dataset, without(
        config, "dataset")),
    "optimization": lambda config, dataset: ("optimization.train", dataset, without(
        config, "dataset")),
    "variants": lambda config, dataset: ("variants.train", dataset, without(
        config, "dataset")),
    "depth_law": lambda config, dataset: (
        f"depth.{config['kind']}", dataset, without(config, "dataset", "kind")),
    "very_deep": lambda config, dataset: (
        "depth." + {"map": "by_bias", "deep": "by_bias"}.get(
            config["part"], config["part"]), dataset,
        without(config, "dataset", "part")),
}


def converted(old: str) -> list[Trial]:
    """The trials of an old experiment's packed files."""
    trials = []
    for path in sorted((hn.HERE / "results" / old / "trials").glob("*.jsonl")):
        header, *lines = map(parse_json, path.read_text().splitlines())
        if header.get("schema") != "highway-networks/trials":
            continue
        for line in lines:
            function, dataset, config = RULES[old](line["config"],
                                                   header["protocol"]["dataset"])
            name = function.partition(".")[0]
            about = {"name": dataset, "content": get(name).content(dataset)
                     } if dataset else None
            result = without(line["result"], *DROPPED.get(old, ()))
            trials.append(Trial(function, 1, about, config, line["status"],
                                line["error"], result, line["seconds"], line["env"]))
    return trials


def main(old: str, new: str) -> None:
    """Write the converted trials beside those that are there."""
    found = converted(old)
    for path in (hn.HERE / "results" / old / "trials").glob("*.jsonl"):
        if path.read_text().startswith('{"schema"'):
            path.unlink()
    folder = hn.HERE / "results" / new / "trials"
    there = read_packed(folder) | {trial.hash: trial for trial in found}
    write_packed(folder, there.values())
    print(f"{len(found)} trials of {old} converted; {len(there)} in {folder.name}")


def prune(name: str) -> None:
    """Keep only the trials that the experiment's plan asks for."""
    folder = hn.HERE / "results" / name / "trials"
    trials = read_packed(folder)
    replay = Replay(trials)
    Lab(get(name), replay).record("")
    for path in folder.glob("*.jsonl"):
        path.unlink()
    write_packed(folder, (trials[asked] for asked in replay.asked))
    print(f"{len(replay.asked)} of {len(trials)} trials of {name} kept")


if __name__ == "__main__":
    prune(sys.argv[2]) if sys.argv[1] == "prune" else main(*sys.argv[1:3])
