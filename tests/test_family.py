"""The six blocks at equal size, and very deep nets: what is measured and concluded."""

import itertools
import json
import math

import numpy as np
import pytest
from contracts import small_batch, small_net

import highway_networks as hn
from experiments import blocks, very_deep
from experiments.common import spread
from experiments.store import hash_of, make_trial


def trial(config, result, status="ok"):
    return make_trial("0" * 32, config, status, None if status == "ok" else "why",
                      result, 0)


# --------------------------------------------------------------------------------------
# blocks


def test_smoke_of_the_six_forms(smoke):
    record, packed = smoke(blocks.EXPERIMENT)
    assert [(net["block"], net["depth"]) for net in record["nets"]] == [
        (block, depth) for depth in (3, 5) for block in blocks.PAPER]
    assert {path.stem for path in packed.iterdir()} == {
        f"{block}_{depth}" for block in blocks.PAPER for depth in (3, 5)}
    for net in record["nets"]:
        tried, chosen = net["search"], net["chosen"]
        number = int(np.argmax(tried["held_out_acc"]))
        assert chosen["lr"] == tried["lr"][number]
        assert chosen["held_out_acc"] == tried["held_out_acc"][number]
        assert ("gate_bias" in chosen) == bool(hn.BLOCKS[net["block"]].gates)
        assert len(tried["lr"]) == (4 if "gate_bias" in chosen else 2)
        for name in ("train_loss", "test_acc"):
            assert np.shape(net[name]["epochs"]) == (2, 2)
            assert net[name]["final"] == [row[-1] for row in net[name]["epochs"]]
            assert net[name]["mean"] == pytest.approx(
                np.mean(net[name]["final"]), rel=1e-5)
    assert len(record["claims"]) == 2 * len(blocks.STATEMENTS) + 2
    assert [claim["holds"] for claim in record["claims"][-2:]] == [None, None]


@pytest.mark.parametrize("depth", [10, 20, 50, 100])
@pytest.mark.parametrize("block", hn.BLOCKS)
def test_widths_match_the_highway_nets(block, depth):
    """Against every width's real net; the brute force of P1's own 71 units is one."""
    def count(hidden, kind=block):
        made = blocks.count_parameters(kind, depth, hidden, "mnist")
        if hidden in (41, 50, 71):
            assert made == hn.DeepNet(kind, depth - 1, hidden).params.size
        return made
    target, found = count(50, "highway"), blocks.match_width(block, depth, "mnist")
    distances = {hidden: abs(count(hidden) - target) for hidden in range(1, 150)}
    assert distances[found] == min(distances.values())
    # The widths of full are whole numbers near 41: one lies 1.35 % off.
    limit = 0.0136 if (block, depth) == ("full", 50) else 0.01
    assert distances[found] < limit * target


def test_the_held_out_images_are_training_images_and_disjoint(digits):
    numbered = digits._replace(x_train=np.arange(len(digits.x_train))[:, None])
    protocol = blocks.PROTOCOL | blocks.SMOKE
    data = blocks.hold_out(numbered, protocol)
    assert len(data.x_test) == 237
    together = np.concatenate([data.x_train, data.x_test])[:, 0]
    assert sorted(together) == list(range(len(digits.x_train)))
    assert np.array_equal(np.concatenate([data.y_train, data.y_test]),
                          digits.y_train[together])
    other = blocks.hold_out(numbered, protocol | {"split_seed": 1})
    assert not np.array_equal(data.x_test, other.x_test)


class FakeLab:
    """A protocol and trials made at once, without a store."""

    def __init__(self, protocol, data, fake=None):
        self.protocol, self.load_data, self.fake = protocol, lambda: data, fake

    def trials(self, train, configs, data):
        return [trial(config, self.fake(config) if self.fake else
                      train(json.loads(json.dumps(config)), *data))
                for config in configs]


