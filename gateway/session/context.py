"""What the parts of one session share: settings, items, whose turn it is, and the way out."""

from __future__ import annotations

import logging

from headstart.engine import api
from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.gateway.config import Settings
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.events import Events
from headstart.gateway.protocol.extensions import Endpointing, GatewayEventName, Interruption
from headstart.gateway.protocol.ids import IdMaker
from headstart.gateway.protocol.images import within
from headstart.gateway.protocol.items import Json
from headstart.gateway.protocol.session_config import SessionConfig
from headstart.gateway.session.actions import (
    Action,
    ClearPlayout,
    Play,
    Send,
    SendToEngine,
    SendToTts,
)
from headstart.gateway.session.conversation import Conversation
from headstart.gateway.session.tools import calling_of
from headstart.gateway.session.turns import TurnMachine
from headstart.gateway.telemetry.latency import BudgetError, ChunkBudget, ChunkSummary
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.telemetry.observer import Observer, Observers
from headstart.gateway.tts.messages import Speak, Stop

log = logging.getLogger("headstart.session")

# Of one event's pictures at most so many have all the pixels that `image_max_pixels` allows one.
STILLS_AT_ONCE = 4


class SessionContext:
    """Shared by the parts of one session."""

    def __init__(
        self,
        session_id: str,
        settings: Settings,
        config: SessionConfig,
        ids: IdMaker,
        metrics: Metrics,
        engine_up: bool,
        observer: Observer | None = None,
    ) -> None:
        self.session_id = session_id
        self.settings = settings
        self.config = config
        self.ids = ids
        self.metrics = metrics
        self.observer = metrics if observer is None else Observers(metrics, observer)
        self.engine_up = engine_up
        self._sizes = SMALL_PICTURE, SMALL_PICTURE  # until an engine says more
        self.events = Events(ids)
        self.conversation = Conversation()
        self.turns = TurnMachine()
        self.chunks = ChunkSummary()
        self.conversation_id = ids.conversation()
        self._out: list[Action] = []

    # --- the way out -----------------------------------------------------------------------------

    def send(self, event: Json, *, wants_sent_stamp: bool = False) -> None:
        self._out.append(Send(event, wants_sent_stamp))

    def send_ours(self, name: GatewayEventName, event: Json) -> None:
        """One of our own events, if the session asked for its kind."""
        if self.wants(name):
            self.send(event)

    def wants(self, name: GatewayEventName) -> bool:
        options = self.config.gateway
        return options is not None and name in (options.events or ())

    def tell(self, command: api.Command) -> None:
        self._out.append(SendToEngine(command))

    def send_to_tts(self, command: Speak | Stop) -> None:
        self._out.append(SendToTts(command))

    def play(
        self, event: Json, pcm: bytes, encoded: bytes | None, *, wants_sent_stamp: bool = False
    ) -> None:
        self._out.append(Play(event, pcm, encoded, wants_sent_stamp))

    def clear_playout(self) -> None:
        self._out.append(ClearPlayout())

    def act(self, action: Action) -> None:
        """Anything else that the shell shall do."""
        self._out.append(action)

    def chunk_budget(self, chunk: api.Chunk) -> ChunkBudget | None:
        """What a chunk cost; None, and counted, where the engine's account of it is impossible."""
        try:
            return ChunkBudget.from_chunk(chunk)
        except BudgetError as error:
            self.impossible(error)
            return None

    def impossible(self, error: BudgetError) -> None:
        """Stamps of a turn or a chunk contradict each other: no reason to end a conversation."""
        log.warning("session %s: %s", self.session_id, error)
        self.error("latency_stamps", str(error))

    def error(self, code: str, message: str) -> None:
        """Count an error, and tell who watches. `message` holds nothing that was said."""
        self.observer.error(code, message, self.session_id)

    def refused(self, error: ProtocolError) -> None:
        """The same of a client's event. Its message repeats what the client sent, which is for
        those who may see what is said."""
        told = str(error) if self.settings.dashboard_content else "A client's event was refused."
        self.error(error.code or "none", told)

    def report_chunk(self, chunk: api.Chunk, budget: ChunkBudget, item_id: str | None) -> None:
        """What a chunk of the utterance `item_id` cost: into the sums and to the client."""
        self.chunks.add(budget)
        self.send_ours(
            "chunks",
            self.events.chunk_report(
                turn=chunk.ref.turn,
                item_id=item_id,
                start_sample=chunk.start_sample,
                duration_ms=budget.duration_ms,
                stages_ms=budget.stages_ms,
                latency_ms=budget.latency_ms,
                prefilled_tokens=chunk.prefilled_tokens,
                rolled_back_tokens=chunk.rolled_back_tokens,
            ),
        )

    def engine_lost(self) -> None:
        """And with it what it knew of the conversation."""
        self.engine_up = False
        self.conversation.engine_lost()

    @property
    def engine_keeps(self) -> bool:
        """Whether the engine has, from now on, the items that it is told of."""
        return self.engine_up and not self.config.only_transcribes

    def take(self) -> list[Action]:
        """All that has come together since the last call."""
        out, self._out = self._out, []
        return out

    # --- what the model's eyes can use -----------------------------------------------------------

    def sees(self, still: PictureSize, frame: PictureSize) -> None:
        """What the engine says they can."""
        self._sizes = still, frame

    def still_size(self, together: int) -> PictureSize:
        """Of each of so many pictures that come at once: they share what four of them may have."""
        pixels = self.settings.image_max_pixels
        return within(self._sizes[0], min(pixels, STILLS_AT_ONCE * pixels // together))

    @property
    def frame_size(self) -> PictureSize:
        """Of a camera's frame."""
        return within(self._sizes[1], self.settings.video_max_pixels)

    # --- settings in force -----------------------------------------------------------------------

    @property
    def interruption(self) -> Interruption:
        """What ends an answer that somebody speaks over."""
        options = self.config.gateway
        if options is not None and options.interruption is not None:
            return options.interruption
        return self.settings.interruption

    @property
    def endpointing(self) -> Endpointing:
        """The policy behind `server_vad`."""
        options = self.config.gateway
        if options is not None and options.endpointing is not None:
            return options.endpointing
        return self.settings.endpointing

    @property
    def latency_budget_ms(self) -> float:
        options = self.config.gateway
        if options is not None and options.latency_budget_ms is not None:
            return options.latency_budget_ms
        return self.settings.latency_budget_ms

    def sampling(
        self,
        max_output_tokens: int | str | None = None,
        calling: Json | None = None,
    ) -> api.Sampling:
        """How the next answer's tokens are chosen; "inf" means the server's limit. `calling`:
        `tools.calling_of`, if not the session's."""
        wanted = self.config.max_output_tokens if max_output_tokens is None else max_output_tokens
        limit = self.settings.max_output_tokens
        if calling is None:
            calling = calling_of(self.config.tool_choice, self.config.tools)
        if calling.get("call") is api.ToolChoice.AUTO and self.conversation.repeats_itself():
            calling = {"call": api.ToolChoice.NONE}
        fields: Json = {
            "temperature": self.settings.temperature,
            "max_tokens": min(wanted, limit) if isinstance(wanted, int) else limit,
            **calling,
        }
        # Whoever brings instructions of their own decides how long an answer may be.
        if self.config.instructions == self.settings.instructions:
            fields["max_sentences"] = self.settings.max_sentences
        options = self.config.gateway
        if options is not None and options.sampling is not None:
            fields |= options.sampling.model_dump(exclude_none=True)
        return api.Sampling(**fields)  # names and ranges were checked
