"""What a session tells whoever watches: one record a response, and what is learnt of it later."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine import api
from headstart.gateway.session.turn_reports import RECORDS_KEPT, UTTERANCES_KEPT
from headstart.gateway.telemetry.latency import ChunkBudget
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.telemetry.turn_record import CHUNKS_KEPT, TurnRecord
from tests.gateway.session_bench import NS_PER_MS, SessionBench, clip_pcm, silence_pcm


class Seen(Observer):
    """Keeps all that it is told."""

    def __init__(self) -> None:
        self.records: list[TurnRecord] = []
        self.chunks: list[ChunkBudget] = []
        self.errors: list[tuple[str, str, str | None, str | None]] = []

    def turn(self, record: TurnRecord) -> None:
        self.records.append(record)

    def chunk(self, chunk: api.Chunk, budget: ChunkBudget) -> None:
        self.chunks.append(budget)

    def error(
        self, code: str, message: str, session_id: str | None, response_id: str | None = None
    ) -> None:
        self.errors.append((code, message, session_id, response_id))

    @property
    def wire(self) -> dict[str, Any]:
        """The newest record."""
        return self.records[-1].to_wire()


def watched(**settings: Any) -> tuple[SessionBench, Seen]:
    seen = Seen()
    return SessionBench(observer=seen, **settings), seen


def question(bench: SessionBench) -> api.EndSpeech:
    """Somebody asks something under server VAD, and its words are known."""
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    ended: api.EndSpeech = bench.commands(api.EndSpeech)[-1]
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", ended.ref, item_id, "the capital of France", 4))
    return ended


def chunk(bench: SessionBench, start_sample: int, latency_ms: float = 60.0, turn: int = 1) -> None:
    stages = {"mel": 2.0, "encode": 20.0, "prefill": latency_ms - 22.0}
    ref = api.TurnRef(turn)
    bench.engine(api.Chunk("sess_test", ref, start_sample, 8000, stages, latency_ms, 4, 1))


def spoken_answer() -> tuple[SessionBench, Seen, str]:
    """A question answered aloud; its response's id."""
    bench, seen = watched(speaks=True)
    question(bench)
    bench.now_ns += 40 * NS_PER_MS
    bench.answer("It is Paris.")
    bench.now_ns += 100 * NS_PER_MS
    bench.say_all()
    return bench, seen, bench.last("response.done")["response"]["id"]


def test_a_spoken_turn_has_one_record() -> None:
    """Its ids, stages that sum to the total, who owns the wait, usage and cache."""
    bench, seen = watched()
    question(bench)
    bench.now_ns += 40 * NS_PER_MS
    bench.answer("Paris.")
    (record,) = seen.records
    wire = record.to_wire()
    assert wire["id"] == bench.last("response.done")["response"]["id"]
    assert wire["item"] == bench.last("input_audio_buffer.committed")["item_id"]
    assert (wire["session"], wire["turn"], wire["revision"]) == ("sess_test", 1, 1)
    assert (wire["reason"], wire["interrupted"], wire["error"]) == ("completed", False, None)
    assert wire["anchor"] == "received"
    assert sum(ms or 0 for ms in wire["stages_ms"].values()) == pytest.approx(wire["total_ms"])
    assert wire["stages_ms"]["vad_hangover"] > 400
    owner = {"owner": "setting", "setting": "silence_duration_ms", "value": 500}
    assert wire["waits"]["vad_hangover"] == owner
    assert wire["usage"]["cached"] == 10
    assert wire["kv"]["tokens"] == 15
    assert "text" not in wire


def test_a_text_turn_counts_from_its_request() -> None:
    """It has no speech, no chunks and no voice, and null for what it has not."""
    bench, seen = watched()
    bench.client("response.create")
    bench.now_ns += 30 * NS_PER_MS
    bench.answer("Hi.")
    wire = seen.wire
    assert (wire["anchor"], wire["item"], wire["turn"]) == ("requested", None, 0)
    assert wire["stamps_ms"]["requested"] == 0
    assert wire["stamps_ms"]["received"] is None
    assert (wire["voice"], wire["playout"], wire["chunks"]) == (None, None, [])
    assert wire["stages_ms"]["voice"] is None


