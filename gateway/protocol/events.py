"""Builders of the server events: plain dicts, ready for a JSON encoder.

One `Events` belongs to one session. Every event gets its `event_id` here, at the moment it is
built. Events named `gateway.*` are ours: send them only to sessions that listed them under
`session.gateway.events`, since one client reports every type it does not know as an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.items import Json

EngineState = Literal["loading", "ready", "restarting", "moved", "down"]


@dataclass(frozen=True, slots=True)
class PartRef:
    """Which part of which item of which response an event is about."""

    response_id: str
    item_id: str
    output_index: int = 0
    content_index: int = 0

    def to_wire(self) -> Json:
        return {
            "response_id": self.response_id,
            "item_id": self.item_id,
            "output_index": self.output_index,
            "content_index": self.content_index,
        }


class Events:
    """Builds one session's server events."""

    def __init__(self, ids: IdMaker) -> None:
        self._ids = ids

    def _event(self, type_: str, **fields: Any) -> Json:
        return {"type": type_, "event_id": self._ids.event(), **fields}

    # --- session and errors -----------------------------------------------------------------

    def session_created(self, session: Json) -> Json:
        return self._event("session.created", session=session)

    def session_updated(self, session: Json) -> Json:
        return self._event("session.updated", session=session)

    def error(self, error: ProtocolError) -> Json:
        return error.to_event(self._ids.event())

    # --- the input audio buffer -------------------------------------------------------------

    def speech_started(self, item_id: str, audio_start_ms: int) -> Json:
        """`audio_start_ms` counts from the session's start and includes the prefix padding."""
        return self._event(
            "input_audio_buffer.speech_started", item_id=item_id, audio_start_ms=audio_start_ms
        )

    def speech_stopped(self, item_id: str, audio_end_ms: int) -> Json:
        """`audio_end_ms` counts from the session's start and includes the silence waited for."""
        return self._event(
            "input_audio_buffer.speech_stopped", item_id=item_id, audio_end_ms=audio_end_ms
        )

    def committed(self, item_id: str, previous_item_id: str | None) -> Json:
        return self._event(
            "input_audio_buffer.committed", item_id=item_id, previous_item_id=previous_item_id
        )

    def timeout_triggered(self, item_id: str, audio_start_ms: int, audio_end_ms: int) -> Json:
        """A silence, counted from the session's start, that is to become an item."""
        return self._event(
            "input_audio_buffer.timeout_triggered",
            item_id=item_id,
            audio_start_ms=audio_start_ms,
            audio_end_ms=audio_end_ms,
        )

    def cleared(self) -> Json:
        return self._event("input_audio_buffer.cleared")

    # --- conversation items -----------------------------------------------------------------

    def item_added(self, item: Json, previous_item_id: str | None) -> Json:
        return self._event("conversation.item.added", previous_item_id=previous_item_id, item=item)

    def item_done(self, item: Json, previous_item_id: str | None) -> Json:
        return self._event("conversation.item.done", previous_item_id=previous_item_id, item=item)

    def item_retrieved(self, item: Json) -> Json:
        return self._event("conversation.item.retrieved", item=item)

    def item_deleted(self, item_id: str) -> Json:
        return self._event("conversation.item.deleted", item_id=item_id)

    def item_truncated(self, item_id: str, content_index: int, audio_end_ms: int) -> Json:
        return self._event(
            "conversation.item.truncated",
            item_id=item_id,
            content_index=content_index,
            audio_end_ms=audio_end_ms,
        )

    # --- what the person said ---------------------------------------------------------------

    def transcription_delta(self, item_id: str, delta: str, content_index: int = 0) -> Json:
        return self._event(
            "conversation.item.input_audio_transcription.delta",
            item_id=item_id,
            content_index=content_index,
            delta=delta,
        )

    def transcription_completed(
        self, item_id: str, transcript: str, audio_s: float, content_index: int = 0
    ) -> Json:
        """`audio_s`: the utterance's duration, which is what this transcription is counted by."""
        return self._event(
            "conversation.item.input_audio_transcription.completed",
            item_id=item_id,
            content_index=content_index,
            transcript=transcript,
            usage={"type": "duration", "seconds": audio_s},
        )

    def transcription_failed(
        self, item_id: str, code: str, message: str, content_index: int = 0
    ) -> Json:
        return self._event(
            "conversation.item.input_audio_transcription.failed",
            item_id=item_id,
            content_index=content_index,
            error={"type": "transcription_error", "code": code, "message": message},
        )

    # --- responses --------------------------------------------------------------------------

    def response_created(self, response: Json) -> Json:
        return self._event("response.created", response=response)

    def response_done(self, response: Json) -> Json:
        return self._event("response.done", response=response)

    def output_item_added(self, response_id: str, output_index: int, item: Json) -> Json:
        return self._event(
            "response.output_item.added",
            response_id=response_id,
            output_index=output_index,
            item=item,
        )

    def output_item_done(self, response_id: str, output_index: int, item: Json) -> Json:
        return self._event(
            "response.output_item.done",
            response_id=response_id,
            output_index=output_index,
            item=item,
        )

    def content_part_added(self, ref: PartRef, part: Json) -> Json:
        return self._event("response.content_part.added", **ref.to_wire(), part=part)

    def content_part_done(self, ref: PartRef, part: Json) -> Json:
        return self._event("response.content_part.done", **ref.to_wire(), part=part)

    def text_delta(self, ref: PartRef, delta: str) -> Json:
        return self._event("response.output_text.delta", **ref.to_wire(), delta=delta)

    def text_done(self, ref: PartRef, text: str) -> Json:
        return self._event("response.output_text.done", **ref.to_wire(), text=text)

    def audio_transcript_delta(self, ref: PartRef, delta: str) -> Json:
        return self._event("response.output_audio_transcript.delta", **ref.to_wire(), delta=delta)

    def audio_transcript_done(self, ref: PartRef, transcript: str) -> Json:
        return self._event(
            "response.output_audio_transcript.done", **ref.to_wire(), transcript=transcript
        )

    def audio_delta(self, ref: PartRef) -> Json:
        """Its `delta`, the sound in base64, is put in by the transport that sends it."""
        return self._event("response.output_audio.delta", **ref.to_wire())

    def audio_done(self, ref: PartRef) -> Json:
        return self._event("response.output_audio.done", **ref.to_wire())

    def arguments_delta(
        self, response_id: str, item_id: str, output_index: int, call_id: str, *, delta: str
    ) -> Json:
        return self._event(
            "response.function_call_arguments.delta",
            response_id=response_id,
            item_id=item_id,
            output_index=output_index,
            call_id=call_id,
            delta=delta,
        )

    def arguments_done(
        self,
        response_id: str,
        item_id: str,
        output_index: int,
        call_id: str,
        *,
        name: str,
        arguments: str,
    ) -> Json:
        """`arguments`: all of them, JSON text as the model wrote it."""
        return self._event(
            "response.function_call_arguments.done",
            response_id=response_id,
            item_id=item_id,
            output_index=output_index,
            call_id=call_id,
            name=name,
            arguments=arguments,
        )

    def playout(self, what: Literal["started", "stopped", "cleared"], response_id: str) -> Json:
        """Where the server plays (WebRTC): the first sound went out, the last one, or the rest was
        dropped."""
        return self._event(f"output_audio_buffer.{what}", response_id=response_id)

    # --- ours, for sessions that asked ------------------------------------------------------

    def session_resumable(self, token: str, expires_after_ms: int) -> Json:
        """The secret by which this session is found again, so long after its connection broke."""
        return self._event(
            "gateway.session.resumable", token=token, expires_after_ms=expires_after_ms
        )

    def session_resumed(self, session: Json, replayed: int | None, items: int) -> Json:
        """All that was missed has been sent again before this, in so many events. `replayed` None:
        that was not possible; the newest `items` follow as `conversation.item.retrieved`."""
        return self._event(
            "gateway.session.resumed", session=session, replayed_events=replayed, items=items
        )

    def latency_report(
        self,
        *,
        turn: int,
        item_id: str | None,
        response_id: str | None,
        budget: Mapping[str, Any],
        **facts: Any,
    ) -> Json:
        """One turn's latency budget, `TurnBudget.to_wire()`; a stage whose anchor is missing
        is null in it, never 0. `facts` are other numbers of the turn (usage, kv, …)."""
        return self._event(
            "gateway.latency.report",
            turn=turn,
            item_id=item_id,
            response_id=response_id,
            budget=dict(budget),
            **facts,
        )

    def chunk_report(
        self,
        *,
        turn: int,
        item_id: str | None,
        start_sample: int,
        duration_ms: float,
        due_ms: float,
        stages_ms: Mapping[str, float],
        latency_ms: float,
        prefilled_tokens: int,
        rolled_back_tokens: int,
    ) -> Json:
        """What one audio chunk cost. `start_sample` at 16 kHz.

        `due_ms` is the time it had: until the next chunk was there. `headroom` is the share of that
        left over; negative means that it fell behind.
        """
        busy_ms = sum(stages_ms.values())
        return self._event(
            "gateway.chunk.report",
            turn=turn,
            item_id=item_id,
            start_sample=start_sample,
            duration_ms=duration_ms,
            due_ms=due_ms,
            stages_ms=dict(stages_ms),
            latency_ms=latency_ms,
            headroom=1.0 - busy_ms / due_ms if due_ms > 0 else None,
            prefilled_tokens=prefilled_tokens,
            rolled_back_tokens=rolled_back_tokens,
        )

    def hearing(
        self, *, turn: int, item_id: str, committed: str, tentative: str, audio_ms: float
    ) -> Json:
        """Words so far: `committed` only grows within a turn, but where it is heard again as a
        whole, at a short silence or up to a pause; `tentative` may still change.

        `audio_ms` is how far the words reach, from the session's start.
        """
        return self._event(
            "gateway.hearing",
            turn=turn,
            item_id=item_id,
            committed=committed,
            tentative=tentative,
            audio_ms=audio_ms,
        )

    def end_of_message(
        self,
        *,
        turn: int,
        item_id: str,
        probability: float,
        mark_probability: float | None,
        audio_ms: float,
    ) -> Json:
        """At a short silence, `audio_ms` after the session's start: the language model's own
        probability (0 to 1) that the user's message ends behind the words heard so far, and that of
        the mark (. ? !) at their end, which the recogniser wrote; None: there is none."""
        return self._event(
            "gateway.end_of_message",
            turn=turn,
            item_id=item_id,
            probability=probability,
            mark_probability=mark_probability,
            audio_ms=audio_ms,
        )

    def turn_continued(
        self, *, turn: int, item_id: str, continued_item_id: str, response_id: str | None
    ) -> Json:
        """The user's message `continued_item_id` was answered too early and goes on: with its words
        it will become the item `item_id`, and it is deleted then. `response_id`: the answer that is
        taken back; its items are deleted."""
        return self._event(
            "gateway.turn.continued",
            turn=turn,
            item_id=item_id,
            continued_item_id=continued_item_id,
            response_id=response_id,
        )

    def interruption(
        self, what: Literal["possible", "real", "false"], *, turn: int, item_id: str
    ) -> Json:
        """Speech over an answer: it has begun ("possible", nothing else has been said of it), it
        interrupts ("real", `speech_started` follows), or was nothing ("false")."""
        return self._event("gateway.interruption", state=what, turn=turn, item_id=item_id)

    def frame_judged(
        self,
        verdict: str,
        *,
        frame_event_id: str | None,
        at_ms: float,
        changed: float | None,
        since_kept_ms: float | None,
        rung: str,
    ) -> Json:
        """What became of a camera's frame: "kept" for the model, or why not (a `FrameVerdict`,
        "replaced" by a newer one, "broken", "unsent" without an engine). `changed`: mean difference
        of its luma from the frame kept before, 0 to 1, None where they were not compared; `at_ms`:
        of the camera's clock; `rung`: of the load-shedding ladder."""
        return self._event(
            "gateway.frame.judged",
            verdict=verdict,
            frame_event_id=frame_event_id,
            at_ms=at_ms,
            changed=changed,
            since_kept_ms=since_kept_ms,
            rung=rung,
        )

    def pictures_read(self, response_id: str, pictures: Sequence[Sequence[str] | None]) -> Json:
        """What was read in the pictures of an out-of-band response's own input, in order: the lines
        that are written in each, None where it was not read. Comes before `response.done`."""
        lines = [{"lines": None if each is None else list(each)} for each in pictures]
        return self._event("gateway.pictures.read", response_id=response_id, pictures=lines)

    def voice_status(self, status: str, voice: str, message: str) -> Json:
        """Whether answers can be spoken (`status` "ready") and if not, why not."""
        return self._event("gateway.voice.status", status=status, voice=voice, message=message)

    def engine_status(self, state: EngineState, message: str, **detail: Any) -> Json:
        """The engine behind this session went away, comes back, or loads (`detail`: how far); or
        another LLM server answers from now on ("moved")."""
        return self._event("gateway.engine.status", status=state, message=message, **detail)
