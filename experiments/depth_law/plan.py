"""The plan of `depth_law`: which trials, in which order, and which rate goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import highway_networks as hn
from experiments.store import Trial, hash_of

TRAINS = math.log(10) / 2       # loss below which a net trains
ONE = {"sum": 1.0}              # the rule
RULES: dict[str, dict] = {
    "S = 1": ONE, "b_T = -2": {"bias": -2.0}, "guideline": {"rule": "guideline"},
    "chrono": {"rule": "chrono"}}

PROTOCOL = {
    "dataset": "mnist", "n_train": 6000, "n_test": 10_000, "epochs": 12, "hidden": 50,
    "batch": 128, "lrs": {"adam": [5e-4, 1e-3, 2e-3], "sgd": [0.025, 0.05, 0.1]},
    "seeds": [0, 1, 2],
    "sums": [0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0],
    "depths": [10, 30, 100], "deeper": [300], "deep": [1000],
    "deep_sums": [0.03, 0.1, 0.3, 1.0, 3.0, 5.0, 10.0],
    "mechanism": {"depths": [30, 100, 300, 1000], "images": 500,
                  "seeds": [0, 1, 2, 3, 4]},
    "rescue": {"depths": [10, 20, 30, 40, 48], "seeds": [0, 1, 2, 3, 4]},
    "border": {"depth": 50, "lr": 1e-3, "rounds": 5, "octaves": 5, "n_test": 1280,
               "seeds": [0, 1, 2, 3, 4], "changes": [
                   {"epochs": 60}, {"lr": 1e-4, "epochs": 60}, {"depth": 200},
                   {"epochs": 36}, {"lr": 1e-4, "epochs": 36}, {"hidden": 100},
                   {"depth": 100}, {"dtype": "float64"}, {}, {"lr": 5e-3},
                   {"lr": 1e-4}, {"eps": 1e-4}, {"eps": 1e-16},
                   {"optimizer": "sgd", "lr": 0.1}, {"optimizer": "sgd", "lr": 0.01},
                   {"init": "uniform"}, {"init": "he"},
                   {"activation": "relu", "init": "he"}, {"hidden": 25}]},
    "full": {"n_train": 60_000, "epochs": 4, "lr_decay": 0.7, "depths": [100, 1000],
             "measured": 1280, "groups": 20, "kept": 50},
    "ten_thousand": {"depth": 10_000, "lr": 1e-3, "lr_decay": 0.6, "epochs": 5,
                     "n_train": 60_000, "measured": 2560, "groups": 20,
                     "kept": [50, 100, 500, 1000, 5000], "failed_epochs": 3,
                     "sums": [0.3, 3.0]},
    "second": {"sums": [0.003, 0.01], "rules": ["S = 1", "b_T = -2", "chrono"]}}
SMOKE = {
    "dataset": "digits", "n_train": 640, "n_test": 360, "epochs": 2, "batch": 64,
    "lrs": {"adam": [2e-3, 5e-3], "sgd": [0.05, 0.1]}, "seeds": [0, 1],
    "sums": [0.3, 1.0, 2.0], "depths": [4, 8], "deeper": [12], "deep": [16],
    "deep_sums": [0.3, 1.0, 2.0],
    "mechanism": {"depths": [8, 16], "images": 64, "seeds": [0, 1]},
    "rescue": {"depths": [4, 6], "seeds": [0, 1]},
    "border": {"depth": 50, "lr": 3e-3, "rounds": 2, "octaves": 5, "n_test": 128,
               "seeds": [0, 1], "changes": [{}, {"eps": 1e-4}, {"lr": 1e-3}]},
    "full": {"n_train": 1437, "epochs": 2, "lr_decay": 0.7, "depths": [8, 16],
             "measured": 128, "groups": 4, "kept": 2},
    "ten_thousand": {"depth": 40, "lr": 3e-3, "lr_decay": 0.6, "epochs": 2,
                     "n_train": 1437, "measured": 128, "groups": 4, "kept": [2, 10],
                     "failed_epochs": 1, "sums": [0.3, 3.0]},
    "second": {"sums": [0.1], "rules": ["S = 1", "chrono"]}}


def start_config(protocol: dict, depth: int, gates: dict, seed: int) -> dict:
    """A trial of `measure_start`."""
    return {"kind": "start", "dataset": protocol["dataset"], "block": "highway",
            "depth": depth, "hidden": protocol["hidden"], "activation": "tanh",
            "init": "glorot", "dtype": "float32", "gates": gates, "seed": seed,
            "n_train": protocol["mechanism"]["images"], "n_test": 1}


def net_config(protocol: dict, depth: int, gates: dict, optimizer: str, lr: float,
               seed: int, **changes: Any) -> dict:
    """A trial of `train_net`."""
    config = {"kind": "train", "dataset": protocol["dataset"], "block": "highway",
              "depth": depth, "hidden": protocol["hidden"], "activation": "tanh",
              "init": "glorot", "dtype": "float32", "gates": gates,
              "optimizer": optimizer, "lr": lr, "lr_decay": 1.0, "seed": seed,
              "epochs": protocol["epochs"], "batch": protocol["batch"],
              "clip": 5.0, "n_train": protocol["n_train"],
              "n_test": protocol["n_test"]}
    own = {"adam": {"eps": 1e-8}, "sgd": {"momentum": 0.9}}[optimizer]
    return config | own | changes


class Book:
    """The results of trials, found by their configs. run_trials: {hash: config} ->
    {hash: Trial}; without it a book only keeps what `add` puts in."""

    def __init__(self, run_trials: Callable = dict) -> None:
        self.run_trials = run_trials
        self.results: dict[str, dict] = {}

    def add(self, trials: dict[str, Trial]) -> None:
        """Put in finished trials, {hash: Trial}."""
        self.results |= {name: trial.result for name, trial in trials.items()}

    def run(self, configs: list[dict]) -> None:
        """Run these trials, in this order, each once."""
        self.add(self.run_trials({hash_of(config): config for config in configs}))

    def get(self, config: dict) -> dict | None:
        """A trial's result, None if it has not run."""
        return self.results.get(hash_of(config))

    def loss(self, config: dict) -> float | None:
        """A trial's final training loss, infinite where it diverged; None if it has
        not run."""
        result = self.get(config)
        return (None if result is None else
                result["train_loss"][-1] if result["status"] == "ok" else math.inf)

    def trains(self, config: dict) -> bool:
        loss = self.loss(config)
        return loss is not None and loss < TRAINS

    def chosen_lr(self, protocol: dict, depth: int, gates: dict, optimizer: str,
                  **changes: Any) -> float | None:
        """The rate of the lowest loss of the first seed; None where none trains."""
        configs = {lr: net_config(protocol, depth, gates, optimizer, lr,
                                  protocol["seeds"][0], **changes)
                   for lr in protocol["lrs"][optimizer]}
        there = [(loss, lr) for lr, config in configs.items()
                 if (loss := self.loss(config)) is not None and loss < TRAINS]
        return min(there)[1] if there else None


