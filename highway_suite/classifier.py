"""A very deep net with the interface of scikit-learn, by highway_networks.

    net = HighwayClassifier(depth=100).fit(X_train, y_train)
    print(net.score(X_test, y_test))

It needs scikit-learn: pip install scikit-learn.
"""

from __future__ import annotations

import copy
import math
import warnings
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
from sklearn import base
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

import highway_networks as hn
from highway_suite.training import Progress

# Config's names for what scikit-learn's estimators call otherwise.
NAMES = {"lr": "learning_rate", "batch": "batch_size", "epochs": "max_iter"}
SPREADS = 0.1, 10       # of inputs; what lies outside is warned of
FAR = 5                 # spreads; a feature's mean further from 0 is warned of
FLOATS = np.float64, np.float32


class Watch:
    """What fit tells after each epoch: keeps the best weights, and ends the training
    after `patience` epochs without a better score."""

    def __init__(self, net: hn.DeepNet, patience: int):
        self.net, self.patience = net, patience
        self.best, self.since, self.params = -math.inf, 0, net.params.copy()

    def __call__(self, row: dict) -> bool:
        self.since += 1
        if row["validation_acc"] > self.best:
            self.best, self.since = row["validation_acc"], 0
            self.params[...] = self.net.params
        return self.since >= self.patience


