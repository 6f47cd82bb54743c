"""Turns as a Perfetto trace: one track a stage, under one a session; TrackEvent as protobuf.

Field numbers are those of perfetto's `trace_packet.proto`, `track_descriptor.proto`,
`track_event.proto` and `debug_annotation.proto`. Slices of one track may not cross: what would
cross goes to a second track of the same name, which Perfetto draws below the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headstart.recordings import protobuf
from headstart.recordings.bars import bars_of, instants_of
from headstart.recordings.stages import in_order
from headstart.recordings.turns import Turn

PACKET = 1
TIMESTAMP, SEQUENCE_ID, TRACK_EVENT, TRACK_DESCRIPTOR = 8, 10, 11, 60
UUID, NAME, PARENT = 1, 2, 5
ANNOTATIONS, TYPE, TRACK_UUID, CATEGORIES, EVENT_NAME = 4, 9, 11, 22, 23
DOUBLE_VALUE, STRING_VALUE, ANNOTATION_NAME = 5, 6, 10
BEGIN, END, INSTANT = 1, 2, 3
SEQUENCE = 1
NS_PER_MS = 1_000_000
TIMESTAMP_MAX = 2**63 - 1

Notes = Iterable[tuple[str, str | float | None]]


class _Lane:
    """A track, and until when its last slice runs."""

    def __init__(self, uuid: int) -> None:
        self.uuid = uuid
        self.busy_until_ns = 0


class Trace:
    """Encodes turns one after the other, on the wall clock: ns since 1970."""

    def __init__(self) -> None:
        self._uuid = 0
        self._sessions: dict[str, int] = {}
        self._lanes: dict[tuple[str, str], list[_Lane]] = {}

    def turn(self, turn: Turn) -> Iterator[bytes]:
        """A turn's packets."""
        done = turn.stamps.get("done")
        # A float of ms since 1970 is good to a quarter of a µs: that is paid once a turn, so that
        # bars which touch still do.
        zero_ns = round(
            (turn.at_ms - ((turn.total_ms or 0.0) if done is None else done)) * NS_PER_MS
        )
        bars = bars_of(turn)
        end_ms = max([turn.total_ms or 0.0, *(bar.end_ms for bar in bars)])
        about: Notes = [
            ("response", turn.id),
            ("total_ms", turn.total_ms),
            ("hidden_ms", turn.hidden_ms),
            ("anchor", turn.anchor),
            ("reason", turn.reason),
        ]
        name = "turn" if turn.number is None else f"turn {turn.number}"
        at = _ns(zero_ns, 0.0), _ns(zero_ns, end_ms)
        yield from self._slice(turn.session, "turn", at, name, "turn", about)
        order = {stage: i for i, stage in enumerate(in_order({bar.stage for bar in bars}))}
        for bar in sorted(bars, key=lambda bar: (order[bar.stage], bar.start_ms)):
            at = _ns(zero_ns, bar.start_ms), _ns(zero_ns, bar.end_ms)
            category = "hidden" if bar.hidden else "waited"
            notes: Notes = [("response", turn.id)]
            yield from self._slice(turn.session, bar.stage, at, bar.stage, category, notes)
        for lane in self._lanes.get((turn.session, "turn"), [])[:1]:
            for mark, ms in instants_of(turn):
                event = _event(INSTANT, lane.uuid, mark, "instant")
                yield _packet(event, _ns(zero_ns, ms))

    def _slice(
        self, session: str, track: str, at: tuple[int, int], name: str, category: str, notes: Notes
    ) -> Iterator[bytes]:
        start_ns, end_ns = at
        if end_ns <= start_ns:
            return
        if session not in self._sessions:
            self._sessions[session] = self._next_uuid()
            yield _descriptor(self._sessions[session], session or "no session")
        lanes = self._lanes.setdefault((session, track), [])
        lane = next((lane for lane in lanes if lane.busy_until_ns <= start_ns), None)
        if lane is None:
            lane = _Lane(self._next_uuid())
            lanes.append(lane)
            yield _descriptor(lane.uuid, track, self._sessions[session])
        lane.busy_until_ns = end_ns
        yield _packet(_event(BEGIN, lane.uuid, name, category, notes), start_ns)
        yield _packet(_event(END, lane.uuid), end_ns)

    def _next_uuid(self) -> int:
        self._uuid += 1
        return self._uuid


def _ns(zero_ns: int, at_ms: float) -> int:
    return min(TIMESTAMP_MAX, max(0, zero_ns + round(at_ms * NS_PER_MS)))


def _packet(event: bytes, at_ns: int) -> bytes:
    body = protobuf.uint(TIMESTAMP, at_ns) + protobuf.uint(SEQUENCE_ID, SEQUENCE)
    return protobuf.data(PACKET, body + protobuf.data(TRACK_EVENT, event))


def _descriptor(uuid: int, name: str, parent: int | None = None) -> bytes:
    body = protobuf.uint(UUID, uuid) + protobuf.data(NAME, name)
    if parent is not None:
        body += protobuf.uint(PARENT, parent)
    packet = protobuf.uint(SEQUENCE_ID, SEQUENCE) + protobuf.data(TRACK_DESCRIPTOR, body)
    return protobuf.data(PACKET, packet)


def _event(
    kind: int, track: int, name: str | None = None, category: str = "", notes: Notes = ()
) -> bytes:
    out = protobuf.uint(TYPE, kind) + protobuf.uint(TRACK_UUID, track)
    if name is not None:
        out += protobuf.data(CATEGORIES, category) + protobuf.data(EVENT_NAME, name)
    for key, value in notes:
        if value is None:
            continue
        note = protobuf.data(ANNOTATION_NAME, key)
        if isinstance(value, str):
            note += protobuf.data(STRING_VALUE, value)
        else:
            note += protobuf.double(DOUBLE_VALUE, value)
        out += protobuf.data(ANNOTATIONS, note)
    return out
