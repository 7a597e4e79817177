"""Models that are not the machine's, and what measures and sizes nets."""
