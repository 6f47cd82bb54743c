import asyncio
import contextlib
import inspect
import os
import random
import socket
import struct
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pylibsrtp
import pytest
from aioice import ice
from aiortc import RTCPeerConnection, RTCSessionDescription, rtcdtlstransport
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtcrtpsender import RTCRtpSender
from aiortc.rtp import HeaderExtensionsMap, RtpPacket
from pylibsrtp._binding import ffi

from headstart.gateway.runtime.fairness import BURST_S, RESERVE_S, LoopTimeBudget
from headstart.gateway.transport.webrtc import aiortc_hooks, media_path
from headstart.gateway.transport.webrtc.media_path import PacketSender, SoundPacket, parse
from tests.gateway.shell_fakes import until
from tests.gateway.transport.webrtc.peer import Microphone, ice_connections, offer_of, prepared


def test_aiortc_still_has_the_parts_that_are_reached_into() -> None:
    """If this fails, a release of aiortc or aioice has moved something: mend media_path.py."""
    receiver, sender = inspect.getsource(RTCRtpReceiver), inspect.getsource(RTCRtpSender)
    assert "self.__remote_streams[packet.ssrc].add(packet)" in receiver
    assert "for ssrc, stream in self.__remote_streams.items()" in receiver
    assert "if not self._enabled" in receiver
    for counted in ("octet_count", "packet_count"):
        assert f"{counted}=self.__{counted} & 0xFFFFFFFF" in sender
    for kept in ("ntp_timestamp", "rtp_timestamp", "mid", "rtp_header_extensions_map"):
        assert f"self.__{kept}" in sender
    assert "self.__rtp_history.get(sequence_number % RTP_HISTORY_SIZE)" in sender
    assert "packet.serialize(self.__rtp_header_extensions_map)" in sender
    dtls = inspect.getsource(rtcdtlstransport)
    assert "self._rx_srtp.unprotect(data)" in dtls
    assert "self._tx_srtp.protect(data)" in dtls
    assert "self._state != State.CONNECTED" in dtls
    session = inspect.getsource(pylibsrtp.Session)
    assert "self._buffer[0 : len(data)] = data" in session
    assert "func(self._srtp[0], self._cdata, len_p)" in session
    assert "return self._buffer[0 : len_p[0]]" in session
    connection = inspect.getsource(ice.Connection)
    assert "def data_received(self, data: bytes, component: int)" in connection
    assert "active_pair.protocol.send_data(data, active_pair.remote_addr)" in connection
    assert "self.transport.sendto(data, addr)" in inspect.getsource(ice.StunProtocol.send_data)
    assert "self.receiver.data_received(data" in inspect.getsource(
        ice.StunProtocol.datagram_received
    )
    assert "self._protocols.append(" in connection or "self._protocols +=" in connection


def random_packet(rng: random.Random) -> bytes:
    """RTP with any of sources, extension and padding, and sometimes cut or with a wrong length."""
    first = 0x80 | rng.choice([0, 0x10]) | rng.choice([0, 0x20]) | rng.choice([0, 0, 3])
    data = bytes([first]) + rng.randbytes(11 + 4 * (first & 15))
    if first & 0x10:
        words = rng.randrange(3)
        data += b"\xbe\xde" + words.to_bytes(2, "big") + bytes(4 * words)
    data += rng.randbytes(rng.randrange(40))
    if first & 0x20:
        padding = rng.choice([0, 1, 4, 4, 200])
        data += bytes(max(0, padding - 1) % 8) + bytes([padding])
    if rng.random() < 0.1:
        data = data[: rng.randrange(len(data))]
    if rng.random() < 0.05:
        data = bytes([0x40]) + data[1:]
    return data


def test_packets_are_read_as_aiortc_reads_them() -> None:
    """Ten thousand, well-formed and not: the same fields, and nothing where it raises."""
    rng = random.Random(1)
    broken = 0
    for _ in range(10_000):
        data = random_packet(rng)
        try:
            theirs = RtpPacket.parse(data, HeaderExtensionsMap())
        except ValueError:
            broken += 1
            assert parse(data) is None, data
            continue
        assert parse(data) == SoundPacket(
            theirs.payload_type,
            theirs.sequence_number,
            theirs.timestamp,
            theirs.ssrc,
            theirs.payload,
        )
    assert 500 < broken < 9_500


def srtp(direction: int) -> pylibsrtp.Session:
    profile = pylibsrtp.Policy.SRTP_PROFILE_AES128_CM_SHA1_80
    policy = pylibsrtp.Policy(key=bytes(30), ssrc_type=direction, srtp_profile=profile)
    return pylibsrtp.Session(policy)