def test_no_test_image_chooses_anything(digits):
    """Poisoned test labels change the final accuracies and no choice."""
    tiny = blocks.PROTOCOL | blocks.SMOKE | {
        "depths": [3], "seeds": [0], "epochs": 1, "gate_biases": [-1.0]}
    poisoned = digits._replace(x_test=255 - digits.x_test, y_test=9 - digits.y_test)
    clean, other = (blocks.run(FakeLab(tiny, data))["nets"]
                    for data in (digits, poisoned))
    for one, two in zip(clean, other):
        for name in ("search", "chosen", "train_loss"):
            assert one[name] == two[name]
        assert one["test_acc"] != two["test_acc"]


def test_best_is_the_first_of_the_highest():
    assert blocks.best([0.2, 0.9, None, 0.9]) == 1
    assert blocks.best([None, 0.0]) == 1
    assert blocks.best([None, None]) == 0


def test_compare_asks_for_ranges_that_do_not_overlap():
    assert blocks.compare([0.9, 0.8], [0.7, 0.79]) == "ahead of"
    assert blocks.compare([0.7, 0.79], [0.9, 0.8]) == "behind"
    assert blocks.compare([0.9, 0.8], [0.8, 0.7]) == "level with"
    assert blocks.compare([0.9, None], [0.8, 0.7]) == "level with"
    assert blocks.compare([0.9, 0.8], [None, None]) == "ahead of"
    # Of all orders of ten different numbers, five each: 1 in 252 puts one form ahead.
    splits = [set(chosen) for chosen in itertools.combinations(range(10), 5)]
    ahead = [chosen for chosen in splits if blocks.compare(
        sorted(chosen), sorted(set(range(10)) - chosen)) == "ahead of"]
    assert (len(splits), len(ahead)) == (252, 1)


def fake_nets(errors, depth=50):
    """Nets of one depth whose two seeds differ by 0.2 % around 1 - errors[form] %."""
    return [{"block": form, "depth": depth,
             "test_acc": spread(final) | {"final": final}}
            for form, error in errors.items()
            for final in [[1 - (error - 0.1) / 100, 1 - (error + 0.1) / 100]]]


def test_the_papers_ranking_is_judged_relation_by_relation():
    paper = {"plain": 8.1, "residual": 8, "t_only": 5, "c_only": 2, "highway": 2.1,
             "full": 1.95}

    def verdicts(**changed):
        return [claim["holds"] for claim in blocks.check_ranking(
            fake_nets(paper | changed), 50)]
    assert verdicts() == [True, True, True, True]
    assert verdicts(t_only=7.9) == [None, True, True, True]
    assert verdicts(t_only=2.1) == [True, True, True, None]
    assert verdicts(t_only=1) == [True, True, True, False]
    assert verdicts(plain=9) == [True, False, True, True]
    assert verdicts(plain=8.4) == [True, None, True, True]
    assert verdicts(highway=3) == [True, True, False, True]
    assert verdicts(residual=1) == [False, False, True, True]
    claims = blocks.check_ranking(fake_nets(paper), 50)
    assert claims[0]["ours"]["relations"][0] == "T-only ahead of Residual"
    assert claims[1]["ours"]["relations"] == ["Residual +0.10 ± 0.28 points from Plain"]
    assert claims[3]["paper"] == {"C-only": 79.15, "Coupled": 79.13, "Full": 79.09,
                                  "T-only": 82.94}
    lost = fake_nets(paper, 50)
    lost[1]["test_acc"]["final"][0] = None
    assert blocks.check_ranking(lost, 50)[1]["holds"] is None


def plain_net(depth, losses, accuracies):
    return {"block": "plain", "depth": depth, "train_loss": {"final": losses},
            "search": {"held_out_acc": accuracies}}


def test_verdicts_on_plain_nets():
    def verdicts(*deep):
        return [claim["holds"] for claim in blocks.check_plain(
            [plain_net(10, [0.1, 0.2], [0.9]), *deep])]
    assert verdicts(plain_net(20, [2.3, 2.3], [0.1])) == [None, None]
    assert verdicts(plain_net(50, [2.3, None], [0.1, None])) == [True, True]
    assert verdicts(plain_net(50, [0.3, 0.21], [0.1, 0.5])) == [True, False]
    assert verdicts(plain_net(50, [2, 2], [None]),
                    plain_net(100, [0.2, 3], [0.49])) == [False, True]


