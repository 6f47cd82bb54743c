"""`headstart talk` at a server with API keys: in either transport, and at one that it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headstart.client_key import VARIABLE
from headstart.talk.connection.refusals import error_code, error_message
from tests.headstart.talk.conftest import SILENCE_MS

KEY = "a-key-of-this-very-server"
WRONG = "a-key-of-another-server"
WITHIN_S = 170
SERVER = ("--engine", "fake", "--set", f"silence_ms={SILENCE_MS}", "--set", "voice=none")
ANSWER = "This is an answer that comes word by word."


@pytest.fixture(scope="module")
def keyed_url() -> Iterator[str]:
    """A server that wants `KEY`; it may still be loading."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce", *SERVER]
    environment = {**os.environ, "HEADSTART_API_KEYS": KEY}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url: str = json.loads(process.stdout.readline())["url"]
        yield url
        process.terminate()


def talk(*arguments: str, key: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command, with `key` in its variable."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if key is not None:
        environment[VARIABLE] = key
    argv = [sys.executable, "-m", "headstart", "talk", *arguments]
    return subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )


def answer(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    said: str = json.loads(done.stdout.splitlines()[-1])["answer"]
    return said


@pytest.mark.parametrize("way", ["--fast", "--webrtc"])
def test_a_key_from_the_environment_opens_the_server(
    keyed_url: str, spoken: Path, way: str
) -> None:
    """Whatever stands around it: keys are read from files that end in a newline."""
    done = talk(str(spoken), "--url", keyed_url, way, "--json", key=f"{KEY}\n")
    assert answer(done) == ANSWER


def test_a_key_on_the_command_line_comes_first(keyed_url: str, spoken: Path) -> None:
    """Before the variable."""
    arguments = (str(spoken), "--url", keyed_url, "--fast", "--json")
    assert answer(talk(*arguments, "--key", KEY, key=WRONG)) == ANSWER


@pytest.mark.parametrize("way", ["--fast", "--webrtc"])
@pytest.mark.parametrize("key", [None, WRONG])
def test_without_the_key_it_says_where_one_goes(
    keyed_url: str, spoken: Path, way: str, key: str | None
) -> None:
    """One sentence, exit code 2, and the key that was tried is not in it."""
    done = talk(str(spoken), "--url", keyed_url, way, key=key)
    assert done.returncode == 2
    assert "answered 401" in done.stderr
    assert f"--key or in the environment variable {VARIABLE}" in done.stderr
    assert "Traceback" not in done.stderr
    assert WRONG not in done.stdout + done.stderr


def test_a_server_of_its_own_may_have_keys_too(spoken: Path, tmp_path: Path) -> None:
    """Set in its file: the talk needs one of them."""
    config = tmp_path / "keys.toml"
    config.write_text(f'api_keys = "{KEY}"\nsilence_ms = {SILENCE_MS}\nvoice = "none"\n')
    arguments = (str(spoken), "--fast", "--json", "--engine", "fake", "--config", str(config))
    assert answer(talk(*arguments, key=KEY)) == ANSWER
    refused = talk(*arguments)
    assert refused.returncode == 2
    assert VARIABLE in refused.stderr


@pytest.mark.parametrize("key", ["", "two\nlines", "schlüssel", "bell\a"])
def test_what_no_header_can_carry_is_no_key(spoken: Path, key: str) -> None:
    """Refused before anything is sent, and not shown."""
    done = talk(str(spoken), "--url", "127.0.0.1:9", "--key", key)
    assert done.returncode == 2
    assert "expected a key of printable ASCII" in " ".join(done.stderr.replace("│", " ").split())
    assert not key or key not in done.stderr


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"error": 1}', b'{"error": {"code": 4}}', b"\xff", b"[" * 9999]
)
def test_an_answer_of_any_kind_has_a_message(body: bytes) -> None:
    """A proxy's page, or nothing, is no error of the API's."""
    assert error_code(body) == ""
    assert len(error_message(body)) <= 200
