"""Quality of answers: fifty questions of everyday talk, and twenty held out.

Each dialog of questions.toml is a session of its own with the server's default prompts. A reader
judged each answer once; verdicts.toml has the verdicts by exact wording. An answer that has changed
since is "not judged", never silently right. Beside it is the result of the question's pattern. The
results are written to docs/answers-MODEL.md (`--write`).

Keys: model, questions, judged, right_or_on_topic, share (of the questions), pattern_share, and the
same for the held-out ones with `held_` before; first_ms_median.
"""

from __future__ import annotations

import re
import statistics
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.harness.chat import Chat
from headstart.benchmarks.harness.in_process import Live
from headstart.benchmarks.inputs import photos
from headstart.benchmarks.inputs.questions import dialogs

VERDICTS = Path(__file__).with_name("verdicts.toml")
PAGES = Path(__file__).resolve().parents[2] / "docs"
GOOD = ("right", "on topic")


@dataclass(frozen=True)
class Row:
    """One question and its answer. `matches`: the pattern's result; None: there is no pattern."""

    kind: str
    held: bool
    said: str
    answer: str
    first_ms: float
    matches: bool | None
    verdict: str

    @property
    def good(self) -> bool:
        return self.verdict in GOOD


def run(model: str, *, write: bool, as_json: bool) -> None:
    """Ask, look up verdicts and report; `write` the page in docs/."""
    verdicts = tomllib.loads(VERDICTS.read_text())
    pictures = {photo.name: photo for photo in photos.load()}
    live = Live(model)
    rows = []
    for number, dialog in enumerate(dialogs()):
        chat = Chat(live, f"dialog-{number}")
        if "see" in dialog:
            chat.show(pictures[dialog["see"]].image)
        for question in dialog["ask"]:
            rows.append(_ask(chat, dialog, question, verdicts.get(model, {})))
        chat.close()
    asked, held = ([row for row in rows if row.held is which] for which in (False, True))
    if write:
        page = PAGES / f"answers-{live.info.name}.md"
        page.write_text(_page(live.info.name, asked, held))
        report.say(f"wrote {page.name}")
    judged = {"": asked, "held_": held}
    numbers = {prefix + key: value for prefix, part in judged.items() for key, value in _sum(part)}
    first_ms = round(statistics.median(row.first_ms for row in rows))
    report.finish(
        "answers",
        {"model": live.info.name, **numbers, "first_ms_median": first_ms},
        as_json=as_json,
    )


def _ask(chat: Chat, dialog: dict[str, Any], question: dict[str, str], known: Any) -> Row:
    reply = chat.say(question["say"])
    want = question["want"]
    row = Row(
        kind=dialog["kind"],
        held=dialog.get("held", False),
        said=question["say"],
        answer=reply.text,
        first_ms=reply.first_ms,
        matches=bool(re.search(want, reply.text, re.IGNORECASE)) if want else None,
        verdict=known.get(f"{question['say']} => {reply.text}", "not judged"),
    )
    report.say(f"{row.verdict:10}  {row.said}  =>  {row.answer}")
    return row


def _sum(rows: list[Row]) -> list[tuple[str, float | int]]:
    patterns = [row.matches for row in rows if row.matches is not None]
    return [
        ("questions", len(rows)),
        ("judged", sum(row.verdict != "not judged" for row in rows)),
        ("right_or_on_topic", sum(row.good for row in rows)),
        ("share", round(sum(row.good for row in rows) / len(rows), 3)),
        ("pattern_share", round(sum(patterns) / len(patterns), 3)),
    ]


def _page(model: str, asked: list[Row], held: list[Row]) -> str:
    good = [sum(row.good for row in part) for part in (asked, held)]
    head = (
        f"# What `{model}` answers\n\n"
        "Written by `headstart bench answers --write`. The questions were written before the "
        "prompt was chosen on the first table; the second was held out. One reader judged each "
        "answer: *right*, *on topic* (sensible, but not a fact that can be right) or *wrong*. "
        "Greedy decoding, the server's default manner (`gateway/default_prompts.py`).\n\n"
        f"Right or on topic: **{good[0]} of {len(asked)}**, held out {good[1]} of {len(held)}.\n"
    )
    return head + _table("The fifty", asked) + _table("Held out", held)


def _table(title: str, rows: list[Row]) -> str:
    lines = [f"\n## {title}\n", "| kind | said | answer | verdict |", "|---|---|---|---|"]
    for row in rows:
        answer = row.answer.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {row.kind} | {row.said} | {answer} | {row.verdict} |")
    return "\n".join(lines) + "\n"
