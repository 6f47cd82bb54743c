"""Calls told apart from text, however the text is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.engine.chat.tools import CallReader

ARGUMENTS = {"city": 'Ro"me}', "days": [1, 2]}
DEEP = "[" * 100_000 + "]" * 100_000
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {json.dumps(ARGUMENTS)}}}\n</tool_call>'


def read(
    *pieces: str, names: Collection[str] = frozenset({"weather"})
) -> tuple[str, list[str], CallReader]:
    """What was said, the arguments of each whole call, and the reader after the end."""
    reader = CallReader(names)
    said, whole = "", []
    arguments: dict[int, str] = {}
    results = [reader.push(piece) for piece in pieces]
    results.append(reader.finish())
    for text, calls in results:
        said += text
        for piece in calls:
            assert piece.name == "weather"
            arguments[piece.call] = arguments.get(piece.call, "") + piece.arguments
            if piece.done:
                whole.append(arguments[piece.call])
    return said, whole, reader


@given(st.lists(st.integers(0, 400), max_size=20))
def test_how_the_text_is_cut_does_not_matter(cuts: list[int]) -> None:
    """Text, two calls with quotes and braces in a string: the same at any cut."""
    text = f"Let me look.\n{CALL}\n{CALL}"
    at = sorted({0, *(cut % len(text) for cut in cuts), len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(at)]
    said, whole, reader = read(*pieces)
    assert said == "Let me look."
    assert [json.loads(each) for each in whole] == [ARGUMENTS] * 2
    assert not reader.error


def test_arguments_come_while_they_are_decoded() -> None:
    """Before a call is over, what is known of its arguments has been passed on."""
    reader = CallReader(["weather"])
    _, calls = reader.push('<tool_call>\n{"name": "weather", "arguments": {"city": "Ro')
    assert [(c.arguments, c.done) for c in calls] == [('{"city": "Ro', False)]
    assert reader.in_call


def test_without_functions_everything_is_text() -> None:
    """A session without tools may talk about the tags, spaces included."""
    said, whole, _ = read("a <tool_call> b ", names=())
    assert (said, whole) == ("a <tool_call> b ", [])


def test_what_comes_behind_a_call_ends_the_answer() -> None:
    """A model that goes on by inventing the result is stopped, and not quoted."""
    said, whole, reader = read(CALL, "\n<tool_response>\nsunny")
    assert (said, len(whole), reader.ended, reader.error) == ("", 1, True, "")


def test_a_call_that_is_not_closed_counts_when_it_is_whole() -> None:
    """Small models end their turn behind the last brace."""
    _, whole, reader = read('<tool_call>\n{"name": "weather", "arguments": {}}')
    assert (whole, reader.error) == (["{}"], "")


def test_arguments_before_the_name_are_read_at_the_end() -> None:
    """The keys' order is the model's."""
    _, whole, _ = read('<tool_call>{"arguments": {"city": "Oslo"}, "name": "weather"}</tool_call>')
    assert whole == ['{"city": "Oslo"}']


@pytest.mark.parametrize(
    ("call", "why"),
    [
        ('{"name": "delete_all", "arguments": {}}</tool_call>', "does not exist"),
        ('{"name": "delete_all", "arguments": {"a": 1', "does not exist"),
        ("weather in Rome</tool_call>", "not a JSON object"),
        ('{"name": "weather", "arguments": {"city": ', "cannot be parsed"),
        ("[1]</tool_call>", "not a JSON object"),
        ('{"name": "weather", "arguments": {...}}</tool_call>', "are not JSON"),
        ('{"name": 5, "arguments": {}}</tool_call>', "does not exist"),
        ('{"name": ["weather"], "arguments": {}}</tool_call>', "does not exist"),
        ('{"arguments": ' + DEEP + ', "name": "weather"}</tool_call>', "not a JSON object"),
        ('{"name": "weather", "arguments": {"city": ' + DEEP + "}}</tool_call>", "are not JSON"),
    ],
    ids=lambda text: text[:40],
)
def test_what_cannot_be_carried_out_is_named(call: str, why: str) -> None:
    """An unknown function, no JSON, half of it: nothing is called, and it is said why."""
    _, whole, reader = read("<tool_call>\n" + call)
    assert whole == []
    assert why in reader.error or "not a JSON object" in reader.error


BARE = '{"name": "weather", "arguments": {"city": "Rome"}}'


@pytest.mark.parametrize("text", [BARE, f" {BARE}\n", f"```json\n{BARE}\n```", f"```\n{BARE}"])
def test_an_answer_that_is_a_call_without_tags_is_one(text: str) -> None:
    """Letter by letter and at once; fences are no text."""
    for pieces in ([text], list(text)):
        said, whole, reader = read(*pieces)
        assert (said, whole, reader.error) == ("", ['{"city": "Rome"}'], "")


def test_two_calls_without_tags() -> None:
    """One in each line."""
    assert len(read(*f"{BARE}\n{BARE}")[1]) == 2


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Rome", "arguments": {}}',
        "{} is an empty object.",
        '{"a": ' + "1" * 200,
        "```python\nprint()\n```",
        f"Say {BARE}",
        "{",
    ],
)
def test_json_that_calls_nothing_is_text(text: str) -> None:
    """An unknown name, another object, code, or a call that is only spoken about."""
    for pieces in ([text], list(text)):
        assert read(*pieces)[:2] == (text, [])


def test_a_lone_less_than_is_text() -> None:
    """What only began like a call is said."""
    assert read("a <tool", " b<")[0] == "a <tool b<"
