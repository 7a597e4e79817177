"""Models beside those of highway_networks.py, and functions that measure or size nets.
"""
