"""The cost of showing the same video again, when its pictures and their K/V are cached.

Each video is given to a session as 32 evenly spaced pictures with a question. The session then asks
again with the pictures still in its context (`turn2`). Then the client sends pictures and question
again in the same session (`resent`), and in a new session (`other_session`), which reuses K/V and
encoder output of the first. Times are from the first picture's arrival, or the question's if no
picture is sent, to the first text of the answer.

Keys: turn1_ms, turn2_ms, resent_ms, other_session_ms (means over the videos), saved,
resent_saved, other_session_saved (shares of turn1_ms), rows (the same for each video, with tokens
that were prefilled and those that were not), same_answer (the new session's, with the first's),
pictures, model.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import Live
from headstart.benchmarks.vision.eyes import QUESTION
from headstart.benchmarks.vision.frames import VIDEOS, pictures_of
from headstart.engine import api
from headstart.gateway.default_prompts import INSTRUCTIONS, blind_note

PICTURES = 32
SAMPLING = api.Sampling(max_tokens=16)
WAYS = ("turn1", "turn2", "resent", "other_session")


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn. `first_ms`: time to the first text; counts of prefilled and cached input tokens."""

    first_ms: float
    prefilled: int
    answer: str


class Viewer:
    """A session that sends pictures and asks about them."""

    def __init__(self, live: Live, name: str) -> None:
        self._live, self._name = live, name
        self._turn = 0
        live.engine.receive(api.Open(name, INSTRUCTIONS, (), blind_note(INSTRUCTIONS)))
        live.run()

    def ask(self, pictures: Sequence[api.Image] = ()) -> Turn:
        """Send `pictures` and the question; returns the answered turn."""
        self._turn += 1
        engine, number, seen = self._live.engine, self._turn, len(self._live.events)
        stream = engine.sessions[self._name].stream
        computed = stream.prefilled_tokens
        item = api.Item(f"u{number}", api.Role.USER, (*pictures, api.Text(QUESTION)))
        began_ns = time.monotonic_ns()
        engine.receive(api.AddItem(self._name, item))
        engine.receive(api.Respond(self._name, number, f"a{number}", SAMPLING))
        self._live.run()
        events = self._live.events[seen:]
        first = next(e for e in events if isinstance(e, api.Delta))
        done = next(e for e in events if isinstance(e, api.Finished))
        prefilled = stream.prefilled_tokens - computed - done.usage.output
        return Turn((first.at_ns - began_ns) / 1e6, max(prefilled, 0), done.text)

    def leave(self) -> None:
        self._live.close(self._name)


def run(model: str, *, as_json: bool) -> None:
    """Measure and report."""
    live = Live(model)
    rows = [_row(live, name) for name in VIDEOS]
    report.finish("cache", _summary(rows) | {"model": live.info.name}, as_json=as_json)


def _row(live: Live, video: str) -> dict[str, Any]:
    every = list(pictures_of(video))
    picks = np.linspace(0, len(every) - 1, PICTURES).round().astype(int)
    pictures = [every[i][1].image for i in picks]
    one = Viewer(live, f"{video}-1")
    turns = {"turn1": one.ask(pictures), "turn2": one.ask()}
    turns["resent"] = one.ask(pictures)
    other = Viewer(live, f"{video}-2")
    turns["other_session"] = other.ask(pictures)
    for viewer in (one, other):
        viewer.leave()
    report.say(f"{video:18} " + "  ".join(f"{w} {turns[w].first_ms:.0f} ms" for w in WAYS))
    row: dict[str, Any] = {"video": video}
    for way in WAYS:
        row[f"{way}_ms"] = round(turns[way].first_ms, 1)
        row[f"{way}_prefilled"] = turns[way].prefilled
    row["same_answer"] = turns["turn1"].answer == turns["other_session"].answer
    return row


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    means = {f"{way}_ms": statistics.mean(row[f"{way}_ms"] for row in rows) for way in WAYS}

    def saved(way: str) -> float:
        return round(1 - float(means[f"{way}_ms"] / means["turn1_ms"]), 4)

    return {
        **{key: round(value, 1) for key, value in means.items()},
        "saved": saved("turn2"),
        "resent_saved": saved("resent"),
        "other_session_saved": saved("other_session"),
        "same_answer": all(row["same_answer"] for row in rows),
        "pictures": PICTURES,
        "rows": list(rows),
    }
