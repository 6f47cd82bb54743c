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


def test_words_that_were_sent_are_not_sent_again_otherwise() -> None:
    """Where the final pass hears committed words otherwise, no delta follows on the wrong ones, in
    mid-word say: the completed transcript alone is right."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    ref = api.TurnRef(1)
    bench.engine(api.Hearing("sess_test", ref, "Please hope", " wide", 16_000))
    bench.engine(api.Hearing("sess_test", ref, "Please", " hold while", 16_000, final=True))
    bench.engine(api.Heard("sess_test", ref, item_id, "Please hold while I try.", 40))
    deltas = bench.of("conversation.item.input_audio_transcription.delta")
    assert [delta["delta"] for delta in deltas] == ["Please hope"]
    completed = bench.last("conversation.item.input_audio_transcription.completed")
    assert completed["transcript"] == "Please hold while I try."


def test_words_that_a_final_pass_keeps_go_on() -> None:
    """Deltas together are the transcript where nothing that was sent changed."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    ref = api.TurnRef(1)
    bench.engine(api.Hearing("sess_test", ref, "Please hold", " wide", 16_000))
    bench.engine(api.Hearing("sess_test", ref, "Please", " hold.", 16_000, final=True))
    bench.engine(api.Heard("sess_test", ref, item_id, "Please hold while I try.", 40))
    deltas = bench.of("conversation.item.input_audio_transcription.delta")
    assert "".join(delta["delta"] for delta in deltas) == "Please hold while I try."
