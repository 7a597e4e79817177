"""python3 -m experiments.very_deep"""

from experiments.old_lab import main
from experiments.very_deep import EXPERIMENT

if __name__ == "__main__":
    main(EXPERIMENT)
