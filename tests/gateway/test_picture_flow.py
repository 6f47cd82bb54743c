"""gateway.picture_flow: pictures that the engine has not looked at."""

from __future__ import annotations

import asyncio

import pytest

from engine import api
from gateway import picture_flow
from gateway.picture_flow import PICTURES_BEHIND_BYTES, PictureFlow

ITEM = api.Item(
    "i", api.Role.USER, (api.Text("?"), api.Image(1, 1, bytes(PICTURES_BEHIND_BYTES // 2)))
)


def test_it_waits_for_more_than_it_may_have_out() -> None:
    """Pictures of items, of input out of band and of a camera count until they were looked at."""
    flow = PictureFlow()
    flow.told(api.AddItem("s", ITEM))
    flow.told(api.Respond("s", 1, "a", api.Sampling(), items=(ITEM,)))
    waits = [flow.must_wait]
    flow.told(api.Frame("s", 0, api.Image(1, 1, bytes(3))))
    waits.append(flow.must_wait)
    flow.looked(api.Looked("s", 3))
    assert [*waits, flow.must_wait] == [False, True, False]


def test_what_holds_no_picture_does_not_count() -> None:
    """Words, and whatever else the engine says."""
    flow = PictureFlow()
    flow.told(api.AddItem("s", api.Item("i", api.Role.USER, (api.Text("x" * 10),))))
    flow.looked(api.Pressure("s", api.Level.CALM))
    assert not flow.must_wait


async def test_the_wait_ends_when_pictures_were_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or forgotten with the engine that had them; and after a while in any case."""
    flow = PictureFlow()

    def look() -> None:
        flow.looked(api.Looked("s", PICTURES_BEHIND_BYTES))

    for settle in (look, flow.forget):
        for _ in range(3):
            flow.told(api.AddItem("s", ITEM))
        waiting = asyncio.create_task(flow.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        settle()
        await waiting
    monkeypatch.setattr(picture_flow, "PICTURES_BEHIND_WAIT_S", 0.01)
    for _ in range(3):
        flow.told(api.AddItem("s", ITEM))
    await flow.wait()
    assert flow.must_wait
