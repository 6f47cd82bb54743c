"""What a server reads in the pictures of a recording, through a scripted server."""

from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection

from headstart.talk.long_file.analysis import analyse
from headstart.talk.long_file.report import AnalysisObserver, AnalysisOptions, Report
from tests.headstart.talk.scripted_server import SESSION, answer, serving, tell


async def reading_server(
    film: Path, question: str, lines: list[str] | None
) -> tuple[Report, list[list[dict[str, Any]]]]:
    """A film through a server that reads `lines` in each picture for its model; what was asked."""
    inputs: list[list[dict[str, Any]]] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        if event["type"] == "session.update":
            assert "pictures" in event["session"]["gateway"]["events"]
            await tell(connection, "session.updated", session=SESSION)
        elif event["type"] == "response.create":
            content = event["response"]["input"][0]["content"]
            inputs.append(content)
            shown = [part for part in content if part["type"] == "input_image"]
            read = {"kind": "gateway.pictures.read", "pictures": [{"lines": lines} for _ in shown]}
            told = [read] if shown else []
            await answer(connection, event, "A slide.", *told, id=f"r{len(inputs)}")

    async with serving(handle) as url:
        options = AnalysisOptions((question,), hear=False)
        report = await analyse(film, url, options, AnalysisObserver())
    return report, inputs


async def test_what_a_slide_says_is_known(film: Path) -> None:
    """From a server that reads pictures for its model: one at a time, and their words go into the
    notes as they are. A question about them gets that line alone."""
    report, inputs = await reading_server(
        film, "Which train goes to Vienna?", ["Night Train 318", "to Vienna"]
    )
    (part,) = report.to_wire()["parts"]
    assert part["captions"][0]["written"] == ["Night Train 318", "to Vienna"]
    (question,) = inputs[-1]
    assert question["text"] == (
        "Notes on a video:\n\n"
        '0:00 shown: A slide. It has a text that says "Night Train 318 / to Vienna"\n\n'
        "Question about the video: Which train goes to Vienna?\nAnswer in one or two sentences."
    )
    assert report.to_wire()["answers"][0]["read"] == [[0, 0]]


async def test_a_question_about_no_line_gets_whole_notes(film: Path) -> None:
    """What it is about is for the model to find."""
    report, inputs = await reading_server(film, "Summarise it.", ["Night Train 318", "to Vienna"])
    (question,) = inputs[-1]
    assert "[0:00-0:12]" in question["text"]
    assert report.to_wire()["answers"][0]["read"] == [[0, 12]]


async def test_a_picture_that_was_not_read_is_told(film: Path) -> None:
    """Not taken for one in which nothing is written."""
    report, _ = await reading_server(film, "Which train?", None)
    (part,) = report.to_wire()["parts"]
    assert part["captions"][0]["written"] == []
    assert "what is written at 0:00 was not read" in report.to_wire()["remarks"]
