"""A peer's microphone: its RTP packets through an `AudioIntake` to whoever hears, on time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiortc.rtp import RtpPacket

from gateway.rtc.codecs import Formats
from gateway.rtc.intake import AudioIntake, Sound

Hear = Callable[[Sound], bool]
"""False: it was dropped."""


class AudioTrack:
    """Calls `hear` on the loop, from the packet that brings sound or from one timer."""

    def __init__(
        self, hear: Hear, formats: Formats, now_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.intake = AudioIntake(formats)
        self.dropped_bytes = 0
        self._hear = hear
        self._now_ns = now_ns
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._closed = False

    def receive(self, packet: RtpPacket) -> None:
        """One packet off the network."""
        if self._closed:
            return
        now_ns = self._now_ns()
        self.intake.push(packet, now_ns)
        self._pull(now_ns)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _pull(self, now_ns: int) -> None:
        for sound in self.intake.pull(now_ns):
            if not self._hear(sound):
                self.dropped_bytes += len(sound.pcm24k)
        self._arm(now_ns)

    def _arm(self, now_ns: int) -> None:
        """Wake up when something is due. A timer that is set for earlier stays: most packets
        only move the end of a wait, and the timer sees that when it fires."""
        due_ns = self.intake.due_ns
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        self._timer = self._loop.call_later(max(0, due_ns - now_ns) / 1e9, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if not self._closed:
            self._pull(self._now_ns())
