"""An audio encoder in front of any model: block-causal Whisper, stacked frames, and a projector, as
in Ultravox.

The parts are named by a directory of its own:

    config.json          {"model_type": "headstart_composite", "audio_model": DIR, "model": DIR,
                          "stack_factor": 8, "audio_latency_block_size": 50}
    model.safetensors    projector.{ln_pre,linear_1,linear_2}.weight, and optionally
                         projector.ln_mid.weight or projector.ln_post.weight

Relative directories count from it. There are no delimiters around sound, as in Ultravox.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.chat.render import Modality
from headstart.engine.decoder.layers import Linear, RmsNorm
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Tensors
from headstart.engine.models.perception.block_whisper import (
    BlockState,
    BlockWhisper,
    BlockWhisperSizes,
)
from headstart.engine.models.perception.interface import (
    AudioOut,
    ModelSpec,
    StreamModel,
    TailPolicy,
)
from headstart.engine.models.perception.layouts import InlineLayout
from headstart.engine.models.perception.wrapper import ModelWrapper

FAMILY = "headstart_composite"
EPS = 1e-6
_WHISPER_ENCODERS = ("model.encoder.", "encoder.")


def whisper_name(stored: str) -> str | None:
    """Our name of a Whisper checkpoint's encoder tensor; None for other tensors."""
    for prefix in _WHISPER_ENCODERS:
        if stored.startswith(prefix):
            return stored.removeprefix(prefix)
    return None


def projector_name(stored: str) -> str | None:
    """Our name of a projector tensor, stored under its own or Ultravox's name; None for others."""
    name = stored.removeprefix("multi_modal_projector.").removeprefix("projector.")
    return name if name != stored else None


def whisper_sizes(config: Config, block: int, stack: int) -> BlockWhisperSizes:
    """Of a Whisper's config.json, with the published defaults; `block`: frames that attend
    to one another; `stack`: frames that become one token."""
    return BlockWhisperSizes(
        mels=config.integer("num_mel_bins", 80),
        width=config.integer("d_model"),
        layers=config.integer("encoder_layers"),
        heads=config.integer("encoder_attention_heads"),
        ffn=config.integer("encoder_ffn_dim"),
        max_positions=config.integer("max_source_positions", 1500),
        block=block,
        stack=stack,
    )


class Projector:
    """Norm, linear, SwiGLU, linear, with an optional norm between or behind them."""

    def __init__(self, tensors: Tensors, stacked: int, inner: int, hidden: int) -> None:
        """`stacked`: width of a stack of frames. Raises `BadWeights`."""
        self._pre = RmsNorm(tensors.take("ln_pre.weight", stacked), EPS)
        self._up = Linear(tensors.take("linear_1.weight", inner, stacked))
        self._down = Linear(tensors.take("linear_2.weight", hidden, inner // 2))
        self._mid = _norm_if_any(tensors, "ln_mid.weight", inner // 2)
        self._post = _norm_if_any(tensors, "ln_post.weight", hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, stacked] -> [tokens, hidden]."""
        value, gate = self._up(self._pre(x)).chunk(2, dim=-1)
        x = F.silu(gate) * value
        x = self._down(x if self._mid is None else self._mid(x))
        return x if self._post is None else self._post(x)


def _norm_if_any(tensors: Tensors, name: str, width: int) -> RmsNorm | None:
    return RmsNorm(tensors.take(name, width), EPS) if tensors.has(name) else None


class Composite(ModelWrapper):
    """`base` with an audio encoder in front (`engine.models.perception.interface.StreamModel`)."""

    def __init__(
        self, audio_encoder: BlockWhisper, projector: Projector, base: StreamModel
    ) -> None:
        super().__init__(base)
        self.audio_encoder, self._projector = audio_encoder, projector
        spec = base.spec
        self.spec = ModelSpec(FAMILY, spec.decoder, audio_encoder.sizes.spec, spec.vision)
        unit = audio_encoder.sizes.spec
        self._layout = InlineLayout(base.layout, unit.unit_tokens, unit.unit_ms / 1000)

    @property
    def layout(self) -> InlineLayout:
        return self._layout

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return MediaPosition(MediaKind.IMAGE)  # frames between sounds are independent pictures

    def open_audio(self, tail: TailPolicy) -> BlockState:
        return self.audio_encoder.open(tail)

    def encode_audio(self, chunk: Tensor, state: BlockState, final: bool) -> AudioOut:
        with torch.inference_mode():
            return self.audio_encoder.encode(chunk, state, final)

    def clip_closing(self) -> Tensor:
        return torch.empty((0, self.spec.decoder.hidden))

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        if modality is not Modality.AUDIO:
            return self.base.project(features, modality)
        with torch.inference_mode():
            return self._projector(features)
