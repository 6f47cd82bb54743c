import base64

import pytest

from engine import api
from gateway.appends import PIECE_BYTES
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm


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
