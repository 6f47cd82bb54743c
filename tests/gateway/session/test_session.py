"""The session core in virtual time: the protocol's order of events, turns, errors, engine loss."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm, user_text

TRANSCRIBE = {"audio": {"input": {"transcription": {"model": "whisper-1"}}}}
PUSH_TO_TALK = {"audio": {"input": {"turn_detection": None}}}


def test_a_session_begins_with_its_settings_and_opens_in_the_engine() -> None:
    """session.created comes first, with the settings in force; the engine learns of the session."""
    bench = SessionBench()
    created = bench.sent[0]
    assert created["type"] == "session.created"
    assert created["session"]["output_modalities"] == ["text"]
    assert created["session"]["audio"]["input"]["turn_detection"]["silence_duration_ms"] == 500
    assert isinstance(bench.told[0], api.Open)


def test_a_text_turn_has_the_order_of_events_that_was_captured() -> None:
    """Item, response, item, part, text and their ends come as the live service sends them."""
    bench = SessionBench()
    bench.clear()
    bench.client("conversation.item.create", item=user_text("Hello"))
    bench.client("response.create")
    bench.answer("Hi", " there")
    assert bench.types() == [
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    done = bench.last("response.done")["response"]
    assert done["status"] == "completed"
    assert done["output"][0]["content"] == [{"type": "output_text", "text": "Hi there"}]
    assert done["usage"]["total_tokens"] == 15
    assert done["usage"]["input_token_details"]["cached_tokens"] == 10


def test_a_spoken_turn_under_server_vad() -> None:
    """Speech is committed and answered by itself, with one item id from its start on."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.clear()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    assert bench.types() == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ]
    item_id = bench.sent[0]["item_id"]
    assert {event["item_id"] for event in bench.sent[:3]} == {item_id}
    kinds = [type(command).__name__ for command in bench.told]
    assert kinds[0] == "BeginSpeech"
    assert kinds[-3:] == ["Hush", "EndSpeech", "Respond"]
    assert set(kinds[1:-3]) == {"Audio"}
    hush = bench.commands(api.Hush)[0]
    assert hush.speculate == bench.respond_command().sampling
    heard = api.Heard("sess_test", api.TurnRef(1), item_id, "What is it?", 4)
    bench.engine(heard)
    assert bench.types()[-1] == "response.created"
    completed = bench.last("conversation.item.input_audio_transcription.completed")
    assert completed["transcript"] == "What is it?"
    bench.client("conversation.item.retrieve", item_id=item_id)
    item = bench.last("conversation.item.retrieved")["item"]
    assert item["content"][0]["transcript"] == "What is it?"


@pytest.mark.parametrize("packet", [2, 14, 320, 1022, 1024, 1026, 9600, 128_000])
def test_packet_size_does_not_matter(packet: int) -> None:
    """1, 7, 160, 511, 512, 513, 4800, 64000 samples a packet: same events and sample numbers."""
    pcm = clip_pcm("capital.wav") + silence_pcm(700) + clip_pcm("followup.wav") + silence_pcm(700)
    runs = []
    for size in (960, packet):
        bench = SessionBench(interruption="speech")  # nobody plays the recogniser here
        bench.hear(pcm, size, realtime=size != 2)
        told = [
            [type(c).__name__]
            + [getattr(c, name, None) for name in ("ref", "start_sample", "pcm", "end_sample")]
            for c in bench.told
        ]
        times = [
            (e["type"], e.get("audio_start_ms"), e.get("audio_end_ms"))
            for e in bench.sent
            if e["type"].startswith("input_audio_buffer")
        ]
        runs.append((told, times))
    assert len(runs[0][1]) == 6  # two turns: started, stopped, committed
    assert runs[0] == runs[1]


