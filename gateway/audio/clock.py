"""The audio clocks and all conversions between them; no other module of the gateway converts.

There are two rates, both mono s16: `CLIENT_RATE_HZ` (24 kHz), which Realtime clients send and play,
and `ENGINE_RATE_HZ` (16 kHz), which the VAD and the engine process. The session's clock counts 16
kHz samples received since the session began. Conversions round down.

"""

from __future__ import annotations

from headstart.engine.api import SAMPLE_RATE_HZ

ENGINE_RATE_HZ = SAMPLE_RATE_HZ
CLIENT_RATE_HZ = 24_000
BYTES_PER_SAMPLE = 2  # s16 mono
NS_PER_MS = 1_000_000

ENGINE_SAMPLES_PER_MS = ENGINE_RATE_HZ // 1000
CLIENT_SAMPLES_PER_MS = CLIENT_RATE_HZ // 1000


def ms_to_engine_samples(ms: int) -> int:
    """How many 16 kHz samples last `ms`."""
    return ms * ENGINE_SAMPLES_PER_MS


def ms_to_client_samples(ms: int) -> int:
    """How many 24 kHz samples last `ms`."""
    return ms * CLIENT_SAMPLES_PER_MS


def engine_samples_to_ms(samples: int) -> int:
    """Whole milliseconds in that many 16 kHz samples: for `audio_start_ms` and similar fields."""
    return samples // ENGINE_SAMPLES_PER_MS


def engine_samples_to_exact_ms(samples: int) -> float:
    """Milliseconds, with their fraction, in that many 16 kHz samples."""
    return samples / ENGINE_SAMPLES_PER_MS


def client_samples_to_exact_ms(samples: int) -> float:
    """Milliseconds, with their fraction, in that many 24 kHz samples."""
    return samples / CLIENT_SAMPLES_PER_MS


def engine_samples_to_ns(samples: int) -> int:
    """Nanoseconds in that many 16 kHz samples."""
    return samples * NS_PER_MS // ENGINE_SAMPLES_PER_MS


def ns_to_client_samples(ns: int) -> int:
    """How many 24 kHz samples fit into `ns`."""
    return ns * CLIENT_SAMPLES_PER_MS // NS_PER_MS


def ns_to_ms(ns: int) -> float:
    """Nanoseconds as milliseconds, rounded to the microsecond: the wire's precision."""
    return round(ns / NS_PER_MS, 3)


def engine_samples_to_bytes(samples: int) -> int:
    """Bytes that hold that many s16 mono samples, at any rate."""
    return samples * BYTES_PER_SAMPLE
