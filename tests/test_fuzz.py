"""Arbitrary and mutated bytes give the right answer or the one documented error.

A few hundred examples in every run; 200,000 and more with

    python3 -m pytest -m fuzz
"""

import pytest


@pytest.mark.parametrize("examples", [
    120, pytest.param(70_000, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("check", ["check_file", "check_record_reader"])
def test_property(check, examples, tmp_path, monkeypatch):
    from tests import fuzzing  # here, for Hypothesis takes seconds to import
    monkeypatch.chdir(tmp_path)
    getattr(fuzzing, check)(examples)
