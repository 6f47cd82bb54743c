"""Clients' items in the engine's terms."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from headstart.engine import api
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.parse import parse_client_event
from headstart.gateway.session.conversation import Conversation, ConversationItem
from headstart.gateway.session.items import engine_item, pictures_of, response_items
from headstart.gateway.video.decode import Encoded


def parsed(item: dict[str, Any]) -> Any:
    text = json.dumps({"type": "conversation.item.create", "item": item})
    return cast(Any, parse_client_event(text)).item


def message(role: str, *content: dict[str, Any]) -> Any:
    return parsed({"type": "message", "role": role, "content": list(content)})


def test_text_of_every_role() -> None:
    """System, user and assistant texts come through as they are."""
    kinds = {"system": "input_text", "user": "input_text", "assistant": "output_text"}
    for role, kind in kinds.items():
        item = engine_item(message(role, {"type": kind, "text": "x"}), "i", "item", {})
        assert item == api.Item("i", api.Role(role), (api.Text("x"),))


def test_pictures_and_text_keep_their_order() -> None:
    """A message's parts are in the order the client gave; its pictures are named as errors do."""
    item = message(
        "user",
        {"type": "input_text", "text": "What?"},
        {"type": "input_image", "image_url": "data:one"},
        {"type": "input_image", "image_url": "data:two"},
    )
    encoded = pictures_of([(message("user"), "other"), (item, "item")])
    assert encoded == [
        Encoded("data:one", "item.content[1].image_url"),
        Encoded("data:two", "item.content[2].image_url"),
    ]
    images = [api.Image(1, 1, bytes(3)), api.Image(1, 1, b"abc")]
    pictures = {e.param: image for e, image in zip(encoded, images, strict=True)}
    assert engine_item(item, "i", "item", pictures).parts == (api.Text("What?"), *images)


def test_sound_in_an_item_is_taken_at_its_word_or_heard() -> None:
    """With a transcript it reads as that, with or without its sound; else it is what the engine
    will hear."""
    for part in ({"audio": "AAAA", "transcript": "hello"}, {"transcript": "hello"}):
        item = message("user", {"type": "input_audio", **part})
        assert engine_item(item, "i", "item", {}).parts == (api.Text("hello"),)
    item = message("user", {"type": "input_audio", "audio": "AAAA"})
    media = {"item.content[0].audio": api.Sound("clip_1")}
    assert engine_item(item, "i", "item", media).parts == (api.Sound("clip_1"),)


def test_a_restored_answer_is_what_was_said() -> None:
    """Written or spoken; nobody listens to the sound of it."""
    item = message(
        "assistant",
        {"type": "output_text", "text": "One. "},
        {"type": "output_audio", "transcript": "Two.", "audio": "AAAA"},
    )
    parts = (api.Text("One. "), api.Text("Two."))
    assert engine_item(item, "i", "item", {}) == api.Item("i", api.Role.ASSISTANT, parts)


def test_references_are_looked_up() -> None:
    """An out-of-band response may name items of the conversation; an unknown one is refused."""
    talk = Conversation()
    known = api.Item("a", api.Role.USER, (api.Text("x"),))
    talk.insert(ConversationItem({"id": "a"}, known), None)
    text = (
        '{"type": "response.create", "response": {"conversation": "none", "input":'
        ' [{"type": "item_reference", "id": "%s"}]}}'
    )
    given = cast(Any, parse_client_event(text % "a")).response.input
    assert response_items(given, talk, IdMaker.counting(), {}) == (known,)
    given = cast(Any, parse_client_event(text % "b")).response.input
    with pytest.raises(ProtocolError) as refused:
        response_items(given, talk, IdMaker.counting(), {})
    assert refused.value.param == "response.input[0].id"
