"""Private parts of aiortc and aioice, where they offer no public API. Only this module,
`media_path`, which carries sound, and `steady_time`, which sets their clock, use any.

    tap_packets   an `RTCRtpReceiver`'s RTP packets, in place of its jitter buffer and decoder
    tee_packets   the same, in addition to the receiver's own processing
    ignore        drop an unused track, at no cost in memory or decoding
    route_unknown_payloads  packets of a receiver's sources that it would drop
    codecs        a transceiver's negotiated codecs; more can be added
    newest_frame  the newest frame of a video track, however slow the reader is
    answers       whether the peer responds on the network now
    round_trip_ns how long its response takes
    log_relay_failures  log why a TURN server gave no relay
    refuse_broken_stun  requests of strangers that aioice cannot read
    ration        a call's media packets within its session's share of the loop
    ignore_send_after_close  data channel packets sent after the connection closed
    sockets_of    how many sockets a call opens
    own_connecting    errors while a connection is set up
    bound_candidates  how many addresses a peer can add
    guard_datagrams   datagrams that would end a call or fill the memory, whoever sent them
    bound_sources     of how many sources a receiver reports; its reports may fail
    bound_streams     of how many sources a transport keeps what it needs to decrypt them

Written for aiortc 1.16 and aioice 0.13. `tests/gateway/transport/webrtc/test_aiortc_hooks.py` names
each private part, so that a release that moves one fails there and not in a call. Functions that
concern a track are called in the `track` event, before the receiver has started.

"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import struct
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
"""Encoded frames that may wait for the decoder: one second's. Beyond that it cannot catch up."""
PROBE_RETRANSMISSIONS = 2
"""At 0, 0.5 and 1.5 s; the last answer may take until 3.5 s after the first request."""
RTP_FIRST_BYTES = range(128, 192)
"""RFC 7983 §7: a datagram whose first byte is in this range is RTP or RTCP."""
SOURCES_MAX = 31
"""As many as one report has room for: RFC 3550 §6.4.1."""
STREAMS_MAX = 2 * SOURCES_MAX + 2
"""Of a transport: those of a microphone and a camera, and of who only sends reports."""
SRTP_BYTES_MAX = 1500
"""The longest packet that pylibsrtp decrypts; it raises `ValueError` for longer ones."""
SSRC_AT, RTCP_SSRC_AT = 8, 4
"""In a packet's header: RFC 3550 §5.1, §6.1."""
DROPPED_AT_ONCE = 32
WAITING_MAX = 2048
"""Datagrams: twelve seconds of a microphone and some of a camera, delayed by the network."""
QUEUED_MAX = 2 * WAITING_MAX
"""Datagrams of any kind, from anyone. Media is dropped before (`ration`)."""
TIMED_RETRANSMISSIONS = 1
"""At 0 and 0.5 s, until 1.5 s: longer round trips are not measured."""


def tap_packets(receiver: Any, on_packet: PacketHandler) -> None:
    """Send the receiver's packets only to `on_packet`, on the loop and in network order. The
    receiver continues to send its reports. `media_path.receive` shortens the way to it."""
    receiver._RTCRtpReceiver__jitter_buffer = _Tap(receiver, on_packet)


def tee_packets(receiver: Any, on_packet: PacketHandler) -> None:
    """As `tap_packets`, but the receiver also processes the packets as usual."""
    receiver._RTCRtpReceiver__jitter_buffer = _TeeBuffer(
        receiver._RTCRtpReceiver__jitter_buffer, on_packet
    )


def route_unknown_payloads(receiver: Any, on_packet: PacketHandler) -> None:
    """Send packets of one of the receiver's sources whose payload type was not negotiated to
    `on_packet`. Without this they are dropped without trace."""
    router = receiver.transport._rtp_router
    route = router.route_rtp

    def routed(packet: RtpPacket) -> Any:
        found = route(packet)
        if found is None and router.ssrc_table.get(packet.ssrc) is receiver:
            on_packet(packet)
        return found

    router.route_rtp = routed


def bound_sources(receiver: Any) -> None:
    """Count and report the packets of the newest `SOURCES_MAX` sources only. A report on more
    becomes too long to send, which ends the task that makes reports, and then the receiver waits
    for that task forever when it is stopped. Should it end otherwise, the receiver still stops. An
    estimate of the bit rate that names more than 255 sources ends the connection."""
    receiver._RTCRtpReceiver__remote_streams = _NewestSources()
    receiver._RTCRtpReceiver__active_ssrc = _NewestSources()
    receiver._RTCRtpReceiver__lsr = _NewestSources()  # of a sender's reports
    receiver._RTCRtpReceiver__lsr_time = _NewestSources()
    estimator = receiver._RTCRtpReceiver__remote_bitrate_estimator
    if estimator is not None:  # of pictures
        estimator.ssrcs = _NewestSources()
    run = receiver._run_rtcp

    async def owned() -> None:
        try:
            await run()
        except Exception as error:
            log.warning("a receiver sends no more reports: %r", error)
            receiver._RTCRtpReceiver__rtcp_exited.set()

    receiver._run_rtcp = owned


