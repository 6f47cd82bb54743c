import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from headstart.gateway.errors import FileMissing, ServerFailed, ServerRefused, ServerUnreachable
from headstart.talk.client import TalkObserver, TalkOptions, talk
from headstart.talk.connection.address import realtime_url
from headstart.talk.connection.resumption import ResumableConnection
from headstart.talk.connection.session import another_model
from headstart.talk.dialog import Dialog
from headstart.talk.local_server import status_url
from tests.headstart.talk.media_files import write_quiet
from tests.headstart.talk.scripted_server import serving

FAST = TalkOptions(fast=True)


class Recorder(TalkObserver):
    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.remarks: list[str] = []

    def remark(self, sentence: str) -> None:
        self.remarks.append(sentence)

    def event(self, event: dict[str, Any], dialog: Dialog) -> None:
        self.kinds.append(event["type"])


async def test_a_spoken_file_is_one_turn(fake_server_url: str, spoken: Path) -> None:
    """Words, answer, budget, chunks and usage of one file, faster than real time."""
    recorder = Recorder()
    dialog = await talk([spoken], fake_server_url, FAST, recorder)
    result = dialog.to_wire()
    assert result["transcript"].startswith("the quick brown")
    assert result["answer"] == "This is an answer that comes word by word."
    assert result["status"] == "completed"
    stages_ms = [ms for ms in result["budget"]["stages_ms"].values() if ms is not None]
    assert sum(stages_ms) == pytest.approx(result["budget"]["total_ms"], abs=1.0)
    assert result["chunks"]["count"] >= 3
    assert result["usage"]["output_tokens"] == 9
    assert result["kv"]["bytes"] > 0
    assert result["errors"] == []
    assert "gateway.hearing" in recorder.kinds
    assert recorder.remarks == []


async def test_another_model_than_asked_for_is_told(fake_server_url: str, spoken: Path) -> None:
    """The server answers to any name, as clients of OpenAI's expect; a person may mean the name."""
    recorder = Recorder()
    await talk([spoken], fake_server_url, TalkOptions(fast=True, model="medium"), recorder)
    sentence = "the server runs 'fake', not 'medium': the model is chosen where it is started"
    assert recorder.remarks == [sentence]


@pytest.mark.parametrize(
    ("wanted", "served"),
    [
        (None, "small"),
        ("small", "small"),
        ("gpt-realtime", "gpt-realtime-2025-08-28"),
        ("./models/qwen", "Qwen2.5-Omni"),
        ("small", None),
    ],
)
def test_the_same_model_by_another_name_is_no_other(wanted: str | None, served: str | None) -> None:
    """With its version, from its directory, or not told at all."""
    assert another_model(wanted, served) is None


async def test_several_files_are_several_turns(fake_server_url: str, spoken: Path) -> None:
    """One session, a turn each; the last one's numbers on top."""
    dialog = await talk([spoken, spoken], fake_server_url, FAST)
    result = dialog.to_wire()
    assert [turn["utterances"] for turn in result["turns"]] == [1, 1]
    assert result["turns"][1]["budget"] == result["budget"]
    first, second = (turn["usage"]["input_tokens"] for turn in result["turns"])
    assert second > first


async def test_packets_of_any_size_hear_the_same(fake_server_url: str, spoken: Path) -> None:
    """7 ms and 1 s packets give the same words at the same samples."""
    seen = []
    for packet_ms in (7, 1000):
        options = TalkOptions(fast=True, packet_ms=packet_ms)
        dialog = await talk([spoken], fake_server_url, options)
        turn = dialog.to_wire()
        starts = [chunk["start_sample"] for chunk in turn["chunks"]["each"]]
        seen.append((turn["transcript"], starts))
    assert seen[0] == seen[1]


