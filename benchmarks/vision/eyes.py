"""Recognition of photographs from packages.

Each photograph is sent as a camera frame to a session with the default instructions, and the model
is asked "What do you see?". It is *named* if one of the photograph's words (photos.toml) is in the
answer. Then: plain colours and light levels, a second frame that differs, and no frame at all.

Then what is printed and who is there, on the half of the pictures that nothing was chosen on
(`signs`): the words that are read of signs and photographs, the words of signs in the answers to
"What does the sign say?", and answers to "What is different now?" with another sign, "How many
people do you see?" and "How many chairs are there?".

Signs of the same fonts in six languages are read too, on texts that nothing was chosen on; accents
count. `--model none` reads only.

Keys: named, photos, share, tokens_per_frame, colours_right, light_right, change_noticed,
no_picture_said, words_read_share, photo_words_read_share, words_printed, words_said_share,
sign_change_said, people_right, cannot_count_said, read_ms_p50, words_read_by_language (of each:
share, words); each answer is printed beside it.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from headstart.benchmarks import report
from headstart.benchmarks.harness.chat import Chat
from headstart.benchmarks.harness.in_process import Live
from headstart.benchmarks.inputs import photos, signs
from headstart.engine import api
from headstart.engine.vision.reading.reader import CLOSELY, GLANCE, TextReader, Written
from headstart.engine.weights import ensure

QUESTION = "What do you see?"
NO_MODEL = "none"
CHANGE = "And what do you see now?"
COLOURS = {
    "red": (200, 30, 30),
    "green": (40, 160, 50),
    "blue": (40, 60, 200),
    "yellow": (230, 210, 40),
    "white": (245, 245, 245),
    "black": (8, 8, 8),
}
NUMBERS = {
    1: ("one", "person"),
    2: ("two",),
    6: ("six",),
}


def run(model: str, *, as_json: bool) -> None:
    """Measure and report. Raises `photos.PhotosMissing`."""
    prints = signs.load("report")
    reading = _read(prints) | {"words_read_by_language": _read_languages()}
    if model == NO_MODEL:
        report.finish("eyes", {"model": model, **reading}, as_json=as_json)
        return
    pictures = photos.load()
    live = Live(model)
    named, tokens, dark, changes = 0, [], [], []
    for number, photo in enumerate(pictures):
        chat = Chat(live, photo.name)
        chat.show(photo.image)
        reply = chat.say(QUESTION)
        ok = says(reply.text, photo.names)
        named += ok
        tokens.append(reply.usage.input_image)
        report.say(f"{'ok ' if ok else '-- '} {photo.name:20} {reply.text}")
        # A change counts only if both pictures are named on their own.
        other = pictures[(number + 1) % len(pictures)]
        chat.show(other.image)
        again = chat.say(CHANGE)
        changes.append((ok, says(again.text, other.names)))
        report.say(f"      then {other.name:20} {again.text}")
        chat.close()
        dark.append(_light(live, photo))
    alone = [first for first, _ in changes]
    fair = [changes[i][1] for i in range(len(changes)) if alone[(i + 1) % len(alone)]]
    colours = [_colour(live, name, rgb) for name, rgb in COLOURS.items()]
    nothing = _no_picture(live)
    asked = _ask_about_signs(live, [one for one in prints if not one.is_photo][::2])
    reading |= asked | _count(live, pictures)
    live.engine.close()
    report.finish(
        "eyes",
        {
            "model": live.info.name,
            "named": named,
            "photos": len(pictures),
            "share": round(named / len(pictures), 3),
            "tokens_per_frame": [min(tokens), max(tokens)],
            "colours_right": f"{sum(colours)}/{len(colours)}",
            "light_right": f"{sum(dark)}/{len(dark)}",
            "change_noticed": f"{sum(fair)}/{len(fair)}",
            "no_picture_said": nothing,
            **reading,
        },
        as_json=as_json,
    )


def _read(prints: Sequence[signs.Print]) -> dict[str, Any]:
    """How many of the printed words are read; more closely where a glance does not read all."""
    reader = TextReader.load(ensure("pp-ocrv6"))
    printed, read = {True: 0, False: 0}, {True: 0, False: 0}
    took_ms = []
    for one in prints:
        pixels = np.frombuffer(one.image.rgb, np.uint8)
        rgb = pixels.reshape(one.image.height, one.image.width, 3)
        began_s = time.perf_counter()
        written = reader.read(rgb, GLANCE)
        took_ms.append((time.perf_counter() - began_s) * 1e3)
        if written.more:
            written = reader.read(rgb, CLOSELY)
        found = signs.words_found(one.words, written.text)
        printed[one.is_photo] += len(one.words)
        read[one.is_photo] += found
        if found < len(one.words):
            report.say(f"-- {one.name}: {found} of {len(one.words)} words: {written.lines}")
    return {
        "words_read_share": round(sum(read.values()) / sum(printed.values()), 3),
        "photo_words_read_share": round(read[True] / printed[True], 3),
        "words_printed": sum(printed.values()),
        "read_ms_p50": round(statistics.median(took_ms)),
    }


def _read_languages() -> dict[str, dict[str, float]]:
    """The share of the words that are read in each language's signs, and how many there are."""
    reader = TextReader.load(ensure("pp-ocrv6"))
    printed: Counter[str] = Counter()
    read: Counter[str] = Counter()
    for language, sign in signs.in_languages("report"):
        written = _read_closely(reader, sign)
        found = signs.words_found(sign.words, written.text)
        printed[language] += len(sign.words)
        read[language] += found
        if found < len(sign.words):
            report.say(f"-- {sign.name}: {found} of {len(sign.words)} words: {written.lines}")
    return {
        language: {"share": round(read[language] / words, 3), "words": words}
        for language, words in printed.items()
    }


