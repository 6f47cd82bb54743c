"""headstart.engine.asr.decoding: greedy search, drafts and guards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from headstart.engine.asr.decoding import Decoded, Ending, GreedyDecoder, Job, Task, likely_next
from headstart.engine.asr.languages import Language
from headstart.engine.asr.mel import LogMel
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import CrossCache
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from headstart.engine.asr.whisper.encoder import POSITIONS_PER_SECOND

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def audio(exact: Checkpoint, clip: Callable[[str], npt.NDArray[np.float32]]) -> Tensor:
    """The spoken question, encoded in 30 s of silence as the model was trained."""
    mel = LogMel()
    state = mel.open()
    mel.push(state, torch.from_numpy(clip("capital.wav")))
    pad = 3000 - mel.features(state).shape[1]
    with torch.inference_mode():
        encoded: Tensor = exact.encoder(mel.features(state, pad_frames=pad))
        return encoded


@pytest.fixture(scope="module")
def sound(exact: Checkpoint, audio: Tensor) -> CrossCache:
    with torch.inference_mode():
        return exact.decoder.listen(audio)


@pytest.fixture(scope="module")
def greedy(exact: Checkpoint, whisper_tokens: WhisperTokens) -> GreedyDecoder:
    return GreedyDecoder(exact.decoder, whisper_tokens, exact.extras)


@pytest.fixture(scope="module")
def task(whisper_tokens: WhisperTokens) -> Task:
    return Task(
        whisper_tokens.opening((), Language("en")), forced=(), draft=(), limit=50, positions=117
    )


@pytest.fixture(scope="module")
def plain(greedy: GreedyDecoder, sound: CrossCache, task: Task) -> Decoded:
    """The question decoded token by token."""
    with torch.inference_mode():
        return greedy.decode(sound, task)


def _decode(greedy: GreedyDecoder, sound: CrossCache, task: Task) -> Decoded:
    with torch.inference_mode():
        return greedy.decode(sound, task)


def test_hears_the_question(plain: Decoded, whisper_tokens: WhisperTokens) -> None:
    """The clip's words, case and punctuation, and belief that somebody spoke."""
    assert whisper_tokens.text(plain.tokens) == " What is the capital of France?"
    assert plain.ending is Ending.END
    assert plain.no_speech < 0.1
    assert plain.mean_logprob > -0.5
    assert plain.passes == len(plain.tokens) + 1


def test_equals_greedy_transformers(twin: Any, plain: Decoded, audio: Tensor) -> None:
    """Each token is the reference's most likely one, and the end comes where the reference ends."""
    given = torch.tensor([[50257, 50362, *plain.tokens]])
    with torch.inference_mode():
        logits = twin(decoder_input_ids=given, encoder_outputs=(audio[None],)).logits[0, 1:]
    assert logits.argmax(dim=-1).tolist() == [*plain.tokens, 50256]


def test_places_follow_the_speech(plain: Decoded) -> None:
    """Words are heard in order, inside the sound."""
    assert len(plain.places_s) == len(plain.tokens)
    words = plain.places_s[:-1]
    assert list(words) == sorted(words)
    assert 0.0 <= words[0] < words[-1] < 2.34
    assert words[-1] > 1.0


@pytest.mark.parametrize("kept", [0, 1, 4, 7])
@pytest.mark.parametrize("wrong", [(), (13,), (262, 262, 262)])
def test_a_draft_changes_nothing_but_the_passes(
    greedy: GreedyDecoder,
    sound: CrossCache,
    task: Task,
    plain: Decoded,
    kept: int,
    wrong: tuple[int, ...],
) -> None:
    """With a draft right up to any point, the result is that of plain greedy decoding."""
    drafted = _decode(greedy, sound, replace(task, draft=(*plain.tokens[:kept], *wrong)))
    assert drafted.tokens == plain.tokens
    assert drafted.logprobs == pytest.approx(plain.logprobs, abs=1e-3)
    assert drafted.passes == plain.passes - kept


