"""The same training step by several programs, in turns; nothing here is a test.

    python3 -m benchmarks           all contests -> benchmarks/speed.json and speed.png
    python3 -m benchmarks --quick   a few minutes; only prints who is ahead
"""

from highway_suite.terminal import check_libraries

check_libraries("benchmarks")
