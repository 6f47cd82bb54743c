"""What a client or a machine can do wrong, against a real server: named, and survived."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.end_to_end.conftest import Server, within

pytestmark = pytest.mark.weights


def address(server: Server) -> str:
    return f"ws://{urlsplit(server.url).netloc}/v1/realtime?model=tiny"


async def say(socket: ClientConnection, type_: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": type_, **fields}))


async def until(socket: ClientConnection, type_: str) -> dict[str, Any]:
    """The next event of a type."""
    while True:
        event: dict[str, Any] = json.loads(await within(socket.recv()))
        if event["type"] == type_:
            return event


async def ask(socket: ClientConnection, question: str = "Say hello.") -> dict[str, Any]:
    """One whole text turn; its response."""
    content = [{"type": "input_text", "text": question}]
    await say(
        socket,
        "conversation.item.create",
        item={"type": "message", "role": "user", "content": content},
    )
    await say(socket, "response.create")
    response: dict[str, Any] = (await until(socket, "response.done"))["response"]
    return response


PCM = base64.b64encode(bytes(960)).decode()
BAD: list[tuple[str | bytes, str | None]] = [
    ("not json", "invalid_json"),
    (b"\x00\x01", "invalid_event"),
    ('{"type": "no.such.event"}', "invalid_value"),
    ('{"type": "conversation.item.delete"}', "missing_required_parameter"),
    ('{"type": "response.cancel", "extra": 1}', "unknown_parameter"),
    ('{"type": "input_audio_buffer.append", "audio": "!!"}', "invalid_value"),
    ('{"type": "input_audio_buffer.append", "audio": "AAAA"}', "invalid_value"),
    ('{"type": "input_audio_buffer.append", "audio": ""}', "invalid_value"),
    (
        json.dumps(
            {
                "type": "input_audio_buffer.append",
                "audio": base64.b64encode(bytes(15 * 2**20 + 2)).decode(),
            }
        ),
        "invalid_value",
    ),
    (
        '{"type": "session.update", "session": {"type": "realtime", "gateway":'
        ' {"sampling": {"temperature": NaN}}}}',
        "invalid_json",
    ),
    (
        '{"type": "session.update", "session": {"type": "realtime", "audio": {"input":'
        ' {"turn_detection": {"type": "server_vad", "threshold": 1.5}}}}}',
        "invalid_value",
    ),
    ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty"),
    ('{"type": "response.cancel"}', "response_cancel_not_active"),
    ('{"type": "conversation.item.delete", "item_id": "x"}', "item_delete_invalid_item_id"),
]


async def test_every_kind_of_bad_input_is_named_and_all_sessions_go_on(server: Server) -> None:
    """Each gets exactly its error; afterwards this session and another one still answer."""
    async with connect(address(server)) as victim, connect(address(server)) as bystander:
        for message, code in BAD:
            await victim.send(message)
            error = (await until(victim, "error"))["error"]
            assert error["code"] == code, (str(message)[:80], error)
        assert (await ask(victim))["status"] == "completed"
        assert (await ask(bystander))["status"] == "completed"


async def test_a_second_response_is_refused_while_one_runs(server: Server) -> None:
    """The first one ends as if nothing had been asked."""
    async with connect(address(server)) as socket:
        await say(socket, "response.create")
        await say(socket, "response.create")
        error = (await until(socket, "error"))["error"]
        assert error["code"] == "conversation_already_has_active_response"
        assert (await until(socket, "response.done"))["response"]["status"] == "completed"


async def test_the_engine_killed_in_mid_answer(server: Server) -> None:
    """SIGKILL: the session is told, the engine comes back, and the next turn knows the
    conversation."""
    async with connect(address(server)) as socket:
        gateway = {"events": ["engine"]}
        await say(socket, "session.update", session={"type": "realtime", "gateway": gateway})
        assert (await ask(socket, "My name is Ada. Say hello."))["status"] == "completed"
        content = [{"type": "input_text", "text": "Tell me a very long story about the sea."}]
        item = {"type": "message", "role": "user", "content": content}
        await say(socket, "conversation.item.create", item=item)
        await say(socket, "response.create")
        await until(socket, "response.output_text.delta")
        (engine,) = [
            child
            for child in psutil.Process(server.pid).children(recursive=True)
            if "headstart.engine" in child.cmdline()
        ]
        os.kill(engine.pid, signal.SIGKILL)
        response = (await until(socket, "response.done"))["response"]
        assert response["status"] == "failed"
        assert response["status_details"]["error"]["code"] == "engine_lost"
        while (await until(socket, "gateway.engine.status"))["status"] != "ready":
            pass
        response = await ask(socket, "Say yes.")
        assert response["status"] == "completed"
        assert response["usage"]["input_tokens"] > 40  # system prompt and all turns before
    assert server.status()["engine"]["restarts"] >= 1


def command(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headstart", *argv],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


def test_a_port_in_use_is_named(server: Server) -> None:
    """Which port, and exit code 1; nothing is started."""
    port = str(urlsplit(server.url).port)
    done = command("serve", "--port", port, "--model", "tiny")
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there_is_named() -> None:
    """The known ones are listed, and the server ends."""
    done = command("serve", "--port", "0", "--model", "gigantic")
    assert done.returncode != 0
    assert "gigantic" in done.stderr
    assert "tiny" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("size", [0, 44])
def test_a_useless_file_is_named(tmp_path: Path, size: int) -> None:
    """An empty file and one that is no sound: exit code 2, one sentence."""
    path = tmp_path / "clip.wav"
    path.write_bytes(bytes(size))
    done = command("talk", str(path))
    assert done.returncode == 2
    assert "clip.wav" in done.stderr
    assert "Traceback" not in done.stderr
