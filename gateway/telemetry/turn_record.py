"""All that is known of one turn: the record that the dashboard, recordings and comparisons share.

A record holds raw instants (monotonic ns); `to_wire` is the JSON-ready form. Every time in that is
in ms from the turn's origin: the anchor of its budget (`headstart.gateway.telemetry.latency`), so
that what was done under the speech is negative. The budget's stages end at the first token; two go
on from there, where they are known:

    first token ── voice ── first sound sent ── playout ── heard

So all stages together add up to the instant at which a spoken answer was heard. What nobody could
measure is null, never 0. A record is made when the response is done; what is learnt later makes
another one, of a higher revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headstart.engine.api import KvStats, Move, Usage
from headstart.gateway.audio.clock import ns_to_ms
from headstart.gateway.telemetry.latency import (
    STAGES,
    ChunkBudget,
    TurnBudget,
    TurnStamps,
    Unmeasured,
)

Json = dict[str, Any]
Reason = Literal["completed", "incomplete", "cancelled", "failed", "disconnected"]
"""How an answer ended; `disconnected`: its session ended before it did, as its client had left."""

CHUNKS_KEPT = 128  # newest ones of a turn; about a minute of 500 ms chunks
RECORD_STAGES = (*STAGES, "voice", "playout")
OWNERS = {
    "network": "network",
    "buffer": "network",
    "resample": "gateway",
    "send": "gateway",
    "voice": "voice",
}
"""Who owns a stage that took time; of the others the engine does, but for `vad_hangover` and
`playout`, which each record knows of."""


@dataclass(frozen=True, slots=True)
class TurnChunk:
    """One chunk of the turn's speech. `start_ns`: when its first sample was received."""

    start_ns: int
    budget: ChunkBudget
    prefilled: int
    rolled_back: int

    def to_wire(self, origin_ns: int) -> Json:
        budget = self.budget
        return {
            "start_ms": ns_to_ms(self.start_ns - origin_ns),
            "duration_ms": round(budget.duration_ms, 3),
            "due_ms": round(budget.due_ms, 3),
            "latency_ms": round(budget.latency_ms, 3),
            "headroom_percent": round(budget.headroom_percent, 3),
            "overrun": budget.overrun,
            "prefilled": self.prefilled,
            "rolled_back": self.rolled_back,
        }


@dataclass(frozen=True, slots=True)
class Voice:
    """Of a spoken answer. `first_sound_ns`: when its first sound was on its way to the client."""

    first_clause_ns: int | None
    first_sound_ns: int | None
    audio_ms: float
    problem: str | None


@dataclass(frozen=True, slots=True)
class Playout:
    """When the answer was first heard, by the client's word or by the clock of our own track."""

    started_ns: int
    source: Literal["client", "track"]


