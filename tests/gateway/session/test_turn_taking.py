"""What people do while they talk, one case each, through the whole session core in virtual time."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.tts.status import VoiceStatus
from tests.gateway import speech
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
SECOND_BYTES = 48_000
NO_INTERRUPTION = {"interrupt_response": False}


def turn_taking(bench: SessionBench) -> list[str]:
    return [kind for kind in bench.types() if kind.startswith("input_audio_buffer")]


def test_muted_in_mid_word() -> None:
    """No packet comes any more: the turn ends by the clock, and is answered."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1100])
    for _ in range(20):
        bench.tick()
    assert turn_taking(bench) == [STARTED, STOPPED, "input_audio_buffer.committed"]
    assert bench.commands(api.Respond)


def test_the_first_word_is_heard_whole() -> None:
    """What the engine gets begins 300 ms before speech was told, unless the session did."""
    bench = SessionBench()
    bench.hear(silence_pcm(1000) + speech.join(speech.voice(600)))
    begin = bench.commands(api.BeginSpeech)[0]
    assert bench.last(STARTED)["audio_start_ms"] == begin.start_sample // 16
    assert 700 <= begin.start_sample // 16 <= 1000
    assert bench.commands(api.Audio)[0].start_sample == begin.start_sample


def test_a_one_word_okay_is_a_turn() -> None:
    """A sign of listening is one only while there is something to listen to."""
    bench = SessionBench()
    bench.hear(silence_pcm(200) + speech.join(speech.voice(350)) + silence_pcm(240))
    bench.hearing("Okay.", final=True)
    bench.hear(silence_pcm(500))
    assert turn_taking(bench) == [STARTED, STOPPED, "input_audio_buffer.committed"]
    assert bench.types()[-1] == "response.created"


def test_ten_minutes_of_silence_say_nothing() -> None:
    """No event, no command, and the next word is heard as the first one was."""
    bench = SessionBench()
    bench.clear()
    bench.hear(silence_pcm(600_000), SECOND_BYTES)
    assert (bench.sent, bench.told) == ([], [])
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    assert turn_taking(bench) == [STARTED, STOPPED, "input_audio_buffer.committed"]


def test_a_minute_of_unbroken_speech_is_one_turn() -> None:
    """Chunk by chunk on its way to the engine, all of it, once."""
    bench = SessionBench()
    bench.hear(speech.join(speech.voice(60_000)), 9600)
    assert turn_taking(bench) == [STARTED]
    sent = sum(audio.samples for audio in bench.commands(api.Audio))
    assert sent >= 59 * api.SAMPLE_RATE_HZ
    bench.hear(silence_pcm(700))
    assert turn_taking(bench) == [STARTED, STOPPED, "input_audio_buffer.committed"]


@pytest.mark.parametrize(
    ("policy", "probability", "pause_ms", "turns"),
    [
        ("fixed", 1e-7, 400, 1),  # shorter than its 500 ms: one turn
        ("fixed", 1e-7, 800, 2),  # a silence of one length cuts it off, broken off or not
        ("adaptive", 1e-7, 800, 2),  # a speaker of whom nothing is known yet
        ("semantic", 1e-7, 800, 1),  # the model knows that it breaks off
        ("semantic", 0.9, 800, 2),  # and that a whole sentence is over
        ("semantic", None, 800, 2),  # an engine that does not tell is not waited for
    ],
)
def test_a_pause_inside_a_sentence(
    policy: str, probability: float | None, pause_ms: int, turns: int
) -> None:
    """Each policy by itself: how many turns come of "What is the capital … of France?"."""
    bench = SessionBench(interruption="speech")
    bench.update(gateway={"endpointing": policy})
    pause_in_two(bench, probability, pause_ms)
    assert len(bench.of("input_audio_buffer.committed")) == turns


def test_a_speaker_who_was_cut_off_is_waited_for_next_time() -> None:
    """Adaptive: the pause that was taken for an end is learnt, and the third one is none."""
    bench = SessionBench(interruption="speech")
    bench.update(gateway={"endpointing": "adaptive"})
    committed = []
    for _ in range(12):
        pause_in_two(bench, None, 800)
        bench.answer("Yes.")
        committed.append(len(bench.of("input_audio_buffer.committed")))
        bench.hear(silence_pcm(2000))
        bench.sent.clear()
    assert committed[0] == 2
    assert committed[-1] == 1


