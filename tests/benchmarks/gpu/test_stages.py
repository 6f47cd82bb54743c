"""Stages: one that hangs, fails or is killed loses its own rest, and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headstart.benchmarks.gpu import command
from headstart.benchmarks.gpu.command import Options, Result, limit_of
from headstart.benchmarks.gpu.stages import INCOMPLETE, Ended, Lines, Stage, run

BODIES = {
    "whole": "lines.add({'model': 'a'})",
    "incomplete": f"lines.add({{'model': 'a'}}); raise SystemExit({INCOMPLETE})",
    "raises": "lines.add({'model': 'a'}); raise RuntimeError('an illegal memory access')",
    "killed": "lines.add({'model': 'a'}); os.kill(os.getpid(), 9)",
    "hangs": "lines.add({'model': 'a'}); end_in(0.1); [None for _ in iter(int, 1)]",
    "deaf": "lines.add({'model': 'a'}); signal.pause()",
    "silent": "lines.add({'model': 'a'}); os._exit(1)",
    "messy": "lines.add({'model': tempfile.mkdtemp()})",
    "timed": "lines.add({'model': left_of(given), 'given': given.limit_s})",
    "stops": "lines.add({'model': 'a'}); os.kill(os.getppid(), 15); signal.pause()",
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module for each body, run as stages are."""
    head = """
        import argparse, os, signal, tempfile, time
        from headstart.benchmarks.gpu.stages import Lines, add_limit, end_in, left_of
        parser = argparse.ArgumentParser()
        add_limit(parser, 1.0)
        given = parser.parse_args()
        lines = Lines(given.out)
        """
    for name, body in BODIES.items():
        (tmp_path / f"stage_{name}.py").write_text(textwrap.dedent(head) + body + "\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.getcwd()]))
    return tmp_path


def stage(name: str) -> Stage:
    return Stage(name, f"stage_{name}", (), 1.0)


def test_one_that_ends_has_no_error(modules: Path) -> None:
    """Its rows are those that it wrote."""
    ended = run(stage("whole"), modules, 60.0)
    assert (ended.rows, ended.error) == ([{"model": "a"}], None)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("incomplete", "see its rows"),
        ("raises", "an illegal memory access"),
        ("killed", "ended by SIGKILL"),
        ("hangs", "not done within 60 s"),
        ("silent", "ended with code 1"),
    ],
)
def test_what_it_wrote_before_it_failed_is_there(modules: Path, name: str, error: str) -> None:
    """With why it ended: a hang in a loop that answers no signal of Python's, too."""
    ended = run(stage(name), modules, 60.0)
    assert ended.rows == [{"model": "a"}]
    assert ended.error is not None
    assert error in ended.error


