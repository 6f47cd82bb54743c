import random
from fractions import Fraction

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.gateway.transport.webrtc.opus import MAX_PACKET_SAMPLES, OpusTimeline, packet_samples
from headstart.gateway.transport.webrtc.receive_buffer import (
    RTP_RATE_HZ,
    BufferCounters,
    Piece,
    PieceKind,
)
from tests.gateway.transport.webrtc.sound import opus_packets, pitch_hz, rms, sine


def audio(payload: bytes) -> Piece:
    samples = packet_samples(payload)
    assert samples is not None
    return Piece(PieceKind.AUDIO, samples, 0, payload)


def concealed(samples: int) -> Piece:
    return Piece(PieceKind.CONCEALED, samples, 0)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 24_000, 48_000])
def test_pitch_and_length_are_right(rate_hz: int, channels: int) -> None:
    """A sine recorded at any rate, mono or stereo, comes out at 48 kHz with its pitch, its length
    and (within 1 dB) its strength."""
    packets = opus_packets(sine(440, 2.0, rate_hz), rate_hz, channels)
    timeline = OpusTimeline(BufferCounters())
    sound = np.concatenate([timeline.decode(audio(p)) for p in packets])
    assert len(sound) == 2 * RTP_RATE_HZ
    middle = sound[RTP_RATE_HZ // 2 : -RTP_RATE_HZ // 2]
    assert pitch_hz(middle, RTP_RATE_HZ) == pytest.approx(440, abs=0.5)
    assert rms(middle) == pytest.approx(8000 / 2**0.5, rel=0.12)


@pytest.mark.parametrize("frame_ms", [10, 20, 40, 60])
def test_the_first_byte_tells_the_length(frame_ms: int) -> None:
    """Packets of every usual frame length are as long as they say."""
    for packet in opus_packets(sine(300, 0.6, 48_000), 48_000, frame_ms=frame_ms):
        assert packet_samples(packet) == frame_ms * 48


def test_what_is_no_packet() -> None:
    """Nothing, a count that is missing or zero, and more than 120 ms."""
    assert packet_samples(b"") is None
    assert packet_samples(b"\x7b") is None
    assert packet_samples(b"\x7b\x00") is None
    assert packet_samples(bytes([(3 << 3) | 3, 3])) is None  # three frames of 60 ms
    assert packet_samples(b"\xff\xff\xff") is None
    assert packet_samples(bytes([(3 << 3) | 3, 2])) == MAX_PACKET_SAMPLES


def test_a_hole_is_drawn_out_and_the_sound_comes_back() -> None:
    """60 ms lost in a sine: it goes on at its pitch, fading, and is itself again 40 ms later."""
    packets = opus_packets(sine(440, 1.0, 48_000), 48_000, bit_rate=64_000)
    timeline = OpusTimeline(BufferCounters())
    sound = []
    for i, packet in enumerate(packets):
        if i == 25:
            sound.append(timeline.decode(concealed(3 * 960)))
        if not 25 <= i < 28:
            sound.append(timeline.decode(audio(packet)))
    out = np.concatenate(sound)
    assert len(out) == RTP_RATE_HZ
    first = out[25 * 960 : 26 * 960]
    assert rms(first) > 0.3 * 8000 / 2**0.5
    assert pitch_hz(first, RTP_RATE_HZ) == pytest.approx(440, abs=25)
    assert rms(out[27 * 960 : 28 * 960]) < rms(first)
    after = out[30 * 960 : 40 * 960]
    assert rms(after) == pytest.approx(8000 / 2**0.5, rel=0.2)
    assert pitch_hz(after, RTP_RATE_HZ) == pytest.approx(440, abs=3)


@pytest.mark.parametrize("samples", [120, 959, 960, 2880])
def test_filling_has_exactly_its_length(samples: int) -> None:
    """Before the first packet and behind one, whatever the codec's own frame length."""
    timeline = OpusTimeline(BufferCounters())
    assert not timeline.decode(concealed(samples)).any()
    timeline.decode(audio(opus_packets(sine(200, 0.1, 48_000), 48_000)[-1]))
    assert len(timeline.decode(concealed(samples))) == samples
    silence = timeline.decode(Piece(PieceKind.SILENCE, samples, 0))
    assert len(silence) == samples
    assert not silence.any()


def test_garbage_is_a_lost_packet() -> None:
    """Random payloads between good ones: each is counted or decoded, none moves the timeline, and
    the sine between them keeps its pitch."""
    rng = random.Random(3)
    counters = BufferCounters()
    timeline = OpusTimeline(counters)
    tried = 0
    for packet in opus_packets(sine(440, 2.0, 48_000), 48_000, bit_rate=64_000):
        assert len(timeline.decode(audio(packet))) == 960
        garbage = rng.randbytes(rng.randrange(1, 80))
        samples = packet_samples(garbage)
        if samples is not None:
            tried += 1
            piece = Piece(PieceKind.AUDIO, samples, 0, garbage)
            assert len(timeline.decode(piece)) == samples
    assert tried > 50
    assert counters.bad > 5
    good = opus_packets(sine(440, 1.0, 48_000), 48_000, bit_rate=64_000)
    sound = np.concatenate([timeline.decode(audio(packet)) for packet in good])
    assert pitch_hz(sound[9600:], RTP_RATE_HZ) == pytest.approx(440, abs=0.5)


@given(st.binary(max_size=200))
def test_no_payload_raises(payload: bytes) -> None:
    """Anything that passes for a packet gives its length of sound."""
    samples = packet_samples(payload)
    if samples is not None:
        piece = Piece(PieceKind.AUDIO, samples, 0, payload)
        assert len(OpusTimeline(BufferCounters()).decode(piece)) == samples


def inverted_packets(share: float) -> list[bytes]:
    """Two seconds of a sine, its inverse times `share` on the other side."""
    codec = av.CodecContext.create("libopus", "w")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate, codec.layout, codec.format, codec.bit_rate = 48_000, "stereo", "s16", 64_000
    codec.time_base = Fraction(1, 48_000)
    one = sine(440, 2.0, 48_000)
    both = np.stack([one, np.rint(-share * one).astype(np.int16)], axis=1).reshape(1, -1)
    frame = av.AudioFrame.from_ndarray(both, "s16", "stereo")
    frame.sample_rate, frame.pts = 48_000, 0
    return [bytes(packet) for packet in (*codec.encode(frame), *codec.encode(None))]


@pytest.mark.parametrize("share", [1.0, 0.95])
def test_two_sides_that_cancel_are_heard(share: float) -> None:
    """A microphone wired the wrong way round: libopus' own mono of it is silence."""
    timeline = OpusTimeline(BufferCounters(), 24_000)
    sound = np.concatenate([timeline.decode(audio(p)) for p in inverted_packets(share)])
    middle = sound[12_000:36_000]
    assert rms(middle) == pytest.approx(8000 / 2**0.5, rel=0.12)
    assert pitch_hz(middle, 24_000) == pytest.approx(440, abs=1)


def test_a_stream_may_become_stereo() -> None:
    """Mono, inverted stereo, mono again, one packet lost: all is heard."""
    mono = opus_packets(sine(440, 1.0, 48_000), 48_000)
    timeline = OpusTimeline(BufferCounters(), 24_000)
    pieces = [*map(audio, mono), *map(audio, inverted_packets(1.0)[:50]), concealed(960)]
    sound = np.concatenate([timeline.decode(piece) for piece in [*pieces, *map(audio, mono)]])
    assert len(sound) == (151 * 960) // 2
    for start in (6_000, 30_000, 54_000):
        assert rms(sound[start : start + 12_000]) == pytest.approx(8000 / 2**0.5, rel=0.15)