async def test_video_brings_its_pictures(fake_server_url: str, spoken: Path) -> None:
    """Frames of a file are taken without an error; the server counts them as image tokens or not,
    but hears the speech beside them all the same."""
    dialog = await talk([spoken.with_name("demo.mp4")], fake_server_url, FAST)
    assert dialog.errors == []
    assert dialog.to_wire()["status"] == "completed"


async def test_a_file_without_speech_ends_by_itself(fake_server_url: str, tmp_path: Path) -> None:
    """A quiet file: no utterance, no answer, no wait."""
    quiet = write_quiet(tmp_path / "quiet.wav", 0.3)
    dialog = await talk([quiet], fake_server_url, FAST)
    assert dialog.to_wire()["answer"] is None
    assert dialog.to_wire()["utterances"] == 0


async def test_missing_file_stops_everything_before_the_server_hears(tmp_path: Path) -> None:
    """No server is needed to say that a file is missing."""
    with pytest.raises(FileMissing):
        await talk([tmp_path / "none.wav"], "http://127.0.0.1:9", FAST)


async def test_nobody_there(spoken: Path) -> None:
    """A closed port: who was called and what to do."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ServerUnreachable, match="headstart serve"):
            await talk([spoken], f"http://127.0.0.1:{port}", FAST)


async def test_full_server(spoken: Path) -> None:
    """A 503 before the handshake is told in the server's own words."""

    async def no_session(connection: ServerConnection, request: Any) -> Any:
        body = json.dumps({"error": {"message": "all 3 sessions are in use"}})
        return connection.respond(503, body)

    async with serve(_nothing, "127.0.0.1", 0, process_request=no_session) as server:
        with pytest.raises(ServerRefused, match=r"503.*all 3 sessions are in use"):
            await talk([spoken], _url(server), FAST)


async def _nothing(connection: ServerConnection) -> None:
    return None


def _url(server: Any) -> str:
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


SESSION = {"type": "realtime", "model": "m", "audio": {"input": {"turn_detection": None}}}


async def test_a_plain_openai_server_with_push_to_talk(spoken: Path) -> None:
    """A server that refuses our key is asked again without it; with turn detection off the client
    commits and asks for the answer itself; pictures go as items."""
    got: list[str] = []

    async def answer(connection: ServerConnection, message: dict[str, Any]) -> None:
        got.append(message["type"])
        events: list[dict[str, Any]] = []
        if message["type"] == "session.update" and "gateway" in message["session"]:
            events = [{"type": "error", "error": {"message": "Unknown parameter"}}]
        elif message["type"] == "session.update":
            events = [{"type": "session.updated", "session": SESSION}]
        elif message["type"] == "input_audio_buffer.commit":
            transcription = "conversation.item.input_audio_transcription.completed"
            events = [
                {"type": "input_audio_buffer.committed", "item_id": "i"},
                {"type": transcription, "item_id": "i", "transcript": "what is it"},
            ]
        elif message["type"] == "response.create":
            done = {"id": "r", "status": "completed", "usage": None}
            events = [
                {"type": "response.created", "response": {"id": "r"}},
                {"type": "response.output_text.delta", "response_id": "r", "delta": "A cat."},
                {"type": "response.done", "response": done},
            ]
        for event in events:
            await connection.send(json.dumps(event))

    async with serving(answer, session=SESSION) as url:
        dialog = await talk([spoken.with_name("demo.mp4")], url, FAST)
    result = dialog.to_wire()
    assert (result["transcript"], result["answer"]) == ("what is it", "A cat.")
    assert result["budget"] is None
    assert "conversation.item.create" in got
    assert "input_image_buffer.append" not in got


async def test_server_that_goes_away(spoken: Path) -> None:
    """A close in mid-session is an error with the server's code, not a hang."""

    async def answer(connection: ServerConnection, message: dict[str, Any]) -> None:
        if message["type"] == "session.update":
            await connection.send(json.dumps({"type": "session.updated", "session": SESSION}))
        else:
            await connection.close(1012, "restarting")

    async with serving(answer, session=SESSION) as url:
        with pytest.raises(ServerFailed, match="1012"):
            await talk([spoken], url, FAST)


