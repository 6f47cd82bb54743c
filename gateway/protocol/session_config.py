"""A session's settings: the values in force, updates, and their echo.

Updates are partial: an absent key keeps its value at every depth, so `{"type": "server_vad",
"threshold": 0.6}` keeps the padding of a server VAD that is already on. Null clears what may be
null in a session (turn detection, noise reduction, transcription, tracing, prompt, include,
reasoning, idle timeout) and means "absent" elsewhere. Any names of models and voices are accepted
and echoed: they stand for what is installed here.

"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from openai.types.realtime import (
    RealtimeAudioConfigInput,
    RealtimeAudioConfigOutput,
    RealtimeSessionCreateRequest,
    RealtimeTranscriptionSessionCreateRequest,
)
from openai.types.realtime.realtime_audio_config_input import NoiseReduction
from openai.types.realtime.realtime_audio_formats import RealtimeAudioFormats
from openai.types.realtime.realtime_audio_input_turn_detection import (
    RealtimeAudioInputTurnDetection,
)
from openai.types.realtime.realtime_transcription_session_audio_input import (
    NoiseReduction as TranscriptionNoiseReduction,
)
from openai.types.realtime.realtime_transcription_session_audio_input import (
    RealtimeTranscriptionSessionAudioInput,
)
from openai.types.realtime.realtime_transcription_session_audio_input_turn_detection import (
    RealtimeTranscriptionSessionAudioInputTurnDetection,
)
from pydantic import BaseModel

from headstart.gateway.protocol import errors, limits
from headstart.gateway.protocol.extensions import (
    GatewayOptions,
    GatewaySession,
    GatewayTranscriptionSession,
)
from headstart.gateway.protocol.items import Json

Modality = Literal["text", "audio"]
Eagerness = Literal["low", "medium", "high", "auto"]
SessionUpdate = RealtimeSessionCreateRequest | RealtimeTranscriptionSessionCreateRequest

_ABOUT_RESPONSES = ("create_response", "interrupt_response", "idle_timeout_ms")
PCM_24K: Final[Json] = {"type": "audio/pcm", "rate": 24_000}


@dataclass(frozen=True, slots=True)
class ServerVadConfig:
    """A turn ends after `silence_duration_ms` of silence. The defaults are the API's; `Session`
    begins with the server's own settings."""

    type: Literal["server_vad"] = "server_vad"
    threshold: float = 0.5
    prefix_padding_ms: int = 300
    silence_duration_ms: int = 200
    idle_timeout_ms: int | None = None
    create_response: bool = True
    interrupt_response: bool = True

    def to_wire(self) -> Json:
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class SemanticVadConfig:
    """A turn ends when the speaker seems to have finished; `eagerness` sets how soon."""

    type: Literal["semantic_vad"] = "semantic_vad"
    eagerness: Eagerness = "auto"
    create_response: bool = True
    interrupt_response: bool = True

    def to_wire(self) -> Json:
        return dataclasses.asdict(self)


