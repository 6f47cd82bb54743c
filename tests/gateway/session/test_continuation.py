"""A message that was answered too early and goes on: the answer is taken back, in virtual time."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.session.continuation import LONGEST_SAMPLES
from headstart.gateway.tts.messages import Stop
from tests.gateway.eager_bench import (
    COMMITTED,
    CONTINUED,
    DELETED,
    HALF,
    REST,
    SECOND,
    STARTED,
    STOPPED,
    answered,
    eager,
    end,
    go_on,
    hear,
    item_id,
    messages,
    say,
)
from tests.gateway.session_bench import Json, SessionBench, clip_pcm, silence_pcm

# --- taken back ----------------------------------------------------------------------------------


def test_it_is_answered_early() -> None:
    """Where the message reads as whole, the answer is asked for within 300 ms of silence."""
    bench = eager()
    say(bench)
    spoken_ms = bench.now_ns / 1e6
    end(bench, HALF)
    assert bench.commands(api.Respond)
    assert bench.last(STOPPED)["audio_end_ms"] - spoken_ms <= 300
    assert bench.commands(api.EndSpeech)[-1].may_continue


@pytest.mark.parametrize("speaks", [True, False])
def test_one_message_in_the_end(speaks: bool) -> None:
    """The person goes on: the answer is gone, for the client and for the engine, and what is left
    is one message with all words, and its own answer."""
    bench = eager(speaks=speaks)
    generation = answered(bench)
    first, answer = item_id(bench), bench.respond_command().item_id
    go_on(bench)
    second = item_id(bench)
    assert [c.generation for c in bench.commands(api.Cancel)] == [generation]
    (joined,) = bench.commands(api.ContinueSpeech)
    assert (joined.item_id, joined.answer_id) == (first, answer)
    bench.finish(generation, "It is big. It is", api.FinishReason.CANCELLED)
    end(bench, HALF + REST)
    bench.answer("Paris.")
    bench.say_all()
    assert [event["item_id"] for event in bench.of(DELETED)] == [answer, first]
    assert messages(bench) == [("user", HALF + REST), ("assistant", "Paris.")]
    (told,) = bench.of(CONTINUED)
    assert (told["item_id"], told["continued_item_id"]) == (second, first)
    assert told["response_id"] == bench.of("response.created")[0]["response"]["id"]
    (done, _) = bench.of("response.done")
    assert done["response"]["status_details"]["reason"] == "turn_detected"
    completed = bench.last("conversation.item.input_audio_transcription.completed")
    assert (completed["item_id"], completed["transcript"]) == (second, HALF + REST)
    assert not bench.commands(api.RemoveItem)


def test_the_events_come_in_the_documented_order() -> None:
    """As the protocol's README has it, but for those of audio and text."""
    bench = eager()
    generation = answered(bench)
    bench.sent.clear()
    go_on(bench)
    bench.finish(generation, "It is big. It is", api.FinishReason.CANCELLED)
    end(bench, HALF + REST)
    wanted = (STARTED, STOPPED, COMMITTED, DELETED, CONTINUED, "response.done", "response.created")
    assert [kind for kind in bench.types() if kind in wanted] == [
        *(STARTED, CONTINUED, "response.done", DELETED),
        *(STOPPED, DELETED, COMMITTED, "response.created"),
    ]


def test_the_sound_stops_at_the_first_sign_of_speech() -> None:
    """Where the server plays it: held as soon as the VAD has speech, cleared when it is words."""
    bench = eager()
    generation = answered(bench)
    bench.playout_cleared = 0
    bench.hear(silence_pcm(300))
    assert not bench.holds()
    say(bench, 140)
    assert bench.holds()
    say(bench, 460)
    bench.hearing("of France")
    assert bench.playout_cleared == 1
    assert Stop("sess_test", generation) in bench.uttered


@pytest.mark.parametrize("speaks", [True, False])
def test_an_answer_that_is_over_is_taken_back_too(speaks: bool) -> None:
    """All of it was said, and most of it heard."""
    bench = eager(speaks=speaks)
    answered(bench, "It is big.")
    bench.finish(1, "It is big.")
    bench.say_all(SECOND)
    assert bench.of("response.done")
    answer = bench.respond_command().item_id
    go_on(bench, 700)
    assert not bench.commands(api.Cancel)
    assert [event["item_id"] for event in bench.of(DELETED)] == [answer]
    end(bench, HALF + REST)
    assert messages(bench) == [("user", HALF + REST)]


