"""Word error rate of streaming, beside the same Whisper offline on the same clips.

LIST has lines `path TAB text`. Each clip is streamed in chunks and then finished. The offline
recogniser gets it whole: `transformers`, greedy, 30 s windows, padded. What both heard and the text
of LIST pass the same normaliser (numbers, letter case, punctuation and contractions).

With `--listener` each clip goes through the gateway's segmenter instead (packets, voice detector,
pre-roll, pauses), between pauses of a quiet room; the texts of its turns are joined.

Keys: ears, language, wer, offline_wer, ratio, errors, offline_errors, words, clips,
false_words_per_min (over all kinds of `inputs.noise`; null without `--noise-s`), false_words by
kind, chunk_ms, listener, speech_s, lag_ms_median, lag_ms_p95, word_lag_ms_median, word_lag_ms_p95,
letters_lag_ms_median, letters_lag_ms_p95, read_lag_ms_median, read_lag_ms_p95, revised_share,
reworded_share, rollback_share, hush_ms_p50, hush_ms_p95, kept_share, respelt_share, cost_ms_per_s,
cpu_ms_per_s (processor time, all threads).
`--clips` prints each clip where ours and offline differ.

`lag`: from the end of a spoken word to the end of the chunk after which it and all words before it
are shown and stay, without computing time. `word_lag`: the same of the word alone, where words
before it may still change; `letters_lag`: of the word's letters and digits alone, whatever their
case and the punctuation behind them; `read_lag`: until the language model has read it and all words
before it for good, in whatever spelling. A word ends where the next begins; word starts come from
the decoder's alignment heads in a pass over the whole clip. `revised`: share of words shown at a
place that were replaced later: a word put in moves all behind it. `reworded`: share of words shown
that later gave way to other letters, or to none, between the words around them. `rollback`: share
of the text tokens that the language model prefilled (committed and tentative words after each
chunk, in the spelling that `headstart.engine.session.spelling` keeps) that had to be rolled back.
`hush`: wall time of the final pass. `kept`: share of the tokens prefilled before a final pass that
remain valid, up to the first that differs. `respelt`: share of the final words that the model has
read in other letter case or punctuation.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise, takewhile
from operator import ne
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.hearing.false_words import false_words_per_min
from headstart.benchmarks.hearing.segmented import Chunk, Pause, Sound, Step, segmented_clip
from headstart.benchmarks.inputs.recordings import load_f32, read_list
from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.hypothesis import Word, plain
from headstart.engine.asr.mel import SAMPLE_RATE_HZ
from headstart.engine.asr.named import find_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.session.spelling import keep_spelling
from headstart.engine.weights import resolve_model

LONGEST_S = 28  # of audio that the recogniser can align in one pass


@dataclass
class Tally:
    """Counts over all clips, for one way of recognition."""

    texts: list[str] = field(default_factory=list)
    lags_ms: list[float] = field(default_factory=list)
    word_lags_ms: list[float] = field(default_factory=list)
    letters_lags_ms: list[float] = field(default_factory=list)
    read_lags_ms: list[float] = field(default_factory=list)
    shown: int = 0
    revised: int = 0
    worded: int = 0  # words shown, counted by their letters
    reworded: int = 0
    prefilled: int = 0
    rolled_back: int = 0
    spent_s: float = 0.0
    cpu_s: float = 0.0
    hush_ms: list[float] = field(default_factory=list)
    read: int = 0  # tokens prefilled before final passes
    kept: int = 0
    final_words: int = 0
    respelt: int = 0  # of those, otherwise than the transcript spells them


def run(
    clips: Path,
    chunk_ms: int,
    *,
    ears: str,
    language: str,
    limit: int,
    noise_s: float,
    by_listener: bool,
    show_clips: bool,
    as_json: bool,
) -> None:
    """Measure and report. `ears`, `language`: as the settings of those names.

    Raises ValueError naming the line of LIST that is wrong, and what `load_recognizer` does.
    """
    from headstart.benchmarks.references.offline import Offline, normaliser

    lines = read_list(clips)[: limit or None]
    listener = load_recognizer(directory := find_recognizer(ears), language)
    encode = Tokenizer.from_gguf(GgufFile(resolve_model("small").llm)).encode
    offline = Offline(directory, language)
    tally, theirs, seconds = Tally(), [], 0.0
    cut = segmented_clip if by_listener else by_chunks
    for number, (path, text) in enumerate(lines, 1):
        sound = load(path)
        seconds += len(sound) / SAMPLE_RATE_HZ
        stream(listener, sound, cut(sound, chunk_ms), encode, tally)
        theirs.append(offline.transcribe(sound))
        report.say(f"{number}/{len(lines)} {path.name}: {tally.texts[-1]!r} ({text!r})")
    false_words = false_words_per_min(listener, noise_s) if noise_s else None
    spell = normaliser(language)
    truth = [spell(text) for _, text in lines]
    heard, whole = [spell(text) for text in tally.texts], [spell(text) for text in theirs]
    ours, offline_errors = _errors(truth, heard), _errors(truth, whole)
    words = len(" ".join(truth).split())
    if show_clips:
        _print_differences([path.name for path, _ in lines], truth, heard, whole)
    report.finish(
        "wer",
        {
            "ears": directory.name,
            "language": language,
            "wer": round(ours / words, 4),
            "offline_wer": round(offline_errors / words, 4),
            "ratio": round(ours / offline_errors, 3) if offline_errors else None,
            "errors": ours,
            "offline_errors": offline_errors,
            "words": words,
            "clips": len(lines),
            "false_words_per_min": false_words["all"] if false_words else None,
            "false_words": false_words,
            "chunk_ms": chunk_ms,
            "listener": by_listener,
            "speech_s": round(seconds, 1),
            **live_numbers(tally),
            **_costs(tally, seconds),
        },
        as_json=as_json,
    )


def _print_differences(
    names: Sequence[str], truth: Sequence[str], heard: Sequence[str], offline: Sequence[str]
) -> None:
    """Print the clips whose words differ."""
    for name, said, ours, theirs in zip(names, truth, heard, offline, strict=True):
        if ours != theirs:
            print(f"{name}\n  said    {said}\n  ours    {ours}\n  offline {theirs}")


def load(path: Path) -> Sound:
    """Any file PyAV opens, fp32 16 kHz mono."""
    return load_f32(path, SAMPLE_RATE_HZ)


def by_chunks(sound: Sound, chunk_ms: int) -> Iterator[Step]:
    """The sound alone, as if the voice detector had cut exactly at its ends."""
    step = chunk_ms * SAMPLE_RATE_HZ // 1000
    for start in range(0, len(sound), step):
        yield Chunk(sound[start : start + step], min(start + step, len(sound)))
    yield Pause.END


def stream(
    recognizer: WhisperRecognizer,
    sound: Sound,
    steps: Iterable[Step],
    encode: Callable[[str], list[int]],
    tally: Tally,
) -> None:
    """Stream one clip, step by step, and add it to the tally."""
    utterance, before = None, ""
    model_reads, model_read = "", ""  # of this utterance, of those before
    shown: list[tuple[float, list[str]]] = []  # after which ms, which words
    readings: list[tuple[float, list[str]]] = []  # the same as the model reads them
    tokens: list[int] = []
    at_ms = 0.0
    for step in steps:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        utterance = utterance or recognizer.open()
        if isinstance(step, Chunk):
            heard = recognizer.recognize(utterance, step.sound)
            at_ms = step.end_sample * 1000 / SAMPLE_RATE_HZ
        else:
            heard = recognizer.finish(utterance)
        tally.spent_s += time.perf_counter() - began_s
        tally.cpu_s += time.process_time() - began_cpu_s
        text = f"{before} {heard.text}".strip()
        model_reads = keep_spelling(model_reads, heard.text)
        reading = f"{model_read} {model_reads}".strip()
        readings.append((at_ms, reading.split()))
        reads = encode(reading)
        if not isinstance(step, Chunk):
            earlier = len(encode(model_read))
            _count_final(tokens[earlier:], reads[earlier:], heard.stages_ms, tally)
        shown.append((at_ms, text.split()))
        tokens = _prefill(tokens, reads, tally)
        if step is Pause.END:
            utterance, before = None, text
            model_read, model_reads = reading, ""
    tally.texts.append(before)
    tally.final_words += len(before.split())
    tally.respelt += sum(map(ne, before.split(), model_read.split()))
    _count_shown([words for _, words in shown], tally)
    by_letters = [(at_ms, [_letters(word) for word in words]) for at_ms, words in shown]
    _count_reworded([words for _, words in by_letters], tally)
    ends_ms = _ends_ms(recognizer, sound, before) if shown else None
    if ends_ms is not None:
        tally.lags_ms += _lags_ms(shown, ends_ms)
        tally.word_lags_ms += _word_lags_ms(shown, ends_ms)
        tally.letters_lags_ms += _word_lags_ms(by_letters, ends_ms)
        tally.read_lags_ms += _lags_ms(readings, ends_ms)


def _count_final(
    before: Sequence[int], after: Sequence[int], stages_ms: Mapping[str, float], tally: Tally
) -> None:
    """Cost and kept tokens of a final pass; not counted if its words stood already."""
    spent_ms = sum(stages_ms.values())
    if spent_ms:
        tally.hush_ms.append(spent_ms)
        tally.read += len(before)
        pairs = zip(before, after, strict=False)
        tally.kept += sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _prefill(before: list[int], after: list[int], tally: Tally) -> list[int]:
    kept = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if kept is None:
        kept = min(len(before), len(after))
    tally.prefilled += len(after) - kept
    tally.rolled_back += len(before) - kept
    return after


def _count_shown(states: Sequence[Sequence[str]], tally: Tally) -> None:
    """Each word shown at a place counts once, and as revised if another replaces it later."""
    for place in range(max(map(len, states), default=0)):
        seen = [words[place] if place < len(words) else None for words in states]
        changes = [w for w, old in zip(seen, [None, *seen], strict=False) if w != old and w]
        tally.shown += len(changes)
        tally.revised += len(changes) - (seen[-1] is not None)


def _count_reworded(states: Sequence[Sequence[str]], tally: Tally) -> None:
    """Each word counts when it appears, and as reworded when it goes, whatever its place."""
    for before, after in pairwise(([], *states)):
        blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
        same = sum(block.size for block in blocks)
        tally.worded += len(after) - same
        tally.reworded += len(before) - same


def _letters(word: str) -> str:
    """As `headstart.engine.asr.hypothesis.plain`."""
    return plain(Word(word, (), 0.0))


def _ends_ms(recognizer: WhisperRecognizer, sound: Sound, final: str) -> list[float] | None:
    """The end of each final word; None if a pass over the whole clip has other words."""
    if len(sound) > LONGEST_S * SAMPLE_RATE_HZ:
        return None
    words = recognizer.align(sound)
    if [word.strip() for word, _ in words] != final.split():
        return None
    starts_ms = [start_s * 1000 for _, start_s in words]
    return [*starts_ms[1:], len(sound) * 1000 / SAMPLE_RATE_HZ]


def _lags_ms(shown: Sequence[tuple[float, Sequence[str]]], ends_ms: Sequence[float]) -> list[float]:
    final = list(shown[-1][1])
    lags = []
    for place, end_ms in enumerate(ends_ms):
        since_ms = shown[-1][0]
        for at_ms, words in reversed(shown):
            if list(words[: place + 1]) != final[: place + 1]:
                break
            since_ms = at_ms
        lags.append(max(since_ms - end_ms, 0.0))
    return lags


def _word_lags_ms(
    shown: Sequence[tuple[float, Sequence[str]]], ends_ms: Sequence[float]
) -> list[float]:
    final = list(shown[-1][1])
    since_ms = [shown[-1][0]] * len(final)
    standing = set(range(len(final)))
    for at_ms, words in reversed(shown):
        blocks = SequenceMatcher(None, list(words), final, autojunk=False).get_matching_blocks()
        standing &= {place for b in blocks for place in range(b.b, b.b + b.size)}
        for place in standing:
            since_ms[place] = at_ms
    return [max(at - end, 0.0) for at, end in zip(since_ms, ends_ms, strict=True)]


def live_numbers(tally: Tally) -> dict[str, Any]:
    """Numbers about words while they come, and about final passes."""
    lags, own, hushes = tally.lags_ms, tally.word_lags_ms, tally.hush_ms
    letters, read = tally.letters_lags_ms, tally.read_lags_ms
    return {
        "lag_ms_median": round(statistics.median(lags)) if lags else None,
        "lag_ms_p95": round(report.percentile(lags, 95)) if lags else None,
        "word_lag_ms_median": round(statistics.median(own)) if own else None,
        "word_lag_ms_p95": round(report.percentile(own, 95)) if own else None,
        "letters_lag_ms_median": round(statistics.median(letters)) if letters else None,
        "letters_lag_ms_p95": round(report.percentile(letters, 95)) if letters else None,
        "read_lag_ms_median": round(statistics.median(read)) if read else None,
        "read_lag_ms_p95": round(report.percentile(read, 95)) if read else None,
        "revised_share": round(tally.revised / max(tally.shown, 1), 4),
        "reworded_share": round(tally.reworded / max(tally.worded, 1), 4),
        "rollback_share": round(tally.rolled_back / max(tally.prefilled, 1), 4),
        "hush_ms_p50": round(statistics.median(hushes)) if hushes else None,
        "hush_ms_p95": round(report.percentile(hushes, 95)) if hushes else None,
        "kept_share": round(tally.kept / tally.read, 4) if tally.read else None,
        "respelt_share": round(tally.respelt / max(tally.final_words, 1), 4),
    }


def _costs(tally: Tally, seconds: float) -> dict[str, float]:
    """Costs per second of audio."""
    return {
        "cost_ms_per_s": round(tally.spent_s * 1000 / seconds, 1),
        "cpu_ms_per_s": round(tally.cpu_s * 1000 / seconds, 1),
    }


def _errors(truth: list[str], said: list[str]) -> int:
    """Words substituted, deleted and inserted."""
    import jiwer

    found = jiwer.process_words(truth, said)
    return found.substitutions + found.deletions + found.insertions
