"""Bundled clips in the packets that a client sends in real time."""

from __future__ import annotations

import numpy as np

from headstart.benchmarks.inputs.recordings import CLIPS
from headstart.talk.media.audio import BYTES_PER_SAMPLE, SAMPLE_RATE_HZ
from headstart.talk.media.playback import AudioPacket, play, probe

PACKET_MS = 40
PACKET_BYTES = BYTES_PER_SAMPLE * SAMPLE_RATE_HZ * PACKET_MS // 1000
QUIET_ENDS_S = 0.35  # of room noise before and after the words of a bundled clip


def clip_packets(name: str) -> list[bytes]:
    """A bundled clip without its quiet ends, in whole packets."""
    parts = play(probe(CLIPS / name), PACKET_MS, frames=False)
    pcm = b"".join(part.pcm for part in parts if isinstance(part, AudioPacket))
    samples = np.frombuffer(pcm, np.int16)
    quiet = round(QUIET_ENDS_S * SAMPLE_RATE_HZ)
    kept = samples[quiet : len(samples) - quiet].tobytes()
    whole = len(kept) // PACKET_BYTES
    return [kept[i * PACKET_BYTES : (i + 1) * PACKET_BYTES] for i in range(whole)]
