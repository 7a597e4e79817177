"""Training learns what can be learned, nothing else, and the same every time."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import highway_networks as hn

CONFIG = hn.Config(dataset="digits", depth=5, epochs=5, n_train=1437, n_test=360)


def scaled(data, config):
    return hn.scale_pixels(hn.take_subset(data, config), "digits")


def test_pixels_and_labels_as_the_net_takes_them(digits):
    data = hn.scale_pixels(digits, "digits")
    assert data.x_train.dtype == np.float32 and data.y_train.dtype == np.intp
    assert data.x_train.min() == -1 and data.x_train.max() == 1
    np.testing.assert_array_equal(data.x_train, digits.x_train / np.float32(8) - 1)


def test_subset_is_drawn_by_the_seed_without_repeats(digits, seed):
    config = dataclasses.replace(CONFIG, n_train=1000, n_test=300, seed=seed)
    marked = digits._replace(x_train=np.arange(1437)[:, None],
                             x_test=np.arange(360)[:, None])
    one, two = hn.take_subset(marked, config), hn.take_subset(marked, config)
    assert len(set(one.x_train.ravel())) == 1000 and len(set(one.x_test.ravel())) == 300
    assert np.array_equal(one.x_train, two.x_train)
    assert np.array_equal(one.y_train, digits.y_train[one.x_train.ravel()])
    other = hn.take_subset(marked, dataclasses.replace(config, seed=seed + 1))
    assert not np.array_equal(one.x_train, other.x_train)


def test_batches_are_one_shuffled_pass(rng):
    x, labels = np.arange(20.0).reshape(10, 2), np.arange(10)
    seen = [(rows.copy(), y) for rows, y in hn.batches(x, labels, 3, rng)]
    assert [rows.shape for rows, _ in seen] == [(2, 3)] * 3
    order = np.concatenate([y for _, y in seen])
    assert len(set(order)) == 9
    np.testing.assert_array_equal(np.hstack([rows for rows, _ in seen]), x[order].T)


def test_both_arms_see_the_same_batches(digits, monkeypatch, seed):
    seen = {"highway": [], "plain": []}
    step = hn.train_step

    def spy(net, x, labels, *rest):
        seen[net.settings["block"]].append((x.copy(), labels.copy()))
        return step(net, x, labels, *rest)
    monkeypatch.setattr(hn, "train_step", spy)
    config = dataclasses.replace(CONFIG, epochs=2, seed=seed)
    subset = hn.take_subset(digits, config)
    for block in seen:
        hn.train_arm(dataclasses.replace(config, block=block), subset)
    assert len(seen["highway"]) == len(seen["plain"]) == 2 * (1437 // 128)
    for one, two in zip(seen["highway"], seen["plain"]):
        assert np.array_equal(one[0], two[0]) and np.array_equal(one[1], two[1])


def test_evaluate_counts_every_image_once(digits, seed):
    """Whatever the batch: fewer images, a multiple, a remainder."""
    data = scaled(digits, CONFIG)
    net = hn.DeepNet("highway", 4, 20, inputs=64, seed=seed)
    right = np.mean(net.predict(data.x_test.T) == data.y_test)
    T = net.gates(data.x_test.T).mean(axis=(1, 2), dtype=np.float64)
    for batch in (7, 90, 128, 360, 500):
        accuracy, mean_T = hn.evaluate(net, data.x_test, data.y_test, net.cache(batch))
        assert accuracy == pytest.approx(right, abs=1e-12)
        np.testing.assert_allclose(mean_T, T, rtol=1e-5)


@pytest.mark.parametrize("block", list(hn.BLOCKS))
def test_one_batch_can_be_learned_by_heart(digits, block, seed):
    data = scaled(digits, CONFIG)
    x, labels = np.ascontiguousarray(data.x_train[:64].T), data.y_train[:64]
    net = hn.DeepNet(block, 4, 50, inputs=64, init="glorot", seed=seed)
    cache, adam = net.cache(64), hn.Adam(net.params)
    losses = [hn.train_step(net, x, labels, cache, adam, 5e-3, 5.0)[0]
              for _ in range(200)]
    assert losses[0] > 2 and losses[-1] < 0.02


def test_shuffled_labels_teach_nothing(digits, rng, seed):
    shuffled = digits._replace(y_train=rng.permutation(digits.y_train))
    config = dataclasses.replace(CONFIG, seed=seed)
    arm = hn.train_arm(config, hn.take_subset(shuffled, config))
    true = hn.train_arm(config, hn.take_subset(digits, config))
    assert arm["final_test_acc"] < 0.3 < 0.9 < true["final_test_acc"]


def test_depth_is_no_obstacle_to_highway_nets_and_is_to_plain_ones(digits, seed):
    """The paper's contrast, on the shipped digits with the headline's settings."""
    config = hn.Config(dataset="digits", n_train=1437, n_test=360, seed=seed)
    subset = hn.take_subset(digits, config)
    highway = hn.train_arm(config, subset)
    plain = hn.train_arm(dataclasses.replace(config, block="plain"), subset)
    assert highway["final_test_acc"] > 0.92
    assert plain["final_test_acc"] < 0.35 and plain["final_train_loss"] > 1.8


def test_history_and_gates(digits, seed):
    config = dataclasses.replace(CONFIG, epochs=3, gate_bias=-3.0, seed=seed)
    calls = []
    net = hn.DeepNet("highway", 5, 50, inputs=64, gate_bias=-3.0, seed=seed)
    history, layer_T, status = hn.train(net, scaled(digits, config), config,
                                        lambda *call: calls.append(call[0]))
    assert status == "ok" and calls == history["epoch"] == [1, 2, 3]
    assert [epoch for epoch, _ in layer_T] == [0, 1, 2, 3]
    assert all(len(T) == 5 and all(0 < t < 1 for t in T) for _, T in layer_T)
    assert np.mean(layer_T[0][1]) == pytest.approx(1 / (1 + np.exp(3)), rel=0.2)
    assert history["train_loss"][-1] < history["train_loss"][0]


def test_learning_rate_decays_by_epoch(digits, monkeypatch):
    used = []
    monkeypatch.setattr(hn, "train_step", lambda *a: used.append(a[5]) or (1.0, 0, 1.0))
    config = dataclasses.replace(CONFIG, epochs=3, lr=0.1, lr_decay=0.5)
    net = hn.DeepNet("plain", 1, 5, inputs=64)
    hn.train(net, scaled(digits, config), config)
    assert used[::len(used) // 3] == pytest.approx([0.1, 0.05, 0.025])


@pytest.mark.parametrize("change, loss, norm, accuracy", [
    ({}, [2.10455, 1.60245], [0.448722, 0.470482], [0.37429, 0.745739]),
    ({"block": "full", "optimizer": "sgd", "momentum": 0.5, "lr": 0.1, "lr_decay": 0.5,
      "clip": 0.5, "activation": "relu", "init": "he", "gate_bias": -1.0},
     [2.27623, 1.93292], [0.779182, 0.659324], [0.119318, 0.34446])])
def test_a_training_has_these_very_numbers(digits, change, loss, norm, accuracy):
    """In float64, where kernels agree to more digits than these: what no one meant to
    change has not changed."""
    config = hn.Config(dataset="digits", depth=3, hidden=20, epochs=2, n_train=1437,
                       n_test=360, dtype="float64", seed=5, **change)
    history = hn.train_arm(config, hn.take_subset(digits, config))["history"]
    for name, values in (("train_loss", loss), ("grad_norm", norm),
                         ("train_acc", accuracy)):
        assert history[name] == pytest.approx(values, rel=2e-5)


def test_training_takes_one_blas_thread(digits, monkeypatch):
    seen = set()

    def step(*_):
        seen.update(library["num_threads"] for library in hn.threadpool_info()
                    if library["user_api"] == "blas")
        return 1.0, 0, 1.0
    monkeypatch.setattr(hn, "train_step", step)
    config = dataclasses.replace(CONFIG, epochs=1)
    with hn.threadpool_limits(2, "blas"):
        hn.train(hn.DeepNet("plain", 1, 5, inputs=64), scaled(digits, config), config)
    assert seen == {1}


def test_the_progress_bar_draws_in_its_row(capfd):
    report = hn.reporter(hn.Config(epochs=2), 1)
    history = {"train_loss": [0.5, 0.4], "test_acc": [0.1, 0.9]}
    report(1, history)
    report(2, history)
    drawn = capfd.readouterr().err
    assert "2/2" in drawn and "loss 0.4000, test 0.9000" in drawn
    assert drawn.count("\n") == drawn.count("\x1b[A") > 0


@pytest.mark.parametrize("change", [
    dict(lr=1e3, activation="relu", clip=0.0, optimizer="sgd"),     # overflows later
    dict(gate_bias=100.0, init="he", activation="relu", lr=1e3, clip=0.0)])
@pytest.mark.parametrize("block", list(hn.BLOCKS))
def test_divergence_is_recorded_and_is_no_error(digits, change, block):
    config = dataclasses.replace(CONFIG, block=block, epochs=4, depth=20, **change)
    arm = hn.train_arm(config, hn.take_subset(digits, config))
    assert arm["status"] == "diverged"
    assert arm["final_test_acc"] is arm["final_train_loss"] is None
    assert len(arm["history"]["train_loss"]) == len(arm["history"]["epoch"]) == 4
    assert arm["final_T_per_layer"] == []
    json.loads(hn.to_json(arm))


def test_weights_that_overflow_in_the_last_step_are_noticed(digits):
    """One epoch of one step: no later loss would tell."""
    config = hn.Config(block="plain", dataset="digits", activation="relu", init="he",
                       lr=1e3, clip=0.0, epochs=1, batch=1437, n_train=1437, n_test=360)
    arm = hn.train_arm(config, hn.take_subset(digits, config))
    assert arm["status"] == "diverged" and arm["final_test_acc"] is None


def test_a_batch_larger_than_the_data_is_refused(digits):
    config = dataclasses.replace(CONFIG, batch=1438)
    with pytest.raises(ValueError, match="batch 1438 of 1437"):
        hn.train(hn.make_net(config, 64), scaled(digits, config), config)


def test_a_step_that_is_not_finite_leaves_the_weights_alone():
    net = hn.DeepNet("plain", 1, 3, inputs=4)
    before, x = net.params.copy(), np.full((4, 2), np.nan, "float32")
    with pytest.raises(hn.Diverged), np.errstate(all="ignore"):
        hn.train_step(net, x, np.array([0, 1]), net.cache(2), hn.Adam(net.params), 1, 5)
    assert np.array_equal(net.params, before)


def test_config_refuses_what_is_not_allowed():
    for name, value in (("depth", 0), ("lr", float("nan")), ("activation", "gelu"),
                        ("momentum", 1.0), ("dtype", "int8"), ("batch", -1),
                        ("depth", 2.5), ("depth", "3")):
        with pytest.raises(ValueError, match=f"{name} is .*allowed"):
            hn.Config(**{name: value})


def comparable(path):
    """The bytes of a record without `env` and the wall-clock keys."""
    def strip(value):
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items()
                    if k not in ("env", "wallclock_sec")}
        return [strip(v) for v in value] if isinstance(value, list) else value
    return hn.to_json(strip(hn.read_record(path)))


RUN = ["--dataset", "digits", "--seeds", "3,1", "--depths", "4,2", "--epochs", "2"]


def test_record_is_the_same_whatever_the_jobs(tmp_path):
    records = []
    for jobs in ("1", "2", "3"):
        path = tmp_path / jobs / "r.json"
        path.parent.mkdir()
        hn.main([*RUN, "--jobs", jobs, "--out", str(path)])
        records.append(comparable(path))
    assert records[0] == records[1] == records[2]
    runs = json.loads(records[0])["runs"]
    assert [(r["depth"], r["seed"]) for r in runs] == [(4, 3), (4, 1), (2, 3), (2, 1)]


def test_record_is_the_same_in_another_process(tmp_path):
    records = []
    for hash_seed in ("1", "2"):
        path = tmp_path / hash_seed / "r.json"
        path.parent.mkdir()
        words = [sys.executable, hn.__file__, *RUN, "--jobs", "1", "--out", path]
        subprocess.run(words, check=True, capture_output=True,
                       env={**os.environ, "PYTHONHASHSEED": hash_seed})
        records.append(comparable(path))
    assert records[0] == records[1]
