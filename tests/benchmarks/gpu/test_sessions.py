"""The stages of engines, on the CPU: every line but those that need a GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headstart.benchmarks.cli import app
from headstart.benchmarks.gpu import command, sessions
from headstart.benchmarks.gpu.models import MODELS, expected, loaded
from headstart.benchmarks.gpu.packed import SMALL, TINY, write
from headstart.benchmarks.gpu.people import DRAIN_S, NS_PER_MS, Person, Room
from headstart.benchmarks.gpu.stages import Lines
from headstart.engine import api
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.kernels.native import ROOT

START_S = 30.0
"""For a process that imports torch, compiles kernels, makes weights and records steps."""

MEASURED = ("first_token_ms_p50", "first_token_ms_p95", "chunk_ms_p99", "tok_s", "gpu_bytes")


def test_the_whole_command_on_the_cpu(tmp_path: Path) -> None:
    """Both kinds of weights; no time is expected, nor what a slow machine manages in a second."""
    out = tmp_path / "gpu.json"
    arguments = ["gpu", "--device", "cpu", "--model", "tiny,tiny-packed", "--sessions", "2"]
    arguments += ["--seconds", "1", "--out", str(out), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in (0, 1), done.output
    found = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code == 0) == found["complete"]
    for name in ("tiny", "tiny-packed"):
        (made,) = [row for row in found["models"] if row["model"] == name]
        assert "error" not in made, made
        rows = [row for row in found["sessions"] if row["model"] == name]
        assert [row["sessions"] for row in rows] == [2]
        for row in rows:
            assert set(MEASURED) <= set(row)
            assert row["failed"] == 0, row["failures"]
    assert json.loads(out.read_text())["sessions"] == found["sessions"]


@pytest.mark.parametrize("name", ["tiny", "tiny-packed"])
def test_answers_are_timed_from_their_endpoint(name: str) -> None:
    """One person's sound, pictures and answer, as long as a slow machine takes for one."""
    events: list[api.Event] = []
    made = loaded(MODELS[name], "cpu", events.append)
    for seconds in (3.0, 6.0, 12.0, 24.0, 48.0):
        row = Room(made.engine, events, 1).run(0.0, seconds)
        if row["answered"]:
            break
    assert row["answered"] >= 1
    assert row["chunks"] >= 1
    assert row["first_token_ms_p50"] > 0
    assert row["failed"] == 0
    made.engine.close()


def test_a_file_that_is_made_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a gigabyte for `small`: the engine has it mapped."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaded(MODELS["tiny-packed"], "cpu", lambda _: None).engine.close()
    assert list(tmp_path.iterdir()) == []


def test_a_turn_is_due_as_it_is_spoken() -> None:
    """Chunks at their ends, a picture a second, and the endpoint behind the last sample."""
    person = Person(0, 1)
    picture = api.Image(1, 1, bytes(3))
    person.next_turn(0, [b"\0\0"], [picture])  # the first one is shorter
    due = person.next_turn(5_000 * NS_PER_MS, [b"\0\0"], [picture])
    assert due == sorted(due, key=lambda each: each[0])
    times = [(at_ns - due[0][0]) / NS_PER_MS for at_ns, _ in due]
    kinds = [type(command).__name__ for _, command in due]
    audio = [at for at, kind in zip(times, kinds, strict=True) if kind == "Audio"]
    frames = [at for at, kind in zip(times, kinds, strict=True) if kind == "Frame"]
    assert audio == [500.0 * n for n in range(1, 9)]
    assert frames == [0.0, 1000.0, 2000.0, 3000.0]
    assert times[-2:] == [4200.0, 4200.0]
    assert kinds[-2:] == ["EndSpeech", "Respond"]


def test_endpoints_are_spread_over_a_turn() -> None:
    """By where in it each one begins."""
    lengths = [Person(number, 8).first_chunks for number in range(8)]
    assert lengths == sorted(lengths, reverse=True)
    assert {1, 8} & set(lengths)
    assert len(set(lengths)) >= 6


@pytest.mark.parametrize(
    ("row", "in_time", "on_target"),
    [
        ({"chunk_ms_p99": 400.0, "first_token_ms_p95": 90.0, "failed": 0}, True, True),
        ({"chunk_ms_p99": 400.0, "first_token_ms_p95": 190.0, "failed": 0}, True, False),
        ({"chunk_ms_p99": 600.0, "first_token_ms_p95": 90.0, "failed": 0}, False, False),
        ({"chunk_ms_p99": 400.0, "first_token_ms_p95": 90.0, "failed": 1}, False, False),
        ({"chunk_ms_p99": None, "first_token_ms_p95": None, "failed": 0}, False, False),
    ],
)
def test_what_counts_as_kept_up(row: dict[str, Any], in_time: bool, on_target: bool) -> None:
    """Chunks within their own length, answers within the target, and nothing failed."""
    found = sessions.verdict({"sessions": 32, "chunk_ms_budget": 500, **row})
    assert found == {"in_time": in_time, "on_target": on_target}


def test_targets_by_sessions() -> None:
    """40 ms alone, 100 ms for more."""
    assert [sessions.target_ms(count) for count in (1, 2, 32, 64)] == [40.0, 100.0, 100.0, 100.0]
    assert {
        int(count): ms for count, ms in command.TARGETS["first_token_ms"].items()
    } == sessions.FIRST_TOKEN_MS


