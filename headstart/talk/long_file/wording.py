"""What the model is told: of a part, to be summarised; of many, to be digested; and a question."""

from __future__ import annotations

from collections.abc import Sequence

from headstart.talk.long_file.link import Event
from headstart.talk.long_file.notes import Digest, Note, clock_times, shown_at, written
from headstart.talk.long_file.out_of_band import picture, sound, words
from headstart.talk.long_file.plan import Part, clock
from headstart.talk.long_file.reader import Shown
from headstart.talk.long_file.transcription import Line

INSTRUCTIONS = (
    "You watch a video part by part and answer questions about it. Use only what you are given. "
    "Be short and exact."
)
SUMMARY_TOKENS = 96
DIGEST_TOKENS = 128
ANSWER_TOKENS = 256
SIGHT_TOKENS = 40
REMEMBERED = 2
"""How many earlier summaries are read with a part."""
REMEMBERED_CHARS = 320


def part_message(
    part: Part,
    before: Sequence[Note],
    shown: Sequence[Shown],
    lines: Sequence[Line],
    pcm: bytes = b"",
) -> list[Event]:
    """A part's pictures and lines in order of time. `before`: the last notes; `pcm`: its sound, for
    a model that hears by itself."""
    head = f"This is a video, from {clock(part.start_s)} to {clock(part.end_s)}."
    if before:
        head += "\nEarlier: " + " ".join(_short(note.summary) for note in before if note.summary)
    content = [words(head + "\n")]
    timed: list[tuple[float, Event | str]] = [(s.at_s, picture(s.jpeg)) for s in shown]
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
    wanted = "what the pictures show" if shown else ""
    if lines or pcm:
        wanted += " and what is said" if wanted else "what is said"
    content.append(
        words(f"\n\nSay in one or two sentences {wanted}. Do not mention pictures or the camera.")
    )
    return content


def sight_message(shown: Shown) -> list[Event]:
    return [picture(shown.jpeg), words("Describe the picture in one short sentence.")]


def digest_message(notes: Sequence[Note]) -> list[Event]:
    text = "Notes on a part of a video:\n\n" + "\n\n".join(map(written, notes))
    return [words(f"{text}\n\nSummarise these notes in two sentences.")]


def condense_message(digests: Sequence[Digest]) -> list[Event]:
    text = "Summaries of a video, in order:\n\n" + "\n".join(map(str, digests))
    return [words(f"{text}\n\nSummarise these in two sentences.")]


def question_message(
    question: str, notes: Sequence[Note], digests: Sequence[Digest], *, is_whole: bool
) -> list[Event]:
    """A question with what is known. `is_whole`: the recording was looked at to its end."""
    text = "Notes on a video" + ("" if is_whole else ", of which only the beginning is known")
    text += ":\n\n"
    if digests:
        text += "In short:\n" + "\n".join(map(str, digests)) + "\n\nIn detail:\n"
    text += "\n\n".join(map(written, notes))
    for at_s in clock_times(question):
        sight = shown_at(notes, at_s)
        if sight is not None:
            text += f"\n\nAt {clock(at_s)} this is shown: {sight.text}"
    text += f"\n\nQuestion about the video: {question}\nAnswer in one or two sentences."
    return [words(text)]


def _short(text: str) -> str:
    if len(text) <= REMEMBERED_CHARS:
        return text
    return text[:REMEMBERED_CHARS].rpartition(" ")[0] + " …"
