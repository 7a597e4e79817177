"""The command line with another MNIST: patched_main.py TABLE.json WORDS..."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import highway_networks as hn  # noqa: E402


def patched(table):
    """DATASETS with the files and mirrors of the table."""
    files = tuple(hn.IdxFile(*(tuple(v) if isinstance(v, list) else v for v in file))
                  for file in table["files"])
    mnist = hn.DATASETS["mnist"]._replace(files=files, mirrors=tuple(table["mirrors"]))
    return {**hn.DATASETS, "mnist": mnist}


if __name__ == "__main__":
    hn.signal.signal(hn.signal.SIGTERM, lambda *_: sys.exit(143))   # as the script
    hn.DATASETS = patched(json.loads(Path(sys.argv[1]).read_text()))
    hn.main(sys.argv[2:])
