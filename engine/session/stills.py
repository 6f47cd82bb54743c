"""The newest still of a session, and in which resolutions the conversation has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headstart.engine import api
from headstart.engine.interfaces import Detail, ImageEncoder, StillEncoder, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.errors import BadTokenBudget


class Stills:
    """Encodes the stills of one session's `stream`; without `encoder` in one resolution, by
    `plain`."""

    def __init__(self, encoder: StillEncoder | None, plain: ImageEncoder, stream: Stream) -> None:
        self._encoder, self._plain, self._stream = encoder, plain, stream
        self._newest: api.Image | None = None  # kept if a question may need more of it
        self._item_id = ""  # of that still
        self._views: dict[Detail, View] = {}  # of that still, as far as it was shown

    def view(self, picture: api.Image, stream: Stream, words: Sequence[str]) -> View:
        """A still of an item whose text is `words`, in the resolution that they need; in `stream`,
        which may be that of an answer out of band."""
        if self._encoder is None:
            return self._plain.encode_image(picture, stream)
        detail = self._encoder.detail_for(words)
        view = self._encoder.encode(picture, stream, detail)
        if stream is self._stream:
            self._newest, self._views = picture, {detail: view}
        return view

    def added(self, item: api.Item) -> None:
        """An item is added to the conversation, its pictures encoded."""
        if any(isinstance(part, api.Image) for part in item.parts):
            self._item_id = item.item_id

    def forget(self, item_id: str) -> None:
        """An item was removed: a still in it is not shown again."""
        if item_id == self._item_id:
            self._newest, self._views = None, {}

    def closer(self, question: str, held: Collection[tuple[int, ...]]) -> View | None:
        """The newest still once more, if a question needs a higher resolution than is among the
        segments `held` by the context. Speech that pauses asks again."""
        if self._encoder is None or self._newest is None or not question.strip():
            return None
        wanted = self._encoder.detail_for([question])
        if any(d >= wanted and view.ids in held for d, view in self._views.items()):
            return None
        view = self._encoder.encode(self._newest, self._stream, wanted)
        self._views[wanted] = view
        return None if view.ids in held else view  # a small picture has no more to show


def require_budget(frame: api.Image) -> None:
    """Raises `BadTokenBudget` for a live frame's `max_tokens` out of range."""
    least, most = api.MIN_FRAME_TOKENS, api.MAX_FRAME_TOKENS
    if frame.max_tokens and not least <= frame.max_tokens <= most:
        raise BadTokenBudget(least, most, frame.max_tokens)
