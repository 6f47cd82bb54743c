"""Our own answer at the microphone, in virtual time: it is no interruption, and no turn."""

from __future__ import annotations

import numpy as np
import pytest

from headstart.engine import api
from headstart.gateway.tts.espeak import Espeak
from headstart.gateway.tts.messages import ClauseDone, SynthesisedAudio
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

STARTED = "input_audio_buffer.speech_started"
SAID = "The capital of France is Paris, and it lies on the river Seine."
LATE_BYTES = 48 * 150
PIECE_BYTES = 48 * 20


@pytest.fixture(scope="module")
def answer() -> bytes:
    """A spoken answer, s16 at 24 kHz."""
    return np.concatenate(list(Espeak().speak(SAID, 1.0))).tobytes()


def answering(answer: bytes, **gateway: object) -> SessionBench:
    """It has been sent as a whole, and is over but for its sound."""
    bench = SessionBench(speaks=True)
    bench.update(gateway={"events": ["interruption"], **gateway})
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, SAID, bench.now_ns))
    bench.finish(generation, SAID)
    bench.voice(SynthesisedAudio("sess_test", generation, 0, answer))
    bench.voice(ClauseDone("sess_test", generation, 0))
    bench.voice(ClauseDone("sess_test", generation, 1))
    bench.sent.clear()
    return bench


def echo_of(answer: bytes, then_ms: int = 0) -> bytes:
    """20 dB down, 150 ms late."""
    sound = np.frombuffer(bytes(LATE_BYTES) + answer, np.int16) * 0.1
    return sound.astype(np.int16).tobytes() + silence_pcm(then_ms)


def hear(bench: SessionBench, sound: bytes, words: str = "") -> None:
    """In packets; whenever there is speech, these are its words so far."""
    for at in range(0, len(sound), PIECE_BYTES):
        bench.hear(sound[at : at + PIECE_BYTES])
        open_ = bench.session._speech._open
        if words and open_ is not None and at % (10 * PIECE_BYTES) == 0:
            bench.hearing(words, likely=(0.9,) * len(words.split()))
        if open_ is not None and open_.hushed is not None and not open_.text_is_final:
            bench.hearing(words, final=True, likely=(0.9,) * len(words.split()))


def test_an_answer_does_not_interrupt_itself(answer: bytes) -> None:
    """The recogniser gets it word by word; it plays on without a pause, no event is sent, and
    behind it there is no turn."""
    bench = answering(answer)
    hear(bench, echo_of(answer, then_ms=1500), "the capital of France")
    assert bench.commands(api.BeginSpeech), "else there was nothing to be mistaken about"
    assert not bench.holds()
    assert STARTED not in bench.types()
    assert not bench.of("gateway.interruption")
    assert not bench.commands(api.EndSpeech)
    assert len(bench.commands(api.DropSpeech)) == len(bench.commands(api.BeginSpeech))


def test_without_the_detector_it_would(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same sound and the same words."""
    monkeypatch.setattr("headstart.gateway.audio.echo.EchoDetector.share", lambda *_: None)
    bench = answering(answer)
    hear(bench, echo_of(answer, then_ms=1500), "the capital of France")
    assert STARTED in bench.types()


def test_nor_where_any_speech_interrupts(answer: bytes) -> None:
    """`interruption: "speech"`: an echo is none."""
    bench = answering(answer, interruption="speech")
    hear(bench, echo_of(answer, then_ms=1500), "the capital of France")
    assert STARTED not in bench.types()
    assert not bench.commands(api.EndSpeech)


def test_who_speaks_over_the_echo_interrupts(answer: bytes) -> None:
    """A person is louder at the microphone than what comes back from the loudspeaker."""
    bench = answering(answer)
    echo = np.frombuffer(echo_of(answer), np.int16)
    person = np.frombuffer(clip_pcm("capital.wav")[: 48 * 1200], np.int16)
    whole = echo.astype(np.int32)
    whole[24_000 : 24_000 + len(person)] += person
    sound = whole.clip(-32768, 32767).astype(np.int16).tobytes()
    hear(bench, sound[: 48 * 1000], "the capital")
    assert STARTED not in bench.types()
    hear(bench, sound[48 * 1000 : 48 * 2400], "the capital what is the")
    assert STARTED in bench.types()


def test_the_next_question_is_heard(answer: bytes) -> None:
    """Behind the answer and its echo, speech is announced at once."""
    bench = answering(answer)
    hear(bench, echo_of(answer, then_ms=2000))
    bench.hear(clip_pcm("capital.wav")[: 48 * 1200])
    assert STARTED in bench.types()