async def test_real_time_is_not_faster_than_real_time(fake_server_url: str, tmp_path: Path) -> None:
    """Half a second of audio takes at least half a second less its first packet."""
    clip = write_quiet(tmp_path / "quiet.wav", 0.5)
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await talk([clip], fake_server_url, TalkOptions())
    assert loop.time() - start_s > 0.46


def test_addresses() -> None:
    """What a person types becomes the endpoint; what cannot be one is refused by name."""
    assert realtime_url("http://h:1", None) == "ws://h:1/v1/realtime?model=default"
    assert realtime_url("h:1", "tiny") == "ws://h:1/v1/realtime?model=tiny"
    assert realtime_url("https://h/v1/", "a b") == "wss://h/v1/realtime?model=a%20b"
    assert realtime_url("ws://h/v1/realtime?model=x", None) == "ws://h/v1/realtime?model=x"
    with pytest.raises(ServerUnreachable, match="expected http://HOST:PORT"):
        realtime_url("ftp://h", None)
    for no_address in ("http://[::1", "h:99999", "h:port", ":8000"):
        for url_of in (lambda url: realtime_url(url, None), status_url):
            with pytest.raises(ServerUnreachable, match="expected http://HOST:PORT"):
                url_of(no_address)


class Failing(TalkObserver):
    """Something is wrong on our side when that event comes: a full disk, a closed terminal."""

    def __init__(self, at: str, error: Exception) -> None:
        self._at, self._error = at, error

    def event(self, event: dict[str, Any], dialog: Dialog) -> None:
        if event["type"] == self._at:
            raise self._error


@pytest.mark.parametrize(
    "error", [RuntimeError("a bug"), BrokenPipeError("nobody reads"), ValueError("no such letter")]
)
@pytest.mark.parametrize("at", ["session.created", "session.updated", "response.created"])
async def test_what_ends_the_listening_ends_the_talk(
    fake_server_url: str, spoken: Path, at: str, error: Exception
) -> None:
    """At once and as itself: an answer that has come is not waited for, and is not said to be owed
    by the server."""
    async with asyncio.timeout(60):
        with pytest.raises(type(error), match=str(error)):
            await talk([spoken], fake_server_url, FAST, Failing(at, error))


async def test_who_waits_to_send_learns_that_nobody_listens() -> None:
    """While the connection is lost."""

    @asynccontextmanager
    async def never(_: Any) -> AsyncIterator[Any]:
        yield None

    line = ResumableConnection(never, lambda _: None)
    sending = asyncio.create_task(line.send("{}"))
    await asyncio.sleep(0)
    line.end(RuntimeError("a bug"))
    with pytest.raises(RuntimeError, match="a bug"):
        await sending


async def test_what_is_owed_is_said_with_what_came_last(
    spoken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers nothing."""
    monkeypatch.setattr("headstart.talk.client.QUIET_WAIT_S", 0.2)

    async def nothing(connection: ServerConnection, message: dict[str, Any]) -> None:
        pass

    async with serving(nothing, session=SESSION) as url:
        owed = r"still owed: session\.updated; the last that came: session\.created"
        with pytest.raises(ServerFailed, match=owed):
            await talk([spoken], url, FAST)


@pytest.mark.parametrize(
    "event",
    ["[]", "{}", '"word"', '{"type": "session.updated"}', "[" * 100_000],
    ids=lambda event: event[:20],
)
async def test_an_event_that_is_none(event: str, spoken: Path) -> None:
    """It is the server that is wrong, and that is said."""

    async def answer(connection: ServerConnection, message: dict[str, Any]) -> None:
        await connection.send(event)

    async with serving(answer, session=SESSION) as url:
        with pytest.raises(ServerFailed, match="broke the protocol"):
            await talk([spoken], url, FAST)
