"""One answer while it is being decoded: speculated on a KV mark, adopted, sent, finished."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.api import FinishReason, Sampling, Span
from engine.conversation import Prompt
from engine.faculties import Faculties, Sampler, TextDecoder
from engine.layout import Chat
from engine.sentences import SentenceLimit
from engine.stop_strings import StopStrings
from engine.stream import Stream

# A speculated answer waits for its endpoint at this length: what a person hears of the first
# moment, while wasted work stays bounded when the speaker goes on after all.
SPECULATION_LIMIT_TOKENS = 24


@dataclass(slots=True)
class Answer:
    """State of one answer. `generation` None: speculative, nothing may be sent."""

    stream: Stream
    prompt: Prompt
    sampling: Sampling
    sampler: Sampler
    decoder: TextDecoder
    stop_ids: frozenset[int]
    stops: StopStrings
    sentences: SentenceLimit
    generation: int | None = None
    item_id: str = ""
    after: int = 0  # entries of the conversation that stand before this answer
    out_of_band: bool = False
    silent: bool = False  # for the session's own use: nobody is told
    cached_tokens: int = 0
    probe: int | None = None  # the place behind which the user's message may be over
    tokens: list[int] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)  # letters of `text` before each token
    text: str = ""  # decoded and past the stop-string guard
    sent_chars: int = 0
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
        cls, faculties: Faculties, stream: Stream, prompt: Prompt, sampling: Sampling
    ) -> Answer:
        """Raises `BadSampling`."""
        return cls(
            stream=stream,
            prompt=prompt,
            sampling=sampling,
            sampler=faculties.new_sampler(sampling),
            decoder=faculties.tokenizer.stream_decoder(),
            stop_ids=faculties.stop_ids,
            stops=StopStrings(sampling.stop),
            sentences=SentenceLimit(sampling.max_sentences),
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
        if self.text and self.first_text_ns is None:
            self.first_text_ns = now_ns

    def probe_end(self, chat: Chat) -> None:
        """Have the next step look behind the last word, too: how likely is the message over?

        The word's K/V are computed once more for it, in a step that is made anyway.
        """
        self.probe = len(self.prompt.ids) - len(chat.user_close) - len(chat.assistant_open) - 1
        self.stream.recompute(self.probe)

    def unsent(self) -> str:
        """Text that may be sent now; a speculative answer has none."""
        return "" if self.speculative else self.text[self.sent_chars :]

    def fail(self, code: str, message: str) -> None:
        self.finished, self.code, self.message = FinishReason.FAILED, code, message

    def tok_s(self) -> float | None:
        """Decode speed from first to last token; None when there is nothing to measure."""
        if self.first_token_ns is None or self.last_token_ns is None or len(self.tokens) < 2:
            return None
        took_s = (self.last_token_ns - self.first_token_ns) / 1e9
        return (len(self.tokens) - 1) / took_s if took_s > 0 else None

    def _add_text(self, piece: str) -> None:
        said = self.sentences.push(self.stops.push(piece))
        self.text += said
        if self.sentences.stopped:
            self._forget_unsaid()
        if self.stops.stopped or self.sentences.stopped:
            self.finished = FinishReason.STOP

    def _forget_unsaid(self) -> None:
        """Without the tokens that began the sentence that is not said."""
        while self.tokens and self._starts[-1] >= len(self.text):
            self.tokens.pop()
            self._starts.pop()

    def _finish_text(self, reason: FinishReason) -> None:
        self._add_text(self.decoder.flush())
        if self.finished is None:
            self.text += self.sentences.push(self.stops.finish())
            self.finished = reason
