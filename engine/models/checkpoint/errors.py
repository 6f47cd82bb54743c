"""Errors of model directories; `headstart.engine.errors` draws the whole tree."""

from __future__ import annotations

from pathlib import Path

from headstart.engine.errors import BadWeights, EngineError


class QuantisedWeights(BadWeights):
    """A checkpoint that was quantised by another tool, in a format that is not supported."""

    code = "quantised_weights"

    def __init__(self, file: Path, method: str) -> None:
        self.method = method
        expected = (
            "the unquantised checkpoint, in bf16, fp16 or fp32 (--weights int8 quantises it while "
            "loading)"
        )
        super().__init__(file, "weights", expected, f"weights quantised by {method}")


class NotEnoughMemory(EngineError):
    """A model that does not fit into this machine's memory in the requested form."""

    code = "not_enough_memory"

    def __init__(self, model: str, form: str, weights: int, beside: int, left: int) -> None:
        self.model, self.form = model, form
        self.weights_bytes, self.beside_bytes, self.left_bytes = weights, beside, left
        smaller = "a smaller model" if form == "int8" else "--weights int8, or a smaller model"
        super().__init__(
            f"{model} in {form} needs {_gb(weights)}, and {_gb(beside)} more for K/V and "
            f"computation; {_gb(left)} are available to this process. Use {smaller}"
        )


def _gb(count_bytes: int) -> str:
    return f"{count_bytes / 1e9:.1f} GB"


class UnsupportedInput(EngineError):
    """Sound for a model without audio input, or pictures for one without vision."""

    code = "unsupported_input"

    def __init__(self, model: str, what: str) -> None:
        self.model, self.what = model, what
        super().__init__(f"{model} takes no {what}")
