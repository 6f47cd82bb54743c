"""Recognition of photographs from packages.

Each photograph is sent as a camera frame to a session with the default instructions, and the model
is asked "What do you see?". It is *named* if one of the photograph's words (photos.toml) is in the
answer. Then: plain colours and light levels, a second frame that differs, and no frame at all.

Keys: named, photos, share, tokens_per_frame, colours_right, light_right, change_noticed,
no_picture_said; each answer is printed beside it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from headstart.benchmarks import photos, report
from headstart.benchmarks.chat import Chat
from headstart.benchmarks.in_process import Live
from headstart.engine import api

QUESTION = "What do you see?"
CHANGE = "And what do you see now?"
COLOURS = {
    "red": (200, 30, 30),
    "green": (40, 160, 50),
    "blue": (40, 60, 200),
    "yellow": (230, 210, 40),
    "white": (245, 245, 245),
    "black": (8, 8, 8),
}


def run(model: str, *, as_json: bool) -> None:
    """Measure and report. Raises `photos.PhotosMissing`."""
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
        },
        as_json=as_json,
    )


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