def bound_streams(peer: RTCPeerConnection) -> None:
    """Keep what is needed to decrypt and route the newest `STREAMS_MAX` sources of a transport,
    and those that a receiver reports on (`bound_sources`). libsrtp makes a stream for each source
    of which it has authenticated a packet, and searches them one by one; aiortc adds an entry to a
    table. Neither forgets one before the call ends. Call when the descriptions are set."""
    for transport in _transports(peer):
        transport._setup_srtp = functools.partial(
            _bounded_streams, transport, transport._setup_srtp
        )


def _bounded_streams(transport: Any, set_up: Callable[[], None]) -> None:
    set_up()
    session, router = transport._rx_srtp, transport._rtp_router
    seen: dict[int, None] = {}  # by SSRC, the newest last

    def note(ssrc: int) -> None:
        seen.pop(ssrc, None)
        seen[ssrc] = None
        if len(seen) <= STREAMS_MAX:
            return
        # These may have come past aiortc's tasks since, and so past here (`media_path.receive`).
        active = {s for r in router.receivers for s in r._RTCRtpReceiver__remote_streams}
        idle = next((each for each in seen if each != ssrc and each not in active), None)
        if idle is not None:
            del seen[idle]
            router.ssrc_table.pop(idle, None)
            session.remove_stream(idle)

    def noting(unprotect: Callable[[bytes], bytes], at: int) -> Callable[[bytes], bytes]:
        def noted(data: bytes) -> bytes:
            packet = unprotect(data)  # raises an error for what is forged: that makes no stream
            note(int.from_bytes(packet[at : at + 4], "big"))
            return packet

        return noted

    session.unprotect = noting(session.unprotect, SSRC_AT)
    session.unprotect_rtcp = noting(session.unprotect_rtcp, RTCP_SSRC_AT)


def codecs(transceiver: Any) -> list[RTCRtpCodecParameters]:
    """The codecs that both sides support, the preferred first, once the peer's description is set.
    Codecs added to the list will be in our answer."""
    agreed: list[RTCRtpCodecParameters] = transceiver._codecs
    return agreed


def ignore(receiver: Any) -> None:
    """Drop what the receiver receives."""
    tap_packets(receiver, lambda _: None)


def newest_frame(receiver: Any) -> NewestFrame:
    """Redirect the receiver's decoded frames to the returned object."""
    newest = NewestFrame()
    receiver.track._queue = newest
    receiver._RTCRtpReceiver__decoder_queue = _BoundedQueue(
        receiver._RTCRtpReceiver__decoder_error.set
    )
    return newest


async def answers(peer: RTCPeerConnection) -> bool:
    """Send the peer a consent request (RFC 7675) on the pair in use. False: no response within 3.5
    s, or not connected."""
    return await _asked(peer, PROBE_RETRANSMISSIONS)


async def round_trip_ns(peer: RTCPeerConnection) -> int | None:
    """The round trip of a consent request, on the path that audio takes. None: no response within
    1.5 s, or not connected."""
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
                pass  # an error response is a response too
            except OSError:
                continue  # its socket is already closed
            return True
    return False


def log_relay_failures() -> None:
    """Log a line with the reason for each TURN server that gives no relay. aioice itself continues
    without it and logs nothing. For the whole process, called once."""
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
    except asyncio.CancelledError:  # gathering timed out
        log.warning("the TURN server %s does not answer", server)
        raise


def refuse_broken_stun() -> None:
    """Let a STUN message with an attribute of the wrong length raise `ValueError`, as other broken
    ones do, which aioice expects. The `struct.error` that it raises itself is logged by the event
    loop, with a traceback for each datagram. For the whole process, called once."""
    read: Any = stun.parse_message
    if not isinstance(read, functools.partial):
        stun.parse_message = functools.partial(_read_stun, read)


def _read_stun(read: Callable[[bytes], stun.Message], data: bytes) -> stun.Message:
    try:
        return read(data)
    except struct.error as error:
        raise ValueError(f"broken STUN attribute: {error}") from error


def ignore_send_after_close(peer: RTCPeerConnection) -> None:
    """Drop SCTP packets sent after the connection below it has closed. SCTP sends from its own
    tasks and timers, where each send would raise an exception that nobody can catch. Call when the
    descriptions are set."""
    if peer.sctp is None:
        return
    transport: Any = peer.sctp.transport
    send = transport._send_data

    async def lossy(data: bytes) -> None:
        with contextlib.suppress(ConnectionError, SSL.Error):  # closed, or the peer is closing
            await send(data)

    transport._send_data = lossy


