"""`headstart ask`, and `headstart talk --ask`, which is the same: what it prints and refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ANSWER = "This is an answer that comes word by word."


def command(
    *arguments: str, timeout: float = 120, name: str = "talk"
) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "headstart", name, *arguments]
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "100"},
        check=False,
    )


def test_json_lines_for_programs(fake_server_url: str, film: Path) -> None:
    """The plan, each part, the answers, and the result last."""
    done = command(
        str(film),
        "--url",
        fake_server_url,
        "--json",
        "--part-s",
        "5",
        "--ask",
        "What?",
        "--ask",
        "When?",
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds == ["plan", *["part"] * 4, "answer", "answer", "result"]
    assert lines[0]["parts"] == 4
    assert lines[0]["estimate_s"] > 0
    assert [answer["question"] for answer in lines[-1]["answers"]] == ["What?", "When?"]


def test_text_for_people(fake_server_url: str, film: Path) -> None:
    """Says beforehand how many parts there are, then how far it is, then the answer."""
    done = command(str(film), "--url", fake_server_url, "--part-s", "5", "--ask", "What?")
    assert done.returncode == 0, done.stderr
    assert "film.mkv · 0:12 · 160 x 96, 10 pictures a second · sound" in done.stdout
    assert "4 parts of 5 s, 2 s of each read twice · roughly 48 s" in done.stdout
    assert "part 3 of 4" in done.stdout
    assert ANSWER in done.stdout


def test_ask_is_talk_with_questions(fake_server_url: str, film: Path) -> None:
    """The file, then the questions, with the same lines; without a question it asks for one."""
    options = ["--url", fake_server_url, "--json", "--part-s", "5", "--no-frames"]
    options += ["--from", "0:02", "--sampler", "uniform"]
    asked = command(str(film), "What?", "When?", *options, name="ask")
    assert asked.returncode == 0, asked.stderr
    told = command(str(film), "--ask", "What?", "--ask", "When?", *options)
    times = {"wall_s", "estimate_s", "speed", "client_peak_bytes"}

    def lines(done: subprocess.CompletedProcess[str]) -> list[tuple[str, list[str]]]:
        read = [json.loads(line) for line in done.stdout.splitlines()]
        return [(line["type"], sorted(line.keys() - times)) for line in read]

    assert lines(asked) == lines(told)
    answers = json.loads(asked.stdout.splitlines()[-1])["answers"]
    assert [answer["question"] for answer in answers] == ["What?", "When?"]
    bare = command(str(film), name="ask")
    assert bare.returncode == 2
    assert "Missing argument 'QUESTION'" in bare.stderr


@pytest.mark.parametrize("option", [("--from", "0:05"), ("--pictures", "3"), ("--real-time",)])
def test_an_option_of_questions_needs_one(option: tuple[str, ...], film: Path) -> None:
    """Without --ask all of the file would be played, as if the option were not there."""
    done = command(str(film), *option)
    assert done.returncode == 2
    assert "go with --ask QUESTION" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--from", "noon"), "'noon' is no time"),
        (("--from", "0:30"), "nothing from 0:30 to the end: it lasts 0:12"),
        (("--sampler", "luck"), "got 'luck'"),
        (("--sampler", "changed"), "uniform, motion, change, scene, flow, sharp, got"),
        (("--webrtc",), "neither --webrtc"),
    ],
)
def test_what_cannot_be_asked(film: Path, arguments: tuple[str, ...], told: str) -> None:
    """Refused before a server is started, in words."""
    done = command(str(film), "--ask", "What?", *arguments)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
