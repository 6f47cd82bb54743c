"""docs/architecture.md: what it names is there, its paths are short, and the code takes them.

The paths are run against a server and an engine in this process (`tests.traced_server`).
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import json
import re
import wave
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from websockets.asyncio.client import ClientConnection, connect

from tests.gateway.shell_fakes import until
from tests.gateway.transport.webrtc.peer import Microphone, Peer, calling
from tests.test_layout import LAYERED, layer, layered, root_of
from tests.traced_server import ROOT, SilentVoice, Trace, serving

PAGE = ROOT / "docs" / "architecture.md"
FILES_MAX = 14
PACKET_BYTES = 960  # 20 ms of s16 at 24 kHz
WAIT_S = 60.0
PATIENT = {"silence_duration_ms": 20_000}
"""The watchdog takes time without packets for silence: so long may a busy engine take."""
ELSEWHERE = "(decoder process)"


@dataclass(frozen=True)
class Step:
    """One numbered line: a file, and functions of it that are called one after the other."""

    file: str
    functions: tuple[str, ...]
    is_traced: bool


STEP = re.compile(r"^\d+\. `([\w./-]+)` ((?:`[\w.]+`(?:, )?)+)([^:]*): \S")


def paths() -> dict[int, list[Step]]:
    """The steps of each `## Path N`."""
    found: dict[int, list[Step]] = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE):
        title = re.match(r"Path (\d+): ", section)
        if title is None:
            continue
        steps = found[int(title[1])] = []
        for line in section.splitlines():
            if not re.match(r"\d+\. ", line):
                continue
            step = STEP.match(line)
            assert step is not None, f"expected `file` `function`: sentence, got {line!r}"
            functions = tuple(re.findall(r"`([\w.]+)`", step[2]))
            steps.append(Step(step[1], functions, ELSEWHERE not in step[3]))
    return found


def defined(path: Path) -> set[str]:
    """Qualified names of a file's functions."""

    def names(tree: ast.AST, before: str) -> Iterator[str]:
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield before + node.name
            if isinstance(node, ast.ClassDef):
                yield from names(node, f"{before}{node.name}.")

    return set(names(ast.parse(path.read_text()), ""))


def test_there_are_five_paths_of_few_files() -> None:
    """A reader opens fourteen files at most for each."""
    assert sorted(paths()) == [1, 2, 3, 4, 5]
    files = {number: {step.file for step in steps} for number, steps in paths().items()}
    assert {number: len(names) for number, names in files.items() if len(names) > FILES_MAX} == {}


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_the_files_and_functions_of_a_path_are_there(number: int) -> None:
    """A function that was renamed or moved is missed here."""
    gone = [
        f"{step.file} {function}"
        for step in paths()[number]
        for function in step.functions
        if not (ROOT / step.file).is_file() or function not in defined(ROOT / step.file)
    ]
    assert gone == []


def test_every_function_named_in_the_text_is_there() -> None:
    """Outside of the lists, too: `Class.method` in backquotes is a method of a class of ours."""
    methods = {
        name
        for package in ("gateway", "engine")
        for path in (ROOT / package).rglob("*.py")
        for name in defined(path)
    }
    named = set(re.findall(r"`([A-Z]\w+\.\w+)`", PAGE.read_text()))
    assert {name for name in named if name not in methods} == set()


def test_the_layers_are_those_of_the_code() -> None:
    """The table of layers names each folder in its own one."""
    section = PAGE.read_text().split("### Layers")[1].split("```")[1]
    rows = {
        int(line.split()[0]): line for line in section.splitlines() if line.strip()[:1].isdigit()
    }
    wrong = []
    for package in set(LAYERED) - {"headstart"}:
        graph = layered(package)
        for name in graph:
            short = name.removeprefix(root_of(package) + ".")
            if short in ("transport", "default_prompts", "fake_engine"):
                continue  # empty, text, and for tests
            last = short.split(".")[-1]
            if not re.search(rf"\b{last}\b", rows[layer(graph, name)]):
                wrong.append(f"{name} is in layer {layer(graph, name)}")
    assert wrong == []


# --- the paths, taken ----------------------------------------------------------------------------


class Client:
    """One WebSocket session: sends events, waits for those that come."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def event(self, kind: str) -> dict[str, Any]:
        """The next event of a type; none before it is an error."""
        async with asyncio.timeout(WAIT_S):
            while True:
                event: dict[str, Any] = json.loads(await self._socket.recv())
                assert event["type"] != "error", event
                if event["type"] == kind:
                    return event

    async def say(self, pcm: bytes, packet_bytes: int = PACKET_BYTES) -> None:
        """Packet by packet, each read before the next."""
        for start in range(0, len(pcm), packet_bytes):
            packet = base64.b64encode(pcm[start : start + packet_bytes]).decode()
            await self.send("input_audio_buffer.append", audio=packet)
            await asyncio.sleep(0.001)


def question(rate_hz: int = 24_000) -> bytes:
    """ "What is the capital of France?" as s16 mono."""
    with wave.open(str(ROOT / "headstart" / "clips" / "capital.wav")) as file:
        pcm = file.readframes(file.getnframes())
    return np.repeat(np.frombuffer(pcm, "<i2"), rate_hz // 24_000).tobytes()


async def opened(socket: ClientConnection) -> Client:
    client = Client(socket)
    await client.event("session.created")
    session = {
        "type": "realtime",
        "output_modalities": ["text"],
        "gateway": {"events": ["chunks", "endpoint"]},
        "audio": {"input": {"turn_detection": {"type": "server_vad", **PATIENT}}},
    }
    await client.send("session.update", session=session)
    await client.event("session.updated")
    return client


async def all_called(steps: list[Step], trace: Trace) -> None:
    """Until the steps are complete: the engine may be behind the last event. What never comes is
    found missing later."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            while as_called(steps, trace):
                await asyncio.sleep(0.1)


