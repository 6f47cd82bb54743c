"""The weighted mean of two LoRAs, at the same rank.

    python -m headstart.recipes.conversation_lora.mix A B SHARE OUT

Weights between two fits of one base model keep most of what both have learnt and of what either has
lost (Wortsman et al., "Robust fine-tuning of zero-shot models", 2022). The mean is taken over the
deltas B A, not over their factors, which are unrelated in two fits.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
import typer
from safetensors.torch import load_file, save_file
from torch import Tensor

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


def mix(first: Path, second: Path, share: float, out: Path) -> float:
    """Write (1 - share) of `first`'s deltas plus `share` of `second`'s to `out`, at `first`'s rank.
    Returns the part of their energy that this rank keeps, 0 to 1."""
    a, b = (load_file(folder / TENSORS) for folder in (first, second))
    if a.keys() != b.keys():
        raise ValueError("expected two adapters of the same layers")
    scales = [_scale(folder / CONFIG) for folder in (first, second)]
    shares = ((1 - share), share * scales[1] / scales[0])
    mixed: dict[str, Tensor] = {}
    kept = whole = 0.0
    for name in (one for one in a if ".lora_A." in one):
        up = name.replace(".lora_A.", ".lora_B.")
        # Both deltas side by side in one of twice the rank: [s B, t B'] [A; A'].
        left = torch.cat([t[up].float() * part for t, part in zip((a, b), shares, strict=True)], 1)
        right = torch.cat([t[name].float() for t in (a, b)])
        rank = a[name].shape[0]
        u, s, v = _svd(left, right)
        half = s[:rank].sqrt()
        mixed[up] = (u[:, :rank] * half).half().contiguous()
        mixed[name] = (half[:, None] * v[:rank]).half().contiguous()
        kept += float(s[:rank].square().sum())
        whole += float(s.square().sum())
    out.mkdir(parents=True, exist_ok=True)
    save_file(mixed, out / TENSORS)
    if out != first:
        shutil.copyfile(first / CONFIG, out / CONFIG)
    return kept / whole if whole else 1.0


def _scale(config: Path) -> float:
    read = json.loads(config.read_text())
    return float(read["lora_alpha"] / read["r"])


def _svd(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """SVD of left @ right, without computing the product: [n, r], [r], [r, m]."""
    q, upper = torch.linalg.qr(left)
    p, lower = torch.linalg.qr(right.T)
    u, s, v = torch.linalg.svd(upper @ lower.T)
    return q @ u, s, v @ p.T


def main(first: Path, second: Path, share: float, out: Path) -> None:
    """Write OUT."""
    kept = mix(first, second, share, out)
    print(f"{out}: its rank keeps {kept:.1%} of both deltas' energy")


if __name__ == "__main__":
    typer.run(main)
