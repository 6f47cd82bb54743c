"""What is written in pictures, on its way into a conversation: a scripted reader, virtual time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from headstart.engine import api
from headstart.engine.interfaces import Look
from headstart.engine.session.writing import WAIT_NS, WAIT_REPORTED_NS, WAIT_UNASKED_NS
from tests.engine.fakes import WORD_SAMPLES, Bench, as_text

GREEDY = api.Sampling(repetition_penalty=1.0)


class FakeReading:
    """`headstart.engine.interfaces.Reading` of a picture's second byte."""

    def __init__(self, picture: api.Image, look: Look, now_ns: int, *, live: bool) -> None:
        self.picture, self.look, self.live = picture, look, live
        self.done = self.given_up = False
        self.queued_ns = self.began_ns = self.ended_ns = now_ns
        self.letter = chr(picture.rgb[1])
        self.has_more = self.letter == "M"

    def note(self, *, whole: bool) -> str:
        if self.letter == "-":
            return ""
        closely = self.look is Look.CLOSELY
        if self.letter.islower():  # small print, and little of it
            return f"[{self.letter}]" if closely else ""
        return f"[{self.letter * (1 + whole + 2 * closely)}]"

    @property
    def lines(self) -> tuple[str, ...]:
        return () if self.letter == "-" else (self.letter,)

    def same_as(self, other: Any) -> bool:
        return isinstance(other, FakeReading) and other.letter == self.letter


class FakeReader:
    """Reads when the test says so."""

    def __init__(self) -> None:
        self.begun: list[FakeReading] = []
        self.ready: list[FakeReading] = []
        self.forgotten: list[str] = []
        self.bench: Bench
        self._fd = os.eventfd(0)

    def look_for(self, question: str) -> Look:
        if "small print" in question:
            return Look.CLOSELY
        return Look.WRITING if "say" in question else Look.GLANCE

    def caveat(self, question: str) -> str:
        return "[?]" if "count" in question else ""

    def begin(
        self, picture: api.Image, owner: str, domain: bytes, after: Any, *, live: bool
    ) -> FakeReading:
        self.begun.append(FakeReading(picture, Look.GLANCE, self.bench.now_ns, live=live))
        return self.begun[-1]

    def begin_closer(self, reading: Any, domain: bytes) -> FakeReading | None:
        if reading.look is Look.CLOSELY:
            return None
        picture = reading.picture
        self.begun.append(FakeReading(picture, Look.CLOSELY, self.bench.now_ns, live=False))
        return self.begun[-1]

    def collect(self) -> None:
        for reading in self.ready:
            reading.done = True
        self.ready.clear()

    def finish(self, *, run: bool = True) -> None:
        """All that was begun is read, in 5 us each."""
        for reading in self.begun:
            reading.ended_ns = reading.began_ns + 5_000
        self.ready += self.begun
        self.begun.clear()
        if run:
            self.bench.run()

    def forget(self, owner: str) -> None:
        self.forgotten.append(owner)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def reader() -> FakeReader:
    return FakeReader()


@pytest.fixture
def bench(reader: FakeReader) -> Iterator[Bench]:
    bench = Bench("what does it say to me", reader=reader)
    reader.bench = bench
    bench.open()
    yield bench
    bench.close()


def picture(look: int, writing: str) -> api.Image:
    return api.Image(1, 1, bytes([look, ord(writing), 0]))


def show(bench: Bench, look: int, writing: str, session: str = "s") -> None:
    bench.tell(api.Frame(session, 0, picture(look, writing)))
    bench.run()


def write(bench: Bench, text: str, *parts: api.Part, number: int = 1) -> None:
    item = api.Item(f"u{number}", api.Role.USER, (*parts, api.Text(text)))
    bench.tell(api.AddItem("s", item))
    bench.run()


def ask(bench: Bench, number: int = 1) -> None:
    bench.tell(api.Respond("s", number, f"a{number}", GREEDY))
    bench.run()


def answered(bench: Bench) -> int:
    return len(bench.of(api.Finished))


def test_what_is_read_while_somebody_speaks_comes_behind_the_words_so_far(
    bench: Bench, reader: FakeReader
) -> None:
    """Nothing that was computed is thrown away for it but the tentative word."""
    bench.tell(api.BeginSpeech("s", api.TurnRef(1), "u1", 0))
    show(bench, 1, "A")
    pcm = bytes(2 * 3 * WORD_SAMPLES)
    bench.tell(api.Audio("s", api.TurnRef(1), 0, pcm, bench.now_ns))
    bench.run()
    stream = bench.engine.sessions["s"].stream
    before = stream.rolled_back_kv_tokens
    reader.finish()
    assert bench.stream_text() == "<S>Hi</><U>#what does[A] ti"
    assert stream.rolled_back_kv_tokens - before <= len(" ti")


