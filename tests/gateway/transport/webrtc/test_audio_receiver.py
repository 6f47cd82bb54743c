import random

import numpy as np
import pytest
from aiortc.rtp import RtpPacket

from headstart.gateway.audio.clock import CLIENT_RATE_HZ, ENGINE_RATE_HZ, NS_PER_MS
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.transport.webrtc.audio_receiver import AudioReceiver
from headstart.gateway.transport.webrtc.codecs import Formats
from headstart.gateway.transport.webrtc.receive_buffer import Packet, Piece
from tests.gateway.session_bench import clip_pcm
from tests.gateway.transport.webrtc.sound import (
    FORMATS,
    Samples,
    g711_packets,
    opus_packets,
    pitch_hz,
    rms,
    rtp,
    sine,
)

FRAME_NS = 20 * NS_PER_MS


def played(packets: list[bytes], lost: set[int] | None = None) -> tuple[AudioReceiver, Samples]:
    """The packets at their pace; all sound at 24 kHz."""
    intake = AudioReceiver(FORMATS)
    pcm = b""
    for i, payload in enumerate(packets):
        now_ns = i * FRAME_NS
        while intake.due_ns is not None and intake.due_ns < now_ns:
            pcm += b"".join(sound.pcm24k for sound in intake.pull(intake.due_ns))
        if i not in (lost or set()):
            pcm += b"".join(sound.pcm24k for sound in intake.receive(rtp(i, payload), now_ns))
    return intake, np.frombuffer(pcm, np.int16)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 48_000])
def test_a_sine_arrives_at_its_pitch_and_length(rate_hz: int, channels: int) -> None:
    """Whatever it was recorded at, at 24 kHz and after the listener's 16 kHz."""
    _, sound = played(opus_packets(sine(440, 2.0, rate_hz), rate_hz, channels))
    assert len(sound) == 2 * CLIENT_RATE_HZ
    assert pitch_hz(sound[12_000:-12_000], CLIENT_RATE_HZ) == pytest.approx(440, abs=0.5)
    heard = StreamResampler(CLIENT_RATE_HZ, ENGINE_RATE_HZ).feed(sound)
    assert len(heard) == 2 * ENGINE_RATE_HZ
    assert pitch_hz(heard[8_000:-8_000], ENGINE_RATE_HZ) == pytest.approx(440, abs=0.5)


def test_loss_moves_nothing() -> None:
    """With every tenth packet lost the sound has the same length, and what was not lost is at its
    place: the best fit with the lossless sound is at no shift."""
    rng = np.random.default_rng(1)
    slow = np.repeat(rng.normal(0, 6000, 96), 1000)
    speech = (slow * np.sin(2 * np.pi * 180 * np.arange(96_000) / 48_000)).astype(np.int16)
    packets = opus_packets(speech, 48_000, bit_rate=64_000)
    _, whole = played(packets)
    intake, broken = played(packets, lost=set(range(5, len(packets), 10)))
    assert intake.counters.lost == 10
    assert len(broken) == len(whole)
    fits = [
        float(np.dot(whole[200:-200].astype(float), np.roll(broken, k)[200:-200].astype(float)))
        for k in range(-100, 101)
    ]
    assert int(np.argmax(fits)) == 100


def test_a_gap_makes_no_click() -> None:
    """Resampling goes on across a filled gap: no jump beside it is larger than the sine's own."""
    _, sound = played(opus_packets(sine(300, 1.0, 48_000), 48_000, bit_rate=64_000), lost={20})
    around = sound[19 * 480 : 23 * 480].astype(int)
    assert (
        np.abs(np.diff(around)).max() <= 1.5 * np.abs(np.diff(sound[2400:9000].astype(int))).max()
    )
    assert rms(sound[20 * 480 : 21 * 480]) > 1000


def test_what_is_no_opus_is_a_lost_packet() -> None:
    """Empty and impossible payloads leave a hole that is filled, and are counted."""
    packets = opus_packets(sine(440, 1.0, 48_000), 48_000)
    packets[20], packets[30] = b"", b"\xff\xff\xff"
    intake, sound = played(packets)
    assert intake.counters.bad == 2
    assert intake.counters.lost == 2
    assert len(sound) == CLIENT_RATE_HZ


