"""From a frame's labels to a few visual tokens in the LLM's embedding space. Nothing is trained.

A frame becomes one short note in square brackets:

    [camera: a building like a palace; light: bright; colour: white]

The name's tokens are a slot of their own, which is bounded: a long name keeps its last tokens.

How sure the labels are is said inside one noun phrase ("a building like a palace"), never behind a
comma. Whether a small model repeats what stands behind a comma hangs on a last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headstart.engine.vision.labeller import FrameLabels
from headstart.engine.vision.pixels import BRIGHTNESS

# Without a note a small LLM invents something when asked what it sees.
_OFF = "[camera: off, I can't see anything]\n"

_SOME = frozenset(
    (
        *("binoculars", "jeans", "mittens", "pajamas", "parallel bars", "sunglasses"),
        *("swimming trunks", "broccoli", "corn", "dough", "guacamole", "hair spray", "hay"),
        *("mashed potato", "soup", "toilet paper", "velvet", "wool"),
    )
)

_PEOPLE = ("a person", "two people", "three people")
# In a crowd the detector misses some: small faces, and those that look away.
_CROWD = ("four", "five", "six", "seven", "eight", "nine", "ten")

Tokenize = Callable[[str], list[int]]
Embed = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class ConnectorSettings:
    """Thresholds for wording a name.

    `sure` and `likely` are probabilities; below `guess` the note only says that it is unclear. A
    name longer than `slot_tokens` keeps its last tokens.
    """

    sure: float = 0.5
    likely: float = 0.3
    guess: float = 0.12
    slot_tokens: int = 8


@dataclass(frozen=True)
class Projected:
    """Visual tokens of one frame.

    `embeddings`: fp32 [n, d]. `text`: the note with the best name, for logs; equal texts look the
    same to a person. `name_rows`: those that are the name.
    """

    embeddings: Tensor
    text: str
    name_rows: range

    @property
    def tokens(self) -> int:
        """The frame's cost in the LLM's context, in tokens."""
        return int(self.embeddings.shape[0])


class Connector:
    """Turns `FrameLabels` into embeddings of one LLM. Holds no state between frames."""

    def __init__(
        self,
        tokenize: Tokenize,
        embed: Embed,
        d_model: int,
        settings: ConnectorSettings | None = None,
    ) -> None:
        """`embed` maps ids, int64 [n], to the LLM's embedding rows [n, d_model]."""
        self._tokenize = tokenize
        self._embed = embed
        self._d_model = d_model
        self._settings = ConnectorSettings() if settings is None else settings

    def project(self, labels: FrameLabels | None) -> Projected:
        """The visual tokens of a frame; for None, of a camera that is off."""
        before, name, after = phrase(labels, self._settings)
        head = self._rows(self._tokenize(before))
        # The slot follows a word, so its tokens begin with a space.
        ids = self._tokenize(f" {name}")[-self._settings.slot_tokens :] if name else []
        slot = self._rows(ids)
        tail = self._rows(self._tokenize(after))
        embeddings = torch.cat([head, slot, tail])
        text = _written(before, name, after)
        name_rows = range(head.shape[0], head.shape[0] + slot.shape[0])
        return Projected(embeddings=embeddings, text=text, name_rows=name_rows)

    def _rows(self, ids: Sequence[int]) -> Tensor:
        """Embedding rows fp32 [n, d]."""
        if not ids:
            return torch.zeros(0, self._d_model)
        rows = self._embed(torch.tensor(ids, dtype=torch.int64))
        assert rows.shape == (len(ids), self._d_model), (rows.shape, len(ids), self._d_model)
        return rows.float()


def note(labels: FrameLabels | None, settings: ConnectorSettings) -> str:
    """The whole note, with the whole name."""
    return _written(*phrase(labels, settings))


def _written(before: str, name: str, after: str) -> str:
    return f"{before} {name}{after}" if name else before + after


def phrase(labels: FrameLabels | None, settings: ConnectorSettings) -> tuple[str, str, str]:
    """The note around the slot, and the name in the slot ("" for none): before, name, after.

    The wording was chosen by what the 0.5B model makes of it. It turned "unclear" into "a clear
    picture", and "brown, dark" into a bright picture; "light: dark" it gets right. Of "a
    building, maybe a palace" it kept "a building" about as often as the whole.
    """
    if labels is None:
        return _OFF, "", ""
    if labels.is_blank:
        return f"[camera: nothing, the picture is all {labels.colour}]\n", "", ""
    level = "dark" if labels.brightness == BRIGHTNESS[0] else "bright"
    light = f"; light: {level}; colour: {labels.colour}]\n"
    label = labels.label
    if labels.people:
        return _company(labels, settings, light)
    a_label = f"[camera: {article(label)}"
    if labels.probability >= settings.sure:
        return a_label, label, light
    if labels.kind is not None and labels.kind_probability >= settings.sure:
        a_kind = f"[camera: {article(labels.kind)}"
        if labels.kind in label.split():  # "a cat like a tiger cat" would be repetitive
            is_likely = labels.probability >= settings.likely
            return (a_label, label, light) if is_likely else (a_kind, labels.kind, light)
        return f"{a_kind} {labels.kind} like {article(label)}", label, light
    if labels.probability >= settings.likely:
        return f"[camera: probably {article(label)}", label, light
    if labels.probability >= settings.guess:
        return f"[camera: something like {article(label)}", label, light
    colour = f"mostly {labels.colour}"
    return f"[camera: {colour}, {level}; I can't tell what this is]\n", "", ""


def _company(labels: FrameLabels, settings: ConnectorSettings, light: str) -> tuple[str, str, str]:
    """The note of a picture with people: they come first, the object second.

    For a face alone the image network names clothes and hair, with low probability.
    """
    who = _number_of(labels.people)
    if labels.probability >= settings.sure:
        return f"[camera: {who} with {article(labels.label)}", labels.label, light
    if labels.kind is not None and labels.kind_probability >= settings.sure:
        return f"[camera: {who} with {article(labels.kind)}", labels.kind, light
    if labels.probability >= settings.likely:
        return f"[camera: {who}, maybe with {article(labels.label)}", labels.label, light
    return f"[camera: {who}{light}", "", ""


def _number_of(people: int) -> str:
    if people <= len(_PEOPLE):
        return _PEOPLE[people - 1]
    return f"at least {_CROWD[min(people - len(_PEOPLE), len(_CROWD)) - 1]} people"


def article(noun: str) -> str:
    """The indefinite article for `noun`; "some" for plurals and mass nouns."""
    if noun in _SOME:
        return "some"
    if noun.startswith(("Eu", "uni")):  # pronounced like "you"
        return "a"
    return "an" if noun[0].lower() in "aeiou" or noun.startswith("hour") else "a"
