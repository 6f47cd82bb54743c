"""What has to go from a conversation that outgrew its window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from headstart.engine.api import Role
from headstart.engine.chat.context_window import (
    ContextWindow,
    Range,
    RemovedRanges,
    overflow,
    remaining_entries,
    remove_ranges,
)
from headstart.engine.chat.render import Entry, Modality, RenderedPrompt, Segment, Separator, render
from tests.engine.fakes import ASSISTANT, SYSTEM, USER, FakeChat

SINK = tuple(FakeChat().system("Be brief."))
SEPARATOR = Separator((10,))

segments = st.tuples(
    st.sampled_from([Modality.AUDIO, Modality.IMAGE, Modality.TEXT]), st.integers(1, 9)
)
spoken = st.tuples(st.just(Role.USER), st.lists(segments, max_size=4))
said = st.tuples(
    st.just(Role.ASSISTANT), st.lists(st.tuples(st.just(Modality.GENERATED), st.integers(1, 9)))
)
called = st.tuples(st.just(Role.ASSISTANT), st.just([(Modality.GENERATED, 5)]))
told = st.tuples(st.just(Role.SYSTEM), st.just([(Modality.TEXT, 4)]))
conversations = st.lists(st.one_of(spoken, spoken, said, called, told), max_size=14)


def entries_of(conversation: list[tuple[Role, list[tuple[Modality, int]]]]) -> list[Entry]:
    """Entries whose tokens all differ; empty ones only at the end, as of who begins to speak. What
    the assistant says in five tokens is a function it calls: that goes on with its message."""
    fresh = iter(range(1000, 100_000))
    made = [
        Entry(
            f"i{i}",
            role,
            tuple(Segment(m, tuple(next(fresh) for _ in range(n))) for m, n in parts),
            continues=role is Role.ASSISTANT and parts == [(Modality.GENERATED, 5)],
        )
        for i, (role, parts) in enumerate(conversation)
    ]
    full = [e for e in made if e.segments]
    return [*full, *(e for e in made[-1:] if e.role is Role.USER and not e.segments)]


def laid_out(entries: list[Entry]) -> RenderedPrompt:
    return render(FakeChat(), SEPARATOR, SINK, entries)


def left(entries: list[Entry], rendered: RenderedPrompt, cuts: list[Range]) -> list[Entry]:
    """The entries without what was cut."""
    return [after for _, after in remaining_entries(entries, rendered, cuts) if after is not None]


def line(length: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions without gaps."""
    return np.arange(length + 1)


def pictures(entries: list[Entry]) -> list[Segment]:
    return [s for e in entries for s in e.segments if s.modality is Modality.IMAGE]


@settings(max_examples=400, deadline=None)
@given(conversations, st.integers(1, 90), st.integers(1, 40), st.integers(20, 120), st.floats(0, 1))
def test_what_is_left_reads_as_if_the_rest_had_never_been(
    conversation: list[tuple[Role, list[tuple[Modality, int]]]],
    tokens: int,
    vision_tokens: int,
    reach: int,
    retained: float,
) -> None:
    """Laid out anew, what is left gives the old tokens less the cuts: so its K/V can stay. The
    instructions and the newest token stay, whole pictures go, and the bounds hold."""
    entries = entries_of(conversation)
    rendered = laid_out(entries)
    window = ContextWindow(tokens, vision_tokens, 10_000, len(SINK) + reach, retained)
    cuts = overflow(rendered, entries, window, line(len(rendered.ids)))
    gone = {i for start, end in cuts for i in range(start, end)}
    after = left(entries, rendered, cuts)
    again = laid_out(after)
    assert again.ids == [token for i, token in enumerate(rendered.ids) if i not in gone]
    assert tuple(again.ids[: len(SINK)]) == SINK
    assert [s for s in pictures(entries) if s in pictures(after)] == pictures(after)
    if entries and entries[-1].segments:
        assert again.ids[again.items[-1].end - 1] == rendered.ids[rendered.items[-1].end - 1]
    total = sum(len(s.ids) for s in pictures(after))
    assert total <= vision_tokens or len(pictures(after)) == 1
    if again.items:
        behind = len(again.ids) - len(SINK)
        assert behind <= max(tokens, _least(again, after))


