"""What the client is told of words that come late or never."""

from __future__ import annotations

import pytest

from headstart.engine import api
from headstart.gateway.session.transcription import MAX_UNHEARD
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


@pytest.mark.parametrize("end", ["clear", "push_to_talk", "engine_lost"])
def test_words_of_what_becomes_no_item_have_an_end(end: str) -> None:
    """Who was told that somebody speaks, and words of it, is told that no more will come: once."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE)
    bench.hear(clip_pcm("capital.wav")[: 48 * 1500])
    bench.engine(api.Hearing("sess_test", api.TurnRef(1), "What is", "", 16000))
    item_id = bench.last("input_audio_buffer.speech_started")["item_id"]
    bench.clear()
    if end == "clear":
        bench.client("input_audio_buffer.clear")
    elif end == "push_to_talk":
        bench.update(audio={"input": {"turn_detection": None}})
        bench.client("input_audio_buffer.clear")
    else:
        bench.engine_lost()
    (stopped,) = bench.of("input_audio_buffer.speech_stopped")
    (failed,) = bench.of("conversation.item.input_audio_transcription.failed")
    assert stopped["item_id"] == failed["item_id"] == item_id
    assert failed["error"]["code"] == ("engine_lost" if end == "engine_lost" else "dropped")


def test_nothing_is_told_of_an_utterance_that_was_deleted() -> None:
    """Its words, when they come, go nowhere, and the engine forgets them."""
    bench = SessionBench()
    bench.update(**TRANSCRIBE, gateway={"events": ["hearing", "endpoint", "chunks"]})
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    ref, item_id = api.TurnRef(1), bench.last("input_audio_buffer.committed")["item_id"]
    bench.client("conversation.item.delete", item_id=item_id)
    assert bench.commands(api.RemoveItem)[0].item_id == item_id
    bench.clear()
    bench.engine(api.Hearing("sess_test", ref, "What is", "", 8000))
    bench.engine(api.EndOfMessage("sess_test", ref, 8000, 0.5))
    bench.engine(api.Chunk("sess_test", ref, 0, 8000, {}, 5.0, 0, 0))
    bench.engine(api.Heard("sess_test", ref, item_id, "What is it?", 4))
    assert not any(item_id in repr(event) for event in bench.sent)


def test_what_the_model_heard_without_words_can_be_deleted() -> None:
    """Sound that nobody wrote down is an item of the engine's all the same."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav") + silence_pcm(700))
    item_id = bench.last("input_audio_buffer.committed")["item_id"]
    bench.engine(api.Heard("sess_test", api.TurnRef(1), item_id, "", 40, transcribed=False))
    bench.client("conversation.item.delete", item_id=item_id)
    assert bench.commands(api.RemoveItem)[0].item_id == item_id


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
