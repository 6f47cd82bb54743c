"""The wire between gateway and engine."""

from __future__ import annotations

import msgspec
import pytest

from headstart.engine import api

COMMANDS: list[api.Command] = [
    api.Ping(1),
    api.Open("s", "hi", (api.Item("i", api.Role.USER, (api.Text("x"), api.Image(1, 1, b"abc"))),)),
    api.Close("s"),
    api.Instruct("s", "x", "", (api.Tool("f", "does", "{}"),)),
    api.AddItem("s", api.Item("i", api.Role.ASSISTANT, (api.ToolCall("f", "{}"),))),
    api.AddItem("s", api.Item("i", api.Role.USER, (api.ToolResult("ok"),))),
    api.AddItem("s", api.Item("i", api.Role.SYSTEM, (api.Text("x"),)), "root"),
    api.RemoveItem("s", "i"),
    api.BeginSpeech("s", api.TurnRef(1, 2), "i", 3),
    api.Audio("s", api.TurnRef(1), 0, b"\1\2", 5),
    api.Clip("s", "c", b"\1\2", True),
    api.AddItem("s", api.Item("i", api.Role.USER, (api.Sound("c"),))),
    api.Hush("s", api.TurnRef(1), 9, api.Sampling(stop=("a",), seed=3)),
    api.Resume("s", api.TurnRef(1, 1)),
    api.EndSpeech("s", api.TurnRef(1), 9, True),
    api.ContinueSpeech("s", api.TurnRef(2), "i", "j"),
    api.ReleaseSpeech("s"),
    api.DropSpeech("s", api.TurnRef(1)),
    api.Frame("s", 0, api.Image(1, 1, b"abc")),
    api.Respond("s", -1, "i", api.Sampling(), "be kind", ()),
    api.Cancel("s", 1),
]
USAGE = api.Usage(input_text=1, input_audio=2, cached=3, output=4)
EVENTS: list[api.Event] = [
    api.Loading("x", 1, 2),
    api.Ready("abc", api.ModelInfo("m", 1, 2, 3, 4, 0.5)),
    api.Stats(1, "abc", 2, 3, 4, 5, 6, 7),
    api.Hearing("s", api.TurnRef(1), "a", " b", 5),
    api.EndOfMessage("s", api.TurnRef(1), 5, 0.5),
    api.Heard("s", api.TurnRef(1), "i", "a b", 2),
    api.ClipHeard("s", "c", 1, "a", final=True),
    api.Chunk("s", api.TurnRef(1), 0, 8000, {"mel": 1.0}, 2.0, 3, 4),
    api.Delta("s", 1, "x", 2, (api.Span("mel", 1, 2),)),
    api.Call("s", 1, 0, "f", "{", False),
    api.Finished("s", 1, api.FinishReason.STOP, "x", USAGE, api.KvStats(1, 2, 3, 4), 5.0),
    api.Failed("s", "audio", "code", "message"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: type(c).__name__)
def test_commands_survive_the_wire(command: api.Command) -> None:
    """Encoded and decoded, a command equals itself."""
    assert api.decode_command(api.encode(command)) == command


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_survive_the_wire(event: api.Event) -> None:
    """Encoded and decoded, an event equals itself."""
    assert api.decode_event(api.encode(event)) == event


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x80", b"\x81\xa2op\xa4nope"])
def test_garbage_is_refused_by_name(data: bytes) -> None:
    """Bytes that are no message raise msgspec's error, not something of ours."""
    with pytest.raises(msgspec.DecodeError):
        api.decode_command(data)
    with pytest.raises(msgspec.DecodeError):
        api.decode_event(data)


def test_so_are_broken_text_and_endless_nesting() -> None:
    """For which msgspec has other errors: a peer's message must not end who reads it."""
    events = next(sent for event in EVENTS if b"\xa1s" in (sent := api.encode(event)))
    for decode, text, end in (
        (api.decode_command, api.encode(api.Close("s")), api.encode(api.Leave())),
        (api.decode_event, events, api.encode(api.Draining())),
    ):
        nested = end.replace(b"\x81", b"\x82", 1) + b"\xa1x" + b"\x91" * 100_000
        for data in (text.replace(b"\xa1s", b"\xa1\xff", 1), nested):
            with pytest.raises(msgspec.DecodeError):
                decode(data)


def test_usage_adds_its_inputs() -> None:
    """Input is text, audio and image together; cached is a part of it, not more."""
    assert USAGE.input == 3