def test_another_source_begins_another_stream() -> None:
    """A new SSRC with numbers of its own is followed at once."""
    intake = AudioReceiver(FORMATS)
    packets = opus_packets(sine(440, 0.4, 48_000), 48_000)
    heard = 0
    for i, payload in enumerate(packets):
        source, first = (1, 0) if i < 10 else (2, 30_000)
        packet = rtp(first + i, payload, first * 7 + i * 960, source=source)
        heard += sum(len(sound.pcm24k) for sound in intake.receive(packet, i * FRAME_NS))
    assert heard == len(packets) * 480 * 2
    assert intake.counters.restarts == 1


def test_stamps_are_the_packets_own() -> None:
    """Sound that waited behind a hole keeps the instant at which it came; filling has none."""
    intake = AudioReceiver(FORMATS)
    packets = opus_packets(sine(440, 0.2, 48_000), 48_000)
    intake.receive(rtp(0, packets[0]), 0)
    assert intake.receive(rtp(2, packets[2]), 7) == []
    due_ns = intake.due_ns
    assert due_ns == 7 + 20 * NS_PER_MS
    assert intake.pull(due_ns - 1) == []
    assert [sound.received_ns for sound in intake.pull(due_ns)] == [None, 7]


def ordering_all(formats: Formats) -> AudioReceiver:
    """A receiver whose buffer orders each packet, also those that are in order."""
    intake = AudioReceiver(formats)
    buffer = intake._buffer

    def take(packet: Packet, now_ns: int) -> list[Piece]:
        buffer.push(packet, now_ns)
        return buffer.pull(now_ns)

    buffer.take = take  # type: ignore[method-assign]
    return intake


@pytest.mark.parametrize("seed", range(12))
def test_packets_in_order_are_heard_as_if_they_were_ordered(seed: int) -> None:
    """A call with changes of codec, key presses, noise, garbage and another source, over a network
    that loses, repeats, delays and reorders: the same sound with the same stamps at the same
    instants, and the same counts."""
    rng = random.Random(seed)
    speech = np.frombuffer(clip_pcm("capital.wav"), np.int16)[: 2 * CLIENT_RATE_HZ]
    mono = opus_packets(speech, CLIENT_RATE_HZ, fec="1", packet_loss="10", application="voip")
    stereo = opus_packets(speech, CLIENT_RATE_HZ, channels=2)
    law = g711_packets(speech[::3], "audio/pcmu")
    arrivals: list[tuple[int, int, RtpPacket]] = []
    kind, source, first = "mono", 7, rng.choice([0, 0xFFE0])
    for i in range(len(mono) - 1):
        if rng.random() < 0.05:
            kind = rng.choice(["mono", "stereo", "pcmu", "key", "noise", "garbage", "foreign"])
        if rng.random() < 0.01:
            source, first = source + 1, rng.randrange(60_000)
        payload, payload_type = {
            "mono": (mono[i], 111),
            "stereo": (stereo[i], 111),
            "pcmu": (law[i % len(law)], 0),
            "key": (b"\x05\x0a\x00\xa0", 101),
            "noise": (b"\x40", 13),
            "garbage": (rng.randbytes(rng.randrange(9)), 111),
            "foreign": (b"\x78", 77),
        }[kind]
        ticks = 160 if payload_type in (0, 101) else 960
        packet = rtp(first + i, payload, i * ticks, payload_type, source)
        if rng.random() < 0.05:
            continue
        delay_ns = rng.choice([30, 30, 30, 30, 35, 60, 130]) * NS_PER_MS
        arrivals += [(i * FRAME_NS + delay_ns, i, packet)] * rng.choice([1] * 20 + [2])
    quick, plain = AudioReceiver(FORMATS), ordering_all(FORMATS)
    heard = 0
    for now_ns, _, packet in sorted(arrivals, key=lambda each: each[:2]):
        while plain.due_ns is not None and plain.due_ns < now_ns:
            due_ns = plain.due_ns
            assert quick.due_ns == due_ns
            assert quick.pull(due_ns) == plain.pull(due_ns)
        sounds = quick.receive(packet, now_ns)
        assert sounds == plain.receive(packet, now_ns)
        assert (quick.due_ns, quick.wait_ms) == (plain.due_ns, plain.wait_ms)
        heard += len(sounds)
    assert quick.counters == plain.counters
    assert heard > len(mono) // 4


