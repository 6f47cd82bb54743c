"""What the model is told: of a part, to be summarised; of many, to be digested; and a question."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.talk.connection.session import Event
from headstart.talk.long_file.notes import Digest, Note
from headstart.talk.long_file.out_of_band import picture, sound, words
from headstart.talk.long_file.parts import Part
from headstart.talk.long_file.transcription import Line
from headstart.talk.long_file.video_reader import Picture
from headstart.talk.media.times import clock

INSTRUCTIONS = (
    "You watch a video part by part and answer questions about it. Use only what you are given. "
    "Be short and exact."
)
SUMMARY_TOKENS = 96
DIGEST_TOKENS = 128
ANSWER_TOKENS = 256
CAPTION_TOKENS = 40
REMEMBERED = 2
"""How many earlier summaries are read with a part."""
REMEMBERED_CHARS = 320


def part_message(
    part: Part,
    before: Sequence[Note],
    pictures: Sequence[Picture],
    lines: Sequence[Line],
    pcm: bytes = b"",
) -> list[Event]:
    """A part's pictures and lines in order of time. `before`: the last notes; `pcm`: its sound, for
    a model that hears by itself."""
    head = f"This is a video, from {clock(part.start_s)} to {clock(part.end_s)}."
    if before:
        head += "\nEarlier: " + " ".join(_short(note.summary) for note in before if note.summary)
    content = [words(head + "\n")]
    timed: list[tuple[float, Event | str]] = [(p.at_s, picture(p.jpeg)) for p in pictures]
    timed += [
        (line.start_s, f'\n{clock(line.start_s)} someone says: "{line.text}"') for line in lines
    ]
    for at_s, what in sorted(timed, key=lambda pair: pair[0]):
        if isinstance(what, str):
            content.append(words(what))
        else:
            content += [words(f"\n{clock(at_s)} picture: "), what]
    if pcm:
        content += [words("\nIts sound: "), sound(pcm)]
    wanted = "what the pictures show" if pictures else ""
    if lines or pcm:
        wanted += " and what is said" if wanted else "what is said"
    quoted = " Quote what is written in the pictures." if pictures else ""
    content.append(
        words(
            f"\n\nSay in one or two sentences {wanted}.{quoted} "
            "Do not mention pictures or the camera."
        )
    )
    return content


def caption_message(shown: Picture) -> list[Event]:
    """Without "may be" a small model keeps the kind alone, "a building" of a palace."""
    wanted = "Describe the picture in one short sentence, with what it may be."
    return [picture(shown.jpeg), words(wanted)]


def digest_message(notes: Sequence[Note]) -> list[Event]:
    text = "Notes on a part of a video:\n\n" + "\n\n".join(map(str, notes))
    return [words(f"{text}\n\nSummarise these notes in two sentences.")]


def condense_message(digests: Sequence[Digest]) -> list[Event]:
    text = "Summaries of a video, in order:\n\n" + "\n".join(map(str, digests))
    return [words(f"{text}\n\nSummarise these in two sentences.")]


def question_message(
    question: str, notes: Sequence[Note], digests: Sequence[Digest], *, is_whole: bool
) -> list[Event]:
    """A question with what is known. `is_whole`: the recording was looked at to its end."""
    text = ""
    if digests:
        text += "In short:\n" + "\n".join(map(str, digests)) + "\n\nIn detail:\n"
    return _asked(question, text + "\n\n".join(map(str, notes)), is_whole=is_whole)


def lines_message(question: str, lines: Sequence[str], *, is_whole: bool) -> list[Event]:
    """A question with the lines that it is about, and nothing else."""
    return _asked(question, "\n".join(lines), is_whole=is_whole)


def _asked(question: str, known: str, *, is_whole: bool) -> list[Event]:
    head = "Notes on a video" + ("" if is_whole else ", of which only the beginning is known")
    asked = f"Question about the video: {question}\nAnswer in one or two sentences."
    return [words(f"{head}:\n\n{known}\n\n{asked}")]


def _short(text: str) -> str:
    if len(text) <= REMEMBERED_CHARS:
        return text
    return text[:REMEMBERED_CHARS].rpartition(" ")[0] + " …"