@dataclass(frozen=True, slots=True)
class Camera:
    """Camera frames that came since the turn before, by fate (`names.FRAME_FATES`), and the rung of
    the load-shedding ladder that the newest one found (`names.RUNGS`)."""

    rung: str
    frames: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """See the module's docstring. `turn`: the utterance that is answered; 0: none. `hangover`: what
    owns the wait for the end of speech, JSON-ready. `revoked_ms`: how much of the answer was played
    before it was taken back, because the speaker went on; None if it was not. `moves`: to
    another LLM server, since the turn before. `camera`: None if it showed nothing. `text`: what was
    said and answered, None unless it is wanted."""

    response_id: str
    session_id: str
    item_id: str | None
    turn: int
    generation: int
    model: str
    stamps: TurnStamps
    budget: TurnBudget | Unmeasured | None
    latency_budget_ms: float
    done_ns: int
    reason: Reason
    revision: int = 1
    hangover: Mapping[str, Any] = field(default_factory=dict)
    chunks: tuple[TurnChunk, ...] = ()
    voice: Voice | None = None
    playout: Playout | None = None
    usage: Usage | None = None
    kv: KvStats | None = None
    decode_tok_s: float | None = None
    interrupted: bool = False
    revoked_ms: float | None = None
    error: tuple[str, str] | None = None
    moves: tuple[Move, ...] = ()
    camera: Camera | None = None
    text: tuple[str | None, str] | None = None

    @property
    def origin_ns(self) -> int:
        """The instant that all times count from."""
        if isinstance(self.budget, TurnBudget):
            return self.stamps.sent_ns - self.budget.total_ns
        known = (self.stamps.last_speech_received_ns, self.stamps.requested_ns)
        return next((ns for ns in known if ns is not None), self.done_ns)

    @property
    def stages_ms(self) -> dict[str, float | None]:
        """A key for each of `RECORD_STAGES`. Without `voice` and `playout` they sum to the budget's
        total."""
        stages: dict[str, float | None] = dict.fromkeys(RECORD_STAGES)
        if isinstance(self.budget, TurnBudget):
            stages.update(self.budget.stages_ms)
        sound_ns = None if self.voice is None else self.voice.first_sound_ns
        if sound_ns is not None and isinstance(self.budget, TurnBudget):
            stages["voice"] = ns_to_ms(max(0, sound_ns - self.stamps.sent_ns))
        if self.playout_ns is not None:
            stages["playout"] = ns_to_ms(self.playout_ns)
        return stages

    @property
    def playout_ns(self) -> int | None:
        """From the first sound sent until it was heard."""
        sound_ns = None if self.voice is None else self.voice.first_sound_ns
        if sound_ns is None or self.playout is None:
            return None
        return max(0, self.playout.started_ns - sound_ns)

    @property
    def first_sound_ms(self) -> float | None:
        """From the origin to the first sound sent: the stages up to `voice`."""
        voice_ms = self.stages_ms["voice"]
        if voice_ms is None or not isinstance(self.budget, TurnBudget):
            return None
        return self.budget.total_ms + voice_ms

    @property
    def heard_ms(self) -> float | None:
        """From the origin until the first sound was heard: all stages."""
        sound_ms, playout_ms = self.first_sound_ms, self.stages_ms["playout"]
        return None if sound_ms is None or playout_ms is None else sound_ms + playout_ms

    def budget_to_wire(self) -> Json:
        """The budget as in the protocol's latency report: on to the first sound, and until it was
        heard. `stages_ms` sums to the last of `total_ms`, `first_sound_ms`, `heard_ms` that is
        known; a text answer has only the first."""
        spoken = {"first_sound_ms": self.first_sound_ms, "heard_ms": self.heard_ms}
        return self._measured() | spoken

    def to_wire(self) -> Json:
        """The record as the feed has it, but for what only the server knows: the wall clock, the
        transport and the state of its call."""
        usage = self.usage
        return {
            "id": self.response_id,
            "revision": self.revision,
            "session": self.session_id,
            "item": self.item_id,
            "turn": self.turn,
            "generation": self.generation,
            "model": self.model,
            **self._measured(),
            "stamps_ms": self._stamps_ms(),
            "spans": self._spans(),
            "chunks": [chunk.to_wire(self.origin_ns) for chunk in self.chunks],
            "speculation": {
                "kept": None if usage is None else usage.speculated,
                "wasted": None if usage is None else usage.wasted,
            },
            "waits": self.waits(),
            "voice": self.voice_to_wire(),
            "playout": self._playout(),
            "usage": None if usage is None else usage_to_wire(usage),
            "kv": None if self.kv is None else kv_to_wire(self.kv),
            "decode_tok_s": None if self.decode_tok_s is None else round(self.decode_tok_s, 3),
            "reason": self.reason,
            "interrupted": self.interrupted,
            "revoked_ms": self.revoked_ms,
            "error": self.error and {"code": self.error[0], "message": self.error[1]},
            "moves": [self._move(move) for move in self.moves],
            "camera": self.camera and {"rung": self.camera.rung, "frames": {**self.camera.frames}},
            **self._texts(),
        }

    def waits(self) -> Json:
        """Who owns each stage that took time."""
        owners: Json = {}
        for stage, ms in self.stages_ms.items():
            if ms:
                owners[stage] = {"owner": OWNERS.get(stage, "engine")}
        if "vad_hangover" in owners:
            owners["vad_hangover"] = dict(self.hangover) or {"owner": "gateway"}
        if "playout" in owners and self.playout is not None:
            by_client = self.playout.source == "client"
            owners["playout"] = {"owner": "client" if by_client else "gateway"}
        return owners

    def _measured(self) -> Json:
        budget = self.budget or Unmeasured(self.latency_budget_ms, self.stamps.realtime)
        return budget.to_wire() | {"stages_ms": self.stages_ms}

    def _stamps_ms(self) -> Json:
        stamps, voice = self.stamps, self.voice
        answered = self.budget is not None  # else its first token was never sent
        instants = {
            "captured": stamps.captured_ns,
            "received": stamps.last_speech_received_ns,
            "endpoint": stamps.endpoint_ns,
            "requested": stamps.requested_ns,
            "first_delta": stamps.first_delta_received_ns,
            "first_token": stamps.sent_ns if answered else None,
            "first_clause": None if voice is None else voice.first_clause_ns,
            "first_sound": None if voice is None else voice.first_sound_ns,
            "playout_started": None if self.playout is None else self.playout.started_ns,
            "done": self.done_ns,
        }
        return {name: self._from_origin(ns) for name, ns in instants.items()}

    def _from_origin(self, ns: int | None) -> float | None:
        return None if ns is None else ns_to_ms(ns - self.origin_ns)

    def _spans(self) -> list[list[Any]]:
        origin_ns = self.origin_ns
        return [
            [span.stage, ns_to_ms(span.start_ns - origin_ns), ns_to_ms(span.end_ns - origin_ns)]
            for span in self.stamps.spans
        ]

    def voice_to_wire(self) -> Json | None:
        """Latency of a spoken answer, in ms; None if it is not spoken.

        `first_clause_ms`: from the first token to the first clause; `first_sound_ms`: from then
        until the first audio was sent; `total_ms`: from the origin to the first audio. None where a
        stamp is missing.
        """
        voice = self.voice
        if voice is None:
            return None
        sound_ns, clause_ns = voice.first_sound_ns, voice.first_clause_ns
        total_ms = self._from_origin(sound_ns) if isinstance(self.budget, TurnBudget) else None
        return {
            "first_clause_ms": _between_ms(self.stamps.first_delta_received_ns, clause_ns),
            "first_sound_ms": _between_ms(clause_ns, sound_ns),
            "total_ms": total_ms,
            "audio_ms": voice.audio_ms,
            "problem": voice.problem,
        }

    def _move(self, move: Move) -> Json:
        """With the servers' addresses, which clients do not get."""
        ends = {"from": move.from_url, "to": move.to_url}
        return move_to_wire(move) | ends | {"at_ms": self._from_origin(move.at_ns)}

    def _playout(self) -> Json | None:
        if self.playout is None or self.playout_ns is None:
            return None
        return {"delay_ms": ns_to_ms(self.playout_ns), "source": self.playout.source}

    def _texts(self) -> Json:
        if self.text is None:
            return {}
        transcript, answer = self.text
        return {"text": {"transcript": transcript, "answer": answer}}


def usage_to_wire(usage: Usage) -> Json:
    """An answer's tokens by what they stood for."""
    return {
        "input_text": usage.input_text,
        "input_audio": usage.input_audio,
        "input_image": usage.input_image,
        "cached": usage.cached,
        "output": usage.output,
        "speculated": usage.speculated,
        "wasted": usage.wasted,
    }


def move_to_wire(move: Move) -> Json:
    """A session's move to another LLM server: why, and how much had to be computed again."""
    return {"why": move.why, "tokens": move.tokens}


def kv_to_wire(kv: KvStats) -> Json:
    """A session's share of the KV cache."""
    return {
        "tokens": kv.tokens,
        "blocks": kv.blocks,
        "bytes": kv.bytes,
        "by_modality": kv.by_modality,
        "adopted": kv.adopted,
        "evicted": kv.evicted,
    }


def _between_ms(start_ns: int | None, end_ns: int | None) -> float | None:
    return None if start_ns is None or end_ns is None else ns_to_ms(end_ns - start_ns)
