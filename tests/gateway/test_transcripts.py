"""What the client is told of words that come late or never."""

from __future__ import annotations

from engine import api
from gateway.transcripts import MAX_UNHEARD
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

TRANSCRIBE = {"audio": {"input": {"transcription": {"model": "whisper-1"}}}}


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
