"""What else may happen while an answer can be taken back, and what is told of it."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.gateway.eager_bench import (
    DELETED,
    HALF,
    REST,
    SECOND,
    answered,
    eager,
    end,
    go_on,
    hear,
    item_id,
    messages,
    say,
)
from tests.gateway.session.test_function_calls import ARGUMENTS, WEATHER, call
from tests.gateway.session_bench import SessionBench, silence_pcm

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
    """What the recogniser knew is lost: the first part stays a message, and the second one has to
    be said again."""
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
        bench.client("conversation.item.truncate", item_id=item, content_index=0, audio_end_ms=500)
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
