"""The Python examples of README and docs/clients.md do what they show, as the files that a newcomer
makes of them."""

from __future__ import annotations

import re
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from tests.end_to_end.test_spoken_answers import ANSWER, speaking_url

pytestmark = pytest.mark.weights

__all__ = ["speaking_url"]  # the fixture

ROOT = Path(__file__).resolve().parents[2]
README, CLIENTS = ROOT / "README.md", ROOT / "docs" / "clients.md"
ADDRESS = "http://127.0.0.1:8080"


def test_the_example_prints_an_answer(speaking_url: str, tmp_path: Path) -> None:
    """On a server with a voice, as `make demo` installs one; only the address is another."""
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert ADDRESS in code
    script = tmp_path / "ask.py"
    script.write_text(code.replace(ADDRESS, speaking_url))
    done = subprocess.run(
        [sys.executable, str(script)], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == f"{ANSWER} (completed)\n"


def test_the_spoken_example_keeps_an_answer(speaking_url: str, tmp_path: Path) -> None:
    """A recorded question goes there, words are printed, and the sound is a file that can be
    played."""
    code = re.findall(r"```python\n(.*?)```", CLIENTS.read_text(), re.DOTALL)[0]
    assert ADDRESS in code
    clips = "headstart/clips/"
    assert clips in code
    script = tmp_path / "speak.py"
    script.write_text(code.replace(ADDRESS, speaking_url).replace(clips, f"{ROOT}/{clips}"))
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.startswith(f"{ANSWER} (")
    with wave.open(str(tmp_path / "answer.wav")) as file:
        seconds = file.getnframes() / file.getframerate()
        assert file.getnchannels() == 1
    assert f"({seconds:.1f} s in answer.wav)" in done.stdout
    assert seconds > 0.5
