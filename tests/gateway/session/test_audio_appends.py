import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from headstart.gateway.protocol.fast_append import fast_append
from headstart.gateway.session.audio_appends import PIECE_BYTES
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

SPEECH = clip_pcm("capital.wav")


def append_text(pcm: bytes, **fields: Any) -> str:
    audio = base64.b64encode(pcm).decode()
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio, **fields})


TOO_LONG = len(append_text(bytes(PIECE_BYTES + 2)))  # to be heard in one piece


def append_whole(bench: SessionBench, pcm: bytes, **fields: float) -> None:
    bench.client("input_audio_buffer.append", audio=base64.b64encode(pcm).decode(), **fields)


def test_one_long_append_is_heard_like_many_short_ones() -> None:
    """A question and its silence in one event give the events and commands that packets give."""
    pcm = clip_pcm("capital.wav") + silence_pcm(1500)
    assert len(pcm) > 3 * PIECE_BYTES
    whole, packets = SessionBench(), SessionBench()
    append_whole(whole, pcm)
    packets.hear(pcm, realtime=False)
    assert whole.types() == packets.types()
    assert "input_audio_buffer.committed" in whole.types()
    assert [type(c) for c in whole.told] == [type(c) for c in packets.told]


def test_pieces_carry_the_time_of_their_own_sound() -> None:
    """A client's stamp is that of the end; what lies before was captured earlier."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    speech = clip_pcm("capital.wav") + silence_pcm(1500)
    append_whole(bench, speech, captured_at_ms=100_000.0)
    bench.answer("Paris")
    budget = bench.last("gateway.latency.report")["budget"]
    assert budget["stages_ms"]["network"] is not None


def test_too_much_for_push_to_talk_is_refused_once() -> None:
    """One error with the event's id; the session takes the next append."""
    bench = SessionBench()
    bench.update(audio={"input": {"turn_detection": None}})
    bench.clear()
    for _ in range(2):
        append_whole(bench, silence_pcm(200_000))
    assert len(bench.of("error")) == 1
    assert bench.error()["param"] == "audio"
    bench.client("input_audio_buffer.clear")
    append_whole(bench, silence_pcm(2000))
    assert len(bench.of("error")) == 1


@pytest.mark.parametrize("extra", [-2, 0, 2])
def test_nothing_is_lost_at_a_cut(extra: int) -> None:
    """Around one piece's length, push-to-talk delivers every sample."""
    bench = SessionBench()
    bench.update(audio={"input": {"turn_detection": None}})
    append_whole(bench, bytes(PIECE_BYTES + extra))
    bench.client("input_audio_buffer.commit")
    (end,) = bench.commands(api.EndSpeech)
    samples = sum(audio.samples for audio in bench.commands(api.Audio))
    assert samples == end.end_sample == -(-(PIECE_BYTES + extra) // 3)


PACKETS = st.one_of(
    st.builds(
        lambda at, size: append_text(SPEECH[2 * at : 2 * (at + size)]),
        st.integers(0, len(SPEECH) // 2 - 960),
        st.integers(1, 960),
    ),
    st.sampled_from([0, 2, PIECE_BYTES, PIECE_BYTES + 2]).map(lambda n: append_text(bytes(n))),
    st.sampled_from(
        [
            append_text(b"odd"),
            append_text(bytes(960), captured_at_ms=3.0),
            append_text(bytes(960), other=1),
            '{"type": "input_audio_buffer.commit"}',
            '{"type": "input_audio_buffer.clear"}',
            '{"type": "response.create"}',
            "no JSON",
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(PACKETS, max_size=12), by_hand=st.booleans(), speaks=st.booleans())
def test_sound_that_is_taken_at_once_is_taken_alike(
    texts: list[str], by_hand: bool, speaks: bool
) -> None:
    """Of any texts, mistakes among them, `receive_sound` does what `receive_text` does or nothing;
    and it takes every right packet of up to one piece."""
    once, text_by_text = SessionBench(), SessionBench()
    for bench in (once, text_by_text):
        if by_hand:
            bench.update(audio={"input": {"turn_detection": None}})
        if speaks:
            bench.hear(SPEECH[: 48 * 600])
    for text in texts:
        taken = once.sound(text)
        assert taken == (fast_append(text, extensions=False) is not None and len(text) < TOO_LONG)
        if not taken:
            once.raw(text)
        text_by_text.raw(text)
    assert once.sent == text_by_text.sent
    assert once.told == text_by_text.told


def test_sound_in_other_formats_is_not_taken_at_once() -> None:
    """There the text is base64 of something else."""
    bench = SessionBench()
    bench.update(audio={"input": {"format": {"type": "audio/pcmu"}}})
    assert not bench.sound(append_text(bytes(960)))
