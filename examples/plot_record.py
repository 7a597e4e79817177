"""Read a record, which checks it, and draw it.

    python3 -m examples.plot_record
"""

from pathlib import Path

from matplotlib.figure import Figure

import highway_networks as hn
from highway_suite.records import read_record

record = read_record(hn.HERE / "run_sweep.json")
figure = Figure(layout="constrained")
axes = figure.subplots()
for block in record["config"]["blocks"]:
    rows = [row for row in record["summary"] if row["block"] == block]
    axes.plot([row["depth"] for row in rows],
              [100 * row["test_acc_mean"] for row in rows], "o-", label=block)
axes.set(xlabel="blocks", ylabel="test accuracy, %", title=record["command"])
axes.legend()
Path("runs").mkdir(exist_ok=True)
figure.savefig("runs/example.png")
print("wrote runs/example.png")
