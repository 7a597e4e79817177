"""`python3 -m highway_suite`, and the command `highway-networks` that pip installs: the
very program of highway_networks.py, which sets BLAS's threads before NumPy is loaded.
"""

import runpy


def run() -> None:
    """Run highway_networks.py as the program."""
    runpy.run_module("highway_networks", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run()
