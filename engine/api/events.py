"""Events: what the engine sends to the gateway."""

from __future__ import annotations

import msgspec

from headstart.engine.api.values import (
    SMALL_PICTURE,
    FinishReason,
    KvStats,
    Level,
    Message,
    Move,
    PictureSize,
    Span,
    TurnRef,
    Usage,
)


class ModelInfo(msgspec.Struct, frozen=True):
    """The loaded model. `still` and `frame`: the largest useful picture, sent or from a camera.
    `pooled_frame`: the tokens that a camera frame can be pooled to (`Image.max_tokens`); 0: none.
    `ears`: the Whisper that transcribes, empty if there is none; `ears_reason`: why this one was
    chosen, if that was measured (`--ears auto`). `llm_server`: what the LLM server that decodes can
    do, in words by name; empty with our own decoder. `device`: where our own decodes, "cpu" or
    "cuda:N", and `device_reason`: why there; `ears_device`: where `ears` runs. `load_stages_s`:
    what loading took, by stage, where that is measured; stages may overlap."""

    name: str
    context_tokens: int
    kv_bytes_per_token: int
    kv_pool_bytes: int
    weights_bytes: int
    load_s: float
    still: PictureSize = SMALL_PICTURE
    frame: PictureSize = SMALL_PICTURE
    pooled_frame: int = 0
    ears: str = ""
    ears_reason: str = ""
    llm_server: dict[str, str] = msgspec.field(default_factory=dict)
    load_stages_s: dict[str, float] = msgspec.field(default_factory=dict)
    device: str = ""
    device_reason: str = ""
    ears_device: str = ""


LIBRARIES = "libraries"
"""What an engine loads first. Whatever else it loads, it has taken its settings before."""


class Loading(Message, frozen=True, tag="loading"):
    """Start-up progress; `total` 0: unknown. `engine`: as in `Ready`."""

    what: str
    done: int
    total: int
    engine: str = ""


class Ready(Message, frozen=True, tag="ready"):
    """The engine takes sessions. `incarnation` differs after each restart; sessions opened with
    another incarnation are lost and must be opened again. `engine`: its name among those of one
    gateway, empty if it has none of its own; `machine`: whose monotonic clock it reads
    (`machine_id`); `pid`: its process there; 0: unknown."""

    incarnation: str
    model: ModelInfo
    engine: str = ""
    machine: str = ""
    pid: int = 0


class Draining(Message, frozen=True, tag="draining"):
    """The engine takes no more sessions. It ends when the gateway tells it to `Leave`."""


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


STEP_SECONDS_LE = (
    *(0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.25),
    *(0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.5, 5.0, 10.0),
)
STEP_TOKENS_LE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
STEP_SESSIONS_LE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


class Counts(msgspec.Struct, frozen=True):
    """How many values lay in each bucket: up to its edge, above the one before; the last bucket is
    for those above all edges. `sum`: of the values."""

    buckets: list[int]
    sum: float


class StepTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """All steps since the engine started. `seconds` (edges: `STEP_SECONDS_LE`) by what was in the
    step: prefill, decode, mixed or other; `tokens` (`STEP_TOKENS_LE`) of steps that had any, by
    phase: prefill or decode; `sessions` (`STEP_SESSIONS_LE`): those that a step worked for."""

    seconds: dict[str, Counts] = msgspec.field(default_factory=dict)
    tokens: dict[str, Counts] = msgspec.field(default_factory=dict)
    sessions: Counts | None = None


