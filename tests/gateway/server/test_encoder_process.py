"""`headstart serve --encoder process`: its command lines, and a real server with two engines."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import psutil
import pytest
from websockets.sync.client import connect

from headstart.engine.process.options import engine_config, parse_options
from headstart.gateway.config import load
from headstart.gateway.engines import local
from headstart.gateway.errors import ChildRefused, ConfigError
from headstart.gateway.server.main import encoder
from headstart.gateway.server.supervision import supervise_alone
from tests.engine.models.served import write_pixtral
from tests.gateway.server.running import WAIT_S, Server, next_event, until


def test_engines_and_encoder_have_the_same_model(tmp_path: Path) -> None:
    """One here: by a private address without keys, with the settings that engines have. One
    elsewhere: by its address, with this host's keys. None for the scripted engine."""
    here = load(
        flags={"encoder": "process", "model": "/m", "engine_args": "--encoder-weights int8"}
    )
    assert local.wants_encoder(here)
    argv = local.engine_argv(here, "ipc:///x", encoder="ipc:///e")
    assert argv[argv.index("--encoder-url") + 1] == "ipc:///e"
    assert "--encoder-keys" not in argv
    beside = local.encoder_process(here, "ipc:///e").argv
    assert beside[beside.index("--serve-encoder") + 1] == "ipc:///e"
    assert "--endpoint" not in beside
    assert beside[beside.index("--model") + 1] == "/m"
    assert beside[-2:] == argv[-2:] == ["--encoder-weights", "int8"]
    flags = {"encoder": "process", "encoder_url": "tcp://h:1", "engine_keys": str(tmp_path)}
    there = load(flags=flags)
    assert not local.wants_encoder(there)
    argv = local.engine_argv(there, "ipc:///x")
    assert argv[argv.index("--encoder-url") + 1] == "tcp://h:1"
    assert argv[argv.index("--encoder-keys") + 1] == str(tmp_path)
    assert not local.wants_encoder(load(flags={"encoder": "process", "engine": "fake"}))
    assert "--encoder-url" not in local.engine_argv(load(), "ipc:///x")


def test_an_engine_elsewhere_needs_no_keys_for_an_encoder_beside_it(tmp_path: Path) -> None:
    """Its keys are for the gateway; the encoder beside it has a private address without any."""
    elsewhere = load(flags={"encoder": "process", "model": "/m", "engine_keys": str(tmp_path)})
    argv = local.engine_process(elsewhere, "tcp://h:1", encoder="ipc:///e").argv
    assert argv[argv.index("--keys") + 1] == str(tmp_path)
    config = engine_config(parse_options("", argv[argv.index("headstart.engine") + 1 :]))
    assert (config.encoder_url, config.encoder_keys) == ("ipc:///e", None)


async def test_an_encoder_that_is_given_up_is_told_of_by_headstart_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its engines go on, without pictures."""

    class Engine:
        ended = False

        async def run(self) -> None:
            while "pictures fail until" not in caplog.text:
                await asyncio.sleep(0.01)
            self.ended = True

    class Encoder:
        async def run(self) -> None:
            raise ChildRefused("encoder", ["no such model"])

    engine: Any = Engine()
    given_up: Any = Encoder()
    await asyncio.wait_for(supervise_alone([engine], given_up), WAIT_S)
    assert engine.ended
    assert "no such model" in caplog.text


def test_an_encoder_alone_needs_an_address_and_keys() -> None:
    """Of its own, and beyond this machine with keys."""
    with pytest.raises(ConfigError, match="encoder_url"):
        encoder(load())
    with pytest.raises(ConfigError, match="headstart keys"):
        encoder(load(flags={"encoder_url": "tcp://0.0.0.0:7071"}))


@contextlib.contextmanager
def real_server(folder: Path) -> Iterator[Server]:
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--set", "voice=none", "--engines", "2", "--encoder", "process"]
    argv += ["--model", str(folder), "--weights", "fp32", "--set", "kv_pool_mib=16"]
    argv += ["--set", "threads=1", "--set", "transcribe=off"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(process, json.loads(process.stdout.readline())["url"])
        finally:
            process.kill()


def encoder_of(running: Server) -> psutil.Process | None:
    for child in psutil.Process(running.process.pid).children():
        with contextlib.suppress(psutil.Error):
            if "--serve-encoder" in child.cmdline() and "headstart.engine" in child.cmdline():
                return child
    return None


def show(socket: Any, seed: int) -> dict[str, Any]:
    """Ask about a picture; how the answer ended."""
    rgb = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    url = base64.b64encode(cv2.imencode(".png", rgb)[1].tobytes()).decode()
    content = [
        {"type": "input_image", "image_url": f"data:image/png;base64,{url}"},
        {"type": "input_text", "text": "What is this?"},
    ]
    item = {"type": "message", "role": "user", "content": content}
    socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    socket.send(json.dumps({"type": "response.create", "response": {"max_output_tokens": 4}}))
    done = next_event(socket, "response.done")
    response: dict[str, Any] = done["response"]
    return response


def image_tokens(response: dict[str, Any]) -> int:
    tokens: int = response["usage"]["input_token_details"]["image_tokens"]
    return tokens


def test_a_server_starts_one_for_its_engines_and_keeps_it_running(tmp_path: Path) -> None:
    """Two engines and one encoder process: pictures are answered in sessions at both; after kill -9
    of the encoder it is started again, the sessions go on, and pictures are answered."""
    folder = tmp_path / "model"
    folder.mkdir()
    write_pixtral(folder)
    with real_server(folder) as running:
        until(lambda: [e["state"] for e in running.status()["engines"]] == ["ready"] * 2)
        first = encoder_of(running)
        assert first is not None
        with contextlib.ExitStack() as stack:
            url = running.url.replace("http", "ws") + "/v1/realtime"
            sockets: list[Any] = [stack.enter_context(connect(url)) for _ in range(2)]
            until(lambda: [e["sessions"] for e in running.status()["engines"]] == [1, 1])
            seen = [image_tokens(show(socket, 1)) for socket in sockets]
            assert seen[0] == seen[1] > 0
            os.kill(first.pid, signal.SIGKILL)
            until(lambda: (found := encoder_of(running)) is not None and found.pid != first.pid)
            until(lambda: all(image_tokens(show(s, 2)) > seen[0] for s in sockets))
        assert [e["restarts"] for e in running.status()["engines"]] == [0, 0]
        second = encoder_of(running)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(WAIT_S) == 0
        assert second is not None
        assert not second.is_running()
