"""Positions by time, height and width, against `transformers`' rule and against written values."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from headstart.engine.kvcache.positions import Axes, MediaKind, MediaPosition
from headstart.engine.models.perception.tmrope import Delimiters, TmRope
from tests.engine.models.omni_twin import (
    AUDIO,
    AUDIO_BOS,
    AUDIO_EOS,
    IDS_PER_SECOND,
    IMAGE,
    UNIT_IDS,
    VIDEO,
    VISION_BOS,
    VISION_EOS,
    tiny_twin,
)

OPENING = (3, 4)
DELIMITERS = Delimiters(VISION_BOS, VISION_EOS, AUDIO_BOS, AUDIO_EOS, answer_opening=OPENING)
Tokens = list[tuple[int, MediaPosition | None]]


@pytest.fixture(scope="module")
def theirs() -> Any:
    return tiny_twin()


def words(*ids: int) -> Tokens:
    return [(token, None) for token in ids]


def sound(count: int) -> Tokens:
    return [(AUDIO, MediaPosition(MediaKind.AUDIO))] * count


def picture(kind: MediaKind, time: int, rows: int, columns: int) -> Tokens:
    token = IMAGE if kind is MediaKind.IMAGE else VIDEO
    return [(token, MediaPosition(kind, time, r, c)) for r in range(rows) for c in range(columns)]


def clip(times: list[int], rows: int, columns: int, heard: int) -> Tokens:
    """A clip with pictures and sound, unit by unit."""
    out = words(VISION_BOS, AUDIO_BOS)
    for unit in range(max(times[-1], heard - 1) // UNIT_IDS + 1):
        for time in times:
            if time // UNIT_IDS == unit:
                out += picture(MediaKind.VIDEO, time, rows, columns)
        out += sound(max(0, min(UNIT_IDS, heard - UNIT_IDS * unit)))
    return out + words(AUDIO_EOS, VISION_EOS)


def follow(rule: TmRope, tokens: Tokens) -> list[Axes]:
    return [rule.advance(token, place) for token, place in tokens]


def tokens_of(frames: int) -> int:
    return ((frames - 1) // 2 + 1 - 2) // 2 + 1


@pytest.mark.parametrize("with_sound", [True, False])
def test_it_is_their_rule_on_random_layouts(theirs: Any, with_sound: bool) -> None:
    """150 random conversations each of clips with pictures and sound, and of pictures, videos and
    sounds by themselves: the same positions, and the same place for the answer."""
    chance = random.Random(with_sound)
    jumps = 0
    for _ in range(150):
        layout: Tokens = words(1, 2)
        grids: dict[int, list[list[int]]] = {IMAGE: [], VIDEO: []}
        frames, spacings = [], []
        for _ in range(chance.randint(1, 3)):
            rows, columns = chance.randint(1, 3), chance.randint(1, 30)
            kinds = ["clip", "image"] if with_sound else ["image", "video", "sound"]
            kind = chance.choice(kinds)
            if kind in ("clip", "video"):
                spacings.append(chance.choice([0.5, 0.75, 1.0, 1.25, 2.0]))
                count = chance.randint(1, 9)
                times = [int(i * spacings[-1] * IDS_PER_SECOND) for i in range(count)]
                grids[VIDEO].append([count, 2 * rows, 2 * columns])
            if kind in ("clip", "sound"):
                frames.append(chance.randint(3, 2000))
            if kind == "clip":
                layout += clip(times, rows, columns, tokens_of(frames[-1]))
            elif kind == "video":
                layout += words(VISION_BOS)
                for time in times:
                    layout += picture(MediaKind.VIDEO, time, rows, columns)
                layout += words(VISION_EOS)
            elif kind == "sound":
                layout += words(AUDIO_BOS) + sound(tokens_of(frames[-1])) + words(AUDIO_EOS)
            else:
                grids[IMAGE].append([1, 2 * rows, 2 * columns])
                layout += words(VISION_BOS) + picture(MediaKind.IMAGE, 0, rows, columns)
                layout += words(VISION_EOS)
            layout += words(*range(5, 5 + chance.randint(0, 3)))
        layout += words(*OPENING)
        ids = torch.tensor([[token for token, _ in layout]])
        wanted, delta = theirs.model.get_rope_index(
            ids,
            torch.tensor(grids[IMAGE]) if grids[IMAGE] else None,
            torch.tensor(grids[VIDEO]) if grids[VIDEO] else None,
            torch.ones_like(ids),
            with_sound,
            torch.tensor(frames) if frames else None,
            torch.tensor(spacings) if spacings else None,
        )
        rule = TmRope(DELIMITERS)
        ours = follow(rule, layout)
        answer = rule.advance(5, None)[0]
        if grids[IMAGE] or grids[VIDEO]:  # without either, theirs counts words only
            assert torch.equal(wanted[:, 0], torch.tensor(ours).T)
            assert answer == int(delta) + len(layout)
        jumps += answer != ours[-1][0] + 1
    assert not with_sound or jumps > 0  # the case that needs the greatest id of all was met


def test_written_positions_of_a_clip() -> None:
    """Values of our own, whatever becomes of theirs: two words, a clip of three grids of 1 x 2 a
    second apart over 60 tokens of sound, a word."""
    tokens = words(1, 2) + clip([0, 25, 50], 1, 2, 60) + words(3)
    ours = follow(TmRope(DELIMITERS), tokens)
    assert ours[:4] == [(0, 0, 0), (1, 1, 1), (2, 2, 2), (2, 2, 2)]
    assert ours[4:8] == [(3, 3, 3), (3, 3, 4), (28, 3, 3), (28, 3, 4)]
    assert ours[8] == (3, 3, 3)
    assert ours[57] == (52, 52, 52)
    assert ours[58:60] == [(53, 3, 3), (53, 3, 4)]
    assert ours[60] == (53, 53, 53)
    assert ours[69:] == [(62, 62, 62), (63, 63, 63), (63, 63, 63), (64, 64, 64)]


def test_text_follows_a_video_behind_its_last_moment() -> None:
    """As the models were trained: behind the greatest of all three axes. (Some versions of
    `transformers` go by the picture's size alone, and would say 5 here.)"""
    layout = words(1, 2, VISION_BOS)
    for time in range(8):
        layout += picture(MediaKind.VIDEO, time, 2, 2)
    ours = follow(TmRope(DELIMITERS), layout + words(VISION_EOS))
    assert ours[-2] == (10, 4, 4)
    assert ours[-1] == (11, 11, 11)


def test_an_answer_begins_behind_everything() -> None:
    """A picture 30 cells wide beside two tokens of sound: words go on behind the sound, the answer
    behind the picture's right edge, and what follows the answer behind that."""
    rule = TmRope(Delimiters(VISION_BOS, VISION_EOS, AUDIO_BOS, AUDIO_EOS, answer_opening=(7, 8)))
    layout = clip([0], 1, 30, 2) + words(7, 8, 20, 21, 7, 9)
    ours = [axes[0] for axes in follow(rule, layout)]
    assert ours[-8:] == [3, 3, 4, 5, 31, 32, 33, 34]


def test_a_restored_rule_goes_on_as_it_did() -> None:
    """From a snapshot anywhere, also in the middle of a picture, the rest comes out the same, any
    number of times."""
    layout = words(1) + clip([0, 25], 2, 3, 70) + words(2, VISION_BOS)
    layout += picture(MediaKind.IMAGE, 0, 2, 5) + words(VISION_EOS, 3)
    whole = follow(TmRope(DELIMITERS), layout)
    for cut in range(len(layout)):
        rule = TmRope(DELIMITERS)
        follow(rule, layout[:cut])
        snapshot = rule.snapshot()
        for _ in range(2):
            rule.restore(snapshot)
            assert follow(rule, layout[cut:]) == whole[cut:]
