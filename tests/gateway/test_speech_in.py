"""Speech events as protocol events and engine commands."""

from __future__ import annotations

import base64

from engine import api
from gateway.protocol.session_config import SemanticVadConfig, ServerVadConfig
from gateway.speech_in import MAX_UNHEARD, detection_of
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

TRANSCRIBE = {"audio": {"input": {"transcription": {"model": "whisper-1"}}}}
PUSH_TO_TALK = {"audio": {"input": {"turn_detection": None}}}


def test_detection_follows_the_protocols_settings() -> None:
    """Silence, padding and threshold are taken over; the hush never comes after the end."""
    assert detection_of(None, 200) is None
    vad = detection_of(ServerVadConfig(threshold=0.7, silence_duration_ms=120), 200)
    assert vad is not None
    assert vad.threshold == 0.7
    assert vad.endpoint.longest_silence_ms == 120
    eager = detection_of(SemanticVadConfig(eagerness="high"), 200)
    patient = detection_of(SemanticVadConfig(eagerness="low"), 200)
    assert eager is not None
    assert patient is not None
    assert eager.endpoint.longest_silence_ms < patient.endpoint.longest_silence_ms


def test_chunk_length_is_a_setting_of_the_session() -> None:
    """After session.gateway.chunk_ms the engine gets pieces of that length."""
    bench = SessionBench()
    bench.update(gateway={"chunk_ms": 200})
    bench.hear(clip_pcm("capital.wav"))
    assert {c.samples for c in bench.commands(api.Audio)[:-1]} == {3200}


def test_a_client_stamp_gives_the_network_stage() -> None:
    """captured_at_ms counts against the quickest packet so far: delay beyond it is network."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    pcm = clip_pcm("capital.wav") + silence_pcm(700)
    for start in range(0, len(pcm), 960):
        packet = pcm[start : start + 960]
        spoken_ms = (start + len(packet)) / 48
        # From one second on, packets come 30 ms late.
        bench.now_ns = round((spoken_ms + (30 if spoken_ms > 1000 else 0)) * 1e6)
        bench.client(
            "input_audio_buffer.append",
            audio=base64.b64encode(packet).decode(),
            captured_at_ms=5_000_000 + spoken_ms,
        )
    bench.answer("Paris.")
    budget = bench.last("gateway.latency.report")["budget"]
    assert budget["anchor"] == "captured"
    assert abs(budget["stages_ms"]["network"] - 30) < 1


def test_clearing_forgets_the_utterance() -> None:
    """The engine drops it, the client is told, and nothing is committed."""
    bench = SessionBench()
    bench.update(**PUSH_TO_TALK)
    bench.hear(clip_pcm("capital.wav"))
    bench.client("input_audio_buffer.clear")
    assert bench.commands(api.DropSpeech)
    assert bench.types()[-1] == "input_audio_buffer.cleared"
    bench.client("input_audio_buffer.commit")
    assert bench.error()["code"] == "input_audio_buffer_commit_empty"


def test_turning_detection_off_in_mid_speech_keeps_the_utterance() -> None:
    """It then waits for the client's commit."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1200])
    bench.update(**PUSH_TO_TALK)
    bench.hear(silence_pcm(1500))
    assert not bench.commands(api.EndSpeech)
    bench.client("input_audio_buffer.commit")
    assert bench.commands(api.EndSpeech)


def test_an_engine_far_behind_gives_up_the_oldest_words() -> None:
    """More than MAX_UNHEARD utterances without words: the oldest is told as failed."""
    bench = SessionBench()
    bench.update(audio={"input": {"turn_detection": None, "transcription": {"model": "x"}}})
    for _ in range(MAX_UNHEARD + 1):
        bench.hear(silence_pcm(200), 9600)
        bench.client("input_audio_buffer.commit")
    (failed,) = bench.of("conversation.item.input_audio_transcription.failed")
    assert failed["error"]["code"] == "engine_behind"


def test_a_failed_hearing_is_a_failed_transcription_and_no_error() -> None:
    """To some clients every error event is fatal, so it does not travel as one."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    bench.engine(api.Failed("sess_test", "end_speech", "context_full", "too long"))
    failed = bench.last("conversation.item.input_audio_transcription.failed")
    assert failed["error"]["code"] == "context_full"
    assert not bench.of("error")


def test_a_model_without_words_says_so() -> None:
    """Nobody wrote down what the model heard: the transcription fails with that reason, the item's
    transcript stays null, and the turn goes on."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", api.TurnRef(1), item_id, "", 40, transcribed=False))
    failed = bench.last("conversation.item.input_audio_transcription.failed")
    assert failed["error"]["code"] == "no_transcriber"
    assert not bench.of("conversation.item.input_audio_transcription.completed")
    bench.client("conversation.item.retrieve", item_id=item_id)
    item = bench.last("conversation.item.retrieved")["item"]
    assert item["content"][0]["transcript"] is None
    assert not bench.of("error")
