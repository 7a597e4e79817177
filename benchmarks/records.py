"""The record of all contests, with an entry for each kind of processor; its picture.

    {"processors": [{"vendor", "vector_unit", "blas_kernel",
                     "contests": {name: what harness.measure returns, and "env"}},
                    ...],
     "ranges": {contest: {contestant: [least, largest]}}}

How programs compare depends on the processor and on the kernels that BLAS chooses for
it. So a new measurement takes the place of the one on the same kind, and of no other.
Ranges go over the kinds, of medians: milliseconds of our step, and for each other
contestant how many times as long it takes; texts quote them.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from matplotlib.figure import Figure

import highway_networks as hn
from experiments.lab.drawing import sheet
from highway_suite.figures import SMALL, TINTS, saved, style
from highway_suite.files import parse_json, read_file, to_json, write_file
from highway_suite.records import environment

RECORD = Path(__file__).with_name("speed.json")
COMMAND = "python3 -m benchmarks"
KIND = ("vendor", "vector_unit", "blas_kernel")
VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
VECTOR_UNITS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}


# --------------------------------------------------------------------------------------
# Entries


def processor() -> dict[str, str | None]:
    """The kind of this processor; None for what the system does not say."""
    facts = {"vendor_id": platform.processor() or platform.machine(), "flags": "",
             "Features": ""}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    except OSError:
        pass
    flags = f"{facts['flags']} {facts['Features']}".split()
    return {"vendor": VENDORS.get(facts["vendor_id"], facts["vendor_id"]),
            "vector_unit": next((unit for flag, unit in VECTOR_UNITS.items()
                                 if flag in flags), None),
            "blas_kernel": environment()["blas_kernel"]}


def kind_of(entry: Mapping) -> tuple:
    """What tells entries apart."""
    return tuple(entry[name] for name in KIND)


def with_entry(record: Mapping, kind: Mapping, contests: Mapping) -> dict:
    """A record in which these measurements took the place of the earlier ones on this
    kind of processor; whatever else was there stays."""
    entries = {kind_of(entry): entry for entry in record["processors"]}
    before = entries.get(kind_of(kind), {**kind, "contests": {}})
    entries[kind_of(kind)] = before | {"contests": before["contests"] | contests}
    processors = list(entries.values())
    return {**record, "processors": processors, "ranges": ranges(processors)}


def ranges(entries: Iterable[Mapping]) -> dict[str, dict[str, list[float]]]:
    """{contest: {contestant: [least, largest] over the entries}}."""
    found: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        for contest, measured in entry["contests"].items():
            for name, part in measured["contestants"].items():
                median = (1e3 * part["median"] if name == "ours" else
                          part["times_ours"]["median"])
                found.setdefault(contest, {}).setdefault(name, []).append(
                    hn.significant(median))
    return {contest: {name: [min(values), max(values)] for name, values in row.items()}
            for contest, row in found.items()}


def read() -> dict:
    """The record that is there, or one without entries. Raises ValueError, OSError."""
    if RECORD.exists():
        return parse_json(read_file(RECORD).decode())
    return {"schema": "highway-networks/speed", "schema_version": 1,
            "command": COMMAND, "processors": [], "ranges": {}}


def write_both(path: Path, record: dict, draw: Callable, command: str) -> None:
    """A record, and beside it the picture that `draw` makes of it. Raises OSError."""
    content = (to_json(record) + "\n").encode()
    with style():
        picture = saved(draw(record), "png", path.stem, command,
                        hashlib.sha256(content).hexdigest())
    write_file(path, content)
    write_file(path.with_suffix(".png"), picture)


# --------------------------------------------------------------------------------------
# The picture

MARKERS, SIGNS = "osD^v*", "●■◆▲▼★"     # of the processors


def rivals(record: Mapping) -> Iterator[tuple[str, str, dict, int]]:
    """(contest, contestant, its times ours, number of the processor)."""
    for number, entry in enumerate(record["processors"]):
        for contest, found in entry["contests"].items():
            for name, part in found["contestants"].items():
                if part["verdict"]:
                    yield contest, name, part["times_ours"], number


def draw(record: Mapping) -> Figure:
    """The record -> a row for each contestant of each contest: medians and ranges of
    the rounds."""
    rows = list(dict.fromkeys((contest, name) for contest, name, *_ in rivals(record)))
    medians = [times["median"] for _, _, times, _ in rivals(record)] or [1]
    kinds = ["{} {} with {}, BLAS kernel {}".format(SIGNS[number % len(SIGNS)],
                                                    *kind_of(entry))
             for number, entry in enumerate(record["processors"])]
    figure, axes = sheet(
        f"Others take {min(medians):.2f} to {max(medians):.2f} times as long as we do",
        "medians and ranges of rounds; above 1 ours is faster", *kinds,
        height=1.6 + 0.18 * max(2, len(kinds)) * len(rows))
    for contest, name, times, number in rivals(record):
        row = rows.index((contest, name)) + 0.27 * (
            number - (len(record["processors"]) - 1) / 2)
        axes.plot([times["least"], times["largest"]], [row, row], color=TINTS.ink,
                  linewidth=1.5)
        axes.plot(times["median"], row, MARKERS[number % len(MARKERS)],
                  color=TINTS.ink)
        axes.annotate(f"{times['median']:.2f}", (times["largest"], row), size=SMALL,
                      xytext=(4, 0), textcoords="offset points", va="center",
                      bbox={"color": TINTS.paper, "pad": 0.5})
    axes.set_yticks(range(len(rows)), [f"{contest}\n{name}" for contest, name in rows],
                    size=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.axvline(1, color=TINTS.ink, lw=1)
    axes.margins(x=0.12)
    axes.grid(axis="x")
    axes.set_xlabel("their time / our time")
    return figure
