"""The one place that reaches into aiortc's and aioice's private parts, for what they offer no
public way to.

    tap_packets   an `RTCRtpReceiver`'s RTP packets, before its jitter buffer and its decoder
    tee_packets   the same, beside the receiver's own way with them
    ignore        a track nobody reads, at no cost in memory or in decoding
    route_unknown_payloads  packets of a receiver's sources that it would drop unseen
    codecs        what was agreed on for a transceiver; more of it may be agreed to
    newest_frame  a video track of which only the newest picture is kept, whoever is slow
    answers       whether the peer answers on the network right now
    round_trip_ns how long its answer takes
    tell_of_relay what became of a TURN server that gave no relay
    ration        a call's media packets under its session's share of the loop
    lose_late     what the data channel still sends once the connection is closed
    sockets_of    how many a call opens
    own_connecting    what fails while a connection is set up
    bound_candidates  how many addresses a peer can make us know

Written for aiortc 1.16 and aioice 0.13. `tests/gateway/transport/webrtc/test_aiortc_hooks.py` names
each private part, so that a release that moves one says so there and not in a call. What is about a
track is called in the `track` event, before the receiver has started.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aioice import ice, stun
from aiortc import RTCIceServer, RTCPeerConnection, RTCRtpCodecParameters
from aiortc.jitterbuffer import JitterBuffer, JitterFrame
from aiortc.rtp import RtpPacket
from av import VideoFrame
from OpenSSL import SSL

from headstart.gateway.runtime.fairness import TURN_S, LoopTimeBudget

log = logging.getLogger("headstart.rtc")

PacketHandler = Callable[[RtpPacket], None]

ENCODED_FRAMES_MAX = 30
"""Encoded pictures that may wait for the decoder: a second's; then it is behind for good."""
PROBE_RETRANSMISSIONS = 2
"""At 0, 0.5 and 1.5 s; the last answer may take until 3.5 s after the first request."""
RTP_FIRST_BYTES = range(128, 192)
"""RFC 7983 §7: such a datagram is RTP or RTCP, and any other something else."""
DROPPED_AT_ONCE = 32
WAITING_MAX = 2048
"""Datagrams: twelve seconds of a microphone, and some of a camera, that a network held up."""
TIMED_RETRANSMISSIONS = 1
"""At 0 and 0.5 s, until 1.5 s: longer round trips are not known."""


def tap_packets(receiver: Any, on_packet: PacketHandler) -> None:
    """From now on the receiver's packets go to `on_packet` on the loop, in the order in which they
    come off the network, and nowhere else. The receiver goes on sending its reports."""
    receiver._RTCRtpReceiver__jitter_buffer = _Tap(receiver, on_packet)


def tee_packets(receiver: Any, on_packet: PacketHandler) -> None:
    """As `tap_packets`, but the receiver goes on with the packets as if nobody listened."""
    receiver._RTCRtpReceiver__jitter_buffer = _Overhearing(
        receiver._RTCRtpReceiver__jitter_buffer, on_packet
    )


def route_unknown_payloads(receiver: Any, on_packet: PacketHandler) -> None:
    """From now on packets that come from one of the receiver's sources, and are of a payload type
    nobody has agreed to, go to `on_packet`; without it nobody knows of them."""
    router = receiver.transport._rtp_router
    route = router.route_rtp

    def routed(packet: RtpPacket) -> Any:
        found = route(packet)
        if found is None and router.ssrc_table.get(packet.ssrc) is receiver:
            on_packet(packet)
        return found

    router.route_rtp = routed


def codecs(transceiver: Any) -> list[RTCRtpCodecParameters]:
    """Once the peer's description is set: what both have, the preferred first. What is added to
    the list will be in our answer."""
    agreed: list[RTCRtpCodecParameters] = transceiver._codecs
    return agreed


def ignore(receiver: Any) -> None:
    """Drop what the receiver receives."""
    tap_packets(receiver, lambda _: None)


def newest_frame(receiver: Any) -> NewestFrame:
    """Where the receiver's decoded pictures go from now on."""
    newest = NewestFrame()
    receiver.track._queue = newest
    receiver._RTCRtpReceiver__decoder_queue = _BoundedQueue(
        receiver._RTCRtpReceiver__decoder_error.set
    )
    return newest


