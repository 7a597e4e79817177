"""Training learns what can be learned, nothing else, and the same every time."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
import highway_suite
from highway_suite.cli import main
from highway_suite.records import numbers_of, read_record

CONFIG = hn.Config(depth=5, epochs=5, n_train=1437, n_test=360)


def trained(data, config, checkpoint=None, **change):
    """Unscaled Data -> history, gates and status of the configuration's run."""
    config = replace(config, **change)
    data = hn.scale_pixels(hn.take_subset(data, config), config.dtype)
    return hn.train(hn.make_net(config, data), data, config, checkpoint=checkpoint)


# What goes in


@pytest.mark.parametrize("name, value", [
    ("depth", 0), ("depth", 10_001), ("depth", 2.5), ("depth", "3"), ("depth", True),
    ("lr", float("nan")), ("lr", None), ("gate_bias", "automatic"), ("momentum", 1.0),
    ("batch", -1), ("activation", "gelu"), ("dtype", "int8"), ("block", "no"),
    ("lr", True)])
def test_config_refuses_what_is_not_allowed(name, value):
    with pytest.raises(ValueError):
        hn.Config(**{name: value})


def test_config_takes_the_smallest_values_and_numpys_numbers_as_pythons():
    hn.Config(seed=0, depth=1, hidden=1, epochs=1, batch=1, n_train=1, n_test=1,
              gate_bias=-100, momentum=0, clip=0)
    config = hn.Config(depth=np.int64(3), lr=np.float32(0.5), clip=2)
    assert config == hn.Config(depth=3, lr=0.5, clip=2.0)
    assert type(config.depth) is int and type(config.lr) is float


def test_subset_is_drawn_by_the_seed_without_repeats(digits, seed):
    """Training and test images alike: which, in what order, and with their labels."""
    config = replace(CONFIG, n_train=1000, n_test=300, seed=seed)
    marked = replace(digits, x_train=np.arange(1437)[:, None],
                     x_test=np.arange(360)[:, None])
    one, two, other = (hn.take_subset(marked, replace(config, seed=seed + k))
                       for k in (0, 0, 1))
    for part, size in (("train", 1000), ("test", 300)):
        drawn, again, others = (getattr(data, "x_" + part).ravel()
                                for data in (one, two, other))
        assert len(set(drawn)) == size and np.array_equal(drawn, again)
        assert not np.array_equal(drawn, others) and set(drawn) != set(others)
        labels = getattr(digits, "y_" + part)[drawn]
        assert np.array_equal(getattr(one, "y_" + part), labels)
    assert (one.classes, one.scale) == (digits.classes, digits.scale)


# One pass over the images


