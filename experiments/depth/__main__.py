"""python3 -m experiments.depth"""

from experiments.lab import main

if __name__ == "__main__":
    main("depth")
