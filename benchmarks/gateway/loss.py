"""Speech over a lossy network: our receive buffer beside aiortc's own, on the same packets.

For each loss rate there is one real connection over loopback (UDP, DTLS, SRTP, Opus). Packets are
dropped at random on the sender's side, after 3 s without loss and before 4 s without loss. What
arrives goes both to our `AudioTrack` and to the stock receiver, in the same process at the same
time. The bundled monologue is spoken `--rounds` times in between.

Keys: rows (one per loss rate), one_packet (a single packet lost, in the middle), rounds, words.
Each row has `loss`, `packets`, `dropped` and, for `ours` and `aiortc`:

timeline_ok      share of the frames sent during speech that were played. Ours counts only frames
                 at their place in time, or concealed there; the stock receiver does not conceal,
                 so every decoded frame counts
latency_ms_base  mean from sending to playing, frames of the second and third second
latency_ms_loss  the same during loss, for frames that were played
latency_ms_end   the same for frames sent from 2 to 4 s after the last loss
word_errors, wer of Whisper-tiny.en on the received speech, against what was said
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from aiortc.rtp import RtpPacket

from headstart.benchmarks import report
from headstart.benchmarks.harness.in_process import Samples
from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from headstart.gateway.audio.clock import CLIENT_RATE_HZ, ENGINE_RATE_HZ
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.runtime import tasks
from headstart.gateway.transport.webrtc import aiortc_hooks, codecs
from headstart.gateway.transport.webrtc.audio_receiver import ReceivedAudio
from headstart.gateway.transport.webrtc.audio_sender import AudioSender
from headstart.gateway.transport.webrtc.audio_track import AudioTrack
from headstart.gateway.transport.webrtc.receive_buffer import RTP_RATE_HZ, PieceKind

LOSSES = (0.0, 0.02, 0.05, 0.1)
FRAME_S = 0.02
FRAME_TICKS = 960
LEAD_FRAMES, CALM_FRAMES = 150, 200
BASE_FRAMES = range(50, 150)
SETTLED_FRAMES = 100  # frames without loss before `latency_ms_end` is measured
SAID = (
    "I would like to tell you about the small garden behind our house. When we moved in, there was "
    "nothing but grass and an old apple tree. In the first spring, my sister planted tomatoes, "
    "beans and a row of yellow flowers along the wall. The birds came back, and every morning we "
    "had breakfast on the wooden bench. Now the tree carries more apples than we can eat, so we "
    "give most of them to our neighbors."
)


@dataclass
class Schedule:
    """Which frames are speech, and which of those are lost. Frames are numbered as sent."""

    speech: Samples  # 24 kHz
    lost: Callable[[int], bool]

    @property
    def speech_frames(self) -> range:
        return range(LEAD_FRAMES, LEAD_FRAMES + round(len(self.speech) / CLIENT_RATE_HZ / FRAME_S))

    @property
    def frames(self) -> int:
        return self.speech_frames.stop + CALM_FRAMES

    def sound(self) -> bytes:
        quiet = np.zeros(round(FRAME_S * CLIENT_RATE_HZ), np.int16).tobytes()
        return quiet * LEAD_FRAMES + self.speech.tobytes() + quiet * CALM_FRAMES


@dataclass
class Way:
    """The output of one of the two receivers."""

    rate_hz: int
    out_s: dict[int, float] = field(default_factory=dict)  # frame -> when it came out
    concealed: int = 0
    pcm: list[Samples] = field(default_factory=list)

    def result(self, schedule: Schedule, sent_s: dict[int, float]) -> dict[str, Any]:
        speech = schedule.speech_frames
        came = sum(frame in self.out_s for frame in speech) + self.concealed
        end = range(speech.stop + SETTLED_FRAMES, schedule.frames - 5)
        return {
            "timeline_ok": round(min(came / len(speech), 1.0), 4),
            "latency_ms_base": self._latency_ms(BASE_FRAMES, sent_s),
            "latency_ms_loss": self._latency_ms(speech, sent_s),
            "latency_ms_end": self._latency_ms(end, sent_s),
        }

    def _latency_ms(self, frames: range, sent_s: dict[int, float]) -> float | None:
        took = [self.out_s[f] - sent_s[f] for f in frames if f in self.out_s and f in sent_s]
        return round(sum(took) * 1000 / len(took), 1) if took else None

    def heard(self) -> Samples:
        """All of the output, int16 at 16 kHz."""
        return StreamResampler(self.rate_hz, ENGINE_RATE_HZ).feed(np.concatenate(self.pcm))


class Connection:
    """A sender, a lossy path and both receivers. `run` may be called once."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.sent_s: dict[int, float] = {}
        self.dropped = 0
        self.ours, self.stock = Way(CLIENT_RATE_HZ), Way(RTP_RATE_HZ)
        self._first_tick: int | None = None
        self._position = 0  # of our timeline, samples at 24 kHz

    async def run(self) -> None:
        no_ice = RTCConfiguration(iceServers=[])
        sender, receiver = RTCPeerConnection(no_ice), RTCPeerConnection(no_ice)
        track = AudioSender()
        sender.addTrack(track)
        ours: AudioTrack
        readers: list[asyncio.Task[None]] = []

        @receiver.on("track")
        def on_track(remote: MediaStreamTrack) -> None:
            nonlocal ours
            agreed = aiortc_hooks.codecs(receiver.getTransceivers()[0])
            formats = codecs.formats([], agreed)
            ours = AudioTrack(self._hear, formats, tasks.nothing_depends_on_it)
            aiortc_hooks.tee_packets(receiver.getReceivers()[0], ours.receive)
            readers.append(asyncio.create_task(self._read(remote)))

        await sender.setLocalDescription(await sender.createOffer())
        await receiver.setRemoteDescription(sender.localDescription)
        await receiver.setLocalDescription(await receiver.createAnswer())
        answer = RTCSessionDescription(receiver.localDescription.sdp, "answer")
        await sender.setRemoteDescription(answer)
        while "connected" not in (sender.connectionState, receiver.connectionState):
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        self._make_lossy(sender)
        track.put(self.schedule.sound())
        while track.queued_samples:  # takes longer than real time on a busy machine
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        ours.close()
        await sender.close()
        await receiver.close()
        await asyncio.gather(*readers)

    def _make_lossy(self, sender: RTCPeerConnection) -> None:
        transport: Any = sender.getSenders()[0].transport
        send = transport._send_rtp

        async def lossy(data: bytes) -> None:
            if not 192 <= data[1] <= 223:  # not RTCP, RFC 5761 §4
                frame = self._frame(RtpPacket.parse(data).timestamp)
                self.sent_s[frame] = time.monotonic()
                if self.schedule.lost(frame):
                    self.dropped += 1
                    return
            await send(data)

        transport._send_rtp = lossy

    def _frame(self, timestamp: int) -> int:
        """The number of a sent frame, from its RTP timestamp."""
        if self._first_tick is None:
            self._first_tick = timestamp
        return ((timestamp - self._first_tick) & 0xFFFF_FFFF) // FRAME_TICKS

    def _hear(self, sound: ReceivedAudio) -> bool:
        frame_samples = round(FRAME_S * CLIENT_RATE_HZ)
        samples = np.frombuffer(sound.pcm24k, np.int16)
        place = self._position // frame_samples
        if sound.timestamp is not None:
            if self._frame(sound.timestamp) == place:
                self.ours.out_s[place] = time.monotonic()
        elif sound.kind is PieceKind.CONCEALED and place in self.schedule.speech_frames:
            self.ours.concealed += len(samples) // frame_samples
        if place in self.schedule.speech_frames:
            self.ours.pcm.append(samples)
        self._position += len(samples)
        return True

    async def _read(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, av.AudioFrame)
            assert frame.pts is not None
            number = frame.pts // FRAME_TICKS
            self.stock.out_s[number] = time.monotonic()
            if number in self.schedule.speech_frames:
                self.stock.pcm.append(frame.to_ndarray()[0][::2].copy())


