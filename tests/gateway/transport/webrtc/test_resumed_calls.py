"""Calls whose network goes away, and that come back as another call or over a WebSocket."""

from __future__ import annotations

import json

import httpx
import pytest
from websockets.asyncio.client import connect as connect_socket

from headstart.gateway.audio.clock import CLIENT_RATE_HZ
from headstart.gateway.protocol.headers import RESUME_HEADER as HEADER
from headstart.gateway.session.actions import Play
from headstart.gateway.transport.webrtc.call import Call
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until
from tests.gateway.transport.webrtc.peer import (
    Microphone,
    Peer,
    calling,
    connect,
    post_offer,
    prepared,
)
from tests.gateway.transport.webrtc.sound import sine


async def token_of(peer: Peer) -> str:
    assert peer.channel is not None
    peer.channel.send("keep")
    return str((await peer.event("token"))["token"])


def detached(running: RunningGateway) -> bool:
    return any(entry.resume_channel.is_detached for entry in running.gateway.registry)


async def test_a_call_that_vanished_goes_on_as_another() -> None:
    """Microphone, events and answers of the same session are those of the new call."""
    async with running_gateway(max_sessions=1) as running:
        async with calling(running.url, Microphone(sine(300, 30, 48_000))) as first:
            token = await token_of(first)
            first.vanish()
            await until(lambda: detached(running))
        heard = len(running.sessions[0].heard)
        async with prepared(Microphone(sine(300, 30, 48_000))) as second:
            response = await post_offer(second, running.url, {HEADER: token}, "none-such")
            assert response.status_code == 201
            await connect(second, response.headers["Location"], response.text)
            assert (await second.event("resumed"))["replayed"] is None
            await until(lambda: len(running.sessions[0].heard) > heard + CLIENT_RATE_HZ)
            assert second.channel is not None
            second.channel.send("hello")
            assert (await second.event("echo"))["text"] == "hello"
        assert len(running.sessions) == 1


async def test_a_call_goes_on_over_a_websocket() -> None:
    """Where no UDP gets through any more: what the playout still held is told as dropped, and the
    client plays what comes from now on."""
    async with running_gateway() as running:
        async with calling(running.url) as peer:
            token = await token_of(peer)
            peer.vanish()
            await until(lambda: detached(running))
        (entry,) = running.gateway.registry
        pcm = bytes(2 * CLIENT_RATE_HZ)
        entry.runner._carry_out([Play({"type": "sound"}, pcm)])
        async with connect_socket(running.ws_url, additional_headers={HEADER: token}) as socket:
            kinds = [json.loads(await socket.recv()) for _ in range(2)]
            assert kinds[0] == {"type": "cleared", "dropped": CLIENT_RATE_HZ}
            assert kinds[1]["type"] == "resumed"
            entry.runner._carry_out([Play({"type": "sound"}, pcm)])
            sound = json.loads(await socket.recv())
            assert len(sound["delta"]) == 4 * len(pcm) // 3


async def test_a_call_that_is_hung_up_is_over() -> None:
    """Whoever asks for its end gets it: the token is worth nothing any more (404), as one that
    never was; that of a call which lives is refused with 409."""
    async with running_gateway() as running:
        async with calling(running.url) as peer, prepared() as other:
            token = await token_of(peer)
            taken = await post_offer(other, running.url, {HEADER: token})
            assert taken.status_code == 409
            assert taken.json()["error"]["code"] == "resume_in_use"
        await until(lambda: detached(running))
        async with prepared() as again:
            response = await post_offer(again, running.url, {HEADER: token})
            await connect(again, response.headers["Location"], response.text)
            await running.gateway.calls.end_all()  # type: ignore[union-attr]
        await until(lambda: running.sessions[0].closed)
        async with prepared() as late:
            gone = await post_offer(late, running.url, {HEADER: token})
            assert gone.status_code == 404
            assert gone.json()["error"]["code"] == "resume_token_unknown"


async def test_an_offer_that_cannot_be_answered_leaves_the_session_waiting() -> None:
    """The client may try again with a better one."""
    async with running_gateway() as running:
        async with calling(running.url) as peer:
            token = await token_of(peer)
        await until(lambda: detached(running))
        async with httpx.AsyncClient() as http:
            headers = {HEADER: token, "Content-Type": "application/sdp"}
            url = f"{running.url}/v1/realtime/calls"
            bad = await http.post(url, content="v=0\r\nnothing in it", headers=headers)
            assert bad.json()["error"]["code"] == "invalid_offer"
        async with prepared() as good:
            response = await post_offer(good, running.url, {HEADER: token})
            await connect(good, response.headers["Location"], response.text)
            await good.event("resumed")


async def test_a_session_that_ends_while_its_new_call_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The call gets a 404 and is closed; it is counted as unknown, and not as resumed."""
    closed: list[Call] = []
    answer, close = Call.answer, Call.close

    async def answer_late(call: Call) -> str:
        sdp = await answer(call)
        for entry in running.gateway.registry:
            entry.runner.hangup(1000, "enough")
            await entry.over.wait()
        return sdp

    async def close_and_tell(call: Call) -> None:
        await close(call)
        closed.append(call)

    async with running_gateway() as running:
        async with calling(running.url) as peer:
            token = await token_of(peer)
            peer.vanish()
            await until(lambda: detached(running))
        monkeypatch.setattr(Call, "answer", answer_late)
        monkeypatch.setattr(Call, "close", close_and_tell)
        async with prepared() as late:
            response = await post_offer(late, running.url, {HEADER: token})
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "resume_token_unknown"
        assert len(closed) == 1
        assert not len(running.gateway.calls or ())
        counted = running.gateway.registry.metrics.resumes
        assert counted.labels("resumed")._value.get() == 0
        assert counted.labels("unknown")._value.get() == 1


async def test_a_call_that_cannot_be_made_gives_its_claim_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever goes wrong on our side before it is answered: the next one is let in."""
    async with running_gateway() as running:
        async with calling(running.url) as peer:
            token = await token_of(peer)
            peer.vanish()
            await until(lambda: detached(running))

        def broken(*_: object) -> Call:
            raise OSError("no more sockets")

        with monkeypatch.context() as broken_calls:
            broken_calls.setattr("headstart.gateway.transport.webrtc.calls.Calls._call", broken)
            async with prepared() as first:
                assert (await post_offer(first, running.url, {HEADER: token})).status_code == 500
        async with prepared() as second:
            response = await post_offer(second, running.url, {HEADER: token})
            assert response.status_code == 201
            await connect(second, response.headers["Location"], response.text)
            await second.event("resumed")


async def test_what_a_channel_fails_to_send_comes_over_the_next_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In order and without a hole."""
    async with running_gateway() as running:
        async with calling(running.url) as peer:
            token = await token_of(peer)
            assert peer.channel is not None
            peer.channel.send("count 1")
            await peer.event("n")
            (call,) = running.gateway.calls._calls.values()  # type: ignore[union-attr]

            def fail(_: str) -> None:
                raise ValueError("a bug in the transport")

            monkeypatch.setattr(call.channel._channel, "send", fail)
            peer.channel.send("count 3")
            await until(lambda: detached(running))
        address = f"{running.ws_url}?last_event_id=n0"
        async with connect_socket(address, additional_headers={HEADER: token}) as socket:
            events = [json.loads(await socket.recv()) for _ in range(4)]
        assert [e.get("event_id") for e in events if e["type"] == "n"] == ["n0", "n1", "n2"]
