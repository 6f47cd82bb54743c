"""Tracks which clauses the TTS worker has not finished. No I/O, no clock.

Every requested clause ends exactly once:

    said, failed   reported by the worker (`ClauseDone`, without or with a `problem`)
    stopped        we asked it to stop: it reports no more about it
    lost           the worker has died: its sessions are told, and no report follows

Audio of an ended clause is dropped: the worker made it before it read the stop.

"""

from __future__ import annotations

from headstart.gateway.tts.messages import ClauseDone, Speak, Stop, SynthesisedAudio


class UnfinishedClauses:
    """Clauses by session, response and number."""

    def __init__(self) -> None:
        self._clauses: dict[str, dict[int, set[int]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def sent(self, speak: Speak) -> None:
        """A clause was sent to the worker."""
        clauses = self._clauses.setdefault(speak.session, {}).setdefault(speak.generation, set())
        assert speak.clause not in clauses, f"a clause that is owed was asked for again: {speak}"
        clauses.add(speak.clause)
        self._count += 1

    def stopped(self, stop: Stop) -> None:
        """One response is stopped, or all of a session's."""
        answers = self._clauses.get(stop.session, {})
        for generation in list(answers):
            if stop.generation in (None, generation):
                self._count -= len(answers.pop(generation))
        if not answers:
            self._clauses.pop(stop.session, None)

    def takes(self, event: SynthesisedAudio | ClauseDone) -> bool:
        """Whether this belongs to an unfinished clause; `ClauseDone` finishes it."""
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
        """The worker has died."""
        self._clauses.clear()
        self._count = 0
