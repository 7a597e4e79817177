"""The texts: none is stale, and every link leads somewhere."""

import re
import subprocess

import pytest

import highway_networks as hn
from experiments.lab import texts

LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(path):
    text = path.read_text("utf-8")
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.+)$", text)} | {
                *re.findall(r'<details id="(.+)">', text)}


def pages():
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=hn.HERE, text=True,
                           capture_output=True, check=True).stdout.split()
    return [hn.HERE / name for name in names]


def test_no_text_is_stale():
    assert not texts.stale()


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text("utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


def test_numbers_of_one_order_have_as_many_decimals():
    assert texts.words([0.0015, 0.02]) == "0.0015, 0.0200"


def test_a_stale_text_is_written_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(texts, "PLACES", ("*.md.jinja",))
    monkeypatch.setattr(hn, "HERE", tmp_path)
    monkeypatch.setattr(texts.experiment, "all_records", dict)
    monkeypatch.setattr(texts, "read", lambda name: {})
    (tmp_path / "page.md.jinja").write_text("{{ hn.MNIST | length }} files")
    for told in ("page.md written\n", ""):
        texts.main([])
        assert capsys.readouterr().out == told
    assert (tmp_path / "page.md").read_bytes() == b"4 files"
