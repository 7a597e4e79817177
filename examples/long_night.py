"""Train on a table overnight: the net is saved after each pass over the rows.

    python3 -m examples.long_night

After Ctrl-C or a kill the same command goes on, and ends with the same two nets: that
of the last pass and that of the best one.
"""

import os

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from highway_suite import HighwayClassifier
from highway_suite.classifier import MADE_WITH

PASSES = 50
NIGHT, BEST = "runs/night.joblib", "runs/best.joblib"
X, y = load_digits(return_X_y=True)     # put your rows here, and their labels
X, X_held, y, y_held = train_test_split(X, y, random_state=0)


def save(what, file):
    joblib.dump(what, f"{file}.part")
    os.replace(f"{file}.part", file)    # whole, or as it was


os.makedirs("runs", exist_ok=True)
net, best = HighwayClassifier(depth=30, random_state=0), -1
scaler = StandardScaler()               # or another transformer of rows
wanted = net.get_params()
made = [wanted.pop(name) for name in MADE_WITH]      # these must stay
key = joblib.hash((made, repr(scaler), X, y))
scaler.fit(X)
if os.path.exists(NIGHT):
    scaler, net, best, old = joblib.load(NIGHT)
    if old != key:
        raise SystemExit(f"{NIGHT} is of another table, scaler or net: delete it and "
                         f"{BEST}")
    net.set_params(**wanted)
while getattr(net, "n_iter_", 0) < PASSES:
    net.partial_fit(scaler.transform(X), y, classes=sorted(set(y)))
    score = net.score(scaler.transform(X_held), y_held)
    if score >= best:                   # few rows give many equal ones
        best = score
        save((scaler, net), BEST)
    save((scaler, net, best, key), NIGHT)
    print(f"pass {net.n_iter_}: {score:.3f}", flush=True)

scaler, net = joblib.load(BEST)
print(f"best on held-out rows: {net.score(scaler.transform(X_held), y_held):.3f}")
