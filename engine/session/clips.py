"""Clips: sound sent for items that are added later, recognised piece by piece.

A clip is recognised like an utterance, but without deadlines, since nobody waits for its words.
"""

from __future__ import annotations

from headstart.engine import api
from headstart.engine.chat.render import Segment
from headstart.engine.interfaces import LiveFrameEncoder, ModelServices
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.errors import UnknownClip
from headstart.engine.session.utterance import Utterance, to_float

MAX_CLIPS = 64
"""Clips of a session that no item has taken yet; beyond this, the oldest is dropped."""


class Clips:
    """The pending clips of one session, as tokens of `stream`."""

    def __init__(self, services: ModelServices, stream: Stream) -> None:
        self._services = services
        self._stream = stream
        self._heard: dict[str, Utterance] = {}

    def hear(self, piece: api.Clip) -> api.ClipHeard:
        """Recognise a clip's next piece."""
        recognizer = self._services.recognizer
        clip = self._heard.get(piece.clip)
        if clip is None:
            if len(self._heard) >= MAX_CLIPS:
                del self._heard[next(iter(self._heard))]
            state = recognizer.open(self._stream)
            clip = self._heard[piece.clip] = Utterance(api.TurnRef(0), piece.clip, state, 0)
        (words,) = recognizer.recognize_batch([clip.state], [to_float(piece)])
        clip.take(words, piece.samples)
        if piece.last:
            clip.read = ""  # nothing of it was read yet, so its final spelling will be
            clip.finish(recognizer.finish(clip.state))
        text = clip.text if piece.last else ""
        known = (piece.samples, text, clip.transcribed, piece.last)
        return api.ClipHeard(piece.session, piece.clip, *known)

    def take(self, name: str, stream: Stream) -> tuple[Segment, ...]:
        """Remove a clip and return it as tokens of `stream`. Raises `UnknownClip`."""
        clip = self._heard.pop(name, None)
        if clip is None:
            raise UnknownClip(name)
        segments = clip.entry(self._services.tokenizer).segments
        if stream is self._stream:
            return segments
        return tuple(Segment(s.modality, self._moved(s.ids, stream)) for s in segments)

    def _moved(self, ids: tuple[int, ...], stream: Stream) -> tuple[int, ...]:
        """`ids` in another stream: soft tokens are interned there, other tokens are unchanged."""
        soft = self._stream.soft
        return tuple(self._moved_one(i, stream) if i in soft else i for i in ids)

    def _moved_one(self, token: int, stream: Stream) -> int:
        soft = self._stream.soft
        place = soft.media_position(token)
        (moved,) = stream.soft.intern(soft.vector(token)[None], None if place is None else [place])
        return moved

    def tokens(self) -> set[int]:
        """All tokens that the pending clips may still consist of."""
        held: set[int] = set()
        for clip in self._heard.values():
            held.update(token for _, ids in clip.parts or () for token in ids)
            if isinstance(clip.state, LiveFrameEncoder):
                held.update(clip.state.token_ids())
        return held