def test_chunks_stand_in_their_turns_record() -> None:
    """Relative to the last speech: those heard under it are before it, bounded to the newest."""
    bench, seen = watched()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1000])
    for number in range(CHUNKS_KEPT + 10):
        chunk(bench, 8000 * number)
    bench.hear(clip_pcm("capital.wav")[48 * 1000 :] + silence_pcm(700))
    bench.engine(api.Heard("sess_test", api.TurnRef(1), "x", "the capital", 4))
    bench.answer("Paris.")
    chunks = seen.wire["chunks"]
    assert len(chunks) == CHUNKS_KEPT
    assert chunks[0]["start_ms"] < -500
    assert (chunks[0]["duration_ms"], chunks[0]["latency_ms"]) == (500, 60)
    assert (chunks[0]["prefilled"], chunks[0]["rolled_back"]) == (4, 1)
    assert len(seen.chunks) == CHUNKS_KEPT + 10


def test_a_short_rest_is_judged_alike_everywhere() -> None:
    """What is left at the end of speech: the record, the client's event and the session's sums say
    that it kept up, since the next chunk would have come 500 ms later."""
    bench, seen = watched()
    bench.update(gateway={"events": ["chunks", "latency"]})
    ended = question(bench)
    stages = {"encode": 20.0, "queue": 100.0}
    bench.engine(api.Chunk("sess_test", ended.ref, 32_000, 800, stages, 120.0, 1, 0))
    bench.answer("Paris.")
    event = bench.last("gateway.chunk.report")
    assert (event["duration_ms"], event["due_ms"]) == (50, 500)
    assert event["headroom"] == pytest.approx(0.76)
    (kept,) = seen.wire["chunks"]
    assert (kept["duration_ms"], kept["due_ms"], kept["overrun"]) == (50, 500, False)
    assert kept["headroom_percent"] == pytest.approx(76)
    assert bench.last("gateway.latency.report")["chunks"]["overruns"] == 0


def test_the_time_of_a_chunk_is_that_of_the_sessions_chunks() -> None:
    """With 200 ms chunks there is less of it."""
    bench, seen = watched()
    bench.update(gateway={"events": ["chunks"], "chunk_ms": 200})
    ended = question(bench)
    bench.engine(api.Chunk("sess_test", ended.ref, 0, 800, {"encode": 250.0}, 250.0, 1, 0))
    assert seen.chunks[-1].due_ms == 200
    assert seen.chunks[-1].overrun


def test_chunks_of_utterances_without_answers_are_let_go() -> None:
    """Only those of the newest utterances wait for a response."""
    bench, _ = watched()
    for turn in range(1, 50):
        chunk(bench, 0, turn=turn)
    assert len(bench.session._reports._chunks) == UTTERANCES_KEPT


def test_an_answer_of_which_nothing_was_sent_is_not_measured() -> None:
    """Cancelled before its first token: null, and told all the same."""
    bench, seen = watched()
    bench.client("response.create")
    bench.client("response.cancel")
    bench.finish(bench.respond_command().generation, "", api.FinishReason.CANCELLED)
    wire = seen.wire
    assert (wire["total_ms"], wire["anchor"], wire["reason"]) == (None, None, "cancelled")
    assert wire["stamps_ms"]["first_token"] is None


def test_a_response_that_the_client_never_heard_of_has_no_record() -> None:
    """Noise that was taken for speech is no turn."""
    bench, seen = watched()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    bench.finish(bench.respond_command().generation, "", api.FinishReason.CANCELLED)
    assert not bench.of("response.created")
    assert seen.records == []
    assert bench.session._reports._known == {}


def test_a_lost_engine_fails_its_answers_on_the_record() -> None:
    """The error names session and turn."""
    bench, seen = watched()
    bench.client("response.create")
    bench.engine_lost()
    wire = seen.wire
    assert (wire["reason"], wire["error"]["code"], wire["usage"]) == ("failed", "engine_lost", None)
    assert ("engine_lost", "sess_test", wire["id"]) in [(e[0], e[2], e[3]) for e in seen.errors]


def test_speech_over_an_answer_marks_it_interrupted() -> None:
    """It is kept, and told apart from those that count."""
    bench, seen = watched(interruption="speech")
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "Well", bench.now_ns))
    bench.hear(clip_pcm("capital.wav")[: 48 * 1000])
    bench.finish(generation, "Well", api.FinishReason.CANCELLED)
    assert seen.wire["interrupted"] is True
    assert seen.wire["reason"] == "cancelled"


