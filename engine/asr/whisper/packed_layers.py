"""Our modules' layers, their matrices packed, as one native call each for encoder and decoder."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from headstart.engine.asr.whisper.modules import DecoderLayer, EncoderLayer, SelfAttention
from headstart.engine.asr.whisper.packed import PackedLinear
from headstart.engine.asr.whisper.settings import WhisperSettings
from headstart.kernels.whisper_layers import (
    HEAD_WIDTH_MOST,
    HEAD_WIDTH_STEP,
    Cross,
    Layer,
    Linear,
    WhisperLayers,
)


def have_native_sizes(settings: WhisperSettings) -> bool:
    """Whether the heads are of a width that the kernel has (all published Whispers' are)."""
    width = settings.head_width
    return width % HEAD_WIDTH_STEP == 0 and width <= HEAD_WIDTH_MOST


def encoder_layers(layers: Sequence[EncoderLayer], heads: int) -> WhisperLayers:
    """Of layers whose matrices are packed already."""
    made = [_layer(layer.attention_norm, layer.attention, layer) for layer in layers]
    return WhisperLayers(made, heads, causal=False)


def decoder_layers(layers: Sequence[DecoderLayer], heads: int) -> WhisperLayers:
    """Of layers whose matrices are packed already."""
    made = [
        _layer(
            layer.self_norm,
            layer.self_attention,
            layer,
            Cross(
                _norm(layer.cross_norm),
                _linear(layer.cross_attention.q),
                _linear(layer.cross_attention.out),
            ),
        )
        for layer in layers
    ]
    return WhisperLayers(made, heads, causal=True)


def _layer(
    self_norm: nn.LayerNorm,
    attention: SelfAttention,
    layer: EncoderLayer | DecoderLayer,
    cross: Cross | None = None,
) -> Layer:
    return Layer(
        self_norm=_norm(self_norm),
        qkv=_linear(attention.qkv),
        out=_linear(attention.out),
        mlp_norm=_norm(layer.mlp_norm),
        up=_linear(layer.mlp.up),
        down=_linear(layer.mlp.down),
        cross=cross,
    )


def _linear(module: nn.Module) -> Linear:
    assert isinstance(module, PackedLinear)
    return Linear(module.weight, module.bias)


def _norm(norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return norm.weight.detach(), norm.bias.detach()
