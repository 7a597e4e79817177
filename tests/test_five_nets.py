"""Five nets of a kind: what is measured of each, and when they agree."""

import copy
import operator

import numpy as np
import pytest

import highway_networks as hn
from experiments import five_claims, five_nets, inside
from experiments.judging import agreed
from tests.fake_lab import verdicts


def test_smoke(smoke):
    record, _ = smoke(five_nets.EXPERIMENT)
    assert {block: len(nets) for block, nets in record["nets"].items()} == {
        "highway": 2, "residual": 2, "plain": 2, "t_only": 2}
    assert all(item["ours"] is not None and item["n"] == 2
               for item in record["claims"])
    for net in record["nets"]["highway"]:
        for way, ranges in net["rerouted"].items():
            assert set(ranges) == set(record["protocol"]["measures"]["ranges"]), way
    hashes = [net["training"]["sha256"] for nets in record["nets"].values()
              for net in nets]
    assert len(set(hashes)) == len(hashes)


def test_the_committed_nets_are_those_of_seed_0(monkeypatch):
    """And no other seed or kind, and not if anything else of the protocol changed."""
    monkeypatch.setattr(five_nets, "committed_net", lambda block: (block, {}))
    monkeypatch.setattr(five_nets, "train_best", lambda *about: pytest.fail("trained"))
    configs = five_nets.configs(five_nets.PROTOCOL)
    data = None
    for block in ("highway", "residual", "plain"):
        assert five_nets.trained_net(configs[block, 0], data)[0] == block
    monkeypatch.setattr(inside, "centred", lambda data: data)
    for key in (("t_only", 0), ("highway", 1)):
        with pytest.raises(pytest.fail.Exception, match="trained"):
            five_nets.trained_net(configs[key], data)
    other = copy.deepcopy(configs["highway", 0])
    other["nets"]["momentum"] = 0.8
    with pytest.raises(pytest.fail.Exception, match="trained"):
        five_nets.trained_net(other, data)


@pytest.mark.parametrize("within", [True, False])
def test_permuted_images_keep_to_their_class(within, rng):
    labels = rng.integers(3, size=300)
    order = five_nets.permuted(labels, rng, within)
    assert sorted(order) == list(range(300)) and (order != np.arange(300)).mean() > 0.9
    assert (labels[order] == labels).all() == within


def test_a_mean_of_its_class_is_given_to_each_image(digits):
    """With T that hardly depends on the image, every way of giving it changes little;
    with T that does, giving that of others changes the loss."""
    data = hn.scale_pixels(digits)
    config = five_nets.configs(five_nets.PROTOCOL | five_nets.SMOKE)["highway", 0]

    def rises(scale):
        net = hn.DeepNet("highway", 6, 8, inputs=64, init="glorot", gate_bias=0.0)
        net.views(net.params)["W_T"][...] *= scale
        loss, _ = five_nets.lesion.loss_and_error(net, data.x_train, data.y_train)
        found = five_nets.reroute(net, data, config)
        return {way: abs(ranges["all"][0] - loss) for way, ranges in found.items()}
    assert max(rises(1e-4).values()) < 1e-4
    assert min(rises(5.0).values()) > 1e-3


# --------------------------------------------------------------------------------------
# Verdicts


@pytest.mark.parametrize("found, expected", [
    ([True, True], True), ([False, False], False), ([True, False], None),
    ([True, None], None), ([None], None)])
def test_nets_that_differ_decide_nothing(found, expected):
    assert agreed(found) is expected


def test_a_verdict_is_that_of_all_nets_and_their_controls():
    def holds(*values):
        found = five_claims.judged([dict(zip(("trained", "untrained"), value,
                                             strict=False)) for value in values],
                                   operator.gt, (1, 2, 4))
        return found["holds"], found["also"]
    assert holds([3], [5]) == (True, {"1": True, "4": None})
    assert holds([3], [1]) == (None, {"1": None, "4": False})
    assert holds([3, 1], [5, 0]) == (True, {"1": True, "4": None})
    assert holds([3, 3], [5, 1])[0] is None, "as true before training"
    assert holds([1, 3], [1, 3])[0] is False


def fake_net(closed, error, loss=0.1, **rest):
    """The lesions of a net of four layers."""
    return {"lesion": {"loss": loss, "error": 0.02,
                       "one_closed": {"loss": closed, "error": error}}} | rest


IDLE = {"idle": [3, 4], "lesions": {"early": 1}}


@pytest.mark.parametrize("closed, expected", [
    ([50, 2.0, 0.1, 0.11], [True, True, True, True, False]),
    ([50, 0.15, 0.1, 0.19], [False, True, True, True, True]),
    ([1.5, 1.5, 0.4, 0.1], [True, True, False, False, False])])
def test_claims_about_lesions_follow_the_numbers(closed, expected):
    nets = [fake_net(closed, [0] * 4)] * 2
    found = five_claims.check_lesions(nets, IDLE)
    assert verdicts(found) == expected
    assert found[4]["ours"]["2 times"]["median"] == np.mean(np.array(closed) < 0.2)
    mixed = [fake_net([50, 2.0, 0.1, 0.11], [0] * 4),
             fake_net([0.1, 2.0, 0.5, 0.11], [0] * 4)]
    assert verdicts(five_claims.check_lesions(mixed, IDLE))[:4] == [None] * 4


