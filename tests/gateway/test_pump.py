from engine import api
from gateway.actions import Hangup, Send
from gateway.pump import AUDIO_BEHIND_SAMPLES, AudioFlow, Bounds, Outbound


def test_audio_flow_counts_what_is_outstanding() -> None:
    """Told minus reported; dropping the utterance or its final words settle all."""
    flow = AudioFlow()
    ref = api.TurnRef(1)
    flow.told(api.BeginSpeech("s", ref, "item", 1000))
    flow.told(api.Audio("s", ref, 1000, bytes(2 * AUDIO_BEHIND_SAMPLES), 0))
    assert flow.behind_samples == AUDIO_BEHIND_SAMPLES
    flow.heard(api.Chunk("s", ref, 1000, 600, {}, 1.0, 0, 0))
    assert flow.behind_samples == AUDIO_BEHIND_SAMPLES - 600
    flow.told(api.DropSpeech("s", ref))
    assert flow.behind_samples == 0
    flow.told(api.Audio("s", ref, 2_000_000, bytes(2000), 0))
    flow.heard(api.Heard("s", ref, "item", "words", 1))
    assert flow.behind_samples == 0


async def test_outbound_refuses_what_does_not_fit_and_ends_after_the_rest() -> None:
    """Full by count or by bytes; after `end` the rest is given out, then None."""
    by_count = Outbound(Bounds(events=2))
    assert [by_count.put(Send({"type": "x"})) for _ in range(3)] == [True, True, False]
    by_bytes = Outbound(Bounds(bytes=30))
    assert [by_bytes.put(Send({"type": "0123456789"})) for _ in range(2)] == [True, False]
    by_bytes.end(Hangup(1000, "first"), discard=False)
    by_bytes.end(Hangup(1001, "second"), discard=False)
    assert await by_bytes.get() is not None
    assert await by_bytes.get() is None
    assert by_bytes.waiting_bytes == 0
    assert by_bytes.hangup == Hangup(1000, "first")
