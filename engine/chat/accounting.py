"""What the tokens in the KV cache stand for, and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol


class Modality(IntEnum):
    """What a token stands for. The number is what a stream notes for it, one byte a token."""

    TEXT = 0
    AUDIO = 1  # words that were spoken
    IMAGE = 2
    GENERATED = 3  # words that the model answered


def counted(kinds: bytes | bytearray) -> dict[Modality, int]:
    """Tokens by modality."""
    return {modality: kinds.count(modality) for modality in Modality}


def by_name(tokens: Mapping[Modality, int]) -> dict[str, int]:
    """The same for people and the wire, without what there is none of."""
    return {modality.name.lower(): count for modality, count in tokens.items() if count}


class KvHolder(Protocol):
    """What has tokens in the cache (`headstart.engine.kvcache.token_stream.Stream`)."""

    @property
    def kv_kinds(self) -> bytearray:
        """One `Modality` for each token whose K/V are in the cache."""
        ...

    @property
    def kv_blocks(self) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class KvAccounting:
    """The cache as its streams see it.

    `tokens`: of all streams, by modality; one that two streams share counts twice.
    `blocks` are held by somebody, `shared_blocks` of them by more than one stream.
    """

    tokens: Mapping[Modality, int]
    blocks: int
    shared_blocks: int

    @classmethod
    def of(cls, holders: Iterable[KvHolder]) -> KvAccounting:
        """The books of all streams there are."""
        totals = dict.fromkeys(Modality, 0)
        seen: set[int] = set()
        shared: set[int] = set()
        for holder in holders:
            for modality, count in counted(holder.kv_kinds).items():
                totals[modality] += count
            mine = set(holder.kv_blocks)
            shared |= seen & mine
            seen |= mine
        return cls(totals, len(seen), len(shared))
