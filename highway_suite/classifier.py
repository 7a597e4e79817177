"""A very deep net with the manners of scikit-learn, on the machine of highway_networks.

    from highway_suite import HighwayClassifier
    net = HighwayClassifier(depth=100).fit(X_train, y_train)
    print(net.score(X_test, y_test))

It needs scikit-learn: pip install "highway-networks[sklearn]".
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import highway_networks as hn

# The names that Config has for what scikit-learn's estimators call otherwise.
NAMES = {"lr": "learning_rate", "batch": "batch_size", "epochs": "max_iter"}
SPREADS = 0.1, 10       # of inputs that the defaults learn from as well as from 1


class Enough(Exception):
    """Training has brought nothing for a while: what ends `hn.fit` early."""


class Watch:
    """What fit tells after each epoch: it keeps the history and the best weights, shows
    the progress, and raises Enough after `patience` epochs without a better score."""

    def __init__(self, net: hn.DeepNet, patience: int | None, progress: Any):
        self.net, self.patience, self.progress = net, patience, progress
        self.rows: list[dict] = []
        self.best, self.since, self.params = -math.inf, 0, net.params.copy()

    def __call__(self, row: dict) -> None:
        self.rows.append(row)
        if self.progress:
            self.progress.report(row)
        if self.patience is None:
            return
        self.since += 1
        if row["validation_acc"] > self.best:
            self.best, self.since = row["validation_acc"], 0
            self.params[...] = self.net.params
        if self.since >= self.patience:
            raise Enough


class HighwayClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin,
                        TransformerMixin, BaseEstimator):
    """A deep net of highway blocks, or of another kind in highway_networks.BLOCKS.
    """

    def __init__(self, block="highway", depth=10, hidden=50, *, activation="tanh",
                 init="glorot", gate_bias="auto", optimizer="adam", learning_rate=1e-3,
                 batch_size=32, max_iter=50, clip=5.0, early_stopping=False,
                 validation_fraction=0.1, n_iter_no_change=10, random_state=None,
                 verbose=False, n_threads=None):
        self.block = block
        self.depth = depth
        self.hidden = hidden
        self.activation = activation
        self.init = init
        self.gate_bias = gate_bias
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.clip = clip
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state
        self.verbose = verbose
        self.n_threads = n_threads

    def fit(self, X: Any, y: Any) -> HighwayClassifier:
        """Train a new net on rows X (N, P) and their labels y (N,) -> self."""
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self._start(X, np.unique(y))
        held_out = None
        if self.early_stopping:
            X, X_held, y, y_held = train_test_split(
                X, y, test_size=self.validation_fraction, stratify=y,
                random_state=self._seed)
            held_out = X_held, self._indices(y_held)
        self._train(X, self._indices(y), self.max_iter, held_out)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> HighwayClassifier:
        """One more pass over rows X (N, P) and their labels y (N,) -> self."""
        first = not hasattr(self, "net_")
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), reset=first)
        check_classification_targets(y)
        if first:
            if classes is None:
                raise ValueError("the first call of partial_fit needs classes: all "
                                 "labels that will come")
            self._start(X, np.unique(classes))
        self._train(X.astype(self.net_.dtype, copy=False), self._indices(y), 1)
        return self

    def _config(self, dtype) -> hn.Config:
        """The machine's own Config, which checks every value."""
        try:
            return hn.Config(
                block=self.block, seed=self._seed, depth=self.depth, hidden=self.hidden,
                activation=self.activation, init=self.init, gate_bias=self.gate_bias,
                epochs=self.max_iter, batch=self.batch_size, optimizer=self.optimizer,
                lr=self.learning_rate, clip=self.clip, dtype=dtype)
        except ValueError as error:
            name, rest = str(error).split(" ", 1)
            raise ValueError(f"{NAMES.get(name, name)} {rest}") from None

    def _start(self, X, classes):
        """Make the untrained net for such rows and classes."""
        self.classes_ = classes
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        config = self._config(X.dtype.name)
        self.net_ = hn.make_net(config, hn.Data(
            X, np.zeros(len(X), int), X[:1], np.zeros(1, int), len(classes), None))
        self._optimizer = hn.OPTIMIZERS[self.optimizer](self.net_.params, config)
        rng = hn.streams(self._seed)["batches"]
        self._rng = np.random.default_rng(rng)
        self._n_features_out = self.hidden
        self.history_: dict[str, list] = {}
        self.n_iter_ = 0
        self._center(X)

    def _center(self, X):
        weights = self.net_.views(self.net_.params)
        spread = float(np.sqrt(X.var(axis=0).mean())) or 1.0
        mode = globals().get("MODE", "scalar")
        if mode == "scalar":
            weights["W_in"][...] /= spread
            weights["b_in"][:, 0] = -weights["W_in"] @ X.mean(axis=0)
        elif mode == "feature":
            s = X.std(axis=0)
            weights["W_in"][...] /= np.where(s > 0, s, 1)
            weights["b_in"][:, 0] = -weights["W_in"] @ X.mean(axis=0)
        elif mode == "onlyscale":
            weights["W_in"][...] /= spread

    def _indices(self, y):
        """Labels -> their places in classes_. Raises ValueError for another label."""
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[places] != y).any():
            raise ValueError("y has labels that are not among classes")
        return places

    def _train(self, X, labels, epochs, held_out=None):
        """Let `hn.fit` train the net for so many epochs."""
        config = self._config(X.dtype.name)
        batches = math.ceil(len(X) / self.batch_size)
        batches = hn.Batches(X, labels, len(X) // batches, self._rng)
        watch = Watch(self.net_, self.n_iter_no_change if held_out else None, None)

        def measure(net, cache):
            if held_out:
                return {"validation_acc": hn.evaluate(net, *held_out, cache)[0]}
            return {}
        try:
            status = hn.fit(
                self.net_, batches, self._optimizer, lambda *_: self.learning_rate,
                watch, epochs=epochs, clip=config.clip, measure=measure,
                threads=hn.threads_for(self.hidden, self.n_threads))[1]
        except Enough:
            status = "ok"
        if status != "ok":
            raise hn.Diverged("not finite")
        if held_out:
            self.net_.params[...] = watch.params
        for row in watch.rows:
            for name, value in row.items():
                self.history_.setdefault(name, []).append(value)
        self.loss_curve_ = self.history_["train_loss"]
        self.n_iter_ = len(self.loss_curve_)

    def _rows(self, X):
        check_is_fitted(self)
        return validate_data(self, X, dtype=(np.float64, np.float32), reset=False)

    def predict(self, X: Any) -> np.ndarray:
        return self.classes_[self.net_.predict(self._rows(X))]

    def predict_proba(self, X: Any) -> np.ndarray:
        return self.net_.predict_proba(self._rows(X))

    def transform(self, X: Any) -> np.ndarray:
        X = self._rows(X)
        parts = np.split(X, range(hn.COLUMNS, len(X), hn.COLUMNS))
        return np.concatenate([self.net_.block_outputs(part)[:, -1] for part in parts])

    def gates(self, X: Any) -> np.ndarray:
        return self.net_.gates(self._rows(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
