"""A flood of real packets on loopback, bounded in time and number: its call pays, nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import statistics
import sys

import pytest
from websockets.asyncio.client import connect

from headstart.gateway.runtime.fairness import BURST_S, RESERVE_S, SHARE, LoopTimeBudget
from tests.gateway.shell_fakes import receive, running_gateway, until
from tests.gateway.transport.webrtc.peer import Microphone, calling
from tests.gateway.transport.webrtc.sound import sine

FLOOD_S = 60.0  # at most; it ends with the test
QUESTIONS = 50
AHEAD_MAX = 200
"""Packets of the flood that are read between a question and its answer, in the middle case. A few
are; thousands, if the loop read all that waits before it did anything else."""


async def test_a_flood_of_packets_has_its_calls_share_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is beyond it is dropped and counted, and the time spent on the rest is bounded; a
    neighbour's answers come after few of the flood's packets, and a second call is heard."""
    spent_s: dict[LoopTimeBudget, float] = {}
    longest_s: dict[LoopTimeBudget, float] = {}
    spans_s: dict[LoopTimeBudget, tuple[float, float]] = {}
    worked_on = 0
    spend = LoopTimeBudget.spend

    def spend_and_count(share: LoopTimeBudget, took_s: float, now_s: float) -> float | None:
        nonlocal worked_on
        worked_on += 1
        spent_s[share] = spent_s.get(share, 0.0) + took_s
        longest_s[share] = max(longest_s.get(share, 0.0), took_s)
        spans_s[share] = (spans_s.get(share, (now_s, 0.0))[0], now_s)
        return spend(share, took_s, now_s)

    monkeypatch.setattr(LoopTimeBudget, "spend", spend_and_count)
    async with running_gateway() as running, connect(running.ws_url) as neighbour:
        await receive(neighbour, "session.created")
        flooder = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "tests.gateway.transport.webrtc.flood",
                running.url,
                str(FLOOD_S),
            )
        )
        assert running.gateway.calls is not None
        dropped = running.gateway.calls.metrics.over_share._value

        def read_so_far() -> float:
            total: float = worked_on + dropped.get()
            return total

        def has_read_more(than: float) -> bool:
            return read_so_far() > than

        try:
            await until(lambda: dropped.get() > 0)
            ahead: list[float] = []
            async with calling(running.url, Microphone(sine(440, 30, 48_000))):
                began = read_so_far()
                for _ in range(QUESTIONS):
                    before = read_so_far()
                    await neighbour.send("hello")
                    await receive(neighbour, "echo")
                    ahead.append(read_so_far() - before)
                    await until(functools.partial(has_read_more, before))
                assert flooder.returncode is None, "the flood ended before the questions did"
                assert read_so_far() - began > QUESTIONS, "there was no flood"
                await until(lambda: len(running.sessions[2].heard) > 24_000)
        finally:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                flooder.kill()
            await flooder.wait()
        for share, (first_s, last_s) in spans_s.items():
            allowed_s = (last_s - first_s) * SHARE + BURST_S + RESERVE_S
            assert spent_s[share] < allowed_s + longest_s[share]  # the packet that overdrew it
        assert statistics.median(ahead) < AHEAD_MAX
