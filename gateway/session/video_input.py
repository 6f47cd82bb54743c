"""A session's images: those in items are all used, camera frames are sampled.

    item ─────▶ Decode(ordered) ───────────────▶ decoded ─▶ the item
    frame ─▶ too soon? ─▶ Decode ─▶ changed? sharp? ─▶ Frame, to the engine if it can look

The session runner decodes. At most one camera frame is being decoded and one waits, the newest: a
newer frame replaces it, and the replaced one is counted as dropped.

"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

import msgspec

from headstart.engine import api
from headstart.gateway.audio.clock import engine_samples_to_exact_ms
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.extensions import (
    InputImageBufferAppend,
    Sampler,
    VideoOptions,
)
from headstart.gateway.protocol.images import scaled
from headstart.gateway.session.actions import Decode
from headstart.gateway.session.context import SessionContext
from headstart.gateway.settings import Settings
from headstart.gateway.telemetry.latency import ChunkBudget
from headstart.gateway.video.content_sampling import Flow, Scene, Sharp
from headstart.gateway.video.decode import DecodedImage, Encoded, Outcome
from headstart.gateway.video.ladder import Ladder, Paced, Refusal, Rung
from headstart.gateway.video.sampling import (
    Every,
    FrameSampler,
    FrameVerdict,
    Motion,
    SampledFrame,
    Uniform,
    difference,
)

NS_PER_MS = 1_000_000
SCORED = frozenset({"scene", "flow", "sharp"})
"""Samplers that read `FrameScores`; for the others none are computed."""
REPLACED = "replaced"
BROKEN = "broken"
UNSENT = "unsent"
"""No engine is ready, or the session only transcribes."""


@dataclass(frozen=True, slots=True)
class _Offered:
    """A camera frame on its way through the decoder."""

    at_ms: float
    at_sample: int
    encoded: Encoded
    event_id: str | None


@dataclass(frozen=True, slots=True)
class _DecodeRequest:
    """What to call when images are decoded."""

    then: Callable[[tuple[DecodedImage, ...]], None]
    event_id: str | None
    failed: Callable[[], None]


class VideoInput:
    """The images of one session. `clock_samples` returns the position of its audio, `batch` the
    sessions that a step of its engine works for."""

    def __init__(
        self,
        context: SessionContext,
        clock_samples: Callable[[], int],
        batch: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._context = context
        self._batch = batch
        self._clock_samples = clock_samples
        self._clock = _CameraClock()
        self._last_request_id = 0
        self._requests: dict[int, _DecodeRequest] = {}
        self._decoding = False  # a camera frame
        self._waiting: _Offered | None = None
        self._ladder = Ladder()
        self._rung: Rung | None = None  # at the newest frame; None: no frame has come
        self._scale = 1.0
        self._kept: SampledFrame | None = None  # the newest
        self._scored = False  # whether a policy reads scores
        self._looked = b""  # the small copy of the newest frame that has scores
        self._begun = (0, 0)  # the newest spoken turn and response in the conversation; 0: none
        self._sampler: FrameSampler = Every(())
        self.configure(None)

    def configure(self, options: VideoOptions | None) -> None:
        """Set the sampling rules; None fields take the server's setting."""
        self._options = options
        rules = _rules(self._context.settings, options)
        self._sampler = Every(_policies(rules, self._ladder))
        self._scale = rules.scale
        self._scored = rules.sampler in SCORED
        self._looked = b""

    @property
    def before(self) -> bytes | None:
        """What the next frame is scored against (`decode.Encoded`)."""
        return self._looked if self._scored else None

    def settle(self) -> None:
        """Called after each event of the session. A turn's frames are counted from where its speech
        begins, held or announced; those of a typed turn from where its response does. Frames shown
        before that are not the turn's."""
        turns = self._context.turns
        begun = (0 if turns.ref is None else turns.ref.turn, turns.generation)
        if begun == self._begun:
            return
        before, self._begun = self._begun, begun
        if begun[0] != before[0]:
            self._sampler.begin_turn()
        else:
            self.end_turn()

    def end_turn(self) -> None:
        """The final words of a turn have come, or its response begins. What is shown from here on
        is counted anew, unless the next turn has begun already."""
        if not self._context.turns.speech_is_open:
            self._sampler.begin_turn()

    def engine_lost(self) -> None:
        """The next engine has seen nothing: no frame looks like one that it was sent."""
        self._kept = None
        self.configure(self._options)

    def engine_ready(self, model: api.ModelInfo) -> None:
        """An engine takes the session: nothing is known of its load yet."""
        self._ladder.engine(model.pooled_frame)

    def chunk(self, chunk: ChunkBudget, now_ns: int) -> None:
        """Note the engine's latency for a chunk of audio, which measures its load."""
        self._ladder.load(chunk.latency_ms / chunk.due_ms, now_ns)

    def pressure(self, level: api.Level) -> None:
        """Note how full the engine's memory is: frames are dropped first."""
        self._ladder.memory(level)

    @property
    def rung(self) -> Rung | None:
        """How much of the camera is given up; None: no frame has come."""
        return None if self._rung is None else self._ladder.rung

    @property
    def frame_size(self) -> api.PictureSize:
        """The largest useful size of the next frame."""
        return scaled(self._context.frame_size, self._scale * self._ladder.side_share)

    # --- pictures that all count -----------------------------------------------------------------

    def ask(
        self,
        pictures: Sequence[Encoded],
        event_id: str | None,
        then: Callable[[tuple[DecodedImage, ...]], None],
    ) -> None:
        """Decode `pictures` before the client's next event, then call `then`."""
        self._decode(pictures, _DecodeRequest(then, event_id, lambda: None), ordered=True)

    def decoded(self, request_id: int, outcome: Outcome) -> None:
        """Raises `ProtocolError` for an invalid image, or whatever `then` raises."""
        request = self._requests.pop(request_id)
        try:
            if isinstance(outcome, ProtocolError):
                request.failed()
                raise outcome
            request.then(outcome)
        except ProtocolError as error:
            raise error.about(request.event_id) from None

    def _decode(
        self, pictures: Sequence[Encoded], request: _DecodeRequest, *, ordered: bool
    ) -> None:
        self._last_request_id += 1
        self._requests[self._last_request_id] = request
        size = self._context.still_size(len(pictures)) if ordered else self.frame_size
        self._context.act(Decode(self._last_request_id, tuple(pictures), ordered, size))

    # --- a camera's ------------------------------------------------------------------------------

    def frame(self, event: InputImageBufferAppend, now_ns: int) -> None:
        """A frame that came as a client event."""
        self._climb(now_ns)
        at_sample = self._clock_samples()
        at_ms = self._clock.at_ms(now_ns, at_sample)
        encoded = Encoded(event.image, "image", bare_base64=True)
        offered = _Offered(at_ms, at_sample, encoded, event.event_id)
        if not self._decoding:
            self._begin(offered)
            return
        if self._waiting is not None:
            self._count(REPLACED, SampledFrame(self._waiting.at_ms), self._waiting.event_id)
        self._waiting = offered

    def track_frame(self, decoded: DecodedImage, now_ns: int) -> None:
        """A decoded frame of a track, with its thumbnail."""
        self._climb(now_ns)
        at_sample = self._clock_samples()
        frame = SampledFrame(self._clock.at_ms(now_ns, at_sample))
        verdict = self._fate(frame)
        if verdict is FrameVerdict.KEEP:
            self._judge(decoded, frame.at_ms, at_sample, None)
        else:
            self._count(verdict, frame, None)

    def _climb(self, now_ns: int) -> None:
        """A frame has come: which rung of the ladder it finds."""
        self._ladder.quiet(now_ns)
        self._ladder.batch(self._batch())
        self._rung = self._ladder.rung
        self._context.metrics.frame_rung(self._rung.label)

    def _begin(self, offered: _Offered) -> None:
        frame = SampledFrame(offered.at_ms)
        verdict = self._fate(frame)
        if verdict is not FrameVerdict.KEEP:
            self._count(verdict, frame, offered.event_id)
            return
        self._decoding = True

        def then(decoded: tuple[DecodedImage, ...]) -> None:
            self._judge(decoded[0], offered.at_ms, offered.at_sample, offered.event_id)
            self._next()

        def failed() -> None:
            self._count(BROKEN, frame, offered.event_id)
            self._next()

        request = _DecodeRequest(then, offered.event_id, failed)
        encoded = dataclasses.replace(offered.encoded, before=self.before)
        self._decode([encoded], request, ordered=False)

    def _next(self) -> None:
        self._decoding = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._begin(waiting)

    def _fate(self, frame: SampledFrame) -> str:
        """What becomes of a frame, as far as is known: a `FrameVerdict`, or `UNSENT`."""
        verdict = self._sampler.judge(frame)
        if verdict is FrameVerdict.KEEP and not self._context.engine_keeps:
            return UNSENT
        return verdict

    def _judge(
        self, decoded: DecodedImage, at_ms: float, at_sample: int, event_id: str | None
    ) -> None:
        scores = decoded.scores
        frame = SampledFrame(at_ms, decoded.thumbnail, scores)
        if scores is not None:
            self._looked = scores.pixels
        self._sampler.look(frame)
        verdict = self._fate(frame)
        self._count(verdict, frame, event_id)
        if verdict is FrameVerdict.KEEP:
            self._sampler.keep(frame)
            self._kept = frame
            image = decoded.image
            if self._ladder.max_tokens:
                image = msgspec.structs.replace(image, max_tokens=self._ladder.max_tokens)
            self._context.send_to_engine(api.Frame(self._context.session_id, at_sample, image))

    def _count(self, fate: str, frame: SampledFrame, event_id: str | None) -> None:
        """In the metrics, and to a client that asked."""
        context, kept = self._context, self._kept
        context.camera_frame(str(fate), self._ladder.rung.label)
        if not context.wants("frames"):
            return
        changed = None
        if kept is not None and kept.thumbnail is not None and frame.thumbnail is not None:
            changed = difference(kept.thumbnail, frame.thumbnail)
        event = context.events.frame_judged(
            str(fate),
            frame_event_id=event_id,
            at_ms=frame.at_ms,
            changed=changed,
            since_kept_ms=None if kept is None else frame.at_ms - kept.at_ms,
            rung=self._ladder.rung.label,
        )
        context.send_ours("frames", event)


