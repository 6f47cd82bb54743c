"""Messages of past turns that lose words by attention, and become whole again with their K/V.

K/V of a thinned message were computed from all of its words. Where they are lost, what is computed
again should read all of them, so each thinned entry keeps its segments (`Entry.whole`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headstart.engine.chat.context_window import Range, remaining_entries
from headstart.engine.chat.render import Entry, RenderedPrompt
from headstart.engine.chat.thinning import thinned
from headstart.engine.interfaces import Thinning
from headstart.engine.kvcache.token_stream import Stream

Replaced = list[tuple[Entry, Entry]]  # an entry, and what takes its place


def thin(
    thinning: Thinning, stream: Stream, entries: Sequence[Entry], rendered: RenderedPrompt
) -> tuple[list[Range], Replaced]:
    """The ranges to evict, and the entries without them."""
    mass = thinning.attention(stream)
    if mass is None or not rendered.items:
        return [], []
    known = min(stream.common_prefix_len(rendered.ids), len(mass))
    cuts = thinned(rendered, entries, mass[:known], thinning.share)
    return cuts, [
        (entry, replace(left, whole=entry.segments))
        for entry, left in remaining_entries(entries, rendered, cuts)
        if left is not None and left != entry
    ]


def made_whole(stream: Stream, entries: Sequence[Entry], rendered: RenderedPrompt) -> Replaced:
    """The thinned entries whose K/V are lost, or may be new, as they were."""
    known = min(stream.common_prefix_len(rendered.ids), stream.kv_len, stream.least_kv_len)
    return [
        (entry, replace(entry, segments=entry.whole, whole=None))
        for entry, item in zip(entries, rendered.items, strict=True)
        if entry.whole is not None and item.end > known
    ]
