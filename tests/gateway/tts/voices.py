"""Stand-ins for voices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headstart.gateway.tts.synthesiser import RATE_HZ, Samples

PIECE_SAMPLES = RATE_HZ // 10


class Beeps:
    """A tenth of a second for each word; says it cannot when asked for the word "broken"."""

    name = "beeps"

    def __init__(self) -> None:
        self.pieces_made = 0

    def speak(self, text: str, speed: float) -> Iterator[Samples]:
        for word in text.split():
            if word == "broken":
                raise RuntimeError("no such sound")
            self.pieces_made += 1
            yield np.full(round(PIECE_SAMPLES / speed), 1000, np.int16)