def _read_closely(reader: TextReader, sign: signs.Print) -> Written:
    """At a glance, and more closely where that does not read all."""
    rgb = np.frombuffer(sign.image.rgb, np.uint8).reshape(sign.image.height, sign.image.width, 3)
    written = reader.read(rgb, GLANCE)
    return reader.read(rgb, CLOSELY) if written.more else written


def _ask_about_signs(live: Live, shown: Sequence[signs.Print]) -> dict[str, Any]:
    """Each sign is asked about, then another one comes into view."""
    said, changes = [], []
    for one, other in zip(shown, [*shown[1:], shown[0]], strict=True):
        chat = Chat(live, one.name)
        chat.show(one.image)
        answer = chat.say("What does the sign say?").text
        said.append(signs.words_found(one.words, answer))
        report.say(f"{said[-1]}/{len(one.words)} {one.name:40} {answer}")
        if one.words != other.words:
            chat.show(other.image)
            answer = chat.say("What is different now? What does it say?").text
            changes.append(signs.words_found(other.words, answer) > len(other.words) / 2)
            report.say(f"{'ok ' if changes[-1] else '-- '} {other.name:40} {answer}")
        chat.close()
    return {
        "words_said_share": round(sum(said) / sum(len(one.words) for one in shown), 3),
        "sign_change_said": f"{sum(changes)}/{len(changes)}",
    }


def _count(live: Live, pictures: Sequence[photos.Photo]) -> dict[str, Any]:
    right = []
    for name, image, count in signs.people():
        chat = Chat(live, name)
        chat.show(image)
        answer = chat.say("How many people do you see?").text
        right.append(says(answer, NUMBERS[count]))
        report.say(f"{'ok ' if right[-1] else '-- '} {name:20} {count}: {answer}")
        chat.close()
    admitted = []
    for photo in pictures[:6]:
        chat = Chat(live, photo.name)
        chat.show(photo.image)
        answer = chat.say("How many chairs are there?").text
        admitted.append(bool(re.search(r"can.?t count|cannot count|can.?t tell", answer, re.I)))
        report.say(f"{'ok ' if admitted[-1] else '-- '} {photo.name:20} {answer}")
        chat.close()
    return {
        "people_right": f"{sum(right)}/{len(right)}",
        "cannot_count_said": f"{sum(admitted)}/{len(admitted)}",
    }


def says(answer: str, words: tuple[str, ...]) -> bool:
    """Whether one of `words` (or its plural) is in the answer, as a word."""
    said = re.findall(r"[a-z]+", answer.lower())
    return any(word in said or f"{word}s" in said for word in words)


def _light(live: Live, photo: photos.Photo) -> bool:
    """Whether the same picture at an eighth of its light is called dark."""
    pixels = np.frombuffer(photo.image.rgb, np.uint8) // 8
    chat = Chat(live, "dark")
    chat.show(api.Image(photo.image.width, photo.image.height, pixels.tobytes()))
    answer = chat.say("Is it dark or bright in the picture?").text
    chat.close()
    right = says(answer, ("dark", "dim")) and not says(answer, ("bright",))
    report.say(f"{'ok ' if right else '-- '} {photo.name:20} at an eighth: {answer}")
    return right


def _colour(live: Live, name: str, rgb: tuple[int, int, int]) -> bool:
    chat = Chat(live, f"colour {name}")
    plain: Any = np.full((240, 320, 3), rgb, np.uint8)
    chat.show(api.Image(320, 240, plain.tobytes()))
    answer = chat.say("What colour do you see?").text
    chat.close()
    others = tuple(other for other in COLOURS if other != name)
    right = says(answer, (name,)) and not says(answer, others)
    report.say(f"{'ok ' if right else '-- '} {name:20} {answer}")
    return right


def _no_picture(live: Live) -> bool:
    chat = Chat(live, "no picture")
    answer = chat.say(QUESTION).text
    chat.close()
    admits = re.search(
        r"can.?t see|cannot see|no (camera|picture|image)|camera is off", answer, re.I
    )
    nothing = bool(admits) or bool(re.search(r"(don.?t|not) see|nothing", answer, re.I))
    report.say(f"{'ok ' if nothing else '-- '} {'no picture':20} {answer}")
    return nothing
