"""Engine.step when several sessions speak at once, and when there is more to do than time."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace

from headstart.engine import api
from headstart.engine.session.recognition import PassSharing
from tests.engine.commands import QUESTION, end, hush, respond
from tests.engine.fakes import HEARD_TOGETHER, Bench, echo

EITHER_BACKEND = True

SECOND_NS = 1_000_000_000
ON_CPU = PassSharing(4, one_in=4)


def chunks_of(bench: Bench, name: str, at_ns: list[int]) -> None:
    """Half-second chunks of an utterance that were received at those times."""
    ref = api.TurnRef(1)
    bench.tell(api.BeginSpeech(name, ref, "u1", 0))
    for number, received_ns in enumerate(at_ns):
        bench.tell(api.Audio(name, ref, number * 8_000, bytes(16_000), received_ns))


def test_chunks_of_several_sessions_share_one_pass() -> None:
    """What waits at the same time shares a pass, up to the bound, and each session reads the words
    of its own sound."""
    bench = Bench()
    names = [f"s{n}" for n in range(HEARD_TOGETHER + 1)]
    for name in names:
        bench.open(name)
    for name in names:
        chunks_of(bench, name, [bench.now_ns])
    bench.run()
    assert [len(heard) for heard in bench.recognizer.passes] == [HEARD_TOGETHER, 1]
    assert all(bench.stream_text(name) == "<S>Hi</><U>what si" for name in names)
    assert len(bench.of(api.Chunk)) == len(names)


def test_few_that_wait_have_a_pass_each() -> None:
    """On a CPU a pass takes nearly as long as its sounds one after another, and all wait for its
    end: only where many wait do some share one, and each reads its own words."""
    bench = Bench()
    bench.engine.parts = dataclasses.replace(bench.engine.parts, heard_together=ON_CPU)
    names = [f"s{n}" for n in range(17)]
    for name in names:
        bench.open(name)
    for name in names:
        chunks_of(bench, name, [bench.now_ns])
    bench.run()
    assert [len(heard) for heard in bench.recognizer.passes] == [4, 3, 2, 2, 1, 1, 1, 1, 1, 1]
    assert all(bench.stream_text(name) == "<S>Hi</><U>what si" for name in names)


def test_a_session_that_is_behind_catches_up_in_fewer_passes() -> None:
    """Late chunks that came live are heard together, with a report for each; the words and the
    answer are those of a session on time."""
    bench, on_time = Bench(), Bench()
    for b in (bench, on_time):
        b.open()
    bench.now_ns += 5 * SECOND_NS
    start_ns = bench.now_ns - 4 * SECOND_NS
    chunks_of(bench, "s", [start_ns + n * SECOND_NS // 2 for n in range(3)])
    bench.run()
    on_time.say()
    assert bench.recognizer.passes == [[24_000]]
    assert len(on_time.recognizer.passes) == 3
    reports = [e for e in bench.events if isinstance(e, api.Chunk)]
    assert [r.start_sample for r in reports] == [0, 8_000, 16_000]
    assert reports[0].latency_ms > 4_000 > reports[2].latency_ms
    for b in (bench, on_time):
        b.tell(hush(), end(), respond())
        b.run()
    assert bench.stream_text() == on_time.stream_text()
    assert bench.text() == on_time.text() == echo(QUESTION)


def test_without_headroom_only_sure_words_are_prefilled() -> None:
    """A chunk heard late brings its committed words into the cache and leaves its guesses out;
    the answer is the same."""
    bench = Bench()
    bench.open()
    bench.now_ns += 5 * SECOND_NS
    chunks_of(bench, "s", [bench.now_ns - SECOND_NS])
    bench.run()
    assert bench.stream_text() == "<S>Hi</><U>what"
    ref = api.TurnRef(1)
    for number in (1, 2):
        bench.tell(api.Audio("s", ref, number * 8_000, bytes(16_000), bench.now_ns))
        bench.run()
    assert bench.stream_text() == "<S>Hi</><U>what is the capital of ecnarf"
    bench.tell(hush(), end(), respond())
    bench.run()
    assert bench.text() == echo(QUESTION)


def test_guesses_that_stand_are_kept_without_headroom() -> None:
    """Nothing is thrown out of the cache to save work: a guess that is still made stays."""
    bench = Bench("what is")
    bench.open()
    ref = api.TurnRef(1)
    chunks_of(bench, "s", [bench.now_ns])
    bench.run()
    assert bench.stream_text() == "<S>Hi</><U>what si"
    bench.tell(api.Audio("s", ref, 8_000, bytes(2_000), bench.now_ns - SECOND_NS))
    bench.run()
    assert bench.stream_text() == "<S>Hi</><U>what si"
    assert bench.engine.sessions["s"].stream.rolled_back_kv_tokens == 0


def test_a_final_pass_goes_before_another_sessions_late_chunk() -> None:
    """Under load, who waits for an answer is served first."""
    bench = Bench()
    for name in ("s", "t"):
        bench.open(name)
    bench.say()
    bench.say("t", words=2)
    bench.now_ns += SECOND_NS
    late_ns = bench.now_ns - SECOND_NS * 3 // 4
    bench.tell(api.Audio("t", api.TurnRef(1), 8_000, bytes(16_000), late_ns))
    bench.tell(hush())
    bench.engine.step()
    assert bench.recognizer.finishes == 1


def test_sound_outside_of_an_utterance_fails_alone() -> None:
    """Sound without a beginning is reported; another session's chunk in the same pass is heard."""
    bench = Bench()
    for name in ("s", "t"):
        bench.open(name)
    bench.tell(api.Audio("t", api.TurnRef(1), 0, bytes(16_000), bench.now_ns))
    chunks_of(bench, "s", [bench.now_ns])
    bench.run()
    failed = [e for e in bench.events if isinstance(e, api.Failed)]
    assert [(e.session, e.about) for e in failed] == [("t", "audio")]
    assert bench.stream_text("s") == "<S>Hi</><U>what si"


