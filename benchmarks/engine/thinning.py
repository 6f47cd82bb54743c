"""Words of past turns evicted by attention: what it saves, and what it changes.

Each dialog (thinning.toml) tells facts first, then talks about something else, shows a photograph,
and asks for the facts at the end. It is held with every word kept and with shares of them; greedy
answers are compared from the second turn on, the first for which anything is evicted.

`rows`, one for each share of words kept:

    kv_tokens       in the cache behind the last answer, mean over dialogs
    kv_share        of those with all words
    words_share     the same without system prompt and pictures, which stay
    recalled        facts in the answers that ask for them, and `asked`
    same_answers    share of the answers that are equal, letter for letter
"""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.harness.chat import Chat
from headstart.benchmarks.harness.in_process import Live
from headstart.benchmarks.inputs import photos
from headstart.engine.chat.accounting import Modality

DIALOGS = Path(__file__).with_name("thinning.toml")
SHARES = (1.0, 0.7, 0.5)


@dataclass
class Held:
    """One dialog, once held."""

    answers: list[str] = field(default_factory=list)
    recalled: int = 0
    asked: int = 0
    kv_tokens: int = 0
    words: int = 0


def run(model: str, half: str, *, as_json: bool) -> None:
    """Measure and report. `half`: of the dialogs, "choose" or "report". Raises `PhotosMissing`."""
    dialogs = [d for d in tomllib.loads(DIALOGS.read_text())["dialog"] if d["half"] == half]
    held = {}
    for share in SHARES:
        live = Live(model, kv_text_kept=share)
        held[share] = [_hold(live, number, dialog) for number, dialog in enumerate(dialogs)]
        live.engine.close()
        report.say(str(_row(share, held)))
    rows = [_row(share, held) for share in SHARES]
    report.finish("thinning", {"model": model, "half": half, "rows": rows}, as_json=as_json)


def _hold(live: Live, number: int, dialog: dict[str, Any]) -> Held:
    name = f"dialog-{number}"
    chat, held = Chat(live, name), Held()
    pictures = {photo.name: photo.image for photo in photos.load()}
    for turn in dialog["turn"]:
        if "see" in turn:
            chat.show(pictures[turn["see"]])
        answer = chat.say(turn["say"]).text
        held.answers.append(answer)
        if "want" in turn:
            held.asked += 1
            held.recalled += bool(re.search(turn["want"], answer.lower()))
        report.say(f"  {turn['say']}  ->  {answer}")
    stream = live.engine.sessions[name].stream
    held.kv_tokens = stream.kv_len
    conversation = live.engine.sessions[name].conversation
    system = conversation.rendered().items[0].lead
    pictured = bytes(stream.kv_kinds).count(Modality.IMAGE)
    held.words = stream.kv_len - system - pictured
    chat.close()
    return held


def _row(share: float, held: dict[float, list[Held]]) -> dict[str, Any]:
    full, these = held[SHARES[0]], held[share]
    pairs = [
        one == other
        for a, b in zip(full, these, strict=True)
        for one, other in list(zip(a.answers, b.answers, strict=True))[1:]
    ]
    return {
        "kept": share,
        "kv_tokens": round(statistics.fmean(one.kv_tokens for one in these)),
        "kv_share": _ratio([one.kv_tokens for one in these], [one.kv_tokens for one in full]),
        "words_share": _ratio([one.words for one in these], [one.words for one in full]),
        "recalled": sum(one.recalled for one in these),
        "asked": sum(one.asked for one in these),
        "same_answers": round(statistics.fmean(pairs), 3),
    }


def _ratio(part: Sequence[int], whole: Sequence[int]) -> float:
    return round(sum(part) / sum(whole), 3)
