import fractions

import av
import numpy as np
import pytest

from headstart.gateway.audio import g711
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.transport.webrtc.codecs import BIT_RATE, FRAME_MS, Codec, encoder_of
from headstart.gateway.transport.webrtc.opus import OpusDecoder, OpusEncoder, OpusError
from tests.gateway.session_bench import clip_pcm
from tests.gateway.transport.webrtc.sound import parts, pitch_hz, sine

FRAME_SAMPLES = CLIENT_RATE_HZ * FRAME_MS // 1000


@pytest.mark.parametrize("codec", [Codec.OPUS, Codec.PCMU, Codec.PCMA])
def test_a_sine_keeps_its_pitch_and_length(codec: Codec) -> None:
    """Each frame is one packet of 20 ms, and what is decoded of them is the sine."""
    encode = encoder_of(codec)
    packets = [encode(frame.tobytes()) for frame in parts(sine(440, 1, 24_000), FRAME_SAMPLES)]
    if codec is Codec.OPUS:
        decoder, rate_hz = OpusDecoder(24_000), 24_000
        sound = np.concatenate([decoder.decode(packet) for packet in packets])
    else:
        assert {len(packet) for packet in packets} == {160}
        rate_hz = g711.RATE_HZ
        law: g711.Law = "audio/pcmu" if codec is Codec.PCMU else "audio/pcma"
        sound = g711.expand(law, b"".join(packets))
    assert len(sound) == rate_hz
    assert pitch_hz(sound[rate_hz // 10 :], rate_hz) == pytest.approx(440, abs=0.5)


def test_opus_has_the_bits_of_ffmpegs_wrapper() -> None:
    """With the same settings, packet by packet, over a spoken question."""
    theirs = av.CodecContext.create("libopus", "w")
    assert isinstance(theirs, av.AudioCodecContext)
    theirs.bit_rate, theirs.sample_rate = BIT_RATE, CLIENT_RATE_HZ
    theirs.format, theirs.layout = "s16", "mono"
    theirs.time_base = fractions.Fraction(1, CLIENT_RATE_HZ)
    theirs.options = {
        "application": "voip",
        "frame_duration": str(FRAME_MS),
        "compression_level": "5",
        "fec": "1",
        "packet_loss": "5",
    }
    sound = np.frombuffer(clip_pcm("capital.wav"), np.int16)
    encode = encoder_of(Codec.OPUS)
    for part in parts(sound[: len(sound) // FRAME_SAMPLES * FRAME_SAMPLES], FRAME_SAMPLES):
        frame = av.AudioFrame.from_ndarray(part[None], format="s16", layout="mono")
        frame.sample_rate = CLIENT_RATE_HZ
        assert [encode(part.tobytes())] == [bytes(packet) for packet in theirs.encode(frame)]


def test_opus_refuses_a_length_that_it_has_not() -> None:
    """With an error that names libopus's, not with an empty packet."""
    with pytest.raises(OpusError, match="libopus error"):
        OpusEncoder(CLIENT_RATE_HZ, {}).encode(bytes(7 * 2))
