"""What stands around the machine: data sets, records, figures, checkpoints, workers and
the whole command line."""
