"""G.711 packets of a call: a receive buffer's pieces to audio, resampled from 8 kHz to 24 kHz."""

from __future__ import annotations

import numpy as np

from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.audio.g711 import RATE_HZ, Law, expand
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.transport.webrtc.codecs import Codec
from headstart.gateway.transport.webrtc.opus import Samples
from headstart.gateway.transport.webrtc.receive_buffer import RTP_RATE_HZ, Piece, PieceKind

KEPT_SAMPLES = RATE_HZ * 40 // 1000
"""Newest audio kept for concealment: the compared part plus the longest period."""
COMPARED_SAMPLES = RATE_HZ * 20 // 1000
PERIOD_SAMPLES = range(RATE_HZ // 400, RATE_HZ // 66)
"""Of voices: 66 to 400 Hz."""
FADE_SAMPLES = RATE_HZ * 60 // 1000
JOIN_SAMPLES = RATE_HZ * 4 // 1000


class TelephoneTimeline:
    """Pieces of one stream in, mono audio at 24 kHz out. Less than 10 ms is held back if packets
    are not multiples of 10 ms. The resampler continues through gaps and from one law to the other.
    """

    def __init__(self) -> None:
        self._resampler = StreamResampler(RATE_HZ, CLIENT_RATE_HZ)
        self._end = 0  # of the timeline, in samples at 48 kHz
        self._before = np.zeros(0, np.int16)  # the newest audio, at most `KEPT_SAMPLES`
        self._drawn_out = 0  # concealed samples since it ended

    def decode(self, piece: Piece) -> Samples:
        """int16[n]: all audio that is ready."""
        start = self._end * RATE_HZ // RTP_RATE_HZ
        self._end += piece.samples
        samples = self._end * RATE_HZ // RTP_RATE_HZ - start
        match piece.kind:
            case PieceKind.AUDIO:
                sound = self._joined(expand(_LAWS[piece.codec], piece.payload))
                self._before = np.concatenate((self._before, sound))[-KEPT_SAMPLES:]
                self._drawn_out = 0
            case PieceKind.CONCEALED:
                sound = self._continued(samples)
                self._drawn_out += samples
            case PieceKind.SILENCE:
                sound = np.zeros(samples, np.int16)
                self._before, self._drawn_out = self._before[:0], 0
        return self._resampler.feed(sound)

    def flush(self) -> Samples:
        """What was held back; another stream may begin after it."""
        return self._resampler.flush()

    def _continued(self, samples: int) -> Samples:
        """Repeats the last period of the audio, fading out (as in G.711 Appendix I)."""
        if len(self._before) < KEPT_SAMPLES:
            return np.zeros(samples, np.int16)
        period = self._before[-_period_samples(self._before) :].astype(np.float32)
        at = self._drawn_out + np.arange(samples)
        softer = np.maximum(0, 1 - at / FADE_SAMPLES)
        return np.rint(period[at % len(period)] * softer).astype(np.int16)

    def _joined(self, sound: Samples) -> Samples:
        """Joins audio to the concealment before it without a jump."""
        if not self._drawn_out:
            return sound
        length = min(JOIN_SAMPLES, len(sound))
        share = np.arange(length) / length
        joined = sound.copy()
        joined[:length] = np.rint(
            share * sound[:length] + (1 - share) * self._continued(length)
        ).astype(np.int16)
        return joined


_LAWS: dict[str, Law] = {Codec.PCMU: "audio/pcmu", Codec.PCMA: "audio/pcma"}


def _period_samples(sound: Samples) -> int:
    """The lag at which the end of the audio is most similar to itself."""
    signal = sound.astype(np.float32)
    end = signal[-COMPARED_SAMPLES:]
    best, best_fit = PERIOD_SAMPLES[0], -np.inf
    for shift in PERIOD_SAMPLES:
        earlier = signal[-COMPARED_SAMPLES - shift : -shift]
        fit = float(end @ earlier) / (float(np.linalg.norm(earlier)) + 1.0)
        if fit > best_fit:
            best, best_fit = shift, fit
    return best
