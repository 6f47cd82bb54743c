"""Decoder weights in int8, with a scale for every 32 of them, on the native kernels.

The format is GGUF's Q8_0: a quarter of fp32, half of bf16, and read by the packed decoder at memory
speed. Each matrix is quantised when it is loaded, so there is never a second copy of the model.
"""

from __future__ import annotations

from torch import Tensor

from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.decoder.decoder import Decoder
from headstart.engine.decoder.key_scale import key_scale
from headstart.engine.decoder.quantise import quantise
from headstart.engine.decoder.rotary import Rotary
from headstart.engine.decoder.weights import (
    DecoderWeights,
    PackedEmbedding,
    PackedHead,
    PackedStack,
)
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.kernels.decoder_layers import Layer, LayerSizes
from headstart.kernels.native import default_backend
from headstart.kernels.qlinear import QWeight, dequantize


class Int8Decoder(Decoder):
    """The packed decoder on weights quantised while they are loaded, by `transformers`' names."""

    def __init__(
        self,
        tensors: Tensors,
        head: Tensors,
        spec: DecoderSpec,
        rotary: Rotary,
        backend: str | None = None,
    ) -> None:
        """Raises `BadWeights` naming what is missing or misshapen."""
        backend = backend or default_backend()
        shape = spec.vocab_size, spec.hidden
        embedding = _matrix(tensors, "embed_tokens.weight", *shape)
        output = embedding if spec.tied_output else _matrix(head, "lm_head.weight", *shape)
        layers = [_layer(tensors, f"layers.{i}.", spec) for i in range(spec.layers)]
        sizes = LayerSizes(
            spec.hidden, spec.ffn, spec.heads, spec.kv_heads, spec.head_dim, spec.rms_eps
        )
        packed = [w for layer in layers for w in (*layer.qkv, *layer.gate_up)]
        packed += [w for layer in layers for w in (layer.attn_out, layer.down)]
        weights = DecoderWeights(
            embedding=PackedEmbedding(embedding, backend),
            layers=PackedStack(layers, sizes, backend),
            output_norm=tensors.take("norm.weight", spec.hidden).float(),
            output=PackedHead(output, backend),
            nbytes=sum(w.nbytes for w in {id(w): w for w in [*packed, embedding, output]}.values()),
        )
        super().__init__(spec, weights, backend, rotary)


def _matrix(tensors: Tensors, name: str, rows: int, cols: int) -> QWeight:
    quantised = quantise(tensors.take(name, rows, cols))
    tensors.copied(name)
    return quantised


def _layer(tensors: Tensors, prefix: str, spec: DecoderSpec) -> Layer:
    def matrix(name: str, rows: int, cols: int) -> QWeight:
        return _matrix(tensors, f"{prefix}{name}.weight", rows, cols)

    def vector(name: str, rows: int) -> Tensor:
        return tensors.take(f"{prefix}{name}", rows).float()

    widths = {"q": spec.q_width, "k": spec.kv_width, "v": spec.kv_width}
    q, k, v = (matrix(f"self_attn.{n}_proj", width, spec.hidden) for n, width in widths.items())
    biases = [
        vector(f"self_attn.{n}_proj.bias", width) if spec.qkv_bias else None
        for n, width in widths.items()
    ]
    attn_norm = vector("input_layernorm.weight", spec.hidden)
    return Layer(
        attn_norm=attn_norm,
        qkv=(q, k, v),
        qkv_bias=(biases[0], biases[1], biases[2]),
        attn_out=matrix("self_attn.o_proj", spec.hidden, spec.q_width),
        ffn_norm=vector("post_attention_layernorm.weight", spec.hidden),
        gate_up=(
            matrix("mlp.gate_proj", spec.ffn, spec.hidden),
            matrix("mlp.up_proj", spec.ffn, spec.hidden),
        ),
        down=matrix("mlp.down_proj", spec.hidden, spec.ffn),
        key_scale=key_scale(dequantize(k), biases[1], attn_norm, spec.kv_heads),
    )