def test_a_spoken_answer_goes_on_to_its_first_sound() -> None:
    """The stage `voice` goes from the first token to there."""
    _, seen, _ = spoken_answer()
    wire = seen.wire
    assert wire["stages_ms"]["voice"] == 100
    assert wire["stamps_ms"]["first_sound"] == pytest.approx(wire["total_ms"] + 100)
    assert wire["voice"]["audio_ms"] == 1000
    assert wire["waits"]["voice"] == {"owner": "voice"}
    assert wire["stages_ms"]["playout"] is None


def test_a_client_says_when_it_played() -> None:
    """After the response is done: the same record, of the next revision."""
    bench, seen, response_id = spoken_answer()
    bench.now_ns += 300 * NS_PER_MS
    bench.client("gateway.playout.started", response_id=response_id, delay_ms=65)
    assert not bench.of("error")
    before, after = seen.records
    assert (before.revision, after.revision) == (1, 2)
    wire = after.to_wire()
    assert wire["playout"] == {"delay_ms": 65, "source": "client"}
    assert wire["waits"]["playout"] == {"owner": "client"}
    heard_ms = wire["stamps_ms"]["playout_started"]
    assert heard_ms == pytest.approx(sum(ms or 0 for ms in wire["stages_ms"].values()))
    bench.client("gateway.playout.started", response_id=response_id, delay_ms=70)
    assert len(seen.records) == 2, "the first report counts"


def test_a_latency_report_goes_on_until_it_was_heard() -> None:
    """Sent when the response is done; again, once, when its playout becomes known. The stages sum
    to the last instant that is known."""
    bench, _ = watched(speaks=True)
    bench.update(gateway={"events": ["latency"]})
    question(bench)
    bench.now_ns += 40 * NS_PER_MS
    bench.answer("It is Paris.")
    bench.now_ns += 100 * NS_PER_MS
    bench.say_all()
    response_id = bench.last("response.done")["response"]["id"]
    bench.now_ns += 300 * NS_PER_MS
    for delay_ms in (65, 70):
        bench.client("gateway.playout.started", response_id=response_id, delay_ms=delay_ms)
    first, second = bench.of("gateway.latency.report")
    assert (first["revision"], second["revision"]) == (1, 2)
    sound_ms = first["budget"]["total_ms"] + 100
    assert first["budget"]["first_sound_ms"] == pytest.approx(sound_ms)
    assert (first["budget"]["heard_ms"], first["budget"]["stages_ms"]["playout"]) == (None, None)
    assert second["budget"]["heard_ms"] == pytest.approx(sound_ms + 65)
    for report, last in ((first, "first_sound_ms"), (second, "heard_ms")):
        stages_ms = sum(ms or 0 for ms in report["budget"]["stages_ms"].values())
        assert stages_ms == pytest.approx(report["budget"][last], abs=1e-3)


def test_a_text_answers_report_has_no_sound() -> None:
    """Null, not 0."""
    bench, _ = watched(speaks=True)
    bench.update(output_modalities=["text"], gateway={"events": ["latency"]})
    question(bench)
    bench.answer("It is Paris.")
    (report,) = bench.of("gateway.latency.report")
    budget = report["budget"]
    unknown = budget["stages_ms"]["voice"], budget["stages_ms"]["playout"]
    assert (*unknown, budget["first_sound_ms"], budget["heard_ms"]) == (None,) * 4
    stages_ms = sum(ms or 0 for ms in budget["stages_ms"].values())
    assert stages_ms == pytest.approx(budget["total_ms"], abs=1e-3)


def test_a_report_while_the_answer_runs_is_in_its_first_record() -> None:
    """Most clients play before all of a long answer has come."""
    bench, seen = watched(speaks=True)
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "It is big. And old.", bench.now_ns))
    bench.say_all()
    bench.now_ns += 200 * NS_PER_MS
    response_id = bench.last("response.created")["response"]["id"]
    bench.client("gateway.playout.started", response_id=response_id, delay_ms=50)
    assert seen.records == []
    bench.finish(generation, "It is big. And old.")
    bench.say_all()
    (record,) = seen.records
    assert record.to_wire()["playout"] == {"delay_ms": 50, "source": "client"}


