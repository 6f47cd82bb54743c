"""What the engine tells the gateway."""

from __future__ import annotations

import msgspec

from headstart.engine.api.values import (
    SMALL_PICTURE,
    FinishReason,
    KvStats,
    Level,
    Message,
    PictureSize,
    Span,
    TurnRef,
    Usage,
)


class ModelInfo(msgspec.Struct, frozen=True):
    name: str
    context_tokens: int
    kv_bytes_per_token: int
    kv_pool_bytes: int
    weights_bytes: int
    load_s: float
    still: PictureSize = SMALL_PICTURE
    frame: PictureSize = SMALL_PICTURE  # of a camera


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


class StepStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps of the engine since the `Stats` before: how many, how long (ms; `busy_ms` is their sum,
    the percentiles are of the newest few thousand), and how much was in them. `sessions`: summed
    over the steps, those that a step worked for; `queue_max`: most sessions that had to wait for a
    later step."""

    count: int = 0
    busy_ms: float = 0.0
    p50_ms: float | None = None
    p95_ms: float | None = None
    max_ms: float | None = None
    prefill_tokens: int = 0
    decode_tokens: int = 0
    sessions: int = 0
    queue_max: int = 0

    @property
    def sessions_mean(self) -> float | None:
        """Sessions a step; None where there was none."""
        return self.sessions / self.count if self.count else None


class Stats(Message, frozen=True, tag="stats"):
    """Answer to `Ping`. `kv_blocks_cached`: held by nobody, kept for their content;
    `kv_tokens` of all sessions by modality, a shared one counted for each. `sessions_offloaded`:
    their K/V are in host memory, `offloaded_bytes` of it; `sessions_refused`, `offloads`,
    `returns`, `evicted_tokens` and the `speculated` tokens, which an answer began with or which
    were for nothing, count since the engine started. `recent_steps`: since the last `Stats`."""

    ping_sent_ns: int
    incarnation: str
    sessions: int
    kv_blocks_used: int
    kv_blocks_total: int
    rss_bytes: int
    pending_prefill_tokens: int
    steps: int
    kv_blocks_cached: int = 0
    kv_blocks_shared: int = 0
    kv_tokens: dict[str, int] = msgspec.field(default_factory=dict)
    level: Level = Level.CALM
    sessions_offloaded: int = 0
    offloaded_bytes: int = 0
    offloads: int = 0
    returns: int = 0
    sessions_refused: int = 0
    evicted_tokens: int = 0
    speculated_kept: int = 0
    speculated_wasted: int = 0
    recent_steps: StepStats = StepStats()


class Pressure(Message, frozen=True, tag="pressure"):
    """The KV cache is fuller, or emptier, than it was: from `DEGRADED` on send fewer frames."""

    session: str
    level: Level


class Hearing(Message, frozen=True, tag="hearing"):
    """Words so far: `committed` only grows within a turn, but where a final pass has other words;
    `tentative` may still change.

    `final`: of a short silence, no more follow unless speech resumes. `wordless`: these ears give
    embeddings, and there are never any words. `likely`: how likely the ears think that each of the
    first few words, as spaces part them, is right, 0..1; empty: they don't say.
    """

    session: str
    ref: TurnRef
    committed: str
    tentative: str
    at_sample: int
    final: bool = False
    wordless: bool = False
    likely: tuple[float, ...] = ()


class EndOfMessage(Message, frozen=True, tag="end_of_message"):
    """How sure the language model is, at a short silence, that the person has finished.

    `probability`: of the token that ends a user's message, right behind the words heard so far.
    """

    session: str
    ref: TurnRef
    at_sample: int
    probability: float


class Heard(Message, frozen=True, tag="heard"):
    """The utterance's final words (after `EndSpeech`). Not `transcribed`: the model heard sound,
    and nobody put it into words."""

    session: str
    ref: TurnRef
    item_id: str
    text: str
    audio_tokens: int
    transcribed: bool = True


class ClipHeard(Message, frozen=True, tag="clip_heard"):
    """A piece of a `Clip` was heard. Of the last one (`final`) come the clip's words, if there are
    any (see `Heard.transcribed`)."""

    session: str
    clip: str
    samples: int
    text: str = ""
    transcribed: bool = True
    final: bool = False


class ImagesConsumed(Message, frozen=True, tag="looked"):
    """Pictures of so many bytes, which came with commands, wait no more: they were looked at, or
    given up."""

    session: str
    bytes: int


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


class Call(Message, frozen=True, tag="call"):
    """A piece of a function call; an answer's calls come one after the other, behind its text.

    `call` counts them from 0. `arguments`: a piece of JSON text; with the last one the call is
    `done` and may be carried out. `spans`: as in `Delta`, if nothing was said before.
    """

    session: str
    generation: int
    call: int
    name: str
    arguments: str
    done: bool
    spans: tuple[Span, ...] = ()


class Finished(Message, frozen=True, tag="finished"):
    """The answer is over. `text` is what it says, without what it calls. `code` and `message` say
    why when the reason is failed."""

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
    """A command could not be carried out; the session goes on, unless it was its `open`. `about`
    names the command's op and `ref_id` its item or generation, where it has one. `retry_after_s`:
    when it is worth another try; 0: never."""

    session: str
    about: str
    code: str
    message: str
    ref_id: str = ""
    retry_after_s: float = 0.0


Event = (
    Loading
    | Ready
    | Stats
    | Pressure
    | Hearing
    | EndOfMessage
    | Heard
    | ClipHeard
    | ImagesConsumed
    | Chunk
    | Delta
    | Call
    | Finished
    | Failed
)
