"""A net of many blocks with the interface of scikit-learn, by highway_networks.

    net = HighwayClassifier(depth=100).fit(X_train, y_train)
    print(net.score(X_test, y_test))

It needs scikit-learn: pip install scikit-learn.
"""

from __future__ import annotations

import copy
import math
import warnings
from contextlib import closing, contextmanager, nullcontext
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn import base
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, check_scalar, gen_batches
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight as checked_weights
from sklearn.utils.validation import check_is_fitted, validate_data

import highway_networks as hn
from highway_suite.training import Progress

# Config's names for what scikit-learn's estimators call otherwise.
NAMES = {"lr": "learning_rate", "batch": "batch_size", "epochs": "max_iter"}
SPREADS = 0.1, 10       # of inputs; what lies outside is warned of
FAR = 5                 # spreads; a feature's mean further from 0 is warned of
FEW = 100               # held-out rows; below it one of them is over 1 % of accuracy
FLOATS = np.float64, np.float32
KEPT = "net_", "_optimizer", "_stream", "n_iter_", "history_", "loss_curve_"
MADE_WITH = ("block", "depth", "hidden", "activation", "init", "gate_bias", "optimizer",
             "random_state")        # what no later call of partial_fit can change


def moments(X: np.ndarray, weights: np.ndarray) -> tuple:
    """The weighted mean and variance of each feature. It takes some rows at a time, for
    a copy of all of them may not fit into memory."""
    share = weights / weights.sum()
    parts = [*gen_batches(len(X), 2**18 // X.shape[1] + 1)]
    mean = sum(share[rows] @ X[rows] for rows in parts)
    return mean, sum(share[rows] @ (X[rows] - mean) ** 2 for rows in parts)


class Weighted:
    """A net whose loss is the weighted mean of a batch. Batches have, instead of
    labels, their places in labels and weights."""

    def __init__(self, net: hn.DeepNet, labels: np.ndarray, weights: np.ndarray):
        self.net, self.labels, self.weights = net, labels, weights
        self.params, self.cache = net.params, net.cache

    def gradient(self, batch: tuple, cache: hn.Cache) -> tuple[dict, np.ndarray]:
        """As DeepNet's."""
        x, places = batch
        labels, share = self.labels[places], self.weights[places]
        share = share / share.sum()
        logits, cache = self.net.forward(x, cache)
        right = logits[labels, np.arange(len(labels))]
        measures = {
            "train_loss": float(share @ (np.logaddexp.reduce(logits, axis=0) - right)),
            "train_acc": float(share @ (logits.argmax(axis=0) == labels))}
        _, dlogits = hn.cross_entropy(logits, labels)
        dlogits *= share * len(labels)      # instead of the mean's 1 / B
        return measures, self.net.backward(dlogits, cache)


def validate(net: hn.DeepNet, x: np.ndarray, labels: np.ndarray,
             weights: np.ndarray) -> dict[str, float]:
    """Weighted loss and accuracy on rows (N, P), or Diverged."""
    p = net.predict_proba(x)
    if not np.isfinite(p).all():
        raise hn.Diverged("a logit is not finite")
    right = np.maximum(p[np.arange(len(p)), labels], np.finfo(p.dtype).tiny)
    loss, accuracy = np.average([-np.log(right), p.argmax(axis=1) == labels], axis=1,
                                weights=weights)
    return {"validation_loss": hn.significant(loss), "validation_acc": float(accuracy)}


class Watch:
    """Called after each epoch: keeps the best weights, of equally good ones the last,
    and ends the training after `patience` epochs that were worse."""

    def __init__(self, net: hn.DeepNet, patience: int):
        self.net, self.patience = net, patience
        self.best, self.since, self.params = -math.inf, 0, net.params.copy()

    def __call__(self, row: dict) -> bool:
        self.since += 1
        if row["validation_acc"] >= self.best:
            self.best, self.since = row["validation_acc"], 0
            self.params[...] = self.net.params
        return self.since >= self.patience


class HighwayClassifier(base.ClassNamePrefixFeaturesOutMixin, base.ClassifierMixin,
                        base.TransformerMixin, base.BaseEstimator):
    """A net of highway blocks, or of another kind in highway_networks.BLOCKS.

    block: "highway", "plain", "residual", "scaled_residual", "t_only", "c_only" or
        "full".
    depth: blocks after the input projection; hidden: units of each.
    activation: of H, "tanh" or "relu".
    init: of the weights, "uniform", "glorot", "he" or "orthogonal".
    gate_bias: the initial b_T; "auto" is logit(1 / depth), which learns at any depth.
    optimizer: "adam", or "sgd" with a momentum of 0.9; learning_rate stays the same.
    batch_size: the most rows of one update. max_iter: passes over the rows.
    clip: the largest norm of the gradient; 0 is no limit.
    early_stopping: stop after n_iter_no_change epochs in a row in which the accuracy on
        X_val, or else on a held-out validation_fraction of the rows, is below the best
        so far, and keep the best weights, of equal ones the last. Fewer than 100 such
        rows bring a warning. Without it every fit takes max_iter epochs.
    class_weight: None, a dict {label: weight}, or "balanced": every class counts alike.
    random_state: int, RandomState or None. verbose: show the training on stderr.
    n_threads: of BLAS; None is 1. More help with hundreds of units on an idle machine;
        beside another busy process they cost several times the time.

    X is never scaled. Only the initial weights of the input projection follow it: they
    are divided by the spread of X, the square root of the mean variance of its
    features, and the projection's biases start so that the mean row gives 0. So inputs
    such as 0 to 16 are learned from as they are. Two things bring a warning: a spread
    outside 0.1 to 10, and a feature whose mean is more than five spreads from 0, with
    which a net may only guess. Arrays are float32 where X is, else float64.

    After fit: classes_, n_features_in_, n_iter_ (epochs), loss_curve_ (the mean loss of
    each epoch), history_ (lists epoch, train_loss, train_acc, grad_norm; with held-out
    rows validation_loss and validation_acc), net_ (highway_networks.DeepNet). Raises
    ValueError or TypeError for a wrong setting, highway_networks.Diverged where
    training stops being finite.
    """

    def __init__(self, block="highway", depth=10, hidden=50, *, activation="tanh",
                 init="glorot", gate_bias="auto", optimizer="adam", learning_rate=1e-3,
                 batch_size=32, max_iter=50, clip=5.0, early_stopping=False,
                 validation_fraction=0.1, n_iter_no_change=10, class_weight=None,
                 random_state=None, verbose=False, n_threads=None):
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
        self.class_weight = class_weight
        self.random_state = random_state
        self.verbose = verbose
        self.n_threads = n_threads

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None,
            y_val: Any = None) -> HighwayClassifier:
        """Train a new net on rows X (N, P) and their labels y (N,) -> self.

        sample_weight: (N,): a row of weight 2 counts as two rows, one of 0 as none.
        X_val, y_val: rows to measure loss and accuracy on after each epoch.
        """
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val are given together, or none of them")
        with self._whole_or():
            X, y = validate_data(self, X, y, dtype=FLOATS, order="C")
            check_classification_targets(y)
            check_scalar(self.n_iter_no_change, "n_iter_no_change", Integral, min_val=1)
            check_scalar(self.validation_fraction, "validation_fraction", Real,
                         min_val=0, max_val=1, include_boundaries="neither")
            labels, weights, rows = self._targets(X, y, sample_weight)
            if len(self.classes_) == 1:
                warnings.warn(f"all labels are {self.classes_[0]}", stacklevel=2)
            self._start(X, weights)
            held_out: Any = None
            if X_val is not None:
                X_val, y_val = validate_data(self, X_val, y_val, dtype=X.dtype,
                                             order="C", reset=False)
                places = self._places(y_val)
                held_out = X_val, places, self._each[places]
            elif self.early_stopping:
                rows, held = self._hold_out(labels, rows)
                held_out = X[held], labels[held], weights[held]
            if self.early_stopping and len(held_out[0]) < FEW:
                warnings.warn(f"only {len(held_out[0])} rows decide which weights are "
                              "kept: give X_val, or no early_stopping", stacklevel=2)
            self._train(X, labels, weights, rows, self.max_iter, held_out)
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
                    ) -> HighwayClassifier:
        """One more pass over rows X (N, P) and their labels y (N,) -> self.

        classes: all labels that will come; the first call needs it. This call makes the
        net and the optimiser, by the mean and spread of its rows. Later learning_rate,
        batch_size, clip and class_weight may change. early_stopping plays no part.
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
        if self.class_weight == "balanced":     # in the rows of one call it may not be
            raise ValueError("class_weight is 'balanced'; partial_fit takes a dict")
        with self._whole_or(*() if first else KEPT):
            labels, weights, rows = self._targets(
                X, y, sample_weight, classes if first else self.classes_)
            if first:
                self._start(X, weights)
            for name, value in self._made_with.items():
                if (now := getattr(self, name)) is not value and now != value:
                    raise ValueError(f"{name} is {now!r}, but the net was made with "
                                     f"{value!r}: only a new one can have another")
            X = X.astype(self.net_.dtype, copy=False)
            self._train(X, labels, weights, rows, 1, None)
        return self

    def _targets(self, X, y, sample_weight, classes=None):
        """-> labels as places in classes_, weights, and the rows whose weight is not 0.
        Without classes they are those of rows that sample_weight counts."""
        weights = checked_weights(sample_weight, X, dtype=np.float64)
        rows = np.flatnonzero(weights) if weights.any() else ...     # refused below
        self.classes_ = np.unique(y[rows]) if classes is None else classes
        labels = self._places(y, rows)
        self._each = compute_class_weight(
            self.class_weight, classes=self.classes_, y=y[rows])
        weights = weights * self._each[labels]
        if not (weights.min() >= 0 and 0 < weights.sum() < math.inf):
            raise ValueError("weights must be 0 or more, finite, and not all zero")
        return labels, weights, np.flatnonzero(weights)

    def _places(self, y, rows=...):
        """Labels -> their places in classes_, in which these rows must have them."""
        places = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (other := (self.classes_[places] != y)[rows]).any():
            raise ValueError(f"labels {np.unique(y[rows][other])} are not among the "
                             f"classes {self.classes_}")
        return places

    def _hold_out(self, labels, rows):
        """Rows -> those to train on and those held out, of every class if possible."""
        counts = np.bincount(labels[rows])
        share = min(self.validation_fraction, 1 - self.validation_fraction)
        fits = counts.min() > 1 and len(counts) <= len(rows) * share
        return train_test_split(
            rows, test_size=self.validation_fraction, random_state=self._seed,
            stratify=labels[rows] if fits else None)

    @contextmanager
    def _whole_or(self, *kept):
        """Where the body fails, or is interrupted, these attributes are as before.
        Without any there is no net: a part of the new one is of no use, and the old one
        could be taken for it."""
        before = copy.deepcopy({name: getattr(self, name) for name in kept})
        try:
            yield
        except BaseException:
            self.__dict__.pop("net_", None)
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

    def _start(self, X, weights):
        """Make the untrained net for such rows, and for classes_. Its input projection
        starts at W_in (x - mean) / spread. Warns where the spread is far from 1, or a
        mean from 0."""
        self._made_with = {name: getattr(self, name) for name in MADE_WITH}
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        config = self._config(X.dtype.name)
        self.net_ = hn.make_net(config, hn.Data(
            X[:1], np.zeros(1, int), X[:1], np.zeros(1, int), len(self.classes_), None))
        self._optimizer = hn.OPTIMIZERS[self.optimizer](self.net_.params, config)
        # Plain data, for NumPy 1 does not read a generator that NumPy 2 has pickled.
        self._stream = np.random.default_rng(
            hn.streams(self._seed)["batches"]).bit_generator.state
        self._n_features_out, self.n_iter_ = self.hidden, 0
        self.history_: dict[str, list] = {}
        with hn.blas_threads(1):        # the same bits on any number of cores
            mean, variance = moments(X, weights)
        spread = math.sqrt(variance.mean()) or 1.0      # where all rows are equal
        away = abs(mean).max() / spread
        far = []
        if not SPREADS[0] <= spread <= SPREADS[1]:
            far.append(f"the spread of X is {spread:.3g}")
        if away > FAR:
            far.append(f"the mean of a feature is {away:.3g} spreads from 0")
        if far:
            warnings.warn(" and ".join(far) + ", but nothing scales it: make_pipeline("
                          "StandardScaler(), HighwayClassifier())", stacklevel=3)
        named = self.net_.views(self.net_.params)
        named["W_in"][...] /= spread
        named["b_in"][...] = -named["W_in"] @ mean[:, None]

    def _train(self, X, labels, weights, rows, epochs, held_out):
        """Let `hn.fit` train the net for so many epochs. Batches are as equal as they
        can be, so that fewer rows sit out of an epoch than it has batches."""
        config = self._config(X.dtype.name)
        size = len(rows) // math.ceil(len(rows) / config.batch)
        watch = (Watch(self.net_, self.n_iter_no_change)
                 if held_out and self.early_stopping else None)
        rng = np.random.default_rng()
        rng.bit_generator.state = self._stream
        net: Any = self.net_
        if np.ptp(weights[rows]):
            net, labels = Weighted(net, labels, weights), np.arange(len(X))
        batches: Any = hn.Batches(X, labels, size, rng, rows)
        with closing(Progress(f"{config.block:>7} {config.depth}", epochs, watch,
                              quiet=not self.verbose)) as shown:
            found, status = hn.fit(
                net, shown.watch(batches), self._optimizer, lambda *_: config.lr,
                shown.report, epochs=epochs, clip=config.clip,
                threads=self.n_threads or 1,
                measure=held_out and (lambda *_: validate(self.net_, *held_out)))
        if status == "diverged":
            raise hn.Diverged(
                f"in epoch {len(found) + 1} the loss or a weight was no longer "
                "finite: choose a smaller learning_rate, or scale X")
        if watch:
            self.net_.params[...] = watch.params
        self._stream = rng.bit_generator.state
        for row in found:
            for name in {**row, **self.history_}:   # None where not measured
                column = self.history_.setdefault(name, [None] * self.n_iter_)
                column.append(row.get(name))
            self.n_iter_ += 1
            self.history_["epoch"][-1] = self.n_iter_
        self.loss_curve_ = self.history_["train_loss"]

    def _ask(self, X, ask):
        """What ask gives of rows X, which scikit-learn checks, on the threads of `fit`.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, order="C", reset=False)
        many = len(X) > 100     # for fewer, to set the threads takes longer
        with hn.blas_threads(self.n_threads or 1) if many else nullcontext():
            return ask(X)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row, (N,)."""
        found = self._ask(X, lambda X: self.net_.predict(X))
        return self.classes_[found]

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (N, C), in the order of classes_."""
        return self._ask(X, lambda X: self.net_.predict_proba(X))

    def transform(self, X: Any) -> np.ndarray:
        """The output of the last block, (N, hidden)."""
        return self._ask(X, lambda X: np.concatenate([
            self.net_.block_outputs(part)[:, -1]
            for part in np.split(X, range(hn.COLUMNS, len(X), hn.COLUMNS))]))

    def gates(self, X: Any) -> np.ndarray:
        """The transform gates T of every block that has them, (N, depth, hidden)."""
        return self._ask(X, lambda X: self.net_.gates(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
