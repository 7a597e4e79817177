"""The six forms at equal size: their widths, the search, what is concluded."""

import math
from dataclasses import replace

import numpy as np
import pytest

import highway_networks as hn
from experiments import blocks, blocks_claims
from experiments.lab import papers
from experiments.blocks import Net, Setting
from experiments.judging import mean_and_std
from experiments.store import hash_of
from tests.fake_lab import FakeLab, trial_of, verdicts


def test_smoke_of_the_six_forms(smoke, monkeypatch):
    """And of a block that was added."""
    monkeypatch.setitem(hn.BLOCKS, "halved", hn.BLOCKS["residual"])
    record, folder = smoke(blocks.EXPERIMENT)
    assert [(net["block"], net["depth"]) for net in record["nets"]] == [
        (block, depth) for depth in (3, 5) for block in papers.forms()]
    assert record["nets"][-1]["block"] == "halved"
    assert {path.stem for path in (folder / "trials").iterdir()} == {
        f"{net['block']}_{net['depth']}" for net in record["nets"]}
    for net in record["nets"]:
        tried, chosen = net["search"], net["chosen"]
        number = int(np.argmax(tried["held_out_acc"]))
        for name in ("lr", "gate_bias", "held_out_acc"):
            assert (name in chosen) == (name in tried)
            assert name not in tried or chosen[name] == tried[name][number]
        sizes = [len(set(tried[name])) for name in ("lr", "gate_bias") if name in tried]
        assert len(tried["lr"]) == math.prod(sizes) and {*sizes} <= {2, 3}
        more = (net["block"], net["depth"]) == ("full", 3)
        for name in ("train_loss", "test_acc"):
            assert np.shape(net[name]["epochs"]) == (2 + more, 2)
            assert net[name]["final"] == [row[-1] for row in net[name]["epochs"]]
    assert len(record["claims"]) == 2 * len(blocks_claims.STATEMENTS) + 3
    assert verdicts(record["claims"][-3:]) == [None, None, None]


@pytest.mark.parametrize("depth", [10, 50])
@pytest.mark.parametrize("block", hn.BLOCKS)
def test_widths_match_the_highway_nets(block, depth):
    """Against every width's count, and that against real nets."""
    count = {hidden: blocks.count_parameters(Net(block, depth), hidden, "mnist")
             for hidden in range(1, 150)}
    for hidden in (41, 71):
        assert count[hidden] == hn.DeepNet(block, depth - 1, hidden).params.size
    target = hn.DeepNet("highway", depth - 1, 50).params.size
    found = blocks.match_width(Net(block, depth), "mnist")
    off = {hidden: abs(size - target) for hidden, size in count.items()}
    assert off[found] == min(off.values())
    # The widths of full are whole numbers near 41: one lies 1.35 % off.
    assert off[found] < (0.0136 if (block, depth) == ("full", 50) else 0.01) * target


def test_the_held_out_images_are_training_images_and_disjoint(digits):
    numbered = replace(digits, x_train=np.arange(len(digits.x_train))[:, None],
                       x_test=digits.x_test[:, :1])
    protocol = blocks.PROTOCOL | blocks.SMOKE
    data = blocks.hold_out(numbered, protocol)
    together = np.concatenate([data.x_train, data.x_test])[:, 0]
    assert len(data.x_test) == 237
    assert sorted(together) == list(range(len(digits.x_train)))
    assert np.array_equal(np.concatenate([data.y_train, data.y_test]),
                          digits.y_train[together])


def test_no_test_image_chooses_anything(digits):
    """Poisoned test labels change the final accuracies and no choice."""
    tiny = blocks.PROTOCOL | blocks.SMOKE | {
        "depths": [3], "seeds": [0], "epochs": 1, "gate_biases": [-1.0]}
    poisoned = replace(digits, x_test=255 - digits.x_test, y_test=9 - digits.y_test)
    clean, other = (blocks.run(FakeLab(tiny, data))["nets"]
                    for data in (digits, poisoned))
    for one, two in zip(clean, other, strict=True):
        for name in ("search", "chosen", "train_loss"):
            assert one[name] == two[name]
        assert one["test_acc"] != two["test_acc"]


def test_trials_of_the_six_forms(digits, monkeypatch):
    """Search and seeds never share a trial; seeds and settings are outermost. Where all
    settings are alike, the first counts, and the grid grows to its ends."""
    monkeypatch.setattr(hn, "BLOCKS", {form: hn.BLOCKS[form]
                                       for form in papers.TABLE_1A})
    protocol = blocks.PROTOCOL | {"dataset": "digits", "held_out": 237}
    lab = FakeLab(protocol, digits, lambda config: {
        "status": "ok", "train_loss": [0.1], "acc": [0.9]})
    blocks.run(lab)
    seen = lab.seen
    assert len({hash_of(config) for config in seen}) == len(seen) == 4 * 154 + 120 + 30
    parts = {("split_seed" in c, c["n_train"], c["n_test"], c["epochs"]) for c in seen}
    assert parts == {(True, 1200, 237, 3), (False, 1437, 360, protocol["epochs"])}
    final = seen[4 * 154:]
    assert [c["seed"] for c in final] == [s for s in range(5) for _ in range(24)] + [
        s for s in range(5, 15) for _ in range(3)]
    assert {(c["depth"], c["block"]) for c in final[120:]} == {
        (9, block) for block in ("c_only", "highway", "full")}
    assert len({(c["block"], c["depth"]) for c in seen[:24]}) == 24
    assert seen[0]["depth"] == final[0]["depth"] == 99


