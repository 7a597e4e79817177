"""The Python in the README runs and does what the sentences around it say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from contracts import WrongGradient, check_gradient, small_batch, small_net

import highway_networks as hn

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
        check_gradient(small_net("halfway", 10, seed=seed), *small_batch(seed), seed=seed)


def test_own_block_in_the_table_is_under_the_contracts(tmp_path):
    """What -k halfway selects once the block stands in the module's table."""
    module = (ROOT / "highway_networks.py").read_text()
    functions, row = snippet("hn.BLOCKS").split("import highway_networks as hn\n")[
        1].split("hn.BLOCKS[")
    module = module.replace("# The only place that knows the mathematics",
                            functions + "\n\n# The only place that knows the mathematics")
    module = module.replace('    "full": Block(', '    "halfway": Block("", halfway_forward, '
                            'halfway_backward),\n    "full": Block(')
    assert 'hn.Block("", halfway_forward, halfway_backward)' in row
    (tmp_path / "highway_networks.py").write_text(module)
    for name in ("tests", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "halfway",
         "tests/test_gradients.py", "tests/test_network.py"],
        cwd=tmp_path, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 12


def test_the_library_example_runs(mnist):
    space = {}
    exec(snippet("hn.make_net"), space)
    assert space["status"] == "ok" and space["T"].shape == (20, 50, 2000)