def is_first(gates: dict, block: str) -> bool:
    """Whether this is the pair that the sweep over S has already."""
    return gates == ONE and block == "highway"


def starts_of(rules: Iterable[str], own: bool = True) -> list[tuple[dict, str]]:
    """(gates, block) of the rules with highway and with T-only blocks."""
    return [(RULES[name], block) for block in ("highway", "t_only") for name in rules
            if own or not is_first(RULES[name], block)]


def sweep(protocol: dict, depth: int, starts: list[tuple[dict, str]], seeds: list[int],
          optimizers: Sequence[str] = ("adam", "sgd")) -> list[dict]:
    """Every rate with every start (gates, block), seed after seed."""
    return [net_config(protocol, depth, gates, optimizer, lr, seed, block=block)
            for seed in seeds for gates, block in starts for optimizer in optimizers
            for lr in protocol["lrs"][optimizer]]


def repeats(book: Book, protocol: dict, depth: int, starts: list[tuple[dict, str]],
            optimizers: Sequence[str] = ("adam", "sgd")) -> list[dict]:
    """The rates that the first seed chose, with the other seeds."""
    chosen = [(gates, block, optimizer, book.chosen_lr(
        protocol, depth, gates, optimizer, block=block))
        for gates, block in starts for optimizer in optimizers]
    return [net_config(protocol, depth, gates, optimizer, lr, seed, block=block)
            for seed in protocol["seeds"][1:]
            for gates, block, optimizer, lr in chosen if lr is not None]


