from typing import Any

from headstart.talk.dialog import Dialog, Turn, chunk_summary

USAGE = {"input_tokens": 3, "output_tokens": 1}


def feed(turn_events: list[dict[str, Any]], reports: bool = True) -> tuple[Dialog, Turn]:
    dialog = Dialog()
    turn = dialog.begin("file.wav", reports)
    for event in turn_events:
        dialog.receive(event)
    return dialog, turn


def speech(item_id: str, said: str) -> list[dict[str, Any]]:
    transcription = "conversation.item.input_audio_transcription"
    return [
        {"type": "input_audio_buffer.speech_started", "item_id": item_id},
        {"type": f"{transcription}.delta", "item_id": item_id, "delta": said[:3]},
        {"type": "input_audio_buffer.committed", "item_id": item_id},
        {"type": f"{transcription}.completed", "item_id": item_id, "transcript": said},
    ]


def answer(response_id: str, text: str, status: str = "completed") -> list[dict[str, Any]]:
    done = {"id": response_id, "status": status, "usage": USAGE}
    return [
        {"type": "response.created", "response": {"id": response_id}},
        {"type": "response.output_text.delta", "response_id": response_id, "delta": text},
        {"type": "response.done", "response": done},
    ]


def report(response_id: str) -> dict[str, Any]:
    return {
        "type": "gateway.latency.report",
        "event_id": "event_1",
        "response_id": response_id,
        "budget": {"total_ms": 5.0, "stages_ms": {"send": 5.0}},
        "kv": {"tokens": 9, "bytes": 900},
        "decode_tok_s": 20.0,
    }


def test_turn_is_settled_when_nothing_is_owed() -> None:
    """Not before all is sent, transcribed, answered and reported; then at once."""
    events = [*speech("i", "hello"), *answer("r", "hi"), report("r")]
    for length in range(1, len(events)):
        _, turn = feed(events[:length])
        turn.all_sent = True
        assert not turn.settled, events[length - 1]["type"]
    _, turn = feed(events)
    assert not turn.settled
    turn.all_sent = True
    assert turn.settled


def test_an_answer_without_a_word_has_no_report() -> None:
    """There is no first token to count to; the server sends none, and it is not waited for."""
    _, turn = feed([*speech("i", "hello"), *answer("r", "")])
    turn.all_sent = True
    assert turn.settled


def test_without_reports_the_answer_is_enough() -> None:
    """Another server sends none; it is not waited for."""
    _, turn = feed([*speech("i", "hello"), *answer("r", "hi")], reports=False)
    turn.all_sent = True
    assert turn.settled


def test_a_file_without_speech_is_settled_and_says_so() -> None:
    """Nothing heard, nothing owed; the result has nulls."""
    dialog, turn = feed([])
    turn.all_sent = True
    assert turn.settled
    assert turn.heard_nothing
    assert dialog.to_wire()["answer"] is None
    assert dialog.to_wire()["transcript"] == ""


def test_two_utterances_in_one_file() -> None:
    """A pause made the server answer early: all words count, the last answer does, and the first
    answer alone does not settle the turn."""
    early = [*speech("a", "first"), *answer("r1", "no", status="cancelled")]
    _, turn = feed([*early, *speech("b", "second")])
    turn.all_sent = True
    assert not turn.settled
    dialog, turn = feed([*early, *speech("b", "second"), *answer("r2", "yes"), report("r2")])
    turn.all_sent = True
    assert turn.settled
    wire = dialog.to_wire()
    assert (wire["transcript"], wire["answer"]) == ("first second", "yes")
    assert (wire["utterances"], wire["answers"]) == (2, 2)


def test_a_failed_answer_owes_no_report() -> None:
    """Its error is in the result."""
    events = [*speech("i", "hello"), *answer("r", "", status="failed")]
    events[-1]["response"]["status_details"] = {"error": {"code": "engine_lost", "message": "m"}}
    dialog, turn = feed(events)
    turn.all_sent = True
    assert turn.settled
    assert dialog.to_wire()["status"] == "failed"
    assert dialog.to_wire()["error"]["code"] == "engine_lost"


