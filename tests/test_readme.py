"""The Python in the README runs and does what the sentences around it say."""

import inspect
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from committed import tree
from contracts import WrongGradient, check_gradient, small_batch, small_net

import highway_networks as hn
from experiments import blocks, convolution, very_deep
from experiments.common import or_infinite

ROOT = Path(hn.__file__).parent
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def snippet(word):
    """The one Python block of the README with this word in it."""
    found, = [text for text in SNIPPETS if word in text]
    return found


def test_own_block_passes_the_gradient_check(monkeypatch, seed):
    monkeypatch.setattr(hn, "BLOCKS", dict(hn.BLOCKS))
    text = snippet("hn.BLOCKS")
    exec(text, {})
    net = small_net("halfway", 10, seed=seed)
    assert check_gradient(net, *small_batch(seed), seed=seed) < 1e-9
    assert len([line for line in text.splitlines() if line.startswith("    ")
                and '"""' not in line]) <= 10, "the README says so"
    exec(text.replace("np.multiply(d, 0.5, out=d)\n", "pass\n"), {})
    with pytest.raises(WrongGradient):
        check_gradient(small_net("halfway", 10, seed=seed), *small_batch(seed),
                       seed=seed)


def test_own_block_in_the_table_is_under_the_contracts(tmp_path):
    """What -k halfway selects once the block stands in the module's table."""
    module = (ROOT / "highway_networks.py").read_text()
    functions, row = snippet("hn.BLOCKS").split("import highway_networks as hn\n")[
        1].split("hn.BLOCKS[")
    table = "# The only place that knows the mathematics"
    module = module.replace(table, functions + "\n\n" + table)
    full = '    "full": Block('
    module = module.replace(full, '    "halfway": Block("", halfway_forward, '
                            'halfway_backward),\n' + full)
    assert 'hn.Block("", halfway_forward, halfway_backward)' in row
    (tmp_path / "highway_networks.py").write_text(module)
    for name in ("tests", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k",
         "halfway", "tests/test_gradients.py", "tests/test_network.py"],
        cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 12


