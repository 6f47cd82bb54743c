"""Times in a recording, as people write them. No I/O."""

from __future__ import annotations

import re

_TIME = re.compile(r"(?:(\d+):)?(?:(\d+):)?(\d+(?:\.\d+)?)(s|m|min|h)?")
_UNITS_S = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class BadTime(ValueError):
    """A text that is no time."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text!r} is no time: expected seconds, M:SS, H:MM:SS, 90s, 12m or 1h")
        self.text = text


def parse_time(text: str) -> float:
    """`90`, `90s`, `1:30`, `1:02:03`, `12m` or `1h` in s. Raises `BadTime`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise BadTime(text)
    first, second, last, unit = found.groups()
    if unit is not None and first is not None:
        raise BadTime(text)
    total_s = float(last) * _UNITS_S[unit]
    if second is not None:
        return total_s + 60 * int(second) + 3600 * int(first)
    return total_s + 60 * int(first or 0)


def clock(at_s: float) -> str:
    """A time as people write it: `0:07`, `12:30`, `1:02:03`."""
    whole = int(max(0.0, at_s) + 1e-6)
    hours, minutes, seconds = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def in_words(duration_s: float) -> str:
    """A length of time in words, rounded: `40 s`, `7 min`, `2.5 h`."""
    if duration_s < 90:
        return f"{max(1, round(duration_s))} s"
    if duration_s < 90 * 60:
        return f"{round(duration_s / 60)} min"
    return f"{duration_s / 3600:.1f} h"
