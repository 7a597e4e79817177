"""Animate a record: run.json -> highway_networks.gif, one frame for each epoch.

Above, the test accuracy of each net grows epoch by epoch; below, the mean transform
gate of each layer of the first net that has gates moves away from where it started.
Reads the record and trains nothing; the drawing is that of the five pictures.

    python3 make_highway_networks_gif.py              highway_networks.gif
    python3 make_highway_networks_gif.py --mp4        and highway_networks.mp4

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import NamedTuple

from highway_suite.terminal import end_without

try:
    import imageio.v3 as iio
    import numpy as np
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from highway_suite.figures import (
        LEARNS,
        LIGHT,
        Theme,
        accuracy_axes,
        caption,
        chosen_gates,
        draw_bars,
        draw_curves,
        fit_epochs,
        fit_gates,
        gated_arms,
        head,
        label_right,
        new_figure,
        no_gates,
        style,
        valueless,
        who_learns,
    )
    from highway_suite.files import check_target, path_of
    from highway_suite.studies import (
        RUN,
        Arm,
        Study,
        load,
        picture_home,
        record_home,
        write_pictures,
    )
except ImportError as error:
    if __name__ != "__main__":
        raise
    end_without("make_highway_networks_gif.py", error)

DPI = 120           # 900 pixels wide, as wide as a README shows it
MOST_FRAMES = 60    # of a longer record, epochs are left out
COLOURS = 255       # of 256: one stays free to mean "as in the frame before"
LOOP = 5000         # milliseconds of motion
HOLD = 3000         # milliseconds of the last frame


def frame_epochs(arms: list[Arm]) -> np.ndarray:
    """The epochs to show (F,): all that the arms hold, or so many, evenly spaced, the
    first and the last among them."""
    epochs = np.unique(np.concatenate([epochs for arm in arms
                                       for epochs in (arm.epoch, arm.T_epoch)]))
    count = min(len(epochs), MOST_FRAMES)
    return epochs[np.linspace(0, len(epochs) - 1, count).round().astype(int)]


def frame_durations(frames: int) -> list[int]:
    """Milliseconds of each frame, the held one first: multiples of 10, the unit of a
    GIF, and never below 80, since browsers slow down very short ones."""
    each = int(np.clip(LOOP / frames, 80, 400)) // 10 * 10
    return [HOLD] + [each] * (frames - 1)


class Stage(NamedTuple):
    """What stays while the epochs go by."""

    figure: Figure
    curves: Axes
    gates: Axes
    chance: tuple       # its label
    gated: Arm | None   # whose gates are shown: the first that has some


def set_stage(study: Study, theme: Theme) -> Stage:
    """Figure and axes, with their limits for the whole run."""
    arms, gated = study.deepest, next(iter(gated_arms(study)), None)
    figure, curves, gates = new_figure(
        who_learns(study), caption(
            study, arms, LEARNS, several="line, bar: mean over seeds; band, whisker: "
            "lowest to highest"), theme, panels=(2.3, 1.55))
    chance = accuracy_axes(curves, [arm.test_acc for arm in arms], study, theme,
                           any(valueless(arm.test_acc) for arm in arms))
    fit_epochs(curves, arms)
    if gated:
        fit_gates(gates, chosen_gates(gated)[1], study, theme)
        if gated.block != "highway":
            gates.text(1, 1.025, gated.block, ha="right", va="bottom", weight="bold",
                       color=theme.colour(gated), transform=gates.transAxes)
    else:
        no_gates(gates)
    return Stage(figure, curves, gates, chance, gated)


def draw_frame(study: Study, theme: Theme, stage: Stage, epoch: int) -> list[Artist]:
    """What one epoch adds to the stage. Returns the artists, to be removed again."""
    figure, curves, gates, chance, gated = stage
    clock = f"epoch {epoch} of {max(arm.epoch[-1] for arm in study.deepest)}"
    artists: list[Artist] = [figure.text(
        0.988, 1 - 0.1 / figure.get_figheight(), clock, size=12, weight="bold",
        va="top", ha="right")]
    labels = [chance]
    for arm in study.deepest:
        shown = int(np.searchsorted(arm.epoch, epoch, side="right"))
        artists += draw_curves(curves, arm, arm.test_acc, theme, shown)
        if shown:
            labels.append(head(arm, arm.test_acc, theme, shown))
    artists += label_right(curves, labels)
    if gated:
        T_epoch, T = chosen_gates(gated)
        k = np.searchsorted(T_epoch, epoch, side="right") - 1
        over = gated.diverged.all() and epoch > T_epoch[-1]
        if k >= 0 and not over:     # no gates where no net is left
            artists += draw_bars(gates, T[:, k], gated, study, theme)
    return artists


def draw_frames(study: Study) -> list[np.ndarray]:
    """A Study -> its frames, (height, width, 3) uint8 each."""
    frames = []
    with style(LIGHT):
        stage = set_stage(study, LIGHT)
        figure = stage.figure
        figure.set_dpi(DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        empty = canvas.copy_from_bbox(figure.bbox)  # drawn once: axes take most time
        for epoch in frame_epochs(study.deepest):
            canvas.restore_region(empty)
            artists = draw_frame(study, LIGHT, stage, epoch)
            for artist in sorted(artists, key=lambda artist: artist.zorder):
                figure.draw_artist(artist)
            frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
            for artist in artists:
                artist.remove()
    return frames


def share_palette(frames: list) -> tuple[np.ndarray, np.ndarray]:
    """Frames -> the same as indices (F, height, width) uint8 into a palette (n, 3).

    One palette serves all frames: the commonest colours of the last, which has every
    line on it; any other colour becomes the nearest of them. So no colour flickers, and
    the encoder stores no more than what moved.
    """
    packed = [frame.astype(np.uint32) @ [1 << 16, 1 << 8, 1] for frame in frames]

    def unpack(colours):
        return np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=-1)
    seen, counts = np.unique(packed[-1], return_counts=True)
    palette = unpack(seen[np.argsort(-counts, kind="stable")[:COLOURS]])
    index = np.zeros(1 << 24, np.uint8)         # of every colour there can be
    for frame in packed:
        index[frame] = 1
    drawn = np.flatnonzero(index)
    for some in np.array_split(drawn, len(drawn) // 1000 + 1):      # bounds the memory
        away = unpack(some)[:, None] - palette  # (some, n, 3)
        index[some] = (away**2).sum(axis=2).argmin(axis=1)
    return np.stack([index[frame] for frame in packed]), palette.astype(np.uint8)


def encode_gif(frames: list, comment: str) -> bytes:
    """Frames and what the file says of itself -> the bytes of a GIF that loops. The
    last frame comes first, as what a still preview shows; in the loop it is the last.
    """
    indices, palette = share_palette(frames)
    indices = np.roll(indices, 1, axis=0)
    times = frame_durations(len(frames))
    return iio.imwrite("<bytes>", indices, extension=".gif", plugin="pillow", loop=0,
                       palette=palette.tobytes(), is_batch=True, optimize=True,
                       # Pillow takes no list for one frame.
                       duration=times if len(times) > 1 else HOLD, comment=comment)


def encode_mp4(frames: list) -> bytes:
    """Frames -> the bytes of an MP4, its last frame repeated to be held."""
    each = frame_durations(len(frames) + 1)[-1]
    # The usual pixel format halves the colour resolution: sizes must be even.
    height, width = (size // 2 * 2 for size in frames[0].shape[:2])
    held = [frames[-1]] * (HOLD // each)
    return iio.imwrite("<bytes>", [frame[:height, :width] for frame in frames + held],
                       extension=".mp4", plugin="FFMPEG", fps=1000 / each,
                       macro_block_size=2)


def animate(options: argparse.Namespace, out: Path) -> dict[Path, bytes]:
    """The parsed command line and the GIF's place -> {path: bytes}. Raises RecordError.
    """
    study = load(options.run or record_home() / RUN[0])
    frames = draw_frames(study)
    contents = {out: encode_gif(frames, f"record SHA-256 {study.sha256}")}
    if options.mp4:
        contents[out.with_suffix(".mp4")] = encode_mp4(frames)
    return contents


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make_highway_networks_gif.py", allow_abbrev=False,
        description="Animate a record. Nothing is trained.",
        epilog="Unasked it reads run.json and writes highway_networks.gif beside it: "
               "in the current folder, if that has a run.json, else beside this "
               "script.")
    parser.add_argument("--run", metavar="FILE", type=path_of,
                        help="a record of your own; of several depths, the deepest is "
                        "drawn")
    parser.add_argument("--out", metavar="FILE", type=path_of,
                        help="the animation (default: highway_networks.gif, with --run "
                        "in the current folder, or in runs/ of the checkout)")
    parser.add_argument("--mp4", action="store_true",
                        help="also write an MP4 beside it; needs imageio-ffmpeg")
    return parser


def main(argv: list[str] | None = None) -> list[Path]:
    """Run the command line; return the paths written. Exits with 1, one line on stderr,
    where a record, a file or a library is missing or wrong."""
    parser = build_parser()
    options = parser.parse_args(argv)
    out = options.out or picture_home(bool(options.run)) / "highway_networks.gif"
    if out.suffix.lower() != ".gif" or options.out and not os.path.isdir(out.parent):
        parser.error(f"argument --out: {out} is not a .gif file in an existing folder")
    try:
        out.parent.mkdir(exist_ok=True)
        check_target(out)
    except OSError as error:
        parser.error(f"argument --out: {out}: {error.strerror}")
    if options.mp4 and importlib.util.find_spec("imageio_ffmpeg") is None:
        sys.exit("make_highway_networks_gif.py: --mp4 needs imageio-ffmpeg. Install: "
                 "pip install imageio-ffmpeg")
    return write_pictures(parser.prog, lambda: animate(options, out), out)


if __name__ == "__main__":
    main()
