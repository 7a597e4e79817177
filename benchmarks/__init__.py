"""The same training step by several programs, in turns; nothing here is a test."""

from highway_suite.terminal import check_libraries

check_libraries("benchmarks")
