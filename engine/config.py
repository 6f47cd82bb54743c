"""The engine's settings: one frozen dataclass, validated on construction."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from headstart.engine.api import MAX_FRAME_TOKENS, MIN_FRAME_TOKENS
from headstart.engine.api.host import usable_cores
from headstart.engine.errors import BadSettings

MIB = 1 << 20
LONGEST_CHUNK_MS = 2000
HEARD_TOGETHER_ON_CPU = 4
HEARD_TOGETHER_ON_GPU = 8
MIN_TEXT_KEPT = 0.3
KV_DTYPES = ("fp32", "fp16", "int8", "fp8")
MOST_POOLED_FRAMES = 16
_DEVICE = re.compile(r"auto|cpu|cuda(:\d{1,2})?")

# What a setting may be, by its name.
_COUNTS = (
    "kv_pool_bytes",
    "block_size",
    "max_context_tokens",
    "token_budget",
    "ears_sessions",
    "encoder_budget_tokens",
    "encoded_together",
    "threads",
)
_AT_LEAST_0 = (
    "heard_together",
    "encoder_cache_bytes",
    "encoder_cache_ttl_s",
    "offload_bytes",
    "packed_cache_bytes",
    "idle_after_s",
    "turn_tokens",
    "step_target_ms",
    "encoder_target_ms",
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "chunk_ms": (20, LONGEST_CHUNK_MS),
    "prefix_cache_share": (0, 1),
    "kv_text_kept": (MIN_TEXT_KEPT, 1),
    "frame_tokens": (MIN_FRAME_TOKENS, MAX_FRAME_TOKENS),
    "pooled_frames": (1, MOST_POOLED_FRAMES),
}
CHOICES: Mapping[str, Sequence[str]] = {
    "kv_dtype": KV_DTYPES,
    "kv_vision_dtype": ("same", "int8", "fp8"),
    "weights": ("auto", "bf16", "fp32", "int8", "dummy"),
    "tail": ("auto", "closed", "provisional"),
    "still_detail": ("full", "asked", "regions"),
    "frame_pooling": ("auto", "off", "mean", "merge", "learned"),
    "reading": ("auto", "off"),
    "encoder_weights": ("auto", "int8"),
    "recognition": ("auto", "beside", "within"),
    "encoders": ("beside", "within"),
    "transcribe": ("auto", "on", "off"),
    "backend": ("auto", "native", "reference", "device"),
}
LLM_CHOICES: Mapping[str, Sequence[str]] = {"senses": ("auto", "words", "native")}


def is_directory(model: str) -> bool:
    """Whether `model` is a directory, existing or not, rather than a packaged model's name."""
    return os.sep in model or Path(model, "config.json").is_file()


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine process. Raises `BadSettings` for a value out of range.

    Attributes:
        model: name of a packaged model ("small", "tiny").
        ears_language: the users' language, a code such as "en", or "auto".
        ears_sessions, chunk_ms: for ears "auto", the number of simultaneous speakers that they must
            keep up with, and the duration of an audio chunk.
        ears_device: where a Whisper runs: "cpu", "cuda" or "cuda:N", or "auto": on the GPU that
            decodes, if one does (`engine.device.choice`).
        adapter: a LoRA for a packaged model's decoder, as a folder that PEFT wrote; "auto": the
            model's own, if it has one; "off": none.
        kv_pool_bytes: memory reserved for K and V of all sessions; pages are touched on first use.
        block_size: tokens in one block of the paged cache.
        max_context_tokens: limit of one session; the model's own limit applies too.
        token_budget: tokens the decoder takes per step; a step's length bounds how long a
            decoding session waits for another one's prefill.
        heard_together: sessions whose audio shares one recogniser pass, at most. 0: on a CPU a
            quarter of those that wait, up to `HEARD_TOGETHER_ON_CPU`; on a GPU all that wait, up to
            `HEARD_TOGETHER_ON_GPU`.
        recognition: where the recogniser runs: "beside" the engine's steps, in a thread of its own,
            so that it and the decoder share the cores, "within" them, one after the other, or
            "auto": beside if a GPU decodes or recognises, which leaves the cores to the other.
        step_target_ms: duration to keep steps within 20 % of, by taking fewer tokens than
            `token_budget`; 0: always the whole budget.
        encoders: where a model directory encodes pictures: "beside" the engine's steps, in a thread
            of its own, so that other sessions go on, or "within" them.
        encoder_weights: form of a model directory's encoders: "auto" (as `weights`, but never int8)
            or "int8", on the native kernels, calibrated when they are loaded.
        encoder_budget_tokens, encoded_together: tokens and pictures of one batch of an encoder
            beside; pictures of a batch have one size. The budget bounds its memory. On a CPU a
            batch takes the sum of its parts' times.
        encoder_target_ms: duration to keep such batches within 20 % of, by taking fewer pictures
            than `encoded_together`; 0: always so many, if they are there.
        encoder_url, encoder_keys: address of an encoder process that encodes a model directory's
            pictures, and this host's folder of keys for it; None: this process does.
        encoder_limit_s: time that it may take for a picture.
        threads: cores the native kernels and torch may use.
        prefix_cache_share: maximum share of the pool that keeps K/V without a holder, for later
            sessions with the same prefix.
        prefix_sharing: whether sessions share K/V of equal prefixes at all. Response times can
            reveal the prefixes of other sessions.
        offload_bytes: host memory for K/V of idle sessions when the pool is nearly full; 0: none.
        idle_after_s: seconds without work before a session counts as idle.
        turn_tokens: tokens of one turn, for which a new session must have room.
        encoder_cache_bytes, encoder_cache_ttl_s: size of the image encoder's output cache, and the
            time an entry is kept after its last use.
        kv_dtype: storage of K and V: "fp32", "fp16", or one byte per number with a scale per head,
            "int8" or "fp8" (docs/kv.md).
        kv_vision_dtype: storage of pictures' K and V in a model directory, where text's is fp32:
            "int8" or "fp8"; "same": as `kv_dtype` (docs/kv.md).
        kv_text_kept: share of the words of each message of past turns whose K/V stay; those with
            the least attention are evicted (docs/kv.md). Pictures stay. 1: all.
        backend: "native" (packed weights, C kernels), "reference" (dequantised fp32 in torch:
            exact, large, slow), "auto" (native where there is a C compiler), or "device" (what
            runs on GPUs, on the CPU in plain torch: for tests).
        device: what decodes: "cpu", "cuda" or "cuda:N", or "auto" (`engine.device.choice`).
        packed_cache_bytes: size of the folder of packed weights, which packaged models' decoders
            are mapped from at later starts; 0: pack anew at each start (docs/performance.md).
        weights: form of a model directory's weights: "bf16" (as published), "fp32", "int8" for its
            decoder (on the native kernels), or "auto" (int8 where those run, else bf16); "dummy":
            random weights.
        size: with dummy weights, a published size in place of a directory.
        transcribe: whether a Whisper transcribes beside a model directory's own audio encoder:
            "on", "off", or "auto" (if one is fetched). A model without one always needs it.
        reading: whether a packaged model reads what is written in pictures, in a thread beside the
            engine's: "auto" (if its weights are there) or "off".
        still_detail: resolution of a picture in a message to a model directory: "full", as large as
            the model takes it, "asked", 64, 256 or 1,024 tokens by the question, or "regions": a
            small overview, and the regions that a question is about (docs/picture-tokens.md).
        frame_pooling: how a model directory's frames become fewer tokens (docs/picture-tokens.md):
            "mean" of cells, "merge" of similar tokens, "learned" by the pooler in the directory;
            "auto": merged where the gateway asks for fewer (`api.Image.max_tokens`); "off": never.
        frame_tokens: tokens that "mean" and "merge" make of a frame, or of a group of frames.
        pooled_frames: vision units (of one or two frames, by family) that become one group.
        tail: how much of an open audio unit is prefilled: "closed" (nothing), "provisional", or
            "auto" (the model's default).
    """

    model: str = "small"
    ears_language: str = "en"
    ears_sessions: int = 2
    chunk_ms: int = 500
    ears_device: str = "auto"
    adapter: str = "auto"
    kv_pool_bytes: int = 512 * MIB
    block_size: int = 16
    max_context_tokens: int = 8192
    token_budget: int = 64
    step_target_ms: float = 0.0
    encoders: str = "within"
    encoder_weights: str = "auto"
    encoder_budget_tokens: int = 4096
    encoded_together: int = 1
    encoder_target_ms: float = 0.0
    encoder_url: str | None = None
    encoder_keys: Path | None = None
    encoder_limit_s: float = 60.0
    heard_together: int = 0
    recognition: str = "auto"
    threads: int = field(default_factory=usable_cores)
    prefix_cache_share: float = 0.25
    prefix_sharing: bool = True
    offload_bytes: int = 256 * MIB
    idle_after_s: float = 5.0
    turn_tokens: int = 256
    encoder_cache_bytes: int = 8 * MIB
    encoder_cache_ttl_s: float = 1800.0
    kv_dtype: str = "fp32"
    kv_vision_dtype: str = "same"
    kv_text_kept: float = 1.0
    backend: str = "auto"
    packed_cache_bytes: int = 2048 * MIB
    device: str = "auto"
    weights: str = "auto"
    size: str | None = None
    still_detail: str = "full"
    frame_pooling: str = "auto"
    frame_tokens: int = 64
    pooled_frames: int = 1
    tail: str = "auto"
    transcribe: str = "auto"
    reading: str = "auto"

    @property
    def is_packaged(self) -> bool:
        """Whether the model is a packaged one: not a directory, and not random weights."""
        return self.size is None and self.weights != "dummy" and not is_directory(self.model)

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise BadSettings(name, "at least 1", getattr(self, name))
        for name in _AT_LEAST_0:
            if not 0 <= getattr(self, name) < math.inf:  # NaN is out of any range
                raise BadSettings(name, "at least 0, and finite", getattr(self, name))
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                raise BadSettings(name, f"{least} to {most}", getattr(self, name))
        for name, values in CHOICES.items():
            if getattr(self, name) not in values:
                raise BadSettings(name, f"one of {', '.join(values)}", getattr(self, name))
        if not 0 < self.encoder_limit_s < math.inf:
            raise BadSettings("encoder_limit_s", "above 0, and finite", self.encoder_limit_s)
        for name in ("device", "ears_device"):
            if _DEVICE.fullmatch(getattr(self, name)) is None:
                raise BadSettings(name, "auto, cpu, cuda or cuda:N", getattr(self, name))
        self._check_combinations()

    def _check_combinations(self) -> None:
        """Refuse settings that are valid alone, but not beside another one."""
        if self.kv_vision_dtype != "same" and self.kv_dtype != "fp32":
            expected = (
                f"'same' with kv_dtype {self.kv_dtype!r}: text is fp32 beside narrow pictures"
            )
            raise BadSettings("kv_vision_dtype", expected, self.kv_vision_dtype)
        if self.size is not None and self.weights != "dummy":
            raise BadSettings("size", "given with weights 'dummy' only", self.size)
        if self.pooled_frames > 1 and self.frame_pooling in ("auto", "off"):
            expected = f"1 with frame_pooling {self.frame_pooling!r}"
            raise BadSettings("pooled_frames", expected, self.pooled_frames)


PROCESS_DEFAULTS: Mapping[str, Any] = {"kv_pool_bytes": 256 * MIB, "encoders": "beside"}
"""What an engine process has otherwise than an engine that is made within a test or a benchmark."""


@dataclass(frozen=True, slots=True)
class LlmServerConfig:
    """LLM servers that decode in place of a model of ours.

    Attributes:
        urls: at least one; http or https, with or without /v1. Several serve the same model.
        model: one of those they serve; None: their only one.
        key_env: environment variable with their key; None: they need none.
        tokenizer: folder of its model's tokenizer.json and chat template, or a GGUF file; None: it
            gets chat messages.
        window_tokens: context that sessions will ask for; 0: what there is.
        sessions: the most at each server; 0: no limit.
        senses: whether pictures and sounds go to its model: "words" (never), "native" (always), or
            "auto" (if it takes them).
    """

    urls: tuple[str, ...]
    model: str | None = None
    key_env: str | None = None
    tokenizer: str | None = None
    window_tokens: int = 0
    sessions: int = 0
    senses: Literal["auto", "words", "native"] = "auto"

    def key(self) -> str | None:
        """The key. Raises `BadSettings` if its variable is not set."""
        if self.key_env is None:
            return None
        key = os.environ.get(self.key_env, "").strip()
        if not key:
            raise BadSettings("llm_key_env", "the name of a variable that is set", self.key_env)
        return key


def process_default(setting: str, of: type[EngineConfig | LlmServerConfig] = EngineConfig) -> Any:
    """The default of a setting in an engine process: its command line has no other. `setting` is
    one whose default is a value."""
    if of is EngineConfig and setting in PROCESS_DEFAULTS:
        return PROCESS_DEFAULTS[setting]
    (default,) = (each.default for each in fields(of) if each.name == setting)
    assert default is not MISSING, f"{setting} has no default that could be told"
    return default