def test_a_diverged_seed_has_no_value():
    protocol = blocks.PROTOCOL
    ok = {"status": "ok", "train_loss": [2.0, 1.0], "acc": [0.5, 0.6]}
    lost = {"status": "diverged", "train_loss": [2.0, None], "acc": [0.1, None]}
    net = blocks.describe_net(("residual", 20), protocol, [None, 0.4, 0.3, None, 0.2], [
        trial({}, ok), trial({}, lost)])
    assert net["test_acc"] == {"final": [0.6, None], "mean": 0.6, "std": None,
                               "n": 1, "epochs": [[0.5, 0.6], [0.1, None]]}
    assert net["chosen"] == {"lr": 3e-4, "held_out_acc": 0.4, "at_edge": []}
    setting = {"lr": protocol["lrs"][0], "gate_bias": protocol["gate_biases"][-1]}
    assert blocks.at_edge(setting, protocol) == ["lr", "gate_bias"]
    assert net["above_highway"] == pytest.approx(136498 / 136660 - 1, rel=1e-5)


def test_trials_of_the_six_forms(digits):
    """Search and seeds never share a trial; seeds and settings are outermost."""
    seen = []
    protocol = blocks.PROTOCOL | {"dataset": "digits", "held_out": 237}

    def fake(config):
        seen.append(config)
        assert ("split_seed" in config) == (config["n_train"] == 1200)
        return {"status": "ok", "train_loss": [0.1], "acc": [0.9]}
    blocks.run(FakeLab(protocol, digits, fake))
    assert len({hash_of(config) for config in seen}) == len(seen) == 280 + 120
    assert {(c["n_train"], c["n_test"], c["epochs"]) for c in seen[:280]} == {
        (1200, 237, 3)}
    assert {(c["n_train"], c["n_test"], c["epochs"]) for c in seen[280:]} == {
        (1437, 360, protocol["epochs"])}
    assert [c["seed"] for c in seen[280:]] == [s for s in range(5) for _ in range(24)]
    assert len({(c["block"], c["depth"]) for c in seen[:24]}) == 24


# --------------------------------------------------------------------------------------
# very_deep: the use of layers


def gated_net(open_layers, depth=8):
    """A net whose gates are exactly 1 in some layers and exactly 0 in the others, and
    images with the labels it gives them, of small loss."""
    net = hn.DeepNet("highway", depth, 10, inputs=12, gate_bias=-100.0, init="glorot")
    weights = net.views(net.params)
    weights["W_T"][...] = 0
    weights["b_T"][open_layers] = 100
    weights["W_out"] *= 40
    x = np.random.default_rng(5).normal(size=(64, 12)).astype("float32")
    return net, x, net.predict(x.T)


MEASURE = {"batch": 32, "kept": [1, 2, 3, 5, 50], "lesioned": 2}


def test_a_net_that_uses_its_first_three_layers():
    net, x, labels = gated_net([0, 1, 2])
    start, _, _ = gated_net([0, 1, 2, 5])
    used = very_deep.measure_use(net, start, x, labels, MEASURE)
    assert (used["layers"], used["open"], used["open_before"]) == (8, 3, 4)
    assert used["prefix"] == 3 and used["moved"] == 0
    assert used["kept"]["layers"] == [1, 2, 3, 5]
    loss, kept = used["loss"], used["kept"]["loss"]
    assert min(kept[:2]) > 2 * loss and kept[2:] == pytest.approx([loss] * 2, rel=5e-3)
    assert used["lesions"]["first"] == [0, 2, 4, 6]
    lesions = used["lesions"]["loss"]
    assert min(lesions[:2]) > 2 * loss
    assert lesions[2:] == pytest.approx([loss] * 2, rel=5e-3)
    assert used["curves"]["T"] == [1, 1, 1, 0, 0, 0, 0, 0]
    assert min(used["curves"]["change"][:3]) > 0.1
    assert used["curves"]["change"][3:] == [0] * 5
    assert used["closed_loss"] > 2 * loss
    assert very_deep.uses_more(used, 2) and not very_deep.uses_more(used, 3)


