"""A Pipecat pipeline of local parts, in Pipecat's environment.

    python pipecat_bot.py '{"port": …, "whisper": …, …}'

Microphone -> Silero VAD, smart-turn v3 -> faster-whisper -> llama.cpp's server -> Piper. What the
quick start of Pipecat's documentation sets is left at its defaults: VAD stop after 200 ms, then
smart-turn decides. A client sends s16 PCM (16 kHz) as binary messages and gets binary PCM (24 kHz);
each connection begins a new conversation on the warm pipeline.

What happens is printed as JSON lines with `at_s`, the time of CLOCK_MONOTONIC, which all processes
of a machine share. Imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from loguru import logger
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import (
    BotStartedSpeakingFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMTextFrame,
    MetricsFrame,
    OutputAudioRawFrame,
    TranscriptionFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.metrics.metrics import TTFBMetricsData, TurnMetricsData
from pipecat.observers.base_observer import BaseObserver, FramePushed
from pipecat.observers.user_bot_latency_observer import UserBotLatencyObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregator,
    LLMUserAggregatorParams,
)
from pipecat.serializers.base_serializer import FrameSerializer
from pipecat.services.openai.llm import OpenAILLMService
from pipecat.services.piper.tts import PiperTTSService
from pipecat.services.whisper.stt import WhisperSTTService
from pipecat.transports.websocket.server import (
    SingleClientWebsocketServerParams,
    SingleClientWebsocketServerTransport,
)
from pipecat.workers.runner import WorkerRunner

IN_HZ, OUT_HZ = 16_000, 24_000


def tell(kind: str, **fields: Any) -> None:
    """Print one JSON line."""
    print(json.dumps({"kind": kind, "at_s": time.monotonic(), **fields}), flush=True)


class PcmSerializer(FrameSerializer):
    """Binary messages are s16 mono PCM, in both directions; an interruption is the text "clear"."""

    async def serialize(self, frame: Frame) -> str | bytes | None:
        if isinstance(frame, OutputAudioRawFrame):
            return bytes(frame.audio)
        return "clear" if isinstance(frame, InterruptionFrame) else None

    async def deserialize(self, data: str | bytes) -> Frame | None:
        if isinstance(data, str):
            return None
        return InputAudioRawFrame(audio=data, sample_rate=IN_HZ, num_channels=1)


class Teller(BaseObserver):
    """Prints what passes through the pipeline, each frame once."""

    def __init__(self, context: LLMContext) -> None:
        super().__init__(observe_every_push=False)
        self._context = context

    async def on_push_frame(self, data: FramePushed) -> None:
        match data.frame:
            case TranscriptionFrame(text=text):
                tell("heard", text=text)
            case LLMContextFrame() if isinstance(data.source, LLMUserAggregator):
                tell("request", messages=list(self._context.get_messages()))
            case LLMTextFrame(text=text):
                tell("token", text=text)
            case InterruptionFrame():
                tell("interruption")
            case BotStartedSpeakingFrame():
                tell("bot_started")
            case UserStoppedSpeakingFrame():
                tell("turn_ended")
            case VADUserStartedSpeakingFrame():
                tell("vad_started")
            case VADUserStoppedSpeakingFrame():
                tell("vad_stopped")
            case MetricsFrame(data=metrics):
                for each in metrics:
                    if isinstance(each, TTFBMetricsData) and each.value:
                        tell("ttfb", processor=each.processor, value_ms=each.value * 1000)
                    elif isinstance(each, TurnMetricsData):
                        tell("smart_turn", complete=each.is_complete, probability=each.probability)
            case _:
                pass


async def main(settings: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    logger.remove()
    logger.add(sys.stderr, level=settings["log_level"])
    transport = SingleClientWebsocketServerTransport(
        host="127.0.0.1",
        port=settings["port"],
        params=SingleClientWebsocketServerParams(
            audio_in_enabled=True, audio_out_enabled=True, serializer=PcmSerializer()
        ),
    )
    stt = WhisperSTTService(
        device="cpu",
        compute_type=settings["compute_type"],
        settings=WhisperSTTService.Settings(model=settings["whisper"], language="en"),
    )
    llm = OpenAILLMService(
        api_key="none-needed",
        base_url=settings["llm_url"],
        settings=OpenAILLMService.Settings(
            model="small",
            system_instruction=settings["instructions"],
            temperature=0.0,
            max_tokens=settings["max_tokens"],
        ),
    )
    voice = Path(settings["voice"])
    tts = PiperTTSService(
        download_dir=voice.parent, settings=PiperTTSService.Settings(voice=voice.stem)
    )
    context = LLMContext()
    aggregators = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )
    pipeline = Pipeline(
        [
            transport.input(),
            stt,
            aggregators.user(),
            llm,
            tts,
            transport.output(),
            aggregators.assistant(),
        ]
    )
    latency = UserBotLatencyObserver()
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(
            audio_in_sample_rate=IN_HZ, audio_out_sample_rate=OUT_HZ, enable_metrics=True
        ),
        observers=[Teller(context), latency],
        idle_timeout_secs=None,
    )

    @latency.event_handler("on_latency_measured")
    async def on_latency_measured(_: UserBotLatencyObserver, value_s: float) -> None:
        tell("user_bot_latency", value_ms=value_s * 1000)

    @transport.event_handler("on_client_connected")
    async def on_client_connected(_: Any, __: Any) -> None:
        context.set_messages([])
        tell("connected")

    @transport.event_handler("on_websocket_ready")
    async def on_websocket_ready(_: Any) -> None:
        tell("ready")

    runner = WorkerRunner(handle_sigint=False)
    serving = asyncio.create_task(runner.run(worker))
    await asyncio.to_thread(sys.stdin.read)
    await worker.cancel()
    await serving


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
