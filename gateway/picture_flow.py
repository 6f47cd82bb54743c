"""How many bytes of pictures the engine was sent and has not looked at, and the wait until that is
less: a picture is megabytes, and a large model looks at it for seconds."""

from __future__ import annotations

import asyncio
import contextlib

from engine import api

PICTURES_BEHIND_BYTES = 16 << 20
PICTURES_BEHIND_WAIT_S = 10.0
"""Longest pause of the reader: pongs are read with the messages, and pings time out."""


class PictureFlow:
    """Of one session. A client is read no further while more than `PICTURES_BEHIND_BYTES` are out,
    so that at most one event's pictures come on top of that, and further ones every
    `PICTURES_BEHIND_WAIT_S`, which the engine refuses in the end (`engine.inbox`)."""

    def __init__(self) -> None:
        self._behind_bytes = 0
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    @property
    def must_wait(self) -> bool:
        return not self._caught_up.is_set()

    def told(self, command: api.Command) -> None:
        sent = api.picture_bytes(command)
        if sent:
            self._update(self._behind_bytes + sent)

    def looked(self, event: api.Event) -> None:
        if isinstance(event, api.Looked):
            self._update(max(0, self._behind_bytes - event.bytes))

    def forget(self) -> None:
        """Nothing is outstanding any more."""
        self._update(0)

    def _update(self, behind_bytes: int) -> None:
        self._behind_bytes = behind_bytes
        if behind_bytes <= PICTURES_BEHIND_BYTES:
            self._caught_up.set()
        else:
            self._caught_up.clear()

    async def wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._caught_up.wait(), PICTURES_BEHIND_WAIT_S)
