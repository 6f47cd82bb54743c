"""Sentences heard right under 36 conditions, beside the same Whisper offline on the same sound.

    headstart bench conditions --half choose --sample 6 --notes build/choose.jsonl
    headstart bench conditions --half report --json

The demo's questions and fifty more by three packaged voices (`inputs.spoken`), each under every
one of `inputs.condition_sounds.CONDITIONS`. Ours is the whole path: packets, voice detector,
pre-roll, chunks, hushes and the ears; the texts of its turns are put together. Offline hears what
was sent while the clip lasted, at once. A sentence is right where the normalised texts are equal.

`--kinds babble,pink` hears only the conditions of those kinds (see `kind`), and
`--condition "babble 10 dB, g711"`, which may be repeated, only the ones named. `--draws 5` hears
each clip under each condition five times, each time with another babble, pink noise, room and quiet
(seeded by the number of the draw), so that a difference of a few clips can be told from chance.

What is chosen is chosen on one half of the sentences and reported on the other (by the CRC-32 of
their words). With `--notes FILE` what was heard is kept there, a line for each clip, condition and
draw, and a run that was broken off goes on behind it. What offline made of a sound is kept in the
clips' folder (`references.kept_offline`), because it costs two thirds of the time and does not
change with ours.

Keys: ears, half, sentences, draws, chunk_ms, rows [condition, clips, ours_right, offline_right
(shares), ours_wer, offline_wer, and the paired comparison of `hearing.paired`], kinds (the same
rows with similar conditions together), worst_points and worst (by how many percentage points, and
where, offline has more sentences right than ours).
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jiwer
import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.hearing.paired import Pair, compare
from headstart.benchmarks.hearing.segmented import Chunk, Pause, Step, segmented_stream
from headstart.benchmarks.inputs.condition_sounds import (
    CONDITIONS,
    Condition,
    Placed,
    Places,
    babble,
)
from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from headstart.benchmarks.inputs.spoken import QUESTIONS, SENTENCES, spoken
from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.languages import ENGLISH_CODE
from headstart.engine.asr.mel import SAMPLE_RATE_HZ
from headstart.engine.asr.named import find_recognizer
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.audio.resample import StreamResampler

HALVES = ("choose", "report")
DEMO = {
    "capital.wav": "What is the capital of France?",
    "followup.wav": "And which river runs through it?",
    "demo.mp4": "What do you see in this picture?",
}


Key = tuple[str, str, int]  # clip, condition, draw


@dataclass(frozen=True)
class Clip:
    """A sentence said once."""

    name: str
    path: Path
    text: str


@dataclass(frozen=True)
class Note:
    """What one clip was taken for under one condition, in one draw of what is random in it."""

    clip: str
    condition: str
    said: str
    ours: str
    offline: str
    draw: int = 0

    @property
    def key(self) -> Key:
        return self.clip, self.condition, self.draw


def run(
    folder: Path,
    half: str,
    sample: int,
    *,
    kinds: Sequence[str] = (),
    names: Sequence[str] = (),
    draws: int = 1,
    ears: str,
    chunk_ms: int,
    notes: Path | None,
    as_json: bool,
) -> None:
    """Measure and report; clips are kept in `folder`. `sample`: only so many sentences; 0: all.
    `kinds`, `names`: of conditions; none: all. `draws`: of what is random, for each clip.

    Raises ValueError for notes of another run's settings and for an unknown kind or condition, and
    what `load_recognizer` and `spoken` do.
    """
    conditions = conditions_of(kinds, names)
    sentences = sentences_of(half, sample)
    clips = list(_clips(folder, sentences))
    settings = {"ears": ears, "chunk_ms": chunk_ms}
    known = read_notes(notes, settings) if notes else []
    heard = {note.key: note for note in known}
    wanted = [
        (clip.name, condition.name, draw)
        for draw in range(draws)
        for clip in clips
        for condition in conditions
    ]
    missing = [key for key in wanted if key not in heard]
    if missing:
        for note in _hear(folder, clips, ears, chunk_ms, missing):
            heard[note.key] = note
            if notes:
                with notes.open("a") as file:
                    file.write(json.dumps(asdict(note)) + "\n")
    report.finish(
        "conditions",
        {
            "half": half,
            "sentences": len(sentences),
            "draws": draws,
            **settings,
            **summary([heard[key] for key in wanted]),
        },
        as_json=as_json,
    )


def conditions_of(kinds: Sequence[str], names: Sequence[str] = ()) -> list[Condition]:
    """Those of the kinds and those of the names; all if none is given. Raises ValueError for
    others."""
    groups = list(dict.fromkeys(kind(condition.name) for condition in CONDITIONS))
    every = [condition.name for condition in CONDITIONS]
    if unknown := [name for name in kinds if name not in groups]:
        raise ValueError(f"expected kinds of conditions among {groups}, got {unknown}")
    if unknown := [name for name in names if name not in every]:
        raise ValueError(f"expected conditions among {every}, got {unknown}")
    return [
        one
        for one in CONDITIONS
        if not (kinds or names) or kind(one.name) in kinds or one.name in names
    ]


def sentences_of(half: str, sample: int = 0) -> list[str]:
    """Those of one half, the demo's first; `sample`: only so many; 0: all."""
    assert half in HALVES
    every = dict.fromkeys([*DEMO.values(), *SENTENCES[QUESTIONS]])
    mine = [text for text in every if zlib.crc32(text.encode()) % 2 == HALVES.index(half)]
    return mine[: sample or None]


def _clips(folder: Path, sentences: Sequence[str]) -> Iterator[Clip]:
    """By sentence, so that a run that is broken off has heard each voice alike."""
    said = [Clip(path.stem, path, text) for path, text in spoken(folder, QUESTIONS)]
    demo = [Clip(name, CLIPS / name, text) for name, text in DEMO.items()]
    for sentence in sentences:
        yield from (clip for clip in demo + said if clip.text == sentence)


