"""Questions about videos of several lengths: are they answered right, how long it takes, and how
much memory client and server need.

The videos are made of real clips and photographs that packages ship, a scene of 40 s each, and of
sentences spoken by a packaged voice: most are about nothing, some state a fact that a question asks
for. Prompts were chosen on one half of the facts and photographs (`CHOOSE`); `REPORT` is the other.

Keys: rows (each length: minutes, parts, wall_s, speed in times of real time, client_peak_bytes,
server_peak_bytes, spoken_right of spoken, shown_right of shown, when_right of when, questions),
right_share over all rows, speed, half, model.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import psutil

from headstart.benchmarks import photos, report
from headstart.benchmarks.frames import video_path
from headstart.benchmarks.voices import Line, Samples, cast
from headstart.gateway.tts.synthesiser import RATE_HZ
from headstart.talk.local_server import local_server, until_ready
from headstart.talk.long_file.plan import clock

CHOOSE, REPORT = "choose", "report"
VOICE = "joe"
SCENE_S = 40
FPS = 5
WIDTH, HEIGHT = 320, 240
SENTENCE_EVERY_S = 10
CLIPS = ("bikes", "bigbuckbunny", "carphone_pristine")
LINE_BYTES_MAX = 1 << 26  # the result's, of ten hours
NEAR_S = 3.0
"""A time in an answer is right while the thing is shown, or so long before or behind."""

Picture = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Fact:
    """A sentence, a question that it answers, and what the answer must contain (a pattern)."""

    said: str
    question: str
    wanted: str


FACTS = {
    CHOOSE: (
        Fact(
            "The spare key lies under the blue flower pot.",
            "Where is the spare key?",
            r"flower ?pot",
        ),
        Fact(
            "Our train to London leaves at half past seven.",
            "When does the train to London leave?",
            r"half past seven|7[:.]?30",
        ),
        Fact("The bridge was built by a woman named Clara.", "Who built the bridge?", r"clara"),
        Fact(
            "The soup needs three onions and a carrot.",
            "How many onions does the soup need?",
            r"three|\b3\b",
        ),
        Fact(
            "The old library closes on Wednesday.", "When does the old library close?", r"wednesday"
        ),
        Fact(
            "My brother works in a bakery in Denver.",
            "Where does the brother work?",
            r"baker|denver",
        ),
    ),
    REPORT: (
        Fact(
            "The doctor keeps her car behind the church.",
            "Where does the doctor keep her car?",
            r"church",
        ),
        Fact(
            "The next meeting is on the second of August.", "When is the next meeting?", r"august"
        ),
        Fact("The cake was made by our neighbour Henry.", "Who made the cake?", r"henry"),
        Fact(
            "There are forty sheep on the farm.", "How many sheep are on the farm?", r"forty|\b40\b"
        ),
        Fact("The museum is closed on Monday.", "When is the museum closed?", r"monday"),
        Fact(
            "My sister moved to a small house in Boston.",
            "Where did the sister move?",
            r"boston|small house",
        ),
    ),
}
FILLER = (
    "And so we go on for a little while.",
    "That is all there is to say about it.",
    "Some people like it, and some people do not.",
    "It was a quiet afternoon.",
    "We will see what happens next.",
    "Nobody knows exactly why.",
    "It has been like this for many years.",
    "Let us have a closer look.",
    "There is a lot more to say, of course.",
    "The weather was rather good that day.",
)


@dataclass(frozen=True)
class Scene:
    """What is shown from `start_s` on; `names`: words for it, none for a clip."""

    start_s: float
    names: tuple[str, ...]
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Asked:
    """A question of `kind` "spoken", "shown" or "when", and how its answer is judged."""

    kind: str
    question: str
    wanted: str = ""
    at_s: float = 0.0

    def is_right(self, answer: str) -> bool:
        if self.kind != "when":
            return re.search(self.wanted, answer.lower()) is not None
        until_s = self.at_s + SCENE_S
        return any(self.at_s - NEAR_S <= s <= until_s + NEAR_S for s in _times(answer))


def run(model: str, minutes: Sequence[float], half: str, folder: Path, *, as_json: bool) -> None:
    """Make the videos, ask about them and report."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for length in minutes:
        path = folder / f"{half}-{length:g}.mp4"
        asked = make(path, round(length * 60), half)
        row: dict[str, Any] = asyncio.run(_row(path, asked, model, length))
        rows.append(row)
        for each in row["questions"]:
            verdict = "right" if each["right"] else "WRONG"
            report.say(f"  {verdict} {each['question']} {each['answer']}")
        report.say(
            f"{length:g} min: {row['wall_s']:.0f} s, {row['parts']} parts, spoken "
            f"{row['spoken_right']}/{row['spoken']}, shown {row['shown_right']}/{row['shown']}, "
            f"when {row['when_right']}/{row['when']}"
        )
    right = sum(sum(q["right"] for q in row["questions"]) for row in rows)
    total = sum(len(row["questions"]) for row in rows)
    result = {
        "half": half,
        "rows": rows,
        "right_share": round(right / total, 3),
        "speed": round(sum(r["minutes"] * 60 for r in rows) / sum(r["wall_s"] for r in rows), 2),
        "model": model,
    }
    report.finish("video", result, as_json=as_json)


