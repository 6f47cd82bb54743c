import asyncio
import contextlib
import inspect
import struct
import threading
from collections.abc import Callable
from typing import Any

import av
import pylibsrtp
import pytest
from aioice import ice, stun
from aiortc import (
    MediaStreamTrack,
    RTCPeerConnection,
    RTCSessionDescription,
    rate,
    rtcdtlstransport,
    rtcicetransport,
    rtcrtpreceiver,
)
from aiortc.rtcrtpreceiver import RemoteStreamTrack, RTCRtpReceiver
from aiortc.rtcsctptransport import InitChunk
from aiortc.rtp import RtcpSenderInfo, RtcpSrPacket, RtpPacket

from headstart.gateway.runtime.fairness import BURST_S, RESERVE_S, SHARE, TURN_S, LoopTimeBudget
from headstart.gateway.transport.webrtc import aiortc_hooks
from headstart.gateway.transport.webrtc.aiortc_hooks import (
    ENCODED_FRAMES_MAX,
    QUEUED_MAX,
    SOURCES_MAX,
    STREAMS_MAX,
    WAITING_MAX,
    NewestFrame,
    _BoundedQueue,
)
from headstart.gateway.transport.webrtc.call import describe_ice
from tests.gateway.shell_fakes import until
from tests.gateway.transport.webrtc.peer import (
    Camera,
    Microphone,
    change_packets,
    ice_connections,
    offer_of,
    prepared,
)

PRIVATE = ("jitter_buffer", "decoder_queue", "decoder_error", "decoder_thread", "stop_decoder")


def test_aiortc_still_has_the_parts_that_are_reached_into() -> None:
    """If this fails, a release of aiortc or aioice has moved something: mend aiortc_hooks.py.
    Everything else here may then fail for that reason alone."""
    source = inspect.getsource(RTCRtpReceiver)
    for name in PRIVATE:
        assert f"self.__{name}" in source or f"def __{name}" in source, name
    assert "self.__jitter_buffer.add(packet)" in source
    assert "self.__decoder_queue.put(" in source
    assert "self._track._queue" in source
    assert isinstance(RemoteStreamTrack("video")._queue, asyncio.Queue)
    assert "transceiver._codecs = common" in inspect.getsource(RTCPeerConnection)
    dtls = inspect.getsource(rtcdtlstransport)
    assert "receiver = self._rtp_router.route_rtp(packet)" in dtls
    assert "ssrc_receiver = self.ssrc_table.get(packet.ssrc)" in dtls
    assert "ensure_future(self.__connect())" in inspect.getsource(RTCPeerConnection)
    connection = inspect.getsource(ice.Connection)
    assert "self.check_incoming(message, addr, protocol)" in connection
    assert "self.check_incoming(*early_check)" in connection
    assert "c._network_host == addr[0] and c.port == addr[1]" in connection
    assert "self._remote_candidates.append(remote_candidate)" in connection
    assert "relayed_candidate(" in connection
    assert "data = await self.transport._recv()" in dtls
    assert "first_byte > 127 and first_byte < 192" in dtls
    assert "self._queue.put_nowait((data, component))" in connection
    assert "message = stun.parse_message(data)" in inspect.getsource(ice)
    assert "self._queue.get()" in inspect.getsource(ice.Connection.recvfrom)
    assert "self._recv = self._connection.recv" in inspect.getsource(rtcicetransport)
    assert "self.__remote_streams[packet.ssrc] = StreamStatistics" in source
    assert "self.__active_ssrc[packet.ssrc] = " in source
    assert "self.__lsr[packet.ssrc] = " in source
    assert "self.__lsr_time[packet.ssrc] = " in source
    assert "self.ssrcs[ssrc] = " in inspect.getsource(rate.RemoteBitrateEstimator)
    assert "ensure_future(self._run_rtcp())" in source
    assert "await self.__rtcp_exited.wait()" in source
    assert "self._setup_srtp()" in dtls
    assert "data = self._rx_srtp.unprotect_rtcp(data)" in dtls
    assert "data = self._rx_srtp.unprotect(data)" in dtls
    worker = inspect.getsource(rtcrtpreceiver.decoder_worker)
    assert "input_q.get()" in worker
    assert "output_q.put(frame)" in worker
    assert 'name=self.__kind + "-decoder"' in source  # how `decoders` below finds them


