"""Stills of a session in several resolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.errors import PictureNotEncoded
from headstart.engine.interfaces import Detail, View
from headstart.engine.kvcache.token_stream import Stream
from tests.engine.fakes import Bench
from tests.engine.test_engine import end, respond, user_item

QUESTION = "what is the capital of france"


class FakeStills:
    """As many tokens as the resolution says, a sixteenth of them. A question wants the highest."""

    def __init__(self) -> None:
        self.fails = False

    def detail_for(self, words: Sequence[str]) -> Detail:
        return Detail.HIGH if any("what" in text for text in words) else Detail.LOW

    def encode(self, image: api.Image, stream: Stream, detail: Detail) -> View:
        if self.fails:
            raise PictureNotEncoded(image.width, image.height)
        vectors = np.full((detail // 16, 4), image.rgb[0], np.float32)
        vectors[:, 1] = np.arange(len(vectors))
        vectors[:, 2] = detail
        ids = tuple(stream.soft.intern(vectors))
        return View(ids, f"picture {image.rgb[0]}", f"{image.rgb[0]} {detail}")


@pytest.fixture
def parts() -> Iterator[tuple[Bench, FakeStills]]:
    stills = FakeStills()
    bench = Bench(script=QUESTION, stills=stills)
    bench.open()
    picture = api.Image(1, 1, bytes([9, 0, 0]))
    bench.tell(api.AddItem("s", api.Item("p1", api.Role.USER, (picture,))))
    bench.run()
    yield bench, stills
    bench.close()


def picture_tokens(bench: Bench) -> int:
    stream = bench.engine.sessions["s"].stream
    return sum(token in stream.soft for token in stream.tokens)


def test_a_question_shows_it_once_more(parts: tuple[Bench, FakeStills]) -> None:
    """The lower resolution stays."""
    bench, _ = parts
    assert picture_tokens(bench) == Detail.LOW // 16
    bench.tell(api.AddItem("s", user_item("u1", "what is it")), respond(1))
    bench.run()
    assert picture_tokens(bench) == (Detail.LOW + Detail.HIGH) // 16


def test_a_removed_picture_is_not_shown_again(parts: tuple[Bench, FakeStills]) -> None:
    """Whoever deletes an item wants its picture gone, whatever is asked next."""
    bench, _ = parts
    bench.tell(api.RemoveItem("s", "p1"), api.AddItem("s", user_item("u1", "what is it")))
    bench.tell(respond(1))
    bench.run()
    assert picture_tokens(bench) == 0


def test_spoken_words_count_if_the_picture_cannot_be_shown(
    parts: tuple[Bench, FakeStills],
) -> None:
    """The fault has a name, and the turn goes on: the words are heard and become an item."""
    bench, stills = parts
    stills.fails = True
    bench.say(words=len(QUESTION.split()))
    bench.tell(end(), respond(1))
    bench.run()
    failed = [event.code for event in bench.events if isinstance(event, api.Failed)]
    assert failed == ["picture_not_encoded"]
    heard = [event.text for event in bench.events if isinstance(event, api.Heard)]
    assert heard == [QUESTION]
    assert bench.finished().reason is api.FinishReason.STOP


def test_a_session_is_restored_without_a_picture_that_cannot_be_encoded(
    parts: tuple[Bench, FakeStills],
) -> None:
    """Its item is reported; all others are there."""
    bench, stills = parts
    stills.fails = True
    picture = api.Item("p1", api.Role.USER, (api.Image(1, 1, b"rgb"),))
    bench.tell(api.Open("t", "Hi", items=(picture, user_item("u1", "hello"))))
    bench.run()
    failed = [
        (event.session, event.code, event.ref_id)
        for event in bench.events
        if isinstance(event, api.Failed)
    ]
    assert failed == [("t", "picture_not_encoded", "p1")]
    bench.tell(respond(1, "t"))
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP
