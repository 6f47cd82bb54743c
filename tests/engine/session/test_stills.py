"""Stills of a session in several resolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.errors import PictureNotEncoded
from headstart.engine.interfaces import Detail, StillPart, View
from headstart.engine.kvcache.token_stream import Stream
from tests.engine.commands import end, respond, user_item
from tests.engine.fakes import Bench, FakeImageEncoder

QUESTION = "what is the capital of france"


class FakeStills:
    """As many tokens as the resolution says, a sixteenth of them. A question wants the highest."""

    def __init__(self) -> None:
        self.fails = False
        self.encoded = 0
        self.before: list[api.Image | None] = []

    def parts_for(
        self,
        image: api.Image,
        words: Sequence[str],
        domain: bytes,
        before: api.Image | None = None,
    ) -> Sequence[StillPart]:
        self.before.append(before)
        if any("region" in text for text in words):
            return StillPart(Detail.LOW), StillPart(Detail.HIGH, 2, 4)
        return (StillPart(Detail.HIGH if any("what" in t for t in words) else Detail.LOW),)

    def encode(self, image: api.Image, stream: Stream, part: StillPart) -> View:
        if self.fails:
            raise PictureNotEncoded(image.width, image.height)
        detail = part.max_tokens
        self.encoded += 1
        vectors = np.full((detail // 16, 4), image.rgb[0], np.float32)
        vectors[:, 1] = np.arange(len(vectors))
        vectors[:, 2] = detail
        vectors[:, 3] = part.region
        ids = tuple(stream.soft.intern(vectors))
        return View(ids, f"picture {image.rgb[0]}", f"{image.rgb[0]} {detail}")

    def take_spans(self) -> list[api.Span]:
        taken, self.encoded = [api.Span("encode", 3, 5)] * self.encoded, 0
        return taken


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


@pytest.mark.parametrize("detail", [Detail.LOW, Detail.HIGH])
def test_a_client_chooses(parts: tuple[Bench, FakeStills], detail: Detail) -> None:
    """As many tokens as it says, whatever is asked: beside the picture or behind it."""
    bench, _ = parts
    before = picture_tokens(bench)
    for number, words in enumerate(("what is it", "here")):
        picture = api.Image(1, 1, bytes([3 + number, 0, 0]), detail)
        item = api.Item(f"c{number}", api.Role.USER, (picture, api.Text(words)))
        bench.tell(api.AddItem("s", item))
        bench.tell(api.AddItem("s", user_item(f"u{number}", "what is it")), respond(number + 1))
        bench.run()
    assert picture_tokens(bench) == before + 2 * detail // 16


def test_a_region_is_shown_beside_what_is_there(parts: tuple[Bench, FakeStills]) -> None:
    """Once: the overview is in the context already, and so is the region, when it is asked for
    again."""
    bench, _ = parts
    for number in (1, 2):
        bench.tell(api.AddItem("s", user_item(f"u{number}", "that region")), respond(number))
        bench.run()
        assert picture_tokens(bench) == (Detail.LOW + Detail.HIGH) // 16


def test_a_region_in_the_same_message_is_one_segment(parts: tuple[Bench, FakeStills]) -> None:
    """Overview and region belong to one picture, which the window evicts as a whole."""
    bench, _ = parts
    picture = api.Image(1, 1, bytes([5, 0, 0]))
    item = api.Item("p2", api.Role.USER, (picture, api.Text("that region")))
    bench.tell(api.AddItem("s", item), respond(1))
    bench.run()
    entries = bench.engine.sessions["s"].conversation.now()
    (entry,) = [entry for entry in entries if entry.item_id == "p2"]
    pictured = [s for s in entry.segments if s.modality is Modality.IMAGE]
    assert [len(segment.ids) for segment in pictured] == [(Detail.LOW + Detail.HIGH) // 16]
    bench.tell(api.AddItem("s", user_item("u2", "the same region")), respond(2))
    bench.run()
    assert picture_tokens(bench) == (2 * Detail.LOW + Detail.HIGH) // 16


def test_a_picture_is_compared_with_the_one_before(parts: tuple[Bench, FakeStills]) -> None:
    """Also by questions behind it; not once that one was removed."""
    bench, stills = parts
    second = api.Image(1, 1, bytes([5, 0, 0]))
    bench.tell(api.AddItem("s", api.Item("p2", api.Role.USER, (second,))))
    bench.tell(api.AddItem("s", user_item("u1", "what is it")), respond(1))
    bench.run()
    assert [None if image is None else image.rgb[0] for image in stills.before] == [None, 9, 9]
    bench.tell(api.RemoveItem("s", "p1"), api.AddItem("s", user_item("u2", "that region")))
    bench.tell(respond(2))
    bench.run()
    assert stills.before[3] is None
    both = api.Item("p3", api.Role.USER, (second, api.Image(1, 1, bytes([6, 0, 0]))))
    bench.tell(api.AddItem("s", both), api.RemoveItem("s", "p3"))
    bench.tell(api.AddItem("s", user_item("u3", "what is it")))
    bench.run()
    assert [None if image is None else image.rgb[0] for image in stills.before[4:]] == [5, 5]


def test_work_on_stills_is_in_the_turns_record(parts: tuple[Bench, FakeStills]) -> None:
    """With the first words of the answer, and once."""
    bench, _ = parts
    for number in (1, 2):
        bench.tell(api.AddItem("s", user_item(f"u{number}", "what is it")), respond(number))
        bench.run()
    deltas = [event for event in bench.events if isinstance(event, api.Delta)]
    first = {event.generation: event for event in reversed(deltas)}
    encoded = {n: [s for s in event.spans if s.stage == "encode"] for n, event in first.items()}
    assert encoded == {1: [api.Span("encode", 3, 5)] * 2, 2: []}


class SlowImageEncoder(FakeImageEncoder):
    """Takes a second, or, of a bright picture, says that it was done in an earlier one."""

    def __init__(self) -> None:
        self.bench: Bench | None = None

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        assert self.bench is not None
        began_ns = self.bench.now_ns
        self.bench.now_ns += 10**9
        view = super().encode_image(image, stream, live=live)
        beside = image.rgb[0] > 100
        return replace(view, encoded_ns=(began_ns - 10**9, began_ns)) if beside else view


def test_the_wait_for_a_picture_is_the_encoders() -> None:
    """A typed turn's first words tell when its picture and a frame before it were encoded, within
    the step or beside it, and when they were prefilled. Else its wait would be the queue's."""
    encoder = SlowImageEncoder()
    bench = encoder.bench = Bench(image_encoder=encoder)
    bench.open()
    for number, look in enumerate((9, 200), 1):
        at_ns = bench.now_ns
        picture = api.Image(1, 1, bytes([look, 0, 0]))
        parts = picture, api.Text("what is it")
        bench.tell(api.Frame("s", 0, api.Image(1, 1, bytes([number, 0, 0]))))
        bench.tell(api.AddItem("s", api.Item(f"u{number}", api.Role.USER, parts)))
        bench.run()
        bench.tell(respond(number))
        bench.run()
        deltas = [event for event in bench.events if isinstance(event, api.Delta)]
        first = next(delta for delta in deltas if delta.generation == number)
        spans = [span for span in first.spans if span.stage == "encode"]
        assert [span.end_ns - span.start_ns for span in spans] == pytest.approx([10**9] * 2, 1e-4)
        assert all(at_ns <= span.start_ns for span in spans)
        assert "prefill" in {span.stage for span in first.spans}
    bench.close()


