from engine import api
from gateway.audio_flow import AUDIO_BEHIND_SAMPLES, AudioFlow


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


def test_items_sound_counts_until_it_is_heard() -> None:
    """Beside the utterance's; pieces that failed are forgotten."""
    flow = AudioFlow()
    for _ in range(3):
        flow.told(api.Clip("s", "c", bytes(2000)))
    flow.heard(api.ClipHeard("s", "c", 1000))
    flow.told(api.DropSpeech("s", api.TurnRef(1)))
    flow.heard(api.Heard("s", api.TurnRef(1), "item", "words", 1))
    assert flow.behind_samples == 2000
    flow.heard(api.Failed("s", "clip", "session_overloaded", "…"))
    assert flow.behind_samples == 0
    flow.told(api.Clip("s", "c", bytes(2000)))
    flow.forget()
    assert flow.behind_samples == 0
