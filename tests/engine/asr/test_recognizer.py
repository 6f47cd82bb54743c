"""engine.asr.recognizer: what is said of an utterance while it grows, and when it ends."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jiwer
import numpy as np
import numpy.typing as npt
import pytest
import torch

from headstart.benchmarks.inputs.recordings import load_f32
from headstart.engine.asr.errors import BadAudio
from headstart.engine.asr.hypothesis import Agreement, Hypothesis, Word, text_of
from headstart.engine.asr.open_recognition import OpenRecognition, Recognized
from headstart.engine.asr.pauses import PauseFinder, PauseSettings
from headstart.engine.asr.recognizer import RecognizerSettings, WhisperRecognizer
from headstart.engine.asr.whisper.pieces import Pieces
from headstart.engine.errors import BadSettings, BadWeights
from headstart.kernels import native

Sound = npt.NDArray[np.float32]
Clip = Callable[[str], Sound]

CAPTURED = Path(__file__).parents[2] / "data" / "captured"
QUESTION = "What is the capital of France?"
MONOLOGUE = (
    "I would like to tell you about the small garden behind our house. When we moved in, there was"
    " nothing but grass and an old apple tree. In the first spring, my sister planted tomatoes,"
    " beans and a row of yellow flowers along the wall. The birds came back, and every morning we"
    " had breakfast on the wooden bench. Now the tree carries more apples than we can eat, so we"
    " give most of them to our neighbors."
)

pytestmark = pytest.mark.weights


def _hear(
    recognizer: WhisperRecognizer, sound: Sound, chunk_ms: int
) -> tuple[OpenRecognition, list[Recognized]]:
    utterance = recognizer.open()
    step = chunk_ms * 16
    heard = [
        recognizer.recognize(utterance, sound[i : i + step]) for i in range(0, len(sound), step)
    ]
    return utterance, heard


def _wer(said: str, heard: str) -> float:
    said, heard = (re.sub(r"[^a-z ]", "", text.lower()) for text in (said, heard))
    return float(jiwer.wer(said, heard))


@pytest.fixture(scope="module")
def question(clip: Clip) -> Sound:
    return clip("capital.wav")


@pytest.fixture(scope="module")
def monologue(clip: Clip) -> Sound:
    """Unbroken speech of 40 s: the bundled one twice, without the pause between."""
    once = clip("monologue.ogg")
    quiet = int(0.35 * 16_000)
    return np.concatenate((once[:-quiet], once[quiet:]))


@pytest.fixture(scope="module")
def long_run(
    recognizer: WhisperRecognizer, monologue: Sound
) -> tuple[Recognized, list[Recognized], list[int]]:
    """The final words of the monologue, what was said on the way, and frames held each time."""
    utterance = recognizer.open()
    heard, held = [], []
    step = 24_000
    for start in range(0, len(monologue), step):
        heard.append(recognizer.recognize(utterance, monologue[start : start + step]))
        held.append(utterance.window_frames)
    return recognizer.finish(utterance), heard, held


@pytest.mark.parametrize("chunk_ms", [200, 500, 1000, 3000])
def test_any_chunking_hears_the_question(
    recognizer: WhisperRecognizer, question: Sound, chunk_ms: int
) -> None:
    """Whatever the chunks, the final words are those that were said, with case and punctuation."""
    utterance, _ = _hear(recognizer, question, chunk_ms)
    final = recognizer.finish(utterance)
    assert (final.committed, final.tentative) == (QUESTION, "")
    assert final.audio_tokens == -(-len(question) // 320)


@pytest.mark.parametrize("chunk_ms", [400, 500, 700, 1000])
def test_any_chunking_hears_what_a_browser_sends(
    recognizer: WhisperRecognizer, chunk_ms: int
) -> None:
    """The question by microphone and call, louder and rougher than the clip: words committed of
    its beginning do not mislead about its end."""
    utterance, _ = _hear(
        recognizer, load_f32(CAPTURED / "question-by-webrtc.wav", 16_000), chunk_ms
    )
    assert recognizer.finish(utterance).committed == QUESTION


def test_words_show_while_spoken(recognizer: WhisperRecognizer, question: Sound) -> None:
    """Before the clip ends, most of its words have been shown."""
    _, heard = _hear(recognizer, question[: int(1.9 * 16_000)], 300)
    assert "What is the capital" in heard[-1].text


def test_what_is_shown_goes_on(recognizer: WhisperRecognizer, question: Sound, clip: Clip) -> None:
    """Over a pause between two questions each text shown begins with the one before, so nothing
    that was read of it is read again: a question mark is shown when other words are behind it."""
    two = np.concatenate((question, np.zeros(12_000, np.float32), clip("followup.wav")))
    _, heard = _hear(recognizer, two, 500)
    for before, after in itertools.pairwise(heard):
        assert after.text.startswith(before.text)
        assert not after.tentative or after.tentative[-1].isalnum()
    assert heard[-1].text.startswith(f"{QUESTION} And which river")


@pytest.mark.usefixtures("our_kernels")
def test_same_sound_same_words(recognizer: WhisperRecognizer, question: Sound) -> None:
    """Nothing but the sound decides: run again, and on two threads, all is the same."""
    first = [(h.committed, h.tentative) for h in _hear(recognizer, question, 500)[1]]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        second = [(h.committed, h.tentative) for h in _hear(recognizer, question, 500)[1]]
    finally:
        torch.set_num_threads(before)
    assert first == second


def test_utterances_do_not_meet(recognizer: WhisperRecognizer, question: Sound, clip: Clip) -> None:
    """Two utterances heard by turns say what each says alone."""
    other = clip("followup.wav")
    one, two = recognizer.open(), recognizer.open()
    for start in range(0, max(len(question), len(other)), 8000):
        recognizer.recognize(one, question[start : start + 8000])
        recognizer.recognize(two, other[start : start + 8000])
    assert recognizer.finish(one).committed == QUESTION
    assert recognizer.finish(two).committed == "And which river runs through it?"


@pytest.mark.usefixtures("our_kernels")
def test_hearing_together_is_hearing_alone(
    recognizer: WhisperRecognizer, question: Sound, clip: Clip
) -> None:
    """Chunks of two utterances in one call, of different lengths too: each says what it says alone,
    to the last probability."""
    sounds = [question, clip("followup.wav")]
    alone = [_hear(recognizer, sound, 500)[0] for sound in sounds]
    together = [recognizer.open(), recognizer.open()]
    for start in range(0, max(map(len, sounds)), 8000):
        chunks = [sound[start : start + 8000] for sound in sounds]
        speaking = [(u, c) for u, c in zip(together, chunks, strict=True) if len(c)]
        recognizer.recognize_batch([u for u, _ in speaking], [c for _, c in speaking])
    assert [u.agreement for u in together] == [u.agreement for u in alone]


def test_a_chunk_of_long_speech_costs_what_one_of_short_speech_does(
    recognizer: WhisperRecognizer, monologue: Sound
) -> None:
    """From the third second on no more than three seconds are encoded anew, but when the window
    has just slid."""
    _, heard = _hear(recognizer, monologue[: 16_000 * 12], 500)
    assert max(h.window_positions for h in heard) > 550
    assert max(h.encoded_positions for h in heard) <= 155


def test_unbroken_speech_has_sentences(
    long_run: tuple[Recognized, list[Recognized], list[int]],
) -> None:
    """Capitals and full stops come out as they were meant: at most one in eight is missed."""
    final, _, _ = long_run
    meant = f"{MONOLOGUE} {MONOLOGUE}".split()
    assert jiwer.wer(" ".join(meant), final.committed) < 0.125


def test_committed_only_grows(
    long_run: tuple[Recognized, list[Recognized], list[int]], monologue: Sound
) -> None:
    """While somebody speaks, each committed text begins with the one before, in whole words, but
    where a pause parts the utterance: there some of it may be heard otherwise."""
    final, heard, _ = long_run
    before, finder, parted = "", PauseFinder(), 0
    for number, now in enumerate(heard):
        if finder.push(monologue[24_000 * number : 24_000 * (number + 1)]):
            parted += 1
        else:
            assert now.committed.startswith(before)
            grown = now.committed[len(before) :]
            assert not before or not grown or not grown[0].isalnum()
        assert now.committed == now.committed.strip()
        before = now.committed
    assert final.tentative == ""
    assert 0 < parted < len(heard) / 4


def test_unbroken_speech_is_bounded(
    long_run: tuple[Recognized, list[Recognized], list[int]],
) -> None:
    """In 40 s of speech the window and the encoder's length stay below 20 s."""
    _, heard, held = long_run
    assert max(held) < 2000
    assert max(h.window_positions for h in heard) < 1000
    assert heard[-1].audio_tokens >= 1950