def test_words_are_sent_while_the_person_speaks() -> None:
    """Transcription deltas carry committed words only, before the item is committed."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE, gateway={"events": ["hearing"]})
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    ref = api.TurnRef(1)
    bench.engine(api.Hearing("sess_test", ref, "What", " is teh", 8000))
    bench.engine(api.Hearing("sess_test", ref, "What is the", " cat", 16000))
    deltas = bench.of("conversation.item.input_audio_transcription.delta")
    assert [event["delta"] for event in deltas] == ["What", " is the"]
    assert bench.last("gateway.hearing")["tentative"] == " cat"
    assert not bench.of("input_audio_buffer.committed")


def test_only_words_are_answered() -> None:
    """A spoken turn asks for an answer to words alone; without any the client hears of no response.
    A client's own request is answered in any case."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    respond = bench.respond_command()
    assert respond.only_if_heard
    ref = api.TurnRef(1)
    bench.engine(
        api.Heard("sess_test", ref, bench.last("input_audio_buffer.committed")["item_id"], "", 0)
    )
    cancelled = api.FinishReason.CANCELLED
    bench.engine(
        api.Finished("sess_test", respond.generation, cancelled, "", api.Usage(), api.KvStats())
    )
    assert not [kind for kind in bench.types() if kind.startswith("response")]
    bench.client("response.create")
    assert bench.types()[-1] == "response.created"
    assert not bench.commands(api.Respond)[-1].only_if_heard


def test_the_end_of_a_message_is_told_to_those_who_asked() -> None:
    """The model's probability arrives under its utterance; of a turn that is over it is dropped."""
    bench = SessionBench()
    bench.update(gateway={"events": ["endpoint"]})
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    bench.engine(api.EndOfMessage("sess_test", api.TurnRef(1), 16000, 0.25))
    event = bench.last("gateway.end_of_message")
    started = bench.last("input_audio_buffer.speech_started")
    assert event["item_id"] == started["item_id"]
    assert (event["turn"], event["probability"], event["audio_ms"]) == (1, 0.25, 1000.0)
    assert event["mark_probability"] is None  # the words end with no mark
    bench.engine(api.EndOfMessage("sess_test", api.TurnRef(1), 20000, 0.5, 0.125))
    assert bench.last("gateway.end_of_message")["mark_probability"] == 0.125
    bench.engine(api.EndOfMessage("sess_test", api.TurnRef(9), 16000, 0.5))
    assert len(bench.of("gateway.end_of_message")) == 2


def test_our_events_go_only_to_sessions_that_asked() -> None:
    """Without session.gateway there is no event type that the API does not have."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    ref = api.TurnRef(1)
    bench.engine(api.Hearing("sess_test", ref, "What", "", 8000))
    bench.engine(api.EndOfMessage("sess_test", ref, 8000, 0.5))
    bench.engine(api.Chunk("sess_test", ref, 0, 8000, {"mel": 1.0}, 5.0, 3, 0))
    bench.answer("Paris.")
    assert not [t for t in bench.types() if t.startswith("gateway.")]
    assert not bench.of("conversation.item.input_audio_transcription.delta")


def test_the_latency_report_sums_to_its_total() -> None:
    """Stages sum to the total within 1 ms, hangover included, and missing anchors are null."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency", "chunks"]})
    bench.hear(clip_pcm("capital.wav"))
    while not bench.commands(api.Respond):
        bench.hear(silence_pcm(10))
    generation = bench.respond_command().generation
    endpoint_ns = bench.now_ns
    bench.now_ns += 30_000_000
    spans = (
        api.Span("encode", endpoint_ns - 100_000_000, endpoint_ns - 50_000_000),
        api.Span("prefill", endpoint_ns + 1_000_000, endpoint_ns + 20_000_000),
    )
    bench.engine(api.Delta("sess_test", generation, "Paris.", bench.now_ns, spans))
    bench.finish(generation, "Paris.")
    report = bench.last("gateway.latency.report")
    stages = report["budget"]["stages_ms"]
    known = [ms for ms in stages.values() if ms is not None]
    assert sum(known) == pytest.approx(report["budget"]["total_ms"], abs=1.0)
    assert stages["network"] is None
    assert stages["vad_hangover"] == pytest.approx(500, abs=41)
    assert stages["prefill"] == pytest.approx(19, abs=0.01)
    assert stages["encode"] == pytest.approx(0)
    assert report["budget"]["hidden_ms"] == pytest.approx(50, abs=0.01)
    assert report["kv"]["bytes_per_token"] == 100


