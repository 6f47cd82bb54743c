import pytest
from aiortc import RTCRtpCodecParameters

from headstart.gateway.transport.webrtc.codecs import (
    G711_BYTES_MAX,
    Codec,
    codec_of,
    formats,
    key_presses,
)


def codec(name: str, clock_rate: int, payload_type: int) -> RTCRtpCodecParameters:
    return RTCRtpCodecParameters(
        mimeType=f"audio/{name}", clockRate=clock_rate, payloadType=payload_type
    )


OPUS, PCMU = codec("opus", 48_000, 111), codec("PCMU", 8_000, 0)
EVENT_48, EVENT_8 = codec("telephone-event", 48_000, 110), codec("telephone-event", 8_000, 126)
NOISE, WIDE = codec("CN", 16_000, 105), codec("G722", 8_000, 9)


def test_names_in_any_case() -> None:
    """MIME types as offers spell them; others are not ours."""
    assert codec_of("audio/PCMU") is Codec.PCMU
    assert codec_of("audio/opus") is Codec.OPUS
    assert codec_of("audio/CN") is Codec.NOISE
    assert codec_of("audio/G722") is None


def test_key_presses_go_with_a_codec_of_their_clock() -> None:
    """A telephone's with G.711, a browser's with Opus, none with a codec that was not chosen."""
    offered = [OPUS, PCMU, EVENT_48, EVENT_8]
    assert [c.payloadType for c in key_presses(offered, [OPUS])] == [110]
    assert [c.payloadType for c in key_presses(offered, [PCMU])] == [126]
    assert [c.payloadType for c in key_presses(offered, [OPUS, PCMU])] == [110, 126]
    assert key_presses([OPUS, PCMU], [OPUS]) == []


def test_packets_are_what_was_agreed_on() -> None:
    """A codec that was offered and not agreed on is none of them; what has no sound in it is known
    whether it was or not, comfort noise's number even if nobody named it."""
    found = formats([OPUS, PCMU, EVENT_48, NOISE, WIDE], [OPUS])
    assert found == {111: Codec.OPUS, 110: Codec.EVENT, 105: Codec.NOISE, 13: Codec.NOISE}


def test_a_number_may_mean_anything_that_was_agreed_on() -> None:
    """Dynamic numbers are the offer's: 101 is Opus if it says so."""
    assert formats([], [codec("opus", 48_000, 13)])[13] is Codec.OPUS


@pytest.mark.parametrize(
    ("payload", "samples"),
    [(b"\xff" * 160, 960), (b"\xff", 6), (b"", None), (b"\xff" * (G711_BYTES_MAX + 1), None)],
)
def test_g711_lasts_a_byte_a_sample(payload: bytes, samples: int | None) -> None:
    """At 48 kHz; nothing, and far too much, are no packets."""
    assert Codec.PCMU.samples(payload) == samples
