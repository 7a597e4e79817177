"""The one mechanism of experiments, on which every question is asked.

    trials.py       what a trial is, its hash, its run, the store, packed files
    running.py      many trials, side by side in processes
    cluster.py      the same on other machines
    experiment.py   Experiment and Lab: plan, trials, record, figures, all claims
    command.py      python3 -m experiments.NAME
    judging.py      Claim and judge: one test, one of four verdicts
    recheck.py      the deciding trials trained again, the claim judged again
    texts.py        the pages, rendered from records
    papers.py       the papers' numbers
"""

from experiments.lab.command import main
from experiments.lab.experiment import Experiment, Lab
from experiments.lab.judging import Claim
from experiments.lab.trials import Trial, trial_function

__all__ = ["Claim", "Experiment", "Lab", "Trial", "main", "trial_function"]