async def answers(peer: RTCPeerConnection) -> bool:
    """Ask the peer for consent to send (RFC 7675) on the pair in use. False: no answer within
    3.5 s, or nothing is connected."""
    return await _asked(peer, PROBE_RETRANSMISSIONS)


async def round_trip_ns(peer: RTCPeerConnection) -> int | None:
    """From the same question to its answer, on the path that sound takes. None: there was none in
    1.5 s, or nothing is connected."""
    began_ns = time.monotonic_ns()
    answered = await _asked(peer, TIMED_RETRANSMISSIONS)
    return time.monotonic_ns() - began_ns if answered else None


async def _asked(peer: RTCPeerConnection, retransmissions: int) -> bool:
    for connection in _connections(peer):
        for pair in list(connection._nominated.values()):
            request = connection.build_request(pair, nominate=False)
            try:
                await pair.protocol.request(
                    request,
                    pair.remote_addr,
                    integrity_key=connection.remote_password.encode(),
                    retransmissions=retransmissions,
                )
            except stun.TransactionTimeout:
                continue
            except stun.TransactionFailed:
                pass  # a refusal is an answer
            except OSError:
                continue  # its socket is closed already
            return True
    return False


def tell_of_relay() -> None:
    """From now on the log has a line for each TURN server that gives no relay, and why; aioice goes
    on with what else there is and says nothing. For the whole process, once."""
    ask = ice.relayed_candidate
    if isinstance(ask, functools.partial):
        return
    ice.relayed_candidate = functools.partial(_relayed, ask)


async def _relayed(ask: Any, /, **options: Any) -> Any:
    host, port = options["turn_server"]
    server = f"{host}:{port}"
    try:
        return await ask(**options)
    except stun.TransactionFailed as failed:
        code, reason = failed.response.attributes.get("ERROR-CODE", (0, "without a reason"))
        hint = " (turn_username, turn_credential)" if code in (401, 403, 431, 441) else ""
        log.warning("the TURN server %s refuses us: %d %s%s", server, code, reason, hint)
        raise
    except (stun.TransactionTimeout, OSError) as error:
        log.warning("the TURN server %s gives no relay: %s", server, error)
        raise
    except asyncio.CancelledError:  # gathering has waited long enough
        log.warning("the TURN server %s does not answer", server)
        raise


def ignore_send_after_close(peer: RTCPeerConnection) -> None:
    """SCTP sends from tasks and timers of its own. Once the connection below it is closed, each of
    them ended in an exception that nobody could catch; now such a packet is lost, as on a network.
    Call when the descriptions are set."""
    if peer.sctp is None:
        return
    transport: Any = peer.sctp.transport
    send = transport._send_data

    async def lossy(data: bytes) -> None:
        with contextlib.suppress(ConnectionError, SSL.Error):  # closed, or the peer is closing
            await send(data)

    transport._send_data = lossy


def sockets_of(transports: int, servers: Sequence[RTCIceServer]) -> int:
    """How many sockets a call opens: one for each address of this machine and each relay."""
    relays = sum(str(server.urls).startswith("turn") for server in servers)
    return transports * (len(ice.get_host_addresses(use_ipv4=True, use_ipv6=True)) + relays)


def own_connecting(peer: Any, failed: Callable[[Exception], None]) -> None:
    """From now on `failed` is told what ends the task that connects, transport after transport;
    nobody else waits for it. Call before the descriptions are set."""
    connect = peer._RTCPeerConnection__connect

    async def owned() -> None:
        try:
            await connect()
        except Exception as error:
            failed(error)

    peer._RTCPeerConnection__connect = owned


def bound_candidates(peer: RTCPeerConnection, count_max: int) -> None:
    """Whoever knows a call's credentials can send checks from any address, true or not, and each
    new one is checked in return, seven packets. From now on there are at most so many a transport.
    Call when the descriptions are set."""
    for connection in _connections(peer):
        connection.check_incoming = functools.partial(
            _check_incoming, connection, connection.check_incoming, count_max
        )


