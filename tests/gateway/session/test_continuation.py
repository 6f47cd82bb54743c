"""A message that was answered too early and goes on: the answer is taken back, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine import api
from headstart.gateway.session.continuation import LONGEST_SAMPLES
from headstart.gateway.tts.messages import Stop
from tests.gateway import speech
from tests.gateway.session.test_function_calls import ARGUMENTS, WEATHER, call
from tests.gateway.session_bench import Json, SessionBench, clip_pcm, silence_pcm

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
COMMITTED, DELETED = "input_audio_buffer.committed", "conversation.item.deleted"
CONTINUED = "gateway.turn.continued"
HALF, REST = "What is the capital", " of France?"
SECOND = 24_000


def eager(*, speaks: bool = True, **settings: Any) -> SessionBench:
    """A session whose turns end early where they read as whole."""
    bench = SessionBench(speaks=speaks, **settings)
    bench.update(
        audio={
            "input": {
                "turn_detection": {"type": "semantic_vad", "eagerness": "high"},
                "transcription": {"model": "any"},
            }
        },
        gateway={"events": ["turn", "interruption", "latency"]},
    )
    return bench


def say(bench: SessionBench, ms: int = 900) -> None:
    """A sound that the VAD takes for speech."""
    bench.hear(speech.join(speech.voice(ms)))


def hear(bench: SessionBench, text: str, *, final: bool = False) -> None:
    """Play the ears' part: all words of the open utterance so far, with those before it."""
    ref = bench.told_ref()
    bench.engine(api.Hearing("sess_test", ref, text, "", 0, final, continued=is_joined(bench)))


def is_joined(bench: SessionBench) -> bool:
    """Whether the engine was told that the newest utterance continues the one before."""
    kinds = (api.BeginSpeech, api.ContinueSpeech)
    newest = [command for command in bench.told if isinstance(command, kinds)][-1]
    return isinstance(newest, api.ContinueSpeech)


def end(bench: SessionBench, words: str, probability: float = 0.9) -> None:
    """A pause behind words that read as whole, until the turn ends: before 300 ms of it, where no
    end was taken back yet."""
    before = len(bench.commands(api.EndSpeech))
    bench.hear(silence_pcm(200))
    hear(bench, words, final=True)
    bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, probability))
    for _ in range(100):
        if len(bench.commands(api.EndSpeech)) > before:
            break
        bench.hear(silence_pcm(20))
    ended = bench.commands(api.EndSpeech)[-1]
    bench.engine(api.Heard("sess_test", ended.ref, item_id(bench), words, 5))


def item_id(bench: SessionBench) -> str:
    """The item of the newest utterance."""
    newest: str = bench.commands(api.BeginSpeech)[-1].item_id
    return newest


def answered(bench: SessionBench, text: str = "It is big. It is") -> int:
    """The first half is said and ends early; its answer has begun, and is heard if it is spoken."""
    say(bench)
    end(bench, HALF)
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, text, bench.now_ns))
    bench.say_all(3 * SECOND)
    return generation


def go_on(bench: SessionBench, pause_ms: int = 400, words: str = "of France") -> None:
    """After a pause the person goes on, and is understood."""
    bench.hear(silence_pcm(pause_ms))
    say(bench, 600)
    if is_held(bench):
        bench.hearing(words)


def is_held(bench: SessionBench) -> bool:
    states = [event["state"] for event in bench.of("gateway.interruption")]
    return states[-1:] == ["possible"]


def messages(bench: SessionBench) -> list[tuple[str, str]]:
    """The conversation as the gateway keeps it."""
    wires = bench.session._context.conversation.newest(20)
    return [
        (wire["role"], wire["content"][0].get("transcript") or wire["content"][0].get("text"))
        for wire in wires
    ]


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


def test_the_window_is_a_setting() -> None:
    """`revocable_ms`; with 0 there are no early ends, and none is taken back."""
    bench = eager(revocable_ms=300)
    answered(bench)
    go_on(bench, 700)
    assert not bench.commands(api.ContinueSpeech)
    bench = eager(revocable_ms=0)
    say(bench)
    bench.hear(silence_pcm(260))
    bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, 0.9))
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
    bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, 0.9))
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
        bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, 0.9))
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


# --- function calls ------------------------------------------------------------------------------


def with_tools() -> SessionBench:
    bench = eager(speaks=False)
    bench.update(tools=[WEATHER])
    say(bench)
    end(bench, HALF)
    return bench


def test_a_call_waits_until_the_end_is_sure() -> None:
    """It cannot be taken back, so it comes no sooner than 700 ms after the last sound."""
    bench = with_tools()
    call(bench, ARGUMENTS)
    bench.finish(1, "")
    bench.hear(silence_pcm(200))
    assert not bench.of("response.function_call_arguments.done")
    bench.hear(silence_pcm(300))
    assert bench.of("response.function_call_arguments.done")
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_a_call_of_a_wrong_question_is_never_made() -> None:
    """The person goes on before it was told: nobody hears of it, and the engine forgets it."""
    bench = with_tools()
    call(bench, ARGUMENTS)
    bench.finish(1, "")
    go_on(bench, 100)
    end(bench, HALF + REST)
    assert not [kind for kind in bench.types() if "function_call" in kind]
    assert bench.commands(api.ContinueSpeech)[-1].answer_id
    assert messages(bench) == [("user", HALF + REST)]


