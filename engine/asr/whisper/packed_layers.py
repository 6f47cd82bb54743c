"""Our modules' layers, their matrices packed, as one native call each for encoder and decoder."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from headstart.engine.asr.whisper.modules import DecoderLayer, EncoderLayer
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
    made = [
        Layer(
            self_norm=_norm(layer.attention_norm),
            qkv=_linear(layer.attention.qkv),
            out=_linear(layer.attention.out),
            mlp_norm=_norm(layer.mlp_norm),
            up=_linear(layer.mlp.up),
            down=_linear(layer.mlp.down),
        )
        for layer in layers
    ]
    return WhisperLayers(made, heads, causal=False)


def decoder_layers(layers: Sequence[DecoderLayer], heads: int) -> WhisperLayers:
    """Of layers whose matrices are packed already."""
    made = [
        Layer(
            self_norm=_norm(layer.self_norm),
            qkv=_linear(layer.self_attention.qkv),
            out=_linear(layer.self_attention.out),
            mlp_norm=_norm(layer.mlp_norm),
            up=_linear(layer.mlp.up),
            down=_linear(layer.mlp.down),
            cross=Cross(
                _norm(layer.cross_norm),
                _linear(layer.cross_attention.q),
                _linear(layer.cross_attention.out),
            ),
        )
        for layer in layers
    ]
    return WhisperLayers(made, heads, causal=True)


def _linear(module: nn.Module) -> Linear:
    assert isinstance(module, PackedLinear)
    return Linear(module.weight, module.bias)


def _norm(norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return norm.weight.detach(), norm.bias.detach()
