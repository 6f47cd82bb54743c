"""One WebRTC call: the peer connection that carries one session, or one stretch of it.

    microphone ── AudioTrack ──▶ runner.hear        runner's channel ◀─▶ data channel "oai-events"
    camera ────── watch ───────▶ runner.see         outgoing ────────▶ our audio track

It lasts until the peer closes, until the peer vanishes (when no audio arrives, the heartbeat sends
a request, and gets no response for 3.5 s), until it failed to connect in time, or until the session
or the server ends it. When `run` returns, no socket, thread or task is left. A session that asked
for resumption waits for its next connection (`headstart.gateway.connection.resume`).

"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import time
from collections import deque
from typing import Any

from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCIceServer,
    RTCPeerConnection,
    RTCRtpReceiver,
    RTCSessionDescription,
)
from aiortc.exceptions import OperationError
from aiortc.sdp import SessionDescription

from headstart.gateway.audio.clock import ns_to_ms
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.connection.resume import ResumableChannel
from headstart.gateway.connection.runner import SessionRunner
from headstart.gateway.runtime import tasks
from headstart.gateway.transport.webrtc import aiortc_hooks, codecs, media_path
from headstart.gateway.transport.webrtc.audio_receiver import ReceivedAudio
from headstart.gateway.transport.webrtc.audio_sender import AudioSender
from headstart.gateway.transport.webrtc.audio_track import AudioTrack
from headstart.gateway.transport.webrtc.call_metrics import CallEnd, CallMetrics
from headstart.gateway.transport.webrtc.channel import EventChannel
from headstart.gateway.transport.webrtc.offer import CANDIDATES_MAX, BadOffer
from headstart.gateway.transport.webrtc.receive_buffer import RTP_SAMPLES_PER_MS, BufferCounters
from headstart.gateway.transport.webrtc.renegotiation import AnsweredOffer
from headstart.gateway.transport.webrtc.rtp_clock import NetworkPath
from headstart.gateway.transport.webrtc.video_track import watch

log = logging.getLogger("headstart.rtc")

ANSWER_WAIT_S = 10.0
"""For gathering our candidates; only an unresponsive STUN or TURN server takes this long."""
CONNECT_WAIT_S = 20.0
ROUND_TRIP_EVERY_S = 2.0
HEARTBEAT_S = 0.5
"""With the 3.5 s of an unanswered request, a vanished peer is noticed within 5 s."""
CLOSE_WAIT_S = 5.0
RECENT_COUNTS = 21
"""One each `HEARTBEAT_S`: ten seconds of them."""


class AnswerTooSlow(Exception):
    """An offer could not be answered in time: the server, or a STUN or TURN server, is too busy."""


class Call:
    """Call `answer` with an offer, then `run` with its session's runner. Create on the running
    loop."""

    def __init__(
        self, call_id: str, ice_servers: list[RTCIceServer], metrics: CallMetrics, offer: str
    ) -> None:
        self.call_id = call_id
        self.channel = EventChannel(
            expected="m=application" in offer, ask=lambda: aiortc_hooks.answers(self._peer)
        )
        self.outgoing = AudioSender()
        self.outgoing.on_failed = self._failed
        self.offer = offer
        self._metrics = metrics
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=ice_servers))
        self._runner: SessionRunner | None = None
        self._audio: AudioTrack | None = None
        self._microphone: RTCRtpReceiver | None = None
        self._counted = BufferCounters()
        self._recent: deque[BufferCounters] = deque(maxlen=RECENT_COUNTS)
        self._path = NetworkPath()
        self._camera: aiortc_hooks.NewestFrame | None = None
        self.answered: AnsweredOffer | None = None
        """What is known of `offer` for as long as others are compared with it."""
        self._end = CallEnd.GONE
        self._alive_ns = 0
        self._peer.on("track", self._on_track)
        self._peer.on("datachannel", self.channel.adopt)
        self._peer.on("connectionstatechange", self._on_state)
        aiortc_hooks.own_connecting(self._peer, self._not_connected)

    async def answer(self) -> str:
        """Returns our SDP with all our candidates. Raises `BadOffer` or `AnswerTooSlow`; the call
        is over then."""
        answering = tasks.awaited(self._answer(), "call answer")
        try:
            async with asyncio.timeout(ANSWER_WAIT_S):
                return await asyncio.shield(answering)
        except TimeoutError as error:
            self._give_up(answering)
            log.warning("an offer could not be answered within %.0f s", ANSWER_WAIT_S)
            raise AnswerTooSlow from error
        except Exception as error:  # aiortc's parser raises many kinds of errors for invalid offers
            await self._close_peer()
            log.info("an offer was refused: %r", error)
            reason = str(error) or type(error).__name__
            if isinstance(error, OperationError):
                reason += f" (audio codecs here: {', '.join(codecs.SOUND)})"
            raise BadOffer(reason) from error
        except asyncio.CancelledError:
            self._give_up(answering)
            raise

    def _give_up(self, answering: asyncio.Task[str]) -> None:
        """Close after an answer that came too late. The task is not cancelled: that would leak the
        sockets that aioice is about to open."""

        async def close() -> None:
            await asyncio.gather(answering, return_exceptions=True)
            await self._close_peer()

        tasks.own(close(), "call close", tasks.nothing_depends_on_it)

    async def close(self) -> None:
        """End a call that was answered and will not `run`."""
        await self._close_peer()

    async def _answer(self) -> str:
        has_sound = re.search(r"^m=audio ", self.offer, re.MULTILINE) is not None
        if has_sound:
            self._peer.addTrack(self.outgoing)
            (transceiver,) = self._peer.getTransceivers()
            transceiver.setCodecPreferences(codecs.preferences())
        await self._peer.setRemoteDescription(RTCSessionDescription(self.offer, "offer"))
        if has_sound:
            self.outgoing.codec = codecs.spoken(aiortc_hooks.codecs(transceiver))
            self.outgoing.send = media_path.PacketSender(transceiver).send
        await self._peer.setLocalDescription(await self._peer.createAnswer())
        aiortc_hooks.ignore_send_after_close(self._peer)
        aiortc_hooks.bound_candidates(self._peer, 2 * CANDIDATES_MAX)
        aiortc_hooks.guard_datagrams(self._peer)
        aiortc_hooks.bound_streams(self._peer)
        answer = _asking_for_fec(str(self._peer.localDescription.sdp))
        if "a=candidate" not in answer:
            raise ValueError("the server has no network address that it could be called at")
        return answer

    async def run(self, runner: SessionRunner, resume_channel: ResumableChannel) -> None:
        """From the answer to the end of the call; its session may continue. Never raises because of
        the peer."""
        self._runner = runner
        self._metrics.calls_open.inc()
        aiortc_hooks.ration(self._peer, runner.share, self._dropped)
        if self._audio is not None and self._microphone is not None:
            media_path.receive(self._microphone, self._audio.receive, runner.share, self._dropped)
        working = {
            "call heartbeat": self._heartbeat(),
            "call path": self._time_path(),
        }
        if self._camera is not None:
            working["camera"] = watch(
                self._camera,
                runner.see,
                lambda: runner.frame_size,
                before=lambda: runner.frame_before,
            )
        owned = [tasks.own(work, name, self._failed) for name, work in working.items()]
        try:
            await resume_channel.carry(self.channel)
        finally:
            for task in owned:
                task.cancel()
            await asyncio.gather(*owned, return_exceptions=True)
            await self._close_peer()
            self._runner = None
            self._count()
            self._metrics.calls_open.dec()
            if self.channel.hangup is not None:
                self._end = CallEnd.SERVER
            self._metrics.calls.labels(self._end).inc()
            log.info("call %s ended: %s", self.call_id, self._end)

    def hang_up(self, end: CallEnd = CallEnd.HANGUP) -> None:
        """End the call; `run` returns soon after."""
        if not self.channel.is_gone:
            self._end = end
            self.channel.finished = end in (CallEnd.HANGUP, CallEnd.SERVER)
            self.channel.mark_closed()

    def _failed(self, error: BaseException) -> None:
        """A part of the call failed: end the session with a reason, and the call with it."""
        if self._runner is not None:
            self._runner.fail(error)
        else:
            self.hang_up(CallEnd.SERVER)

    def _dropped(self) -> None:
        self._metrics.over_share.inc()

    # --- the peer connection's events ------------------------------------------------------------

    def _on_track(self, track: MediaStreamTrack) -> None:
        """Use the first audio track and the first video track; ignore others."""
        (receiver,) = (r for r in self._peer.getReceivers() if r.track is track)
        aiortc_hooks.bound_sources(receiver)
        if track.kind == "audio" and self._audio is None:
            self._microphone = receiver
            self._audio = AudioTrack(self._hear, self._agree(receiver), self._failed)
            aiortc_hooks.tap_packets(receiver, self._audio.receive)
            aiortc_hooks.route_unknown_payloads(receiver, self._audio.receive)
        elif track.kind == "video" and self._camera is None:
            self._camera = aiortc_hooks.newest_frame(receiver)
        else:
            aiortc_hooks.ignore(receiver)

    def _agree(self, receiver: RTCRtpReceiver) -> codecs.Formats:
        """What the microphone's packets may contain."""
        (transceiver,) = (t for t in self._peer.getTransceivers() if t.receiver is receiver)
        agreed = aiortc_hooks.codecs(transceiver)
        media = SessionDescription.parse(self.offer).media
        sections = (m.rtp for m in media if m.kind == "audio")
        offered = [c for rtp in sections if rtp.muxId in ("", transceiver.mid) for c in rtp.codecs]
        agreed += codecs.key_presses(offered, agreed)
        return codecs.formats(offered, agreed)

    def _hear(self, sound: ReceivedAudio) -> bool:
        arrival = None
        if sound.received_ns is not None and sound.timestamp is not None:
            self._is_alive(time.monotonic_ns())
            delay_ns = self._path.delay_ns(sound.timestamp, sound.received_ns)
            departed_ns = None if delay_ns is None else sound.received_ns - delay_ns
            arrival = Arrival(sound.received_ns, departed_ns)
        return self._runner is not None and self._runner.hear(sound.pcm24k, arrival)

    def _on_state(self) -> None:
        log.debug("call %s: %s", self.call_id, self._peer.connectionState)
        if self._peer.connectionState == "connected":
            self._is_alive(time.monotonic_ns())
            if self.answered is not None:
                self.answered.is_connected = True
        elif self._peer.connectionState in ("failed", "closed"):
            self.hang_up(CallEnd.GONE if self._alive_ns else CallEnd.NEVER_CONNECTED)

    def _not_connected(self, error: Exception) -> None:
        """The connection could not be set up; aiortc reports this to nobody."""
        log.warning("call %s could not be connected: %r", self.call_id, error)
        self.hang_up(CallEnd.NEVER_CONNECTED)

    def _is_alive(self, now_ns: int) -> None:
        self._alive_ns = self.outgoing.alive_ns = now_ns

    async def _heartbeat(self) -> None:
        """Checks that the peer is alive. ICE consent takes half a minute to expire; this takes five
        seconds. An audio packet counts as a response. Only an unanswered request ends a call, so
        that a call survives a stall of our own loop."""
        asked_ns = 0
        began_ns = time.monotonic_ns()
        probe: asyncio.Task[bool] | None = None
        try:
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                self._count()
                now_ns = time.monotonic_ns()
                connected = self._peer.connectionState == "connected"
                waits_for_channel = self.channel.expected and not self.channel.is_open
                waited_s = (now_ns - began_ns) / 1e9
                if (not connected or waits_for_channel) and waited_s > CONNECT_WAIT_S:
                    self.hang_up(CallEnd.NEVER_CONNECTED)
                if not connected:
                    continue
                if probe is not None and probe.done():
                    if probe.result():
                        self._is_alive(now_ns)
                    elif self._alive_ns < asked_ns:
                        self.hang_up(CallEnd.VANISHED)
                    probe = None
                if probe is None and now_ns - self._alive_ns >= HEARTBEAT_S * 1e9 / 2:
                    asked_ns = now_ns
                    probe = tasks.awaited(aiortc_hooks.answers(self._peer), "call probe")
        finally:
            if probe is not None:
                probe.cancel()
                await asyncio.gather(probe, return_exceptions=True)

    async def _time_path(self) -> None:
        """Keep the network delay for the latency budget up to date."""
        while True:
            taken_ns = await aiortc_hooks.round_trip_ns(self._peer)
            if taken_ns is not None:
                self._path.answered(taken_ns, time.monotonic_ns())
            await asyncio.sleep(HEARTBEAT_S if taken_ns is None else ROUND_TRIP_EVERY_S)

    def _count(self) -> None:
        if self._audio is not None:
            now = dataclasses.replace(self._audio.intake.counters)
            self._metrics.track(self._counted, now)
            self._counted = now
            self._recent.append(now)
            self._metrics.dropped(self._audio.take_dropped_bytes())
            if now.received:
                round_trip_ns = self._path.round_trip_ns(time.monotonic_ns())
                jitter_ms = ns_to_ms(round(self._path.jitter_ns))
                round_trip_ms = None if round_trip_ns is None else ns_to_ms(round_trip_ns)
                self._metrics.path(jitter_ms, round_trip_ms)

    def state(self, now_ns: int) -> dict[str, float | None] | None:
        """How its sound comes in, for who watches; losses are of the last ten seconds. None: there
        is no microphone."""
        if self._audio is None or not self._recent:
            return None
        first, last = self._recent[0], self._recent[-1]
        lost = last.lost - first.lost
        due = lost + (last.received - last.late) - (first.received - first.late)
        round_trip_ns = self._path.round_trip_ns(now_ns)
        return {
            "lost_share": round(lost / due, 4) if due > 0 else None,
            "jitter_ms": ns_to_ms(round(self._path.jitter_ns)),
            "buffer_ms": round(self._audio.intake.wait_ms, 3),
            "rtt_ms": None if round_trip_ns is None else ns_to_ms(round_trip_ns),
            "concealed_ms": round(last.concealed_samples / RTP_SAMPLES_PER_MS, 3),
        }

    async def _close_peer(self) -> None:
        if self._audio is not None:
            self._audio.close()
        self.outgoing.stop()
        self._peer.remove_all_listeners()
        # Not cancelled: what is closed half way keeps its sockets, and no second try closes them.
        closing = tasks.own(self._peer.close(), "call close", tasks.nothing_depends_on_it)
        await asyncio.wait({closing}, timeout=CLOSE_WAIT_S)
        if not closing.done():
            log.warning("call %s: its connection did not close in time", self.call_id)


def _asking_for_fec(sdp: str) -> str:
    """Ask the peer's Opus encoder for in-band FEC (RFC 7587 §6.1): a lost packet can then be
    recovered from the next one. aiortc has no setting for it."""
    return re.sub(r"(a=rtpmap:(\d+) opus/48000/2\r\n)", r"\1a=fmtp:\2 useinbandfec=1\r\n", sdp)


def describe_ice(urls: str, username: str, credential: str) -> list[RTCIceServer]:
    """The settings in aiortc's form; if empty, only our own addresses are offered."""
    facts: dict[str, Any] = {"username": username, "credential": credential} if username else {}
    return [RTCIceServer(urls=url, **facts) for url in urls.split()]