@pytest.mark.parametrize("images, size", [(11, 3), (10, 5)])
def test_batches_are_one_shuffled_pass(images, size, rng):
    x, labels = np.arange(2.0 * images).reshape(images, 2), np.arange(images)
    batches = hn.Batches(x, labels, size, rng)
    passes = []
    for _ in range(2):
        seen = [(rows.copy(), y) for rows, y in batches]
        assert [rows.shape for rows, _ in seen] == [(2, size)] * (images // size)
        order = np.concatenate([y for _, y in seen])
        assert len(set(order)) == images // size * size
        np.testing.assert_array_equal(np.hstack([rows for rows, _ in seen]), x[order].T)
        passes.append(order.tolist())
    assert passes[0] != passes[1]


def test_both_arms_see_the_same_batches(digits, monkeypatch, seed):
    seen, gradient = {"highway": [], "plain": []}, hn.DeepNet.gradient

    def spy(net, batch, cache):
        seen[net.settings["block"]].append([part.copy() for part in batch])
        return gradient(net, batch, cache)
    monkeypatch.setattr(hn.DeepNet, "gradient", spy)
    for block in seen:
        trained(digits, CONFIG, block=block, epochs=2, seed=seed)
    assert len(seen["highway"]) == len(seen["plain"]) == 2 * (1437 // 128)
    for one, two in zip(seen["highway"], seen["plain"], strict=True):
        assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


@pytest.mark.parametrize("block", ["highway", "c_only"])
def test_evaluate_counts_every_image_once(digits, block, monkeypatch, seed):
    """Whatever the batch: fewer images, a multiple, a remainder; in the cache given,
    unless it is too large."""
    data = hn.scale_pixels(digits)
    net = hn.DeepNet(block, 4, 20, inputs=64, seed=seed)
    right = np.mean(net.predict(data.x_test) == data.y_test)
    T = (net.gates(data.x_test).mean(axis=(0, 2), dtype=np.float64)
         if block == "highway" else [])
    for cache in [net.cache(batch) for batch in (500, 7, 90, 128, 360)]:
        accuracy, mean_T = hn.evaluate(net, data.x_test, data.y_test, cache)
        monkeypatch.setattr(net, "cache", None)
        assert accuracy == pytest.approx(right, abs=1e-12)
        np.testing.assert_allclose(mean_T, T, rtol=1e-5)


def test_pixels_that_nobody_scaled_are_refused(digits):
    config = hn.Config(depth=1, batch=10)
    with pytest.raises(ValueError):
        hn.train(hn.make_net(config, digits), digits, config)


def test_more_images_than_there_are_are_refused(digits):
    with pytest.raises(hn.DataError):
        hn.take_subset(digits, hn.Config(n_train=1438, n_test=10))
    with pytest.raises(ValueError):
        trained(digits, CONFIG, batch=1438)


# What comes out


def test_depth_is_no_obstacle_to_highway_nets_and_is_to_plain_ones(digits, seed):
    """The paper's contrast, on the shipped digits with the headline's settings."""
    config = hn.Config(n_train=1437, n_test=360, seed=seed)
    highway, plain = (trained(digits, config, block=block)[0]
                      for block in ("highway", "plain"))
    assert highway["test_acc"][-1] > 0.92
    assert plain["test_acc"][-1] < 0.35 and plain["train_loss"][-1] > 1.8


def test_history_and_gates(digits, seed):
    config = replace(CONFIG, epochs=3, gate_bias=-3.0, seed=seed)
    data, rows = hn.scale_pixels(digits), []
    net = hn.make_net(config, data)
    start = hn.evaluate(net, data.x_test, data.y_test, net.cache(128))[1]
    history, layer_T, status = hn.train(net, data, config, rows.append)
    assert status == "ok" and history["epoch"] == [1, 2, 3]
    for name, values in history.items():
        assert values == [row[name] for row in rows]
    assert layer_T.shape == (4, 5)
    assert layer_T[1:].tolist() == [row["layer_T"] for row in rows]
    assert layer_T[0] == pytest.approx(start, rel=1e-5)
    assert np.mean(start) == pytest.approx(1 / (1 + np.exp(3)), rel=0.2)
    accuracy, T = hn.evaluate(net, data.x_test, data.y_test, net.cache(128))
    assert history["test_acc"][-1] == hn.significant(accuracy)
    assert layer_T[-1] == pytest.approx(T, rel=1e-5)
    assert history["train_loss"][-1] < history["train_loss"][0]
    assert trained(digits, config, block="plain", epochs=1)[1].shape == (2, 0)


@pytest.mark.parametrize("stop", [None, 1])
def test_a_bar_is_shown_where_somebody_looks_on(digits, monkeypatch, capsys, stop):
    """And it ends with the training, also where a report ends that."""
    tqdm, ends = pytest.importorskip("tqdm"), []

    class Bar(tqdm.tqdm):
        def close(self):
            if not self.disable:
                ends.append(self.n)
            super().close()
    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    data, config = hn.scale_pixels(digits), replace(CONFIG, epochs=2)
    history, *_ = highway_suite.train(hn.make_net(config, data), data, config,
                                      lambda row: row["epoch"] == stop, progress=True)
    assert ends == [len(history["epoch"])] == [stop or 2]
    assert f"{history['test_acc'][-1]:.4f}" in capsys.readouterr().err


@pytest.mark.parametrize("change, loss, norm, accuracy", [
    ({}, [2.10455, 1.60245], [0.448722, 0.470482], [0.37429, 0.745739]),
    ({"block": "full", "optimizer": "sgd", "momentum": 0.5, "lr": 0.1, "lr_decay": 0.5,
      "clip": 0.5, "activation": "relu", "init": "he", "gate_bias": -1.0},
     [2.27623, 1.93292], [0.779182, 0.659324], [0.119318, 0.34446])])
def test_a_training_has_these_very_numbers(digits, change, loss, norm, accuracy):
    """In float64, where kernels agree to more digits than these: what no one meant to
    change has not changed."""
    history = trained(digits, CONFIG, depth=3, hidden=20, epochs=2, dtype="float64",
                      seed=5, **change)[0]
    for name, values in (("train_loss", loss), ("grad_norm", norm),
                         ("train_acc", accuracy)):
        assert history[name] == pytest.approx(values, rel=2e-5)


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_history_ends_where_the_run_diverged(digits, monkeypatch, epochs):
    """The gates' history too, which starts one row earlier."""
    class Exploding(hn.SGD):
        left = epochs * (1437 // 128)

        def step(self, params, grad, lr):
            self.left -= 1
            params[0] = 0 if self.left >= 0 else np.inf
    monkeypatch.setitem(hn.OPTIMIZERS, "sgd", lambda params, _: Exploding(params, 0))
    history, layer_T, status = trained(digits, CONFIG, optimizer="sgd", epochs=3)
    assert status == "diverged"
    assert np.isnan(layer_T).all(axis=1).tolist() == [e > epochs for e in range(4)]
    assert [value is None for value in history["test_acc"]] == [
        epoch > epochs for epoch in history["epoch"]]


# The same every time


RUN = ["--dataset", "digits", "--seeds", "3,1", "--depths", "4,2", "--epochs", "2"]


def test_a_record_is_the_same_whatever_the_jobs_and_the_process(tmp_path):
    records = [numbers_of(main([*RUN, "--jobs", jobs, "--no-save"]))
               for jobs in ("1", "2")]
    words = [sys.executable, hn.__file__, *RUN, "--jobs", "1", "--out", "r.json"]
    subprocess.run(words, check=True, capture_output=True, cwd=tmp_path,
                   env={**os.environ, "PYTHONHASHSEED": "1"})
    records.append(numbers_of(read_record(tmp_path / "r.json")))
    for record in records:
        del record["command"]
    assert records[0] == records[1] == records[2]
    runs = [(run["depth"], run["seed"]) for run in records[0]["runs"]]
    assert runs == [(4, 3), (4, 1), (2, 3), (2, 1)]
