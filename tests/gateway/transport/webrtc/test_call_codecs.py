import struct
from collections.abc import AsyncIterator

import av
import numpy as np
import pytest
from aiortc import MediaStreamTrack

from headstart.gateway.transport.webrtc.receive_buffer import BufferCounters
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until
from tests.gateway.transport.webrtc.peer import (
    Microphone,
    Peer,
    calling,
    change_packets,
    head_bytes,
)
from tests.gateway.transport.webrtc.sound import Samples, g711_packets, pitch_hz, rms, sine

FRAME_BYTES = 2 * 480  # 20 ms of s16 at 24 kHz
WIRE_HZ = 24_000


@pytest.fixture
async def running() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as gateway:
        yield gateway


def heard(running: RunningGateway, start: int = 0) -> Samples:
    return np.frombuffer(bytes(running.sessions[0].heard[start:]), np.int16)


def counters(running: RunningGateway) -> BufferCounters:
    assert running.gateway.calls is not None
    (call,) = running.gateway.calls._calls.values()
    assert call._audio is not None
    return call._audio.intake.counters


async def answered(running: RunningGateway, peer: Peer, seconds: float) -> Samples:
    """A sine of 300 Hz that the server says, as the peer hears it, at 8 kHz."""
    assert running.gateway.calls is not None
    (call,) = running.gateway.calls._calls.values()
    assert call.outgoing.put(sine(300, seconds, WIRE_HZ).tobytes())
    track: MediaStreamTrack = peer.tracks[0]
    parts: list[Samples] = []
    while sum(map(len, parts)) < seconds * 8_000:
        frame = await track.recv()
        assert isinstance(frame, av.AudioFrame)
        assert frame.sample_rate == 8_000
        parts.append(frame.to_ndarray()[0])
    return np.concatenate(parts)