def sockets_of(transports: int, servers: Sequence[RTCIceServer]) -> int:
    """How many sockets a call opens: one per local address and per relay."""
    relays = sum(str(server.urls).startswith("turn") for server in servers)
    return transports * (len(ice.get_host_addresses(use_ipv4=True, use_ipv6=True)) + relays)


def own_connecting(peer: Any, failed: Callable[[Exception], None]) -> None:
    """Call `failed` with the error that ends the connecting task, which aiortc does not await. Call
    before the descriptions are set."""
    connect = peer._RTCPeerConnection__connect

    async def owned() -> None:
        try:
            await connect()
        except Exception as error:
            failed(error)

    peer._RTCPeerConnection__connect = owned


def bound_candidates(peer: RTCPeerConnection, count_max: int) -> None:
    """Limit the remote candidates of each transport to `count_max`. Anyone who knows a call's
    credentials can send checks from any address, even a forged one, and each new address is checked
    in return with seven packets. Call when the descriptions are set."""
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


def guard_datagrams(peer: RTCPeerConnection) -> None:
    """Drop datagrams on which aiortc's task raises an exception, which ends the connection: empty
    ones, and RTP longer than `SRTP_BYTES_MAX`. They come before any key is checked, so anyone who
    can reach the port could end a call with one. Also drop what comes while `QUEUED_MAX` wait:
    nothing is read before the peer connects. Call when the descriptions are set."""
    for connection in _connections(peer):
        receive, queued = connection.data_received, connection._queue.qsize
        connection.data_received = functools.partial(_received, receive, queued)


def _received(
    pass_on: Callable[[bytes, int], None], queued: Callable[[], int], data: bytes, component: int
) -> None:
    fatal = not data or (data[0] in RTP_FIRST_BYTES and len(data) > SRTP_BYTES_MAX)
    if not fatal and queued() < QUEUED_MAX:
        pass_on(data, component)


def ration(peer: RTCPeerConnection, share: LoopTimeBudget, on_dropped: Callable[[], None]) -> None:
    """Charge the time of RTP and RTCP packets to `share`, and drop packets over it before they are
    decrypted. Other tasks run in between. Packets that arrive meanwhile wait in a queue of aioice
    without a bound, so packets are also dropped while it holds more than `WAITING_MAX`."""
    for transport in _transports(peer):
        ice: Any = transport.transport
        ice._recv = _rationed(ice._recv, ice._connection._queue.qsize, share, on_dropped)


def _rationed(
    receive: Callable[[], Awaitable[bytes]],
    waiting: Callable[[], int],
    share: LoopTimeBudget,
    on_dropped: Callable[[], None],
) -> Callable[[], Awaitable[bytes]]:
    """Returns the next datagram. Calling it means that the previous one is processed."""
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
    """Replaces a receiver's jitter buffer, and never completes a frame."""

    def __init__(self, receiver: Any, on_packet: PacketHandler) -> None:
        self._receiver = receiver
        self._on_packet = on_packet
        self._first = True

    def add(self, packet: RtpPacket) -> tuple[bool, None]:
        if self._first:  # the receiver has started its decoder thread, which is not needed
            self._first = False
            self._receiver._RTCRtpReceiver__stop_decoder()
        self._on_packet(packet)
        return False, None


class _NewestSources(dict[int, Any]):
    """By SSRC. A new source beyond `SOURCES_MAX` takes the place of the oldest."""

    def __setitem__(self, ssrc: int, value: Any) -> None:
        if ssrc not in self and len(self) >= SOURCES_MAX:
            del self[next(iter(self))]
        super().__setitem__(ssrc, value)


class _TeeBuffer:
    """A jitter buffer that also passes its packets to a listener."""

    def __init__(self, buffer: JitterBuffer, on_packet: PacketHandler) -> None:
        self._buffer = buffer
        self._on_packet = on_packet

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        self._on_packet(packet)
        return self._buffer.add(packet)


class NewestFrame:
    """Replaces a track's unbounded frame queue: holds only the newest frame."""

    def __init__(self) -> None:
        self.frames = 0
        self._frame: VideoFrame | None = None

    async def put(self, frame: VideoFrame | None) -> None:
        """Called by the receiver; None is the end of the track."""
        self._frame = frame
        self.frames += frame is not None

    def take(self) -> VideoFrame | None:
        """The newest frame not taken yet; None: there is none."""
        frame, self._frame = self._frame, None
        return frame


class _BoundedQueue(queue.Queue[Any]):
    """Encoded frames on their way to the decoder thread. When full, a new frame is dropped and the
    sender is asked for a key frame, from which the decoder can continue. The end (None) goes ahead
    of queued frames, because the event loop blocks until the thread has seen it."""

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
