"""A tiny composite: ears in front of a decoder or of a model that sees, and what joins them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.engine.models import twins
from tests.engine.models.perception.test_block_whisper import BLOCK, STACK

HIDDEN, INNER, STACKED = 64, 48, STACK * 32


def projector_weights() -> dict[str, Tensor]:
    torch.manual_seed(2)
    return {
        "projector.ln_pre.weight": torch.rand(STACKED).double(),
        "projector.linear_1.weight": torch.randn(INNER, STACKED).double() / 5,
        "projector.ln_mid.weight": torch.rand(INNER // 2).double(),
        "projector.linear_2.weight": torch.randn(HIDDEN, INNER // 2).double() / 5,
    }


def write_composite(folder: Path, whisper: Any, base: Any, projector: dict[str, Tensor]) -> None:
    """The directory of a composite: its parts, how they are put together, and the projector."""
    twins.save(whisper, folder / "whisper")
    twins.save(base, folder / "base")
    config = {
        "model_type": "headstart_composite",
        "audio_model": "whisper",
        "model": "base",
        "stack_factor": STACK,
        "audio_latency_block_size": BLOCK,
        "projector_hidden_size": INNER,
    }
    (folder / "config.json").write_text(json.dumps(config))
    save_file(projector, folder / "model.safetensors")
