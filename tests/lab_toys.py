"""An experiment in milliseconds, whose functions worker processes can import."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from experiments.lab import Claim, Experiment, trial_function
from experiments.lab.running import run_trials
from experiments.lab.trials import Request, Store


def load(name, folder):
    return {"zeros": np.zeros(2), "folder": folder}[name]


def requests_of(function, count, data=None):
    about = data and {"name": data, "content": "0"}
    return [Request(function, about, {"x": x}) for x in range(count)]


@trial_function("toy.square", needs_data=False)
def square(config, _):
    config["changed"] = True        # a copy: it is kept under what was asked
    return {"x2": config["x"] ** 2, "odd": (config["x"] / 3, 1e-30, None, "é")}


@trial_function("toy.square", version=2, accepts=(1,), needs_data=False)
def square_of_later(config, _):
    return {"x2": config["x"] ** 2 + 1}


@trial_function("toy.lucky", needs_data=False)
def lucky(config, folder):
    """2 fails, unless there is luck in the folder."""
    if config["x"] == 2 and not (folder and (folder / "luck").exists()):
        raise ArithmeticError("no luck\x1b[31m\n")
    return config["x"]


@trial_function("toy.fatal")
def fatal(config, folder):
    """2 kills its process, unless there is luck in the folder."""
    if config["x"] == 2 and not (folder / "luck").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return config["x"]


@trial_function("toy.long", resumable=True)
def long(config, folder, checkpoint):
    """How many attempts got as far as its checkpoint."""
    history = checkpoint.load({}, {})
    history.append({"epoch": len(history) + 1})
    checkpoint.save({}, {}, history)
    return lucky(config, folder) and len(history)


@trial_function("toy.odd")
def odd(config, _):
    return [np.nan, [np.inf], {1, 2}, np.float32(1)][config["x"]]


@trial_function("toy.spoiling")
def spoiling(config, data):
    data += 1
    return data.tolist()


@trial_function("toy.slow")
def slow(config, _):
    """Waits from the trial on that $TOY_HOLDS names, so that a kill comes before the
    end."""
    time.sleep(0.02)
    while config["x"] >= int(os.environ.get("TOY_HOLDS", 10**6)):
        time.sleep(0.05)
    return [config["x"] / 7]


def run(lab):
    trials = lab.trials(square, {x: {"x": x} for x in lab.plan["numbers"]})
    return {"rows": [{"x": x, "x2": trial.result["x2"], "trials": [trial.hash]}
                     for x, trial in trials.items()]}


def claims(record):
    last, squares = record["rows"][-1], [row["x2"] for row in record["rows"]]
    return [Claim(name="toy-last", source="ours", text="the last square is at least "
                  "ten", ours={"of": "all", "x2": squares}, rows=[last], limit=10,
                  test=lambda limit: last["x2"] >= limit),
            Claim(name="toy-all", source="ours", text="squares are not negative",
                  ours={"x2": squares}, rows=record["rows"],
                  test=lambda: min(squares) >= 0),
            Claim(name="toy-of-none", source="ours", text="squares are not counted",
                  ours=0, rows=[], test=lambda: True)]


def draw(record):
    from matplotlib.figure import Figure
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot([row["x2"] for row in record["rows"]])
    return figure


EXPERIMENT = Experiment(
    name="toy", doc="Is it square?\n\nYes.", run=run, claims=claims,
    plan={"dataset": "digits", "numbers": [1, 2, 3, 4]},
    smoke={"numbers": [1, 2]}, figures={"figure": draw})

if __name__ == "__main__":      # python3 -m tests.lab_toys STORE COUNT
    from tests import lab_toys
    run_trials(lab_toys.requests_of(lab_toys.slow, int(sys.argv[2])),
               Store(Path(sys.argv[1])), lab_toys.load, jobs=2)
