"""The thresholds of the dashboard's page and of the alert rules, from `thresholds.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("thresholds.toml")


class Threshold(NamedTuple):
    """Where a warning begins, and where it is bad. `warn` above `bad`: lower is worse."""

    warn: float
    bad: float

    @property
    def lower_is_worse(self) -> bool:
        return self.warn > self.bad


def load(file: Path = FILE) -> dict[str, Threshold]:
    """By name."""
    return {name: Threshold(**levels) for name, levels in tomllib.loads(file.read_text()).items()}


THRESHOLDS = load()
