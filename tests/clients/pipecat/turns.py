"""Pipecat's OpenAIRealtimeLLMService, unmodified, in a pipeline with its context aggregators."""

from __future__ import annotations

import asyncio
import contextlib
import io
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from loguru import logger
from PIL import Image
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime.events import (
    AudioConfiguration,
    AudioInput,
    InputAudioTranscription,
    SemanticTurnDetection,
    SessionProperties,
)
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat.workers.runner import WorkerRunner

from tests.clients import steps

called: list[dict[str, Any]] = []


class Tap(FrameProcessor):
    """Keeps what passes; an ErrorFrame, which is what Pipecat makes of any `error` event, fails."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.arrived = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.frames.append(frame)
        self.arrived.set()
        await self.push_frame(frame, direction)


class Bot:
    """A running pipeline: user aggregator, service, assistant aggregator, and taps around the
    service."""

    def __init__(self, worker: PipelineWorker, context: LLMContext, up: Tap, down: Tap) -> None:
        self._worker, self._up, self._down = worker, up, down
        self.context = context
        self._waited_for = 0  # frames from below, up to the one that was waited for last

    async def until(self, kind: type[Frame]) -> Frame:
        while True:
            self._down.arrived.clear()
            problems = [f for f in self._up.frames + self._down.frames if isinstance(f, ErrorFrame)]
            assert not problems, problems
            for at, frame in enumerate(self._down.frames):
                if isinstance(frame, kind):
                    self._waited_for = at + 1
                    return frame
            await self._down.arrived.wait()

    def said(self) -> str:
        return "".join(f.text for f in self._down.frames if isinstance(f, TTSTextFrame))

    def audio_bytes(self) -> int:
        return sum(len(f.audio) for f in self._down.frames if isinstance(f, TTSAudioRawFrame))

    def heard(self) -> list[str]:
        return [f.text for f in self._up.frames if isinstance(f, TranscriptionFrame)]

    def forget(self) -> None:
        """What came until the frame that was waited for last. What came behind it may be waited
        for next, also if this process was late to look."""
        del self._down.frames[: self._waited_for]
        self._waited_for = 0

    async def push(self, frame: Frame) -> None:
        await self._worker.queue_frame(frame)

    async def ask(self, text: str) -> None:
        self.context.add_message({"role": "user", "content": text})
        await self.push(LLMContextFrame(self.context))

    async def speak(self, pcm: bytes) -> None:
        async for packet in steps.live(pcm):
            await self.push(InputAudioRawFrame(packet, sample_rate=24_000, num_channels=1))


@contextlib.asynccontextmanager
async def bot(
    url: str, tools: ToolsSchema | None = None, detection: SemanticTurnDetection | None = None
) -> AsyncIterator[Bot]:
    transcription = InputAudioTranscription(model="gpt-4o-mini-transcribe")
    properties = SessionProperties(
        audio=AudioConfiguration(
            input=AudioInput(transcription=transcription, turn_detection=detection)
        )
    )
    service = OpenAIRealtimeLLMService(
        api_key="k",
        base_url=url.replace("http", "ws", 1) + "/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model="small", system_instruction="You are brief.", session_properties=properties
        ),
    )
    service.register_function("weather", weather)
    context = LLMContext(tools=tools) if tools is not None else LLMContext()
    pair = LLMContextAggregatorPair(context)
    async with running([service], [pair.user()], [pair.assistant()], context) as it:
        yield it


@contextlib.asynccontextmanager
async def running(
    services: Sequence[FrameProcessor],
    before: Sequence[FrameProcessor] = (),
    behind: Sequence[FrameProcessor] = (),
    context: LLMContext | None = None,
) -> AsyncIterator[Bot]:
    """A pipeline of these, with taps around the services."""
    up, down = Tap(), Tap()
    worker = PipelineWorker(Pipeline([*before, up, *services, down, *behind]), enable_rtvi=False)
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def _started(_worker: Any, _frame: Any) -> None:
        started.set()

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    run = asyncio.create_task(runner.run())
    try:
        await asyncio.wait_for(started.wait(), 20)
        yield Bot(worker, context or LLMContext(), up, down)
    finally:
        await worker.queue_frame(EndFrame())
        await asyncio.wait_for(run, 20)


async def weather(params: FunctionCallParams) -> None:
    called.append(dict(params.arguments))
    await params.result_callback(f"Sunny in {params.arguments['city']}, as always.")


async def text_turn() -> str:
    """A context with a user's message is answered aloud."""
    async with bot(steps.FAKE_URL) as it:
        await it.ask("Hello")
        await it.until(LLMFullResponseEndFrame)
        assert steps.ANSWER_BEGINS in it.said(), it.said()
        assert it.audio_bytes() > 24_000, it.audio_bytes()
        return f"{it.audio_bytes()} bytes of sound"


