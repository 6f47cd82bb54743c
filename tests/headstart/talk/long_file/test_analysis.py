"""Recordings through real servers with a fake engine, over real sockets."""

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection

from headstart.gateway.errors import ServerUnreachable
from headstart.talk.long_file import file_info
from headstart.talk.long_file.analysis import analyse
from headstart.talk.long_file.command import AskCommand, run
from headstart.talk.long_file.file_info import NothingToSee
from headstart.talk.long_file.notes import Note
from headstart.talk.long_file.report import AnalysisObserver, AnalysisOptions, Report, Stop
from tests.headstart.talk.conftest import CLIPS
from tests.headstart.talk.long_file.video_files import (
    BLUE,
    GREEN,
    RED,
    break_middle,
    changing,
    write_video,
)
from tests.headstart.talk.media_files import tone
from tests.headstart.talk.scripted_server import SESSION, answer, serving, tell

ANSWER = "This is an answer that comes word by word."
QUESTIONS = ("What is said?", "What is shown?")
USAGE = {"input_token_details": {"image_tokens": 900}}


class Watching(AnalysisObserver):
    """Notes what happens, and calls `at` after each note."""

    def __init__(self, at: Callable[[Report], None] = lambda _: None) -> None:
        self.seen: list[str] = []
        self._at = at

    def planned(self, info: object, plan: object) -> None:
        self.seen.append("planned")

    def noted(self, note: Note, report: Report) -> None:
        self.seen.append("noted")
        self._at(report)

    def away(self, for_s: float | None) -> None:
        self.seen.append("back" if for_s is None else "away")

    def answered(self, answer: object) -> None:
        self.seen.append("answered")


async def test_a_film_with_speech(fake_server_url: str, tmp_path: Path) -> None:
    """What is said is there with its times, what is shown with its, and every question answered."""
    report = await analyse(
        CLIPS / "demo.mp4", fake_server_url, AnalysisOptions(QUESTIONS), AnalysisObserver()
    )
    wire = report.to_wire()
    assert wire["complete"] is True
    assert (wire["model"], report.remarks) == ("fake", [])
    assert [answer["answer"] for answer in wire["answers"]] == [ANSWER, ANSWER]
    (part,) = wire["parts"]
    assert part["summary"] == ANSWER
    (line,) = part["heard"]
    assert line["text"].startswith("the quick brown")
    assert 0 <= line["start_s"] < line["end_s"] <= part["end_s"]
    assert part["pictures"][0] == 0
    assert wire["client_peak_bytes"] > 0
    json.dumps(wire)


async def test_another_model_than_asked_for_is_told(fake_server_url: str, film: Path) -> None:
    """Once, however many sessions and answers there are."""
    options = AnalysisOptions(QUESTIONS, model="medium")
    report = await analyse(film, fake_server_url, options, AnalysisObserver())
    assert sum("runs 'fake', not 'medium'" in remark for remark in report.remarks) == 1


async def test_parts_follow_each_other(fake_server_url: str, film: Path) -> None:
    """Planned first, then part by part, then answers."""
    watching = Watching()
    options = AnalysisOptions(("What?",), part_s=5)
    report = await analyse(film, fake_server_url, options, watching)
    assert watching.seen == ["planned", *["noted"] * 4, "answered"]
    spans = [(note.part.start_s, note.part.end_s) for note in report.notes]
    assert spans == [(0, 5), (3, 8), (6, 11), (9, 12)]
    assert all(note.shown_s for note in report.notes)


async def test_only_the_range_is_looked_at(fake_server_url: str, film: Path) -> None:
    """`--from` and `--to`."""
    options = AnalysisOptions(("What?",), from_s=5, to_s=9)
    report = await analyse(film, fake_server_url, options, AnalysisObserver())
    assert [(n.part.start_s, n.part.end_s) for n in report.notes] == [(5, 9)]
    assert report.to_wire()["seen_to_s"] == 9


async def test_damage_is_told(fake_server_url: str, film: Path) -> None:
    """A broken middle: the rest is looked at, and the result says what is missing."""
    pcm = tone(20.0, 24_000)[0]
    path = write_video(film.with_name("x.mp4"), changing(20, RED, GREEN, BLUE), pcm=pcm)
    report = await analyse(
        break_middle(path), fake_server_url, AnalysisOptions(("?",)), AnalysisObserver()
    )
    lost = report.to_wire()["lost"]
    assert "sound" in [each["what"] for each in lost]
    assert report.answers[0].status == "completed"


