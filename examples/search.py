"""A search over settings that can be interrupted: press Ctrl-C, start it again, and it
trains the settings that are missing.

    python3 -m examples.search

A trial is known by its config, the hash of its data and the version of its function.
What may change therefore belongs into the config; where the function itself changes,
raise its version, as in `@trial_function("example.train", version=2)`.
"""

from pathlib import Path

import highway_networks as hn
import highway_suite
from experiments.lab import trial_function
from experiments.lab.running import run_trials
from experiments.lab.trials import Request, Store
from highway_suite.checkpoints import data_hash


@trial_function("example.train")
def train(config: dict, data: hn.Data) -> dict:
    settings = hn.Config(**config)
    history, _, status = hn.train(hn.make_net(settings, data), hn.scale_pixels(data),
                                  settings)
    return {"status": status, "train_loss": history["train_loss"]}


if __name__ == "__main__":
    data = highway_suite.load("digits")
    digits = {"name": "digits", "content": data_hash(
        data.x_train, data.y_train, data.x_test, data.y_test)}
    trials = run_trials(
        [Request(train, digits, {"depth": 10, "epochs": 6, "lr": lr,
                                  "gate_bias": bias})
         for bias in (-1.0, -3.0) for lr in (1e-3, 3e-3, 1e-2)],
        Store(Path("runs/search.sqlite")), highway_suite.load)
    best = min(trials, key=lambda trial: trial.result["train_loss"][-1] or 1e9)
    print("best:", best.config, "training loss", best.result["train_loss"][-1])