async def audio_turn() -> str:
    """Speech under server VAD: transcribed, answered aloud, and in the context."""
    async with bot(steps.FAKE_URL) as it:
        await it.ask("Hello")
        await it.until(LLMFullResponseEndFrame)
        it.forget()
        speaking = asyncio.create_task(it.speak(steps.spoken_question(9_000)))
        await it.until(LLMFullResponseEndFrame)
        speaking.cancel()
        assert it.heard(), "no transcription"
        assert it.heard()[0].startswith(steps.HEARD), it.heard()
        assert steps.ANSWER_BEGINS in it.said(), it.said()
        return f"heard {it.heard()[0]!r}"


async def barge_in() -> str:
    """Speech over an answer: Pipecat interrupts its pipeline, truncates, and lives on."""
    async with bot(steps.FAKE_URL) as it:
        await it.ask("Hello")
        await it.until(TTSAudioRawFrame)
        speaking = asyncio.create_task(it.speak(steps.spoken_question(9_000)))
        await it.until(InterruptionFrame)
        it.forget()
        await it.until(LLMFullResponseEndFrame)
        began_s = time.monotonic()
        while steps.ANSWER_BEGINS not in it.said() and time.monotonic() - began_s < 20:
            await asyncio.sleep(0.1)
        speaking.cancel()
        assert steps.ANSWER_BEGINS in it.said(), it.said()
        return "interrupted, then answered the new question"


async def goes_on() -> str:
    """A question with a pause inside, under semantic VAD: answered early, interrupted, and answered
    as a whole. Pipecat keeps no items; each transcript comes as a frame of its own."""
    async with bot(steps.FAKE_URL, detection=SemanticTurnDetection()) as it:
        await it.ask("Hello")
        await it.until(LLMFullResponseEndFrame)
        it.forget()
        speaking = asyncio.create_task(it.speak(steps.hesitant_question()))
        await it.until(TTSAudioRawFrame)
        it.forget()
        await it.until(InterruptionFrame)
        it.forget()
        began_s = time.monotonic()
        while steps.ANSWER_BEGINS not in it.said() and time.monotonic() - began_s < 20:
            await asyncio.sleep(0.1)
        speaking.cancel()
        assert steps.ANSWER_BEGINS in it.said(), it.said()
        first, whole = it.heard()[0], it.heard()[-1]
        assert whole.startswith(first), it.heard()
        assert len(whole) > len(first), it.heard()
        return f"{first!r} became {whole!r}"


async def tool() -> str:
    """The registered function runs, and its result is spoken."""
    called.clear()
    city = {"city": {"type": "string"}}
    schema = FunctionSchema("weather", "Tells the weather.", city, ["city"])
    async with bot(steps.FAKE_URL, ToolsSchema(standard_tools=[schema])) as it:
        await it.ask("What is the weather in Rome?")
        began_s = time.monotonic()
        while "Sunny in Rome" not in it.said() and time.monotonic() - began_s < 20:
            await asyncio.sleep(0.1)
        assert called == [{"city": "Rome"}], called
        assert "Sunny in Rome" in it.said(), it.said()
        await it.until(TTSAudioRawFrame)
        return f"called with {called}, said {it.said()!r}"


async def video() -> str:
    """A camera frame goes in, and the next answer comes."""
    with Image.open(io.BytesIO(steps.CAT.read_bytes())) as image:
        rgb = image.convert("RGB")
    async with bot(steps.FAKE_URL) as it:
        await it.push(InputImageRawFrame(rgb.tobytes(), rgb.size, "RGB"))
        await it.ask("What do you see?")
        await it.until(LLMFullResponseEndFrame)
        assert steps.ANSWER_BEGINS in it.said(), it.said()
        return "answered"


async def transcribe(url: str) -> str:
    """Pipecat's speech to text over a session that only transcribes: its final words."""
    service = OpenAIRealtimeSTTService(
        api_key="k",
        base_url=url.replace("http", "ws", 1) + "/v1/realtime",
        sample_rate=24_000,
        turn_detection={"type": "server_vad"},
        settings=OpenAIRealtimeSTTService.Settings(model="gpt-4o-transcribe"),
    )
    async with running([service]) as it:
        speaking = asyncio.create_task(it.speak(steps.spoken_question(9_000)))
        heard = await it.until(TranscriptionFrame)
        speaking.cancel()
        assert isinstance(heard, TranscriptionFrame)
        return str(heard.text)


async def speech_to_text() -> str:
    """Words of the scripted recogniser."""
    return steps.scripted_words(await transcribe(steps.FAKE_URL))


async def real_ears() -> str:
    """Words of real ones."""
    return steps.question_words(await transcribe(steps.TINY_URL))


async def real_model() -> str:
    """A question to real weights: the answer is right."""
    async with bot(steps.TINY_URL) as it:
        await it.ask("What is the capital of France?")
        await it.until(LLMFullResponseEndFrame)
        assert "Paris" in it.said(), it.said()
        return repr(it.said())


if __name__ == "__main__":
    logger.remove()
    steps.run(
        "pipecat",
        {
            "text": text_turn,
            "audio": audio_turn,
            "barge-in": barge_in,
            "goes on": goes_on,
            "tool": tool,
            "video": video,
            "speech to text": speech_to_text,
            **({"real model": real_model, "real ears": real_ears} if steps.TINY_URL else {}),
        },
    )
