"""Choice of the decoder that runs a model's text side: float or int8 weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.decoder import TextDecoder
from headstart.engine.decoder.layers import compute_dtype
from headstart.engine.decoder.rotary import Rotary, SectionRotary, TablelessRotary
from headstart.engine.models.checkpoint.tensors import Scope, Tensors
from headstart.engine.models.decoder.float_decoder import TorchDecoder, TorchWeights
from headstart.engine.models.decoder.int8 import Int8Decoder

# From a model's tensors ("decoder." and "lm_head."), its sizes and its M-RoPE sections (none: one
# axis). Raises `BadWeights` naming what is missing or misshapen.
Build = Callable[[Tensors, DecoderSpec, Sequence[int]], TextDecoder]


def in_torch(tensors: Tensors, spec: DecoderSpec, sections: Sequence[int] = ()) -> TextDecoder:
    """A decoder on weights of the tensors' dtype."""
    weights = TorchWeights.load(Scope(tensors, "decoder."), tensors, spec)
    dtype = compute_dtype(weights.embedding.dtype)
    return TorchDecoder(spec, weights, _rotary(spec, sections, dtype))


def in_int8(tensors: Tensors, spec: DecoderSpec, sections: Sequence[int] = ()) -> TextDecoder:
    """A decoder on the native kernels, quantised while it is loaded."""
    rotary = _rotary(spec, sections, torch.float32)
    return Int8Decoder(Scope(tensors, "decoder."), tensors, spec, rotary)


def _rotary(spec: DecoderSpec, sections: Sequence[int], dtype: torch.dtype) -> Rotary:
    return SectionRotary(spec, sections, dtype) if sections else TablelessRotary(spec, dtype)
