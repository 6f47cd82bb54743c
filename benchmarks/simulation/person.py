"""One session and who speaks in it, and the tally of what happened to all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from headstart.benchmarks.inputs.turn_taking import People, Turn
from headstart.benchmarks.simulation.node import Node
from headstart.benchmarks.simulation.streams import SimStream


@dataclass(slots=True)
class Tally:
    """What happened to turns that count, and to sessions."""

    first_token_ms: list[float] = field(default_factory=list)
    cold_first_token_ms: list[float] = field(default_factory=list)  # of moved sessions
    begun: int = 0
    answered: int = 0
    refused: int = 0
    cut: int = 0
    arrivals: int = 0
    arrivals_refused: int = 0
    sessions: int = 0  # placed
    moved: int = 0
    needed_tokens: int = 0
    ears_s: float = 0.0
    session_s: float = 0.0


class Person:
    """One session and who speaks in it."""

    def __init__(self, seat: int, number: int, chance: Random, people: People) -> None:
        self.seat, self.number, self.chance = seat, number, chance
        self.name = f"session-{number}"
        self.node: Node | None = None
        self.stream: SimStream | None = None
        self.context = people.system_tokens  # tokens of the conversation
        self.version = 0
        self.leaves_ns = 0
        self.since_ns = 0
        self.turn_number = 0  # events of earlier turns are ignored
        self.turn: Turn | None = None
        self.counts = False  # whether the turn is counted
        self.open = False  # whether it has no outcome yet
        self.speech_s = 0.0
        self.ended_ns = 0  # when the speech ended, or will
        self.endpoint_ns = 0
        self.cold = False
        self.preparing = False  # an answer is being computed, or was
        self.drawn = 0  # tokens of the answer
        self.first_ns = 0  # when its first token was there; 0: not yet
        self.in_flight = False
        self.words_done = 0.0

    @property
    def at_rest(self) -> bool:
        return not self.in_flight and self.turn is None
