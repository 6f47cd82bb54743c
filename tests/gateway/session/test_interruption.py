"""What speech over an answer means, by its words."""

from __future__ import annotations

import pytest

from headstart.gateway.session.barge_in import InterruptionRule, Meaning, meaningful_words

RULE = InterruptionRule()


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("", []),
        (" Mm-hmm.", []),
        ("Uh-huh, okay.", []),
        ("I see. Of course!", []),
        ("Voilà, d'accord.", []),
        ("Sí, claro.", []),
        ("Yes.", ["yes"]),
        ("No!", ["no"]),
        ("Okay, stop.", ["stop"]),
        ("I see a dog", ["a", "dog"]),
        ("I want", ["i", "want"]),
        ("So, well...", []),
        ("So what?", ["what"]),
        ("...", []),
    ],
)
def test_signs_of_listening_are_no_words(said: str, left: list[str]) -> None:
    """Whatever their spelling; an answer or a wish is one."""
    assert [word for word, _ in meaningful_words(said)] == left


@pytest.mark.parametrize(
    ("said", "final", "meaning"),
    [
        ("", False, Meaning.UNKNOWN),
        ("Yeah", False, Meaning.UNKNOWN),
        ("Louder", False, Meaning.UNKNOWN),
        ("Louder now", False, Meaning.INTERRUPTION),
        ("Wait", False, Meaning.INTERRUPTION),
        ("Yeah, wait", False, Meaning.INTERRUPTION),
        ("Noway", False, Meaning.UNKNOWN),
        ("", True, Meaning.NOTHING),
        ("Yeah", True, Meaning.NOTHING),
        ("Louder", True, Meaning.INTERRUPTION),
    ],
)
def test_one_word_needs_a_pause_and_two_do_not(said: str, final: bool, meaning: Meaning) -> None:
    """A single guess may change, unless it is a word by which people take the turn; and only a
    pause tells that nothing was said."""
    assert RULE.judge(said, 400.0, final=final) is meaning


def test_without_words_length_decides() -> None:
    """Where the recogniser gives none: short sounds mean nothing when they are over, long do."""
    judge = RULE.judge
    assert judge("", 500.0, final=False, wordless=True) is Meaning.UNKNOWN
    assert judge("", 500.0, final=True, wordless=True) is Meaning.NOTHING
    assert judge("", 900.0, final=False, wordless=True) is Meaning.INTERRUPTION


@pytest.mark.parametrize(
    ("said", "likely", "left"),
    [
        (" NMO,", (0.2,), []),
        (" Make sure,", (0.2, 0.9), []),
        (" Stop.", (0.9,), ["stop"]),
        (" Stop.", (), ["stop"]),  # a recogniser that does not say how sure it is is believed
        (" of course", (0.1, 0.1), []),
        (" Wait a moment", (0.9, 0.3, 0.9), ["wait", "moment"]),
        (" ... no", (0.1, 0.9), ["no"]),  # a mark is a word to the recogniser
        (" one two", (0.9,), ["one", "two"]),  # only the first few have a number
    ],
)
def test_words_that_the_ears_doubt_are_not_meant(
    said: str, likely: tuple[float, ...], left: list[str]
) -> None:
    """A hum is heard as some word, but not as a likely one."""
    assert [word for word, _ in meaningful_words(said, likely, 0.5)] == left


# What Whisper-tiny.en made of sounds of the development voices: its words' probabilities.
REAL = [
    ("uh-huh", " Yes, I was...", (0.053, 0.119, 0.058), Meaning.NOTHING),
    ("uh-huh", " Eren.", (0.065,), Meaning.NOTHING),
    ("hmm", " And", (0.32,), Meaning.NOTHING),
    ("ah", " 5,", (0.118,), Meaning.NOTHING),
    ("oh", " So,", (0.353,), Meaning.NOTHING),
    ("yep", " Yet,", (0.134,), Meaning.NOTHING),
    ("yeah", " Yeah, yeah", (0.312, 0.425), Meaning.NOTHING),
    ("oh, wow", " So, well", (0.326, 0.71), Meaning.NOTHING),
    ("stop", " Stop.", (0.874,), Meaning.INTERRUPTION),
    ("no", " No", (0.837,), Meaning.INTERRUPTION),
    ("wait", " Wait.", (0.556,), Meaning.INTERRUPTION),
    ("enough", " Enough", (0.213,), Meaning.INTERRUPTION),
    ("pause", " Plus", (0.248,), Meaning.INTERRUPTION),
    ("hey", " See", (0.206,), Meaning.INTERRUPTION),
    ("stop", " Stup", (0.258,), Meaning.INTERRUPTION),
    ("stop it", " Stop it.", (0.27, 0.975), Meaning.INTERRUPTION),
    ("hold on", " Hold on.", (0.479, 0.98), Meaning.INTERRUPTION),
]


@pytest.mark.parametrize(("sound", "heard", "likely", "meaning"), REAL)
def test_hums_that_are_heard_as_words(
    sound: str, heard: str, likely: tuple[float, ...], meaning: Meaning
) -> None:
    """They pass, and short wishes do not, although the recogniser is less sure of them than of a
    sentence, and wrong about some."""
    assert RULE.judge(heard, 400.0, final=True, likely=likely) is meaning, sound


@pytest.mark.parametrize(
    ("heard", "probability", "spread", "meaning"),
    [
        (" Bye!", 0.92, 0.9, Meaning.NOTHING),  # "uh", of a neural voice
        (" Emma?", 0.36, 2.3, Meaning.NOTHING),  # "mm"
        (" Tomorrow.", 0.92, 2.3, Meaning.INTERRUPTION),
        (" Plus...", 0.23, 4.9, Meaning.INTERRUPTION),  # "pause"
        (" Hey.", 0.32, 1.6, Meaning.INTERRUPTION),  # it asks for the turn, however it sounds
        (" Right.", 0.9, 4.2, Meaning.NOTHING),
    ],
)
def test_a_hum_does_not_sound_like_a_word(
    heard: str, probability: float, spread: float, meaning: Meaning
) -> None:
    """How far the timbre moves, beside how likely the word is."""
    judged = RULE.judge(heard, 400.0, final=True, likely=(probability,), spread=spread)
    assert judged is meaning


def test_words_on_the_way_are_doubted_as_well() -> None:
    """Two that the recogniser does not believe are not two words."""
    assert RULE.judge("Yes I", 400.0, final=False, likely=(0.05, 0.12)) is Meaning.UNKNOWN
    assert RULE.judge("Hold on", 400.0, final=False, likely=(0.6, 0.9)) is Meaning.INTERRUPTION