async def by_socket(
    url: str, trace: Trace, act: Callable[[Client], Awaitable[None]], steps: list[Step]
) -> None:
    async with connect(url.replace("http", "ws", 1) + "/v1/realtime") as socket:
        client = await opened(socket)
        trace.begin()
        await act(client)
        await all_called(steps, trace)
        trace.end()


async def a_chunk(client: Client) -> None:
    await client.say(question())
    await client.event("gateway.chunk.report")


async def a_turn(client: Client) -> None:
    """As somebody live speaks: at the endpoint an answer has been begun."""
    await client.say(question())  # there are 400 ms of silence at its end
    await client.event("gateway.end_of_message")
    await asyncio.sleep(0.5)
    await client.say(bytes(48 * PATIENT["silence_duration_ms"]), packet_bytes=48_000)
    await client.event("response.output_text.delta")


async def a_frame(client: Client) -> None:
    file = BytesIO()
    Image.new("RGB", (320, 240), (200, 30, 30)).save(file, "JPEG")
    picture = base64.b64encode(file.getvalue()).decode()
    await client.send("input_image_buffer.append", image=picture)
    await a_turn(client)


async def a_call(
    url: str,
    trace: Trace,
    act: Callable[[Peer, Microphone], Awaitable[None]],
    steps: list[Step],
) -> None:
    microphone = Microphone()
    async with calling(url, microphone) as peer:
        await peer.event("session.created")
        trace.begin()
        await act(peer, microphone)
        await all_called(steps, trace)
        trace.end()


def now_says(microphone: Microphone) -> None:
    """The question, from the next frame on."""
    silence = np.zeros(microphone.frames_sent * 960 + 960, np.int16)
    microphone.sound = np.concatenate((silence, np.frombuffer(question(48_000), "<i2")))


async def a_call_that_is_heard(peer: Peer, microphone: Microphone) -> None:
    now_says(microphone)
    await peer.event("input_audio_buffer.speech_started")


async def a_barge_in(peer: Peer, microphone: Microphone) -> None:
    now_says(microphone)
    begun = {"response.done", "output_audio_buffer.started"}  # in either order
    await until(lambda: begun <= {event["type"] for event in peer.events})
    await asyncio.sleep(5.0)  # two words of it are heard
    now_says(microphone)
    await peer.event("conversation.item.truncated")
    await peer.event("input_audio_buffer.speech_stopped")


def as_called(steps: list[Step], trace: Trace) -> list[str]:
    """The functions of the steps that are not called behind those before them. Where the same work
    is done for packet after packet, two functions in the wrong order are not noticed."""
    calls = iter(trace.calls)
    missing = []
    for step in (step for step in steps if step.is_traced):
        for function in step.functions:
            if (step.file, function) not in calls:  # goes on behind the last one that was found
                missing.append(f"{step.file} {function}")
                calls = iter(trace.calls)
    return missing


def test_a_function_that_is_not_called_in_its_place_is_named() -> None:
    """Not called at all, or only before those that the page has before it."""
    trace = Trace()
    trace.calls = [("f", "b"), ("f", "a"), ("g", "c")]
    steps = [Step("f", ("a",), True), Step("g", ("c",), True)]
    assert as_called(steps, trace) == []
    assert as_called([*steps, Step("f", ("b",), True)], trace) == ["f b"]
    assert as_called([Step("f", ("a", "d"), True)], trace) == ["f d"]
    assert as_called([Step("f", ("d",), False)], trace) == []


@pytest.mark.weights
@pytest.mark.timeout(600)  # two calls are in real time, and a server starts
async def test_the_code_takes_the_paths() -> None:
    """Each function named is called, in the page's order, from socket to K/V and back."""
    trace = Trace()
    missing: dict[int, list[str]] = {}
    async with serving(trace, SilentVoice()) as url:
        for number, act in ((1, a_chunk), (2, a_turn), (4, a_frame)):
            await by_socket(url, trace, act, paths()[number])
            missing[number] = as_called(paths()[number], trace)
        for number, call in ((3, a_call_that_is_heard), (5, a_barge_in)):
            await a_call(url, trace, call, paths()[number])
            missing[number] = as_called(paths()[number], trace)
    assert {number: names for number, names in missing.items() if names} == {}