@pytest.mark.parametrize("best, expected", [
    ((1e-3, -3.0), []), ((1e-4, -3.0), [(3e-5, b) for b in (-5.0, -3.0, -1.0)]),
    ((1e-3, -1.0), [(lr, 1.0) for lr in blocks.PROTOCOL["lrs"]]),
    ((1e-2, -5.0), [*((lr, -7.0) for lr in blocks.PROTOCOL["lrs"]),
                    *((3e-2, b) for b in (-7.0, -5.0, -3.0, -1.0))])])
def test_a_grid_grows_where_its_best_lies_at_an_edge(best, expected):
    found = dict.fromkeys(blocks.settings_of("highway", blocks.PROTOCOL), 0.5)
    found[Setting(*best)] = 0.6
    assert blocks.untried(found, blocks.PROTOCOL) == [Setting(*new) for new in expected]
    found |= dict.fromkeys([Setting(*new) for new in expected], 0.4)
    assert blocks.untried(found, blocks.PROTOCOL) == []


def test_best_is_the_first_of_the_highest():
    for accuracies, expected in (([0.2, 0.9, None, 0.9], 1), ([None, 0.0], 1),
                                 ([None, None], 0)):
        tried = {Setting(lr): value for lr, value in enumerate(accuracies)}
        assert blocks.best(tried).lr == expected


PAPER = {"plain": 8.1, "residual": 8, "t_only": 5, "c_only": 2, "highway": 2.1,
         "full": 1.95}


def fake_nets(errors, depth=50):
    """Nets of one depth whose two seeds differ by 0.2 % around 1 - errors[form] %."""
    finals = {form: [1 - (error - 0.1) / 100, 1 - (error + 0.1) / 100]
              for form, error in errors.items()}
    return [{"block": form, "depth": depth,
             "test_acc": mean_and_std(final) | {"final": final}}
            for form, final in finals.items()]


@pytest.mark.parametrize("changed, expected", [
    ({}, [True, True, True, True]), ({"t_only": 7.9}, [None, True, True, True]),
    ({"t_only": 2.1}, [True, True, True, None]),
    ({"t_only": 1}, [True, True, True, False]),
    ({"plain": 9}, [True, False, True, True]),
    ({"plain": 8.4}, [True, None, True, True]),
    ({"plain": 8.6}, [True, None, True, True]),
    ({"highway": 3}, [True, True, False, True]),
    ({"t_only": 7.9, "c_only": 9}, [False, True, False, False]),    # one open, one not
    ({"residual": 1}, [False, False, True, True])])
def test_the_papers_ranking_is_judged_relation_by_relation(changed, expected):
    claims = blocks_claims.check_ranking(fake_nets(PAPER | changed), 50)
    assert verdicts(claims) == expected
    lost = fake_nets(PAPER | changed)
    lost[1]["test_acc"]["final"][0] = None
    assert blocks_claims.check_ranking(lost, 50)[1]["holds"] is None


def test_t_only_leads_if_it_is_ahead_of_all_at_every_depth():
    ahead, behind = {"t_only": 1}, {"t_only": 1, "full": 0.5}
    for errors, expected in ((ahead, True), ({"t_only": 1.95}, None), (behind, False)):
        nets = fake_nets(PAPER | ahead, 20) + fake_nets(PAPER | errors)
        shallow = fake_nets(PAPER, 10)
        assert blocks_claims.check_t_only(shallow + nets, 20)["holds"] is expected
    assert blocks_claims.check_t_only(shallow, 20)["holds"] is None


@pytest.mark.parametrize("deep, expected", [
    ([(20, [2.3, 2.3], [0.1])], [None, None]),
    ([(50, [2.3, None], [0.1, None])], [True, True]),
    ([(50, [0.3, 0.21], [0.1, 0.5])], [True, False]),
    ([(50, [2, 2], [None]), (100, [0.2, 3], [0.49])], [False, True])])
def test_verdicts_on_plain_nets(deep, expected):
    nets = [{"block": "plain", "depth": depth, "train_loss": {"final": losses},
             "search": {"held_out_acc": accuracies}}
            for depth, losses, accuracies in [(10, [0.1, 0.2], [0.9]), *deep]]
    assert verdicts(blocks_claims.check_plain(nets)) == expected


def test_a_diverged_seed_has_no_value():
    ok = {"status": "ok", "train_loss": [2.0, 1.0], "acc": [0.5, 0.6]}
    lost = {"status": "diverged", "train_loss": [2.0, None], "acc": [0.1, None]}
    tried = dict(zip(blocks.settings_of("residual", blocks.PROTOCOL),
                     [None, 0.4, 0.3, None, 0.2], strict=True))
    net = blocks.describe_net(Net("residual", 20), blocks.PROTOCOL, tried,
                              [trial_of(ok), trial_of(lost)])
    assert net["test_acc"] == {"final": [0.6, None], "mean": 0.6, "std": None,
                               "n": 1, "epochs": [[0.5, 0.6], [0.1, None]]}
    assert net["chosen"] == {"lr": 3e-4, "held_out_acc": 0.4, "at_edge": []}
    assert net["above_highway"] == pytest.approx(136498 / 136660 - 1, rel=1e-5)
    values = {"lr": [1e-4, 1e-3], "gate_bias": [-5.0, -3.0, -1.0]}
    assert blocks.at_edge(Setting(1e-4, -5.0), values) == ["lr", "gate_bias"]
    assert blocks.at_edge(Setting(1e-3, -3.0), values) == ["lr"]
