import numpy as np
import pytest

from headstart.gateway.audio import g711
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.transport.webrtc.codecs import FRAME_MS, Codec, encoder_of
from headstart.gateway.transport.webrtc.opus import OpusDecoder
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
