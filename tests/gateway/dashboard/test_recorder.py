"""The recording: the bytes of the feed, readable after a kill, and no more than a nuisance when its
disk is full."""

from __future__ import annotations

import asyncio
import errno
import gzip
import json
import logging
import stat
import zlib
from pathlib import Path

import pytest

from headstart.gateway.dashboard.dashboard import Dashboard
from headstart.gateway.dashboard.recorder import Recorder, RecordingFile
from headstart.gateway.dashboard.watcher import Watcher
from headstart.gateway.errors import ConfigError
from tests.gateway.dashboard.records import Clock, hub_at, record


def made(clock: Clock | None = None) -> Dashboard:
    return Dashboard(hub_at(clock or Clock()), lambda: {"model": "small"}, lambda: {"rows": []})


def readable(path: Path) -> list[bytes]:
    """The whole lines of a file that may break off anywhere."""
    unpacked = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(path.read_bytes())
    return unpacked[: unpacked.rfind(b"\n") + 1].splitlines()


async def eventually(path: Path, lines: int) -> list[bytes]:
    async with asyncio.timeout(20):
        while len(found := readable(path) if path.stat().st_size else []) < lines:
            await asyncio.sleep(0.02)
    return found


async def test_a_recording_is_what_a_watcher_gets(tmp_path: Path) -> None:
    """Byte for byte, from the greeting on."""
    dashboard, path = made(), tmp_path / "run.jsonl.gz"
    recorder, watcher = Recorder(dashboard, RecordingFile(path)), Watcher()
    recorder.start()
    lines = [message.line() for message in dashboard.watch(watcher)]
    for number in range(50):
        dashboard.hub.turn(record(f"resp_{number}"))
        dashboard.hub.error("e", "Ünïcödé, and a\nline's end", "sess_1")
    await asyncio.sleep(1.2)  # snapshots
    await recorder.stop()
    lines += iter(watcher.take, None)
    assert gzip.decompress(path.read_bytes()) == b"".join(line + b"\n" for line in lines)
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds[:2] == ["hello", "live"]
    assert kinds.count("snapshot") >= 2
    dashboard.hub.unwatch(watcher)


async def test_a_killed_server_leaves_a_readable_file(tmp_path: Path) -> None:
    """What was flushed can be read, to its last line, although the file has no end; and so can any
    part of it that begins at the beginning."""
    dashboard, path = made(), tmp_path / "run.jsonl.gz"
    recorder = Recorder(dashboard, RecordingFile(path))
    recorder.start()
    for number in range(200):
        dashboard.hub.turn(record(f"resp_{number}"))
    lines = await eventually(path, 202)
    assert json.loads(lines[-1])["type"] in ("turn", "snapshot")
    whole = path.read_bytes()
    with pytest.raises(EOFError):
        gzip.decompress(whole)
    cut = tmp_path / "cut.gz"
    for size in (len(whole) // 3, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        assert all(json.loads(line) for line in readable(cut))
    await recorder.stop()


async def test_a_full_disk_ends_the_recording_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line in the log; the watcher is off, and the hub goes on."""
    dashboard, file = made(), RecordingFile(tmp_path / "run.jsonl.gz")
    recorder = Recorder(dashboard, file)
    recorder.start()
    await eventually(file.path, 2)

    def full(_: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(file, "_write", full)
    with caplog.at_level(logging.ERROR):
        dashboard.hub.turn(record())
        async with asyncio.timeout(20):
            while dashboard.hub.is_watched:
                await asyncio.sleep(0.02)
    assert "No space left on device; the server goes on" in caplog.text
    dashboard.hub.turn(record("resp_2"))
    await recorder.stop()


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    """The file is new, or the server says why not before it starts."""
    path = tmp_path / "run.jsonl.gz"
    path.write_text("of yesterday")
    with pytest.raises(ConfigError, match="is there already"):
        RecordingFile(path)
    assert path.read_text() == "of yesterday"
    with pytest.raises(ConfigError, match="cannot be written"):
        RecordingFile(tmp_path / "nowhere" / "run.jsonl.gz")


def test_a_recording_is_its_owners(tmp_path: Path) -> None:
    """It may hold what was said."""
    file = RecordingFile(tmp_path / "run.jsonl.gz")
    file.close()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
