"""Convolutional highway nets in plain NumPy.

    winograd    a convolution with fewer products, and its transpose
    layers      the layers, forward and backward by hand
    net         `ConvNet`, which `hn.fit` trains, and its optimiser
    recipe      what later years added to its training
"""
