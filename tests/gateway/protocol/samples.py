"""Client events to test with: each type minimal, each with every field, and as clients sent them.

The files in `vectors` were recorded from the unmodified clients talking to a stub server (openai
3.57.0 with our session key, openai-agents 0.24.0, @openai/agents 0.20.0, pipecat-ai 1.14.0,
livekit-plugins-openai 1.8.9); audio was shortened, and an event sent twice is there once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parent / "vectors"

MINIMAL: list[dict[str, Any]] = [
    {"type": "session.update", "session": {"type": "realtime"}},
    {"type": "input_audio_buffer.append", "audio": "AAAA"},
    {"type": "input_audio_buffer.commit"},
    {"type": "input_audio_buffer.clear"},
    {"type": "output_audio_buffer.clear"},
    {
        "type": "conversation.item.create",
        "item": {"type": "message", "role": "user", "content": []},
    },
    {"type": "conversation.item.retrieve", "item_id": "i"},
    {
        "type": "conversation.item.truncate",
        "item_id": "i",
        "content_index": 0,
        "audio_end_ms": 0,
    },
    {"type": "conversation.item.delete", "item_id": "i"},
    {"type": "response.create"},
    {"type": "response.cancel"},
    {"type": "input_image_buffer.append", "image": "AAAA"},
    {"type": "gateway.playout.started", "response_id": "r"},
]

_TOOL = {
    "type": "function",
    "name": "weather",
    "description": "…",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_PCM = {"type": "audio/pcm", "rate": 24000}

FULL: list[dict[str, Any]] = [
    {
        "type": "session.update",
        "event_id": "e",
        "session": {
            "type": "realtime",
            "model": "gpt-realtime-9",
            "output_modalities": ["audio"],
            "instructions": "",
            "tools": [_TOOL],
            "tool_choice": {"type": "function", "name": "weather"},
            "max_output_tokens": 4096,
            "tracing": {"workflow_name": "w", "group_id": "g", "metadata": {"a": [1]}},
            "truncation": {
                "type": "retention_ratio",
                "retention_ratio": 0.5,
                "token_limits": {"post_instructions": 100},
            },
            "prompt": {"id": "p", "version": "1", "variables": {"a": "b"}},
            "include": ["item.input_audio_transcription.logprobs"],
            "reasoning": {"effort": "low"},
            "parallel_tool_calls": True,
            "audio": {
                "input": {
                    "format": _PCM,
                    "transcription": {
                        "model": "whisper-9",
                        "language": "en",
                        "languages": ["en"],
                        "prompt": "…",
                        "keywords": ["a"],
                        "delay": "minimal",
                    },
                    "noise_reduction": {"type": "near_field", "strength": 1},
                    "turn_detection": {
                        "type": "server_vad",
                        "threshold": 0,
                        "prefix_padding_ms": 0,
                        "silence_duration_ms": 40,
                        "idle_timeout_ms": None,
                        "create_response": False,
                        "interrupt_response": False,
                    },
                },
                "output": {"format": _PCM, "voice": {"id": "v"}, "speed": 0.25},
            },
        },
    },
    {
        "type": "conversation.item.create",
        "event_id": "e",
        "previous_item_id": "root",
        "item": {
            "id": "x" * 32,
            "object": "realtime.item",
            "type": "message",
            "status": "completed",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "hi"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
                {"type": "input_audio", "audio": "AAAA", "transcript": "hi"},
            ],
        },
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"},
    },
    {
        "type": "conversation.item.create",
        "item": {"type": "function_call_output", "call_id": "c", "output": "sunny"},
    },
    {
        "type": "response.create",
        "event_id": "e",
        "response": {
            "instructions": "be brief",
            "output_modalities": ["text"],
            "audio": {"output": {"format": _PCM, "voice": "marin"}},
            "tools": [_TOOL],
            "tool_choice": "required",
            "max_output_tokens": "inf",
            "metadata": {"k" * 64: "v" * 512},
            "conversation": "none",
            "input": [
                {"type": "item_reference", "id": "i"},
                {
                    "type": "message",
                    "role": "system",
                    "content": [{"type": "input_text", "text": "hi"}],
                },
            ],
            "prompt": {"id": "p"},
            "reasoning": {"effort": "minimal"},
            "parallel_tool_calls": False,
        },
    },
    {"type": "response.cancel", "event_id": "e", "response_id": "resp_1"},
]


def recorded() -> list[tuple[str, str]]:
    """(client, event as JSON text), in the order in which they were sent."""
    return [
        (path.stem, line)
        for path in sorted(VECTORS.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
