import asyncio
import time

from headstart.gateway.telemetry.loop_lag import INTERVAL_S, WINDOW_S, LoopLag


def test_percentiles_are_of_the_window() -> None:
    """What is older than the window no longer counts; the worst of it is `max`."""
    lag = LoopLag()
    assert set(lag.summary()) == {0.0}
    lag.add(5.0, 5.0)
    for _ in range(round(WINDOW_S / INTERVAL_S) - 20):
        lag.add(0.001, 0.0)
    for _ in range(20):
        lag.add(0.03, 0.02)
    assert lag.summary() == (1.0, 30.0, 30.0, 0.0, 20.0)


async def test_a_blocked_loop_shows() -> None:
    """A call that keeps the loop for 80 ms is a lag of at least 60."""
    lag = LoopLag()
    measuring = asyncio.create_task(lag.run())
    await asyncio.sleep(2 * INTERVAL_S)
    time.sleep(0.08)
    await asyncio.sleep(2 * INTERVAL_S)
    measuring.cancel()
    assert lag.summary().max_ms >= 60
