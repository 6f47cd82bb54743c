"""What is refused before a session begins, and how it is closed."""

from __future__ import annotations

import json

import pytest
from websockets.asyncio.client import connect

from headstart.gateway.server.handshake import refused
from tests.gateway.shell_fakes import running_gateway
from tests.gateway.transport.websocket.test_channel import closing


@pytest.mark.parametrize(
    ("query", "headers", "subprotocols", "code"),
    [
        ({"model": "gpt-realtime-9"}, {}, ["realtime"], None),
        ({}, {}, [], None),
        ({"intent": "conversation"}, {}, [], None),
        ({"intent": "transcription"}, {}, [], None),
        ({"intent": "translation"}, {}, [], "invalid_intent"),
        ({}, {"openai-beta": "realtime=v1"}, [], "beta_api_shape_disabled"),
        ({}, {}, ["realtime", "openai-beta.realtime-v1"], "beta_api_shape_disabled"),
        ({"call_id": "rtc_1"}, {}, [], "call_id_not_found"),
    ],
)
def test_each_refusal_has_its_code(
    query: dict[str, str], headers: dict[str, str], subprotocols: list[str], code: str | None
) -> None:
    """Any model's name passes; what this server does not speak is named."""
    error = refused(query, headers, subprotocols)
    assert (error.code if error is not None else None) == code


async def test_a_beta_client_is_told_and_closed() -> None:
    """It gets the error event, then 4000 with the error's name, and no session."""
    async with (
        running_gateway() as running,
        connect(running.ws_url, additional_headers={"OpenAI-Beta": "realtime=v1"}) as socket,
    ):
        event = json.loads(await socket.recv())
        assert event["error"]["code"] == "beta_api_shape_disabled"
        closed = await closing(socket)
        assert closed.rcvd is not None
        assert closed.rcvd.code == 4000
        assert closed.rcvd.reason == "invalid_request_error.beta_api_shape_disabled"
        assert not running.sessions


async def test_who_only_wants_words_gets_a_session_for_them() -> None:
    """By the address; the event that begins it says so."""
    async with (
        running_gateway() as running,
        connect(running.ws_url + "?intent=transcription") as socket,
    ):
        assert json.loads(await socket.recv())["session_type"] == "transcription"
