"""One module per question: `python3 -m experiments.NAME` answers it, `python3 -m
experiments` lists them."""

from highway_suite.terminal import check_libraries

check_libraries("experiments")

# In the order of the ledger; `inside` trains the nets that the next two look into.
NAMES = ("optimization", "very_deep", "depth_law", "inside", "gates", "lesion",
         "five_nets", "harder_data", "variants", "blocks", "language_model", "table_1",
         "table_2", "convolution", "convolution_gates", "data_movement")
