"""An engine without a model: speaks `headstart.engine.api` with words and timings from a script.

For tests and load tests of the gateway alone: `python -m gateway.fake_engine --endpoint ADDRESS`.
The core (`FakeEngine`) takes commands and the time and returns events; only `serve` uses the
socket. It recognises one word of its script per `word_ms` of audio, whatever the audio contains,
and answers at `delta_ms` per word.

"""

from __future__ import annotations

import argparse
import heapq
import os
import signal
import sys
import time
import uuid
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path

import zmq

from headstart.engine import api
from headstart.engine.api.keys import BadKeys, Handshakes, machine_id, unlock

NS_PER_MS = 1_000_000
BYTES_PER_TOKEN = 1024
EXIT_DRAINED = 3
PONG_WAIT_MS = 1000  # longest wait of the poll loop, so that SIGTERM is noticed


@dataclass(frozen=True)
class Script:
    """What the fake engine says and when. Times in ms."""

    words: str = "the quick brown fox jumps over the lazy dog"
    answer: str = "This is an answer that comes word by word."
    call: str = ""
    """A function's name and its arguments as JSON, separated by a space: a session with this
    function calls it in each response, unless its output has just arrived; then the response is
    that output."""
    load_ms: int = 0
    word_ms: int = 300
    chunk_ms: int = 5
    hear_ms: int = 10
    end_probability: float = 0.0
    """That a message is over, told at each short silence; 0: not told."""
    echo: bool = False
    """Responses repeat the session's last typed text, to reveal mixed-up sessions."""
    leak: bool = False
    """Responses repeat text typed in another session, if any: for tests that must detect leaks."""
    first_delta_ms: int = 20
    delta_ms: int = 10
    fail_after: int = 0
    """Every response fails after this many words; 0: none does."""
    crash_after: int = 0
    """The process kills itself (SIGKILL) after this many words; 0: never."""
    model_name: str = "fake"
    """What it calls its model."""
    clock_ms: int = 0
    """How far its clock is ahead, as if it ran on another machine."""
    refuse: bool = False
    """Exit with code 2 at once, like an engine with unusable settings."""


@dataclass
class _Stream:
    """One session's state."""

    name: str
    ref: api.TurnRef = field(default_factory=lambda: api.TurnRef(turn=0))
    item_id: str = ""
    heard_samples: int = 0
    ended_samples: int = 0  # of the utterance before
    continued: bool = False  # whether the open one continues that
    clip_samples: dict[str, int] = field(default_factory=dict)  # of items' audio
    typed: str = ""  # the user's last text
    total_tokens: int = 0
    tools: tuple[api.Tool, ...] = ()
    result: str = ""  # of a function, not yet answered
    running: set[int] = field(default_factory=set)

    def read(self, item: api.Item) -> None:
        self.total_tokens += 1  # counted, not interpreted
        texts = [part.text for part in item.parts if isinstance(part, api.Text)]
        self.result = "".join(p.output for p in item.parts if isinstance(p, api.ToolResult))
        if item.role is api.Role.USER and texts:
            self.typed = " ".join(texts)


