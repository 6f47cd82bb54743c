"""Visual tokens: exact names, blends, and what is said when nothing is sure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headstart.engine.config import EngineConfig
from headstart.engine.process.load import LoadedModel, load_model
from headstart.engine.scheduling.scheduler import Plan, Work
from headstart.engine.vision import Connector, ConnectorSettings, FrameLabeller, FrameLabels
from headstart.engine.vision.connector import article, phrase
from headstart.engine.vision.pixels import Rgb

D_MODEL = 16
LABELS = FrameLabels(
    label="tiger cat",
    probability=0.4,
    alternatives=(("Egyptian cat", 0.3), ("lynx", 0.2), ("great white shark", 0.01)),
    kind=None,
    kind_probability=0.0,
    brightness="bright",
    colour="brown",
    is_blank=False,
)


class Words:
    """A tokenizer that knows words with the space before them, and their random embeddings."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.rows = torch.randn(500, D_MODEL, generator=torch.Generator().manual_seed(0))

    def tokenize(self, text: str) -> list[int]:
        words = re.findall(r"\s?[^\s]+|\s", text)
        return [self.ids.setdefault(word, len(self.ids)) for word in words]

    def embed(self, ids: Tensor) -> Tensor:
        assert ids.dtype == torch.int64
        return self.rows[ids]

    def of(self, text: str) -> Tensor:
        return self.embed(torch.tensor(self.tokenize(text)))


def connector(words: Words, settings: ConnectorSettings | None = None) -> Connector:
    return Connector(words.tokenize, words.embed, D_MODEL, settings)


def test_a_sure_name_is_its_own_embedding() -> None:
    """Above `sure` the tokens are exactly those of the written note."""
    words = Words()
    out = connector(words).project(replace(LABELS, probability=0.9))
    assert out.text == "[camera: a tiger cat; light: bright; colour: brown]\n"
    assert torch.equal(out.embeddings[: out.name_rows.start], words.of("[camera: a"))
    name = out.embeddings[out.name_rows.start : out.name_rows.stop]
    assert torch.equal(name, words.of(" tiger cat"))
    assert torch.equal(
        out.embeddings[out.name_rows.stop :], words.of("; light: bright; colour: brown]\n")
    )
    assert out.tokens == len(out.embeddings) == 10


@pytest.mark.parametrize("probability", [0.9, 0.4, 0.2])
def test_a_name_is_never_blended_with_its_rivals(probability: float) -> None:
    """However close the rivals come, the slot has the name's own embeddings: a model follows a
    point between names less firmly, and says again what it saw before."""
    words = Words()
    rivals = (("Egyptian cat", probability * 0.9), ("lynx", probability * 0.8))
    out = connector(words).project(replace(LABELS, probability=probability, alternatives=rivals))
    assert torch.equal(
        out.embeddings[out.name_rows.start : out.name_rows.stop], words.of(" tiger cat")
    )


def test_the_last_digits_of_probabilities_change_nothing() -> None:
    """Processors differ in a probability's last digits; the tokens of the note are the same."""
    near = tuple((name, p * (1 + 1e-6)) for name, p in LABELS.alternatives)
    other = replace(LABELS, probability=LABELS.probability * (1 - 1e-6), alternatives=near)
    ours = connector(Words())
    assert torch.equal(ours.project(LABELS).embeddings, ours.project(other).embeddings)


@pytest.mark.parametrize("kind", [None, "pet"])
@pytest.mark.parametrize("probability", [0.9, 0.4, 0.2])
def test_what_is_seen_stands_behind_no_comma(probability: float, kind: str | None) -> None:
    """A name is part of the first noun phrase, because whether a small model repeats what follows
    a comma hangs on a last bit."""
    labels = replace(LABELS, probability=probability, kind=kind, kind_probability=0.9)
    before, name, after = phrase(labels, ConnectorSettings())
    assert name == "tiger cat"
    assert after.startswith("; light")
    assert "," not in before


