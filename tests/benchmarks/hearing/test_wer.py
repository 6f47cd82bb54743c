"""How the hearing benchmark counts."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from headstart.benchmarks.hearing import wer
from headstart.benchmarks.hearing.segmented import Chunk, Pause, Sound, Step
from headstart.benchmarks.inputs.recordings import CLIPS
from headstart.engine.asr.open_recognition import Recognized
from headstart.engine.asr.recognizer import WhisperRecognizer


def test_a_word_that_is_replaced_counts_as_revised() -> None:
    """Where "sea" gave way to "see", three words were shown at two places, one of them in vain."""
    tally = wer.Tally()
    wer._count_shown([["I"], ["I", "sea"], ["I", "see"]], tally)
    assert (tally.shown, tally.revised) == (3, 1)


def test_a_word_put_in_rewords_none_behind_it() -> None:
    """It counts as shown once; the one that gave way to others counts as reworded."""
    tally = wer.Tally()
    wer._count_reworded([["the", "son"], ["the", "warm", "son"], ["the", "warm", "sun"]], tally)
    assert (tally.worded, tally.reworded) == (4, 1)


def test_tokens_behind_the_first_difference_are_rolled_back() -> None:
    """Two of three went; two new ones were prefilled on top of the three."""
    tally = wer.Tally()
    tokens = wer._prefill([], [1, 2, 3], tally)
    wer._prefill(tokens, [1, 4, 5], tally)
    assert (tally.prefilled, tally.rolled_back) == (5, 2)


def test_lag_ends_when_a_word_is_shown_for_good() -> None:
    """Shown at 500 ms, taken back, shown again at 1500: it counts from there."""
    shown = [(500.0, ["yes"]), (1000.0, ["this"]), (1500.0, ["yes"])]
    assert wer._lags_ms(shown, [400.0]) == [1100.0]


def test_a_word_has_its_own_lag_too() -> None:
    """The second word stands from 1000 ms on, though the word before it is another until 2000."""
    shown = [(500.0, ["won"]), (1000.0, ["won", "two"]), (2000.0, ["one", "two"])]
    assert wer._lags_ms(shown, [500.0, 900.0]) == [1500.0, 1100.0]
    assert wer._word_lags_ms(shown, [500.0, 900.0]) == [1500.0, 100.0]
    shown.insert(2, (1500.0, ["won"]))
    assert wer._word_lags_ms(shown, [500.0, 900.0]) == [1500.0, 1100.0]


class _Scripted:
    """Gives the text of the chunk's number; the last one is final."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = iter(texts)

    def open(self) -> object:
        return object()

    def recognize(self, utterance: object, pcm: Sound) -> Recognized:
        return Recognized("", next(self.texts), {"decode": 1.0}, 0, 0, 0)

    def finish(self, utterance: object) -> Recognized:
        return Recognized(next(self.texts), "", {"decode": 1.0}, 0, 0, 0)

    def align(self, pcm: Sound) -> list[tuple[str, float]]:
        return []


def test_the_model_keeps_the_spelling_that_it_read() -> None:
    """A comma that comes later takes back nothing; another word does, and all behind it."""
    tally = wer.Tally()
    texts = ["so we stay", "So, we stay here", "So, we stray here now", "So we, stray here now."]
    steps = [Chunk(np.zeros(8_000, np.float32), 8_000 * n) for n in (1, 2, 3)]
    wer.stream(
        cast(WhisperRecognizer, _Scripted(texts)),
        np.zeros(24_000, np.float32),
        [*steps, Pause.END],
        lambda text: [hash(word) for word in text.split()],
        tally,
    )
    assert tally.texts == [texts[-1]]
    # "stay here" gave way to "stray here now"; of the final words only the last is read anew.
    assert (tally.rolled_back, tally.prefilled) == (2 + 1, 3 + 1 + 3 + 1)
    assert (tally.kept, tally.read) == (4, 5)
    assert (tally.respelt, tally.final_words) == (2, 5)  # read: "so we stray here now."


@pytest.mark.parametrize(("clip", "words"), [("capital.wav", "capital of france")])
def test_a_clip_is_heard(whisper_dir: Path, clip: str, words: str) -> None:
    """With the packaged weights a bundled clip's words arrive, each with a lag."""
    tally = wer.Tally()

    def encode(text: str) -> list[int]:
        return [hash(word) for word in text.split()]

    sound = wer.load(CLIPS / clip)
    wer.stream(WhisperRecognizer.load(whisper_dir), sound, wer.by_chunks(sound, 500), encode, tally)
    assert words in tally.texts[0].lower()
    assert len(tally.lags_ms) == len(tally.read_lags_ms) > 0
    assert len(tally.hush_ms) == 1
    assert 0 < tally.kept <= tally.read
    numbers = wer.live_numbers(tally)
    assert numbers["hush_ms_p50"] == numbers["hush_ms_p95"] == round(tally.hush_ms[0])
    assert 0 < numbers["kept_share"] <= 1


def test_clips_that_differ_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """With what was said, and what each heard; a clip of which both heard the same is not."""
    wer._print_differences(["a.wav", "b.wav"], ["1", "hold"], ["one", "hope"], ["one", "hold"])
    printed = capsys.readouterr().out
    assert printed == "b.wav\n  said    hold\n  ours    hope\n  offline hold\n"


def test_words_kept_by_a_final_pass() -> None:
    """Those before the first difference; a final pass whose words stood already counts nothing."""
    tally = wer.Tally()
    wer._count_final([1, 2, 3], [1, 4, 3, 5], {"decode": 5.0}, tally)
    wer._count_final([1], [1], {"decode": 0.0}, tally)
    assert (tally.kept, tally.read, tally.hush_ms) == (1, 3, [5.0])


def test_turns_of_one_clip_are_put_together() -> None:
    """Each turn is an utterance of its own; a hush and the end without sound between are one."""

    def str_tokens(text: str) -> list[int]:
        return [hash(word) for word in text.split()]

    class Scripted:
        """Says what it was told of the number of samples."""

        def open(self) -> list[int]:
            return [0]

        def recognize(self, utterance: list[int], sound: Sound) -> Recognized:
            utterance[0] += len(sound)
            return Recognized(f"w{utterance[0]}", " x", {"decode": 1.0}, 0, 0, 0)

        def finish(self, utterance: list[int]) -> Recognized:
            return Recognized(f"w{utterance[0]}", "", {"decode": 1.0}, 0, 0, 0)

        def align(self, sound: Sound) -> list[tuple[str, float]]:
            return []

    sound = np.zeros(30, np.float32)
    steps: list[Step] = [
        Chunk(sound[:10], 10),
        Pause.HUSH,
        Pause.END,
        Chunk(sound[10:], 30),
        Pause.END,
    ]
    tally = wer.Tally()
    wer.stream(cast(WhisperRecognizer, Scripted()), sound, steps, str_tokens, tally)
    assert tally.texts == ["w10 w20"]
    assert (tally.read, tally.kept, len(tally.hush_ms)) == (5, 3, 3)
