"""Client events that may bring pictures and sound: carried out once the pictures are decoded and
the sound is on its way to the engine, before any further event of the client's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openai.types.realtime import ConversationItemCreateEvent, ResponseCreateEvent

from headstart.engine import api
from headstart.gateway.protocol import errors
from headstart.gateway.protocol.limits import MAX_EVENT_PICTURES
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.item_audio import ItemAudio, sounds
from headstart.gateway.session.items import Media, pictures_of, place_item, response_items
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.video_input import VideoInput
from headstart.gateway.video.decode import Encoded, Seen


class MediaRequests:
    """Items and responses that a client asks for. All of it raises `ProtocolError`."""

    def __init__(
        self, context: SessionContext, pictures: VideoInput, answers: ResponseManager
    ) -> None:
        self._context = context
        self._pictures = pictures
        self._answers = answers
        self.sounds = ItemAudio(context)

    def create_item(self, event: ConversationItemCreateEvent) -> None:
        context, sounds_in = self._context, self.sounds
        given = [(event.item, "item")]
        clips = sounds_in.clips_of(given)

        def place(pictures: Media) -> None:
            told = place_item(context, event, {**pictures, **sounds(clips)})
            sounds_in.belong_to(told.item.item_id, clips)
            if context.engine_up or not clips:
                sounds_in.send(
                    clips, event.event_id, lambda: context.tell(told), unless_lost=bool(clips)
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
            input_items = response_items(
                given, self._context.conversation, self._context.ids, media
            )
            respond = lambda: self._answers.create(params, input_items, now_ns)  # noqa: E731
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
