from experiments.lab import main

main("trained_nets")
