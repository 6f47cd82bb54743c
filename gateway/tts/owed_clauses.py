"""Which clauses the voice's worker still owes: the gateway's books. No I/O, no clock.

Every clause that was asked for has exactly one end:

    said, failed   the worker says so (`ClauseDone`, without or with a `problem`)
    stopped        we asked it to stop: it says no more of it, and owes nothing
    lost           the worker has died: its sessions are told, and nothing will come

What comes of a clause that is over is dropped: the worker had made it before it read the stop.
"""

from __future__ import annotations

from headstart.gateway.tts.messages import ClauseDone, Speak, Stop, SynthesisedAudio


class Owed:
    """Clauses by session, answer and number."""

    def __init__(self) -> None:
        self._clauses: dict[str, dict[int, set[int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def asked(self, speak: Speak) -> None:
        """The worker was given a clause."""
        clauses = self._clauses.setdefault(speak.session, {}).setdefault(speak.generation, set())
        assert speak.clause not in clauses, f"a clause that is owed was asked for again: {speak}"
        clauses.add(speak.clause)
        self._count += 1

    def stopped(self, stop: Stop) -> None:
        """One answer is stopped, or all of a session's."""
        answers = self._clauses.get(stop.session, {})
        for generation in list(answers):
            if stop.generation in (None, generation):
                self._count -= len(answers.pop(generation))
        if not answers:
            self._clauses.pop(stop.session, None)

    def takes(self, event: SynthesisedAudio | ClauseDone) -> bool:
        """Whether this is of a clause that is owed; `ClauseDone` is its end."""
        clauses = self._clauses.get(event.session, {}).get(event.generation, set())
        if event.clause not in clauses:
            return False
        if isinstance(event, ClauseDone):
            clauses.discard(event.clause)
            self._count -= 1
            if not clauses:
                self.stopped(Stop(event.session, event.generation))
        return True

    def lost(self) -> None:
        """The worker is gone."""
        self._clauses.clear()
        self._count = 0
