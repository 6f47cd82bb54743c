"""The streaming voice: pieces are what one pass would give, at the right pitch and pace."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from headstart.engine.weights import ensure
from headstart.gateway.tts.clean import clean
from headstart.gateway.tts.espeak import Espeak
from headstart.gateway.tts.synthesiser import RATE_HZ, Synthesiser, VoiceUnavailable
from headstart.gateway.tts.vits import PIECE_FRAMES_MAX, Vits, load_vits, pieces
from headstart.gateway.tts.voices import load

TEXT = "The capital of France is Paris."


@pytest.fixture(scope="module")
def joe() -> Vits:
    return load_vits("joe", ensure("joe"))


def test_pieces_cover_every_frame_once() -> None:
    """A short one first, then longer ones."""
    for frames in range(400):
        cut = list(pieces(frames))
        assert [start for start, _ in cut[1:]] == [end for _, end in cut[:-1]]
        assert (cut[-1][1] if cut else 0) == frames
        assert all(end - start <= PIECE_FRAMES_MAX for start, end in cut)


@pytest.mark.weights
def test_pieces_joined_are_one_pass(joe: Vits) -> None:
    """Decoding in pieces changes no sample by more than one step of 16 bits."""
    latent = joe._encode(joe._phonemizer.phonemize("en-us", TEXT)[0], 1.0)
    frames = latent.shape[-1]
    whole = joe._decode(latent, 0, frames).astype(int)
    joined = np.concatenate([joe._decode(latent, *piece) for piece in pieces(frames)])
    assert frames > PIECE_FRAMES_MAX
    assert np.abs(joined.astype(int) - whole).max() <= 1


@pytest.mark.weights
def test_speed_is_pace(joe: Vits) -> None:
    """Twice as fast is about half as long."""
    slow, fast = (sum(map(len, joe.speak(TEXT, speed))) for speed in (1.0, 2.0))
    assert 0.35 < fast / slow < 0.65


@pytest.mark.weights
def test_it_speaks_the_moment_it_is_asked(joe: Vits) -> None:
    """The first piece is a fraction of a second of sound, however long the clause."""
    first = next(joe.speak(TEXT * 3, 1.0))
    assert 0.05 < len(first) / RATE_HZ < 0.3


@pytest.mark.weights
@pytest.mark.parametrize("text", ["", " ", "...", "—", "\n"])
def test_text_without_words_is_silence(joe: Vits, text: str) -> None:
    """Nothing is made up out of punctuation."""
    assert not [piece for piece in joe.speak(text, 1.0) if len(piece)]


def test_both_voices_are_voices() -> None:
    """The fallback keeps the same contract: pieces of int16 at 24 kHz, about two seconds here."""
    voice: Synthesiser = load("espeak", None)
    assert isinstance(voice, Espeak)
    made = [list(voice.speak(TEXT, speed)) for speed in (1.0, 2.0)]
    seconds = [sum(map(len, pieces_)) / RATE_HZ for pieces_ in made]
    assert 1.0 < seconds[0] < 3.0
    assert seconds[1] < 0.7 * seconds[0]
    assert all(len(piece) <= RATE_HZ for piece in itertools.chain(*made))
    assert all(piece.dtype == np.int16 for piece in itertools.chain(*made))


def test_an_unknown_voice_is_named() -> None:
    """With the names there are."""
    with pytest.raises(VoiceUnavailable, match="espeak"):
        load("marvin", None)


@pytest.mark.weights
def test_a_sound_without_spelling_is_pronounced(joe: Vits) -> None:
    """A word's own phonemes last about as long as the word; marks alone are silence."""
    (phonemes,) = joe._phonemizer.phonemize("en-us", "Remarkable")
    spoken = sum(map(len, joe.speak("Remarkable", 1.0)))
    pronounced = sum(map(len, joe.pronounce("".join(phonemes), 1.0)))
    assert 0.6 < pronounced / spoken < 1.7
    assert not any(len(piece) for piece in joe.pronounce("?.", 1.0))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("**Paris** \U0001f389", "Paris"),
        ("# It is *Paris*", "It is Paris"),
        ("- [Paris](https://example.com)", "Paris"),
    ],
)
def test_marks_have_no_sound(joe: Vits, written: str, said: str) -> None:
    """What the session gives the voice has the phonemes of the words alone; what is written has
    others."""
    phonemes = [joe._phonemizer.phonemize("en-us", text) for text in (said, clean(written).strip())]
    assert phonemes[0] == phonemes[1]
    assert phonemes[0] != joe._phonemizer.phonemize("en-us", written)
