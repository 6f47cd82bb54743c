"""One utterance and its newest words."""

from __future__ import annotations

from headstart.engine import api
from headstart.gateway.audio.segmenter import PauseDetected
from headstart.gateway.session.utterance import Standing, Utterance


def test_words_are_final_for_the_pause_they_were_heard_in() -> None:
    """Those of an earlier pause are not, for speech has gone on since."""
    spoken = Utterance(turn=1, item_id="u", start_sample=0, speech_sample=4800, began_ns=0)
    assert (spoken.text, spoken.sound_ms, spoken.is_held) == ("", 0.0, False)
    spoken.take(api.Hearing("s", api.TurnRef(1), "Wait", " a", 12_800))
    assert (spoken.text, spoken.sound_ms, spoken.text_is_final) == ("Wait a", 500.0, False)
    spoken.hushed = PauseDetected(api.TurnRef(1, 1), 16_000)
    spoken.take(api.Hearing("s", api.TurnRef(1, 0), "Wait", " a", 12_800, final=True))
    assert not spoken.text_is_final
    spoken.take(api.Hearing("s", api.TurnRef(1, 1), "Wait", " a.", 16_000, final=True))
    assert spoken.text_is_final


def test_held_is_whatever_the_client_has_not_been_told_of() -> None:
    """Whether the answer stands still meanwhile or not."""
    held = {standing for standing in Standing if standing is not Standing.ANNOUNCED}
    for standing in Standing:
        spoken = Utterance(1, "u", 0, 0, 0, standing=standing)
        assert spoken.is_held is (standing in held)
