"""Messages of a dashboard feed as a server would send them: sessions that talk, by a seed, in
virtual time. The stages of a turn add up to its total, and its spans lie where its stages say."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]

STARTED_AT = datetime(2026, 11, 29, 13, 0, tzinfo=UTC)
CHUNK_MS = 500.0
SILENCE_MS = 500
BUDGET_MS = 800.0
PHRASES = ("what is the capital of france", "will it rain", "who wrote this", "name three animals")
ERROR_CODES = ("engine_restarted", "session_limit", "tts_failed", "rate_limit_exceeded")
STATES = ("listening", "speaking", "pause", "answering", "idle")


def wall(at_ms: float, started_at: datetime = STARTED_AT) -> str:
    at = started_at + timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value


class Server:
    """What a server would say, for as long as it is asked. `slow`: factor on the engine's work;
    `engines`: the names of several engines, the last of which drains."""

    def __init__(
        self,
        seed: int = 1,
        *,
        sessions: int = 6,
        run: str = "run_fixture",
        started_at: datetime = STARTED_AT,
        content: bool = False,
        settings: Json | None = None,
        engines: tuple[str, ...] = ("engine",),
    ) -> None:
        self.random = random.Random(seed)
        self.engines = engines
        self.run = run
        self.started_at = started_at
        self.content = content
        self.settings: Json = {"latency_budget_ms": BUDGET_MS, "silence_duration_ms": SILENCE_MS}
        self.settings |= {"max_sessions": 64, "voice": "joe"} | (settings or {})
        self.sessions = [f"sess_{self.random.getrandbits(96):024x}" for _ in range(sessions)]
        self.born_ms = {session: -3000.0 * i for i, session in enumerate(self.sessions)}
        self.turns_of = dict.fromkeys(self.sessions, 0)
        self.last_turn: dict[str, str | None] = dict.fromkeys(self.sessions)
        self.seq = 0
        self.at_ms = 0.0
        self.slow = 1.0
        self.kept: list[Json] = []  # what a newcomer gets first
        self.error_times_ms: list[float] = []
        self.packets = {"played": 0, "late": 0, "lost": 0, "duplicate": 0}
        self.totals = {"kept": 0, "wasted": 0, "evicted": 0, "concealed": 0.0, "silence": 0.0}

    def hello(self) -> Json:
        return {
            "type": "hello",
            "version": 1,
            "seq": self.seq,
            "at_ms": round(self.at_ms, 3),
            "run": self.run,
            "started_at": wall(0, self.started_at),
            "headstart": "0.1.0",
            "model": "small",
            "content": self.content,
            "ring": 2000,
            "settings": self.settings,
            "thresholds": {
                "turns_over_budget_share": [0.05, 0.2],
                "chunk_overrun_share": [0.01, 0.05],
                "headroom_p5_percent": [20, 0],
                "kv_share": [0.85, 1.0],
                "kv_level": [2, 3],
                "rtp_lost_share": [0.02, 0.05],
                "loop_lag_p99_ms": [20, 50],
                "engine_restarts": [1, 2],
                "engine_down_s": [1, 10],
            },
        }

    def live(self) -> Json:
        return {"type": "live", "seq": self.seq, "at_ms": round(self.at_ms, 3)}

    def message(self, kind: str, **fields: Any) -> Json:
        self.seq += 1
        made: Json = {"type": kind, "seq": self.seq, "at_ms": self.at_ms, **fields}
        return dict(_rounded(made))

    # --- turns -----------------------------------------------------------------------------------

    def turn(self, session: str | None = None, **changes: Any) -> Json:
        """A spoken turn that is just over."""
        session = session or self.random.choice(self.sessions)
        self.turns_of[session] += 1
        made = _Spoken(self, session).message()
        made |= changes
        self.last_turn[session] = made["id"]
        self.totals["kept"] += made["speculation"]["kept"]
        self.totals["wasted"] += made["speculation"]["wasted"]
        sent = self.message("turn", **made)
        self.kept = [*self.kept, sent][-2000:]
        return sent

    def typed_turn(self) -> Json:
        """A turn without speech: it counts from its request."""
        stages = {
            "queue": 2.0,
            "prefill": 40.0,
            "decode_first": 30.0,
            "detokenize": 0.2,
            "send": 0.3,
        }
        spans = [["prefill", 2.0, 42.0], ["decode_first", 42.0, 72.0], ["detokenize", 72.0, 72.2]]
        stamps = {"captured": None, "received": None, "endpoint": None, "requested": 0.0}
        stamps |= {"first_delta": 72.2, "first_token": 72.5, "first_clause": None}
        stamps |= {"first_sound": None, "playout_started": None, "done": 900.0}
        return self.turn(
            anchor="requested",
            total_ms=72.5,
            stages_ms=stages,
            spans=spans,
            stamps_ms=stamps,
            hidden_ms=0.0,
            chunks=[],
            voice=None,
            playout=None,
            over_budget=False,
        )

    def unmeasured_turn(self) -> Json:
        """A turn whose stamps contradicted each other: nothing is known of it."""
        nothing: Json = dict.fromkeys(("network", "vad_hangover", "prefill"))
        return self.turn(
            anchor=None,
            total_ms=None,
            hidden_ms=None,
            over_budget=None,
            stages_ms=nothing,
            spans=[],
            stamps_ms={"done": 700.0},
            chunks=[],
            voice=None,
            playout=None,
        )

    def heard(self, turn: Json, delay_ms: float = 65.0) -> Json:
        """The same turn again, when its client has said that it was heard."""
        stamps = turn["stamps_ms"] | {
            "playout_started": turn["stamps_ms"]["first_sound"] + delay_ms
        }
        more = {"revision": 2, "stamps_ms": stamps}
        more["playout"] = {"delay_ms": delay_ms, "source": "client"}
        fields = {k: v for k, v in (turn | more).items() if k not in ("type", "seq", "at_ms")}
        again = self.message("turn", **fields)
        self.kept = [again if kept.get("id") == turn["id"] else kept for kept in self.kept]
        return again

    # --- the rest --------------------------------------------------------------------------------

    def error(self, turn: str | None = None, session: str | None = None) -> Json:
        code = self.random.choice(ERROR_CODES)
        self.error_times_ms.append(self.at_ms)
        said = f"{code.replace('_', ' ').capitalize()}: the answer could not go on."
        made = self.message("error", code=code, message=said, session=session, turn=turn)
        self.kept.append(made)
        return made

    def chunk(self, session: str, start_sample: int) -> Json:
        latency = 60.0 * self.slow * self.random.uniform(0.7, 1.5)
        fields = {
            "session": session,
            "turn": self.turns_of.get(session, 0),
            "start_sample": start_sample,
            "duration_ms": CHUNK_MS,
            "due_ms": CHUNK_MS,
            "stages_ms": {"mel": 2.0, "encode": 20.0, "prefill": latency - 22.0},
            "latency_ms": latency,
            "headroom_percent": 100 * (1 - latency / CHUNK_MS),
            "overrun": latency > CHUNK_MS,
            "prefilled": 4,
            "rolled_back": self.random.choice((0, 0, 0, 1)),
        }
        made: Json = {"type": "chunk", "seq": self.seq, "at_ms": self.at_ms, **fields}
        return dict(_rounded(made))

    def session(self, session: str, what: str) -> Json:
        return self.message("session", session=session, what=what, transport=transport_of(session))

    def snapshot(self, dropped: int = 0) -> Json:
        r = self.random
        calls = [s for s in self.sessions if transport_of(s) == "webrtc"]
        self.packets["played"] += 50 * len(calls)
        self.packets["lost"] += sum(r.random() < 0.4 for _ in calls)
        self.packets["late"] += sum(r.random() < 0.2 for _ in calls)
        self.totals["concealed"] += r.uniform(0, 12) * len(calls)
        used = 60 + 6 * sum(self.turns_of.values()) % 300
        step_ms = 11 * self.slow * r.uniform(0.9, 1.2)
        kv = {"text": 3 * used, "audio": 5 * used, "image": 2 * used, "generated": 4 * used}
        recent = sum(at_ms > self.at_ms - 60_000 for at_ms in self.error_times_ms)
        return self.message(
            "snapshot",
            dropped=dropped,
            sessions={
                "open": len(self.sessions),
                "max": 64,
                "detached": 0,
                "refused": 0,
                "shed": 0,
                "stuck": 0,
                "watchers": 1,
            },
            rows=[self._row(session) for session in self.sessions],
            engine={
                "state": "ready",
                "restarts": 0,
                "rss_bytes": 1_400_000_000,
                "sessions": len(self.sessions),
                "pending_prefill_tokens": r.randrange(12),
                "steps": {
                    "count": 31,
                    "busy_ms": min(990.0, 400 * self.slow * r.uniform(0.8, 1.2)),
                    "p50_ms": step_ms,
                    "p95_ms": 3 * step_ms,
                    "max_ms": 4 * step_ms,
                    "prefill_tokens": r.randrange(150, 260),
                    "decode_tokens": r.randrange(60, 120),
                    "sessions_mean": r.uniform(1, 2),
                    "queue_max": r.randrange(4),
                },
                "speculation": {
                    "kept_tokens": self.totals["kept"],
                    "wasted_tokens": self.totals["wasted"],
                },
            },
            engines=[self._engine(name) for name in self.engines],
            kv={
                "blocks_used": used,
                "blocks_cached": 40,
                "blocks_total": 512,
                "level": "degraded" if self.slow > 1.5 else "calm",
                "tokens": kv,
                "evicted_tokens": self.totals["evicted"],
                "offloads": 0,
                "returns": 0,
                "offloaded_sessions": 0,
                "refused": 0,
            },
            loop_lag={
                "p50_ms": 0.2,
                "p99_ms": 1.1 * self.slow * r.uniform(0.8, 1.6),
                "max_ms": 4.0,
                "other_ms": r.uniform(0, 0.4),
            },
            rtc={
                "packets": dict(self.packets),
                "concealed_ms": self.totals["concealed"],
                "silence_ms": self.totals["silence"],
            },
            audio_ms={"received": self.at_ms, "inserted": 40.0, "dropped": 0.0, "late": 20.0},
            frames={"kept": 12, "too_soon": 40, "unchanged": 9},
            errors={"total": len(self.error_times_ms), "last_minute": recent},
            process={"gateway_rss_bytes": 140_000_000, "gateway_cpu_share": 0.04},
        )

    def engine_of(self, session: str) -> str:
        return self.engines[self.sessions.index(session) % len(self.engines)]

    def _engine(self, name: str) -> Json:
        drains = len(self.engines) > 1 and name == self.engines[-1]
        return {
            "name": name,
            "state": "draining" if drains else "ready",
            "reason": "retired by its operator" if drains else "",
            "local": True,
            "pid": 4711,
            "sessions": sum(self.engine_of(session) == name for session in self.sessions),
            "restarts": 0,
            "rss_bytes": 1_400_000_000,
            "kv_blocks_used": 60,
            "kv_blocks_total": 512,
            "level": "calm",
            "pending_prefill_tokens": 3,
            "steps_p95_ms": 31.5,
        }

    def _row(self, session: str) -> Json:
        r = self.random
        tokens = 400 + 90 * self.turns_of[session]
        by_modality = {"text": 40, "audio": tokens // 2, "image": 64}
        by_modality["generated"] = tokens - sum(by_modality.values())
        call = {"lost_share": r.uniform(0, 0.02), "jitter_ms": r.uniform(1, 5), "buffer_ms": 40.0}
        call |= {"rtt_ms": r.uniform(8, 20), "concealed_ms": 0.0}
        return {
            "id": session,
            "transport": transport_of(session),
            "engine": self.engine_of(session),
            "state": r.choice(STATES),
            "age_s": (self.at_ms - self.born_ms[session]) / 1000,
            "turns": self.turns_of[session],
            "last_turn": self.last_turn[session],
            "kv": {"tokens": tokens, "by_modality": by_modality, "evicted": 0},
            "headroom_percent": 100 - 12.5 * self.slow * r.uniform(0.7, 1.5),
            "overruns": int(self.slow > 1.5),
            "rtc": call if transport_of(session) == "webrtc" else None,
        }

    def second(self, turns_per_min: float, *, chunks: bool = False) -> Iterator[Json]:
        """What comes in the next second of the server's time."""
        self.at_ms += 1000
        for session in self.sessions if chunks else ():
            yield self.chunk(session, int(self.at_ms) * 16)
        for _ in range(_poisson(self.random, turns_per_min / 60)):
            yield from self._some_turn()
        yield self.snapshot()

    def _some_turn(self) -> Iterator[Json]:
        kind = self.random.random()
        if kind < 0.05:
            yield self.turn(reason="cancelled", interrupted=True)
        elif kind < 0.08:
            yield self.typed_turn()
        elif kind < 0.1:
            yield self.unmeasured_turn()
        elif kind < 0.12:
            failed = self.turn(reason="failed")
            yield failed
            yield self.error(failed["id"], failed["session"])
        else:
            made = self.turn()
            yield made
            if self.random.random() < 0.7:
                yield self.heard(made)


