"""`headstart serve --llm` with all its processes, in front of a scripted LLM server."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import serving, within
from tests.end_to_end.test_openai_client import client, events_until
from tests.engine.backends.llm_server.parrot import parrot

pytestmark = pytest.mark.weights

START_S = 150
QUESTION = "Is a parrot able to say this again?"
LONG_QUESTION = "Please say" + " that the grey parrot says a word and" * 12 + " goes"


async def test_a_stock_client_is_answered_by_the_llm_server(smollm2_path: Path) -> None:
    """The gateway cannot tell it from our decoder; `/status` says what the server can."""

    async def turn(server: Any) -> list[Any]:
        async with client(server).realtime.connect(model="parrot") as connection:
            assert (await connection.recv()).type == "session.created"
            text = {"type": "realtime", "output_modalities": ["text"]}
            await connection.session.update(session=text)  # type: ignore[arg-type]
            said = {"type": "input_text", "text": QUESTION}
            item = {"type": "message", "role": "user", "content": [said]}
            await connection.conversation.item.create(item=item)  # type: ignore[arg-type]
            await connection.response.create()
            return await events_until(connection, "response.done")

    with parrot(smollm2_path) as there:
        settings = (f"llm={there.url}", f"tokenizer={smollm2_path}")
        with serving("tiny", *settings) as here:
            model = here.status()["model"]
            assert model["name"] == "parrot"
            assert model["llm_server"]["prompt"] == "token ids"
            events = await within(turn(here))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert QUESTION in text
    assert events[-1].response.status == "completed"
    assert there.of("warm-up")


async def test_one_of_three_servers_is_killed_in_mid_answer(smollm2_path: Path) -> None:
    """The client's answer goes on and its next turn works; `/status` tells each server's state."""

    async def turns(server: Any, kill: Callable[[], None]) -> tuple[list[Any], list[Any]]:
        async with client(server).realtime.connect(model="parrot") as connection:
            assert (await connection.recv()).type == "session.created"
            text = {"type": "realtime", "output_modalities": ["text"]}
            await connection.session.update(session=text)  # type: ignore[arg-type]
            await ask(connection, LONG_QUESTION)
            first = await events_until(connection, "response.output_text.delta")
            kill()
            first += await events_until(connection, "response.done")
            await ask(connection, QUESTION)
            return first, await events_until(connection, "response.done")

    with contextlib.ExitStack() as stack:
        there = [stack.enter_context(parrot(smollm2_path, slowly_s=0.02)) for _ in range(3)]
        urls = " ".join(server.url for server in there)
        settings = (f"llm={urls}", f"tokenizer={smollm2_path}")
        with serving("tiny", *settings) as here:

            def kill() -> None:
                (busy,) = [server for server in there if server.of("answer")]
                busy.kill()

            first, second = await within(turns(here, kill))
            states = await within(states_of(here, "down"))
    assert sorted(states) == ["down", "ready", "ready"]
    text = "".join(e.delta for e in first if e.type == "response.output_text.delta")
    assert LONG_QUESTION in text
    for events in (first, second):
        assert events[-1].response.status == "completed"
    assert sum(bool(server.of("answer")) for server in there) == 2


async def ask(connection: Any, text: str) -> None:
    said = {"type": "input_text", "text": text}
    item = {"type": "message", "role": "user", "content": [said]}
    await connection.conversation.item.create(item=item)
    await connection.response.create()


async def states_of(server: Any, wanted: str) -> list[str]:
    """The servers' states, once one of them is `wanted`."""
    while True:
        told = server.status()["engine"]["llm_servers"] or []
        states = [each["state"] for each in told]
        if wanted in states:
            return states
        await asyncio.sleep(0.1)


def test_a_refused_key_ends_the_server_with_one_sentence(smollm2_path: Path) -> None:
    """Exit code 2, and no traceback."""
    with parrot(smollm2_path, key="right") as there:
        argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--model", "tiny"]
        argv += ["--llm", there.url, "--tokenizer", str(smollm2_path), "--set", "voice=none"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 2
    assert "the LLM server wants a key (--llm-key-env names its variable)" in done.stderr
    assert "Traceback" not in done.stderr
