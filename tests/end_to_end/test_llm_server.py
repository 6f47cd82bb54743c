"""`headstart serve --llm` with all its processes, in front of a scripted LLM server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import serving, within
from tests.end_to_end.test_openai_client import client, events_until
from tests.engine.backends.llm_server.parrot import parrot

pytestmark = pytest.mark.weights

START_S = 150
QUESTION = "Is a parrot able to say this again?"


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


def test_a_refused_key_ends_the_server_with_one_sentence(smollm2_path: Path) -> None:
    """Exit code 2, and no traceback."""
    with parrot(smollm2_path, key="right") as there:
        argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--model", "tiny"]
        argv += ["--llm", there.url, "--tokenizer", str(smollm2_path), "--set", "voice=none"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 2
    assert "the LLM server wants a key (--llm-key-env names its variable)" in done.stderr
    assert "Traceback" not in done.stderr
