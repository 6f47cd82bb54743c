from pathlib import Path

import pytest

from headstart.gateway.errors import ServerRefused, ServerUnreachable
from headstart.talk.client import TalkOptions, talk
from headstart.talk.connection.webrtc import calls_url
from tests.headstart.talk.test_client import Recorder

CALL = TalkOptions(webrtc=True)


async def test_a_spoken_file_is_one_turn_over_a_call(fake_server_url: str, spoken: Path) -> None:
    """A second real client of the same server: transcript, answer, budget, as over a WebSocket,
    with the sound on a track."""
    recorder = Recorder()
    dialog = await talk([spoken], fake_server_url, CALL, recorder)
    result = dialog.to_wire()
    assert result["transcript"].startswith("the quick brown")
    assert result["answer"] == "This is an answer that comes word by word."
    assert result["status"] == "completed"
    stages_ms = result["budget"]["stages_ms"]
    assert stages_ms["buffer"] is not None
    assert stages_ms["buffer"] >= 0
    assert result["errors"] == []
    assert "input_audio_buffer.speech_started" in recorder.kinds


async def test_the_packets_of_a_track_hear_what_a_socket_hears(
    fake_server_url: str, spoken: Path
) -> None:
    """The same number of words within one of what the WebSocket's lossless sound gives."""
    words = []
    for options in (CALL, TalkOptions(fast=True)):
        dialog = await talk([spoken], fake_server_url, options)
        words.append(len(dialog.to_wire()["transcript"].split()))
    assert abs(words[0] - words[1]) <= 1


async def test_nobody_there(spoken: Path) -> None:
    """A sentence, as without --webrtc."""
    with pytest.raises(ServerUnreachable):
        await talk([spoken], "http://127.0.0.1:9", CALL)


async def test_a_server_without_calls(fake_server_url: str, spoken: Path) -> None:
    """What answers otherwise than with a call is quoted."""
    with pytest.raises(ServerRefused, match=r"404|405"):
        await talk([spoken], f"{fake_server_url}/nowhere/v1", CALL)


def test_where_calls_are_made() -> None:
    """Beside the WebSocket's own path."""
    url = calls_url("wss://host:1/v1/realtime?model=m")
    assert url == "https://host:1/v1/realtime/calls?model=m"
