from experiments.lab import main

main("language")