class _Steps:
    """What the script's steps since the last `Stats` count as: each chunk and each word is one."""

    def __init__(self) -> None:
        self._ms: deque[float] = deque(maxlen=4096)
        self._count = self._prefill = self._decode = 0
        self._seconds: dict[str, api.Counts] = {}
        self._tokens: dict[str, api.Counts] = {}
        self._at_once: dict[str, api.Counts] = {}

    def add(self, event: api.Event, script: Script) -> None:
        if isinstance(event, api.Chunk):
            self._prefill += event.prefilled_tokens
        elif isinstance(event, api.Delta):
            self._decode += 1
        else:
            return
        self._count += 1
        took_ms = script.chunk_ms if isinstance(event, api.Chunk) else script.delta_ms
        self._ms.append(took_ms)
        phase = "prefill" if isinstance(event, api.Chunk) else "decode"
        tokens = event.prefilled_tokens if isinstance(event, api.Chunk) else 1
        _count(self._seconds, phase, took_ms / 1000, api.STEP_SECONDS_LE)
        _count(self._at_once, "", 1, api.STEP_SESSIONS_LE)
        if tokens:
            _count(self._tokens, phase, tokens, api.STEP_TOKENS_LE)

    def totals(self) -> api.StepTotals:
        """All since the start."""
        return api.StepTotals(self._seconds, self._tokens, self._at_once.get(""))

    def take(self) -> api.StepStats:
        ranked = sorted(self._ms)
        if not ranked:
            return api.StepStats()
        taken = api.StepStats(
            count=self._count,
            busy_ms=sum(ranked),
            p50_ms=ranked[(len(ranked) - 1) // 2],
            p95_ms=ranked[(len(ranked) * 95 - 1) // 100],
            max_ms=ranked[-1],
            prefill_tokens=self._prefill,
            decode_tokens=self._decode,
            sessions=self._count,
        )
        self._ms.clear()
        self._count = self._prefill = self._decode = 0
        return taken


def _count(
    histograms: dict[str, api.Counts], name: str, value: float, edges: Sequence[float]
) -> None:
    before = histograms.get(name) or api.Counts([0] * (len(edges) + 1), 0.0)
    buckets = list(before.buckets)
    buckets[bisect_left(edges, value)] += 1
    histograms[name] = api.Counts(buckets, before.sum + value)


class FakeEngine:
    """`receive` commands, collect what is `due`: (due_ns, event) pairs wait in one heap."""

    def __init__(
        self, script: Script, incarnation: str, now_ns: int, name: str = "", machine: str = ""
    ) -> None:
        self.name = name
        self.machine = machine
        self.left = False
        """It was told to leave."""
        self.script = script
        self.incarnation = incarnation
        self.ready_ns = now_ns + script.load_ms * NS_PER_MS
        self._streams: dict[str, _Stream] = {}
        self._due: list[tuple[int, int, api.Event]] = []
        self._order = count()
        self._steps = 0
        self._recent = _Steps()
        self._typed: dict[str, str] = {}  # by session, the newest last
        if script.load_ms:
            middle_ns = now_ns + script.load_ms * NS_PER_MS // 2
            for at_ns, done in ((now_ns, 0), (middle_ns, 50)):
                self._later(at_ns, api.Loading("pretending to load", done, 100, name))
        self._later(self.ready_ns, self.ready())

    def ready(self) -> api.Ready:
        load_s, why = self.script.load_ms / 1000, "words come from a script"
        sizes = 8192, BYTES_PER_TOKEN, 1 << 28, 0
        name = self.script.model_name
        model = api.ModelInfo(name, *sizes, load_s, ears="fake", ears_reason=why)
        return api.Ready(self.incarnation, model, self.name, self.machine, os.getpid())

    @property
    def next_due_ns(self) -> int | None:
        return self._due[0][0] if self._due else None

    def due(self, now_ns: int) -> list[api.Event]:
        """The events whose time has come, in order; those of cancelled responses are left out."""
        events = []
        while self._due and self._due[0][0] <= now_ns:
            event = heapq.heappop(self._due)[2]
            answering = isinstance(event, api.Delta | api.Call | api.Finished)
            if answering and not self._still_wanted(event):
                continue
            self._steps += 1
            self._recent.add(event, self.script)
            events.append(event)
        return events

    def _still_wanted(self, event: api.Event) -> bool:
        assert isinstance(event, api.Delta | api.Call | api.Finished)
        stream = self._streams.get(event.session)
        if stream is None or event.generation not in stream.running:
            return False
        if isinstance(event, api.Finished):
            stream.running.discard(event.generation)
        return True

    def _later(self, at_ns: int, event: api.Event) -> None:
        heapq.heappush(self._due, (at_ns, next(self._order), event))

    def receive(self, command: api.Command, now_ns: int) -> None:
        match command:
            case api.Ping():
                self._later(now_ns, self._stats(command, now_ns))
            case api.Leave():
                self.left = True
            case api.Open():
                stream = _Stream(command.session, tools=command.tools)
                self._streams[command.session] = stream
                for item in command.items:
                    stream.read(item)
            case api.Close():
                self._streams.pop(command.session, None)
            case _ if command.session not in self._streams:
                self._fail(command, now_ns, "unknown_session", "this session is not open")
            case _:
                self._in_session(command, self._streams[command.session], now_ns)
                if pictures := api.picture_bytes(command):
                    self._later(now_ns, api.ImagesConsumed(command.session, pictures))

    def _in_session(self, command: api.Command, stream: _Stream, now_ns: int) -> None:
        match command:
            case api.BeginSpeech():
                stream.ref, stream.item_id, stream.heard_samples = command.ref, command.item_id, 0
                stream.continued = False
            case api.Audio():
                self._hear(command, stream, now_ns)
            case api.Clip():
                self._hear_clip(command, stream, now_ns)
            case api.Hush():
                self._final_words(command, stream, now_ns)
            case api.Resume():
                stream.ref = command.ref
            case api.EndSpeech():
                self._heard(command, stream, now_ns)
                stream.ended_samples = stream.heard_samples
            case api.ContinueSpeech():
                self._continue(command, stream, now_ns)
            case api.AddItem():
                stream.read(command.item)
                self._typed.pop(stream.name, None)
                self._typed[stream.name] = stream.typed
            case api.Respond():
                self._answer(command, stream, now_ns)
            case api.Cancel() if command.generation in stream.running:
                self._later(
                    now_ns, self._finished(stream, command.generation, api.FinishReason.CANCELLED)
                )
            case api.Instruct():
                stream.tools = command.tools
            case api.ReleaseSpeech():
                pass
            case _:
                stream.total_tokens += 1  # frames: counted, not interpreted

    def _words(self, stream: _Stream) -> list[str]:
        heard_ms = stream.heard_samples * 1000 // api.SAMPLE_RATE_HZ
        return self.script.words.split()[: heard_ms // self.script.word_ms]

    def _hear(self, audio: api.Audio, stream: _Stream, now_ns: int) -> None:
        before = len(self._words(stream))
        stream.heard_samples += audio.samples
        words = self._words(stream)
        end_sample = audio.start_sample + audio.samples
        done_ns = now_ns + self.script.chunk_ms * NS_PER_MS
        committed, tentative = " ".join(words[:-1]), " ".join(words[-1:])
        self._later(
            done_ns,
            api.Hearing(
                *(stream.name, audio.ref, committed, tentative, end_sample),
                continued=stream.continued,
            ),
        )
        self._later(
            done_ns,
            api.Chunk(
                session=stream.name,
                ref=audio.ref,
                start_sample=audio.start_sample,
                samples=audio.samples,
                stages_ms={"encode": float(self.script.chunk_ms)},
                latency_ms=(done_ns - audio.received_ns) / 1e6,
                prefilled_tokens=len(words) - before,
                rolled_back_tokens=0,
            ),
        )

    def _continue(self, command: api.ContinueSpeech, stream: _Stream, now_ns: int) -> None:
        stream.heard_samples += stream.ended_samples
        stream.continued = True
        words = " ".join(self._words(stream))
        self._later(now_ns, api.Hearing(stream.name, command.ref, words, "", 0, continued=True))

    def _hear_clip(self, clip: api.Clip, stream: _Stream, now_ns: int) -> None:
        stream.heard_samples = stream.clip_samples.pop(clip.clip, 0) + clip.samples
        text = " ".join(self._words(stream)) if clip.last else ""
        if not clip.last:
            stream.clip_samples[clip.clip] = stream.heard_samples
        heard = api.ClipHeard(stream.name, clip.clip, clip.samples, text, final=clip.last)
        self._later(now_ns + self.script.hear_ms * NS_PER_MS, heard)

    def _final_words(self, hush: api.Hush, stream: _Stream, now_ns: int) -> None:
        text = " ".join(self._words(stream))
        words = api.Hearing(
            *(stream.name, hush.ref, "", text, hush.end_sample),
            final=True,
            continued=stream.continued,
        )
        self._later(now_ns + self.script.hear_ms * NS_PER_MS, words)
        if self.script.end_probability and hush.speculate is not None:
            over = api.EndOfMessage(
                stream.name, hush.ref, hush.end_sample, self.script.end_probability
            )
            self._later(now_ns + self.script.hear_ms * NS_PER_MS, over)

    def _heard(self, end: api.EndSpeech, stream: _Stream, now_ns: int) -> None:
        words = self._words(stream)
        stream.total_tokens += len(words)
        self._later(
            now_ns + self.script.hear_ms * NS_PER_MS,
            api.Heard(stream.name, end.ref, stream.item_id, " ".join(words), len(words)),
        )

    def _leaked(self, stream: _Stream) -> str:
        """The newest text typed in another session, or else in this one."""
        others = [text for name, text in self._typed.items() if name != stream.name and text]
        return others[-1] if others else stream.typed

    def _answer(self, respond: api.Respond, stream: _Stream, now_ns: int) -> None:
        stream.running.add(respond.generation)
        typed = self._leaked(stream) if self.script.leak else stream.typed
        said = f"You said: {typed}" if self.script.echo and typed else ""
        words = (stream.result or said or self.script.answer).split(" ")
        at_ns = now_ns + self.script.first_delta_ms * NS_PER_MS
        span = api.Span("decode_first", now_ns, at_ns)
        if self._calls(respond, stream):
            self._call(respond, stream, at_ns, span)
            return
        stream.result = ""
        reason = api.FinishReason.STOP
        limit = respond.sampling.max_tokens
        if len(words) > limit:
            words, reason = words[:limit], api.FinishReason.LENGTH
        if self.script.fail_after:
            words, reason = words[: self.script.fail_after], api.FinishReason.FAILED
        for index, word in enumerate(words):
            spans = (span,) if index == 0 else ()
            text = word if index == 0 else f" {word}"
            self._later(at_ns, api.Delta(stream.name, respond.generation, text, at_ns, spans))
            at_ns += self.script.delta_ms * NS_PER_MS
        stream.total_tokens += len(words)
        self._later(at_ns, self._finished(stream, respond.generation, reason, " ".join(words)))

    def _calls(self, respond: api.Respond, stream: _Stream) -> bool:
        tools = stream.tools if respond.tools is None else respond.tools
        if respond.sampling.call is not api.ToolChoice.AUTO:
            return respond.sampling.call is api.ToolChoice.REQUIRED
        return not stream.result and self.script.call.split(" ")[0] in {t.name for t in tools}

    def _call(self, respond: api.Respond, stream: _Stream, at_ns: int, span: api.Span) -> None:
        """The function's arguments in two pieces."""
        name, _, arguments = self.script.call.partition(" ")
        name = respond.sampling.function or name
        stream.result = ""
        half = len(arguments) // 2
        for piece, done in ((arguments[:half], False), (arguments[half:], True)):
            spans = () if done else (span,)
            call = api.Call(stream.name, respond.generation, 0, name, piece, done, spans)
            self._later(at_ns, call)
            at_ns += self.script.delta_ms * NS_PER_MS
        self._later(at_ns, self._finished(stream, respond.generation, api.FinishReason.STOP))

    def _finished(
        self, stream: _Stream, generation: int, reason: api.FinishReason, text: str = ""
    ) -> api.Finished:
        tokens = stream.total_tokens
        failed = reason is api.FinishReason.FAILED
        output = len(text.split())
        return api.Finished(
            session=stream.name,
            generation=generation,
            reason=reason,
            text=text,
            usage=api.Usage(input_text=tokens - output, cached=tokens - output, output=output),
            kv=api.KvStats(tokens, -(-tokens // 16), tokens * BYTES_PER_TOKEN, BYTES_PER_TOKEN),
            decode_tok_s=1000 / self.script.delta_ms if self.script.delta_ms else None,
            code="scripted_failure" if failed else "",
            message="the script says so" if failed else "",
        )

    def _stats(self, ping: api.Ping, now_ns: int) -> api.Stats:
        used = sum(-(-stream.total_tokens // 16) for stream in self._streams.values())
        return api.Stats(
            ping_sent_ns=ping.sent_ns,
            incarnation=self.incarnation,
            sessions=len(self._streams),
            kv_blocks_used=used,
            kv_blocks_total=1 << 14,
            rss_bytes=0,
            pending_prefill_tokens=0,
            steps=self._steps,
            recent_steps=self._recent.take(),
            step_totals=self._recent.totals(),
            now_ns=now_ns,
        )

    def _fail(self, command: api.Command, now_ns: int, code: str, message: str) -> None:
        session = getattr(command, "session", "")
        about = type(command).__struct_config__.tag
        self._later(now_ns, api.Failed(session, str(about), code, message))


def serve(endpoint: str, script: Script, name: str = "", keys: Path | None = None) -> int:
    """Connect to the gateway and play the script until SIGTERM, a scripted end, or until it was
    drained (SIGUSR1); returns the exit code. Raises `BadKeys`."""
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.set(zmq.IMMEDIATE, 1)  # undeliverable messages must not reach a later gateway
    handshakes = Handshakes(socket, endpoint)
    unlock(socket, endpoint, keys)
    socket.connect(endpoint)

    def now_ns() -> int:
        return time.monotonic_ns() + script.clock_ms * NS_PER_MS

    drains: list[int] = []  # the signals that have come
    signal.signal(signal.SIGUSR1, lambda number, _: drains.append(number))
    machine = f"{machine_id()} {script.clock_ms}" if script.clock_ms else machine_id()
    engine = FakeEngine(script, uuid.uuid4().hex, now_ns(), name, machine)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(handshakes.monitor, zmq.POLLIN)
    words_said = 0
    told_draining = False
    met = False  # whether a gateway accepts us; without one a send would block
    while not engine.left:
        next_ns = engine.next_due_ns if met else None
        wait_ms = PONG_WAIT_MS
        if next_ns is not None:
            wait_ms = min(wait_ms, max(0, -(-(next_ns - now_ns()) // NS_PER_MS)))
        ready = dict(poller.poll(wait_ms))
        handshakes.retry()
        if handshakes.monitor in ready and (met := handshakes.read()):
            told_draining = False
            if now_ns() >= engine.ready_ns:  # a new gateway does not know us yet
                socket.send(api.encode(engine.ready()))
        if met and drains and not told_draining:
            told_draining = True
            socket.send(api.encode(api.Draining()))
        if socket in ready:
            engine.receive(api.decode_command(socket.recv()), now_ns())
        for event in engine.due(now_ns()) if met else ():
            socket.send(api.encode(event))
            words_said += isinstance(event, api.Delta)
            if script.crash_after and words_said >= script.crash_after:
                os.kill(os.getpid(), signal.SIGKILL)
    return EXIT_DRAINED


def main() -> None:
    """`python -m headstart.gateway.fake_engine`; an option for each field of `Script`."""
    parser = argparse.ArgumentParser(
        description="a scripted engine for tests and load tests", allow_abbrev=False
    )
    parser.add_argument("--endpoint", required=True, help="ZeroMQ address the gateway is bound to")
    parser.add_argument("--name", default="", help="its name among the engines of the gateway")
    parser.add_argument("--keys", type=Path, help="folder of CURVE keys")
    for option in fields(Script):
        flag = f"--{option.name.replace('_', '-')}"
        if isinstance(option.default, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(option.default), default=option.default)
    # The real engine gets more arguments than a fake one needs (--model, --threads, …), and none of
    # them is the beginning of one of ours (--model-name).
    options = vars(parser.parse_known_args()[0])
    endpoint, name, keys = (options.pop(option) for option in ("endpoint", "name", "keys"))
    script = Script(**options)
    if script.refuse:
        print("fake engine: --refuse was given", file=sys.stderr)
        sys.exit(2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        code = serve(endpoint, script, name, keys)
    except BadKeys as error:
        print(f"fake engine: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(code)


if __name__ == "__main__":
    main()
