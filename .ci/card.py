"""The card "packages: numpy, matplotlib, imageio" holds. Usage: card.py FOLDER

Two fresh environments are made in the folder. In the one with the three libraries the
programs of this checkout run: the headline, a sweep, --quick, the pictures and the GIF.
In the one with NumPy alone highway_networks.py runs in a folder that holds it and four
idx files. Every number of run.json must be that of the committed record, but for what
another processor's last bits may become in a training. MNIST lies where
$HIGHWAY_DATA_DIR says, or is fetched.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
NOT_COMPARED = ("env", "wallclock_sec", "command")


def environment_with(folder: Path, *packages: str) -> Path:
    """Make an environment -> its Python."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def run(python: Path, *words: str, cwd: Path) -> str:
    """Run a program; its lines are shown where it fails."""
    print("card:", *words, flush=True)
    done = subprocess.run([python, *words], cwd=cwd, text=True, capture_output=True,
                          env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})
    if done.returncode:
        sys.exit(f"card: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def differences(old: Any, new: Any, place: str = "") -> Iterator[str]:
    """Where two records differ: by name, length, or more than a processor may."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted((set(old) | set(new)) - set(NOT_COMPARED)):
            if name in old and name in new:
                yield from differences(old[name], new[name], f"{place}.{name}")
            else:
                yield f"{place}.{name}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{place}[{i}]")
    elif isinstance(old, float) and isinstance(new, float):
        # Training amplifies last bits, and most of all the norms of gradients.
        apart = 0.5 if "grad_norm" in place else 0.2
        if not math.isclose(old, new, rel_tol=apart, abs_tol=0.02):
            yield f"{place}: {old} {new}"
    elif old != new:
        yield f"{place}: {old} {new}"


def compare(path: Path) -> None:
    """End unless a record has the numbers of the committed one."""
    old, new = (json.loads(file.read_text(encoding="utf-8"))
                for file in (HERE / "run.json", path))
    apart = list(differences(old, new))
    if apart:
        sys.exit(f"card: {path} is not as committed:\n" + "\n".join(apart[:20]))
    apart = {"wallclock_sec": 0}
    arms = ([[run[net] | apart for net in ("highway", "plain")]
             for run in record["runs"]] for record in (old, new))
    print("card: equal to the last digit:", next(arms) == next(arms))


def main() -> None:
    work = Path(sys.argv[1])
    copy, alone = work / "checkout", work / "alone"
    ignore = shutil.ignore_patterns(".git", "runs", "results", "__pycache__", ".*cache")
    shutil.copytree(HERE, copy, ignore=ignore)
    (copy / "run.json").unlink()        # or it would be compared with itself
    python = environment_with(work / "three", "numpy", "matplotlib", "imageio")
    run(python, "highway_networks.py", "--seed", "0", cwd=copy)
    compare(copy / "run.json")
    run(python, "highway_networks.py", "--depths", "2,4", "--quick", "--out",
        "run_sweep.json", cwd=copy)
    run(python, "highway_networks.py", "--quick", cwd=copy)
    for script in ("visualize_highway_networks.py", "make_highway_networks_gif.py"):
        run(python, script, cwd=copy)
    alone.mkdir()
    shutil.copy(HERE / "highway_networks.py", alone)
    folder = os.environ.get("HIGHWAY_DATA_DIR") or "~/.cache/hinton-mnist"
    for file in Path(folder).expanduser().glob("*-ubyte.gz"):
        shutil.copy(file, alone)
    python = environment_with(work / "numpy", "numpy")
    run(python, "highway_networks.py", "--seed", "0", "--data-dir", ".", cwd=alone)
    compare(alone / "run.json")


if __name__ == "__main__":
    main()
