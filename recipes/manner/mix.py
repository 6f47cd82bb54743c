"""`python -m recipes.manner.mix A B SHARE OUT`: the mean of two stages of one fit.

A second stage teaches what was missing and forgets a part of the first; weights between the two
keep most of both (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import typer
from safetensors.torch import load_file, save_file

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


def mix(first: Path, second: Path, share: float, out: Path) -> None:
    """(1 - share) of FIRST's adapter and `share` of SECOND's, in OUT. The second has to have begun
    with the first: of two fits from scratch the mean is neither."""
    a, b = (load_file(folder / TENSORS) for folder in (first, second))
    if a.keys() != b.keys():
        raise ValueError("expected two adapters of the same layers")
    out.mkdir(parents=True, exist_ok=True)
    mixed = {name: a[name].float().lerp(b[name].float(), share).half() for name in a}
    save_file(mixed, out / TENSORS)
    shutil.copyfile(first / CONFIG, out / CONFIG)


if __name__ == "__main__":
    typer.run(mix)
