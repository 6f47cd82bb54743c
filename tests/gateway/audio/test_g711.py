"""G.711 against FFmpeg's, and against a tone."""

from __future__ import annotations

import av
import numpy as np
import pytest

from headstart.gateway.audio import g711

CODECS = {"audio/pcmu": "pcm_mulaw", "audio/pcma": "pcm_alaw"}
LAWS: list[g711.Law] = ["audio/pcmu", "audio/pcma"]


@pytest.mark.parametrize("law", LAWS)
def test_every_byte_stands_for_ffmpegs_sample(law: g711.Law) -> None:
    """All 256."""
    codec = av.CodecContext.create(CODECS[law], "r")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate, codec.layout = 8_000, "mono"
    (frame,) = codec.decode(av.Packet(bytes(range(256))))
    theirs = np.asarray(frame.to_ndarray()).ravel()
    assert np.array_equal(g711._DECODE[law], theirs)


@pytest.mark.parametrize("law", LAWS)
def test_every_sample_gets_its_nearest_byte(law: g711.Law) -> None:
    """Encoded and decoded, no sample is further away than from any other byte's."""
    samples = np.arange(-32_768, 32_768)
    back = g711._DECODE[law][g711._ENCODE[law]].astype(np.int32)
    table = np.unique(g711._DECODE[law].astype(np.int32))
    places = np.clip(np.searchsorted(table, samples), 1, len(table) - 1)
    best = np.minimum(abs(table[places - 1] - samples), abs(table[places] - samples))
    assert np.array_equal(abs(back - samples), best)


@pytest.mark.parametrize("law", LAWS)
def test_a_tone_survives_both_ways(law: g711.Law) -> None:
    """24 kHz to the client and back, in odd pieces: same pitch and level, 30 dB over noise."""
    time_s = np.arange(24_000) / 24_000
    tone = (8_000 * np.sin(2 * np.pi * 440 * time_s)).astype(np.int16).tobytes()
    encoder, decoder = g711.Encoder(law), g711.Decoder(law)
    sent = b"".join(encoder.feed(tone[i : i + 2_222]) for i in range(0, len(tone), 2_222))
    assert len(sent) == 8_000
    back = b"".join(decoder.feed(sent[i : i + 77]) for i in range(0, len(sent), 77))
    heard = np.frombuffer(back, np.int16)[2_400:-2_400].astype(np.float64)
    phase = 2 * np.pi * 440 * np.arange(len(heard)) / 24_000
    basis = np.stack([np.sin(phase), np.cos(phase)], axis=1)
    fit, *_ = np.linalg.lstsq(basis, heard, rcond=None)
    noise = heard - basis @ fit
    assert np.hypot(*fit) == pytest.approx(8_000, rel=0.03)
    assert 20 * np.log10(np.std(heard) / np.std(noise)) > 30