class LlmServerTotals(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the LLM server was asked since the engine started.

    `requests` sent and `cancelled` (given up before their end), by kind: `warm_up` (a prompt sent
    ahead), `answer` or `end_probe` (how likely the message ends). `prompt_tokens`: of requests that
    are over, by kind, then by what became of them: `computed`, `cached`, or `unknown` where the
    server did not tell or the request was cancelled. `failures` by the error's code, those that
    were tried again (`retries`) too.
    """

    requests: dict[str, int] = msgspec.field(default_factory=dict)
    cancelled: dict[str, int] = msgspec.field(default_factory=dict)
    prompt_tokens: dict[str, dict[str, int]] = msgspec.field(default_factory=dict)
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    retries: int = 0


class LlmServerStatus(msgspec.Struct, frozen=True):
    """One LLM server. `state`: ready, draining (no new sessions) or down, with the `reason`;
    `retry_in_ms`: when it is asked again. `sessions`: that are there now. `in_flight`: our
    requests. `waiting` (requests) and `kv_share` (of its K/V memory, 0 to 1) are what it tells,
    None if it does not. The others count since the engine started: `faults` of the server,
    `retries` of answers, and sessions that moved away (`sessions_left`)."""

    url: str
    state: str
    reason: str = ""
    sessions: int = 0
    in_flight: int = 0
    waiting: int | None = None
    kv_share: float | None = None
    retry_in_ms: int = 0
    answers: int = 0
    warm_ups: int = 0
    retries: int = 0
    faults: int = 0
    sessions_left: int = 0


class Stats(Message, frozen=True, tag="stats"):
    """Answer to `Ping`.

    `kv_blocks_cached`: blocks without a holder, kept for their content. `kv_tokens`: tokens of all
    sessions by modality; a shared one counts for each. `sessions_offloaded`: sessions with their
    K/V in host memory, which take `offloaded_bytes`. `sessions_refused`, `offloads`, `returns`
    (restored sessions), `evicted_tokens` and the `speculated` tokens (kept: an answer began with
    them; wasted: it did not) count since the engine started. `recent_steps`: since the last
    `Stats`. `llm_server`: None with our own decoder; `llm_servers`: those that decode, none with
    our own decoder. `now_ns`: when it was sent, on the engine's clock; 0: unknown.
    """

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
    step_totals: StepTotals = StepTotals()
    llm_servers: list[LlmServerStatus] = msgspec.field(default_factory=list)
    llm_server: LlmServerTotals | None = None
    now_ns: int = 0


class Pressure(Message, frozen=True, tag="pressure"):
    """The level of the KV cache changed. From `DEGRADED` on, send fewer frames."""

    session: str
    level: Level


class Hearing(Message, frozen=True, tag="hearing"):
    """The words so far. `committed` only grows within a turn, except where speech is heard again,
    in a final pass or behind a pause; `tentative` may still change.

    `final`: the result of a final pass; no more follow unless speech resumes. `wordless`: the
    recogniser gives embeddings, and there are never any words. `continued`: the words begin with
    those of the utterance before (`ContinueSpeech`). `likely`: estimated probability
    that each of the first few words (split at spaces) is right, 0..1; empty: no estimate.
    """

    session: str
    ref: TurnRef
    committed: str
    tentative: str
    at_sample: int
    final: bool = False
    wordless: bool = False
    likely: tuple[float, ...] = ()
    continued: bool = False


class EndOfMessage(Message, frozen=True, tag="end_of_message"):
    """The language model's estimate, at a short silence, that the user has finished.

    `probability`: of the token that ends a user's message, right behind the words so far.
    `mark_probability`: where the words end with a mark (. ? !), how likely the model itself finds
    one there, or the end. The recogniser ends "Put milk." and "What is the capital of?" with a mark
    too, and behind it the end is likely. None: there is no mark, or nothing is known of it.
    """

    session: str
    ref: TurnRef
    at_sample: int
    probability: float
    mark_probability: float | None = None


class Prepared(Message, frozen=True, tag="prepared"):
    """What an answer that was begun at a short silence says so far, for a voice that makes its
    first sound meanwhile. `text`: all of it. `complete`: the answer ends there. Nobody has asked
    for it yet, and nobody may: it is to be sent to no client."""

    session: str
    ref: TurnRef
    text: str
    complete: bool = False


class Heard(Message, frozen=True, tag="heard"):
    """The utterance's final words, after `EndSpeech`. `transcribed` False: the model takes sound
    directly, and there is no transcript."""

    session: str
    ref: TurnRef
    item_id: str
    text: str
    audio_tokens: int
    transcribed: bool = True


class ClipHeard(Message, frozen=True, tag="clip_heard"):
    """A piece of a `Clip` was recognised. With the last one (`final`) come the clip's words, if
    there are any (see `Heard.transcribed`)."""

    session: str
    clip: str
    samples: int
    text: str = ""
    transcribed: bool = True
    final: bool = False


class ImagesConsumed(Message, frozen=True, tag="looked"):
    """Pictures with that many bytes, which came with commands, wait no longer: they were encoded
    or dropped."""

    session: str
    bytes: int


class Chunk(Message, frozen=True, tag="chunk"):
    """What one audio chunk cost: stage times in ms against the chunk's own duration."""

    session: str
    ref: TurnRef
    start_sample: int
    samples: int
    stages_ms: dict[str, float]
    latency_ms: float  # from `received_ns` until its words were in the KV cache
    prefilled_tokens: int
    rolled_back_tokens: int


class Delta(Message, frozen=True, tag="delta"):
    """A piece of an answer's text. The first one has the spans of the work up to it."""

    session: str
    generation: int
    text: str
    at_ns: int
    spans: tuple[Span, ...] = ()


class Call(Message, frozen=True, tag="call"):
    """A piece of a function call. An answer's calls come one after the other, behind its text.

    `call` counts them from 0. `arguments`: a piece of JSON text; with the last piece the call is
    `done` and may be carried out. `spans`: as in `Delta`, if no text was sent before.
    """

    session: str
    generation: int
    call: int
    name: str
    arguments: str
    done: bool
    spans: tuple[Span, ...] = ()


class Finished(Message, frozen=True, tag="finished"):
    """An answer is over. `text` is all of its text, without function calls. `code` and `message`
    give the cause if the reason is failed. `moves`: of the session, since the answer before.
    `read`: the lines that were read in each picture of an out-of-band answer's own items, in order,
    None for one that was not read in time; None where nobody reads."""

    session: str
    generation: int
    reason: FinishReason
    text: str
    usage: Usage
    kv: KvStats
    decode_tok_s: float | None = None
    code: str = ""
    message: str = ""
    moves: tuple[Move, ...] = ()
    read: tuple[tuple[str, ...] | None, ...] | None = None


class Moved(Message, frozen=True, tag="moved"):
    """The session is at another LLM server now."""

    session: str
    move: Move


class Failed(Message, frozen=True, tag="failed"):
    """A command failed; the session goes on, unless the command was its `open`. `about`: the
    command's op. `ref_id`: its item or generation, if it has one. `retry_after_s`: when another
    attempt may succeed; 0: never."""

    session: str
    about: str
    code: str
    message: str
    ref_id: str = ""
    retry_after_s: float = 0.0


Event = (
    Loading
    | Ready
    | Draining
    | Stats
    | Pressure
    | Hearing
    | EndOfMessage
    | Prepared
    | Heard
    | ClipHeard
    | ImagesConsumed
    | Chunk
    | Delta
    | Call
    | Finished
    | Moved
    | Failed
)