def pause_in_two(bench: SessionBench, probability: float | None, pause_ms: int) -> None:
    """Two words' worth of voice with a pause between them, and the model's word on the pause."""
    word = speech.join(speech.voice(1200))
    bench.hear(silence_pcm(100) + word + silence_pcm(300))
    if probability is not None:
        ref = bench.told_ref()
        bench.engine(api.EndOfMessage("sess_test", ref, 0, probability))
    bench.hear(silence_pcm(pause_ms - 300) + word + silence_pcm(300))
    if probability is not None:
        ref = bench.told_ref()
        bench.engine(api.EndOfMessage("sess_test", ref, 0, 0.95))
    bench.hear(silence_pcm(1300))


def test_a_second_look_is_a_second_hush() -> None:
    """A message that breaks off: after 600 ms the engine hears the silence since and looks again;
    whether it then is over counts."""
    bench = SessionBench()
    bench.update(gateway={"endpointing": "semantic"})
    bench.hear(silence_pcm(100) + speech.join(speech.voice(1200)) + silence_pcm(300))
    first = bench.commands(api.Hush)
    bench.engine(api.EndOfMessage("sess_test", first[0].ref, 0, 1e-8))
    bench.hear(silence_pcm(400))
    second = bench.commands(api.Hush)[1]
    assert second.ref == first[0].ref
    assert second.end_sample - first[0].end_sample == 400 * 16
    assert not bench.commands(api.EndSpeech)
    bench.engine(api.EndOfMessage("sess_test", second.ref, 0, 0.9))
    bench.hear(silence_pcm(40))
    assert bench.commands(api.EndSpeech)


def test_what_a_pause_for_thought_wasted_is_told() -> None:
    """A hush is speculated on, speech goes on: the engine is told to take it back, the answer that
    counts is begun anew, and the report says how many tokens the first one cost."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    bench.hear(silence_pcm(100) + speech.join(speech.voice(1200)) + silence_pcm(300))
    bench.hear(speech.join(speech.voice(600)) + silence_pcm(600))
    first, second = bench.commands(api.Hush)
    assert first.speculate is not None
    assert second.speculate == first.speculate
    assert (first.ref.turn, first.ref.revision) == (second.ref.turn, second.ref.revision - 1)
    assert [resume.ref for resume in bench.commands(api.Resume)] == [second.ref]
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "Yes.", bench.now_ns))
    bench.finish(generation, "Yes.", usage=api.Usage(output=2, speculated=2, wasted=31))
    usage = bench.last("gateway.latency.report")["usage"]
    assert (usage["speculated_tokens"], usage["wasted_tokens"]) == (2, 31)


@pytest.mark.parametrize("end", ["finished", "cancelled", "lost voice", "deleted", "failed"])
def test_a_question_is_answered_whatever_ended_the_answer_before_it(end: str) -> None:
    """Where speech does not interrupt, it waits for the answer that runs: for its text, its sound,
    the client's wish or the voice's death; nobody has to say that it is over."""
    bench = SessionBench(speaks=True)
    bench.update(audio={"input": {"turn_detection": {"type": "server_vad"} | NO_INTERRUPTION}})
    bench.client("response.create")
    first = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", first, "It is big. ", bench.now_ns))
    bench.hear(clip_pcm("capital.wav") + silence_pcm(900))
    assert bench.of("input_audio_buffer.committed")
    assert len(bench.commands(api.Respond)) == 1, "one answer at a time"
    match end:
        case "finished":
            bench.finish(first, "It is big.")
            bench.say_all(2400)
        case "cancelled":
            bench.client("response.cancel")
            bench.finish(first, "It", api.FinishReason.CANCELLED)
        case "lost voice":
            bench.finish(first, "It is big.")
            bench.voice_changed(VoiceStatus("lost", reason="it was killed"))
        case "deleted":
            item_id = bench.last("response.output_item.added")["item"]["id"]
            bench.client("conversation.item.delete", item_id=item_id)
            bench.finish(first, "It", api.FinishReason.CANCELLED)
        case "failed":
            bench.finish(first, "", api.FinishReason.FAILED)
    assert len(bench.commands(api.Respond)) == 2
    assert bench.of("response.done")
