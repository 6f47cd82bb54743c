"""Offers that would change a call: refused by name, and what needs no offer works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
from aiortc import RTCConfiguration

from headstart.gateway.protocol.headers import RESUME_HEADER
from headstart.gateway.transport.webrtc import renegotiation
from headstart.gateway.transport.webrtc.renegotiation import AnsweredOffers
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until
from tests.gateway.transport.webrtc.peer import (
    Camera,
    Microphone,
    Peer,
    calling,
    connect,
    offer_of,
    post_offer,
    prepared,
)
from tests.gateway.transport.webrtc.sound import pitch_hz, sine

REFUSED = "renegotiation_unsupported"


@pytest.fixture
async def running() -> AsyncIterator[RunningGateway]:
    async with running_gateway(max_sessions=2) as gateway:
        yield gateway


def offer(version: int = 2, fragment: str = "abcd", session: int = 7, digest: str = "AB") -> str:
    """As much of one as is looked at."""
    return (
        f"v=0\r\no=- {session} {version} IN IP4 127.0.0.1\r\n"
        f"a=ice-ufrag:{fragment}\r\na=fingerprint:sha-256 {digest}:CD\r\n"
    )


@pytest.mark.parametrize(
    ("again", "changes"),
    [
        (offer(), True),  # the same one
        (offer(version=3), True),  # a track is added
        (offer(version=3, fragment="efgh"), True),  # ICE is restarted
        (offer(version=9, session=9), True),  # as aiortc counts
        (offer(fragment="efgh"), False),  # another call of a client that makes all offers alike
        (offer(session=9, fragment="efgh"), False),  # one certificate for two connections
        (offer(version=3, digest="FF"), False),  # another peer
    ],
)
def test_which_offers_change_a_call(again: str, changes: bool) -> None:
    """Only those of the same connection, and only once it has come about."""
    offers = AnsweredOffers()
    known = offers.answered(offer())
    assert not offers.changes_a_call(again), "the answer may have been lost"
    known.is_connected = True
    assert offers.changes_a_call(again) == changes


def test_a_call_that_is_over_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser restarts ICE when the server has long given the call up. A client that has the
    same user fragment in each call may call again. The oldest is forgotten."""
    monkeypatch.setattr(renegotiation, "REMEMBERED_MAX", 2)
    offers = AnsweredOffers()
    for session in (1, 2, 3):
        known = offers.answered(offer(session=session, fragment=f"abc{session}"))
        known.is_connected = True
        offers.ended(known)
    never = offers.answered(offer(session=4))
    offers.ended(never)
    assert not offers.changes_a_call(offer(session=3, fragment="abc3"))
    assert offers.changes_a_call(offer(version=3, session=3, fragment="new3"))
    assert not offers.changes_a_call(offer(version=3, session=1, fragment="new1"))
    assert not offers.changes_a_call(offer(version=3, session=4))
    assert len(offers._offers) == 4


async def refusal(peer: Peer, url: str) -> str:
    """The code of the error that another offer of that peer gets."""
    response = await post_offer(peer, url)
    assert response.status_code == 409, response.text
    error = response.json()["error"]
    assert "new RTCPeerConnection" in error["message"]
    return str(error["code"])


@pytest.mark.parametrize("change", ["nothing", "camera", "channel"])
async def test_another_offer_is_refused_and_the_call_goes_on(
    running: RunningGateway, change: str
) -> None:
    """A camera or a data channel that is added, or nothing: 409, no second session, and the first
    call is as it was. Its conversation goes on in a call of its own."""
    data = change != "channel"
    async with calling(running.url, Microphone(sine(440, 30, 48_000)), data=data) as peer:
        await until(lambda: running.sessions[0].heard)
        if change == "camera":
            peer.pc.addTrack(Camera())
        elif change == "channel":
            peer.pc.createDataChannel("oai-events")
        assert await refusal(peer, running.url) == REFUSED
        assert len(running.sessions) == 1
        heard = len(running.sessions[0].heard)
        await until(lambda: len(running.sessions[0].heard) > heard + 24_000)
        if peer.channel is None:
            return
        peer.channel.send("keep")
        token = str((await peer.event("token"))["token"])
    async with prepared(Microphone(), Camera()) as second:
        response = await post_offer(second, running.url, {RESUME_HEADER: token})
        await connect(second, response.headers["Location"], response.text)
        await second.event("resumed")
        assert len(running.sessions) == 1


async def test_one_certificate_for_two_calls(running: RunningGateway) -> None:
    """Both are taken: they are two connections."""
    shared = RTCConfiguration(iceServers=[])
    async with (
        prepared(Microphone(), configuration=shared) as first,
        prepared(Microphone(), configuration=shared) as second,
    ):
        certificates = "_RTCPeerConnection__certificates"
        setattr(second.pc, certificates, getattr(first.pc, certificates))
        for peer in (first, second):
            response = await post_offer(peer, running.url)
            assert response.status_code == 201
            await connect(peer, response.headers["Location"], response.text)
    assert len(running.sessions) == 2


async def test_an_offer_that_comes_twice_at_once(running: RunningGateway) -> None:
    """As a client sends it again whose first answer was lost: both are answered, and the answer
    that is taken makes a call."""
    async with prepared(Microphone()) as peer:
        sdp = await offer_of(peer.pc)
        async with httpx.AsyncClient(timeout=60) as http:
            url, headers = f"{running.url}/v1/realtime/calls", {"Content-Type": "application/sdp"}
            both = [http.post(url, content=sdp, headers=headers) for _ in range(2)]
            first, second = await asyncio.gather(*both)
        assert (first.status_code, second.status_code) == (201, 201)
        await connect(peer, second.headers["Location"], second.text)
        await peer.event("session.created")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
async def test_the_address_of_a_call_takes_no_offer(running: RunningGateway, method: str) -> None:
    """As WHIP has it for ICE restarts: refused with the same error."""
    async with httpx.AsyncClient(timeout=60) as http:
        url = f"{running.url}/v1/realtime/calls/rtc_1"
        response = await http.request(method, url, content="a=ice-ufrag:abcd")
    assert response.status_code == 405
    assert response.json()["error"]["code"] == REFUSED


async def test_tracks_are_replaced_without_an_offer(running: RunningGateway) -> None:
    """Another microphone, none, and one again; a camera of another size; a second data channel:
    the same session hears and sees what is there."""
    async with calling(running.url, Microphone(sine(440, 30, 48_000)), Camera()) as peer:
        session = running.sessions[0]
        await until(lambda: session.heard and session.seen)
        voice, camera = peer.pc.getSenders()[:2]
        voice.replaceTrack(None)
        await asyncio.sleep(0.5)
        voice.replaceTrack(Microphone(sine(880, 30, 48_000)))
        camera.replaceTrack(Camera((10, 240, 10), 640))
        heard, seen = len(session.heard), len(session.seen)
        await until(lambda: len(session.heard) > heard + 4 * 24_000)
        later = np.frombuffer(bytes(session.heard[-24_000:]), np.int16)
        assert pitch_hz(later, 24_000) == pytest.approx(880, abs=2)
        await until(lambda: len(session.seen) > seen + 4)
        middle = np.frombuffer(session.seen[-1].rgb, np.uint8).reshape(-1, 3).mean(0)
        assert middle[1] > 200 > 100 > middle[0], "it is green"
        peer.pc.createDataChannel("later")
        assert peer.channel is not None
        peer.channel.send("hello")
        assert (await peer.event("echo"))["text"] == "hello"
    assert len(running.sessions) == 1