def _least(rendered: RenderedPrompt, entries: list[Entry]) -> int:
    """Tokens of a conversation of which no more can go: the frame of the last message, its newest
    token or picture, and an answer to it."""
    places = rendered.items
    first = max(i for i, place in enumerate(places) if not place.joined)
    last = max((i for i in range(first, len(places)) if entries[i].segments), default=first)
    newest = entries[last].segments[-1:]
    whole = [len(s.ids) if s.modality is Modality.IMAGE else 1 for s in newest]
    frame = places[first].content - places[first].lead
    return frame + sum(whole) + len(rendered.ids) - places[last].end


def test_nothing_goes_while_there_is_room() -> None:
    """At the bounds, not beyond them."""
    entries = entries_of([(Role.USER, [(Modality.IMAGE, 6), (Modality.AUDIO, 3)])])
    rendered = laid_out(entries)
    behind = len(rendered.ids) - len(SINK)
    fits = ContextWindow(behind, 6, len(rendered.ids), len(rendered.ids), 0.5)
    assert overflow(rendered, entries, fits, line(len(rendered.ids))) == []
    assert overflow(laid_out([]), [], fits, line(len(SINK))) == []


def test_whole_turns_go_from_the_oldest_on() -> None:
    """A question goes with its answer, and what is left begins with a question."""
    turn = [(Role.USER, [(Modality.AUDIO, 6)]), (Role.ASSISTANT, [(Modality.GENERATED, 6)])]
    entries = entries_of(turn * 6)
    rendered = laid_out(entries)
    cuts = overflow(
        rendered, entries, ContextWindow(80, 80, 999, 999, 0.5), line(len(rendered.ids))
    )
    assert cuts == [(len(SINK), rendered.items[8].lead)]
    assert rendered.ids[cuts[0][1]] == USER


def test_pictures_go_sooner_than_words() -> None:
    """The oldest of them, and what was said about them stays; a message of nothing else goes with
    its frame."""
    picture, words = (Modality.IMAGE, 8), (Modality.AUDIO, 5)
    answer = (Role.ASSISTANT, [(Modality.GENERATED, 3)])
    entries = entries_of(
        [
            *((Role.USER, [picture]), answer, (Role.USER, [picture, words]), answer),
            (Role.USER, [words, picture]),
        ]
    )
    rendered = laid_out(entries)
    window = ContextWindow(999, 20, 999, 999, 0.5)
    after = left(entries, rendered, overflow(rendered, entries, window, line(len(rendered.ids))))
    kinds = [[s.modality for s in entry.segments] for entry in after]
    spoken, generated = Modality.AUDIO, Modality.GENERATED
    assert kinds == [[generated], [spoken], [generated], [spoken, Modality.IMAGE]]
    assert laid_out(after).ids[len(SINK)] == ASSISTANT


def test_positions_count_as_well_as_tokens() -> None:
    """Few tokens that are spread over more positions than a model reaches: the far ones go."""
    turn = [(Role.USER, [(Modality.AUDIO, 6)]), (Role.ASSISTANT, [(Modality.GENERATED, 6)])]
    entries = entries_of(turn * 4)
    rendered = laid_out(entries)
    positions = line(len(rendered.ids))
    positions[rendered.items[4].lead :] += 500
    window = ContextWindow(999, 999, 999, 400, 0.75)
    assert overflow(rendered, entries, window, positions) == [(len(SINK), rendered.items[4].lead)]


