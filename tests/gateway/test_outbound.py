from gateway.actions import Hangup, Send
from gateway.outbound import Bounds, Outbound


async def test_outbound_refuses_what_does_not_fit_and_ends_after_the_rest() -> None:
    """Full by count or by bytes; after `end` the rest is given out, then None."""
    by_count = Outbound(Bounds(events=2))
    assert [by_count.put(Send({"type": "x"})) for _ in range(3)] == [True, True, False]
    by_bytes = Outbound(Bounds(bytes=30))
    assert [by_bytes.put(Send({"type": "0123456789"})) for _ in range(2)] == [True, False]
    by_bytes.end(Hangup(1000, "first"), discard=False)
    by_bytes.end(Hangup(1001, "second"), discard=False)
    assert await by_bytes.get() is not None
    assert await by_bytes.get() is None
    assert by_bytes.waiting_bytes == 0
    assert by_bytes.hangup == Hangup(1000, "first")
