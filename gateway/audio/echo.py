"""Whether a microphone hears our own answer: compares what came with what we sent.

A loudspeaker's sound comes back later and weaker, and changed by the room; it still resembles what
was sent, and a person who speaks does not. Both lines are kept at 8 kHz. Of the loudest blocks of
the microphone's newest sound the highest normalised correlation with what was sent up to
`DELAY_MAX_MS` before is found; its square is the share of the block's power that is echo. Blocks
count by their power, so that a person who is louder than the echo decides.

                                        share, 400 ms of sound (packaged voices)
    echo, 20 dB down, 150 ms late       1; with noise 15 dB below it 0.5 to 1
    the same in a room (RT60 0.3 s)     0.3 to 0.6
    somebody else's speech              0 to 0.07, one in a hundred 0.16

When the playout is held, a transport of ours stands still, and a client that plays by itself may
play on. What is played is kept both ways from then on, and the better match counts.

Bounds: `HEARD_MS` of the microphone, `SENT_MS` of what was sent.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from headstart.gateway.audio.clock import CLIENT_RATE_HZ, NS_PER_MS

Floats = npt.NDArray[np.float64]

STEP = 3  # samples at 24 kHz of which one is made
RATE_HZ = CLIENT_RATE_HZ // STEP
SAMPLE_NS = 10**9 // RATE_HZ
DELAY_MAX_MS = 3_000
"""From sending to hearing: network and jitter buffers both ways, loudspeaker and room. Some 0.3 s
where all is well; buffers grow where a machine is too busy."""
HEARD_MS = 3_000
SENT_MS = 30_000  # more than the voice makes ahead of its listener
BLOCK_MS = 200
BLOCKS_MAX = 4
LEAST_SHARE = 0.2
LOUD_SHARE = 0.03  # of the loudest block's power; quieter ones say little
LEAST_POWER = 4.0  # of a block, mean square in units of s16 after the difference


class _Sent:
    """What is played, by when: pieces in order, each with the instant of its first sample."""

    def __init__(self) -> None:
        self.pieces: deque[tuple[int, npt.NDArray[np.int16]]] = deque()

    def add(self, samples: npt.NDArray[np.int16], now_ns: int) -> None:
        """Behind the rest, no sooner than now."""
        self.pieces.append((max(now_ns, self.end_ns), samples))
        self.forget(self.end_ns - SENT_MS * NS_PER_MS)

    @property
    def end_ns(self) -> int:
        if not self.pieces:
            return 0
        start_ns, samples = self.pieces[-1]
        return start_ns + len(samples) * SAMPLE_NS

    def split(self, at_ns: int) -> list[npt.NDArray[np.int16]]:
        """Take out what is played from `at_ns` on."""
        rest: list[npt.NDArray[np.int16]] = []
        while self.pieces and self.end_ns > at_ns:
            start_ns, samples = self.pieces.pop()
            played = max(0, (at_ns - start_ns) // SAMPLE_NS)
            if played:
                self.pieces.append((start_ns, samples[:played]))
            rest.insert(0, samples[played:])
            if played:
                break
        return rest

    def forget(self, before_ns: int) -> None:
        while self.pieces:
            start_ns, samples = self.pieces[0]
            if start_ns + len(samples) * SAMPLE_NS >= before_ns:
                return
            self.pieces.popleft()

    def between(self, start_ns: int, samples: int) -> Floats:
        """What was played from `start_ns` on; silence where nothing was."""
        line = np.zeros(samples)
        for piece_ns, piece in self.pieces:
            at = (piece_ns - start_ns) // SAMPLE_NS
            low, high = max(0, at), min(samples, at + len(piece))
            if low < high:
                line[low:high] = piece[low - at : high - at]
        return line


class EchoDetector:
    """Of one session. All sound is s16 mono at 24 kHz, all instants are monotonic ns."""

    def __init__(self) -> None:
        self._sent = _Sent()
        self._played_through: _Sent | None = None  # as if it was never held; None: it never was
        self._paused: list[npt.NDArray[np.int16]] | None = None
        self._heard: deque[bytes] = deque()
        self._heard_bytes = 0
        self._heard_ns = 0  # when the newest of it came

    # --- what we send ----------------------------------------------------------------------------

    def played(self, pcm: bytes, now_ns: int) -> None:
        """Sound that is sent now: it is played behind what was sent before."""
        samples = _thinned(pcm)
        if self._played_through is not None:
            self._played_through.add(samples, now_ns)
        if self._paused is not None:
            self._paused.append(samples)
        else:
            self._sent.add(samples, now_ns)

    def hold(self, now_ns: int) -> None:
        """The playout stands still."""
        if self._paused is not None:
            return
        if self._played_through is None:
            self._played_through = _Sent()
            self._played_through.pieces.extend(self._sent.pieces)
        self._paused = self._sent.split(now_ns)

    def release(self, now_ns: int) -> None:
        """It goes on from there."""
        paused, self._paused = self._paused, None
        for samples in paused or ():
            self._sent.add(samples, now_ns)

    def drop(self) -> None:
        """What was not played yet never will be."""
        self._paused = None
        for line in self._lines():
            line.split(self._heard_ns)

    # --- what we hear ----------------------------------------------------------------------------

    def heard(self, pcm: bytes, now_ns: int) -> None:
        """Sound of the microphone, as it comes. Cheap while nothing is played."""
        if not self._sent.pieces and self._played_through is None:
            return
        before_ns = now_ns - (DELAY_MAX_MS + HEARD_MS) * NS_PER_MS
        for line in self._lines():
            line.forget(before_ns)
        if not any(line.pieces for line in self._lines()) and self._paused is None:
            self._played_through = None
            self._heard.clear()
            self._heard_bytes = 0
            return
        self._heard.append(pcm)
        self._heard_bytes += len(pcm)
        self._heard_ns = now_ns
        while self._heard_bytes - len(self._heard[0]) > HEARD_MS * 48:  # bytes in a ms
            self._heard_bytes -= len(self._heard.popleft())

    def is_echo(self, newest_ms: float) -> bool:
        """Whether the newest sound of the microphone is, by its power, what we sent."""
        share = self.share(newest_ms)
        return share is not None and share >= LEAST_SHARE

    def share(self, newest_ms: float) -> float | None:
        """The share of echo in the newest sound, 0 to 1; None: nothing was sent, or heard."""
        shares = [self._share_of(line, newest_ms) for line in self._lines()]
        return max((share for share in shares if share is not None), default=None)

    def _lines(self) -> list[_Sent]:
        """The ways in which what was sent may have been played."""
        return [self._sent] if self._played_through is None else [self._sent, self._played_through]

    def _share_of(self, sent: _Sent, newest_ms: float) -> float | None:
        if not sent.pieces or not self._heard:
            return None
        line = np.diff(_thinned(b"".join(self._heard)).astype(np.float64), prepend=0.0)
        line = line[-max(BLOCK_MS, int(newest_ms)) * RATE_HZ // 1000 :]
        size = BLOCK_MS * RATE_HZ // 1000
        starts = range(len(line) % size, len(line) - size + 1, size)
        power = {start: float(np.mean(line[start : start + size] ** 2)) for start in starts}
        loudest = sorted(power, key=lambda start: -power[start])[:BLOCKS_MAX]
        floor = max(LEAST_POWER, LOUD_SHARE * max(power.values(), default=0.0))
        loud = [start for start in loudest if power[start] >= floor]
        if not loud:
            return None
        line_ns = self._heard_ns - len(line) * SAMPLE_NS
        whole = sum(power[start] for start in loud)
        return (
            sum(
                power[start]
                * _resemblance(line[start : start + size], sent, line_ns + start * SAMPLE_NS)
                for start in loud
            )
            / whole
        )


def _resemblance(block: Floats, sent: _Sent, block_ns: int) -> float:
    """The highest squared correlation of a block with what was sent before it was heard."""
    ahead = DELAY_MAX_MS * RATE_HZ // 1000
    played = np.diff(sent.between(block_ns - ahead * SAMPLE_NS, ahead + len(block)), prepend=0.0)
    fft = 1 << (len(played) + len(block)).bit_length()
    product = np.fft.rfft(played, fft) * np.conj(np.fft.rfft(block, fft))
    correlation = np.fft.irfft(product, fft)[: ahead + 1]
    energy = np.concatenate(([0.0], np.cumsum(played * played)))
    behind = energy[len(block) :] - energy[: -len(block)]
    least = max(1.0, 1e-3 * float(behind.max()))
    squares = correlation**2 / np.maximum(behind, least)
    return min(1.0, float(squares.max()) / float(block @ block))


def _thinned(pcm: bytes) -> npt.NDArray[np.int16]:
    """At 8 kHz: the mean of each three samples."""
    samples = np.frombuffer(pcm[: len(pcm) // (2 * STEP) * (2 * STEP)], np.int16)
    thinned: npt.NDArray[np.int16] = samples.reshape(-1, STEP).mean(axis=1).astype(np.int16)
    return thinned
