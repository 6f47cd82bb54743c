"""Addresses where nothing is: people are shown the way, clients get an error that they can read."""

from __future__ import annotations

import httpx
import openai
import pytest

from tests.gateway.shell_fakes import running_gateway

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/v1/realtime", "/realtime", "/v1/dashboard"])
async def test_a_browser_at_a_websockets_address_is_shown_the_page(path: str) -> None:
    """426 with the protocol to use, and a link to where one can talk."""
    async with running_gateway() as running, httpx.AsyncClient(base_url=running.url) as http:
        shown = await http.get(path, headers=BROWSER)
        assert (shown.status_code, shown.headers["upgrade"]) == (426, "websocket")
        assert shown.headers["connection"] == "Upgrade"
        assert "WebSocket" in shown.text
        assert '<a href="/">' in shown.text
        told = await http.get(path)
        assert told.status_code == 426
        assert "connect a WebSocket to /v1/realtime" in told.json()["error"]["message"]


async def test_a_mistyped_address_leads_to_the_page() -> None:
    """In a browser links, elsewhere a line; 404 in both. Nothing of the address is repeated."""
    async with running_gateway() as running, httpx.AsyncClient(base_url=running.url) as http:
        shown = await http.get("/dashbord<script>", headers=BROWSER)
        assert shown.status_code == 404
        assert shown.headers["content-type"].startswith("text/html")
        assert '<a href="/dashboard/">' in shown.text
        assert "script" not in shown.text
        told = await http.get("/dashbord")
        assert (told.status_code, told.text) == (404, "There is nothing at this address.\n")


async def test_a_client_of_another_interface_is_told_what_is_spoken_here() -> None:
    """Chat completions of the stock client: its own error, with the Realtime protocol in it."""
    async with running_gateway() as running:
        client = openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.NotFoundError, match="speaks OpenAI's Realtime protocol"):
            await client.chat.completions.create(
                model="small", messages=[{"role": "user", "content": "Hello"}]
            )


async def test_a_wrong_method_stays_one() -> None:
    """405 with the methods that there are, where the address exists."""
    async with running_gateway() as running, httpx.AsyncClient(base_url=running.url) as http:
        answer = await http.post("/healthz")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        assert (await http.post("/")).status_code == 405
        for method in ("PUT", "DELETE"):
            answer = await http.request(method, "/v1/models")
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
            assert "Expected GET, HEAD" in answer.json()["error"]["message"]
            assert (await http.request(method, "/v1/other")).status_code == 404
