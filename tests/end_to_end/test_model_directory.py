"""A flagship model's directory behind the real server: the stock client speaks and shows."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from openai import AsyncOpenAI

from headstart.engine.weights import resolve_model
from tests.end_to_end.conftest import Server, packets, serving, within
from tests.end_to_end.test_openai_client import events_until
from tests.engine.models.served import write_served, write_tiled

pytestmark = pytest.mark.weights


@pytest.fixture(scope="module")
def directory_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = tmp_path_factory.mktemp("served") / "omni"
    write_served(folder)
    resolve_model("tiny")  # its recogniser writes down what was said
    with serving(str(folder), "transcribe=on") as running:
        yield running


def jpeg(width: int = 96, height: int = 64) -> str:
    """A random picture as a data URL."""
    rgb = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    with av.open(out, "w", format="mjpeg") as container:
        stream = container.add_stream("mjpeg", rate=1)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuvj420p"
        frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
        container.mux([*stream.encode(frame), *stream.encode(None)])
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()


async def test_a_turn_with_sound_and_a_picture(
    directory_server: Server, capital_pcm: bytes
) -> None:
    """`--model DIR`, weights random: an audio turn after a picture is answered, and both are
    counted as tokens of their kind, all but the suffix in the cache before it was asked for."""
    client = AsyncOpenAI(api_key="unused", base_url=f"{directory_server.url}/v1")

    async def turn() -> Any:
        async with client.realtime.connect(model="omni") as connection:
            await connection.session.update(
                session={
                    "type": "realtime",
                    "output_modalities": ["text"],
                    "audio": {"input": {"turn_detection": None}},
                }
            )
            await connection.conversation.item.create(
                item={
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": jpeg()}],
                }
            )
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=base64.b64encode(packet).decode())
            await connection.input_audio_buffer.commit()
            await events_until(connection, "input_audio_buffer.committed")
            await connection.response.create()
            return (await events_until(connection, "response.done"))[-1].response

    response = await within(turn())
    assert response.status in ("completed", "incomplete")  # random weights may never stop
    details = response.usage.input_token_details
    assert details.audio_tokens > 40  # 25 for each second
    assert details.image_tokens > 0
    assert details.cached_tokens > details.audio_tokens
    assert response.usage.output_tokens > 0


async def test_what_was_said_is_written_down(directory_server: Server, capital_pcm: bytes) -> None:
    """Under server VAD the model hears sound and finds the end by itself; the client reads the
    words that a Whisper heard beside it, and the turn's budget has every stage."""
    client = AsyncOpenAI(api_key="unused", base_url=f"{directory_server.url}/v1")

    async def turn() -> list[Any]:
        async with client.realtime.connect(model="omni") as connection:
            session = {
                "type": "realtime",
                "output_modalities": ["text"],
                "audio": {"input": {"transcription": {"model": "whisper-1"}}},
                "gateway": {"events": ["latency"]},
            }
            await connection.send({"type": "session.update", "session": session})  # type: ignore[arg-type]
            for packet in packets(capital_pcm):
                await connection.input_audio_buffer.append(audio=base64.b64encode(packet).decode())
            seen = await events_until(connection, "response.done")
            if "gateway.latency.report" not in {event.type for event in seen}:
                seen += await events_until(connection, "gateway.latency.report")
            return seen

    events = await within(turn())
    completed = "conversation.item.input_audio_transcription.completed"
    (said,) = [event.transcript for event in events if event.type == completed]
    assert "capital of France" in said
    (response,) = [event.response for event in events if event.type == "response.done"]
    assert response.usage.input_token_details.audio_tokens > 25
    (budget,) = [event for event in events if event.type == "gateway.latency.report"]
    stages = budget.model_dump()["budget"]["stages_ms"]
    measured = [stages[name] for name in ("vad_hangover", "encode", "prefill", "decode_first")]
    assert None not in measured


async def image_tokens(url: str, *pictures: str) -> int:
    """What the answer to an item with these pictures is charged for them."""
    client = AsyncOpenAI(api_key="unused", base_url=f"{url}/v1")
    content: Any = [{"type": "input_image", "image_url": picture} for picture in pictures]

    async def turn() -> Any:
        async with client.realtime.connect(model="omni") as connection:
            await connection.session.update(
                session={"type": "realtime", "output_modalities": ["text"], "max_output_tokens": 2}
            )
            item: Any = {"type": "message", "role": "user", "content": content}
            await connection.conversation.item.create(item=item)
            await connection.response.create()
            return (await events_until(connection, "response.done"))[-1].response

    response = await within(turn())
    assert response.status in ("completed", "incomplete"), response.status_details
    return int(response.usage.input_token_details.image_tokens)


def tiles_of(width: int, height: int, tile_px: int, patch_px: int = 14) -> int:
    """Tokens of a still: one tile of all of it and, where it fills its canvas, those of its tiles
    and a newline behind each row."""
    side = tile_px // patch_px
    columns, rows = width // tile_px * side, height // tile_px * side
    return side * side + rows * (columns + 1)


async def test_a_picture_comes_as_large_as_the_models_tiles(tmp_path: Path) -> None:
    """A still of three tiles by two is seen in six of them, as the model's eyes ask for; where the
    server's settings allow two tiles' pixels, one of four by two is seen in two."""
    tile_px = 252
    write_tiled(tmp_path / "tiled", tile_px)
    with serving(str(tmp_path / "tiled"), "transcribe=off") as running:
        tokens = await image_tokens(running.url, jpeg(3 * tile_px, 2 * tile_px))
        assert tokens == tiles_of(3 * tile_px, 2 * tile_px, tile_px)
    cap = f"image_max_pixels={2 * tile_px * tile_px}"
    with serving(str(tmp_path / "tiled"), "transcribe=off", cap) as running:
        tokens = await image_tokens(running.url, jpeg(4 * tile_px, 2 * tile_px))
        assert tokens == tiles_of(2 * tile_px, tile_px, tile_px)