def test_speech_holds_a_call_back_until_it_is_understood() -> None:
    """It begins just before the call would be told; a cough lets the call pass then."""
    bench = with_tools()
    call(bench, ARGUMENTS)
    bench.finish(1, "")
    bench.hear(silence_pcm(250))
    say(bench, 500)
    assert not bench.of("response.function_call_arguments.done")
    bench.hear(silence_pcm(200))
    bench.hearing("", final=True)
    assert bench.of("response.function_call_arguments.done")
    assert bench.of("response.done")


def test_the_result_of_a_call_belongs_to_its_question() -> None:
    """Once the client knows of a call, what is said next is another message: the call, its result
    and both messages stay, in that order, and the result is not lost."""
    bench = with_tools()
    call(bench, ARGUMENTS)
    bench.finish(1, "")
    bench.hear(silence_pcm(500))
    called = bench.last("response.output_item.done")["item"]
    go_on(bench, 300, "and of Spain")
    output = {"type": "function_call_output", "call_id": called["call_id"], "output": "42"}
    bench.client("conversation.item.create", item=output)
    end(bench, "and of Spain")
    assert not bench.commands(api.ContinueSpeech)
    assert not bench.of(DELETED)
    assert not bench.of("error")
    kinds = [wire["type"] for wire in bench.session._context.conversation.newest(9)]
    assert kinds == ["message", "function_call", "function_call_output", "message"]


# --- what else may happen in the window ----------------------------------------------------------


def test_an_out_of_band_response_goes_on() -> None:
    """It has read what it was given, and is nobody's answer."""
    bench = eager()
    answered(bench)
    bench.client("response.create", response={"conversation": "none"})
    aside = bench.respond_command().generation
    go_on(bench)
    assert [c.generation for c in bench.commands(api.Cancel)] == [1]
    bench.engine(api.Delta("sess_test", aside, "Aside.", bench.now_ns))
    bench.finish(1, "It is big. It is", api.FinishReason.CANCELLED)
    bench.finish(aside, "Aside.")
    bench.say_all()
    states = [event["response"]["status"] for event in bench.of("response.done")]
    assert sorted(states) == ["cancelled", "completed"]
    end(bench, HALF + REST)
    assert messages(bench) == [("user", HALF + REST)]


@pytest.mark.parametrize("when", ["in the window", "while it goes on"])
def test_the_engine_is_lost(when: str) -> None:
    """What the recogniser knew is lost: the first part stays a message, the second is said again."""
    bench = eager()
    answered(bench)
    if when == "in the window":
        bench.engine_lost()
        bench.engine_ready()
        go_on(bench)
        assert not bench.commands(api.ContinueSpeech)
    else:
        go_on(bench)
        bench.engine_lost()
        bench.engine_ready()
        assert bench.of("response.done")
        restored = [item.parts[0] for item in bench.commands(api.Open)[-1].items]
        assert restored == [api.Text(HALF)]
    say(bench)
    end(bench, "of France")
    assert ("user", HALF) in messages(bench)
    assert messages(bench)[-1] == ("user", "of France")


@pytest.mark.parametrize("wish", ["cancel", "truncate", "both"])
def test_the_client_stops_the_answer_itself(wish: str) -> None:
    """Stock clients do when they see or hear speech; the message goes on all the same."""
    bench = eager()
    answered(bench)
    item = bench.respond_command().item_id
    if wish != "truncate":
        bench.client("response.cancel")
        bench.finish(1, "It is big. It is", api.FinishReason.CANCELLED)
    if wish != "cancel":
        bench.client(
            "conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=500
        )
    go_on(bench)
    if wish == "truncate":
        bench.finish(1, "It is big. It is", api.FinishReason.CANCELLED)
    end(bench, HALF + REST)
    assert messages(bench) == [("user", HALF + REST)]
    assert not bench.of("error")


