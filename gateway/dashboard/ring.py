"""What a newcomer gets first: the newest turns and errors. Bounded by number and by size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from headstart.gateway.dashboard.messages import Message

TURNS_MAX = 2_000
BYTES_MAX = 64 << 20
ERRORS_MAX = 200


class Ring:
    """Turns by id, oldest first; a newer revision stands where the turn stood."""

    def __init__(self, turns_max: int = TURNS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._turns_max, self._bytes_max = turns_max, bytes_max
        self._turns: dict[str, tuple[Message, int]] = {}
        self._errors: deque[Message] = deque(maxlen=ERRORS_MAX)
        self.bytes = 0
        """What the turns take, estimated."""

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Message]:
        """Turns, then errors."""
        yield from [message for message, _ in self._turns.values()]
        yield from list(self._errors)

    def add_turn(self, response_id: str, message: Message, size_bytes: int) -> None:
        """`size_bytes`: about how much it takes."""
        _, before = self._turns.get(response_id, (None, 0))
        self._turns[response_id] = message, size_bytes
        self.bytes += size_bytes - before
        while len(self._turns) > self._turns_max or self.bytes > self._bytes_max:
            _, gone = self._turns.pop(next(iter(self._turns)))
            self.bytes -= gone

    def add_error(self, message: Message) -> None:
        self._errors.append(message)
