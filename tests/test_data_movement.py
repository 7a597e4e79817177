"""The cost models against their definitions, and what a skipping net leaves alone."""

import itertools
import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import (
    data_movement,
    movement,
    skipping,
    skipping_seconds,
    tracing,
)
from experiments.lab.experiment import load_record as new_record
from experiments.nets import sizes
from experiments.old_lab import load_record as old_record
from tests import committed


def scalar_program(tape):
    """Every instruction of a tape on single numbers: (cells read, cell written). The
    sums and products of a matrix product are values of their own."""
    fresh = itertools.count(-1, -1)
    for step in tape.steps:
        if isinstance(step, tracing.Each):
            for reads in zip(step.out, *step.operands, strict=True):
                yield [int(cell) for cell in reads[1:]], int(reads[0])
            continue
        (rows, inner), columns = step.a.shape, step.b.shape[1]
        for i, j in itertools.product(range(rows), range(columns)):
            total = next(fresh) if inner > 1 else int(step.out[i, j])
            yield [int(step.a[i, 0]), int(step.b[0, j])], total
            for k in range(1, inner):
                product, before = next(fresh), total
                total = next(fresh) if k < inner - 1 else int(step.out[i, j])
                yield [int(step.a[i, k]), int(step.b[k, j])], product
                yield [before, product], total


def by_the_book(tape):
    """ByteDMD with a stack that is a list, value by value, byte by byte."""
    program, versions, last = list(scalar_program(tape)), {}, {}
    known = [int(cell) for cells in tape.begin for cell in cells]
    written = set(known)
    constants = set()
    for reads, cell in program:
        constants |= {read for read in reads if read not in written}
        written.add(cell)
    named = []
    for time, (reads, cell) in enumerate(program):
        values = [(read, versions.get(read, 0)) for read in reads]
        last.update(dict.fromkeys(values, time))
        versions[cell] = versions.get(cell, 0) + 1
        named.append((values, (cell, versions[cell])))
    for cell in constants | {int(cell) for cells in tape.kept for cell in cells}:
        last[cell, versions.get(cell, 0)] = math.inf
    stack = [(cell, 0) for cell in [*sorted(constants), *known] if (cell, 0) in last]
    cost = 0
    for time, (reads, result) in enumerate(named):
        for value in reads:
            depth = len(stack) - stack.index(value)
            cost += sum(math.isqrt(4 * depth - byte - 1) + 1 for byte in range(4))
        for value in dict.fromkeys(reads):
            stack.remove(value)
            stack.append(value)
        stack = [value for value in [*stack, result] if last.get(value, -1) > time]
    return cost


def small_net(block="highway", activation="tanh"):
    return hn.DeepNet(block, 2, 3, inputs=5, classes=3, activation=activation)


def traced(net, name, batch, optimizer=hn.Adam):
    """A tape of one pass of the net."""
    if name == "forward":
        return tracing.trace_forward(net, batch)
    return tracing.trace_steps(net, batch, optimizer(net.params))


def test_the_published_numbers():
    for row in movement.published():
        assert row["ours"] == row["published"], row


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_stack_distances_are_those_of_a_stack(block):
    for name, (batch, activation) in itertools.product(
            ("forward", "step"), ((1, "relu"), (3, "tanh"))):
        tape = traced(small_net(block, activation), name, batch)
        assert movement.movement(tape)["bytedmd"] == by_the_book(tape)


def test_overtakers_are_the_larger_before(rng):
    for size in (0, 1, 2, 3, 64, 100):
        order = rng.permutation(size)
        expected = np.zeros(size, int)
        for place, value in enumerate(order):
            expected[value] = np.count_nonzero(order[:place] > value)
        assert np.array_equal(movement.overtakers(order), expected)


def test_a_price_is_counted_byte_by_byte():
    depths = np.arange(1, 300)
    for size in (1, 4):
        assert np.array_equal(movement.price(depths, size), [
            sum(math.isqrt(size * depth - byte - 1) + 1 for byte in range(size))
            for depth in depths])


