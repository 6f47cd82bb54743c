import numpy as np
import pytest

from headstart.gateway.transport.webrtc.audio_receiver import Timeline
from headstart.gateway.transport.webrtc.codecs import Codec
from headstart.gateway.transport.webrtc.receive_buffer import BufferCounters, Piece, PieceKind
from tests.gateway.transport.webrtc.sound import g711_packets, opus_packets, pitch_hz, sine

OPUS = opus_packets(sine(440, 1, 48_000), 48_000)


def audio(payload: bytes, codec: Codec, samples: int = 960) -> Piece:
    return Piece(PieceKind.AUDIO, samples, 0, payload, codec=codec)


def test_the_length_is_kept_over_changes_of_codec() -> None:
    """Opus, a telephone's packets of an odd length, Opus: to the sample as long as the pieces, and
    each part at its pitch."""
    timeline = Timeline(BufferCounters())
    odd = g711_packets(sine(440, 1, 8_000), "audio/pcmu", 33)
    pieces = [audio(p, Codec.OPUS) for p in OPUS]
    pieces += [audio(p, Codec.PCMU, 6 * len(p)) for p in odd]
    pieces += [audio(p, Codec.OPUS) for p in OPUS]
    sound = np.concatenate([timeline.decode(piece) for piece in pieces])
    assert len(sound) == sum(piece.samples for piece in pieces) // 2
    for start in (4_000, 28_000, 52_000):
        assert pitch_hz(sound[start : start + 16_000], 24_000) == pytest.approx(440, abs=0.5)


@pytest.mark.parametrize("codec", [Codec.OPUS, Codec.PCMU])
def test_a_loss_before_another_codec_is_concealed_by_the_old_one(codec: Codec) -> None:
    """The packet behind the hole is not taken for a copy of what was in it."""
    timeline = Timeline(BufferCounters())
    other = Codec.PCMU if codec is Codec.OPUS else Codec.OPUS
    payloads = {Codec.OPUS: OPUS, Codec.PCMU: g711_packets(sine(440, 1, 8_000), "audio/pcmu")}
    for payload in payloads[codec][:20]:
        timeline.decode(audio(payload, codec))
    behind = payloads[other][20]
    gap = timeline.decode(Piece(PieceKind.CONCEALED, 960, 0, behind, codec=other))
    assert len(gap) == 480
    assert np.abs(gap).max() > 2_000
    assert len(timeline.decode(audio(behind, other))) == 480
