"""A lab without files: its trials are made at once, by the experiment or by a fake."""

import json

from experiments.store import make_trial


def trial_of(result, config=None):
    """A finished trial."""
    return make_trial("0" * 32, config or {}, "ok", None, result, 0)


class FakeLab:
    """Has what an experiment's `run` asks for; `seen` are all configs, in order."""

    def __init__(self, protocol, data, fake=None):
        self.protocol, self.load_data, self.fake, self.seen = (
            protocol, lambda: data, fake, [])

    def trials(self, train, configs, data):
        self.seen += configs.values()
        return {key: trial_of(self.fake(config) if self.fake else
                              train(json.loads(json.dumps(config)), data), config)
                for key, config in configs.items()}


def verdicts(claims):
    return [claim["holds"] for claim in claims]
