"""Put three trained nets into one page: explorer/ and the records -> explorer.html.

The page computes the highway, the residual and the plain net of experiments/inside.py
in the browser: a reader draws a digit, sees the gates and the answers, and closes,
shuffles or freezes layers. It is one file, opened by a double click, and asks for
nothing from anywhere. Its sources are in explorer/: page.html with all text, style.css
and the scripts, of which net.js is the forward pass. This maker puts them together with
weights, images and colours, and puts into the text every number that comes from a
record.

    python3 make_explorer.py             explorer.html; MNIST is not needed
    python3 make_explorer.py --images    choose explorer/images.npz first, from MNIST

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
import os
import re
import sys
from pathlib import Path

from highway_suite.terminal import end_without

try:
    import matplotlib
    import numpy as np
    from matplotlib.colors import to_hex

    import highway_networks as hn
    from highway_suite.datasets import obtain
    from highway_suite.figures import DARK, GATE_COLOURS, LIGHT
    from highway_suite.files import parse_json, path_of, read_file, write_file
    from highway_suite.records import load_net, weights_hash
    from highway_suite.schema import VERDICTS, RecordError
except ImportError as error:
    if __name__ != "__main__":
        raise
    end_without("make_explorer.py", error)

SCRIPTS = ("net", "state", "digit", "draw", "view", "touch", "walk", "app")
RECORDS = ("inside", "gates", "lesion", "five_nets", "very_deep")
BLOCKS = ("highway", "residual", "plain")
EACH = 4                # images of each class
IMAGES_RULE = f"The first {EACH} of each digit among MNIST's test images, in its order."
OUTPUT_COLOURS = "RdBu_r"
STEPS = 33              # of a colour scale
MOST_RESIDUAL = 15      # where the colours of the residual net's outputs end


def record_path(experiment: str) -> Path:
    """Where an experiment's record lies."""
    return hn.HERE / "results" / experiment / "record.json"


def weights_path(block: str) -> Path:
    """Where a trained net lies."""
    return hn.HERE / "results" / "inside" / f"{block}.npz"


def source_path(name: str) -> Path:
    """Where a source of the page lies."""
    return hn.HERE / "explorer" / name


# --------------------------------------------------------------------------------------
# Weights, images, colours -> constants of the page


def load_record(experiment: str) -> dict:
    """An experiment's record. Raises RecordError."""
    path = record_path(experiment)
    try:
        record = parse_json(read_file(path).decode())
        if not isinstance(record, dict) or record.get("experiment") != experiment:
            raise ValueError(f"field 'experiment' is not '{experiment}'")
    except ValueError as error:
        raise RecordError(f"{path}: {error}") from error
    return record


def load_nets(record: dict) -> dict[str, hn.DeepNet]:
    """The nets {block: DeepNet} of inside's record. Raises RecordError."""
    return {fields["block"]: load_net(weights_path(fields["block"]), fields["sha256"])
            for fields in record["nets"]}


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


def load_images() -> tuple:
    """The forty images, uint8 (40, 784), and their labels. Raises RecordError,
    OSError."""
    path = source_path("images.npz")
    try:
        with np.load(path) as archive:
            return archive["images"], archive["labels"]
    except OSError:
        raise
    except Exception as error:      # zipfile, zlib, numpy: each its own kind
        raise RecordError(f"{path} lacks what the page shows ({error!r:.80})"
                          ) from error


def choose_images(data: hn.Data) -> bytes:
    """The bytes of images.npz: by IMAGES_RULE, from uint8 MNIST."""
    rows = np.concatenate([np.flatnonzero(data.y_test == digit)[:EACH]
                           for digit in range(10)])
    file = io.BytesIO()
    np.savez_compressed(file, images=data.x_test[rows], labels=data.y_test[rows],
                        rows=rows)
    return file.getvalue()


def constants(nets: dict, gates: dict) -> str:
    """The scripts' data: nets, means of T, images, colours."""
    images, labels = load_images()
    means = np.array(gates["figure_2"]["T_mean"])
    thousandths = np.rint(1000 * means).astype(int).tolist()
    packed = {block: pack_net(nets[block]) for block in BLOCKS}
    lines = [f"const PACKED_NETS = {json.dumps(packed)};",
             f"const MEANS = {json.dumps(thousandths, separators=(',', ':'))}"
             ".map(layer => layer.map(value => value / 1000));",
             f"const DEPTH = {len(means)}, UNITS = {means.shape[1]};",
             f"const MOST_MEAN = {means.max():.2g};",
             f"const MOST_RESIDUAL = {MOST_RESIDUAL};",
             f"const TEST_LABELS = {labels.tolist()};",
             "const PACKED_IMAGES = "
             f"\"{base64.b64encode(images.tobytes()).decode()}\";",
             f"const GATE_COLOURS = {colour_scale(GATE_COLOURS)};",
             f"const OUTPUT_COLOURS = {colour_scale(OUTPUT_COLOURS)};"]
    return "\n".join(lines)


