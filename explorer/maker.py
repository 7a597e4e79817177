"""Sources, weights and records -> docs/explorer.html and docs/explorer.png.

The page has two rooms. In the first the highway, the residual and the plain net of
results/ are computed in the browser: a reader closes, shuffles or freezes blocks and
draws digits. In the second two nets are trained in the page. It is one file, opened by
a double click, and asks for nothing from anywhere. This maker puts its sources together
with weights, images and colours, and puts into the text every number that comes from a
record. The picture is what other sites show of a link to the page.

    python3 -m explorer             needs no MNIST and no network
    python3 -m explorer --count     reads all test images of MNIST, for counts.json

A weight is kept as a whole number of 24 bits and a scale for its row: four characters
of base64, where float32 takes five and a third. What that changes in a logit is less
than what float32 arithmetic does.
"""

from __future__ import annotations

import argparse
import base64
import html
import io
import json
import re
import sys

import matplotlib
import numpy as np
from matplotlib.colors import LinearSegmentedColormap, to_hex
from matplotlib.figure import Figure

import highway_networks as hn
import highway_suite
from experiments.nets.probes import passes
from experiments.trained_nets.claims import least_stages, staged
from highway_suite.datasets import DATASETS
from highway_suite.figures import COLOURS, GATE_COLOURS, TINTS
from highway_suite.files import expanded, parse_json, read_file, write_file
from highway_suite.nets import load_net, mnist_images, weights_hash
from highway_suite.records import RecordError

SITE = ""               # the address of docs/ on its host, with a slash at its end
NETS = "results/trained_nets"   # the folder of the trained nets and their record
ARITHMETIC = ("machine", "trainer")     # what the worker is made of, too
SCRIPTS = ("page", "nets", "state", "digit", "draw", "view", "touch", "walk", "app",
           "playground", "start")
BLOCKS = ("highway", "residual", "plain")
EACH = 4                # images of each class: those of highway_suite/mnist40
IMAGES_RULE = f"The first {EACH} of each digit among MNIST's test images, in its order."
SHOWN, CLOSED = 8, (20, 35)     # what a visitor sees first: image, closed blocks
COUNTS = "explorer/counts.json"
OUTPUT_COLOURS = "RdBu_r"
DARK = {"page": "#0D1117", "text": "#F0F6FC", "muted": "#9DA5AE", "rule": "#2D333B",
        "highway": "#56B4E9"}       # what differs where a reader prefers the dark
STEPS = 33              # of a colour scale
MOST_RESIDUAL = 15      # where the colours of the residual net's outputs end


# --------------------------------------------------------------------------------------
# Weights, images, colours -> constants of the page


def load_record() -> dict:
    """The record of the trained nets. Raises ValueError."""
    return parse_json(read_file(hn.HERE / NETS / "record.json").decode())


def load_nets(record: dict) -> dict[str, hn.DeepNet]:
    """The first seed's nets, {block: DeepNet}. Raises RecordError."""
    nets = {block: load_net(hn.HERE / NETS / f"{block}.npz") for block in BLOCKS}
    for block, net in nets.items():
        if weights_hash(net) != record["nets"][block][0]["training"]["sha256"]:
            raise RecordError(f"{NETS}/{block}.npz: not the weights of its record")
    return nets


def pack_rows(weights: np.ndarray, biases: np.ndarray) -> bytes:
    """weights (R, K), biases (R,) -> R times: scale and bias, float32, and K integers
    of 24 bits; all little endian."""
    scales = np.abs(weights).max(axis=1).astype("<f4") / np.float32(2**23 - 1)
    scales[scales == 0] = 1
    whole = np.rint(weights.astype("f8") / scales[:, None]).astype("<i4")
    head = np.stack([scales, biases.astype("<f4")], axis=1).astype("<f4")
    bytes_of = whole.view("u1").reshape(*whole.shape, 4)[:, :, :3]
    return np.concatenate([head.view("u1").reshape(len(whole), 8),
                           bytes_of.reshape(len(whole), -1)], axis=1).tobytes()


def pack_net(net: hn.DeepNet) -> str:
    """All weights, from the pixels to the logits, as base64."""
    tensors, U = net.tensors(net.params), net.hidden
    parts = [pack_rows(tensors["W_in"], tensors["b_in"][:, 0]),
             *(pack_rows(W[:, :U], W[:, U]) for W in tensors["blocks"]),
             pack_rows(tensors["out"][:, :U], tensors["out"][:, U])]
    return base64.b64encode(b"".join(parts)).decode()


def colour_scale(name: str) -> list:
    """A colour map of the figures, in even steps."""
    return [to_hex(colour) for colour in
            matplotlib.colormaps[name](np.linspace(0, 1, STEPS))]


def base64_of(array: np.ndarray) -> str:
    """The bytes of an array, as text."""
    return base64.b64encode(array.tobytes()).decode()


