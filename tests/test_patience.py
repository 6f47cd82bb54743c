"""The clients of tests wait for a crowded machine."""

from __future__ import annotations

import inspect
from typing import Any

import httpx
import pytest
import websockets.asyncio.client as asynchronous
import websockets.sync.client as synchronous

from tests.patience import CLIENT_WAIT_S


@pytest.mark.parametrize("kind", [httpx.Client, httpx.AsyncClient])
def test_requests_wait_as_long_as_tests_do(kind: Any) -> None:
    """Where a test names no limit of its own."""
    assert kind().timeout == httpx.Timeout(CLIENT_WAIT_S)
    assert kind(timeout=1.0).timeout == httpx.Timeout(1.0)


@pytest.mark.parametrize("connect", [asynchronous.connect, synchronous.connect])
def test_handshakes_and_pongs_wait_as_long(connect: Any) -> None:
    """In both of the library's clients."""
    parameters = inspect.signature(connect).parameters
    assert parameters["open_timeout"].default == CLIENT_WAIT_S
    assert parameters["ping_timeout"].default == CLIENT_WAIT_S