def test_the_layers_in_use_may_lie_anywhere():
    """Three scattered layers need a prefix of seven, but no more than three are kept;
    so the net does not use more than three."""
    net, x, labels = gated_net([1, 4, 6])
    used = very_deep.measure_use(net, net, x, labels, MEASURE)
    assert (used["open"], used["prefix"]) == (3, 7)
    assert very_deep.uses_more(used, 3) is False and very_deep.uses_more(used, 2)
    assert very_deep.uses_more(used, 4) is None     # not measured


def test_the_losses_of_cut_nets_are_those_of_closed_layers():
    """One pass instead of one for each k; and the other two curves, one by one."""
    net = hn.DeepNet("highway", 5, 10, inputs=12, gate_bias=-0.5, init="glorot")
    x, labels = small_batch(1, 64, "float32")[0].T, np.arange(64) % 10
    T, change, cut = very_deep.probe(net, x, labels, 16)
    assert cut == pytest.approx([very_deep.loss_of(net, x, labels, 64, range(k, 5))
                                 for k in range(6)], rel=1e-5)
    assert T == pytest.approx(net.gates(x.T).mean(axis=(1, 2)), rel=1e-5)
    outputs = net.block_outputs(x.T)
    assert change == pytest.approx(
        ((outputs[1:] - outputs[:-1]) ** 2).mean(axis=(1, 2)), rel=1e-4)


def test_movement_counts_weights_and_no_biases():
    net, start = (hn.DeepNet("highway", 4, 6, inputs=12, seed=2) for _ in range(2))
    weights = net.views(net.params)
    for name in ("W_H", "W_T"):
        weights[name][1] *= 1.5
    weights["W_H"][2, 0, 0] += 1
    weights["b_T"][3] += 7
    weights["W_in"][...] = 0
    norm = math.sqrt(sum((start.views(start.params)[name][2] ** 2).sum()
                         for name in ("W_H", "W_T")))
    assert very_deep.movement(net, start) == pytest.approx([0, 0.5, 1 / norm, 0],
                                                           rel=1e-5)


def test_gates_that_start_at_minus_20_carry_to_rounding(digits):
    """In float32 T is 0 or a few 2^-25, trained or not, and the depth is all one."""
    config = {"depth": 3, "gate_bias": -20.0, "epochs": 2, "lr": 5e-3, "batch": 64,
              "hidden": 50, "init": "glorot", "dataset": "digits", "seed": 0,
              "n_train": 640, "n_test": 360}
    result, net, start, data = very_deep.train_highway(config, digits)
    for one in (start, net):
        assert set(2 ** 25 * np.unique(one.gates(data.x_train.T))) <= {0, 1, 2, 3, 4}
    used = very_deep.measure_use(net, start, data.x_train, data.y_train, MEASURE)
    assert used["prefix"] == 0 and used["open"] == 0
    assert used["closed_loss"] == pytest.approx(used["loss"], rel=1e-5)
    deeper = very_deep.train_map(config | {"depth": 9}, *digits)
    assert deeper["train_loss"] == pytest.approx(result["train_loss"], rel=1e-5)
    assert deeper["test_acc"] == result["test_acc"] > 0.8


# --------------------------------------------------------------------------------------
# very_deep: norms and the tutorial


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_watching_leaves_the_gradient_alone(block):
    net, (x, labels) = small_net(block, 4), small_batch()
    own, passes = net.block, []
    for watched in (False, True):
        logits, cache = net.forward(x)
        dlogits = hn.cross_entropy(logits, labels)[1]
        if watched:
            with very_deep.watching(net) as found:
                passes.append(net.backward(dlogits, cache).copy())
        else:
            passes.append(net.backward(dlogits, cache).copy())
    assert np.array_equal(*passes) and net.block is own
    last = net.views(net.params)["W_out"].T @ dlogits
    assert len(found) == 4 and found[0] == pytest.approx(very_deep.rms(last), rel=1e-12)
    # dL/dy of the first block, by central differences.
    y, step = net.block_outputs(x)[1], 1e-6
    dy = np.zeros_like(y)
    for at in np.ndindex(*y.shape):
        nudge = np.zeros_like(y)
        nudge[at] = step
        dy[at] = (loss_after(net, y + nudge, labels)
                  - loss_after(net, y - nudge, labels)) / (2 * step)
    assert found[-1] == pytest.approx(very_deep.rms(dy), rel=1e-5)


