"""How far back a session remembers, as the engine is told."""

from __future__ import annotations

from headstart.engine import api
from tests.gateway.session_bench import SessionBench


def told(bench: SessionBench) -> list[api.Window]:
    return [c.window for c in bench.told if isinstance(c, api.Open | api.Remember)]


def test_a_session_remembers_as_the_server_is_set_unless_it_says_otherwise() -> None:
    """The server's setting goes with the session's opening; an update that changes it is passed
    on, one that does not is not; null goes back."""
    bench = SessionBench(window_tokens=4000)
    assert told(bench) == [api.Window(4000)]
    bench.update(gateway={"window": {"tokens": 1000, "vision_tokens": 300}})
    bench.update(gateway={"window": {"tokens": 1000}}, instructions="Be brief.")
    bench.update(gateway={"window": None})
    assert told(bench)[1:] == [api.Window(1000, 300), api.Window(1000), api.Window(4000)]


def test_the_api_s_own_truncation_is_obeyed() -> None:
    """`retention_ratio` is the part that stays, `post_instructions` the bound behind them."""
    bench = SessionBench()
    ratio = {"type": "retention_ratio", "retention_ratio": 0.5}
    bench.update(truncation=ratio)
    bench.update(truncation={**ratio, "token_limits": {"post_instructions": 2000}})
    bench.update(truncation="auto")
    assert told(bench)[1:] == [api.Window(0, 0, 0.5), api.Window(2000, 0, 0.5), api.Window()]
    assert not [event for event in bench.sent if event["type"] == "error"]


def test_a_window_that_cannot_be_is_refused() -> None:
    """Too small to hold a question, or no number: an error that names the field."""
    bench = SessionBench()
    bench.update(gateway={"window": {"tokens": 10}})
    assert bench.sent[-1]["error"]["param"] == "session.gateway.window.tokens"
    assert told(bench) == [api.Window()]
