"""The fit reads what a live session reads, and learns the answers."""

from __future__ import annotations

import pytest

from headstart.engine.api import Role, Tool, ToolCall
from headstart.engine.chat.accounting import Modality
from headstart.engine.chat.render import Entry, Segment, Separator, render
from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.recipes.conversation_lora.dialogues import Dialogue, Result, Turn
from headstart.recipes.conversation_lora.tokens import (
    ANSWER_WEIGHT,
    SAID_WEIGHT,
    Example,
    Prompt,
    example,
    system_prompt,
)
from tests.engine.tiny_gguf import write_tiny_gguf

NOTE = "[camera: a lamp; light: dark; colour: red]"
TALK = Dialogue("seeing", (Turn(NOTE, "What is it?", "A lamp."), Turn("", "Thanks.", "Sure!")))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[ChatFormat, Tokenizer]:
    file = GgufFile(write_tiny_gguf(tmp_path_factory.mktemp("words") / "tiny.gguf"))
    tokenizer = Tokenizer.from_gguf(file)
    return ChatFormat.from_gguf(file, tokenizer), tokenizer


def test_an_example_is_the_layout_of_that_conversation(
    words: tuple[ChatFormat, Tokenizer],
) -> None:
    """Token by token what `headstart.engine.chat.render.render` makes of the same items."""
    chat, tokenizer = words
    entries = []
    for number, turn in enumerate(TALK.turns):
        assert isinstance(turn.said, str)
        assert isinstance(turn.answer, str)
        said = Segment(Modality.TEXT, tuple(tokenizer.encode(turn.said)))
        seen = Segment(Modality.IMAGE, tuple(tokenizer.encode(f"{turn.note}\n")))
        answer = Segment(Modality.GENERATED, tuple(tokenizer.encode(turn.answer)))
        segments = (seen, said) if turn.note else (said,)
        entries.append(Entry(f"u{number}", Role.USER, segments))
        entries.append(Entry(f"a{number}", Role.ASSISTANT, (answer,)))
    separator = Separator(tuple(tokenizer.encode("\n")))
    system = system_prompt(chat, sees=True)
    laid = render(chat, separator, system, entries)
    assert (*system, *example(chat, tokenizer, TALK).ids) == tuple(laid.ids)


def test_answers_and_their_ends_are_learnt(words: tuple[ChatFormat, Tokenizer]) -> None:
    """In full: each answer and the token that ends it. A little: what was said and its end. Not at
    all: notes and the template's own strings."""
    chat, tokenizer = words
    made = example(chat, tokenizer, TALK)
    end = tokenizer.decode(chat.assistant_close[:1], special=True)

    def learnt(weight: float) -> str:
        ids = [i for i, w in zip(made.ids, made.weights, strict=True) if w == weight]
        return tokenizer.decode(ids, special=True)

    assert learnt(ANSWER_WEIGHT) == f"A lamp.{end}Sure!{end}"
    assert learnt(SAID_WEIGHT) == f"What is it?{end}Thanks.{end}"


def test_the_system_prompt_says_when_the_camera_is_off(
    words: tuple[ChatFormat, Tokenizer],
) -> None:
    """As the gateway tells a session that has seen nothing yet."""
    chat, tokenizer = words
    off, on = (tokenizer.decode(system_prompt(chat, sees=sees)) for sees in (False, True))
    assert "[camera: off" in off
    assert "[camera" not in on


TOOL = Tool("lamp", "A lamp.", "{}")
CALL = Turn("", "Light!", ToolCall("lamp", '{"on": true}'))


def test_a_call_is_learnt_without_tags(words: tuple[ChatFormat, Tokenizer]) -> None:
    """As the base makes it; what may be called stands in the example's own system prompt."""
    chat, tokenizer = words
    made = example(chat, tokenizer, Dialogue("tools", (CALL,), (TOOL,)))
    system = system_prompt(chat, sees=False, tools=(TOOL,))
    assert made.prompt is Prompt.OWN
    assert made.ids[: len(system)] == system
    call = tokenizer.encode('{"name": "lamp", "arguments": {"on": true}}')
    assert _learnt(made, ANSWER_WEIGHT) == (*call, *chat.assistant_close[:1])
    assert _learnt(made, SAID_WEIGHT) == (*tokenizer.encode("Light!"), *chat.user_close[:1])


def test_a_result_and_the_call_before_it_are_context(words: tuple[ChatFormat, Tokenizer]) -> None:
    """They stand as a session lays them out, and only what is said of them is learnt."""
    chat, tokenizer = words
    turns = (CALL, Turn("", Result('{"ok": 1}'), "It's on."))
    made = example(chat, tokenizer, Dialogue("tools", turns, (TOOL,)))
    answer = (*tokenizer.encode("It's on."), *chat.assistant_close[:1])
    assert _learnt(made, ANSWER_WEIGHT) == answer
    text = tokenizer.decode(made.ids, special=True)
    for part in (chat.call("lamp", '{"on": true}'), chat.result('{"ok": 1}')):
        assert tokenizer.decode(part, special=True) in text


def _learnt(made: Example, weight: float) -> tuple[int, ...]:
    return tuple(i for i, w in zip(made.ids, made.weights, strict=True) if w == weight)