def test_the_sink_counts_for_the_reach() -> None:
    """It is looked back at over all that follows: where sink and rest together are one position
    wider than the model's reach, something goes, and not before."""
    turn = [(Role.USER, [(Modality.AUDIO, 6)]), (Role.ASSISTANT, [(Modality.GENERATED, 6)])]
    entries = entries_of(turn * 4)
    rendered = laid_out(entries)
    positions = line(len(rendered.ids))
    wide = len(SINK) + int(positions[-1] - positions[len(SINK)])
    assert overflow(rendered, entries, ContextWindow(999, 999, 999, wide, 0.75), positions) == []
    assert (
        overflow(rendered, entries, ContextWindow(999, 999, 999, wide - 1, 0.75), positions) != []
    )


def test_of_one_endless_message_the_beginning_goes() -> None:
    """Somebody who never stops is remembered from some word on, and a picture is not halved."""
    entries = entries_of([(Role.USER, [(Modality.AUDIO, 50), (Modality.IMAGE, 10)])])
    entries += entries_of([(Role.USER, [(Modality.AUDIO, 40)])])
    entries = [entries[0], Entry("z", Role.USER, entries[1].segments)]
    rendered = laid_out(entries)
    window = ContextWindow(80, 80, 999, 999, 0.5)
    (cut,) = overflow(rendered, entries, window, line(len(rendered.ids)))
    assert cut[0] == rendered.items[0].content
    assert rendered.items[1].content <= cut[1] < rendered.items[1].end
    lone = entries_of(
        [(Role.USER, [(Modality.AUDIO, 50), (Modality.IMAGE, 10), (Modality.AUDIO, 9)])]
    )
    rendered = laid_out(lone)
    (cut,) = overflow(rendered, lone, ContextWindow(30, 30, 999, 999, 0.5), line(len(rendered.ids)))
    assert cut == (rendered.items[0].content, rendered.items[0].segments[1][1])


def test_of_an_endless_answer_the_beginning_goes_behind_the_question() -> None:
    """Where nothing was asked since, the turn's oldest goes: the question, and then the first words
    of an answer that alone is longer than the window. What it said last stays."""
    entries = entries_of(
        [(Role.USER, [(Modality.TEXT, 7)]), (Role.ASSISTANT, [(Modality.GENERATED, 90)])]
    )
    rendered = laid_out(entries)
    cuts = overflow(
        rendered, entries, ContextWindow(80, 80, 999, 999, 0.5), line(len(rendered.ids))
    )
    (after,) = left(entries, rendered, cuts)
    assert after.role is Role.ASSISTANT
    assert after.segments[0].ids == entries[1].segments[0].ids[-38:]


def test_of_answers_that_follow_one_another_the_oldest_go() -> None:
    """As many whole ones as have to, and of the next one what it said first."""
    answer = (Role.ASSISTANT, [(Modality.GENERATED, 20)])
    entries = entries_of([(Role.USER, [(Modality.TEXT, 7)]), *[answer] * 4])
    rendered = laid_out(entries)
    cuts = overflow(
        rendered, entries, ContextWindow(80, 80, 999, 999, 0.5), line(len(rendered.ids))
    )
    after = left(entries, rendered, cuts)
    assert [len(entry.segments[0].ids) for entry in after] == [16, 20]


def test_a_picture_that_alone_is_too_much_goes_with_its_question() -> None:
    """An answer to it that leaves no room for it stays."""
    entries = entries_of(
        [
            (Role.USER, [(Modality.TEXT, 7), (Modality.IMAGE, 40)]),
            (Role.ASSISTANT, [(Modality.GENERATED, 30)]),
        ]
    )
    rendered = laid_out(entries)
    cuts = overflow(
        rendered, entries, ContextWindow(60, 60, 999, 999, 0.9), line(len(rendered.ids))
    )
    (after,) = left(entries, rendered, cuts)
    assert after == entries[1]


