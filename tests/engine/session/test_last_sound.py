"""The sound right before a hush or an end of speech: heard in the final pass, without one of its
own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from headstart.engine import api
from headstart.engine.errors import SoftTableFull
from headstart.engine.interfaces import Pcm
from tests.engine.fakes import WORD_SAMPLES, Bench, FakeWords, echo
from tests.engine.session.test_recognition import HandWorker, run

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=80)
QUESTION = "what is the capital of france"
FIRST, RESUMED = api.TurnRef(1), api.TurnRef(1, 1)
HUSH, END = api.Hush("s", FIRST, 0, speculate=GREEDY), api.EndSpeech("s", FIRST, 0)
RESPOND = api.Respond("s", 1, "a1", GREEDY)


@pytest.fixture(params=["within", "beside"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """A session that has heard four of six words; passes run within the steps, or beside them."""
    bench = Bench(worker=HandWorker() if request.param == "beside" else None)
    bench.open()
    bench.tell(api.BeginSpeech("s", FIRST, "u1", 0))
    for number in range(2):
        bench.tell(words(bench, 2 * number))
    go(bench)
    assert len(bench.recognizer.passes) == 2
    return bench


def words(
    bench: Bench, first: int, count: int = 2, ref: api.TurnRef = FIRST, late_ns: int = 0
) -> api.Audio:
    """So many words of the script, behind `first` others."""
    pcm = bytes(2 * count * WORD_SAMPLES)
    return api.Audio("s", ref, first * WORD_SAMPLES, pcm, bench.now_ns - late_ns)


def go(bench: Bench) -> None:
    """Until nothing is left to do."""
    worker = bench.engine.parts.recognition_worker
    if isinstance(worker, HandWorker):
        run(bench, worker)
    else:
        bench.run()


def newest(bench: Bench) -> api.Hearing:
    event = bench.of(api.Hearing)[-1]
    assert isinstance(event, api.Hearing)
    return event


@pytest.mark.parametrize("ends", [HUSH, END])
def test_it_has_no_pass_of_its_own(bench: Bench, ends: api.Command) -> None:
    """The words are those of all sound, told once, and the answer is to them. The chunk is
    reported, as a client's flow control needs."""
    told = len(bench.of(api.Hearing))
    bench.tell(words(bench, 4), ends)
    go(bench)
    assert len(bench.recognizer.passes) == 2
    assert bench.recognizer.finishes == 1
    assert len(bench.of(api.Hearing)) == told + 1
    assert newest(bench).final
    assert newest(bench).committed + newest(bench).tentative == QUESTION
    assert newest(bench).at_sample == 6 * WORD_SAMPLES
    if ends is HUSH:
        bench.tell(END)
    bench.tell(RESPOND)
    go(bench)
    assert bench.recognizer.finishes == 1
    assert bench.text() == echo(QUESTION)
    chunks = [event for event in bench.events if isinstance(event, api.Chunk)]
    assert [chunk.start_sample // WORD_SAMPLES for chunk in chunks] == [0, 2, 4]
    assert {"mel", "encode", "project", "prefill", "queue"} <= set(chunks[-1].stages_ms)


def test_all_chunks_that_wait_before_the_end_go_with_it(bench: Bench) -> None:
    """On time as well: none has a pass of its own."""
    second_ns = 10**9
    bench.now_ns += 10 * second_ns
    bench.tell(words(bench, 4, 1, late_ns=second_ns // 5), words(bench, 5, 1), END)
    go(bench)
    assert len(bench.recognizer.passes) == 2
    heard = bench.of(api.Heard)[-1]
    assert isinstance(heard, api.Heard)
    assert heard.text == QUESTION


def test_a_file_sent_fast_has_a_pass_for_each_chunk_but_the_last(bench: Bench) -> None:
    """It gives the words of a live session on schedule."""
    bench.tell(words(bench, 4, 1), words(bench, 5, 1), END)
    go(bench)
    assert bench.recognizer.passes[2:] == [[WORD_SAMPLES]]
    heard = bench.of(api.Heard)[-1]
    assert isinstance(heard, api.Heard)
    assert heard.text == QUESTION


def test_speech_goes_on_behind_it(bench: Bench) -> None:
    """Committed words only grow from one hearing to the next, and the turn ends in all words."""
    bench.tell(words(bench, 4, 1), HUSH)
    go(bench)
    assert "<A>" in bench.stream_text()  # an answer to what was said so far is speculated on
    bench.tell(api.Resume("s", RESUMED), words(bench, 5, 1, RESUMED))
    go(bench)
    assert not newest(bench).final
    assert "<A>" not in bench.stream_text()
    bench.tell(api.EndSpeech("s", RESUMED, 0), RESPOND)
    go(bench)
    assert bench.text() == echo(QUESTION)
    committed = [e.committed for e in bench.events if isinstance(e, api.Hearing)]
    assert all(b.startswith(a) for a, b in itertools.pairwise(committed))


def test_a_hush_that_is_taken_back_leaves_the_sound_its_pass(bench: Bench) -> None:
    """Speech resumed before the engine came to either."""
    bench.tell(words(bench, 4, 1), HUSH, api.Resume("s", RESUMED))
    go(bench)
    assert (len(bench.recognizer.passes), bench.recognizer.finishes) == (3, 0)


def test_sound_behind_a_hush_ends_its_speculation(bench: Bench) -> None:
    """A second hush with more sound and no resume between: the answer is to all of it."""
    bench.tell(words(bench, 4, 1), HUSH)
    go(bench)
    assert "capital of</U><A>You said" in bench.stream_text()
    bench.tell(words(bench, 5, 1), HUSH)
    go(bench)
    assert bench.recognizer.finishes == 2
    assert "capital of france</U><A>You said" in bench.stream_text()


def test_sound_that_cannot_be_heard_is_lost_and_the_turn_ends(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had a pass of its own: the failure is the sound's, and the words before it stay."""
    whole = bench.recognizer.finish

    def full(utterance: list[int], pcm: Pcm | None = None) -> FakeWords:
        if pcm is not None:
            raise SoftTableFull(8, 9)
        return whole(utterance)

    monkeypatch.setattr(bench.recognizer, "finish", full)
    bench.tell(words(bench, 4), END)
    go(bench)
    failed = [(e.about, e.code) for e in bench.events if isinstance(e, api.Failed)]
    assert failed == [("audio", "soft_table_full")]
    heard = bench.of(api.Heard)[-1]
    assert isinstance(heard, api.Heard)
    assert heard.text == "what is the capital"


def test_other_sessions_have_their_pass(bench: Bench) -> None:
    """One that speaks on is heard as before, and not together with the one that ends."""
    bench.tell(api.Open("t", "Hi"), api.BeginSpeech("t", FIRST, "u1", 0))
    other = api.Audio("t", FIRST, 0, bytes(2 * WORD_SAMPLES), bench.now_ns)
    bench.tell(other, words(bench, 4), END)
    go(bench)
    assert bench.recognizer.passes[2:] == [[WORD_SAMPLES]]
    assert [e.session for e in bench.events if isinstance(e, api.Heard)] == ["s"]


def test_a_continuation_has_the_sound_too(bench: Bench) -> None:
    """A message that goes on behind its end is heard again from all of its sound."""
    bench.tell(api.EndSpeech("s", FIRST, 0, may_continue=True))
    go(bench)
    second = api.TurnRef(2)
    heard: list[int] = []

    def listen(utterances: Sequence[list[int]], pcms: Sequence[Pcm]) -> list[FakeWords]:
        heard.extend(map(len, pcms))
        return whole(utterances, pcms)

    whole = bench.recognizer.recognize_batch
    bench.tell(api.BeginSpeech("s", second, "u2", 0, may_continue=True))
    bench.tell(words(bench, 4, 1, second), api.Hush("s", second, 0))
    go(bench)
    bench.recognizer.recognize_batch = listen  # type: ignore[method-assign]
    bench.tell(api.ContinueSpeech("s", second, "u1"))
    go(bench)
    assert sum(heard) == WORD_SAMPLES
    bench.tell(api.EndSpeech("s", second, 0))
    go(bench)
    said = bench.of(api.Heard)[-1]
    assert isinstance(said, api.Heard)
    assert said.text == "what is the capital of"
