import asyncio
import errno
import json
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import connect as connect_socket
from websockets.exceptions import ConnectionClosed

from headstart.gateway.transport.webrtc import call
from headstart.gateway.transport.webrtc.calls import BODY_BYTES_MAX, SDP_BYTES_MAX
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until
from tests.gateway.transport.webrtc.peer import (
    Camera,
    Microphone,
    calling,
    connect,
    offer_of,
    post_offer,
    prepared,
)

SDP = {"Content-Type": "application/sdp"}


@pytest.fixture
async def running() -> AsyncIterator[RunningGateway]:
    async with running_gateway(max_sessions=2) as gateway:
        yield gateway


@pytest.fixture
async def http(running: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as client:
        yield client


@pytest.fixture
async def openai(running: RunningGateway) -> AsyncIterator[AsyncOpenAI]:
    """The stock client. One that is not closed closes itself in whatever loop runs by then."""
    async with AsyncOpenAI(api_key="unused", base_url=f"{running.url}/v1") as client:
        yield client


async def test_a_raw_offer(running: RunningGateway) -> None:
    """201, the answer as SDP with our candidates in it, and where the call is."""
    async with prepared(Microphone()) as peer:
        response = await post_offer(peer, running.url)
        assert response.status_code == 201
        assert response.headers["content-type"].startswith("application/sdp")
        assert response.headers["location"].startswith("/v1/realtime/calls/rtc_")
        assert "Location" in response.headers["access-control-expose-headers"]
        assert "a=candidate:" in response.text
        assert "a=end-of-candidates" in response.text
        assert "opus/48000" in response.text
        assert "useinbandfec=1" in response.text
        assert "G722" not in response.text
        await connect(peer, response.headers["location"], response.text)
        await peer.event("session.created")


async def test_peers_turn_their_pictures_themselves(running: RunningGateway) -> None:
    """Offered to be told of a camera's orientation (3GPP TS 26.114), we do not agree to it: a peer
    then has to turn its pictures before it encodes them, and browsers do."""

    def offering(sdp: str) -> str:
        head, line, rest = sdp.partition("m=video")
        about, mid, more = rest.partition("a=mid:")
        extension = "a=extmap:13 urn:3gpp:video-orientation\r\n"
        return head + line + about + extension + mid + more

    async with prepared(Microphone(), Camera()) as peer:
        response = await post_offer(peer, running.url, edit=offering)
        assert response.status_code == 201
        assert "m=video" in response.text
        assert "video-orientation" not in response.text


async def test_the_stock_client_calls_and_hangs_up(
    running: RunningGateway, openai: AsyncOpenAI
) -> None:
    """`client.realtime.calls.create` with a session (multipart), and `hangup`."""
    async with prepared(Microphone()) as peer:
        response = await openai.realtime.calls.with_raw_response.create(
            sdp=await offer_of(peer.pc),
            session={"type": "realtime", "model": "m", "instructions": "be brief"},
        )
        assert response.status_code == 201
        location = response.headers["location"]
        await connect(peer, location, response.text)
        created = await peer.event("session.created")
        assert created["instructions"] == "be brief"
        await openai.realtime.calls.hangup(location.rsplit("/", 1)[1])
        assert not running.gateway.runners
        assert running.sessions[0].closed
        await until(lambda: peer.pc.connectionState in ("closed", "failed"))


async def test_a_secrets_session_is_the_calls(running: RunningGateway, openai: AsyncOpenAI) -> None:
    """The stock client makes a secret with instructions; a raw offer that brings it has them."""
    secret = await openai.realtime.client_secrets.create(
        expires_after={"anchor": "created_at", "seconds": 60},
        session={"type": "realtime", "instructions": "speak Latin"},
    )
    assert secret.value.startswith("ek_")
    async with prepared(Microphone()) as peer:
        headers = {"Authorization": f"Bearer {secret.value}"}
        response = await post_offer(peer, running.url, headers)
        await connect(peer, "", response.text)
        assert (await peer.event("session.created"))["instructions"] == "speak Latin"


async def test_a_call_may_be_for_words_alone(running: RunningGateway, openai: AsyncOpenAI) -> None:
    """The session's type comes with the secret, and holds for calls and sockets alike."""
    secret = await openai.realtime.client_secrets.create(session={"type": "transcription"})
    headers = {"Authorization": f"Bearer {secret.value}"}
    async with prepared(Microphone()) as peer:
        response = await post_offer(peer, running.url, headers)
        await connect(peer, "", response.text)
        assert (await peer.event("session.created"))["session_type"] == "transcription"
    async with connect_socket(running.ws_url, additional_headers=headers) as socket:
        assert json.loads(await socket.recv())["session_type"] == "transcription"


async def test_a_secret_opens_a_websocket_too(running: RunningGateway, openai: AsyncOpenAI) -> None:
    """In the header, or in a browser's subprotocol; an unknown one is told so and closed 3000."""
    secret = await openai.realtime.client_secrets.create(
        session={"type": "realtime", "instructions": "speak Latin"}
    )
    in_header: dict[str, Any] = {
        "additional_headers": {"Authorization": f"Bearer {secret.value}"},
    }
    in_protocol: dict[str, Any] = {
        "subprotocols": ["realtime", f"openai-insecure-api-key.{secret.value}"],
    }
    for offered in (in_header, in_protocol):
        async with connect_socket(running.ws_url, **offered) as socket:
            assert json.loads(await socket.recv())["instructions"] == "speak Latin"
    await until(lambda: not running.gateway.runners)
    stale = {"Authorization": "Bearer ek_0000"}
    async with connect_socket(running.ws_url, additional_headers=stale) as socket:
        assert json.loads(await socket.recv())["error"]["code"] == "invalid_api_key"
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 3000
    await until(lambda: not running.gateway.runners)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"expires_after": {"seconds": 9}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": 7201}}, "expires_after.seconds"),
        ({"expires_after": {"seconds": True}}, "expires_after.seconds"),
        ({"expires_after": 60}, "expires_after"),
        ({"session": {"type": "nonsense"}}, None),
        ({"session": {"type": "realtime", "audio": {"output": {"speed": 9}}}}, None),
        ([], "body"),
    ],
)
async def test_bad_requests_for_secrets(http: httpx.AsyncClient, body: Any, param: str) -> None:
    """400 that names what is wrong, as the API words it."""
    response = await http.post("/v1/realtime/client_secrets", json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert error["param"] == param


async def test_a_secret_without_wishes(http: httpx.AsyncClient) -> None:
    """An empty body gives ten minutes and the server's own settings."""
    response = await http.post("/v1/realtime/client_secrets")
    assert response.status_code == 200
    assert response.json()["session"]["type"] == "realtime"
    assert response.json()["session"]["expires_at"] == 0


@pytest.mark.parametrize(
    "sdp",
    [
        "",
        "hello",
        "v=0\r\n",
        "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 0\r\n",
        "v=0\r\nm=audio x y z",
        "v=0\r\n" + "a=x\r\n" * SDP_BYTES_MAX,
        "v=0\r\n" + "\0\xff" * 50,
    ],
)
async def test_offers_that_are_none(
    running: RunningGateway, http: httpx.AsyncClient, sdp: str
) -> None:
    """400 with a reason, and neither a slot nor a socket is kept."""
    response = await http.post("/v1/realtime/calls", content=sdp.encode(), headers=SDP)
    assert response.status_code == 400
    assert response.json()["error"]["message"]
    assert not running.gateway.runners


async def test_an_offer_without_a_codec_of_ours(
    running: RunningGateway, http: httpx.AsyncClient
) -> None:
    """G.722 alone is refused by name, not taken and misheard."""
    async with prepared(Microphone(), codecs=("audio/G722",)) as peer:
        offer = await offer_of(peer.pc)
    response = await http.post("/v1/realtime/calls", content=offer, headers=SDP)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "invalid_offer"
    assert "opus, pcmu, pcma" in error["message"]
    assert not running.gateway.runners


async def test_a_server_without_a_network(
    running: RunningGateway, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no address to be called at it says so at once, so that a page can take a WebSocket."""
    async with prepared(Microphone()) as peer:
        offer = await offer_of(peer.pc)
        monkeypatch.setattr("aioice.ice.get_host_addresses", lambda *_, **__: [])
        response = await http.post("/v1/realtime/calls", content=offer, headers=SDP)
    assert response.status_code == 400
    assert "no network address" in response.json()["error"]["message"]
    assert not running.gateway.runners


async def test_bodies_are_bounded(http: httpx.AsyncClient) -> None:
    """Raw or multipart, a body over the limit is refused while it comes in."""
    huge = b"v" * (BODY_BYTES_MAX + 1)
    for kwargs in ({"content": huge, "headers": SDP}, {"files": {"sdp": huge}}):
        response = await http.post("/v1/realtime/calls", **kwargs)
        assert response.status_code == 400


@pytest.mark.parametrize(
    "files",
    [
        {"session": (None, "{}")},
        {"sdp": (None, "v=0"), "session": (None, "{nonsense")},
        {"sdp": (None, "v=0"), "session": (None, '{"type": "realtime", "speed": 1}')},
    ],
)
async def test_bad_forms(http: httpx.AsyncClient, files: Any) -> None:
    """A form without an offer, or with a session that is none: 400 before anything is opened."""
    assert (await http.post("/v1/realtime/calls", files=files)).status_code == 400
    headers = {"Content-Type": "multipart/form-data"}
    broken = await http.post("/v1/realtime/calls", content=b"xx", headers=headers)
    assert broken.status_code == 400


async def test_browsers_forms(running: RunningGateway, http: httpx.AsyncClient) -> None:
    """FormData with parts that have no type of their own, or are files."""
    async with prepared(Microphone()) as peer:
        offer = await offer_of(peer.pc)
        session = json.dumps({"type": "realtime", "instructions": "hm"})
        for files in (
            {"sdp": (None, offer), "session": (None, session)},
            {"sdp": ("offer.sdp", offer), "session": ("session.json", session)},
        ):
            response = await http.post("/v1/realtime/calls", files=files)
            assert response.status_code == 201
            hung_up = await http.post(response.headers["location"] + "/hangup")
            assert hung_up.status_code == 200
    assert running.sessions[-1].hello["instructions"] == "hm"


async def test_unknown_calls_and_keys(http: httpx.AsyncClient) -> None:
    """404 and 401, each with its code."""
    unknown = await http.post("/v1/realtime/calls/rtc_0/hangup")
    assert unknown.status_code == 404
    assert unknown.json()["error"]["code"] == "call_id_not_found"
    stale = await http.post(
        "/v1/realtime/calls", content="v=0", headers=SDP | {"Authorization": "Bearer ek_0"}
    )
    assert stale.status_code == 401
    assert stale.json()["error"]["code"] == "invalid_api_key"


async def test_a_call_is_its_holders_to_end() -> None:
    """Another key, or another secret of the same key, finds no such call; the secret that opened
    it, and the key that the secret is of, end it. None of it tells whose calls there are."""
    ours, theirs = ({"Authorization": f"Bearer {letter * 20}"} for letter in "ot")
    keys = f"{'o' * 20},{'t' * 20}"
    async with (
        running_gateway(api_keys=keys) as keyed,
        httpx.AsyncClient(base_url=keyed.url, timeout=60) as http,
    ):

        async def secret(of: dict[str, str]) -> dict[str, str]:
            made = await http.post("/v1/realtime/client_secrets", headers=of)
            return {"Authorization": f"bearer {made.json()['value']}"}

        mine, another, foreign = await secret(ours), await secret(ours), await secret(theirs)
        for opener, enders, others in (
            (ours, [ours], [theirs, foreign, mine]),
            (mine, [mine], [theirs, foreign, another]),
            (mine, [ours], [another]),
        ):
            async with prepared(Microphone()) as peer:
                location = (await post_offer(peer, keyed.url, opener)).headers["location"]
                for other in others:
                    refused = await http.post(f"{location}/hangup", headers=other)
                    assert refused.status_code == 404
                    assert refused.json()["error"]["code"] == "call_id_not_found"
                    assert keyed.gateway.runners
                for ender in enders:
                    ended = await http.post(f"{location}/hangup", headers=ender)
                    assert ended.status_code == 200
                assert not keyed.gateway.runners
        for path in ("/status", "/metrics", "/v1/models"):
            assert (await http.get(path, headers=mine)).status_code == 403
            assert (await http.get(path, headers=ours)).status_code == 200


async def test_a_full_server_refuses_before_it_answers(running: RunningGateway) -> None:
    """The call over the limit gets 503 and when to try again; calls and sockets share the slots."""
    async with calling(running.url, Microphone()), connect_socket(running.ws_url):
        async with prepared(Microphone()) as peer:
            response = await post_offer(peer, running.url)
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0


async def test_two_at_once_for_the_last_seat(running: RunningGateway) -> None:
    """The slot is taken before the answer is made: never more sessions than slots."""
    async with calling(running.url), prepared() as first, prepared() as second:
        answers = await asyncio.gather(
            post_offer(first, running.url), post_offer(second, running.url)
        )
        assert sorted(a.status_code for a in answers) == [201, 503]


async def test_seats_taken_while_an_offer_comes(
    running: RunningGateway, http: httpx.AsyncClient
) -> None:
    """A body that dawdles finds the server full when it has come, and gets 503."""
    full = asyncio.Event()
    async with prepared() as peer:
        offer = (await offer_of(peer.pc)).encode()

        async def slowly() -> AsyncIterator[bytes]:
            yield offer[:100]
            await full.wait()
            yield offer[100:]

        posting = asyncio.create_task(
            http.post("/v1/realtime/calls", content=slowly(), headers=SDP)
        )
        async with connect_socket(running.ws_url), connect_socket(running.ws_url):
            full.set()
            assert (await posting).status_code == 503
            assert len(running.gateway.runners) == 2


async def test_a_drain_ends_calls(running: RunningGateway) -> None:
    """The server hangs up, and waits until its calls' sockets are closed."""
    async with calling(running.url, Microphone()) as peer:
        await running.gateway.drain()
        calls = running.gateway.calls
        assert calls is not None
        assert len(calls) == 0
        await until(lambda: peer.pc.connectionState in ("closed", "failed"))


async def test_a_server_too_busy_to_answer_says_so(
    running: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 and not 400, for the offer is good; the slot is free again and the next call gets it."""
    with monkeypatch.context() as busy:
        busy.setattr(call, "ANSWER_WAIT_S", 0.0)
        async with prepared(Microphone()) as peer:
            response = await post_offer(peer, running.url)
            assert response.status_code == 503
            error = response.json()["error"]
            assert (error["type"], error["code"]) == ("server_error", "server_overloaded")
    await until(lambda: not running.gateway.runners)
    async with calling(running.url, Microphone()) as peer:
        await peer.event("session.created")


async def test_a_long_form_touches_no_disk(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session's settings of over a MiB are read from memory: the disk may be full, and nothing
    that a client says is written to it."""

    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", full)
    files = {"sdp": ("a", b"nothing"), "session": ("b", b" " * (1 << 20) + b"{}")}
    response = await http.post("/v1/realtime/calls", files=files)
    assert response.status_code == 400
