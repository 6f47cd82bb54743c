"""An hour of twenty people who behave as badly as people and networks do, against a real server."""
