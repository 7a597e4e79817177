"""The forms at equal size: the search, what is concluded."""

from dataclasses import replace

from experiments import blocks
from experiments.blocks import Net
from experiments.lab import Lab, Trial
from experiments.lab.experiment import Training


def test_no_test_image_chooses_anything(digits):
    tiny = blocks.SMOKE | {"depths": [3, 4], "seeds": [0], "epochs": 1,
                           "gate_biases": [-1.0]}
    poisoned = replace(digits, x_test=16 - digits.x_test, y_test=9 - digits.y_test)
    nets = []
    for data in (digits, poisoned):
        lab = Lab(replace(blocks.EXPERIMENT, plan=blocks.PLAN | tiny,
                          load=lambda *_, data=data: data), Training(None, {}, jobs=1))
        nets.append(lab.record("")["nets"])
    for one, two in zip(*nets, strict=True):
        for name in ("chosen", "train_loss"):
            assert one[name] == two[name]
        assert one["test_acc"] != two["test_acc"]


def trial_of(result):
    return Trial("blocks.train", 1, None, {}, "ok", None, result, 0, {})


def test_a_diverged_seed_has_no_value():
    ok = {"parameters": 9, "train_loss": [2.0, 1.0], "acc": [0.5, 0.6]}
    lost = {"parameters": 9, "train_loss": [2.0, None], "acc": [0.1, None]}
    tried = dict(zip(blocks.settings_of("residual", blocks.PLAN),
                     [None, 0.4, 0.3, None, 0.2], strict=True))
    net = blocks.describe_net(Net("residual", 19), blocks.PLAN, tried,
                              [trial_of(ok), trial_of(lost)])
    assert net["test_acc"] == [0.6, None]
    assert net["chosen"] == {"lr": 3e-4, "held_out_acc": 0.4}
