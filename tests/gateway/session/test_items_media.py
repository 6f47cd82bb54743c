"""Items and responses that may bring pictures."""

from __future__ import annotations

import pytest

from headstart.engine import api
from tests.gateway.session_bench import SessionBench
from tests.gateway.video.drawn import png


def test_without_pictures_nothing_is_waited_for() -> None:
    """An item of words is in the conversation before the shell has decoded anything."""
    bench = SessionBench()
    bench.hold_pictures = True
    content = [{"type": "input_text", "text": "Hello"}]
    item = {"type": "message", "role": "user", "content": content}
    bench.client("conversation.item.create", item=item)
    assert [c for c in bench.told if isinstance(c, api.AddItem)]


def test_a_response_waits_for_the_pictures_of_its_input() -> None:
    """Out of band, about a picture: the engine is asked once the picture is decoded."""
    bench = SessionBench()
    bench.hold_pictures = True
    content = [{"type": "input_image", "image_url": png(64, 36, 10)}]
    given = [{"type": "message", "role": "user", "content": content}]
    bench.client("response.create", response={"conversation": "none", "input": given})
    assert not [c for c in bench.told if isinstance(c, api.Respond)]
    bench.decode()
    (respond,) = (c for c in bench.told if isinstance(c, api.Respond))
    assert respond.items is not None
    (picture,) = respond.items[0].parts
    assert isinstance(picture, api.Image)
    assert picture.rgb[0] == 10


def test_an_event_has_so_many_pictures_and_no_more() -> None:
    """64 are seen; one more, in any of its items, is refused by name and nothing is changed."""
    bench = SessionBench()
    part = {"type": "input_image", "image_url": png(4, 4, 10)}
    item = {"type": "message", "role": "user", "content": [part] * 64}
    bench.client("conversation.item.create", item=item)
    (added,) = bench.commands(api.AddItem)
    assert len(added.item.parts) == 64
    bench.client("conversation.item.create", item=item | {"content": [part] * 65})
    assert bench.error()["param"] == "item.content[64].image_url"
    assert "at most 64 pictures in one event but got 65" in bench.error()["message"]
    given = [item | {"content": [part] * 40}, item | {"content": [part] * 40}]
    bench.client("response.create", response={"conversation": "none", "input": given})
    assert bench.error()["param"] == "response.input[1].content[24].image_url"
    assert len(bench.commands(api.AddItem)) == 1


@pytest.mark.parametrize(
    ("detail", "tokens"), [("low", 64), ("high", 1024), ("auto", 0), (None, 0)]
)
def test_the_detail_of_a_picture_is_a_number_of_tokens(detail: str | None, tokens: int) -> None:
    """ "auto", and nothing, leave it to the engine."""
    bench = SessionBench()
    part = {"type": "input_image", "image_url": png(4, 4, 10)}
    part |= {} if detail is None else {"detail": detail}
    bench.client(
        "conversation.item.create", item={"type": "message", "role": "user", "content": [part]}
    )
    (added,) = bench.commands(api.AddItem)
    (picture,) = added.item.parts
    assert isinstance(picture, api.Image)
    assert picture.max_tokens == tokens