class HighwayClassifier(base.ClassNamePrefixFeaturesOutMixin, base.ClassifierMixin,
                        base.TransformerMixin, base.BaseEstimator):
    """A deep net of highway blocks, or of another kind in highway_networks.BLOCKS.

    Classification alone: there is no regression, and there are no sample weights.

    block: "highway", "plain", "residual", "scaled_residual", "t_only", "c_only" or
        "full".
    depth: blocks after the input projection; hidden: units of each.
    activation: of H, "tanh" or "relu".
    init: of the weights, "uniform", "glorot", "he" or "orthogonal".
    gate_bias: the initial b_T; "auto" is logit(1 / depth), which learns at any depth.
    optimizer: "adam", or "sgd" with a momentum of 0.9; learning_rate stays the same.
    batch_size: the most rows of one update. max_iter: passes over the rows.
    clip: the largest norm of the gradient; 0 is no limit.
    early_stopping: hold out validation_fraction of the rows, stop after
        n_iter_no_change epochs without a better accuracy there, and keep the best
        weights. Without it every fit takes max_iter epochs.
    random_state: int, RandomState or None. verbose: show the training on stderr.
    n_threads: of BLAS; None is 1. More pay for hundreds of units on an idle machine;
        beside another busy process they cost several times the time.

    X is never scaled. Only the initial weights of the input projection follow it: they
    are divided by the spread of X, the square root of the mean variance of its
    features, and its biases start at minus what the mean row gives. So inputs such as
    0 to 16 are learned from as they are. A spread outside 0.1 to 10 is warned of, and a
    feature whose mean is more than five spreads from 0, with which a net may guess.
    Arrays are float32 where X is, else float64.

    After fit: classes_, n_features_in_, n_iter_ (epochs), loss_curve_ (the mean loss of
    each epoch), history_ (lists epoch, train_loss, train_acc, grad_norm; validation_acc
    with early_stopping), net_ (highway_networks.DeepNet). Raises ValueError for a wrong
    setting, highway_networks.Diverged where training stops being finite.
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
        with self._whole_or_none():
            X, y = validate_data(self, X, y, dtype=FLOATS, order="C")
            check_classification_targets(y)
            self._check_stopping()
            self._start(X, np.unique(y))
            y, held_out = self._indices(y), None
            if self.early_stopping:
                counts = np.bincount(y)     # every class on both sides, where it can be
                fits = (counts.min() > 1 and len(counts)
                        <= len(y) * min(self.validation_fraction,
                                        1 - self.validation_fraction))
                X, X_held, y, y_held = train_test_split(
                    X, y, test_size=self.validation_fraction, random_state=self._seed,
                    stratify=y if fits else None)
                held_out = X_held, y_held
            self._train(X, y, self.max_iter, held_out)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> HighwayClassifier:
        """One more pass over rows X (N, P) and their labels y (N,) -> self.

        classes: all labels that will come; the first call needs it. Mean and spread
        are those of the rows of that call, which also makes net and optimiser.
        early_stopping plays no part.
        """
        first = not hasattr(self, "net_")
        if classes is not None:
            classes = np.unique([*classes])         # of a set, too
        X, y = validate_data(self, X, y, dtype=FLOATS, order="C", reset=first)
        check_classification_targets(y)
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs classes, all labels")
        if not first and classes is not None and not np.array_equal(
                classes, self.classes_):
            raise ValueError("classes are not those of the first call of partial_fit")
        with self._whole_or_none() if first else self._whole_or_as_before():
            if first:
                self._start(X, classes)
            X = X.astype(self.net_.dtype, copy=False)
            self._train(X, self._indices(y), 1, None)
        return self

    def _check_stopping(self):
        """Raise ValueError for settings of early_stopping that are not allowed."""
        share = self.validation_fraction
        if not (isinstance(share, (float, np.floating)) and 0 < share < 1):
            raise ValueError(f"validation_fraction is {share!r}; "
                             "allowed: above 0 and below 1")
        patience = self.n_iter_no_change
        if not (isinstance(patience, (int, np.integer)) and patience >= 1):
            raise ValueError(f"n_iter_no_change is {patience!r}; allowed: whole "
                             "numbers, 1 and more")

    @contextmanager
    def _whole_or_none(self):
        """Where the body fails, or is interrupted, there is no net: neither a part of
        the new one, nor the old one, which nobody should take for the new one."""
        try:
            yield
        except BaseException:
            with suppress(AttributeError):
                del self.net_
            raise

    @contextmanager
    def _whole_or_as_before(self):
        """Where the body fails, or is interrupted, the net is that of before."""
        params = self.net_.params.copy()
        names = "_optimizer", "_rng", "n_iter_", "history_", "loss_curve_"
        before = copy.deepcopy({name: getattr(self, name) for name in names})
        try:
            yield
        except BaseException:
            self.net_.params[...] = params
            self.__dict__.update(before)
            raise

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "net_")

    def _config(self, dtype: str) -> hn.Config:
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
        self._rng = np.random.default_rng(hn.streams(self._seed)["batches"])
        self._n_features_out, self.n_iter_ = self.hidden, 0
        self.history_: dict[str, list] = {}
        with hn.blas_threads(1):        # the same bits on any number of cores
            self._fit_projection(X)

    def _fit_projection(self, X):
        """Start the input projection at W_in (x - mean) / spread. Warns where the
        spread is far from 1, or a mean from 0."""
        spread = math.sqrt(X.var(axis=0, dtype=np.float64).mean())
        spread = spread or 1.0          # where all rows are equal
        mean = X.mean(axis=0, dtype=np.float64)
        away = abs(mean).max() / spread
        far = []
        if not SPREADS[0] <= spread <= SPREADS[1]:
            far.append(f"the spread of X is {spread:.3g}")
        if away > FAR:
            far.append(f"the mean of a feature is {away:.3g} spreads from 0")
        if far:
            warnings.warn(" and ".join(far) + ", but nothing scales it: make_pipeline("
                          "StandardScaler(), HighwayClassifier())", stacklevel=4)
        weights = self.net_.views(self.net_.params)
        weights["W_in"][...] /= spread
        weights["b_in"][...] = -weights["W_in"] @ mean[:, None]

    def _indices(self, y):
        """Labels -> their places in classes_. Raises ValueError for another label."""
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (self.classes_[places] != y).any():
            raise ValueError("y has labels that are not among classes")
        return places

    def _train(self, X, labels, epochs, held_out):
        """Let `hn.fit` train the net for so many epochs. Batches are as equal as they
        can be, so that fewer rows sit out of an epoch than it has batches."""
        config = self._config(X.dtype.name)
        size = len(X) // math.ceil(len(X) / config.batch)
        watch = Watch(self.net_, self.n_iter_no_change) if held_out else None
        batches: Any = hn.Batches(X, labels, size, self._rng)
        shown = Progress(f"{config.block:>7} {config.depth}", epochs
                         ) if self.verbose else None

        def tell(row):
            if shown:
                shown.report(row)
            return watch(row) if watch else None

        def measure(net, cache):
            x, y = held_out
            return {"validation_acc": float(hn.evaluate(net, x, y, cache)[0])}
        rows, status = hn.fit(
            self.net_, shown.watch(batches) if shown else batches, self._optimizer,
            lambda *_: config.lr, tell, epochs=epochs, clip=config.clip,
            measure=measure if held_out else None, threads=self.n_threads or 1)
        if shown:
            shown.close()
        if status == "diverged":
            raise hn.Diverged(
                f"in epoch {len(rows) + 1} the loss or a weight was no longer "
                "finite: choose a smaller learning_rate, or scale X")
        if watch:
            self.net_.params[...] = watch.params
        for row in rows:
            row["epoch"] = self.n_iter_ = self.n_iter_ + 1
            for name in {**row, **self.history_}:   # None where not measured
                column = self.history_.setdefault(name, [None] * (self.n_iter_ - 1))
                column.append(row.get(name))
        self.loss_curve_ = self.history_["train_loss"]

    def _rows(self, X):
        """X as the fitted net takes it, checked by scikit-learn."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=FLOATS, order="C", reset=False)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row, (N,)."""
        X = self._rows(X)       # which first asks whether there is a net
        return self.classes_[self.net_.predict(X)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (N, C), in the order of classes_."""
        X = self._rows(X)
        return self.net_.predict_proba(X)

    def transform(self, X: Any) -> np.ndarray:
        """The output of the last block, (N, hidden)."""
        X = self._rows(X)
        parts = np.split(X, range(hn.COLUMNS, len(X), hn.COLUMNS))
        return np.concatenate([self.net_.block_outputs(part)[:, -1] for part in parts])

    def gates(self, X: Any) -> np.ndarray:
        """The transform gates T of every block, (N, depth, hidden). Raises ValueError
        for blocks that have none."""
        X = self._rows(X)
        return self.net_.gates(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