def test_the_library_example_runs(mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("HIGHWAY_DATA_DIR", str(hn.data_folder().resolve()))
    monkeypatch.chdir(tmp_path)         # it saves its net
    space = {}
    exec(snippet("hn.make_net"), space)
    assert space["status"] == "ok" and space["T"].shape == (20, 50, 2000)
    again = hn.DeepNet.load("net.npz").predict(space["scaled"].x_test.T)
    assert np.array_equal(again, space["digits"]) and again.shape == (2000,)


def test_the_layer_shown_is_that_of_the_module():
    def without_docstring(function):
        head, _, body = inspect.getsource(function).split('"""')
        return head.rstrip() + body
    assert snippet("def highway_forward") == "\n".join(
        without_docstring(function)
        for function in (hn.highway_forward, hn.highway_backward))


def readme():
    """The README in one line."""
    return " ".join((tree() / "README.md").read_text().split())


def record(name):
    return json.loads((tree() / "experiments" / f"{name}.json").read_text())


def verdicts(found):
    """{words of a claim: (ours, holds)}"""
    return {claim["claim"]: (claim["ours"], claim["holds"])
            for claim in found["claims"]}


def look_up(claims, words):
    """(ours, holds) of the one claim with these words."""
    (key,) = [key for key in claims if words in key]
    return claims[key]


def test_sentences_on_the_ledger():
    ledger = (tree() / "CLAIMS.md").read_text()
    counts = re.search(r"\d+ claims, of which \d+ hold \(\d+ of them with one seed\), "
                       r"\d+ do not and \d+ are open", ledger)[0]
    assert f"is the ledger: {counts}, each" in readme()


def test_sentences_on_sizes():
    plain, highway = (hn.DeepNet(block, 30, hidden).params.size
                      for block, hidden in (("plain", 71), ("highway", 50)))
    assert (f"net of 30 blocks {100 * plain / highway - 100:.0f} % the larger one"
            in readme())
    one, two = (hn.DeepNet("plain", depth, 71).params.size for depth in (1, 2))
    three, four = (hn.DeepNet("highway", depth, 50).params.size for depth in (1, 2))
    assert (f"gives a plain block {two - one:,} parameters beside the highway block's "
            f"{four - three:,};") in readme()


def test_sentences_on_the_headline():
    found = json.loads((tree() / "run.json").read_text())
    highway, plain = (found["runs"][0][block] for block in ("highway", "plain"))
    assert (f"reads {100 * highway['final_test_acc']:.0f} % of {found['n_test']} test "
            f"digits after two seconds of training") in readme()
    assert abs(plain["final_test_acc"] - 0.1) < 0.02, "stays at chance"
    start, end = (np.array(highway["layer_T_history"][epoch][1]) for epoch in (0, -1))
    assert np.flatnonzero(end > start).tolist() == [26, 27, 28, 29], "the last four"
    assert f"with Adam at {found['lr']:g}, a plain net stays at chance" in readme()


def test_the_table_of_trained_nets():
    rows = [f"| {net['block']} | {net['parameters']:,} | {net['train_loss'][-1]:.1e} | "
            f"{net['test_acc'][-1]:.4f} |" for net in record("inside")["nets"]]
    assert " ".join(rows) in readme()


def test_sentences_on_the_gates():
    found, text = record("gates"), readme()
    claims = verdicts(found)
    T = np.mean(found["figure_2"]["T_mean"], axis=1)
    assert "opens the gates of its first layers most" in text
    assert set(np.argsort(-T)[:3]) == {0, 1, 2}
    fell, holds = look_up(claims, "biases fall")
    assert holds and f"{100 * fell:.0f} % of the transform biases fell" in text
    sparse, _ = look_up(claims, "the share of gates below 0.1")
    closed = sparse["trained"]
    assert (f"not very sparse: {100 * closed['per_example']:.0f} % of them are below "
            f"0.1, against {100 * closed['of_mean']:.0f} % of the means") in text
    assert look_up(claims, "sparser for a single example")[1]
    told, holds = look_up(claims, "differ by class")
    shown = [f"{100 * told[f'T, {how}'][state]:.1f} %"
             for how in ("nearest mean", "ridge") for state in ("trained", "untrained")]
    assert holds and ("tells the class of {} of the test images by the nearest class "
                      "mean, before training {}, and by ridge regression {}, before "
                      "training {}. The block").format(*shown) in text
    for how in ("nearest mean", "ridge"):
        assert told[f"outputs, {how}"]["trained"] >= told[f"T, {how}"]["trained"]
    correlation, holds = look_up(claims, "inversely correlated")
    assert not holds and f"correlate by {correlation['all']:+.2f}," in text


def test_sentences_on_lesions():
    found, text = record("lesion"), readme()
    claims, nets = verdicts(found), found["nets"]
    early, holds = look_up(claims, "here the first 5")
    sixth = nets["highway"]["one_closed"]["loss"][5] / nets["highway"]["loss"]
    assert holds and ("multiplies the highway net's training loss by "
                      f"{early['lowest']:.0f} to {early['highest']:.0f}, closing the "
                      f"sixth by {sixth:.1f};") in text
    assert f"{100 * nets['highway']['spared']:.0f} % of the highway net's" in text
    worst = max(nets["residual"]["one_closed"]["error"])
    best = min(nets["plain"]["one_closed"]["error"])
    assert (f"errs on at most {100 * worst:.1f} % of the training images, the plain "
            f"net on at least {100 * best:.1f} %.") in text
    for name in ("highway", "residual"):
        falls, holds = look_up(claims, f"{name}: the standard deviation")
        assert holds is None and max(falls["trained"], falls["untrained"]) < -0.9
        mean, holds = look_up(claims, f"{name}: the mean of a_k - A")
        assert holds is None and max(mean["trained"], mean["untrained"]) < 0.1
    assert ("of the highway net's layers can be closed one at a time without doubling "
            f"it, and {100 * nets['residual']['spared']:.0f} % of the residual net's."
            in text)
    bias, holds = look_up(claims, "highway: the mean of each unit's")
    assert not holds and f"bias is up to {100 * bias['trained']:.0f} % of the" in text


def figure_1():
    """{(block, depth): what stands in the README of a net of Figure 1}, medians of the
    seeds."""
    return {(net["block"], net["depth"]): {
        "final": np.median(or_infinite(net["best"]["final"])),
        "epochs": np.median(or_infinite(net["best"]["epochs_to"]["0.01"])),
        "test_acc": np.median([row[-1] or 0 for row in net["best"]["test_acc"]])}
        for net in record("optimization")["nets"]}


def test_the_table_of_figure_1():
    nets = figure_1()
    rows = (f"| {depth} | " + " | ".join(
        "{final:.1e} | {epochs:.0f} | {test_acc:.4f}".format(**nets[block, depth])
        for block in ("highway", "plain")) + " |" for depth in (10, 20, 50, 100))
    assert " ".join(rows).replace("inf", "never") in readme()


def test_sentences_on_figure_1():
    found, nets, text = record("optimization"), figure_1(), readme()
    claims = verdicts(found)
    assert found["protocol"]["seeds"] == [0, 1, 2]
    best = {(net["block"], net["depth"]): net["best"] for net in found["nets"]}
    ended = {net: [len([loss for loss in row if loss is not None])
                   for row in own["train_loss"]] for net, own in best.items()}
    assert ended.pop(("highway", 50)) == [200, 200, 6], "in its seventh epoch"
    assert all(epochs == [200] * 3 for epochs in ended.values())
    assert look_up(claims, "highway nets of all depths")[1] is None
    assert look_up(claims, "10 and 20 layers reach")[1] is True
    assert look_up(claims, "50 and 100 layers do not reach")[1] is True
    first, second = (best["plain", depth]["final"] for depth in (50, 100))
    assert (f"chosen, to {first[0]:.1e} and {second[0]:.1e}, and fall back to guessing "
            "with both others.") in text
    assert min(first[1:] + second[1:]) > math.log(10) - 0.01
    orders, holds = look_up(claims, "orders of magnitude")
    assert holds and f"medians are {orders:.1f} orders of magnitude apart" in text
    assert look_up(claims, "fewer epochs")[1] is True
    for depth in (10, 20):
        highway, plain = (best[block, depth]["epochs_to"]["0.0001"]
                          for block in ("highway", "plain"))
        assert max(highway) < min(plain), "later"
    loss = {net: values["final"] for net, values in nets.items()}
    assert min(loss, key=loss.get) == ("highway", 100)
    accuracy = {net: values["test_acc"] for net, values in nets.items()}
    assert max(accuracy, key=accuracy.get) == ("plain", 10)


def test_the_table_of_the_six_forms():
    nets = {(net["block"], net["depth"]): net["test_acc"]
            for net in record("blocks")["nets"]}
    rows = (f"| {name} | " + " | ".join(
        "{mean:.4f} ± {std:.4f}".format(**nets[form, depth])
        for depth in (10, 20, 50, 100)) + f" | {perplexity:.2f} |"
        for form, (name, perplexity) in blocks.PAPER.items())
    assert " ".join(rows) in readme()
    assert all(found["n"] == 5 for found in nets.values())


def test_sentences_on_the_six_forms():
    found = record("blocks")
    nets = {(net["block"], net["depth"]): net for net in found["nets"]}

    def relation(one, other):
        return [blocks.compare(*(nets[form, depth]["test_acc"]["final"]
                                 for form in (one, other)))
                for depth in (10, 20, 50, 100)]
    for other in set(blocks.PAPER) - {"t_only"}:
        assert relation("t_only", other)[1:] == ["ahead of"] * 3
    means = [nets["t_only", depth]["test_acc"]["mean"] for depth in (10, 20, 50, 100)]
    assert means == sorted(means)
    assert relation("c_only", "residual") == ["behind"] * 4
    assert relation("residual", "plain") == ["level with", *["ahead of"] * 3]
    similar = [blocks.is_similar(*(nets[form, depth]["test_acc"]
                                   for form in ("highway", "full")))[0]
               for depth in (10, 20, 50, 100)]
    assert similar == [True] * 4 and blocks.MARGIN == 0.005
    close = [blocks.is_similar(*(nets[form, depth]["test_acc"]
                                 for form in ("residual", "plain")))[0]
             for depth in (10, 20, 50, 100)]
    assert close == [True, False, False, False]
    gated = [net for net in found["nets"] if "gate_bias" in net["chosen"]]
    ends = sum("gate_bias" in net["chosen"]["at_edge"] for net in gated)
    assert f"In {ends} of the {len(gated)} gated nets the b_T chosen is" in readme()
    assert relation("highway", "residual") == ["behind", "level with", "level with",
                                               "ahead of"]
    plain = nets["plain", 50]
    assert found["protocol"]["epochs"] == 10
    assert (f"with Adam at {plain['chosen']['lr']:g}, Glorot's rule and ten epochs of "
            "all of MNIST plain nets of 50 layers reach "
            f"{100 * plain['test_acc']['mean']:.1f} %") in readme()
    plain = nets["plain", 100]
    assert plain["chosen"]["lr"] == min(found["protocol"]["lrs"])
    assert (f"with a learning rate of {plain['chosen']['lr']:g}, the smallest we "
            "tried, but far behind the others: "
            f"{100 * plain['test_acc']['mean']:.1f} %." in readme())


def test_sentences_on_very_deep_nets():
    found, text = record("very_deep"), readme()
    own, border = found["protocol"]["map"], found["map"]["border"]
    largest = {row["depth"]: row["gate_bias"] for row in border}
    assert (f"falls from {largest[30]:+g} at 30 layers to {largest[1000]:g} at 1000."
            in text)
    sums = {True: [], False: []}
    for bias, row in zip(own["gate_biases"], found["map"]["better"]["test_acc"]):
        for depth, accuracy in zip(own["depths"], row):
            if depth >= 50:
                sums[(accuracy or 0) >= very_deep.TRAINS].append(
                    (depth - 1) / (1 + math.exp(-bias)))
    assert max(sums[True]) < min(sums[False])
    assert (f"add up to {max(sums[True]):.0f} or less before training; from "
            f"{min(sums[False]):.0f} on none does, and nothing between") in text

    def mean(depth):
        best = very_deep.best_bias(found["deep"], depth)
        return (f"{best[0]['gate_bias']:g}",
                f"{100 * np.mean([net['test_acc'] for net in best]):.1f} %", len(best))
    (few, first, n), (many, second, m), (most, third, k) = map(mean, (100, 1000, 2000))
    assert (n, m, k) == (3, 2, 1)
    assert (f"100 layers with b_T = {few} classify {first} of the test images (three "
            f"seeds), nets of 1000 layers with {many} {second} (two seeds) and 2000 "
            f"layers with {most} {third} (one).") in text
    used = [net["used"] for net in very_deep.best_bias(found["deep"], 1000)]
    times = sorted(very_deep.left_with(own, 50) for own in used)
    assert (f"they have {times[0]:.1f} to {times[-1]:.1f} times their training loss"
            in text)
    rise = max(max(own["lesions"]["loss"]) / own["loss"] for own in used)
    assert (f"at most {max(own['open'] for own in used)} layers have a mean T above 1 "
            f"%, and closing any 50 neighbours raises the training loss by "
            f"{100 * rise - 100:.0f} % at most") in text
    few, more = sorted(own["prefix"] for own in used)
    assert f"In nets of 1000 layers with b_T = {many}, at most" in text
    assert f"takes their first {few} or {more} layers." in text
    (closed,) = (net for net in found["deep"] if net["gate_bias"] == -20)
    assert closed["used"]["layers"] == 999 and closed["used"]["prefix"] == 0
    assert f"it still classifies {100 * closed['test_acc']:.1f} %." in text
    arms = {(arm["block"], arm["start"], arm["lr"]): arm["test_acc"]
            for arm in found["tutorial"]}
    good, own = arms["plain", "he", 0.001], arms["plain", "tutorial", 0.01]
    assert max(own) <= 0.15, "fail as it says"
    assert (f"they reach {100 * min(good):.1f} to {100 * max(good):.1f} % (five "
            "seeds).") in text


def test_the_tables_of_convolution():
    found, text = record("convolution"), readme()
    nets = {(net["part"], net["block"], net["depth"], net["width"]): net
            for net in found["nets"]}
    rows = []
    for block, width in (("highway", 16), ("highway", 32), ("plain", 16)):
        net, paper = nets["table", block, 10, width], convolution.PAPER[width]
        theirs = "{mean:.2f} ± {std:.2f}".format(**paper) if block == "highway" else "–"
        ours = f"{net['mean']:.2f}" + (f" ± {net['std']:.2f}" if net["n"] > 1 else "")
        rows.append(f"| {block}, width {width} | {net['parameters']:,} | {net['n']} | "
                    f"{ours} | {theirs} |")
        assert net["epochs"] == 20
    assert " ".join(rows) in text

    def last(block, depth):
        net = nets["depth", block, depth, 16]
        losses = ", ".join(f"{loss:.3f}" for loss in net["final_train_loss"])
        accuracies = ", ".join(f"{value:.1f}" for value in net["final_test_percent"])
        return f"{net['lr']:g} | {losses} | {accuracies}"
    assert " ".join(f"| {depth} | {last('highway', depth)} | {last('plain', depth)} |"
                    for depth in (10, 20, 30)) in text


def test_sentences_on_convolution():
    found, text = record("convolution"), readme()
    claims = verdicts(found)
    for width in (16, 32):
        assert look_up(claims, f"10 layers of width {width}")[1] is None
    assert "that says nothing against them" in text
    table = {(net["block"], net["width"]): net for net in found["nets"]
             if net["part"] == "table"}
    narrow, wide, plain = (table[net]["final_test_percent"] for net in (
        ("highway", 16), ("highway", 32), ("plain", 16)))
    assert min(wide) > max(narrow) and min(narrow) > max(plain)
    loss = {(net["block"], net["depth"]): net["final_train_loss"]
            for net in found["nets"] if net["part"] == "depth"}
    assert np.mean(loss["highway", 30]) < np.mean(loss["highway", 10])
    for few, more in ((10, 20), (20, 30)):
        assert np.mean(loss["plain", few]) < np.mean(loss["plain", more])
    for net in table.values():
        if net["T"]:
            assert np.all(np.array(net["T"]["ink"]) > net["T"]["blank"])


def test_sentences_on_speed():
    text = readme()
    found = json.loads((tree() / "benchmarks" / "peers.json").read_text())
    one, pair = found["one_core"], found["all_cores"]
    parts = found["profile"]["parts"]
    assert f"takes {one['ours']['ms_per_step']:.2f} ms on one core" in text
    assert f"{1 / one['floor']['times_ours']['median']:.2f} times its bare" in text

    def times(name):
        return one[name]["times_ours"]["median"]
    assert times("jax scan") < times("jax")
    assert (f"PyTorch takes {times('torch'):.2f} times as long as this suite, "
            f"`torch.compile` {times('torch.compile'):.2f} times and the faster of two "
            f"JAX programs {times('jax scan'):.2f} times") in text
    jax, compiled = pair["jax scan"], pair["torch.compile"]
    assert (f"To train the headline's pair on two cores takes JAX "
            f"{jax['times_ours']['median']:.2f} times as long with its compile time "
            f"left out and {jax['times_ours_prepared']:.2f} times with it; "
            f"`torch.compile` takes {compiled['times_ours']['median']:.2f} and "
            f"{compiled['times_ours_prepared']:.2f} times as long") in text

    rounds = [pair[name]["times_ours"][end] for end in ("least", "largest")
              for name in ("jax scan", "torch.compile")]
    assert f"from {min(rounds):.2f} to {max(rounds):.2f} times." in text
    assert min(rounds) < 1 < max(rounds)
    versions = {name: one[name]["versions"] for name in ("torch", "jax scan")}
    assert (f"PyTorch {versions['torch']['torch'].partition('+')[0]}, JAX "
            f"{versions['jax scan']['jax']}, from") in text

    def share(word):
        return sum(part["share"] for name, part in parts.items() if word in name)
    assert (f"takes {100 * share('element-wise'):.0f} % of the step beside the "
            f"{100 * share('products'):.0f} % of the products") in text


def test_sentences_on_scaling():
    text = readme()
    found = json.loads((tree() / "benchmarks" / "scaling.json").read_text())
    law, whole = found["depth_law"]["median"], found["whole_run"]
    line = law["line"]
    assert (f"takes {1e3 * line['seconds']:.2f} ms and "
            f"{1e3 * line['seconds_per_block']:.3f} ms for each block: no depth is "
            f"further than {100 * law['largest_deviation']:.1f} % from") in text
    assert f"never holds more than {whole['peak_mb']:.0f} MB" in text


def test_sentences_on_convolutional_steps():
    found = json.loads((tree() / "benchmarks" / "convolution.json").read_text())
    narrow, wide = (net["contestants"] for net in found["nets"])

    def times(net, name):
        return f"{net[name]['times_ours']['median']:.2f}"
    assert times(narrow, "torch") < times(wide, "torch") < "1", "PyTorch is ahead"
    rounds = [net["torch"]["times_ours"] for net in (narrow, wide)]
    assert (f"takes it {times(narrow, 'torch')} times as long as this suite at width "
            f"16 and {times(wide, 'torch')} times at width 32, on one core, with "
            f"rounds from {min(found['least'] for found in rounds):.2f} to "
            f"{max(found['largest'] for found in rounds):.2f}. The matrix products "
            f"alone take {times(narrow, 'floor')} and {times(wide, 'floor')} times as "
            "long.") in readme()
