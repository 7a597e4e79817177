"""Animate a record: run.json -> highway_networks.gif, one frame for each epoch.

Reads the record and trains nothing; the drawing is that of the five pictures.

    python3 make_highway_networks_gif.py
    python3 make_highway_networks_gif.py --run runs/mine.json --out mine.gif
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from highway_suite.terminal import end_without

if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"    # Matplotlib may not know that of a notebook
try:
    from highway_suite.animation import draw_frames, encode_gif
    from highway_suite.files import expanded
    from highway_suite.pictures import record_home, write_pictures
    from highway_suite.studies import RUN, load
except (ImportError, OSError) as error:     # as where no folder can be written
    if __name__ != "__main__":
        raise
    end_without("make_highway_networks_gif.py", error)


def animate(record: Path, out: Path) -> dict[Path, bytes]:
    """A record's place and the GIF's -> {path: bytes}. Raises RecordError."""
    study = load(record)
    return {out: encode_gif(draw_frames(study), f"record SHA-256 {study.sha256}")}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make_highway_networks_gif.py", allow_abbrev=False,
        description="Animate a record. Nothing is trained.",
        epilog="Unasked it reads run.json and writes highway_networks.gif beside it: "
               "in the current folder, if that has a run.json, else beside this "
               "script.")
    parser.add_argument("--run", metavar="FILE", type=expanded,
                        help="a record of your own; of several depths, the deepest is "
                        "drawn")
    parser.add_argument("--out", metavar="FILE", type=expanded,
                        help="the animation (default: highway_networks.gif, with --run "
                        "in runs/)")
    return parser


def main(argv: list[str] | None = None) -> list[Path]:
    """Run the command line; return the paths written. Exits with 1, one line on stderr,
    where a record, a file or a library is missing or wrong."""
    parser = build_parser()
    options = parser.parse_args(argv)
    home = record_home()
    folder = Path("runs") if options.run else home
    out = options.out or folder / "highway_networks.gif"
    if out.suffix.lower() != ".gif":
        parser.error(f"argument --out: {out} is not a .gif file")
    record = options.run or home / RUN[0]
    return write_pictures(parser.prog, lambda: animate(record, out))


if __name__ == "__main__":
    main()
