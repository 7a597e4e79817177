"""The texts: none is stale, and every link leads somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

import highway_networks as hn
from experiments.lab import texts

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path):
    """The places of a page that can be linked to."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.+)$", path.read_text("utf-8"))}


def pages():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=hn.HERE, text=True,
                           capture_output=True, check=True).stdout.split()
    return [hn.HERE / name for name in names]


def test_no_text_is_stale():
    assert not texts.stale()


@pytest.mark.parametrize("value, text", [
    (None, "–"), (True, "yes"), (False, "no"), (0.123456, "0.1235"), (999.96, "1000"),
    (12345.6, "12,346"), ([2.0, 1.0, 3.0], "2, 1, 3"), ([2.0, 1.0, 3.0, 2.5], "1 to 3"),
    ([4, 4, 4, 4], "4"), ([1, 2, 3, None], "1, 2, 3, –"), ("as it is", "as it is"),
    ({"lowest": 1, "median": 2, "highest": 3}, "2 (1 to 3)"),
    ({"b_T": 1, "test_acc": [0.5]}, "b_T: 1; test acc: 0.5")])
def test_a_value_of_a_record_in_words(value, text):
    assert texts.words(value) == text


def test_the_filters_of_templates():
    assert texts.percent(0.96749) == "96.7" and texts.percent(0.96751, 2) == "96.75"
    assert texts.mean([0.9, 0.8, None]) == "0.8500 ± 0.0707"
    assert texts.mean([0.9]) == "0.9000" and texts.mean([None]) == "diverged"
    assert texts.span([3.14159, 2, 5]) == "2 to 5" and texts.span([2, 2.0001]) == "2"
    assert texts.table([["a|b", 1]], "Name|n:") == (
        "| Name | n |\n| --- | ---: |\n| a\\|b | 1 |")
    claims = [{"verdict": verdict} for verdict in ("holds", "open", "holds")]
    assert texts.counts(claims) == {"all": 3, "holds": 2, "fails": 0, "not_learned": 0,
                                    "open": 1}


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_a_name_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    import jinja2
    template = Path("results") / "variants" / "README.md.jinja"
    good = (hn.HERE / template).read_text()
    monkeypatch.setattr(texts, "PLACES", ("*.md.jinja",))
    monkeypatch.setattr(hn, "HERE", tmp_path)
    monkeypatch.setattr(texts, "all_records", dict)
    monkeypatch.setattr(texts, "read", lambda name: {})
    (tmp_path / "page.md.jinja").write_text("{{ hn.DATASETS.mnist.title }}")
    assert texts.rendered() == {tmp_path / "page.md": b"MNIST"}
    (tmp_path / "page.md.jinja").write_text(good)
    with pytest.raises(jinja2.UndefinedError):
        texts.rendered()
