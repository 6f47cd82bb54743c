"""Benchmarks, side by side with peers in one run; README.md lists each one's output keys."""
