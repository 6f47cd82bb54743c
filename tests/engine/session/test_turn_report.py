"""The report of a finished answer."""

from __future__ import annotations

from headstart.engine import api
from tests.engine.commands import respond
from tests.engine.fakes import Bench

EITHER_BACKEND = True


def test_an_answer_tells_what_it_cost_and_what_is_remembered() -> None:
    """Tokens by modality, the cached share, and the window in force."""
    bench = Bench(limit=900)
    bench.tell(api.Open("s", "Hi", window=api.Window(200, 40, 0.5)))
    picture = api.Image(1, 1, bytes(3))
    bench.tell(api.AddItem("s", api.Item("p", api.Role.USER, (picture, api.Text("What?")))))
    bench.tell(respond())
    bench.run()
    done = bench.finished()
    assert done.usage.input_image == 1
    assert done.usage.input == done.usage.input_text + 1
    assert done.kv.tokens == sum(done.kv.by_modality.values()) == 29
    assert done.kv.by_modality["image"] == 1
    assert done.kv.bytes == done.kv.tokens * done.kv.bytes_per_token
    assert (done.kv.evicted, done.kv.window) == (0, api.Window(200, 40, 0.5))
