"""The numbers in the texts are those of the records, and none is stale."""

import re
import shutil

import numpy as np
import pytest

from experiments import claims, texts, values
from experiments.store import StoreError
from experiments.texts import TextError, rewrite
from experiments.values import common, headline
from highway_suite.studies import load
from tests.committed import tree
from tests.records_for_figures import diverge, make_record, save

FOUND = {"a": "| x |", "b.c": "0.5"}


def test_no_text_of_the_repository_is_stale():
    assert not texts.stale_pages(tree()), "run: python3 -m experiments.texts"
    assert tree() / "README.md" in texts.pages(tree())
    lecture = (tree() / "LECTURE.md").read_text()
    assert all(f"<!--table:{name}-->" in lecture for name in texts.from_lecture())


def test_a_record_of_other_data_is_not_told(tmp_path):
    save(tmp_path / "run.json", make_record(dataset="digits"))
    with pytest.raises(common.RecordError, match="the texts speak of MNIST"):
        common.read(tmp_path / "run.json")


def headings(path):
    """What links to parts of a page are called."""
    titles = re.findall(r"^#+ (.*)", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_of_the_texts_leads_somewhere():
    """To a committed file or folder, and where it names a heading, to that."""
    code = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
    for path in tree().rglob("*.md"):
        prose = code.sub("", path.read_text())
        for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", prose):
            name, _, heading = "".join(link).partition("#")
            target = path.parent / name if name else path
            assert "://" in name or (target.exists() and (
                not heading or heading in headings(target))), f"{path}: {link}"


def test_values_and_tables_go_between_their_markers():
    text = ("<!-- table: a -->\n| old |\n<!-- end -->\n"
            "is <!-- value: b.c -->0.4<!-- end -->.")
    new = rewrite(text, FOUND)
    assert new == text.replace("| old |", "| x |").replace("0.4", "0.5")
    assert rewrite(new, FOUND) == new and rewrite("none", FOUND) == "none"


@pytest.mark.parametrize("text, words", [
    ("<!-- table: a -->\n", "<!-- table: a --> has no end"),
    ("\n<!-- table: a -->\n<!-- value: b.c --> <!-- end -->", "line 3: .* has no end"),
    ("a\n<!-- end -->\n", "line 2: .* no marker before it"),
    ("in\n<!--value:b.c-->1<!--end-->", "line 2: .* ends the paragraph"),
    (" <!-- value: b.d -->1<!-- end -->", "line 1: .*known are b.c")])
def test_wrong_markers_are_named_with_their_line(text, words):
    with pytest.raises(TextError, match=words):
        rewrite(text, FOUND)


def test_a_changed_digit_is_noticed_and_mended(tmp_path, monkeypatch):
    monkeypatch.setattr("highway_networks.HERE", tmp_path)
    monkeypatch.setattr(values, "ABOUT", {"run": values.ABOUT["run"]})
    monkeypatch.setattr(claims, "RECORDS", ())
    readme, text = tmp_path / "README.md", "it <!--value:run.highway-->72<!--end-->"
    for stale, words in ((text, "--check"), (text, ""), (text.replace("72", "73"), "")):
        readme.write_text(stale)
        shutil.copy(save(tmp_path / "r.json", make_record()), tmp_path / "run.json")
        correct = common.percent(make_record()["runs"][0]["highway"]["final_test_acc"])
        with pytest.raises(SystemExit, match="1"):
            texts.main(words.split())
        assert readme.read_text() == (stale if words else text.replace("72", correct))
    (tmp_path / "run.json").unlink()
    with pytest.raises(SystemExit, match="experiments.texts: .*run.json: No such file"):
        texts.main([])


def cells(text):
    return [[cell.strip() for cell in row.strip("|").split("|")]
            for row in text.splitlines()]


def test_a_table_has_a_row_for_each_net_and_depth(tmp_path):
    record = make_record(depths=(3, 6), seeds=(0, 1, 2))
    for i in (0, 3, 4, 5):
        diverge(record["runs"][i]["plain"], 1)
    study = load(save(tmp_path / "r.json", record))

    def ends(block, *runs):
        return [record["runs"][i][block]["history"]["test_acc"][-1] for i in runs]
    acc, kept = ends("highway", 0, 1, 2), ends("plain", 1, 2)
    rows = cells(headline.net_table(study))
    assert rows[0] == ["net", "layers", "parameters", "n", "test accuracy",
                       "last training loss"]
    assert rows[2][:5] == ["highway", "4", "6,000", "3",
                           f"{np.mean(acc):.4f} ± {np.std(acc, ddof=1):.4f}"]
    assert rows[3][:5] == ["plain", "4", "3,000", "3, of which 1 diverged",
                           f"{np.mean(kept):.4f} ± {np.std(kept, ddof=1):.4f}"]
    assert rows[5] == ["plain", "7", "6,000", "3, of which 3 diverged", "–", "–"]
    rows = cells(headline.depths(study, study))
    assert rows[0][1:3] == ["highway, U(±1/√fan_in), n = 3",
                            "plain, U(±1/√fan_in), n = 3"]
    assert rows[2][0] == "4" and rows[2][2] == (
        f"{np.mean(kept):.3f} ± {np.std(kept, ddof=1):.3f}, 1 diverged")
    one = load(save(tmp_path / "r.json", make_record()))
    assert "±" not in headline.net_table(one)


def test_damaged_trials_are_one_line(monkeypatch):
    def stale(_):
        raise StoreError("trials.jsonl, line 3: edited")
    monkeypatch.setattr(texts, "stale_pages", stale)
    with pytest.raises(SystemExit, match="experiments.texts: trials.jsonl, line 3"):
        texts.main([])
