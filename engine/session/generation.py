"""One answer while it is being decoded: speculated on, adopted, sent, finished; and its usage
report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headstart.engine import api
from headstart.engine.api import FinishReason, Sampling, Span, Tool, ToolChoice
from headstart.engine.chat.accounting import by_name, counted
from headstart.engine.chat.context_window import ContextWindow, Prompt
from headstart.engine.chat.render import Chat, Modality
from headstart.engine.chat.stopping import SentenceLimit, StopStrings
from headstart.engine.chat.tools import OPEN, CallPiece, CallReader
from headstart.engine.interfaces import ModelServices, Sampler, TextDecoder, Tokenizer
from headstart.engine.kvcache.token_stream import Stream

# A speculated answer waits for its endpoint at this length: what a person hears of the first
# moment, while wasted work stays bounded when the speaker goes on after all.
SPECULATION_LIMIT_TOKENS = 24


WORDS_ONLY = "Do not call a function now. Answer the user in one short, plain sentence."
"""What a small model has to be told that has functions in sight and must not call one."""


def words_only(respond: api.Respond, tools: Sequence[Tool]) -> str | None:
    """The instructions of one answer, with what it must not do, if there is something."""
    if respond.sampling.call is not ToolChoice.NONE or not (respond.tools or tools):
        return respond.instructions
    return "\n".join(filter(None, (respond.instructions, WORDS_ONLY)))


@dataclass(slots=True)
class Calling:
    """What an answer may call, and what is made of it. `forced`: the tokens it has to begin with;
    `banned`: what it must not begin with."""

    stops: StopStrings
    reader: CallReader
    forced: tuple[int, ...] = ()
    banned: frozenset[int] = frozenset()

    @classmethod
    def of(cls, sampling: Sampling, tools: Sequence[Tool], services: ModelServices) -> Calling:
        chat = services.chat
        names = {tool.name for tool in tools}
        if not names:
            return cls(StopStrings(sampling.stop), CallReader(()))
        if sampling.call is ToolChoice.NONE:
            # In the middle of an answer a call may begin all the same: there it stops.
            stops = StopStrings((*sampling.stop, OPEN))
            return cls(stops, CallReader(()), banned=chat.call_beginnings)
        meant = [tool for tool in tools if sampling.function in ("", tool.name)]
        must = sampling.call is ToolChoice.REQUIRED
        forced = tuple(chat.call_opening(meant[0] if len(meant) == 1 else None)) if must else ()
        return cls(StopStrings(sampling.stop), CallReader(names), forced)

    def choose(self, sampler: Sampler, logits: Tensor, said: Sequence[int]) -> tuple[int, ...]:
        """The next tokens behind those `said`: one, but for a beginning that is forced."""
        if self.forced:
            tokens, self.forced = self.forced, ()
            return tokens
        if self.banned and not said:
            logits = logits.clone()
            logits[list(self.banned)] = -torch.inf
        # JSON is made of repetitions: none is held against it.
        return (sampler.sample(logits, () if self.reader.inside else said),)


@dataclass(slots=True)
class Answer:
    """State of one answer. `generation` None: speculative, nothing may be sent."""

    stream: Stream
    prompt: Prompt
    sampling: Sampling
    sampler: Sampler
    decoder: TextDecoder
    stop_ids: frozenset[int]
    sentences: SentenceLimit
    calling: Calling
    generation: int | None = None
    item_id: str = ""
    out_of_band: bool = False
    silent: bool = False  # for the session's own use: nobody is told
    cached_tokens: int = 0
    probe: int | None = None  # the place behind which the user's message may be over
    tokens: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)  # letters of `text` before each token
    text: str = ""  # decoded and past the stop-string guard
    sent_chars: int = 0
    calls: list[CallPiece] = field(default_factory=list)  # a piece of one after the other
    sent_calls: int = 0
    speculated_tokens: int = 0
    spans: list[Span] = field(default_factory=list)
    first_token_ns: int | None = None
    first_text_ns: int | None = None
    last_token_ns: int | None = None
    finished: FinishReason | None = None
    code: str = ""
    message: str = ""

    @classmethod
    def begin(
        cls,
        services: ModelServices,
        stream: Stream,
        prompt: Prompt,
        sampling: Sampling,
        tools: Sequence[Tool] = (),
    ) -> Answer:
        """Raises `BadSampling`."""
        return cls(
            stream=stream,
            prompt=prompt,
            sampling=sampling,
            sampler=services.new_sampler(sampling),
            decoder=services.tokenizer.stream_decoder(),
            stop_ids=services.stop_ids,
            sentences=SentenceLimit(sampling.max_sentences),
            calling=Calling.of(sampling, tools, services),
        )

    @property
    def speculative(self) -> bool:
        return self.generation is None

    @property
    def paused(self) -> bool:
        """Decoded far enough ahead of an endpoint that may never come."""
        return self.speculative and len(self.tokens) >= SPECULATION_LIMIT_TOKENS

    @property
    def wants_steps(self) -> bool:
        return self.finished is None and not self.paused

    def matches(self, prompt: Prompt, sampling: Sampling) -> bool:
        """Whether an answer to `prompt` would be this one, token for token.

        A sampled answer without a seed is as good as any other, so only the settings count.
        """
        return self.sampling == sampling and self.prompt.ids == prompt.ids

    def take(self, token: int, now_ns: int) -> None:
        """One sampled token. Sets `finished` at a stop token, stop string or the limit."""
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

    def go_on(self, tokens: Sequence[int]) -> None:
        """Have the stream read `tokens`, which were taken, too; where it has no room for them the
        answer ends, at its length."""
        if len(self.stream) + len(tokens) > self.stream.limit:
            self._finish_text(FinishReason.LENGTH)
            return
        self.stream.append(tokens, kinds=bytes((Modality.GENERATED,)) * len(tokens))

    def sync_stream(self) -> None:
        """Have the stream read the prompt, with its last token still to be computed: what follows
        is drawn from that. An answer that was given up leaves the whole prompt in the cache."""
        self.stream.reconcile(self.prompt.ids, kinds=self.prompt.kinds)
        if not self.stream.pending:
            self.stream.recompute(len(self.stream) - 1)

    def probe_end(self, chat: Chat) -> None:
        """Have the next step look behind the last word, too: how likely is the message over?

        The word's K/V are computed once more for it, in a step that is made anyway. Where nothing
        closes a message in the template there is nothing to ask.
        """
        if not chat.user_close:
            return
        self.probe = len(self.prompt.ids) - len(chat.user_close) - len(chat.assistant_open) - 1
        self.stream.recompute(self.probe)

    def unsent(self) -> str:
        """Text that may be sent now; a speculative answer has none."""
        return "" if self.speculative else self.text[self.sent_chars :]

    def unsent_calls(self, session: str, spans: tuple[Span, ...]) -> list[api.Call]:
        """What it called since the last time; the first one carries the `spans`."""
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
    def has_begun(self) -> bool:
        """Whether a client has got anything of it."""
        return self.sent_chars > 0 or self.sent_calls > 0

    def called(self, call: int) -> api.ToolCall:
        """A call that is whole."""
        pieces = [piece for piece in self.calls if piece.call == call]
        return api.ToolCall(pieces[0].name, "".join(piece.arguments for piece in pieces))

    def said(self, tokenizer: Tokenizer) -> list[int]:
        """The tokens of its text, as far as that has come: what was held back is not said."""
        if self.calls:
            return tokenizer.encode(self.text)
        self._forget_unsaid()
        return self.tokens

    def fail(self, code: str, message: str) -> None:
        self.finished, self.code, self.message = FinishReason.FAILED, code, message

    def tok_s(self) -> float | None:
        """Decode speed from first to last token; None when there is nothing to measure."""
        if self.first_token_ns is None or self.last_token_ns is None or len(self.tokens) < 2:
            return None
        took_s = (self.last_token_ns - self.first_token_ns) / 1e9
        return (len(self.tokens) - 1) / took_s if took_s > 0 else None

    def _add_text(self, piece: str) -> None:
        text, calls = self.calling.reader.push(self.calling.stops.push(piece))
        self.calls += calls
        self.text += self.sentences.push(text)
        if self.sentences.stopped:
            self._forget_unsaid()
        if self.calling.stops.stopped or self.sentences.stopped or self.calling.reader.over:
            self.finished = FinishReason.STOP
        self._fail_if_broken()

    def _forget_unsaid(self) -> None:
        """Without the tokens that began the sentence that is not said."""
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
        if self.calling.reader.broken:
            why = f"The model was to call a function, but {self.calling.reader.broken}."
            self.fail("tool_call_malformed", why)


def usage_of(answer: Answer, wasted_tokens: int) -> api.Usage:
    """An answer's tokens by what they stood for."""
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


def kv_stats_of(stream: Stream, bytes_per_token: int, window: ContextWindow) -> api.KvStats:
    """What a stream has in the cache now, what it took over and forgot."""
    return api.KvStats(
        tokens=stream.kv_len,
        blocks=len(stream.kv_blocks),
        bytes=stream.kv_len * bytes_per_token,
        bytes_per_token=bytes_per_token,
        by_modality=by_name(counted(stream.kv_kinds)),
        adopted=stream.adopted_tokens,
        evicted=stream.evicted_tokens,
        window=window.to_api(),
    )


def unbegun(session: str, generation: int, kv: api.KvStats) -> api.Finished:
    """Of an answer that was cancelled before anything was done for it."""
    cancelled = api.FinishReason.CANCELLED
    return api.Finished(session, generation, cancelled, text="", usage=api.Usage(), kv=kv)
