"""Hugging Face speech-to-speech as a system of the bench: `speech-to-speech serve`, which speaks
the Realtime API.

Its defaults but for the parts: Silero VAD and smart-turn v3.2 as it sets them, faster-whisper,
llama.cpp's server as its documentation says, and its client of an OpenAI-compatible voice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from headstart.benchmarks.peers import llama, pipecat, settings
from headstart.benchmarks.peers.child import child, free_port, is_open
from headstart.benchmarks.peers.clips import Clip
from headstart.benchmarks.peers.environments import Environments
from headstart.benchmarks.peers.realtime import converse
from headstart.benchmarks.peers.score import Conversation
from headstart.engine.weights import ensure

HERE = Path(__file__).parent
NAME = "speech_to_speech"
SMART_TURN = "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx"
"""In Pipecat's wheel: the file that speech-to-speech would fetch."""
PUNKT_FILES = ("collocations.tab", "sent_starters.txt", "abbrev_types.txt", "ortho_context.tab")
HUBCONF = '''"""Silero VAD of the installed wheel, where torch.hub looks for its repository."""

from silero_vad import load_silero_vad


def silero_vad(onnx=False, **_):
    return load_silero_vad(onnx=onnx), ()
'''


@contextlib.asynccontextmanager
async def running(
    environments: Environments, logs: Path
) -> AsyncIterator[Callable[[Clip], Awaitable[Conversation]]]:
    """llama.cpp's server, Piper's and the pipeline, ready; gives what speaks a clip to it. Raises
    `PeerFailed`, `EnvironmentFailed`."""
    python = await asyncio.to_thread(environments.python, NAME)
    pipecat_python = await asyncio.to_thread(environments.python, "pipecat")
    pipecat_site = await asyncio.to_thread(environments.site, "pipecat")
    home = (environments.folder / "home").absolute()
    prepare(home)
    voice = ensure(settings.VOICE) / pipecat.VOICE_FILE
    rates: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        llm = await stack.enter_async_context(llama.serving(environments, logs))
        voice_port, port = free_port(), free_port()
        argv = [str(pipecat_python), "-P", str(HERE / "piper_server.py"), str(voice)]
        speaker = await stack.enter_async_context(
            child("piper", [*argv, str(voice_port)], logs / "piper.log", rates.append)
        )
        await speaker.until(lambda: bool(rates), "its sample rate")
        options = {
            "port": port,
            "stt": "faster-whisper",
            "faster_whisper_stt_model_name": ensure(settings.EARS),
            "faster_whisper_stt_device": "cpu",
            "faster_whisper_stt_compute_type": pipecat.COMPUTE_TYPE,
            "smart_turn_model_path": pipecat_site / SMART_TURN,
            "llm_backend": "chat-completions",
            "model_name": settings.MODEL,
            "responses_api_base_url": llm.url,
            "responses_api_api_key": "none-needed",
            "init_chat_prompt": settings.INSTRUCTIONS,
            "tts": "openai",
            "openai_tts_base_url": f"http://127.0.0.1:{voice_port}/v1",
            "openai_tts_sample_rate": rates[0],
            "openai_tts_voice": settings.VOICE,
        }
        flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        # words while one speaks would be recognised again and again, for display only
        flags.append("--no_enable_live_transcription")
        command = [str(python), "-m", "speech_to_speech.cli", "serve", *flags]
        process = await stack.enter_async_context(
            child(NAME, command, logs / f"{NAME}.log", environment=_environment(home))
        )
        await process.until(lambda: is_open(port), "an open port")

        async def speak(clip: Clip) -> Conversation:
            process.check()
            return await converse(f"ws://127.0.0.1:{port}/v1/realtime", clip, _session())

        yield speak


def prepare(home: Path) -> None:
    """Make what it would fetch at its first start: Silero VAD as a repository of torch.hub, and
    NLTK's sentence splitter, without lists of abbreviations (an answer here has none)."""
    silero = home / "torch" / "hub" / "snakers4_silero-vad_master"
    silero.mkdir(parents=True, exist_ok=True)
    (silero / "hubconf.py").write_text(HUBCONF)
    punkt = home / "nltk" / "tokenizers" / "punkt_tab" / "english"
    punkt.mkdir(parents=True, exist_ok=True)
    for name in PUNKT_FILES:
        (punkt / name).touch()
    (home / "nltk" / "taggers" / "averaged_perceptron_tagger_eng").mkdir(
        parents=True, exist_ok=True
    )


def _environment(home: Path) -> dict[str, str]:
    return {
        **settings.PEER_ENVIRONMENT,
        "TORCH_HOME": str(home / "torch"),
        "NLTK_DATA": str(home / "nltk"),
    }


def _session() -> dict[str, Any]:
    return {
        "type": "realtime",
        "instructions": settings.INSTRUCTIONS,
        "output_modalities": ["audio"],
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24_000},
                "transcription": {"model": settings.EARS},
            },
            "output": {"format": {"type": "audio/pcm", "rate": 24_000}},
        },
    }
