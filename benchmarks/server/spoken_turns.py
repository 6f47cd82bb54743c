"""What the people of `headstart bench conversations` say: turns of packaged voices, as frames.

A turn is a question, behind as many statements as its length asks for, with pauses between. The
sentences are spoken once and kept as files. Frames are encoded once, so that a client only writes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from headstart.benchmarks.harness.packets import PACKET_BYTES, PACKET_MS
from headstart.benchmarks.harness.websocket_frames import text_frame
from headstart.benchmarks.inputs import pauses
from headstart.benchmarks.inputs.recordings import load_s16
from headstart.benchmarks.inputs.spoken import QUESTIONS, SENTENCES, write
from headstart.benchmarks.inputs.turn_taking import Turn
from headstart.benchmarks.inputs.voices import Line, Samples, cast
from headstart.gateway.tts.synthesiser import RATE_HZ

VOICES = ("joe", "kokoro jf_gongitsune", "kokoro jm_kumo")
NEEDS_MORE = r"^And|picture|this|that|song|table"  # words of questions that lean on something
HISS_RMS = 30  # s16 units, about -61 dBFS: a quiet room
HISS_PACKETS = 150
PAUSE_MS = (120, 420)  # shorter than the silence that ends a turn
STATEMENTS = (
    "I would like to ask you something.",
    "There is something I was wondering about.",
    "My daughter asked me this in the morning, and I had no answer for her.",
    "We were talking about it at dinner yesterday.",
    "I am trying to learn a bit more about the world.",
    "It has been raining here for the whole week.",
    "My brother says that I am wrong, but I am quite sure about it.",
    "I have read about it in a book, and I have forgotten most of it.",
    "We are going on a trip in a few weeks.",
    "I am sitting in the kitchen with a cup of tea.",
    "I used to know things like that when I was at school.",
    "The train was late again, so I have some time now.",
    "My neighbor has a small dog that barks all night.",
    "I just came back from the market with a lot of vegetables.",
    "There was a program about it on the radio last night.",
    "I never had the time to look it up myself.",
)


@dataclass(frozen=True)
class Sentence:
    """A spoken sentence as frames of a WebSocket, `PACKET_MS` of sound each."""

    text: str
    frames: tuple[bytes, ...]


@dataclass(frozen=True)
class SpokenTurns:
    """The sentences of one voice. `hiss`: frames of a quiet room."""

    questions: Sequence[Sentence]
    statements: Sequence[Sentence]
    hiss: Sequence[bytes]

    def say(self, turn: Turn, chance: Random) -> list[bytes]:
        """A turn of about `turn.speech_s` seconds: statements, with pauses behind each, and a
        question; a short one is the question alone."""
        question = chance.choice(self.questions)
        wanted = round(turn.speech_s * 1000 / PACKET_MS)
        said: list[bytes] = []
        least = min(len(each.frames) for each in self.statements)
        for statement in chance.sample(self.statements, len(self.statements)):
            if len(said) + least + len(question.frames) > wanted:
                break
            if len(said) + len(statement.frames) + len(question.frames) > wanted + least // 2:
                continue
            pause = round(chance.uniform(*PAUSE_MS) / PACKET_MS)
            said += [*statement.frames, *self.hiss[:pause]]
        return [*said, *question.frames]


def load(folder: Path, say: Callable[[str], None]) -> list[SpokenTurns]:
    """Each voice's sentences; those missing are spoken into `folder`. `say` is told of each voice.

    Raises `VoiceUnavailable` where the extra 'voice' is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    asked = [text for text in SENTENCES[QUESTIONS] if not re.search(NEEDS_MORE, text)]
    hiss = frames_of(_hiss(HISS_PACKETS * PACKET_BYTES // 2))
    found = []
    for voice in VOICES:
        texts = [*asked, *STATEMENTS]
        paths = [folder / f"{voice.replace(' ', '-')}-{_slug(text)}.wav" for text in texts]
        missing = [each for each in zip(paths, texts, strict=True) if not each[0].exists()]
        if missing:
            say(f"{voice} speaks {len(missing)} sentences, once")
            ((_, speak),) = cast((voice,))
            for path, text in missing:
                write(path, speak(Line(text)))
        spoken = [
            Sentence(text, frames_of(trimmed(load_s16(path, RATE_HZ))))
            for path, text in zip(paths, texts, strict=True)
        ]
        found.append(SpokenTurns(spoken[: len(asked)], spoken[len(asked) :], hiss))
    return found


def trimmed(sound: Samples) -> Samples:
    """Without the silence at its ends, whose level is told by frames of 160 samples."""
    return pauses.trimmed(sound)


def frames_of(sound: Samples) -> tuple[bytes, ...]:
    """The sound in appends of whole packets; the last one ends in the noise of a quiet room."""
    samples = PACKET_BYTES // 2
    padded = np.concatenate([sound, _hiss(-len(sound) % samples)])
    return tuple(
        append_frame(padded[at : at + samples].tobytes()) for at in range(0, len(padded), samples)
    )


def append_frame(pcm: bytes) -> bytes:
    audio = base64.b64encode(pcm).decode()
    return text_frame(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))


def _hiss(samples: int) -> Samples:
    noise = np.random.default_rng(0).normal(0, HISS_RMS, samples)
    return np.rint(noise).astype(np.int16)


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-")
