"""Sound in a client's own format, in and out."""

from __future__ import annotations

import base64

import pytest

from headstart.engine import api
from headstart.gateway.audio import g711
from headstart.gateway.audio.formats import SoundIn, SoundOut
from headstart.gateway.protocol.errors import ProtocolError
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

PCM = {"type": "audio/pcm", "rate": 24_000}
PCMU = {"type": "audio/pcmu"}


def test_pcm_passes_as_it_is() -> None:
    """In both directions, and half a sample is refused."""
    assert SoundIn().decode(base64.b64encode(b"abcd").decode(), PCM) == b"abcd"
    assert SoundOut().encode("r", b"abcd", PCM) is None
    with pytest.raises(ProtocolError):
        SoundIn().decode(base64.b64encode(b"abc").decode(), PCM)


def test_each_answer_is_a_stream_of_its_own() -> None:
    """What the last one left in its filter is not heard at the beginning of the next."""
    tone, silence = clip_pcm("capital.wav")[:48_240], bytes(4_800)
    out = SoundOut()
    out.encode("a", tone, PCMU)
    assert out.encode("b", silence, PCMU) == SoundOut().encode("b", silence, PCMU)


@pytest.mark.parametrize("law", ["audio/pcmu", "audio/pcma"])
def test_a_telephones_turn(law: g711.Law) -> None:
    """8 kHz G.711 both ways: the speech is found where it is, and the answer comes in kind."""
    bench = SessionBench(speaks=True)
    sound = {"format": {"type": law}}
    bench.update(audio={"input": sound, "output": sound})
    session = bench.last("session.updated")["session"]["audio"]
    assert session["input"]["format"] == session["output"]["format"] == {"type": law}
    telephone = g711.Encoder(law).feed(clip_pcm("capital.wav") + silence_pcm(1_000))
    for start in range(0, len(telephone), 160):
        bench.now_ns += 20_000_000
        packet = base64.b64encode(telephone[start : start + 160]).decode()
        bench.client("input_audio_buffer.append", audio=packet)
    assert bench.commands(api.EndSpeech)
    bench.answer("Paris.")
    bench.say_all(samples=24_000)
    played = b"".join(play.encoded or b"" for play in bench.played)
    assert len(played) == 8_000
    response = bench.last("response.done")["response"]
    assert response["audio"]["output"]["format"] == {"type": law}


def test_a_response_may_have_a_format_of_its_own() -> None:
    """Only that one is encoded."""
    bench = SessionBench(speaks=True)
    bench.client("response.create", response={"audio": {"output": {"format": PCMU}}})
    bench.answer("One.")
    bench.say_all()
    bench.client("response.create")
    bench.answer("Two.")
    bench.say_all()
    assert [play.encoded is None for play in bench.played] == [False, True]


def test_long_sound_goes_in_pieces() -> None:
    """A minute in one piece of the voice's is many events, each far under a frame."""
    bench = SessionBench(speaks=True)
    bench.client("response.create")
    bench.answer("One.")
    bench.say_all(samples=60 * 24_000)
    assert len(bench.played) == 30
    assert max(len(play.pcm) for play in bench.played) <= 96_000
    assert sum(len(play.pcm) for play in bench.played) == 60 * 48_000