def test_an_answer_about_writing_waits_for_it(bench: Bench, reader: FakeReader) -> None:
    """The note is in front of the question when the answer begins."""
    show(bench, 1, "A")
    write(bench, "what does it say")
    ask(bench)
    assert answered(bench) == 0
    before = bench.engine.awaits_reading
    reader.finish()
    assert answered(bench) == 1
    assert (before, bench.engine.awaits_reading) == (True, False)
    assert bench.stream_text().startswith("<S>Hi</><U>#[AA]what does it say</U>")


def test_meanwhile_others_are_heard(bench: Bench, reader: FakeReader) -> None:
    """While one session's answer waits, another one's audio is recognised."""
    show(bench, 1, "A")
    write(bench, "what does it say")
    ask(bench)
    bench.open("other")
    bench.say("other")
    heard = [event.session for event in bench.events if isinstance(event, api.Hearing)]
    assert heard == ["other"] * 3
    assert answered(bench) == 0


def test_speech_behind_the_question_does_not_wait(bench: Bench, reader: FakeReader) -> None:
    """Audio of the same session ends the wait."""
    show(bench, 1, "A")
    write(bench, "what does it say")
    ask(bench)
    bench.say(words=2)
    assert len(bench.of(api.Hearing)) == 1
    assert answered(bench) == 1


def test_another_question_does_not_wait_for_a_frame(bench: Bench, reader: FakeReader) -> None:
    """What is read later is there for the next question."""
    show(bench, 1, "A")
    write(bench, "how are you")
    ask(bench)
    assert answered(bench) == 1
    reader.finish()
    write(bench, "really?", number=2)
    assert bench.stream_text().endswith("<U>[A]really?")


def test_a_picture_sent_with_a_question_is_read_first(bench: Bench, reader: FakeReader) -> None:
    """The note stands right behind the picture."""
    write(bench, " here", picture(1, "A"))
    ask(bench)
    assert answered(bench) == 0
    reader.finish()
    assert answered(bench) == 1
    assert bench.stream_text().startswith("<S>Hi</><U>#[A] here</U>")


@pytest.mark.parametrize(
    ("text", "wait_ns"), [("what does it say", WAIT_NS), ("here", WAIT_UNASKED_NS)]
)
def test_a_reading_that_never_ends_is_waited_for_so_long(
    bench: Bench, reader: FakeReader, text: str, wait_ns: int
) -> None:
    """Then the answer begins without it."""
    write(bench, text, picture(1, "A"))
    ask(bench)
    bench.now_ns += wait_ns - 100_000
    bench.run()
    assert answered(bench) == 0
    bench.now_ns += 200_000
    bench.run()
    assert answered(bench) == 1


def test_the_same_words_are_told_once(bench: Bench, reader: FakeReader) -> None:
    """A frame with the same words, or with none, adds nothing."""
    for look, writing in ((1, "A"), (2, "A"), (3, "-"), (4, "B")):
        show(bench, look, writing)
        reader.finish()
    bench.tell(api.BeginSpeech("s", api.TurnRef(1), "u1", 0))
    bench.run()
    assert bench.stream_text().count("[A]") <= 1
    assert bench.stream_text().endswith("[B]")


def test_more_of_it_when_asked(bench: Bench, reader: FakeReader) -> None:
    """The longer note comes with the question, and only once."""
    show(bench, 1, "A")
    reader.finish()
    write(bench, "hello")
    ask(bench)
    write(bench, "what does it say", number=2)
    assert "[AA]" in bench.stream_text().rpartition("<U>")[2]
    ask(bench, 2)
    write(bench, "say again", number=3)
    assert "[AA]" not in bench.stream_text().rpartition("<U>")[2]


@pytest.mark.parametrize(("text", "writing"), [("the small print", "A"), ("what does it say", "M")])
def test_a_closer_look_at_the_same_picture(
    bench: Bench, reader: FakeReader, text: str, writing: str
) -> None:
    """For small print, or where a glance has not read all."""
    show(bench, 1, writing)
    reader.finish()
    write(bench, text)
    ask(bench)
    assert answered(bench) == 0
    reader.finish()
    assert answered(bench) == 1
    assert f"[{writing * 4}]" in bench.stream_text()


def test_small_print_behind_a_larger_sign_is_told(bench: Bench, reader: FakeReader) -> None:
    """A glance at the second picture finds nothing, a closer look less than the first sign has."""
    show(bench, 1, "A")
    reader.finish()
    write(bench, "the small print")
    ask(bench)
    reader.finish()
    assert "[AAAA]" in bench.stream_text()
    show(bench, 2, "b")
    reader.finish()
    write(bench, "the small print", number=2)
    ask(bench, 2)
    reader.finish()
    assert "[b]" in bench.stream_text().rpartition("[AAAA]")[2]


