"""What is said of an answer when it is over: its tokens, and its session's share of the cache."""

from __future__ import annotations

from engine import api
from engine.answer import Answer
from engine.books import Modality, by_name, counted
from engine.stream import Stream
from engine.window import Window


def usage_of(answer: Answer, wasted_tokens: int) -> api.Usage:
    """An answer's tokens by what they stood for."""
    prompt = answer.prompt
    audio, image = prompt.counts[Modality.AUDIO], prompt.counts[Modality.IMAGE]
    return api.Usage(
        input_text=len(prompt.ids) - audio - image,
        input_audio=audio,
        input_image=image,
        cached=answer.cached_tokens,
        output=len(answer.tokens),
        speculated=answer.speculated_tokens,
        wasted=wasted_tokens,
    )


def kv_stats_of(stream: Stream, bytes_per_token: int, window: Window) -> api.KvStats:
    """What a stream has in the cache now, what it took over and forgot."""
    return api.KvStats(
        tokens=stream.kv_len,
        blocks=len(stream.kv_blocks),
        bytes=stream.kv_len * bytes_per_token,
        bytes_per_token=bytes_per_token,
        by_modality=by_name(counted(stream.kv_kinds)),
        adopted=stream.adopted_tokens,
        evicted=stream.evicted_tokens,
        window=window.to_api(),
    )


def unbegun(session: str, generation: int, kv: api.KvStats) -> api.Finished:
    """Of an answer that was cancelled before anything was done for it."""
    cancelled = api.FinishReason.CANCELLED
    return api.Finished(session, generation, cancelled, text="", usage=api.Usage(), kv=kv)
