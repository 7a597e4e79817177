"""Fully connected nets of equal size; those of trained_nets: settings, images, mean.

Pixels -> one plain layer of 50 -> 49 blocks of 50, tanh -> softmax. The nets train on
images minus the mean training image. Then this mean is folded into the bias of the
first layer. The committed nets therefore take images as `hn.scale_pixels` makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

import highway_networks as hn
from highway_suite.records import RecordError

SETTINGS = {"depth": 49, "hidden": 50, "activation": "tanh", "init": "glorot",
            "gate_bias": -2.0, "batch": 128, "momentum": 0.9, "lr_decay": 0.95}
EPOCHS = 60


def matched_width(block: str, blocks: int, hidden: int, inputs: int, classes: int
                  ) -> int:
    """The width at which a form is nearest in parameters, those of a whole DeepNet of
    so many blocks, to the highway net of `hidden` units. Highway has two matrices in
    each block, and every form has at least one: no form is twice as wide."""
    def size(form, units):
        rows = units * (1 + len(hn.block_of(form, blocks).gates))
        return (inputs + 1) * units + (units + 1) * (blocks * rows + classes)
    target = size("highway", hidden)
    return min(range(1, 2 * hidden), key=lambda units: abs(size(block, units) - target))


def mean_image(data: hn.Data) -> np.ndarray:
    """The mean training image of scaled Data (P,)."""
    return data.x_train.mean(axis=0, dtype="float64").astype(data.x_train.dtype)


def centred(data: hn.Data) -> hn.Data:
    """Scaled Data -> the same minus the mean training image."""
    mean = mean_image(data)
    return replace(data, x_train=data.x_train - mean, x_test=data.x_test - mean)


def hold_out(data: hn.Data, count: int, seed: int | list[int]) -> hn.Data:
    """Data of a search: both parts are training images, and a seed draws which of them
    are held out."""
    order = np.random.default_rng(seed).permutation(len(data.x_train))
    held, rest = np.split(order, [count])
    return replace(data, x_train=data.x_train[rest], y_train=data.y_train[rest],
                   x_test=data.x_train[held], y_test=data.y_train[held])


def fold_mean(net: hn.DeepNet, mean: np.ndarray) -> None:
    """Change a net for centred images into one for scaled images, in place:
    W (x - m) = W x - W m."""
    weights = net.views(net.params)
    weights["b_in"] -= weights["W_in"] @ mean[:, None]


def make_config(settings: Mapping[str, Any], **own: Any) -> hn.Config:
    """hn.Config of momentum SGD without clipping. Settings that hn.Config does not know
    are left out, and a net's `own` values override the others."""
    known = {field.name for field in fields(hn.Config)}
    of_settings = {name: settings[name] for name in settings if name in known}
    return hn.Config(**{**of_settings, **own, "optimizer": "sgd", "clip": 0.0})


class StillGates(hn.DeepNet):
    """A highway net whose T are the same for all images: W_T is 0 and stays so, and b_T
    is learned."""

    def gradient(self, batch: tuple, cache: hn.Cache) -> tuple[dict, np.ndarray]:
        """As DeepNet's."""
        measures, grad = super().gradient(batch, cache)
        self.views(grad)["W_T"][...] = 0
        return measures, grad


def make_still(settings: hn.Config, data: hn.Data) -> StillGates:
    """As hn.make_net, with the same weights but for W_T."""
    whole = hn.make_net(settings, data)
    net = StillGates(**whole.settings, dtype=whole.dtype)
    net.params[...] = whole.params
    net.views(net.params)["W_T"][...] = 0
    return net


def train(settings: hn.Config, data: hn.Data, make: Callable = hn.make_net
          ) -> tuple[hn.DeepNet, dict]:
    """Scaled Data -> the net, which takes such images, and its history. Raises
    RecordError if it diverged."""
    images = centred(data)
    net = make(settings, images)
    history, _, status = hn.train(net, images, settings)
    if status != "ok":
        raise RecordError(f"the {settings.block} net of seed {settings.seed} diverged "
                          f"at lr {settings.lr:g}")
    fold_mean(net, mean_image(data))
    return net, history
