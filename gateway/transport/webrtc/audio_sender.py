"""Sends spoken responses: 24 kHz audio, paced onto a WebRTC audio track.

The session `put`s audio as fast as it is made; the track sends one frame per 20 ms. While nothing
is queued it sends nothing, and RTP time advances, so that later audio has the right timestamp.

    put(pcm24k) -> bool   queue s16 mono at 24 kHz; False: full (`QUEUE_SAMPLES_MAX`), nothing
                          was queued; try again when `queued_samples` is lower
    clear()     -> int    barge-in: drop what has not been sent, in samples; at most one frame
                          of 20 ms is still on its way
    hold(held)            pause, or resume at the same place; `clear` ends a pause
    sent_samples          how much of the audio was sent: the playout position. What the peer
                          has heard lags behind by the network and its own buffer
    queued_samples        queued and not yet sent
    take_over(before)     continue another track, from where its peer was last alive
    on_started, on_stopped  called on the loop with the first frame after a pause, and when the
                          queue and the silence after it were sent, or it was cleared: the
                          protocol's `output_audio_buffer.started`, `.stopped`, `.cleared`

Everything runs on the event loop, and nothing blocks. A partial last frame is padded.

"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import av
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from headstart.gateway.audio.clock import (
    BYTES_PER_SAMPLE,
    CLIENT_RATE_HZ,
    NS_PER_MS,
    ms_to_client_samples,
)
from headstart.gateway.connection.interfaces import Player
from headstart.gateway.runtime import tasks
from headstart.gateway.transport.webrtc.codecs import FRAME_MS, Codec, Encode, encoder_of

FRAME_NS = FRAME_MS * NS_PER_MS
FRAME_SAMPLES = ms_to_client_samples(FRAME_MS)
FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE
QUEUE_SAMPLES_MAX = ms_to_client_samples(120_000)
SENT_FRAMES_KEPT = 300
"""6 s, longer than it takes to notice that a peer has vanished."""
TAIL_FRAMES = 5
"""Silent frames after the last audio: a peer whose buffer runs empty in mid-sound stretches it."""


Send = Callable[[bytes, int], None]
"""Sends a payload with its RTP time, in the codec's clock and counted from any one instant."""


class Playout:
    """The queue and its pacing. No I/O, no clock: one frame per 20 ms, starting when there is
    something to play."""

    def __init__(self) -> None:
        self.sent_samples = 0
        self._pcm = bytearray()
        self._due_ns: int | None = None  # of the next frame; None: paused
        self._tail_left = 0
        self._held = False
        self._sent: deque[tuple[int, bytes]] = deque(maxlen=SENT_FRAMES_KEPT)  # with its `due_ns`

    @property
    def is_empty(self) -> bool:
        """Whether everything was sent, including the silence after it."""
        return self._due_ns is None and not self._pcm

    @property
    def queued_samples(self) -> int:
        return len(self._pcm) // BYTES_PER_SAMPLE

    @property
    def due_ns(self) -> int | None:
        """When to `take` the next frame, in ns; None: there is none."""
        return self._due_ns

    def put(self, pcm24k: bytes, now_ns: int) -> bool:
        """False: full. Raises ValueError for an odd number of bytes."""
        if len(pcm24k) % BYTES_PER_SAMPLE:
            raise ValueError(f"s16 audio needs an even number of bytes, got {len(pcm24k)}")
        if self.queued_samples + len(pcm24k) // BYTES_PER_SAMPLE > QUEUE_SAMPLES_MAX:
            return False
        self._pcm += pcm24k
        if pcm24k and self._due_ns is None and not self._held:
            self._due_ns = now_ns
        return True

    def hold(self, held: bool, now_ns: int) -> None:
        """Pause, followed by the same silence as at the end; or resume."""
        self._held = held
        if not held and self._pcm and self._due_ns is None:
            self._due_ns = now_ns

    def take(self) -> bytes:
        """The frame that is due, `FRAME_BYTES` long. The last one is followed by `TAIL_FRAMES` of
        silence."""
        assert self._due_ns is not None
        frame = b"" if self._held else bytes(self._pcm[:FRAME_BYTES])
        del self._pcm[: len(frame)]
        self.sent_samples += len(frame) // BYTES_PER_SAMPLE
        if frame:
            self._sent.append((self._due_ns, frame))
        self._due_ns += FRAME_NS
        if frame:
            self._tail_left = TAIL_FRAMES
        else:
            self._tail_left -= 1
        if (self._held or not self._pcm) and self._tail_left <= 0:
            self._due_ns = None
        return frame.ljust(FRAME_BYTES, b"\0")

    def rewind(self, since_ns: int) -> None:
        """Queue again what was due after `since_ns`; it is played after `start`."""
        again = bytearray()
        while self._sent and self._sent[-1][0] > since_ns:
            again[:0] = self._sent.pop()[1]
        self.sent_samples -= len(again) // BYTES_PER_SAMPLE
        self._pcm[:0] = again

    def start(self, now_ns: int) -> None:
        """Resume at `now_ns` with what is queued."""
        self._due_ns = now_ns if self._pcm and not self._held else None

    def clear(self) -> int:
        """Drop what is queued; returns its length in samples."""
        dropped = self.queued_samples
        self._pcm.clear()
        self._held = False
        return dropped


