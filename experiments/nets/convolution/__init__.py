"""Convolutional highway nets in plain NumPy; recipe.py has what later years added."""
