"""The claims of all records, for the pages and `python3 -m experiments.claims`."""

from __future__ import annotations

from experiments import NAMES
from experiments.lab.experiment import folder_of, load_record
from highway_suite.schema import RecordError


def all_claims() -> list[dict]:
    """The judged claims of all records, each with its "experiment". Raises RecordError,
    also where two have the same name."""
    found: dict[str, dict] = {}
    for name in NAMES:
        record, _ = load_record(folder_of(name) / "record.json")
        for claim in record["claims"]:
            if claim["name"] in found:
                raise RecordError(f"two claims are called {claim['name']}: of "
                                  f"{found[claim['name']]['experiment']} and {name}")
            found[claim["name"]] = claim | {"experiment": name}
    return list(found.values())