def read_notes(path: Path, settings: Mapping[str, object]) -> list[Note]:
    """What was heard before; the file begins with the settings. Raises ValueError for others."""
    if not path.exists():
        path.write_text(json.dumps(settings) + "\n")
        return []
    whole, _, cut_off = path.read_text().rpartition("\n")
    if cut_off:  # a line that was being written when the run ended
        path.write_text(whole + "\n")
    head, *lines = whole.splitlines()
    if json.loads(head) != settings:
        raise ValueError(f"{path}: expected notes of {dict(settings)}, got those of {head}")
    return [Note(**json.loads(line)) for line in lines]


def _hear(
    folder: Path, clips: Sequence[Clip], ears: str, chunk_ms: int, missing: Sequence[Key]
) -> Iterator[Note]:
    """What is missing, in that order. Says how far it is, and how long the rest will take."""
    from headstart.benchmarks.references.kept_offline import KeptOffline

    listener = load_recognizer(directory := find_recognizer(ears), ENGLISH_CODE)
    offline = KeptOffline(folder / "offline.jsonl", directory, ENGLISH_CODE)
    by_clip = {clip.name: clip for clip in clips}
    by_condition = {condition.name: condition for condition in CONDITIONS}
    began = time.monotonic()
    began, drawn = time.monotonic(), None
    for number, (name, condition, draw) in enumerate(missing, 1):
        if draw != drawn:
            path = folder / (f"babble-{draw}.wav" if draw else "babble.wav")
            places, drawn = Places(babble(path, draw), draw), draw
        clip = by_clip[name]
        placed = places.put(load_s16(clip.path, CLIENT_RATE_HZ), by_condition[condition])
        ours = heard_by(listener, segmented_stream(placed.pcm.tobytes(), chunk_ms))
        theirs = offline.transcribe(_alone(placed))
        if number == 1:  # the models were loaded for it
            began, left = time.monotonic(), ""
        else:
            left_s = (time.monotonic() - began) / (number - 1) * (len(missing) - number)
            left = f" ({left_s / 60:.0f} min left)"
        report.say(
            f"{number}/{len(missing)}{left} {name}, {condition}, draw {draw}: {ours!r}, {theirs!r}"
        )
        yield Note(name, condition, clip.text, ours, theirs, draw)


def _alone(placed: Placed) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The clip's own samples of what was sent, at 16 kHz."""
    down = StreamResampler(CLIENT_RATE_HZ, SAMPLE_RATE_HZ)
    sent = placed.pcm[placed.first : placed.end].tobytes()
    pcm = np.frombuffer(down.feed_pcm(sent) + down.flush_pcm(), "<i2")
    return pcm.astype(np.float32) / np.float32(32768)


def heard_by(recognizer: WhisperRecognizer, steps: Iterable[Step]) -> str:
    """The final words of all turns."""
    texts, utterance = [], None
    for step in steps:
        utterance = utterance or recognizer.open()
        if isinstance(step, Chunk):
            recognizer.recognize(utterance, step.sound)
            continue
        heard = recognizer.finish(utterance)
        if step is Pause.END:
            texts.append(heard.text)
            utterance = None
    return " ".join(texts).strip()


def summary(notes: Sequence[Note]) -> dict[str, Any]:
    """The table over conditions, over kinds of them, and the worst."""
    from headstart.benchmarks.references.offline import normaliser

    spell = normaliser()
    rows = [_row(name, notes, lambda note: note.condition, spell) for name in _names(notes)]
    kinds = dict.fromkeys(kind(name) for name in _names(notes))
    worst = max(rows, key=_points)
    return {
        "rows": rows,
        "kinds": [_row(name, notes, lambda note: kind(note.condition), spell) for name in kinds],
        "all": _row("all", notes, lambda note: "all", spell),
        "worst_points": round(_points(worst), 1),
        "worst": worst["condition"],
    }


def kind(condition: str) -> str:
    """The name under which a condition is counted together with similar ones."""
    first = condition.split(" ")[0]
    if "," in condition:
        return "combined"
    return "level" if condition.endswith("6 dB") else first


def _names(notes: Sequence[Note]) -> list[str]:
    return list(dict.fromkeys(note.condition for note in notes))


def _points(row: Mapping[str, Any]) -> float:
    return float(100 * (row["offline_right"] - row["ours_right"]))


def _row(
    name: str, notes: Sequence[Note], group: Callable[[Note], str], spell: Callable[[str], str]
) -> dict[str, Any]:
    mine = [note for note in notes if group(note) == name]
    said = [spell(note.said) for note in mine]
    row: dict[str, Any] = {"condition": name, "clips": len(mine)}
    right: dict[str, list[bool]] = {}
    wrong: dict[str, list[int]] = {}
    for who in ("ours", "offline"):
        heard = [spell(getattr(note, who)) for note in mine]
        right[who] = [a == b for a, b in zip(said, heard, strict=True)]
        wrong[who] = [_errors(a, b) for a, b in zip(said, heard, strict=True)]
        row[f"{who}_right"] = round(sum(right[who]) / len(mine), 4)
        row[f"{who}_wer"] = round(sum(wrong[who]) / sum(len(text.split()) for text in said), 4)
    pairs = [
        Pair(note.said, len(text.split()), *both)
        for note, text, *both in zip(
            mine,
            said,
            right["ours"],
            right["offline"],
            wrong["ours"],
            wrong["offline"],
            strict=True,
        )
    ]
    return row | compare(pairs)


def _errors(said: str, heard: str) -> int:
    found = jiwer.process_words(said, heard)
    return int(found.substitutions + found.deletions + found.insertions)
