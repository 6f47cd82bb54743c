"""Clients' items in the engine's terms."""

from __future__ import annotations

import base64
import io
import json
from typing import Any, cast

import av
import numpy as np
import pytest

from engine import api
from gateway.conversation import Conversation, Kept
from gateway.incoming import engine_item, input_image, response_items
from gateway.protocol.errors import ProtocolError
from gateway.protocol.ids import IdMaker
from gateway.protocol.parse import parse_client_event


def png(width: int, height: int, value: int) -> str:
    """A one-coloured picture as a data URI."""
    out = io.BytesIO()
    with av.open(out, "w", format="image2pipe") as container:
        stream = container.add_stream("png", rate=1)
        stream.width, stream.height, stream.pix_fmt = width, height, "rgb24"
        pixels = np.full((height, width, 3), value, np.uint8)
        for packet in stream.encode(av.VideoFrame.from_ndarray(pixels)):
            container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def parsed(item: dict[str, Any]) -> Any:
    text = json.dumps({"type": "conversation.item.create", "item": item})
    return cast(Any, parse_client_event(text)).item


def message(role: str, *content: dict[str, Any]) -> Any:
    return parsed({"type": "message", "role": role, "content": list(content)})


def test_text_of_every_role() -> None:
    """System, user and assistant texts come through as they are."""
    kinds = {"system": "input_text", "user": "input_text", "assistant": "output_text"}
    for role, kind in kinds.items():
        item = engine_item(message(role, {"type": kind, "text": "x"}), "i", "item")
        assert item == api.Item("i", api.Role(role), (api.Text("x"),))


def test_a_picture_becomes_pixels() -> None:
    """The engine gets rows of RGB; the size is the picture's own when it is small."""
    image = input_image(png(20, 10, 77), param="image")
    assert (image.width, image.height) == (20, 10)
    assert image.rgb == bytes([77]) * 600


def test_pictures_and_text_keep_their_order() -> None:
    """A message's parts are in the order the client gave."""
    item = message(
        "user",
        {"type": "input_image", "image_url": png(8, 8, 1)},
        {"type": "input_text", "text": "What?"},
    )
    kinds = [type(part) for part in engine_item(item, "i", "item").parts]
    assert kinds == [api.Image, api.Text]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            "item.type",
        ),
        (
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_audio", "audio": "AAAA"}],
            },
            "item.content[0].type",
        ),
        (
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_image", "image_url": "http://x/y.png"}],
            },
            "item.content[0].image_url",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(item: dict[str, Any], param: str) -> None:
    """The parameter at fault is named; nothing is guessed."""
    with pytest.raises(ProtocolError) as refused:
        engine_item(parsed(item), "i", "item")
    assert refused.value.param == param


def test_references_are_looked_up() -> None:
    """An out-of-band response may name items of the conversation; an unknown one is refused."""
    talk = Conversation()
    known = api.Item("a", api.Role.USER, (api.Text("x"),))
    talk.insert(Kept({"id": "a"}, known), None)
    text = (
        '{"type": "response.create", "response": {"conversation": "none", "input":'
        ' [{"type": "item_reference", "id": "%s"}]}}'
    )
    given = cast(Any, parse_client_event(text % "a")).response.input
    assert response_items(given, talk, IdMaker.counting()) == (known,)
    given = cast(Any, parse_client_event(text % "b")).response.input
    with pytest.raises(ProtocolError) as refused:
        response_items(given, talk, IdMaker.counting())
    assert refused.value.param == "response.input[0].id"
