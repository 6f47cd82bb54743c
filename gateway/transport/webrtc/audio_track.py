"""A peer's microphone: passes its RTP packets through an `AudioReceiver` to a callback, on time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from headstart.gateway.runtime import tasks
from headstart.gateway.transport.webrtc.audio_receiver import (
    AudioReceiver,
    ReceivedAudio,
    RtpPacketLike,
)
from headstart.gateway.transport.webrtc.codecs import Formats

READ_FIRST_S = 0.001  # a loop reads its sockets between two timers that are this far apart

Hear = Callable[[ReceivedAudio], bool]
"""False: it was dropped."""


class AudioTrack:
    """Calls `hear` on the loop, when a packet makes audio ready or from one timer. If `hear`
    raises, the track is closed and `failed` is called."""

    def __init__(
        self,
        hear: Hear,
        formats: Formats,
        failed: tasks.Failed,
    ) -> None:
        self.intake = AudioReceiver(formats)
        self._dropped_bytes = 0
        self._hear = hear
        self._guarded_pull = tasks.guard(self._pull, "microphone", self._give_up)
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._closed = False

    def receive(self, packet: RtpPacketLike) -> None:
        """Process one packet from the network."""
        if not self._closed:
            self._guarded_pull(packet)

    def take_dropped_bytes(self) -> int:
        """How much audio was dropped since the last call: bytes of s16 mono at 24 kHz."""
        dropped, self._dropped_bytes = self._dropped_bytes, 0
        return dropped

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self, error: BaseException) -> None:
        self.close()
        self._failed(error)

    def _pull(self, packet: RtpPacketLike | None = None) -> None:
        now_ns, intake = time.monotonic_ns(), self.intake
        sounds = intake.pull(now_ns) if packet is None else intake.receive(packet, now_ns)
        for sound in sounds:
            if not self._hear(sound):
                self._dropped_bytes += len(sound.pcm24k)
        self._arm(now_ns)

    def _arm(self, now_ns: int) -> None:
        """Set the timer for the next due audio. An earlier timer stays: most packets only move the
        end of a wait, and the timer checks that when it fires."""
        due_ns = self.intake.due_ns
        if due_ns is None or (self._timer is not None and self._timer_ns <= due_ns):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = due_ns
        self._fire_after(max(0, due_ns - now_ns) / 1e9, self._read_first)

    def _read_first(self) -> None:
        """Let the loop read the socket before audio is called missing. A loop that was held up
        runs its timers first, while the packets of that time wait in the socket."""
        self._fire_after(READ_FIRST_S, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if not self._closed:
            self._pull()

    def _fire_after(self, seconds: float, call: Callable[[], None]) -> None:
        guarded = tasks.guard(call, "microphone", self._give_up)
        self._timer = self._loop.call_later(seconds, guarded)