def test_addresses_follow_how_often_cells_are_read():
    # (a b + c d) + e in place, then its exit: five cells, of which a's and c's are read
    # again; the examples of the models' authors, 15 and, for a b alone, 5.
    tape = tracing.Tape()
    a, b, c, d, e = tape.cells_of(np.empty((5, 1)))
    for out, *operands in ((a, a, b), (c, c, d), (a, a, c), (a, a, e), (a, a)):
        tape.each(out, *operands)
    assert movement.movement(tape, size=1)["address"] == 15
    tape = tracing.Tape()
    a, b, c = tape.cells_of(np.empty((3, 1)))
    tape.each(c, a, b)
    tape.each(c, c)
    assert movement.movement(tape, size=1)["address"] == 5


@pytest.mark.parametrize("optimizer", [hn.Adam, lambda params: hn.SGD(params, 0.9)],
                         ids=["Adam", "SGD"])
def test_tracing_changes_no_number(optimizer, rng):
    x = rng.normal(size=(5, 4)).astype("float32")
    labels, after = rng.integers(3, size=4), []
    for is_traced in (False, True):
        net, tape = small_net(), tracing.Tape()
        if is_traced:
            net.params, = tape.load(net.params, kept=True)
            x, labels = tape.load(x, labels, kept=False)
        cache, state = net.cache(4), optimizer(net.params)
        if is_traced:
            tracing.follow_attributes(tape, cache)
            tracing.follow_attributes(tape, state)
        logits, _ = net.forward(x, cache)
        loss, dlogits = hn.cross_entropy(logits, labels)
        grad = net.backward(dlogits, cache)
        state.step(net.params, grad, hn.clip_norm(grad, 5.0))
        after.append((float(loss), np.asarray(net.params)))
    assert len(tape.steps) > 40
    assert after[0][0] == after[1][0] and np.array_equal(after[0][1], after[1][1])


def test_the_order_of_loops_does_not_change_what_is_read():
    tape = traced(small_net(), "step", 3)
    costs = movement.movement(tape)
    turned = tracing.by_columns(tape)
    assert movement.movement(turned)["bytedmd"] == by_the_book(turned)
    assert movement.movement(turned)["address"] == costs["address"]
    forgotten = tracing.forgotten(tape)
    assert movement.movement(forgotten)["bytedmd"] == by_the_book(forgotten)
    assert movement.movement(forgotten)["bytedmd"] < costs["bytedmd"]
    parts = movement.movement(tracing.by_kind(tape))["parts"]
    assert sum(parts.values()) == costs["bytedmd"] and set(parts) == {
        "products", "elements"}


def test_an_operation_that_is_not_known_is_refused(rng):
    array, = tracing.Tape().load(rng.normal(size=(3, 2)), kept=False)
    with pytest.raises(NotImplementedError, match="accumulate"):
        np.add.accumulate(array)


def of_images(net, x, labels):
    """Tapes of a forward pass and of a step on these images, x (N, P)."""
    for is_step in (False, True):
        tape, optimizer = tracing.Tape(), hn.Adam(net.params)
        if is_step:
            tape.load(optimizer.v, optimizer.m, kept=True)
        params, (net.params,) = net.params, tape.load(net.params, kept=True)
        loaded = tape.load(*(labels, x) if is_step else (x,), kept=False)
        cache = net.cache(len(x))
        tracing.follow_attributes(tape, cache)
        logits, _ = net.forward(loaded[-1].T, cache)
        if is_step:
            tracing.follow_attributes(tape, optimizer)
            _, dlogits = hn.cross_entropy(logits, loaded[0])
            grad = net.backward(dlogits, cache)
            hn.clip_norm(grad, math.inf)
            optimizer.step(net.params, grad, 1e-3)
        else:
            tape.kept.append(tape.cells_of(logits).ravel())
        net.params = params
        yield tape


