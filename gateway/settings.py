"""The settings of one gateway process: each with its unit, its bounds and its default.

`headstart.gateway.config` loads them from their sources; `headstart settings` prints them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from headstart.gateway.default_prompts import INSTRUCTIONS

ENV_PREFIX = "HEADSTART_"
_URL = r"https?://[^\s/?#@]+(/[^\s?#]*)?"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Settings that are valid one by one, but not together."""

    names: tuple[str, ...]
    sentence: str


class Contradictions(ValueError):
    """All that `Settings` found."""

    def __init__(self, found: Sequence[Contradiction]) -> None:
        self.found = found
        super().__init__("; ".join(each.sentence for each in found))


class Settings(BaseSettings):
    """All settings of one gateway process. Made by `load`; frozen."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="TCP port to listen on; 0: any free one")
    model: str = Field("small", min_length=1, description="name of a model, or its directory")
    ears: str | None = Field(
        None,
        min_length=1,
        description="Whisper for recognition: folder, or weights by name; 'auto': the largest "
        "fetched one that this machine can run in real time; none: the model's own",
    )
    ears_sessions: int = Field(
        2, ge=1, le=64, description="concurrent speakers that ears 'auto' must keep up with"
    )
    ears_language: str = Field(
        "en",
        pattern=r"^([a-z]{2,3}|auto)$",
        examples=["en", "auto"],
        description="spoken language: a code such as 'en', or 'auto'; for multilingual ears",
    )
    adapter: str = Field(
        "auto",
        min_length=1,
        description="a LoRA for a packaged model, the folder that PEFT saved; 'auto': the model's "
        "own, if it has one; 'off': none",
    )
    weights: Literal["auto", "bf16", "fp32", "int8", "dummy"] = Field(
        "auto",
        description="storage of a model directory's weights; 'auto': int8 where the native "
        "kernels run, else bf16; 'dummy': random ones. HEADSTART_WEIGHTS_FOLDER is another "
        "variable: the folder of files that are not to be fetched",
    )
    size: Literal["3b", "7b", "qwen2-vl-7b"] | None = Field(
        None, description="with dummy weights, the model size in place of a directory"
    )
    tail: Literal["auto", "closed", "provisional"] = Field(
        "auto",
        description="what a model directory reads of an unfinished audio unit",
    )
    transcribe: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether a Whisper transcribes beside a model directory; 'auto': if one is "
        "fetched; ears name another than whisper-tiny.en",
    )
    reading: Literal["auto", "off"] = Field(
        "auto",
        description="whether a packaged model reads what is written in pictures; 'auto': if its "
        "weights can be had",
    )
    still_detail: Literal["full", "asked", "regions"] = Field(
        "full",
        description="resolution of pictures in messages to a model directory; 'full': all that the "
        "model takes; 'asked': 64, 256 or 1,024 tokens, by the question; 'regions': a small "
        "overview, and the regions that a question is about",
    )
    encoder: Literal["thread", "process"] = Field(
        "thread",
        description="where a model directory's pictures are encoded: in a thread of each engine, "
        "or in one process for all engines",
    )
    encoder_url: str | None = Field(
        None,
        pattern=r"^(ipc|tcp)://.+",
        examples=["tcp://10.0.0.2:7700"],
        description="address of an encoder process that runs already; none: here",
    )
    frame_pooling: Literal["auto", "off", "mean", "merge", "learned"] = Field(
        "auto",
        description="how the camera frames of a model directory become fewer tokens: the mean of "
        "cells, similar tokens merged, or its learned pooler; 'auto': merged when load demands it",
    )
    frame_tokens: int = Field(
        64, ge=16, le=4096, description="tokens that frame_pooling makes of a frame or a group"
    )
    pooled_frames: int = Field(
        1,
        ge=1,
        le=16,
        description="vision units (one or two frames, by model) that frame_pooling makes one "
        "group of",
    )
    engine: Literal["local", "fake", "vllm"] = Field(
        "local",
        description="which engine to use; 'fake' plays a script; 'vllm' is not available: see llm",
    )
    llm: str | None = Field(
        None,
        pattern=rf"^{_URL}( {_URL})*$",
        examples=["http://127.0.0.1:8000"],
        description="URL of an LLM server that decodes in place of the model; speech recognition "
        "and image labels stay here (docs/backends.md); several with spaces between them, which "
        "serve the same model; none: the model's own decoder",
    )
    llm_sessions: int = Field(
        0, ge=0, le=1_000_000, description="most sessions at each LLM server; 0: no limit"
    )
    llm_model: str | None = Field(
        None, min_length=1, description="which model of the LLM server; none: its only one"
    )
    llm_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        examples=["LLM_KEY"],
        description="environment variable with the LLM server's key; none: it needs none",
    )
    tokenizer: str | None = Field(
        None,
        min_length=1,
        description="tokenizer and chat template of the LLM server's model: a folder with "
        "tokenizer.json, or a GGUF file; none: the server gets chat messages",
    )
    senses: Literal["auto", "words", "native"] = Field(
        "auto",
        description="whether pictures and sounds go to the LLM server's model; 'words': it reads "
        "what ears and eyes here make of them; 'auto': native if it takes them",
    )
    engine_args: str = Field("", description="additional arguments of the engine process")
    engines: int = Field(
        1,
        ge=0,
        le=64,
        description="engine processes to start, each with its share of the cores; 0: none, they "
        "connect at engine_endpoint",
    )
    pin_engines: bool = Field(
        True, description="whether several engines are each tied to their share of the cores"
    )
    engine_endpoint: str | None = Field(
        None,
        pattern=r"^(ipc|tcp)://.+",
        examples=["tcp://0.0.0.0:7700"],
        description="ZeroMQ address at which engines of other processes and hosts connect; none: "
        "no others (docs/many-engines.md)",
    )
    engine_keys: Path | None = Field(
        None,
        description="this host's folder of CURVE keys for engine_endpoint, made by `headstart "
        "keys`; needed beyond this machine",
    )
    engine_name: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$",
        examples=["engine-1"],
        description="name of this host's engine among those of its gateway; none: its key's name, "
        "or the host's",
    )
    gateway_name: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$",
        examples=["gateway-1"],
        description="this gateway's name among several behind a load balancer: part of its resume "
        "tokens, calls and client secrets (docs/many-gateways.md)",
    )
    instructions: str = Field(
        INSTRUCTIONS, max_length=100_000, description="system prompt of new sessions"
    )

    chunk_ms: Literal[200, 500, 1000] = Field(
        500, description="audio the engine processes at once, ms"
    )
    hush_ms: int = Field(200, ge=20, le=5000, description="silence that starts speculation, ms")
    silence_ms: int = Field(500, ge=40, le=10_000, description="silence that ends a turn, ms")
    pre_roll_ms: int = Field(
        300, ge=0, le=2000, description="audio kept from before speech was detected, ms"
    )
    vad_threshold: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        allow_inf_nan=False,
        description="how clear speech must be: quarters of it select WebRTC's aggressiveness 0 "
        "to 3, and the level needed rises from -65 to -45 dBFS",
    )
    interruption: Literal["words", "speech"] = Field(
        "words",
        description="what interrupts an answer: any speech, or words other than backchannels",
    )
    false_interruption_ms: int = Field(
        2000, ge=0, le=60_000, description="how long an answer's audio pauses for such words, ms"
    )
    endpointing: Literal["fixed", "adaptive", "semantic", "eager"] = Field(
        "fixed",
        description="how server_vad ends a turn; semantic_vad is 'eager' at eagerness auto and "
        "high, else 'semantic'",
    )
    revocable_ms: int = Field(
        1500,
        ge=0,
        le=10_000,
        description="how long after an 'eager' end speech that goes on takes the answer back, ms; "
        "0: never, and 'eager' is 'semantic'",
    )
    legacy_metrics: bool = Field(
        False, description="whether /metrics shows the old names in ms too, for one release"
    )
    latency_budget_ms: int = Field(
        800, ge=1, le=60_000, description="allowed time from last speech sample to first token, ms"
    )
    max_output_tokens: int = Field(256, ge=1, le=4096, description="longest answer, tokens")
    max_sentences: int = Field(
        3,
        ge=0,
        le=1000,
        description="sentences after which an answer ends while the instructions are our own; "
        "0: no limit",
    )
    temperature: float = Field(
        0.0, ge=0.0, le=2.0, allow_inf_nan=False, description="sampling temperature; 0: greedy"
    )

    voice: Literal["auto", "joe", "espeak", "none"] = Field(
        "auto", description="TTS voice of answers; 'auto': joe, or espeak where joe is missing"
    )
    video_sampler: Literal["motion", "scene", "flow", "sharp", "load", "uniform", "all"] = Field(
        "motion",
        description="which camera frames are kept: changed ones (motion), each scene's first "
        "(scene), after some movement (flow), sharp ones (sharp), at a rate that follows the load "
        "(load), at a steady rate (uniform), all; what was called scene before is motion",
    )
    video_scale: float = Field(
        1.0,
        ge=0.05,
        le=1,
        allow_inf_nan=False,
        description="sides of a camera frame, as a share of what the model can use and "
        "video_max_pixels allows; its shape is kept",
    )
    video_fps: float = Field(
        1.0,
        ge=0.05,
        le=30,
        allow_inf_nan=False,
        description="camera frames kept per second, at most",
    )
    video_motion: float = Field(
        0.02,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="change of luma (0 to 1) that counts; for the sampler motion",
    )
    video_scene: float = Field(
        27.0,
        ge=0,
        le=255,
        allow_inf_nan=False,
        description="change of hue, saturation and value (0 to 255) that begins a scene; for scene",
    )
    video_flow: float = Field(
        0.1,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="movement after which a frame is kept, in widths of the frame; for flow",
    )
    video_max_gap_ms: float = Field(
        10_000, ge=0, le=3_600_000, description="a frame is kept at least this often; 0: never so"
    )
    video_min_frames: int = Field(
        0,
        ge=0,
        le=100,
        description="first camera frames of a turn that are kept however close they are; for "
        "uniform and load, fewer under load",
    )
    video_max_frames: int = Field(
        16,
        ge=0,
        le=10_000,
        description="camera frames kept per turn, and as many between two, at most; 0: no limit",
    )
    image_max_pixels: int = Field(
        1_048_576,
        ge=65_536,
        le=16_777_216,
        description="maximum pixels of an image in an item; models that can use fewer get fewer, "
        "and more than four images at once share the pixels of four",
    )
    video_max_pixels: int = Field(
        196_608,
        ge=65_536,
        le=2_073_600,
        description="maximum pixels of a camera frame; models that can use fewer get fewer",
    )
    window_tokens: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="tokens kept before the oldest turns are dropped; 0: the model's context",
    )
    window_vision_tokens: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="of these, tokens of images; 0: a quarter",
    )
    window_summarise: bool = Field(
        False, description="have the model summarise in a few sentences what is about to be dropped"
    )

    max_sessions: int = Field(
        64, ge=1, le=100_000, description="concurrent sessions; more get a 503"
    )
    max_sessions_per_key: int = Field(
        0,
        ge=0,
        le=100_000,
        description="concurrent sessions per key; more get a 429; 0: no limit",
    )
    max_session_minutes: int = Field(1440, ge=1, le=525_600, description="longest session, minutes")
    idle_s: float = Field(
        1800.0,
        ge=0,
        le=10_000_000,
        allow_inf_nan=False,
        description="session timeout without audio or events from the client, s; 0: never",
    )
    api_keys: str = Field(
        "",
        repr=False,
        description="keys that clients must use, separated by commas; none: no key needed",
    )
    api_keys_file: Path | None = Field(None, description="file of such keys, one per line")
    share_between_keys: bool = Field(
        False,
        description="sessions of different keys share what was computed for equal prompts and "
        "images, which reveals that another session used them",
    )
    allowed_origins: str = Field(
        "",
        pattern=r"^((\*|https?://[^\s/]+/?)(\s+|$))*$",
        examples=["https://example.org", "*"],
        description="other sites whose pages may use this server, separated by spaces; *: all",
    )
    allowed_hosts: str = Field(
        "",
        description="host names to answer to, separated by spaces; none: all, or this machine's "
        "own while it listens only locally and needs no key",
    )
    tls_cert: Path | None = Field(None, description="certificate chain, PEM; with it: https, wss")
    tls_key: Path | None = Field(None, description="the certificate's private key, PEM")
    kv_pool_mib: int = Field(256, ge=16, le=1_048_576, description="memory of the KV cache, MiB")
    kv_dtype: Literal["fp32", "fp16", "int8", "fp8"] = Field(
        "fp32", description="storage of the KV cache; int8 holds 3.8 times the tokens (docs/kv.md)"
    )
    kv_vision_dtype: Literal["same", "int8", "fp8"] = Field(
        "same",
        description="storage of pictures in the KV cache of a model directory, with kv_dtype fp32; "
        "same: as kv_dtype (docs/kv.md)",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$",
        examples=["auto", "cpu", "cuda:0"],
        description="what decodes: cpu, cuda or cuda:N; auto: the CPU (docs/gpu.md)",
    )
    ears_device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda(:\d{1,2})?)$",
        examples=["auto", "cpu", "cuda:0"],
        description="what recognises speech: cpu, cuda or cuda:N; auto: the GPU that decodes, if "
        "one does (docs/performance.md)",
    )
    kv_text_kept: float = Field(
        1.0,
        ge=0.3,
        le=1.0,
        description="share of the words of past turns whose K/V stay; those with the least "
        "attention are evicted, pictures are not (docs/kv.md)",
    )
    packed_cache_mib: int = Field(
        2048,
        ge=0,
        le=1_048_576,
        description="MiB of packed weights, for fast starts; 0: none (docs/performance.md)",
    )
    threads: int = Field(0, ge=0, le=1024, description="engine's threads; 0: the engine chooses")
    outbound_events: int = Field(
        512, ge=8, le=1_000_000, description="events that may be queued for one slow client"
    )
    outbound_kib: int = Field(
        8192, ge=64, le=1_048_576, description="KiB that may be queued for one slow client"
    )
    max_message_mib: int = Field(32, ge=1, le=1024, description="longest message accepted, MiB")
    ice_servers: str = Field(
        "",
        pattern=r"^((stuns?|turns?):[^\s]+(\s+|$))*$",
        examples=["stun:stun.example.org:3478"],
        description="STUN and TURN servers for WebRTC, as stun: and turn: URLs separated by spaces",
    )
    ice_private_candidates: bool = Field(
        True,
        description="whether calls may use private addresses and .local names from their "
        "offers; turn it off for a public server",
    )
    turn_username: str = Field("", description="user name at the TURN servers")
    turn_credential: str = Field("", repr=False, description="password at the TURN servers")
    engine_lost_after_s: float = Field(
        30.0,
        gt=1.0,
        le=600.0,
        allow_inf_nan=False,
        description="silence after which the engine counts as lost, s",
    )
    resume_s: float = Field(
        60.0,
        ge=0.0,
        le=3600.0,
        allow_inf_nan=False,
        description="how long a session is kept after its connection broke, if its client asks, s; "
        "0: never",
    )
    drain_s: float = Field(
        10.0,
        ge=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="wait for running answers at shutdown, s",
    )
    retire_grace_s: float = Field(
        10.0,
        ge=0.0,
        le=600.0,
        allow_inf_nan=False,
        description="how long new sessions are still taken after SIGUSR1, while load balancers see "
        "that there should be no more, s",
    )
    dashboard_content: bool = Field(
        False,
        description="whether the dashboard's feed and recordings hold what was said and answered",
    )
    record: Path | None = Field(
        None, description="file that the dashboard's feed is recorded in; none: it is not"
    )
    web_dir: Path | None = Field(
        None, description="folder served at /; none: web-demo/ beside the package"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest log level written"
    )

    @field_validator("chunk_ms", mode="before")
    @classmethod
    def _number_of_a_word(cls, value: object) -> object:
        """A Literal of numbers does not accept the text of variables and flags by itself."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("engine")
    @classmethod
    def _no_vllm_yet(cls, engine: str) -> str:
        if engine == "vllm":
            raise ValueError(
                f"{engine!r} is not in this version; use 'local', with a vLLM server's URL as llm"
            )
        return engine

    @model_validator(mode="after")
    def _no_contradictions(self) -> Self:
        found = list(self._contradictions())
        if found:
            raise Contradictions(found)
        return self

    def _contradictions(self) -> Iterator[Contradiction]:
        if self.hush_ms > self.silence_ms:
            yield Contradiction(
                ("hush_ms", "silence_ms"),
                f"hush_ms ({self.hush_ms}) is longer than silence_ms ({self.silence_ms}): the turn "
                f"would be over before speculation starts",
            )
        if len(set(self.llm_urls)) < len(self.llm_urls):
            yield Contradiction(("llm",), f"llm names a server twice: {self.llm}")
        if self.llm is None:
            for name in ("llm_model", "llm_key_env", "tokenizer"):
                if getattr(self, name) is not None:
                    sentence = f"{name} is of the LLM server: give its URL as llm, too"
                    yield Contradiction((name, "llm"), sentence)
        elif self.device.startswith("cuda"):
            yield Contradiction(
                ("device", "llm"),
                f"device {self.device} is of our own decoder, but llm decodes here",
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            yield Contradiction(
                ("tls_cert", "tls_key"),
                "tls_cert and tls_key go together: give both, or neither",
            )

    @property
    def llm_urls(self) -> list[str]:
        return [] if self.llm is None else self.llm.split(" ")

    @property
    def outbound_bytes(self) -> int:
        return self.outbound_kib * 1024

    @property
    def max_message_bytes(self) -> int:
        return self.max_message_mib * 1024 * 1024
