"""Ctrl-C while a command is still being imported: real processes, interrupted at known places."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headstart.interrupts import EXIT_INTERRUPTED

WAIT_S = 60
SERVE = ("serve", "--engine", "fake", "--port", "0", "--set", "voice=none")


def interrupted(until: str, *arguments: str) -> str:
    """Run a command, send SIGINT as soon as the module `until` has been imported, and wait for the
    end with code 130; what it said beside the imports that Python lists."""
    argv = [sys.executable, "-X", "importtime", "-m", "headstart", *arguments]
    process = subprocess.Popen(
        argv,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said = []
    guard = threading.Timer(WAIT_S, process.kill)
    guard.start()
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if not line.startswith("import time:"):
                said.append(line)
            elif line.split("|")[-1].strip() == until:
                process.send_signal(signal.SIGINT)
    guard.cancel()
    assert process.returncode == EXIT_INTERRUPTED == 130, "".join(said)
    return "".join(said)


@pytest.mark.parametrize(
    ("until", "arguments"),
    [
        ("typer.colors", SERVE),  # typer is on its way
        ("headstart.gateway.errors", SERVE),
        ("pydantic", SERVE),
        ("headstart.talk.dialog", ("demo",)),
        ("headstart.gateway.errors", ("talk", "nothing.wav")),
        ("pydantic", ("validate", "nothing.toml")),
        ("headstart.gateway.errors", ("models", "list")),
    ],
)
def test_it_ends_at_once_and_without_a_word(until: str, arguments: tuple[str, ...]) -> None:
    """With the code of an interrupted command, and no traceback."""
    assert interrupted(until, *arguments) == ""


# Imported on a thread beside the engine's start.
@pytest.mark.parametrize("until", ["uvicorn", "headstart.gateway.server.app", "aiortc"])
def test_a_server_that_has_begun_ends_in_order(until: str) -> None:
    """Its log is all that is said, from the moment on at which it works."""
    said = interrupted(until, *SERVE)
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said


def test_who_is_told_to_ignore_it_does() -> None:
    """As by a shell that runs it in the background."""
    done = subprocess.run(
        [sys.executable, "-c", _IGNORED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.splitlines()[-1] == "True", done.stderr


_IGNORED = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv = ["headstart", "--version"]
from headstart import interrupts, start
try:
    start.main()
except SystemExit:
    pass
interrupts.at_work()
sys.stdout.flush()
print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)
"""


def test_a_locale_without_the_characters_is_no_error(tmp_path: Path) -> None:
    """A file's name on a terminal that knows ASCII alone: question marks, and all the rest."""
    file = tmp_path / "Übung ─ 1.toml"
    file.write_text("port = 9000\n")
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "validate", str(file)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert done.stdout.decode("ascii").endswith("?bung ? 1.toml: good; sets port\n")
