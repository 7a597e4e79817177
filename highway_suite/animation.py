"""A record as an animation: a frame for each epoch.

Above, the test accuracy of each net grows epoch by epoch; below, the mean transform
gate of each block of the first net that has gates moves away from where it started.

Legend: F frames.
"""

from __future__ import annotations

import imageio.v3 as iio
import numpy as np

from highway_suite import figures
from highway_suite.figures import gated_arms, plot_gates, plot_history, style
from highway_suite.pictures import caption, learns, name_panel, page, who_learns
from highway_suite.studies import Study

MOST_FRAMES = 40    # of a longer record, epochs are left out
COLOURS = 255       # of 256: one stays free to mean "as in the frame before"
LOOP = 8000         # milliseconds of motion, where no frame
SLOWEST = 600       # is shown for longer
HOLD = 3000         # milliseconds of the last frame


def frame_epochs(study: Study) -> np.ndarray:
    """The epochs to show (F,): all that the deepest nets have, or so many, evenly
    spaced, the first and the last among them."""
    epochs = np.unique(np.concatenate([epochs for arm in study.deepest
                                       for epochs in (arm.epoch, arm.T_epoch)]))
    count = min(len(epochs), MOST_FRAMES)
    return epochs[np.linspace(0, len(epochs) - 1, count).round().astype(int)]


def draw_frames(study: Study) -> list[np.ndarray]:
    """A Study -> its frames, (height, width, 3) uint8 each; the last one first, as what
    a still preview shows: in the loop it is the last."""
    frames, last = [], max(arm.epoch[-1] for arm in study.deepest)
    gated = next(iter(gated_arms(study)), None)
    with style():
        figure, curves, gates = page(who_learns(study), caption(
            study, study.deepest, "line, bar: mean over seeds; band, whisker: lowest "
            "to highest", learns(study)), 2, 1.4)
        figure.set_dpi(0.8 * figures.DPI)   # 864 pixels wide
        if gated and gated.block != "highway":
            name_panel(gates, gated)
        for epoch in np.roll(frame_epochs(study), 1):
            curves.set_title(f"epoch {epoch} of {last}", size=10, loc="right")
            for axes in (curves, gates):    # limits stay, and after one frame places
                for artist in (*axes.lines, *axes.collections, *axes.patches,
                               *axes.texts):
                    artist.remove()
            plot_history(study, curves, series="test_acc", upto=epoch)
            plot_gates(study, gates, upto=epoch)
            figure.canvas.draw()
            figure.set_layout_engine("none")
            frames.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())
    return frames


def share_palette(frames: list) -> tuple[np.ndarray, np.ndarray]:
    """Frames -> the same as indices (F, height, width) uint8 into a palette (n, 3).

    One palette serves all frames: the commonest colours of the first, which has every
    line on it; any other colour becomes the nearest of them. So no colour flickers, and
    the encoder stores no more than what moved.
    """
    packed = [frame.astype(np.uint32) @ [1 << 16, 1 << 8, 1] for frame in frames]

    def unpack(colours):
        return np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=-1)
    seen, counts = np.unique(packed[0], return_counts=True)
    palette = unpack(seen[np.argsort(-counts, kind="stable")[:COLOURS]])
    index = np.zeros(1 << 24, np.uint8)         # of every colour there can be
    for frame in packed:
        some = np.unique(frame)
        away = unpack(some)[:, None] - palette  # (some, n, 3)
        index[some] = (away**2).sum(axis=2).argmin(axis=1)
    return np.stack([index[frame] for frame in packed]), palette.astype(np.uint8)


def encode_gif(frames: list, comment: str) -> bytes:
    """Frames and what the file says of itself -> the bytes of a GIF that loops."""
    indices, palette = share_palette(frames)
    # Multiples of 10, the unit of a GIF; browsers slow down frames of less than 80.
    each = int(np.clip(LOOP / len(frames), 80, SLOWEST)) // 10 * 10
    times = [HOLD] + [each] * (len(frames) - 1)         # the held one first
    return iio.imwrite("<bytes>", indices, extension=".gif", plugin="pillow", loop=0,
                       palette=palette.tobytes(), is_batch=True, optimize=True,
                       # Pillow takes no list for one frame.
                       duration=times if len(times) > 1 else HOLD, comment=comment)
