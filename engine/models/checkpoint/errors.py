"""What a model refuses; see `headstart.engine.errors` for the tree these belong to."""

from __future__ import annotations

from pathlib import Path

from headstart.engine.errors import BadWeights, EngineError


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


class NotEnoughMemory(EngineError):
    """A model that this machine cannot hold as it is to be kept."""

    code = "not_enough_memory"

    def __init__(self, model: str, form: str, weights: int, beside: int, left: int) -> None:
        self.model, self.form = model, form
        self.weights_bytes, self.beside_bytes, self.left_bytes = weights, beside, left
        smaller = "a smaller model" if form == "int8" else "--weights int8, or a smaller model"
        super().__init__(
            f"{model} in {form} takes {_gb(weights)}, and {_gb(beside)} beside them for K/V and "
            f"computing; this process may take {_gb(left)} more. Use {smaller}"
        )


def _gb(count_bytes: int) -> str:
    return f"{count_bytes / 1e9:.1f} GB"


class UnsupportedInput(EngineError):
    """Sound for a model that cannot hear, pictures for one that cannot see."""

    code = "unsupported_input"

    def __init__(self, model: str, what: str) -> None:
        self.model, self.what = model, what
        super().__init__(f"{model} takes no {what}")
