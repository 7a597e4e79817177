from experiments.lab import main

main("convolution")
