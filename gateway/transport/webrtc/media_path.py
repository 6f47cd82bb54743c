"""Sound between a call's socket and the call, past aiortc's tasks.

aiortc moves each packet through a queue, a task and a dozen coroutines, which costs more than
decoding its Opus. Here a packet is received in the callback of its socket and sent in the
callback of its timer. aiortc keeps ICE, DTLS, SDP, RTCP, the data channel and video; its counts and
its history of packets are kept up, so that its reports and retransmissions are right.

    receive       a receiver's packets, once aiortc has seen the first one of their source
    PacketSender  sends packets of a sender's track

Uses private parts of aiortc 1.16 and aioice 0.13, as `aiortc_hooks` does and with the same test:
`tests/gateway/transport/webrtc/test_media_path.py`.

"""

from __future__ import annotations

import functools
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from aiortc import RTCRtpTransceiver, clock
from aiortc.rtcdtlstransport import State
from aiortc.rtcrtpsender import random_sequence_number
from aiortc.rtp import RTP_HISTORY_SIZE, HeaderExtensions
from aiortc.utils import random32
from pylibsrtp._binding import ffi, lib

from headstart.gateway.runtime.fairness import LoopTimeBudget
from headstart.gateway.transport.webrtc import aiortc_hooks

HEADER = struct.Struct("!BBHLL")
EXTENSION = struct.Struct("!HH")
HEADER_BYTES = HEADER.size
VERSION = 2
COMPONENT = 1  # of ICE: RTP and RTCP share it
RTCP_TYPES = range(192, 224)
"""RFC 5761 §4: a second byte in this range is RTCP."""


Datagram = Callable[[bytes, tuple[Any, ...]], None]
"""A socket's callback: what came, and from where."""


class SoundPacket(msgspec.Struct, frozen=True, gc=False):
    """What is needed of an RTP packet, named as in aiortc's."""

    payload_type: int
    sequence_number: int
    timestamp: int
    ssrc: int
    payload: bytes


def parse(data: bytes) -> SoundPacket | None:
    """An RTP packet (RFC 3550 §5.1) without its header extensions; None: it is malformed."""
    if len(data) < HEADER_BYTES:
        return None
    first, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if first >> 6 != VERSION:
        return None
    start, end = HEADER_BYTES + 4 * (first & 15), len(data)
    if first & 0x10:
        if start + 4 > end:
            return None
        start += 4 + 4 * int.from_bytes(data[start + 2 : start + 4], "big")
    if first & 0x20:
        if start >= end or not data[-1]:
            return None
        end -= data[-1]
    if start > end:
        return None
    return SoundPacket(second & 0x7F, sequence, timestamp, ssrc, data[start:end])


def unprotect(session: Any, size: Any, data: bytes) -> bytes | None:
    """As `pylibsrtp.Session.unprotect`, which allocates a C integer for each packet: here it is
    `size`, an `int *`. None: the packet is forged, was sent twice, or is too long for pylibsrtp."""
    buffer = session._buffer
    if len(data) > len(buffer):
        return None
    size[0] = len(data)
    buffer[0 : len(data)] = data
    if lib.srtp_unprotect(session._srtp[0], session._cdata, size):
        return None
    opened: bytes = buffer[0 : size[0]]
    return opened


def receive(
    receiver: Any,
    on_packet: Callable[[SoundPacket], None],
    share: LoopTimeBudget,
    on_dropped: Callable[[], None],
) -> None:
    """Send the receiver's packets to `on_packet` in the callback of the socket, before aioice tries
    to read them as STUN. The first packet of each source, and what is not RTP of this receiver,
    takes aiortc's way. Their time is charged to
    `share`; packets over it are dropped before they are decrypted. Call when the descriptions are
    set."""
    transport = receiver.transport
    streams: dict[int, Any] = receiver._RTCRtpReceiver__remote_streams
    read_ssrc = struct.Struct("!L").unpack_from
    clock_s, size = time.perf_counter, ffi.new("int *")

    def received(pass_on: Datagram, data: bytes, address: tuple[Any, ...]) -> None:
        stream = None
        if len(data) > HEADER_BYTES and data[0] >> 6 == VERSION and data[1] not in RTCP_TYPES:
            stream = streams.get(read_ssrc(data, 8)[0])
        if stream is None or not receiver._enabled:
            pass_on(data, address)
            return
        began_s = clock_s()
        if not share.admits(began_s):
            on_dropped()
            return
        opened = unprotect(transport._rx_srtp, size, data)
        packet = None if opened is None else parse(opened)
        if packet is not None:
            stream.add(packet)
            on_packet(packet)
        now_s = clock_s()
        share.spend(now_s - began_s, now_s)

    for protocol in transport.transport._connection._protocols:
        protocol.datagram_received = functools.partial(received, protocol.datagram_received)


class PacketSender:
    """Sends one track's packets, in place of aiortc's loop over its frames. Call `send` once that
    loop has asked the track for its first frame: only then is there a connection."""

    def __init__(self, transceiver: RTCRtpTransceiver) -> None:
        self._sender: Any = transceiver.sender
        (codec, *_) = aiortc_hooks.codecs(transceiver)
        assert codec.payloadType is not None
        self._type = codec.payloadType
        self._sequence = random_sequence_number()
        self._origin = random32()
        self._extension: bytes | None = None

    def send(self, payload: bytes, timestamp: int) -> None:
        """Send one packet; `timestamp`: its RTP time, counted from any one instant. Nothing is sent
        over a connection that has ended."""
        sender = self._sender
        transport = sender.transport  # another one after bundling
        pair = transport.transport._connection._nominated.get(COMPONENT)
        if transport._state is not State.CONNECTED or pair is None or not sender._enabled:
            return
        sequence, self._sequence = self._sequence, (self._sequence + 1) & 0xFFFF
        timestamp = (self._origin + timestamp) & 0xFFFFFFFF
        data = self._header(sequence, timestamp) + payload
        pair.protocol.transport.sendto(transport._tx_srtp.protect(data), pair.remote_addr)
        sender._RTCRtpSender__rtp_history[sequence % RTP_HISTORY_SIZE] = _Sent(sequence, data)
        sender._RTCRtpSender__ntp_timestamp = clock.current_ntp_time()
        sender._RTCRtpSender__rtp_timestamp = timestamp
        sender._RTCRtpSender__octet_count += len(payload)
        sender._RTCRtpSender__packet_count += 1

    def _header(self, sequence: int, timestamp: int) -> bytes:
        """With the marker that aiortc sets in each packet of sound, and the only extension that it
        agrees to for sound and that we have a value for."""
        sender = self._sender
        if self._extension is None:
            mid = HeaderExtensions(mid=sender._RTCRtpSender__mid)
            profile, value = sender._RTCRtpSender__rtp_header_extensions_map.set(mid)
            words = EXTENSION.pack(profile, len(value) // 4)
            self._extension = words + value if value else b""
        first = VERSION << 6 | (0x10 if self._extension else 0)
        second = 0x80 | self._type
        return HEADER.pack(first, second, sequence, timestamp, sender._ssrc) + self._extension


class _Sent(NamedTuple):
    """A packet in aiortc's history, from which it is sent again when the peer asks for it."""

    sequence_number: int
    data: bytes

    def serialize(self, _: object) -> bytes:
        return self.data
