"""False words: what the whole path hears in sounds without speech.

A sound goes through the gateway's segmenter (VAD, turns) in 20 ms packets, and the segments through
the recogniser, as in a live session.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headstart.benchmarks import report
from headstart.benchmarks.inputs import noise
from headstart.benchmarks.inputs.noise import RATE_HZ
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.gateway.audio.segmenter import (
    Detection,
    SpeechChunk,
    SpeechResumed,
    SpeechSegmenter,
    SpeechStarted,
    SpeechStopped,
)

PACKET_SAMPLES = RATE_HZ // 50


@dataclass
class Outcome:
    """Utterances that began in a sound, turns that ended with words, and those words."""

    utterances: int
    turns: int
    words: list[str]


def listen(recognizer: WhisperRecognizer, sound: npt.NDArray[np.int16]) -> Outcome:
    """A whole sound, s16 24 kHz, through the segmenter and the recogniser."""
    listener = SpeechSegmenter(Detection())
    outcome = Outcome(0, 0, [])
    utterance = recognizer.open()
    for start in range(0, len(sound), PACKET_SAMPLES):
        packet = sound[start : start + PACKET_SAMPLES].tobytes()
        for event in listener.feed(packet, received_ns=start * 10**9 // RATE_HZ):
            match event:
                case SpeechStarted():
                    utterance = recognizer.open()
                    outcome.utterances += 1
                case SpeechChunk():
                    pcm = np.frombuffer(event.pcm, "<i2").astype(np.float32)
                    recognizer.recognize(utterance, pcm / np.float32(32768))
                case SpeechStopped():
                    words = recognizer.finish(utterance).text.split()
                    outcome.words += words
                    outcome.turns += bool(words)
                case SpeechResumed() | _:
                    pass
    return outcome


def false_words_per_min(recognizer: WhisperRecognizer, seconds: float) -> dict[str, float]:
    """Words per minute recognised in `seconds` of each kind, and over all of them as "all"."""
    rates, total = {}, 0
    for kind in noise.KINDS:
        outcome = listen(recognizer, noise.make(kind, seconds))
        total += len(outcome.words)
        rates[kind] = round(len(outcome.words) * 60 / seconds, 3)
        heard = f"{outcome.utterances} utterances, {outcome.turns} turns: {outcome.words}"
        report.say(f"{kind}: {heard}")
    rates["all"] = round(total * 60 / (seconds * len(noise.KINDS)), 3)
    return rates