def test_packets_are_decrypted_as_pylibsrtp_does_it() -> None:
    """Once, again, forged, cut and too long: the same bytes, and nothing where it raises."""
    rng = random.Random(2)
    sender = srtp(pylibsrtp.Policy.SSRC_ANY_OUTBOUND)
    ours, theirs = (srtp(pylibsrtp.Policy.SSRC_ANY_INBOUND) for _ in range(2))
    size = ffi.new("int *")
    opened = refused = 0
    for number in range(2_000):
        header = struct.pack("!BBHLL", 0x80, 111, number, number * 960, 7)
        data = sender.protect(header + rng.randbytes(rng.randrange(200)))
        cut, long = data[: rng.randrange(len(data))], data.ljust(1501, b"\0")
        forged = data[:20] + b"?" + data[21:]
        came = [[data], [data], [data, data], [data[:-1]], [cut], [long], [forged, data], [b""]]
        for copy in rng.choice(came):
            try:
                expected = theirs.unprotect(copy)
            except (pylibsrtp.Error, ValueError):
                refused += 1
                assert media_path.unprotect(ours, size, copy) is None
                continue
            opened += 1
            assert media_path.unprotect(ours, size, copy) == expected
    assert opened > 800
    assert refused > 500


@dataclass
class Line:
    """A microphone, connected to a receiver whose packets are taken past aiortc."""

    peer: RTCPeerConnection
    ours: RTCPeerConnection
    share: LoopTimeBudget
    packets: list[Any] = field(default_factory=list)
    by_aiortc: int = 0
    dropped: int = 0

    @property
    def receiver(self) -> Any:
        return self.ours.getReceivers()[0]


@contextlib.asynccontextmanager
async def line(microphone: Microphone) -> AsyncIterator[Line]:
    peer, ours = RTCPeerConnection(), RTCPeerConnection()
    made = Line(peer, ours, LoopTimeBudget(time.perf_counter()))
    peer.addTrack(microphone)

    @ours.on("track")
    def on_track(_: Any) -> None:
        aiortc_hooks.tap_packets(made.receiver, made.packets.append)
        handle = made.receiver._handle_rtp_packet

        async def counted(*arguments: Any, **named: Any) -> None:
            made.by_aiortc += 1
            await handle(*arguments, **named)

        made.receiver._handle_rtp_packet = counted

    def drop() -> None:
        made.dropped += 1

    await ours.setRemoteDescription(RTCSessionDescription(await offer_of(peer), "offer"))
    await ours.setLocalDescription(await ours.createAnswer())
    aiortc_hooks.guard_datagrams(ours)
    aiortc_hooks.ration(ours, made.share, drop)
    media_path.receive(made.receiver, made.packets.append, made.share, drop)
    answer = RTCSessionDescription(ours.localDescription.sdp, "answer")
    await peer.setRemoteDescription(answer)
    try:
        await until(lambda: len(made.packets) >= 10)
        yield made
    finally:
        await peer.close()
        await ours.close()


async def test_packets_come_past_aiortc_and_are_reported() -> None:
    """In order and whole; aiortc sees the first ones only, and its reports count all of them."""
    async with line(Microphone()) as made:
        numbers = [packet.sequence_number for packet in made.packets]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert all(packet.payload for packet in made.packets)
        seen = made.by_aiortc
        assert 0 < seen < len(made.packets)
        (stream,) = made.receiver._RTCRtpReceiver__remote_streams.values()
        assert stream.packets_received == stream.packets_expected == len(made.packets)
        sender = made.peer.getSenders()[0]

        async def reported() -> list[Any]:
            stats = (await sender.getStats()).values()
            return [each for each in stats if each.type == "remote-inbound-rtp"]

        async with asyncio.timeout(60):
            while not await reported():
                await asyncio.sleep(0.05)
        (report,) = await reported()
        assert report.packetsLost == report.fractionLost == 0
        assert made.by_aiortc == seen


async def test_what_is_forged_or_over_the_share_is_dropped() -> None:
    """A known source's packet that does not decrypt is nothing; over the share none is tried."""
    async with line(Microphone()) as made:
        (connection,) = ice_connections(made.ours)
        ssrc = made.packets[0].ssrc
        forged = b"\x80\x60" + bytes(6) + ssrc.to_bytes(4, "big") + os.urandom(100)
        before = len(made.packets)
        pair = connection._nominated[1]
        # No packet of the peer's comes meanwhile.
        pair.protocol.datagram_received(forged, pair.remote_addr)
        assert len(made.packets) == before
        assert made.dropped == 0
        now_s = time.perf_counter()
        made.share.spend(BURST_S + RESERVE_S + 3600, now_s)
        before = len(made.packets)
        await until(lambda: made.dropped >= 3)
        assert len(made.packets) == before


