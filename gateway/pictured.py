"""Client events that may bring pictures and sound: carried out once the pictures are decoded and
the sound is on its way to the engine, before any further event of the client's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openai.types.realtime import ConversationItemCreateEvent, ResponseCreateEvent

from engine import api
from gateway.answers import Answers
from gateway.incoming import Media, pictures_of, response_items
from gateway.items_in import place_item
from gateway.media.pictures import Encoded, Seen
from gateway.pictures_in import PicturesIn
from gateway.protocol import errors
from gateway.protocol.limits import MAX_EVENT_PICTURES
from gateway.sounds_in import SoundsIn, sounds
from gateway.state import SessionState


class Pictured:
    """Items and responses that a client asks for. All of it raises `ProtocolError`."""

    def __init__(self, state: SessionState, pictures: PicturesIn, answers: Answers) -> None:
        self._state = state
        self._pictures = pictures
        self._answers = answers
        self.sounds = SoundsIn(state)

    def create_item(self, event: ConversationItemCreateEvent) -> None:
        state, sounds_in = self._state, self.sounds
        given = [(event.item, "item")]
        clips = sounds_in.clips_of(given)

        def place(pictures: Media) -> None:
            told = place_item(state, event, {**pictures, **sounds(clips)})
            sounds_in.belong_to(told.item.item_id, clips)
            if state.engine_up or not clips:
                sounds_in.send(
                    clips, event.event_id, lambda: state.tell(told), unless_lost=bool(clips)
                )

        self._with(pictures_of(given), event.event_id, place)

    def create_response(self, event: ResponseCreateEvent, now_ns: int) -> None:
        params = event.response
        given = None if params is None else params.input
        if given is None:
            self._answers.create(params, None, now_ns)
            return
        named = [(item, f"response.input[{i}]") for i, item in enumerate(given)]
        clips = self.sounds.clips_of(named)

        def answer(pictures: Media) -> None:
            media = {**pictures, **sounds(clips)}
            aside = response_items(given, self._state.talk, self._state.ids, media)
            respond = lambda: self._answers.create(params, aside, now_ns)  # noqa: E731
            self.sounds.send(clips, event.event_id, respond)

        self._with(pictures_of(named), event.event_id, answer)

    def _with(
        self,
        pictures: Sequence[Encoded],
        event_id: str | None,
        then: Callable[[Media], None],
    ) -> None:
        """`then` with the decoded pictures: at once when there are none."""
        if len(pictures) > MAX_EVENT_PICTURES:
            raise errors.invalid_image(
                pictures[MAX_EVENT_PICTURES].param,
                f"Expected at most {MAX_EVENT_PICTURES} pictures in one event "
                f"but got {len(pictures)}.",
            )
        if not pictures:
            then({})
            return

        def look(seen: tuple[Seen, ...]) -> None:
            images: dict[str, api.Image | api.Sound] = {}
            images.update({p.param: s.image for p, s in zip(pictures, seen, strict=True)})
            then(images)

        self._pictures.ask(pictures, event_id, look)
