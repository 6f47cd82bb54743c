"""Output of a talk: JSON lines for programs, or live text and bars in a terminal."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from headstart.talk.client import TalkObserver
from headstart.talk.dashboard_link import turn_link
from headstart.talk.dialog import Dialog, Event, Turn
from headstart.talk.local_server import Status
from headstart.talk.media.playback import MediaFile

BAR_CELLS = 36
STAGE_STYLES = {
    "network": "bright_black",
    "buffer": "bright_black",
    "resample": "bright_black",
    "vad_hangover": "yellow",
    "queue": "red",
    "send": "bright_black",
    "voice": "magenta",
    "playout": "bright_black",
}
COMPUTE_STYLE = "cyan"
FRAMES_PER_S = 12
TOO_SLOW = (
    "late: recognition did not keep up. Other programs use the cores, or they are too slow for "
    "this model (--model tiny is faster)"
)
STARTING = "starting a server (the first start compiles and fetches what is missing)"


class Output(TalkObserver):
    """What `run` needs besides a `TalkObserver`. `server_url`: of a server that outlives the talk;
    each turn is linked to its dashboard."""

    server_url: str | None = None

    def lost(self, kept_s: float | None) -> None:
        """Printed on stderr, where it disturbs neither lines nor bars."""
        if kept_s is None:
            print("connected again: the conversation goes on", file=sys.stderr, flush=True)
        else:
            line = f"connection lost: trying again, for up to {kept_s:.0f} s"
            print(line, file=sys.stderr, flush=True)

    def turn_began(self, clip: MediaFile, turn: Turn) -> None:
        """Remarks about the file are printed on stderr, too."""
        for remark in clip.remarks:
            self.remark(remark)

    def remark(self, sentence: str) -> None:
        print(printable(sentence), file=sys.stderr, flush=True)

    def starting(self) -> None:
        """A server is being started."""

    def status(self, status: Status) -> None:
        """The server is loading."""

    def done(self, result: dict[str, Any]) -> None:
        """All files have been played; `result` is `Dialog.to_wire()`."""

    def staying(self, url: str) -> None:
        """The talk is over; the server keeps running at `url`."""

    def close(self) -> None:
        """Restore the terminal, whatever happened."""


class JsonOutput(Output):
    """One JSON object per line on stdout: every event as received, the result last."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._said = ""

    def starting(self) -> None:
        print(STARTING, file=sys.stderr, flush=True)

    def _line(self, value: dict[str, Any]) -> None:
        # A file's name, or half of a surrogate pair in an answer, may have no UTF-8.
        line = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
        self._stream.write(line + "\n")
        self._stream.flush()

    def status(self, status: Status) -> None:
        line = in_words(status)
        if line != self._said:
            print(line, file=sys.stderr, flush=True)
        self._said = line

    def event(self, event: Event, dialog: Dialog) -> None:
        self._line(event)

    def turn_ended(self, turn: Turn) -> None:
        if turn.heard_nothing:
            self.remark(f"{turn.file}: no speech was found")

    def done(self, result: dict[str, Any]) -> None:
        self._line(result)


class PrettyOutput(Output):
    """Live in a terminal; in a pipe, each turn when it is complete."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._live: Live | None = None
        self._clip: MediaFile | None = None
        self._turn: Turn | None = None
        self._sent_ms = 0.0
        self._said = ""

    def starting(self) -> None:
        if self._console.is_terminal:
            self._show(Text(STARTING, style="bright_black"))
        else:
            self._console.print(STARTING)

    def status(self, status: Status) -> None:
        line = in_words(status)
        loading = status["engine"]["loading"]
        if self._console.is_terminal:
            if loading and loading["total"]:
                line += f"  {bar(loading['done'] / loading['total'])}"
            self._show(Text(line, style="bright_black"))
        elif line != self._said:
            self._console.print(line)
        self._said = line

    def turn_began(self, clip: MediaFile, turn: Turn) -> None:
        self.close()
        self._clip, self._turn, self._sent_ms = clip, turn, 0.0
        name = escape(printable(clip.path.name))
        self._console.rule(f"[bold]{name}[/bold] · {clip.duration_s:.1f} s", align="left")
        for remark in clip.remarks:
            self._console.print(Text(printable(remark), style="yellow"))
        self._refresh()

    def remark(self, sentence: str) -> None:
        self._console.print(Text(printable(sentence), style="yellow"))

    def progress(self, sent_ms: float) -> None:
        self._sent_ms = sent_ms
        self._refresh()

    def event(self, event: Event, dialog: Dialog) -> None:
        if event.get("type") == "error":
            self._console.print(Text(printable(f"error: {event['error']['message']}"), style="red"))
        elif event.get("type") == "gateway.engine.status":
            self._console.print(Text(printable(event["message"]), style="yellow"))
        self._refresh()

    def turn_ended(self, turn: Turn) -> None:
        self.close()
        self._turn = None
        self._console.print(said(turn))
        wire = turn.to_wire()
        if wire["error"]:
            self._console.print(
                Text(printable(f"failed: {wire['error'].get('message')}"), style="red")
            )
        if wire["budget"] and wire["budget"]["total_ms"] is not None:
            self._console.print(budget_table(wire["budget"]))
        for line in facts(wire):
            self._console.print(Text(line, style="bright_black"))
        link = None if self.server_url is None else turn_link(self.server_url, turn)
        if link is not None:
            # In one piece, however narrow the terminal: it is there to be opened.
            line = f"this turn in the dashboard: {link}"
            self._console.print(Text(line, style="bright_black"), soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def staying(self, url: str) -> None:
        self._console.print(
            f"\nNow you: open [bold]{url}[/bold] and talk. The server runs until Ctrl-C.\n"
            f"Latency dashboard: {url.rstrip('/')}/dashboard/",
            soft_wrap=True,
        )

    def _refresh(self) -> None:
        if self._turn is None or self._clip is None or not self._console.is_terminal:
            return
        share = min(1.0, self._sent_ms / 1000 / max(self._clip.duration_s, 0.001))
        head = Text(f"{bar(share)} {self._sent_ms / 1000:5.1f} s", style="bright_black")
        self._show(Group(head, said(self._turn)))

    def _show(self, what: RenderableType) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console, refresh_per_second=FRAMES_PER_S, transient=True
            )
            self._live.start()
        self._live.update(what)


def printable(text: str) -> str:
    """What came from a file or a server, as text that no terminal obeys. Line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def in_words(status: Status) -> str:
    """What the server's engine is doing."""
    loading = status["engine"]["loading"]
    return f"loading: {loading['what']}" if loading else f"engine: {status['engine']['state']}"


