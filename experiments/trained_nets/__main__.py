"""python3 -m experiments.trained_nets"""

from experiments.lab import main

if __name__ == "__main__":
    main("trained_nets")
