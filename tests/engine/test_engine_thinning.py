"""Sessions whose past turns are thinned by attention."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from headstart.engine import api
from headstart.engine.interfaces import Thinning
from headstart.engine.kvcache.token_stream import Stream
from tests.engine.commands import respond, user_item
from tests.engine.fakes import Bench

LONG = "this is a long sentence about number"


def vowels_last(stream: Stream) -> npt.NDArray[np.float32]:
    """Hardly any attention to the letter e and to what stands around it."""
    values = [0.0 if token == ord("e") else 1.0 for token in stream.tokens[: stream.kv_len]]
    mass = np.array(values, dtype=np.float32)
    return np.minimum(mass, np.minimum(np.roll(mass, 1), np.roll(mass, -1)))


def bench_with(share: float = 0.7, **options: object) -> Bench:
    thinning = Thinning(share, vowels_last)
    return Bench(reply=lambda asked: f"so {asked[-8:]}", thinning=thinning, **options)  # type: ignore[arg-type]


def turn(bench: Bench, number: int, text: str = LONG) -> None:
    bench.tell(api.AddItem("s", user_item(f"u{number}", f"{text} {number}")), respond(number))
    bench.run()
    assert bench.finished(number).reason is api.FinishReason.STOP


def test_past_turns_lose_words_and_nothing_is_computed_again() -> None:
    """Two turns later a message has 70 % of its tokens; the newest is whole. No K/V are computed a
    second time, and none are thrown away but the evicted ones."""
    bench = bench_with()
    bench.open()
    for number in range(1, 6):
        turn(bench, number)
    text, stream = bench.stream_text(), bench.engine.sessions["s"].stream
    assert text.count(f"{LONG} 5") == 1
    assert LONG not in text.replace(f"{LONG} 5", "")
    whole = len(f"{LONG} 1")
    assert len(text.split("<U>")[1].split("</U>")[0]) == whole - int(whole * 0.3 + 1e-9)
    assert stream.evicted_tokens == bench.finished(5).kv.evicted + int(whole * 0.3 + 1e-9) + 3
    assert stream.rolled_back_kv_tokens == 0
    assert stream.prefilled_tokens == stream.kv_len + stream.evicted_tokens


def lose(bench: Bench) -> None:
    bench.engine.sessions["s"].stream.drop_kv()


def lose_and_compute(bench: Bench) -> None:
    """As when memory was short: the K/V are computed again before anybody speaks."""
    bench.engine.sessions["s"].stream.drop_kv()
    bench.run()


def remove_the_first(bench: Bench) -> None:
    bench.tell(api.RemoveItem("s", "u1"))


def instruct(bench: Bench) -> None:
    bench.tell(api.Instruct("s", "Hello"))


@pytest.mark.parametrize("event", [lose, lose_and_compute, remove_the_first, instruct])
def test_what_is_computed_again_is_whole(event: Callable[[Bench], None]) -> None:
    """K/V of a thinned message were computed from all of its words. If they are lost, or something
    before them changes, the message is read as a whole again, and thinned anew later."""
    bench = bench_with()
    bench.open()
    for number in range(1, 5):
        turn(bench, number)
    event(bench)
    bench.tell(api.AddItem("s", user_item("u5", f"{LONG} 5")))
    bench.run()
    text = bench.stream_text()
    for number in range(1 if event is not remove_the_first else 2, 6):
        assert f"{LONG} {number}" in text
    bench.tell(respond(5))
    bench.run()
    assert bench.finished(5).reason is api.FinishReason.STOP
    assert bench.stream_text().count(LONG) == 1
    bench.engine.check_accounting()


def test_a_window_goes_on_sliding() -> None:
    """Turns beyond the window go as ever, thinned or not."""
    bench = bench_with()
    bench.open()
    bench.tell(api.Remember("s", api.Window(300, 0)))
    for number in range(1, 40):
        turn(bench, number)
        assert len(bench.engine.sessions["s"].stream) <= 300 + 20
    assert bench.stream_text().startswith("<S>Hi</><U>")
    stream = bench.engine.sessions["s"].stream
    assert stream.prefilled_tokens == stream.kv_len + stream.evicted_tokens


def test_other_sessions_share_only_what_is_whole() -> None:
    """A session that says the same reads its own words: K/V behind an evicted word are no one
    else's."""
    bench = bench_with()
    for name in ("s", "t"):
        bench.open(name)
    for number in range(1, 4):
        turn(bench, number)
    bench.tell(api.AddItem("t", user_item("u1", f"{LONG} 1")))
    bench.run()
    assert f"{LONG} 1" in bench.stream_text("t")
    bench.tell(api.Respond("t", 9, "a", api.Sampling()))
    bench.run()
    assert bench.finished(9).text == f"so {f'{LONG} 1'[-8:]}"


def test_nothing_is_known_of_a_stream_that_was_not_observed() -> None:
    """Then all words stay."""
    bench = Bench(reply=lambda _: "yes", thinning=Thinning(0.7, lambda stream: None))
    bench.open()
    for number in range(1, 4):
        turn(bench, number)
    assert bench.stream_text().count(LONG) == 3
