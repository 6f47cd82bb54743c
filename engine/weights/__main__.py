"""`python -m engine.weights`: the same as `headstart models`, where that is not on the path."""

from engine.weights.cli import app

app()
