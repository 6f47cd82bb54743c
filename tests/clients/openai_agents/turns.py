"""openai-agents (Python), unmodified: text, audio, barge-in, a tool, a picture, a real model."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession

from tests.clients import steps

called: list[str] = []


@function_tool
def weather(city: str) -> str:
    """Tells the weather in a city."""
    called.append(city)
    return f"Sunny in {city}, as always."


async def session_at(url: str, *tools: Any) -> RealtimeSession:
    agent = RealtimeAgent(name="guide", instructions="You are brief.", tools=list(tools))
    ws_url = url.replace("http", "ws", 1) + "/v1/realtime?model=small"
    return await RealtimeRunner(agent).run(model_config={"api_key": "k", "url": ws_url})


class Watcher:
    """Events of a session as they come; an error of any kind fails the step."""

    def __init__(self, session: RealtimeSession) -> None:
        self._events = session.__aiter__()
        self.audio_bytes = 0
        self.kinds: list[str] = []
        self.heard: list[str] = []
        self.history: list[Any] = []

    async def until(self, kind: str) -> Any:
        """The next event of that type; "response.done" and the like are raw ones."""
        async for event in self._events:
            self.kinds.append(event.type)
            assert event.type != "error", event
            if event.type == "audio":
                self.audio_bytes += len(event.audio.data)
            if event.type == "history_updated":
                self.history = event.history
            raw = event.data if event.type == "raw_model_event" else None
            if raw is not None:
                assert raw.type != "error", raw
                server = raw.data if raw.type == "raw_server_event" else None
                if raw.type == "input_audio_transcription_completed":
                    self.heard.append(raw.transcript)
                if server is not None and server["type"] == kind:
                    return server
            if event.type == kind:
                return event
        raise AssertionError(f"the session ended before {kind}")

    def said(self) -> str:
        """All that the assistant said, from the client's own history."""
        parts = [
            part.transcript or ""
            for item in self.history
            if item.type == "message" and item.role == "assistant"
            for part in item.content
            if part.type == "audio"
        ]
        return " ".join(parts)


async def text_turn() -> str:
    """A message is answered aloud, and the client's history holds what was said."""
    async with await session_at(steps.FAKE_URL) as session:
        watch = Watcher(session)
        await session.send_message("Hello")
        await watch.until("audio_end")
        await watch.until("agent_end")
        assert watch.audio_bytes > 24_000, watch.audio_bytes
        assert steps.ANSWER_BEGINS in watch.said(), watch.said()
        return f"{watch.audio_bytes} bytes of sound"


async def speak(session: RealtimeSession, pcm: bytes) -> None:
    async for packet in steps.live(pcm):
        await session.send_audio(packet)


async def audio_turn() -> str:
    """Speech under the client's own default, semantic_vad: heard, transcribed, answered aloud."""
    async with await session_at(steps.FAKE_URL) as session:
        watch = Watcher(session)
        speaking = asyncio.create_task(speak(session, steps.spoken_question(9_000)))
        await watch.until("audio_end")
        speaking.cancel()
        assert watch.heard, watch.kinds
        assert watch.heard[0].startswith(steps.HEARD), watch.heard
        return f"heard {watch.heard[0]!r}"


async def barge_in() -> str:
    """Speech over an answer: the client is told to stop playing, and cuts the item itself."""
    async with await session_at(steps.FAKE_URL) as session:
        watch = Watcher(session)
        await session.send_message("Hello")
        await watch.until("audio")
        speaking = asyncio.create_task(speak(session, steps.spoken_question(500)))
        await watch.until("audio_interrupted")
        truncated = await watch.until("conversation.item.truncated")
        speaking.cancel()
        return f"cut at {truncated['audio_end_ms']} ms"


async def goes_on() -> str:
    """A question with a pause inside: answered early, taken back, and one message in the end."""
    async with await session_at(steps.FAKE_URL) as session:
        watch = Watcher(session)
        speaking = asyncio.create_task(speak(session, steps.hesitant_question()))
        await watch.until("conversation.item.deleted")
        await watch.until("conversation.item.deleted")
        await watch.until("response.created")
        await watch.until("agent_end")
        speaking.cancel()
        said = [item for item in watch.history if item.type == "message"]
        assert [item.role for item in said] == ["user", "assistant"], watch.history
        (words,) = [part.transcript for part in said[0].content]
        assert words == watch.heard[-1], (words, watch.heard)
        assert words.startswith(watch.heard[0]), watch.heard
        assert len(words) > len(watch.heard[0]), watch.heard
        return f"{watch.heard[0]!r} became {words!r}"


async def tool() -> str:
    """The function runs with its arguments, and its result is spoken."""
    called.clear()
    async with await session_at(steps.FAKE_URL, weather) as session:
        watch = Watcher(session)
        await session.send_message("What is the weather in Rome?")
        end = await watch.until("tool_end")
        assert called == ["Rome"], called
        assert "Sunny in Rome" in str(end.output), end.output
        await watch.until("audio_end")
        await watch.until("agent_end")
        assert "Sunny in Rome" in watch.said(), watch.said()
        return f"called with {called}, said {watch.said()!r}"


async def picture() -> str:
    """A picture with a question is taken and answered."""
    async with await session_at(steps.FAKE_URL) as session:
        watch = Watcher(session)
        image = {"type": "input_image", "image_url": steps.cat_photo()}
        question = {"type": "input_text", "text": "What do you see?"}
        await session.send_message(
            {"type": "message", "role": "user", "content": [image, question]}
        )
        await watch.until("audio_end")
        return "answered"


async def real_model() -> str:
    """A spoken question to real weights: the answer is right."""
    async with await session_at(steps.TINY_URL) as session:
        watch = Watcher(session)
        speaking = asyncio.create_task(speak(session, steps.spoken_question(9_000)))
        await watch.until("audio_end")
        await watch.until("agent_end")
        speaking.cancel()
        assert "Paris" in watch.said(), (watch.heard, watch.said())
        return repr(watch.said())


if __name__ == "__main__":
    steps.run(
        "openai-agents",
        {
            "text": text_turn,
            "audio": audio_turn,
            "barge-in": barge_in,
            "goes on": goes_on,
            "tool": tool,
            "picture": picture,
            **({"real model": real_model} if steps.TINY_URL else {}),
        },
    )
