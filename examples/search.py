"""A search over settings that can be interrupted: press Ctrl-C, start it again, and it
trains the settings that are missing.

    python3 -m examples.search
"""

import highway_networks as hn
from experiments.trials import run_trials


def train(config: dict, data: hn.Data) -> dict:
    settings = hn.Config(depth=10, epochs=6, **config)
    history, _, status = hn.train(hn.make_net(settings, data), hn.scale_pixels(data),
                                  settings)
    return {"status": status, "train_loss": history["train_loss"]}


if __name__ == "__main__":      # worker processes import this file
    trials = run_trials(train, [{"lr": lr, "gate_bias": bias} for bias in (-1.0, -3.0)
                                for lr in (1e-3, 3e-3, 1e-2)], "runs/example_search",
                        protocol={"dataset": "digits"}, data=hn.load_dataset("digits"))
    best = min(trials, key=lambda trial: trial.result["train_loss"][-1] or 1e9)
    print("best:", best.config, "training loss", best.result["train_loss"][-1])
