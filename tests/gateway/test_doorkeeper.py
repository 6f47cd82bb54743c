import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.gateway.shell_fakes import RunningGateway, receive, running_gateway, until

KEY = "the-key-of-this-test"
OTHER_KEY = "another-key-of-this-test"
PAGE = "https://app.example"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def by_subprotocol(key: str) -> list[Subprotocol]:
    return [Subprotocol("realtime"), Subprotocol(f"openai-insecure-api-key.{key}")]


async def secret_of(running: RunningGateway, key: str) -> str:
    async with httpx.AsyncClient(base_url=running.url) as http:
        answer = await http.post("/v1/realtime/client_secrets", json={}, headers=bearer(key))
    assert answer.status_code == 200, answer.text
    value: str = answer.json()["value"]
    return value


async def is_turned_away(socket: ClientConnection) -> bool:
    """Whether the first event is the error, and the close code 3000."""
    event = await receive(socket, "error")
    assert event["error"]["code"] == "invalid_api_key"
    async with asyncio.timeout(10):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.recv()
    return socket.close_code == 3000


async def test_a_key_opens_a_session_whichever_way_it_comes() -> None:
    """As a bearer token, or in a subprotocol's name, of either spelling of the path."""
    async with running_gateway(api_keys=f"{OTHER_KEY} {KEY}") as running:
        async with connect(running.ws_url, additional_headers=bearer(KEY)) as socket:
            await receive(socket, "session.created")
        short = running.ws_url.replace("/v1", "")
        async with connect(short, subprotocols=by_subprotocol(OTHER_KEY)) as socket:
            await receive(socket, "session.created")


@pytest.mark.parametrize("key", ["", "wrong", KEY[:-1], "ek_0123456789abcdef"])
async def test_without_a_key_nobody_gets_a_session(key: str) -> None:
    """No key, a wrong one, an unknown secret: an error event, 3000, and no session was made."""
    async with running_gateway(api_keys=KEY) as running:
        async with connect(running.ws_url, additional_headers=bearer(key)) as socket:
            assert await is_turned_away(socket)
        async with connect(running.ws_url, subprotocols=by_subprotocol(key)) as socket:
            assert await is_turned_away(socket)
        assert running.sessions == []


async def test_http_paths_of_the_api_want_the_key_too() -> None:
    """401 without; the page, health, status and metrics are for everybody."""
    async with (
        running_gateway(api_keys=KEY) as running,
        httpx.AsyncClient(base_url=running.url) as http,
    ):
        for path in ("/v1/realtime/calls", "/v1/realtime/client_secrets", "/realtime/calls"):
            answer = await http.post(path)
            assert answer.status_code == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert answer.json()["error"]["code"] == "invalid_api_key"
        assert (await http.get("/v1/models")).status_code == 401
        assert (await http.get("/v1/models", headers=bearer(KEY))).status_code == 200
        for path in ("/", "/status", "/metrics"):
            assert (await http.get(path)).status_code == 200


async def test_a_secret_opens_sessions_and_makes_no_more_secrets() -> None:
    """What a key asked for serves a browser; it cannot prolong itself."""
    async with running_gateway(api_keys=KEY) as running:
        secret = await secret_of(running, KEY)
        async with connect(running.ws_url, subprotocols=by_subprotocol(secret)) as socket:
            await receive(socket, "session.created")
        async with httpx.AsyncClient(base_url=running.url) as http:
            path = "/v1/realtime/client_secrets"
            answer = await http.post(path, json={}, headers=bearer(secret))
        assert answer.status_code == 401


async def test_sessions_of_one_key_are_limited() -> None:
    """The one over it gets 429 with Retry-After; secrets count with their key; others go on."""
    async with running_gateway(api_keys=f"{KEY} {OTHER_KEY}", max_sessions_per_key=1) as running:
        secret = await secret_of(running, KEY)
        async with connect(running.ws_url, additional_headers=bearer(KEY)) as socket:
            await receive(socket, "session.created")
            for key in (KEY, secret):
                with pytest.raises(InvalidStatus) as refused:
                    await connect(running.ws_url, additional_headers=bearer(key))
                response = refused.value.response
                assert response.status_code == 429
                assert int(response.headers["Retry-After"]) > 0
                error = json.loads(response.body or b"")["error"]
                assert error["code"] == "rate_limit_exceeded"
            async with httpx.AsyncClient(base_url=running.url) as http:
                call = await http.post("/v1/realtime/calls", content="v=0", headers=bearer(KEY))
                assert call.status_code == 429
            async with connect(running.ws_url, additional_headers=bearer(OTHER_KEY)) as other:
                await receive(other, "session.created")
        await until(lambda: not running.gateway.pumps)
        async with connect(running.ws_url, additional_headers=bearer(KEY)) as socket:
            await receive(socket, "session.created")


async def test_pages_of_other_origins_are_refused_before_the_upgrade() -> None:
    """403 to a WebSocket and to a POST, and no CORS headers; our own page and listed ones pass."""
    async with running_gateway(allowed_origins=PAGE) as running:
        evil = Origin("https://evil.example")
        with pytest.raises(InvalidStatus) as refused:
            await connect(running.ws_url, origin=evil)
        assert refused.value.response.status_code == 403
        async with httpx.AsyncClient(base_url=running.url) as http:
            answer = await http.post("/v1/realtime/client_secrets", headers={"Origin": evil})
            assert answer.status_code == 403
            assert "Access-Control-Allow-Origin" not in answer.headers
        for origin in (PAGE, running.url):
            async with connect(running.ws_url, origin=Origin(origin)) as socket:
                await receive(socket, "session.created")


async def preflight(http: httpx.AsyncClient, origin: str) -> Any:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return await http.options("/v1/realtime/calls", headers=headers)


async def test_a_listed_page_may_make_calls() -> None:
    """The preflight needs no key; answers and refusals alike can be read by the page."""
    async with (
        running_gateway(api_keys=KEY, allowed_origins=PAGE) as running,
        httpx.AsyncClient(base_url=running.url) as http,
    ):
        asked = await preflight(http, PAGE)
        assert asked.status_code == 204
        assert asked.headers["Access-Control-Allow-Origin"] == PAGE
        assert "Authorization" in asked.headers["Access-Control-Allow-Headers"]
        assert (await preflight(http, "https://evil.example")).status_code == 403
        path = "/v1/realtime/client_secrets"
        made = await http.post(path, json={}, headers=bearer(KEY) | {"Origin": PAGE})
        assert (made.status_code, made.headers["Vary"]) == (200, "Origin")
        refused = await http.post(path, json={}, headers={"Origin": PAGE})
        assert refused.status_code == 401
        assert refused.headers["Access-Control-Allow-Origin"] == PAGE
