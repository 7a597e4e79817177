"""Speed and memory, compared within one run; nothing here is a test."""

from highway_suite.terminal import check_libraries

check_libraries("benchmarks")
