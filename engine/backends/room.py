"""Who takes part in a decoder step while the memory for K/V is short: who waits, who gives up K/V,
and who fails.

`headstart.engine.scheduling.admission` grants what fits, and moves away K/V of sessions at rest. A
stream that is refused all the same waits for the answers of others to end. If no stream fits, one
after the other, until one does:

    summaries that are being written are dropped
    what is promised to sessions without work is given away
    the largest stream gives up its K/V and waits; they are computed again

The largest gives up its K/V too for a smaller stream that has waited for `SLICE_NS`. Nothing fails
but what would not fit into the empty pool, what has waited for `WAIT_MOST_NS`, and what waits for
nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headstart.engine.errors import CacheFull
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import AdmissionController
from headstart.engine.session.session import Session

SLICE_NS = 5_000_000_000
WAIT_MOST_NS = 30_000_000_000

Wants = Sequence[tuple[Session, Stream]]


class Room:
    """Shares out the room in one pool. Kept is only since when each stream waits."""

    def __init__(self, admission: AdmissionController) -> None:
        self.given_up = 0  # streams that gave up their K/V while they were in use
        self.failed = 0  # streams that were refused and could not wait
        self._admission = admission
        self._since_ns: dict[Stream, int] = {}

    def refuse(self, wants: Wants, sessions: Sequence[Session], now_ns: int) -> Collection[Stream]:
        """The streams of `wants` that are not to run in this step. Those that cannot wait are
        failed, or their pending tokens dropped."""
        gone: set[Stream] = set()
        promises = True
        while True:
            wants = [(t, s) for t, s in wants if s not in gone and s.pending]
            refused = self._admission.refuse(wants, sessions, now_ns, promises=promises)
            hopeless = [want for want in wants if want[1] in refused and self._is_hopeless(*want)]
            for session, stream in hopeless:
                self._fail(session, stream, refused[stream])
                gone.add(stream)
            if hopeless:
                continue
            if len(refused) == len(wants) and promises:
                promises = False
                if refused:
                    continue
            victim = self._victim(wants, refused, now_ns)
            if victim is None:
                break
            victim.recompute(0)
            self.given_up += 1
        waiting = self._waiting(wants, refused, sessions, now_ns)
        lost = [want for want in wants if want[1] in refused and want[1] not in waiting]
        if lost:  # the largest first: what it leaves may do for the others
            session, stream = max(lost, key=lambda want: self._admission.needs_alone(want[1]))
            self._fail(session, stream, refused[stream])
            waiting |= {s: self._since_ns.get(s, now_ns) for _, s in lost if s is not stream}
        self._since_ns = waiting
        return gone | set(refused)

    def _is_hopeless(self, session: Session, stream: Stream) -> bool:
        """Whether a refused stream is not to wait."""
        silent = any(a.silent and a.stream is stream for a in session.side_answers)
        return silent or not self._admission.fits_alone(stream)

    def _victim(self, wants: Wants, refused: Collection[Stream], now_ns: int) -> Stream | None:
        """The stream that has to give up its K/V, if any."""
        holding = [s for _, s in wants if s.kv_blocks and self._admission.frees(s)]
        if len(refused) == len(wants):
            return max(holding, key=_size, default=None) if len(wants) > 1 else None
        patient = [s for s in refused if now_ns - self._since_ns.get(s, now_ns) >= SLICE_NS]
        least = min((self._admission.needs_alone(s) for s in patient), default=None)
        granted = [s for s in holding if s not in refused]
        largest = max(granted, key=_size, default=None)
        if least is None or largest is None or self._admission.needs_alone(largest) <= least:
            return None
        self._since_ns[largest] = now_ns
        return largest

    def _waiting(
        self,
        wants: Wants,
        refused: Collection[Stream],
        sessions: Sequence[Session],
        now_ns: int,
    ) -> dict[Stream, int]:
        """The refused streams that wait, with the time since when. One that waits for nobody but
        others who are refused does not."""
        waiting = {}
        stuck = {t.name for t, s in wants if s in refused and not t.commands}
        for session, stream in wants:
            if stream not in refused:
                continue
            since_ns = self._since_ns.get(stream, now_ns)
            others_work = len(refused) < len(wants) or any(
                not other.at_rest and other.name not in stuck
                for other in sessions
                if other is not session
            )
            if others_work and now_ns - since_ns < WAIT_MOST_NS:
                waiting[stream] = since_ns
        return waiting

    def _fail(self, session: Session, stream: Stream, full: CacheFull) -> None:
        self.failed += 1
        for answer in session.answers():
            if answer.stream is stream:
                session.fail(answer, full)
                return
        session.drop_pending(full)


def _size(stream: Stream) -> int:
    return len(stream.kv_blocks)
