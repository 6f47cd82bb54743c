"""Conversations as tokens."""

from __future__ import annotations

from headstart.engine.api import Role
from headstart.engine.chat.render import Entry, Modality, Segment, Separator, count, render
from tests.engine.fakes import ASSISTANT, END, USER, USER_END, FakeChat

SEPARATOR = Separator((10,))
CHAT = FakeChat()


def entry(role: Role, *ids: int, modality: Modality = Modality.TEXT) -> Entry:
    return Entry("i", role, (Segment(modality, ids),))


def test_a_whole_conversation() -> None:
    """Each message stands between its template pieces, in order."""
    entries = [entry(Role.USER, 1, 2), entry(Role.ASSISTANT, 3), entry(Role.USER, 4)]
    tokens = render(CHAT, SEPARATOR, (9,), entries, answer_next=True).ids
    assert tokens == [9, USER, 1, 2, USER_END, ASSISTANT, 3, END, USER, 4, USER_END, ASSISTANT]


def test_the_last_user_message_stays_open() -> None:
    """Words can be appended to it: the tokens so far are a prefix of those with more words."""
    some = render(CHAT, SEPARATOR, (9,), [entry(Role.USER, 1)]).ids
    more = render(CHAT, SEPARATOR, (9,), [entry(Role.USER, 1, 2)], answer_next=True).ids
    assert more[: len(some)] == some


def test_user_items_in_a_row_read_as_one_message() -> None:
    """They are set apart by the separator, under one opening piece."""
    tokens = render(CHAT, SEPARATOR, (), [entry(Role.USER, 1), entry(Role.USER, 2)]).ids
    assert tokens == [USER, 1, 10, 2]


def test_instructions_for_one_answer_come_last() -> None:
    """So everything before them keeps its K/V."""
    plain = render(CHAT, SEPARATOR, (9,), [entry(Role.USER, 1)], answer_next=True).ids
    extra = render(
        CHAT, SEPARATOR, (9,), [entry(Role.USER, 1)], answer_next=True, extra_system=(7, 8)
    ).ids
    assert extra == [*plain[:-1], 7, 8, ASSISTANT]


def test_tokens_are_counted_by_what_they_stand_for() -> None:
    """Audio and image tokens are told apart from text."""
    entries = [
        entry(Role.USER, 1, 2, modality=Modality.AUDIO),
        entry(Role.USER, 3, modality=Modality.IMAGE),
        entry(Role.ASSISTANT, 4, 5, 6),
    ]
    wanted = {Modality.TEXT: 3, Modality.AUDIO: 2, Modality.IMAGE: 1, Modality.GENERATED: 0}
    assert count(entries) == wanted
