"""A real server with a fake engine, watched and recorded from its start to its end."""

from __future__ import annotations

import base64
import gzip
import json
import signal
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.gateway.server.running import WAIT_S, Server, ask, next_event, server, until
from tests.gateway.session_bench import clip_pcm, silence_pcm

Json = dict[str, Any]


def url_of(running: Server, path: str) -> str:
    return running.url.replace("http", "ws", 1) + path


def until_message(watcher: Connection, lines: list[str], kind: str) -> Json:
    """The feed's next message of a kind; `lines` keeps all that came."""
    while True:
        line = watcher.recv(timeout=WAIT_S)
        assert isinstance(line, str)
        lines.append(line)
        message: Json = json.loads(line)
        if message["type"] == kind:
            return message


def speak(session: Connection) -> Json:
    """A spoken question, as fast as it can be sent; its `response.done`."""
    pcm = clip_pcm("capital.wav") + silence_pcm(1_000)
    for start in range(0, len(pcm), 4_800):
        audio = base64.b64encode(pcm[start : start + 4_800]).decode()
        session.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
    return next_event(session, "response.done")


def unpacked(path: Path) -> list[bytes]:
    """The whole lines of a recording that may have no end."""
    data = zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(path.read_bytes())
    return data[: data.rfind(b"\n") + 1].splitlines()


def test_a_run_is_watched_and_recorded(tmp_path: Path) -> None:
    """Typed and spoken turns come over the feed with all their parts; the recording has the same
    bytes, and an end once the server has one."""
    path = tmp_path / "run.jsonl.gz"
    with server("--record", str(path)) as running:
        running.until_ready()
        lines: list[str] = []
        with (
            connect(url_of(running, "/v1/dashboard")) as watcher,
            connect(url_of(running, "/v1/realtime")) as session,
        ):
            until_message(watcher, lines, "live")
            opened = until_message(watcher, lines, "session")
            ask(session)
            done = next_event(session, "response.done")
            typed = until_message(watcher, lines, "turn")
            assert typed["id"] == done["response"]["id"]
            assert typed["session"] == opened["session"]
            assert (typed["anchor"], typed["reason"]) == ("requested", "completed")
            assert typed["stamps_ms"]["requested"] == 0
            response_id = speak(session)["response"]["id"]
            spoken = until_message(watcher, lines, "turn")
            assert spoken["id"] == response_id
            assert (spoken["anchor"], spoken["realtime"]) == ("received", False)
            stages = spoken["stages_ms"]
            total_ms = sum(ms or 0 for ms in stages.values())
            assert total_ms == pytest.approx(spoken["total_ms"], abs=0.02)
            assert spoken["chunks"], "the engine reported what it heard"
            assert spoken["waits"]["vad_hangover"]["setting"] == "silence_duration_ms"
            assert "text" not in spoken
            row = until_message(watcher, lines, "snapshot")["rows"][0]
            assert (row["turns"], row["last_turn"]) == (2, response_id)
        until(lambda: running.status()["sessions"]["now"] == 0)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(WAIT_S) == 0
    recorded = gzip.decompress(path.read_bytes()).splitlines()
    assert json.loads(recorded[0])["type"] == "hello"
    alike = [line for line in recorded if b'"type":"snapshot"' not in line]
    live = next(at for at, line in enumerate(lines) if json.loads(line)["type"] == "live")
    for line in lines[live + 1 :]:
        assert line.encode() in recorded
    kinds = [json.loads(line)["type"] for line in alike]
    assert kinds == ["hello", "live", "session", "turn", "turn", "session"]
    seqs = [json.loads(line)["seq"] for line in recorded[2:]]
    assert seqs == list(range(1, len(seqs) + 1)), "a watcher of the whole run misses nothing"


def test_a_server_that_is_killed_leaves_its_turns(tmp_path: Path) -> None:
    """SIGKILL: the file has no end, and all turns of a second ago."""
    path = tmp_path / "run.jsonl.gz"
    with server("--record", str(path)) as running:
        running.until_ready()
        with connect(url_of(running, "/v1/realtime")) as session:
            ask(session)
            response_id = next_event(session, "response.done")["response"]["id"]
            until(lambda: response_id.encode() in b"".join(unpacked(path)))
        running.process.kill()
        running.process.wait(WAIT_S)
    turns = [json.loads(line) for line in unpacked(path) if b'"type":"turn"' in line]
    assert [turn["id"] for turn in turns] == [response_id]


def test_a_client_that_leaves_in_mid_answer_has_a_record(tmp_path: Path) -> None:
    """In the feed, in the recording and among the turns counted; no other answer suffers."""
    path = tmp_path / "run.jsonl.gz"
    with server("--record", str(path), "--set", "engine_args=--delta-ms 300") as running:
        running.until_ready()
        lines: list[str] = []
        with connect(url_of(running, "/v1/dashboard")) as watcher:
            until_message(watcher, lines, "live")
            with connect(url_of(running, "/v1/realtime")) as session:
                ask(session)
                created = next_event(session, "response.created")
                next_event(session, "response.output_text.delta")
            turn = until_message(watcher, lines, "turn")
            assert turn["id"] == created["response"]["id"]
            assert (turn["reason"], turn["interrupted"]) == ("disconnected", False)
            assert turn["transport"] == "websocket"
            assert turn["total_ms"] > 0, "its first token was sent, so the wait for it is known"
            assert (turn["usage"], turn["error"]) == (None, None)
            closed = until_message(watcher, lines, "session")
            assert (closed["session"], closed["what"]) == (turn["session"], "closed")
            page = httpx.get(f"{running.url}/metrics", timeout=WAIT_S).text
            assert 'headstart_turns_total{reason="disconnected"} 1.0' in page
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(WAIT_S) == 0
    recorded = gzip.decompress(path.read_bytes()).splitlines()
    assert [turn["id"]] == [json.loads(m)["id"] for m in recorded if b'"type":"turn"' in m]


def test_a_recording_that_is_there_stops_the_start(tmp_path: Path) -> None:
    """Exit 2 and a sentence, before an engine is started."""
    path = tmp_path / "run.jsonl.gz"
    path.touch()
    argv = [sys.executable, "-m", "headstart", "serve", "--engine", "fake", "--port", "0"]
    done = subprocess.run(
        [*argv, "--record", str(path)], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 2
    assert "is there already" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_engine_that_dies_is_an_error_of_nobodys_session() -> None:
    """Told once by the server; the answer that it took with it names its session and its turn."""
    with server("--set", "engine_args=--delta-ms 300") as running:
        running.until_ready()
        lines: list[str] = []
        with (
            connect(url_of(running, "/v1/dashboard")) as watcher,
            connect(url_of(running, "/v1/realtime")) as session,
        ):
            until_message(watcher, lines, "live")
            ask(session)
            next_event(session, "response.output_text.delta")
            running.engine_process().kill()
            lost = until_message(watcher, lines, "error")
            assert (lost["code"], lost["session"], lost["turn"]) == ("engine_lost", None, None)
            failed = until_message(watcher, lines, "error")
            turn = until_message(watcher, lines, "turn")
            assert (turn["reason"], turn["error"]["code"]) == ("failed", "engine_lost")
            assert (failed["session"], failed["turn"]) == (turn["session"], turn["id"])
            while until_message(watcher, lines, "snapshot")["engine"]["restarts"] != 1:
                pass
