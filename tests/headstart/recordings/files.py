"""Recordings to read, made from the dashboard's fixtures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.web_demo.dashboard.feed_fixtures import Json, Server, conversation, gzipped, jsonl

SECONDS = 120


def talk(
    seed: int = 1, seconds: int = SECONDS, slow_from: int | None = None, **about: Any
) -> list[Json]:
    """All messages of a server that ran for so long."""
    return list(conversation(Server(seed, **about), seconds, slow_from=slow_from))


def written(path: Path, messages: Iterable[Json]) -> Path:
    """Gzipped if its name says so."""
    path.write_bytes((gzipped if path.suffix == ".gz" else jsonl)(messages))
    return path


def newest(messages: Iterable[Json]) -> dict[str, Json]:
    """The newest revision of each turn, in the order in which they first came."""
    turns: dict[str, Json] = {}
    for message in messages:
        if message["type"] == "turn":
            turns[message["id"]] = message
    return turns
