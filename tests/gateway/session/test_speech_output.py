"""Spoken answers: the API's order, interruption, what was heard, and honesty without a voice."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.tts.messages import ClauseDone, Speak, Stop, SynthesisedAudio
from headstart.gateway.tts.status import VoiceStatus
from tests.gateway.session_bench import SessionBench, clip_pcm

WORDS = ("It is", " big. And", " it is red.")
TEXT = "".join(WORDS)
SECOND = 24_000


def answered(**update: object) -> SessionBench:
    """A spoken answer of two clauses, a second of sound each; its text is over, all is said."""
    bench = SessionBench(speaks=True)
    bench.update(gateway={"events": ["latency", "voice"]}, **update)
    bench.client("response.create")
    bench.answer(*WORDS)
    bench.say_all()
    return bench


def deltas(bench: SessionBench, generation: int, *words: str) -> None:
    for word in words:
        bench.engine(api.Delta("sess_test", generation, word, bench.now_ns))


def test_events_come_in_the_apis_order() -> None:
    """The transcript while it is written, sound while it is made, every part closed."""
    bench = answered()
    types = [t for t in bench.types() if t.startswith(("response", "conversation"))]
    assert types == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        *["response.output_audio_transcript.delta"] * 3,
        *["response.output_audio.delta"] * 2,
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "conversation.item.done",
        "response.output_item.done",
        "response.done",
    ]
    assert [play.event["type"] for play in bench.played] == ["response.output_audio.delta"] * 2
    done = bench.last("response.done")["response"]
    assert done["output_modalities"] == ["audio"]
    assert done["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": TEXT}]
    assert bench.last("response.content_part.done")["part"] == {"type": "audio", "transcript": TEXT}


def test_a_clause_is_spoken_before_the_text_is_over() -> None:
    """The voice has it as soon as the next one begins, with the session's speed."""
    bench = SessionBench(speaks=True)
    bench.update(audio={"output": {"speed": 1.25}})
    bench.client("response.create")
    generation = bench.respond_command().generation
    deltas(bench, generation, *WORDS[:2])
    assert bench.uttered == [Speak("sess_test", generation, 0, "It is big. ", 1.25)]


def test_the_response_lasts_until_all_is_said() -> None:
    """Text alone does not end it."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    bench.answer(*WORDS)
    assert not bench.of("response.done")
    bench.say_all()
    assert bench.last("response.done")["response"]["status"] == "completed"


def test_text_when_text_is_wanted() -> None:
    """By the session or by the response; the voice is not asked."""
    for session, params in (
        ({"output_modalities": ["text"]}, {}),
        ({}, {"output_modalities": ["text"]}),
    ):
        bench = SessionBench(speaks=True)
        bench.update(**session)
        bench.client("response.create", response=params)
        bench.answer(*WORDS)
        assert bench.last("response.done")["response"]["output_modalities"] == ["text"]
        assert not bench.uttered


def test_without_a_voice_it_says_so_and_answers_in_text() -> None:
    """The session's echo names text although audio was asked for, and so does each response."""
    bench = SessionBench()
    bench.update(output_modalities=["audio"])
    assert bench.last("session.updated")["session"]["output_modalities"] == ["text"]
    bench.client("response.create")
    bench.answer(*WORDS)
    assert bench.last("response.output_text.done")["text"] == TEXT


@pytest.mark.parametrize("text_over", [False, True])
def test_a_cancel_ends_sound_at_once(text_over: bool) -> None:
    """Whether the model still writes or only the voice still speaks: nothing after it."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    generation = bench.respond_command().generation
    deltas(bench, generation, *WORDS)
    bench.voice(SynthesisedAudio("sess_test", generation, 0, bytes(2 * SECOND)))
    if text_over:
        bench.finish(generation, TEXT)
    bench.client("response.cancel")
    assert Stop("sess_test", generation) in bench.uttered
    sounds = len(bench.played)
    bench.voice(SynthesisedAudio("sess_test", generation, 0, bytes(100)))
    bench.voice(ClauseDone("sess_test", generation, 0))
    assert len(bench.played) == sounds
    if not text_over:
        bench.finish(generation, TEXT, api.FinishReason.CANCELLED)
    assert bench.last("response.done")["response"]["status"] == "cancelled"
    assert bool(bench.commands(api.Cancel)) is not text_over


def test_speaking_over_it_interrupts_it() -> None:
    """Also while only the voice is still at work, and also what is played after response.done."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    bench.answer(*WORDS)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    bench.hearing("What is the")
    done = bench.last("response.done")["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
    assert bench.playout_cleared == 1


def test_what_was_heard_is_what_was_said() -> None:
    """After a truncation the transcript, the model and a later engine know only that."""
    bench = answered()
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    bench.told.clear()
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1000)
    assert bench.last("conversation.item.truncated")["audio_end_ms"] == 1000
    heard = api.Item(item_id, api.Role.ASSISTANT, (api.Text("It is big."),))
    assert bench.told == [
        api.RemoveItem("sess_test", item_id),
        api.AddItem("sess_test", heard, None),  # at the end, where it stood
    ]
    bench.client("conversation.item.retrieve", item_id=item_id)
    content = bench.last("conversation.item.retrieved")["item"]["content"]
    assert content == [{"type": "output_audio", "transcript": "It is big."}]
    bench.told.clear()
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=1500)
    assert bench.told == []  # again, and later: nothing comes back
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
    assert bench.told == [api.RemoveItem("sess_test", item_id)]
    assert not bench.of("error")