class AudioSender(MediaStreamTrack):
    """See the module's docstring."""

    kind = "audio"

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__()
        self.on_started: Callable[[], None] = _nothing
        self.on_stopped: Callable[[], None] = _nothing
        self.on_failed: tasks.Failed = tasks.nothing_depends_on_it
        self.alive_ns = now_ns()
        """When the peer last responded, in ns; updated by the call."""
        self.codec = Codec.OPUS
        """The negotiated codec; set before the first frame."""
        self.send: Send | None = None
        """Sends packets past aiortc's loop over a track's frames, which costs more; set before the
        first frame. None: `recv` returns them."""
        self._now_ns = now_ns
        self._origin_ns = now_ns()
        self._playout = Playout()
        self._filled = asyncio.Event()
        self._playing = False
        self._encode: Encode | None = None
        self._last_frame = -1

    @property
    def sent_samples(self) -> int:
        return self._playout.sent_samples

    @property
    def queued_samples(self) -> int:
        return self._playout.queued_samples

    def put(self, pcm24k: bytes) -> bool:
        """Queue audio. False: full."""
        taken = self._playout.put(pcm24k, self._now_ns())
        self._filled.set()
        return taken

    def clear(self) -> int:
        """Drop what has not been sent; returns its length in samples."""
        dropped = self._playout.clear()
        self._stopped()
        return dropped

    def hold(self, held: bool) -> None:
        """Pause, or resume."""
        self._playout.hold(held, self._now_ns())
        self._filled.set()

    def take_over(self, before: Player) -> None:
        """Continue with the audio left in an ended track; its position counts on. What it sent
        after its peer stopped responding is played again."""
        assert isinstance(before, AudioSender)
        self._playout, before._playout = before._playout, Playout()
        self._playout.rewind(before.alive_ns)
        self._playout.start(self._now_ns())
        self._filled.set()

    async def recv(self) -> av.Packet[Any]:
        """The next packet, when it is due. Called by the sender that owns the track. With `send`
        set, packets go there instead, and this ends with the track only."""
        while True:
            due_ns, sent_before = await self._due_ns(), self.sent_samples
            await asyncio.sleep(max(0, due_ns - self._now_ns()) / 1e9)
            try:
                payload, number = self._encoded(self._playout.take(), due_ns)
                if self.send is not None:
                    self.send(payload, number * FRAME_MS * self.codec.rate_hz // 1000)
            except Exception as error:  # the sender would end without anyone noticing
                tasks.report("playout", error)
                self.on_failed(error)
                raise MediaStreamError from error
            if self.sent_samples > sent_before and not self._playing:
                self._playing = True
                self.on_started()
            elif self._playout.is_empty:
                self._stopped()
            if self.send is None:
                packet = av.Packet(payload)
                packet.pts, packet.time_base = number * FRAME_SAMPLES, Fraction(1, CLIENT_RATE_HZ)
                return packet

    async def _due_ns(self) -> int:
        """When the next frame is due, once there is one."""
        while (due_ns := self._playout.due_ns) is None:
            self._filled.clear()
            await self._filled.wait()
        return due_ns

    def _stopped(self) -> None:
        if self._playing:
            self._playing = False
            self.on_stopped()

    def _encoded(self, pcm: bytes, due_ns: int) -> tuple[bytes, int]:
        """A frame's payload and its number on the track's clock, of `FRAME_MS` each."""
        encode = self._encode = self._encode or encoder_of(self.codec)
        # RTP time advances during pauses, in whole frames.
        number = max(self._last_frame + 1, (due_ns - self._origin_ns) // FRAME_NS)
        self._last_frame = number
        return encode(pcm), number


def _nothing() -> None:
    pass
