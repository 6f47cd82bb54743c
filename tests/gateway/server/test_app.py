import asyncio
import json
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from tests.gateway.shell_fakes import fake_engine, receive, running_gateway, until


async def test_health_follows_the_engine() -> None:
    """503 while there is no engine, 200 once it is ready."""
    async with running_gateway() as running, httpx.AsyncClient(base_url=running.url) as http:
        before = await http.get("/healthz")
        assert before.status_code == 503
        assert before.json()["engine"] == "waiting"
        async with fake_engine(running.link.endpoint):
            await until(lambda: running.link.is_ready)
            after = await http.get("/healthz")
            assert after.status_code == 200
            assert after.json() == {"gateway": "ok", "engine": "ready", "reason": ""}


async def test_status_shows_loading_and_model() -> None:
    """While loading: what and how far; then the model's facts."""
    async with running_gateway() as running, httpx.AsyncClient(base_url=running.url) as http:
        async with fake_engine(running.link.endpoint, "--load-ms", "500"):
            await until(lambda: running.link.loading)
            loading = (await http.get("/status")).json()
            assert loading["engine"]["loading"]["what"] == "pretending to load"
            assert loading["engine"]["loading"]["total"] == 100
            await until(lambda: running.link.is_ready)
            ready = (await http.get("/status")).json()
            assert ready["engine"]["loading"] is None
            assert ready["model"]["name"] == "fake"
            assert ready["model"]["context_tokens"] == 8192
            assert ready["model"]["kv_bytes_per_token"] == 1024
            assert ready["model"]["kv_pool_bytes"] == 1 << 28
            assert loading["model"]["ears"] is loading["model"]["ears_reason"] is None
            assert ready["model"]["ears"] == "fake"
            assert ready["model"]["ears_reason"] == "words come from a script"
            await until(lambda: running.link.stats)
            memory = (await http.get("/status")).json()["engine"]["memory"]
            assert (memory["level"], memory["sessions_offloaded"]) == ("calm", 0)
        assert (await http.get("/v1/models")).json()["data"][0]["id"] == "fake"


async def test_who_retires_takes_only_promised_sessions() -> None:
    """When the grace is over: no new ones, but for a secret issued before; what is there goes on.
    The end is told once, when the last session is gone, and at once if there is none."""
    told: list[str] = []
    async with (
        running_gateway(retire_grace_s=0) as running,
        fake_engine(running.link.endpoint),
        httpx.AsyncClient(base_url=running.url) as http,
    ):
        await until(lambda: running.link.is_ready)
        assert (await http.get("/ready")).status_code == 200
        value = (await http.post("/v1/realtime/client_secrets", json={})).json()["value"]
        async with connect(running.ws_url) as socket:
            running.gateway.retire(lambda: told.append("the first"))
            running.gateway.retire(lambda: told.append("the second"))
            await until(lambda: running.gateway.refusal() is not None)
            with pytest.raises(InvalidStatus) as refused:
                await connect(running.ws_url)
            assert refused.value.response.status_code == 503
            assert (await http.get("/ready")).status_code == 404
            assert (await http.get("/healthz")).json()["gateway"] == "retiring"
            headers = {"Authorization": f"Bearer {value}"}
            async with connect(running.ws_url, additional_headers=headers) as promised:
                await promised.send("kept")
                assert (await receive(promised, "echo"))["text"] == "kept"
            await socket.send("still here")
            assert (await receive(socket, "echo"))["text"] == "still here"
            assert told == []
        await until(lambda: told)
        assert told == ["the first"]
    async with running_gateway(retire_grace_s=0) as running:
        running.gateway.retire(lambda: told.append("at once"))
        await until(lambda: told[1:] == ["at once"])


async def test_who_retires_takes_sessions_until_balancers_have_seen_it() -> None:
    """During the grace `/ready` is 404 already, and a session that is sent all the same is taken;
    it does not end while the grace lasts, although there is no session."""
    told: list[str] = []
    async with (
        running_gateway(retire_grace_s=600) as running,
        fake_engine(running.link.endpoint),
        httpx.AsyncClient(base_url=running.url) as http,
    ):
        await until(lambda: running.link.is_ready)
        running.gateway.retire(lambda: told.append("over"))
        assert (await http.get("/ready")).status_code == 404
        async with connect(running.ws_url) as socket:
            await socket.send("late")
            assert (await receive(socket, "echo"))["text"] == "late"
        await until(lambda: not running.gateway.runners)
        assert told == []


