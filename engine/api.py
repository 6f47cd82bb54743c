"""The messages between gateway and engine: the one place that knows those bytes.

Both ways they travel as msgpack over one ZeroMQ DEALER pair. The gateway sends `Command`s, the
engine answers with `Event`s. All audio is 16 kHz mono; every sample number counts samples received
since the session started, so live and faster-than-real-time runs carry the same numbers. Instants
are `time.monotonic_ns()`, which is one clock for all processes of a machine.

A turn's answer is named by `generation`, a number that only grows within a session: an event whose
generation is not the session's current one is stale and is dropped by whoever receives it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

SAMPLE_RATE_HZ = 16_000


class Message(msgspec.Struct, frozen=True, tag_field="op", omit_defaults=True):
    """Base of everything on the wire between the two processes."""


# --- values -----------------------------------------------------------------------------------


class TurnRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which utterance a message is about.

    `revision` grows each time the person goes on speaking after a short silence (a hush), so that
    what was computed for the shorter utterance can be told from the present one.
    """

    turn: int
    revision: int = 0


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the answer's tokens are chosen. `temperature` 0 is greedy; `seed` None is not repeatable.

    The defaults are the ones that made the small models answer in short, whole sentences.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    repetition_penalty: float = 1.1
    seed: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Text(msgspec.Struct, frozen=True, tag_field="part", tag="text"):
    text: str


class Image(msgspec.Struct, frozen=True, tag_field="part", tag="image"):
    """A decoded picture: `rgb` holds height * width * 3 bytes, rows from the top."""

    width: int
    height: int
    rgb: bytes


Part = Text | Image


class Item(msgspec.Struct, frozen=True):
    """One message of the conversation, as the gateway's books have it."""

    item_id: str
    role: Role
    parts: tuple[Part, ...]


class Span(msgspec.Struct, frozen=True):
    """One stage of work in wall time. Stage names: mel encode project queue prefill decode_first
    detokenize."""

    stage: str
    start_ns: int
    end_ns: int


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one answer, by what they stood for. `cached`: input already in the KV cache when
    the endpoint came, that is, the head start."""

    input_text: int = 0
    input_audio: int = 0
    input_image: int = 0
    cached: int = 0
    output: int = 0
    speculated: int = 0  # decoded before the endpoint was sure
    wasted: int = 0  # prefilled or decoded for this turn, then rolled back

    @property
    def input(self) -> int:
        return self.input_text + self.input_audio + self.input_image


class KvStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session's share of the paged KV cache."""

    tokens: int = 0
    blocks: int = 0
    bytes: int = 0
    bytes_per_token: int = 0


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


# --- gateway -> engine --------------------------------------------------------------------------


class Ping(Message, frozen=True, tag="ping"):
    """The gateway's heartbeat; answered by `Stats`."""

    sent_ns: int


class Open(Message, frozen=True, tag="open"):
    """Start a session. `items` restores a conversation (after the engine was restarted)."""

    session: str
    instructions: str
    items: tuple[Item, ...] = ()


class Close(Message, frozen=True, tag="close"):
    session: str


class Instruct(Message, frozen=True, tag="instruct"):
    """Replace the system prompt; everything behind it is prefilled anew."""

    session: str
    instructions: str


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
    """Answer now. `item_id` will be the assistant's item; `instructions` holds for this answer.

    `items` not None: answer from these alone, out of band (the conversation stays as it was).
    """

    session: str
    generation: int
    item_id: str
    sampling: Sampling
    instructions: str | None = None
    items: tuple[Item, ...] | None = None


class Cancel(Message, frozen=True, tag="cancel"):
    """Stop that answer within one step; `Finished` with reason cancelled follows."""

    session: str
    generation: int


Command = (
    Ping
    | Open
    | Close
    | Instruct
    | AddItem
    | RemoveItem
    | BeginSpeech
    | Audio
    | Hush
    | Resume
    | EndSpeech
    | DropSpeech
    | Frame
    | Respond
    | Cancel
)


# --- engine -> gateway --------------------------------------------------------------------------


class ModelInfo(msgspec.Struct, frozen=True):
    name: str
    context_tokens: int
    kv_bytes_per_token: int
    kv_pool_bytes: int
    weights_bytes: int
    load_s: float


class Loading(Message, frozen=True, tag="loading"):
    """Start-up progress; `total` 0 means unknown."""

    what: str
    done: int
    total: int


class Ready(Message, frozen=True, tag="ready"):
    """The engine takes sessions. `incarnation` differs after each restart: sessions opened with
    another one are gone and have to be opened anew."""

    incarnation: str
    model: ModelInfo


class Stats(Message, frozen=True, tag="stats"):
    """Answer to `Ping`."""

    ping_sent_ns: int
    incarnation: str
    sessions: int
    kv_blocks_used: int
    kv_blocks_total: int
    rss_bytes: int
    pending_prefill_tokens: int
    steps: int


class Hearing(Message, frozen=True, tag="hearing"):
    """Words so far: `committed` only grows within a turn; `tentative` may still change."""

    session: str
    ref: TurnRef
    committed: str
    tentative: str
    at_sample: int


class Heard(Message, frozen=True, tag="heard"):
    """The utterance's final words (after `EndSpeech`)."""

    session: str
    ref: TurnRef
    item_id: str
    text: str
    audio_tokens: int


class Chunk(Message, frozen=True, tag="chunk"):
    """What one audio chunk cost: stage times in ms against the chunk's own duration."""

    session: str
    ref: TurnRef
    start_sample: int
    samples: int
    stages_ms: dict[str, float]
    latency_ms: float  # from received_ns until its words were in the KV cache
    prefilled_tokens: int
    rolled_back_tokens: int


class Delta(Message, frozen=True, tag="delta"):
    """A piece of the answer. The first one carries the spans of the work up to it."""

    session: str
    generation: int
    text: str
    at_ns: int
    spans: tuple[Span, ...] = ()


class Finished(Message, frozen=True, tag="finished"):
    """The answer is over. `code` and `message` say why when the reason is failed."""

    session: str
    generation: int
    reason: FinishReason
    text: str
    usage: Usage
    kv: KvStats
    decode_tok_s: float | None = None
    code: str = ""
    message: str = ""


class Failed(Message, frozen=True, tag="failed"):
    """A command could not be carried out; the session goes on. `about` names the command's op and
    `ref_id` its item or generation, where it has one."""

    session: str
    about: str
    code: str
    message: str
    ref_id: str = ""


Event = Loading | Ready | Stats | Hearing | Heard | Chunk | Delta | Finished | Failed

_encoder = msgspec.msgpack.Encoder()
_command_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_event_decoder: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def encode(message: Command | Event) -> bytes:
    """One message as msgpack."""
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    """The gateway's side of the wire. Raises `msgspec.ValidationError` or `DecodeError`."""
    return _command_decoder.decode(data)


def decode_event(data: bytes) -> Event:
    """The engine's side of the wire. Raises `msgspec.ValidationError` or `DecodeError`."""
    return _event_decoder.decode(data)