def count(nets: dict[str, hn.DeepNet], data: hn.Data) -> dict[str, float]:
    """With the blocks CLOSED: the share of the test images that each net reads right,
    and of those on which the same nets are right as on the image SHOWN ("alike")."""
    x, closed = data.x_test.astype("f4") * 2 / 255 - 1, range(CLOSED[0] - 1, CLOSED[1])
    with hn.blas_threads(1):
        right = {block: data.y_test == np.concatenate([
            logits.argmax(axis=0) for _, logits, _ in passes(net, x, closed)])
            for block, net in nets.items()}
    right["alike"] = right["highway"] & right["residual"] & ~right["plain"]
    return {name: round(float(np.mean(of_all)), 4) for name, of_all in right.items()}


def constants(record: dict, nets: dict) -> str:
    """The scripts' data: nets, means of T, images, digits, colours."""
    images, labels = mnist_images()
    means = np.array(record["nets"]["highway"][0]["picture"]["T_mean"])
    thousandths = np.rint(1000 * means).astype(int).tolist()
    packed = {block: pack_net(nets[block]) for block in BLOCKS}
    digits = highway_suite.load("digits")
    parts = {part: f'{{pixels: bytesOf("{base64_of(x)}"), labels: bytesOf('
                   f'"{base64_of(y.astype("u1"))}")}}' for part, x, y in (
                       ("train", digits.x_train, digits.y_train),
                       ("test", digits.x_test, digits.y_test))}
    lines = [f"const PACKED_NETS = {json.dumps(packed)};",
             f"const MEANS = {json.dumps(thousandths, separators=(',', ':'))}"
             ".map(block => block.map(value => value / 1000));",
             f"const DEPTH = {len(means)}, UNITS = {means.shape[1]};",
             f"const MOST_MEAN = {means.max():.2g};",
             f"const MOST_RESIDUAL = {MOST_RESIDUAL};",
             f"const CONTRAST = \"{contrast()}\", START = {SHOWN};",
             "const ALIKE = \"The same is true of "
             f"{shares()['alike']} % of all test images.\";",
             f"const TEST_LABELS = {labels.tolist()};",
             f'const PACKED_IMAGES = "{base64_of(images)}";',
             f"const DIGITS = {{train: {parts['train']}, test: {parts['test']}}};",
             f"const GATE_COLOURS = {colour_scale(GATE_COLOURS)};",
             f"const OUTPUT_COLOURS = {colour_scale(OUTPUT_COLOURS)};"]
    return "\n".join(lines)


def shares() -> dict[str, str]:
    """What `count` found, in percent."""
    counts = parse_json(read_file(hn.HERE / COUNTS).decode())
    return {name: f"{100 * share:.0f}" for name, share in counts.items()}


def contrast() -> str:
    """The address of what a visitor sees first."""
    return f"#i={SHOWN}&c={CLOSED[0]}-{CLOSED[1]}"


# --------------------------------------------------------------------------------------
# Records -> the numbers of the text


def facts(record: dict) -> dict:
    """Every number of the text, by name."""
    plan = record["plan"]
    depth, hidden = (plan["net"][name] for name in ("depth", "hidden"))
    n_train, _ = DATASETS[plan["dataset"]].images
    found = {"depth": depth, "layers": depth + 1, "last": depth - 1, "hidden": hidden,
             "epochs": plan["epochs"], "n_train": f"{n_train:,}",
             "images_rule": IMAGES_RULE, "most_residual": MOST_RESIDUAL, "site": SITE,
             "contrast": html.escape(contrast()), "from": CLOSED[0], "to": CLOSED[1],
             "n_stages": f"{plan['stages']['images']:,}"}
    found |= {f"shares_{name}": share for name, share in shares().items()}
    for block in BLOCKS:
        found[f"stages_{block}"], *_ = least_stages(staged(record, block=block, seed=0))
    for block in BLOCKS:
        training = record["nets"][block][0]["training"]
        found[f"parameters_{block}"] = f"{training['parameters']:,}"
        found[f"accuracy_{block}"] = f"{100 * training['test_acc'][-1]:.1f}"
        found[f"rate_{block}"] = f"{training['lr']:g}"
    return found


def colours() -> dict:
    """The colours of the figures, for the style."""
    light = {"page": TINTS.paper, "text": TINTS.ink, "muted": TINTS.soft,
             "rule": TINTS.grid} | {kind: COLOURS[kind] for kind in BLOCKS}
    return {name: " ".join(f"--{part}: {value};" for part, value in values.items())
            for name, values in (("light", light), ("dark", light | DARK))}


# --------------------------------------------------------------------------------------
# The page


def fill(text: str, values: dict) -> str:
    """Put values in the places {{name}}. Raises KeyError for a name that is none."""
    return re.sub(r"\{\{([^{}]+)\}\}", lambda place: str(values[place[1]]), text)


