import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from headstart.gateway.runtime.ticker import SLOTS, Ticker


async def test_everybody_is_called_once_a_period_and_not_all_together() -> None:
    """Of twice as many as there are slots two at a time, and nobody again before all the others."""
    ticker = Ticker(0.02)
    turn: list[int] = []
    for i in range(2 * SLOTS):
        ticker.add(functools.partial(turn.append, i))
    sizes, called = [], list[int]()
    while len(called) < 6 * SLOTS:
        await asyncio.sleep(0)
        if turn:
            sizes.append(len(turn))
            called += turn
            turn.clear()
    assert set(sizes) == {2}
    everybody = set(range(2 * SLOTS))
    assert set(called[: 2 * SLOTS]) == set(called[2 * SLOTS : 4 * SLOTS]) == everybody


async def test_who_has_left_is_called_no_more() -> None:
    """Even if another's call ends it in the same turn; leaving twice is leaving once."""
    ticker = Ticker(0.01)
    calls: list[str] = []
    leaving: list[Callable[[], None]] = []

    def end_the_other() -> None:
        calls.append("ended it")
        leaving[0]()
        leaving[0]()

    ticker.add(end_the_other)
    for _ in range(SLOTS - 1):
        ticker.add(lambda: None)
    leaving.append(ticker.add(lambda: calls.append("called")))  # in the same slot, behind it
    while len(calls) < 3:
        await asyncio.sleep(0.001)
    assert calls == ["ended it"] * 3


async def test_it_rests_while_nobody_is_there_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer of the last who leaves is not followed by another; the next one starts it again."""
    loop, ticker = asyncio.get_running_loop(), Ticker(0.01)
    timers: list[asyncio.TimerHandle] = []
    call_at = loop.call_at

    def noted(
        when_s: float, call: Callable[..., object], *arguments: Any, **context: Any
    ) -> asyncio.TimerHandle:
        timer = call_at(when_s, call, *arguments, **context)
        if getattr(call, "__self__", None) is ticker:
            timers.append(timer)
        return timer

    monkeypatch.setattr(loop, "call_at", noted)
    for _ in range(2):
        called = asyncio.Event()
        leave = ticker.add(called.set)
        await called.wait()
        leave()
        last, before = timers[-1], len(timers)
        while loop.time() <= last.when():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # what was due by then has run
        assert len(timers) == before
