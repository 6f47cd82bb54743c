"""RTP times of one stream on one line at 48 kHz, whatever rate its codecs count in."""

from __future__ import annotations

from gateway.rtc.receive_buffer import RTP_RATE_HZ, unwrapped

STEP_SAMPLES_MAX = RTP_RATE_HZ * 60 // 1000
"""Further apart, something was left out between two packets."""


class RtpClock:
    """A codec that counts at another rate begins another count (RFC 7160 §3), with no common zero.
    Its first packet is put where its sequence number says that it is: as many packets behind the
    last one, each as long as two packets in a row were apart. No I/O, no clock of its own."""

    def __init__(self) -> None:
        self._rate_hz = 0
        self._near = 0  # the newest timestamp, unwrapped, in the codec's ticks
        self._offset = 0  # of the line, to the codec's ticks brought to 48 kHz
        self._sequence = 0  # of the newest packet
        self._at = 0  # and where that lies on the line
        self._step = 0  # from one packet to the next

    def place(self, sequence: int, timestamp: int, samples: int, rate_hz: int) -> int:
        """A packet's time at 48 kHz, modulo 2**32, as a timestamp of that rate would be. `samples`:
        its length at 48 kHz; `rate_hz`: what `timestamp` counts in, a divisor of 48,000."""
        ticks = RTP_RATE_HZ // rate_hz
        behind = unwrapped(sequence, self._sequence, 16) - self._sequence
        if not self._rate_hz:
            self._step = samples
            self._begin(rate_hz, timestamp, timestamp * ticks)
        elif rate_hz != self._rate_hz:
            at = self._at + behind * self._step
            if behind <= 0:  # late, of before the change
                return at & 0xFFFFFFFF
            self._begin(rate_hz, timestamp, at)
        near = unwrapped(timestamp, self._near, 32)
        at = near * ticks + self._offset
        if behind == 1 and 0 < at - self._at <= STEP_SAMPLES_MAX:
            self._step = at - self._at
        if behind >= 0:
            self._near, self._sequence, self._at = near, sequence, at
        return at & 0xFFFFFFFF

    def _begin(self, rate_hz: int, timestamp: int, at: int) -> None:
        self._rate_hz, self._near = rate_hz, timestamp
        self._offset = at - timestamp * (RTP_RATE_HZ // rate_hz)