def test_claims_about_kinds_follow_the_numbers():
    ruined, whole = ([fake_net([9.0] * 4, error)] for error in (
        [0.9, 0.85, 0.9, 0.82], [0.03] * 4))
    found = verdicts(five_claims.check_kinds({
        "plain": ruined, "highway": whole, "residual": ruined}))
    assert found == [True, True, True, True, False, False, False, False]
    found = verdicts(five_claims.check_kinds({
        "plain": whole, "highway": [fake_net([9, 5, 1, 1], [0.4, 0, 0, 0])],
        "residual": whole}))
    assert found[:5] == [False, False, True, False, True]


def test_claims_about_shuffling_follow_the_numbers():
    def verdict(*draws):
        net = {"lesion": {"shuffled": {"error": draws}, "sampled": {"error": [0.01]}}}
        return five_claims.check_shuffling({"highway": [net, net]}, "highway")["holds"]
    assert verdict([0.01, 0.1, 0.2, 0.3], [0.03, 0.1, 0.2, 0.3])
    assert not verdict([0.01, 0.01, 0.01, 0.9]), "one step, not smooth"
    assert not verdict([0.2, 0.3, 0.4, 0.5]), "much from the first step on"
    assert not verdict([0.02, 0.2, 0.1, 0.3]), "not in order"


GOOD = {"std": [4, 3, 2, 1, 0], "mean": [0.2, -0.1, 0.1, 0.09, 0],
        "bias_share": [0.01, 0.02, 0.09, 0.03]}
POOR = {"std": [4, 5, 2, 3, 0], "mean": [0.2, -1.1, 0.1, 0.1, 0],
        "bias_share": [0.01, 0.02, 0.19, 0.03]}


@pytest.mark.parametrize("states, expected", [
    ((GOOD, POOR, POOR), True), ((POOR, GOOD, POOR), False),
    ((POOR, POOR, POOR), False), ((GOOD, GOOD, POOR), None),
    ((GOOD, POOR, GOOD), None)])
def test_claims_about_estimation_follow_the_numbers(states, expected):
    """True before training, or of plain nets: it tells nothing."""
    def net(trained, untrained):
        return {"lesion": {"estimation": {"trained": trained, "untrained": untrained}},
                "steps_bias": {"trained": trained["bias_share"],
                               "untrained": untrained["bias_share"]}}
    found = five_claims.check_estimation(
        {"highway": [net(*states[:2])], "plain": [net(states[2], POOR)]}, "highway")
    assert verdicts(found) == [expected] * 4


def routed(loss, told=(0.97, 0.7), error=0.0):
    """A gated net, with T held in every way at the same cost."""
    ranges = dict.fromkeys(("all", "1 to 15", "16 to 49"), [loss, error])
    return fake_net([1] * 4, [0] * 4, rerouted=dict.fromkeys(
        ("mean of all", "mean of its class", "of its class"), ranges),
        gates={"told": {"T, means": dict(zip(("trained", "untrained"), told,
                                             strict=True))}})


@pytest.mark.parametrize("net, expected", [
    (routed(5.0, error=0.03), [True] * 7),
    (routed(0.5, told=(0.97, 0.965), error=0.3), [False] * 7)])
def test_claims_about_routing_follow_the_numbers(net, expected):
    nets = {"highway": [net] * 2, "t_only": [net] * 2}
    assert verdicts([five_claims.check_readouts(nets["highway"]),
                     *five_claims.check_routing(nets)]) == expected


def test_claims_about_gates_follow_the_numbers():
    def net(fell, one, mean, change, shares, still):
        states = ("trained", "untrained")
        return {"gates": {
            "bias": {"fell": fell, "mean_change": -0.1, "std_of_change": 0.1,
                     "moved_less_than_0.05": 0.5},
            "bias_activity_correlation": {"all": 0.5, "layer_means": 0.5},
            "sparsity": {state: {
                "closed_per_example": [0.5], "closed_of_mean": [closed],
                "hoyer_per_example": sparse, "hoyer_of_mean": 0.1,
                "change": [part, 1 - part]} for state, closed, sparse, part in zip(
                    states, mean, one, change, strict=True)},
            "difference_shares": {f"share_of_layer{which}{suffix}": [part, 1 - part]
                                  for suffix, part in zip(("", "_untrained"), shares,
                                                          strict=True)
                                  for which in ("", "_0_7")}},
                "still": {"trained": [still] * 3, "untrained": [0.1] * 3}}

    def judged(*about):
        nets = {"highway": [net(*about)], "plain": [net(*about[:-1], 0.2)]}
        protocol = {"early": 1, "measures": {"within": [1, 2, 3], "apart": 10}}
        return verdicts([*five_claims.check_biases(nets["highway"]),
                         *five_claims.check_sparsity(nets["highway"], 0.1),
                         *five_claims.check_depth(nets, protocol)])
    assert judged(0.8, (0.5, 0.2), (0.1, 0.7), (0.8, 0.2), (0.8, 0.2), 0.7) == [
        True, None, None, True, True, True, True, True]
    assert judged(0.2, (0.2, 0.5), (0.7, 0.1), (0.2, 0.8), (0.2, 0.8), 0.3) == [
        False, None, None, False, False, False, False, False]
    assert judged(0.8, (0.5, 0.2), (0.1, 0.1), (0.8, 0.8), (0.8, 0.8), 0.7)[3:] == [
        None, True, None, True, None]
