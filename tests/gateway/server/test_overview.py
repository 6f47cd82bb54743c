"""The dashboard's feed of a real server: who may look, and what a snapshot says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from headstart.engine import api
from headstart.gateway.auth.middleware import SUBPROTOCOL
from headstart.gateway.protocol.headers import RESUME_HEADER
from headstart.gateway.runtime.clocks import since_boot_s
from headstart.gateway.server.overview import FACTS
from tests.gateway.shell_fakes import RunningGateway, fake_engine, receive, running_gateway, until

KEY = "a-key-of-this-test"


def feed_url(running: RunningGateway) -> str:
    return running.url.replace("http", "ws", 1) + "/v1/dashboard"


async def test_a_snapshot_says_how_the_server_is() -> None:
    """Sessions with rows, engine with steps, cache, loop, sound, errors and the process itself."""
    async with (
        running_gateway() as running,
        fake_engine(running.link.endpoint),
        connect(running.ws_url) as session,
    ):
        await receive(session, "ready")
        await session.send("hear 500")
        await until(lambda: running.link.stats and running.link.stats.recent_steps.count)
        async with connect(feed_url(running)) as watcher:
            hello = await receive(watcher, "hello")
            assert (hello["model"], hello["content"], hello["seq"]) == ("fake", False, 1)
            assert set(FACTS) < set(hello["settings"])
            snapshot = await receive(watcher, "snapshot")
            second = await receive(watcher, "snapshot")
    assert second["seq"] == snapshot["seq"] + 1
    assert second["at_ms"] - snapshot["at_ms"] > 500
    assert snapshot["sessions"] == {
        "open": 1,
        "max": 64,
        "detached": 0,
        "refused": 0,
        "shed": 0,
        "stuck": 0,
        "watchers": 1,
    }
    (row,) = snapshot["rows"]
    assert row["id"] == running.sessions[0].session_id
    assert (row["transport"], row["state"], row["turns"]) == ("websocket", "idle", 0)
    assert (row["last_turn"], row["kv"], row["headroom_percent"]) == (None, None, None)
    assert snapshot["engine"]["state"] == "ready"
    assert snapshot["engine"]["speculation"] == {"kept_tokens": 0, "wasted_tokens": 0}
    assert set(snapshot["engine"]["steps"]) == {
        *("count", "busy_ms", "p50_ms", "p95_ms", "max_ms"),
        *("prefill_tokens", "decode_tokens", "sessions_mean", "queue_max"),
    }
    assert snapshot["kv"]["blocks_total"] == 1 << 14
    assert snapshot["kv"]["level"] == "calm"
    assert snapshot["process"]["gateway_rss_bytes"] > 1 << 20
    assert 0 <= second["process"]["gateway_cpu_share"] < 4
    assert snapshot["rtc"]["packets"].keys() == {"played", "late", "lost", "duplicate"}
    assert snapshot["errors"] == {"total": 0, "last_minute": 0}


async def test_what_no_engine_says_is_null() -> None:
    """While it has not come yet: nothing is 0 that nobody knows."""
    async with running_gateway() as running, connect(feed_url(running)) as watcher:
        snapshot = await receive(watcher, "snapshot")
    assert snapshot["kv"] is None
    assert snapshot["engine"]["state"] == "waiting"
    assert snapshot["engine"]["steps"] is None
    assert snapshot["engine"]["rss_bytes"] is None


async def test_who_comes_and_goes_is_told() -> None:
    """A session opened and closed, with how it is carried; watchers are no sessions."""
    async with running_gateway() as running, connect(feed_url(running)) as watcher:
        await receive(watcher, "live")
        async with connect(running.ws_url) as session:
            await receive(session, "session.created")
            opened = await receive(watcher, "session")
        closed = await receive(watcher, "session")
    assert (opened["what"], closed["what"]) == ("opened", "closed")
    assert opened["transport"] == "websocket"
    assert opened["session"] == closed["session"] == running.sessions[0].session_id


@pytest.mark.parametrize("key", ["", "a-key-of-somebody"])
async def test_a_key_that_is_wrong_may_not_look(key: str) -> None:
    """As for /metrics. It is told so after the handshake, and gets no message of the feed."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        running_gateway(api_keys=KEY) as running,
        connect(feed_url(running), additional_headers=headers) as watcher,
    ):
        assert json.loads(await watcher.recv())["error"]["code"] == "invalid_api_key"
        with pytest.raises(ConnectionClosed) as closed:
            await watcher.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 3000
        assert not running.gateway.hub.is_watched