def test_what_was_never_sent_as_sound_leaves_the_conversation() -> None:
    """An answer that is interrupted before its first sound: no client has anything to truncate.
    Neither it, the model nor a later engine keeps a word of it."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    generation, item_id = bench.respond_command().generation, bench.respond_command().item_id
    deltas(bench, generation, *WORDS)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    bench.hearing("What is the")
    bench.finish(generation, TEXT, api.FinishReason.CANCELLED)
    (item,) = bench.last("response.done")["response"]["output"]
    assert (item["status"], item["content"][0]["transcript"]) == ("incomplete", "")
    assert bench.last("response.output_audio_transcript.done")["transcript"] == ""
    assert bench.commands(api.RemoveItem) == [api.RemoveItem("sess_test", item_id)]
    assert not [c for c in bench.commands(api.AddItem) if c.item.item_id == item_id]
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=0)
    assert not bench.of("error")


@pytest.mark.parametrize(
    ("sent", "clause_done", "heard"),
    [
        (SECOND // 2, False, "It is"),  # of a clause that takes longer, by its ten letters
        (SECOND, True, "It is big."),
    ],
)
def test_what_was_sent_in_part_ends_with_its_sound(
    sent: int, clause_done: bool, heard: str
) -> None:
    """The client's own truncation may come later, and only shortens it."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    generation, item_id = bench.respond_command().generation, bench.respond_command().item_id
    deltas(bench, generation, *WORDS)
    bench.voice(SynthesisedAudio("sess_test", generation, 0, bytes(2 * sent)))
    if clause_done:
        bench.voice(ClauseDone("sess_test", generation, 0))
    bench.client("response.cancel")
    bench.finish(generation, TEXT, api.FinishReason.CANCELLED)
    assert bench.commands(api.AddItem)[-1].item.parts == (api.Text(heard),)
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=300)
    assert bench.commands(api.AddItem)[-1].item.parts == (api.Text("It"),)


def test_an_answer_that_lost_its_voice_keeps_its_text() -> None:
    """It was read, not heard."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    generation = bench.respond_command().generation
    deltas(bench, generation, *WORDS)
    bench.voice(ClauseDone("sess_test", generation, 0, "no voice"))
    bench.client("response.cancel")
    bench.finish(generation, TEXT, api.FinishReason.CANCELLED)
    assert bench.last("response.output_audio_transcript.done")["transcript"] == TEXT


def test_a_truncation_may_come_while_it_is_still_written() -> None:
    """It is settled when the answer's text is known."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    generation = bench.respond_command().generation
    item_id = bench.respond_command().item_id
    deltas(bench, generation, *WORDS)
    bench.say_all()
    bench.client("response.cancel")
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=500)
    assert not bench.commands(api.RemoveItem)
    bench.finish(generation, TEXT, api.FinishReason.CANCELLED)
    assert bench.commands(api.AddItem)[-1].item.parts == (api.Text("It is"),)


