"""Endpoint to first token behind an LLM server, words sent ahead against everything at the end.

For each server: 5, 15 and 60 s of speech at 2.5 words per second and an answer, on the same server
in the same run, alternating. `first_token_ms`: words are prefilled while they come, and the answer
is asked for at the endpoint. `speculated_ms`: it is asked for at the hush, 300 ms before, as by
default. `at_the_end_ms`: nothing is sent before the endpoint. Every turn has instructions of its
own, so that none finds another's prefix.

Keys: for each server those three by seconds of speech, `ratio` by seconds, `ratio_at_60s`,
`ratio_at_60s_speculative`, `warm_up_waste` (prompt tokens computed ÷ prompt tokens needed, by what
the server says it had cached), `warm_ups` and `capabilities`. A server that cannot be run is null,
with why.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

from headstart.benchmarks import llm_servers, report
from headstart.benchmarks.behind_server import WORDS_S, BehindServer, without_warm_ups
from headstart.engine import api
from headstart.engine.backends.llm_server.backend import Kind

CONTEXTS_S = (5.0, 15.0, 60.0)
SAID = (
    "so I was thinking about the trip that we wanted to make in the spring and whether the train "
    "is better than the car because my sister said that the road over the mountains is closed "
    "until the end of april and she would like to come with us if there is still a seat for her"
)
HUSH_TO_END_S = 0.3
"""From `hush_ms` to `silence_ms`, by default."""
_numbers = itertools.count(1)


def run(
    names: Sequence[str],
    model: str,
    repeats: int,
    *,
    contexts_s: Sequence[float] = CONTEXTS_S,
    as_json: bool,
) -> None:
    """Measure each server and report."""
    result: dict[str, Any] = {"model": model, "contexts_s": list(contexts_s), "repeats": repeats}
    for name in names:
        report.say(f"{name}: starting")
        try:
            llm_servers.build(name)
            with llm_servers.serving(name, model) as served:
                result[name] = _measure(served, repeats, contexts_s)
        except Exception as error:
            # The other servers' numbers are still wanted, and this one's cause is in the result.
            report.say(f"{name}: {error!r}")
            result[name], result[f"{name}_error"] = None, repr(error)
    report.finish("backend", result, as_json=as_json)


def _measure(
    served: llm_servers.Served, repeats: int, contexts_s: Sequence[float]
) -> dict[str, Any]:
    ahead = BehindServer(served.url, served.tokenizer)
    at_the_end = BehindServer(served.url, served.tokenizer, without_warm_ups)
    ways: dict[str, tuple[BehindServer, bool]] = {
        "first_token_ms": (ahead, False),
        "speculated_ms": (ahead, True),
        "at_the_end_ms": (at_the_end, False),
    }
    medians: dict[str, dict[str, float]] = {way: {} for way in ways}
    for seconds in contexts_s:
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(repeats + 1):  # the first of each is not counted
            for way, (talk, speculates) in ways.items():
                times[way].append(_turn(talk, seconds, speculates=speculates))
        key = f"{seconds:g}"
        for way in ways:
            medians[way][key] = round(statistics.median(times[way][1:]), 1)
        told = ", ".join(f"{way} {medians[way][key]}" for way in ways)
        report.say(f"{served.name}: {key} s: {told}")
    first, whole = medians["first_token_ms"], medians["at_the_end_ms"]
    totals, minute = ahead.backend.totals, f"{min(contexts_s, key=lambda s: abs(s - 60)):g}"
    computed = totals.computed[Kind.WARM_UP] + totals.computed[Kind.ANSWER]
    needed = totals.computed[Kind.ANSWER] + totals.cached[Kind.ANSWER]
    result = {
        "ratio_at_60s": round(whole[minute] / first[minute], 1),
        "ratio_at_60s_speculative": round(
            whole[minute] / max(medians["speculated_ms"][minute], 0.1), 1
        ),
        **medians,
        "ratio": {key: round(whole[key] / first[key], 1) for key in first},
        "warm_up_waste": round(computed / max(needed, 1), 3),
        "warm_ups": totals.requests[Kind.WARM_UP],
        "capabilities": ahead.capabilities.facts(),
    }
    ahead.close()
    at_the_end.close()
    return result


def _turn(talk: BehindServer, seconds: float, *, speculates: bool) -> float:
    """One turn in a session of its own: ms from the endpoint to the first token."""
    number = next(_numbers)
    name = f"session {number}"
    talk.tell(api.Open(name, f"This is talk number {number}. Answer in one short sentence."))
    talk.settle()
    words = itertools.islice(itertools.cycle(SAID.split()), int(seconds * WORDS_S))
    talk.say(name, " ".join(words))
    sampling = api.Sampling(repetition_penalty=1.0, max_tokens=4)
    if speculates:
        talk.hush(name, sampling=sampling)
        until_s = time.monotonic() + HUSH_TO_END_S
        talk.until(lambda: time.monotonic() >= until_s)
    began_s = time.perf_counter()
    # To the end of the answer, so that the server's count of cached tokens comes too.
    talk.end(name, number, sampling=sampling)
    talk.until(lambda: bool(talk.text(number)) or talk.finished(number) is not None)
    took_ms = (time.perf_counter() - began_s) * 1000
    talk.until(lambda: talk.finished(number) is not None)
    talk.settle()
    finished = talk.finished(number)
    assert finished is not None
    if finished.code:
        raise RuntimeError(f"{finished.code}: {finished.message}")
    talk.tell(api.Close(name))
    return took_ms
