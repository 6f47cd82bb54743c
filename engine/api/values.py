"""The values that commands and events consist of."""

from __future__ import annotations

from enum import IntEnum, StrEnum

import msgspec

SAMPLE_RATE_HZ = 16_000


class Message(msgspec.Struct, frozen=True, tag_field="op", omit_defaults=True):
    """Base of everything on the wire between the two processes."""


class TurnRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """The utterance that a message is about.

    `revision` grows each time speech resumes after a short silence (`Hush`), so that results for
    the shorter utterance can be told from current ones.
    """

    turn: int
    revision: int = 0


class ToolChoice(StrEnum):
    """Whether an answer may, must not or must call a function."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an answer's tokens are chosen. `temperature` 0 is greedy; with `seed` None answers are
    not repeatable.

    The defaults make the small models answer in short, whole sentences.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    repetition_penalty: float = 1.1
    seed: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    max_sentences: int = 0  # the answer ends after that many whole sentences; 0: no limit
    call: ToolChoice = ToolChoice.AUTO
    function: str = ""  # the function to call, if it must be a certain one


MIN_FRAME_TOKENS, MAX_FRAME_TOKENS = 16, 4096  # a token budget of a frame


class Role(StrEnum):
    """Who says an item."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Text(msgspec.Struct, frozen=True, tag_field="part", tag="text"):
    """A part of an item in words."""

    text: str


class Image(msgspec.Struct, frozen=True, tag_field="part", tag="image"):
    """A decoded picture: `rgb` holds height * width * 3 bytes, rows from the top.

    `max_tokens`: the most tokens that a live frame may become (frames that a model encodes together
    share the least of theirs), `MIN_FRAME_TOKENS` to `MAX_FRAME_TOKENS`; 0: no limit. Others fail
    with `bad_token_budget`. A model's own tokens around a picture, or between its rows, come on
    top. Models that get notes on a picture need fewer anyhow. Of a picture in an item: as many as
    it becomes at most, once and for all, where a question would decide; 0: the question decides.
    """

    width: int
    height: int
    rgb: bytes
    max_tokens: int = 0


class PictureSize(msgspec.Struct, frozen=True, omit_defaults=True):
    """The largest picture that the image encoder gains from: pixels on its shorter side, and in
    all; 0: no limit. A larger picture is scaled down before it is sent, keeping its aspect ratio.
    """

    short_side: int = 0
    pixels: int = 0


SMALL_PICTURE = PictureSize(short_side=256)  # for image encoders without tiles


class Sound(msgspec.Struct, frozen=True, tag_field="part", tag="sound"):
    """The recognised content of the `Clip` of that name."""

    clip: str


class ToolCall(msgspec.Struct, frozen=True, tag_field="part", tag="call"):
    """A function call by the assistant; `arguments` is JSON text."""

    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True, tag_field="part", tag="result"):
    """The output of a called function. It is rendered as a user message, as models expect."""

    output: str


Part = Text | Image | Sound | ToolCall | ToolResult


class Tool(msgspec.Struct, frozen=True):
    """A function the model may call. `parameters`: a JSON schema, as JSON text."""

    name: str
    description: str = ""
    parameters: str = "{}"


def call_item_id(answer_item_id: str, call: int) -> str:
    """The item id of call number `call` (from 0) of an answer, on both sides of the wire."""
    return f"{answer_item_id}_{call}"


class Item(msgspec.Struct, frozen=True):
    """One item of the conversation."""

    item_id: str
    role: Role
    parts: tuple[Part, ...]


class Span(msgspec.Struct, frozen=True):
    """One stage of work in wall time. Stages: mel, encode, project, read (what is written in a
    picture), queue, prefill, decode_first, detokenize."""

    stage: str
    start_ns: int
    end_ns: int


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts of one answer. `cached`: input tokens already in the KV cache at the endpoint,
    that is, the head start."""

    input_text: int = 0
    input_audio: int = 0
    input_image: int = 0
    cached: int = 0
    output: int = 0
    speculated: int = 0  # decoded before the endpoint was confirmed
    wasted: int = 0  # prefilled or decoded for this turn, then rolled back

    @property
    def input(self) -> int:
        return self.input_text + self.input_audio + self.input_image


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far back a session remembers: tokens behind the instructions, and picture tokens among
    them; 0: as many as possible. `retained`: the part of a bound that is kept when something is
    evicted. `summarise`: write a short summary before evicting."""

    tokens: int = 0
    vision_tokens: int = 0
    retained: float = 0.75
    summarise: bool = False


class KvStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session's share of the paged KV cache. `by_modality`: its tokens by modality (text, audio,
    image, generated). `adopted`: tokens whose K/V were reused from other sessions. `evicted`:
    tokens evicted so far because the session outgrew its `window`."""

    tokens: int = 0
    blocks: int = 0
    bytes: int = 0
    bytes_per_token: int = 0
    by_modality: dict[str, int] = msgspec.field(default_factory=dict)
    adopted: int = 0
    evicted: int = 0
    window: Window = Window()


class Move(msgspec.Struct, frozen=True):
    """A session moved from one LLM server to another, at `at_ns`. `why`: an error's code, or
    "draining". `tokens`: of its prompt, that the new one computes again. The same URL twice: that
    server was lost and came back."""

    from_url: str
    to_url: str
    why: str
    tokens: int
    at_ns: int


class FinishReason(StrEnum):
    """Why an answer is over; LENGTH: it reached the limit of its request or of its session."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    FAILED = "failed"


class Level(IntEnum):
    """How full the KV cache is, by the measures taken (see `engine.scheduling.admission`)."""

    CALM = 0
    DEGRADED = 1
    OFFLOADING = 2
    REFUSING = 3