@pytest.mark.our_decoder("counts its steps")
def test_an_answer_waits_for_one_sessions_pass_only() -> None:
    """While an answer is being decoded, the few sessions that wait are heard one in each step."""
    bench = Bench()
    bench.engine.parts = dataclasses.replace(bench.engine.parts, heard_together=ON_CPU)
    names = ["s", "t", "u"]
    for name in names:
        bench.open(name)
    bench.say()
    bench.tell(end(), respond())
    while not bench.text():
        bench.engine.step()
    bench.recognizer.passes.clear()
    for name in names[1:]:
        chunks_of(bench, name, [bench.now_ns])
    tokens = len(bench.text())
    bench.engine.step()
    bench.engine.step()
    assert [len(heard) for heard in bench.recognizer.passes] == [1, 1]
    assert len(bench.text()) > tokens
    bench.run()
    assert bench.text() == echo(QUESTION)


def test_a_turn_without_words_is_not_answered() -> None:
    """Noise that passed the VAD: nothing is speculated, no answer begins, and the stream reads as
    before. The next turn, with words, is answered as ever."""
    bench = Bench(script="")
    bench.open()
    before = bench.stream_text()
    bench.say(words=2)
    bench.tell(hush(), end(), replace(respond(), only_if_heard=True))
    bench.run()
    assert bench.finished().reason is api.FinishReason.CANCELLED
    assert bench.text() == ""
    assert bench.stream_text() == before
    bench.recognizer.words = ["hello"]
    bench.say(turn=2, words=1, item_id="u2")
    bench.tell(hush(2), end(2), replace(respond(2), only_if_heard=True))
    bench.run()
    assert bench.text(2) == "You said: hello."


def test_a_cough_does_not_swallow_the_question_before_it() -> None:
    """A cough cancels an answer of which nothing was sent: the next request, for the cough alone,
    answers the question."""
    bench = Bench(script="hello")
    bench.open()
    bench.say(words=1)
    bench.tell(end(), replace(respond(), only_if_heard=True), api.Cancel("s", 1))
    bench.run()
    bench.recognizer.words = []
    bench.say(turn=2, words=1, item_id="u2")
    bench.tell(end(2), replace(respond(2), only_if_heard=True))
    bench.run()
    assert bench.text(1) == ""
    assert bench.text(2) == "You said: hello."


def test_an_explicit_request_is_answered_without_words() -> None:
    """A client that wants an answer after an empty utterance gets one."""
    bench = Bench(script="")
    bench.open()
    bench.say(words=2)
    bench.tell(end(), respond())
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP


def test_pictures_are_told_of_when_they_wait_no_more() -> None:
    """Looked at, refused, or cancelled before it came to that: all their bytes come back once."""
    bench = Bench()
    bench.open()

    def told() -> list[int]:
        return [event.bytes for event in bench.events if isinstance(event, api.ImagesConsumed)]

    picture = api.Image(1, 1, bytes(3))
    item = api.Item("p", api.Role.USER, (picture, picture, api.Text("?")))
    bench.tell(api.AddItem("s", item), api.AddItem("s", item, "nowhere"))
    bench.run()
    assert told() == [6, 6]
    bench.tell(api.Respond("s", 1, "a", api.Sampling(), items=(item,)), api.Cancel("s", 1))
    assert told() == [6, 6, 6]
    bench.tell(api.Frame("s", 0, picture))
    bench.run()
    assert told() == [6, 6, 6, 3]