@pytest.mark.parametrize("fields", [{"delay_ms": 60_000}, {"played_at_ms": 9_999_999}])
def test_playout_from_the_future_is_refused(fields: dict[str, Any]) -> None:
    """By name; the record stays without, and the client's clock is as good as before."""
    bench, seen, response_id = spoken_answer()
    bench.client("input_audio_buffer.append", audio="AAAA" * 16)
    bench.update(gateway={"events": []})
    bench.client("input_audio_buffer.append", audio="AAAA" * 16, captured_at_ms=1000)
    known = bench.session._speech.client_clock.look(1000)
    bench.client("gateway.playout.started", response_id=response_id, **fields)
    assert bench.error()["code"] == "invalid_value"
    assert bench.error()["param"] == next(iter(fields))
    assert seen.wire["playout"] is None
    assert bench.session._speech.client_clock.look(1000) == known


def test_playout_before_there_was_sound_is_refused() -> None:
    """A clock of the client's that has jumped back."""
    bench, seen, response_id = spoken_answer()
    bench.update(gateway={"events": []})
    bench.client("input_audio_buffer.append", audio="AAAA" * 16, captured_at_ms=500_000)
    bench.client("gateway.playout.started", response_id=response_id, played_at_ms=100_000)
    assert bench.error()["param"] == "played_at_ms"
    assert seen.wire["playout"] is None


def test_playout_by_a_clock_that_nobody_knows_is_null() -> None:
    """Without stamped sound there is nothing to compare with: no error, and no number."""
    bench, seen, response_id = spoken_answer()
    bench.client("gateway.playout.started", response_id=response_id, played_at_ms=5)
    assert not bench.of("error")
    assert len(seen.records) == 1


@pytest.mark.parametrize("fields", [{"delay_ms": -1}, {"delay_ms": 1e9}, {}, {"delay_ms": "1"}])
def test_playout_that_is_no_number_of_ms_is_refused(fields: dict[str, Any]) -> None:
    """Negative, absurd, absent, text."""
    bench, seen, response_id = spoken_answer()
    bench.client("gateway.playout.started", response_id=response_id, **fields)
    assert bench.error()["param"] == "delay_ms"
    assert len(seen.records) == 1


def test_playout_of_somebody_elses_response_is_refused() -> None:
    """Unknown, or not spoken: by name."""
    bench, _ = watched()
    bench.client("response.create")
    bench.answer("Hi.")
    mine = bench.last("response.done")["response"]["id"]
    for response_id in ("resp_of_another", mine):
        bench.clear()
        bench.client("gateway.playout.started", response_id=response_id, delay_ms=5)
        assert bench.error()["param"] == "response_id"


def test_a_call_knows_by_its_track() -> None:
    """The first frame of an answer on our own track is when it is heard; the client's is late."""
    bench, seen, response_id = spoken_answer()
    bench.now_ns += 20 * NS_PER_MS
    bench.playout("started", 480)
    assert seen.wire["playout"] == {"delay_ms": 20, "source": "track"}
    bench.playout("stopped", 24_000)
    bench.playout("started", 24_000)
    bench.client("gateway.playout.started", response_id=response_id, delay_ms=5)
    assert seen.wire["playout"] == {"delay_ms": 20, "source": "track"}


def test_an_answer_cut_while_it_is_played_was_interrupted() -> None:
    """After its response was done, which is long before a client has played it."""
    bench, seen, _ = spoken_answer()
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    fields = {"item_id": item_id, "content_index": 0}
    bench.client("conversation.item.truncate", **fields, audio_end_ms=1000)
    assert len(seen.records) == 1, "all of it was heard"
    bench.client("conversation.item.truncate", **fields, audio_end_ms=300)
    assert (seen.wire["interrupted"], seen.wire["revision"]) == (True, 2)


def test_records_that_may_change_are_bounded() -> None:
    """A session of hours remembers the newest answers only."""
    for speaks, kept in ((True, RECORDS_KEPT), (False, 0)):
        bench, seen = watched(speaks=speaks)
        for _ in range(RECORDS_KEPT + 20):
            bench.client("response.create")
            bench.answer("Hi.")
            bench.say_all()
        assert len(seen.records) == RECORDS_KEPT + 20
        assert len(bench.session._reports._known) == kept


