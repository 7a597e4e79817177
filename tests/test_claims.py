"""The ledger of claims: up to date, complete, and loud when it is not."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

import highway_networks as hn
from experiments import NAMES, claims, headline_claims, judging, lab, ledger, recheck
from highway_suite.records import RecordError
from tests import committed


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A checkout of its own, with the committed records and ledger."""
    for name in (*claims.RECORDS, claims.LEDGER):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(committed.tree() / name, tmp_path / name)
        trials = (committed.tree() / name).parent / "trials"
        if trials.exists():
            (tmp_path / name).with_name("trials").symlink_to(trials)
    monkeypatch.setattr(hn, "HERE", tmp_path)
    return tmp_path


def change(path, edit):
    """Rewrite a record after edit(record)."""
    record = json.loads(path.read_text())
    edit(record)
    path.write_text(json.dumps(record))


def test_the_committed_ledger_is_up_to_date(home, capsys):
    claims.main(["--check"])
    assert capsys.readouterr().out == "CLAIMS.md is up to date\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_holds_every_claim_of_every_record(home, name):
    lines = (home / claims.LEDGER).read_text().splitlines()
    record = json.loads((home / "results" / name / "record.json").read_text())
    for identity, item in claims.identified(name, record.get("claims", ())).items():
        line, = [line for line in lines if f"[`{identity}`]" in line]
        assert line.startswith(f"| {ledger.verdict(item)} |")
    assert len([line for line in lines if f"`{record['command']}`" in line]) == 1


def test_no_committed_record_is_left_out():
    """Each folder of results is in the ledger."""
    folders = {path.parent.name
               for path in (committed.tree() / "results").glob("*/record.json")}
    assert folders == set(NAMES)


def test_a_changed_number_makes_the_ledger_stale(home, capsys):
    change(home / "results" / "five_nets" / "record.json",
           lambda record: record["claims"][0].update(ours=0.12345))
    before = (home / claims.LEDGER).read_bytes()
    with pytest.raises(SystemExit, match=r"CLAIMS.md was stale: write it with python3"):
        claims.main(["--check"])
    assert (home / claims.LEDGER).read_bytes() == before
    with pytest.raises(SystemExit, match="stale: it is written anew"):
        claims.main([])
    assert "| 0.1235 |" in (home / claims.LEDGER).read_text()
    claims.main([])
    assert "up to date" in capsys.readouterr().out


@pytest.mark.parametrize("name", [claims.RECORDS[0], claims.RECORDS[-1]])
def test_a_record_that_is_missing_or_of_a_changed_checkout_is_refused(home, name):
    change(home / name, lambda record: record["env"].update(git_dirty=True))
    with pytest.raises(SystemExit, match="made from a changed checkout"):
        claims.main(["--check"])
    (home / name).unlink()
    with pytest.raises(SystemExit, match=f"^experiments.claims: .*{name}: .*Make it "
                                         "with: python3 .*$"):
        claims.main([])


def test_a_missing_sweep_is_made_by_its_own_command(home):
    for name in claims.SWEEPS:
        path = home / "results" / "headline" / f"{name}.json"
        command = json.loads(path.read_text())["command"]
        path.unlink()
        with pytest.raises(RecordError, match=f"Make it with: {re.escape(command)}$"):
            claims.load(path)


def test_two_claims_with_one_id_are_refused():
    item = {"section": "ours", "claim": "all is well"}
    with pytest.raises(RecordError, match="two claims have the ID means-"):
        claims.identified("means", [item, item | {"holds": True}])


# --------------------------------------------------------------------------------------
# Rechecks


def sum_up(config, data):
    return {"sum": int(data.x_train[data.y_train == config["digit"]].sum())}


def run_sums(lab):
    found = lab.trials(sum_up, {digit: {"digit": digit} for digit in range(3)},
                       lab.load_data())
    return {"sums": [found[digit].result["sum"] for digit in range(3)]}


def check_sums(record):
    made = [judging.claim(section="ours", text=text, paper=None, ours=record["sums"],
                      holds=True) for text in ("zeros have a sum", "all have a sum")]
    return [*judging.resting_on(made[:1], {"digit": 0}), *judging.resting_on(made[1:])]


@pytest.fixture
def sums(tmp_path, monkeypatch):
    """A checkout whose only record is of an experiment with two claims."""
    experiment = lab.Experiment(
        name="experiments.sums", doc="Sums?", minutes=1, run=run_sums, smoke={},
        protocol={"dataset": "digits"}, draw=lambda record: Figure(), check=check_sums,
        pack_by=lambda config: "all")
    monkeypatch.setattr(hn, "HERE", tmp_path)
    monkeypatch.setattr(claims, "RECORDS", ("results/sums/record.json",))
    monkeypatch.setattr(claims, "module_of", lambda path: experiment)
    lab.main(experiment, ["--jobs", "1"])
    change(tmp_path / claims.RECORDS[0],
           lambda record: record["env"].update(git="0" * 40, git_dirty=False))
    return tmp_path


