"""Endpoint to first token behind an LLM server, words sent ahead against everything at the end.

For each server: 5, 15 and 60 s of speech at 2.5 words per second and an answer, on the same server
in the same run, alternating. `first_token_ms`: words are prefilled while they come, and the answer
is asked for at the endpoint. `speculated_ms`: it is asked for at the hush, 300 ms before, as by
default. `at_the_end_ms`: nothing is sent before the endpoint. Every turn has instructions of its
own, so that none finds another's prefix.

Those words are never misheard. So one more turn of `HEARD_S` is played as a real Whisper heard it,
chunk by chunk, with all words that it revised: `heard`. And 1 to 8 sessions speak at once for
`TOGETHER_S` and end at once, the hardest case: `by_sessions`, the median and the longest wait.

Keys: for each server those three by seconds of speech, `ratio` by seconds, `ratio_at_60s`,
`ratio_at_60s_speculative`, `warm_up_waste` (prompt tokens computed ÷ prompt tokens needed, by what
the server says it had cached), `warm_ups`, `heard` (`warm_up_waste`, `revised_share` of its chunks,
`first_token_ms`), `by_sessions` and `capabilities`. A server that cannot be run is null, with why.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import speech_of
from headstart.benchmarks.llm_servers import servers
from headstart.benchmarks.llm_servers.behind_server import (
    WORDS_S,
    BehindServer,
    RecordedRecognizer,
    recorded,
    without_warm_ups,
)
from headstart.engine import api
from headstart.engine.asr.chosen import load_recognizer
from headstart.engine.asr.named import find_recognizer
from headstart.engine.backends.llm_server.totals import Kind, Totals

CONTEXTS_S = (5.0, 15.0, 60.0)
SAID = (
    "so I was thinking about the trip that we wanted to make in the spring and whether the train "
    "is better than the car because my sister said that the road over the mountains is closed "
    "until the end of april and she would like to come with us if there is still a seat for her"
)
HUSH_TO_END_S = 0.3
"""From `hush_ms` to `silence_ms`, by default."""
HEARD_S = 60.0
EARS = "whisper-tiny.en"
SESSIONS = (1, 2, 4, 8)
TOGETHER_S = 15.0
FEW = api.Sampling(repetition_penalty=1.0, max_tokens=4)
_numbers = itertools.count(1)


def run(
    names: Sequence[str],
    model: str,
    repeats: int,
    *,
    contexts_s: Sequence[float] = CONTEXTS_S,
    sessions: Sequence[int] = SESSIONS,
    as_json: bool,
) -> None:
    """Measure each server and report."""
    result: dict[str, Any] = {"model": model, "contexts_s": list(contexts_s), "repeats": repeats}
    report.say(f"hearing {HEARD_S:g} s of speech once")
    sound = speech_of(HEARD_S).astype(np.float32) / np.float32(32768)
    heard = recorded(sound, load_recognizer(find_recognizer(EARS)))
    for name in names:
        report.say(f"{name}: starting")
        try:
            servers.build(name)
            with servers.serving(name, model, slots=max(sessions)) as served:
                result[name] = _measure(served, repeats, contexts_s)
                result[name]["heard"] = _as_heard(served, heard)
                result[name]["by_sessions"] = _by_sessions(served, sessions, repeats)
        except Exception as error:
            # The other servers' numbers are still wanted, and this one's cause is in the result.
            report.say(f"{name}: {error!r}")
            result[name], result[f"{name}_error"] = None, repr(error)
    report.finish("backend", result, as_json=as_json)


def _measure(served: servers.Served, repeats: int, contexts_s: Sequence[float]) -> dict[str, Any]:
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
    result = {
        "ratio_at_60s": round(whole[minute] / first[minute], 1),
        "ratio_at_60s_speculative": round(
            whole[minute] / max(medians["speculated_ms"][minute], 0.1), 1
        ),
        **medians,
        "ratio": {key: round(whole[key] / first[key], 1) for key in first},
        "warm_up_waste": _waste(totals),
        "warm_ups": totals.requests[Kind.WARM_UP],
        "capabilities": ahead.capabilities.facts(),
    }
    ahead.close()
    at_the_end.close()
    return result


def _waste(totals: Totals) -> float:
    """Prompt tokens computed ÷ needed."""
    computed = totals.computed[Kind.WARM_UP] + totals.computed[Kind.ANSWER]
    needed = totals.computed[Kind.ANSWER] + totals.cached[Kind.ANSWER]
    return round(computed / max(needed, 1), 3)


def _as_heard(served: servers.Served, heard: RecordedRecognizer) -> dict[str, Any]:
    """One turn as real ears heard it, words that they revised included."""
    talk = BehindServer(served.url, served.tokenizer, recognizer=heard)
    name, number = _opened(talk)
    talk.play([name], HEARD_S)
    took_ms = _asked(talk, {name: number})[number]
    texts = [words.committed + words.tentative for words in heard.hypotheses]
    revised = [not after.startswith(before) for before, after in itertools.pairwise(texts)]
    result = {
        "warm_up_waste": _waste(talk.backend.totals),
        "revised_share": round(sum(revised) / max(len(revised), 1), 3),
        "first_token_ms": round(took_ms, 1),
        "warm_ups": talk.backend.totals.requests[Kind.WARM_UP],
        "warm_ups_cancelled": talk.backend.totals.cancelled[Kind.WARM_UP],
    }
    report.say(f"{served.name}: as heard: {result}")
    talk.close()
    return result


def _by_sessions(served: servers.Served, sessions: Sequence[int], repeats: int) -> dict[str, Any]:
    talks = {
        "first_token_ms": BehindServer(served.url, served.tokenizer),
        "at_the_end_ms": BehindServer(served.url, served.tokenizer, without_warm_ups),
    }
    rows: dict[str, Any] = {}
    for count in sessions:
        row: dict[str, Any] = {}
        for way, talk in talks.items():
            waits = [_together(talk, count) for _ in range(repeats)]
            row[way] = round(statistics.median(w for wait in waits for w in wait), 1)
            row[f"{way}_max"] = round(statistics.median(max(wait) for wait in waits), 1)
        row["ratio"] = round(row["at_the_end_ms"] / row["first_token_ms"], 1)
        rows[str(count)] = row
        report.say(f"{served.name}: {count} sessions: {row}")
    for talk in talks.values():
        talk.close()
    return rows


def _together(talk: BehindServer, count: int) -> list[float]:
    """So many sessions speak and end at once: the wait of each for its first token, ms."""
    numbers = dict(_opened(talk) for _ in range(count))
    words = itertools.islice(itertools.cycle(SAID.split()), int(TOGETHER_S * WORDS_S))
    talk.say_together(list(numbers), " ".join(words))
    return list(_asked(talk, numbers).values())


def _opened(talk: BehindServer) -> tuple[str, int]:
    """A session with instructions of its own."""
    number = next(_numbers)
    name = f"session {number}"
    talk.tell(api.Open(name, f"This is talk number {number}. Answer in one short sentence."))
    talk.settle()
    return name, number


def _asked(talk: BehindServer, numbers: Mapping[str, int]) -> dict[int, float]:
    """The endpoint in all these sessions at once: ms to each first token."""
    began_s = time.perf_counter()
    for name, number in numbers.items():
        talk.end(name, number, sampling=FEW)
    took_ms: dict[int, float] = {}

    def all_begun() -> bool:
        for number in numbers.values():
            if number not in took_ms and (talk.text(number) or talk.finished(number)):
                took_ms[number] = (time.perf_counter() - began_s) * 1000
        return len(took_ms) == len(numbers)

    talk.until(all_begun)
    # To the end of the answers, so that the server's counts of cached tokens come too.
    talk.until(lambda: all(talk.finished(number) for number in numbers.values()))
    talk.settle()
    for name, number in numbers.items():
        finished = talk.finished(number)
        assert finished is not None
        if finished.code:
            raise RuntimeError(f"{finished.code}: {finished.message}")
        talk.tell(api.Close(name))
    return took_ms


def _turn(talk: BehindServer, seconds: float, *, speculates: bool) -> float:
    """One turn in a session of its own: ms from the endpoint to the first token."""
    name, number = _opened(talk)
    words = itertools.islice(itertools.cycle(SAID.split()), int(seconds * WORDS_S))
    talk.say(name, " ".join(words))
    if speculates:
        talk.hush(name, sampling=FEW)
        until_s = time.monotonic() + HUSH_TO_END_S
        talk.until(lambda: time.monotonic() >= until_s)
    return _asked(talk, {name: number})[number]
