"""Checkpoints that somebody quantised before us: told from their files, and refused by name.

GPTQ, AWQ and their kin store integers under names and in layouts of their own; loaded as if they
were weights they would be missing tensors at best. `--weights int8` quantises the plain checkpoint
while it is loaded, so nothing is lost by refusing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headstart.engine.models.checkpoint.errors import QuantisedWeights

FIELD = "quantization_config"
# What older tools write beside a config.json that says nothing of it, and their methods.
SIDECARS = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
# How names of tensors end that hold no weight by itself, and who makes them so.
ENDINGS = {
    ".qweight": "gptq or awq",
    ".qzeros": "gptq or awq",
    ".weight_packed": "compressed-tensors",
    ".weight_scale_inv": "fp8",
    ".weight_scale": "fp8",
    ".absmax": "bitsandbytes",
}


def refuse_by_config(path: Path, config: Mapping[str, Any]) -> None:
    """Raises `QuantisedWeights` if the config.json at `path`, or a file beside it, says so."""
    for part in _parts(config):
        said = part.get(FIELD)
        if isinstance(said, Mapping):
            method, bits = said.get("quant_method", "an unnamed method"), said.get("bits")
            raise QuantisedWeights(path, f"{method} of {bits} bits" if bits else str(method))
    for name, method in SIDECARS.items():
        if path.with_name(name).exists():
            raise QuantisedWeights(path.with_name(name), method)


def refuse_by_names(path: Path, names: Iterable[str]) -> None:
    """Raises `QuantisedWeights` if a file's tensors are named as only such a checkpoint's are."""
    for name in names:
        for ending, method in ENDINGS.items():
            if name.endswith(ending):
                raise QuantisedWeights(path, f"{method} (it holds {name})")


def _parts(values: Any) -> Iterator[Mapping[str, Any]]:
    """A config and all objects in it: some tools write it into the part that they quantised."""
    if isinstance(values, Mapping):
        yield values
        for inner in values.values():
            yield from _parts(inner)