# --- the video ------------------------------------------------------------------------------------


def make(path: Path, lasts_s: int, half: str) -> list[Asked]:
    """Write the video unless it is there; what is asked about it."""
    count = max(1, lasts_s // SCENE_S)
    scenes = list(_scenes(count, half))
    facts = FACTS[half][: max(2, min(len(FACTS[half]), lasts_s // 60))]
    # Spread over the whole, the first early and the last late.
    at_s = [
        12 + round(i * (lasts_s - 24) / max(1, len(facts) - 1)) // 10 * 10
        for i in range(len(facts))
    ]
    at_s = [min(second, lasts_s - 12) for second in at_s]
    asked = [
        Asked("spoken", fact.question, fact.wanted, at)
        for fact, at in zip(facts, at_s, strict=True)
    ]
    shown = [scene for scene in scenes if scene.names]
    for scene in shown[:: max(1, len(shown) // 3)][:3]:
        middle_s = scene.start_s + SCENE_S / 2
        asked.append(
            Asked(
                "shown",
                f"What is shown at {clock(middle_s)}?",
                "|".join(scene.names),
                scene.start_s,
            )
        )
        if sum(other.names == scene.names for other in shown) == 1:
            asked.append(
                Asked("when", f"At what time is the {scene.names[0]} shown?", "", scene.start_s)
            )
    if not path.exists():
        _write(path, lasts_s, scenes, _speech(lasts_s, dict(zip(at_s, facts, strict=True))))
    return asked


def _scenes(count: int, half: str) -> Iterator[Scene]:
    """Photographs of the half, in turn with the clips."""
    wanted = 0 if half == CHOOSE else 1
    mine = [p for p in photos.load() if p.names and zlib.crc32(p.name.encode()) % 2 == wanted]
    for number in range(count):
        start_s = number * SCENE_S
        if number % 4 == 3:
            name = CLIPS[number // 4 % len(CLIPS)]
            yield Scene(start_s, (), _clip(name))
        else:
            photo = mine[(number - number // 4) % len(mine)]
            pixels = np.frombuffer(photo.image.rgb, np.uint8)
            pixels = pixels.reshape(photo.image.height, photo.image.width, 3)
            yield Scene(start_s, photo.names, _panned(pixels))


def _panned(pixels: Picture) -> list[Picture]:
    """A photograph as a camera that moves a little shows it: a cycle of 8 s."""
    frames = []
    for number in range(8 * FPS):
        share = 0.5 - 0.5 * np.cos(2 * np.pi * number / (8 * FPS))
        height, width = pixels.shape[:2]
        top, left = round(0.06 * height * share), round(0.06 * width * share)
        cut = pixels[top : round(top + 0.94 * height), left : round(left + 0.94 * width)]
        frames.append(_fitted(np.ascontiguousarray(cut)))
    return frames


def _clip(name: str) -> list[Picture]:
    with av.open(str(video_path(name))) as container:
        every = max(1, round(float(container.streams.video[0].average_rate or 25) / FPS))
        return [
            _fitted(np.asarray(f.to_ndarray(format="rgb24"), np.uint8))
            for i, f in enumerate(container.decode(video=0))
            if i % every == 0
        ]


def _fitted(pixels: Picture) -> Picture:
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
    return np.asarray(frame.reformat(WIDTH, HEIGHT, format="rgb24").to_ndarray(), np.uint8)


def _speech(lasts_s: int, facts: dict[int, Fact]) -> Samples:
    ((_, say),) = cast((VOICE,))
    made: dict[str, Samples] = {}
    whole = np.random.default_rng(0).integers(-3, 4, lasts_s * RATE_HZ).astype(np.int16)
    filler = iter(FILLER * (1 + lasts_s // SENTENCE_EVERY_S // len(FILLER)))
    for at_s in range(2, lasts_s - 5, SENTENCE_EVERY_S):
        text = facts[at_s].said if at_s in facts else next(filler)
        if text not in made:
            made[text] = say(Line(text))
        sound = made[text][: (lasts_s - at_s) * RATE_HZ]
        whole[at_s * RATE_HZ : at_s * RATE_HZ + len(sound)] += sound
    return whole


def _write(path: Path, lasts_s: int, scenes: Sequence[Scene], speech: Samples) -> None:
    report.say(f"making {path.name}")
    partial = path.with_name(f"partial-{path.name}")
    with av.open(str(partial), "w") as container:
        video = container.add_stream("mpeg4", rate=FPS)
        assert isinstance(video, av.VideoStream)
        video.width, video.height, video.pix_fmt, video.bit_rate = WIDTH, HEIGHT, "yuv420p", 400_000
        sound = container.add_stream("aac", rate=RATE_HZ)
        assert isinstance(sound, av.AudioStream)
        sound.layout = "mono"
        each = RATE_HZ // FPS
        for number in range(lasts_s * FPS):
            at_s = number / FPS
            scene = scenes[min(int(at_s // SCENE_S), len(scenes) - 1)]
            pixels = scene.pictures[int((at_s - scene.start_s) * FPS) % len(scene.pictures)]
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(video.encode(frame))
            piece = speech[number * each : (number + 1) * each].reshape(1, -1)
            part = av.AudioFrame.from_ndarray(piece, format="s16", layout="mono")
            part.sample_rate, part.pts = RATE_HZ, number * each
            container.mux(sound.encode(part))
        container.mux([*video.encode(None), *sound.encode(None)])
    partial.rename(path)


# --- asking ---------------------------------------------------------------------------------------


async def _row(path: Path, asked: Sequence[Asked], model: str, minutes: float) -> dict[str, Any]:
    async with local_server(["--model", model, "--set", "voice=none"]) as server:
        await until_ready(server.url, lambda _: None, server.check)
        with _Peak(server.pid) as peak:
            wire = await _talked(path, server.url, asked)
    questions = [
        {
            "kind": each.kind,
            "question": each.question,
            "answer": answer["answer"],
            "right": each.is_right(answer["answer"]),
            "took_s": answer["took_s"],
        }
        for each, answer in zip(asked, wire["answers"], strict=True)
    ]
    row: dict[str, Any] = {
        "minutes": minutes,
        "parts": len(wire["parts"]),
        "wall_s": wire["wall_s"],
        "speed": wire["speed"],
        "client_peak_bytes": wire["client_peak_bytes"],
        "server_peak_bytes": peak.bytes,
        "questions": questions,
    }
    for kind in ("spoken", "shown", "when"):
        mine = [q for q in questions if q["kind"] == kind]
        row[kind], row[f"{kind}_right"] = len(mine), sum(bool(q["right"]) for q in mine)
    return row


async def _talked(path: Path, url: str, asked: Sequence[Asked]) -> dict[str, Any]:
    """The result of `headstart talk --ask`, in a process of its own, whose memory counts."""
    argv = [sys.executable, "-P", "-m", "headstart", "talk", str(path), "--url", url, "--json"]
    for each in asked:
        argv += ["--ask", each.question]
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES_MAX
    )
    assert process.stdout is not None
    event: dict[str, Any] = {}
    async for line in process.stdout:
        event = json.loads(line)
        if event["type"] == "part" and event["index"] % 5 == 4:
            report.say(f"  {clock(event['end_s'])}, about {event['left_s']:.0f} s left")
    if await process.wait() or event.get("type") != "result":
        raise RuntimeError(f"headstart talk ended with code {process.returncode}")
    return event


class _Peak:
    """The largest memory of a process and its children together, sampled each second."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._root = psutil.Process(pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(1.0):
            total = 0
            for process in (self._root, *self._root.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self.bytes = max(self.bytes, total)


def _times(answer: str) -> Iterator[float]:
    for hours, minutes, seconds in re.findall(r"(?:(\d+):)?(\d{1,2}):(\d{2})", answer):
        yield 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds)
    for minute in re.findall(r"minute (\d+)", answer.lower()):
        yield 60.0 * int(minute)
