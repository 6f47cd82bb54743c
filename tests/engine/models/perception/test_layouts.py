"""How a clip reads."""

from __future__ import annotations

from headstart.engine.chat.render import Modality
from headstart.engine.models.perception.interface import (
    ClipTokens,
    SoundTokens,
    TailPolicy,
    UnitTokens,
)
from headstart.engine.models.perception.layouts import OmniLayout
from headstart.engine.models.perception.tmrope import Delimiters

LAYOUT = OmniLayout(Delimiters(vision_bos=1, vision_eos=2, audio_bos=3, audio_eos=4), unit_ids=3)
HEARD = [50, 51, 52, 53, 54, 55, 56]
SHOTS = (UnitTokens((90,), 0), UnitTokens((91,), 2), UnitTokens((92,), 5))


def read(clip: ClipTokens, tail: TailPolicy = TailPolicy.PROVISIONAL) -> list[int]:
    return [token for _, ids in LAYOUT.clip(clip, tail) for token in ids]


def test_in_each_unit_pictures_come_before_sound() -> None:
    """Units of three ids, whatever the order in which pictures came."""
    sound = SoundTokens(HEARD[:6], HEARD[6:])
    wanted = [1, 3, 90, 91, 50, 51, 52, 92, 53, 54, 55, 56, 4, 2]
    assert read(ClipTokens(sound, SHOTS, done=True)) == wanted
    assert read(ClipTokens(sound, SHOTS[::-1], done=True), TailPolicy.CLOSED) == wanted


def test_an_open_clip_reads_as_its_policy_says() -> None:
    """`provisional`: all there is; `closed`: whole units only. Neither is closed by delimiters."""
    clip = ClipTokens(SoundTokens(HEARD[:3], HEARD[3:5]), SHOTS)
    assert read(clip) == [1, 3, 90, 91, 50, 51, 52, 92, 53, 54]
    assert read(clip, TailPolicy.CLOSED) == [1, 3, 90, 91, 50, 51, 52]


def test_a_late_picture_goes_before_its_units_sound() -> None:
    """So what the stream keeps ends before that unit's sound."""
    early, late = ClipTokens(SoundTokens(HEARD), SHOTS[:2]), ClipTokens(SoundTokens(HEARD), SHOTS)
    before, after = read(early), read(late)
    assert before == [1, 3, 90, 91, *HEARD]
    assert after == [1, 3, 90, 91, 50, 51, 52, 92, 53, 54, 55, 56]


def test_one_sense_alone_has_its_own_delimiters() -> None:
    """Sound between the audio delimiters; a silent clip, and a picture, between the others."""
    assert read(ClipTokens(SoundTokens(HEARD), done=True)) == [3, *HEARD, 4]
    assert read(ClipTokens(units=SHOTS, done=True)) == [1, 90, 91, 92, 2]
    assert LAYOUT.image([7, 8]) == [
        (Modality.TEXT, [1]),
        (Modality.IMAGE, [7, 8]),
        (Modality.TEXT, [2]),
    ]
