"""The items of a session as tokens."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.session.conversation import Conversation
from headstart.engine.session.errors import UnknownItem
from tests.engine.fakes import SYSTEM, Bench

EITHER_BACKEND = True


def item(item_id: str, text: str, role: api.Role = api.Role.USER) -> api.Item:
    return api.Item(item_id, role, (api.Text(text),))


def conversation() -> Conversation:
    bench = Bench()
    bench.open()
    return bench.engine.sessions["s"].conversation


def letters(tokens: list[int]) -> str:
    return "".join(chr(t) if t < 256 else "|" for t in tokens)


def test_items_stand_where_they_were_put() -> None:
    """At the end, at the beginning, behind an item."""
    talk = conversation()
    talk.add(item("b", "b"), None)
    talk.add(item("a", "a"), "root")
    talk.add(item("c", "c"), "a")
    assert letters(talk.tokens()) == "|Hi||a\nc\nb"


def test_an_unknown_place_is_refused_and_changes_nothing() -> None:
    """`after` and a removal must name an existing item."""
    talk = conversation()
    talk.add(item("a", "a"), None)
    before = talk.tokens()
    with pytest.raises(UnknownItem, match="nope"):
        talk.add(item("b", "b"), "nope")
    with pytest.raises(UnknownItem, match="nope"):
        talk.remove("nope")
    assert talk.tokens() == before


def test_instructions_for_one_answer_leave_the_conversation_as_it_was() -> None:
    """They are in that prompt, before the assistant's turn, and nowhere else."""
    talk = conversation()
    talk.add(item("a", "a"), None)
    before = talk.tokens()
    ids = talk.prompt("Rhyme").ids
    assert SYSTEM in ids[1:]
    assert list(ids[: len(before)]) == before
    assert talk.tokens() == before


def test_a_picture_in_an_item_is_counted_as_image() -> None:
    """Its tokens are visual ones, interned in the session's stream."""
    talk = conversation()
    picture = api.Image(1, 1, b"\x05\0\0")
    talk.add(api.Item("p", api.Role.USER, (picture, api.Text("What?"))), None)
    prompt = talk.prompt()
    assert {m: n for m, n in prompt.counts.items() if n} == {Modality.TEXT: 5, Modality.IMAGE: 1}


def test_a_loose_view_becomes_part_of_the_next_message() -> None:
    """A camera view before a typed message comes before its words, once."""
    talk = conversation()
    talk.add_frame(api.Image(1, 1, b"\x05\0\0"))
    assert letters(talk.tokens()).endswith("||")
    talk.add(item("a", "a"), None)
    talk.add(item("b", "b"), None)
    assert letters(talk.tokens()) == "|Hi|||a\nb"


def test_an_unused_view_becomes_an_item_when_answered() -> None:
    """After an answer about it the view is an item, so the next prompt still begins the same."""
    talk = conversation()
    talk.add_frame(api.Image(1, 1, b"\x05\0\0"))
    prompt = talk.prompt().ids
    talk.keep_view()
    assert talk.prompt().ids == prompt
    talk.add(item("a", "a"), None)
    assert talk.tokens()[: len(prompt) - 2] == list(prompt[:-2])


def test_what_holds_while_nothing_is_seen_goes_with_the_first_picture() -> None:
    """The note follows the instructions until a picture is in the conversation."""
    talk = conversation()
    talk.instruct("Hi", "blind")
    talk.add(item("a", "a"), None)
    assert letters(talk.tokens()) == "|Hi\nblind||a"
    talk.add_frame(api.Image(1, 1, b"abc"))
    assert letters(talk.tokens()).startswith("|Hi||a")
    talk.instruct("Ho")
    assert "blind" not in letters(talk.tokens())
