"""What pip installs is enough: a run, its pictures and its version, from any folder."""

import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import highway_networks as hn
from highway_suite.datasets import DATASETS
from highway_suite.nets import TRAINED

PROJECT = (hn.HERE / "pyproject.toml").read_text(encoding="utf-8")
SCRIPTS = {f"{name}.py" for name in re.findall(
    r'"(\w+)"', re.search("^py-modules = (.+)$", PROJECT, re.MULTILINE)[1])}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this checkout, and the folder it is unpacked in."""
    pytest.importorskip("setuptools", minversion="77.0.3")
    work = tmp_path_factory.mktemp("wheel")
    for name in ("README.md", "LICENSE", "pyproject.toml", "highway_suite",
                 "results/trained_nets", *SCRIPTS):
        copy = shutil.copytree if (hn.HERE / name).is_dir() else shutil.copy
        copy(hn.HERE / name, work / name)
    subprocess.run([sys.executable, "-c", "from setuptools import build_meta; "
                    "build_meta.build_wheel('dist')"], cwd=work, check=True,
                   capture_output=True)
    path, = (work / "dist").iterdir()
    assert path.stat().st_size < 4e6
    with zipfile.ZipFile(path) as archive:
        archive.extractall(work / "site")
        return archive.namelist(), work / "site"


def test_the_citation_names_the_version():
    citation = (hn.HERE / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {hn.__version__}\n" in citation


def test_a_wheel_has_the_suite_and_nothing_of_a_general_name(wheel):
    names, _ = wheel
    files = {name for name in names if ".dist-info/" not in name}
    modules = {f"highway_suite/{path.name}"
               for path in (hn.HERE / "highway_suite").glob("*.py")}
    digits = {f"highway_suite/digits/{name}.gz" for name in DATASETS["digits"].files}
    samples = {"highway_suite/mnist40/images.npz"} | {
        f"highway_suite/trained_nets/{block}.npz" for block in TRAINED}
    sources = {f"highway_suite/{name}/README.md" for name in ("digits", "mnist40")}
    assert files - sources == modules | digits | samples | SCRIPTS


def test_the_installed_suite_runs_and_writes_into_the_current_folder(wheel, tmp_path):
    _, site = wheel
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    entry = next(site.glob("*.dist-info")) / "entry_points.txt"
    assert "highway-networks = highway_suite.__main__:run" in entry.read_text()
    code = """if True:
        import highway_networks, make_highway_networks_gif, visualize_highway_networks
        from highway_suite import cli, nets
        print(highway_networks.HERE, highway_networks.__version__)
        cli.main("--quick --dataset digits --epochs 1 --out run.json".split())
        visualize_highway_networks.main(["--format", "svg"])
        make_highway_networks_gif.main([])
        images, labels = nets.mnist_images()
        for block in nets.TRAINED:
            nets.trained_net(block).predict(images)"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == f"{site} {hn.__version__}"
    assert {path.name for path in tmp_path.iterdir()} == {
        "run.json", "viz", "highway_networks.gif"}
    assert len(list((tmp_path / "viz").iterdir())) == 5
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before