def test_without_time_nothing_is_begun(tmp_path: Path) -> None:
    """Levels that do not fit are named."""
    lines = Lines(tmp_path / "rows.jsonl")
    assert not sessions.measure("tiny-packed", "cpu", [1, 8], 2.0, 0.0, lines)
    rows = [row for row in lines.read() if "sessions" in row]
    assert [(row["sessions"], row["error"]) for row in rows] == [
        (1, "not reached"),
        (8, "not reached"),
    ]


def test_a_gpu_that_is_not_there_is_a_row(tmp_path: Path) -> None:
    """The model's, with the reason."""
    lines = Lines(tmp_path / "rows.jsonl")
    assert not sessions.measure("tiny-packed", "cuda:99", [1], 2.0, 1e9, lines)
    (row,) = lines.read()
    assert row["error"].startswith("NoDevice")


@pytest.mark.triton
def test_the_plan_has_sizes_and_memory() -> None:
    """Of the standard models, near their published weights, all within one H200; eight minutes."""
    done = CliRunner().invoke(app, ["gpu", "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout.splitlines()[-1])
    first = [command.KERNELS, command.PERCEPTION]
    assert [step["stage"] for step in found["stages"]] == [*first, *command.STANDARD]
    limits_s = {step["stage"]: step["limit_s"] for step in found["stages"]}
    assert sum(limits_s.values()) <= 480
    # Each model has time to start, and for every number of sessions.
    for name in command.STANDARD:
        each_s = [
            sessions.WARM_UP_S + DRAIN_S + found["seconds_each"] * (2 if n < sessions.FEW else 1)
            for n in found["sessions"]
        ]
        assert limits_s[name] - sum(each_s) > START_S, name
    by_name = {row["model"]: row for row in found["models"]}
    assert by_name["3b"]["weights_bytes"] / 1e9 == pytest.approx(9.4, abs=0.1)
    assert by_name["7b"]["weights_bytes"] / 1e9 == pytest.approx(17.9, abs=0.1)
    assert by_name["qwen2-vl-7b"]["weights_bytes"] / 1e9 == pytest.approx(16.6, abs=0.2)
    assert by_name["7b"]["kv_bytes_per_token"] == 56 * 1024
    # 32 sessions of the longest context; the decoder's weights, read at 4.8 TB/s.
    assert by_name["7b"]["kv_tokens"] >= 32 * 8192
    assert by_name["7b"]["decode_step_ms"]["H200"] == pytest.approx(2.95, abs=0.05)
    assert max(row["total_bytes"] for row in found["models"]) < 100e9
    assert found["needs"]
    by_whisper = {row["whisper"]: row["weights_bytes"] for row in found["recognition"]}
    assert by_whisper["tiny.en"] / 1e6 == pytest.approx(75, abs=2)
    assert by_whisper["base"] / 1e6 == pytest.approx(145, abs=3)
    assert {row["model"]: len(row["passes"]) for row in found["encoders"]} == {
        "3b": 3,
        "qwen2-vl-7b": 1,
    }


def test_the_random_file_is_as_large_as_planned(tmp_path: Path) -> None:
    """And as `small`'s own: half a billion weights in 4 to 8 bits."""
    spec = DecoderSpec.from_gguf(GgufFile(write(tmp_path / "tiny.gguf", TINY)))
    assert (spec.hidden, spec.layers, spec.ffn) == (TINY.hidden, TINY.layers, TINY.ffn)
    assert expected(MODELS["tiny-packed"]).weights_bytes == TINY.weights_bytes
    assert 450e6 < SMALL.weights_bytes < 550e6


def test_what_stages_import_is_in_the_plan() -> None:
    """So that whoever takes this to a bare machine knows what it lacks."""
    script = (
        "import sys, headstart.benchmarks.gpu.sessions, headstart.benchmarks.gpu.kernels,"
        "headstart.benchmarks.gpu.perception;"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    argv = [sys.executable, "-c", script]
    said = subprocess.run(argv, cwd=ROOT.parent, check=True, capture_output=True, text=True).stdout
    required = {_normal(each) for each in metadata.requires("headstart") or []}
    owners = metadata.packages_distributions()
    used = {
        module
        for module in said.split()
        if any(_normal(owner) in required for owner in owners.get(module, []))
    }
    # Part of torch's and setuptools' own distributions, and what httpx takes if it is there.
    used -= {"torchgen", "_distutils_hack", "rich"}
    assert {"torch", "gguf"} <= used <= set(command.NEEDS)


def _normal(requirement: str) -> str:
    """A distribution's name, as packaging tools compare it."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_what_is_asked_for_is_checked() -> None:
    """With what was expected."""
    for arguments, named in (
        (["--model", "huge"], "expected models of kernels, perception"),
        (["--sessions", "0"], "expected numbers of sessions"),
        (["--sessions", "x"], "expected numbers of sessions"),
        (["--seconds", "0"], "expected seconds above 0"),
    ):
        done = CliRunner().invoke(app, ["gpu", "--dry-run", *arguments])
        assert done.exit_code == 2
        assert named in done.output.replace("\n", " ").replace("│ ", "")