def run(rounds: int, *, with_words: bool, as_json: bool) -> None:
    """Measure and report."""
    speech = np.tile(_monologue(), rounds)
    during = Schedule(speech, lambda _: False).speech_frames
    middle = during[len(during) // 2]
    lost = [_at_random(loss, during) for loss in LOSSES]
    connections = [Connection(Schedule(speech, is_lost)) for is_lost in lost]
    connections.append(Connection(Schedule(speech, lambda frame: frame == middle)))
    seconds = connections[0].schedule.frames * FRAME_S
    report.say(f"{len(connections)} connections in turn, {seconds:.0f} s each in real time")
    for connection in connections:  # concurrent ones would delay each other on a small machine
        asyncio.run(connection.run())
    words = _Words(rounds) if with_words else None
    rows = [
        _row(loss, connection, words)
        for loss, connection in zip((*LOSSES, None), connections, strict=True)
    ]
    result = {"rows": rows[:-1], "one_packet": rows[-1], "rounds": rounds}
    report.finish("loss", result, as_json=as_json)


def _row(loss: float | None, connection: Connection, words: _Words | None) -> dict[str, Any]:
    row: dict[str, Any] = {
        "loss": loss,
        "packets": len(connection.sent_s),
        "dropped": connection.dropped,
    }
    for name, way in (("ours", connection.ours), ("aiortc", connection.stock)):
        row[name] = way.result(connection.schedule, connection.sent_s)
        if words is not None:
            row[name] |= words.errors(way.heard())
        report.say(f"loss {loss} {name}: {row[name]}")
    return row


def _at_random(loss: float, during: range) -> Callable[[int], bool]:
    """Drops the same frames in every run."""
    rng = random.Random(round(loss * 1000))
    lost = {frame for frame in during if rng.random() < loss}
    return lost.__contains__


def _monologue() -> Samples:
    """int16 at 24 kHz."""
    sound = load_s16(CLIPS / "monologue.ogg", CLIENT_RATE_HZ)
    frame_samples = round(FRAME_S * CLIENT_RATE_HZ)
    return sound[: len(sound) // frame_samples * frame_samples]


class _Words:
    """Whisper on the received speech, one utterance per round, against what was said."""

    def __init__(self, rounds: int) -> None:
        from headstart.benchmarks.references.offline import normaliser
        from headstart.engine.asr.recognizer import WhisperRecognizer
        from headstart.engine.weights import resolve_model

        self._rounds = rounds
        self._recognizer = WhisperRecognizer.load(resolve_model("small").ears)
        self._spell = normaliser()

    def errors(self, heard: Samples) -> dict[str, Any]:
        import jiwer

        said = [self._text(part) for part in np.array_split(heard, self._rounds)]
        truth = [self._spell(SAID)] * self._rounds
        counts = jiwer.process_words(truth, [self._spell(text) for text in said])
        errors = counts.substitutions + counts.deletions + counts.insertions
        words = len(" ".join(truth).split())
        return {"word_errors": errors, "words": words, "wer": round(errors / words, 4)}

    def _text(self, sound: Samples) -> str:
        utterance = self._recognizer.open()
        floats = sound.astype(np.float32) / np.float32(32768)
        for start in range(0, len(floats), ENGINE_RATE_HZ // 2):
            self._recognizer.recognize(utterance, floats[start : start + ENGINE_RATE_HZ // 2])
        return self._recognizer.finish(utterance).text
