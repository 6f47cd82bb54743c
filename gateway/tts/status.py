"""The voice's status, for sessions, pages and `/status`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

VoiceState = Literal["off", "loading", "ready", "lost"]


@dataclass(frozen=True, slots=True)
class VoiceStatus:
    """Whether responses can be spoken now, by which voice, and if not, why not."""

    state: VoiceState
    voice: str = ""
    reason: str = ""

    @property
    def speaks(self) -> bool:
        return self.state == "ready"
