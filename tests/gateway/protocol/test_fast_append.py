import base64
import json
import random
from typing import Any

import pytest

from headstart.gateway.protocol import limits
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.protocol.fast_append import FastAppend, TimedFastAppend, fast_append
from headstart.gateway.protocol.parse import decode_audio, parse_client_event

APPEND = "input_audio_buffer.append"


def the_long_way(text: str, extensions: bool) -> tuple[bytes, str | None, float | None] | None:
    """Sound, id and stamp of an append that `parse_client_event` takes; None: an error."""
    try:
        event: Any = parse_client_event(text, extensions=extensions)
        return decode_audio(event.audio), event.event_id, getattr(event, "captured_at_ms", None)
    except ProtocolError:
        return None


def stamp_of(quick: FastAppend) -> float | None:
    return quick.captured_at_ms if isinstance(quick, TimedFastAppend) else None


def append(**fields: Any) -> str:
    return json.dumps({"type": APPEND, "audio": "AAA="} | fields)


RIGHT = [
    append(),
    append(event_id="event_1"),
    append(event_id=None),
    json.dumps({"audio": base64.b64encode(bytes(4800)).decode(), "type": APPEND}),
    f'  {{"audio" : "AAA=", "type":"{APPEND}"}}\n',
    append(audio="AAA=", event_id="\\u00e9\\ud83d\\ude00"),
]
TIMED = [append(captured_at_ms=12.5), append(captured_at_ms=3), append(captured_at_ms=None)]
WRONG = [
    append(audio=""),
    append(audio="AA=="),
    append(audio="A"),
    append(audio="AAA"),
    append(audio="AA\nAA"),
    append(audio="AAAA===="),
    append(audio="é"),
    append(audio=None),
    append(audio=["AAAA"]),
    append(event_id=7),
    append(event_id="x" * (limits.MAX_ID_CHARS + 1)),
    append(captured_at_ms="1"),
    append(captured_at_ms=True),
    append(other=1),
    append()[:-1],
    append() + "x",
    "\ud800" + append(),
    json.dumps({"type": "response.create", "note": APPEND}),
    json.dumps([{"type": APPEND, "audio": "AAA="}]),
    f'{{"type":"{APPEND}"}}',
    append(captured_at_ms=0).replace("0}", "1e999}"),
]


@pytest.mark.parametrize("text", RIGHT)
def test_right_ones_are_taken(text: str) -> None:
    """Wherever the type stands in it, and what the long way would have made of it."""
    quick = fast_append(text, extensions=False)
    assert quick is not None
    assert (quick.audio, quick.event_id, None) == the_long_way(text, False)


@pytest.mark.parametrize("text", TIMED)
def test_stamps_are_for_sessions_that_asked(text: str) -> None:
    """`captured_at_ms` passes with extensions, and is left to the long way's error without."""
    quick = fast_append(text, extensions=True)
    assert quick is not None
    assert (quick.audio, quick.event_id, stamp_of(quick)) == the_long_way(text, True)
    assert fast_append(text, extensions=False) is None


@pytest.mark.parametrize("text", WRONG)
def test_wrong_ones_are_left_to_the_long_way(text: str) -> None:
    """Errors have one place, and their words."""
    assert fast_append(text, extensions=True) is None


def test_limits_are_those_of_the_long_way() -> None:
    """15 MiB of sound is taken, a sample more is not."""
    most = base64.b64encode(bytes(limits.MAX_AUDIO_BYTES)).decode()
    assert fast_append(append(audio=most), extensions=False) is not None
    over = base64.b64encode(bytes(limits.MAX_AUDIO_BYTES + 2)).decode()
    assert fast_append(append(audio=over), extensions=False) is None


def test_both_ways_agree_on_mutants() -> None:
    """Five thousand appends with letters changed: whatever the short way takes, the long way takes
    as the same."""
    chance = random.Random(3)
    seeds, taken = RIGHT + TIMED, 0
    for _ in range(5000):
        letters = list(chance.choice(seeds))
        for _ in range(chance.randint(1, 3)):
            letters[chance.randrange(len(letters))] = chance.choice('"\\{}:,=A/+9é \n')
        text = "".join(letters)
        extensions = chance.random() < 0.5
        quick = fast_append(text, extensions=extensions)
        if quick is not None:
            taken += 1
            expected = (quick.audio, quick.event_id, stamp_of(quick))
            assert the_long_way(text, extensions) == expected, text
    assert taken > 100