def test_a_late_truncate_is_no_error() -> None:
    """A client that plays the sound itself learns of the speech first, and says then what it has
    played: by that time the item may be gone. It counts as played all the same."""
    bench = eager()
    answered(bench, "It is big.")
    bench.finish(1, "It is big.")
    bench.say_all(SECOND)
    item = bench.respond_command().item_id
    go_on(bench, 700)
    assert bench.of(DELETED)
    bench.sent.clear()
    bench.client("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=300)
    bench.client("conversation.item.retrieve", item_id=item)
    assert bench.sent == []


def test_an_item_behind_one_that_was_taken_back_goes_to_the_end() -> None:
    """Some clients say behind which item a new one comes, and may not know yet that it is gone."""
    bench = eager()
    answered(bench, "It is big.")
    bench.finish(1, "It is big.")
    gone = bench.respond_command().item_id
    go_on(bench, 700)
    end(bench, HALF + REST)
    text = {"type": "input_text", "text": "Hello"}
    item = {"type": "message", "role": "user", "content": [text]}
    bench.client("conversation.item.create", item=item, previous_item_id=gone)
    assert not bench.of("error")
    assert messages(bench)[-1] == ("user", "Hello")


def test_what_the_client_has_added_keeps_its_place() -> None:
    """Then the next speech is a message of its own, and nothing is taken back."""
    bench = eager()
    answered(bench)
    text = {"type": "input_text", "text": "Look here"}
    bench.client(
        "conversation.item.create", item={"type": "message", "role": "user", "content": [text]}
    )
    go_on(bench)
    assert bench.commands(api.Cancel)
    assert not bench.commands(api.ContinueSpeech)
    assert not bench.of(DELETED)


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_client_deletes_the_first_part(when: str) -> None:
    """Before speech goes on, there is nothing to continue; after it, the whole is committed."""
    bench = eager()
    answered(bench)
    first = item_id(bench)
    if when == "after":
        go_on(bench)
    bench.client("conversation.item.delete", item_id=first)
    if when == "before":
        go_on(bench)
    bench.finish(1, "It is big. It is", api.FinishReason.CANCELLED)
    bench.cleared(2 * SECOND)
    end(bench, "of France" if when == "before" else HALF + REST)
    assert bool(bench.commands(api.ContinueSpeech)) is (when == "after")
    assert [event["item_id"] for event in bench.of(DELETED)].count(first) == 1
    assert not bench.of("error")


def test_a_clear_gives_the_first_part_its_answer_back() -> None:
    """The continuation is dropped: the first part is a message again, and is answered."""
    bench = eager()
    answered(bench)
    first = item_id(bench)
    go_on(bench)
    bench.finish(1, "It is big. It is", api.FinishReason.CANCELLED)
    bench.client("input_audio_buffer.clear")
    assert [event["item_id"] for event in bench.of(DELETED)] != [first]
    assert len(bench.commands(api.Respond)) == 2
    bench.answer("It is a city.")
    bench.say_all()
    assert messages(bench) == [("user", HALF), ("assistant", "It is a city.")]
    kept = bench.session._context.conversation.find(first)
    assert kept is not None
    assert kept.known


def test_a_resumed_connection_in_the_window_continues() -> None:
    """No sound came for a while; what the client missed says that the message goes on."""
    bench = eager()
    answered(bench)
    bench.tick(300)
    bench.resumed(5)
    go_on(bench)
    assert bench.commands(api.ContinueSpeech)


def test_a_connection_that_comes_back_late_does_not() -> None:
    """The sound's clock stood still, the wall's did not: the answer was waited for."""
    bench = eager()
    answered(bench)
    bench.tick(5_000)
    bench.resumed(5)
    go_on(bench)
    assert not bench.commands(api.ContinueSpeech)


def test_stale_words_are_not_shown() -> None:
    """Words of the second part alone, still on their way when both were joined."""
    bench = eager()
    answered(bench)
    go_on(bench)
    second, ref = item_id(bench), bench.told_ref()
    bench.engine(api.Hearing("sess_test", ref, "of France", "", 0))
    hear(bench, HALF + REST)
    deltas = [
        event["delta"]
        for event in bench.of("conversation.item.input_audio_transcription.delta")
        if event["item_id"] == second
    ]
    assert "".join(deltas) == HALF + REST


# --- what is told of it --------------------------------------------------------------------------


def samples_of(bench: SessionBench, name: str) -> float:
    value = bench.metrics.registry.get_sample_value(name)
    assert value is not None
    return value


def test_a_revocation_is_counted_with_what_was_heard() -> None:
    """Once, and the final answer's budget is that of the last word."""
    bench = eager()
    generation = answered(bench)
    go_on(bench, 400)
    bench.cleared(2 * SECOND)  # of three seconds
    bench.finish(generation, "It is big. It is", api.FinishReason.CANCELLED)
    said_ns = bench.now_ns
    end(bench, HALF + REST)
    bench.answer("Paris.")
    bench.say_all()
    assert samples_of(bench, "headstart_turns_revoked_total") == 1
    heard_s = samples_of(bench, "headstart_revoked_sound_seconds_total")
    assert 0.9 < heard_s <= 1.0
    budget = bench.last("gateway.latency.report")["budget"]
    assert 200 <= budget["total_ms"] <= (bench.now_ns - said_ns) / 1e6 + 40


def test_an_answer_in_text_is_counted_without_sound() -> None:
    """Also if it was over before the person went on."""
    bench = eager(speaks=False)
    answered(bench, "It is big.")
    bench.finish(1, "It is big.")
    go_on(bench)
    assert samples_of(bench, "headstart_turns_revoked_total") == 1
    assert samples_of(bench, "headstart_revoked_sound_seconds_total") == 0