def test_unbroken_speech_is_understood(
    long_run: tuple[Recognized, list[Recognized], list[int]],
) -> None:
    """The cuts cost few words: under 8 % are wrong over the whole 40 s."""
    final, _, _ = long_run
    assert _wer(f"{MONOLOGUE} {MONOLOGUE}", final.committed) < 0.08


@pytest.fixture(scope="module")
def wholes(
    recognizer: WhisperRecognizer, question: Sound, monologue: Sound, clip: Clip
) -> list[tuple[Sound, Recognized]]:
    """Sounds of up to 28 s, and what is made of each at once, with nothing said of it before.
    Without vector instructions, which take some fifteen times as long and have the same bits
    (`tests/kernels/test_same_bits.py`), a short one and one that a pause parts."""
    captured = load_f32(CAPTURED / "question-by-webrtc.wav", 16_000)
    quiet = np.zeros(8000, np.float32)
    two = np.concatenate((question, quiet, clip("followup.wav")))
    parted = np.concatenate((monologue[: 16_000 * 9], quiet, two))
    sounds = [question, clip("followup.wav"), captured, two, monologue[: 16_000 * 27], parted]
    if native.level() == "scalar":
        sounds = [question, np.concatenate((monologue[: 16_000 * 7], quiet, question))]
    return [(sound, recognizer.finish(recognizer.open(), sound)) for sound in sounds]