async def test_an_ephemeral_secret_may_not_look() -> None:
    """It opens conversations, and shows nobody else's: 403, as for /metrics."""
    async with running_gateway(api_keys=KEY) as running:
        secret = running.gateway.secrets.issue(None, 600, since_boot_s(), "key")
        with pytest.raises(InvalidStatus) as refused:
            await connect(
                feed_url(running), additional_headers={"Authorization": f"Bearer {secret}"}
            )
        assert refused.value.response.status_code == 403


async def test_a_key_may_look_as_browsers_send_it() -> None:
    """By a subprotocol, which does not come back; never by the address."""
    offered = [Subprotocol(SUBPROTOCOL), Subprotocol(f"openai-insecure-api-key.{KEY}")]
    async with running_gateway(api_keys=KEY) as running:
        async with connect(feed_url(running), subprotocols=offered) as watcher:
            assert watcher.subprotocol == SUBPROTOCOL
            await receive(watcher, "live")
        async with connect(f"{feed_url(running)}?key={KEY}") as stranger:
            assert json.loads(await stranger.recv())["error"]["code"] == "invalid_api_key"


async def test_a_page_of_another_site_may_not_look() -> None:
    """It gets no handshake."""
    async with running_gateway() as running:
        with pytest.raises(InvalidStatus) as refused:
            await connect(feed_url(running), origin="https://evil.example")  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403


async def test_a_watcher_that_says_what_it_may_not_is_closed_with_a_reason() -> None:
    """1008; sessions do not notice."""
    async with running_gateway() as running, connect(running.ws_url) as session:
        for said in ("hello", b"\0\1", "x" * 100_000):
            async with connect(feed_url(running)) as watcher:
                await receive(watcher, "live")
                await watcher.send(said)
                await watcher.wait_closed()
                assert watcher.close_code == 1008
                assert "expected" in (watcher.close_reason or "")
        await session.send("still there?")
        await receive(session, "echo")


async def test_a_watcher_that_stops_reading_holds_nobody_up() -> None:
    """Its queue is bounded, what it lost is counted, and the session's turns go on."""
    async with running_gateway() as running:
        hub = running.gateway.hub
        watcher = await connect(feed_url(running), max_queue=1)
        await receive(watcher, "live")
        (queue,) = hub._watchers
        for number in range(40_000):
            hub.error("e", f"{number} " + "x" * 900, None)
            if number % 500 == 0:
                async with connect(running.ws_url) as session:
                    await receive(session, "session.created")
            if queue.dropped > 100:
                break
        assert queue.dropped > 100
        assert len(queue) <= 2_000
        lost: dict[str, Any] = {}
        while not lost.get("dropped"):
            lost = await receive(watcher, "snapshot")
        await watcher.close()
        await until(lambda: not hub.is_watched)


async def test_a_drain_sends_watchers_away() -> None:
    """1012, so that a page comes again."""
    async with running_gateway() as running, connect(feed_url(running)) as watcher:
        await receive(watcher, "live")
        await running.gateway.drain()
        await watcher.wait_closed()
        assert watcher.close_code == 1012


def test_facts_name_no_secret() -> None:
    """Nothing that is a key, an address or a path goes to whoever watches."""
    assert not {name for name in FACTS if "key" in name or "path" in name or "credential" in name}
    assert api.Stats.__struct_fields__


async def test_a_session_that_comes_back_is_told() -> None:
    """Detached, counted so in the snapshot, and resumed."""
    async with running_gateway() as running, connect(feed_url(running)) as watcher:
        session = await connect(running.ws_url)
        await session.send("keep")
        token = (await receive(session, "token"))["token"]
        await receive(watcher, "session")
        session.transport.abort()
        assert (await receive(watcher, "session"))["what"] == "detached"
        while (await receive(watcher, "snapshot"))["sessions"]["detached"] != 1:
            pass
        async with connect(running.ws_url, additional_headers={RESUME_HEADER: token}):
            resumed = await receive(watcher, "session")
    assert (resumed["what"], resumed["transport"]) == ("resumed", "websocket")