def test_only_spoken_answers_can_be_cut_and_only_within() -> None:
    """By the API's own words; a few ms too many are a rounding, not an error."""
    bench = answered()
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    cut = {"item_id": item_id, "content_index": 0}
    bench.client("conversation.item.truncate", **cut, audio_end_ms=2001)
    assert not bench.of("error")
    bench.client("conversation.item.truncate", **cut, audio_end_ms=9000)
    assert "already shorter" in bench.error()["message"]
    bench = SessionBench()
    bench.client("response.create")
    bench.answer("Text.")
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    bench.client("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=100)
    assert "Only model output audio" in bench.error()["message"]


def test_where_the_server_plays_it_cuts_by_itself() -> None:
    """What the playout dropped was not heard; started and cleared name the response."""
    bench = answered()
    response = bench.last("response.done")["response"]
    bench.playout("started", 480)
    assert bench.last("output_audio_buffer.started")["response_id"] == response["id"]
    bench.client("output_audio_buffer.clear")
    assert bench.playout_cleared == 1
    bench.cleared(SECOND)
    assert bench.last("conversation.item.truncated")["audio_end_ms"] == 1000
    assert bench.last("output_audio_buffer.cleared")["response_id"] == response["id"]
    assert bench.commands(api.AddItem)[-1].item.parts == (api.Text("It is big."),)
    bench.client("response.create")
    bench.answer("And on.")
    bench.say_all()
    bench.playout("started", SECOND + 480)  # the dropped second was never played
    second = bench.last("response.done")["response"]["id"]
    assert bench.last("output_audio_buffer.started")["response_id"] == second != response["id"]
    bench.cleared(0)  # somebody speaks while nothing is played
    assert len(bench.of("conversation.item.truncated")) == 1


def test_a_lost_voice_leaves_text() -> None:
    """The answer under way ends with its whole transcript, the next one is text, all is said."""
    bench = SessionBench(speaks=True)
    bench.update(gateway={"events": ["voice"]})
    bench.client("response.create")
    bench.answer(*WORDS)
    bench.voice_changed(VoiceStatus("lost", reason="the voice ended: killed by SIGKILL"))
    done = bench.last("response.done")["response"]
    assert done["status"] == "completed"
    assert done["output"][0]["content"][0]["transcript"] == TEXT
    assert "SIGKILL" in bench.last("gateway.voice.status")["message"]
    bench.client("response.create")
    bench.answer("Text.")
    assert bench.last("response.done")["response"]["output_modalities"] == ["text"]
    bench.voice_changed(VoiceStatus("ready", "joe"))
    bench.client("response.create")
    bench.answer(*WORDS)
    bench.say_all()
    assert bench.last("response.done")["response"]["output_modalities"] == ["audio"]


def test_the_report_says_when_sound_came() -> None:
    """First clause, first sound and the whole, each on its own; null for an answer in text."""
    bench = SessionBench(speaks=True)
    bench.update(gateway={"events": ["latency"]})
    bench.client("response.create")
    generation = bench.respond_command().generation
    deltas(bench, generation, WORDS[0])
    bench.tick(40)
    deltas(bench, generation, *WORDS[1:])
    bench.tick(250)
    bench.finish(generation, TEXT)
    bench.say_all()
    voice = bench.last("gateway.latency.report")["voice"]
    assert voice["first_clause_ms"] == 40
    assert voice["first_sound_ms"] == 250
    assert voice["total_ms"] == 290
    assert voice["audio_ms"] == 2000
    assert voice["problem"] is None


def test_a_voice_that_has_spoken_stays() -> None:
    """As in the API: another one would answer in the middle of a conversation."""
    bench = answered()
    bench.update(audio={"output": {"voice": "cedar"}})
    assert bench.error()["code"] == "cannot_update_voice"


def test_a_part_that_is_not_there_cannot_be_cut() -> None:
    """Refused by name, and nothing is cut."""
    bench = answered()
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    bench.client("conversation.item.truncate", item_id=item_id, content_index=1, audio_end_ms=0)
    assert (bench.error()["code"], bench.error()["param"]) == ("invalid_value", "content_index")
    assert not bench.of("conversation.item.truncated")
    assert not bench.commands(api.RemoveItem)


def test_a_truncation_tells_what_counts_as_heard() -> None:
    """Not what was asked for, where an earlier cut was shorter or the sound ends before."""
    bench = answered()
    item_id = bench.last("response.done")["response"]["output"][0]["id"]
    echoes = []
    for wanted_ms in (2_001, 500, 900):
        bench.client(
            "conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=wanted_ms
        )
        echoes.append(bench.last("conversation.item.truncated")["audio_end_ms"])
    assert echoes == [2_000, 500, 500]


@pytest.mark.parametrize(
    ("server_plays", "events", "ends_later_s"),
    [(True, [], 1), (False, ["interruption"], 1), (False, [], 0)],
    ids=["a playout of ours", "a client that stands still", "a stock client"],
)
def test_a_pause_delays_the_end_where_the_sound_stands_still(
    server_plays: bool, events: list[str], ends_later_s: int
) -> None:
    """Two seconds of sound that are held for one: a client that knows no pause has played on."""
    bench = SessionBench(speaks=True)
    bench.update(gateway={"events": events})
    bench.session.set_server_plays(server_plays)
    bench.client("response.create")
    bench.answer("It is big.")
    began_ns = bench.now_ns
    bench.say_all(2 * SECOND)
    out = bench.session._out
    ends_ns = began_ns + (2 + ends_later_s) * 10**9
    out.hold(began_ns + 5 * 10**8)
    out.release(began_ns + 15 * 10**8)
    assert out.audible(ends_ns - 10**8)
    assert not out.audible(ends_ns + 10**8)
