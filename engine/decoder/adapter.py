"""LoRA adapters for packed decoders, as saved by PEFT, merged into the weights at load time.

W' = W + (alpha / rank) B A, for each projection in the adapter. The delta is finer than the steps
of 4 or 5 bit weights and would be rounded away, so an adapted weight is stored as Q8_0 whatever its
format was. Nothing extra runs per step; a step costs what the wider weights cost.

PEFT's layout: https://huggingface.co/docs/peft (adapter_config.json, adapter_model.safetensors).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufTensor
from headstart.engine.checkpoints.named import read_json
from headstart.engine.checkpoints.safetensors import read_safetensors
from headstart.engine.errors import BadWeights

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
KIND = "Q8_0"

_PROJECTIONS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_NAME = re.compile(
    r"(?P<module>base_model\.model\.model\.layers\.(?P<layer>\d+)\.(?P<part>[\w.]+))"
    r"\.lora_[AB]\.weight"
)
# Options of PEFT that we do not support, with the values that mean "not used".
_PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "bias": ("none",),
    "use_dora": (False, None),
    "fan_in_fan_out": (False, None),
    "modules_to_save": (None, []),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
}


def chosen_adapter(setting: str, own: Path | None) -> Path | None:
    """The adapter folder for a setting "auto" (`own`), "off" (None) or a folder's path."""
    if setting in ("auto", "off"):
        return own if setting == "auto" else None
    return Path(setting).expanduser()


class Adapter:
    """The deltas of one adapter folder. Raises `BadWeights` for a folder that is no adapter, or
    none for `spec`."""

    def __init__(self, folder: Path, spec: DecoderSpec) -> None:
        for name in (CONFIG, TENSORS):
            if not (folder / name).is_file():
                raise BadWeights(folder, "adapter", f"{CONFIG} and {TENSORS}", f"no {name}")
        self._scale = _scale(folder / CONFIG)
        self._path = folder / TENSORS
        self._tensors = read_safetensors(self._path)
        self._modules = dict(_weight(self._path, name) for name in self._tensors)
        shapes = _shapes(spec)
        for weight, module in self._modules.items():
            if weight not in shapes:
                known = f"layers 0 to {spec.layers - 1}"
                raise BadWeights(self._path, f"tensor {module}", known, "another layer")
            self._check(module, *shapes[weight])

    def __len__(self) -> int:
        return len(self._modules)

    def __contains__(self, name: object) -> bool:
        """Whether it changes the weight of this GGUF name."""
        return name in self._modules

    def adapted(
        self, tensor: GgufTensor, order: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.uint8] | None:
        """Bytes of `tensor` with its delta, in format `KIND`; None if the adapter does not change
        it. `order`: row permutation from `transformers`' rows, which the deltas use, to ours."""
        module = self._modules.get(tensor.name)
        if module is None:
            return None
        import gguf  # only to pack, which most starts do not

        raw = tensor.raw if order is None else tensor.raw[order]
        values = gguf.dequantize(raw, gguf.GGMLQuantizationType[tensor.kind])
        a, b = (self._tensors[f"{module}.lora_{side}.weight"].float() for side in "AB")
        adapted: npt.NDArray[np.uint8] = gguf.quantize(
            values + (self._scale * (b @ a)).numpy(), gguf.GGMLQuantizationType[KIND]
        )
        return adapted

    def _check(self, module: str, rows: int, cols: int) -> None:
        a, b = (f"{module}.lora_{side}.weight" for side in "AB")
        for name in (a, b):
            if name not in self._tensors:
                raise BadWeights(self._path, f"tensor {name}", "both lora_A and lora_B", "one")
        rank = self._tensors[a].shape[0]
        for name, wanted in ((a, (rank, cols)), (b, (rows, rank))):
            got = tuple(self._tensors[name].shape)
            if got != wanted:
                raise BadWeights(self._path, f"tensor {name}", f"shape {wanted}", f"{got}")
        if not all(torch.isfinite(self._tensors[name]).all() for name in (a, b)):
            raise BadWeights(self._path, f"tensor {module}", "finite numbers", "NaN or infinity")


def _scale(path: Path) -> float:
    config: dict[str, Any] = read_json(path)
    for field, plain in _PLAIN.items():
        value = config.get(field, plain[0])
        if value not in plain:
            raise BadWeights(path, field, repr(plain[0]), repr(value))
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or rank < 1:
        raise BadWeights(path, "r", "a rank of at least 1", repr(rank))
    if not isinstance(alpha, int | float):
        raise BadWeights(path, "lora_alpha", "a number", repr(alpha))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _weight(path: Path, name: str) -> tuple[str, str]:
    """The GGUF name of the weight that an adapter's tensor changes, and the adapter's name for
    it."""
    found = _NAME.fullmatch(name)
    if found is None or found["part"] not in _PROJECTIONS:
        known = f"lora_A or lora_B of a layer's {', '.join(_PROJECTIONS)}"
        raise BadWeights(path, f"tensor {name}", known, "another name")
    return f"blk.{int(found['layer'])}.{_PROJECTIONS[found['part']]}.weight", found["module"]


def _shapes(spec: DecoderSpec) -> dict[str, tuple[int, int]]:
    """Rows and columns of every adaptable weight, by GGUF name."""
    hidden, ffn = spec.hidden, spec.ffn
    parts = {
        "attn_q": (spec.q_width, hidden),
        "attn_k": (spec.kv_width, hidden),
        "attn_v": (spec.kv_width, hidden),
        "attn_output": (hidden, spec.q_width),
        "ffn_gate": (ffn, hidden),
        "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }
    return {
        f"blk.{layer}.{part}.weight": shape
        for layer in range(spec.layers)
        for part, shape in parts.items()
    }
