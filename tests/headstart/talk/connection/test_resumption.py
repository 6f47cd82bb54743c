"""A line over several connections; scripted ones here, real ones behind a proxy that cuts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from aiortc import RTCPeerConnection

from headstart.gateway.errors import ConnectionLost, ResumeRefused, ServerFailed, ServerUnreachable
from headstart.talk.client import TalkObserver, TalkOptions, talk
from headstart.talk.connection import resumption, webrtc
from headstart.talk.connection.resumption import ResumableConnection, ResumeTicket, resumable
from headstart.talk.connection.webrtc import RtcConnection
from headstart.talk.connection.websocket import SocketConnection
from headstart.talk.dialog import Dialog
from tests.gateway.transport.webrtc.peer import Peer
from tests.headstart.talk.conftest import ready_url

TOKEN = {
    "type": "gateway.session.resumable",
    "event_id": "e1",
    "token": "secret",
    "expires_after_ms": 300,
}


class Scripted:
    """A connection that says its lines and then ends as told."""

    def __init__(self, says: list[dict[str, Any]], end: Exception) -> None:
        self._says, self._end = says, end
        self.sent: list[str] = []
        self.is_up = True

    async def send(self, text: str, /) -> None:
        if not self.is_up:
            raise ConnectionLost("lost")
        self.sent.append(text)

    async def __aiter__(self) -> AsyncIterator[str]:
        for event in self._says:
            yield json.dumps(event)
        raise self._end


class Network:
    """What `open_` meets, one after the other; errors are raised."""

    def __init__(self, *meets: Scripted | Exception) -> None:
        self._meets = list(meets)
        self.tickets: list[ResumeTicket | None] = []
        self.told: list[float | None] = []

    @contextlib.asynccontextmanager
    async def open(self, ticket: ResumeTicket | None) -> AsyncIterator[Scripted]:
        self.tickets.append(ticket)
        meets = self._meets.pop(0) if self._meets else ServerUnreachable("nobody")
        if isinstance(meets, Exception):
            raise meets
        yield meets

    async def heard(self) -> list[str]:
        """Every event until the end. Raises what ends it."""
        kinds = []
        async with resumable(self.open, self.told.append) as line:
            async for message in line:
                kinds.append(json.loads(message)["type"])
                if kinds[-1] == "bye":
                    return kinds
        return kinds


LOST = ConnectionLost("lost")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumption, "FIRST_PAUSE_S", 0.01)


async def test_it_goes_on_behind_the_last_event() -> None:
    """Lost, nobody there, still taken for connected, then back: with the token and the last event
    seen, and whoever listens hears one stream."""
    network = Network(
        Scripted([TOKEN, {"type": "a", "event_id": "e2"}], LOST),
        ServerUnreachable("nobody"),
        ResumeRefused("resume_in_use", "still connected"),
        Scripted([{"type": "b", "event_id": "e3"}], LOST),
        Scripted([{"type": "bye", "event_id": "e4"}], LOST),
    )
    assert await network.heard() == ["gateway.session.resumable", "a", "b", "bye"]
    again, last = ResumeTicket("secret", "e2"), ResumeTicket("secret", "e3")
    assert network.tickets == [None, again, again, again, last]
    assert network.told == [0.3, None, 0.3, None]


async def test_a_server_without_resuming() -> None:
    """No token, no second try: the loss is the end."""
    network = Network(Scripted([{"type": "a"}], LOST))
    with pytest.raises(ConnectionLost):
        await network.heard()
    assert network.tickets == [None]


async def test_a_goodbye_is_meant() -> None:
    """A server that ends the session is not called again."""
    network = Network(Scripted([TOKEN], ServerFailed("1001 going away")))
    with pytest.raises(ServerFailed, match="going away"):
        await network.heard()
    assert network.tickets == [None]


async def test_in_the_end_it_is_said_clearly() -> None:
    """Nobody answers for as long as the server would wait; or the server knows nothing of it."""
    with pytest.raises(ServerFailed, match="does not keep the conversation"):
        await Network(Scripted([TOKEN], LOST)).heard()
    unknown = ResumeRefused("resume_token_unknown", "There is no session to resume")
    with pytest.raises(ServerFailed, match="no session to resume"):
        await Network(Scripted([TOKEN], LOST), unknown).heard()


async def test_what_is_sent_waits_for_the_next_connection() -> None:
    """Between two connections nothing is thrown away, and after the end nothing waits for ever."""
    second = Scripted([{"type": "bye"}], LOST)
    network = Network(Scripted([TOKEN], LOST), ServerUnreachable("nobody"), second)
    line = ResumableConnection(network.open, network.told.append)
    await line.begin()
    reading = aiter(line)
    await anext(reading)
    coming = asyncio.ensure_future(anext(reading))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(line.send("hello"), 60) == 1, "it went over the second"
    assert second.sent == ["hello"]
    await coming
    with pytest.raises(ServerFailed):
        await anext(reading)
    with pytest.raises(ServerFailed):
        await line.send("anybody?")
    await line.close()


async def test_nothing_waits_for_a_connection_that_will_not_come() -> None:
    """A send that fails after the end is told so at once, whatever was noticed first."""
    only = Scripted([], LOST)
    line = ResumableConnection(Network(only).open, lambda _: None)
    await line.begin()
    with pytest.raises(ConnectionLost):
        await anext(aiter(line))
    only.is_up = False
    with pytest.raises(ServerFailed):
        await asyncio.wait_for(line.send("anybody?"), 60)
    await line.close()


# --- a real server behind a proxy ----------------------------------------------------------------


class Proxy:
    """TCP to a server and back, until it is cut."""

    def __init__(self, target_url: str) -> None:
        self._target = urlsplit(target_url)
        self._streams: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._is_down = False
        self._deaf: set[str] = set()
        self.url = ""

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        assert self._server is not None
        self._server.close()

    def cut(self, *, for_good: bool = False) -> None:
        """As if a cable were pulled: no goodbye on either side."""
        self._is_down = for_good
        self._deaf.clear()
        for stream in self._streams:
            stream.transport.abort()

    def lose(self, direction: str) -> None:
        """From now on what goes "there" or comes "back" is lost, unnoticed until the cut."""
        self._deaf.add(direction)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_down:
            writer.transport.abort()
            return
        there = await asyncio.open_connection(self._target.hostname, self._target.port)
        self._streams |= {writer, there[1]}
        await asyncio.gather(
            self._pour("there", reader, there[1]), self._pour("back", there[0], writer)
        )
        self._streams -= {writer, there[1]}

    async def _pour(
        self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if direction not in self._deaf:
                    writer.write(data)
                    await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def hesitant_url() -> Iterator[str]:
    """A real server whose scripted engine answers for a second and more, and that keeps sessions
    for six."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--engine", "fake", "--set", "engine_args=--delta-ms 150"]
    argv += ["--set", "silence_ms=300", "--set", "voice=none", "--set", "resume_s=6"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        yield ready_url(process)
        process.terminate()


class Cutter(TalkObserver):
    """Does something at the third word of the answer, once."""

    def __init__(self, cut: Any) -> None:
        self._cut, self._words = cut, 0
        self.told: list[float | None] = []

    def event(self, event: dict[str, Any], dialog: Dialog) -> None:
        if event["type"] == "response.output_text.delta":
            self._words += 1
            if self._words == 3:
                self._cut()

    def lost(self, kept_s: float | None) -> None:
        self.told.append(kept_s)


async def test_a_socket_that_is_cut_in_mid_answer(hesitant_url: str, spoken: Path) -> None:
    """The talk goes on where it was: every word of the answer, once, and nothing else is amiss;
    then another turn of the same conversation."""
    async with Proxy(hesitant_url) as proxy:
        cutter = Cutter(proxy.cut)
        dialog = await talk([spoken, spoken], proxy.url, TalkOptions(fast=True), cutter)
    assert cutter.told == [6.0, None]
    result = dialog.to_wire()
    answers = [turn["answer"] for turn in result["turns"]]
    assert answers == ["This is an answer that comes word by word."] * 2
    assert [turn["status"] for turn in result["turns"]] == ["completed"] * 2
    assert result["errors"] == []


async def test_a_socket_that_stays_cut(hesitant_url: str, spoken: Path) -> None:
    """After as long as the server keeps a session, a sentence about it."""
    async with Proxy(hesitant_url) as proxy:
        cutter = Cutter(lambda: proxy.cut(for_good=True))
        with pytest.raises(ServerFailed, match="in 6 s it could not be made again"):
            await talk([spoken], proxy.url, TalkOptions(fast=True), cutter)
    assert cutter.told == [6.0]


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[RTCPeerConnection]:
    """The calls that are made, in order."""
    made: list[RTCPeerConnection] = []

    class Recorded(RTCPeerConnection):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(webrtc, "RTCPeerConnection", Recorded)
    return made


async def test_a_call_that_vanishes_in_mid_answer(
    hesitant_url: str, spoken: Path, peers: list[RTCPeerConnection]
) -> None:
    """No packet gets through any more: another call goes on with the session, and the answer is
    whole."""
    cutter = Cutter(lambda: Peer(peers[0], None).vanish())
    dialog = await talk([spoken], hesitant_url, TalkOptions(webrtc=True), cutter)
    assert len(peers) == 2
    assert cutter.told == [6.0, None]
    result = dialog.to_wire()
    assert result["answer"] == "This is an answer that comes word by word."
    assert result["status"] == "completed"


# --- what was asked at the cut ----------------------------------------------------------------


async def push_to_talk(url: str) -> str:
    """A secret whose sessions have turn detection off, so that `talk` commits and asks."""
    session = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{url}/v1/realtime/client_secrets", json={"session": session})
    return str(answer.json()["value"])


def before_sending(
    monkeypatch: pytest.MonkeyPatch,
    line: type[SocketConnection] | type[RtcConnection],
    kind: str,
    do: Any,
) -> list[str]:
    """Have `do` done right before the first event of a type leaves; the types of all that do."""
    send, sent = line.send, list[str]()

    async def watched(self: Any, text: str, /) -> None:
        what = json.loads(text)["type"]
        if what == kind and kind not in sent:
            await asyncio.sleep(0.3)  # what went before it has arrived
            do()
        sent.append(what)
        await send(self, text)

    monkeypatch.setattr(line, "send", watched)
    return sent


class Told(TalkObserver):
    """Notes losses and returns."""

    def __init__(self) -> None:
        self.losses: list[float | None] = []

    def lost(self, kept_s: float | None) -> None:
        self.losses.append(kept_s)


def is_whole(dialog: Dialog) -> None:
    """One utterance, one answer, nothing amiss."""
    (turn,) = dialog.turns
    assert (turn.committed, len(turn.answers)) == (1, 1)
    assert dialog.to_wire()["answer"] == "This is an answer that comes word by word."
    assert dialog.errors == []


@pytest.mark.parametrize("kind", ["input_audio_buffer.commit", "response.create"])
@pytest.mark.parametrize("direction", ["there", "back"])
async def test_what_is_asked_as_a_socket_is_cut(
    hesitant_url: str, spoken: Path, monkeypatch: pytest.MonkeyPatch, kind: str, direction: str
) -> None:
    """Lost on its way it is sent again; if only its answer was lost it is not, or there would be
    an error: the turn is committed once and answered once."""
    key = await push_to_talk(hesitant_url)
    async with Proxy(hesitant_url) as proxy:

        def lose() -> None:
            proxy.lose(direction)
            asyncio.get_running_loop().call_later(0.3, proxy.cut)

        sent = before_sending(monkeypatch, SocketConnection, kind, lose)
        told = Told()
        dialog = await talk([spoken], proxy.url, TalkOptions(fast=True, api_key=key), told)
    assert [kept_s is None for kept_s in told.losses] == [False, True]
    assert sent.count(kind) == (2 if direction == "there" else 1)
    is_whole(dialog)


@pytest.mark.parametrize("kind", ["input_audio_buffer.commit", "response.create"])
async def test_what_is_asked_as_a_call_vanishes(
    hesitant_url: str,
    spoken: Path,
    monkeypatch: pytest.MonkeyPatch,
    peers: list[RTCPeerConnection],
    kind: str,
) -> None:
    """The same over a call, whose channel takes an event and says nothing of its loss."""
    sent = before_sending(monkeypatch, RtcConnection, kind, lambda: Peer(peers[0], None).vanish())
    key = await push_to_talk(hesitant_url)
    dialog = await talk([spoken], hesitant_url, TalkOptions(webrtc=True, api_key=key))
    assert len(peers) == 2
    assert sent.count(kind) == 2
    is_whole(dialog)
