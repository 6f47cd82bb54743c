"""What of a prompt goes where there is no room for it and its answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headstart.engine.api import Role
from headstart.engine.chat.context_window import (
    ANSWER_RESERVE_TOKENS,
    answer_reserve,
    prompt_within,
    require_fits,
)
from headstart.engine.chat.render import Entry, Modality, RenderedPrompt, Segment, Separator, render
from headstart.engine.errors import ContextFull
from tests.engine.fakes import ASSISTANT, USER, USER_END, FakeChat

SINK = (1, 2, 3)
REACH = 10_000


def entry(role: Role, length: int, first: int = 1000, *, continues: bool = False) -> Entry:
    ids = tuple(range(first, first + length))
    return Entry(f"i{first}", role, (Segment(Modality.TEXT, ids),), continues)


def render_entries(entries: Sequence[Entry]) -> RenderedPrompt:
    return render(FakeChat(), Separator((10,)), SINK, entries, answer_next=True)


def test_what_fits_is_read_as_a_whole() -> None:
    """To the last token of the room; one less, and the oldest turn is gone."""
    entries = [entry(Role.USER, 9), entry(Role.ASSISTANT, 5, 2000), entry(Role.USER, 7, 3000)]
    whole = tuple(render_entries(entries).ids)
    assert prompt_within(len(whole), REACH, entries, render_entries).ids == whole
    shorter = prompt_within(len(whole) - 1, REACH, entries, render_entries)
    assert shorter.ids == (*SINK, USER, *range(3000, 3007), USER_END, ASSISTANT)
    assert shorter.counts[Modality.TEXT] == 7


def test_a_message_that_just_fits_alone_is_not_cut() -> None:
    """Its own frame, the sink and the answer's beginning counted; one token more is refused."""
    fits = entry(Role.USER, 20)
    room = len(render_entries([fits]).ids)
    others = [entry(Role.USER, 9, 2000), entry(Role.ASSISTANT, 5, 3000)]
    prompt = prompt_within(room, REACH, [*others, fits], render_entries)
    assert prompt.ids == tuple(render_entries([fits]).ids)
    with pytest.raises(ContextFull):
        prompt_within(room, REACH, [*others, entry(Role.USER, 21)], render_entries)


def test_only_of_what_was_said_here_the_end_will_do() -> None:
    """An answer may be longer; a question, or a call, whose half is nothing, may not."""
    require_fits(entry(Role.USER, 20), 20)
    require_fits(entry(Role.ASSISTANT, 21), 20)
    for long in (entry(Role.USER, 21), entry(Role.ASSISTANT, 21, continues=True)):
        with pytest.raises(ContextFull, match="21"):
            require_fits(long, 20)


def test_the_answer_reserve_is_bounded_by_its_maximum_length() -> None:
    """And no more than the usual."""
    assert answer_reserve(8) == 8
    assert answer_reserve(100_000) == ANSWER_RESERVE_TOKENS
