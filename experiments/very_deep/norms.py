"""How large are signal and gradient along 100 untrained layers of every form?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

import highway_networks as hn
from experiments.lab.drawing import colour_of
from experiments.judging import listed
from experiments.lab.papers import name_of


class Line(NamedTuple):
    """A line of the figure."""

    block: str
    gate_bias: float | None     # None where it has no gate


def configs(protocol: dict) -> dict[tuple[Line, int], dict]:
    """The trials by form and seed."""
    own = protocol["norms"]
    return {(Line(block, bias), seed): {
        "part": "norms", "block": block, "depth": own["depth"] - 1, "seed": seed,
        "gate_bias": 0.0 if bias is None else bias, "images": own["images"],
        "dataset": protocol["dataset"]} for seed in own["seeds"] for block in hn.BLOCKS
        for bias in (own["gate_biases"] if hn.BLOCKS[block].gates else [None])}


def rms(values: np.ndarray) -> float:
    """Root of the mean square over all of an array."""
    return float(np.sqrt(np.mean(np.square(values, dtype="float64"))))


@contextmanager
def watching(net: hn.DeepNet) -> Iterator[list[float]]:
    """Yield a list; until the end each block's backward pass appends the rms of its
    dy, the last layer's first. The pass itself is the same."""
    block, found = net.block, []

    def backward(d, *rest):
        found.append(rms(d))
        block.backward(d, *rest)
    net.block = block._replace(backward=backward)
    try:
        yield found
    finally:
        net.block = block


def train(config: dict, data: hn.Data) -> dict:
    """An untrained net -> rms of the projection's and all blocks' outputs (L + 1,), and
    of dL/dy of each block (L,), L being the loss of one image."""
    images = config["images"]
    settings = hn.Config(init="glorot", n_train=images, n_test=1, **{
        name: config[name] for name in ("block", "depth", "gate_bias", "seed")})
    data = hn.scale_pixels(hn.take_subset(data, settings))
    net = hn.make_net(settings, data)
    with np.errstate(all="ignore"):
        logits, cache = net.forward(np.ascontiguousarray(data.x_train.T))
        outputs = [rms(y) for y in cache.x[:, :net.hidden]]
        with watching(net) as gradients:
            net.backward(images * hn.cross_entropy(logits, data.y_train)[1], cache)
    return {"output": listed(outputs, 3), "gradient": listed(gradients[::-1], 3)}


def describe(found: dict[tuple[Line, int], dict], own: dict) -> list[dict]:
    """One entry per form and b_T: medians over seeds, per layer."""
    forms: dict[Line, list] = {}
    for (form, _), result in found.items():
        forms.setdefault(form, []).append(result)
    return [form._asdict() | {
        name: listed(np.median(np.array([result[name] for result in results], float),
                               axis=0), 3) for name in ("output", "gradient")}
        for form, results in forms.items()]


def draw(axes: Axes, forms: list[dict], name: str, title: str) -> None:
    """A line for each form over its layers, dashed for all b_T but the first; full is
    drawn thick, for it hides behind coupled."""
    first = min((form["gate_bias"] for form in forms if form["gate_bias"] is not None),
                key=abs)
    for form in forms:
        layers = len(form["gradient"])
        label = name_of(form["block"]) + ("" if form["gate_bias"] is None else
                                          f" {form['gate_bias']:g}")
        thick, solid = form["block"] == "full", form["gate_bias"] in (None, first)
        axes.plot(np.arange(layers + 1)[-len(form[name]):], np.array(form[name], float),
                  color=colour_of(form["block"]), label=label,
                  linewidth=3.5 if thick else 1.4, zorder=1 if thick else 2,
                  linestyle="-" if solid else (0, (3, 1.2)))
    axes.set(yscale="log", xlabel="layer after the projection", title=title)
