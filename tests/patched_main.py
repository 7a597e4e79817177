"""The command line with another MNIST: patched_main.py TABLE.json WORDS..."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import highway_networks as hn
from highway_suite.cli import run_as_program

if __name__ == "__main__":
    table = json.loads(Path(sys.argv.pop(1)).read_text())
    files = tuple(hn.DataFile(name, tuple(shape), sha256)
                  for name, shape, sha256 in table["files"])
    hn.DATASETS["mnist"] = hn.DATASETS["mnist"]._replace(
        files=files, images=tuple(file.shape[0] for file in files[::2]),
        mirrors=tuple(table["mirrors"]),
        downloads=tuple(hn.Download(*facts) for facts in table["downloads"]))
    run_as_program()