async def test_ready_is_for_new_sessions() -> None:
    """503 without an engine, and when all places are taken; no key is needed to ask."""
    async with (
        running_gateway(max_sessions=1, api_keys="k" * 16) as running,
        httpx.AsyncClient(base_url=running.url) as http,
    ):
        assert (await http.get("/ready")).status_code == 503
        async with fake_engine(running.link.endpoint):
            await until(lambda: running.link.is_ready)
            assert (await http.get("/ready")).text == "ready\n"
            headers = {"Authorization": f"Bearer {'k' * 16}"}
            async with connect(running.ws_url, additional_headers=headers):
                full = await http.get("/ready")
                assert full.status_code == 503
                assert full.text == "all 1 sessions of this server are in use\n"


async def test_full_server_refuses_before_the_handshake() -> None:
    """The session over the limit gets 503 with reason and Retry-After; a freed slot is taken."""
    async with running_gateway(max_sessions=1) as running:
        async with connect(running.ws_url):
            with pytest.raises(InvalidStatus) as refused:
                await connect(running.ws_url)
            response = refused.value.response
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) > 0
            assert "all 1 sessions" in json.loads(response.body or b"")["error"]["message"]
        await until(lambda: not running.gateway.runners)
        async with connect(running.ws_url) as socket:
            await receive(socket, "session.created")


async def test_subprotocol_realtime_is_chosen_and_the_key_is_not_echoed() -> None:
    """Browsers send their key as a subprotocol: only `realtime` may come back."""
    offered = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.secret")]
    async with running_gateway() as running:
        async with connect(running.ws_url, subprotocols=offered) as socket:
            assert socket.subprotocol == "realtime"
            assert socket.response is not None
            assert "secret" not in str(socket.response.headers)
        async with connect(running.ws_url, subprotocols=[Subprotocol("other")]) as socket:
            assert socket.subprotocol is None


async def test_no_compression_is_negotiated() -> None:
    """permessage-deflate is off."""
    async with running_gateway() as running, connect(running.ws_url) as socket:
        assert socket.response is not None
        assert "Sec-WebSocket-Extensions" not in socket.response.headers


async def test_short_path_works_too() -> None:
    """`/realtime` is the same endpoint."""
    async with (
        running_gateway() as running,
        connect(running.ws_url.replace("/v1", "")) as socket,
    ):
        await receive(socket, "session.created")


async def test_drain_waits_for_the_answer_then_says_goodbye() -> None:
    """During a drain new sessions get 503, the answer under way ends, then 1012."""
    async with (
        running_gateway(drain_s=10) as running,
        fake_engine(running.link.endpoint, "--answer", "a b c", "--delta-ms", "50"),
        connect(running.ws_url) as socket,
    ):
        await until(lambda: running.link.is_ready)
        await receive(socket, "ready")
        await socket.send("ask")
        await receive(socket, "delta")
        draining = asyncio.create_task(running.gateway.drain())
        await until(lambda: running.gateway.draining)
        with pytest.raises(InvalidStatus):
            await connect(running.ws_url)
        await receive(socket, "response.done")
        await draining
        await socket.wait_closed()
        assert socket.close_code == 1012


async def test_web_page_is_served_or_its_absence_explained(tmp_path: Path) -> None:
    """`/` gives index.html when there is one, and one helpful sentence when not."""
    async with running_gateway(web_dir=tmp_path) as running:
        async with httpx.AsyncClient() as http:
            text = (await http.get(running.url)).text
        assert "/v1/realtime" in text
    (tmp_path / "index.html").write_text("<p>hello</p>")
    async with running_gateway(web_dir=tmp_path) as running, httpx.AsyncClient() as http:
        assert (await http.get(running.url)).text == "<p>hello</p>"


async def test_metrics_are_prometheus_text() -> None:
    """What the metrics module renders is served under Prometheus' content type."""
    async with running_gateway() as running, httpx.AsyncClient() as http:
        answer = await http.get(f"{running.url}/metrics")
        assert "\nheadstart_engine_up 0.0\n" in answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


async def test_metrics_are_open_metrics_for_who_asks() -> None:
    """As Prometheus does, with what else it would take."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
    async with running_gateway() as running, httpx.AsyncClient() as http:
        answer = await http.get(f"{running.url}/metrics", headers={"Accept": accept})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")