def loss_after(net, y, labels):
    """The loss of a net whose first block has the outputs y (U, B)."""
    _, cache = net.forward(np.zeros((net.inputs, y.shape[1])))
    cache.x[1, :net.hidden] = y
    for W, _, _, x1, x_l, out, z, rows, gates in cache.layers[1:]:
        np.matmul(W, x1, out=z)
        hn.activate(z, rows[0], gates, net.activation, cache.half)
        net.block.forward(x_l, rows, out, cache.scratch)
    return hn.cross_entropy(net.tensors(net.params)["out"] @ cache.x[-1], labels)[0]


def test_norms_are_of_one_images_loss_and_in_the_order_of_layers(digits):
    """At b_T = -1 outputs shrink towards the end, gradients towards the start."""
    config = {"block": "highway", "depth": 6, "gate_bias": -1.0, "seed": 4,
              "dataset": "digits"}
    few, many = (very_deep.measure_norms(config | {"images": n}, *digits)
                 for n in (40, 160))
    assert (len(few["output"]), len(few["gradient"])) == (7, 6)
    assert few["output"] == sorted(few["output"], reverse=True)
    assert few["gradient"] == sorted(few["gradient"])
    assert few["gradient"] == pytest.approx(many["gradient"], rel=0.1)
    net = hn.make_net(hn.Config(init="glorot", **config), 64)
    # W_out^T (p - label): for p = 1/10 the difference has the norm 0.95.
    last = 0.95 * very_deep.rms(net.views(net.params)["W_out"])
    assert few["gradient"][-1] == pytest.approx(last, rel=0.1)


def test_watching_ends_with_an_error():
    net = small_net("highway", 2)
    own = net.block
    with pytest.raises(RuntimeError), very_deep.watching(net):
        raise RuntimeError
    assert net.block is own


def test_the_tutorials_start():
    config = {"block": "highway", "start": "tutorial", "depth": 18, "gate_bias": -2.0,
              "seed": 3, "dataset": "mnist"}
    net = very_deep.tutorial_net(config, 784)
    for name, values in net.views(net.params).items():
        if name.startswith("b_"):
            assert (values == np.float32(-2.0 if name == "b_T" else 0.1)).all()
        else:       # 0.8796: of a normal cut at two standard deviations
            assert np.abs(values).max() <= np.float32(0.2)
            assert values.std() == pytest.approx(0.08796, rel=0.06)
    he = very_deep.tutorial_net(config | {"start": "he"}, 784)
    named = he.views(he.params)
    assert not named["b_H"].any() and not named["b_out"].any()
    assert named["W_H"].std() == pytest.approx(math.sqrt(2 / 50), rel=0.02)
    assert net.activation is hn.ACTIVATIONS["relu"]


def test_the_tutorials_steps_are_on_the_summed_loss(digits, monkeypatch):
    calls, step = [], hn.train_step

    def watched(net, x, labels, cache, optimizer, lr, clip):
        calls.append((x.shape, x.min(), x.max(), lr, clip, optimizer.momentum))
        return step(net, x, labels, cache, optimizer, lr, clip)
    monkeypatch.setattr(hn, "train_step", watched)
    config = {"block": "plain", "start": "he", "depth": 3, "gate_bias": -2.0, "seed": 0,
              "dataset": "digits", "batch": 50, "lr": 0.002, "steps": 65,
              "n_train": 1437}
    result = very_deep.train_tutorial(config, *digits)
    assert result["status"] == "ok" and result["test_acc"] > 0.5
    assert len(calls) == 65                         # more than two epochs of 28
    assert {(shape, lr, clip, m) for shape, _, _, lr, clip, m in calls} == {
        ((64, 50), 50 * 0.002, 0, 0)}
    assert {low for _, low, *_ in calls} == {0} and calls[0][2] == 1
    diverged = very_deep.train_tutorial(config | {"lr": 1e6}, *digits)
    assert diverged == {"status": "diverged", "test_acc": None}


# --------------------------------------------------------------------------------------
# very_deep: trials, record, verdicts