def _check_incoming(
    connection: Any, check: Any, count_max: int, message: Any, addr: tuple[str, int], protocol: Any
) -> None:
    known = connection._remote_candidates
    if len(known) < count_max or any((c._network_host, c.port) == addr for c in known):
        check(message, addr, protocol)


def ration(peer: RTCPeerConnection, share: LoopTimeBudget, on_dropped: Callable[[], None]) -> None:
    """From now on the time that RTP and RTCP packets take is spent of `share`, and what it does not
    admit is dropped before it is decrypted. Others have their turn in between, whatever comes; what
    comes meanwhile waits in a queue of aioice's, which has no bound, so that packets are dropped
    too while more than `WAITING_MAX` are in it."""
    for transport in _transports(peer):
        ice: Any = transport.transport
        ice._recv = _rationed(ice._recv, ice._connection._queue.qsize, share, on_dropped)


def _rationed(
    receive: Callable[[], Awaitable[bytes]],
    waiting: Callable[[], int],
    share: LoopTimeBudget,
    on_dropped: Callable[[], None],
) -> Callable[[], Awaitable[bytes]]:
    """The next datagram. Whoever asks for it is through with the last one."""
    began_s: float | None = None
    turn_s = 0.0
    dropped = 0

    async def next_datagram() -> bytes:
        nonlocal began_s, turn_s, dropped
        if began_s is not None:
            now_s = time.perf_counter()
            took_s, began_s = now_s - began_s, None
            share.spend(took_s, now_s)
            turn_s += took_s
            if turn_s >= TURN_S:
                turn_s = 0.0
                await asyncio.sleep(0)
        while True:
            data = await receive()
            if not RTP_FIRST_BYTES.start <= data[0] < RTP_FIRST_BYTES.stop:
                return data
            now_s = time.perf_counter()
            if waiting() <= WAITING_MAX and share.admits(now_s):
                began_s = now_s
                return data
            on_dropped()
            dropped += 1
            if dropped % DROPPED_AT_ONCE == 0:
                await asyncio.sleep(0)

    return next_datagram


def _transports(peer: RTCPeerConnection) -> set[Any]:
    transports = {t.receiver.transport for t in peer.getTransceivers()}
    if peer.sctp is not None:
        transports.add(peer.sctp.transport)
    return transports


def _connections(peer: RTCPeerConnection) -> set[Any]:
    return {transport.transport._connection for transport in _transports(peer)}


class _Tap:
    """Stands where a receiver has its jitter buffer, and never completes a frame."""

    def __init__(self, receiver: Any, on_packet: PacketHandler) -> None:
        self._receiver = receiver
        self._on_packet = on_packet
        self._first = True

    def add(self, packet: RtpPacket) -> tuple[bool, None]:
        if self._first:  # the receiver has started its decoder's thread, which has nothing to do
            self._first = False
            self._receiver._RTCRtpReceiver__stop_decoder()
        self._on_packet(packet)
        return False, None


class _Overhearing:
    """A jitter buffer with a listener."""

    def __init__(self, buffer: JitterBuffer, on_packet: PacketHandler) -> None:
        self._buffer = buffer
        self._on_packet = on_packet

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        self._on_packet(packet)
        return self._buffer.add(packet)


class NewestFrame:
    """Stands where a track has its unbounded queue of pictures: holds one, the newest."""

    def __init__(self) -> None:
        self.frames = 0
        self._frame: VideoFrame | None = None

    async def put(self, frame: VideoFrame | None) -> None:
        """Called by the receiver; None is the end of the track."""
        self._frame = frame
        self.frames += frame is not None

    def take(self) -> VideoFrame | None:
        """The newest picture that has not been taken; None: there is none."""
        frame, self._frame = self._frame, None
        return frame


class _BoundedQueue(queue.Queue[Any]):
    """Encoded pictures on their way to the decoder's thread. When it is full the new one is
    dropped, and the sender is asked for a key frame, with which the decoder can go on. The end
    (None) overtakes what waits: the event loop stands still until the thread has seen it."""

    def __init__(self, on_overflow: Callable[[], None]) -> None:
        super().__init__()
        self._on_overflow = on_overflow

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is None:
            with self.mutex:
                self.queue.clear()
        elif self.qsize() >= ENCODED_FRAMES_MAX:
            self._on_overflow()
            return
        super().put(item)