TurnDetection = ServerVadConfig | SemanticVadConfig


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The settings in force. `model` never changes. `speaks`: a voice is available; without one the
    session responds in text, whatever modality it asks for."""

    session_id: str
    model: str
    expires_at: int  # seconds since the epoch
    speaks: bool = False
    instructions: str = ""
    requested_modality: Modality = "audio"
    input_format: Json = field(default_factory=lambda: dict(PCM_24K))
    output_format: Json = field(default_factory=lambda: dict(PCM_24K))
    server_vad: ServerVadConfig = ServerVadConfig()
    """The server's defaults for `{"type": "server_vad"}`, whatever was in force before."""
    turn_detection: TurnDetection | None = ServerVadConfig()
    transcription: Json | None = None
    noise_reduction: Json | None = None
    voice: str = "marin"
    speed: float = 1.0
    max_output_tokens: int | Literal["inf"] = "inf"
    tools: tuple[Json, ...] = ()
    tool_choice: str | Json = "auto"
    truncation: str | Json = "auto"
    tracing: str | Json | None = None
    prompt: Json | None = None
    include: tuple[str, ...] | None = None
    reasoning: Json | None = None
    parallel_tool_calls: bool | None = None
    gateway: GatewayOptions | None = None
    only_transcribes: bool = False
    """A session of type `transcription`: it has no responses, and no settings for them."""

    @property
    def type(self) -> Literal["realtime", "transcription"]:
        return "transcription" if self.only_transcribes else "realtime"

    @property
    def answers_speech(self) -> bool:
        """Whether a spoken turn is answered without a request."""
        turns = self.turn_detection
        return not self.only_transcribes and turns is not None and turns.create_response

    @property
    def output_modality(self) -> Modality:
        """The modality that responses really have."""
        return self.requested_modality if self.speaks else "text"

    def of_type(self, type_: Literal["realtime", "transcription"]) -> SessionConfig:
        """The initial settings of a session of that type."""
        if type_ == self.type:
            return self
        only = type_ == "transcription"
        transcription: Json | None = {"model": self.model} if only else None
        return dataclasses.replace(self, only_transcribes=only, transcription=transcription)

    def apply(self, update: SessionUpdate, *, voice_locked: bool = False) -> SessionConfig:
        """The settings after a `session.update`.

        `voice_locked`: the session has already spoken. Raises `ProtocolError`, and then nothing
        has changed.
        """
        if update.type != self.type:
            raise errors.other_session_type(self.type, update.type)
        changes = _plain_changes(update) | _include(update)
        if update.audio is not None and update.audio.input is not None:
            changes |= _input_changes(self, update.audio.input)
        output = None if self.only_transcribes else getattr(update.audio, "output", None)
        if output is not None:
            changes |= _output_changes(self, output, voice_locked)
        changes |= _ours(self, update)
        changed = dataclasses.replace(self, **changes)
        size_bytes = len(msgspec.json.encode(changed.to_wire()))
        if size_bytes > limits.MAX_SESSION_BYTES:
            raise errors.event_too_large(size_bytes, limits.MAX_SESSION_BYTES, "bytes of session")
        return changed

    def to_wire(self) -> Json:
        """The full effective session object."""
        if self.only_transcribes:
            return self._transcription_to_wire()
        wire: Json = {
            "type": "realtime",
            "object": "realtime.session",
            "id": self.session_id,
            "model": self.model,
            "expires_at": self.expires_at,
            "output_modalities": [self.output_modality],
            "instructions": self.instructions,
            "tools": list(self.tools),
            "tool_choice": self.tool_choice,
            "max_output_tokens": self.max_output_tokens,
            "tracing": self.tracing,
            "truncation": self.truncation,
            "prompt": self.prompt,
            "include": list(self.include) if self.include is not None else None,
            "audio": {"input": self._input_to_wire(), "output": self._output_to_wire()},
        }
        if self.reasoning is not None:
            wire["reasoning"] = self.reasoning
        if self.parallel_tool_calls is not None:
            wire["parallel_tool_calls"] = self.parallel_tool_calls
        if self.gateway is not None:
            wire["gateway"] = dump(self.gateway)
        return wire

    def _transcription_to_wire(self) -> Json:
        wire: Json = {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "id": self.session_id,
            "expires_at": self.expires_at,
            "include": list(self.include) if self.include is not None else None,
            "audio": {"input": self._input_to_wire()},
        }
        detection = wire["audio"]["input"]["turn_detection"]
        for name in _ABOUT_RESPONSES if detection is not None else ():
            detection.pop(name, None)
        if self.gateway is not None:
            wire["gateway"] = dump(self.gateway)
        return wire

    def response_audio(
        self, wanted: Modality | None = None, own_format: Json | None = None
    ) -> Json | None:
        """The `audio` of a response object; None if that response is text. `wanted` and
        `own_format`: the response's own request; None: as in the session."""
        if not self.speaks or (wanted or self.requested_modality) == "text":
            return None
        return {"output": {"format": own_format or self.output_format, "voice": self.voice}}

    def _output_to_wire(self) -> Json:
        return {"format": self.output_format, "voice": self.voice, "speed": self.speed}

    def _input_to_wire(self) -> Json:
        turns = self.turn_detection
        return {
            "format": self.input_format,
            "transcription": self.transcription,
            "noise_reduction": self.noise_reduction,
            "turn_detection": turns.to_wire() if turns is not None else None,
        }


def dump(model: BaseModel) -> Json:
    """A validated object as the client sent it: only set fields, without nulls."""
    return model.model_dump(exclude_unset=True, exclude_none=True)


def wire_format(given: RealtimeAudioFormats) -> Json:
    """An audio format in full: the rate of PCM may be left out."""
    return dict(PCM_24K) if given.type == "audio/pcm" else {"type": given.type}