def test_bounds_are_what_was_asked_for_where_there_is_room() -> None:
    """Zero is as far as can be, pictures a quarter of it; more than there is counts as all."""
    assert ContextWindow.of(1000, 4000, api.Window()).to_api() == api.Window(1000, 250)
    assert ContextWindow.of(1000, 4000, api.Window(400, 50, 0.5)).to_api() == api.Window(
        400, 50, 0.5
    )
    assert ContextWindow.of(1000, 4000, api.Window(9000, 9000)).to_api() == api.Window(1000, 1000)
    assert ContextWindow.of(1000, 4000, api.Window()).behind(300) == 700


@given(st.lists(st.lists(st.integers(0, 60), min_size=2, max_size=6, unique=True), max_size=6))
def test_holes_are_told_in_places_of_what_was_left(cuts: list[list[int]]) -> None:
    """Cut after cut, they are what was taken out of the whole."""
    holes, rest = RemovedRanges(), list(range(100))
    for edges in cuts:
        edges = sorted(edge for edge in edges if edge <= len(rest))
        ranges = list(zip(edges[::2], edges[1::2], strict=False))
        holes.cut(ranges)
        for start, end in reversed(ranges):
            del rest[start:end]
    whole = [
        Segment(Modality.AUDIO, tuple(range(70))),
        Segment(Modality.TEXT, tuple(range(70, 100))),
    ]
    assert [t for s in remove_ranges(whole, holes.ranges) for t in s.ids] == rest


@pytest.mark.parametrize("cut", [(0, 3), (2, 5), (3, 7)])
def test_emptied_segments_are_removed(cut: Range) -> None:
    """What is left keeps its modality; nothing is left as an empty segment."""
    whole = [Segment(Modality.TEXT, (1, 2, 3)), Segment(Modality.IMAGE, (4, 5, 6, 7))]
    after = remove_ranges(whole, [cut])
    assert all(segment.ids for segment in after)
    assert [t for s in after for t in s.ids] == [t for t in range(1, 8) if not cut[0] < t <= cut[1]]


class OpeningChat(FakeChat):
    """A chat whose system prompt opens the first user message, as Mistral's does."""

    system_opens_user = True

    def system(self, text: str, tools: Sequence[api.Tool] = ()) -> Sequence[int]:
        return (SYSTEM, USER, *text.encode())


@pytest.mark.parametrize("first", [Modality.AUDIO, Modality.IMAGE])
def test_a_message_that_the_system_prompt_opened_goes_without_it(first: Modality) -> None:
    """The oldest turns go, and the next question continues the system prompt in their place; or a
    first message of pictures goes and leaves its end. Either way the rest reads as before."""
    turns = [
        [(Role.USER, [(first, 8)]), (Role.ASSISTANT, [(Modality.GENERATED, 4)])],
        [(Role.USER, [(Modality.IMAGE, 8)]), (Role.ASSISTANT, [(Modality.GENERATED, 4)])],
        [(Role.USER, [(Modality.AUDIO, 8)])],
    ]
    entries = entries_of([part for turn in turns for part in turn])
    sink = tuple(OpeningChat().system("Be brief."))

    def laid(entries: list[Entry]) -> RenderedPrompt:
        return render(OpeningChat(), SEPARATOR, sink, entries)

    rendered = laid(entries)
    assert rendered.ids[: len(sink) + 8] == [*sink, *entries[0].segments[0].ids]
    vision_tokens = 8 if first is Modality.IMAGE else 999
    window = ContextWindow(999 if first is Modality.IMAGE else 30, vision_tokens, 999, 999, 1.0)
    cuts = overflow(rendered, entries, window, line(len(rendered.ids)))
    assert cuts
    gone = {i for start, end in cuts for i in range(start, end)}
    again = laid(left(entries, rendered, cuts))
    assert again.ids == [token for i, token in enumerate(rendered.ids) if i not in gone]
    assert again.ids[: len(sink)] == list(sink)
