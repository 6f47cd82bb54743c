"""Answers out of band: each reads what is sent with it and nothing else, so that a session of ten
hours costs the server no more than one of a minute."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from headstart.gateway.errors import ServerFailed
from headstart.talk.connection.session import ClientSession, Event

KIND = "realtime"
OURS = "headstart_request"
"""Key of the metadata that ties a response to its request."""
TEMPERATURE = 0.0


class AnswerFailed(ServerFailed):
    """One answer failed; the session goes on. `code`: the server's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"the server's answer failed: {message}")
        self.code = code

    @property
    def may_pass(self) -> bool:
        """Whether the same request may be answered in a moment."""
        return self.code in _PASSING

    @property
    def is_too_long(self) -> bool:
        """Whether the model cannot read so much at once."""
        return self.code in _TOO_LONG


_PASSING = ("engine_unavailable", "engine_lost", "rate_limit_exceeded", "server_error")
_TOO_LONG = ("cache_full", "context_full", "context_length_exceeded", "input_too_long")


@dataclass(frozen=True)
class Reply:
    """A finished answer. `status`: as in the protocol; `usage`: None if the server does not say."""

    text: str
    status: str
    usage: Event | None = None
    read: tuple[tuple[str, ...] | None, ...] | None = None
    """The lines that the server read in each picture, None for one that it had no time to read;
    None: it reads none for its model, or does not tell."""


def words(text: str) -> Event:
    """Text for the model."""
    return {"type": "input_text", "text": text}


def picture(jpeg: bytes) -> Event:
    """A picture for the model."""
    data = base64.b64encode(jpeg).decode()
    return {"type": "input_image", "image_url": f"data:image/jpeg;base64,{data}"}


def sound(pcm: bytes) -> Event:
    """Sound for a model that hears by itself; s16le mono 24 kHz."""
    return {"type": "input_audio", "audio": base64.b64encode(pcm).decode()}


@dataclass
class _Running:
    response_id: str = ""
    text: str = ""
    read: tuple[tuple[str, ...] | None, ...] | None = None
    done: Event | None = None


@dataclass
class OutOfBandAnswers:
    """The events of one session that answers out of band."""

    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _by_number: dict[str, _Running] = field(default_factory=dict)
    _by_id: dict[str, _Running] = field(default_factory=dict)

    def receive(self, event: Event) -> None:
        kind = event["type"]
        if kind == "response.created":
            number = (event["response"].get("metadata") or {}).get(OURS)
            running = self._by_number.get(str(number))
            if running is not None:
                running.response_id = event["response"]["id"]
                self._by_id[running.response_id] = running
        elif kind == "response.output_text.delta" and event["response_id"] in self._by_id:
            self._by_id[event["response_id"]].text += event["delta"]
        elif kind == "gateway.pictures.read" and event["response_id"] in self._by_id:
            found = [picture.get("lines") for picture in event["pictures"]]
            self._by_id[event["response_id"]].read = tuple(
                None if lines is None else tuple(map(str, lines)) for lines in found
            )
        elif kind == "response.done" and event["response"]["id"] in self._by_id:
            self._by_id[event["response"]["id"]].done = event["response"]

    async def answer(
        self, session: ClientSession, content: Sequence[Event], max_tokens: int
    ) -> Reply:
        """The model's answer to one message. Raises `AnswerFailed` and what `ClientSession`
        raises."""
        number = str(next(self._numbers))
        running = self._by_number[number] = _Running()
        response: Event = {
            "conversation": "none",
            "output_modalities": ["text"],
            "max_output_tokens": max_tokens,
            "metadata": {OURS: number},
            "input": [{"type": "message", "role": "user", "content": list(content)}],
        }
        session.errors.clear()
        try:
            await session.request(
                "response.created",
                lambda: bool(running.response_id) + len(session.errors),
                "response.create",
                response=response,
            )
            if not running.response_id:
                raise _failed(session.errors[0])
            await session.until(lambda: running.done is not None, "an answer")
        finally:
            del self._by_number[number]
            self._by_id.pop(running.response_id, None)
        done = running.done
        assert done is not None
        if done["status"] == "failed":
            raise _failed((done.get("status_details") or {}).get("error") or {})
        return Reply(running.text.strip(), done["status"], done.get("usage"), running.read)


def settings(instructions: str) -> Event:
    """Settings of a session that only answers."""
    return {
        "type": KIND,
        "instructions": instructions,
        "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": None}},
    }


GATEWAY: Event = {
    "events": ["pictures"],
    "resume": True,
    "sampling": {"temperature": TEMPERATURE},
}


def _failed(error: Event) -> AnswerFailed:
    code = str(error.get("code") or "")
    return AnswerFailed(code, error.get("message") or code or "it does not say why")
