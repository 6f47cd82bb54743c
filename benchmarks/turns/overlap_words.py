"""The decision on a sound from its final words alone, without answer, session or language model.

The sound goes through the gateway's segmenter up to each pause, and through the recogniser in one
pass. This takes a tenth of the time of the whole path, which is enough to tune a rule. `plain` is
the rule on words without probabilities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.benchmarks.inputs.voices import Samples
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.gateway.audio.segmenter import (
    Detection,
    PauseDetected,
    SegmenterSettings,
    SpeechChunk,
    SpeechSegmenter,
    SpeechStarted,
)
from headstart.gateway.session.barge_in import InterruptionRule, Meaning
from headstart.gateway.tts.synthesiser import RATE_HZ

PACKET_SAMPLES = RATE_HZ // 50
ROOM_LEVEL = 8  # s16 units either way
LEAD_S, TAIL_S = 0.3, 1.0


@dataclass(frozen=True)
class Words:
    """The words at one pause."""

    text: str
    likely: tuple[float, ...]

    def interrupts(self, *, plain: bool) -> bool:
        likely = () if plain else self.likely
        judged = InterruptionRule().judge(self.text, 0.0, final=True, likely=likely)
        return judged is Meaning.INTERRUPTION


def words_of(recognizer: WhisperRecognizer, sound: Samples) -> list[Words]:
    """The final words at each pause of one sound."""
    random = np.random.default_rng(1)
    lead, tail = (
        random.integers(-ROOM_LEVEL, ROOM_LEVEL + 1, int(seconds * RATE_HZ)).astype(np.int16)
        for seconds in (LEAD_S, TAIL_S)
    )
    whole = np.concatenate([lead, sound, tail])
    listener = SpeechSegmenter(Detection(), SegmenterSettings(chunk_ms=5000))
    utterance = recognizer.open()
    found: list[Words] = []
    for start in range(0, len(whole), PACKET_SAMPLES):
        packet = whole[start : start + PACKET_SAMPLES].tobytes()
        for event in listener.feed(packet, received_ns=start * 10**9 // RATE_HZ):
            match event:
                case SpeechStarted():
                    utterance = recognizer.open()
                case SpeechChunk():
                    pcm = np.frombuffer(event.pcm, "<i2").astype(np.float32)
                    recognizer.recognize(utterance, pcm / np.float32(32768))
                case PauseDetected():
                    heard = recognizer.finish(utterance)
                    found.append(Words(heard.text, heard.likely))
                case _:
                    pass
    return found


def summed(outcomes: list[tuple[str, list[Words]]], *, wanted: bool) -> dict[str, Any]:
    """For one kind: number of sounds, how many interrupted, and which were decided wrongly."""
    by_rule = {
        plain: [any(words.interrupts(plain=plain) for words in heard) for _, heard in outcomes]
        for plain in (False, True)
    }
    wrong = [
        f"{name} {[words.text for words in heard]}"
        for (name, heard), interrupts in zip(outcomes, by_rule[False], strict=True)
        if interrupts is not wanted
    ]
    return {
        "sounds": len(outcomes),
        "interrupted": sum(by_rule[False]),
        "interrupted_plain": sum(by_rule[True]),
        "which": wrong,
    }
