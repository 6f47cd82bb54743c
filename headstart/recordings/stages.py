"""The stages of a turn in the order in which it passes them, and who each wait is charged to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

ROWS = {
    "network": "network",
    "buffer": "network",
    "resample": "network",
    "vad_hangover": "endpointing",
    "mel": "recognition",
    "encode": "recognition",
    "project": "recognition",
    "read": "model",
    "queue": "model",
    "prefill": "model",
    "decode_first": "model",
    "detokenize": "model",
    "send": "network",
    "voice": "voice",
    "playout": "playout",
}
"""Each stage, and the part of the system that it belongs to."""
TOTALS = {"total": "first token", "first_sound": "first sound", "heard": "heard"}
"""Measures of a whole turn, from the last sound of speech on, and their names for people."""
_ORDER = {name: at for at, name in enumerate((*TOTALS, *ROWS))}
_OWNERS = {
    "network": "network",
    "buffer": "network",
    "vad_hangover": "setting",
    "voice": "voice",
    "playout": "client",
}


def row_of(stage: str) -> str:
    """A stage that nobody has heard of is the model's."""
    return ROWS.get(stage, "model")


def in_order(names: Iterable[str]) -> list[str]:
    """As a turn passes them; unknown ones last, by name."""
    return sorted(names, key=lambda name: (_ORDER.get(name, len(_ORDER)), name))


def owner_of(waits: Mapping[str, Any], stage: str) -> str:
    """In words: "setting silence_duration_ms = 500", "engine", ..."""
    wait = waits.get(stage)
    wait = wait if isinstance(wait, dict) else {}
    owner = wait.get("owner")
    owner = owner if isinstance(owner, str) else _OWNERS.get(stage, "engine")
    setting = wait.get("setting")
    if owner != "setting" or not isinstance(setting, str):
        return owner
    value = wait.get("value")
    return f"setting {setting}" if value is None else f"setting {setting} = {value}"