@pytest.mark.parametrize("block", hn.BLOCKS)
def test_shapes_alone_decide_what_a_pass_moves(block, rng):
    """Whatever weights and images are: no seed plays a part. Which logit a label picks
    is a place in memory, and moves the last digits of a step."""
    found = {name: movement.movement(traced(small_net(block), name, 2))["bytedmd"]
             for name in ("forward", "step")}
    for seed, scale in ((0, 100), (1, 0.01), (2, 1)):   # of the gradient, too
        net = hn.DeepNet(block, 2, 3, inputs=5, classes=3, seed=seed)
        net.params *= scale
        x = scale * rng.normal(size=(2, 5)).astype("float32")
        for labels in (np.zeros(2, np.intp), np.array([1, 2])):
            forward, step = (movement.movement(tape)["bytedmd"]
                             for tape in of_images(net, x, labels))
            assert forward == found["forward"]
            assert step == pytest.approx(found["step"], rel=1e-3 * labels.any())
    assert movement.movement(traced(small_net(block), "step", 3))["bytedmd"] != (
        found["step"])


def test_a_pass_costs_the_same_wherever_its_arrays_lie():
    costs = []
    for _ in range(2):
        costs.append(movement.movement(traced(small_net(), "step", 2)))
        np.empty(12345)
    assert costs[0] == costs[1]
    assert sum(costs[0]["parts"].values()) == costs[0]["bytedmd"]


def trained_like(rng):
    """A highway net whose gates are neither open nor closed."""
    net = hn.DeepNet("highway", 4, 6, inputs=5, classes=3, gate_bias=0.0)
    net.params += rng.normal(0, 0.5, net.params.size).astype("float32")
    return net, rng.uniform(-1, 1, (5, 7)).astype("float32")


def test_a_skipping_net_is_the_net_where_nothing_is_skipped(rng):
    net, x = trained_like(rng)
    whole, _ = net.forward(x)
    assert np.allclose(skipping.skip(net, x, -1.0)[0], whole, atol=1e-5)
    small = skipping.subnet(net, [0, 3])
    assert np.allclose(small.forward(x)[0], net.forward(x, closed=[1, 2])[0], atol=1e-6)


def test_both_ways_of_skipping_agree_image_by_image(rng):
    net, x = trained_like(rng)
    threshold = float(np.median(net.gates(x.T)))
    logits, used = skipping.skip(net, x, threshold)
    assert 0 < used.mean() < 1
    one = skipping_seconds.skipper(net)
    for image in range(x.shape[1]):
        assert np.allclose(one(x[:, image:image + 1], threshold)[:, 0],
                           logits[:, image], atol=1e-5)
    shut, _ = skipping.skip(net, x, 2.0)        # no T is as large: every x is carried
    assert np.allclose(shut, net.forward(x, closed=range(4))[0], atol=1e-5)


def test_fewer_open_gates_move_less(rng):
    net, _ = trained_like(rng)
    costs = []
    for open_gates in (6, 3, 0):
        opened = np.zeros((2, 4, 6), bool)
        opened[..., :open_gates] = True
        costs.append(movement.movement(tracing.trace_skipping(net, opened)))
    for model in ("bytes", "bytedmd", "address"):
        assert costs[0][model] > costs[1][model] > costs[2][model]


def test_smoke(smoke):
    record, _ = smoke(data_movement.EXPERIMENT)
    seeds = record["protocol"]["seeds"]
    assert [net["seed"] for net in record["skipping"]["nets"]["highway"]] == seeds
    hashes = {net["training"]["sha256"] for own in record["skipping"]["nets"].values()
              for net in own}
    assert len(hashes) == len(seeds) + 2
    for item in record["claims"]:
        assert item["ours"] is not None and item["n"] != 1
    trials = data_movement.check_claims(record)
    assert all(item.trials != ({},) for item in trials)