def test_a_removed_picture_is_not_shown_again(parts: tuple[Bench, FakeStills]) -> None:
    """Whoever deletes an item wants its picture gone, whatever is asked next."""
    bench, _ = parts
    bench.tell(api.RemoveItem("s", "p1"), api.AddItem("s", user_item("u1", "what is it")))
    bench.tell(respond(1))
    bench.run()
    assert picture_tokens(bench) == 0


def test_a_refused_picture_is_not_shown_later(parts: tuple[Bench, FakeStills]) -> None:
    """A question is about the one before, as if the item had never come."""
    bench, stills = parts
    pictures = [api.Image(1, 1, bytes([letter, 0, 0])) for letter in (5, 6)]
    item = api.Item("p2", api.Role.USER, (*pictures, api.Text("that one " * 3000)))
    bench.tell(api.AddItem("s", item))
    bench.run()
    failed = [event.code for event in bench.events if isinstance(event, api.Failed)]
    assert failed == ["context_full"]
    bench.tell(api.AddItem("s", user_item("u1", "what is it")), respond(1))
    bench.run()
    stream = bench.engine.sessions["s"].stream
    soft = [stream.soft.vector(token) for token in stream.tokens if token in stream.soft]
    assert {vector[0] for vector in soft} == {9}
    assert len(soft) == (Detail.LOW + Detail.HIGH) // 16
    assert stills.before[-1] is None


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