def highway_sums(sums: list[float], depth: int) -> list[tuple[dict, str]]:
    return [({"sum": S}, "highway") for S in sums
            if depth > S]


def shallow_configs(protocol: dict) -> list[dict]:
    """Mechanism, rescue, and collapse and rules to 100 blocks: all seeds."""
    own, rescue = protocol["mechanism"], protocol["rescue"]
    configs = [start_config(protocol, depth, {"sum": S}, seed)
               for depth in own["depths"] for S in protocol["sums"] if depth > S
               for seed in own["seeds"]]
    for depth in rescue["depths"]:
        configs += sweep(protocol, depth, [({"bias": 0.0}, "highway"),
                                           (ONE, "highway")], rescue["seeds"])
    for depth in protocol["depths"]:
        configs += sweep(protocol, depth, highway_sums(protocol["sums"], depth)
                         + starts_of(RULES, own=False), protocol["seeds"])
    return configs


def border_sum(protocol: dict, step: int) -> float:
    """The S of a step of the bisection: a power of two in even parts of octaves."""
    own = protocol["border"]
    return hn.significant(2 ** (own["octaves"] * step / 2 ** own["rounds"]))


def border_config(protocol: dict, change: dict, seed: int, step: int) -> dict:
    """A trial of the bisection."""
    own = protocol["border"]
    rest = {"depth": own["depth"], "lr": own["lr"], "optimizer": "adam",
            "n_test": own["n_test"]} | change
    return net_config(protocol, rest.pop("depth"),
                      {"sum": border_sum(protocol, step)}, rest.pop("optimizer"),
                      rest.pop("lr"), seed, **rest)


def bracket(book: Book, protocol: dict, change: dict, seed: int
            ) -> tuple[int | None, int]:
    """(low, high): steps of the bisection. The low one trains, the high one does not;
    the first and the last step are taken to do so. None where it is not finished."""
    low, high = 0, 2 ** protocol["border"]["rounds"]
    while high - low > 1:
        middle = (low + high) // 2
        config = border_config(protocol, change, seed, middle)
        if book.get(config) is None:
            return None, middle
        low, high = (middle, high) if book.trains(config) else (low, middle)
    return low, high


def border_round(book: Book, protocol: dict) -> list[dict]:
    """The next trials of every bisection that is not finished."""
    own, configs = protocol["border"], []
    for change in own["changes"]:
        for seed in own["seeds"]:
            low, step = bracket(book, protocol, change, seed)
            if low is None:
                configs.append(border_config(protocol, change, seed, step))
    return configs


def rules_at(protocol: dict, depth: int) -> list[tuple[dict, str]]:
    """The (gates, block) whose rule says something else than others' at this depth.
    Beyond 200 blocks the guideline's T is 0 in float32: the same net at any depth, so
    it runs only at 300."""
    deepest = depth > max(protocol["deeper"])
    return starts_of([name for name in RULES
                      if not (deepest and name == "guideline")])


def full_config(book: Book, protocol: dict, depth: int, gates: dict, block: str,
                optimizer: str, seed: int) -> dict | None:
    """A net on all images, at the rate its rule chose on the few, at 300 blocks where
    there is none at this depth; None where the rule never trained."""
    own = protocol["full"]
    lr = next((lr for L in (depth, *protocol["deeper"]) if (lr := book.chosen_lr(
        protocol, L, gates, optimizer, block=block)) is not None), None)
    if lr is None:
        return None
    measure = {"measured": own["measured"], "lesioned": depth // own["groups"],
               "kept": [own["kept"]]}
    return net_config(protocol, depth, gates, optimizer, lr, seed, block=block,
                      n_train=own["n_train"], epochs=own["epochs"],
                      lr_decay=own["lr_decay"], measure=measure)


def full_configs(book: Book, protocol: dict, depth: int) -> list[dict]:
    """The rules on all images, seed after seed."""
    configs = [full_config(book, protocol, depth, gates, block, optimizer, seed)
               for seed in protocol["seeds"] for gates, block in rules_at(protocol,
                                                                          depth)
               for optimizer in ("adam", "sgd")]
    return [config for config in configs if config]


