"""The date is set, by decades: calls, which go by it in aiortc and aioice, do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aioice
import aiortc
import pytest
from aiortc import clock, rtcrtpreceiver, rtcsctptransport
from aiortc.rate import RateCounter
from aiortc.rtp import RtcpReceiverInfo, RtpPacket

from headstart.gateway.transport.webrtc import steady_time
from tests.gateway.shell_fakes import running_gateway, until
from tests.gateway.transport.webrtc.peer import Microphone, calling

YEARS_S = 40 * 365 * 86_400.0
# Files of the two packages that read the wall clock and that no call of ours uses.
UNUSED = {"contrib/media.py", "mediastreams.py"}


@contextlib.contextmanager
def jumped(monkeypatch: pytest.MonkeyPatch, by_s: float) -> Iterator[None]:
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + by_s)
        yield


def test_every_reader_of_the_wall_clock_is_known() -> None:
    """If this fails, a release of aiortc or aioice has put a clock somewhere else: see
    steady_time.py. A reader uses `time.time` alone of its module."""
    readers = set()
    for package in (aiortc, aioice):
        folder = Path(package.__path__[0])
        for file in folder.rglob("*.py"):
            calls = set(re.findall(r"\btime\.(\w+)\(", file.read_text()))
            name = str(file.relative_to(folder))
            if calls and name not in UNUSED:
                assert calls == {"time"}, name
                readers.add(f"{package.__name__}.{name.removesuffix('.py')}")
    assert readers == {module.__name__ for module in steady_time.CLOCK_READERS}


@pytest.mark.parametrize("by_s", [YEARS_S, -YEARS_S, 3600.0, -3600.0])
def test_a_receivers_report_is_whole_behind_a_jump(
    monkeypatch: pytest.MonkeyPatch, by_s: float
) -> None:
    """The jitter of sound that came evenly stays small; it fits into the report's 32 bits."""
    steady_time.install()
    stream = rtcrtpreceiver.StreamStatistics(48_000)
    for number in range(3):
        with jumped(monkeypatch, by_s if number == 1 else 0.0):
            stream.add(RtpPacket(sequence_number=number, timestamp=960 * number))
    assert stream.jitter < 48_000
    assert bytes(RtcpReceiverInfo(1, 0, 0, 2, stream.jitter, 0, 0))


def test_round_trips_and_dates_go_on_steadily(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the data channel's timers measure, and what reports say of the date."""
    steady_time.install()
    timers: Any = rtcsctptransport
    sent_s = timers.time.time()
    dated = clock.current_datetime()
    with jumped(monkeypatch, YEARS_S):
        assert 0 <= timers.time.time() - sent_s < 60
        assert 0 <= (clock.current_datetime() - dated).total_seconds() < 60


class Counted(RateCounter):
    """Counts how many buckets are looked at."""

    def __init__(self) -> None:
        super().__init__(window_size=1000)
        self.steps = 0

    def __setattr__(self, name: str, value: object) -> None:
        if name == "_origin_index" and value:
            self.steps += 1
        super().__setattr__(name, value)


@pytest.mark.parametrize("paused_ms", [700, 1300, 2001, 3_600_000])
def test_a_pause_costs_a_camera_no_step_for_each_millisecond(paused_ms: int) -> None:
    """A machine was paused for an hour: the bit rate is what it would be, after at most twice as
    many steps as its window has milliseconds."""
    steady_time.install()
    counter = Counted()
    for at_ms in (5_000, 5_400, 5_400 + paused_ms):
        counter.add(10, at_ms)
    assert counter.steps <= 2000
    assert counter.rate(5_400 + paused_ms + 1) == (20 if paused_ms == 700 else 10) * 8
    counter.add(10, 5_400 + paused_ms + 50)
    assert counter._total.value == (30 if paused_ms == 700 else 20)


async def test_a_call_ends_behind_a_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is heard on, reports, and lets itself be closed: nobody waits for a report's task that an
    exception has ended."""
    async with running_gateway() as running:
        async with calling(running.url, Microphone()):
            (session,) = running.sessions
            await until(lambda: len(session.heard) > 10_000)
            with jumped(monkeypatch, YEARS_S):
                heard = len(session.heard)
                await asyncio.sleep(3.0)  # a report is due after 1.5 s at the latest
                await until(lambda: len(session.heard) > heard + 50_000)
        await until(lambda: not running.gateway.runners)