async def test_one_interrupt_answers_from_what_is_known(fake_server_url: str, film: Path) -> None:
    """Stopped after the first part: the question is answered, the rest is not looked at."""
    stop = Stop()
    watching = Watching(lambda _: stop.ask())
    options = AnalysisOptions(("What?",), part_s=5)
    report = await analyse(film, fake_server_url, options, watching, stop)
    wire = report.to_wire()
    assert wire["complete"] is False
    assert 1 <= len(wire["parts"]) < 4
    assert wire["answers"][0]["answer"] == ANSWER


async def test_two_interrupts_end_at_once(fake_server_url: str, film: Path) -> None:
    """Nothing is asked any more; the notes are there."""
    stop = Stop()

    def twice(_: Report) -> None:
        stop.ask()
        stop.ask()

    options = AnalysisOptions(("What?",), part_s=5)
    report = await analyse(film, fake_server_url, options, Watching(twice), stop)
    assert report.answers == []
    assert report.notes


async def test_an_interrupt_while_it_answers(fake_server_url: str, film: Path) -> None:
    """All was looked at: the first interrupt ends the answers."""
    stop = Stop()

    class Impatient(AnalysisObserver):
        def answering(self, question: str) -> None:
            stop.ask()

    report = await analyse(film, fake_server_url, AnalysisOptions(QUESTIONS), Impatient(), stop)
    assert report.answers == []
    assert report.is_whole
    assert len(report.notes) == 1


async def test_nothing_is_left_to_look_at(fake_server_url: str, tmp_path: Path) -> None:
    """A silent film whose pictures are not wanted: said so, and not taken for an interrupt."""
    path = write_video(tmp_path / "silent.mkv", changing(2, RED))
    options = AnalysisOptions(("What?",), see=False)
    with pytest.raises(NothingToSee, match=r"no sound that can be decoded.*--no-frames"):
        await analyse(path, fake_server_url, options, AnalysisObserver())


async def test_nobody_there(film: Path) -> None:
    """A server that was never there is an error, not a wait."""
    with pytest.raises(ServerUnreachable, match="headstart serve"):
        await analyse(film, "http://127.0.0.1:9", AnalysisOptions(("?",)), AnalysisObserver())


# --- a server that goes away ----------------------------------------------------------------------


