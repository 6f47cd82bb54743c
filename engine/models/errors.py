"""What a model refuses; see `engine.errors` for the tree these belong to."""

from __future__ import annotations

from pathlib import Path

from engine.errors import BadWeights, EngineError


class QuantisedWeights(BadWeights):
    """A checkpoint whose weights somebody quantised in a way that we do not read."""

    code = "quantised_weights"

    def __init__(self, file: Path, method: str) -> None:
        self.method = method
        expected = (
            "the unquantised checkpoint, in bf16, fp16 or fp32 (--weights int8 makes it small "
            "while it is loaded)"
        )
        super().__init__(file, "weights", expected, f"weights quantised by {method}")


class UnsupportedInput(EngineError):
    """Sound for a model that cannot hear, pictures for one that cannot see."""

    code = "unsupported_input"

    def __init__(self, model: str, what: str) -> None:
        self.model, self.what = model, what
        super().__init__(f"{model} takes no {what}")
