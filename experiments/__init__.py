"""One module per claim of the papers: `python3 -m experiments.NAME` runs it."""
