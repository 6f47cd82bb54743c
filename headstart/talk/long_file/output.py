"""Output of a talk about a recording: JSON lines for programs, or notes and a bar in a terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from headstart.talk.long_file.facts import Facts
from headstart.talk.long_file.link import Event
from headstart.talk.long_file.notes import Note
from headstart.talk.long_file.plan import COST_S, Plan, clock, lasting
from headstart.talk.long_file.reader import Lost
from headstart.talk.long_file.watch import Answered, Report, WatchObserver, peak_bytes
from headstart.talk.output import JsonOutput, PrettyOutput, bar, printable

BAR_CELLS = 20
READ_SHOWN = 6
"""Of the ranges that an answer is from; more are counted."""


def plan_lines(facts: Facts, plan: Plan) -> list[str]:
    """What is about to be done, in two lines."""
    kinds = []
    if facts.video is not None:
        kinds.append("a still" if facts.covers else f"{facts.width} x {facts.height}")
        if facts.fps and not facts.covers:
            kinds[-1] += f", {facts.fps:.3g} pictures a second"
    kinds.append("sound" if facts.sound is not None else "no sound")
    length = clock(facts.duration_s)
    reach = "" if _is_all(facts, plan) else f"{clock(plan.start_s)} to {clock(plan.end_s)}: "
    parts = "1 part" if plan.count == 1 else f"{plan.count:,} parts"
    return [
        f"{facts.path.name} · {length} · {' · '.join(kinds)}",
        f"{reach}{parts} of {plan.part_s:g} s, {plan.overlap_s:g} s of each read twice · roughly "
        f"{lasting(plan.cost_s())}, if a part takes {COST_S:g} s",
    ]


def _is_all(facts: Facts, plan: Plan) -> bool:
    return plan.start_s == 0 and plan.end_s >= facts.duration_s


def progress_line(report: Report, elapsed_s: float) -> str:
    """How far it is, how fast, and how long it still takes."""
    plan, done = report.plan, len(report.notes)
    seen_s = report.seen_to_s - plan.start_s
    line = f"{clock(report.seen_to_s)} of {clock(plan.end_s)} · part {done} of {plan.count:,}"
    if done:
        left_s = elapsed_s / done * (plan.count - done)
        line += f" · {seen_s / elapsed_s:.1f} x real time · about {lasting(left_s)} left"
    return line


class JsonWatchOutput(JsonOutput, WatchObserver):
    """One JSON object per line on stdout: `plan`, `part`, `lost`, `remark`, `away`, `answer`, and
    the result last."""

    def planned(self, facts: Facts, plan: Plan) -> None:
        self._line(
            {
                "type": "plan",
                **facts.to_wire(),
                "from_s": plan.start_s,
                "to_s": plan.end_s,
                "parts": plan.count,
                "part_s": plan.part_s,
                "overlap_s": plan.overlap_s,
                "estimate_s": plan.cost_s(),
            }
        )

    def noted(self, note: Note, report: Report) -> None:
        left = report.plan.count - len(report.notes)
        self._line(
            {
                "type": "part",
                **note.to_wire(),
                "left_s": round(report.took_s / len(report.notes) * left, 1),
                "client_peak_bytes": peak_bytes(),
            }
        )

    def lost_part(self, lost: Lost) -> None:
        self._line({"type": "lost", **lost.to_wire()})

    def remark(self, sentence: str) -> None:
        self._line({"type": "remark", "text": sentence})

    def away(self, for_s: float | None) -> None:
        self._line({"type": "away", "for_s": for_s})

    def answered(self, answer: Answered) -> None:
        self._line({"type": "answer", **answer.to_wire()})

    def report(self, report: Report) -> None:
        self._line(report.to_wire())


class PrettyWatchOutput(PrettyOutput, WatchObserver):
    """Notes as they are made, above a bar if this is a terminal; then the answers."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._report: Report | None = None
        self._plan: Plan | None = None
        self._began_s = time.monotonic()
        self._doing = ""

    def planned(self, facts: Facts, plan: Plan) -> None:
        self.close()
        self._plan, self._began_s = plan, time.monotonic()
        first, second = plan_lines(facts, plan)
        self._console.print(Text(printable(first), style="bold"))
        self._console.print(Text(second))
        for remark in facts.remarks:
            self._console.print(Text(printable(remark), style="yellow"))

    def doing(self, what: str, index: int) -> None:
        if self._plan is None or index >= self._plan.count:
            return
        self._doing = f"{what} part {index + 1}"
        self._show_bar()

    def noted(self, note: Note, report: Report) -> None:
        self._report = report
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(min_width=13, no_wrap=True)
        rows.add_column()
        nothing = "" if note.sights or note.heard else "nothing to see or hear"
        rows.add_row(Text(note.when, style="cyan"), Text(printable(note.seen) or nothing))
        timed = [(s.at_s, Text(printable(s.text))) for s in note.sights]
        timed += [
            (s.start_s, Text(printable(f"“{s.text}”"), style="green")) for s in note.new_lines()
        ]
        for at_s, what in sorted(timed, key=lambda pair: pair[0]):
            rows.add_row(Text(f"{clock(at_s):>13}", style="bright_black"), what)
        self._console.print(rows)
        if not self._console.is_terminal and self._plan is not None:
            line_ = progress_line(report, max(report.took_s, 1e-3))
            self._console.print(Text(line_, style="bright_black"))
        self._show_bar()

    def lost_part(self, lost: Lost) -> None:
        self._console.print(Text(str(lost), style="yellow"))

    def remark(self, sentence: str) -> None:
        self._console.print(Text(printable(sentence), style="yellow"))

    def away(self, for_s: float | None) -> None:
        told = (
            "the server is back"
            if for_s is None
            else (f"the server is away: trying again for up to {for_s:.0f} s")
        )
        self._console.print(Text(told, style="yellow"))

    def answering(self, question: str) -> None:
        self._doing = f"answers: {printable(question)}"
        self._show_bar()

    def answered(self, answer: Answered) -> None:
        self._console.print(Text(printable(f"\n{answer.question}"), style="bold green"))
        if answer.error:
            self._console.print(Text(printable(f"failed: {answer.error}"), style="red"))
        else:
            self._console.print(Text(printable(answer.text)))
        spans = [f"{clock(a)}-{clock(b)}" for a, b in answer.read]
        more = f" and {len(spans) - READ_SHOWN} more" if len(spans) > READ_SHOWN else ""
        read = f"read in detail: {', '.join(spans[:READ_SHOWN])}{more} · {answer.took_s:.0f} s"
        self._console.print(Text(read, style="bright_black"))

    def report(self, report: Report) -> None:
        self.close()
        seen_s = report.seen_to_s - report.plan.start_s
        if report.stopped:
            told = f"stopped at {clock(report.seen_to_s)} of {clock(report.plan.end_s)}"
            self._console.print(Text(f"\n{told}: what is behind it is not known", style="yellow"))
        if report.error:
            told = f"\nended at {clock(report.seen_to_s)}: {report.error}"
            self._console.print(Text(printable(told), style="red"))
        facts = f"{lasting(seen_s)} in {lasting(report.took_s)}"
        facts += f" ({seen_s / max(report.took_s, 1e-3):.1f} x real time)"
        facts += f", {len(report.notes)} parts, {peak_bytes() / 1e6:.0f} MB here at most"
        self._console.print(Text(f"\n{facts}", style="bright_black"))

    def _show_bar(self) -> None:
        if self._plan is None or not self._console.is_terminal:
            return
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        done = len(self._report.notes) if self._report is not None else 0
        head = Text(f"{bar(done / self._plan.count, BAR_CELLS)} ", style="cyan", no_wrap=True)
        if self._report is not None:
            head.append(progress_line(self._report, elapsed_s), style="bright_black")
        self._show(Group(head, Text(self._doing, style="bright_black")))


WatchOutput = JsonWatchOutput | PrettyWatchOutput
__all__ = ["Event", "JsonWatchOutput", "PrettyWatchOutput", "WatchOutput", "plan_lines"]
