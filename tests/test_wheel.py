"""What pip installs is enough: a run, its pictures and its version, from any folder."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import highway_networks as hn

SOURCE = ("highway_networks.py", "visualize_highway_networks.py", "LICENSE",
          "README.md", "make_highway_networks_gif.py", "pyproject.toml",
          "highway_suite")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, and the folder it is unpacked in."""
    pytest.importorskip("setuptools", minversion="70.1")
    work = tmp_path_factory.mktemp("wheel")
    for name in SOURCE:
        copy = shutil.copytree if (hn.HERE / name).is_dir() else shutil.copy
        copy(hn.HERE / name, work / name)
    subprocess.run([sys.executable, "-c", "from setuptools import build_meta; "
                    "build_meta.build_wheel('dist')"], cwd=work, check=True,
                   capture_output=True)
    path, = (work / "dist").iterdir()
    with zipfile.ZipFile(path) as archive:
        archive.extractall(work / "site")
        return archive.namelist(), work / "site"


def test_a_wheel_has_the_suite_and_nothing_of_a_general_name(wheel):
    names, _ = wheel
    files = {name for name in names if ".dist-info/" not in name}
    modules = {f"highway_suite/{path.name}"
               for path in (hn.HERE / "highway_suite").glob("*.py")}
    digits = {f"highway_suite/digits/{file.name}"
              for file in hn.DATASETS["digits"].files}
    assert files - {"highway_suite/digits/README.md"} == modules | digits | {
        name for name in SOURCE if name.endswith(".py")}


def test_the_installed_suite_runs_and_writes_into_the_current_folder(wheel, tmp_path):
    _, site = wheel
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    env = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1",
           "MPLBACKEND": "Agg"}

    def python(*words):
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env=env,
                              text=True, check=True, capture_output=True).stdout
    entry = "from highway_suite.cli import run_as_program as run; run()"
    assert "highway_suite.cli:run_as_program" in (
        next(site.glob("*.dist-info")) / "entry_points.txt").read_text()
    assert python("-c", entry, "--version").startswith("highway-networks ")
    python("-c", entry, "--quick", "--dataset", "digits", "--epochs", "1", "--out",
           "run.json")
    python("-m", "visualize_highway_networks", "--format", "svg")
    python("-m", "make_highway_networks_gif")
    assert python("-c", "import highway_networks as hn; print(hn.HERE)").strip() == str(
        site)
    assert {path.name for path in Path(tmp_path).iterdir()} == {
        "run.json", "viz", "highway_networks.gif"}
    assert len(list((tmp_path / "viz").iterdir())) == 5
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
