"""Speed and intelligibility of speech output: each voice in its own process, as in the server.

Keys: ratio_first_sound (how many times as long Piper's own package takes to the first sound of the
same answers with the same voice, joe, with one thread as ours; it makes whole sentences; median
over answers, the two in turns), piper_first_sound_ms; voice, first_sound_ms (median over answers),
first_sound_ms_p95, first_sound_ms_max, real_time_factor (the worker's seconds per second of
sound), wer (of our own recogniser, Whisper-tiny.en streaming in 500 ms chunks, on the spoken text:
a proxy of intelligibility),
audio_s, load_s, rss_bytes; `voices`: the same for each voice. `first_sound_ms` counts from the
hand-over of an answer's first clause, cut as the server cuts it, to the arrival of its first piece.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from headstart.benchmarks import report
from headstart.engine.asr.mel import SAMPLE_RATE_HZ
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.weights import ensure, resolve_model
from headstart.gateway.audio.resample import StreamResampler
from headstart.gateway.tts.clauses import ClauseCutter
from headstart.gateway.tts.link import VoiceLink, worker_argv
from headstart.gateway.tts.messages import ClauseDone, Speak, SynthesisedAudio
from headstart.gateway.tts.status import VoiceStatus

ANSWERS = (
    "The capital of France is Paris.",
    "I can see a red cup on a wooden table, next to an open laptop.",
    "Sure, I can help you with that. What would you like to know?",
    "Three plus four is seven.",
    "The weather looks cloudy today, so you may want to take an umbrella.",
    "I'm sorry, I can't know what time it is, because I have no clock.",
    "A cat is lying on the sofa, and it seems to be asleep.",
    "Water boils at one hundred degrees Celsius at sea level.",
    "My favorite season is autumn, when the leaves turn yellow and brown.",
    "You asked me about the picture: it shows a rocket on its launch pad.",
)
RATIO_KEYS = ("ratio_first_sound", "piper_first_sound_ms")
SESSION = "bench"
CHUNK_SAMPLES = SAMPLE_RATE_HZ // 2
WAIT_S = 120.0


@dataclass
class _Listener:
    """Receives one answer's sound, with the time of its first piece."""

    pcm: bytearray = field(default_factory=bytearray)
    first_s: float | None = None
    said: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def voice_event(self, event: SynthesisedAudio | ClauseDone) -> None:
        if isinstance(event, SynthesisedAudio):
            self.first_s = self.first_s or time.perf_counter()
            self.pcm += event.pcm
        else:
            self.said += 1
        self.changed.set()

    def voice_changed(self, status: VoiceStatus) -> None:
        self.changed.set()


@dataclass
class _Voice:
    """Measurements of one voice. `piper_ms`: of the peer, in turns with ours."""

    piper_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    sounds: list[bytes] = field(default_factory=list)
    spent_s: float = 0.0
    load_s: float = 0.0
    rss_bytes: int = 0

    @property
    def audio_s(self) -> float:
        return sum(map(len, self.sounds)) / 2 / 24_000


def run(voices: tuple[str, ...], *, as_json: bool) -> None:
    """Measure each voice and report; the first one's numbers are at the top level."""
    recognizer = WhisperRecognizer.load(resolve_model("tiny").ears)
    rows = []
    for name in voices:
        folder = ensure("joe") if name == "joe" else None
        voice = asyncio.run(_speak_all(name, folder))
        rows.append(_row(name, voice, recognizer))
        report.say(f"{name}: {rows[-1]}")
    result = {**rows[0], "voices": rows}
    ratio = {key: result.pop(key) for key in list(result) if key in RATIO_KEYS}
    report.finish("voice", {**ratio, **result}, as_json=as_json)


async def _speak_all(name: str, folder: Path | None) -> _Voice:
    async def argv() -> list[str]:
        return worker_argv(name, folder)

    link, voice, began_s = VoiceLink(argv), _Voice(), time.perf_counter()
    link.start()
    try:
        async with asyncio.timeout(WAIT_S):
            while not link.status.speaks:
                await asyncio.sleep(0.02)
        voice.load_s = time.perf_counter() - began_s
        piper = None if folder is None else _Piper(folder)
        for number, answer in enumerate(ANSWERS):
            if piper is not None:
                voice.piper_ms.append(piper.first_sound_ms(answer))
            await _speak(link, number, answer, voice)
        assert link.pid is not None
        voice.rss_bytes = psutil.Process(link.pid).memory_info().rss
    finally:
        await link.stop()
    return voice


class _Piper:
    """The peer: `piper-tts` as it is packaged, but for its number of threads."""

    def __init__(self, folder: Path) -> None:
        import onnxruntime
        from piper import PiperVoice

        (weights,) = folder.glob("*.onnx")
        self._voice = PiperVoice.load(weights)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        self._voice.session = onnxruntime.InferenceSession(str(weights), options, providers)
        self.first_sound_ms("Hello there, how are you?")

    def first_sound_ms(self, text: str) -> float:
        began_s = time.perf_counter()
        next(iter(self._voice.synthesize(text)))
        return (time.perf_counter() - began_s) * 1000


async def _speak(link: VoiceLink, number: int, answer: str, voice: _Voice) -> None:
    listener = _Listener()
    link.attach(SESSION, listener)
    cutter = ClauseCutter()
    clauses = cutter.push(answer) + cutter.flush()
    began_s = time.perf_counter()
    for clause, text in enumerate(clauses):
        link.send(Speak(SESSION, number, clause, text))
    async with asyncio.timeout(WAIT_S):
        while listener.said < len(clauses):
            listener.changed.clear()
            await listener.changed.wait()
    voice.spent_s += time.perf_counter() - began_s
    assert listener.first_s is not None
    voice.first_ms.append((listener.first_s - began_s) * 1000)
    voice.sounds.append(bytes(listener.pcm))
    link.detach(SESSION)


def _row(name: str, voice: _Voice, recognizer: WhisperRecognizer) -> dict[str, Any]:
    import jiwer

    from headstart.benchmarks.references.offline import normaliser

    spell = normaliser()
    heard = [spell(_hear(recognizer, sound)) for sound in voice.sounds]
    ratios = [piper / ours for piper, ours in zip(voice.piper_ms, voice.first_ms, strict=False)]
    peer = {}
    if ratios:
        peer["ratio_first_sound"] = round(statistics.median(ratios), 2)
        peer["piper_first_sound_ms"] = round(statistics.median(voice.piper_ms), 1)
    return {
        **peer,
        "voice": name,
        "first_sound_ms": round(statistics.median(voice.first_ms), 1),
        "first_sound_ms_p95": round(report.percentile(voice.first_ms, 95), 1),
        "first_sound_ms_max": round(max(voice.first_ms), 1),
        "real_time_factor": round(voice.spent_s / voice.audio_s, 3),
        "wer": round(float(jiwer.wer([spell(answer) for answer in ANSWERS], heard)), 4),
        "audio_s": round(voice.audio_s, 1),
        "load_s": round(voice.load_s, 2),
        "rss_bytes": voice.rss_bytes,
    }


def _hear(recognizer: WhisperRecognizer, pcm: bytes) -> str:
    resampler = StreamResampler(24_000, SAMPLE_RATE_HZ, aligned=True)
    sound = np.concatenate([resampler.feed(pcm), resampler.flush()])
    scaled = (sound / 32_768).astype(np.float32)
    utterance = recognizer.open()
    for start in range(0, len(scaled), CHUNK_SAMPLES):
        recognizer.recognize(utterance, scaled[start : start + CHUNK_SAMPLES])
    return recognizer.finish(utterance).text
