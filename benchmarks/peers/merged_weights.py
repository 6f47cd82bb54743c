"""A packaged model's GGUF with its LoRA merged in, so that llama.cpp runs the weights of ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gguf

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.decoder.adapter import KIND, Adapter
from headstart.engine.errors import BadWeights

MERGEABLE = "qwen2"
"""The architecture whose rows GGUF files keep in the adapter's order."""


def merged(base: Path, adapter: Path, target: Path) -> Path:
    """Write `base` to `target` with `adapter` merged in, in the bytes that the engine uses; a file
    that is already there is kept. Raises `BadWeights`."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    ours = GgufFile(base)
    if ours.architecture != MERGEABLE:
        raise BadWeights(base, "general.architecture", MERGEABLE, ours.architecture)
    lora = Adapter(adapter, DecoderSpec.from_gguf(ours))
    reader: Any = gguf.GGUFReader(base)
    partial = target.with_suffix(".part")
    writer = gguf.GGUFWriter(partial, ours.architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, *inner = field.types
            writer.add_key_value(name, field.contents(), kind, inner[-1] if inner else None)
    for tensor in reader.tensors:
        changed = lora.adapted(ours.tensors[tensor.name], None)
        data = tensor.data if changed is None else changed
        stored = tensor.tensor_type if changed is None else gguf.GGMLQuantizationType[KIND]
        writer.add_tensor(tensor.name, data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours.close()
    os.replace(partial, target)
    return target
