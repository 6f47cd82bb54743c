"""The stock `openai` package: functions, push-to-talk, and answers out of band, on real weights."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.end_to_end.conftest import Server, packets, within
from tests.end_to_end.test_openai_client import client, events_until

pytestmark = pytest.mark.weights

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


def said(text: str) -> Any:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content}


async def test_a_function_is_called_and_its_result_answered(server: Server) -> None:
    """A named function: its arguments come in pieces, are JSON and fit the question; after the
    result the answer is text again."""

    async def turn() -> tuple[list[Any], list[Any]]:
        async with client(server).realtime.connect(model="tiny") as connection:
            await connection.session.update(session={"type": "realtime", "tools": [WEATHER]})
            await connection.conversation.item.create(item=said("Is it raining in Rome?"))
            choice: Any = {"type": "function", "name": "get_weather"}
            await connection.response.create(response={"tool_choice": choice})
            called = await events_until(connection, "response.done")
            (call,) = called[-1].response.output
            await connection.conversation.item.create(
                item={
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": "sunny, 25 degrees",
                }
            )
            await connection.response.create(response={"tool_choice": "none"})
            return called, await events_until(connection, "response.done")

    called, answered = await within(turn())
    (call,) = called[-1].response.output
    assert (call.type, call.name, call.status) == ("function_call", "get_weather", "completed")
    assert "Rome" in json.loads(call.arguments)["city"]
    deltas = [e for e in called if e.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 1
    assert "".join(e.delta for e in deltas) == call.arguments
    (message,) = answered[-1].response.output
    assert message.type == "message"
    assert message.content[0].text


async def test_push_to_talk_and_an_answer_beside_the_conversation(
    server: Server, capital_pcm: bytes
) -> None:
    """Committed by hand, nothing is answered until asked; out of band no item is added."""

    async def turn() -> tuple[list[Any], list[Any]]:
        async with client(server).realtime.connect(model="tiny") as connection:
            audio: Any = {"input": {"turn_detection": None, "transcription": {"model": "any"}}}
            await connection.session.update(session={"type": "realtime", "audio": audio})
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=base64.b64encode(packet).decode())
            await connection.input_audio_buffer.commit()
            done = "conversation.item.input_audio_transcription.completed"
            heard = await events_until(connection, done)
            item_id = heard[-1].item_id
            given: Any = [{"type": "item_reference", "id": item_id}]
            await connection.response.create(
                response={"conversation": "none", "metadata": {"topic": "x"}, "input": given}
            )
            return heard, await events_until(connection, "response.done")

    heard, aside = await within(turn())
    assert "response.created" not in [e.type for e in heard]
    assert "input_audio_buffer.speech_started" not in [e.type for e in heard]
    response = aside[-1].response
    assert response.metadata == {"topic": "x"}
    assert response.conversation_id is None
    assert "Paris" in response.output[0].content[0].text
    assert not [e for e in aside if e.type.startswith("conversation.")]
