"""What the scripts share: files, data sets, records, figures, command line."""