def make_page(record: dict, nets: dict) -> str:
    """The whole page. Raises OSError; LookupError, TypeError or ValueError where the
    record lacks what it shows."""
    def source(name: str) -> str:
        path = hn.HERE / "explorer" / name
        return path.read_text(encoding="utf-8").rstrip("\n")

    def scripts(names: tuple) -> str:
        parts = [source(f"{name}.js").removeprefix('"use strict";\n') for name in names]
        return '"use strict";\n' + "\n\n".join(parts)
    parts = {"style.css": fill(source("style.css"), colours()),
             "data": constants(record, nets), "arithmetic": scripts(ARITHMETIC),
             "scripts": scripts(SCRIPTS)}
    return fill(source("page.html"), facts(record) | parts) + "\n"


# --------------------------------------------------------------------------------------
# The share picture


def forming(net: hn.DeepNet, image: np.ndarray, closed: range) -> np.ndarray:
    """What a net would answer if each block were the last, (C, L + 1), for an image of
    bytes (P,) with those blocks closed."""
    x = (image.astype(net.dtype) * 2 / 255 - 1)[:, None]
    _, cache = net.forward(x, closed=closed)
    return hn.softmax(cache.weights["out"] @ cache.x[:, :, 0].T)


def make_picture(nets: dict) -> bytes:
    """The PNG of 1200 x 630 that other sites show: the three answers as they form."""
    image, first, last, of_all = mnist_images()[0][SHOWN], *CLOSED, shares()
    figure = Figure(figsize=(12, 6.3), dpi=100, facecolor=TINTS.paper)
    write = {"family": "DejaVu Sans", "color": TINTS.ink}
    figure.text(0.04, 0.885, "Highway networks, to touch", size=34, weight="bold",
                **write)
    figure.text(0.04, 0.815, f"Blocks {first} to {last} of {nets['plain'].depth} are "
                "closed. Which nets still read the digit?", size=19, **write)
    axes = figure.add_axes((0.04, 0.24, 0.2, 0.381))
    axes.imshow(image.reshape(28, 28), cmap="gray_r")
    axes.axis("off")
    figure.text(0.04, 0.05, "Columns: the answer, if that block were the last. "
                f"Rows: the digits 0 to 9.\nOn {of_all['alike']} % of all test images "
                "the same nets are right.", size=17, linespacing=1.5, **write)
    for k, block in enumerate(BLOCKS):
        answers = forming(nets[block], image, range(first - 1, last))
        colour, bottom = COLOURS[block], 0.59 - 0.2 * k
        axes = figure.add_axes((0.29, bottom, 0.55, 0.15))
        axes.imshow(answers, aspect="auto", interpolation="nearest", vmin=0, vmax=1,
                    cmap=LinearSegmentedColormap.from_list("", ["#F1F4F7", colour]))
        axes.axvspan(first - 0.5, last + 0.5, color=TINTS.soft, alpha=0.15, lw=0)
        axes.axis("off")
        for digit in (0, 9):
            axes.text(-1, digit, f"{digit}", size=14, ha="right", va="center", **write)
        figure.text(0.29, bottom + 0.157, f"{block}: reads {of_all[block]} % of all "
                    "test images", size=15, weight="bold", family="DejaVu Sans",
                    color=colour)
        figure.text(0.9, bottom + 0.02, str(answers[:, -1].argmax()), size=52,
                    weight="bold", ha="center", family="DejaVu Sans", color=colour)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def main(argv: list | None = None) -> None:
    """Run the command line. Exits with 2 for a wrong flag, with 1 and one line on
    stderr if a file is wrong."""
    parser = argparse.ArgumentParser(
        prog="python3 -m explorer", description=(__doc__ or "").split("\n")[0],
        allow_abbrev=False)
    parser.add_argument("--out", type=expanded, metavar="FILE",
                        default=hn.HERE / "docs" / "explorer.html",
                        help="the page to write; its picture lies beside it, as .png")
    parser.add_argument("--count", action="store_true",
                        help=f"write {COUNTS} first; needs MNIST")
    options = parser.parse_args(argv)
    try:
        record = load_record()
        nets = load_nets(record)
        if options.count:
            counts = count(nets, highway_suite.load("mnist"))
            write_file(hn.HERE / COUNTS, json.dumps(counts).encode() + b"\n")
        page = make_page(record, nets).encode()
        write_file(options.out, page)
        write_file(options.out.with_suffix(".png"), make_picture(nets))
    except (hn.DataError, RecordError) as error:
        sys.exit(f"explorer: {error}")
    except (LookupError, TypeError, ValueError) as error:
        sys.exit(f"explorer: {NETS}/record.json lacks what the page shows "
                 f"({error!r:.80})")
    except OSError as error:
        sys.exit(f"explorer: {error.filename or options.out}: {error.strerror}")
    print(f"{options.out.name}: {len(page) / 1e6:.2f} MB")
