"""The README's Python example does what it shows, as the file that a newcomer makes of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.test_spoken_answers import ANSWER, speaking_url

pytestmark = pytest.mark.weights

__all__ = ["speaking_url"]  # the fixture

README = Path(__file__).resolve().parents[2] / "README.md"
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