def test_one_that_does_not_end_itself_is_killed(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind its limit and the grace: however it got there."""
    monkeypatch.setattr("headstart.benchmarks.gpu.stages.GRACE_S", 0.0)
    ended = run(stage("deaf"), modules, 0.5)
    assert ended.error == "not done within 0 s"


def test_what_it_leaves_behind_is_in_the_folder(modules: Path) -> None:
    """Which is deleted, however the stage ended."""
    (row,) = run(stage("messy"), modules, 60.0).rows
    assert Path(row["model"]).parent == modules


def test_imports_count(modules: Path) -> None:
    """The limit is of the process, not of what it does once it has imported everything."""
    (row,) = run(stage("timed"), modules, 60.0).rows
    assert row["given"] == 60.0
    assert row["model"] < 60.0


def test_sigterm_leaves_what_is_known(modules: Path) -> None:
    """As from `timeout`: the JSON line is the last one, with the rows of the stage that was cut."""
    script = """
        from headstart.benchmarks.gpu import command
        from headstart.benchmarks.gpu.command import Options
        from headstart.benchmarks.gpu.stages import Stage
        names = ["whole", "stops", "raises"]
        Options.stages = lambda _: [Stage(name, f"stage_{name}", (), 1.0) for name in names]
        raise SystemExit(command.measure(Options(device="cpu", limit_s=300.0), True))
        """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1, ended.stderr
    whole = json.loads(ended.stdout.splitlines()[-1])
    errors = {name: each["error"] for name, each in whole["stages"].items()}
    assert errors == {"whole": None, "stops": "interrupted", "raises": "interrupted"}
    assert whole["models"] == [{"model": "a"}, {"model": "a"}]
    assert not whole["complete"]


@pytest.mark.triton
def test_kernels_need_none_of_the_other_modules() -> None:
    """The command itself does without what stages of models import: theirs are what fails."""
    blocked = [name for name in command.NEEDS if name not in ("torch", "triton", "numpy")]
    script = f"""
        import sys
        sys.modules.update(dict.fromkeys({blocked}))
        from headstart.benchmarks.gpu import command
        sys.argv[1:] = ["--dry-run", "--json"]
        command.main()
        """
    argv = [sys.executable, "-c", textwrap.dedent(script)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    plan = json.loads(ended.stdout.splitlines()[-1])
    assert plan["missing"] == blocked
    assert plan["models"] == []
    assert plan["rows"]
    assert "not installed" in ended.stderr


def test_the_names_of_models_are_those_that_there_are() -> None:
    """The command knows them without importing what they take."""
    from headstart.benchmarks.gpu.models import MODELS

    assert tuple(MODELS) == command.MODEL_NAMES


def test_the_device_is_one_that_exists() -> None:
    """Before any stage is started."""
    with pytest.raises(ValueError, match="cpu, cuda or cuda:N"):
        command.options_of("gpu", "", "1", 6.0, "")
    stages = command.options_of("cuda:1", "", "1", 6.0, "").stages()
    assert all("cuda:1" in each.arguments for each in stages)


def test_half_a_line_is_none(tmp_path: Path) -> None:
    """A process that is killed while it writes leaves one."""
    path = tmp_path / "rows.jsonl"
    lines = Lines(path)
    assert lines.read() == []
    lines.add({"n": 1})
    path.write_text(path.read_text() + '{"n": ')
    assert lines.read() == [{"n": 1}]


def test_an_alarm_ends_a_process_that_hangs() -> None:
    """By the kernel, whatever Python is doing."""
    script = (
        "from headstart.benchmarks.gpu.stages import end_in; end_in(0.1); [0 for _ in iter(int, 1)]"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == -14


def test_what_a_stage_leaves_is_the_next_ones() -> None:
    """Shares of what is left add up to it; the last has all."""
    stages = [Stage(name, "m", (), share) for name, share in (("a", 3.0), ("b", 1.0))]
    first = limit_of(stages[0], stages[1:], 105.0)
    assert first == pytest.approx(75.0)
    assert limit_of(stages[1], [], 105.0 - first) == pytest.approx(25.0)
    assert limit_of(stages[1], [], 1.0) == 0.0


def test_kernels_are_no_stage_on_the_cpu() -> None:
    """There is nothing to run them on; on a GPU they come first."""
    assert [each.name for each in Options(device="cpu").stages()] == list(command.STANDARD)
    assert Options().stages()[0].name == command.KERNELS
    assert [each.name for each in Options(kernels=False).stages()] == list(command.STANDARD)


def test_perception_is_a_stage_by_name_or_on_a_gpu() -> None:
    """Behind the kernels; on the CPU only who asks for it waits for it."""

    def names(device: str, models: str) -> list[str]:
        stages = command.options_of(device, models, "1", 6.0, "").stages()
        return [stage.name for stage in stages]

    assert names("cuda", "")[:2] == [command.KERNELS, command.PERCEPTION]
    assert names("cpu", "") == list(command.STANDARD)
    assert names("cpu", "perception") == names("cuda", "perception") == [command.PERCEPTION]
    assert names("cuda", "small") == ["small"]


def test_rows_find_their_place() -> None:
    """By what they are about; and the summary has the most sessions that kept up."""
    result = Result()
    result.add(
        Stage("kernels", "m", (), 1.0),
        Ended([{"device": "X"}, {"check": "c", "found": 0.5}, {"kernel": "k", "us": 1}], 2.0, None),
    )
    rows = [
        {"model": "m", "load_s": 1.0},
        {"model": "m", "sessions": 8, "in_time": True, "on_target": True},
        {"model": "m", "sessions": 32, "in_time": True, "on_target": False},
        {"model": "m", "sessions": 64, "error": "not reached"},
    ]
    result.add(Stage("m", "m", (), 1.0), Ended(rows, 3.0, "see its rows"))
    more: list[dict[str, Any]] = [{"recognition": "base"}, {"encoder": "3b"}]
    result.add(Stage("perception", "m", (), 1.0), Ended(more, 1.0, None))
    whole = result.whole(5.0)
    assert whole["device"] == "X"
    assert whole["checks"] == {"c": 0.5}
    assert [len(whole[key]) for key in ("rows", "models", "sessions")] == [1, 1, 3]
    assert (whole["recognition"], whole["encoders"]) == ([more[0]], [more[1]])
    assert whole["summary"] == {"m": {"in_time": 32, "on_target": 8}}
    assert not whole["complete"]


def test_every_stage_runs_though_the_first_fails(
    modules: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has what is known after each, and in the end all; the exit code says that it is not
    complete."""
    names = ["raises", "whole"]
    monkeypatch.setattr(Options, "stages", lambda _: [stage(name) for name in names])
    out = modules / "out.json"
    kept: list[int] = []
    keep = command._keep

    def kept_too(path: Path | None, whole: dict[str, Any]) -> None:
        kept.append(len(whole["stages"]))
        keep(path, whole)

    monkeypatch.setattr(command, "_keep", kept_too)
    assert command.measure(Options(device="cpu", limit_s=120.0, out=out), True) == 1
    assert kept == [1, 2, 2]
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    written = json.loads(out.read_text())
    assert written["stages"] == printed["stages"]
    assert "illegal" in printed["stages"]["raises"]["error"]
    assert printed["stages"]["whole"]["error"] is None
    assert printed["models"] == [{"model": "a"}, {"model": "a"}]
    assert not (modules / "out.json.part").exists()
