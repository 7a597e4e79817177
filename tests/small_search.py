"""A small random search over the shipped digits, for the tests to kill and resume.

    python3 -m tests.small_search FOLDER --trials 12 --jobs 2

$SEARCH_HOLDS is the number of the first trial that waits instead, and all after it: so
however fast the machine, what stops the search comes before its end.
"""

import argparse
import os
import sys
import time

import numpy as np

import highway_networks as hn
import highway_suite
from experiments.trials import add_flags, run_trials
from highway_networks import train_arm

COMMON = {"depth": 4, "hidden": 16, "batch": 64, "n_train": 1437, "n_test": 360,
          "optimizer": "sgd"}


def train(config, data):
    """One trial: a highway net on the digits, its final loss and curve."""
    while config["seed"] >= int(os.environ.get("SEARCH_HOLDS", 10**6)):
        time.sleep(0.1)
    arm = train_arm(hn.Config(**COMMON, **config), data)
    return {"status": arm["status"], "train_loss": arm["history"]["train_loss"],
            "test_acc": arm["final_test_acc"]}


def settings(number, epochs):
    """So many random settings, always the same."""
    rng = np.random.default_rng(0)
    return [{"lr": float(10 ** rng.uniform(-3, 0)), "seed": i, "epochs": epochs,
             "gate_bias": float(-rng.integers(1, 5))} for i in range(number)]


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=8)
    add_flags(parser)
    args = vars(parser.parse_args(argv))
    configs = settings(args.pop("trials"), args.pop("epochs"))
    try:
        run_trials(train, configs, protocol=COMMON,
                   data=highway_suite.load("digits"), **args)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
