"""HighwayClassifier behaves as scikit-learn's estimators do, and learns."""

import copy
import pickle
import subprocess
import sys
import tracemalloc
import warnings

import numpy as np
import pytest

import highway_networks as hn

pytest.importorskip("sklearn")

from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from highway_suite import HighwayClassifier, gradients
from highway_suite.classifier import Weighted

SMALL = {"depth": 3, "hidden": 8, "max_iter": 3, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    return make_classification(230, 12, n_informative=6, n_classes=3, random_state=1)


# The checks fit inputs of many spreads, and pytest would make errors of warnings. Some
# draw from NumPy's global generator, which no test may leave changed.
@pytest.mark.filterwarnings("default")
@parametrize_with_checks([HighwayClassifier(depth=3, hidden=20)])
def test_scikit_learns_own_checks(estimator, check):
    state = np.random.get_state()
    try:
        check(estimator)
    finally:
        np.random.set_state(state)


@pytest.mark.parametrize("change", [{}, {"depth": 100, "max_iter": 3}])
def test_defaults_learn_digits_as_they_are(change):
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, random_state=0, stratify=y)
    net = HighwayClassifier(**change, random_state=0).fit(X, y)
    assert net.score(X_test, y_test) > 0.94


def test_the_type_of_a_table_counts_and_its_order_does_not(table):
    """A DataFrame lies column by column, an array row by row."""
    X, y = table
    by_columns, single = np.asfortranarray(X), X.astype("float32")
    nets = [HighwayClassifier(**SMALL).fit(x, y) for x in (X, by_columns, single)]
    found = [net.predict_proba(by_columns) for net in nets]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], nets[0].predict_proba(X))
    assert [net.net_.dtype.name for net in nets] == ["float64", "float64", "float32"]
    assert nets[2].predict_proba(single).dtype == "float32"


def test_it_trains_the_machines_net(table, capfd):
    """Retold with the machine alone: the same weights to the last bit."""
    X, y = table
    net = HighwayClassifier(**SMALL, batch_size=46, verbose=True).fit(X, y)
    assert "train accuracy" in capfd.readouterr().err
    config = hn.Config(depth=3, hidden=8, init="glorot", gate_bias="auto", lr=1e-3,
                       epochs=3, batch=46, seed=net._seed, dtype="float64")
    data = hn.Data(X, y, X, y, 3, None)
    twin = hn.make_net(config, data)
    weights, share = twin.views(twin.params), np.full(len(X), 1 / len(X))
    mean = share @ X
    weights["W_in"][...] /= float(np.sqrt((share @ (X - mean) ** 2).mean()))
    weights["b_in"][...] = -weights["W_in"] @ mean[:, None]
    history = hn.train(twin, data, config)[0]
    assert np.array_equal(net.net_.params, twin.params)
    assert net.loss_curve_ == net.history_["train_loss"] == history["train_loss"]
    assert net.n_iter_ == 3 and net.history_["epoch"] == [1, 2, 3]
    assert np.array_equal(net.transform(X), twin.block_outputs(X)[:, -1])
    assert np.array_equal(net.gates(X), twin.gates(X))


def test_partial_fit_goes_on_as_one_fit(table):
    X, y = table
    whole, parts = HighwayClassifier(**SMALL).fit(X, y), HighwayClassifier(**SMALL)
    for _ in range(3):
        parts.partial_fit(X, y, classes=[0, 1, 2])
    assert np.array_equal(whole.net_.params, parts.net_.params)
    assert whole.history_ == parts.history_
    with pytest.raises(ValueError, match="needs classes"):
        HighwayClassifier(**SMALL).partial_fit(X, y)
    with pytest.raises(ValueError):
        parts.partial_fit(X, y + 1)
    with pytest.raises(ValueError):
        parts.partial_fit(X, y, classes=[0, 1, 2, 3])


def test_what_made_the_net_stays_between_two_passes(table):
    net = HighwayClassifier(**SMALL).partial_fit(*table, classes=[0, 1, 2])
    for name, value in {"depth": 4, "hidden": 9, "block": "plain", "init": "he",
                        "activation": "relu", "gate_bias": -1.0, "optimizer": "sgd",
                        "random_state": 1}.items():
        with pytest.raises(ValueError, match=f"^{name} is"):
            copy.deepcopy(net).set_params(**{name: value}).partial_fit(*table)
    net.set_params(learning_rate=0.01, batch_size=9, clip=1.0).partial_fit(*table)