def test_result_has_the_promised_keys() -> None:
    """transcript, answer, budget, chunks, kv, usage; with several files also `turns`."""
    dialog, _ = feed([*speech("i", "hello"), *answer("r", "hi"), report("r")])
    wire = dialog.to_wire()
    assert wire["budget"] == {"total_ms": 5.0, "stages_ms": {"send": 5.0}}
    assert wire["kv"] == {"tokens": 9, "bytes": 900}
    assert wire["usage"] == USAGE
    assert wire["chunks"]["count"] == 0
    assert wire["facts"]["decode_tok_s"] == 20.0
    assert "turns" not in wire
    dialog.begin("second.wav", reports=True)
    wire = dialog.to_wire()
    assert [turn["file"] for turn in wire["turns"]] == ["file.wav", "second.wav"]
    assert wire["answer"] is None


def test_cleared_speech_is_forgotten_and_foreign_events_are_passed_over() -> None:
    """A dropped utterance owes nothing; unknown types and other turns' ids change nothing."""
    _, turn = feed(
        [
            {"type": "input_audio_buffer.speech_started", "item_id": "i"},
            {"type": "input_audio_buffer.cleared"},
            {"type": "rate_limits.updated", "rate_limits": []},
            {"type": "response.done", "response": {"id": "of before", "status": "completed"}},
        ]
    )
    assert not turn.speaking
    assert turn.utterances == {}


def test_chunk_summary() -> None:
    """Latency by rank, least headroom, overruns against each chunk's own duration."""
    chunks = [
        {"duration_ms": 500.0, "latency_ms": latency_ms, "headroom": headroom}
        for latency_ms, headroom in [(40.0, 0.9), (600.0, -0.1), (80.0, 0.8)]
    ]
    summary = chunk_summary(chunks)
    assert (summary["count"], summary["overruns"]) == (3, 1)
    assert (summary["latency_p50_ms"], summary["latency_max_ms"]) == (80.0, 600.0)
    assert summary["headroom_min"] == -0.1
    assert chunk_summary([])["latency_max_ms"] is None


def test_words_so_far_give_way_to_the_transcript() -> None:
    """Hearing is shown while it grows, also after the commit; the final words replace it all."""
    hearing = {
        "type": "gateway.hearing",
        "item_id": "i",
        "committed": "hel",
        "tentative": "lo",
    }
    begun, _, committed, completed = speech("i", "hello")
    _, turn = feed([begun, hearing, committed, hearing])
    assert turn.utterances["i"].words() == ("hel", "lo")
    _, turn = feed([begun, hearing, committed, completed, hearing])
    assert turn.utterances["i"].words() == ("hello", "")
    _, turn = feed([hearing])
    assert turn.utterances == {}


def test_an_answer_that_is_taken_back_is_no_answer() -> None:
    """Both parts of the speech are one utterance, the early answer is gone, and it is counted."""
    goes_on: list[dict[str, Any]] = [
        {"type": "input_audio_buffer.speech_started", "item_id": "b"},
        {
            "type": "gateway.turn.continued",
            "item_id": "b",
            "continued_item_id": "a",
            "response_id": "r1",
        },
        {"type": "response.done", "response": {"id": "r1", "status": "cancelled"}},
        {"type": "conversation.item.deleted", "item_id": "a"},
    ]
    whole = speech("b", "What is the capital of France?")[1:]
    early = [*speech("a", "What is the capital"), *answer("r1", "It is big")[:-1]]
    _, turn = feed([*early, *goes_on, *whole, *answer("r2", "Paris."), report("r2")])
    turn.all_sent = True
    assert turn.settled
    wire = turn.to_wire()
    assert (wire["transcript"], wire["answer"]) == ("What is the capital of France?", "Paris.")
    assert (wire["utterances"], wire["answers"], wire["taken_back"]) == (1, 1, 1)