@pytest.mark.parametrize(("codec", "payload_type"), [("audio/PCMU", 0), ("audio/PCMA", 8)])
async def test_a_telephone_is_heard_and_answered(
    running: RunningGateway, codec: str, payload_type: int
) -> None:
    """A peer with G.711 only: its sine is heard at its pitch and in its own time, and it gets the
    answer in the same codec, at the right pitch."""
    microphone = Microphone(sine(440, 10, 48_000))
    async with calling(running.url, microphone, codecs=(codec,)) as peer:
        assert f"a=rtpmap:{payload_type} {codec.removeprefix('audio/')}/8000" in peer.answer
        assert "opus" not in peer.answer
        await until(lambda: running.sessions[0].heard)
        before, at = microphone.frames_sent, len(running.sessions[0].heard)
        said = await answered(running, peer, 1.0)
        assert pitch_hz(said[1_000:7_000], 8_000) == pytest.approx(300, abs=1)
        await until(lambda: microphone.frames_sent >= before + 100)
        frames = (len(running.sessions[0].heard) - at) / FRAME_BYTES
        assert frames == pytest.approx(microphone.frames_sent - before, abs=15)
        assert pitch_hz(heard(running)[WIRE_HZ // 2 :], WIRE_HZ) == pytest.approx(440, abs=0.5)
        counts = counters(running)
        assert (counts.bad, counts.foreign, counts.soundless) == (0, 0, 0)


async def test_opus_is_preferred(running: RunningGateway) -> None:
    """Whatever the peer names first; both others may still be sent."""
    wanted = ("audio/PCMA", "audio/PCMU", "audio/opus")
    async with calling(running.url, Microphone(), codecs=wanted) as peer:
        types = peer.answer.split("m=audio ")[1].split("\r\n")[0].split()[2:]
        assert types == ["96", "0", "8"]


async def test_a_call_changes_its_codec(running: RunningGateway) -> None:
    """Opus, then PCMU in mid-call, and back: one sine all the while, in the microphone's time."""
    microphone = Microphone(sine(440, 20, 48_000))
    told = iter(g711_packets(sine(440, 20, 8_000), "audio/pcmu"))
    first: list[int] = []

    def to_pcmu(data: bytes) -> bytes:
        head = head_bytes(data)
        first.append(int.from_bytes(data[4:8], "big"))
        ticks = (first[0] + 160 * (len(first) - 1)) & 0xFFFFFFFF  # counts at 8 kHz from now on
        marked = bytes([data[0], data[1] & 0x80])
        return marked + data[2:4] + ticks.to_bytes(4, "big") + data[8:head] + next(told)

    async with calling(running.url, microphone) as peer:
        session = running.sessions[0]
        await until(lambda: len(session.heard) > 25 * FRAME_BYTES)
        before, at = microphone.frames_sent, len(session.heard)
        change_packets(peer.pc, to_pcmu)
        await until(lambda: microphone.frames_sent >= before + 75)
        middle = heard(running, at)[WIRE_HZ // 2 :]
        assert pitch_hz(middle, WIRE_HZ) == pytest.approx(440, abs=1)
        change_packets(peer.pc, lambda data: data)
        transport = peer.pc.getTransceivers()[0].sender.transport
        del transport._send_rtp  # the class's own again
        back = len(session.heard) + 10 * FRAME_BYTES
        await until(lambda: len(session.heard) >= back + 75 * FRAME_BYTES)
        frames = (len(session.heard) - at) / FRAME_BYTES
        assert frames == pytest.approx(microphone.frames_sent - before, abs=15)
        assert pitch_hz(heard(running, back), WIRE_HZ) == pytest.approx(440, abs=1)
        # The peer's Opus is stereo, made of mono 3 dB softer.
        assert rms(heard(running, back)) == pytest.approx(8000 / 2, rel=0.1)
        assert counters(running).lost == 0


@pytest.mark.parametrize("payload_type", [101, 13])
async def test_keys_and_comfort_noise_are_silence(
    running: RunningGateway, payload_type: int
) -> None:
    """Telephone events, which the answer agrees to, and comfort noise, which was in no offer: in
    their place is silence, nothing counts as lost or foreign, and what follows is heard."""

    def offering(sdp: str) -> str:
        return sdp.replace(
            "a=rtpmap:0 PCMU/8000\r\n",
            "a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n",
        ).replace("RTP/SAVPF 0", "RTP/SAVPF 0 101")

    def without_sound(data: bytes) -> bytes:
        head = head_bytes(data)
        return data[:1] + bytes([payload_type]) + data[2:head] + b"\x05\x0a\x01\x40"

    microphone = Microphone(sine(440, 20, 48_000))
    call = calling(running.url, microphone, codecs=("audio/PCMU",), edit=offering)
    async with call as peer:
        assert "a=rtpmap:101 telephone-event/8000" in peer.answer
        session = running.sessions[0]
        await until(lambda: len(session.heard) > 25 * FRAME_BYTES)
        before = microphone.frames_sent
        change_packets(peer.pc, without_sound)
        await until(lambda: microphone.frames_sent >= before + 25)
        at = len(session.heard)
        await until(lambda: microphone.frames_sent >= before + 50)
        silent = heard(running, at)
        assert len(silent) == pytest.approx(25 * 480, abs=10 * 480)
        assert rms(silent) == 0
        counts = counters(running)
        assert counts.soundless >= 45
        assert (counts.lost, counts.foreign, counts.bad, counts.concealed_samples) == (0, 0, 0, 0)
        del peer.pc.getTransceivers()[0].sender.transport._send_rtp
        at = len(session.heard)
        await until(lambda: len(session.heard) > at + 50 * FRAME_BYTES)
        assert pitch_hz(heard(running, at)[12_000:], WIRE_HZ) == pytest.approx(440, abs=1)


async def test_what_was_not_agreed_on_is_counted_and_dropped(running: RunningGateway) -> None:
    """A peer that changes to a payload type of its own is silent, no more; the call lives, and
    hears it again when it comes back to itself."""
    microphone = Microphone(sine(440, 20, 48_000))
    async with calling(running.url, microphone) as peer:
        session = running.sessions[0]
        await until(lambda: session.heard)
        change_packets(peer.pc, lambda data: data[:1] + bytes([119]) + data[2:])
        await until(lambda: counters(running).foreign >= 30)
        at = len(session.heard)
        await until(lambda: len(session.heard) > at + 25 * FRAME_BYTES)
        assert rms(heard(running, at)) == 0
        del peer.pc.getTransceivers()[0].sender.transport._send_rtp
        await until(lambda: rms(heard(running, len(session.heard) - 10 * FRAME_BYTES)) > 4000)
        assert peer.channel is not None
        peer.channel.send("still here")
        await peer.event("echo")


async def test_g711_garbage_harms_nothing(running: RunningGateway) -> None:
    """Of a telephone's packets half have a random length and content, or the other law's type:
    the call lives, and the sine is heard again behind them."""
    rng = np.random.default_rng(3)

    def garbled(data: bytes) -> bytes:
        head = head_bytes(data)
        match rng.integers(4):
            case 0:
                return data[:head] + rng.bytes(int(rng.integers(0, 1_200)))
            case 1:
                return data[:1] + bytes([8]) + data[2:]
            case _:
                return data

    wanted = ("audio/PCMU", "audio/PCMA")
    async with calling(running.url, Microphone(sine(440, 20, 48_000)), codecs=wanted) as peer:
        session = running.sessions[0]
        await until(lambda: session.heard)
        change_packets(peer.pc, garbled)
        at = len(session.heard)
        await until(lambda: len(session.heard) > at + 75 * FRAME_BYTES)
        del peer.pc.getTransceivers()[0].sender.transport._send_rtp
        at = len(session.heard) + 25 * FRAME_BYTES
        await until(lambda: len(session.heard) > at + 50 * FRAME_BYTES)
        assert pitch_hz(heard(running, at), WIRE_HZ) == pytest.approx(440, abs=1)


async def test_numbers_wrap_and_the_source_changes_within_a_call(running: RunningGateway) -> None:
    """Numbers begin a second before their largest values, as they may after a day. Two seconds
    later another source takes over, with numbers of its own. The sine is heard on without a hole,
    and at its pitch."""
    first: list[int] = []

    def renumbered(data: bytes) -> bytes:
        sequence, source = int.from_bytes(data[2:4], "big"), int.from_bytes(data[8:12], "big")
        first.append(sequence)
        at = (sequence - first[0]) & 0xFFFF
        starts, source = (0x10000 - 50, source ^ 1) if at < 150 else (40_000, source ^ 2)
        timestamp = (starts - 0x10000 + at) * 960 % (1 << 32)
        return (
            data[:2] + struct.pack("!HLL", (starts + at) % 0x10000, timestamp, source) + data[12:]
        )

    async with calling(running.url, Microphone(sine(440, 60, 48_000))) as peer:
        change_packets(peer.pc, renumbered)
        began = len(heard(running))
        await until(lambda: len(heard(running)) > began + 7 * WIRE_HZ)
        counted = counters(running)
        assert counted.restarts in (1, 2)  # packets may have left with their own numbers before
        assert counted.lost == counted.late == counted.concealed_samples == 0
    frames = heard(running)[began + WIRE_HZ // 2 :][: 6 * WIRE_HZ].reshape(-1, 480)
    assert pitch_hz(frames.reshape(-1), WIRE_HZ) == pytest.approx(440, abs=1)
    assert min(map(rms, frames)) > rms(frames) / 2