def test_smoke_of_very_deep(smoke):
    record, packed = smoke(very_deep.EXPERIMENT)
    assert {path.stem for path in packed.iterdir()} == {
        "deep_4", "deep_12", "map", "norms", "tutorial"}
    nets = [(net["depth"], net["gate_bias"], net["seed"]) for net in record["deep"]]
    assert nets == [(4, -1, 0), (4, -1, 1), (12, -2, 0), (12, -20, 0)]
    assert all(len(net["train_loss"]) == 2 for net in record["deep"])
    assert len(record["tutorial"]) == 8 and len(record["norms"]) == 2 + 2 * 4
    for form in record["norms"]:
        assert (len(form["output"]), len(form["gradient"])) == (8, 7)
    better = record["map"]["better"]
    assert better["train_loss"] == np.minimum(*(
        record["map"][f"lr {lr:g}"]["train_loss"] for lr in (1e-3, 5e-3))).tolist()
    assert len({claim["claim"] for claim in record["claims"]}) == len(record["claims"])


def test_trials_of_very_deep_in_their_order():
    configs = very_deep.all_configs(very_deep.PROTOCOL)
    assert len({hash_of(config) for config in configs}) == len(configs)
    parts = [key for key, _ in itertools.groupby(configs, lambda c: c["part"])]
    assert parts == ["norms", "tutorial", "map", "deep", "map"]
    cells = [config for config in configs if config["part"] == "map"]
    assert len(cells) == 2 * 11 * 8
    for config in configs:
        if config["part"] in ("map", "deep"):
            hn.Config(**{name: value for name, value in config.items()
                         if name not in ("part", "measure")})
            assert config["n_test"] == 10_000


def map_trials(accuracy, depths=(10, 20, 30), biases=(0.0, -1.0, -2.0, -3.0, -20.0)):
    """A map of one learning rate that is better and one that diverges, from
    accuracy(depth, bias); its description and its part of the protocol."""
    own = {"depths": list(depths), "gate_biases": list(biases), "lrs": [1e-3, 5e-3],
           "n_train": 100, "epochs": 1}
    trials = [trial({"lr": lr, "gate_bias": bias, "depth": depth - 1},
                    {"status": "ok", "train_loss": [3.0, 1 - accuracy(depth, bias)],
                     "test_acc": accuracy(depth, bias)} if lr == 5e-3 else
                    {"status": "diverged", "train_loss": [3.0, None], "test_acc": None})
              for lr in own["lrs"] for bias in biases for depth in depths]
    return very_deep.describe_map(trials, {"map": own}), own


def verdicts(claims):
    return [claim["holds"] for claim in claims]


def test_verdicts_on_the_map():
    record, own = map_trials(lambda depth, bias: 0.9 if depth <= -10 * bias else 0.1)
    assert record["better"]["lr"][0] == [5e-3] * 3
    assert record["lr 0.001"]["train_loss"][0] == [None] * 3
    assert [row["gate_bias"] for row in record["border"]] == [-1, -2, -3]
    assert record["border"][1]["sum_of_T"] == pytest.approx(19 / (1 + math.e ** 2),
                                                            rel=1e-5)
    # The guideline fits exactly.
    assert verdicts(very_deep.check_map(record, own)) == [True, True, True]
    record, own = map_trials(lambda depth, bias: 0.9 if -20 < bias < 0 else 0.1)
    assert verdicts(very_deep.check_map(record, own)) == [True, False, True]
    for best, verdict in ((0.908, True), (0.912, None), (0.92, False)):
        record, own = map_trials(lambda depth, bias: best if bias == -20 else 0.904)
        assert verdicts(very_deep.check_map(record, own)) == [verdict, True, False]
    ours = very_deep.check_map(record, own)[0]["ours"]
    assert ours["20 layers"] == {"b_T -2": 0.904, "b_T -20": 0.92}
    record, own = map_trials(lambda depth, bias: 0.1, depths=(10, 1000))
    assert verdicts(very_deep.check_map(record, own)) == [None, None, True]
    assert record["border"][0] == {"depth": 10, "gate_bias": None, "sum_of_T": None,
                                   "all_below_train": None}