@pytest.mark.parametrize(
    ("size_bytes", "of_the_microphone"), [(0, False), (1, False), (1501, False), (1501, True)]
)
async def test_a_strangers_datagram_ends_no_call(size_bytes: int, of_the_microphone: bool) -> None:
    """None that is empty, or longer than what pylibsrtp takes; no callback raises either."""
    raised: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    async with line(Microphone()) as made:
        ssrc = made.packets[0].ssrc ^ (not of_the_microphone)
        datagram = (b"\x80\x60" + bytes(6) + ssrc.to_bytes(4, "big")).ljust(size_bytes, b"\0")
        (connection,) = ice_connections(made.ours)
        came: list[bytes] = []
        protocol = connection._nominated[1].protocol
        receive = protocol.datagram_received

        def received(data: bytes, address: tuple[Any, ...]) -> None:
            came.append(data)
            receive(data, address)

        protocol.datagram_received = received
        address = connection._nominated[1].local_addr
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(datagram[:size_bytes], address)
            await until(lambda: datagram[:size_bytes] in came)
        before = len(made.packets)
        await until(lambda: len(made.packets) >= before + 10)
        assert made.ours.connectionState == "connected"
        assert raised == []


async def test_a_receiver_that_is_switched_off_hears_nothing() -> None:
    """As with aiortc's own way, to which its packets are left."""
    async with line(Microphone()) as made:
        made.receiver._enabled = False
        seen, before = made.by_aiortc, len(made.packets)
        await until(lambda: made.by_aiortc >= seen + 3)
        assert len(made.packets) == before


async def test_what_is_sent_is_counted_and_can_be_sent_again() -> None:
    """A packet arrives with its payload and RTP time; aiortc's report and its history have it; and
    nothing is sent, or raised, over a connection that has ended."""
    heard: list[RtpPacket] = []
    async with prepared(Microphone(), data=False) as listener, prepared(data=False) as speaker:
        transceiver = speaker.pc.addTransceiver("audio")

        @listener.pc.on("track")
        def on_track(_: Any) -> None:
            aiortc_hooks.tap_packets(listener.pc.getReceivers()[0], heard.append)

        offer = RTCSessionDescription(await offer_of(listener.pc), "offer")
        await speaker.pc.setRemoteDescription(offer)
        packets = PacketSender(transceiver)
        packets.send(b"too soon", 0)
        await speaker.pc.setLocalDescription(await speaker.pc.createAnswer())
        answer = RTCSessionDescription(speaker.pc.localDescription.sdp, "answer")
        await listener.pc.setRemoteDescription(answer)
        sender: Any = transceiver.sender
        await until(lambda: sender._RTCRtpSender__rtp_task is not None)
        await until(lambda: listener.pc.connectionState == "connected")
        for number in range(5):
            packets.send(bytes([number]) * 20, number * 960)
        await until(lambda: len(heard) == 5)
        assert [packet.payload for packet in heard] == [bytes([n]) * 20 for n in range(5)]
        assert [packet.timestamp - heard[0].timestamp for packet in heard] == [
            n * 960 for n in range(5)
        ]
        first = heard[0].sequence_number
        assert [packet.sequence_number for packet in heard] == list(range(first, first + 5))
        assert heard[0].extensions.mid == transceiver.mid
        assert sender._RTCRtpSender__packet_count == 5
        assert sender._RTCRtpSender__octet_count == 100
        assert sender._RTCRtpSender__rtp_timestamp == heard[-1].timestamp
        again: list[bytes] = []

        async def record(data: bytes) -> None:
            again.append(data)

        sender.transport._send_rtp = record
        await sender._retransmit(first + 2)
        del sender.transport._send_rtp
        (data,) = again
        assert parse(data) == SoundPacket(
            heard[2].payload_type, first + 2, heard[2].timestamp, heard[2].ssrc, bytes([2]) * 20
        )
        await speaker.pc.close()
        packets.send(b"too late", 0)


@pytest.mark.parametrize("payload", [b"", bytes(11)])
def test_what_is_too_short_is_no_packet(payload: bytes) -> None:
    """Less than a header."""
    assert parse(payload) is None
