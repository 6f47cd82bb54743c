"""Commands: what the gateway sends to the engine."""

from __future__ import annotations

from headstart.engine.api.values import Image, Item, Message, Sampling, Tool, TurnRef, Window


class Ping(Message, frozen=True, tag="ping"):
    """The gateway's heartbeat; answered by `Stats`. `gateway`: differs after each restart of the
    gateway, which has lost its sessions then: the engine closes those that it still holds."""

    sent_ns: int
    gateway: str = ""


class Leave(Message, frozen=True, tag="leave"):
    """End: the engine was `Draining`, and its last session is gone."""


class Open(Message, frozen=True, tag="open"):
    """Start a session. `items` restores a conversation (after an engine restart).

    `blind`: appended to the instructions while the conversation has no picture. `tools`: functions
    the model may call. `only_hears`: transcription only; speech is recognised, and nothing is kept.

    `share_domain`: K/V and encoded pictures are shared only with sessions of the same domain. A
    session that guesses another's domain could learn from cache hits what was said there, so use
    random bytes and not a name. Empty: the domain of all sessions without one.
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
    """End a session and free its K/V."""

    session: str


class Instruct(Message, frozen=True, tag="instruct"):
    """Replace the system prompt (see `Open`). Everything behind it is prefilled again."""

    session: str
    instructions: str
    blind: str = ""
    tools: tuple[Tool, ...] = ()


class Remember(Message, frozen=True, tag="remember"):
    """Set the context window, and evict what lies outside of it."""

    session: str
    window: Window


class AddItem(Message, frozen=True, tag="add_item"):
    """Insert an item. `after` None: at the end; "root": at the beginning; else behind that item."""

    session: str
    item: Item
    after: str | None = None


class RemoveItem(Message, frozen=True, tag="remove_item"):
    """Remove an item from the conversation."""

    session: str
    item_id: str


class BeginSpeech(Message, frozen=True, tag="begin_speech"):
    """A user began to speak (or push-to-talk audio began); `item_id` will be the user's item.
    `may_continue`: `ContinueSpeech` may follow; otherwise the utterance before is released."""

    session: str
    ref: TurnRef
    item_id: str
    start_sample: int
    may_continue: bool = False


class Audio(Message, frozen=True, tag="audio"):
    """One chunk of the open utterance: s16le mono 16 kHz, following the previous chunk.

    It is recognised at once; words are prefilled while the user is still speaking.
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
    """A piece of sound for an item or an answer's input: s16le mono 16 kHz, following the previous
    piece of the same name. After the `last` piece, one `Sound` part may use the clip, once."""

    session: str
    clip: str
    pcm: bytes
    last: bool = False

    @property
    def samples(self) -> int:
        return len(self.pcm) // 2


class Hush(Message, frozen=True, tag="hush"):
    """A short silence: run the final recognition pass now. With `speculate`, also prefill the
    turn's suffix and begin to decode; no answer is sent until `Respond`. `tell_text`: what it says
    so far comes as `Prepared`."""

    session: str
    ref: TurnRef
    end_sample: int
    speculate: Sampling | None = None
    tell_text: bool = False


class Resume(Message, frozen=True, tag="resume"):
    """Speech goes on: discard the speculation. `ref` has the new revision."""

    session: str
    ref: TurnRef


class EndSpeech(Message, frozen=True, tag="end_speech"):
    """The endpoint is confirmed: the utterance becomes the item announced by `BeginSpeech`.
    `may_continue`: what the recogniser knows of it is kept until `ReleaseSpeech`, because the
    endpoint may have come too early (`ContinueSpeech`)."""

    session: str
    ref: TurnRef
    end_sample: int
    may_continue: bool = False


class ContinueSpeech(Message, frozen=True, tag="continue_speech"):
    """The open utterance `ref` continues the one that ended as `item_id`: they are one message.

    That item is removed, and so are the items of the answer `answer_id` to it (empty: none). The
    utterance is recognised as a whole: its words are those of both parts. `DropSpeech` restores
    the removed item of the user, but not the answer.
    """

    session: str
    ref: TurnRef
    item_id: str
    answer_id: str = ""


class ReleaseSpeech(Message, frozen=True, tag="release_speech"):
    """The last ended utterance will not be continued: free what is kept for it."""

    session: str


class DropSpeech(Message, frozen=True, tag="drop_speech"):
    """Discard the open utterance (buffer cleared, or too short to be speech)."""

    session: str
    ref: TurnRef


class Frame(Message, frozen=True, tag="frame"):
    """A live camera frame, visible to the model from the next word on."""

    session: str
    at_sample: int
    image: Image


class Respond(Message, frozen=True, tag="respond"):
    """Answer now. `item_id` will be the assistant's item (see `call_item_id` for its function
    calls). `instructions` and `tools`, if given, hold for this answer alone.

    `items` not None: answer these alone, out of band; the conversation does not change.
    `reports_writing`: somebody wants to know what is written in their pictures, so the answer waits
    until it is read (`Finished.read`).
    `only_if_heard`: do not answer unless speech with words came since the last answer; otherwise
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
    reports_writing: bool = False


class Cancel(Message, frozen=True, tag="cancel"):
    """Stop that answer within one step; `Finished` with reason cancelled follows."""

    session: str
    generation: int


Command = (
    Ping
    | Leave
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
    | ContinueSpeech
    | ReleaseSpeech
    | DropSpeech
    | Frame
    | Respond
    | Cancel
)


def picture_bytes(command: Command) -> int:
    """Bytes of the pictures in `command` that `ImagesConsumed` will report: all but those of a
    restored conversation."""
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
