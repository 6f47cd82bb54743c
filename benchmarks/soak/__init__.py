"""Soak test: twenty clients that misbehave, as people and networks do, against a real server."""
