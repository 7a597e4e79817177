"""The examples run as they stand, in a folder of the user's, and show what they say."""

import re
import runpy

import pytest

import highway_networks as hn


@pytest.fixture
def example(tmp_path, monkeypatch, capfd):
    """Run an example -> what it prints, and on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(hn, "BLOCKS", dict(hn.BLOCKS))

    def run(name):
        runpy.run_module(f"examples.{name}", run_name="__main__", alter_sys=True)
        return capfd.readouterr()
    return run


def percents(text):
    return [float(number) for number in re.findall(r"(\d+)%", text)]


def test_data_of_ones_own(example):
    accuracy, *shares = map(float, re.findall(r"\d\.\d*", example("own_data").out))
    assert accuracy > 0.8 and len(shares) == 4 and abs(sum(shares) - 1) < 0.01


def test_a_block_of_ones_own(example):
    halfway, plain = map(float, re.findall(r"\d\.\d+", example("own_block").out))
    assert halfway > 2 * plain


def test_a_search_goes_on(example):
    first, again = example("search"), example("search")
    assert "trial 6/6" in first.err and again.err == ""
    assert first.out == again.out and "best: {" in again.out


def test_a_layer_is_closed(example):
    highway, without, *_, plain, ruined = percents(example("close_a_layer").out)
    assert highway - without < 3 and plain - ruined > 20


def test_a_record_is_drawn(example, tmp_path):
    example("plot_record")
    assert (tmp_path / "runs" / "example.png").stat().st_size > 5000
