"""Clips: sound of items, recognised piece by piece and read in its item."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headstart.engine import api
from headstart.engine.chat.render import Modality
from headstart.engine.interfaces import EmbeddedRecognition
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.clips import MAX_CLIPS, Clips
from tests.engine.fakes import VOCAB, WORD_SAMPLES, Bench, FakeRecognizer, RespellingRecognizer

EITHER_BACKEND = True

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=60)
WORD = bytes(2 * WORD_SAMPLES)


def clip(words: int, name: str = "c", *, last: bool = True) -> api.Clip:
    return api.Clip("s", name, words * WORD, last)


def asked(bench: Bench, *parts: api.Part) -> None:
    """Add an item of those parts and answer it."""
    bench.tell(
        api.AddItem("s", api.Item("i", api.Role.USER, parts)),
        api.Respond("s", 1, "a", GREEDY),
    )
    bench.run()


def test_a_clip_is_recognised_in_pieces_and_read_in_its_item() -> None:
    """Every piece is reported, the last one with all words, which read like typed ones."""
    bench = Bench()
    bench.open()
    bench.tell(clip(2, last=False), clip(4))
    asked(bench, api.Sound("c"))
    words = "what is the capital of france"
    assert bench.of(api.ClipHeard) == [
        api.ClipHeard("s", "c", 2 * WORD_SAMPLES),
        api.ClipHeard("s", "c", 4 * WORD_SAMPLES, words, final=True),
    ]
    assert bench.text() == f"You said: {words}."


def test_a_clip_is_read_as_its_transcript_spells_it() -> None:
    """What was heard of it before was not read by the model."""
    bench = Bench(recognizer=RespellingRecognizer("so it is"))
    bench.open()
    bench.tell(clip(1, last=False), clip(2))
    asked(bench, api.Sound("c"))
    assert bench.text() == "You said: So, It, Is?."


def test_words_beside_sound_stand_apart() -> None:
    """Typed and spoken words are separated; silence adds no separator."""
    bench = Bench()
    bench.open()
    bench.tell(clip(2), clip(0, "silent"))
    asked(bench, api.Text("Say"), api.Sound("c"), api.Sound("silent"), api.Text("now"))
    assert bench.text() == "You said: Say\nwhat is\nnow."


def test_a_clip_is_inserted_while_somebody_speaks() -> None:
    """Recognition of the open utterance continues, and the item stays where it was inserted."""
    bench = Bench()
    bench.open()
    bench.say(words=6)
    bench.tell(clip(2), api.AddItem("s", api.Item("i", api.Role.USER, (api.Sound("c"),)), "root"))
    bench.tell(api.EndSpeech("s", api.TurnRef(1), 0))
    bench.run()
    (heard,) = bench.of(api.Heard)
    assert isinstance(heard, api.Heard)
    assert heard.text == "what is the capital of france"
    assert bench.stream_text().endswith("<U>what is\nwhat is the capital of france")


def test_an_answer_out_of_band_may_be_given_sound() -> None:
    """An out-of-band answer can have sound in its input, beside text."""
    bench = Bench()
    bench.open()
    given = (api.Item("i", api.Role.USER, (api.Sound("c"),)),)
    bench.tell(clip(2), api.Respond("s", -1, "a", GREEDY, items=given))
    bench.run()
    assert bench.text(-1) == "You said: what is."


def test_a_clip_can_be_used_once() -> None:
    """A second use of a clip, and a use of an unknown one, are refused with a named error."""
    bench = Bench()
    bench.open()
    bench.tell(clip(2))
    for item_id in ("i", "j"):
        bench.tell(api.AddItem("s", api.Item(item_id, api.Role.USER, (api.Sound("c"),))))
    bench.run()
    (failed,) = bench.of(api.Failed)
    assert isinstance(failed, api.Failed)
    assert (failed.about, failed.code) == ("add_item", "unknown_clip")


def test_unused_clips_are_bounded() -> None:
    """The oldest clip is dropped."""
    bench = Bench()
    bench.open()
    for number in range(MAX_CLIPS + 1):
        bench.tell(clip(1, f"c{number}"))
    bench.run()
    asked(bench, api.Sound("c1"))
    assert bench.text() == "You said: what."
    bench.tell(api.AddItem("s", api.Item("j", api.Role.USER, (api.Sound("c0"),))))
    bench.run()
    assert [e.code for e in bench.of(api.Failed) if isinstance(e, api.Failed)] == ["unknown_clip"]


class EmbeddingRecognizer(FakeRecognizer):
    """Gives two embeddings for each piece."""

    def open(self, stream: Stream) -> list[int]:  # the ids that the clip reads so far
        self.stream = stream
        return []

    def _embedded(self, ids: list[int]) -> EmbeddedRecognition:
        parts = ((Modality.AUDIO, tuple(ids)),)
        return EmbeddedRecognition(parts, parts, {"encode": 1.0})

    def recognize_batch(self, utterances, pcms):  # type: ignore[no-untyped-def]
        for ids, pcm in zip(utterances, pcms, strict=True):
            ids += self.stream.soft.intern(np.full((2, 4), len(pcm)) * [[1.0], [2.0]])
        return [self._embedded(ids) for ids in utterances]

    def finish(self, utterance, pcm=None):  # type: ignore[no-untyped-def]
        return self._embedded(utterance)


def test_embeddings_go_with_the_clip_into_another_stream() -> None:
    """In the other stream embeddings get new ids with the same content; words keep their ids. No
    embedding is released before the clip is used."""
    bench = Bench()
    bench.open()
    services = replace(bench.engine.parts.services, recognizer=EmbeddingRecognizer(""))
    streams = [Stream(name, bench.pool, VOCAB, 64) for name in ("own", "aside")]
    streams[1].soft.intern(np.arange(12.0).reshape(3, 4))  # so that ids differ
    clips = Clips(services, streams[0])
    heard = clips.hear(clip(1))
    assert (heard.text, heard.transcribed) == ("", False)
    own = clips.tokens()
    assert len(own) == 2
    (segment,) = clips.take("c", streams[1])
    assert segment.modality is Modality.AUDIO
    assert set(segment.ids) & own == set()
    moved = [streams[1].soft.digest(i) for i in segment.ids]
    assert moved == [streams[0].soft.digest(i) for i in sorted(own)]
    assert clips.tokens() == set()


def test_a_transcription_session_keeps_nothing() -> None:
    """Its words are reported, and the decoder does no work for it."""
    bench = Bench()
    bench.tell(api.Open("s", "Hi", only_hears=True))
    for turn in (1, 2):
        bench.say(turn=turn, item_id=f"u{turn}")
        bench.tell(api.EndSpeech("s", api.TurnRef(turn), 0))
        bench.run()
    bench.tell(clip(2), api.AddItem("s", api.Item("i", api.Role.USER, (api.Sound("c"),))))
    bench.tell(api.Frame("s", 0, api.Image(1, 1, b"abc")))
    bench.run()
    texts = [e.text for e in bench.of(api.Heard) if isinstance(e, api.Heard)]
    assert texts == ["what is the capital of france"] * 2
    assert bench.runner.rows == 0
    assert bench.stream_text() == ""
    assert len(bench.engine.sessions["s"].conversation) == 0
    assert bench.of(api.Failed) == []
