"""Questions about videos of several lengths: are they answered right, how long it takes, and how
much memory client and server need.

The videos are made of real clips and photographs that packages ship, a scene of 40 s each, of drawn
slides that stand for some seconds, and of sentences spoken by a packaged voice: most are about
nothing, some state a fact that a question asks for. Prompts and the policy by which pictures are
chosen come from one half of the facts, photographs, slides and fonts (`CHOOSE`); `REPORT` is the
other.

Keys: rows (each length: minutes, parts, wall_s, speed in times of real time, client_peak_bytes,
server_peak_bytes, memory_bytes [minute of the video, client, server], spoken_right of spoken,
shown_right of shown, when_right of when, written_right of written, questions), choosing (each
policy and number of pictures a part: looks_share, of the scenes and slides that are shown at all,
pictures_a_minute), right_share over all rows, speed, half, model, sampler.
"""

from __future__ import annotations

import asyncio
import importlib
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

from headstart.benchmarks import report
from headstart.benchmarks.inputs import photos, signs
from headstart.benchmarks.inputs.signs import words_found, words_of
from headstart.benchmarks.inputs.voices import Line, Samples, cast
from headstart.benchmarks.vision.frames import video_path
from headstart.gateway.tts.synthesiser import RATE_HZ
from headstart.gateway.video.file_sampling import POLICIES, FilePolicy
from headstart.talk.local_server import local_server, until_ready
from headstart.talk.long_file.analysis import LABELLED_PICTURES
from headstart.talk.long_file.file_info import read_info
from headstart.talk.long_file.frame_choice import DEFAULT_POLICY, PICTURES, FrameChooser
from headstart.talk.long_file.parts import Plan
from headstart.talk.long_file.reader import read
from headstart.talk.media.times import clock

CHOOSE, REPORT = "choose", "report"
NO_MODEL = "none"
VOICE = "joe"
SCENE_S = 40
FPS = 5
WIDTH, HEIGHT = 640, 480
BITRATE = 1_200_000
SLIDE_EVERY, SLIDE_FROM_S, SLIDE_S = 2, 31, 5
"""Of every second scene so much is a slide."""
SENTENCE_EVERY_S = 10
CLIPS = ("bikes", "bigbuckbunny", "carphone_pristine")
LINE_BYTES_MAX = 1 << 26  # the result's, of ten hours
WORDS_RIGHT = 0.8
"""Of a slide's words, that an answer to what it says must have."""
CHOSEN_OF_A_PART = (LABELLED_PICTURES, PICTURES)
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


SLIDES = {
    CHOOSE: (
        Fact("Village Museum\nopens at 9:45", "When does the village museum open?", r"9[:.]?45"),
        Fact("Lake Ferry\nchildren 3 euros", "What do children pay on the ferry?", r"\b3\b|three"),
        Fact("Chapter 7\nBees and honey", "Which chapter is about bees?", r"\b7\b|seven"),
        Fact("Lost a bag?\nAsk in room 214", "In which room does one ask for a lost bag?", r"214"),
    ),
    REPORT: (
        Fact("Night Train 318\nto Vienna", "Which night train goes to Vienna?", r"318"),
        Fact("Spring Concert\nDoors open 18:30", "When do the doors open?", r"18[:.]?30|6[:.]30"),
        Fact("Lesson 12\nHow glass is made", "Which lesson is about glass?", r"\b12\b|twelve"),
        Fact("Car park full\nUse exit 25", "Which exit should drivers use?", r"\b25\b"),
    ),
}
"""What is written on slides, two lines each."""


@dataclass(frozen=True)
class Scene:
    """What is shown from `start_s` on; `names`: words for it, none for a clip."""

    start_s: float
    names: tuple[str, ...]
    pictures: Sequence[Picture]
    slide: Fact | None = None
    drawn: Picture | None = None

    def at(self, at_s: float) -> Picture:
        """The picture at a time of the video."""
        inside_s = at_s - self.start_s
        if self.drawn is not None and SLIDE_FROM_S <= inside_s < SLIDE_FROM_S + SLIDE_S:
            return self.drawn
        return self.pictures[int(inside_s * FPS) % len(self.pictures)]


@dataclass(frozen=True)
class Asked:
    """A question of `kind` "spoken", "shown", "when" or "written", and how its answer is judged: by
    a pattern, by the time at which something is shown, or by `words` of which most must be there.
    """

    kind: str
    question: str
    wanted: str = ""
    at_s: float = 0.0
    words: tuple[str, ...] = ()

    def is_right(self, answer: str) -> bool:
        if self.words:
            return words_found(self.words, answer) >= WORDS_RIGHT * len(self.words)
        if self.kind != "when":
            return re.search(self.wanted, answer.lower()) is not None
        until_s = self.at_s + SCENE_S
        return any(self.at_s - NEAR_S <= s <= until_s + NEAR_S for s in _times(answer))


