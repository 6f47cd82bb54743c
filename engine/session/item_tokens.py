"""A conversation item as segments of tokens: words, tool calls, their results, pictures, sounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from headstart.engine import api
from headstart.engine.chat.render import Entry, Modality, Segment
from headstart.engine.interfaces import ModelServices, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.clips import Clips
from headstart.engine.session.stills import Stills


def view_segment(view: View) -> Segment:
    """What the model reads of a picture."""
    return Segment(Modality.IMAGE, view.ids)


class ItemTokens:
    """Turns items into entries. Pictures are encoded by `stills`; sounds were heard as `clips`."""

    def __init__(self, services: ModelServices, clips: Clips, stills: Stills) -> None:
        self._chat, self._tokenizer = services.chat, services.tokenizer
        self._clips, self._stills = clips, stills
        self._newline = tuple(services.tokenizer.encode("\n"))

    def entry(self, item: api.Item, stream: Stream) -> Entry:
        """An item as segments; picture embeddings are interned in `stream`."""
        if item.role is api.Role.SYSTEM:
            text = "\n".join(part.text for part in item.parts if isinstance(part, api.Text))
            ids = tuple(self._chat.later_system(text))
            return Entry(item.item_id, item.role, (Segment(Modality.TEXT, ids),))
        segments: list[Segment] = []
        words = [part.text for part in item.parts if isinstance(part, api.Text)]
        for before, part in zip((None, *item.parts), item.parts, strict=False):
            own = self._segments(part, stream, words)
            spoken_beside_words = api.Sound in (type(before), type(part))
            if spoken_beside_words and segments and own and not isinstance(part, api.Image):
                segments.append(Segment(Modality.TEXT, self._newline))
            segments += own
        continues = bool(item.parts) and isinstance(item.parts[0], api.ToolCall)
        return Entry(item.item_id, item.role, tuple(segments), continues)

    def _segments(self, part: api.Part, stream: Stream, words: Sequence[str]) -> Sequence[Segment]:
        match part:
            case api.Text():
                ids = tuple(self._tokenizer.encode(part.text))
                return (Segment(Modality.TEXT, ids),) if ids else ()
            case api.ToolCall():
                called = tuple(self._chat.call(part.name, part.arguments))
                return (Segment(Modality.GENERATED, called),)
            case api.ToolResult():
                return (Segment(Modality.TEXT, tuple(self._chat.result(part.output))),)
            case api.Image():
                return (view_segment(self._stills.view(part, stream, words)),)
            case api.Sound():
                return self._clips.take(part.clip, stream)
            case _:
                assert_never(part)