def judged_of(nets):
    """Verdicts on skipping, of nets that lose so much accuracy with a quarter of the
    movement saved, and of whose control."""
    def rows(key, lost, control):
        whole = {"train": 1.0, "test": 0.9, "bytedmd": 100, "random": [0.9], key: 0}
        return [whole, {"train": 0.995, "test": 0.9 - lost, "bytedmd": 45, key: 1,
                        "random": [0.9 - control]}]
    record = {"protocol": data_movement.PROTOCOL, "skipping": {"nets": {"highway": [
        {"whole": {"test": 0.9, "bytedmd": 100},
         "gates": rows("threshold", *net), "left_out": rows("left_out", *net)}
        for net in nets]}}}
    return [item["holds"] for item in data_movement.check_skipping(record)]


def test_nets_decide_if_they_agree():
    good, bad = (0.005, 0.08), (0.02, 0.03)
    assert judged_of([good, good]) == [True] * 3
    assert judged_of([bad, bad]) == [False] * 3
    assert judged_of([good, bad, good]) == [None] * 3


def test_how_much_is_skipped_is_not_chosen_on_test_images():
    rows = [{"train": train, "test": test, "bytedmd": cost} for train, test, cost in (
        (1.0, 0.9, 3), (0.995, 0.5, 2), (0.98, 0.95, 1))]
    assert skipping.best_within(rows, 0.01) is rows[1]


def test_only_the_net_of_seed_0_is_a_committed_one(monkeypatch):
    monkeypatch.setattr(skipping, "kept_net", lambda block: (
        block, {"lr": 0.2 if block == "highway" else 0.003, "epochs": 60,
                "sha256": "0"}))
    configs = skipping.configs(data_movement.PROTOCOL)
    assert {key for key, config in configs.items() if "sha256" in config} == {
        (block, 0) for block in ("highway", "residual", "plain")}
    for change in ({"momentum": 0.8}, {"lrs": {"highway": 0.1}},
                   {"epochs": {"highway": 59}}):
        nets = data_movement.PROTOCOL["nets"] | change
        assert "training" in skipping.how_trained(
            nets | {"dataset": "mnist", "seed": 0}, "highway")
    assert configs["highway", 3]["training"]["seed"] == 3


def test_the_committed_nets_are_those_of_trained_nets():
    """Trained anew they are the same, to the bit, and so is what closing costs them."""
    record, five = (load_record(committed.tree() / "results" / name / "record.json")[0]
                    for load_record, name in ((old_record, "data_movement"),
                                              (new_record, "trained_nets")))
    assert record["protocol"]["seeds"] == five["plan"]["seeds"]
    for block, own in record["skipping"]["nets"].items():
        for net, other in zip(own, five["nets"][block], strict=False):
            assert net["seed"] == other["seed"]
            assert record["protocol"]["nets"]["lrs"][block] == other["training"]["lr"]
            assert net["training"]["sha256"] == other["training"]["sha256"]
            if block != "plain":
                assert net["closed"] == other["one_closed"]["loss"]


def test_another_program_takes_from_both_ways_alike(monkeypatch):
    """The machine slows down tenfold, in the middle of it: the ratio stays."""
    clock = itertools.count()
    now = [0.0]

    def taking(seconds):
        def way():
            now[0] += seconds * (10 if next(clock) > 30 else 1)
        return way
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    found = skipping_seconds.by_turns(taking(1.0), taking(3.0), 31)
    assert found["ratio"] == found["upper_quartile"] == pytest.approx(3)
    assert found["whole"] == 1


def test_equal_parameters_are_as_equal_as_can_be():
    ends = {"inputs": 784, "classes": 10}
    assert sizes.matched_width("plain", 49, 50, **ends) == 69
    for width in (8, 50):
        units = sizes.matched_width("plain", 30, width, **ends)
        target = hn.DeepNet("highway", 30, width, **ends).params.size
        apart = [abs(hn.DeepNet("plain", 30, near, **ends).params.size - target)
                 for near in (units - 1, units, units + 1)]
        assert min(apart) == apart[1]