def bar(share: float, cells: int = BAR_CELLS) -> str:
    """`share` of 1 as a bar of a fixed width, to an eighth of a cell."""
    eighths = round(max(0.0, min(1.0, share)) * cells * 8)
    full, rest = divmod(eighths, 8)
    partial = " ▏▎▍▌▋▊▉"[rest] if rest else ""
    return ("█" * full + partial).ljust(cells)


def said(turn: Turn) -> Text:
    """The recognised words and the answer so far: committed words plain, tentative ones dim."""
    text = Text("you   ", style="bold green")
    for utterance in turn.utterances.values():
        sure, unsure = utterance.words()
        text.append(printable(f"{sure} ") if sure else "", style="default")
        text.append(printable(f"{unsure} ") if unsure else "", style="italic bright_black")
    last = turn.last_answer
    if last is not None:
        text.append("\nmodel ", style="bold blue")
        text.append(printable(last.text), style="default")
    elif turn.heard_nothing:
        text.append("(no speech was found)", style="yellow")
    return text


def budget_table(budget: dict[str, Any]) -> Table:
    """The stages between the last speech sample and the first token or, of a spoken answer, its
    first sound. Each bar begins where the one before it ended."""
    sound_ms, heard_ms = budget.get("first_sound_ms"), budget.get("heard_ms")
    total_ms = max(heard_ms or sound_ms or budget["total_ms"], 0.001)
    over = budget.get("over_budget")
    limit = budget.get("latency_budget_ms")
    title = f"last speech → first token: {budget['total_ms']:.0f} ms"
    if limit:
        title += f" of {limit:.0f} ms allowed"
    if sound_ms is not None:
        title += f"\n            → first sound: {sound_ms:.0f} ms"
    if heard_ms is not None:
        title += f" → heard: {heard_ms:.0f} ms"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1), show_header=False)
    table.title_style = "bold red" if over else "bold"
    begun_ms = 0.0
    for stage, ms in budget["stages_ms"].items():
        style = STAGE_STYLES.get(stage, COMPUTE_STYLE)
        if ms is None and stage in ("voice", "playout"):
            continue  # a text answer has neither
        if ms is None:
            table.add_row(stage, "", Text("not measured", style="bright_black"))
            continue
        before = round(begun_ms / total_ms * BAR_CELLS)
        begun_ms += ms
        cells = max(1 if ms > 0 else 0, round(begun_ms / total_ms * BAR_CELLS) - before)
        table.add_row(stage, f"{ms:.1f}", Text(" " * before + "█" * cells, style=style))
    return table


def facts(wire: dict[str, Any]) -> list[str]:
    """The turn's other numbers, one line each."""
    lines = []
    hidden_ms = (wire["budget"] or {}).get("hidden_ms")
    if hidden_ms:
        lines.append(f"head start: {hidden_ms:.0f} ms of work were done before the end of speech")
    if wire["taken_back"]:
        times = "once" if wire["taken_back"] == 1 else f"{wire['taken_back']} times"
        lines.append(f"answered early and taken back: {times}, as the speech went on")
    chunks = wire["chunks"]
    if chunks["count"]:
        line = f"chunks: {chunks['count']}, latency ≤ {chunks['latency_max_ms']:.0f} ms"
        if (chunks["headroom_min"] or 0) > 0:
            line += f", headroom ≥ {chunks['headroom_min']:.0%}"
        lines.append(f"{line}, {chunks['overruns']} late")
    if chunks["overruns"]:
        lines.append(TOO_SLOW)
    kv = wire["kv"]
    if kv:
        lines.append(f"KV cache: {kv['tokens']} tokens, {kv['bytes'] / 1e6:.2f} MB")
    usage = wire["usage"]
    if usage:
        cached = (usage.get("input_token_details") or {}).get("cached_tokens")
        line = f"tokens: {usage['input_tokens']} in"
        line += f" ({cached} already in the cache)" if cached is not None else ""
        lines.append(f"{line}, {usage['output_tokens']} out")
    return lines
