import numpy as np
import pytest

from headstart.gateway.audio import g711
from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.transport.webrtc.codecs import Codec
from headstart.gateway.transport.webrtc.receive_buffer import Piece, PieceKind
from headstart.gateway.transport.webrtc.telephone import TelephoneTimeline
from tests.gateway.transport.webrtc.sound import Samples, g711_packets, pitch_hz, rms, sine

CODECS: dict[g711.Law, Codec] = {"audio/pcmu": Codec.PCMU, "audio/pcma": Codec.PCMA}


def played(packets: list[bytes], law: g711.Law, lost: set[int] | None = None) -> Samples:
    timeline = TelephoneTimeline()
    sound = []
    for i, payload in enumerate(packets):
        kind = PieceKind.CONCEALED if i in (lost or set()) else PieceKind.AUDIO
        sound.append(timeline.decode(Piece(kind, 6 * len(payload), 0, payload, codec=CODECS[law])))
    return np.concatenate((*sound, timeline.flush()))


@pytest.mark.parametrize("frame_ms", [10, 20, 30, 33])
@pytest.mark.parametrize("law", CODECS)
def test_a_sine_arrives_at_its_pitch_and_length(law: g711.Law, frame_ms: int) -> None:
    """At 24 kHz, whatever the packets' length; nothing of it is missing at the end."""
    packets = g711_packets(sine(440, 2, 8_000), law, frame_ms)
    sound = played(packets, law)
    assert len(sound) == 3 * sum(map(len, packets))
    assert pitch_hz(sound[4_800:-4_800], CLIENT_RATE_HZ) == pytest.approx(440, abs=0.3)
    assert rms(sound[4_800:-4_800]) == pytest.approx(8000 / 2**0.5, rel=0.03)


def test_the_resampler_goes_on_from_packet_to_packet() -> None:
    """No seam: the sine's steps are nowhere larger than its own, and cut otherwise it is the same
    sound."""
    tone = sine(440, 1, 8_000)
    sound = played(g711_packets(tone, "audio/pcmu", 20), "audio/pcmu")
    other = played(g711_packets(tone, "audio/pcmu", 10), "audio/pcmu")
    assert np.array_equal(sound, other)
    steepest = 2 * np.pi * 440 / CLIENT_RATE_HZ * 8000
    assert np.abs(np.diff(sound[480:].astype(int))).max() < 1.2 * steepest


def test_a_lost_packet_is_drawn_out() -> None:
    """In the place of one packet of a voice's tone is that tone, and no jump beside it."""
    tone = sine(160, 1, 8_000)
    sound = played(g711_packets(tone, "audio/pcma"), "audio/pcma", lost={20})
    whole = played(g711_packets(tone, "audio/pcma"), "audio/pcma")
    assert len(sound) == len(whole)
    gap = slice(20 * 480, 21 * 480)
    assert rms(sound[gap] - whole[gap].astype(float)) < 0.5 * rms(whole[gap])
    steepest = 2 * np.pi * 160 / CLIENT_RATE_HZ * 8000
    assert np.abs(np.diff(sound[19 * 480 : 22 * 480].astype(int))).max() < 2 * steepest


def test_a_long_loss_fades_and_silence_is_silent() -> None:
    """Drawn out for 60 ms at most; where silence was meant nothing of the last word sounds on."""
    timeline = TelephoneTimeline()
    for payload in g711_packets(sine(160, 0.2, 8_000), "audio/pcmu"):
        timeline.decode(Piece(PieceKind.AUDIO, 960, 0, payload, codec=Codec.PCMU))
    drawn_out = [timeline.decode(Piece(PieceKind.CONCEALED, 960, 0)) for _ in range(5)]
    loud = [rms(part) for part in drawn_out]
    assert loud[0] > loud[1] > loud[2] > loud[4] == 0
    assert rms(timeline.decode(Piece(PieceKind.SILENCE, 4_800, 0))) == 0
    assert rms(timeline.decode(Piece(PieceKind.CONCEALED, 960, 0))) == 0


def test_nothing_can_be_drawn_out_before_there_is_sound() -> None:
    """A loss at the start is silence."""
    assert rms(TelephoneTimeline().decode(Piece(PieceKind.CONCEALED, 960, 0))) == 0