def deep_net(depth, bias, accuracy, loss=0.1, seed=0, status="ok", **used):
    own = {"layers": depth - 1, "loss": loss, "open": 0, "open_before": 0, "prefix": 0,
           "moved": 0, "closed_loss": loss,
           "kept": {"layers": [10, 50], "loss": [loss, loss]}}
    return {"depth": depth, "gate_bias": bias, "seed": seed, "status": status,
            "train_loss": [1.0, loss if status == "ok" else None], "test_acc": accuracy,
            "used": own | used if status == "ok" else None}


def test_verdicts_on_1000_layers():
    """The b_T is chosen by training loss; the better test accuracy does not count."""
    many = {"prefix": 900, "kept": {"layers": [10, 50], "loss": [0.9, 0.12]}}
    few = {"prefix": 900, "kept": {"layers": [10, 50], "loss": [0.9, 0.105]}}
    early = many | {"prefix": 50}
    nets = [deep_net(1000, -7.0, 0.96, **many), deep_net(1000, -5.0, 0.99, loss=0.2),
            deep_net(100, -3.0, 0.975), deep_net(100, -3.0, 0.967, seed=1)]
    assert verdicts(very_deep.check_deep(nets)) == [True, True, True]
    nets[0] = deep_net(1000, -7.0, 0.94, **few)
    nets[3] = deep_net(100, -3.0, 0.963, seed=1)
    assert verdicts(very_deep.check_deep(nets)) == [False, False, False]
    nets[2] = deep_net(100, -3.0, None, status="diverged")
    assert verdicts(very_deep.check_deep(nets[1:])) == [True, None, False]
    both = [deep_net(1000, -7.0, 0.96, seed=seed, **used)
            for seed, used in ((0, many), (1, early))]
    assert very_deep.check_use(both)["holds"] is False, "one seed does not"
    lost = [deep_net(1000, -7.0, 0.96, **many),
            deep_net(1000, -7.0, None, seed=1, status="diverged")]
    assert very_deep.check_use(lost)["holds"] is False, "one seed diverged"
    stalled = [deep_net(1000, -4.0, 0.11, **many), deep_net(1000, -7.0, 0.9, **few)]
    assert very_deep.check_use(stalled)["holds"] is False, "one does not train"
    unknown = deep_net(1000, -7.0, 0.9, kept={"layers": [10], "loss": [0.9]})
    assert very_deep.check_use([unknown])["holds"] is None
    assert verdicts(very_deep.check_deep([deep_net(1000, -7.0, 0.95, **early)])) == [
        True, None, False]
    assert verdicts(very_deep.check_deep([])) == [None, None, None]


def test_verdicts_on_the_tutorial():
    carrying = deep_net(1000, -20.0, 0.951)
    assert verdicts(very_deep.check_carrying([carrying])) == [True, True]
    assert verdicts(very_deep.check_carrying(
        [deep_net(1000, -20.0, 0.9, closed_loss=0.1002)])) == [False, False]
    assert verdicts(very_deep.check_carrying([])) == [None, None]

    def arms(own, he):
        return [{"block": "plain", "start": start, "lr": lr, "test_acc": values}
                for start, lr, values in (("tutorial", 0.01, own), ("he", 0.001, he))]
    assert verdicts(very_deep.check_tutorial(arms([0.11, None], [0.1, 0.9]))) == [
        True, True]
    assert verdicts(very_deep.check_tutorial(arms([0.11, 0.16], [0.8, 0.9]))) == [
        False, False]
    assert verdicts(very_deep.check_tutorial(arms([0.7, 0.1], [0.8, None]))) == [
        False, True]


def test_a_diverged_trial_of_very_deep_has_no_value():
    config = {"depth": 999, "gate_bias": -5.0, "seed": 0}
    lost = {"status": "diverged", "train_loss": [2.0, None], "test_acc": None}
    net, = very_deep.describe_deep([trial(config, lost)])
    assert net == {"depth": 1000, "gate_bias": -5.0, "seed": 0, "used": None, **lost}
    assert very_deep.best_bias([net], 1000) == []
    arm = {"block": "plain", "start": "he", "lr": 0.01}
    assert very_deep.describe_tutorial([trial(arm, lost)]) == [
        arm | {"test_acc": [None]}]