@pytest.mark.parametrize("chunk_ms", [170, 400, 500, 1000])
def test_final_equals_whole(
    recognizer: WhisperRecognizer, wholes: list[tuple[Sound, Recognized]], chunk_ms: int
) -> None:
    """However the sound was cut, and whatever was thought of it on the way, the final words are
    those of the whole, to the last bit of how likely they are."""
    for sound, whole in wholes:
        utterance, _ = _hear(recognizer, sound, chunk_ms)
        final = recognizer.finish(utterance)
        assert (final.committed, final.likely) == (whole.committed, whole.likely)


def test_aligned_words_are_those_of_the_whole(
    recognizer: WhisperRecognizer, wholes: list[tuple[Sound, Recognized]]
) -> None:
    """Aligning hears a sound as the final pass does."""
    for sound, whole in wholes:
        assert "".join(word for word, _ in recognizer.align(sound)).strip() == whole.committed


@pytest.mark.parametrize("pauses_ms", [(500,), (700, 1400, 2100)])
def test_final_equals_whole_after_pauses(
    recognizer: WhisperRecognizer,
    wholes: list[tuple[Sound, Recognized]],
    pauses_ms: tuple[int, ...],
) -> None:
    """Final passes in mid-speech, at short silences after which it went on, do not change it."""
    for sound, whole in wholes[:4]:
        utterance = recognizer.open()
        for start_ms in range(0, len(sound) // 16, 100):
            recognizer.recognize(utterance, sound[start_ms * 16 : start_ms * 16 + 1600])
            if start_ms in pauses_ms:
                recognizer.finish(utterance)
        final = recognizer.finish(utterance)
        assert (final.committed, final.likely) == (whole.committed, whole.likely)


def test_a_draft_does_not_change_the_final_words(
    recognizer: WhisperRecognizer, question: Sound
) -> None:
    """Not even one of other words: what a chunk was taken for is no argument."""
    plain, misled = recognizer.open(), recognizer.open()
    for utterance in (plain, misled):
        recognizer.recognize(utterance, question)
    wrong = tuple(
        Word(f" {w}", recognizer._tokens.encode(f" {w}"), -0.1) for w in ("What", "a", "day")
    )
    misled.agreement = Agreement(wrong[:2], (Hypothesis(wrong[2:], misled.at_ms),))
    final = recognizer.finish(misled)
    assert (final.committed, final.likely) == (QUESTION, recognizer.finish(plain).likely)


def test_after_a_final_pass_speech_goes_on(recognizer: WhisperRecognizer, question: Sound) -> None:
    """Committed words that the final pass has too stay committed, with its case and punctuation;
    one that it has otherwise is open again."""
    utterance, _ = _hear(recognizer, question[:24_000], 500)
    final = recognizer.finish(utterance)
    assert final.committed
    again = recognizer.finish(utterance)
    assert (again.committed, again.likely) == (final.committed, final.likely)
    wrong = tuple(Word(f" {w}", recognizer._tokens.encode(f" {w}"), -0.1) for w in ("what", "us"))
    utterance.agreement = Agreement(wrong)
    heard = recognizer.recognize(utterance, question[24_000:28_000])
    assert heard.text.startswith("What is")
    recognizer.recognize(utterance, question[28_000:])
    assert recognizer.finish(utterance).committed == QUESTION


def test_what_is_before_a_pause_is_heard_for_good(
    recognizer: WhisperRecognizer, question: Sound, monologue: Sound
) -> None:
    """Behind six seconds a pause parts the utterance: what is heard again begins there, and the
    words before it are those of their own sound."""
    before = np.concatenate((monologue[: 16_000 * 9], np.zeros(4000, np.float32)))
    sound = np.concatenate((before, np.zeros(4000, np.float32), question))
    utterance, heard = _hear(recognizer, sound, 500)
    start = utterance.recording.start
    assert abs(start.sample - len(before)) < 4000
    alone = recognizer.open()
    recognizer.recognize(alone, sound[: start.sample])
    words = recognizer.finish(alone).committed
    assert text_of(utterance.settled[: start.words]).strip() == words
    assert heard[-1].text.startswith(words)
    assert recognizer.finish(utterance).committed == f"{words} {QUESTION}"


def test_of_long_speech_the_end_is_heard_again(
    recognizer: WhisperRecognizer, monologue: Sound
) -> None:
    """Of 40 s that no pause parts the words whose sound is gone stay as they were; what is heard
    again is at most 28 s and begins where a window was cut."""
    utterance = recognizer.open()
    utterance.pauses = PauseFinder(PauseSettings(least_s=math.inf))
    for at in range(0, len(monologue), 24_000):
        recognizer.recognize(utterance, monologue[at : at + 24_000])
    settled = utterance.settled
    start = utterance.recording.start
    assert start.sample > 0
    assert 10 * 16_000 < len(utterance.recording.whole()) <= 28 * 16_000
    final = recognizer.finish(utterance)
    assert final.committed.startswith(text_of(settled[: start.words]).strip())
    assert utterance.recording.samples == len(monologue)


def test_finish_takes_the_last_samples(
    recognizer: WhisperRecognizer, question: Sound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sound that comes with the end is heard in the final pass, and has none of its own."""
    utterance, _ = _hear(recognizer, question[:24_000], 500)

    def update(*_: object) -> None:
        raise AssertionError("a pass of its own")

    monkeypatch.setattr(recognizer, "_update", update)
    final = recognizer.finish(utterance, question[24_000:])
    assert final.committed == QUESTION
    assert final.audio_tokens == -(-len(question) // 320)


@pytest.mark.parametrize("ends_ms", [(600,), (1300, 1400, 2300), tuple(range(150, 27_000, 150))])
def test_final_equals_whole_with_sound_before_each_hush(
    recognizer: WhisperRecognizer,
    wholes: list[tuple[Sound, Recognized]],
    ends_ms: tuple[int, ...],
) -> None:
    """Sound that only final passes heard, at the end and before, changes no final word."""
    for sound, whole in wholes[:4]:
        utterance = recognizer.open()
        at_ms = 0
        for end_ms in (end for end in ends_ms if end * 16 < len(sound)):
            last_ms = max(at_ms, end_ms - 300)
            for start_ms in range(at_ms, last_ms, 500):
                stop_ms = min(start_ms + 500, last_ms)
                recognizer.recognize(utterance, sound[start_ms * 16 : stop_ms * 16])
            recognizer.finish(utterance, sound[last_ms * 16 : end_ms * 16])
            at_ms = end_ms
        final = recognizer.finish(utterance, sound[at_ms * 16 :])
        assert (final.committed, final.likely) == (whole.committed, whole.likely)


def test_speech_of_hushes_alone_slides_too(recognizer: WhisperRecognizer, monologue: Sound) -> None:
    """Where every chunk comes with an end, the window stays as short as ever."""
    utterance = recognizer.open()
    utterance.pauses = PauseFinder(PauseSettings(least_s=math.inf))
    longest = recognizer.settings.slide_by_force_s * 100
    for at in range(0, 16_000 * 24, 32_000):
        recognizer.finish(utterance, monologue[at : at + 32_000])
        assert utterance.window_frames <= longest
    assert utterance.recording.marks[-1].words > 0


def test_a_second_finish_costs_nothing(recognizer: WhisperRecognizer, question: Sound) -> None:
    """The endpoint behind a hush: no sound came since, and the final words stand already."""
    utterance, _ = _hear(recognizer, question, 500)
    assert sum(recognizer.finish(utterance).stages_ms.values()) > 0.0
    assert sum(recognizer.finish(utterance).stages_ms.values()) == 0.0


def test_each_word_is_as_likely_as_its_decoder_thinks(
    recognizer: WhisperRecognizer, question: Sound
) -> None:
    """A number for each word as spaces part them, on the way and at the end."""
    utterance, heard = _hear(recognizer, question, 500)
    final = recognizer.finish(utterance)
    assert final.committed == QUESTION
    for words in (*heard, final):
        assert len(words.likely) == len(words.text.split())
        assert all(0 < p <= 1 for p in words.likely)
    assert min(final.likely) > 0.5


@pytest.mark.parametrize("kind", ["silence", "faint", "noise", "hum", "clicks"])
def test_nothing_is_heard_in_nothing(recognizer: WhisperRecognizer, kind: str) -> None:
    """Silence and noise give no word, neither on the way nor at the end."""
    random = np.random.default_rng(0)
    noise = random.standard_normal(3 * 16_000)
    time_s = np.arange(len(noise)) / 16_000
    sound = {
        "silence": 0 * noise,
        "faint": noise * 1e-4,
        "noise": noise * 0.05,
        "hum": 0.1 * np.sin(2 * np.pi * 50 * time_s),
        "clicks": noise * (time_s % 0.4 < 0.01) * 0.3,
    }[kind].astype(np.float32)
    utterance, heard = _hear(recognizer, sound, 500)
    assert [h.text for h in heard] == [""] * len(heard)
    assert recognizer.finish(utterance).committed == ""


def test_no_sound_no_words(recognizer: WhisperRecognizer) -> None:
    """An utterance without a sample, or with hardly any, has nothing to say."""
    utterance = recognizer.open()
    assert recognizer.finish(utterance).text == ""
    assert recognizer.recognize(utterance, np.zeros(0, np.float32)).text == ""
    assert recognizer.recognize(utterance, np.zeros(10, np.float32)).text == ""
    assert recognizer.finish(utterance).text == ""


def test_silence_after_speech_is_dropped(recognizer: WhisperRecognizer, question: Sound) -> None:
    """Silence after speech is given up in time, and the words stay."""
    utterance, _ = _hear(recognizer, question, 1000)
    for _ in range(9):
        heard = recognizer.recognize(utterance, np.zeros(32_000, np.float32))
        assert utterance.window_frames <= 2000
    assert heard.text == QUESTION
    assert recognizer.finish(utterance).committed == QUESTION


@pytest.mark.parametrize(
    ("sound", "message"),
    [
        (
            np.zeros((2, 100), np.float32),
            r"audio shape: expected one axis of samples, got \[2, 100\]",
        ),
        (np.zeros(100, np.int16), "audio type: expected float32, got int16"),
        (np.full(100, np.nan, np.float32), "expected finite numbers, got NaN or infinity"),
        (np.full(100, np.inf, np.float32), "expected finite numbers, got NaN or infinity"),
    ],
)
def test_bad_audio_changes_nothing(
    recognizer: WhisperRecognizer, sound: Sound, message: str
) -> None:
    """What is no sound is refused by name and leaves the utterance as it was."""
    utterance = recognizer.open()
    with pytest.raises(BadAudio, match=message):
        recognizer.recognize(utterance, sound)
    with pytest.raises(BadAudio, match=message):
        recognizer.finish(utterance, sound)
    assert utterance.mel.samples == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slide_by_force_s": 28.0}, "slide_by_force_s must be at most 30"),
        ({"slide_at_s": 19.0}, "slide_at_s must be above keep_s"),
        ({"slide_at_s": 2.0}, "slide_at_s must be above keep_s"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, float], message: str) -> None:
    """A window that outgrows the encoder, or never slides, is refused beforehand."""
    with pytest.raises(BadSettings, match=message):
        RecognizerSettings(**settings)  # type: ignore[arg-type]


def test_a_directory_that_is_no_whisper(tmp_path: Path) -> None:
    """Loading from elsewhere says what is missing."""
    with pytest.raises(BadWeights, match=r"expected config\.json, got no such file"):
        WhisperRecognizer.load(tmp_path)


def test_between_the_pieces_of_a_pass_others_are_heard(
    recognizer: WhisperRecognizer, clip: Callable[[str], Sound]
) -> None:
    """A part of a long turn, a chunk and a final pass, all left at every place where they can be:
    the bits of each are those it has alone."""
    spoken, short = clip("monologue.ogg")[: 10 * 16_000], clip("capital.wav")
    long = np.concatenate((spoken[:104_000], np.zeros(9_600, np.float32), spoken[104_000:]))
    last = len(long) // 8_000 * 8_000
    alone, other = recognizer.open(), recognizer.open()
    whole = [recognizer.recognize(alone, long[at : at + 8_000]) for at in range(0, last, 8_000)]
    whole += [recognizer.finish(alone, long[last:])]
    said = [recognizer.recognize(other, short), recognizer.finish(other)]

    mixed, counts = recognizer.open(), []
    for at in range(0, last + 1, 8_000):
        chunk, between = long[at : at + 8_000], recognizer.open()
        pieces: Pieces[Any] = (
            recognizer.recognize_in_pieces([mixed], [chunk])
            if at < last
            else recognizer.finish_in_pieces(mixed, chunk)
        )
        counts.append(0)
        while True:
            try:
                next(pieces)
            except StopIteration as ended:
                result = ended.value
                break
            counts[-1] += 1
            if counts[-1] == 3:
                got = [recognizer.recognize(between, short), recognizer.finish(between)]
                assert [(w.text, w.likely) for w in got] == [(w.text, w.likely) for w in said]
        heard = result[0] if at < last else result
        wanted = whole[at // 8_000]
        assert (heard.committed, heard.tentative) == (wanted.committed, wanted.tentative)
        assert heard.likely == wanted.likely
    assert mixed.recording.start.sample > 0  # a part was heard
    layers = recognizer._encoder.settings.encoder_layers
    assert max(counts[:-1]) > 3 + layers
