"""A session core under test: virtual time, counted ids, and an engine played by the test."""

from __future__ import annotations

import base64
import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headstart.engine import api
from headstart.gateway.audio.open_utterance import Arrival
from headstart.gateway.protocol.ids import IdMaker
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
from headstart.gateway.session.session import Session
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.tts.messages import ClauseDone, Speak, SynthesisedAudio, VoiceCommand
from headstart.gateway.tts.status import VoiceStatus
from headstart.gateway.video import decode

CLIPS = Path(__file__).resolve().parents[2] / "headstart" / "clips"
WIRE_BYTES_PER_MS = 48  # s16 mono at 24 kHz
NS_PER_MS = 1_000_000
MODEL = api.ModelInfo("tiny", 8192, 100, 1 << 20, 1 << 20, 1.0)

Json = dict[str, Any]


def user_text(text: str, **fields: Any) -> dict[str, Any]:
    """A typed message, as a client sends it; `fields` such as `id`."""
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content, **fields}


def clip_pcm(name: str) -> bytes:
    """A bundled clip's s16 mono 24 kHz samples."""
    with wave.open(str(CLIPS / name)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        frames: bytes = file.readframes(file.getnframes())
        return frames


def silence_pcm(ms: int) -> bytes:
    return bytes(ms * WIRE_BYTES_PER_MS)


class SessionBench:
    """Calls the core as the shell would and keeps what comes out."""

    def __init__(
        self,
        *,
        engine_ready: bool = True,
        speaks: bool = False,
        model: api.ModelInfo | None = None,
        before_start: Callable[[SessionBench], None] = lambda _: None,
        observer: Observer | None = None,
        batch: Callable[[], float] = lambda: 0.0,
        **settings: Any,
    ) -> None:
        self.now_ns = 0
        self.sent: list[Json] = []
        self.told: list[api.Command] = []
        self.hangups: list[Hangup] = []
        self.uttered: list[VoiceCommand] = []
        self.played: list[Play] = []
        self.playout_cleared = 0
        self._held = False
        self.hold_pictures = False
        self.held: list[Decode] = []
        self.metrics = Metrics()
        self.session = Session(
            "sess_test",
            Settings(**settings),
            IdMaker.counting(),
            self.metrics,
            engine_ready=engine_ready,
            model_name="tiny",
            now_ns=0,
            wall_s=1_000.0,
            stopwatch=lambda: 0,
            speaks=speaks,
            model=model,
            observer=observer,
            batch=batch,
        )
        before_start(self)
        self._take(self.session.start(self.now_ns))

    def _take(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.sent.append(action.event)
                    if action.wants_sent_stamp:
                        self._take(self.session.sent(action, self.now_ns))
                case SendToEngine():
                    self.told.append(action.command)
                case SendToTts():
                    self.uttered.append(action.command)
                case Play():
                    self.played.append(action)
                    self._take([Send(action.event | {"delta": ""}, action.wants_sent_stamp)])
                case HoldPlayout():
                    self._held = action.held
                case ClearPlayout():
                    self._held = False
                    self.playout_cleared += 1
                case Decode():
                    self.held.append(action)
                case ContinueLater():
                    self._take(self.session.more(self.now_ns))
                case Hangup():
                    self.hangups.append(action)
        if not self.hold_pictures:
            self.decode()

    # --- what the world does ------------------------------------------------------------------

    def client(self, type_: str, **fields: Any) -> None:
        self._take(self.session.receive_text(json.dumps({"type": type_, **fields}), self.now_ns))

    def update(self, **fields: Any) -> None:
        self.client("session.update", session={"type": "realtime", **fields})

    def raw(self, text: str) -> None:
        self._take(self.session.receive_text(text, self.now_ns))

    def sound(self, text: str) -> bool:
        """Whether a text is taken as a packet of sound, at once; then it is."""
        actions = self.session.receive_sound(text, self.now_ns)
        self._take(actions or [])
        return actions is not None

    def engine(self, event: api.Event) -> None:
        self._take(self.session.receive_engine(event, self.now_ns))

    def decode(self) -> None:
        """Decode the pictures that were asked for, in order."""
        held, self.held = self.held, []
        for action in held:
            outcome = decode.decode(action.pictures, action.size)
            self._take(self.session.decoded(action.request_id, outcome, self.now_ns))

    def track_frame(self, image: api.Image) -> None:
        decoded = decode.add_thumbnail(image, self.session.frame_before)
        self._take(self.session.receive_image(decoded, self.now_ns))

    def hearing(
        self,
        text: str,
        *,
        final: bool = False,
        wordless: bool = False,
        likely: tuple[float, ...] = (),
    ) -> None:
        """Play the recogniser's part: so much was understood of the newest utterance, up to now."""
        audio = self.commands(api.Audio)[-1]
        end_sample = audio.start_sample + audio.samples
        ref = self.told_ref()
        self.engine(api.Hearing("sess_test", ref, "", text, end_sample, final, wordless, likely))

    def told_ref(self) -> api.TurnRef:
        """What the engine was told last of the newest utterance."""
        kinds = (api.BeginSpeech, api.Audio, api.Hush, api.Resume)
        newest: api.TurnRef = [c.ref for c in self.told if isinstance(c, kinds)][-1]
        return newest

    def resumed(self, replayed: int | None) -> None:
        self._take(self.session.resumed(replayed, self.now_ns))

    def engine_lost(self) -> None:
        self._take(self.session.engine_lost(self.now_ns))

    def engine_ready(self) -> None:
        self._take(self.session.engine_ready(api.Ready("x", MODEL), self.now_ns))

    def voice(self, event: SynthesisedAudio | ClauseDone) -> None:
        self._take(self.session.receive_voice(event, self.now_ns))

    def say_all(self, samples: int = 24_000) -> None:
        """Play the voice's part: so many samples of sound for each clause it was given."""
        speaks = [c for c in self.uttered if isinstance(c, Speak)]
        self.uttered.clear()
        for speak in speaks:
            self.voice(
                SynthesisedAudio(speak.session, speak.generation, speak.clause, bytes(2 * samples))
            )
            self.voice(ClauseDone(speak.session, speak.generation, speak.clause))

    def voice_changed(self, status: VoiceStatus) -> None:
        self._take(self.session.voice_changed(status, self.now_ns))

    def playout(self, what: str, sample: int) -> None:
        self._take(self.session.playing(what, sample, self.now_ns))

    def cleared(self, dropped_samples: int) -> None:
        self._take(self.session.cleared(dropped_samples, self.now_ns))

    def tick(self, ms: float = 100) -> None:
        self.now_ns += round(ms * NS_PER_MS)
        self._take(self.session.tick(self.now_ns))

    def hear(self, pcm: bytes, packet_bytes: int = 960, *, realtime: bool = True) -> None:
        """Append audio in packets; each arrives when its last sample was spoken."""
        for start in range(0, len(pcm), packet_bytes):
            packet = pcm[start : start + packet_bytes]
            if realtime:
                self.now_ns += len(packet) * NS_PER_MS // WIRE_BYTES_PER_MS
            self.client("input_audio_buffer.append", audio=base64.b64encode(packet).decode())

    def track(self, pcm: bytes, received_ns: int | None, departed_ns: int | None = None) -> None:
        """Sound of a call's track."""
        arrival = None if received_ns is None else Arrival(received_ns, departed_ns)
        self._take(self.session.receive_audio(pcm, arrival, self.now_ns))

    def answer(self, *words: str, reason: api.FinishReason = api.FinishReason.STOP) -> None:
        """Play the engine's part for the answer that was asked for last."""
        generation = self.respond_command().generation
        for word in words:
            self.engine(api.Delta("sess_test", generation, word, self.now_ns))
        self.finish(generation, "".join(words), reason)

    def finish(
        self,
        generation: int,
        text: str,
        reason: api.FinishReason = api.FinishReason.STOP,
        usage: api.Usage | None = None,
    ) -> None:
        usage = usage or api.Usage(input_text=5, input_audio=7, cached=10, output=3)
        kv = api.KvStats(tokens=15, blocks=1, bytes=1500, bytes_per_token=100)
        self.engine(api.Finished("sess_test", generation, reason, text, usage, kv))

    # --- what came out ------------------------------------------------------------------------

    def holds(self) -> bool:
        """Whether the playout stands still."""
        return self._held

    def types(self) -> list[str]:
        return [event["type"] for event in self.sent]

    def of(self, type_: str) -> list[Json]:
        return [event for event in self.sent if event["type"] == type_]

    def last(self, type_: str) -> Json:
        return self.of(type_)[-1]

    def error(self) -> Json:
        """The newest error event's inner object."""
        error: Json = self.last("error")["error"]
        return error

    def commands(self, kind: type[api.Command]) -> list[Any]:
        return [command for command in self.told if isinstance(command, kind)]

    def respond_command(self) -> api.Respond:
        command: api.Respond = self.commands(api.Respond)[-1]
        return command

    def clear(self) -> None:
        self.sent.clear()
        self.told.clear()
