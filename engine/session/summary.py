"""A conversation's own memory of what it is about to forget: a few sentences, kept as an item.

Shortly before the window is full, the model is asked for a summary, beside the conversation: on a
fork of its stream, which shares all K/V that are there, so it costs the question and the answer.
The summary is put at the conversation's end, where it costs no prefill of anything else, and it is
in the next one's sight before it is old enough to go.
"""

from __future__ import annotations

from headstart.engine import api
from headstart.engine.chat.render import Entry, Modality, RenderedPrompt, Segment
from headstart.engine.interfaces import ModelServices
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.conversation import NOTES_ID, Conversation
from headstart.engine.session.generation import Answer

REQUEST = (
    "Summarise in at most three short sentences what the user said, asked for and showed so far. "
    "Name names and numbers."
)
OPENING = "Notes on the conversation so far: "
SAMPLING = api.Sampling(max_tokens=96, max_sentences=3)
GENERATION = -(1 << 60)  # gateways count up from 0, and down from -1 beside the conversation
# The part of the window that is filled when a summary is asked for: the rest is time to write it.
DUE = 0.9


class Summaries:
    """When one session writes summaries, and what becomes of them."""

    def __init__(self, services: ModelServices, conversation: Conversation) -> None:
        self._services = services
        self._talk = conversation
        self._written: list[Entry] = []
        self._asked_at: int | None = None  # tokens evicted by then: one summary for each eviction

    def due(self, rendered: RenderedPrompt, evicted_tokens: int) -> bool:
        """Whether to write one now, of what is laid out."""
        window = self._talk.window
        if not window.summarise or not rendered.places or self._asked_at == evicted_tokens:
            return False
        sink = rendered.places[0].lead
        if len(rendered.ids) - sink < DUE * window.behind(sink):
            return False
        self._asked_at = evicted_tokens
        return True

    def begin(self, stream: Stream) -> Answer:
        """Have one written on a fork of `stream`."""
        fork = stream.fork(f"{stream.name}/summary")
        prompt = self._talk.prompt(REQUEST)
        answer = Answer.begin(self._services, fork, prompt, SAMPLING)
        answer.generation, answer.out_of_band, answer.silent = GENERATION, True, True
        answer.sync_stream()
        return answer

    def keep(self, answer: Answer) -> None:
        """Take what was written, until there is a place for it."""
        text = answer.text.strip()
        if text and answer.finished in (api.FinishReason.STOP, api.FinishReason.LENGTH):
            ids = tuple(self._services.chat.system(OPENING + text))
            segment = Segment(Modality.TEXT, ids)
            self._written = [Entry(NOTES_ID, api.Role.SYSTEM, (segment,))]

    def forget(self) -> None:
        """What was written may tell of an item that is removed now: write another."""
        self._written, self._asked_at = [], None

    def take(self) -> list[Entry]:
        """What was written since the last call, as an item."""
        written, self._written = self._written, []
        return written
