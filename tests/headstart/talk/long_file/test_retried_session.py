"""How often a `RetriedSession` does lost work again. No server, no waiting."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from headstart.gateway.errors import ServerFailed
from headstart.talk.long_file import retried_session
from headstart.talk.long_file.out_of_band import AnswerFailed
from headstart.talk.long_file.retried_session import TRIES_MIN, RetriedSession


class FakeSession:
    """A session that can always be had."""

    def __init__(self) -> None:
        self.settings = {"model": "m"}

    async def configure(self, settings: Any, gateway: Any) -> None:
        pass


class FakeState:
    def receive(self, event: Any) -> None:
        pass


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeSession]:
    """The sessions opened so far."""
    sessions: list[FakeSession] = []

    @contextlib.asynccontextmanager
    async def opened_one(*_: Any) -> AsyncIterator[FakeSession]:
        sessions.append(FakeSession())
        yield sessions[-1]

    monkeypatch.setattr(retried_session, "opened", opened_one)
    monkeypatch.setattr(retried_session, "PAUSE_S", 0.0)
    return sessions


def failing(times: float, error: Exception) -> Callable[[Any, Any], Awaitable[str]]:
    """Work that fails so often, then is done."""
    failed = 0

    async def work(session: Any, state: Any) -> str:
        nonlocal failed
        if failed < times:
            failed += 1
            raise error
        return "done"

    return work


ERRORS = [AnswerFailed("server_error", "no"), ServerFailed("the server closed: too large")]


@pytest.mark.parametrize("error", ERRORS)
async def test_work_that_always_fails_is_given_up(
    opened: list[FakeSession], error: Exception
) -> None:
    """Though a new session is there each time: the server is up, and cannot do this."""
    told: list[float | None] = []
    place = RetriedSession[Any]("ws://x", "k", FakeState, {}, {}, told.append, retry_for_s=0.0)
    with pytest.raises(type(error)) as raised:
        await place.use(failing(float("inf"), error))
    assert raised.value is error
    assert len(opened) == TRIES_MIN


@pytest.mark.parametrize("error", ERRORS)
async def test_work_that_fails_for_a_while_is_done(
    opened: list[FakeSession], error: Exception
) -> None:
    """Tried again as long as the server may stay away; who watches is told."""
    told: list[float | None] = []
    place = RetriedSession[Any]("ws://x", "k", FakeState, {}, {}, told.append, retry_for_s=600.0)
    assert await place.use(failing(2 * TRIES_MIN, error)) == "done"
    assert told == [600.0, None] * (2 * TRIES_MIN)
    await place.close()