async def _pair(
    track: MediaStreamTrack,
    on_receiver: Any,
    bound: Callable[[RTCPeerConnection], None] = lambda _: None,
) -> tuple[RTCPeerConnection, RTCPeerConnection]:
    """A sender of one track and a receiver of it, connected; `on_receiver` and `bound`, for the
    receiving peer, are called in time."""
    sender, receiver = RTCPeerConnection(), RTCPeerConnection()
    sender.addTrack(track)

    @receiver.on("track")
    def on_track(_: MediaStreamTrack) -> None:
        on_receiver(receiver.getReceivers()[0])

    await receiver.setRemoteDescription(RTCSessionDescription(await offer_of(sender), "offer"))
    await receiver.setLocalDescription(await receiver.createAnswer())
    bound(receiver)
    answer = RTCSessionDescription(receiver.localDescription.sdp, "answer")
    await sender.setRemoteDescription(answer)
    await until(lambda: receiver.connectionState == "connected")
    return sender, receiver


def decoders() -> int:
    """aiortc's decoder threads in this process. Our own image decoders are shared by all sessions
    and outlive a test."""
    return sum(
        thread.name in ("audio-decoder", "video-decoder") for thread in threading.enumerate()
    )


async def test_tapped_packets_come_as_they_are() -> None:
    """Payload, numbers and order; nothing is decoded, and the decoder's thread has ended."""
    packets: list[RtpPacket] = []
    before = decoders()
    sender, receiver = await _pair(
        Microphone(), lambda r: aiortc_hooks.tap_packets(r, packets.append)
    )
    await until(lambda: len(packets) >= 10)
    numbers = [packet.sequence_number for packet in packets]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert all(packet.payload for packet in packets)
    assert decoders() == before
    await sender.close()
    await receiver.close()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_receiver_of_many_sources_reports_and_stops(fails: bool) -> None:
    """Each packet is from another source. The newest are reported, and the receiver stops at once,
    also if a report could not be sent."""
    sources: list[int] = []
    reports: list[Any] = []
    speaking: list[Any] = []  # once connected

    def change(packet: RtpPacket) -> None:
        sources.append(packet.ssrc)
        for each in speaking:
            each._ssrc = len(sources)

    async def report(packet: Any) -> None:
        if len(sources) > 3 * SOURCES_MAX:
            reports.append(bytes(packet))
            if fails:
                raise ValueError("packet is too long")

    def prepare(receiver: Any) -> None:
        aiortc_hooks.tap_packets(receiver, change)
        aiortc_hooks.bound_sources(receiver)
        receiver._send_rtcp = report

    sender, receiver = await _pair(Microphone(), prepare)
    speaking += sender.getSenders()
    await until(lambda: bool(reports))
    assert len(set(sources)) > 2 * SOURCES_MAX
    heard: Any = receiver.getReceivers()[0]
    kept = heard._RTCRtpReceiver__remote_streams
    assert len(kept) == SOURCES_MAX
    assert sources[-1] in kept
    assert len(reports[0]) == 8 + 24 * SOURCES_MAX
    async with asyncio.timeout(60):
        await receiver.close()
    await sender.close()


@pytest.mark.parametrize("kind", ["audio", "video"])
async def test_nothing_that_a_receiver_keeps_grows_with_its_sources(kind: str) -> None:
    """A packet and a report of each, at 100 a second. aiortc names those that it has in its
    estimates of the bit rate: 255 have room."""
    peer = RTCPeerConnection()
    receiver: Any = peer.addTransceiver(kind).receiver
    aiortc_hooks.bound_sources(receiver)
    for number in range(1, 400):
        packet = RtpPacket(payload_type=96, ssrc=number)
        packet.extensions.abs_send_time = number * 10 * 2**18 // 1000
        await receiver._handle_rtp_packet(packet, arrival_time_ms=number * 10)
        info = RtcpSenderInfo(ntp_timestamp=0, rtp_timestamp=0, packet_count=1, octet_count=1)
        await receiver._handle_rtcp_packet(RtcpSrPacket(ssrc=number, sender_info=info))
    tables = {name: each for name, each in vars(receiver).items() if isinstance(each, dict)}
    estimator = receiver._RTCRtpReceiver__remote_bitrate_estimator
    if kind == "video":
        tables["estimated"] = estimator.ssrcs
    lengths = {name: len(table) for name, table in tables.items()}
    assert set(lengths.values()) <= {0, 1, SOURCES_MAX}, lengths
    assert lengths["_RTCRtpReceiver__lsr"] == SOURCES_MAX
    await peer.close()


