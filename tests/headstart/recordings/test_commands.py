"""The commands as people and CI call them: output, stderr, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.recordings.pace import Pace
from headstart.recordings.reader import Recording
from headstart.recordings.replay import replay
from headstart.recordings.turns import Turn
from tests.headstart.recordings.files import newest, talk, written

MESSAGES = talk(seconds=30)


def headstart(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "headstart", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return written(tmp_path / "a.jsonl.gz", MESSAGES)


def test_replay_prints_a_line_a_turn(recorded: Path) -> None:
    """In a pipe: no colours, letters for stages, no line longer than 80; a sum at the end."""
    lines = headstart("replay", recorded, "--fast").stdout.splitlines()
    turns = newest(MESSAGES)
    assert len(lines) == len(turns) + 2
    assert lines[-1].startswith(f"{len(turns)} turns, 0 over budget")
    for line, turn in zip(lines[1:], turns.values(), strict=False):
        assert len(line) <= 80
        assert turn["session"][-6:] in line
        if turn["total_ms"] is not None:
            assert f"{turn['total_ms']:,.0f} ms" in line
    assert not any("\x1b" in line for line in lines)


def test_what_is_no_recording_gets_no_legend(tmp_path: Path) -> None:
    """Only the error: nothing is printed before the file is known to be a recording."""
    (tmp_path / "notes.txt").write_text("hello")
    for name in ("notes.txt", "gone"):
        done = headstart("replay", tmp_path / name, code=2)
        assert done.stdout == ""
        assert name in done.stderr


def test_replay_in_json_is_the_feeds_turns(recorded: Path) -> None:
    """Every revision as it came; the last line sums it up."""
    *turns, last = map(
        json.loads, headstart("replay", recorded, "--fast", "--json").stdout.splitlines()
    )
    assert turns == [message for message in MESSAGES if message["type"] == "turn"]
    assert last["turns"] == len(newest(MESSAGES))


def test_replay_shows_one_turn(recorded: Path) -> None:
    """By the end of its id: its stages and who owns each wait."""
    turn = next(t for t in newest(MESSAGES).values() if t["chunks"])
    text = headstart("replay", recorded, "--turn", turn["id"][-8:]).stdout
    assert "silence_duration_ms = 500" in text
    assert turn["id"] in text
    assert "░" in text
    whole = headstart("replay", recorded, "--turn", turn["id"], "--json").stdout
    assert json.loads(whole) == turn
    missing = headstart("replay", recorded, "--turn", "nope", code=2)
    assert "has no turn 'nope'" in missing.stderr
    assert "is not one turn" in headstart("replay", recorded, "--turn", "resp_", code=2).stderr


def test_recorded_time_passes_at_its_speed(tmp_path: Path) -> None:
    """Each turn is shown when it is due, in virtual time; what a ring brings is due at once."""
    now_s = [100.0]
    waited: list[float] = []

    class Virtual(Pace):
        def wait(self, message: dict[str, object]) -> None:
            left_s = self.wait_s(message)
            waited.append(left_s)
            now_s[0] += left_s

    shown: list[tuple[float, Turn]] = []
    recording = Recording(written(tmp_path / "a.gz", MESSAGES))
    pace = Virtual(2.0, lambda: now_s[0])
    replay(recording, pace, lambda turn, _: shown.append((now_s[0], turn)))
    assert all(at_s == pytest.approx(100 + turn.message["at_ms"] / 2000) for at_s, turn in shown)
    late = [MESSAGES[0] | {"at_ms": 60_000.0}, *MESSAGES[1:8]]
    waited.clear()
    replay(Recording(written(tmp_path / "b.gz", late)), Virtual(1.0), lambda *_: None)
    assert set(waited) == {0.0}


def test_a_cut_recording_is_replayed_with_a_warning(recorded: Path) -> None:
    """On stderr; stdout stays the turns, and the exit code says that it was read."""
    data = recorded.read_bytes()
    recorded.write_bytes(data[: len(data) // 2])
    done = headstart("replay", recorded, "--fast", "--json")
    assert "breaks off at its end" in done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["remarks"] != []


def test_compare_ends_as_ci_needs_it(tmp_path: Path, recorded: Path) -> None:
    """0: not slower; 1: slower; 2: no recording, another version, nothing to compare, no such
    option."""
    slow = written(tmp_path / "slow.gz", talk(2, seconds=60, slow_from=0))
    other = written(tmp_path / "other.gz", [{**MESSAGES[0], "version": 2}])
    empty = written(tmp_path / "empty.gz", MESSAGES[:2])
    assert "not slower" in headstart("compare", recorded, recorded).stdout
    text = headstart("compare", recorded, slow, code=1).stdout
    assert "B is slower by more than 5 %" in text
    assert max(map(len, text.splitlines())) <= 80
    wire = json.loads(headstart("compare", recorded, slow, "--json", code=1).stdout)
    assert {"stage": "total", "quantile": "p50"} in wire["slower"]
    headstart("compare", recorded, slow, "--fail-over", "90", code=0)
    for bad in (other, empty, tmp_path / "gone.gz", Path(__file__)):
        done = headstart("compare", recorded, bad, "--json", code=2)
        assert bad.name in done.stderr
        assert done.stdout == ""
    headstart("compare", recorded, slow, "--fail-over", "-1", code=2)


def test_export_writes_or_says_why_not(tmp_path: Path, recorded: Path) -> None:
    """To a file, to stdout for a pipe, and not over a file that is there."""
    out = tmp_path / "out.csv"
    done = headstart("export", recorded, "--to", "csv", out)
    assert f"{len(newest(MESSAGES))} turns written" in done.stderr
    assert headstart("export", recorded, "--to", "csv", "-").stdout == out.read_text()
    assert "already" in headstart("export", recorded, "--to", "csv", out, code=2).stderr
    headstart("export", recorded, "--to", "csv", out, "--force")
    headstart("export", recorded, "--to", "xlsx", tmp_path / "x", code=2)
    headstart("export", tmp_path / "gone", "--to", "csv", tmp_path / "x", code=2)
