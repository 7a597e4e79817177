"""python3 -m experiments.convolution"""

from experiments.lab import main

if __name__ == "__main__":
    main("convolution")
