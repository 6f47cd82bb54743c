"""Sounds over an answer: real interruptions, backchannels, and noises.

The halves share no voice: rules are tuned on `DEVELOPMENT` and reported on `HELD_OUT` and `FRESH`,
which has no recordings. With a LIST (lines `path TAB text`), prompts of up to `SHORT_WORDS` words
are added as people's words, in halves by the names' CRC-32: unexpected words, often half a second
long.
"""

# ruff: noqa: RUF001  (IPA)
from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headstart.benchmarks.inputs import noise
from headstart.benchmarks.inputs.recordings import load_s16
from headstart.benchmarks.inputs.voices import Line, Samples, cast
from headstart.gateway.audio.clock import CLIENT_RATE_HZ

DEVELOPMENT = ("flite awb", "flite slt", "joe", "kokoro jf_alpha", "kokoro jf_nezumi")
HELD_OUT = ("flite rms", "flite kal16", "kokoro jm_kumo", "kokoro jf_gongitsune", "espeak en-us+f4")
FRESH = ("flite kal", "kokoro jf_tebukuro")  # looked at once, when the rule stood
HALVES = {"development": (DEVELOPMENT, 0), "held-out": (HELD_OUT, 1), "fresh": (FRESH, 1000)}
"""The voices of each, and its number: of its first noise, and of its half of the recordings, 0 or 1
(`fresh` has none)."""

INTERRUPTIONS = tuple(
    Line(text)
    for text in (
        "Stop.",
        "No.",
        "Wait.",
        "Hey.",
        "What?",
        "Sorry?",
        "Pause.",
        "Enough.",
        "Stop it.",
        "Hold on.",
        "No, no.",
        "One moment.",
        "No, that's wrong.",
        "What about Italy?",
        "Please stop talking.",
        "Can you repeat that?",
        "That is not what I asked.",
        "Tell me something else.",
    )
)
# Somebody who begins with a sign of listening and means to interrupt all the same.
MIXED = tuple(
    Line(text)
    for text in (
        "Okay, stop.",
        "Oh, wait a moment.",
        "Yeah, but that's wrong.",
        "Right, but what about Italy?",
        "I see, and how far is it?",
        "Sure, but tell me the price.",
    )
)
HUMS = (
    Line("Mm-hmm.", "mːhˈmː"),
    Line("Mm.", "mːː"),
    Line("Hmm.", "hmːː"),
    Line("Uh-huh.", "ˈʌhˈʌː"),
    Line("Uh.", "ˈʌː"),
    Line("Ah.", "ˈɑː"),
)
LISTENING = HUMS + tuple(
    Line(text)
    for text in (
        "Okay.",
        "Yeah.",
        "Right.",
        "I see.",
        "Oh, wow.",
        "Sure.",
        "Oh.",
        "Yep.",
        "Got it.",
        "Great.",
        "Of course.",
        "Yeah, yeah.",
        "Okay, right.",
        "Really?",
    )
)
NOISES = ("coughs", "throat", "keyboard", "breath", "white noise")
NOISE_S = 3.0
NOISES_OF_A_KIND = 3
SHORT_WORDS = 3


@dataclass(frozen=True)
class Heard:
    """One sound; `kind`: "interruptions", "mixed", "listening", "noises" or "recordings"."""

    kind: str
    name: str
    sound: Samples


def sounds(half: str, recordings: Sequence[tuple[Path, str]] = ()) -> Iterator[Heard]:
    """All sounds of a half. Raises `VoiceUnavailable`, and KeyError for an unknown half."""
    voices, first = HALVES[half]
    kinds = (("interruptions", INTERRUPTIONS), ("mixed", MIXED), ("listening", LISTENING))
    for voice, say in cast(voices):
        for kind, lines in kinds:
            for line in lines:
                sound = say(line)
                if len(sound):
                    yield Heard(kind, f"{voice}: {line.text}", sound)
    for seed in seeds(first):
        for what in NOISES:
            yield Heard("noises", f"{what} {seed}", noise.make(what, NOISE_S, seed))
    for path, text in recordings:
        is_ours = (zlib.crc32(path.name.encode()) >> 1) % 2 == first
        if is_ours and len(text.split()) <= SHORT_WORDS and "..." not in text:
            yield Heard("recordings", text, _framed(load_s16(path, CLIENT_RATE_HZ)))


def seeds(first: int) -> range:
    """Of the noises of a half, from its first one on."""
    return range(first, first + 2 * NOISES_OF_A_KIND, 2)


def _framed(sound: Samples) -> Samples:
    return np.concatenate([np.zeros(4800, np.int16), sound])
