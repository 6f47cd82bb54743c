"""`transformers`' Qwen2.5-Omni, tiny and random, and the same weights in our model."""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headstart.engine.asr.mel import HOP_SAMPLES, LogMel, MaxPolicy, normalise
from headstart.engine.kvcache.positions import MediaKind
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.perception.interface import VideoFrame
from headstart.engine.models.qwen2_5_omni import Qwen25Omni
from tests.engine.models.playing import Sounded
from tests.engine.models.sizes import OMNI_AUDIO, OMNI_VISION, TEXT

transformers: Any = importlib.import_module("transformers")
theirs: Any = importlib.import_module("transformers.models.qwen2_5_omni.modeling_qwen2_5_omni")

AUDIO, IMAGE, VIDEO = 190, 191, 192
AUDIO_BOS, AUDIO_EOS, VISION_BOS, VISION_EOS = 193, 194, 196, 197
IDS_PER_SECOND = 25
UNIT_IDS = 50


def tiny_config() -> Any:
    config = transformers.Qwen2_5OmniThinkerConfig(
        audio_config={**OMNI_AUDIO},
        vision_config={**OMNI_VISION},
        text_config={
            **TEXT,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e6,
                "mrope_section": [2, 3, 3],
            },
            "tie_word_embeddings": False,
        },
        audio_token_index=AUDIO,
        image_token_index=IMAGE,
        video_token_index=VIDEO,
        position_id_per_seconds=IDS_PER_SECOND,
        seconds_per_chunk=2,
        audio_start_token_id=AUDIO_BOS,
        audio_end_token_id=AUDIO_EOS,
        user_token_id=195,
        vision_start_token_id=VISION_BOS,
        vision_end_token_id=VISION_EOS,
    )
    config._attn_implementation = "sdpa"
    return config


def tiny_twin(dtype: torch.dtype = torch.float32, seed: int = 0, config: Any = None) -> Any:
    """Random weights, large enough that a mistake shows in the logits."""
    torch.manual_seed(seed)
    model = transformers.Qwen2_5OmniThinkerForConditionalGeneration(config or tiny_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0) if parameter.dim() > 1 else parameter.add_(
                torch.randn_like(parameter), alpha=0.1
            )
    return model.to(dtype)


