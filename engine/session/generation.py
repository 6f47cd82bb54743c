"""One answer while it is decoded: speculated, adopted, sent and finished; and its usage report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headstart.engine import api
from headstart.engine.api import FinishReason, Sampling, Span, Tool, ToolChoice
from headstart.engine.chat.accounting import count_kinds, named_counts
from headstart.engine.chat.context_window import ContextWindow, Prompt
from headstart.engine.chat.render import Chat, Modality
from headstart.engine.chat.stopping import SentenceLimit, StopStrings
from headstart.engine.chat.tools import OPEN, CallPiece, CallReader
from headstart.engine.interfaces import ModelServices, Sampler, TextDecoder, Tokenizer
from headstart.engine.kvcache.token_stream import Stream

# Limit of a speculated answer: as much as is heard in the first moment, while the work wasted when
# the speaker goes on stays bounded.
SPECULATION_LIMIT_TOKENS = 24


TOLD_CHARS = 240
"""A speculated answer is told up to about here: no first clause is longer."""


WORDS_ONLY = "Do not call a function now. Answer the user in one short, plain sentence."
"""Told to a small model that has tools in its prompt and must not call one."""


def answer_instructions(respond: api.Respond, tools: Sequence[Tool]) -> str | None:
    """The instructions of one answer; with `WORDS_ONLY` if tools are known but forbidden."""
    if respond.sampling.call is not ToolChoice.NONE or not (respond.tools or tools):
        return respond.instructions
    return "\n".join(filter(None, (respond.instructions, WORDS_ONLY)))


@dataclass(slots=True)
class ToolCalling:
    """The calls an answer may make, and the parser of those it makes. `forced`: tokens the answer
    must begin with; `banned`: tokens it must not begin with."""

    stops: StopStrings
    reader: CallReader
    forced: tuple[int, ...] = ()
    banned: frozenset[int] = frozenset()

    @classmethod
    def of(cls, sampling: Sampling, tools: Sequence[Tool], services: ModelServices) -> ToolCalling:
        chat = services.chat
        names = {tool.name for tool in tools}
        if not names:
            return cls(StopStrings(sampling.stop), CallReader(()))
        if sampling.call is ToolChoice.NONE:
            # A call may still begin inside the answer; it stops there.
            stops = StopStrings((*sampling.stop, OPEN))
            return cls(stops, CallReader(()), banned=chat.call_beginnings)
        meant = [tool for tool in tools if sampling.function in ("", tool.name)]
        must = sampling.call is ToolChoice.REQUIRED
        forced = tuple(chat.call_opening(meant[0] if len(meant) == 1 else None)) if must else ()
        return cls(StopStrings(sampling.stop), CallReader(names), forced)

    def take_forced(self) -> tuple[int, ...]:
        """The tokens the answer must begin with, once."""
        tokens, self.forced = self.forced, ()
        return tokens

    def limits(self, said: Sequence[int]) -> tuple[Sequence[int], frozenset[int]]:
        """For the token behind `said`, where none is forced: the context of the repetition penalty,
        and the tokens that it must not be."""
        # JSON repeats tokens by nature: no repetition penalty inside a call.
        context = () if self.reader.in_call else said
        return context, frozenset() if said else self.banned


@dataclass(slots=True)
class Answer:
    """State of one answer. While `generation` is None it is speculative and nothing is sent."""

    stream: Stream
    prompt: Prompt
    sampling: Sampling
    sampler: Sampler
    decoder: TextDecoder
    stop_ids: frozenset[int]
    sentences: SentenceLimit
    calling: ToolCalling
    generation: int | None = None
    item_id: str = ""
    out_of_band: bool = False
    silent: bool = False  # for the session itself; no events are sent
    cached_tokens: int = 0
    probe: int | None = None  # stream index at which the end of the message is predicted
    told_as: api.TurnRef | None = None  # while speculative: its text is told under this name
    _told: tuple[int, bool] = (0, False)  # how much of the text, and whether that was all
    tokens: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)  # length of `text` before each token
    text: str = ""  # decoded and past the stop-string check
    sent_chars: int = 0
    calls: list[CallPiece] = field(default_factory=list)  # pieces of all calls, in order
    sent_calls: int = 0
    speculated_tokens: int = 0
    spans: list[Span] = field(default_factory=list)
    first_token_ns: int | None = None
    first_text_ns: int | None = None
    last_token_ns: int | None = None
    finished: FinishReason | None = None
    code: str = ""
    message: str = ""
    read: tuple[tuple[str, ...] | None, ...] | None = None  # as in `api.Finished`

    @classmethod
    def begin(
        cls,
        services: ModelServices,
        stream: Stream,
        prompt: Prompt,
        sampling: Sampling,
        tools: Sequence[Tool] = (),
    ) -> Answer:
        """A new answer to `prompt`. Raises `BadSampling`."""
        return cls(
            stream=stream,
            prompt=prompt,
            sampling=sampling,
            sampler=services.new_sampler(sampling),
            decoder=services.tokenizer.stream_decoder(),
            stop_ids=services.stop_ids,
            sentences=SentenceLimit(sampling.max_sentences),
            calling=ToolCalling.of(sampling, tools, services),
        )

    @property
    def speculative(self) -> bool:
        return self.generation is None

    @property
    def paused(self) -> bool:
        """Whether speculation has decoded as far as it may."""
        return self.speculative and len(self.tokens) >= SPECULATION_LIMIT_TOKENS

    @property
    def wants_steps(self) -> bool:
        return self.finished is None and not self.paused

    def matches(self, prompt: Prompt, sampling: Sampling) -> bool:
        """Whether an answer to `prompt` would have the same tokens as this one.

        Sampling without a seed is not repeatable, so there only the settings are compared.
        """
        return self.sampling == sampling and self.prompt.ids == prompt.ids

    def take(self, token: int, now_ns: int) -> None:
        """Add a sampled token. Sets `finished` at a stop token, a stop string or the limit."""
        if self.first_token_ns is None:
            self.first_token_ns = now_ns
        self.last_token_ns = now_ns
        if token in self.stop_ids:
            self._finish_text(FinishReason.STOP)
            return
        self.tokens.append(token)
        self._starts.append(len(self.text))
        if self.speculative:
            self.speculated_tokens += 1
        self._add_text(self.decoder.feed(token))
        if self.finished is None and len(self.tokens) >= self.sampling.max_tokens:
            self._finish_text(FinishReason.LENGTH)
        if (self.text or self.calls) and self.first_text_ns is None:
            self.first_text_ns = now_ns

    def take_all(self, tokens: Sequence[int], now_ns: int) -> None:
        """Add sampled tokens, to the answer and to its stream."""
        for token in tokens:
            self.take(token, now_ns)
        if self.finished is None:
            self.extend_stream(tokens)

    def end(self, reason: FinishReason) -> None:
        """Finish, without a further token: the decoder has ended the answer by itself."""
        self._finish_text(reason)

    def extend_stream(self, tokens: Sequence[int]) -> None:
        """Append `tokens` to the stream. Where the stream has no room the answer is finished
        instead."""
        if len(self.stream) + len(tokens) > self.stream.room:
            self._finish_text(FinishReason.LENGTH)
            return
        self.stream.append(tokens, kinds=bytes((Modality.GENERATED,)) * len(tokens))

    def sync_stream(self) -> None:
        """Make the stream read the prompt with its last token pending, since the first answer token
        is sampled from that token's logits."""
        self.stream.reconcile(self.prompt.ids, kinds=self.prompt.kinds)
        if not self.stream.pending:
            self.stream.recompute(len(self.stream) - 1)

    def probe_end(self, chat: Chat) -> None:
        """Also compute logits behind the last word and before its last token: the probability that
        the message ends there, and that of the mark which ends its sentence.

        The K/V of both are recomputed, in a step that runs anyway. Does nothing for a template that
        closes no messages.
        """
        if not chat.user_close:
            return
        self.probe = len(self.prompt.ids) - len(chat.user_close) - len(chat.assistant_open) - 1
        self.stream.recompute(max(self.probe - 1, 0))

    def untold(self, session: str) -> api.Prepared | None:
        """What it says so far, if that is to be told while nobody has asked for it, and is news. An
        answer that calls functions has no first sound to prepare."""
        now = len(self.text), self.finished is not None
        if self.told_as is None or self.calls or not self.text or now == self._told:
            return None
        if self._told[0] > TOLD_CHARS:
            return None  # enough for a first clause
        self._told = now
        return api.Prepared(session, self.told_as, self.text, complete=now[1])

    def unsent(self) -> str:
        """Text that may be sent now; none while speculative."""
        return "" if self.speculative else self.text[self.sent_chars :]

    def unsent_calls(self, session: str, spans: tuple[Span, ...]) -> list[api.Call]:
        """Call pieces since the last time; the first carries `spans`."""
        assert self.generation is not None
        new, self.sent_calls = self.calls[self.sent_calls :], len(self.calls)
        sent = []
        for piece in new:
            name, arguments = piece.name, piece.arguments
            sent.append(
                api.Call(session, self.generation, piece.call, name, arguments, piece.done, spans)
            )
            spans = ()
        return sent

    @property
    def has_sent(self) -> bool:
        """Whether a client has received any of it."""
        return self.sent_chars > 0 or self.sent_calls > 0

    def complete_call(self, call: int) -> api.ToolCall:
        """A complete call."""
        pieces = [piece for piece in self.calls if piece.call == call]
        return api.ToolCall(pieces[0].name, "".join(piece.arguments for piece in pieces))

    def text_tokens(self, tokenizer: Tokenizer) -> list[int]:
        """The tokens of the answer's text; text that was held back is not part of it."""
        if self.calls:
            return tokenizer.encode(self.text)
        self._drop_cut_tokens()
        return self.tokens

    def fail(self, code: str, message: str) -> None:
        """Finish with an error."""
        self.finished, self.code, self.message = FinishReason.FAILED, code, message

    def tok_s(self) -> float | None:
        """Decode speed in tokens per second; None with fewer than two tokens."""
        if self.first_token_ns is None or self.last_token_ns is None or len(self.tokens) < 2:
            return None
        took_s = (self.last_token_ns - self.first_token_ns) / 1e9
        return (len(self.tokens) - 1) / took_s if took_s > 0 else None

    def _add_text(self, piece: str) -> None:
        text, calls = self.calling.reader.push(self.calling.stops.push(piece))
        self.calls += calls
        self.text += self.sentences.push(text)
        if self.sentences.stopped:
            self._drop_cut_tokens()
        if self.calling.stops.stopped or self.sentences.stopped or self.calling.reader.ended:
            self.finished = FinishReason.STOP
        self._fail_if_broken()

    def _drop_cut_tokens(self) -> None:
        """Drop the tokens of a sentence that was cut off."""
        while self.tokens and self._starts[-1] >= len(self.text):
            self.tokens.pop()
            self._starts.pop()

    def _finish_text(self, reason: FinishReason) -> None:
        self._add_text(self.decoder.flush())
        if self.finished is None:
            text, calls = self.calling.reader.push(self.calling.stops.finish())
            held, last = self.calling.reader.finish()
            self.calls += calls + last
            self.text += self.sentences.push(text + held)
            self.finished = reason
        self._fail_if_broken()

    def _fail_if_broken(self) -> None:
        if self.calling.reader.error:
            why = f"The model should have called a function, but {self.calling.reader.error}."
            self.fail("tool_call_malformed", why)