def test_each_claim_has_an_id_and_a_recheck(sums, capsys):
    with pytest.raises(SystemExit, match="written anew"):
        claims.main([])
    ids = re.findall(r"\[`(sums-.{4})`\]\(results/sums/README.md#claims\) \d+ s \|",
                     (sums / claims.LEDGER).read_text())
    page = claims.from_claims(sums)["claims.sums"]
    assert all(re.search(rf"`{name}` \d+ s: {part} \|", page) for name, part in zip(
        ids, ("its trial", "all trials"), strict=True))
    capsys.readouterr()
    for name, equal in zip(ids, (1, 3), strict=True):
        claims.main(["--recheck", name, "--jobs", "1"])
        said = capsys.readouterr().out
        assert "verdict, as committed: holds" in said
        assert said.count("equal to the bit; ") == equal
    with pytest.raises(SystemExit, match=f"no claim 'sums-x'; there are {ids[0]}, "):
        claims.main(["--recheck", "sums-x"])
    with pytest.raises(SystemExit, match="no claim 'nonsense'. Its ID stands in"):
        claims.main(["--recheck", "nonsense"])


def test_a_recheck_of_a_claim_fails_where_a_trial_differs(sums, monkeypatch, capsys):
    experiment = claims.module_of(None)

    def other(this):
        found = this.trials(lambda config, data: {"sum": 1}, {
            digit: {"digit": digit} for digit in range(3)}, None)
        return {"sums": [found[digit].result["sum"] for digit in range(3)]}
    wrong = replace(experiment, run=other)
    monkeypatch.setattr(claims, "module_of", lambda path: wrong)
    name = next(iter(claims.load(sums / claims.RECORDS[0]).claims))
    with pytest.raises(SystemExit, match="1"):
        claims.main(["--recheck", name, "--jobs", "1"])
    assert "DIFFERS" in capsys.readouterr().out


def test_ids_stay_where_claims_come_between():
    one, two, new = ({"section": "P1 1", "claim": text} for text in ("a", "b", "new"))
    before = claims.identified("x", [one, two])
    after = claims.identified("x", [one, new, two])
    assert before.items() < after.items() and len(after) == 3


@pytest.mark.parametrize("name", claims.RECORDS)
def test_a_claim_says_which_trials_decide_it(name):
    """Not all of a record: so a recheck trains what the claim speaks of."""
    source = claims.load(committed.tree() / name)
    for item in source.claims.values():
        assert isinstance(item, judging.Claim) and item.trials != ({},)
        assert claims.deciding(item, source.trials)


def test_nets_of_a_sweep_are_trained_again_to_the_bit(mnist):
    record = claims.read_record(committed.tree() / claims.RECORDS[0])
    trial = min(claims.arms_of(record), key=lambda trial: trial.seconds)
    again = claims.train_net(trial.config, mnist)
    assert recheck.judge(trial.result, again, record["env"])[0]


@pytest.mark.parametrize("value, expected", [
    (None, "–"), (True, "yes"), (0.99434, "0.9943"), (7.05871e-05, "7.059e-05"),
    (39_000, "39,000"), ("> 0.5", "> 0.5"), ([1, None], "1, –"),
    ({"mean_of": 0.5, "b_T -5": 3}, "mean of: 0.5, b_T -5: 3"),
    ({"outside_0_1": [0.25, 0.5], "20 layers": None},
     "outside 0 to 1: 0.25, 0.5; 20 layers: –"),
    ({"10 layers": {"n": 1, "lr": 0.1}, "of": 2}, "10 layers (n: 1, lr: 0.1); of: 2")])
def test_values_are_written_for_readers(value, expected):
    assert ledger.words(value) == expected


@pytest.mark.parametrize("value, expected", [
    ([0.00123, 0.4, "diverged"], "0.0012 to 0.4, 1 diverged"), ([2.0, 2.0], "2"),
    ({"lowest": 1, "median": 2, "highest": 3}, "2 (1 to 3)"),
    ({"mean": 0.5, "relations": ["A ahead of B", "A level with C"]},
     "A ahead of B, A level with C"),
    ({f"{n} layers": {"highway": [n, n + 1.5], "at half": "yes"}
      for n in range(10, 90, 10)}, "10 layers (highway: 10 to 11.5) … 80 layers "
     "(highway: 80 to 81.5)")])