def _ours(config: SessionConfig, update: SessionUpdate) -> Json:
    if not isinstance(update, GatewaySession | GatewayTranscriptionSession):
        return {}
    if "gateway" not in update.model_fields_set:
        return {}
    return {"gateway": _merged_options(config.gateway, update.gateway)}


def _include(update: SessionUpdate) -> Json:
    if "include" not in update.model_fields_set:
        return {}
    return {"include": tuple(update.include) if update.include is not None else None}


def _plain_changes(update: SessionUpdate) -> Json:
    """Everything outside `audio`, `include` and `gateway`. The update's model is ignored: clients
    send one that differs from the one they connected to."""
    changes: Json = {}
    if isinstance(update, RealtimeTranscriptionSessionCreateRequest):
        return changes
    for name in ("instructions", "max_output_tokens", "parallel_tool_calls"):
        if (value := getattr(update, name)) is not None:
            changes[name] = value
    for name in ("tool_choice", "truncation"):
        if (value := getattr(update, name)) is not None:
            changes[name] = dump(value) if isinstance(value, BaseModel) else value
    for name in ("tracing", "prompt", "reasoning"):
        if name in update.model_fields_set:
            value = getattr(update, name)
            changes[name] = dump(value) if isinstance(value, BaseModel) else value
    if update.output_modalities is not None:
        changes["requested_modality"] = update.output_modalities[0]
    if update.tools is not None:
        changes["tools"] = tuple({"type": "function"} | dump(tool) for tool in update.tools)
    return changes


def _input_changes(
    config: SessionConfig,
    update: RealtimeAudioConfigInput | RealtimeTranscriptionSessionAudioInput,
) -> Json:
    changes: Json = {}
    if update.format is not None:
        changes["input_format"] = wire_format(update.format)
    if "turn_detection" in update.model_fields_set:
        changes["turn_detection"] = _merged_turns(config, update.turn_detection)
    if "transcription" in update.model_fields_set:
        changes["transcription"] = _merged(config.transcription, update.transcription)
    if "noise_reduction" in update.model_fields_set:
        changes["noise_reduction"] = _merged_noise(config.noise_reduction, update.noise_reduction)
    return changes


def _output_changes(
    config: SessionConfig, update: RealtimeAudioConfigOutput, voice_locked: bool
) -> Json:
    changes: Json = {}
    if update.format is not None:
        changes["output_format"] = wire_format(update.format)
    if update.voice is not None:
        voice = update.voice if isinstance(update.voice, str) else update.voice.id
        if voice_locked and voice != config.voice:
            raise errors.voice_locked()
        changes["voice"] = voice
    if update.speed is not None:
        changes["speed"] = float(update.speed)
    return changes


def _merged_turns(
    config: SessionConfig,
    update: RealtimeAudioInputTurnDetection | RealtimeTranscriptionSessionAudioInputTurnDetection,
) -> TurnDetection | None:
    """Another type starts from that type's defaults, and so does a type after null."""
    now = config.turn_detection
    if update is None:
        return None
    given = {key: value for key, value in dump(update).items() if key != "type"}
    if update.type == "server_vad":
        base: TurnDetection = now if isinstance(now, ServerVadConfig) else config.server_vad
        if "idle_timeout_ms" in update.model_fields_set:
            given["idle_timeout_ms"] = update.idle_timeout_ms
    else:
        base = now if isinstance(now, SemanticVadConfig) else SemanticVadConfig()
    return dataclasses.replace(base, **given)


def _merged(now: Json | None, update: BaseModel | None) -> Json | None:
    """Nested settings: null clears the key, and null for the whole object clears all."""
    if update is None:
        return None
    merged = (now or {}) | update.model_dump(exclude_unset=True)
    return {key: value for key, value in merged.items() if value is not None}


def _merged_noise(
    now: Json | None, update: NoiseReduction | TranscriptionNoiseReduction | None
) -> Json | None:
    merged = _merged(now, update)
    if merged is not None and "type" not in merged:
        raise errors.missing_parameter("session.audio.input.noise_reduction.type")
    return merged


def _merged_options(
    now: GatewayOptions | None, update: GatewayOptions | None
) -> GatewayOptions | None:
    if update is None:
        return None
    merged = (dump(now) if now is not None else {}) | update.model_dump(exclude_unset=True)
    if isinstance(merged.get("sampling"), dict) and now is not None and now.sampling is not None:
        merged["sampling"] = dump(now.sampling) | merged["sampling"]
    return GatewayOptions.model_validate(merged)