class _CameraClock:
    """The clock for frame sampling. A file may be fed faster than real time, and a muted microphone
    stops the sample clock. So the larger advance since the last frame counts, audio or wall clock.
    """

    def __init__(self) -> None:
        self._at_ms = 0.0
        self._last: tuple[int, int] | None = None

    def at_ms(self, now_ns: int, at_sample: int) -> float:
        if self._last is not None:
            wall_ms = (now_ns - self._last[0]) / NS_PER_MS
            self._at_ms += max(wall_ms, engine_samples_to_exact_ms(at_sample - self._last[1]), 0.0)
        self._last = (now_ns, at_sample)
        return self._at_ms


@dataclass(frozen=True, slots=True)
class _Rules:
    """How a camera is sampled; see `VideoOptions`."""

    sampler: Sampler
    scale: float
    fps: float
    motion: float
    scene: float
    flow: float
    max_gap_ms: float
    min_frames: int
    max_frames: int


def _rules(settings: Settings, options: VideoOptions | None) -> _Rules:
    wanted = {} if options is None else options.model_dump(exclude_none=True)
    ours = {
        "sampler": settings.video_sampler,
        "scale": settings.video_scale,
        "fps": settings.video_fps,
        "motion": settings.video_motion,
        "scene": settings.video_scene,
        "flow": settings.video_flow,
        "max_gap_ms": settings.video_max_gap_ms,
        "min_frames": settings.video_min_frames,
        "max_frames": settings.video_max_frames,
    }
    return _Rules(**(ours | wanted))


def _policies(rules: _Rules, ladder: Ladder) -> list[FrameSampler]:
    """Under all of them frames are refused on the ladder's last rung."""
    refusal, paced = Refusal(ladder), Paced(ladder, rules.fps, rules.max_frames)
    match rules.sampler:
        case "all":
            return [refusal]
        case "uniform":
            return [refusal, Uniform(rules.fps, rules.min_frames, rules.max_frames)]
        case "load":
            return [refusal, Paced(ladder, rules.fps, rules.max_frames, rules.min_frames)]
        case "motion":
            return [refusal, paced, Motion(rules.motion, rules.max_gap_ms)]
        case "scene":
            return [refusal, paced, Scene(rules.scene, rules.max_gap_ms)]
        case "flow":
            return [refusal, paced, Flow(rules.flow, rules.max_gap_ms)]
        case "sharp":
            return [refusal, paced, Sharp()]
    assert_never(rules.sampler)
