"""One response that runs, and how parts of it read on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from openai.types.realtime import RealtimeResponseCreateParams

from engine import api
from gateway.budget import TurnBudget, TurnStamps
from gateway.protocol.session_config import Modality
from gateway.response import Response
from gateway.voice.speaking import Speaking
from gateway.window import window_to_wire


@dataclass(slots=True)
class Running:
    """One response that runs, with the stamps its budget is made of."""

    response: Response
    stamps: TurnStamps
    turn: int = 0  # the utterance it answers; 0: none
    question_id: str | None = None
    budget: TurnBudget | None = None
    stamp_pending: bool = False  # its first delta is on its way to the socket
    finished: api.Finished | None = None  # over before that delta was on the wire
    speaking: Speaking | None = None  # of a spoken answer
    text_over: api.Finished | None = None  # the engine is through with it, the voice is not
    announced: bool = False  # the client knows of it

    @property
    def generation(self) -> int:
        return self.response.facts.generation


def kv_to_wire(kv: api.KvStats) -> dict[str, object]:
    return {
        "tokens": kv.tokens,
        "blocks": kv.blocks,
        "bytes": kv.bytes,
        "bytes_per_token": kv.bytes_per_token,
        "by_modality": kv.by_modality,
        "adopted": kv.adopted,
        "evicted": kv.evicted,
        "window": window_to_wire(kv.window),
    }


def modality_of(params: RealtimeResponseCreateParams | None) -> Modality | None:
    """What a response asks to be made of; None: what the session does."""
    wanted = params.output_modalities if params is not None else None
    return wanted[0] if wanted else None
