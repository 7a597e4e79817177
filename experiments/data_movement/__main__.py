from experiments.lab import main

main("data_movement")