class Router:
    """What is read of aiortc's: its receivers' sources, and its table."""

    def __init__(self, *active: int) -> None:
        receiver = type("Receiver", (), {"_RTCRtpReceiver__remote_streams": dict.fromkeys(active)})
        self.receivers = {receiver()}
        self.ssrc_table: dict[int, object] = {}


def protected(session: pylibsrtp.Session, ssrc: int, *, report: bool = False) -> bytes:
    """A packet, or a report, of that source."""
    if report:
        return session.protect_rtcp(struct.pack("!BBHL", 0x80, 201, 1, ssrc))
    return session.protect(struct.pack("!BBHLL", 0x80, 96, 1, 0, ssrc) + b"sound")


@pytest.mark.parametrize("report", [False, True], ids=["packets", "reports"])
def test_sources_that_are_idle_are_forgotten(report: bool) -> None:
    """By libsrtp itself, and by the router; but not those that a receiver hears, nor the newest.
    What is forged is of no source."""
    key = bytes(range(30))
    ours = pylibsrtp.Session(pylibsrtp.Policy(key, pylibsrtp.Policy.SSRC_ANY_INBOUND))
    theirs = pylibsrtp.Session(pylibsrtp.Policy(key, pylibsrtp.Policy.SSRC_ANY_OUTBOUND))
    router, heard, count = Router(3), 3, 5 * STREAMS_MAX
    transport: Any = type("Transport", (), {"_rtp_router": router})()

    def set_up() -> None:
        transport._rx_srtp = ours

    aiortc_hooks._bounded_streams(transport, set_up)
    open_packet = ours.unprotect_rtcp if report else ours.unprotect
    for ssrc in range(1, count + 1):
        router.ssrc_table[ssrc] = router
        packet = protected(theirs, ssrc, report=report)
        forged = packet[:11] + bytes([packet[11] ^ 0xFF]) + packet[12:]
        with pytest.raises(pylibsrtp.Error):
            open_packet(forged)
        open_packet(packet)
    kept = []
    for ssrc in range(1, count + 1):
        with contextlib.suppress(pylibsrtp.Error):  # there is none
            ours.remove_stream(ssrc)
            kept.append(ssrc)
    assert kept == [heard, *range(count - STREAMS_MAX + 2, count + 1)]
    assert list(router.ssrc_table) == kept


async def test_a_call_of_many_sources_has_a_bound_and_goes_on() -> None:
    """Each packet of a real call is from another source: the newest is heard, and few are known."""
    sources: list[int] = []
    speaking: list[Any] = []  # once connected

    def change(packet: RtpPacket) -> None:
        sources.append(packet.ssrc)
        for each in speaking:
            each._ssrc = len(sources)

    def prepare(receiver: Any) -> None:
        aiortc_hooks.tap_packets(receiver, change)
        aiortc_hooks.bound_sources(receiver)

    sender, receiver = await _pair(Microphone(), prepare, bound=aiortc_hooks.bound_streams)
    speaking += sender.getSenders()
    await until(lambda: len(set(sources)) > 2 * STREAMS_MAX)
    router = receiver.getReceivers()[0].transport._rtp_router
    assert len(router.ssrc_table) <= STREAMS_MAX
    before = len(sources)
    await until(lambda: len(sources) > before + 5)
    await sender.close()
    await receiver.close()


