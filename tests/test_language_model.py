"""The language model's experiment: text, batches, schedule, trials and verdicts."""

import hashlib
import io
import math

import numpy as np
import pytest

import highway_networks as hn
from experiments import language_claims, language_model, language_trials
from experiments import recurrent_layers as rl
from experiments.old_claims import PAPERS
from experiments.store import hash_of

PROTOCOL = language_model.PROTOCOL | language_model.SMOKE


@pytest.fixture(scope="module")
def text():
    return language_trials.lecture()


def config_of(block="full", depth=2, **more):
    return language_model.make_config(PROTOCOL | more, {"block": block, "depth": depth},
                                      0)


# --------------------------------------------------------------------------------------
# Text


def test_words_and_their_letters():
    text = language_trials.make_text({
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
    batches = language_trials.Batches(np.arange(20), 2, 3)
    assert len(batches) == 3
    first, second, third = batches
    assert np.array_equal(first.words, [[0, 9], [1, 10], [2, 11]])
    assert np.array_equal(second.words, [[3, 12], [4, 13], [5, 14]])
    for batch in (first, second, third):
        assert np.array_equal(batch.following, batch.words + 1)
    assert [batch.first for batch in batches] == [True, False, False]
    assert all(batch.rng is None for batch in batches), "nothing is dropped"
    rng = np.random.default_rng(0)
    drawing = language_trials.Batches(np.arange(20), 2, 3, rng)
    assert all(batch.rng is rng for batch in drawing)
    assert list(drawing.streams.values()) == [rng]
    with pytest.raises(ValueError, match="no batch"):
        language_trials.Batches(np.arange(6), 2, 3)


@pytest.fixture
def three_files(tmp_path, monkeypatch):
    """A folder with three small texts under the names and with the hashes expected."""
    files = {"train": b" the cat <unk> \n a cat \n", "valid": b" the cat \n",
             "test": b" a dog \n"}
    for name, content in files.items():
        (tmp_path / f"ptb.{name}.txt").write_bytes(content)
    monkeypatch.setattr(language_trials, "FILES", {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    monkeypatch.delenv("HIGHWAY_PTB_DIR", raising=False)
    return tmp_path


def test_the_text_is_read_from_the_users_folder(three_files, monkeypatch):
    text = language_trials.load_text(three_files)
    assert (len(text.train), len(text.valid), len(text.test)) == (7, 3, 3)
    monkeypatch.setenv("HIGHWAY_PTB_DIR", str(three_files))
    assert language_trials.load_text().vocabulary == text.vocabulary


@pytest.mark.parametrize("spoil, message", [
    (lambda folder: (folder / "ptb.test.txt").unlink(), "ptb.test.txt: "),
    (lambda folder: (folder / "ptb.valid.txt").write_bytes(b" a cat \n"),
     "ptb.valid.txt: SHA-256"),
    (lambda folder: (folder / "ptb.train.txt").write_bytes(b"x" * 7_000_000),
     "ptb.train.txt: more than the 6000000 bytes")])
def test_a_missing_or_altered_text_is_one_line(spoil, message, three_files):
    spoil(three_files)
    with pytest.raises(hn.DataError) as caught:
        language_trials.load_text(three_files)
    assert message in str(caught.value) and "--data-dir" in str(caught.value)
    assert "https://" in str(caught.value) and "\n" not in str(caught.value)


def test_a_text_that_is_not_named(three_files):
    with pytest.raises(hn.DataError, match=r"--data-dir or \$HIGHWAY_PTB_DIR"):
        language_trials.load_text()


# --------------------------------------------------------------------------------------
# Training


def test_the_rate_is_halved_after_small_gains_from_the_third_epoch_on():
    config = {"lr": 1.0, "lr_decay": 0.5, "least_gain": 1.0}
    history = [{"valid_perplexity": value} for value in (
        200, 199.5, 150, 149.5, 149, 120, 121)]
    rates = [language_trials.learning_rate(config, history[:n]) for n in range(8)]
    assert rates == [1, 1, 1, 1, 0.5, 0.25, 0.25, 0.125]


def test_a_text_read_through_as_one_stream(text):
    """By batches of any number of steps, what is left at the end included."""
    net = language_trials.make_training(config_of(), text).net
    words = text.test[:41]
    whole = rl.Batch(words[:-1, None], words[1:, None], True)
    expected = net.forward(whole, net.cache(1, 40)).mean(dtype=float)
    for steps in (40, 8, 7, 64):
        assert language_trials.read_through(net, words, steps) == pytest.approx(
            expected, rel=1e-6)


def test_an_epoch_moves_the_weights_no_further_than_clipped_steps_can(text):
    """By lr times the limit a step; and the validation text says how well it reads."""
    moved = []
    for clip in (1e-3, 1e9):
        config = config_of("highway", 1, epochs=1, clip=clip)
        training = language_trials.make_training(config, text)
        before = training.net.params.copy()
        (row,), _ = language_trials.learn(training, config)
        moved.append(np.linalg.norm(training.net.params - before)
                     / (config["lr"] * len(training.batches)))
        loss = language_trials.mean_loss(training.net, training.valid, training.cache)
        assert row["valid_perplexity"] == hn.significant(math.exp(loss))
        assert np.array_equal(training.valid.words.T.ravel(), text.valid[:-1][
            :training.valid.words.size])
    assert 0 < moved[0] <= 1.001e-3 < moved[1]


def test_a_net_learns_a_text_by_heart(text):
    """Without dropout, from guessing to knowing what follows."""
    config = config_of("highway", 1, dropout=0.0, lr=0.5, scale=0.5, epochs=90,
                       least_gain=-1e9)         # the first rate to the end
    history, status = language_trials.learn(language_trials.make_training(
        config, text._replace(train=text.train[:61], valid=text.valid[:19])), config)
    losses = [row["train_loss"] for row in history]
    assert math.exp(losses[0]) > 300 and math.exp(losses[-1]) < 3 and status == "ok"


SMALL = config_of(epochs=4)


def train(config, text, folder):
    shared = language_trials.Shared(text, str(folder))
    return language_trials.train_model(config, shared)


@pytest.fixture(scope="module")
def uninterrupted(text, tmp_path_factory):
    """The result of a small trial and its checkpoint."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    return train(SMALL, text, folder), folder


def test_a_killed_trial_ends_with_the_same_bits(uninterrupted, text, tmp_path,
                                                monkeypatch):
    """Stopped in the middle of the third of four epochs; then it goes on."""
    expected, folder = uninterrupted
    steps, gradient = [], rl.LanguageModel.gradient

    def counted(self, batch, cache):
        steps.append(batch)
        if len(steps) == 2 * len(language_trials.Batches(text.train, 3, 6)) + 5:
            raise KeyboardInterrupt
        return gradient(self, batch, cache)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rl.LanguageModel, "gradient", counted)
        train(SMALL, text, tmp_path)
    assert train(SMALL, text, tmp_path) == expected
    name = f"{hash_of(SMALL)}.npz"
    with np.load(tmp_path / name) as ours, np.load(folder / name) as theirs:
        assert np.array_equal(ours["params"], theirs["params"])


def test_the_test_text_is_read_once_at_the_end(text, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(language_trials, "read_through",
                        lambda net, words, steps: read.append(words) or 5.0)
    result = train(SMALL, text, tmp_path)
    assert len(read) == 1 and np.array_equal(read[0], text.test)
    assert result["test_perplexity"] == hn.significant(math.exp(5))


@pytest.mark.parametrize("place", ["mean_loss", "read_through"])
def test_perplexities_beyond_all_numbers_are_recorded(text, tmp_path, monkeypatch,
                                                      place):
    monkeypatch.setattr(language_trials, place, lambda *args: 800.0)
    result = train(SMALL, text, tmp_path)
    assert result["status"] == ("diverged" if place == "mean_loss" else "ok")
    assert result["test_perplexity"] is None


def test_divergence_is_recorded(text, tmp_path):
    result = train(SMALL | {"lr": 1e30}, text, tmp_path)
    assert result["status"] == "diverged" and result["test_perplexity"] is None
    assert result["valid_perplexity"] == [None] * 4


# --------------------------------------------------------------------------------------
# Words


def test_gates_and_neighbours_by_hand(text, uninterrupted):
    """Of a trained net: means over words from the layer's own gates; the nearest words
    by all cosines."""
    result, folder = uninterrupted
    net = language_trials.make_training(SMALL, text).net
    with np.load(folder / f"{hash_of(SMALL)}.npz") as archive:
        net.params[...] = archive["params"]
    V, F = len(text.vocabulary), net.features
    cache = net.cache(1, V)
    after = net.read(np.arange(V), cache)[:F]
    T = np.array([z[F:2 * F] for z in cache.family.z])          # (L, F, V)
    found = result["gates"]["T"]
    np.testing.assert_allclose(found["mean"], T.mean(axis=(1, 2)), rtol=1e-5)
    words = T[-1].mean(axis=0)
    most, least = found["largest"][0], found["least"][0]
    assert most[0] == text.vocabulary[words.argmax()]
    assert least[1] == pytest.approx(words.min(), rel=1e-5)
    at, = (n for n, word in enumerate(text.vocabulary) if word == "gate")
    cosines = after.T @ after[:, at] / np.linalg.norm(after, axis=0)
    order = [text.vocabulary[n] for n in np.argsort(-cosines)]
    assert order[0] == "gate"
    assert result["neighbours"]["after"]["gate"] == order[1:6]
    assert "gatekeeper" in result["neighbours"]["before"], "a word not in the text"


def test_a_word_without_features_is_near_to_none():
    """relu may leave only 0."""
    features = np.array([[1.0, 0, 1, 2], [1, 0, 0.9, -1]])
    found = language_trials.nearest(features, ["a", "b"], features[:, :2],
                                    ["a", "b", "c", "d"])
    assert found == {"a": ["c", "d", "b"], "b": []}


def test_gates_by_word_by_hand():
    """Of units, layers, lengths and ranks that differ; two layers of two units."""
    text = language_trials.make_text({
        "train": ["the cat the a"], "valid": ["the"], "test": ["a"]})
    words = text.vocabulary
    of = {"the": 0.95, "cat": 0.5, "a": 0.05, "+": 0.3, "|": 0.7}
    last = np.array([of[word] for word in words])
    gate = np.array([[[0.2] * 5, [0.4] * 5], [last, last + 0.04]])
    found = language_trials.describe_gate(gate, text)
    assert found["mean"] == pytest.approx([0.3, last.mean() + 0.02])
    assert found["below_0.1"] == [0, 0.2] and found["above_0.9"] == [0, 0.2]
    assert found["std_over_words"] == pytest.approx([0, last.std()])
    assert found["by_length"] == [None, pytest.approx(0.37), None,
                                  pytest.approx(0.745)]
    once = [of[word] for word in words if word not in ("the", "|")]
    assert found["by_rank"] == pytest.approx([0.97, np.mean(once[:2]) + 0.02,
                                              (once[2] + of["|"]) / 2 + 0.02])
    assert [word for word, _ in found["least"]] == ["a", "+", "cat", "|", "the"]
    assert found["largest"] == found["least"][::-1]


def test_held_gates_and_layers_left_out(text):
    """Gates held at their mean are those of a layer whose gate sees a bias alone; two
    layers left out are none."""
    config = config_of("highway", 1, scale=1.0)
    training = language_trials.make_training(config, text)
    net, cache, batches, valid = training
    F, layer = net.features, net.views(net.params)["layers"][0]
    losses = [language_trials.mean_loss(net, valid, cache)]
    gates = language_trials.read_words(net, config, text, text.vocabulary)[2]
    found = language_trials.without(training, gates)
    assert not cache.family.held and not cache.family.skipped, "as it was before"
    counts = np.bincount(batches.words.ravel(), minlength=len(text.vocabulary))
    mean = (gates["T"][0] * counts).sum(axis=1) / counts.sum()
    layer[F:, :F] = 0
    for bias in (np.log(mean / (1 - mean)), -1000):
        layer[F:, F] = bias
        losses.append(language_trials.mean_loss(net, valid, cache))
    usual, held, skipped = (math.exp(loss) for loss in losses)
    assert found["held_gates"] == pytest.approx(held, rel=1e-5)
    assert found["without_layer"] == [pytest.approx(skipped, rel=1e-5)]
    assert len({round(usual, 3), round(held, 3), round(skipped, 3)}) == 3


# --------------------------------------------------------------------------------------
# Record


def fake_record(**test):
    """A record of nets with these test perplexities, one seed's or several seeds', by
    block and depth."""
    usual = {"plain_0": 100.3, "plain_1": 111.2, "highway_1": 92.3, "highway_2": 90.1,
             "full_2": 90.0, "c_only_2": 90.2, "t_only_2": 94.0, "residual_4": 110.0,
             "residual_2": 109.0} | test
    nets = []
    for name, values in usual.items():
        block, _, depth = name.rpartition("_")
        values = values if isinstance(values, list) else [values]
        nets.append({"block": block, "depth": int(depth),
                     "seeds": list(range(len(values))), "test_perplexity": values,
                     "valid_perplexity": [[120.0, value and 95.0] for value in values],
                     "instead": [value and {"held_gates": 102.0} for value in values]})
    return {"nets": nets}


def verdicts(**test):
    return [claim["holds"] for claim in
            language_claims.check_claims(fake_record(**test))]


def test_verdicts_follow_the_numbers():
    assert verdicts() == [True] * 10
    assert verdicts(highway_1=96.4)[0] is False
    assert verdicts(plain_1=101.2)[1] is False, "by less than 1"
    assert verdicts(plain_0=93.0)[2] is False
    assert verdicts(highway_1=89.0)[:4] == [True, True, True, False]
    assert verdicts(c_only_2=92.0)[4:7] == [False, True, True]
    assert verdicts(t_only_2=89.0)[4:9] == [True, False, True, True, False]
    assert verdicts(residual_4=94.0)[6:8] == [False, False]
    assert verdicts(plain_1=114.0)[7] is False
    record = fake_record()
    record["nets"][4]["instead"][0]["held_gates"] = 99.9        # of the full form
    assert language_claims.check_claims(record)[9]["holds"] is False


def test_what_diverged_or_guesses_is_worse_than_any_other():
    assert verdicts(full_2=None)[4:] == [False, False, False, True, False, None]
    assert verdicts(residual_4=None)[6:8] == [True, False]
    both = verdicts(residual_4=None, plain_1=None)
    assert both[1] is True and both[7] is None, "who is worse?"
    assert verdicts(plain_0=None, plain_1=None)[1] is None
    record = fake_record()
    record["nets"][1]["valid_perplexity"] = [[700.0, 690.0]]    # a plain layer
    record["nets"][0]["valid_perplexity"] = [[700.0, 690.0]]    # nothing
    assert language_claims.check_claims(record)[1]["holds"] is None


def test_no_verdict_on_a_net_that_is_not_trained():
    record = fake_record()
    record["nets"] = [net for net in record["nets"] if net["block"] != "full"]
    claims = language_claims.check_claims(record)
    assert [item["holds"] for item in claims] == [True] * 5
    assert all(item["n"] == 1 for item in claims)


def test_the_ledger_has_a_place_for_every_claim():
    claims = language_claims.check_claims(fake_record())
    assert {item["section"].split()[0] for item in claims} <= set(PAPERS)


def test_seeds_that_disagree_leave_a_claim_open():
    """Judged seed by seed, with those that all nets of the claim have."""
    claims = language_claims.check_claims(fake_record(
        t_only_2=[92.0, 91.0, 80.0], full_2=[90.0, 90.5], c_only_2=[90.2, 90.5],
        highway_2=[90.1, 90.5]))
    better = claims[5]      # by 1.8 and by 0.5
    assert better["holds"] is None and better["n"] == 2
    assert better["ours"]["T-only"] == [92.0, 91.0]
    assert better["ours"]["margin"] == pytest.approx([1.8, 0.5])
    assert better["also"] == {"0.5": True, "2": False}
    assert claims[6]["n"] == 1, "four residual layers have one seed"
    run = {"block": "t_only", "depth": 2, "seed": 1}
    assert better.rests_on(run) and not better.rests_on(run | {"seed": 2})
    assert not claims[4].rests_on(run)


def test_smoke(smoke, monkeypatch):
    """The whole path on the lecture; the figure bears a run that diverged."""
    monkeypatch.delenv("HIGHWAY_PTB_DIR", raising=False)
    record, _ = smoke(language_model.EXPERIMENT)
    assert len(record["claims"]) == 10
    assert len(record["nets"]) == 9 and not record["papers"], "of another text"
    for net in record["nets"]:
        assert net["status"] == ["ok"] and np.shape(net["train_loss"]) == (1, 3)
        assert net["train_loss"][0][-1] < net["train_loss"][0][0]
        gates = hn.BLOCKS[net["block"]].gates if net["depth"] else ""
        assert "".join(net["gates"]) == gates
    record["nets"][0] |= {"test_perplexity": [None], "valid_perplexity": [[None] * 3],
                          "instead": [None], "gates": None, "neighbours": None}
    language_model.draw(record).savefig(io.BytesIO(), format="png", dpi=40)
