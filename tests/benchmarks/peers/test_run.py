"""headstart.benchmarks.peers.run: what is reported, and what a failure leaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.benchmarks.peers import run as subject
from headstart.benchmarks.peers.child import PeerFailed, child, free_port, is_open
from headstart.benchmarks.peers.clips import Clip, plans
from headstart.benchmarks.peers.contention import Contention, calm
from headstart.benchmarks.peers.feeding import ConversationFailed, feed, stream_of
from headstart.benchmarks.peers.run import Options, Result, ratios, table
from headstart.benchmarks.peers.score import USER, Answer, Conversation

Speak = Callable[[Clip], Awaitable[Conversation]]
CLIPS = [Clip(plan, np.full(8000, 5000, np.int16)) for plan in plans(3)]


def test_ratios_name_the_peer() -> None:
    """How many times as long it takes; None where something was not measured."""
    rows: dict[str, dict[str, Any]] = {
        "ours": {"first_sound_ms_p50": 500.0, "first_token_ms_p50": 400.0},
        "ours_eager": {"first_sound_ms_p50": 600.0, "first_token_ms_p50": 500.0},
        "pipecat": {"first_sound_ms_p50": 1250.0, "first_token_ms_p50": None},
        "speech_to_speech": {"reason": "not here"},
    }
    assert ratios(rows) == {
        "ratio_first_sound": 2.5,
        "ratio_first_token": None,
        "ratio_first_sound_speech_to_speech": None,
        "ratio_first_token_speech_to_speech": None,
    }
    assert ratios({"pipecat": rows["pipecat"]})["ratio_first_sound"] is None


def test_the_table_has_a_row_for_each_system() -> None:
    """One that failed says why, in one line."""
    measured = Result(cpu_s=[1.0], others_cores=[0.1]).row()
    lines = table({"ours": measured, "pipecat": {"reason": "no wheel\nmore"}}).splitlines()
    assert len({line.count("|") for line in lines[:3]}) == 1
    assert lines[3] == "| pipecat | not measured: no wheel |"


def test_systems_that_are_none_are_refused(tmp_path: Path) -> None:
    """By name, before anything is started."""
    with pytest.raises(ValueError, match=r"expected some of ours, .*pipecat.*, got siri"):
        subject.run(Options(tmp_path, ("ours", "siri")), as_json=True)


def answered(clip: Clip) -> Conversation:
    read = [(USER, clip.plan.text)]
    return Conversation(clip.plan, 10.0, [clip.plan.text], [Answer(read, 10.5, 11.0, text="Yes.")])


async def measured(
    monkeypatch: pytest.MonkeyPatch, folder: Path, systems: dict[str, Speak | Exception]
) -> dict[str, Result]:
    """The results with these in place of the real systems."""

    @contextlib.asynccontextmanager
    async def running(name: str, _: Path) -> AsyncIterator[Speak]:
        found = systems[name]
        if isinstance(found, Exception):
            raise found
        yield found

    monkeypatch.setattr(subject, "_running", running)
    return await subject._measure(Options(folder, tuple(systems), len(CLIPS), rounds=2), CLIPS)


async def test_a_peer_that_fails_leaves_the_others_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its row has the reason; a conversation that breaks off is an unanswered clip."""

    async def good(clip: Clip) -> Conversation:
        return answered(clip)

    async def sometimes(clip: Clip) -> Conversation:
        if clip is CLIPS[1]:
            raise ConversationFailed("gone")
        return answered(clip)

    failed = PeerFailed("pipecat", "ended with exit code 1", tmp_path / "absent.log")
    results = await measured(
        monkeypatch, tmp_path, {"pipecat": failed, "ours": good, "ours_eager": sometimes}
    )
    assert results["pipecat"].row()["reason"].startswith("pipecat: ended with exit code 1")
    assert results["ours"].row()["first_sound_ms_p50"] == 1000.0
    assert results["ours"].row()["clips"] == 6
    assert results["ours_eager"].row()["broken_share"] == pytest.approx(1 / 3, abs=1e-4)
    lines = [json.loads(line) for line in (tmp_path / subject.CONVERSATIONS).open()]
    assert [line["system"] for line in lines].count("ours_eager") == 6
    assert {line["errors"][0] for line in lines if line["broken"]} == {"gone"}


async def test_a_clip_is_fed_at_the_pace_of_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never before it has been spoken, and its last sample is where the end is. Time stands still
    but for the waits."""
    now_s = 100.0

    async def sleep(delay_s: float) -> None:
        nonlocal now_s
        now_s += delay_s

    monkeypatch.setattr("headstart.benchmarks.peers.feeding.time.monotonic", lambda: now_s)
    monkeypatch.setattr("headstart.benchmarks.peers.feeding.asyncio.sleep", sleep)
    sent: list[tuple[float, int]] = []

    async def send(pcm: bytes) -> None:
        sent.append((now_s, len(pcm) // 2))

    stream = stream_of(CLIPS[0], 24_000)
    end_s = await feed(stream, send, lambda since_s: since_s >= 0.5)
    assert stream.speech_end == 36_000
    assert end_s == pytest.approx(101.5)
    spoken = np.cumsum([samples for _, samples in sent]) / 24_000
    assert [at_s for at_s, _ in sent] == pytest.approx(list(100.0 + spoken))
    assert sent[-1][0] == pytest.approx(102.0)


async def test_a_child_that_ends_is_named(tmp_path: Path) -> None:
    """With its exit code and the end of its log."""
    script = "import sys; print('line'); sys.exit('no model here')"
    lines: list[str] = []
    with pytest.raises(PeerFailed, match=r"peer: ended with exit code 1.*\n.*no model here"):
        async with child(
            "peer", [sys.executable, "-c", script], tmp_path / "log", lines.append
        ) as process:
            await process.until(lambda: False, "the impossible")
    assert lines == ["line"]


async def test_a_child_ends_with_its_input(tmp_path: Path) -> None:
    """It is told by its standard input, so that it can end in order."""
    script = "import sys; print(sys.stdin.read() == ''); print('ended', flush=True)"
    lines: list[str] = []
    async with child("peer", [sys.executable, "-c", script], tmp_path / "log", lines.append):
        pass
    assert lines == ["True", "ended"]


async def test_ports() -> None:
    """A free one is closed until somebody listens."""
    port = free_port()
    assert not is_open(port)
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", port)
    assert await asyncio.to_thread(is_open, port)
    server.close()
    await server.wait_closed()


async def test_contention_is_others_only() -> None:
    """Nobody can use more than there is; a machine that is calm enough is not waited for."""
    seen = Contention()
    await asyncio.sleep(0)
    assert seen.cores() >= 0
    await asyncio.wait_for(calm((os.cpu_count() or 1) + 1.0, 100.0), 50.0)
