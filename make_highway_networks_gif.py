"""Animate a record: run.json -> highway_networks.gif, one frame for each epoch.

Above, the test accuracy of the highway and the plain net grows epoch by epoch; below,
the mean transform gate of each layer of the highway net moves away from where it
started. Reads the record and trains nothing; the drawing is that of the five pictures.

    python3 make_highway_networks_gif.py              highway_networks.gif
    python3 make_highway_networks_gif.py --mp4        and highway_networks.mp4

Legend: S seeds, E epochs, K epochs whose gates were recorded, L blocks (the depth).
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -e ."
try:
    import imageio.v3 as iio
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    import visualize_highway_networks as viz
    from highway_suite.records import RecordError
except ImportError as error:
    if __name__ != "__main__":
        raise
    library = str(error.name).split(".")[0]
    raise SystemExit(
        f"make_highway_networks_gif.py needs {library}. Install: {INSTALL}")

DPI = 120           # 900 pixels wide, as wide as a README shows it
MOST_FRAMES = 60    # of a longer record, epochs are left out
COLOURS = 255       # of 256: one stays free to mean "as in the frame before"
LOOP = 5000         # milliseconds of motion
HOLD = 3000         # milliseconds of the last frame


def frame_epochs(arms):
    """The epochs to show (F,): all that the arms hold, or so many, evenly spaced, the
    first and the last among them."""
    epochs = np.unique(np.concatenate([epochs for arm in arms
                                       for epochs in (arm.epoch, arm.T_epoch)]))
    count = min(len(epochs), MOST_FRAMES)
    return epochs[np.linspace(0, len(epochs) - 1, count).round().astype(int)]


def frame_durations(frames):
    """Milliseconds of each frame: multiples of 10, the unit of a GIF, and never below
    80, since browsers slow down very short ones."""
    each = int(np.clip(LOOP / frames, 80, 400)) // 10 * 10
    return [each] * (frames - 1) + [HOLD]


def set_stage(study, theme):
    """What stays: figure, the two axes with their limits for the whole run, and the
    label of chance."""
    arms = list(study.arms[study.depth].values())
    figure, curves, gates = viz.new_figure(
        f"A highway and a plain net in training, {viz.blocks(study.depth)} deep",
        viz.caption(study, arms, several="line, bar: mean over seeds; band, whisker: "
                    "lowest to highest"), theme, panels=(2.3, 1.55))
    chance = viz.accuracy_axes(curves, [arm.test_acc for arm in arms], study, theme,
                               any(viz.valueless(arm.test_acc) for arm in arms))
    viz.fit_epochs(curves, arms[0].epoch)
    T_epoch, T = viz.chosen_gates(arms[0])
    if len(T_epoch):
        viz.fit_gates(gates, T, study, theme)
    else:
        viz.no_gates(gates)
    return figure, curves, gates, chance


def draw_frame(study, theme, stage, epoch):
    """What one epoch adds to the stage. Returns the artists, to be removed again."""
    figure, curves, gates, chance = stage
    arms = list(study.arms[study.depth].values())
    clock = f"epoch {epoch} of {arms[0].epoch[-1]}"
    artists = [figure.text(0.988, 1 - 0.1 / figure.get_figheight(), clock, size=12,
                           weight="bold", va="top", ha="right")]
    labels = [chance]
    for arm in arms:
        shown = np.searchsorted(arm.epoch, epoch, side="right")
        artists += viz.draw_curves(curves, arm, arm.test_acc, theme, shown)
        if shown:
            labels.append(viz.head(arm, arm.test_acc, theme, shown))
    artists += viz.label_right(curves, labels)
    T_epoch, T = viz.chosen_gates(arms[0])
    k = np.searchsorted(T_epoch, epoch, side="right") - 1
    over = arms[0].diverged.all() and epoch > max(T_epoch, default=-1)
    if k >= 0 and not over:     # no gates where no net is left
        artists += viz.draw_bars(gates, T[:, k], study, theme)
    return artists


def draw_frames(study, theme=viz.LIGHT):
    """A Study -> its frames, (height, width, 3) uint8 each, and their epochs."""
    epochs = frame_epochs(study.arms[study.depth].values())
    frames = []
    with viz.style(theme):
        stage = set_stage(study, theme)
        figure = stage[0]
        figure.set_dpi(DPI)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        empty = canvas.copy_from_bbox(figure.bbox)  # drawn once: axes take most time
        for epoch in epochs:
            canvas.restore_region(empty)
            artists = draw_frame(study, theme, stage, epoch)
            for artist in sorted(artists, key=lambda artist: artist.zorder):
                figure.draw_artist(artist)
            frames.append(np.asarray(canvas.buffer_rgba())[..., :3].copy())
            for artist in artists:
                artist.remove()
    return frames, epochs


def share_palette(frames):
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


def encode_gif(frames, comment):
    """Frames and what the file says of itself -> the bytes of a GIF that loops."""
    indices, palette = share_palette(frames)
    times = frame_durations(len(frames))
    return iio.imwrite("<bytes>", indices, extension=".gif", plugin="pillow", loop=0,
                       palette=palette.tobytes(), is_batch=True, optimize=True,
                       # Pillow takes no list for one frame.
                       duration=times if len(times) > 1 else HOLD, comment=comment)


def encode_mp4(frames):
    """Frames -> the bytes of an MP4, its last frame repeated to be held."""
    each, hold = frame_durations(len(frames) + 1)[0], HOLD
    # The usual pixel format halves the colour resolution: sizes must be even.
    height, width = (size // 2 * 2 for size in frames[0].shape[:2])
    held = [frames[-1]] * (hold // each)
    return iio.imwrite("<bytes>", [frame[:height, :width] for frame in frames + held],
                       extension=".mp4", plugin="FFMPEG", fps=1000 / each,
                       macro_block_size=2)


def animate(options):
    """The parsed command line -> the paths written. Raises RecordError and OSError,
    each before the first file is touched."""
    study = viz.load(options.run, viz.RUN[1], gates=True)
    frames, _ = draw_frames(study)
    out = Path(options.out)
    contents = {out: encode_gif(frames, f"record SHA-256 {study.sha256}")}
    if options.mp4:
        contents[out.with_suffix(".mp4")] = encode_mp4(frames)
    viz.write_files(contents)
    return list(contents)


def build_parser():
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make_highway_networks_gif.py", allow_abbrev=False,
        description="Animate a record. Nothing is trained.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--run", metavar="FILE", default=viz.RUN[0],
                        help="the record; of several depths, the deepest is drawn")
    parser.add_argument("--out", metavar="FILE", default="highway_networks.gif",
                        help="the animation")
    parser.add_argument("--mp4", action="store_true",
                        help="also write an MP4 beside it; needs imageio-ffmpeg")
    return parser


def main(argv=None):
    """Run the command line; return the paths written. Exits with 1, one line on stderr,
    where a record, a file or a library is missing or wrong."""
    parser = build_parser()
    options = parser.parse_args(argv)
    out = Path(options.out)
    if out.suffix.lower() != ".gif" or out.is_dir() or not out.parent.is_dir():
        parser.error(f"argument --out: {out} is not a .gif file in an existing folder")
    if options.mp4 and importlib.util.find_spec("imageio_ffmpeg") is None:
        sys.exit("make_highway_networks_gif.py: --mp4 needs imageio-ffmpeg. Install: "
                 "pip install imageio-ffmpeg")
    try:
        paths = animate(options)
    except (RecordError, OSError) as error:
        sys.exit(f"make_highway_networks_gif.py: {error}")
    print("wrote " + ", ".join(map(str, paths)))
    return paths


if __name__ == "__main__":
    main()
