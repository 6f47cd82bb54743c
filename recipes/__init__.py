"""Recipes of our own weights: one folder each, with its data and the command to repeat it."""
