"""Output of a talk about a recording: JSON lines for programs, or notes and a bar in a terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from headstart.talk.connection.session import Event
from headstart.talk.long_file.file_info import FileInfo
from headstart.talk.long_file.notes import Note, shown
from headstart.talk.long_file.parts import COST_S, Plan
from headstart.talk.long_file.report import AnalysisObserver, Answer, Report, peak_bytes
from headstart.talk.media.losses import Loss
from headstart.talk.media.times import clock, in_words
from headstart.talk.output import JsonOutput, PrettyOutput, bar, printable

BAR_CELLS = 20
READ_SHOWN = 6
"""Of the ranges that an answer is from; more are counted."""


def plan_lines(info: FileInfo, plan: Plan) -> list[str]:
    """What is about to be done, in two lines."""
    kinds = []
    if info.video is not None:
        kinds.append("a still" if info.covers else f"{info.width} x {info.height}")
        if info.fps and not info.covers:
            kinds[-1] += f", {info.fps:.3g} pictures a second"
    kinds.append("sound" if info.sound is not None else "no sound")
    length = clock(info.duration_s)
    reach = "" if _is_all(info, plan) else f"{clock(plan.start_s)} to {clock(plan.end_s)}: "
    parts = _parts(plan.count)
    if plan.count > 1:  # a single part ends with the file and overlaps nothing
        parts += f" of {plan.part_s:g} s, {plan.overlap_s:g} s of each read twice"
    return [
        f"{info.path.name} · {length} · {' · '.join(kinds)}",
        f"{reach}{parts} · roughly {in_words(plan.cost_s())}, if a part takes {COST_S:g} s",
    ]


def _span(start_s: float, end_s: float) -> str:
    start, end = clock(start_s), clock(end_s)
    return start if start == end else f"{start}-{end}"


def _parts(count: int) -> str:
    return "1 part" if count == 1 else f"{count:,} parts"


def _is_all(info: FileInfo, plan: Plan) -> bool:
    return plan.start_s == 0 and plan.end_s >= info.duration_s


def progress_line(report: Report, elapsed_s: float) -> str:
    """How far it is, how fast, and how long it still takes."""
    plan, done = report.plan, len(report.notes)
    seen_s = report.seen_to_s - plan.start_s
    line = f"{clock(report.seen_to_s)} of {clock(plan.end_s)} · part {done} of {plan.count:,}"
    if done:
        line += f" · {seen_s / elapsed_s:.1f} x real time"
    if 0 < done < plan.count:
        left_s = elapsed_s / done * (plan.count - done)
        line += f" · about {in_words(left_s)} left"
    return line


class JsonAskOutput(JsonOutput, AnalysisObserver):
    """One JSON object per line on stdout: `plan`, `part`, `lost`, `remark`, `away`, `answer`, and
    the result last."""

    def planned(self, info: FileInfo, plan: Plan) -> None:
        self._line(
            {
                "type": "plan",
                **info.to_wire(),
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

    def damaged(self, loss: Loss) -> None:
        self._line({"type": "lost", **loss.to_wire()})

    def remark(self, sentence: str) -> None:
        self._line({"type": "remark", "text": sentence})

    def away(self, for_s: float | None) -> None:
        self._line({"type": "away", "for_s": for_s})

    def answered(self, answer: Answer) -> None:
        self._line({"type": "answer", **answer.to_wire()})

    def report(self, report: Report) -> None:
        self._line(report.to_wire())


class PrettyAskOutput(PrettyOutput, AnalysisObserver):
    """Notes as they are made, above a bar if this is a terminal; then the answers."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console)
        self._report: Report | None = None
        self._plan: Plan | None = None
        self._began_s = time.monotonic()
        self._doing = ""

    def planned(self, info: FileInfo, plan: Plan) -> None:
        self.close()
        self._plan, self._began_s = plan, time.monotonic()
        first, second = plan_lines(info, plan)
        self._console.print(Text(printable(first), style="bold"))
        self._console.print(Text(second))
        for remark in info.remarks:
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
        nothing = "" if note.captions or note.heard else "nothing to see or hear"
        rows.add_row(Text(note.when, style="cyan"), Text(printable(note.seen) or nothing))
        timed = [(c.at_s, Text(printable(shown(c)))) for c in note.captions]
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

    def damaged(self, loss: Loss) -> None:
        self._console.print(Text(str(loss), style="yellow"))

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

    def answered(self, answer: Answer) -> None:
        self._console.print(Text(printable(f"\n{answer.question}"), style="bold green"))
        if answer.error:
            self._console.print(Text(printable(f"failed: {answer.error}"), style="red"))
        else:
            self._console.print(Text(printable(answer.text)))
        spans = [_span(*read) for read in answer.read]
        more = f" and {len(spans) - READ_SHOWN} more" if len(spans) > READ_SHOWN else ""
        read = f"read in detail: {', '.join(spans[:READ_SHOWN]) or 'nothing'}{more}"
        read += f" · {answer.took_s:.0f} s"
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
        told = f"{in_words(seen_s)} in {in_words(report.took_s)}"
        told += f" ({seen_s / max(report.took_s, 1e-3):.1f} x real time)"
        told += f", {_parts(len(report.notes))}, {peak_bytes() / 1e6:.0f} MB here at most"
        self._console.print(Text(f"\n{told}", style="bright_black"))

    def _show_bar(self) -> None:
        if self._plan is None or not self._console.is_terminal:
            return
        elapsed_s = max(time.monotonic() - self._began_s, 1e-3)
        done = len(self._report.notes) if self._report is not None else 0
        head = Text(f"{bar(done / self._plan.count, BAR_CELLS)} ", style="cyan", no_wrap=True)
        if self._report is not None:
            head.append(progress_line(self._report, elapsed_s), style="bright_black")
        self._show(Group(head, Text(self._doing, style="bright_black")))


AskOutput = JsonAskOutput | PrettyAskOutput
__all__ = ["AskOutput", "Event", "JsonAskOutput", "PrettyAskOutput", "plan_lines"]
