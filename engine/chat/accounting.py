"""Counts of the tokens in the KV cache by modality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Modality(IntEnum):
    """What a token stands for. The value is stored per token in a stream, as one byte."""

    TEXT = 0
    AUDIO = 1  # spoken words
    IMAGE = 2
    GENERATED = 3  # words of the model's answers


def count_kinds(kinds: bytes | bytearray) -> dict[Modality, int]:
    """Tokens by modality."""
    return {modality: kinds.count(modality) for modality in Modality}


def named_counts(tokens: Mapping[Modality, int]) -> dict[str, int]:
    """The same by lower-case name, without zeros, for people and the wire."""
    return {modality.name.lower(): count for modality, count in tokens.items() if count}


class KvHolder(Protocol):
    """A holder of tokens in the cache (`headstart.engine.kvcache.token_stream.Stream`)."""

    @property
    def kv_kinds(self) -> bytearray:
        """One `Modality` for each token whose K/V are in the cache."""
        ...

    @property
    def kv_blocks(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class KvAccounting:
    """Tokens and blocks in the cache.

    `tokens`: of all streams, by modality; a token that two streams share counts twice. `blocks`:
    blocks in use; `shared_blocks`: those used by more than one stream.
    """

    tokens: Mapping[Modality, int]
    blocks: int
    shared_blocks: int

    @classmethod
    def of(cls, holders: Iterable[KvHolder]) -> KvAccounting:
        """The accounting over `holders`, which must be all there are."""
        totals = dict.fromkeys(Modality, 0)
        seen: set[int] = set()
        shared: set[int] = set()
        for holder in holders:
            for modality, count in count_kinds(holder.kv_kinds).items():
                totals[modality] += count
            mine = set(holder.kv_blocks)
            shared |= seen & mine
            seen |= mine
        return cls(totals, len(seen), len(shared))
