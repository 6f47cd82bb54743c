"""Endpoint to first token, after 5, 15 and 60 s (`--contexts`) of speech.

    incremental        headstart: words are prefilled while they are spoken, and the answer is begun
                       at a short silence; counted from the endpoint (`Respond`)
    incremental_no_speculation
                       the same without the early answer: the turn's suffix and the first token
    offline            peers that process nothing before the endpoint, on the same weights:
      headstart        our own recogniser and decoder, all audio at once
      transformers     Whisper by 30 s windows (greedy), then one prefill in fp32, one token
      llama.cpp        the transcript given for free, one prefill, one token (if installed)

Keys: contexts_s, incremental_ms, incremental_no_speculation_ms, hush_to_ready_ms, offline_ms by
peer, ratio_at_60s (the fastest peer with speech recognition ÷ incremental_no_speculation, the
stricter of the two), ratio_at_60s_speculative, flatness (longest ÷ shortest context, incremental
without speculation), and the end of the transcript, so that a fast wrong answer would show.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import Live, Samples, speech_of
from headstart.benchmarks.references.engines import LlamaCppPeer, TransformersPeer
from headstart.engine import api

CONTEXTS_S = (5.0, 15.0, 60.0)


def run(
    model: str,
    repeats: int,
    *,
    contexts_s: Sequence[float] = CONTEXTS_S,
    with_peers: bool,
    as_json: bool,
) -> None:
    """Measure and report; the ratio is taken at the context nearest to 60 s."""
    report.say(f"loading {model}")
    live = Live(model)
    rows = [_context(live, seconds, repeats) for seconds in contexts_s]
    offline: dict[str, list[float]] = {"headstart": [row["offline_ms"] for row in rows]}
    if with_peers:
        offline |= _peers(live, rows)
    hearing = {k: v for k, v in offline.items() if k != "llama.cpp"}
    minute = min(range(len(rows)), key=lambda i: abs(contexts_s[i] - 60))
    fastest_ms = min(times[minute] for times in hearing.values())
    plain = [row["plain_ms"] for row in rows]
    speculative = [row["speculative_ms"] for row in rows]
    report.finish(
        "ttft",
        {
            "model": live.info.name,
            "ratio_at_60s": round(fastest_ms / plain[minute], 1),
            "ratio_at_60s_speculative": round(fastest_ms / speculative[minute], 1),
            "flatness": round(plain[-1] / plain[0], 3),
            "contexts_s": list(contexts_s),
            "context_tokens": [row["tokens"] for row in rows],
            "incremental_ms": [round(ms, 3) for ms in speculative],
            "incremental_no_speculation_ms": [round(ms, 2) for ms in plain],
            "hush_to_ready_ms": [round(row["hush_ms"], 1) for row in rows],
            "offline_ms": {k: [round(ms, 1) for ms in v] for k, v in offline.items()},
            "answer": live.answer(),
            "transcript_tail": rows[-1]["transcript"][-60:],
        },
        as_json=as_json,
    )


def _context(live: Live, seconds: float, repeats: int) -> dict[str, Any]:
    """All of our own numbers for one length of speech, which is recognised once."""
    report.say(f"{seconds:g} s of speech")
    sound = speech_of(seconds)
    name = f"heard-{seconds:g}"
    live.open(name)
    live.hear(name, sound)
    hush_s = live.hush(name)  # the final pass and the speculated answer
    suffix = [live.suffix(name, revision) for revision in range(1, repeats + 2)]
    revision = repeats + 2
    live.hush_again(name, revision)
    ended = api.EndSpeech(name, api.TurnRef(1, revision), len(sound))
    speculative_s = live.first_token(name, ended)
    tokens = live.engine.sessions[name].stream.kv_len
    transcript = live.transcript()
    live.close(name)
    return {
        "tokens": tokens,
        "speculative_ms": speculative_s * 1000,
        "plain_ms": statistics.median(suffix[1:]) * 1000,  # the first run warms up
        "hush_ms": hush_s * 1000,
        "offline_ms": _offline(live, sound) * 1000,
        "sound": sound,
        "transcript": transcript,
    }


def _offline(live: Live, sound: Samples) -> float:
    """Everything at the endpoint, by our own engine: the whole utterance as one chunk."""
    live.open("offline")
    ref = api.TurnRef(1)
    began_s = time.perf_counter()
    live.engine.receive(api.BeginSpeech("offline", ref, "u1", 0))
    live.engine.receive(api.Audio("offline", ref, 0, sound.tobytes(), time.monotonic_ns()))
    live.first_token("offline", api.EndSpeech("offline", ref, len(sound)))
    took_s = time.perf_counter() - began_s
    live.close("offline")
    return took_s


def _peers(live: Live, rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    report.say("transformers, the same weights in fp32")
    peer = TransformersPeer(live.paths)
    times = {"transformers": [peer.first_token(row["sound"]) * 1000 for row in rows]}
    del peer
    llama = LlamaCppPeer.load(live.paths.llm)
    if llama is None:
        report.say("xllamacpp is not installed (make bench does it): llama.cpp is left out")
    else:
        times["llama.cpp"] = [llama.first_token(row["transcript"]) * 1000 for row in rows]
    return times