def test_forced_words_are_continued(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """The result begins behind what was forced, with places for both."""
    forced = _decode(greedy, sound, replace(task, forced=plain.tokens[:3]))
    assert forced.tokens == plain.tokens[3:]
    assert forced.places_s == plain.places_s
    assert forced.no_speech == 0.0


def test_the_end_may_be_kept_from_coming_first(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """Behind all words the end comes at once; where it may not, something else does."""
    done = replace(task, forced=plain.tokens)
    assert _decode(greedy, sound, done).tokens == ()
    assert len(_decode(greedy, sound, replace(done, end_first=False)).tokens) >= 1


def test_a_forced_loop_is_stopped(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """Made to say it all twice, it ends at the repeat, not at the limit."""
    words = plain.tokens
    looped = _decode(greedy, sound, replace(task, forced=(*words, *words[:3])))
    assert looped.ending is Ending.LOOP
    assert len(looped.tokens) <= 1


def test_who_is_patient_takes_a_repetition_for_one(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """Heard as a whole, a phrase said twice is believed where the text ends by itself; a loop is
    what would go on to the limit, and then the repeats are cut off."""
    words = plain.tokens
    twice = replace(task, forced=(*words, *words[:3]), patient=True)
    believed = _decode(greedy, sound, twice)
    assert believed.ending is Ending.END
    stuck = replace(task, forced=words * 3, limit=3 * len(words), end_first=False, patient=True)
    ended = _decode(greedy, sound, stuck)
    assert ended.ending in (Ending.LOOP, Ending.LIMIT)
    assert ended.tokens == ()


@pytest.mark.parametrize(
    ("tokens", "draft", "guess"),
    [
        ("", "abc", ""),
        ("xb", "abcd", "cd"),
        ("axyb", "axyzaqbcd", "cd"),
        ("xyab", "abcxxab", "cxxab"),
        ("xab", "abcxxabd", "cxxabd"),
        ("q", "abcd", ""),
        ("abcab", "", "ca"),
    ],
)
def test_a_draft_is_taken_up_again(tokens: str, draft: str, guess: str) -> None:
    """Behind the same two tokens or the same one, nearest to here; else the text's own words."""
    assert "".join(likely_next(tokens, draft)) == guess  # type: ignore[arg-type]


def test_a_draft_with_a_wrong_word_is_few_passes(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """One word wrong, put in or left out in the middle: the rest is not chosen token by token."""
    words = plain.tokens
    for draft in (
        (*words[:2], 13, *words[3:]),
        (*words[:3], 13, *words[3:]),
        (*words[:2], *words[3:]),
    ):
        drafted = _decode(greedy, sound, replace(task, draft=draft))
        assert drafted.tokens == words
        assert drafted.passes <= 4


def test_the_limit_holds(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """No more tokens than a person can say in the time, forced ones counted."""
    few = _decode(greedy, sound, replace(task, limit=4))
    assert (few.tokens, few.ending) == (plain.tokens[:4], Ending.LIMIT)
    rest = _decode(greedy, sound, replace(task, limit=4, forced=plain.tokens[:3]))
    assert (rest.tokens, rest.ending) == (plain.tokens[3:4], Ending.LIMIT)


def test_text_positions_bound_everything(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, whisper_tokens: WhisperTokens
) -> None:
    """A prompt that leaves hardly any room ends at the limit, without an error."""
    opening = whisper_tokens.opening((262,) * 440, Language("en"))
    result = _decode(greedy, sound, replace(task, opening=opening, draft=(1,) * 50))
    assert len(result.tokens) <= 448 - len(opening)


def test_never_says_what_is_suppressed(
    exact: Checkpoint, whisper_tokens: WhisperTokens, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """A token on the list is never chosen."""
    extras = replace(exact.extras, suppress=(*exact.extras.suppress, plain.tokens[0]))
    other = _decode(GreedyDecoder(exact.decoder, whisper_tokens, extras), sound, task)
    assert plain.tokens[0] not in other.tokens


def test_rows_of_frozen_sound_change_nothing(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """Forced words that listened to frozen sound are remembered: the result is that without."""
    memory = greedy.memory()
    forced = replace(task, forced=plain.tokens[:4], frozen=task.positions)
    with torch.inference_mode():
        greedy.decode(sound, forced, memory)
        again = replace(forced, forced=plain.tokens[:5], draft=plain.tokens[5:])
        assert memory.settled == len(task.opening) - 1 + 4
        remembered = greedy.decode(sound, again, memory)
    forgotten = _decode(greedy, sound, again)
    assert (remembered.tokens, remembered.places_s) == (forgotten.tokens, forgotten.places_s)
    assert remembered.logprobs == pytest.approx(forgotten.logprobs, abs=1e-3)


def test_words_that_knew_less_sound_are_read_anew(
    exact: Checkpoint, greedy: GreedyDecoder, audio: Tensor, task: Task, plain: Decoded
) -> None:
    """Words forced when only half had been said leave nothing behind: once all has been, the
    choices behind them are, bit for bit, those of a decoder that never heard the half."""
    memory, forced = greedy.memory(), replace(task, forced=plain.tokens[:4])
    with torch.inference_mode():
        half, whole = (exact.decoder.listen(rows) for rows in (audio[:60], audio))
        greedy.decode(half, replace(forced, positions=60), memory)
        assert greedy.decode(whole, forced, memory) == greedy.decode(whole, forced)


def test_only_rows_before_the_frozen_limit_are_settled(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """Of the forced words' rows those are kept that looked before the limit, and behind the first
    that did not, none; where that is the very first, the opening is not kept either."""
    memory = greedy.memory()
    third_s = plain.places_s[2]
    settled = []
    with torch.inference_mode():
        for frozen_s in (0.0, third_s):
            frozen = round(frozen_s * POSITIONS_PER_SECOND)
            greedy.decode(sound, replace(task, forced=plain.tokens[:5], frozen=frozen), memory)
            settled.append(memory.settled)
    assert settled == [0, len(task.opening) - 1 + 2]


def test_a_memory_of_other_words_is_no_memory(
    greedy: GreedyDecoder, sound: CrossCache, task: Task, plain: Decoded
) -> None:
    """Rows of a text that went another way are not used."""
    memory = greedy.memory()
    with torch.inference_mode():
        greedy.decode(sound, replace(task, forced=(262, 262, 262)), memory)
        other = greedy.decode(sound, replace(task, forced=plain.tokens[:3]), memory)
    assert other.tokens == plain.tokens[3:]
    assert other.places_s == plain.places_s


@pytest.mark.usefixtures("our_kernels")
def test_decodings_in_step_are_each_as_alone(
    packed: Checkpoint, whisper_tokens: WhisperTokens, audio: Tensor, task: Task
) -> None:
    """A short and a long text decoded together, bit for bit as one after the other."""
    greedy = GreedyDecoder(packed.decoder, whisper_tokens, packed.extras)
    with torch.inference_mode():
        sounds = [packed.decoder.listen(audio), packed.decoder.listen(audio[:60])]
        jobs = [Job(sound, task, greedy.memory()) for sound in sounds]
        assert greedy.decode_many(jobs) == [greedy.decode(sound, task) for sound in sounds]


def test_what_was_said_before_does_not_hide_silence(
    greedy: GreedyDecoder, exact: Checkpoint, whisper_tokens: WhisperTokens, task: Task
) -> None:
    """The belief that nobody speaks is the same behind any prompt."""
    with torch.inference_mode():
        quiet = exact.decoder.listen(exact.encoder(torch.full((80, 300), -0.5)))
        prompted = replace(task, opening=whisper_tokens.opening((262, 262), Language("en")))
        beliefs = [greedy.decode(quiet, t).no_speech for t in (task, prompted)]
    assert beliefs[0] == pytest.approx(beliefs[1], abs=1e-4)
    assert beliefs[0] > 0.8
