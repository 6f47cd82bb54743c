"""`headstart … --ears DIR`: the real processes, with somebody's own Whisper."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.engine.weights import ensure
from tests.engine.asr.whisper_dirs import Kind, write_whisper

WAIT_S = 170
CAPITAL = Path(__file__).parents[2] / "headstart" / "clips" / "capital.wav"


def headstart(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headstart", *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@pytest.mark.weights
def test_a_talk_is_heard_by_the_directory(tmp_path: Path) -> None:
    """A multilingual Whisper with 128 mel bins, in German: the server starts, and what a Whisper
    of random numbers makes of a question is not what the packaged one hears."""
    write_whisper(tmp_path, Kind(mels=128, sharded=True))
    ears = ("--ears", str(tmp_path), "--ears-language", "de")
    done = headstart("talk", str(CAPITAL), "--fast", "--json", "--model", "tiny", *ears)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["chunks"]
    assert "capital" not in (told["transcript"] or "")


@pytest.mark.weights
@pytest.mark.parametrize(
    ("missing", "language", "sentence"),
    [
        ("tokenizer.json", "en", "expected tokenizer.json, got no such file; --ears takes"),
        (None, "fr", "these ears know no language 'fr': set ears_language to auto or to one of"),
        ("", "en", "there is no such folder, and no weights of that name; known: whisper-tiny.en"),
    ],
)
def test_the_terminal_is_told_what_is_wrong(
    tmp_path: Path, missing: str | None, language: str, sentence: str
) -> None:
    """The server ends with code 2 and the sentence as its last word, without a traceback."""
    ensure("whisper-tiny.en")  # else the words about it come first
    folder = tmp_path / "mine"
    if missing != "":
        write_whisper(folder)
    if missing:
        (folder / missing).unlink()
    ears = ("--ears", str(folder), "--ears-language", language)
    done = headstart("serve", "--port", "0", "--model", "tiny", *ears)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert sentence in done.stderr.splitlines()[-1]
