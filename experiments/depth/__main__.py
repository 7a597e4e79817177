from experiments.lab import main

main("depth")
