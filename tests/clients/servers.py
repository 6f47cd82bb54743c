"""Real servers for stock clients to talk to: `headstart serve`, with the fake engine or `tiny`."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from typing import IO

READY_WAIT_S = 300

ANSWER = (
    "The first thing to say is that this answer takes its time. It goes on for a while, "
    "so that there is something to interrupt. Then it comes to its end, and that is that."
)
WORDS = "the quick brown fox jumps over the lazy dog"
CALL = 'weather {"city": "Rome"}'
FAKE_ENGINE = f"--answer {shlex.quote(ANSWER)} --words {shlex.quote(WORDS)} --delta-ms 60 " + (
    f"--call {shlex.quote(CALL)} --end-probability 0.9"
)


@contextlib.contextmanager
def serving(
    *settings: str, model: str = "tiny", engine: str = "local", log: IO[str] | None = None
) -> Iterator[str]:
    """`headstart serve`, ready: its URL. Its log goes to `log`, which stays open. Raises
    `RuntimeError` with the end of it if the server is not ready in time."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--model", model, "--engine", engine]
    for setting in settings:
        argv += ["--set", setting]
    with (
        contextlib.nullcontext(log) if log is not None else tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            announced = process.stdout.readline()
            url = json.loads(announced)["url"] if announced else ""
            if not url or not _is_ready(url, process):
                log.seek(0)
                raise RuntimeError("the server did not become ready:\n" + log.read()[-4000:])
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _is_ready(url: str, process: subprocess.Popen[str]) -> bool:
    deadline_s = time.monotonic() + READY_WAIT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with urllib.request.urlopen(f"{url}/status", timeout=10) as response:
            status = json.load(response)
        if status["engine"]["state"] == "ready" and status["voice"]["state"] in ("ready", "off"):
            return True
        time.sleep(0.2)
    return False


def fake(voice: str = "espeak") -> contextlib.AbstractContextManager[str]:
    """A server whose engine plays a script: hears `WORDS`, says `ANSWER`, makes `CALL` where it is
    given that function, and then says what the function gave."""
    return serving(f"voice={voice}", f"engine_args={FAKE_ENGINE}", engine="fake")


def tiny() -> contextlib.AbstractContextManager[str]:
    """A server with the small real model."""
    return serving("voice=espeak", model="tiny")
