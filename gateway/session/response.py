"""One response from `response.created` to `response.done`: the request, and the events for it.

    created ─▶ (first text) item added, part added ─▶ deltas ─▶ part done, item done ─▶ done

The closing events are sent whatever the outcome, so that no item stays open at the client.

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from openai.types.realtime import RealtimeResponseCreateParams
from pydantic import BaseModel

from headstart.engine import api
from headstart.engine.api import Finished, FinishReason, KvStats, Usage
from headstart.gateway.protocol import items
from headstart.gateway.protocol.events import Events, PartRef
from headstart.gateway.protocol.items import Json, ResponseStatus, ResponseUsage, StatusDetails
from headstart.gateway.protocol.session_config import Modality, SessionConfig, dump, wire_format
from headstart.gateway.session.retention import window_to_wire
from headstart.gateway.session.tools import calling_of, check_choice, engine_tools
from headstart.gateway.telemetry.turn_record import kv_to_wire


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """Settings of one response; None: as in the session. `calling`: fields of `api.Sampling`."""

    out_of_band: bool = False
    instructions: str | None = None
    modality: Modality | None = None
    sound_format: Json | None = None
    max_output_tokens: int | Literal["inf"] | None = None
    metadata: dict[str, str] | None = None
    calling: Json | None = None
    tools: tuple[api.Tool, ...] | None = None

    @classmethod
    def of(
        cls, params: RealtimeResponseCreateParams | None, config: SessionConfig
    ) -> ResponseRequest:
        """Raises `ProtocolError` if a tool is required that does not exist."""
        if params is None:
            return cls()
        calling, tools = _tools(params, config)
        output = params.audio.output if params.audio is not None else None
        own_format = output.format if output is not None else None
        return cls(
            out_of_band=params.conversation == "none",
            instructions=params.instructions,
            modality=params.output_modalities[0] if params.output_modalities else None,
            sound_format=None if own_format is None else wire_format(own_format),
            max_output_tokens=params.max_output_tokens,
            metadata=params.metadata,
            calling=calling,
            tools=tools,
        )


def _tools(
    params: RealtimeResponseCreateParams, config: SessionConfig
) -> tuple[Json | None, tuple[api.Tool, ...] | None]:
    own = None if params.tools is None else [dump(tool) for tool in params.tools]
    choice = params.tool_choice
    chosen: str | Json = config.tool_choice
    if own is None and choice is None:
        return None, None
    tools = list(config.tools) if own is None else own
    if choice is not None:
        chosen = dump(choice) if isinstance(choice, BaseModel) else choice
        check_choice(chosen, tools, "response.tool_choice")
    if own is not None and not own:  # the session's tools stay in the prompt but are not called
        return {"call": api.ToolChoice.NONE}, None
    return calling_of(chosen, tools), None if own is None else engine_tools(own)


CancelReason = Literal["turn_detected", "client_cancelled"]


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """What stays constant during a response. `conversation_id` None: out of band. `audio`: the
    audio settings of a spoken response (`SessionConfig.response_audio`); None: text only."""

    response_id: str
    item_id: str
    generation: int
    conversation_id: str | None
    max_output_tokens: int | Literal["inf"]
    metadata: Mapping[str, str] | None = None
    audio: Json | None = None

    @property
    def spoken(self) -> bool:
        return self.audio is not None

    @property
    def out_of_band(self) -> bool:
        return self.conversation_id is None


@dataclass(slots=True)
class Ending:
    """How a response ended, in the protocol's terms."""

    status: ResponseStatus
    details: StatusDetails
    usage: Usage | None = None


def ending_of(finished: Finished, cancel_reason: CancelReason | None) -> Ending:
    """Convert the engine's outcome to the protocol's terms."""
    match finished.reason:
        case FinishReason.STOP | FinishReason.LENGTH if cancel_reason is not None:
            # It finished before the engine got the cancel; output since then was not sent.
            details = StatusDetails("cancelled", reason=cancel_reason)
            return Ending("cancelled", details, finished.usage)
        case FinishReason.STOP:
            return Ending("completed", StatusDetails("completed"), finished.usage)
        case FinishReason.LENGTH:
            details = StatusDetails("incomplete", reason="max_output_tokens")
            return Ending("incomplete", details, finished.usage)
        case FinishReason.CANCELLED:
            details = StatusDetails("cancelled", reason=cancel_reason or "client_cancelled")
            return Ending("cancelled", details, finished.usage)
        case FinishReason.FAILED:
            return failed(finished.code, finished.message, finished.usage)


