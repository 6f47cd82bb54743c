"""Nobody speaks behind an answer: virtual time, and the engine's part played by the test."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine import api
from headstart.gateway.default_prompts import SILENCE, SILENCE_NOTE
from headstart.gateway.session.idle import IdleClock
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

TRIGGERED = "input_audio_buffer.timeout_triggered"


def bench_with(timeout_ms: int | None = 5_000, **fields: Any) -> SessionBench:
    """A session that has a voice and prompts who says nothing."""
    bench = SessionBench(speaks=True)
    detection = {"type": "server_vad", "idle_timeout_ms": timeout_ms, **fields}
    wanted = {"turn_detection": detection, "transcription": {"model": "whisper-1"}}
    bench.update(audio={"input": wanted})
    return bench


def answer(bench: SessionBench, sound_ms: int = 1_000) -> None:
    """An answer that was asked for is given, and spoken for so long."""
    bench.answer("It is big.")
    bench.say_all(24 * sound_ms)


def asked(bench: SessionBench, sound_ms: int = 1_000) -> None:
    bench.client("response.create")
    answer(bench, sound_ms)
    bench.clear()


def test_a_silence_behind_an_answer_is_an_item_and_has_an_answer() -> None:
    """Counted from where its sound has been played: told, committed as an item without words, and
    answered by a model that reads of it; the conversation goes on from there."""
    bench = bench_with()
    bench.hear(silence_pcm(500))
    asked(bench, sound_ms=2_000)
    bench.hear(silence_pcm(6_900))
    assert bench.types() == [], "2 s of sound and 5 of silence"
    bench.hear(silence_pcm(200))
    assert bench.types()[:4] == [
        TRIGGERED,
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    told = bench.last(TRIGGERED)
    assert told["audio_start_ms"] == pytest.approx(2_500, abs=25)
    assert told["audio_end_ms"] - told["audio_start_ms"] == 5_000
    item = bench.last("conversation.item.done")["item"]
    assert (item["id"], item["role"]) == (told["item_id"], "user")
    assert item["content"] == [{"type": "input_audio", "transcript": ""}]
    words = bench.last("conversation.item.input_audio_transcription.completed")
    assert (words["transcript"], words["usage"]["seconds"]) == ("", 5.0)
    assert bench.types()[5:] == ["response.created"]
    added = bench.commands(api.AddItem)[-1].item
    assert (added.item_id, added.role, added.parts) == (item["id"], "user", (api.Text(SILENCE),))
    assert bench.respond_command().instructions == SILENCE_NOTE
    assert bench.commands(api.BeginSpeech) == []
    answer(bench)
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_it_prompts_again_behind_its_own_prompt() -> None:
    """Each answer is one to wait behind, and each is waited behind once."""
    bench = bench_with()
    asked(bench)
    for prompts in (1, 2):
        bench.hear(silence_pcm(7_000))
        assert len(bench.of(TRIGGERED)) == prompts
        answer(bench)


def test_speech_starts_it_anew() -> None:
    """A question in time is answered as ever, and silence counts from behind that answer."""
    bench = bench_with()
    asked(bench)
    bench.hear(silence_pcm(5_000) + clip_pcm("capital.wav") + silence_pcm(1_000))
    assert len(bench.of("input_audio_buffer.speech_stopped")) == 1
    answer(bench)
    bench.hear(silence_pcm(5_500))
    assert bench.of(TRIGGERED) == []
    bench.hear(silence_pcm(1_000))
    assert len(bench.of(TRIGGERED)) == 1


def test_not_before_an_answer_and_not_without_sound() -> None:
    """Who has not been answered yet is not hurried; a client that sends nothing is absent."""
    bench = bench_with()
    bench.hear(silence_pcm(12_000))
    assert bench.of(TRIGGERED) == []
    asked(bench)
    for _ in range(200):
        bench.tick()
    assert bench.of(TRIGGERED) == []


@pytest.mark.parametrize("timeout_ms", [None, 5_000])
def test_who_wants_no_answers_gets_none(timeout_ms: int | None) -> None:
    """Without the setting; and, as the API has it, where neither speech is answered nor answers are
    interrupted."""
    fields = {} if timeout_ms is None else {"create_response": False, "interrupt_response": False}
    bench = bench_with(timeout_ms, **fields)
    asked(bench)
    bench.hear(silence_pcm(12_000))
    assert bench.of(TRIGGERED) == []


def test_what_was_silent_before_it_was_asked_for_does_not_count() -> None:
    """Switched off and on again, it begins anew."""
    bench = bench_with()
    asked(bench)
    bench.hear(silence_pcm(4_000))
    for timeout_ms in (None, 5_000):
        detection = {"type": "server_vad", "idle_timeout_ms": timeout_ms}
        bench.update(audio={"input": {"turn_detection": detection}})
        bench.hear(silence_pcm(4_000))
    assert bench.of(TRIGGERED) == []
    bench.hear(silence_pcm(1_100))
    assert len(bench.of(TRIGGERED)) == 1


def test_a_failed_answer_is_not_followed_by_a_prompt() -> None:
    """Or an engine that fails would be asked for ever; nor is one asked that is not there."""
    bench = bench_with()
    bench.client("response.create")
    bench.finish(bench.respond_command().generation, "", api.FinishReason.FAILED)
    bench.hear(silence_pcm(7_000))
    assert bench.of(TRIGGERED) == []
    asked(bench)
    bench.engine_lost()
    bench.hear(silence_pcm(7_000))
    assert bench.of(TRIGGERED) == []
    bench.engine_ready()
    bench.hear(silence_pcm(5_100))
    assert len(bench.of(TRIGGERED)) == 1


def test_a_long_packet_and_a_call_are_looked_at_too() -> None:
    """An append of many seconds in its pieces, and the sound of a track."""
    bench = bench_with()
    asked(bench)
    bench.tick(1_000)
    bench.hear(silence_pcm(8_000), 8_000 * 48, realtime=False)
    assert len(bench.of(TRIGGERED)) == 1
    answer(bench)
    bench.tick(1_000)
    for _ in range(260):
        bench.tick(20)
        bench.track(silence_pcm(20), bench.now_ns)
    assert len(bench.of(TRIGGERED)) == 2


# --- the clock -----------------------------------------------------------------------------------

TIMEOUT = 80_000


def test_nothing_is_waited_for_before_an_answer() -> None:
    """However long it is silent."""
    clock = IdleClock()
    assert clock.look(0, TIMEOUT, busy=False) is None
    assert clock.look(10 * TIMEOUT, TIMEOUT, busy=False) is None


def test_silence_counts_from_the_last_sound_on() -> None:
    """What is said or played in between starts it anew; once it is time, another answer must come
    first."""
    clock = IdleClock()
    clock.arm()
    assert clock.look(1_000, TIMEOUT, busy=True) is None
    assert clock.look(2_000, TIMEOUT, busy=False) is None
    assert clock.look(70_000, TIMEOUT, busy=True) is None
    assert clock.look(71_000, TIMEOUT, busy=False) is None
    assert clock.look(71_000 + TIMEOUT - 1, TIMEOUT, busy=False) is None
    assert clock.look(71_000 + TIMEOUT, TIMEOUT, busy=False) == (71_000, 71_000 + TIMEOUT)
    assert clock.look(99 * TIMEOUT, TIMEOUT, busy=False) is None
    clock.arm()
    assert clock.look(100 * TIMEOUT, TIMEOUT, busy=False) is None, "counted from here"


@given(st.lists(st.integers(1, 3_000), min_size=60))
def test_packets_of_any_size_end_it_at_the_same_sample(packets: list[int]) -> None:
    """The silence told is as long as was asked for."""
    clock = IdleClock()
    clock.arm()
    now, told = 0, []
    for samples in [0, *packets, TIMEOUT]:
        now += samples
        silence = clock.look(now, TIMEOUT, busy=False)
        told += [] if silence is None else [silence]
    assert told == [(0, TIMEOUT)]
