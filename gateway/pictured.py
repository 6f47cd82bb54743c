"""Client events that may bring pictures: carried out once those are decoded, else at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openai.types.realtime import ConversationItemCreateEvent, ResponseCreateEvent

from gateway.answers import Answers
from gateway.incoming import Pictures, pictures_of, response_items
from gateway.items_in import place_item
from gateway.media.pictures import Encoded, Seen
from gateway.pictures_in import PicturesIn
from gateway.state import SessionState


class Pictured:
    """Items and responses that a client asks for. All of it raises `ProtocolError`."""

    def __init__(self, state: SessionState, pictures: PicturesIn, answers: Answers) -> None:
        self._state = state
        self._pictures = pictures
        self._answers = answers

    def create_item(self, event: ConversationItemCreateEvent) -> None:
        pictures = pictures_of([(event.item, "item")])
        self._with(pictures, event.event_id, lambda seen: place_item(self._state, event, seen))

    def create_response(self, event: ResponseCreateEvent, now_ns: int) -> None:
        params = event.response
        given = None if params is None else params.input
        if given is None:
            self._answers.create(params, None, now_ns)
            return
        named = [(item, f"response.input[{i}]") for i, item in enumerate(given)]

        def answer(pictures: Pictures) -> None:
            aside = response_items(given, self._state.talk, self._state.ids, pictures)
            self._answers.create(params, aside, now_ns)

        self._with(pictures_of(named), event.event_id, answer)

    def _with(
        self,
        pictures: Sequence[Encoded],
        event_id: str | None,
        then: Callable[[Pictures], None],
    ) -> None:
        """`then` with the decoded pictures: at once when there are none."""
        if not pictures:
            then({})
            return

        def look(seen: tuple[Seen, ...]) -> None:
            then({p.param: s.image for p, s in zip(pictures, seen, strict=True)})

        self._pictures.ask(pictures, event_id, look)
