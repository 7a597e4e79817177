"""Convolution in colour: the nets of Tables 2 and 3, crops, verdicts, the figure."""

import numpy as np
import pytest

from experiments import convolution, table_2
from experiments import convolution_trials as ct
from tests.fake_lab import verdicts

COLOUR = {"dataset": "cifar10", "block": "highway", "seed": 0, "gate_bias": -1.0,
          "centre": [100.0, 150.0, 50.0], "crop": 4}


@pytest.mark.parametrize("table, dataset, count", [
    ("table 2", "cifar10", 236_328), ("table 3", "cifar10", 2_256_838),
    ("table 3", "cifar100", 2_265_928)])
def test_nets_have_the_papers_parameters(table, dataset, count):
    net = ct.make_net(COLOUR | {"net": table, "dataset": dataset}, 3072)
    assert net.params.size == count
    assert [*dict.fromkeys(side for side, _ in net.shapes)] == [32, 16, 8, 1]


def test_pixels_are_centred_by_channel(rng):
    images = rng.integers(256, size=(7, 3072), dtype=np.uint8)
    x = ct.pixels(images, COLOUR)
    expected = (images.reshape(7, 3, -1) - np.array([[100], [150], [50]])) / 64
    np.testing.assert_allclose(x.T.reshape(7, 3, -1), expected, atol=1e-5)
    assert x.dtype == "float32" and x.shape == (3072, 7)


def test_planes_meet_the_channels(rng):
    """A 1x1 kernel on one channel sees its plane, pixel by pixel."""
    net = ct.ConvNet([("plain", 1, 1, 0), ("average",)], 32, 3, dtype="float64")
    x = rng.random((3072, 2))
    for channel in range(3):
        net.params[...] = 0
        net.views(net.params)[0, "W"][0, 0, 0, channel] = 1
        found, _ = net.forward(x)
        np.testing.assert_allclose(found[0], x.reshape(3, 1024, 2)[channel].mean(0))


def test_crops_are_windows_of_the_padded_image(rng):
    """Each place as often as any other, half of them mirrored, all channels alike."""
    image = np.arange(1, 1 + 32 * 32).reshape(32, 32) % 251
    images = np.tile(np.stack([image, image + 1, image + 2]).astype(np.uint8).ravel(),
                     (900, 1))
    moved = ct.cropped(images, COLOUR, rng).reshape(900, 3, 32, 32)
    padded = [np.pad(plane, 4, constant_values=value) for plane, value in zip(
        images[0].reshape(3, 32, 32), (100, 150, 50), strict=True)]
    windows = {}
    for top in range(9):
        for left in range(9):
            window = np.stack([each[top:top + 32, left:left + 32] for each in padded])
            windows[window.tobytes()] = top, left, False
            windows[window[..., ::-1].tobytes()] = top, left, True
    found = [windows[one.tobytes()] for one in moved]
    tops, lefts, mirrored = np.array(found).T
    for places in (tops, lefts):
        assert np.bincount(places, minlength=9).min() > 50
    assert abs(mirrored.mean() - 0.5) < 0.09


def test_twins_see_the_same_crops(rng):
    images = rng.integers(256, size=(40, 3072), dtype=np.uint8)
    config = COLOUR | {"batch": 20}
    batches = [list(ct.Shuffled(images, np.arange(40), config | {"block": block}))
               for block in ("highway", "plain")]
    for (x, labels, _), (other, same, _) in zip(*batches, strict=True):
        assert np.array_equal(x, other) and np.array_equal(labels, same)
    assert not np.array_equal(x, ct.pixels(images[labels], config))


@pytest.mark.parametrize("highway, plain, expected", [
    ((89.0, 89.2), (88.0, 88.5), [True, True, True, True]),
    ((83.0, 82.0), (82.5, 81.0), [None, True, True, None]),
    ((95.0, None), (81.0, 80.0), [None, True, False, None]),
    ((81.0, 81.5), (70.0, 75.0), [None, True, False, True]),
    ((80.0, 81.0), (83.0, 84.0), [None, True, False, False])])
def test_verdicts_follow_the_numbers(highway, plain, expected):
    nets = [{"block": block, "epochs": 45, "final_test_percent": list(runs),
             "parameters": 236_328, "settings": {"gate_bias": -1.0},
             **convolution.statistics(runs)}
            for block, runs in (("highway", highway), ("plain", plain))]
    record = {"nets": nets, "title": "CIFAR-10, JPEG quality 75",
              "dataset": "cifar10-jpeg75",
              "table_3": {"cifar10": 2_256_838, "cifar100": 2_265_928}}
    claims = table_2.check_claims(record)
    assert verdicts(claims) == expected
    assert all("JPEG" in claims[i]["claim"] for i in (0, 2, 3))
    nets[0] |= {"epochs": 400}
    record["table_3"]["cifar10"] = 1
    found = verdicts(table_2.check_claims(record))
    assert found == [expected[0], False, *expected[2:]], "JPEGs refute nothing"
    found = verdicts(table_2.check_claims(record | {"dataset": "cifar10"}))
    assert found[0] is bool(expected[0])


def test_smoke(smoke):
    """The whole path; the runs have what the search chose for their kind."""
    record, folder = smoke(table_2.EXPERIMENT)
    assert len(list((folder / "trials").glob("*.jsonl"))) == 4
    for net in record["nets"]:
        assert net["settings"] == record["search"][net["block"]]["chosen"] | {
            "epochs": net["epochs"]}
    assert record["table_3"] == {"cifar10": 2_256_838, "cifar100": 2_265_928}