# --------------------------------------------------------------------------------------
# Records -> the numbers and verdicts of the text

GUESS = 0.8     # error of a net that guesses: the threshold of the claim on it
# The claims behind its sentences: the experiment, and how the claim begins there.
CLAIMS = {
    "biases_fell": ("five_nets", "most transform biases fall during training"),
    "sparser": ("five_nets", "T of a single example is very sparse"),
    "routing": ("five_nets", "the gates differ by class"),
    "spared": ("five_nets", "about 60 % of the layers, more than half"),
    "idle": ("five_nets", "closing one of layers 15 to 45"),
    "early": ("five_nets", "closing any one of the first 5 layers raises the loss at "
              "least tenfold"),
    "plain_breaks": ("five_nets", "a plain net (theirs: a VGG of 15 layers)"),
    "plain_guesses": ("five_nets", "the error of a plain net (theirs: a VGG of 15 "
                      "layers) without one layer is about 90 %, that of guessing, "
                      f"whichever the layer: at least {GUESS:g}"),
    "gentle_highway": ("five_nets", "highway nets stay far better than guessing"),
    "gentle_residual": ("five_nets", "residual nets stay far better than guessing"),
    "shuffled_highway": ("five_nets", "highway: the error grows smoothly"),
    "shuffled_residual": ("five_nets", "residual: the error grows smoothly"),
    "bias_by_depth": ("very_deep", "when in doubt, more negative"),
}


def share(value: float, digits: int = 0) -> str:
    """A fraction in percent."""
    return f"{100 * value:.{digits}f}"


def count(value: float) -> str:
    return f"{value:,.0f}"


def signed(value: float) -> str:
    return f"{value:+g}".replace("-", "−")


def find_claim(records: dict, name: str) -> dict:
    """The one claim of a record that begins so. Raises RecordError."""
    experiment, start = CLAIMS[name]
    found = [claim for claim in records[experiment]["claims"]
             if claim["claim"].startswith(start)]
    if len(found) != 1:
        raise RecordError(f"{record_path(experiment)}: {len(found)} claims begin "
                             f"\"{start}\"; the page needs one")
    return found[0]


def verdict(claim: dict) -> str:
    """A claim -> its verdict, as a link to the ledger."""
    word, text = VERDICTS[claim["holds"]], f"{claim['section']}: {claim['claim']}"
    return (f'<a class="claim" data-verdict="{word}" href="CLAIMS.md" '
            f'title="{html.escape(text)}">{word}<span class="unseen">, says the ledger'
            '</span></a>')


def net_facts(inside: dict) -> dict:
    """What the record of the nets says about them."""
    protocol, nets = inside["protocol"], {net["block"]: net for net in inside["nets"]}
    found = {"depth": count(protocol["depth"]), "layers": count(protocol["depth"] + 1),
             "last": count(protocol["depth"] - 1), "hidden": count(protocol["hidden"]),
             "epochs": count(nets["highway"]["epochs"])}
    for block, net in nets.items():
        found[f"parameters_{block}"] = count(net["parameters"])
        found[f"accuracy_{block}"] = share(net["test_acc"][-1], 1)
    return found


def gate_facts(gates: dict) -> dict:
    """What the record of the gates says."""
    trained = gates["sparsity"]["trained"]
    routing = {state: gates["routing"][state]["T"]["accuracy"]["means"]["all"]
               for state in ("trained", "untrained")}
    bias = gates["net"]["gate_bias"]
    return {"n_train": count(gates["n_train"]), "n_test": count(gates["n_test"]),
            "gate_bias": signed(bias), "gate_start": f"{1 / (1 + np.exp(-bias)):.2f}",
            "closed_limit": f"{gates['protocol']['closed']:g}",
            "biases_fell": share(gates["figure_2"]["fell"]),
            "closed_one": share(np.mean(trained["closed_per_example"])),
            "closed_mean": share(np.mean(trained["closed_of_mean"])),
            "routing": share(routing["trained"], 1),
            "routing_before": share(routing["untrained"], 1)}


