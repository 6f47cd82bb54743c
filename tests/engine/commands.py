"""Commands of a gateway, with what most tests of the engine want of them."""

from __future__ import annotations

from headstart.engine import api

GREEDY = api.Sampling(repetition_penalty=1.0)
QUESTION = "what is the capital of france"


def respond(
    generation: int = 1, session: str = "s", sampling: api.Sampling = GREEDY
) -> api.Respond:
    return api.Respond(session, generation, f"a{generation}", sampling)


def end(turn: int = 1, revision: int = 0, session: str = "s") -> api.EndSpeech:
    return api.EndSpeech(session, api.TurnRef(turn, revision), 0)


def hush(turn: int = 1, revision: int = 0, session: str = "s") -> api.Hush:
    return api.Hush(session, api.TurnRef(turn, revision), 0, speculate=GREEDY)


def user_item(item_id: str, text: str) -> api.Item:
    return api.Item(item_id, api.Role.USER, (api.Text(text),))
