"""Qwen2.5-Omni's Thinker: audio in windows of 2 s, video in pairs of frames, answers in text."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headstart.engine.asr.mel import MaxPolicy
from headstart.engine.chat.render import Modality
from headstart.engine.kvcache.positions import MediaKind, MediaPosition
from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.checkpoint.tensors import Scope, Tensors, renamed
from headstart.engine.models.checkpoint.text_config import decoder_spec, rope_sections
from headstart.engine.models.decoder.choice import Build, in_torch
from headstart.engine.models.perception.audio_tower import AudioState, AudioTower, AudioTowerSizes
from headstart.engine.models.perception.frames import QwenVision, vision_spec
from headstart.engine.models.perception.interface import (
    AudioOut,
    ModelSpec,
    TailPolicy,
)
from headstart.engine.models.perception.layouts import OmniLayout
from headstart.engine.models.perception.passes import Passes
from headstart.engine.models.perception.tmrope import Delimiters
from headstart.engine.models.perception.vision_tower import (
    Generation,
    VisionTower,
    VisionTowerSizes,
)
from headstart.engine.models.qwen2_vl import Qwen2Vl

FAMILY = "qwen2_5_omni"

# Tensor prefixes of the versions that write checkpoints: released ones (and full saves) put
# "thinker." first, newer ones "model." too. The first match counts.
_LAYOUTS = {
    "model.audio_tower.": "audio.",
    "audio_tower.": "audio.",
    "model.visual.": "vision.",
    "visual.": "vision.",
    "model.language_model.": "decoder.",
    "language_model.": "decoder.",
    "model.": "decoder.",
    "lm_head.": "lm_head.",
}
_NOT_OURS = ("talker.", "token2wav.")


def our_name(stored: str) -> str | None:
    """Our name of a stored tensor; None for parts that are not run."""
    if stored.startswith(_NOT_OURS):
        return None
    return renamed(stored.removeprefix("thinker."), _LAYOUTS)


def thinker(config: Config) -> Config:
    """The Thinker's part of a config.json, of the whole model or the Thinker alone."""
    return config.part("thinker_config") if "thinker_config" in config else config


def audio_sizes(audio: Config) -> AudioTowerSizes:
    """Of a config.json's `audio_config`, with the published defaults."""
    return AudioTowerSizes(
        mels=audio.integer("num_mel_bins", 128),
        width=audio.integer("d_model", 1280),
        layers=audio.integer("encoder_layers", 32),
        heads=audio.integer("encoder_attention_heads", 20),
        ffn=audio.integer("encoder_ffn_dim", 5120),
        half_window=audio.integer("n_window", 100),
        max_positions=audio.integer("max_source_positions", 1500),
        output=audio.integer("output_dim", 3584),
    )


def vision_sizes(vision: Config) -> VisionTowerSizes:
    """Of a config.json's `vision_config`, with the published defaults."""
    return VisionTowerSizes(
        depth=vision.integer("depth", 32),
        width=vision.integer("hidden_size", 1280),
        heads=vision.integer("num_heads", 16),
        ffn=vision.integer("intermediate_size", 3420),
        output=vision.integer("out_hidden_size", 3584),
        patch_px=vision.integer("patch_size", 14),
        merge=vision.integer("spatial_merge_size", 2),
        frames=vision.integer("temporal_patch_size", 2),
        window_px=vision.integer("window_size", 112),
        whole=frozenset(int(i) for i in vision.numbers("fullatt_block_indexes", [7, 15, 23, 31])),
    )


class Qwen25Omni(Qwen2Vl):
    """Qwen2-VL with sound: a `StreamModel` with time of its own in its positions."""

    def __init__(
        self,
        tensors: Tensors,
        config: Config,
        *,
        answer_opening: Sequence[int] = (),
        mel_policy: MaxPolicy = MaxPolicy.RUNNING,
        preprocessor: Config | None = None,
        build: Build = in_torch,
    ) -> None:
        """`config`: the Thinker's. Raises `BadWeights` naming what is missing or misshapen."""
        text = config.part("text_config")
        spec = decoder_spec(text)
        audio, vision = audio_sizes(config.part("audio_config")), config.part("vision_config")
        self.audio_encoder = AudioTower(Scope(tensors, "audio."), audio, mel_policy)
        sizes = vision_sizes(vision)
        tower = VisionTower(Scope(tensors, "vision."), sizes, Generation.QWEN2_5_OMNI)
        seen = vision_spec(sizes, preprocessor)
        self.vision = QwenVision(tower, seen, preprocessor)
        self.decoder = build(tensors, spec, rope_sections(text))
        self.spec = ModelSpec(FAMILY, spec, audio.spec, seen)
        self.delimiters = Delimiters(
            vision_bos=config.integer("vision_start_token_id", 151652),
            vision_eos=config.integer("vision_end_token_id", 151653),
            audio_bos=config.integer("audio_start_token_id", 151647),
            audio_eos=config.integer("audio_end_token_id", 151648),
            answer_opening=tuple(answer_opening),
        )
        self.ids_per_second = config.number("position_id_per_seconds", 25)
        unit_ids = int(self.ids_per_second * config.number("seconds_per_chunk", 2))
        self.layout = OmniLayout(self.delimiters, unit_ids)

    def use_passes(self, passes: Passes) -> None:
        super().use_passes(passes)
        self.audio_encoder.passes = passes
        with torch.inference_mode():
            self.audio_encoder.record()

    def unit_position(self, index: int, time_s: float) -> MediaPosition:
        return MediaPosition(MediaKind.VIDEO, int(time_s * self.ids_per_second))

    def open_audio(self, tail: TailPolicy = TailPolicy.PROVISIONAL) -> AudioState:
        return self.audio_encoder.open(tail)

    def encode_audio(self, chunk: Tensor, state: AudioState, final: bool) -> AudioOut:
        with torch.inference_mode():
            return self.audio_encoder.encode(chunk, state, final)

    def project(self, features: Tensor, modality: Modality) -> Tensor:
        if modality is not Modality.AUDIO:
            return super().project(features, modality)
        with torch.inference_mode():
            return self.audio_encoder.project(features)