def test_a_move_to_another_llm_server_is_told() -> None:
    """At once, and with the turn; without addresses, which are nobody's business outside."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency", "engine"]})
    bench.client("conversation.item.create", item=user_text("Hello"))
    bench.client("response.create")
    generation = bench.respond_command().generation
    move = api.Move("http://a:1", "http://b:2", "llm_unreachable", 300, bench.now_ns)
    bench.engine(api.Delta("sess_test", generation, "Hi", bench.now_ns))
    bench.engine(api.Moved("sess_test", move))
    status = bench.last("gateway.engine.status")
    assert (status["status"], status["why"], status["tokens"]) == ("moved", "llm_unreachable", 300)
    stop = api.FinishReason.STOP
    usage, kv = api.Usage(), api.KvStats()
    done = api.Finished("sess_test", generation, stop, "Hi", usage, kv, moves=(move,))
    bench.engine(done)
    report = bench.last("gateway.latency.report")
    assert report["moves"] == [{"why": "llm_unreachable", "tokens": 300}]
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_a_text_turn_has_no_hangover_and_no_network() -> None:
    """A stage that does not apply is null, never 0."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    bench.client("conversation.item.create", item=user_text("Hello"))
    bench.client("response.create")
    bench.answer("Hi")
    budget = bench.last("gateway.latency.report")["budget"]
    assert budget["anchor"] == "requested"
    assert budget["stages_ms"]["vad_hangover"] is None
    assert budget["stages_ms"]["network"] is None


def test_push_to_talk_commits_and_answers_on_request() -> None:
    """Without turn detection nothing is committed or answered until the client says so."""
    bench = SessionBench()
    bench.update(**PUSH_TO_TALK)
    bench.clear()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(1000))
    assert bench.types() == []
    assert len(bench.commands(api.Audio)) >= 5
    bench.client("input_audio_buffer.commit")
    assert bench.types()[0] == "input_audio_buffer.committed"
    assert not bench.commands(api.Respond)
    bench.client("response.create")
    bench.answer("Paris.")
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_talking_over_an_answer_cancels_it() -> None:
    """speech_started, then the answer's close-out with turn_detected; late text is dropped."""
    bench = SessionBench()
    bench.client("conversation.item.create", item=user_text("Hello"))
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "Once upon", 0))
    bench.clear()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    assert bench.types() == []
    bench.hearing("What is the")
    assert bench.types() == ["input_audio_buffer.speech_started"]
    assert bench.commands(api.Cancel)[0].generation == generation
    bench.engine(api.Delta("sess_test", generation, " a time", 0))
    bench.finish(generation, "Once upon a time", api.FinishReason.CANCELLED)
    done = bench.last("response.done")["response"]
    assert done["status"] == "cancelled"
    assert done["status_details"]["reason"] == "turn_detected"
    assert done["output"][0]["status"] == "incomplete"
    assert done["output"][0]["content"][0]["text"] == "Once upon"


def test_a_question_during_an_answer_waits_when_interrupting_is_off() -> None:
    """interrupt_response false: the answer goes on and the next one begins when it is over."""
    bench = SessionBench()
    detection = {"type": "server_vad", "interrupt_response": False}
    bench.update(audio={"input": {"turn_detection": detection}})
    bench.client("conversation.item.create", item=user_text("Hello"))
    bench.client("response.create")
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    assert len(bench.commands(api.Respond)) == 1
    assert not bench.commands(api.Cancel)
    bench.answer("First.")
    assert len(bench.commands(api.Respond)) == 2
    bench.answer("Second.")
    assert len(bench.of("response.done")) == 2


def test_out_of_band_answers_run_beside_the_conversation() -> None:
    """conversation none: no item is announced, metadata is echoed, and both may run at once."""
    bench = SessionBench()
    bench.client("response.create")
    main = bench.respond_command()
    ask = {
        "conversation": "none",
        "metadata": {"topic": "x"},
        "input": [user_text("Classify this")],
    }
    bench.client("response.create", response=ask)
    aside = bench.respond_command()
    assert aside.items is not None
    assert aside.generation != main.generation
    bench.clear()
    bench.engine(api.Delta("sess_test", aside.generation, "spam", 0))
    bench.finish(aside.generation, "spam")
    assert not [t for t in bench.types() if t.startswith("conversation.")]
    done = bench.last("response.done")["response"]
    assert done["metadata"] == {"topic": "x"}
    assert done["conversation_id"] is None