async def test_overheard_packets_are_decoded_all_the_same() -> None:
    """The track has its frames, and the listener every packet."""
    packets: list[RtpPacket] = []
    sender, receiver = await _pair(
        Microphone(), lambda r: aiortc_hooks.tee_packets(r, packets.append)
    )
    frames = [await receiver.getReceivers()[0].track.recv() for _ in range(5)]
    assert [frame.pts for frame in frames] == [i * 960 for i in range(5)]
    assert len(packets) >= 5
    await sender.close()
    await receiver.close()


async def test_strays_are_noticed() -> None:
    """A known source's packets of a payload type nobody agreed on come to the listener, as
    they are; without it they would be dropped unseen."""
    found: list[RtpPacket] = []
    known: list[RtpPacket] = []

    def listen(receiver: Any) -> None:
        aiortc_hooks.tap_packets(receiver, known.append)
        aiortc_hooks.route_unknown_payloads(receiver, found.append)

    microphone = Microphone()
    sender, receiver = await _pair(microphone, listen)
    await until(lambda: known)
    change_packets(sender, lambda data: data[:1] + bytes([77]) + data[2:])
    await until(lambda: len(found) >= 3)
    assert {packet.payload_type for packet in found} == {77}
    assert {packet.ssrc for packet in found} == {known[0].ssrc}
    await sender.close()
    await receiver.close()


async def test_a_video_track_nobody_reads_holds_one_picture() -> None:
    """Pictures come and go; what is kept is the newest, and taking it leaves nothing."""
    kept: list[NewestFrame] = []
    sender, receiver = await _pair(Camera(), lambda r: kept.append(aiortc_hooks.newest_frame(r)))
    await until(lambda: kept[0].frames >= 5)
    frame = kept[0].take()
    assert isinstance(frame, av.VideoFrame)
    assert (frame.width, frame.height) == (320, 240)
    assert kept[0].take() is None
    await sender.close()
    await receiver.close()
    assert decoders() == 0


async def test_an_ignored_track_is_not_decoded() -> None:
    """Its packets are dropped, and no thread waits for them."""
    sender, receiver = await _pair(Camera(), aiortc_hooks.ignore)
    await until(lambda: receiver.getReceivers()[0].getSynchronizationSources())
    await until(lambda: decoders() == 0)
    await sender.close()
    await receiver.close()


def test_a_decoder_that_is_behind_is_told_so_once_it_is_full() -> None:
    """Over the bound new pictures are dropped and a key frame is asked for; the end overtakes."""
    asked: list[bool] = []
    queue = _BoundedQueue(lambda: asked.append(True))
    for i in range(ENCODED_FRAMES_MAX + 3):
        queue.put(i)
    assert queue.qsize() == ENCODED_FRAMES_MAX
    assert len(asked) == 3
    queue.put(None)
    assert queue.get() is None


async def test_a_peer_answers_while_it_is_there() -> None:
    """Yes while connected; no before, and no once its sockets are gone."""
    async with prepared(Microphone()) as lonely:
        assert not await aiortc_hooks.answers(lonely.pc)
    sender, receiver = await _pair(Microphone(), lambda _: None)
    assert await aiortc_hooks.answers(receiver)
    taken_ns = await aiortc_hooks.round_trip_ns(receiver)
    assert taken_ns is not None
    assert 0 < taken_ns < 1.5e9
    await sender.close()
    assert not await aiortc_hooks.answers(receiver)
    assert await aiortc_hooks.round_trip_ns(receiver) is None
    await receiver.close()


@pytest.fixture(autouse=True)
async def no_decoder_is_left() -> Any:
    """No test leaves a thread behind."""
    yield
    await until(lambda: decoders() == 0)


