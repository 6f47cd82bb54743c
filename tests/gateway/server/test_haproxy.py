"""Two real gateways behind a real HAProxy with `deploy/haproxy.cfg` as it is.

Who answered is read off what the gateways hand out, which names them, and off their own `/status`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.debian_tools import HAPROXY
from tests.gateway.server.running import free_port
from tests.gateway.shell_fakes import WAIT_S, receive
from tests.gateway.transport.webrtc.peer import Peer, calling, post_offer, prepared
from tests.gateway.transport.webrtc.peer import connect as connect_call

ROOT = Path(__file__).resolve().parents[3]
CONFIGURATION = ROOT / "deploy" / "haproxy.cfg"
KEY = "a-key-of-the-tests-that-is-long-enough"
HEADERS = {"Authorization": f"Bearer {KEY}"}
RESUME = "headstart-resume"


@dataclass
class Site:
    """The balancer's URL, and the gateways by name: where they listen, and their processes."""

    url: str
    gateways: dict[str, str]
    processes: dict[str, subprocess.Popen[str]]

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/realtime"

    async def status(self, name: str) -> dict[str, Any]:
        async with httpx.AsyncClient(timeout=WAIT_S, headers=HEADERS) as http:
            status: dict[str, Any] = (await http.get(f"{self.gateways[name]}/status")).json()
            return status

    async def sessions(self) -> dict[str, int]:
        return {name: (await self.status(name))["sessions"]["now"] for name in self.gateways}

    async def is_up(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=WAIT_S) as http:
                return (await http.get(f"{self.url}/ready")).status_code == 200
        return False