def started(port: int = 0) -> tuple[subprocess.Popen[str], str]:
    argv = [
        sys.executable,
        "-m",
        "headstart",
        "serve",
        "--port",
        str(port),
        "--announce",
        "--engine",
        "fake",
        "--set",
        "voice=none",
    ]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def ended(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


async def test_a_server_that_is_started_anew(film: Path) -> None:
    """Another one takes its place after the first part: all parts are there, none twice."""
    process, url = await asyncio.to_thread(started)
    running = [process]

    def replace(report: Report) -> None:
        if len(report.notes) == 1:
            ended(running.pop())
            running.append(started(int(url.rsplit(":", 1)[1]))[0])

    try:
        watching = Watching(replace)
        report = await analyse(film, url, AnalysisOptions(("What?",), part_s=5), watching)
    finally:
        ended(running.pop())
    assert [note.part.index for note in report.notes] == [0, 1, 2, 3]
    assert report.error is None
    assert report.answers[0].text == ANSWER
    assert "away" in watching.seen
    assert "back" in watching.seen


async def test_a_server_that_stays_away(film: Path) -> None:
    """What is known is reported, with the reason."""
    process, url = await asyncio.to_thread(started)
    running = [process]

    def end(report: Report) -> None:
        if running:
            ended(running.pop())

    options = AnalysisOptions(("What?",), part_s=5, retry_for_s=0.5)
    report = await analyse(film, url, options, Watching(end))
    wire = report.to_wire()
    assert wire["error"]
    assert wire["complete"] is False
    assert wire["parts"]
    assert wire["answers"] == []


# --- other servers --------------------------------------------------------------------------------


def width_of(url: str) -> int:
    """Of a JPEG in a data URL."""
    jpeg = base64.b64decode(url.partition(",")[2])
    pixels = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert pixels is not None
    return int(pixels.shape[1])


async def test_a_server_that_transcribes_nothing_gets_the_sound(film: Path) -> None:
    """A plain server that knows neither our keys nor transcription sessions: the sound of each part
    goes to its model, beside the pictures; no key of ours is sent in the end."""
    inputs: list[list[dict[str, Any]]] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        say = partial(tell, connection)

        if event["type"] == "session.update":
            known = "gateway" not in event["session"]
            if known and event["session"]["type"] == "realtime":
                await say("session.updated", session=SESSION)
            else:
                await say("error", error={"message": "unknown", "code": "unknown_parameter"})
        elif event["type"] == "response.create":
            assert event["response"]["conversation"] == "none"
            inputs.append(event["response"]["input"][0]["content"])
            await answer(connection, event, id=f"r{len(inputs)}", usage=USAGE)

    async with serving(handle) as url:
        report = await analyse(film, url, AnalysisOptions(("What?",)), AnalysisObserver())
    _, part, question = inputs
    kinds = [content["type"] for content in part]
    assert kinds.count("input_image") == len(report.notes[0].shown_s) > 0
    assert kinds.count("input_audio") == 1
    assert [content["type"] for content in question] == ["input_text"]
    assert report.answers[0].text == "Yes."
    assert any("writes down nothing" in remark for remark in report.to_wire()["remarks"])


async def test_the_last_two_summaries_are_read_with_a_part(film: Path) -> None:
    """By a model that sees: a part's message has the two before it and no other, and the question
    has them all."""
    texts: list[str] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        if event["type"] == "session.update":
            await tell(connection, "session.updated", session=SESSION)
        elif event["type"] == "response.create":
            content = event["response"]["input"][0]["content"]
            texts.append("".join(part.get("text", "") for part in content))
            said = f"Summary {len(texts) - 1}."
            await answer(connection, event, said, id=f"r{len(texts)}", usage=USAGE)

    async with serving(handle) as url:
        options = AnalysisOptions(("What?",), part_s=5, hear=False)
        report = await analyse(film, url, options, AnalysisObserver())
    assert [note.seen for note in report.notes] == [f"Summary {n}." for n in (1, 2, 3, 4)]
    _, *parts, question = texts  # the first tells how the model sees
    carried = [re.findall(r"Summary \d", text) for text in parts]
    assert carried == [
        [],
        ["Summary 1"],
        ["Summary 1", "Summary 2"],
        ["Summary 2", "Summary 3"],
    ]
    assert re.findall(r"Summary (\d)", question) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(("counts", "too_large"), [(True, [336]), (False, [640, 560, 448, 336])])
async def test_pictures_are_as_large_as_a_part_has_room_for(
    counts: bool, too_large: list[int], film: Path
) -> None:
    """A model that makes 4,000 tokens of a picture in full: the part's pictures are smaller, within
    what they may take together. It cannot read even these: they are sent smaller once more, and
    from then on. If its server does not count them, each size of the recording is tried once."""
    shown: list[list[int]] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        say = partial(tell, connection)

        if event["type"] == "session.update":
            await say("session.updated", session=SESSION)
        elif event["type"] == "response.create":
            asked = event["response"]
            widths = [width_of(url) for url in re.findall(r'data:[^"]+', json.dumps(asked))]
            shown.append(widths)
            tokens = sum(round(4_000 * (width / 640) ** 2) for width in widths)
            whole: dict[str, Any] = {"id": f"r{len(shown)}", "metadata": asked["metadata"]}
            await say("response.created", response=whole)
            if len(widths) > 1 and max(widths) > 300:
                error = {"code": "cache_full", "message": "The prompt does not fit."}
                whole |= {"status": "failed", "status_details": {"error": error}}
            else:
                whole["status"] = "completed"
                if counts:
                    whole["usage"] = {"input_token_details": {"image_tokens": tokens}}
                await say("response.output_text.delta", response_id=whole["id"], delta="Yes.")
            await say("response.done", response=whole)

    frames = changing(12, RED, GREEN, BLUE, width=640, height=360)
    path = write_video(film.with_name("large.mp4"), frames)
    async with serving(handle) as url:
        options = AnalysisOptions(("What?",), part_s=5, hear=False)
        report = await analyse(path, url, options, AnalysisObserver())
    first, *parts, _question = shown
    assert first == [640]
    refused, parts = parts[: len(too_large)], parts[len(too_large) :]
    assert refused == [[side, side] for side in too_large]
    assert parts == [[224, 224]] * 3 + [[224]]
    assert [note.to_wire()["pictures_side_px"] for note in report.notes] == [224] * 4
    assert report.remarks == []


async def test_an_interrupt_ends_the_part_at_hand(film: Path) -> None:
    """The server is busy with a part when the user stops: it is told to leave that before it is
    asked anything, by the end of both sessions."""
    stop = Stop()
    there: set[ServerConnection] = set()
    at_questions: list[int] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        say = partial(tell, connection)

        if event["type"] == "session.update":
            await say("session.updated", session=SESSION)
        elif event["type"] == "response.create":
            asked = event["response"]
            whole = {"id": "r", "status": "completed", "metadata": asked["metadata"]}
            await say("response.created", response=whole)
            if stop.asked.is_set():
                at_questions.append(len(there))
            elif watching.seen.count("noted"):  # the second part's summary, which never ends
                stop.ask()
                return
            await say("response.output_text.delta", response_id="r", delta="Yes.")
            await say("response.done", response=whole)

    watching = Watching()
    async with serving(handle, connections=there) as url:
        report = await analyse(film, url, AnalysisOptions(("What?",), part_s=5), watching, stop)
    assert report.stopped
    assert [note.part.index for note in report.notes] == [0]
    assert [answer.text for answer in report.answers] == ["Yes."]
    assert at_questions == [1]


def test_the_header_is_read_once(
    fake_server_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that means the whole file: a raw H.264 stream says nothing of its length."""
    path = write_video(tmp_path / "a.h264", changing(4, RED, BLUE), codec="libx264", fps=25)
    measure, measured = file_info._measured_s, []

    def counted(*given: Any) -> float:
        measured.append(path)
        return measure(*given)

    monkeypatch.setattr(file_info, "_measured_s", counted)
    options = AnalysisOptions(("What?",))
    assert run(AskCommand(path, options, fake_server_url, as_json=True)) == 0
    assert measured == [path]


@pytest.mark.parametrize("refused", ["a line", "the sound"])
async def test_what_cannot_be_written_down(film: Path, refused: str) -> None:
    """The part is looked at all the same, and the result says what is missing."""
    error = {"code": "engine_behind", "message": "The engine is too far behind."}
    appends: list[ServerConnection] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        say = partial(tell, connection)

        if event["type"] == "input_audio_buffer.append":
            if refused == "the sound":
                await say("error", error=error)
            else:
                appends.append(connection)
        elif event["type"] == "session.update":
            if connection in appends:
                await say("input_audio_buffer.speech_started", item_id="i", audio_start_ms=0)
                await say("input_audio_buffer.speech_stopped", item_id="i", audio_end_ms=900)
                await say(
                    "conversation.item.input_audio_transcription.failed",
                    item_id="i",
                    error=error,
                )
            await say("session.updated", session=SESSION)
        elif event["type"] == "response.create":
            await answer(connection, event)

    async with serving(handle) as url:
        report = await analyse(film, url, AnalysisOptions(("What?",)), AnalysisObserver())
    assert report.error is None
    assert [(note.seen, note.heard) for note in report.notes] == [("Yes.", [])]
    assert report.answers[0].text == "Yes."
    (remark,) = report.to_wire()["remarks"]
    assert "0:00-0:12 was not written down" in remark
    assert "too far behind" in remark


async def test_times_are_right_behind_sound_that_was_refused(film: Path) -> None:
    """A server that refuses a part's sound does not count it: the next one has a session anew."""
    error = {"code": "engine_behind", "message": "The engine is too far behind."}
    hearing: list[ServerConnection] = []  # in the order of their first sound
    told: list[ServerConnection] = []

    async def handle(connection: ServerConnection, event: dict[str, Any]) -> None:
        say = partial(tell, connection)

        if event["type"] == "input_audio_buffer.append":
            if connection not in hearing:
                hearing.append(connection)
            if connection is hearing[0]:
                await say("error", error=error)
        elif event["type"] == "session.update":
            if connection in hearing[1:] and connection not in told:
                told.append(connection)
                await say("input_audio_buffer.speech_started", item_id="i", audio_start_ms=700)
                await say("input_audio_buffer.speech_stopped", item_id="i", audio_end_ms=2500)
                await say(
                    "conversation.item.input_audio_transcription.completed",
                    item_id="i",
                    transcript="Hello.",
                )
            await say("session.updated", session=SESSION)
        elif event["type"] == "response.create":
            await answer(connection, event)

    async with serving(handle) as url:
        options = AnalysisOptions(("What?",), part_s=6)
        report = await analyse(film, url, options, AnalysisObserver())
    first, second, *_ = report.notes
    assert first.heard == []
    (line,) = second.heard
    assert line.text == "Hello."
    assert line.start_s == pytest.approx(second.part.start_s + 1.0)
    assert line.end_s == pytest.approx(second.part.start_s + 2.0)
