import numpy as np
import pytest

from headstart.gateway.transport.webrtc.opus import OpusDecoder, OpusError, Samples
from tests.gateway.session_bench import clip_pcm
from tests.gateway.transport.webrtc.sound import opus_packets, pitch_hz, sine

RATE_HZ = 24_000
FRAME = RATE_HZ // 50
EVERY = 7  # packets, of which one is lost


def speech() -> Samples:
    return np.frombuffer(clip_pcm("capital.wav"), np.int16)


def heard(packets: list[bytes], *, lossy: bool, behind: bool = True) -> Samples:
    """What comes out, with one packet in `EVERY` missing; with `behind` the next one is shown."""
    decoder = OpusDecoder(RATE_HZ)
    sound = []
    for i, packet in enumerate(packets):
        if lossy and i % EVERY == EVERY - 1 and i + 1 < len(packets):
            sound.append(decoder.fill(FRAME, packets[i + 1] if behind else b""))
        else:
            sound.append(decoder.decode(packet))
    return np.concatenate(sound)


def error_db(sound: Samples, reference: Samples) -> float:
    """Of the lost places alone, against what would have been there."""
    places = [slice(i * FRAME, (i + 1) * FRAME) for i in range(EVERY - 1, 90, EVERY)]
    ours = np.concatenate([sound[at].astype(float) for at in places])
    true = np.concatenate([reference[at].astype(float) for at in places])
    return float(10 * np.log10(np.square(ours - true).sum() / np.square(true).sum()))


def test_a_lost_packet_is_recovered_from_the_next_one() -> None:
    """As a browser sends it (FEC on, 10 % loss reported): what was lost is there again, 8 dB nearer
    to the truth at least than what is concealed."""
    packets = opus_packets(speech(), RATE_HZ, fec="1", packet_loss="10", application="voip")
    whole = heard(packets, lossy=False)
    recovered = error_db(heard(packets, lossy=True), whole)
    concealed = error_db(heard(packets, lossy=True, behind=False), whole)
    assert recovered < -8
    assert recovered < concealed - 8


def test_without_a_copy_it_is_concealed() -> None:
    """A sender that has no FEC: showing the packet behind does no harm."""
    packets = opus_packets(speech(), RATE_HZ, fec="0", application="voip")
    whole = heard(packets, lossy=False)
    shown = error_db(heard(packets, lossy=True), whole)
    assert shown == pytest.approx(
        error_db(heard(packets, lossy=True, behind=False), whole), abs=1.5
    )


def test_any_length_is_filled() -> None:
    """Also less than the codec's step, and more than its longest packet."""
    decoder = OpusDecoder(RATE_HZ)
    decoder.decode(opus_packets(sine(200, 0.1, RATE_HZ), RATE_HZ)[-1])
    for samples in (1, 59, 60, 480, 2880, 5000):
        assert len(decoder.fill(samples)) == samples


def test_it_decodes_at_the_rate_that_is_asked_for() -> None:
    """A sine sent at 48 kHz has its pitch and length at each of libopus's rates."""
    packets = opus_packets(sine(440, 1.0, 48_000), 48_000)
    for rate_hz in (8_000, 16_000, 24_000, 48_000):
        decoder = OpusDecoder(rate_hz)
        sound = np.concatenate([decoder.decode(packet) for packet in packets])
        assert len(sound) == rate_hz
        assert pitch_hz(sound[rate_hz // 4 :], rate_hz) == pytest.approx(440, abs=1)


def test_what_is_no_opus_is_an_error_and_garbage_behind_a_hole_is_not() -> None:
    """Code 3 without its count, and a packet behind that cannot be read."""
    decoder = OpusDecoder(RATE_HZ)
    with pytest.raises(OpusError, match="-4"):
        decoder.decode(b"\x7b")
    assert len(decoder.fill(FRAME, b"\x7b")) == FRAME
