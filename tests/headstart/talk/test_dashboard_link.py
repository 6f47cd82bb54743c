"""The link from a turn to its waterfall."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from headstart.talk.client import TalkOptions
from headstart.talk.dashboard_link import turn_link
from headstart.talk.dialog import Dialog, Turn
from headstart.talk.media.playback import MediaFile
from headstart.talk.output import PrettyOutput
from headstart.talk.run import TalkCommand, run
from tests.headstart.talk.test_dialog import answer, report, speech


def spoken_turn(*, reports: bool = True) -> Turn:
    dialog = Dialog()
    turn = dialog.begin("a.wav", reports=reports)
    for event in [*speech("i", "hello"), *answer("resp_1", "hi"), report("resp_1")]:
        dialog.receive(event)
    return turn


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("127.0.0.1:8080", "http://127.0.0.1:8080/dashboard/#turn=resp_1"),
        ("https://a.example/", "https://a.example/dashboard/#turn=resp_1"),
        ("ws://h:1/v1/realtime?model=small", "http://h:1/dashboard/#turn=resp_1"),
        ("wss://h/voice/v1", "https://h/voice/dashboard/#turn=resp_1"),
    ],
)
def test_the_link_leads_to_the_servers_dashboard(url: str, link: str) -> None:
    """Whatever address the talk was given."""
    assert turn_link(url, spoken_turn()) == link


def test_without_a_dashboard_there_is_no_link() -> None:
    """Another server has none; neither has a turn that was not answered."""
    assert turn_link("h:1", spoken_turn(reports=False)) is None
    assert turn_link("h:1", Dialog().begin("a.wav", reports=True)) is None
    assert turn_link("h:1", None) is None


def test_people_get_the_link_in_one_piece() -> None:
    """Also where it is longer than a line; none of a server that ends with the talk."""
    for url, expected in (("http://a-long-name.example:8080", 1), (None, 0)):
        console = Console(file=io.StringIO(), width=30)
        output = PrettyOutput(console)
        output.server_url = url
        turn = spoken_turn()
        output.turn_began(MediaFile(Path("a.wav"), 2.0, False, False), turn)
        output.turn_ended(turn)
        text: str = console.file.getvalue()  # type: ignore[attr-defined]
        link = (
            "this turn in the dashboard: http://a-long-name.example:8080/dashboard/#turn=resp_1\n"
        )
        assert text.count(link) == expected


def test_programs_get_the_link_of_a_running_server(
    fake_server_url: str, spoken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the last line, with the id of the response that was spoken of."""
    command = TalkCommand([spoken], fake_server_url, as_json=True, options=TalkOptions(fast=True))
    assert run(command) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    done = [line["response"]["id"] for line in lines if line.get("type") == "response.done"]
    assert lines[-1]["dashboard"].endswith(f"/dashboard/#turn={done[-1]}")
