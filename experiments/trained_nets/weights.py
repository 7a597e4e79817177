"""Train the nets of the first seed again, and keep their weights.

    python3 -m experiments.trained_nets.weights     results/trained_nets/BLOCK.npz

Only weights with the hash in the record are written. Another processor or another
library gives weights that differ in the last bits. `highway_suite.load_net` reads them.
This takes ten minutes on one core.
"""

from __future__ import annotations

from collections.abc import Sequence

import highway_networks as hn
from experiments.lab import experiment
from experiments.trained_nets.trials import configs, trained_net
from highway_suite.datasets import load
from highway_suite.nets import TRAINED, save_net
from highway_suite.records import RecordError


def make(plan: dict, block: str, data: hn.Data, digest: str) -> hn.DeepNet:
    """The net of the first seed. Raises RecordError if the hash of its weights is
    another."""
    config = configs(plan)[block, plan["seeds"][0]]
    with hn.blas_threads(1):
        net, training = trained_net(config, hn.scale_pixels(data))
    if training["sha256"] != digest:
        raise RecordError(f"the {block} net that was trained here has the hash "
                          f"{training['sha256'][:16]}, that of the record {digest[:16]}"
                          ". Processor or libraries differ; nothing is written")
    return net


def main(blocks: Sequence[str] = TRAINED) -> None:
    """Write the weights, one net after the other."""
    folder = experiment.folder_of("trained_nets")
    record, _ = experiment.load_record(folder / "record.json")
    plan = experiment.get("trained_nets").plan
    data = load(plan["dataset"])
    for block in blocks:
        digest = record["nets"][block][0]["training"]["sha256"]
        save_net(make(plan, block, data, digest), folder / f"{block}.npz")
        print(f"results/trained_nets/{block}.npz")


if __name__ == "__main__":
    with experiment.failing_in_a_line("experiments.trained_nets.weights"):
        main()
