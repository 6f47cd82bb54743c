"""What the gateway tells the engine."""

from __future__ import annotations

from headstart.engine.api.values import Image, Item, Message, Sampling, Tool, TurnRef, Window


class Ping(Message, frozen=True, tag="ping"):
    """The gateway's heartbeat; answered by `Stats`."""

    sent_ns: int


class Open(Message, frozen=True, tag="open"):
    """Start a session. `items` restores a conversation (after the engine was restarted).

    `blind`: added to the instructions while there is no picture in the conversation. `tools`: what
    the model may call. `only_hears`: nothing will be asked; what is said is told, and
    forgotten.

    `share_domain`: K/V and what encoders made of pictures are shared with sessions of the same
    domain only. Whoever could guess another's could learn what was said there from what is cached,
    so it is random bytes, not a name; empty: that of all sessions without one.
    """

    session: str
    instructions: str
    items: tuple[Item, ...] = ()
    blind: str = ""
    window: Window = Window()
    tools: tuple[Tool, ...] = ()
    only_hears: bool = False
    share_domain: bytes = b""


class Close(Message, frozen=True, tag="close"):
    session: str


class Instruct(Message, frozen=True, tag="instruct"):
    """Replace the system prompt (see `Open`); everything behind it is prefilled anew."""

    session: str
    instructions: str
    blind: str = ""
    tools: tuple[Tool, ...] = ()


class Remember(Message, frozen=True, tag="remember"):
    """Remember so far back from now on, and forget what is older."""

    session: str
    window: Window


class AddItem(Message, frozen=True, tag="add_item"):
    """Insert an item. `after` None: at the end; "root": at the head; else behind that item."""

    session: str
    item: Item
    after: str | None = None


class RemoveItem(Message, frozen=True, tag="remove_item"):
    session: str
    item_id: str


class BeginSpeech(Message, frozen=True, tag="begin_speech"):
    """A person began to speak (or push-to-talk audio began); `item_id` will be the user's item."""

    session: str
    ref: TurnRef
    item_id: str
    start_sample: int


class Audio(Message, frozen=True, tag="audio"):
    """One chunk of the open utterance: s16le mono 16 kHz, following on the one before.

    The engine hears it at once: words are prefilled while the person is still speaking.
    """

    session: str
    ref: TurnRef
    start_sample: int
    pcm: bytes
    received_ns: int

    @property
    def samples(self) -> int:
        return len(self.pcm) // 2


class Clip(Message, frozen=True, tag="clip"):
    """A piece of sound that an item or an answer's input will hold: s16le mono 16 kHz, following on
    the one before of the same name. Behind the `last` one a `Sound` part may take it, once."""

    session: str
    clip: str
    pcm: bytes
    last: bool = False

    @property
    def samples(self) -> int:
        return len(self.pcm) // 2


class Hush(Message, frozen=True, tag="hush"):
    """A short silence: make the final hearing pass now. With `speculate`, also prefill the turn's
    suffix and begin to decode on a KV mark; nothing is sent until `Respond`."""

    session: str
    ref: TurnRef
    end_sample: int
    speculate: Sampling | None = None


class Resume(Message, frozen=True, tag="resume"):
    """The person goes on: roll back to the mark. `ref` carries the new revision."""

    session: str
    ref: TurnRef


class EndSpeech(Message, frozen=True, tag="end_speech"):
    """The endpoint is sure: the utterance becomes the item announced by `BeginSpeech`."""

    session: str
    ref: TurnRef
    end_sample: int


class DropSpeech(Message, frozen=True, tag="drop_speech"):
    """Forget the open utterance (buffer cleared, or too short to be speech)."""

    session: str
    ref: TurnRef


class Frame(Message, frozen=True, tag="frame"):
    """A live camera frame; visible to the model from the next word on."""

    session: str
    at_sample: int
    image: Image


class Respond(Message, frozen=True, tag="respond"):
    """Answer now. `item_id` will be the assistant's item (see `call_item_id` for the functions it
    calls); `instructions` holds for this answer, and so do `tools`, if they are not the session's.

    `items` not None: answer from these alone, out of band (the conversation stays as it was).
    `only_if_heard`: not when nothing with words in it was said since the last answer; then
    `Finished` with reason cancelled follows.
    """

    session: str
    generation: int
    item_id: str
    sampling: Sampling
    instructions: str | None = None
    items: tuple[Item, ...] | None = None
    only_if_heard: bool = False
    tools: tuple[Tool, ...] | None = None


class Cancel(Message, frozen=True, tag="cancel"):
    """Stop that answer within one step; `Finished` with reason cancelled follows."""

    session: str
    generation: int


Command = (
    Ping
    | Open
    | Close
    | Instruct
    | Remember
    | AddItem
    | RemoveItem
    | BeginSpeech
    | Audio
    | Clip
    | Hush
    | Resume
    | EndSpeech
    | DropSpeech
    | Frame
    | Respond
    | Cancel
)


def picture_bytes(command: Command) -> int:
    """Of the pictures that come with it, and that the engine tells of (`ImagesConsumed`): all but
    those of a conversation that is restored."""
    match command:
        case Frame():
            return len(command.image.rgb)
        case AddItem():
            items: tuple[Item, ...] = (command.item,)
        case Respond():
            items = command.items or ()
        case _:
            return 0
    parts = (part for item in items for part in item.parts)
    return sum(len(part.rgb) for part in parts if isinstance(part, Image))