@pytest.mark.parametrize("why, change", [
    ("^depth is 0", {"depth": 0}),
    ("smaller learning_rate", {"block": "residual", "activation": "relu", "depth": 30,
                               "optimizer": "sgd", "clip": 0.0, "learning_rate": 1e3})])
def test_no_net_is_left_of_a_fit_that_failed(table, change, why):
    net = HighwayClassifier(**SMALL).fit(*table)
    with pytest.raises((ValueError, hn.Diverged), match=why):
        net.set_params(**change).fit(*table)
    with pytest.raises(NotFittedError):
        net.predict(table[0])


def test_a_later_pass_that_fails_leaves_the_net_as_it_was(table, monkeypatch):
    X, y = table
    one, other = (HighwayClassifier(**SMALL).partial_fit(X, y, np.unique(y))
                  for _ in range(2))
    step = hn.Adam.step

    def interrupted_after(*args):
        step(*args)
        raise KeyboardInterrupt
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(hn.Adam, "step", interrupted_after)
        one.partial_fit(X, y)
    for _ in range(2):
        assert np.array_equal(one.net_.params, other.net_.params)
        assert one.loss_curve_ == other.loss_curve_
        one.partial_fit(X, y), other.partial_fit(X, y)


def test_early_stopping_keeps_the_last_of_the_best_weights(table):
    X, y = table
    net = HighwayClassifier(**SMALL | {"max_iter": 200}, early_stopping=True,
                            n_iter_no_change=4)
    with pytest.warns(UserWarning, match="only 23 rows decide"):
        net.fit(X, y)
    scores = net.history_["validation_acc"]
    assert len(scores) == net.n_iter_ < 200 and np.argmax(scores[::-1]) == 4
    held = train_test_split(X, y, test_size=0.1, random_state=net._seed, stratify=y)
    assert net.score(held[1], held[3]) == max(scores)
    net.partial_fit(X, y)
    assert {len(column) for column in net.history_.values()} == {net.n_iter_}


def test_rows_of_ones_own_are_measured_after_each_epoch(table):
    X, X_val, y, y_val = train_test_split(*table, random_state=0)
    net = HighwayClassifier(**SMALL).fit(X, y, X_val=X_val, y_val=y_val)
    assert net.history_["validation_acc"][-1] == net.score(X_val, y_val)
    assert net.history_["validation_loss"][-1] == pytest.approx(
        log_loss(y_val, net.predict_proba(X_val)), rel=1e-5)
    net.set_params(early_stopping=True, n_iter_no_change=1, max_iter=99)
    with pytest.warns(UserWarning, match="only 58 rows decide"):
        assert net.fit(X, y, X_val=X_val, y_val=y_val).n_iter_ < 99
    with pytest.raises(ValueError, match="y_val are given together"):
        net.fit(X, y, X_val=X_val)


def test_the_gradient_of_a_weighted_loss_is_that_of_the_complex_step():
    net, (x, labels) = gradients.small_net("highway", 3), gradients.small_batch()
    twin = hn.DeepNet(**net.settings, dtype="complex128")
    weights = np.array([0, 1, 2.5, 1e-3, 4, 0.3])
    weighted = Weighted(net, labels, weights)
    measures, grad = weighted.gradient((x, np.arange(6)), net.cache(6))

    def loss(net):
        logits = net.forward(x.astype(net.dtype))[0]
        return weights @ [hn.cross_entropy(logits[:, [i]], labels[[i]])[0]
                          for i in range(6)] / weights.sum()
    assert measures["train_loss"] == pytest.approx(loss(net), rel=1e-12)
    gradients.compare(net, grad, gradients.by_complex_step(net, twin, loss), 20,
                      lambda expected, tensor: 1e-9 * abs(expected))


def test_weights_of_rows_and_of_classes(table):
    X, y = table
    balance = dict(enumerate(len(y) / 3 / np.bincount(y)))
    for of_classes, each in (({0: 1, 2: 3}, [1, 1, 3]), ("balanced", balance)):
        weights = [each[label] for label in y]
        one = HighwayClassifier(**SMALL).fit(X, y, weights)
        other = HighwayClassifier(**SMALL, class_weight=of_classes).fit(X, y)
        assert np.allclose(one.net_.params, other.net_.params)
    weights, parts, kept = np.array([1, 0, 3])[y], HighwayClassifier(**SMALL), y != 1
    for _ in range(3):
        parts.partial_fit(X, y, [0, 2], weights)
    for rows in (slice(None), kept):
        net = HighwayClassifier(**SMALL).fit(X[rows], y[rows], weights[rows])
        assert np.allclose(net.net_.params, parts.net_.params)
    for wrong in (0 * weights, -weights):
        with pytest.raises(ValueError, match="zero|0 or more"):
            parts.fit(X, y, sample_weight=wrong)


