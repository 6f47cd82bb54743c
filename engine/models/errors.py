"""What a model refuses; see `engine.errors` for the tree these belong to."""

from __future__ import annotations

from engine.errors import EngineError


class UnsupportedInput(EngineError):
    """Sound for a model that cannot hear, pictures for one that cannot see."""

    code = "unsupported_input"

    def __init__(self, model: str, what: str) -> None:
        self.model, self.what = model, what
        super().__init__(f"{model} takes no {what}")
