"""How the assistant talks when nobody tells it otherwise.

A small model takes what it is told for the answer. Rules ("say that you don't know") and examples
were tried and left out: it then says so to everything. A note that the camera is off it gets right,
as long as it is there only while that is true. Told that the user is silent, and no more, it says
"The user is still there."; with a silence to answer and a question to begin with it asks.
"""

from __future__ import annotations

INSTRUCTIONS = (
    "You are headstart, a friendly assistant in a spoken conversation. Answer in one or two short, "
    "plain sentences."
)
SILENCE = "(silence)"
SILENCE_NOTE = (
    'The user has said nothing. Reply with a short question, such as "Are you still there?".'
)
BLIND_NOTE = "[camera: off, I can't see anything]"


def blind_note(instructions: str) -> str:
    """What is added to `instructions` while no picture is in view: to ours alone."""
    return BLIND_NOTE if instructions == INSTRUCTIONS else ""