def test_single_losses_are_recovered() -> None:
    """Every tenth packet of speech lost, of a sender with FEC: most of what was lost is there. Of
    three in a row it is not: a copy helps little where the codec has lost its thread."""
    speech = np.frombuffer(clip_pcm("capital.wav"), np.int16)
    packets = opus_packets(speech, CLIENT_RATE_HZ, fec="1", packet_loss="10", application="voip")
    _, whole = played(packets)
    lost = set(range(5, len(packets) - 3, 10))
    _, broken = played(packets, lost)
    _, worse = played(packets, {i + k for i in lost for k in range(3)})
    assert len(whole) == len(broken) == len(worse)

    def error(sound: Samples, places: set[int]) -> float:
        at = np.concatenate([np.arange(i * 480, (i + 1) * 480) for i in sorted(places)])
        true = whole[at].astype(float)
        return float(np.square(sound[at] - true).sum() / np.square(true).sum())

    assert error(broken, lost) < 0.2
    assert error(worse, lost) > 0.5


def test_keys_hold_their_place_and_are_silent() -> None:
    """Between words a key is pressed for 200 ms: ten packets with one timestamp. Silence is there
    at the clock's pace, the words behind it are where they belong, and nothing counts as lost."""
    intake = AudioReceiver(FORMATS)
    packets = opus_packets(sine(440, 1.0, 48_000), 48_000)
    heard: list[bytes] = []
    for i, payload in enumerate(packets):
        now_ns = i * FRAME_NS
        while intake.due_ns is not None and intake.due_ns < now_ns:
            heard += [sound.pcm24k for sound in intake.pull(intake.due_ns)]
        pressed = 20 <= i < 30
        packet = rtp(i, b"\x05\x0a\x00\xa0", 20 * 960, 101) if pressed else rtp(i, payload)
        heard += [sound.pcm24k for sound in intake.receive(packet, now_ns)]
        if i == 29:  # before there is a word again
            assert sum(map(len, heard)) >= 2 * 480 * 26
    sound = np.frombuffer(b"".join(heard), np.int16)
    assert len(sound) == CLIENT_RATE_HZ
    assert rms(sound[20 * 480 : 30 * 480]) == 0
    assert rms(sound[31 * 480 :]) > 4_000
    counters = intake.counters
    assert (counters.soundless, counters.lost, counters.concealed_samples) == (10, 0, 0)


def test_a_lost_key_press_costs_nothing() -> None:
    """Of the packets of a key some are lost: the rest of the call is where it was."""
    intake = AudioReceiver(FORMATS)
    packets = opus_packets(sine(440, 1.0, 48_000), 48_000)
    heard = 0
    for i, payload in enumerate(packets):
        now_ns = i * FRAME_NS
        while intake.due_ns is not None and intake.due_ns < now_ns:
            heard += sum(len(sound.pcm24k) for sound in intake.pull(intake.due_ns))
        packet = rtp(i, payload)
        if 20 <= i < 30:
            if i % 3 == 0:
                continue
            packet = rtp(i, b"\x05\x0a\x00\xa0", 20 * 960, 101)
        heard += sum(len(sound.pcm24k) for sound in intake.receive(packet, now_ns))
    assert heard == 2 * CLIENT_RATE_HZ


def test_a_key_before_the_first_word_begins_nothing() -> None:
    """There is no time yet that it could have a place in."""
    intake = AudioReceiver(FORMATS)
    assert intake.receive(rtp(5, b"\x05\x0a\x00\xa0", 5, 101), 0) == []
    assert intake.due_ns is None


def test_foreign_packets_are_counted() -> None:
    """A payload type that was not agreed on is nothing but a number."""
    intake = AudioReceiver(FORMATS)
    packet = rtp(0, opus_packets(sine(440, 0.1, 48_000), 48_000)[0], payload_type=77)
    assert intake.receive(packet, 0) == []
    assert intake.counters.foreign == 1