def test_long_names_keep_their_end() -> None:
    """The slot is bounded: a longer name keeps its last tokens."""
    words = Words()
    out = connector(words, ConnectorSettings(slot_tokens=1)).project(
        replace(LABELS, probability=0.9)
    )
    assert len(out.name_rows) == 1
    assert torch.equal(out.embeddings[out.name_rows.start : out.name_rows.stop], words.of(" cat"))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"probability": 0.9}, "[camera: a tiger cat; light: bright; colour: brown]"),
        (
            {"kind": "cat", "kind_probability": 0.9},
            "[camera: a tiger cat; light: bright; colour: brown]",
        ),
        (
            {"kind": "cat", "kind_probability": 0.9, "probability": 0.2},
            "[camera: a cat; light: bright; colour: brown]",
        ),
        (
            {"kind": "pet", "kind_probability": 0.9, "probability": 0.2},
            "[camera: a pet like a tiger cat; light: bright; colour: brown]",
        ),
        ({}, "[camera: probably a tiger cat; light: bright; colour: brown]"),
        (
            {"probability": 0.2},
            "[camera: something like a tiger cat; light: bright; colour: brown]",
        ),
        (
            {"probability": 0.05},
            "[camera: mostly brown, bright; I can't tell what this is]",
        ),
        (
            {"people": 1, "probability": 0.2},
            "[camera: a person; light: bright; colour: brown]",
        ),
        (
            {"people": 1},
            "[camera: a person, maybe with a tiger cat; light: bright; colour: brown]",
        ),
        (
            {"people": 2, "probability": 0.9},
            "[camera: two people with a tiger cat; light: bright; colour: brown]",
        ),
        (
            {"people": 9, "probability": 0.1, "kind": "dog", "kind_probability": 0.9},
            "[camera: at least nine people with a dog; light: bright; colour: brown]",
        ),
        ({"is_blank": True}, "[camera: nothing, the picture is all brown]"),
    ],
)
def test_the_note_says_how_sure_it_is(change: dict[str, object], note: str) -> None:
    """Sure, of a kind, likely, a guess, unclear, people, and blank have their own wordings."""
    labels = replace(LABELS, **change)  # type: ignore[arg-type]
    out = connector(Words()).project(labels)
    assert out.text == note + "\n"
    assert bool(out.name_rows) == ("cat" in note or "dog" in note)


def test_no_camera_is_said_too() -> None:
    """Without a frame there is a note as well: a small model would make something up."""
    out = connector(Words()).project(None)
    assert out.text == "[camera: off, I can't see anything]\n"
    assert len(out.name_rows) == 0


@pytest.mark.parametrize(
    ("article_wanted", "nouns"),
    [
        ("a", ["cat", "unicycle", "European gallinule", "hen"]),
        ("an", ["espresso", "umbrella", "upright piano", "hourglass", "Airedale terrier"]),
        ("some", ["jeans", "hay"]),
    ],
)
def test_articles(article_wanted: str, nouns: list[str]) -> None:
    """By sound, as far as the class names need it."""
    assert [article(noun) for noun in nouns] == [article_wanted] * len(nouns)


def _answer(model: LoadedModel, note: Tensor, question: str, limit: int = 12) -> str:
    """The model's greedy answer to `question` behind a note, through the real decoder."""
    stream = model.new_stream("see")
    chat, tokenizer = model.chat, model.tokenizer
    stream.append(
        [
            *chat.system("You are a helpful assistant. Answer in one or two short sentences."),
            *chat.user_open,
            *stream.soft.intern(note.numpy()),
            *tokenizer.encode(question),
            *chat.user_close_and_assistant_open,
        ]
    )
    answer: list[int] = []
    while len(answer) < limit:
        result = model.runner.step(Plan((Work(stream, stream.pending, True, 0),)))
        token = int(result.logits[stream].argmax())
        if token in chat.stop_ids:
            break
        answer.append(token)
        stream.append([token])
    stream.close()
    return tokenizer.decode(answer)


@pytest.mark.weights
def test_the_default_model_says_what_it_sees(
    eyes: FrameLabeller, cat: Rgb, coffee: Rgb, astronaut: Rgb, qwen_path: Path
) -> None:
    """Asked what it sees, `small` names the cat, the espresso and the person, admits to an
    unclear picture and to having no camera; a frame costs 4 to 24 tokens."""
    model = load_model(qwen_path, EngineConfig(threads=1, kv_pool_bytes=32 << 20))
    ours = Connector(model.tokenizer.encode, model.decoder.embed, model.spec.hidden)
    unclear = replace(LABELS, probability=0.05)
    for labels, said in (
        (eyes.label(cat), "cat"),
        (eyes.label(coffee), "espresso"),
        (eyes.label(astronaut), "person"),
        (unclear, "can't tell"),
        (None, "can't see"),
    ):
        projected = ours.project(labels)
        assert 4 <= projected.tokens <= 24
        answer = _answer(model, projected.embeddings, "What do you see?")
        assert said in answer, (projected.text, answer)


def test_phrase_and_projection_agree() -> None:
    """The text of a projection is the phrase with the name in its slot."""
    before, name, after = phrase(LABELS, ConnectorSettings())
    assert connector(Words()).project(LABELS).text == f"{before} {name}{after}"
