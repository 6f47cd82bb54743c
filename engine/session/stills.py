"""A session's pictures on their way into its stream: the newest still, which parts of it the
conversation has in which resolution, and when the encoder was at work."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from headstart.engine import api
from headstart.engine.errors import EngineError
from headstart.engine.interfaces import Clock, ImageEncoder, StillEncoder, StillPart, View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.errors import BadTokenBudget

MAX_SPANS = 64


class Stills:
    """Encodes the pictures of one session's `stream`. Live frames are encoded by `plain`; so are
    stills, whole and in one resolution, without an `encoder`. `clock`: as the session's."""

    def __init__(
        self,
        encoder: StillEncoder | None,
        plain: ImageEncoder,
        stream: Stream,
        clock: Clock,
    ) -> None:
        self._encoder, self._plain, self._stream, self._clock = encoder, plain, stream, clock
        self._newest: api.Image | None = None  # kept if a question may need more of it
        self._before: api.Image | None = None  # the still before it, to tell what has changed
        self._item_id = self._item_before = ""  # of those two
        self._shown: dict[StillPart, tuple[int, ...]] = {}  # of the newest, with their segments
        self._spans: deque[api.Span] = deque(maxlen=MAX_SPANS)

    def view(self, picture: api.Image, stream: Stream, words: Sequence[str]) -> View:
        """A still of an item whose text is `words`, as much of it as they need; in `stream`, which
        may be that of an answer out of band."""
        if self._encoder is None:
            return self._encode_plainly(picture, stream, live=False)
        before = self._newest if stream is self._stream else None
        parts: Sequence[StillPart] = (StillPart(picture.max_tokens),)
        if not picture.max_tokens:
            parts = self._encoder.parts_for(picture, words, stream.share_domain, before)
        view = _joined([self._encoder.encode(picture, stream, part) for part in parts])
        self._spans.extend(self._encoder.take_spans())
        if stream is self._stream:
            self._before, self._item_before = self._newest, self._item_id
            self._newest, self._shown = picture, dict.fromkeys(parts, view.ids)
        return view

    def frame(self, picture: api.Image) -> View:
        """A frame of a live camera."""
        return self._encode_plainly(picture, self._stream, live=True)

    def _encode_plainly(self, picture: api.Image, stream: Stream, *, live: bool) -> View:
        began_ns = self._clock()
        view = self._plain.encode_image(picture, stream, live=live)
        at_work_ns = view.encoded_ns or (began_ns, self._clock())
        self._spans.append(api.Span("encode", *at_work_ns))
        return view

    @contextmanager
    def adding(self, item: api.Item) -> Iterator[None]:
        """An item is being added. If it is refused, nothing of it is shown later."""
        newest, before, shown = self._newest, self._before, self._shown
        items = self._item_id, self._item_before
        try:
            yield
        except EngineError:
            self._newest, self._before, self._shown = newest, before, shown
            self._item_id, self._item_before = items
            raise
        self.added(item)

    def added(self, item: api.Item) -> None:
        """An item is added to the conversation, its pictures encoded."""
        pictures = sum(isinstance(part, api.Image) for part in item.parts)
        if pictures:
            self._item_id = item.item_id
        if pictures > 1:
            self._item_before = item.item_id

    def forget(self, item_id: str) -> None:
        """An item was removed: a still in it is not shown again."""
        if item_id == self._item_before:
            self._before = None
        if item_id == self._item_id:
            self._newest, self._shown = None, {}

    def closer(self, question: str, held: Collection[tuple[int, ...]]) -> View | None:
        """The newest still once more, as far as a question needs more of it than is among the
        segments `held` by the context. Speech that pauses asks again."""
        if self._encoder is None or self._newest is None or not question.strip():
            return None
        if self._newest.max_tokens:  # its sender chose
            return None
        domain = self._stream.share_domain
        wanted = self._encoder.parts_for(self._newest, [question], domain, self._before)
        seen = [part for part, ids in self._shown.items() if ids in held]
        views = {
            part: self._encoder.encode(self._newest, self._stream, part)
            for part in wanted
            if not any(other.covers(part) for other in seen)
        }
        self._spans.extend(self._encoder.take_spans())
        # A small picture has no more to show.
        new = {part: view for part, view in views.items() if view.ids not in held}
        self._shown |= {part: view.ids for part, view in views.items()}
        if not new:
            return None
        view = _joined(list(new.values()))
        self._shown |= dict.fromkeys(new, view.ids)
        return view

    def take_spans(self) -> list[api.Span]:
        """The work on this session's pictures since somebody called this."""
        taken = list(self._spans)
        self._spans.clear()
        return taken


def _joined(views: Sequence[View]) -> View:
    """Parts of one picture, one behind the other."""
    if len(views) == 1:
        return views[0]
    return View(
        tuple(token for view in views for token in view.ids),
        "; ".join(view.text for view in views),
        key=" ".join(view.key for view in views),
    )


def require_budget(frame: api.Image) -> None:
    """Raises `BadTokenBudget` for a live frame's `max_tokens` out of range."""
    least, most = api.MIN_FRAME_TOKENS, api.MAX_FRAME_TOKENS
    if frame.max_tokens and not least <= frame.max_tokens <= most:
        raise BadTokenBudget(least, most, frame.max_tokens)
