"""Benchmarks, side by side with peers in one run; README.md is the map and lists the output keys.

A folder has the name of what it measures. `inputs`, `harness` and `references` measure nothing; all
others may import them.
"""