def run(
    model: str,
    minutes: Sequence[float],
    half: str,
    folder: Path,
    sampler: FilePolicy = DEFAULT_POLICY,
    *,
    as_json: bool,
) -> None:
    """Make the videos, ask about them and report. Without a model only pictures are chosen."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, choosing = [], []
    for length in minutes:
        path = folder / f"{half}-{length:g}-slides.mp4"
        asked = make(path, round(length * 60), half)
        if length == minutes[0]:
            choosing = list(choose(path, round(length * 60), half))
        if model == NO_MODEL:
            continue
        row: dict[str, Any] = asyncio.run(_row(path, asked, model, length, sampler))
        rows.append(row)
        for each in row["questions"]:
            verdict = "right" if each["right"] else "WRONG"
            report.say(f"  {verdict} {each['question']} {each['answer']}")
        report.say(
            f"{length:g} min: {row['wall_s']:.0f} s, {row['parts']} parts, spoken "
            f"{row['spoken_right']}/{row['spoken']}, shown {row['shown_right']}/{row['shown']}, "
            f"when {row['when_right']}/{row['when']}, "
            f"written {row['written_right']}/{row['written']}"
        )
    right = sum(sum(q["right"] for q in row["questions"]) for row in rows)
    total = sum(len(row["questions"]) for row in rows)
    result = {
        "half": half,
        "rows": rows,
        "choosing": choosing,
        "right_share": round(right / total, 3) if total else None,
        "speed": (
            round(sum(r["minutes"] * 60 for r in rows) / sum(r["wall_s"] for r in rows), 2)
            if rows
            else None
        ),
        "model": model,
        "sampler": sampler,
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
    slides = [scene for scene in scenes if scene.slide is not None]
    for number, scene in enumerate(slides[:: max(1, len(slides) // 4)][:4]):
        assert scene.slide is not None
        at = scene.start_s + SLIDE_FROM_S + SLIDE_S / 2
        if number % 2:
            question = f"What does the slide say at {clock(at)}?"
            asked.append(Asked("written", question, words=words_of(scene.slide.said)))
        else:
            asked.append(Asked("written", scene.slide.question, scene.slide.wanted))
    if not path.exists():
        _write(path, lasts_s, scenes, _speech(lasts_s, dict(zip(at_s, facts, strict=True))))
    return asked


def _scenes(count: int, half: str) -> Iterator[Scene]:
    """Photographs of the half, in turn with the clips."""
    wanted = 0 if half == CHOOSE else 1
    mine = [p for p in photos.load() if p.names and zlib.crc32(p.name.encode()) % 2 == wanted]
    for number in range(count):
        start_s = number * SCENE_S
        slide, drawn = None, None
        if number % SLIDE_EVERY == SLIDE_EVERY - 1:
            slide = SLIDES[half][number // SLIDE_EVERY % len(SLIDES[half])]
            drawn = _slide(slide.said, half)
        if number % 4 == 3:
            name = CLIPS[number // 4 % len(CLIPS)]
            yield Scene(start_s, (), _clip(name), slide, drawn)
        else:
            photo = mine[(number - number // 4) % len(mine)]
            pixels = np.frombuffer(photo.image.rgb, np.uint8)
            pixels = pixels.reshape(photo.image.height, photo.image.width, 3)
            yield Scene(start_s, photo.names, _panned(pixels), slide, drawn)


def _slide(text: str, half: str) -> Picture:
    """Two lines on a light ground, the first one larger."""
    drawing: Any = importlib.import_module("PIL.ImageDraw")
    images: Any = importlib.import_module("PIL.Image")
    fonts: Any = importlib.import_module("PIL.ImageFont")
    files = [path for path, entry in photos.fetched(signs.LIST, "font") if not entry.get("han")]
    mine = [path for path in files if signs.half_of(path.name) == half]
    font = mine[zlib.crc32(text.encode()) % len(mine)]
    image = images.new("RGB", (WIDTH, HEIGHT), (245, 244, 238))
    draw = drawing.Draw(image)
    title, line = text.split("\n")
    draw.text((60, 110), title, font=fonts.truetype(str(font), 52), fill=(20, 40, 90))
    draw.text((60, 230), line, font=fonts.truetype(str(font), 30), fill=(30, 30, 30))
    return np.array(image)


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
        video.width, video.height, video.pix_fmt, video.bit_rate = WIDTH, HEIGHT, "yuv420p", BITRATE
        sound = container.add_stream("aac", rate=RATE_HZ)
        assert isinstance(sound, av.AudioStream)
        sound.layout = "mono"
        each = RATE_HZ // FPS
        for number in range(lasts_s * FPS):
            at_s = number / FPS
            scene = scenes[min(int(at_s // SCENE_S), len(scenes) - 1)]
            frame = av.VideoFrame.from_ndarray(scene.at(at_s), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(video.encode(frame))
            piece = speech[number * each : (number + 1) * each].reshape(1, -1)
            part = av.AudioFrame.from_ndarray(piece, format="s16", layout="mono")
            part.sample_rate, part.pts = RATE_HZ, number * each
            container.mux(sound.encode(part))
        container.mux([*video.encode(None), *sound.encode(None)])
    partial.rename(path)


# --- choosing ----------------------------------------------------------------------------------


def choose(path: Path, lasts_s: int, half: str) -> Iterator[dict[str, Any]]:
    """How many of the scenes and slides each policy shows, without a model."""
    scenes = list(_scenes(max(1, lasts_s // SCENE_S), half))
    looks = [(s.start_s, s.start_s + SLIDE_FROM_S) for s in scenes]
    looks += [
        (s.start_s + SLIDE_FROM_S, s.start_s + SLIDE_FROM_S + SLIDE_S) for s in scenes if s.slide
    ]
    info = read_info(path)
    plan = Plan(0, info.duration_s)
    media = [part.pictures for part in read(info, plan, hear=False, find_scenes=True)]
    for pictures in CHOSEN_OF_A_PART:
        for policy in POLICIES:
            chooser = FrameChooser(policy, pictures)
            shown_s = [picture.at_s for part in media for picture in chooser.choose(part)]
            seen = sum(any(a <= at_s < b for at_s in shown_s) for a, b in looks)
            row = {
                "policy": policy,
                "pictures": pictures,
                "looks_share": round(seen / len(looks), 3),
                "pictures_a_minute": round(len(shown_s) / lasts_s * 60, 2),
            }
            report.say(f"  {policy}, {pictures} a part: {seen} of {len(looks)} looks shown")
            yield row


# --- asking ---------------------------------------------------------------------------------------


async def _row(
    path: Path, asked: Sequence[Asked], model: str, minutes: float, sampler: FilePolicy
) -> dict[str, Any]:
    async with local_server(["--model", model, "--set", "voice=none"]) as server:
        await until_ready(server.url, lambda _: None, server.check)
        with _Peak(server.pid) as peak:
            wire, memory = await _talked(path, server.url, asked, sampler, peak)
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
        "memory_bytes": memory,
        "questions": questions,
    }
    for kind in ("spoken", "shown", "when", "written"):
        mine = [q for q in questions if q["kind"] == kind]
        row[kind], row[f"{kind}_right"] = len(mine), sum(bool(q["right"]) for q in mine)
    return row


async def _talked(
    path: Path, url: str, asked: Sequence[Asked], sampler: FilePolicy, server: _Peak
) -> tuple[dict[str, Any], list[list[float]]]:
    """The result of `headstart ask`, in a process of its own, whose memory counts; and
    [minute of the video, bytes of it, bytes of the server] of now and then."""
    argv = [sys.executable, "-P", "-m", "headstart", "talk", str(path), "--url", url, "--json"]
    argv += ["--sampler", sampler]
    memory: list[list[float]] = []
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
            client = psutil.Process(process.pid).memory_info().rss
            memory.append([round(event["end_s"] / 60, 1), client, server.now])
            report.say(f"  {clock(event['end_s'])}, about {event['left_s']:.0f} s left")
    if await process.wait() or event.get("type") != "result":
        raise RuntimeError(f"headstart talk ended with code {process.returncode}")
    return event, memory


class _Peak:
    """The largest memory of a process and its children together, sampled each second."""

    def __init__(self, pid: int) -> None:
        self.bytes = self.now = 0
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
            self.now = total
            self.bytes = max(self.bytes, total)


def _times(answer: str) -> Iterator[float]:
    for hours, minutes, seconds in re.findall(r"(?:(\d+):)?(\d{1,2}):(\d{2})", answer):
        yield 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds)
    for minute in re.findall(r"minute (\d+)", answer.lower()):
        yield 60.0 * int(minute)