def test_items_are_inserted_where_the_client_says() -> None:
    """root, an item's id and nothing: the head, behind it, the end; the engine hears the same."""
    bench = SessionBench()
    create = "conversation.item.create"
    bench.client(create, item=user_text("b", id="b"))
    bench.client(create, item=user_text("a", id="a"), previous_item_id="root")
    bench.client(create, item=user_text("c", id="c"), previous_item_id="b")
    bench.client(create, item=user_text("d", id="d"), previous_item_id="a")
    assert [c.after for c in bench.commands(api.AddItem)] == [None, "root", None, "a"]
    previous = [e["previous_item_id"] for e in bench.of("conversation.item.added")]
    assert previous == [None, None, "b", "a"]
    bench.client("conversation.item.delete", item_id="b")
    assert bench.last("conversation.item.deleted")["item_id"] == "b"
    assert bench.commands(api.RemoveItem)[0].item_id == "b"


def test_a_lost_engine_fails_the_answer_and_keeps_the_conversation() -> None:
    """The answer in hand fails by name; a new engine gets all items; the next turn works."""
    bench = SessionBench()
    bench.update(gateway={"events": ["engine"]})
    bench.client("conversation.item.create", item=user_text("Hello", id="u1"))
    bench.client("response.create")
    bench.answer("Hi.")
    bench.client("conversation.item.create", item=user_text("And?", id="u2"))
    bench.client("response.create")
    bench.engine(api.Delta("sess_test", bench.respond_command().generation, "Well", 0))
    bench.engine_lost()
    done = bench.last("response.done")["response"]
    assert done["status"] == "failed"
    assert done["status_details"]["error"]["code"] == "engine_lost"
    assert bench.last("gateway.engine.status")["status"] == "restarting"
    bench.client("response.create")
    assert bench.last("response.done")["response"]["status"] == "failed"
    bench.engine_ready()
    opened = bench.commands(api.Open)[-1]
    assert [item.role for item in opened.items] == ["user", "assistant", "user", "assistant"]
    bench.client("response.create")
    bench.answer("Fine.")
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_speech_that_a_lost_engine_was_hearing_is_told_as_failed() -> None:
    """The open utterance is given up with a failed transcription, and the next one is heard."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    bench.engine_lost()
    failed = bench.last("conversation.item.input_audio_transcription.failed")
    assert failed["error"]["code"] == "engine_lost"
    bench.engine_ready()
    bench.clear()
    bench.hear(silence_pcm(500) + clip_pcm("followup.wav") + silence_pcm(700))
    assert bench.commands(api.BeginSpeech)
    assert bench.commands(api.Respond)


def test_a_microphone_that_vanishes_ends_the_turn() -> None:
    """When packets cease in mid-word, the sample clock goes on by silence and the turn ends."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    assert not bench.commands(api.EndSpeech)
    for _ in range(30):
        bench.tick()
    assert bench.commands(api.EndSpeech)
    assert bench.commands(api.Respond)


def test_a_session_ends_when_its_time_is_over() -> None:
    """session_expired, then close 1001 with the same sentence, and not a minute before."""
    bench = SessionBench(max_session_minutes=90)
    assert bench.sent[0]["session"]["expires_at"] == 1_000 + 90 * 60
    bench.tick(89 * 60_000)
    assert not bench.hangups
    bench.tick(60_000)
    assert bench.error()["code"] == "session_expired"
    assert bench.hangups[0].code == 1001


def test_a_second_response_is_refused_and_the_first_goes_on() -> None:
    """conversation_already_has_active_response names the one that runs."""
    bench = SessionBench()
    bench.client("response.create")
    bench.client("response.create", event_id="mine")
    assert bench.error()["code"] == "conversation_already_has_active_response"
    assert bench.error()["event_id"] == "mine"
    bench.answer("Fine.")
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_events_of_answers_that_are_over_are_dropped() -> None:
    """Text and ends of a generation that is not running change nothing."""
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("One.")
    bench.clear()
    bench.engine(api.Delta("sess_test", 1, "late", 0))
    bench.finish(1, "late")
    assert bench.sent == []