def usage_of(answer: Answer, wasted_tokens: int) -> api.Usage:
    """Token usage of an answer by modality."""
    prompt = answer.prompt
    audio, image = prompt.counts[Modality.AUDIO], prompt.counts[Modality.IMAGE]
    return api.Usage(
        input_text=len(prompt.ids) - audio - image,
        input_audio=audio,
        input_image=image,
        cached=answer.cached_tokens,
        output=len(answer.tokens),
        speculated=answer.speculated_tokens,
        wasted=wasted_tokens,
    )


def kv_stats_of(stream: Stream, services: ModelServices, window: ContextWindow) -> api.KvStats:
    """Cache statistics of a stream."""
    bytes_per_token, narrow = services.kv_bytes_per_token, stream.narrow_tokens
    return api.KvStats(
        tokens=stream.kv_len,
        blocks=len(stream.kv_blocks),
        bytes=(stream.kv_len - narrow) * bytes_per_token
        + narrow * services.kv_narrow_bytes_per_token,
        bytes_per_token=bytes_per_token,
        by_modality=named_counts(count_kinds(stream.kv_kinds)),
        adopted=stream.adopted_tokens,
        evicted=stream.evicted_tokens,
        window=window.to_api(),
    )


def cancelled_unstarted(session: str, generation: int, kv: api.KvStats) -> api.Finished:
    """The event for an answer that was cancelled before it began."""
    cancelled = api.FinishReason.CANCELLED
    return api.Finished(session, generation, cancelled, text="", usage=api.Usage(), kv=kv)
