"""Convolutional highway nets in plain NumPy; recipe.py is of later years."""