@contextlib.contextmanager
def gateway(name: str, *settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--engine", "fake", "--set", "voice=none", "--set", f"gateway_name={name}"]
    for setting in (f"api_keys={KEY}", "drain_s=0.5", *settings):
        argv += ["--set", setting]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())["url"]
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def site(*settings: str) -> AsyncIterator[Site]:
    """Gateways a and b, ready, and HAProxy in front of them, which knows that."""
    (haproxy,) = HAPROXY.ensure()
    listen = f"127.0.0.1:{free_port()}"
    with gateway("a", *settings) as (a, a_url), gateway("b", *settings) as (b, b_url):
        addresses = {
            "LISTEN": listen,
            "GATEWAY_A": a_url.removeprefix("http://"),
            "GATEWAY_B": b_url.removeprefix("http://"),
            "CHECK": "200ms",
        }
        balancer = subprocess.Popen(
            [haproxy, "-db", "-f", CONFIGURATION],
            env=HAPROXY.environment | addresses,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        running = Site(f"http://{listen}", {"a": a_url, "b": b_url}, {"a": a, "b": b})
        try:
            await met(lambda: all_ready(running))
            yield running
        finally:
            balancer.kill()
            balancer.wait()


async def met(condition: Any) -> None:
    """Wait until an awaited condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not await condition():
            await asyncio.sleep(0.05)


async def all_ready(running: Site) -> bool:
    """Both have an engine, and the balancer has seen them: each gets one of two connections."""
    for name in running.gateways:
        if (await running.status(name))["engine"]["state"] != "ready":
            return False
    if not await running.is_up():
        return False
    with contextlib.suppress(Exception):
        async with opened(running), opened(running):
            return await running.sessions() == {"a": 1, "b": 1}
    return False


@contextlib.asynccontextmanager
async def opened(
    running: Site, headers: dict[str, str] | None = None, subprotocols: tuple[str, ...] = ()
) -> AsyncIterator[ClientConnection]:
    """A session by way of the balancer."""
    names = [Subprotocol(name) for name in subprotocols]
    async with connect(
        running.ws_url,
        additional_headers=HEADERS if headers is None else headers,
        subprotocols=names or None,
    ) as client:
        await receive(client, "session.created")
        yield client


async def one_each(
    running: Site, stack: contextlib.AsyncExitStack
) -> dict[str, tuple[ClientConnection, str]]:
    """A session at each gateway, with its token; more are opened if the balancer so decides."""
    found: dict[str, tuple[ClientConnection, str]] = {}
    async with asyncio.timeout(WAIT_S):
        while len(found) < len(running.gateways):
            client = await stack.enter_async_context(opened(running))
            token = await keep(client)
            found.setdefault(token.partition(".")[0], (client, token))
    return found


async def keep(client: ClientConnection) -> str:
    """The token with which the session goes on."""
    session = {"type": "realtime", "gateway": {"resume": True}}
    await client.send(json.dumps({"type": "session.update", "session": session}))
    token: str = (await receive(client, "gateway.session.resumable"))["token"]
    return token


async def ask(client: ClientConnection) -> dict[str, Any]:
    content = [{"type": "input_text", "text": "hello?"}]
    item = {"type": "message", "role": "user", "content": content}
    await client.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await client.send(json.dumps({"type": "response.create"}))
    return await receive(client, "response.done")


async def secret(running: Site, headers: dict[str, str] | None = None) -> str:
    async with httpx.AsyncClient(timeout=WAIT_S, headers=HEADERS | (headers or {})) as http:
        reply = await http.post(f"{running.url}/v1/realtime/client_secrets", json={})
        value: str = reply.json()["value"]
        return value


async def cut(client: ClientConnection) -> None:
    """The connection breaks without a goodbye."""
    client.transport.abort()
    await client.wait_closed()


async def detached(running: Site, name: str) -> bool:
    return bool((await running.status(name))["sessions"]["detached"] == 1)


def test_the_configuration_is_valid() -> None:
    """HAProxy says so of the file as it is, without a warning."""
    (haproxy,) = HAPROXY.ensure()
    checked = subprocess.run(
        [haproxy, "-c", "-f", CONFIGURATION],
        env=HAPROXY.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert "WARNING" not in checked.stderr


async def test_each_session_goes_on_where_it_is() -> None:
    """New ones go to both gateways. One that breaks goes on at its own, by header and by
    subprotocol, although the balancer would then choose the other."""
    async with site() as running, contextlib.AsyncExitStack() as stack:
        for name, (client, token) in (await one_each(running, stack)).items():
            assert (await ask(client))["response"]["status"] == "completed"
            await cut(client)
            key = f"openai-insecure-api-key.{KEY}"
            offers = [Subprotocol(n) for n in ("realtime", key, f"{RESUME}.{token}")]
            ways: list[dict[str, Any]] = [
                {"additional_headers": HEADERS | {RESUME: token}},
                {"subprotocols": offers},
            ]
            for way in ways:
                await met(lambda name=name: detached(running, name))
                async with connect(running.ws_url, **way) as again:
                    resumed = await receive(again, "gateway.session.resumed")
                    assert resumed["session"]["id"]
                    assert (await ask(again))["response"]["status"] == "completed"
                    await cut(again)


async def test_calls_are_ended_and_go_on_at_their_gateway() -> None:
    """The later requests of each of two calls reach the gateway that answered its offer; the
    session of a call that breaks goes on there, as another call and over a WebSocket."""
    async with site("api_keys=") as running, contextlib.AsyncExitStack() as stack:
        names: dict[str, Peer] = {}
        while len(names) < 2:
            peer = await stack.enter_async_context(calling(running.url))
            names.setdefault(peer.location.split("rtc_")[1].split("_")[0], peer)
        for name, peer in names.items():
            before = (await running.sessions())[name]
            peer.send("session.update", session={"type": "realtime", "gateway": {"resume": True}})
            token = (await peer.event("gateway.session.resumable"))["token"]
            assert token.startswith(f"{name}.")
            peer.vanish()
            await met(lambda name=name: detached(running, name))
            async with prepared() as again:
                reply = await post_offer(again, running.url, {RESUME: token})
                assert reply.status_code == 201, reply.text
                assert f"/rtc_{name}_" in reply.headers["Location"]
                await connect_call(again, reply.headers["Location"], reply.text)
                await again.event("gateway.session.resumed")
                async with httpx.AsyncClient(timeout=WAIT_S) as http:
                    ended = await http.post(f"{running.url}{again.location}/hangup")
                    assert ended.status_code == 200
            await met(lambda name=name, before=before: fewer(running, name, before))


async def fewer(running: Site, name: str, before: int) -> bool:
    return (await running.sessions())[name] < before


async def test_a_secret_is_used_where_it_was_issued() -> None:
    """Over a WebSocket with either way to send it; that of a session that goes on is issued by its
    gateway if the request names the session's token."""
    async with site() as running, contextlib.AsyncExitStack() as stack:
        for name, (client, token) in (await one_each(running, stack)).items():
            value = await secret(running, {RESUME: token})
            assert value.startswith(f"ek_{name}_")
            by_header: dict[str, Any] = {"headers": {"Authorization": f"Bearer {value}"}}
            key = f"openai-insecure-api-key.{value}"
            by_subprotocol: dict[str, Any] = {"headers": {}, "subprotocols": ("realtime", key)}
            for way in (by_header, by_subprotocol) * 2:
                opening = await stack.enter_async_context(opened(running, **way))
                assert (await keep(opening)).startswith(f"{name}."), "with more sessions each time"
            await cut(client)
            await met(lambda name=name: detached(running, name))
            headers = {"Authorization": f"Bearer {value}", RESUME: token}
            async with connect(running.ws_url, additional_headers=headers) as again:
                await receive(again, "gateway.session.resumed")
        assert (await secret(running)).split("_")[1] in running.gateways


async def test_a_gateway_retires_without_a_lost_session() -> None:
    """SIGUSR1: nobody is refused from then on, and soon new sessions go to the other one. Its own
    answer on, go on after a broken connection, and open sessions for the secrets it has issued. It
    ends with the last one; then its tokens are unknown, and its secrets no keys."""
    settings = ("engine_args=--delta-ms 50", "retire_grace_s=5")
    async with site(*settings) as running, contextlib.AsyncExitStack() as stack:
        client, token = (await one_each(running, stack))["a"]
        promised = await secret(running, {RESUME: token})
        running.processes["a"].send_signal(signal.SIGUSR1)
        in_a_row = 0  # at b; with fewer sessions at a the balancer would choose that one
        async with asyncio.timeout(WAIT_S):
            while in_a_row < 4:
                newcomer = await stack.enter_async_context(opened(running))  # refused: it raises
                in_a_row = in_a_row + 1 if (await keep(newcomer)).startswith("b.") else 0
        await met(lambda: takes_none(running, "a"))
        assert (await ask(client))["response"]["status"] == "completed"
        await cut(client)
        await met(lambda: someone_detached(running, "a"))
        again = await stack.enter_async_context(
            connect(running.ws_url, additional_headers=HEADERS | {RESUME: token})
        )
        await receive(again, "gateway.session.resumed")
        async with opened(running, {"Authorization": f"Bearer {promised}"}) as kept:
            assert (await keep(kept)).startswith("a.")
        assert (await ask(again))["response"]["status"] == "completed"
        assert running.processes["a"].poll() is None
        await stack.aclose()  # all sessions end
        assert await asyncio.to_thread(running.processes["a"].wait, WAIT_S) == 0
        await met(lambda: unknown(running, token))
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the client makes of it
            async with opened(running, {"Authorization": f"Bearer {promised}"}):
                pass
        async with opened(running) as last:
            assert (await ask(last))["response"]["status"] == "completed"


async def takes_none(running: Site, name: str) -> bool:
    """Whether a gateway refuses new sessions itself: its grace is over."""
    url = running.gateways[name].replace("http", "ws", 1) + "/v1/realtime"
    try:
        async with connect(url, additional_headers=HEADERS):
            return False
    except InvalidStatus as refused:
        return refused.response.status_code == 503


async def someone_detached(running: Site, name: str) -> bool:
    return bool((await running.status(name))["sessions"]["detached"])


async def unknown(running: Site, token: str) -> bool:
    """Whether a token's gateway is known to be gone: another one answers for it."""
    with contextlib.suppress(Exception):
        async with connect(running.ws_url, additional_headers=HEADERS | {RESUME: token}) as lost:
            return bool((await receive(lost, "error"))["error"]["code"] == "resume_token_unknown")
    return False


async def test_a_session_outlives_its_gateways_engine() -> None:
    """A gateway without an engine gets no new sessions, and those it has go on there."""
    slow = "engine_args=--load-ms 3000"
    async with site(slow) as running, contextlib.AsyncExitStack() as stack:
        client, token = (await one_each(running, stack))["a"]
        (engine,) = (await running.status("a"))["engines"]
        os.kill(engine["pid"], signal.SIGKILL)
        await met(lambda: not_ready(running, "a"))
        await cut(client)
        await met(lambda: detached(running, "a"))
        headers = HEADERS | {RESUME: token}
        async with connect(running.ws_url, additional_headers=headers) as again:
            await receive(again, "gateway.session.resumed")
            await met(lambda: is_ready(running, "a"))
            assert (await ask(again))["response"]["status"] == "completed"


async def not_ready(running: Site, name: str) -> bool:
    return bool((await running.status(name))["engine"]["state"] != "ready")


async def is_ready(running: Site, name: str) -> bool:
    return not await not_ready(running, name)