class _Spoken:
    """One spoken turn, cut as the gateway cuts it."""

    def __init__(self, server: Server, session: str) -> None:
        self.server = server
        self.session = session
        r, slow = server.random, server.slow
        self.id = f"resp_{r.getrandbits(96):024x}"
        self.network = r.uniform(4, 25) if transport_of(session) == "webrtc" else None
        self.endpoint = (self.network or 0.0) + 0.3 + SILENCE_MS - r.uniform(0, 12)
        self.queue = r.expovariate(1 / 6) * slow
        self.prefill = r.lognormvariate(3.2, 0.35) * slow
        self.decode = r.lognormvariate(3.4, 0.3) * slow
        self.speech = r.uniform(1200, 4000)
        self.sound = r.uniform(160, 330) * slow

    def message(self) -> Json:
        r = self.server.random
        served = self.endpoint + self.queue + self.prefill + self.decode + 0.2
        total = served + 0.4
        spoken = total + self.sound
        chunks, spans, hidden = self._listening()
        start = self.endpoint + self.queue
        spans += [["prefill", start, start + self.prefill]]
        spans += [["decode_first", start + self.prefill, served - 0.2]]
        spans += [["detokenize", served - 0.2, served]]
        stages: Json = {"network": self.network, "buffer": 0.1, "resample": 0.2}
        stages["vad_hangover"] = self.endpoint - (self.network or 0.0) - 0.3
        stages |= {"mel": 0.0, "encode": 0.0, "project": 0.0, "queue": self.queue}
        stages |= {"prefill": self.prefill, "decode_first": self.decode, "detokenize": 0.2}
        stages["send"] = 0.4
        work: Json = {}
        for stage, span_start, end in spans:
            work[stage] = work.get(stage, 0.0) + end - span_start
        done = spoken + r.uniform(600, 2500)
        anchor = "received" if self.network is None else "departed"
        text = r.choice(PHRASES)
        made: Json = {
            "id": self.id,
            "revision": 1,
            "session": self.session,
            "item": f"item_{self.id[5:]}",
            "turn": self.server.turns_of[self.session],
            "generation": self.server.turns_of[self.session] + 1,
            "transport": transport_of(self.session),
            "model": "small",
            "at": wall(self.server.at_ms - done, self.server.started_at),
            "anchor": anchor,
            "realtime": True,
            "total_ms": total,
            "stages_ms": stages,
            "work_ms": work,
            "hidden_ms": hidden,
            "latency_budget_ms": BUDGET_MS,
            "over_budget": total > BUDGET_MS,
            "stamps_ms": {
                "captured": None if self.network is None else 0.0,
                "received": self.network or 0.0,
                "endpoint": self.endpoint,
                "requested": None,
                "first_delta": served,
                "first_token": total,
                "first_clause": total + 0.6 * self.sound,
                "first_sound": spoken,
                "playout_started": None,
                "done": done,
            },
            "spans": spans,
            "chunks": chunks,
            "speculation": {"kept": r.randrange(16), "wasted": r.choice((0, 0, 3, 5))},
            "waits": {
                "vad_hangover": {
                    "owner": "setting",
                    "setting": "silence_duration_ms",
                    "value": SILENCE_MS,
                },
                "network": {"owner": "network"},
                "prefill": {"owner": "engine"},
                "decode_first": {"owner": "engine"},
                "queue": {"owner": "engine"},
                "voice": {"owner": "voice"},
                "playout": {"owner": "client"},
            },
            "voice": {
                "first_clause_ms": 0.6 * self.sound,
                "first_sound_ms": self.sound,
                "total_ms": 900.0,
                "audio_ms": 2400.0,
                "problem": None,
            },
            "playout": None,
            "usage": {
                "input_text": 20,
                "input_audio": len(chunks) * 4,
                "input_image": 0,
                "cached": 220,
                "output": 31,
                "speculated": 12,
                "wasted": 3,
            },
            "kv": {
                "tokens": 400,
                "blocks": 25,
                "bytes": 4_915_200,
                "by_modality": {"text": 40, "audio": 200, "generated": 160},
                "adopted": 180,
                "evicted": 0,
            },
            "decode_tok_s": 44.1,
            "reason": "completed",
            "interrupted": False,
            "error": None,
            "rtc": None,
        }
        if self.server.content:
            made["text"] = {"transcript": text, "answer": "It is Paris."}
        return dict(_rounded(made))

    def _listening(self) -> tuple[list[Json], list[list[Any]], float]:
        """Chunks from the first sound on, each worked on when its sound is there."""
        r = self.server.random
        chunks: list[Json] = []
        spans: list[list[Any]] = []
        hidden = 0.0
        start = -self.speech
        while start + CHUNK_MS < self.endpoint:
            latency = 60 * self.server.slow * r.uniform(0.6, 1.6)
            if r.random() < 0.01:
                latency = CHUNK_MS * r.uniform(1.02, 1.3)
            at = start + CHUNK_MS
            for stage, share in (
                ("mel", 0.04),
                ("encode", 0.36),
                ("project", 0.01),
                ("prefill", 0.59),
            ):
                end = at + share * latency
                spans.append([stage, at, end])
                hidden += max(0.0, min(end, self.endpoint) - at)
                at = end
            chunks.append(
                {
                    "start_ms": start,
                    "duration_ms": CHUNK_MS,
                    "due_ms": CHUNK_MS,
                    "latency_ms": latency,
                    "headroom_percent": 100 * (1 - latency / CHUNK_MS),
                    "overrun": latency > CHUNK_MS,
                    "prefilled": 4,
                    "rolled_back": r.choice((0, 0, 0, 0, 2)),
                }
            )
            start += CHUNK_MS
        spans = [[stage, a, min(b, self.endpoint)] for stage, a, b in spans if a < self.endpoint]
        return chunks, spans, hidden


def transport_of(session: str) -> str:
    return "webrtc" if int(session[-1], 16) % 2 else "websocket"


def _poisson(r: random.Random, mean: float) -> int:
    """Events in a second that come by themselves, `mean` on average."""
    n, at = 0, r.expovariate(1.0)
    while at < mean:
        n += 1
        at += r.expovariate(1.0)
    return n


def conversation(
    server: Server, seconds: int, turns_per_min: float = 60.0, *, slow_from: int | None = None
) -> Iterator[Json]:
    """All that a watcher gets from the server's start on. From second `slow_from` on, the engine
    takes twice as long."""
    yield server.hello()
    yield server.live()
    for second in range(seconds):
        server.slow = 2.0 if slow_from is not None and second >= slow_from else 1.0
        yield from server.second(turns_per_min)


def jsonl(messages: Iterable[Json]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def gzipped(messages: Iterable[Json]) -> bytes:
    return gzip.compress(jsonl(messages), 6, mtime=0)