def lesion_facts(lesion: dict) -> dict:
    """What the record of the lesions says."""
    nets, protocol = lesion["nets"], lesion["protocol"]
    factors = (np.array(nets["highway"]["one_closed"]["loss"])
               / nets["highway"]["loss"])
    first, last = protocol["idle"]
    early, idle = factors[:protocol["early"]], factors[first - 1:last]
    closed = {block: np.array(nets[block]["one_closed"]["error"]) for block in BLOCKS}
    found = {"spared": share(nets["highway"]["spared"]), "early": protocol["early"],
             "n_sampled": count(protocol["sampled"]),
             "early_least": count(early.min()), "draws": protocol["draws"],
             "early_most": count(early.max()),
             "idle_first": first, "idle_last": last,
             "idle_most": f"{idle.max():.2f}",
             "plain_least": share(closed["plain"].min(), 1),
             "residual_most": share(closed["residual"].max(), 1),
             "highway_most": share(closed["highway"].max(), 1)}
    for block in BLOCKS:
        rise = (np.mean(nets[block]["shuffled"]["error"], axis=0)[0]
                - nets[block]["sampled"]["error"][0])
        found[f"shuffled_{block}"] = share(rise, 1)
        found[f"needed_{block}"] = nets[block]["needed_layers"]
    return {name: str(value) for name, value in found.items()}


def facts(records: dict) -> dict:
    """Every number of the text, by name."""
    found = {f"bias_{row['depth']}": signed(row["gate_bias"])
             for row in records["very_deep"]["map"]["border"]
             if row["depth"] in (50, 100, 200)}
    found |= {"guess_least": share(GUESS),
              "images_rule": IMAGES_RULE, "most_residual": str(MOST_RESIDUAL)}
    found |= {f"claim {name}": verdict(find_claim(records, name)) for name in CLAIMS}
    return (found | net_facts(records["inside"]) | gate_facts(records["gates"])
            | lesion_facts(records["lesion"]))


def colours() -> dict:
    """The colours of the figures, for the style."""
    found: dict[str, str] = {}
    for name, theme in (("light", LIGHT), ("dark", DARK)):
        found |= {f"{name}.page": theme.paper, f"{name}.text": theme.ink,
                  f"{name}.muted": theme.soft, f"{name}.rule": theme.grid,
                  **{f"{name}.{block}": theme.blocks[block] for block in BLOCKS}}
    return found


# --------------------------------------------------------------------------------------
# The page


def fill(text: str, values: dict) -> str:
    """Put values in the places {{name}}. Raises RecordError for a name that is none."""
    def value(place):
        if place[1] not in values:
            raise RecordError(f"{place[0]} in explorer/ is filled by no record")
        return str(values[place[1]])
    return re.sub(r"\{\{([^{}]+)\}\}", value, text)


def make_page() -> str:
    """The whole page. Raises OSError, RecordError; LookupError, TypeError,
    AttributeError or ValueError where a record or images.npz lacks what it shows."""
    records = {name: load_record(name) for name in RECORDS}
    nets = load_nets(records["inside"])
    for name, fields in (("gates", records["gates"]["net"]),
                         ("lesion", records["lesion"]["nets"]["highway"])):
        if fields["sha256"] != weights_hash(nets["highway"]):
            raise RecordError(f"{record_path(name)}: of another net than "
                              f"{weights_path('highway')}")

    def source(name: str) -> str:
        return source_path(name).read_text(encoding="utf-8").rstrip("\n")
    scripts = [source(f"{name}.js").removeprefix('"use strict";\n') for name in SCRIPTS]
    parts = {"style.css": fill(source("style.css"), colours()),
             "data": constants(nets, records["gates"]),
             "scripts": '"use strict";\n' + "\n\n".join(scripts)}
    return fill(source("page.html"), facts(records) | parts) + "\n"


def main(argv: list | None = None) -> None:
    """Run the command line. Exits with 2 for a wrong flag, with 1 and one line on
    stderr if a file is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0],
                                     allow_abbrev=False)
    parser.add_argument("--out", type=path_of, metavar="FILE",
                        default=hn.HERE / "explorer.html", help="the page to write")
    parser.add_argument("--images", action="store_true",
                        help="choose the forty images first, from MNIST")
    parser.add_argument("--data-dir", metavar="FOLDER", type=path_of,
                        help="of the MNIST files")
    options = parser.parse_args(argv)
    if not os.path.isdir(options.out.parent):
        parser.error(f"argument --out: {options.out.parent} is not a folder")
    try:
        if options.images:
            data = obtain("mnist", options.data_dir)
            write_file(source_path("images.npz"), choose_images(data))
        page = make_page().encode()
        write_file(options.out, page)
    except (hn.DataError, RecordError) as error:
        sys.exit(f"make_explorer.py: {error}")
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        sys.exit("make_explorer.py: a record or images.npz lacks what the page shows "
                 f"({error!r:.80})")
    except OSError as error:
        sys.exit(f"make_explorer.py: {error.filename or options.out}: {error.strerror}")
    print(f"{options.out.name}: {len(page) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
