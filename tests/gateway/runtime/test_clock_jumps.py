"""The wall clock may jump (NTP, a person, a suspended machine): nothing is decided by it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WALL_CLOCK = {"time", "time_ns"}
# Where it is asked, and what for.
ALLOWED = {
    "gateway/transport/webrtc/calls.py": "a secret's `expires_at`, told and never compared",
    "gateway/transport/webrtc/steady_time.py": "once, where the steady dates begin",
    "gateway/server/assemble.py": "a session's `expires_at`, told and never compared",
    "gateway/dashboard/hub.py": "once, when the server started, for the dates in the feed",
    "gateway/tts/kept_halves.py": "the age of a file, whose date is the disk's",
    "gateway/runtime/private_folder.py": "the age of a folder, whose date is the disk's",
    "gateway/tracing/traces.py": "the dates of a trace's spans, for the collector",
}


def asks(path: Path) -> bool:
    """Whether a file calls `time.time`, `time.time_ns` or `datetime.now`, or passes them on."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id == "time" and node.attr in WALL_CLOCK:
            return True
        if node.value.id == "datetime" and node.attr in ("now", "utcnow", "today"):
            return True
    return False


def test_only_dates_that_people_read_come_from_the_wall_clock() -> None:
    """Sessions, turns, links, back-off, heartbeats and the engine know monotonic time alone, so a
    jump by days reaches none of them; each exception is named with its reason."""
    files = [*(ROOT / "gateway").rglob("*.py"), *(ROOT / "engine").rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in files if asks(path)}
    assert found == set(ALLOWED)
