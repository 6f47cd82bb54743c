"""Measurements, side by side with the peer in one run; see README.md for each one's keys."""
