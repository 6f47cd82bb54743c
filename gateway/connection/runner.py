"""The runner between one client's connection and one session core.

    channel ──reader──▶ Session ──actions──▶ SendToEngine: engine link (never blocks)
    tracks ───────────▶ Session              Send: outbound queue ──writer──▶ channel
    engine link ──────▶ Session                    (bypasses both while nothing is queued)
    ticker, TICK_S ───▶ Session              Hangup: after all that is queued

All calls into the session run on the loop, one after the other; none awaits. A channel is a
WebSocket (`headstart.gateway.transport.websocket.channel`) or a WebRTC data channel
(`headstart.gateway.transport.webrtc.channel`). Bounds:

- outbound: `outbound_events` and `outbound_bytes` beyond what the socket holds. When it is full,
  the session is shed with close code 1013 and the queue is dropped: a stream with gaps would be
  worse.
- images: decoded by other processes. The reader waits for an item's images; a camera has one frame
  at a time.
- inbound: the channel's own bound, and a share of the loop's time (`gateway.runtime.fairness`); a
  client over its share is not read for a while. A message over `LONG_CHARS` is parsed on another
  thread. A peer that sends faster than the engine processes is not read either
  (`headstart.gateway.connection.flow_control`), so TCP slows it down.

If a task fails, its session ends with 1011, after all that was queued (`gateway.runtime.tasks`).

"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import pybase64

from headstart.engine import api
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.connection.flow_control import FlowControl
from headstart.gateway.connection.interfaces import Channel, Player, SessionCore
from headstart.gateway.connection.outbound import Bounds, Outbound
from headstart.gateway.connection.unread import ReaderWatch, Wait
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.fairness import LoopTimeBudget
from headstart.gateway.runtime.threads import PARSER
from headstart.gateway.runtime.ticker import Ticker
from headstart.gateway.session.actions import (
    Action,
    ClearPlayout,
    ContinueLater,
    Decode,
    Hangup,
    HoldPlayout,
    Play,
    Send,
    SendToEngine,
    SendToTts,
)
from headstart.gateway.tts.messages import ClauseDone, Speak, SynthesisedAudio, VoiceCommand
from headstart.gateway.tts.status import VoiceStatus
from headstart.gateway.video import decode
from headstart.gateway.video.decode_pool import DECODERS

log = logging.getLogger("headstart.connection")

TICK_S = 0.1
LONG_CHARS = 64 * 1024
CLOSE_GOING_AWAY = 1001
CLOSE_INTERNAL_ERROR = 1011
CLOSE_SERVICE_RESTART = 1012
CLOSE_TRY_AGAIN_LATER = 1013
CREDIT_WAIT_S = 10.0
"""Longest pause of the reader: pongs are read with the messages, and pings time out."""
LAST_WORDS_S = 2.0
"""How long the queued events may take to be written once the session is to end, in s."""


class SessionRunner:
    """Runs one session over its channel. The engine link calls `engine_*`, a call's tracks call
    `hear` and `see`; `hangup` ends it from outside."""

    def __init__(
        self,
        session_id: str,
        channel: Channel,
        session: SessionCore,
        tell: Callable[[api.Command], bool],
        bounds: Bounds,
        now_ns: Callable[[], int] = time.monotonic_ns,
        *,
        send_to_tts: Callable[[VoiceCommand], bool] = lambda _: False,
        player: Player | None = None,
        ticker: Ticker | None = None,
    ) -> None:
        self.session_id = session_id
        self.answering = 0
        """Responses begun and not yet done: a graceful shutdown waits for them."""
        self.shed = False
        self._channel = channel
        self._session = session
        self._tell = tell
        self._send_to_tts = send_to_tts
        self._player: Player | None = None
        self._play_on(player)
        self._now_ns = now_ns
        self._heard_ns = now_ns()
        self._watch = ReaderWatch()
        self.stuck = False
        """The session was ended because its reader was stuck."""
        self._outbound = Outbound(bounds, channel.try_send)
        self._room = asyncio.Event()
        self._flow = FlowControl(self._room.set)
        self.share = LoopTimeBudget(time.perf_counter())
        """Loop time budget for what the client sends, over any path."""
        self._more = False
        self._closed = False
        self._started = False
        self._ready_before: api.Ready | None = None  # the engine was ready before the session began
        self._decoding: set[asyncio.Task[None]] = set()
        self._ordered: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self._ticker = ticker or Ticker(TICK_S)

    async def run(self) -> None:
        """Run until either side closes. Never raises because of the peer."""
        self._call(self._session.start)
        self._started = True
        if self._ready_before is not None:
            self.engine_ready(self._ready_before)
        reader = tasks.own(self._read(), "reader", self.fail)
        self._writer = writer = tasks.own(self._write(), "writer", self.fail)
        end_ticks = self._ticker.add(self._tick, self.fail)
        try:
            await asyncio.wait({reader, writer}, return_when=asyncio.FIRST_COMPLETED)
            if self._outbound.hangup is not None:
                await asyncio.wait({writer}, timeout=LAST_WORDS_S)
        finally:
            self._closed = True
            end_ticks()
            for task in (reader, writer, *self._decoding):
                task.cancel()
            await asyncio.gather(reader, writer, *self._decoding, return_exceptions=True)
            self._guarded(self._session.close)
        if self._outbound.hangup is not None:
            await self._channel.close(self._outbound.hangup)
        self._outbound.forget()  # frees the events now, without waiting for the garbage collector

    @property
    def player(self) -> Player | None:
        """The transport's own playout; None: the client plays."""
        return self._player

    @property
    def waiting_bytes(self) -> int:
        """Size of the events that the peer has not read yet."""
        return self._outbound.waiting_bytes

    def hangup(self, code: int, reason: str) -> None:
        self._outbound.end(Hangup(code, reason), discard=False)

    def fail(self, _: BaseException | None = None) -> None:
        """A part that the session depends on has failed; the failure is already logged."""
        self.hangup(CLOSE_INTERNAL_ERROR, "internal error")

    def resumed(self, player: Player | None, replayed: int | None) -> None:
        """The channel has a new connection, with this playout. Audio left in the old playout moves
        to the new one; it is lost if the client now plays the audio itself."""
        self._call(self._go_on, player, replayed)

    def _go_on(self, player: Player | None, replayed: int | None, now_ns: int) -> list[Action]:
        before = self._player
        if before is not None and player is not None:
            player.take_over(before)
        elif before is not None:
            self._clear_playout()
        self._play_on(player)
        return self._session.resumed(replayed, now_ns)

    def _play_on(self, player: Player | None) -> None:
        self._player = player
        self._session.set_server_plays(player is not None)
        if player is not None:
            player.on_started = lambda: self._playing("started")
            player.on_stopped = lambda: self._playing("stopped")

    # --- the engine's side -----------------------------------------------------------------------

    def engine_event(self, event: api.Event) -> None:
        self._flow.engine_event(event)
        self._call(self._session.receive_engine, event)

    def engine_lost(self) -> None:
        self._flow.reset()
        self._ready_before = None
        self._call(self._session.engine_lost)

    def engine_ready(self, ready: api.Ready) -> None:
        self._flow.reset()
        if self._started:
            self._call(self._session.engine_ready, ready)
        else:
            self._ready_before = ready

    # --- the voice's side ------------------------------------------------------------------------

    def voice_event(self, event: SynthesisedAudio | ClauseDone) -> None:
        self._call(self._session.receive_voice, event)

    def voice_changed(self, status: VoiceStatus) -> None:
        self._call(self._session.voice_changed, status)

    def _playing(self, what: str) -> None:
        assert self._player is not None
        self._call(self._session.playing, what, self._player.sent_samples)

    # --- the tracks' side ------------------------------------------------------------------------

    def hear(self, pcm24k: bytes, arrival: Arrival | None) -> bool:
        """Audio from a track: s16 mono at 24 kHz. `arrival`: None for concealed audio; its
        `captured_ns` is when the packet left the peer, None if unknown. False: dropped, because the
        engine is too far behind and a microphone cannot be slowed down."""
        if self._flow.audio.is_spent:
            return False
        self._heard_ns = now_ns = self._now_ns()
        if self._closed or self._outbound.hangup is not None:
            return True
        # As `_call`, spelled out for what comes fifty times a second.
        try:
            actions = self._session.receive_audio(pcm24k, arrival, now_ns)
            if actions:
                self._carry_out(actions)
        except Exception as error:
            self._broken(error)
        return True

    @property
    def frame_size(self) -> api.PictureSize:
        """The largest useful size of a track's video frames."""
        return self._session.frame_size

    @property
    def frame_before(self) -> bytes | None:
        """What a track's next frame is scored against (`decode.Encoded`)."""
        return self._session.frame_before

    def see(self, decoded: decode.DecodedImage) -> None:
        """A decoded video frame from a track."""
        self._call(self._session.receive_image, decoded)

    # --- calls into the session ------------------------------------------------------------------

    def _call(self, method: Callable[..., list[Action]], *arguments: object) -> None:
        if not self._closed and self._outbound.hangup is None:
            self._guarded(method, *arguments)

    def _guarded(self, method: Callable[..., list[Action]], *arguments: object) -> None:
        try:
            actions = method(*arguments, self._now_ns())
            if actions:
                self._carry_out(actions)
        except Exception as error:
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        """An internal error: end this session only."""
        log.error("session %s: internal error", self.session_id)
        tasks.report("session", error)
        self.fail()

    def _carry_out(self, actions: list[Action]) -> None:
        unsaid: list[Speak] = []
        for action in actions:
            match action:
                case Send():
                    self._send(action)
                case SendToEngine():
                    sent = self._tell(action.command)
                    self._flow.command_sent(action.command, was_sent=sent)
                case Decode():
                    self._decode(action)
                case SendToTts():
                    if not self._send_to_tts(action.command) and isinstance(action.command, Speak):
                        unsaid.append(action.command)
                case Play():
                    self._play(action)
                case HoldPlayout() if self._player is not None:
                    self._player.hold(action.held)
                case ClearPlayout():
                    self._clear_playout()
                case ContinueLater():
                    self._more = True
                case Hangup():
                    self._outbound.end(action, discard=False)
        for speak in unsaid:  # after the other actions of this batch
            said = ClauseDone(
                speak.session, speak.generation, speak.clause, "there is no voice now"
            )
            self._call(self._session.receive_voice, said)

    def _clear_playout(self) -> None:
        player = self._player
        if player is None:
            return
        on_stopped, player.on_stopped = player.on_stopped, lambda: None  # it was cleared
        dropped_samples = player.clear()
        player.on_stopped = on_stopped
        self._call(self._session.cleared, dropped_samples)

    def _play(self, action: Play) -> None:
        if self._player is None:
            sound = action.pcm if action.encoded is None else action.encoded
            event = action.event | {"delta": pybase64.b64encode_as_string(sound)}
            self._send(Send(event, action.wants_sent_stamp))
            return
        if not self._player.put(action.pcm):
            log.warning("session %s: the playout is full, sound was dropped", self.session_id)
        if action.wants_sent_stamp:
            self._call(self._session.sent, Send(action.event, wants_sent_stamp=True))

    def _decode(self, action: Decode) -> None:
        if self._closed:
            return
        self._decoding = {task for task in self._decoding if not task.done()}
        task = tasks.own(self._decoded(action), "decode", self.fail)
        self._decoding.add(task)
        if action.ordered:
            self._ordered = task

    async def _decoded(self, action: Decode) -> None:
        outcome = await DECODERS.run(self.session_id, action.pictures, action.size)
        self._call(self._session.decoded, action.request_id, outcome)

    def _send(self, action: Send) -> None:
        if self._closed or self._outbound.hangup is not None:
            return
        kind = action.event["type"]
        if kind == "response.created":
            self.answering += 1
        elif kind == "response.done":
            self.answering -= 1
        if not self._outbound.put(action):
            self.shed = True
            reason = (
                f"slow reader: more than {self._outbound.bounds.events} events or "
                f"{self._outbound.bounds.bytes} bytes were waiting"
            )
            log.warning("session %s: shed, %s", self.session_id, reason)
            self._outbound.end(Hangup(CLOSE_TRY_AGAIN_LATER, reason), discard=True)
            if self._writer is not None:
                self._writer.cancel()  # it waits for a peer that does not read

    # --- tasks -----------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Read the channel to its end. Most packets of sound do not wake this task: they are
        processed by `_try_inline` while it waits."""
        pause_s: float | None = None
        while True:
            await self._until_next_is_due(pause_s)
            self._watch.waits(Wait.MESSAGE, self._now_ns())
            message = await self._channel.receive(self._try_inline)
            self._watch.goes_on()
            self._heard_ns = self._now_ns()
            if message is None:
                return
            began_s = time.perf_counter()
            await self._process(message)
            pause_s = self._spent(began_s)

    async def _until_next_is_due(self, pause_s: float | None) -> None:
        """Wait until the next message may be read: the last one is done, with all of its pictures,
        the engine is not too far behind, and the client is within its share of the event loop."""
        while True:
            await self._finish_last(pause_s)
            await self._wait_for_room()
            if self._ordered is None:
                return
            self._watch.waits(Wait.PICTURES, self._now_ns())
            await asyncio.wait({self._ordered})
            self._watch.goes_on()
            self._ordered = None
            pause_s = None  # and look again: the message may have work left

    async def _finish_last(self, pause_s: float | None) -> None:
        """Do what the last message left for later, piece by piece, with a pause after each piece
        that takes the client over its share."""
        while pause_s is not None or self._more:
            if pause_s is not None:
                await asyncio.sleep(pause_s)
            pause_s = None
            if self._more:
                self._more = False
                began_s = time.perf_counter()
                self._call(self._session.more)
                pause_s = self._spent(began_s)

    async def _wait_for_room(self) -> None:
        """Wait while the engine is too far behind, for at most `CREDIT_WAIT_S`."""
        if self._flow.must_wait:
            self._room.clear()
            # Not `wait_for`: Python 3.11's ignores a cancellation that room comes with.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CREDIT_WAIT_S):
                    await self._room.wait()

    async def _process(self, message: str | int) -> None:
        """`message`: a text, or the size of a binary one."""
        if isinstance(message, int):
            self._call(self._session.receive_binary, message)
        elif len(message) <= LONG_CHARS:
            self._call(self._session.receive_text, message)
        else:
            self._watch.waits(Wait.PARSER, self._heard_ns)
            step = await PARSER.run(self._session.prepare, message)
            self._watch.goes_on()
            self._call(step)

    def _try_inline(self, text: str) -> bool:
        """Process an audio packet without waking the waiting reader. The reader is woken if there
        is a reason to stop reading."""
        if self._closed or self._outbound.hangup is not None:
            return False
        if self.share.overdrawn or self._flow.must_wait:
            return False
        began_s, now_ns = time.perf_counter(), self._now_ns()
        try:
            actions = self._session.receive_sound(text, now_ns)
            if actions is None:
                return False
            if actions:
                self._carry_out(actions)
        except Exception as error:
            self._broken(error)
        self._heard_ns = now_ns
        now_s = time.perf_counter()
        # Other sessions get their turn before this client's next packet anyway.
        self.share.spend(now_s - began_s, now_s)
        return True

    def _spent(self, began_s: float) -> float | None:
        """The pause due for the time spent since `began_s`, if any."""
        now_s = time.perf_counter()
        return self.share.spend(now_s - began_s, now_s)

    async def _write(self) -> None:
        while (item := await self._outbound.get()) is not None:
            if not await self._channel.send(item.text):
                return
            if item.action.wants_sent_stamp:
                self._call(self._session.sent, item.action)

    def _tick(self) -> None:
        self._look_at_reader()
        self._call(self._session.tick)
        bound_s = self._outbound.bounds.idle_s
        if bound_s and self._now_ns() - self._heard_ns > bound_s * 1e9 and not self.answering:
            log.info("session %s: nothing came for %g s", self.session_id, bound_s)
            self.hangup(CLOSE_GOING_AWAY, f"nothing was sent for {bound_s:g} s")

    def _look_at_reader(self) -> None:
        problem = self._watch.problem(self._channel.unread_since_ns, self._now_ns())
        if problem is not None and not self.stuck:
            self.stuck = True
            log.error("session %s: ended, %s", self.session_id, problem)
            self.hangup(CLOSE_INTERNAL_ERROR, f"internal error: {problem}")
