"""Nets that are not the machine's own: convolutional and recurrent highway nets."""