def test_the_numbers_that_decide_are_written_in_a_line(value, expected):
    assert ledger.brief(value) == expected


def test_a_pipe_does_not_end_a_cell():
    assert ledger.table_lines(["a"], [["|x|"]])[-1] == r"| \|x\| |"


@pytest.mark.parametrize("last, std, diverged, verdict", [
    (0.1, 0.01, 0, True), (0.89, 0.001, 0, False), (0.87, 0.01, 0, None),
    (0.895, 0.03, 0, None), (0.865, 0.01, 0, True), (0.865, 0.01, 2, None)])
def test_verdicts_of_a_sweep_follow_its_means(last, std, diverged, verdict):
    """Whether it loses two points from 0.9, by more than two standard errors."""
    rows = [{"block": block, "depth": depth, "test_acc_mean": mean, "test_acc_std": std,
             "n": 4, "diverged": diverged} for block in ("plain", "highway")
            for depth, mean in ((50, last), (20, 0.2), (5, 0.9))]
    found = headline_claims.check_sweep({
        "config": {"init": "glorot", "optimizer": "adam"}, "n_train": 6000,
        "epochs": 12, "seeds": [0, 1, 2, 3], "summary": rows})
    assert [item["holds"] for item in found] == [verdict, verdict]
    for item in found:
        assert item["n"] == 4 and item["ours"] == {
            "6 layers": f"0.900 ± {std:.3f}", "51 layers": f"{last:.3f} ± {std:.3f}"}


def test_a_sweep_without_its_summary_is_named(tmp_path):
    path = tmp_path / "results" / "headline" / "depth_45_seeds.json"
    path.parent.mkdir(parents=True)
    record = json.loads((committed.tree() / path.relative_to(tmp_path)).read_text())
    del record["summary"]
    path.write_text(json.dumps(record))
    with pytest.raises(lab.RecordError, match="depth_45_seeds.json: .*summary"):
        claims.load(path)


@pytest.mark.parametrize("last, expected", [(0.895, True), (0.85, False),
                                            (0.885, None)])
def test_what_the_earlier_reproduction_says_of_depth(last, expected):
    """Of highway nets alone: flat within two points, by more than the error."""
    rows = [{"block": "highway", "depth": depth, "test_acc_mean": mean, "n": 45,
             "test_acc_std": 0.02, "diverged": 0} for depth, mean in ((5, 0.9),
                                                                      (50, last))]
    found = headline_claims.check_sweep({
        "config": {"init": "uniform", "optimizer": "adam"}, "n_train": 6000,
        "epochs": 12, "seeds": list(range(45)), "summary": rows})
    assert [item["section"] for item in found] == ["ours", "reproduction"]
    assert found[1]["holds"] is expected
    assert found[0]["holds"] is (None if expected is None else not expected)


@pytest.mark.parametrize("gates, expected", [
    ([[0.3, 0.2, 0.1], [0.2, 0.9, 0.1]], True), ([[0.1, 0.2, 0.3]] * 2, False),
    ([[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]], None)])
def test_what_the_earlier_reproduction_says_of_the_gates(gates, expected):
    found, = headline_claims.check_gates({"runs": [{"highway": {"final_T_per_layer": T}}
                                             for T in gates]})
    assert found["holds"] is expected and found["n"] == 2


def test_verdicts_say_why_they_are_open_and_how_firm_they_are():
    item = {"holds": None, "also": {"5": True, "20": None}}
    assert ledger.verdict(item) == "open: undecided"
    assert ledger.verdict(item | {"why": "epochs"}) == "open: epochs"
    assert ledger.verdict({"holds": True, "younger": True}) == "**holds** †"
    assert ledger.at_others(item) == "5: holds; 20: open"
    assert ledger.at_others({"holds": True}) == "–"


def test_claims_of_papers_and_of_ours_are_counted_apart():
    def row(holds, n, **rest):
        return ledger.Row({"holds": holds, "n": n, **rest})
    rows = [row(True, 1), row(True, [1, 3]), row(True, 3), row(False, 1),
            row(None, 1, why="epochs"), row(None, 3)]
    assert ledger.count(rows) == (6, 3, 2, 1, 2, "1 epochs, 1 undecided")
    assert claims.parted([row(True, 1, section="ours"), row(True, 1, section="P1 2")]
                         ).keys() == {"P1", "ours"}
    with pytest.raises(lab.RecordError, match="'P3 1', begins with none of P1, P2"):
        claims.parted([row(True, 1, section="P3 1")])


def test_what_several_seeds_gave_is_told_with_what_is_no_number():
    assert ledger.from_to([2, 0.5, True, None, 1.0, False]) == (
        "0.5 to 2, 1 yes, 1 without a number, 1 no")
