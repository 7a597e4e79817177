"""The language model's experiment: text, batches, schedule and trials."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

import highway_networks as hn
from experiments import language
from experiments.lab.judging import judge
from experiments.language import text as texts
from experiments.language import train as training_of
from experiments.nets import recurrent as rl
from highway_suite.checkpoints import Checkpoint
from tests.contracts import check_resumes

PLAN = language.PLAN | language.SMOKE


@pytest.fixture(scope="module")
def text():
    return texts.lecture()


def config_of(block="full", depth=2, **more):
    return language.make_config(PLAN | more, {"block": block, "depth": depth}, 0)


# Text


def test_words_and_their_letters():
    text = texts.make_text({
        "train": ["the <unk> cat", " a {n}et "], "valid": ["the dog"], "test": ["net"]})
    assert text.vocabulary == ["cat", "net", "the", "+", "a", "|"]

    def words(numbers):
        return [text.vocabulary[n] for n in numbers]
    assert words(text.train) == ["the", "|", "cat", "+", "a", "net", "+"]
    assert words(text.valid) == ["the", "|", "+"] and words(text.test) == ["net", "+"]
    letters = [""] + list(text.alphabet)
    spelling = text.spell(["the", "+", "|"])
    assert spelling.shape == (3, 5), "the longest word, its start and its end"
    assert ["".join(letters[n] for n in row) for row in spelling] == [
        "{the}", "{+}", "{|}"]


def test_batches_are_streams_side_by_side():
    """20 words in 2 streams of 9, of which 3 at a time; the last word but one is read,
    the last only follows."""
    batches = texts.Batches(np.arange(20), 2, 3)
    assert len(batches) == 3
    first, second, third = batches
    assert np.array_equal(first.words, [[0, 9], [1, 10], [2, 11]])
    assert np.array_equal(second.words, [[3, 12], [4, 13], [5, 14]])
    for batch in (first, second, third):
        assert np.array_equal(batch.following, batch.words + 1)
    assert [batch.first for batch in batches] == [True, False, False]


@pytest.fixture
def three_files(tmp_path, monkeypatch):
    """A folder with three small texts under the names and with the hashes expected."""
    files = {"train": b" the cat <unk> \n a cat \n", "valid": b" the cat \n",
             "test": b" a dog \n"}
    for name, content in files.items():
        (tmp_path / f"ptb.{name}.txt").write_bytes(content)
    monkeypatch.setattr(texts, "FILES", {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    monkeypatch.delenv("HIGHWAY_PTB_DIR", raising=False)
    return tmp_path


def test_the_text_is_read_from_the_users_folder(three_files, monkeypatch):
    text = texts.load("ptb", three_files)
    assert (len(text.train), len(text.valid), len(text.test)) == (7, 3, 3)
    with pytest.raises(hn.DataError):
        texts.load("ptb")
    monkeypatch.setenv("HIGHWAY_PTB_DIR", str(three_files))
    assert texts.load("ptb").vocabulary == text.vocabulary


@pytest.mark.parametrize("content", [None, b" a cat \n"])
def test_a_missing_or_altered_text_is_one_line(content, three_files):
    path = three_files / "ptb.valid.txt"
    path.write_bytes(content) if content else path.unlink()
    with pytest.raises(hn.DataError, match=str(path)) as caught:
        texts.load("ptb", three_files)
    assert "\n" not in str(caught.value)


# Training


def test_the_rate_is_halved_after_small_gains_from_the_third_epoch_on():
    config = {"lr": 1.0, "lr_decay": 0.5, "least_gain": 1.0}
    history = [{"valid_perplexity": value} for value in (
        200, 199.5, 150, 149.5, 149, 120, 121)]
    rates = [training_of.learning_rate(config, history[:n]) for n in range(8)]
    assert rates == [1, 1, 1, 1, 0.5, 0.25, 0.25, 0.125]


def test_a_text_read_through_as_one_stream(text):
    """By batches of any number of steps, what is left at the end included."""
    net = training_of.make_training(config_of(), text).net
    words = text.test[:41]
    whole = rl.Batch(words[:-1, None], words[1:, None], True)
    expected = net.forward(whole, net.cache(1, 40)).mean(dtype=float)
    for steps in (40, 8, 7, 64):
        assert training_of.read_through(net, words, steps) == pytest.approx(
            expected, rel=1e-6)


SMALL = config_of(epochs=4)


def train(config, text, folder):
    return training_of.train_model(dict(config), text,
                                   Checkpoint(folder / "one.npz", config, ""))


def test_a_killed_trial_ends_with_the_same_bits(text, tmp_path, monkeypatch):
    """Stopped in the middle of the third of four epochs."""
    epoch = len(texts.Batches(text.train, 3, 6))
    check_resumes(monkeypatch, lambda folder: train(SMALL, text, Path(folder)),
                  tmp_path, kill=2 * epoch + 5, left=2 * epoch)


def test_the_test_text_is_read_once_at_the_end(text, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(training_of, "read_through",
                        lambda net, words, steps: read.append(words) or 5.0)
    result = train(SMALL, text, tmp_path)
    assert len(read) == 1 and np.array_equal(read[0], text.test)
    assert result["test_perplexity"] == hn.significant(math.exp(5))


def test_divergence_is_recorded(text, tmp_path):
    result = train(SMALL | {"lr": 1e30}, text, tmp_path)
    assert (result["status"], result["test_perplexity"]) == ("diverged", None)
    assert result["valid_perplexity"] == [None] * 4


# What the gates are good for


def test_held_gates_are_those_of_a_layer_whose_gate_sees_a_bias_alone(text):
    config = config_of("highway", 1, scale=1.0)
    training = training_of.make_training(config, text)
    net, cache, batches, valid = training
    F, layer = net.features, net.views(net.params)["layers"][0]
    usual = training_of.mean_loss(net, valid, cache)
    found = training_of.held_perplexity(training)
    assert training_of.mean_loss(net, valid, cache) == usual, "as it was before"
    reader = net.cache(1, net.words)    # word by word, as often as it comes
    words = [net.read(np.array([n]), reader) is not None and
             reader.family.z[0][F:2 * F, 0].copy() for n in range(net.words)]
    mean = np.mean([words[n] for n in batches.words.ravel()], axis=0)
    layer[F:, :F], layer[F:, F] = 0, np.log(mean / (1 - mean))
    held = training_of.mean_loss(net, valid, cache)
    assert found == pytest.approx(math.exp(held), rel=1e-5)
    assert abs(held - usual) > 5e-5     # so that the line above can fail
    assert training_of.held_perplexity(training_of.make_training(
        config_of("plain", 1), text)) is None


# Claims


def verdict(*perplexities):
    """On two nets: that the first is better than the second."""
    nets = {language.NAMES[name]: {
        "seeds": [*range(len(values))], "test_perplexity": values, "trials": ["a"],
        "valid_perplexity": [[value] for value in values]}
        for name, values in zip(("full", "T-only"), perplexities, strict=True)}
    return judge(language.judged(language.Said(
        "c", "P2", "", ["full"], 1.0, worse=["T-only"]), nets))["verdict"]


@pytest.mark.parametrize("one, other, found", [
    ([90, 91, 92], [93.5, 94, 95], "holds"), ([90, 91, 92], [92.5, 94, 95], "open"),
    ([90, 91, 92], [99, 98, None], "holds"),
    ([95, 96, 301], [90, 91, 92], "does not hold")])
def test_better_is_an_order_of_all_seeds_by_a_margin(one, other, found):
    assert verdict(one, other) == found