def test_fit_needs_no_copy_of_the_table(rng):
    X = rng.normal(size=(20_000, 100)).astype("float32")
    net = HighwayClassifier(**SMALL | {"max_iter": 1}, early_stopping=True)
    tracemalloc.start()
    net.fit(X, X[:, 0] > 0, np.arange(len(X)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 2


def test_a_saved_net_goes_on_and_holds_no_generator(table):
    """NumPy 1 does not read one that NumPy 2 has written."""
    net = HighwayClassifier(**SMALL).fit(*table)
    saved = pickle.dumps(net)
    assert b"numpy.random" not in saved
    other = pickle.loads(saved).partial_fit(*table)
    assert np.array_equal(other.net_.params, net.partial_fit(*table).net_.params)


@pytest.mark.filterwarnings("default")
def test_a_search_side_by_side_gives_the_same(table):
    search = GridSearchCV(HighwayClassifier(**SMALL), {"depth": [2, 3, 4]}, cv=2)
    scores = search.fit(*table).cv_results_["mean_test_score"]
    search.set_params(n_jobs=3).fit(*table)
    assert np.array_equal(scores, search.cv_results_["mean_test_score"])


def test_a_single_class_is_warned_of(table):
    X, _ = table
    with pytest.warns(UserWarning, match="yes"):
        net = HighwayClassifier(**SMALL).fit(X, ["yes"] * len(X))
    assert set(net.predict(X)) == {"yes"}


def test_a_net_answers_on_the_threads_of_fit(table, monkeypatch):
    """Busy neighbours slow more of them down."""
    threadpoolctl, seen = pytest.importorskip("threadpoolctl"), []
    net, forward = HighwayClassifier(**SMALL).fit(*table), hn.DeepNet.forward

    def watched(*args):
        seen.append({library["num_threads"] for library in
                     threadpoolctl.threadpool_info() if library["user_api"] == "blas"})
        return forward(*args)
    monkeypatch.setattr(hn.DeepNet, "forward", watched)
    for threads in (None, 2):
        with threadpoolctl.threadpool_limits(3, "blas"):
            net.set_params(n_threads=threads)
            for ask in (net.predict, net.predict_proba, net.transform, net.gates):
                ask(table[0])
        assert all(found <= {threads or 1} for found in seen)
        seen.clear()


def test_a_spread_far_from_1_or_a_mean_far_from_0_is_warned_of(table):
    X, y = table[0] / table[0].std(), table[1]
    for factor in (0.01, 100):
        with pytest.warns(UserWarning, match="spread of X is"):
            HighwayClassifier(**SMALL).fit(factor * X, y)
    for far in (X + 20, np.column_stack([X, np.full(len(X), 2024.0)])):
        with pytest.warns(UserWarning, match="spreads from 0"):
            HighwayClassifier(**SMALL).fit(far, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        HighwayClassifier(**SMALL).fit(5 * X + 3, y)


@pytest.mark.parametrize("change", [
    {"learning_rate": -1.0}, {"batch_size": 0}, {"max_iter": 0}, {"block": "no"},
    {"validation_fraction": 1.0}, {"n_iter_no_change": 0}, {"n_iter_no_change": None}])
def test_a_wrong_setting_is_named_as_it_was_given(table, change):
    with pytest.raises((ValueError, TypeError), match=f"^{next(iter(change))} "):
        HighwayClassifier(**SMALL | change).fit(*table)


def test_without_scikit_learn_the_rest_works():
    code = ("import sys; sys.modules['sklearn'] = None\n"
            "import highway_suite; highway_suite.load('digits')\n"
            "from highway_suite import HighwayClassifier")
    told = subprocess.run([sys.executable, "-c", code], cwd=hn.HERE, text=True,
                          capture_output=True).stderr
    assert "ImportError: HighwayClassifier needs scikit-learn" in told
