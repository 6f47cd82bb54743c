"""State shared by the parts of one session: settings, items, the turn, and pending actions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from headstart.engine import api
from headstart.engine.api import SMALL_PICTURE, PictureSize
from headstart.gateway.audio.echo import EchoDetector
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
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.latency import BudgetError, ChunkBudget, ChunkSummary
from headstart.gateway.telemetry.metrics import Metrics
from headstart.gateway.telemetry.observer import Observer, Observers
from headstart.gateway.telemetry.turn_record import Camera
from headstart.gateway.tts.messages import VoiceCommand

log = logging.getLogger("headstart.session")

# Of the images in one event, at most this many get the full `image_max_pixels`.
STILLS_AT_ONCE = 4


class SessionContext:
    """Shared by the parts of one session. `take` returns the actions collected so far."""

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
        self.server_plays = False
        """The transport has a playout of its own (WebRTC); else the client plays."""
        self._sizes = SMALL_PICTURE, SMALL_PICTURE  # until an engine reports its own
        self.events = Events(ids)
        self.conversation = Conversation()
        self.turns = TurnMachine()
        self.chunks = ChunkSummary()
        self.echo = EchoDetector()
        self.conversation_id = ids.conversation()
        self._camera_rung = ""
        self._camera_frames: Counter[str] = Counter()
        self._out: list[Action] = []
        self._id_users: list[Callable[[str], bool]] = [self.conversation.is_withdrawn]

    def uses_ids(self, uses: Callable[[str], bool]) -> None:
        """Register a part of the session that may still insert, change or take back an item with an
        id for which `uses` is true, whether or not that item is in the conversation now."""
        self._id_users.append(uses)

    def is_id_in_use(self, item_id: str) -> bool:
        """Whether the server still works on an item with that id: a client's own item must not get
        it, even after the client has deleted the server's."""
        return any(uses(item_id) for uses in self._id_users)

    # --- the way out -----------------------------------------------------------------------------

    def send(self, event: Json, *, wants_sent_stamp: bool = False) -> None:
        self._out.append(Send(event, wants_sent_stamp))

    def send_ours(self, name: GatewayEventName, event: Json) -> None:
        """Send one of our own events, if the session subscribed to its kind."""
        if self.wants(name):
            self.send(event)

    def wants(self, name: GatewayEventName) -> bool:
        options = self.config.gateway
        return options is not None and name in (options.events or ())

    @property
    def playout_pauses(self) -> bool:
        """Whether the sound stands still while somebody may be interrupting: the server plays it,
        or the client follows `gateway.interruption`."""
        return self.server_plays or self.wants("interruption")

    def send_to_engine(self, command: api.Command) -> None:
        self._out.append(SendToEngine(command))

    def send_to_tts(self, command: VoiceCommand) -> None:
        self._out.append(SendToTts(command))

    def play(
        self, event: Json, pcm: bytes, encoded: bytes | None, *, wants_sent_stamp: bool = False
    ) -> None:
        self._out.append(Play(event, pcm, encoded, wants_sent_stamp))

    def clear_playout(self) -> None:
        self._out.append(ClearPlayout())

    def camera_frame(self, fate: str, rung: str) -> None:
        """Count a camera frame, for `/metrics` and for the next turn's record."""
        self.metrics.frame(fate)
        self._camera_frames[fate] += 1
        self._camera_rung = rung

    def take_camera(self) -> Camera | None:
        """The frames counted since the last call."""
        frames, self._camera_frames = self._camera_frames, Counter()
        return Camera(self._camera_rung, dict(frames)) if frames else None

    def act(self, action: Action) -> None:
        """Add any other action."""
        self._out.append(action)

    def chunk_budget(self, chunk: api.Chunk, regular_ms: float) -> ChunkBudget | None:
        """A chunk's latency budget where chunks are `regular_ms` long. None, and counted as an
        error, if the engine's stamps contradict each other."""
        try:
            return ChunkBudget.from_chunk(chunk, regular_ms)
        except BudgetError as error:
            self.impossible(error)
            return None

    def impossible(self, error: BudgetError) -> None:
        """Log and count contradictory stamps of a turn or chunk. The conversation continues."""
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
        """Add the cost of a chunk of the utterance `item_id` to the sums, and report it to the
        client."""
        self.chunks.add(budget)
        self.send_ours(
            "chunks",
            self.events.chunk_report(
                turn=chunk.ref.turn,
                item_id=item_id,
                start_sample=chunk.start_sample,
                duration_ms=budget.duration_ms,
                due_ms=budget.due_ms,
                stages_ms=budget.stages_ms,
                latency_ms=budget.latency_ms,
                prefilled_tokens=chunk.prefilled_tokens,
                rolled_back_tokens=chunk.rolled_back_tokens,
            ),
        )

    def engine_lost(self) -> None:
        """The engine is lost, and the conversation state it held with it."""
        self.engine_up = False
        self.conversation.engine_lost()

    @property
    def engine_keeps(self) -> bool:
        """Whether the engine stores the items it is sent."""
        return self.engine_up and not self.config.only_transcribes

    def take(self) -> list[Action]:
        """Return and clear the actions collected since the last call."""
        out, self._out = self._out, []
        return out

    # --- what the model's eyes can use -----------------------------------------------------------

    def set_image_sizes(self, still: PictureSize, frame: PictureSize) -> None:
        """Set the image sizes that the engine reports for its image encoder."""
        self._sizes = still, frame

    def still_size(self, together: int) -> PictureSize:
        """The size of each of `together` images in one event: they share the pixels of four."""
        pixels = self.settings.image_max_pixels
        return within(self._sizes[0], min(pixels, STILLS_AT_ONCE * pixels // together))

    @property
    def frame_size(self) -> PictureSize:
        """The size of a camera frame."""
        return within(self._sizes[1], self.settings.video_max_pixels)

    # --- settings in force -----------------------------------------------------------------------

    @property
    def interruption(self) -> Interruption:
        """What interrupts a response when somebody speaks over it."""
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
        """Sampling parameters of the next response; "inf" means the server's limit. `calling`: the
        result of `tools.calling_of`, if not for the session's own tools."""
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
        # Clients that set their own instructions control the length of responses with them.
        if self.config.instructions == self.settings.instructions:
            fields["max_sentences"] = self.settings.max_sentences
        options = self.config.gateway
        if options is not None and options.sampling is not None:
            fields |= options.sampling.model_dump(exclude_none=True)
        return api.Sampling(**fields)  # names and ranges are already validated
