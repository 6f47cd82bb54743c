"""LiveKit's RealtimeModel of livekit-plugins-openai, unmodified, without a room."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from livekit import rtc
from livekit.agents import llm, stt
from livekit.agents.utils import http_context
from livekit.plugins.openai import STT
from livekit.plugins.openai.realtime import RealtimeModel, RealtimeSession
from openai.types.realtime.realtime_audio_input_turn_detection import SemanticVad
from PIL import Image

from tests.clients import steps

# Its `interrupt()` may cross the server's own cancel; the plugin passes over that answer, too.
HARMLESS = "Cancellation failed"


class Talk:
    """One session; an `error` event from the server, or the client's own, fails the step."""

    def __init__(self, session: RealtimeSession) -> None:
        self.session = session
        self.problems: list[Any] = []
        self.events: list[dict[str, Any]] = []
        self.heard: list[str] = []
        self.interrupted = asyncio.Event()
        self.begun: asyncio.Queue[llm.GenerationCreatedEvent] = asyncio.Queue()
        session.on("error", self.problems.append)
        session.on("openai_server_event_received", self._event)
        session.on("input_speech_started", lambda _: self.interrupted.set())
        session.on("generation_created", self.begun.put_nowait)
        session.on("input_audio_transcription_completed", self._transcribed)

    def _event(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event["type"] == "error" and not event["error"]["message"].startswith(HARMLESS):
            self.problems.append(event)

    def _transcribed(self, event: Any) -> None:
        if event.is_final:
            self.heard.append(event.transcript)

    async def speak(self, pcm: bytes) -> None:
        async for packet in steps.live(pcm):
            self.session.push_audio(rtc.AudioFrame(packet, 24_000, 1, len(packet) // 2))

    async def collect(self, generation: llm.GenerationCreatedEvent) -> tuple[str, int]:
        """What an answer said, and the samples of its sound."""
        text, samples = "", 0
        async for message in generation.message_stream:
            async for piece in message.text_stream:
                text += str(piece)
            async for frame in message.audio_stream:
                samples += frame.samples_per_channel
        assert not self.problems, self.problems
        return text, samples


@contextlib.asynccontextmanager
async def talk(url: str) -> AsyncIterator[Talk]:
    async with aiohttp.ClientSession() as http:
        model = RealtimeModel(model="small", api_key="k", base_url=f"{url}/v1", http_session=http)
        session = model.session()
        it = Talk(session)
        try:
            yield it
        finally:
            await session.aclose()
            await model.aclose()


async def text_turn() -> str:
    """The chat context is synchronised item by item, and a reply is generated aloud."""
    async with talk(steps.FAKE_URL) as it:
        context = llm.ChatContext.empty()
        context.add_message(role="user", content="Hello")
        context.add_message(role="assistant", content="Hi.")
        context.add_message(role="user", content="Tell me something.")
        await it.session.update_chat_ctx(context)
        text, samples = await it.collect(await it.session.generate_reply(instructions="say hi"))
        assert steps.ANSWER_BEGINS in text, text
        assert samples > 12_000, samples
        shorter = it.session.chat_ctx.copy()
        shorter.items.pop(0)
        await it.session.update_chat_ctx(shorter)
        assert not it.problems, it.problems
        return f"{samples} samples of sound"


async def audio_turn() -> str:
    """Speech under LiveKit's default, semantic_vad: transcribed and answered aloud."""
    async with talk(steps.FAKE_URL) as it:
        speaking = asyncio.create_task(it.speak(steps.spoken_question(9_000)))
        text, _ = await it.collect(await it.begun.get())
        speaking.cancel()
        assert it.heard, "no transcription"
        assert it.heard[0].startswith(steps.HEARD), it.heard
        assert steps.ANSWER_BEGINS in text, text
        return f"heard {it.heard[0]!r}"


async def barge_in() -> str:
    """Speech over an answer, and then LiveKit's truncation of what was not heard."""
    async with talk(steps.FAKE_URL) as it:
        reply = await it.session.generate_reply(instructions="say hi")
        message = await anext(aiter(reply.message_stream))
        await anext(aiter(message.audio_stream))
        speaking = asyncio.create_task(it.speak(steps.spoken_question(500)))
        await asyncio.wait_for(it.interrupted.wait(), 20)
        it.session.interrupt()
        it.session.truncate(message_id=message.message_id, modalities=["audio"], audio_end_ms=200)
        while not any(e["type"] == "conversation.item.truncated" for e in it.events):
            await asyncio.sleep(0.05)
        speaking.cancel()
        assert not it.problems, it.problems
        return "truncated at 200 ms"


async def goes_on() -> str:
    """A question with a pause inside: answered early, taken back, and one message in the end. At
    LiveKit's default, eagerness medium, no answer comes so early: `auto` is asked for."""
    async with talk(steps.FAKE_URL) as it:
        it.session._realtime_model.update_options(
            turn_detection=SemanticVad(
                type="semantic_vad", eagerness="auto", create_response=True, interrupt_response=True
            )
        )
        speaking = asyncio.create_task(it.speak(steps.hesitant_question()))
        early = await it.begun.get()
        message = await anext(aiter(early.message_stream))
        await asyncio.wait_for(it.interrupted.wait(), 20)
        it.interrupted.clear()
        await asyncio.wait_for(it.interrupted.wait(), 20)
        it.session.interrupt()
        it.session.truncate(message_id=message.message_id, modalities=["audio"], audio_end_ms=200)
        text, _ = await it.collect(await it.begun.get())
        speaking.cancel()
        assert steps.ANSWER_BEGINS in text, text
        assert len(it.heard[-1]) > len(it.heard[0]), it.heard
        said = [item for item in it.session.chat_ctx.items if isinstance(item, llm.ChatMessage)]
        assert [item.role for item in said] == ["user", "assistant"], said
        assert said[0].text_content == it.heard[-1], (said, it.heard)
        assert not it.problems, it.problems
        return f"{it.heard[0]!r} became {it.heard[-1]!r}"


async def tool() -> str:
    """A function call comes with its arguments; its output goes back and is spoken."""

    @llm.function_tool
    async def weather(city: str) -> str:
        """Tells the weather in a city."""
        return f"Sunny in {city}, as always."

    async with talk(steps.FAKE_URL) as it:
        await it.session.update_tools([weather])
        reply = await it.session.generate_reply(instructions="use your tools")
        calls = [call async for call in reply.function_stream]
        assert [(c.name, c.arguments) for c in calls] == [("weather", '{"city": "Rome"}')], calls
        context = it.session.chat_ctx.copy()
        context.items.append(
            llm.FunctionCallOutput(
                name="weather",
                call_id=calls[0].call_id,
                output=await weather(city="Rome"),
                is_error=False,
            )
        )
        await it.session.update_chat_ctx(context)
        text, _ = await it.collect(await it.session.generate_reply())
        assert "Sunny in Rome" in text, text
        return f"called with {calls[0].arguments}, said {text!r}"


async def video() -> str:
    """A video frame goes in, and the next answer comes."""
    with Image.open(io.BytesIO(steps.CAT.read_bytes())) as image:
        rgba = image.convert("RGBA")
    async with talk(steps.FAKE_URL) as it:
        frame = rtc.VideoFrame(rgba.width, rgba.height, rtc.VideoBufferType.RGBA, rgba.tobytes())
        it.session.push_video(frame)
        text, _ = await it.collect(await it.session.generate_reply())
        assert steps.ANSWER_BEGINS in text, text
        items = [e for e in it.events if e["type"] == "conversation.item.added"]
        assert any(
            part["type"] == "input_image" for e in items for part in e["item"].get("content", ())
        ), items
        return "answered"


async def transcribe(url: str) -> str:
    """The plugin's speech to text over a session that only transcribes: its final words."""
    pcm = steps.spoken_question()
    async with http_context.open():
        ears = STT(
            model="gpt-4o-mini-transcribe", api_key="k", base_url=f"{url}/v1", use_realtime=True
        )
        async with ears.stream() as stream:

            async def speak() -> None:
                async for packet in steps.live(pcm):
                    stream.push_frame(rtc.AudioFrame(packet, 24_000, 1, len(packet) // 2))

            speaking = asyncio.create_task(speak())
            async for event in stream:
                if event.type is stt.SpeechEventType.FINAL_TRANSCRIPT:
                    break
            await speaking
        await ears.aclose()
        return str(event.alternatives[0].text)


async def speech_to_text() -> str:
    """Words of the scripted recogniser."""
    return steps.scripted_words(await transcribe(steps.FAKE_URL))


async def real_ears() -> str:
    """Words of real ones."""
    return steps.question_words(await transcribe(steps.TINY_URL))


async def real_model() -> str:
    """A spoken question to real weights: the answer is right, by instructions that were set."""
    async with talk(steps.TINY_URL) as it:
        # The smallest model knows little: what it is asked stands in what it is told.
        await it.session.update_instructions("You are brief. The capital of France is Paris.")
        speaking = asyncio.create_task(it.speak(steps.spoken_question(9_000)))
        text, _ = await it.collect(await it.begun.get())
        speaking.cancel()
        assert "Paris" in text, (it.heard, text)
        return repr(text)


if __name__ == "__main__":
    steps.run(
        "livekit",
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