async def test_what_the_channel_sends_too_late_is_lost() -> None:
    """SCTP sends over a closed connection from its timers' tasks: without the hook each of them
    ends in an exception, with it the packet is gone and nothing else happens."""
    peer = RTCPeerConnection()
    peer.createDataChannel("x")
    assert peer.sctp is not None
    peer.sctp._remote_port = 5000
    chunk = InitChunk()
    with pytest.raises(ConnectionError):
        await peer.sctp._send_chunk(chunk)
    aiortc_hooks.ignore_send_after_close(peer)
    await peer.sctp._send_chunk(chunk)
    await peer.close()
    silent = RTCPeerConnection()
    aiortc_hooks.ignore_send_after_close(silent)  # a call without a channel
    await silent.close()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ((401, "Unauthorized"), "refuses us: 401 Unauthorized (turn_username, turn_credential)"),
        ((486, "Allocation Quota Reached"), "refuses us: 486 Allocation Quota Reached"),
        (OSError("no route"), "gives no relay: no route"),
        (stun.TransactionTimeout(), "gives no relay"),
        (asyncio.CancelledError(), "does not answer"),
    ],
)
async def test_a_relay_that_is_missing_is_explained(
    error: Any, line: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line of the log names the server and the reason, and the password never; the error goes
    on to who asked. Hooking in twice says it once."""

    async def relayed_candidate(**_: Any) -> None:
        if isinstance(error, tuple):
            answer = stun.Message(stun.Method.ALLOCATE, stun.Class.ERROR)
            answer.attributes["ERROR-CODE"] = error
            raise stun.TransactionFailed(answer)
        raise error

    monkeypatch.setattr(ice, "relayed_candidate", relayed_candidate)
    aiortc_hooks.log_relay_failures()
    aiortc_hooks.log_relay_failures()
    ask: Any = ice.relayed_candidate
    with pytest.raises((stun.TransactionError, OSError, asyncio.CancelledError)):
        await ask(turn_server=("turn.example", 3478), turn_password="secret")
    (record,) = caplog.records
    assert record.getMessage().startswith("the TURN server turn.example:3478 " + line)
    assert "secret" not in record.getMessage()


async def test_what_fails_while_connecting_is_told() -> None:
    """Once to its owner, and to nobody by way of a task that nobody holds."""
    failures: list[Exception] = []
    receiver = RTCPeerConnection()
    aiortc_hooks.own_connecting(receiver, failures.append)
    async with prepared(Microphone(), data=False) as peer:
        await receiver.setRemoteDescription(RTCSessionDescription(await offer_of(peer.pc), "offer"))
        for transceiver in receiver.getTransceivers():
            transport: Any = transceiver.receiver.transport.transport
            transport.start = None  # what aiortc will call
        await receiver.setLocalDescription(await receiver.createAnswer())
        await until(lambda: failures)
    assert [type(error) for error in failures] == [TypeError]
    await receiver.close()


async def test_the_addresses_a_peer_makes_us_know_are_bounded() -> None:
    """Each check from a new address is checked in return, up to a bound; known ones always are."""
    receiver = RTCPeerConnection()
    async with prepared(Microphone(), data=False) as peer:
        await receiver.setRemoteDescription(RTCSessionDescription(await offer_of(peer.pc), "offer"))
        await receiver.setLocalDescription(await receiver.createAnswer())
        aiortc_hooks.bound_candidates(receiver, 20)
        (connection,) = ice_connections(receiver)
        request = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
        request.attributes["PRIORITY"] = 1
        protocol = connection._protocols[0]
        for number in range(100):
            connection.check_incoming(request, ("192.0.2.1", 10_000 + number), protocol)
        known = connection._remote_candidates
        assert len(known) == 20
        pairs = len(connection._check_list)
        connection.check_incoming(request, ("192.0.2.1", known[-1].port), protocol)
        assert len(connection._check_list) == pairs
        await receiver.close()


async def test_datagrams_that_nobody_reads_are_bounded() -> None:
    """As before the peer connects. What is read makes room."""
    receiver = RTCPeerConnection()
    async with prepared(Microphone(), data=False) as peer:
        await receiver.setRemoteDescription(RTCSessionDescription(await offer_of(peer.pc), "offer"))
        await receiver.setLocalDescription(await receiver.createAnswer())
        aiortc_hooks.guard_datagrams(receiver)
        (connection,) = ice_connections(receiver)
        for _ in range(QUEUED_MAX + 10):
            connection.data_received(DTLS, 1)
        assert connection._queue.qsize() == QUEUED_MAX
        connection._queue.get_nowait()
        connection.data_received(DTLS, 1)
        assert connection._queue.qsize() == QUEUED_MAX
        await receiver.close()


def test_a_broken_stun_message_is_refused_as_aioice_expects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With `ValueError`, whatever is wrong with it; a whole one is read. Twice is once."""
    monkeypatch.setattr(stun, "parse_message", stun.parse_message)
    aiortc_hooks.refuse_broken_stun()
    read: Any = stun.parse_message
    aiortc_hooks.refuse_broken_stun()
    assert stun.parse_message is read
    whole = bytes(stun.Message(stun.Method.BINDING, stun.Class.REQUEST))
    assert read(whole).message_method == stun.Method.BINDING
    priority = b"\x00\x24\x00\x02\x00\x00\x00\x00"  # of two bytes in place of four
    with pytest.raises(ValueError, match="attribute"):
        read(whole[:2] + len(priority).to_bytes(2, "big") + whole[4:20] + priority)


@pytest.mark.parametrize(("urls", "relays"), [("", 0), ("stun:a", 0), ("stun:a turn:b turns:c", 2)])
def test_a_calls_sockets_are_counted(urls: str, relays: int) -> None:
    """One for each address of this machine and each relay, for each transport."""
    servers = describe_ice(urls, "", "")
    addresses = len(ice.get_host_addresses(use_ipv4=True, use_ipv6=True))
    assert aiortc_hooks.sockets_of(3, servers) == 3 * (addresses + relays)


class Datagrams:
    """A transport that has all of them ready, and never keeps its reader waiting."""

    def __init__(self, *datagrams: bytes) -> None:
        self.left = list(datagrams)

    async def receive(self) -> bytes:
        return self.left.pop(0)


RTP, RTCP, DTLS, SCTP = b"\x80\x60 sound", b"\x80\xc8 report", b"\x16 hello", b"\x17 events"


async def test_media_beyond_the_share_is_dropped_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In virtual time: packets of 1 ms each; what is no media always passes, and costs nothing.
    Others have their turn every few packets, worked on or dropped, although none keeps us
    waiting: their longest wait is what is measured."""
    now_s, dropped, taken, waits_s = 0.0, 0, [], []
    monkeypatch.setattr(
        "headstart.gateway.transport.webrtc.aiortc_hooks.time.perf_counter", lambda: now_s
    )

    def drop() -> None:
        nonlocal dropped, now_s
        dropped += 1
        now_s += 0.00002

    async def neighbour() -> None:
        while True:
            before_s = now_s
            await asyncio.sleep(0)
            waits_s.append(now_s - before_s)

    wire = Datagrams(*[DTLS, RTP, RTCP, RTP, SCTP] * 4000)
    receive = aiortc_hooks._rationed(wire.receive, lambda: 0, LoopTimeBudget(0.0), drop)
    waiting = asyncio.create_task(neighbour())
    while wire.left:
        taken.append(await receive())
        now_s += 0.001 if taken[-1] in (RTP, RTCP) else 0.0
    waiting.cancel()
    media = sum(data in (RTP, RTCP) for data in taken)
    assert taken.count(DTLS) == taken.count(SCTP) == 4000
    assert media + dropped == 12_000
    assert media * 0.001 == pytest.approx(now_s * SHARE + BURST_S + RESERVE_S, rel=0.05)
    assert max(waits_s) < TURN_S + 0.0025  # and the packet that overran it, and one before


async def test_what_waits_to_be_read_has_a_bound() -> None:
    """A queue that is longer than that is emptied of media, whatever the share; the rest passes."""
    dropped = 0

    def drop() -> None:
        nonlocal dropped
        dropped += 1

    wire = Datagrams(*[RTP] * 3000, SCTP, RTP)
    receive = aiortc_hooks._rationed(
        wire.receive, lambda: len(wire.left), LoopTimeBudget(0.0), drop
    )
    assert await receive() == RTP
    assert dropped == 3002 - WAITING_MAX - 1
    assert len(wire.left) == WAITING_MAX
    wire.left[:] = [SCTP] * 3000
    assert await receive() == SCTP
