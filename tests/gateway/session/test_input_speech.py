"""Speech events as protocol events and engine commands."""

from __future__ import annotations

import base64
from typing import Any

from headstart.engine import api
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

PUSH_TO_TALK = {"audio": {"input": {"turn_detection": None}}}


def test_chunk_length_is_a_setting_of_the_session() -> None:
    """After session.gateway.chunk_ms the engine gets pieces of that length."""
    bench = SessionBench()
    bench.update(gateway={"chunk_ms": 200})
    bench.hear(clip_pcm("capital.wav"))
    assert {c.samples for c in bench.commands(api.Audio)[:-1]} == {3200}


def test_semantic_vad_hears_as_the_server_is_set() -> None:
    """Its speech begins `pre_roll_ms` early, and a higher `vad_threshold` ends it sooner."""

    def heard_ms(**settings: Any) -> tuple[int, int]:
        bench = SessionBench(**settings)
        bench.update(audio={"input": {"turn_detection": {"type": "semantic_vad"}}})
        bench.hear(silence_pcm(1_000) + clip_pcm("capital.wav") + silence_pcm(1_000))
        (started,) = bench.of("input_audio_buffer.speech_started")
        (stopped,) = bench.of("input_audio_buffer.speech_stopped")
        return started["audio_start_ms"], stopped["audio_end_ms"]

    start_ms, end_ms = heard_ms(pre_roll_ms=300, vad_threshold=0.5)
    assert heard_ms(pre_roll_ms=100, vad_threshold=0.5) == (start_ms + 200, end_ms)
    assert heard_ms(pre_roll_ms=300, vad_threshold=0.8)[1] < end_ms


def test_a_client_stamp_gives_the_network_stage() -> None:
    """captured_at_ms counts against the quickest packet so far: delay beyond it is network."""
    bench = SessionBench()
    bench.update(gateway={"events": ["latency"]})
    pcm = clip_pcm("capital.wav") + silence_pcm(700)
    for start in range(0, len(pcm), 960):
        packet = pcm[start : start + 960]
        spoken_ms = (start + len(packet)) / 48
        # From one second on, packets come 30 ms late.
        bench.now_ns = round((spoken_ms + (30 if spoken_ms > 1000 else 0)) * 1e6)
        bench.client(
            "input_audio_buffer.append",
            audio=base64.b64encode(packet).decode(),
            captured_at_ms=5_000_000 + spoken_ms,
        )
    bench.answer("Paris.")
    budget = bench.last("gateway.latency.report")["budget"]
    assert budget["anchor"] == "captured"
    assert abs(budget["stages_ms"]["network"] - 30) < 1


def test_a_track_gives_the_network_stage_where_it_is_known() -> None:
    """A call's sound is anchored where its packet left the peer, as the call estimates it; where
    the call cannot, the stage is null and the anchor is the receipt."""
    for under_way_ms, anchor in ((35, "departed"), (None, "received")):
        bench = SessionBench()
        bench.update(gateway={"events": ["latency"]})
        pcm = clip_pcm("capital.wav") + silence_pcm(700)
        for start in range(0, len(pcm), 960):
            packet = pcm[start : start + 960]
            bench.now_ns = round((start + len(packet)) / 48 * 1e6)
            came_ns = bench.now_ns - 2 * 10**6  # it waited behind a hole
            departed_ns = None if under_way_ms is None else came_ns - under_way_ms * 10**6
            bench.track(packet, came_ns, departed_ns)
        bench.answer("Paris.")
        budget = bench.last("gateway.latency.report")["budget"]
        assert budget["anchor"] == anchor
        assert budget["stages_ms"]["network"] == under_way_ms
        assert budget["stages_ms"]["buffer"] == 2


def test_clearing_forgets_the_utterance() -> None:
    """The engine drops it, the client is told, and nothing is committed."""
    bench = SessionBench()
    bench.update(**PUSH_TO_TALK)
    bench.hear(clip_pcm("capital.wav"))
    bench.client("input_audio_buffer.clear")
    assert bench.commands(api.DropSpeech)
    assert bench.types()[-1] == "input_audio_buffer.cleared"
    bench.client("input_audio_buffer.commit")
    assert bench.error()["code"] == "input_audio_buffer_commit_empty"


def test_turning_detection_off_in_mid_speech_keeps_the_utterance() -> None:
    """It then waits for the client's commit."""
    bench = SessionBench()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1200])
    bench.update(**PUSH_TO_TALK)
    bench.hear(silence_pcm(1500))
    assert not bench.commands(api.EndSpeech)
    bench.client("input_audio_buffer.commit")
    assert bench.commands(api.EndSpeech)


def test_what_nobody_was_there_to_hear_is_told() -> None:
    """Speech over which the engine goes, or comes: it has stopped, and was not heard. What is said
    from then on is a turn like any other."""
    for ready, code in ((True, "engine_lost"), (False, "engine_lost")):
        bench = SessionBench(engine_ready=ready)
        bench.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
        bench.hear(clip_pcm("capital.wav")[: 48 * 1200])
        started = bench.last("input_audio_buffer.speech_started")
        if ready:
            bench.engine_lost()
        else:
            bench.engine_ready()
        assert bench.last("input_audio_buffer.speech_stopped")["item_id"] == started["item_id"]
        failed = bench.last("conversation.item.input_audio_transcription.failed")
        assert (failed["item_id"], failed["error"]["code"]) == (started["item_id"], code)
        if ready:
            bench.engine_ready()
        bench.told.clear()
        bench.hear(silence_pcm(1000) + clip_pcm("capital.wav") + silence_pcm(1000))
        assert len(bench.commands(api.EndSpeech)) == 1