def test_a_further_answer_does_not_wait_for_the_newest_frame(
    bench: Bench, reader: FakeReader
) -> None:
    """The question was answered; a call's result brings no new one."""
    show(bench, 1, "A")
    write(bench, "what does it say")
    ask(bench)
    reader.finish()
    show(bench, 2, "B")
    assert bench.engine.is_reading
    ask(bench, 2)
    assert answered(bench) == 2


@pytest.mark.parametrize(
    ("question", "letters"), [("what does it say", "AA"), ("read the small print", "AAAA")]
)
def test_who_goes_on_speaking_keeps_the_note(
    reader: FakeReader, question: str, letters: str
) -> None:
    """What was read between an early end and the rest of the message is told with the whole."""
    bench = Bench(f"{question} to me", reader=reader)
    reader.bench = bench
    bench.open()
    show(bench, 1, "A")
    if letters == "AAAA":  # a closer look, whose note has no place of its own
        reader.finish()
    bench.say(words=len(question.split()))
    first, second = api.TurnRef(1), api.TurnRef(2)
    bench.tell(api.Hush("s", first, 0), api.EndSpeech("s", first, 0, may_continue=True))
    ask(bench)
    reader.finish()
    assert answered(bench) == 1
    assert f"[{letters}]" in bench.stream_text()
    bench.tell(api.BeginSpeech("s", second, "u2", 0, may_continue=True))
    bench.tell(api.Audio("s", second, 0, bytes(2 * WORD_SAMPLES), bench.now_ns))
    bench.tell(api.ContinueSpeech("s", second, "u1", "a1"))
    bench.run()
    assert f"[{letters}]" in bench.stream_text()
    assert bench.stream_text().count("<U>") == 1
    bench.close()


def test_an_answer_out_of_band_does_not_wait(bench: Bench, reader: FakeReader) -> None:
    """It sees no picture of the conversation."""
    show(bench, 1, "A")
    write(bench, "what does it say")
    items = (api.Item("i", api.Role.USER, (api.Text("apart from that"),)),)
    bench.tell(api.Respond("s", 1, "a1", GREEDY, items=items))
    bench.run()
    assert answered(bench) == 1
    assert bench.finished(1).read is None


def ask_beside(
    bench: Bench, text: str, *parts: api.Part, number: int = -1, reported: bool = False
) -> None:
    """An answer out of band to pictures of its own."""
    items = (api.Item("i", api.Role.USER, (*parts, api.Text(text))),)
    ask = api.Respond("s", number, f"a{number}", GREEDY, items=items, reports_writing=reported)
    bench.tell(ask)
    bench.run()


def prompt_beside(bench: Bench, reader: FakeReader) -> str:
    """What the answer reads when all that was begun is read."""
    reader.finish(run=False)
    while not (asides := bench.engine.sessions["s"].side_answers):
        assert bench.engine.step()
    tokens = asides[0].stream.tokens[: len(asides[0].prompt.ids)]
    bench.run()
    return as_text(tokens)


def test_an_answer_out_of_band_has_its_own_pictures_read(bench: Bench, reader: FakeReader) -> None:
    """It waits for them; each note is behind its picture, and the words are reported."""
    ask_beside(bench, " what does it say", picture(1, "A"), picture(2, "-"), picture(3, "B"))
    assert answered(bench) == 0
    assert bench.engine.awaits_reading
    assert prompt_beside(bench, reader) == "<S>Hi</><U>#[AA]##[BB] what does it say</U><A>"
    assert bench.finished(-1).read == (("A",), (), ("B",))
    assert reader.forgotten == ["s/-1"]


@pytest.mark.parametrize(("text", "writing"), [("the small print", "A"), ("what does it say", "M")])
def test_a_closer_look_out_of_band(
    bench: Bench, reader: FakeReader, text: str, writing: str
) -> None:
    """For small print, or where a glance has not read all."""
    ask_beside(bench, text, picture(1, writing))
    if writing == "M":
        reader.finish()
        assert answered(bench) == 0
    assert f"#[{writing * 4}]{text}" in prompt_beside(bench, reader)


def test_a_closer_look_out_of_band_that_fails(bench: Bench, reader: FakeReader) -> None:
    """What a glance has read is told all the same."""
    ask_beside(bench, "what does it say", picture(1, "M"))
    reader.finish()
    (closer,) = reader.begun
    closer.given_up = True
    assert "#[MM]" in prompt_beside(bench, reader)
    assert bench.finished(-1).read == (("M",),)


