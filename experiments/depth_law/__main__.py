"""python3 -m experiments.depth_law"""

from experiments.depth_law import EXPERIMENT
from experiments.old_lab import main

if __name__ == "__main__":
    main(EXPERIMENT)