def write_directory(model: Any, folder: Path, prefix: str = "", shards: int = 1) -> Path:
    """`model` as a directory, in the layout of today (`prefix` empty) or of the released
    checkpoints ("thinker.")."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = {_stored(name, prefix): t.contiguous() for name, t in model.state_dict().items()}
    config = model.config.to_dict()
    if prefix:
        config = {"model_type": "qwen2_5_omni", "thinker_config": config}
        state["talker.model.norm.weight"] = torch.ones(3)
    (folder / "config.json").write_text(json.dumps(config))
    budget = {"min_pixels": 28 * 28, "max_pixels": 64 * 28 * 28}
    (folder / "preprocessor_config.json").write_text(json.dumps(budget))
    if shards == 1:
        save_file(state, folder / "model.safetensors")
        return folder
    names, weight_map = sorted(state), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: state[name] for name in names[shard::shards]}
        save_file(part, folder / file)
        weight_map.update(dict.fromkeys(part, file))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def _stored(name: str, prefix: str) -> str:
    if not prefix:
        return name
    old = name.replace("model.language_model.", "model.")
    for tower in ("audio_tower.", "visual."):
        old = old.replace(f"model.{tower}", tower)
    return prefix + old


@contextlib.contextmanager
def in_double() -> Iterator[None]:
    """`transformers` computes norms and angles in fp32 even in an fp64 model, and nothing tighter
    than 1e-7 could be said beside it. Inside, those run in fp64."""
    norm, text = theirs.Qwen2_5OmniRMSNorm, theirs.Qwen2_5OmniRotaryEmbedding
    vision, turn = theirs.Qwen2_5OmniVisionRotaryEmbedding, theirs.apply_rotary_pos_emb_vision
    before = norm.forward, text.forward, vision.forward

    def norm_forward(self: Any, x: Tensor) -> Tensor:
        mean = x.pow(2).mean(-1, keepdim=True)
        scaled: Tensor = self.weight * (x * torch.rsqrt(mean + self.variance_epsilon))
        return scaled

    def rates(self: Any, dim: int) -> Tensor:
        base = float(self.config.rope_parameters["rope_theta"])
        return 1.0 / base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)

    def text_forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        dim = self.config.hidden_size // self.config.num_attention_heads
        freqs = position_ids.expand(3, -1, -1)[..., None].double() * rates(self, dim)
        return tuple(self.recomposition_frequencies(f) for f in (freqs.cos(), freqs.sin()))

    def vision_forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        dim = self.config.hidden_size // self.config.num_heads // 2
        freqs = position_ids[..., None].double() * rates(self, dim)
        return tuple(self.recomposition_frequencies(f) for f in (freqs.cos(), freqs.sin()))

    def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
        return tuple(x * cos + theirs.rotate_half(x) * sin for x in (q, k))

    norm.forward, text.forward, vision.forward = norm_forward, text_forward, vision_forward
    theirs.apply_rotary_pos_emb_vision = turned
    try:
        yield
    finally:
        norm.forward, text.forward, vision.forward = before
        theirs.apply_rotary_pos_emb_vision = turn


def offline_mel(pcm: Tensor, mels: int = 16) -> Tensor:
    """Features [mels, T] of the whole sound under the running maximum, made in one go."""
    mel = LogMel(mels, torch.float64)
    state = mel.open()
    mel.push(state, pcm)
    raw = torch.cat((state.frames, mel.tail(state)))
    return normalise(raw[: -(-len(pcm) // HOP_SAMPLES)], MaxPolicy.RUNNING).T


def offline(model: Any, ours: Qwen25Omni, stream: Stream, clips: Sequence[Sounded]) -> Tensor:
    """Logits [tokens, vocab] of one forward over all that `stream` reads, positions by
    `transformers`' own rule."""
    named = model.config
    stand_in = {
        MediaKind.AUDIO: named.audio_token_id,
        MediaKind.IMAGE: named.image_token_id,
        MediaKind.VIDEO: named.video_token_id,
    }
    places = [stream.soft.media_position(token) for token in stream.tokens]
    ids = [
        t if place is None else stand_in[place.kind]
        for t, place in zip(stream.tokens, places, strict=True)
    ]
    dtype = next(model.parameters()).dtype
    inputs: dict[str, Any] = {"input_ids": torch.tensor([ids])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    mels = [offline_mel(clip.pcm) for clip in clips if clip.pcm is not None]
    if mels:
        longest = max(mel.shape[1] for mel in mels)
        padded = [torch.nn.functional.pad(mel, (0, longest - mel.shape[1])) for mel in mels]
        inputs["input_features"] = torch.stack(padded).to(dtype)
        inputs["feature_attention_mask"] = torch.tensor(
            [[1] * mel.shape[1] + [0] * (longest - mel.shape[1]) for mel in mels]
        )
    videos = [_video(ours, clip.frames) for clip in clips if clip.frames]
    if videos:
        inputs["pixel_values_videos"] = torch.cat([values for values, _ in videos]).to(dtype)
        inputs["video_grid_thw"] = torch.tensor([grid for _, grid in videos])
        inputs["video_second_per_grid"] = torch.tensor(
            [clip.seconds_per_unit for clip in clips if clip.frames]
        )
        inputs["use_audio_in_video"] = bool(mels)
    with torch.inference_mode():
        logits: Tensor = model(**inputs).logits[0]
    return logits


def _video(ours: Qwen25Omni, frames: Sequence[VideoFrame]) -> tuple[Tensor, list[int]]:
    whole = list(frames) + list(frames[-1:]) * (len(frames) % 2)
    units = [ours.vision.patches(whole[i : i + 2]) for i in range(0, len(whole), 2)]
    _, rows, columns = units[0]
    grid = [len(units), 2 * rows, 2 * columns]
    return torch.cat([values for values, _, _ in units]), grid