@pytest.mark.parametrize(
    ("text", "reported", "wait_ns"),
    [
        ("what does it say", False, WAIT_NS),
        ("here", False, WAIT_UNASKED_NS),
        ("here", True, WAIT_REPORTED_NS),
    ],
)
def test_an_answer_out_of_band_waits_for_so_long(
    bench: Bench, reader: FakeReader, text: str, reported: bool, wait_ns: int
) -> None:
    """Then it begins without what was not read, and tells that. It waits longest for a client that
    is to be told what is written."""
    ask_beside(bench, text, picture(1, "A"), reported=reported)
    bench.now_ns += wait_ns - 100_000
    bench.run()
    assert answered(bench) == 0
    bench.now_ns += 200_000
    bench.run()
    assert bench.finished(-1).read == (None,)


def test_an_answer_out_of_band_that_waits_can_be_cancelled(
    bench: Bench, reader: FakeReader
) -> None:
    """Its pictures are not read to their end."""
    ask_beside(bench, "what does it say", picture(1, "A"))
    bench.tell(api.Cancel("s", -1))
    bench.run()
    assert bench.finished(-1).reason is api.FinishReason.CANCELLED
    assert reader.forgotten == ["s/-1"]
    ask_beside(bench, "what does it say", picture(2, "B"), number=-2)
    assert reader.forgotten == ["s/-1"]
    reader.finish()
    assert bench.finished(-2).read == (("B",),)


def test_an_answer_out_of_band_that_cannot_begin(bench: Bench, reader: FakeReader) -> None:
    """Nothing is kept of its pictures."""
    ask_beside(bench, "what does it say " * 2000, picture(1, "A"))
    reader.finish()
    assert bench.finished(-1).reason is api.FinishReason.FAILED
    assert reader.forgotten == ["s/-1"]


def test_an_answer_that_waits_can_be_cancelled(bench: Bench, reader: FakeReader) -> None:
    """The next one waits its full time."""
    show(bench, 1, "A")
    write(bench, "what does it say")
    ask(bench)
    bench.now_ns += WAIT_NS - 1_000_000
    bench.tell(api.Cancel("s", 1), api.Respond("s", 2, "a2", GREEDY))
    bench.run()
    assert bench.finished(1).reason is api.FinishReason.CANCELLED
    bench.now_ns += 2_000_000
    bench.run()
    assert answered(bench) == 1
    reader.finish()
    assert answered(bench) == 2


def test_a_reading_for_a_session_in_host_memory(reader: FakeReader) -> None:
    """An idle session may be offloaded before its picture is read; it comes back for the note."""
    bench = Bench(reader=reader, host_blocks=64)
    reader.bench = bench
    bench.open(instructions="Hi there, you are a helpful assistant")
    show(bench, 1, "A")
    stream = bench.engine.sessions["s"].stream
    assert stream.offload(bench.admission.host)
    reader.finish()
    assert not stream.offload_slot.offloaded
    assert "[A]" in bench.stream_text()
    bench.close()


def test_what_cannot_be_told_is_said_where_there_is_a_picture(
    bench: Bench, reader: FakeReader
) -> None:
    """Without a picture in view there is nothing to admit."""
    write(bench, "count the cups")
    assert "[?]" not in bench.stream_text()
    ask(bench)
    show(bench, 1, "-")
    reader.finish()
    write(bench, "count the cups", number=2)
    assert bench.stream_text().endswith("[?]count the cups")


def test_it_is_said_once_however_often_the_question_pauses(reader: FakeReader) -> None:
    """Each pause takes the question anew."""
    bench = Bench("count the cups for me now", reader=reader)
    reader.bench = bench
    bench.open()
    show(bench, 1, "-")
    reader.finish()
    bench.say(words=3)
    ref, sound = api.TurnRef(1), bytes(2 * WORD_SAMPLES)
    for _ in range(2):
        bench.tell(api.Hush("s", ref, 0), api.Resume("s", ref))
        bench.run()
        bench.tell(api.Hush("s", ref, 0))
        bench.run()
        bench.tell(api.Resume("s", ref), api.Audio("s", ref, 0, sound, bench.now_ns))
        bench.run()
    assert bench.stream_text().count("[?]") == 1
    bench.close()


def test_the_time_is_in_the_budget(bench: Bench, reader: FakeReader) -> None:
    """The first text has a span of the stage `read`."""
    write(bench, "what does it say", picture(1, "A"))
    ask(bench)
    reader.finish()
    (first, *_) = [e for e in bench.events if isinstance(e, api.Delta)]
    (span,) = [span for span in first.spans if span.stage == "read"]
    assert span.end_ns - span.start_ns == 5_000


def test_a_closed_session_is_forgotten(bench: Bench, reader: FakeReader) -> None:
    """Its pictures are dropped, and what was being read harms nobody."""
    show(bench, 1, "A")
    bench.tell(api.Close("s"))
    bench.run()
    assert reader.forgotten == ["s"]
    reader.finish()
