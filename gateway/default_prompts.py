"""The default instructions.

A small model takes instructions for the answer. Rules ("say that you don't know") and examples were
tried and removed: the model then says so to everything. A note that the camera is off works, as
long as it is present only while that is true. Told only that the user is silent, the model says
"The user is still there."; given a silence to answer and the start of a question, it asks.

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
    """The addition to `instructions` while no image is in view; only to the default ones."""
    return BLIND_NOTE if instructions == INSTRUCTIONS else ""