def record_config(protocol: dict, seed: int) -> dict:
    """10,000 blocks on all images."""
    own = protocol["ten_thousand"]
    measure = {"measured": own["measured"], "kept": own["kept"],
               "lesioned": own["depth"] // own["groups"]}
    return net_config(protocol, own["depth"], ONE, "adam", own["lr"], seed,
                      n_train=own["n_train"], epochs=own["epochs"],
                      lr_decay=own["lr_decay"], measure=measure)


def deepest_config(book: Book, protocol: dict, gates: dict, block: str, seed: int = 0
                   ) -> dict:
    """A rule with 10,000 blocks on the few images, Adam at the rate that it chose at
    1000; one that did not train there gets a quarter of the epochs. seed: its place
    among the protocol's."""
    own, (deep,) = protocol["ten_thousand"], protocol["deep"]
    lr = book.chosen_lr(protocol, deep, gates, "adam", block=block)
    changes = {"epochs": own["failed_epochs"]} if lr is None else {}
    return net_config(protocol, own["depth"], gates, "adam", lr or own["lr"],
                      protocol["seeds"][seed], block=block, **changes)


def untrained(book: Book, protocol: dict, depth: int,
              starts: list[tuple[dict, str, str]]) -> list[dict]:
    """The starts (gates, block, optimiser) that train at no rate, with the other seeds
    at the middle one."""
    return [net_config(protocol, depth, gates, optimizer,
                       sorted(protocol["lrs"][optimizer])[1], seed, block=block)
            for gates, block, optimizer in starts for seed in protocol["seeds"][1:]
            if book.chosen_lr(protocol, depth, gates, optimizer, block=block) is None]


def conduct_second(book: Book, protocol: dict) -> None:
    """Run the second plan: lower S at every depth, and more seeds where there was one;
    cheap parts first."""
    own, rules = protocol["second"], [(RULES["b_T = -2"], "highway", "adam")]
    for depth in protocol["depths"]:
        book.run(sweep(protocol, depth, highway_sums(own["sums"], depth),
                       protocol["seeds"]))
    for depths, sums in (("deeper", "sums"), ("deep", "deep_sums")):
        for depth in protocol[depths]:
            lower = highway_sums(own["sums"], depth)
            book.run(sweep(protocol, depth, lower, protocol["seeds"][:1]))
            book.run(repeats(book, protocol, depth, lower)
                     + untrained(book, protocol, depth, rules + [
                         (*start, optimizer) for optimizer in protocol["lrs"]
                         for start in highway_sums(protocol[sums], depth)]))
    seeds = range(1, len(protocol["seeds"]))
    book.run([deepest_config(book, protocol, RULES[name], "highway", seed)
              for seed in seeds for name in own["rules"]])
    book.run([record_config(protocol, protocol["seeds"][seed]) for seed in seeds])


def conduct(book: Book, protocol: dict) -> None:
    """Run the plan: cheap parts with all their seeds first, then the dear ones."""
    book.run(shallow_configs(protocol))
    while configs := border_round(book, protocol):
        book.run(configs)
    for depth in protocol["deeper"]:
        starts = [*highway_sums(protocol["sums"], depth), *starts_of(RULES, own=False)]
        book.run(sweep(protocol, depth, starts, protocol["seeds"][:1]))
        book.run(repeats(book, protocol, depth, starts))
    shallow, deep = protocol["full"]["depths"]
    book.run(full_configs(book, protocol, shallow))
    (depth,), first = protocol["deep"], protocol["seeds"][:1]
    sums = highway_sums(protocol["deep_sums"], depth)
    rules = [start for start in rules_at(protocol, depth) if not is_first(*start)]
    book.run([record_config(protocol, protocol["seeds"][0]),
              *sweep(protocol, depth, sums, first),
              *sweep(protocol, depth, rules, first, ["adam"])])
    book.run([deepest_config(book, protocol, *start)
              for start in rules_at(protocol, depth)]
             + repeats(book, protocol, depth, sums)
             + repeats(book, protocol, depth, rules, ["adam"]))
    book.run(full_configs(book, protocol, deep))
    book.run([deepest_config(book, protocol, {"sum": S}, "highway")
              for S in protocol["ten_thousand"]["sums"]])
    conduct_second(book, protocol)
