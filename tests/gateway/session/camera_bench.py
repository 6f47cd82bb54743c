"""A session with a camera, in virtual time: shown pictures, and those that the engine got."""

from __future__ import annotations

from typing import Any

from headstart.engine import api
from tests.gateway.session_bench import SessionBench
from tests.gateway.video.drawn import png

NS_PER_S = 1_000_000_000
DARK, BRIGHT = png(64, 36, 10), png(64, 36, 240)


def seeing(**video: Any) -> SessionBench:
    """A session that may send frames."""
    bench = SessionBench()
    bench.update(gateway={"events": [], "video": video})
    bench.clear()
    return bench


def show(bench: SessionBench, picture: str, *, after_s: float = 0.0) -> None:
    bench.now_ns += round(after_s * NS_PER_S)
    bench.client("input_image_buffer.append", image=picture, event_id="mine")


def seen(bench: SessionBench) -> list[int]:
    """The first byte of each frame that the engine got."""
    return [c.image.rgb[0] for c in bench.told if isinstance(c, api.Frame)]


def fate(bench: SessionBench, name: str) -> float:
    value = bench.metrics.registry.get_sample_value("headstart_frames_total", {"fate": name})
    return value or 0.0
