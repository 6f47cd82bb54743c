"""No hold outlives its reason, whatever comes: the answer's sound stands still only while somebody
speaks who may mean to interrupt, and only while there is an answer or sound of one."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from headstart.gateway.session.utterance import Standing, Utterance
from tests.gateway import speech
from tests.gateway.session.test_barge_in import SECOND, answering, sing
from tests.gateway.session_bench import SessionBench, silence_pcm

HUM = speech.join(speech.voice(400))


def held_speech(bench: SessionBench) -> list[Utterance]:
    speech_in = bench.session._speech
    over = speech_in._undecided
    both = (speech_in._open, over.utterance if over is not None else None)
    return [spoken for spoken in both if spoken is not None and spoken.standing is Standing.HELD]


def check(bench: SessionBench) -> None:
    """Playout, books and speech agree, and there is something to hold."""
    answers, out = bench.session._responses, bench.session._out
    assert answers.active or bench.session._turns._waiting is None, "a question waits for nothing"
    held = out._held_ns is not None
    assert bench.holds() == held
    assert held == bool(held_speech(bench))
    if held:
        assert out._held_ns is not None
        at_ns = out._held_ns if bench.session._context.playout_pauses else bench.now_ns
        assert answers.is_active or at_ns < out._plays_until_ns


def newest_generation(bench: SessionBench) -> int:
    generation: int = bench.commands(api.Respond)[-1].generation
    return generation


def item_of(bench: SessionBench) -> str | None:
    added = bench.of("response.output_item.added")
    return added[-1]["item"]["id"] if added else None


def step(bench: SessionBench, name: str) -> None:
    running = bench.session._responses.active_item() is not None
    match name:
        case "speak":
            bench.hear(HUM)
        case "pause":
            bench.hear(silence_pcm(260))
        case "silence":
            bench.hear(silence_pcm(700))
        case "word" | "words" | "nothing" if bench.commands(api.Audio):
            text = {"word": " Stop", "words": " wait a moment", "nothing": ""}[name]
            bench.hearing(text, final=name != "words")
        case "clear":
            bench.client("output_audio_buffer.clear")
        case "played":  # what the playout held is dropped: so much of it was not heard
            bench.cleared(SECOND)
        case "cancel":
            bench.client("response.cancel")
        case "truncate" if (item_id := item_of(bench)) is not None:
            bench.client(
                "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100
            )
        case "delta" if running:
            delta = api.Delta("sess_test", newest_generation(bench), " And on.", bench.now_ns)
            bench.engine(delta)
        case "say":
            bench.say_all(SECOND)
        case "done" if running:
            bench.finish(newest_generation(bench), "It is big.")
        case "cancelled" if running:
            bench.finish(newest_generation(bench), "It", api.FinishReason.CANCELLED)
        case "ask":
            bench.client("response.create")
        case "lost":
            bench.engine_lost()
            bench.engine_ready()
        case "tick":
            bench.tick(500)


NAMES = [
    *("speak", "speak", "pause", "silence", "word", "words", "nothing", "clear", "played"),
    *("cancel", "truncate", "delta", "say", "done", "cancelled", "ask", "lost", "tick"),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(NAMES), max_size=14), st.booleans())
def test_no_hold_outlives_its_reason(names: list[Any], stock: bool) -> None:
    """In any order of speech, words, clear, cancel, truncate, done and a lost engine; whether the
    sound stands still meanwhile or, with a `stock` client, does not."""
    bench = answering(stock=stock)
    check(bench)
    sing(bench, 400)
    for name in names:
        step(bench, name)
        check(bench)


def test_a_clear_ends_the_hold_at_once() -> None:
    """Of an answer that is over and was still played: there is nothing left to hold, and its words
    decide as before whether somebody spoke."""
    bench = answering()
    bench.finish(1, "It is big. And it is")
    bench.say_all(SECOND)
    sing(bench, 400)
    assert bench.holds()
    bench.client("output_audio_buffer.clear")
    assert not bench.holds()
    assert not held_speech(bench)
    assert bench.session._out._held_ns is None
    bench.hear(silence_pcm(260))
    bench.hearing("Okay.", final=True)
    bench.hear(silence_pcm(600))
    assert bench.of("input_audio_buffer.committed")


def test_a_clear_while_the_answer_goes_on_keeps_what_follows_back() -> None:
    """The playout forgets that it is held; who speaks is still waited for."""
    bench = answering()
    sing(bench, 400)
    bench.client("output_audio_buffer.clear")
    assert bench.holds()
    bench.hear(silence_pcm(260))
    bench.hearing("", final=True)
    assert not bench.holds()