def test_before_the_answers_first_word() -> None:
    """Nobody has heard of it: no response is named, and none was there."""
    bench = eager()
    say(bench)
    end(bench, HALF)
    go_on(bench)
    bench.finish(1, "", api.FinishReason.CANCELLED)
    end(bench, HALF + REST)
    assert messages(bench) == [("user", HALF + REST)]
    assert len(bench.commands(api.Respond)) == 2


def test_later_it_is_an_interruption() -> None:
    """After the window: two messages, and the first answer stays, as far as it was heard."""
    bench = eager()
    generation = answered(bench)
    go_on(bench, 1700)
    bench.finish(generation, "It is big. It is", api.FinishReason.CANCELLED)
    bench.cleared(2 * SECOND)
    end(bench, "of France")
    assert not bench.commands(api.ContinueSpeech)
    assert not bench.of(DELETED)
    assert [role for role, _ in messages(bench)] == ["user", "assistant", "user"]


def test_what_follows_a_heard_answer_is_a_reply() -> None:
    """A short one that was played to its end within the window: the next message stands by itself,
    and the answer stays."""
    bench = eager()
    answered(bench, "Yes.", SECOND // 4)
    bench.finish(1, "Yes.")
    bench.uttered.clear()
    bench.hear(silence_pcm(1100))
    say(bench, 600)
    assert not bench.commands(api.BeginSpeech)[-1].may_continue
    assert not bench.of(DELETED)


def test_the_window_is_a_setting() -> None:
    """`revocable_ms`; with 0 there are no early ends, and none is taken back."""
    bench = eager(revocable_ms=300)
    answered(bench)
    go_on(bench, 700)
    assert not bench.commands(api.ContinueSpeech)
    bench = eager(revocable_ms=0)
    say(bench)
    bench.hear(silence_pcm(260))
    bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, 0.98))
    bench.hear(silence_pcm(140))
    assert not bench.commands(api.EndSpeech)
    bench.hear(silence_pcm(300))
    assert [ended.may_continue for ended in bench.commands(api.EndSpeech)] == [False]


@pytest.mark.parametrize(
    "fields", [{"create_response": False}, {"interrupt_response": False}, {"eagerness": "medium"}]
)
def test_who_does_not_want_it_does_not_get_it(fields: Json) -> None:
    """Nothing can be taken back where the server does not answer or interrupt, so nothing is
    dared; nor at an eagerness that promises to wait."""
    bench = eager()
    bench.update(audio={"input": {"turn_detection": {"type": "semantic_vad"} | fields}})
    say(bench)
    bench.hear(silence_pcm(260))
    bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, 0.98))
    bench.hear(silence_pcm(120))
    assert not bench.commands(api.EndSpeech)
    bench.hear(silence_pcm(600))
    assert [ended.may_continue for ended in bench.commands(api.EndSpeech)] == [False]


