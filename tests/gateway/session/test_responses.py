"""Responses asked for, cancelled and counted."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.session.responses import MAX_OUT_OF_BAND
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm


def test_cancel_by_id_reaches_answers_out_of_band() -> None:
    """response_id names any response that runs; without one the conversation's is meant."""
    bench = SessionBench()
    bench.client("response.create", response={"conversation": "none"})
    aside = bench.last("response.created")["response"]["id"]
    bench.client("response.cancel")
    assert bench.error()["code"] == "response_cancel_not_active"
    bench.client("response.cancel", response_id=aside)
    assert bench.commands(api.Cancel)[0].generation == bench.respond_command().generation


def test_a_second_cancel_changes_nothing() -> None:
    """The engine is told once."""
    bench = SessionBench()
    bench.client("response.create")
    bench.client("response.cancel")
    bench.client("response.cancel")
    assert len(bench.commands(api.Cancel)) == 1
    assert not bench.of("error")


def test_answers_out_of_band_have_a_bound() -> None:
    """One too many is refused by name; the others go on."""
    bench = SessionBench()
    for _ in range(MAX_OUT_OF_BAND + 1):
        bench.client("response.create", response={"conversation": "none"})
    assert len(bench.commands(api.Respond)) == MAX_OUT_OF_BAND
    assert bench.error()["code"] == "rate_limit_exceeded"


def test_usage_reaches_the_client() -> None:
    """What the head start saved is in cached_tokens."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Hi.")
    usage = bench.last("response.done")["response"]["usage"]
    assert usage["input_token_details"]["audio_tokens"] == 7
    assert usage["input_token_details"]["cached_tokens"] == 10


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (api.FinishReason.LENGTH, "incomplete"),
        (api.FinishReason.FAILED, "failed"),
        (api.FinishReason.CANCELLED, "cancelled"),
    ],
)
def test_the_session_goes_on_after_every_end(reason: api.FinishReason, status: str) -> None:
    """However one answer ended, the next can begin."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Hi.", reason=reason)
    assert bench.last("response.done")["response"]["status"] == status
    bench.client("response.create")
    bench.answer("Again.")
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_metrics_count_turns_and_first_tokens() -> None:
    """/metrics shows the turn, its tokens and its time to first token."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Hi.")
    text = bench.metrics.page().render()[0].decode()
    assert 'headstart_turns_total{reason="stop"} 1.0' in text
    assert 'headstart_turn_first_token_seconds_count{anchor="requested"} 1.0' in text
    assert 'headstart_tokens_total{kind="cached"} 10.0' in text


def wordless_turn() -> SessionBench:
    """A spoken turn of which no word is known yet, and its answer asked for."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    assert bench.commands(api.Respond)
    assert not bench.of("response.created")
    return bench


def test_a_response_is_told_of_with_its_first_words() -> None:
    """The question's or, if they were older, the answer's own; once."""
    bench = wordless_turn()
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", api.TurnRef(1), item_id, "", 0))
    assert not bench.of("response.created")
    bench.answer("Paris.")
    assert len(bench.of("response.created")) == len(bench.of("response.done")) == 1
    bench = wordless_turn()
    bench.engine(api.Heard("sess_test", api.TurnRef(1), item_id, "What is it?", 4))
    assert len(bench.of("response.created")) == 1


def test_words_known_at_the_endpoint_tell_of_it_at_once() -> None:
    """As a rule they are: then nothing is later than it was."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav"))
    bench.hearing("What is the capital")
    bench.hear(silence_pcm(700))
    assert bench.types()[-1] == "response.created"


@pytest.mark.parametrize("event", ["response.cancel", "response.create"])
def test_who_asks_about_it_is_told_of_it(event: str) -> None:
    """A client that cancels it or asks for another one sees what it is talking about."""
    bench = wordless_turn()
    bench.client(event)
    bench.finish(bench.respond_command().generation, "", api.FinishReason.CANCELLED)
    told = [kind for kind in bench.types() if kind.startswith("response")]
    assert told == ["response.created", "response.done"]


def test_a_failure_is_told_whatever_was_said() -> None:
    """Silence would leave a client waiting."""
    bench = wordless_turn()
    bench.engine_lost()
    assert bench.last("response.done")["response"]["status"] == "failed"
    assert len(bench.of("response.created")) == 1


@pytest.mark.parametrize("events", [["pictures"], []])
def test_what_was_read_in_pictures_is_told_before_the_end(events: list[str]) -> None:
    """To who asked, once, with the response that it is of."""
    bench = SessionBench()
    bench.update(gateway={"events": events})
    bench.client("response.create", response={"conversation": "none", "input": []})
    assert bench.respond_command().reports_writing == bool(events)
    finished = api.Finished(
        session="sess_test",
        generation=bench.respond_command().generation,
        reason=api.FinishReason.STOP,
        text="Yes.",
        usage=api.Usage(),
        kv=api.KvStats(),
        read=(("Platform 4", "Trains to Oxford"), (), None),
    )
    bench.engine(finished)
    kinds = [event["type"] for event in bench.sent]
    if not events:
        assert "gateway.pictures.read" not in kinds
        return
    read = bench.last("gateway.pictures.read")
    assert read["response_id"] == bench.last("response.done")["response"]["id"]
    lines = [picture["lines"] for picture in read["pictures"]]
    assert lines == [["Platform 4", "Trains to Oxford"], [], None]
    assert kinds.index("gateway.pictures.read") < kinds.index("response.done")
