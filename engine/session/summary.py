"""Summaries of what the context window is about to evict, kept as items of the conversation.

Shortly before the window is full, the model is asked for a summary on a fork of the stream. The
fork shares all K/V, so the cost is the question and the answer. The summary is added at the
conversation's end, where nothing else has to be prefilled again. The next summary is written before
this one is evicted, and can take it into account.
"""

from __future__ import annotations

from headstart.engine import api
from headstart.engine.chat.render import Entry, Modality, RenderedPrompt, Segment
from headstart.engine.interfaces import ModelServices
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.conversation import Conversation
from headstart.engine.session.generation import Answer
from headstart.engine.session.items import NOTES_ID

REQUEST = (
    "Summarise in at most three short sentences what the user said, asked for and showed so far. "
    "Name names and numbers."
)
OPENING = "Notes on the conversation so far: "
SAMPLING = api.Sampling(max_tokens=96, max_sentences=3)
GENERATION = -(1 << 60)  # gateways count up from 0, and down from -1 out of band
# A summary is requested when the window is filled to this part; the rest leaves time to write it.
DUE = 0.9


class Summaries:
    """Requests and holds the summaries of one session."""

    def __init__(self, services: ModelServices, conversation: Conversation) -> None:
        self._services = services
        self._conversation = conversation
        self._written: list[Entry] = []
        self._asked_at: int | None = None  # evicted tokens at the last request: one per eviction

    def due(self, rendered: RenderedPrompt, evicted_tokens: int) -> bool:
        """Whether to request a summary now, given the current prompt."""
        window = self._conversation.window
        if not window.summarise or not rendered.items or self._asked_at == evicted_tokens:
            return False
        sink = rendered.items[0].lead
        if len(rendered.ids) - sink < DUE * window.behind(sink):
            return False
        self._asked_at = evicted_tokens
        return True

    def begin(self, stream: Stream) -> Answer:
        """Start writing a summary on a fork of `stream`."""
        fork = stream.fork(f"{stream.name}/summary")
        prompt = self._conversation.prompt(REQUEST)
        answer = Answer.begin(self._services, fork, prompt, SAMPLING)
        answer.generation, answer.out_of_band, answer.silent = GENERATION, True, True
        answer.sync_stream()
        return answer

    def keep(self, answer: Answer) -> None:
        """Hold a finished summary until it can be inserted."""
        text = answer.text.strip()
        if text and answer.finished in (api.FinishReason.STOP, api.FinishReason.LENGTH):
            ids = tuple(self._services.chat.later_system(OPENING + text))
            segment = Segment(Modality.TEXT, ids)
            self._written = [Entry(NOTES_ID, api.Role.SYSTEM, (segment,))]

    def forget(self) -> None:
        """Discard the held summary, since it may mention a removed item, and allow another."""
        self._written, self._asked_at = [], None

    def take(self) -> list[Entry]:
        """Remove and return the held summary, as entries."""
        written, self._written = self._written, []
        return written