def test_words_are_in_a_record_only_where_that_is_wanted() -> None:
    """`dashboard_content`: what was said and answered; else nowhere, errors included."""
    for wanted in (False, True):
        bench, seen = watched(dashboard_content=wanted)
        question(bench)
        bench.answer("It is Paris.")
        bench.client("conversation.item.create", item={"type": "message", "role": "my secret"})
        texts = seen.wire.get("text")
        told = {"transcript": "the capital of France", "answer": "It is Paris."}
        assert texts == (told if wanted else None)
        assert any("my secret" in message for _, message, _, _ in seen.errors) == wanted


def test_a_record_waits_for_its_first_tokens_stamp() -> None:
    """A client that reads slowly: the response is over before its first token is on the wire."""
    bench, seen = watched()
    bench.client("response.create")
    generation = bench.respond_command().generation
    actions = bench.session.receive_engine(
        api.Delta("sess_test", generation, "Hi", bench.now_ns), bench.now_ns
    )
    (stamped,) = [a for a in actions if getattr(a, "wants_sent_stamp", False)]
    bench.finish(generation, "Hi")
    assert seen.records == []
    bench.now_ns += 250 * NS_PER_MS
    bench._take(bench.session.sent(stamped, bench.now_ns))  # type: ignore[arg-type]
    assert seen.wire["total_ms"] == 250
    assert seen.wire["stamps_ms"]["done"] == 0


def test_a_session_that_ends_tells_what_it_knows() -> None:
    """Its client has gone before the first token was written."""
    bench, seen = watched()
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.session.receive_engine(
        api.Delta("sess_test", generation, "Hi", bench.now_ns), bench.now_ns
    )
    bench.finish(generation, "Hi")
    bench.session.close(bench.now_ns)
    assert seen.wire["total_ms"] is None


def test_an_answer_that_its_client_leaves_is_on_the_record() -> None:
    """With what was known by then; an answer of which the client had not heard has none."""
    bench, seen = watched(dashboard_content=True)
    question(bench)
    bench.now_ns += 40 * NS_PER_MS
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "It is", bench.now_ns))
    bench.now_ns += 300 * NS_PER_MS
    bench.session.close(bench.now_ns)
    (record,) = seen.records
    wire = record.to_wire()
    assert (wire["reason"], wire["interrupted"], wire["error"]) == ("disconnected", False, None)
    assert wire["turn"] == 1
    assert wire["total_ms"] > 500
    assert wire["stamps_ms"]["done"] == pytest.approx(wire["total_ms"] + 300)
    assert (wire["usage"], wire["kv"]) == (None, None)
    assert wire["text"] == {"transcript": "the capital of France", "answer": "It is"}
    assert bench.session._metrics.turns.labels("disconnected")._value.get() == 1


def test_an_answer_that_is_still_spoken_as_its_client_leaves_is_on_the_record() -> None:
    """The engine was through with it; the voice was not."""
    bench, seen = watched(speaks=True)
    question(bench)
    bench.answer("It is Paris.")
    assert seen.records == []
    bench.session.close(bench.now_ns)
    assert [record.reason for record in seen.records] == ["disconnected"]
    assert seen.wire["voice"]["first_sound_ms"] is None


def test_a_client_that_leaves_before_it_heard_of_an_answer_leaves_no_record() -> None:
    """As for one that stays: what was no speech has no turn."""
    bench, seen = watched()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    bench.session.close(bench.now_ns)
    assert bench.commands(api.Respond)
    assert seen.records == []


def test_a_session_says_what_it_is_at() -> None:
    """For the dashboard's list of sessions."""
    bench, _ = watched()
    assert bench.session.state(bench.now_ns) == "idle"
    bench.hear(silence_pcm(100))
    assert bench.session.state(bench.now_ns) == "listening"
    bench.hear(clip_pcm("capital.wav")[: 48 * 1000])
    assert bench.session.state(bench.now_ns) == "speaking"
    rest = clip_pcm("capital.wav")[48 * 1000 :] + silence_pcm(700)
    states = []
    for start in range(0, len(rest), 960):
        bench.hear(rest[start : start + 960])
        states.append(bench.session.state(bench.now_ns))
    assert "pause" in states
    assert states[-1] == "answering"
