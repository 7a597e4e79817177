"""The explorer: one page that shows three trained nets and trains two more.

`python3 -m explorer` makes docs/explorer.html and its share picture; README.md tells
what each file here holds.
"""

from highway_suite.terminal import check_libraries

check_libraries("explorer")
