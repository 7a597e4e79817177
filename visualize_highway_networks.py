"""Draw the records: run.json and run_sweep.json -> five pictures in viz/.

Reads records and trains nothing. Every number on a picture, its title and its caption
comes from the record. Whatever blocks a record holds are drawn.

    python3 visualize_highway_networks.py                      five PNGs, in seconds
    python3 visualize_highway_networks.py --run runs/mine.json
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from highway_suite.terminal import end_without

if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"    # Matplotlib may not know that of a notebook
try:
    from highway_suite.figures import FORMATS
    from highway_suite.files import expanded
    from highway_suite.pictures import PICTURES, record_home, render, write_pictures
    from highway_suite.studies import RUN, SWEEP, load
except (ImportError, OSError) as error:     # as where no folder can be written
    if __name__ != "__main__":
        raise
    end_without("visualize_highway_networks.py", error)


def redraw(options: argparse.Namespace) -> dict[Path, bytes]:
    """The parsed command line -> {path: bytes}. Raises RecordError and OSError."""
    home = record_home()
    run = load(options.run or home / RUN[0])
    sweep = run
    if options.sweep or (not options.run and os.path.exists(home / SWEEP[0])):
        sweep = load(options.sweep or home / SWEEP[0], SWEEP[1])
    own = options.run or options.sweep
    folder = options.out_dir or (Path("runs") if own else home) / "viz"
    return {folder / f"{name}.{options.format}": render(
        name, sweep if name == "depth_sweep" else run, options.format)
        for name in PICTURES}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="visualize_highway_networks.py", allow_abbrev=False,
        description="Draw five pictures from two records. Nothing is trained.",
        epilog="Unasked it reads run.json and run_sweep.json and writes to viz/ beside "
               "them: in the current folder, if that has a run.json, else beside this "
               "script.")
    parser.add_argument("--run", metavar="FILE", type=expanded,
                        help="a record of your own, drawn into runs/viz/; of several "
                        "depths, the deepest is drawn")
    parser.add_argument("--sweep", metavar="FILE", type=expanded,
                        help="the record of depth_sweep (default: that of --run)")
    parser.add_argument("--out-dir", metavar="FOLDER", type=expanded,
                        help="made if it is not there")
    parser.add_argument("--format", choices=FORMATS, default="png",
                        help="of the pictures (default: png)")
    return parser


def main(argv: list[str] | None = None) -> list[Path]:
    """Run the command line; return the paths written. Exits with 1, one line on stderr,
    where a record or a file is wrong."""
    parser = build_parser()
    options = parser.parse_args(argv)
    return write_pictures(parser.prog, lambda: redraw(options))


if __name__ == "__main__":
    main()
