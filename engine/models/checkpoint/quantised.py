"""Detection of checkpoints that were quantised by other tools, which are refused by name.

GPTQ, AWQ and similar tools store integers under names and in layouts of their own. `--weights int8`
quantises the original checkpoint while it is loaded, so nothing is lost by refusing them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headstart.engine.models.checkpoint.errors import QuantisedWeights

FIELD = "quantization_config"
# Files that older tools write beside a config.json that does not mention quantisation.
SIDECARS = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
# Endings of tensor names that occur in quantised checkpoints only, and their methods.
ENDINGS = {
    ".qweight": "gptq or awq",
    ".qzeros": "gptq or awq",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "fp8",
    ".weight_scale": "fp8",
    ".absmax": "bitsandbytes",
}


def refuse_by_config(path: Path, config: Mapping[str, Any]) -> None:
    """Raises `QuantisedWeights` if the config.json at `path`, or a file beside it, declares it."""
    for part in _parts(config):
        said = part.get(FIELD)
        if isinstance(said, Mapping):
            method, bits = said.get("quant_method", "an unnamed method"), said.get("bits")
            raise QuantisedWeights(path, f"{method} of {bits} bits" if bits else str(method))
    for name, method in SIDECARS.items():
        if path.with_name(name).exists():
            raise QuantisedWeights(path.with_name(name), method)


def refuse_by_names(path: Path, names: Iterable[str]) -> None:
    """Raises `QuantisedWeights` if a tensor's name occurs in quantised checkpoints only."""
    for name in names:
        for ending, method in ENDINGS.items():
            if name.endswith(ending):
                raise QuantisedWeights(path, f"{method} (it holds {name})")


def _parts(values: Any) -> Iterator[Mapping[str, Any]]:
    """A config and all objects nested in it, since some tools declare it in a nested one."""
    if isinstance(values, Mapping):
        yield values
        for inner in values.values():
            yield from _parts(inner)