def test_server_vad_is_what_it_was() -> None:
    """Also right after its endpoint: two items, and nothing is deleted."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    say(bench, 600)
    bench.hear(silence_pcm(700))
    assert len(bench.of(COMMITTED)) == 2
    assert not bench.of(DELETED)
    assert not bench.commands(api.ContinueSpeech)


# --- what is no continuation ---------------------------------------------------------------------


@pytest.mark.parametrize("words", ["", "Mm-hm.", "Okay."])
def test_a_cough_takes_nothing_back(words: str) -> None:
    """The sound stands still and goes on; the message may still be continued after it."""
    bench = eager()
    generation = answered(bench)
    bench.hear(silence_pcm(150))
    say(bench, 240)
    bench.hear(silence_pcm(200))
    assert bench.holds()
    bench.hearing(words, final=True)
    assert not bench.holds()
    bench.hear(silence_pcm(400))
    assert not bench.of(DELETED)
    assert not bench.commands(api.Cancel)
    assert len(bench.commands(api.DropSpeech)) == 1
    go_on(bench, 100)
    assert [c.generation for c in bench.commands(api.Cancel)] == [generation]
    assert bench.commands(api.ContinueSpeech)


def test_a_cough_before_the_answers_first_word_takes_nothing_back() -> None:
    """Nor does it ask for the answer once more."""
    bench = eager()
    say(bench)
    end(bench, HALF)
    bench.hear(silence_pcm(100))
    say(bench, 300)
    bench.hear(silence_pcm(260))
    bench.hearing("", final=True)
    bench.hear(silence_pcm(600))
    assert len(bench.commands(api.Respond)) == 1
    assert not bench.commands(api.Cancel)


def test_an_okay_behind_a_whole_text_answer_is_a_message_of_its_own() -> None:
    """It is a turn, since nothing is left to listen to, but the question was whole."""
    bench = eager(speaks=False)
    answered(bench, "It is big.")
    bench.finish(1, "It is big.")
    bench.hear(silence_pcm(300))
    say(bench, 300)
    bench.hear(silence_pcm(260))
    bench.hearing("Okay.", final=True)
    bench.hear(silence_pcm(500))
    assert not bench.commands(api.ContinueSpeech)
    assert not bench.of(DELETED)
    assert len(bench.of(COMMITTED)) == 2


def test_speech_without_words_goes_on_by_its_length() -> None:
    """Where the recogniser says nothing for a second of it, or never has words."""
    bench = eager()
    answered(bench)
    bench.hear(silence_pcm(300))
    say(bench, 900)
    bench.hearing("")
    assert not bench.commands(api.ContinueSpeech)
    say(bench, 400)
    bench.hearing("")
    assert bench.commands(api.ContinueSpeech)


@pytest.mark.parametrize(("ms", "joins"), [(700, True), (140, False)])
def test_speech_that_nobody_has_come_to_recognise_goes_on(ms: int, joins: bool) -> None:
    """The engine is far behind: what was said is not lost, but for a cough."""
    bench = eager()
    answered(bench)
    bench.hear(silence_pcm(300))
    say(bench, ms)
    bench.hear(silence_pcm(700))
    for _ in range(25):
        bench.tick()
    assert bool(bench.commands(api.ContinueSpeech)) is joins


def test_any_speech_takes_back_where_any_interrupts() -> None:
    """`interruption: "speech"`: at once. If it was too short for speech, the question is a message
    again, and is answered again."""
    bench = eager(interruption="speech")
    answered(bench)
    first = item_id(bench)
    bench.hear(silence_pcm(300))
    say(bench, 160)
    assert bench.commands(api.ContinueSpeech)
    bench.finish(1, "It is big. It is", api.FinishReason.CANCELLED)
    bench.client("input_audio_buffer.clear")
    assert bench.commands(api.DropSpeech)
    assert messages(bench) == [("user", HALF)]
    assert len(bench.commands(api.Respond)) == 2
    assert first not in [event["item_id"] for event in bench.of(DELETED)]


# --- who pauses often ----------------------------------------------------------------------------


def test_who_pauses_after_every_word_says_one_message() -> None:
    """Each end is taken back, each wait is longer than the one before, until none is early."""
    bench = eager()
    words: list[str] = []
    waits_ms: list[float] = []
    for number in range(1, 9):
        words.append(f"word{number}")
        if number == 1:
            say(bench)
        else:
            go_on(bench, 300, words[-1])
            bench.finish(bench.respond_command().generation, "", api.FinishReason.CANCELLED)
            hear(bench, " ".join(words))
        silent_ns = bench.now_ns
        bench.hear(silence_pcm(200))
        hear(bench, " ".join(words), final=True)
        bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, 0.98))
        while len(bench.commands(api.EndSpeech)) < number:
            bench.hear(silence_pcm(20))
        waits_ms.append((bench.now_ns - silent_ns) / 1e6)
        bench.engine(api.Heard("sess_test", bench.told_ref(), item_id(bench), " ".join(words), 5))
    assert messages(bench) == [("user", " ".join(words))]
    assert waits_ms[0] < 300
    assert waits_ms[1] > 1.2 * waits_ms[0]
    assert waits_ms[-1] > 2 * waits_ms[0]
    assert len(bench.commands(api.ContinueSpeech)) == 7


def test_a_message_has_an_end() -> None:
    """One that is as long as an utterance may be is not continued."""
    bench = eager()
    answered(bench)
    question = bench.session._turns._answered
    assert question is not None
    question.utterance.joined_samples = LONGEST_SAMPLES
    go_on(bench)
    assert not bench.commands(api.ContinueSpeech)


def test_the_engine_keeps_nothing_once_the_window_is_over() -> None:
    """It is told so, once; and not while speech is held that may still continue."""
    bench = eager()
    answered(bench)
    for _ in range(30):
        bench.tick()
    assert len(bench.commands(api.ReleaseSpeech)) == 1