def failed(code: str, message: str, usage: Usage | None = None) -> Ending:
    return Ending("failed", StatusDetails("failed", code=code, message=message), usage)


@dataclass(slots=True)
class Response:
    """State of one response. Each method returns the events to send."""

    facts: ResponseFacts
    events: Events
    cancel_reason: CancelReason | None = None  # cancelled, not yet confirmed by the engine
    text: str = ""
    previous_item_id: str | None = None
    opened: bool = False
    item_deleted: bool = False  # its item was deleted: no event may name it
    done: bool = False
    _ref: PartRef = field(init=False)

    def __post_init__(self) -> None:
        self._ref = PartRef(self.facts.response_id, self.facts.item_id)

    def create(self) -> list[Json]:
        return [self.events.response_created(self._wire("in_progress", ()))]

    def open(self, previous_item_id: str | None) -> list[Json]:
        """Announce the item and its part; called once, before the first text."""
        assert not self.opened
        self.opened = True
        self.previous_item_id = previous_item_id
        item = self.item("in_progress", with_content=False)
        out = [self.events.output_item_added(self.facts.response_id, 0, item)]
        if not self.facts.out_of_band:
            out.append(self.events.item_added(item, previous_item_id))
        out.append(self.events.content_part_added(self._ref, self._part()))
        return out

    def _part(self) -> Json:
        return items.audio_part(self.text) if self.facts.spoken else items.text_part(self.text)

    def delta(self, text: str) -> Json:
        self.text += text
        if self.facts.spoken:
            return self.events.audio_transcript_delta(self._ref, text)
        return self.events.text_delta(self._ref, text)

    def sound(self) -> Json:
        """The event that carries a piece of audio (see `gateway.session.actions.Play`)."""
        return self.events.audio_delta(self._ref)

    def finish(
        self, ending: Ending, closing: Sequence[Json] = (), calls: Sequence[Json] = ()
    ) -> list[Json]:
        """End the response: close the message if it is open, then add the events `closing` of the
        `calls`. `text` and `previous_item_id` have their final values by now."""
        assert not self.done
        self.done = True
        out: list[Json] = []
        output: list[Json] = []
        if self.opened and not self.item_deleted:
            item = self.item(item_status(ending))
            output.append(item)
            if self.facts.spoken:
                out.append(self.events.audio_done(self._ref))
                out.append(self.events.audio_transcript_done(self._ref, self.text))
            else:
                out.append(self.events.text_done(self._ref, self.text))
            out.append(self.events.content_part_done(self._ref, self._part()))
            if not self.facts.out_of_band:
                out.append(self.events.item_done(item, self.previous_item_id))
            out.append(self.events.output_item_done(self.facts.response_id, 0, item))
        out += closing
        output += calls
        out.append(self.events.response_done(self._wire(ending.status, output, ending)))
        return out

    def item(self, status: items.ItemStatus, *, with_content: bool = True) -> Json:
        said = items.output_audio if self.facts.spoken else items.output_text
        content = [said(self.text)] if with_content else []
        return items.message(self.facts.item_id, "assistant", content, status)

    def _wire(self, status: ResponseStatus, output: Any, ending: Ending | None = None) -> Json:
        usage = ending.usage if ending is not None else None
        return items.response(
            self.facts.response_id,
            status=status,
            output=output,
            conversation_id=self.facts.conversation_id,
            output_modalities=["audio" if self.facts.spoken else "text"],
            max_output_tokens=self.facts.max_output_tokens,
            audio=self.facts.audio,
            metadata=self.facts.metadata,
            status_details=ending.details if ending is not None else None,
            usage=None if usage is None else response_usage(usage),
        )


def item_status(ending: Ending) -> items.ItemStatus:
    return "completed" if ending.status == "completed" else "incomplete"


def response_usage(usage: Usage) -> ResponseUsage:
    """An answer's tokens as the protocol counts them, which knows no speculation."""
    return ResponseUsage(
        input_text=usage.input_text,
        input_audio=usage.input_audio,
        input_image=usage.input_image,
        cached=usage.cached,
        output_text=usage.output,
    )


def report_kv(kv: KvStats) -> Json:
    """The share of the KV cache as `gateway.latency.report` has it."""
    more = {"bytes_per_token": kv.bytes_per_token, "window": window_to_wire(kv.window)}
    return kv_to_wire(kv) | more
