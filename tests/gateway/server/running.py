"""A server in a process of its own, with a scripted engine, and short ways to talk to it."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import psutil

WAIT_S = 60.0
PORTS = itertools.count()


class Server:
    """A `headstart serve --engine fake` child and its URL."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = httpx.get(f"{self.url}/status", timeout=WAIT_S).json()
        return status

    def until_ready(self) -> None:
        until(lambda: self.status()["engine"]["state"] == "ready")

    def engine_process(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children()
        (engine,) = (
            child for child in children if "headstart.gateway.fake_engine" in child.cmdline()
        )
        return engine


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it never came true"
        time.sleep(0.05)


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[Server]:
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    with subprocess.Popen(
        [*argv, "--engine", "fake", "--set", "voice=none", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield Server(process, json.loads(process.stdout.readline())["url"])
        finally:
            process.kill()


def ask(websocket: Any) -> None:
    """A typed question, and the wish for an answer."""
    content = [{"type": "input_text", "text": "hello?"}]
    item = {"type": "message", "role": "user", "content": content}
    websocket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    websocket.send(json.dumps({"type": "response.create"}))


def next_event(websocket: Any, *kinds: str) -> dict[str, Any]:
    """The next event of one of these kinds; what comes before it is lost."""
    while True:
        event: dict[str, Any] = json.loads(websocket.recv(timeout=WAIT_S))
        if event["type"] in kinds:
            return event


def free_port() -> int:
    """One that stays free until it is used: below those that the system deals out (from 32,768 on),
    in a hundred that no other process of the same run has."""
    first = 20_000 + os.getpid() % 120 * 100
    for number in PORTS:
        port = first + number % 100
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("no port is free")
