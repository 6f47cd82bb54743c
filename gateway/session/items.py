"""Items that clients create and delete: stored, sent to the engine, and echoed. Items that the
engine cannot take are refused with a named error.

An event with images or audio takes effect once the images are decoded and the audio was sent to the
engine, before the client's next event.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from openai.types.realtime import (
    ConversationItemCreateEvent,
    RealtimeConversationItemAssistantMessage,
    RealtimeConversationItemFunctionCall,
    RealtimeConversationItemFunctionCallOutput,
    RealtimeConversationItemSystemMessage,
    RealtimeConversationItemUserMessage,
    ResponseCreateEvent,
)
from openai.types.realtime.realtime_conversation_item_user_message import (
    Content as UserContent,
)
from openai.types.realtime.response_item_reference import ResponseItemReference

from headstart.engine import api
from headstart.gateway.protocol import errors, items
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.limits import MAX_EVENT_PICTURES
from headstart.gateway.session.context import SessionContext
from headstart.gateway.session.conversation import Conversation, ConversationItem
from headstart.gateway.session.engine_items import forget, keep
from headstart.gateway.session.item_audio import ItemAudio, sound_param, sounds
from headstart.gateway.session.responses import ResponseManager
from headstart.gateway.session.video_input import VideoInput
from headstart.gateway.video.decode import DecodedImage, Encoded

DETAIL_TOKENS = {"low": 64, "high": 1024}
"""Most tokens of a picture by its `detail`, where the setting `still_detail` is not "full"; "auto"
leaves it to what is asked."""

Media = Mapping[str, api.Image | api.Sound]
"""Decoded images, and audio sent to the engine, by their field's name in errors (`Encoded.param`,
`Clip.param`)."""


def pictures_of(given: Sequence[tuple[Any, str]]) -> list[Encoded]:
    """The images in items, each item given with its name in errors."""
    return [
        Encoded(part.image_url or "", _image_param(param, i))
        for item, param in given
        if isinstance(item, RealtimeConversationItemUserMessage)
        for i, part in enumerate(item.content)
        if part.type == "input_image"
    ]


def _image_param(param: str, part: int) -> str:
    return f"{param}.content[{part}].image_url"


def engine_item(item: Any, item_id: str, param: str, media: Media) -> api.Item:
    """One item as the model will read it, with its `media`. Raises `ProtocolError` for unsupported
    kinds."""
    if isinstance(item, RealtimeConversationItemUserMessage):
        parts = tuple(_user_part(part, param, i, media) for i, part in enumerate(item.content))
        return api.Item(item_id, api.Role.USER, parts)
    if isinstance(item, RealtimeConversationItemSystemMessage):
        texts = tuple(api.Text(part.text or "") for part in item.content)
        return api.Item(item_id, api.Role.SYSTEM, texts)
    if isinstance(item, RealtimeConversationItemAssistantMessage):
        said = tuple(api.Text(part.text or part.transcript or "") for part in item.content)
        return api.Item(item_id, api.Role.ASSISTANT, said)
    if isinstance(item, RealtimeConversationItemFunctionCall):
        return api.Item(item_id, api.Role.ASSISTANT, (api.ToolCall(item.name, item.arguments),))
    if isinstance(item, RealtimeConversationItemFunctionCallOutput):
        return api.Item(item_id, api.Role.USER, (api.ToolResult(item.output),))
    raise errors.unsupported(f"{param}.type", f"items of type '{item.type}' are")


def _user_part(part: UserContent, param: str, number: int, media: Media) -> api.Part:
    if part.type == "input_image":
        image = media[_image_param(param, number)]
        tokens = DETAIL_TOKENS.get(part.detail or "auto", 0)
        return msgspec.structs.replace(image, max_tokens=tokens) if tokens else image
    if part.type == "input_audio":
        # A transcript supplied by the client is used as it is.
        sound = media.get(sound_param(param, number))
        return api.Text(part.transcript or "") if sound is None else sound
    return api.Text(part.text or "")


def response_items(
    given: Sequence[Any], conversation: Conversation, ids: IdMaker, media: Media
) -> tuple[api.Item, ...]:
    """The `input` of an out-of-band response; references are resolved in the conversation."""
    found = []
    for i, item in enumerate(given):
        if isinstance(item, ResponseItemReference):
            kept = conversation.find(item.id)
            if kept is None or kept.engine is None:
                raise errors.referenced_item_not_found(i, item.id)
            found.append(kept.engine)
        else:
            item_id = getattr(item, "id", None) or ids.item()
            found.append(engine_item(item, item_id, f"response.input[{i}]", media))
    return tuple(found)


def place_item(
    context: SessionContext, event: ConversationItemCreateEvent, media: Media
) -> api.AddItem:
    """Insert a client's new item, its images decoded, and return the engine command that adds it
    once its audio was sent. Raises `ProtocolError`."""
    item_id = event.item.id or context.ids.item()
    if item_id not in context.conversation and context.is_id_in_use(item_id):
        raise errors.item_id_in_use(item_id)
    previous = context.conversation.place(item_id, event.previous_item_id)
    item = event.item
    if isinstance(item, RealtimeConversationItemFunctionCallOutput):
        if not context.conversation.has_call(item.call_id):
            raise errors.unknown_tool_call(item.call_id)
        if context.conversation.has_output(item.call_id):
            raise errors.answered_tool_call(item.call_id)
    for_engine = engine_item(item, item_id, "item", media)
    wire = items.client_item(item_id, item)
    if isinstance(item, RealtimeConversationItemFunctionCall):
        wire.setdefault("call_id", context.ids.call())
    kept = ConversationItem(wire, _without_sound(for_engine), known=context.engine_keeps)
    keep(context, kept, previous)
    context.send(context.events.item_added(wire, previous))
    context.send(context.events.item_done(wire, previous))
    return api.AddItem(context.session_id, for_engine, context.conversation.engine_place(item_id))


def _without_sound(item: api.Item) -> api.Item:
    """What a restarted engine is given until the transcript is known."""
    parts = (api.Text("") if isinstance(part, api.Sound) else part for part in item.parts)
    return msgspec.structs.replace(item, parts=tuple(parts))


class ClientItems:
    """Client items of one session, including the `input` items of responses. Invalid requests raise
    `ProtocolError`."""

    def __init__(
        self, context: SessionContext, pictures: VideoInput, responses: ResponseManager
    ) -> None:
        self._context = context
        self._pictures = pictures
        self._responses = responses
        self.sounds = ItemAudio(context)

    def create(self, event: ConversationItemCreateEvent) -> None:
        context, sounds_in = self._context, self.sounds
        given = [(event.item, "item")]
        clips = sounds_in.clips_of(given)

        def place(pictures: Media) -> None:
            command = place_item(context, event, {**pictures, **sounds(clips)})
            sounds_in.belong_to(command.item.item_id, clips)
            if context.engine_up or not clips:
                sounds_in.send(
                    clips,
                    event.event_id,
                    lambda: context.send_to_engine(command),
                    unless_lost=bool(clips),
                )

        self._with(pictures_of(given), event.event_id, place)

    def create_response(self, event: ResponseCreateEvent, now_ns: int) -> None:
        params = event.response
        given = None if params is None else params.input
        if given is None:
            self._responses.create(params, None, now_ns)
            return
        named = [(item, f"response.input[{i}]") for i, item in enumerate(given)]
        clips = self.sounds.clips_of(named)

        def answer(pictures: Media) -> None:
            media = {**pictures, **sounds(clips)}
            input_items = response_items(
                given, self._context.conversation, self._context.ids, media
            )
            respond = lambda: self._responses.create(params, input_items, now_ns)  # noqa: E731
            self.sounds.send(clips, event.event_id, respond)

        self._with(pictures_of(named), event.event_id, answer)

    def retrieve(self, item_id: str) -> None:
        """Send an item as it is. Clients ask for it after each transcript and truncation; if the
        server has taken it back by then, they are told so already, and get no reply."""
        context = self._context
        if not context.conversation.is_withdrawn(item_id):
            kept = context.conversation.get(item_id, "retrieve")
            context.send(context.events.item_retrieved(kept.wire))

    def delete(self, item_id: str) -> None:
        """Delete an item. An active response that is growing in it ends, since its output has no
        place left."""
        context = self._context
        kept = context.conversation.remove(item_id)
        context.send(context.events.item_deleted(item_id))
        if not self._responses.give_up(item_id):
            forget(context, [kept])

    def failed(self, event: api.Failed) -> bool:
        """Handle a failed command if it was about an item or its audio. Returns whether it was. A
        failed removal needs no error, since the item is gone. An item that could not be added can
        still be deleted."""
        if self.sounds.failed(event):
            return True
        kept = self._context.conversation.find(event.ref_id)
        if event.about == "add_item" and kept is not None:
            kept.known, kept.engine = False, None
        return event.about == "remove_item" and event.code == "unknown_item"

    def _with(
        self,
        pictures: Sequence[Encoded],
        event_id: str | None,
        then: Callable[[Media], None],
    ) -> None:
        """Call `then` with the decoded images; at once if there are none."""
        if len(pictures) > MAX_EVENT_PICTURES:
            raise errors.invalid_image(
                pictures[MAX_EVENT_PICTURES].param,
                f"Expected at most {MAX_EVENT_PICTURES} pictures in one event "
                f"but got {len(pictures)}.",
            )
        if not pictures:
            then({})
            return

        def look(decoded: tuple[DecodedImage, ...]) -> None:
            images: dict[str, api.Image | api.Sound] = {}
            images.update({p.param: s.image for p, s in zip(pictures, decoded, strict=True)})
            then(images)

        self._pictures.ask(pictures, event_id, look)
