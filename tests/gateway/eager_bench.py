"""A session whose turns end early, and the world around it, played by a test in virtual time."""

from __future__ import annotations

from typing import Any

from headstart.engine import api
from tests.gateway import speech
from tests.gateway.session_bench import SessionBench, silence_pcm

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
COMMITTED, DELETED = "input_audio_buffer.committed", "conversation.item.deleted"
CONTINUED = "gateway.turn.continued"
HALF, REST = "What is the capital", " of France?"
SECOND = 24_000


def eager(*, speaks: bool = True, **settings: Any) -> SessionBench:
    """A session whose turns end early where they read as whole."""
    bench = SessionBench(speaks=speaks, **settings)
    bench.update(
        audio={
            "input": {
                "turn_detection": {"type": "semantic_vad", "eagerness": "high"},
                "transcription": {"model": "any"},
            }
        },
        gateway={"events": ["turn", "interruption", "latency"]},
    )
    return bench


def say(bench: SessionBench, ms: int = 900) -> None:
    """A sound that the VAD takes for speech."""
    bench.hear(speech.join(speech.voice(ms)))


def hear(bench: SessionBench, text: str, *, final: bool = False) -> None:
    """Play the ears' part: all words of the open utterance so far, with those before it."""
    ref = bench.told_ref()
    bench.engine(api.Hearing("sess_test", ref, text, "", 0, final, continued=is_joined(bench)))


def is_joined(bench: SessionBench) -> bool:
    """Whether the engine was told that the newest utterance continues the one before."""
    kinds = (api.BeginSpeech, api.ContinueSpeech)
    newest = [command for command in bench.told if isinstance(command, kinds)][-1]
    return isinstance(newest, api.ContinueSpeech)


def end(bench: SessionBench, words: str, probability: float = 0.98) -> None:
    """A pause behind words that read as whole, until the turn ends: before 300 ms of it, where no
    end was taken back yet."""
    before = len(bench.commands(api.EndSpeech))
    bench.hear(silence_pcm(200))
    hear(bench, words, final=True)
    bench.engine(api.EndOfMessage("sess_test", bench.told_ref(), 0, probability))
    for _ in range(100):
        if len(bench.commands(api.EndSpeech)) > before:
            break
        bench.hear(silence_pcm(20))
    ended = bench.commands(api.EndSpeech)[-1]
    bench.engine(api.Heard("sess_test", ended.ref, item_id(bench), words, 5))


def item_id(bench: SessionBench) -> str:
    """The item of the newest utterance."""
    newest: str = bench.commands(api.BeginSpeech)[-1].item_id
    return newest


def answered(
    bench: SessionBench, text: str = "It is big. It is", samples: int = 3 * SECOND
) -> int:
    """The first half is said and ends early; its answer has begun, and is heard if it is spoken:
    `samples` of sound for each clause."""
    say(bench)
    end(bench, HALF)
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, text, bench.now_ns))
    bench.say_all(samples)
    return generation


def go_on(bench: SessionBench, pause_ms: int = 400, words: str = "of France") -> None:
    """After a pause the person goes on, and is understood."""
    bench.hear(silence_pcm(pause_ms))
    say(bench, 600)
    if is_held(bench):
        bench.hearing(words)


def is_held(bench: SessionBench) -> bool:
    states = [event["state"] for event in bench.of("gateway.interruption")]
    return states[-1:] == ["possible"]


def messages(bench: SessionBench) -> list[tuple[str, str]]:
    """The conversation as the gateway keeps it."""
    wires = bench.session._context.conversation.newest(20)
    return [
        (wire["role"], wire["content"][0].get("transcript") or wire["content"][0].get("text"))
        for wire in wires
    ]
