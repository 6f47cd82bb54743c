"""Speech over an answer, in virtual time: coughs, signs of listening, and people who mean it."""

from __future__ import annotations

from typing import Any

import pytest

from headstart.engine import api
from headstart.gateway.tts.messages import Speak, Stop
from tests.gateway import speech
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
SECOND = 24_000


def answering(speaks: bool = True, stock: bool = False, **settings: Any) -> SessionBench:
    """An answer that is being written and, with a voice, played: three seconds of it. The
    microphone has been open for half a second. A `stock` client does not ask for our events."""
    bench = SessionBench(speaks=speaks, **settings)
    bench.hear(silence_pcm(500))
    bench.update(gateway={"events": [] if stock else ["interruption"]})
    bench.client("response.create")
    generation = bench.respond_command().generation
    bench.engine(api.Delta("sess_test", generation, "It is big. And it is", bench.now_ns))
    if speaks:
        bench.say_all(3 * SECOND)
    bench.sent.clear()
    return bench


def states(bench: SessionBench) -> list[str]:
    return [event["state"] for event in bench.of("gateway.interruption")]


def sing(bench: SessionBench, ms: int) -> None:
    """A sound that the VAD takes for speech."""
    bench.hear(speech.join(speech.voice(ms)))


def test_a_cough_during_an_answer_passes() -> None:
    """Its sound stands still and goes on; no event, no cancel, no turn, and the engine forgets."""
    bench = answering()
    sing(bench, 400)
    assert bench.holds()
    bench.hear(silence_pcm(260))
    bench.hearing("", final=True)
    assert not bench.holds()
    assert states(bench) == ["possible", "false"]  # as soon as the sound goes on
    bench.hear(silence_pcm(600))
    assert states(bench) == ["possible", "false"]
    assert not [kind for kind in bench.types() if not kind.startswith("gateway.")]
    assert not bench.commands(api.Cancel)
    assert not bench.commands(api.EndSpeech)
    assert len(bench.commands(api.DropSpeech)) == 1
    bench.answer(" red.")
    bench.say_all()
    assert bench.last("response.done")["response"]["status"] == "completed"


@pytest.mark.parametrize("words", ["Mm-hm.", " Uh-huh", "Yeah, okay.", "Of course!", "Ja, genau."])
def test_a_sign_of_listening_passes(words: str) -> None:
    """The same with words that say no more than "go on"."""
    bench = answering()
    sing(bench, 500)
    bench.hearing(words)
    bench.hear(silence_pcm(260))
    bench.hearing(words, final=True)
    bench.hear(silence_pcm(600))
    assert states(bench) == ["possible", "false"]
    assert not bench.commands(api.Cancel)
    assert not bench.holds()


def test_a_hum_that_is_heard_as_words_passes() -> None:
    """Also as three: the recogniser doubts each, so the answer goes on as behind a cough."""
    bench = answering()
    sing(bench, 420)
    bench.hearing("Yes, I", likely=(0.05, 0.12))
    assert bench.holds()
    bench.hear(silence_pcm(260))
    bench.hearing("Yes, I was...", final=True, likely=(0.05, 0.12, 0.04))
    assert not bench.holds()
    bench.hear(silence_pcm(600))
    assert states(bench) == ["possible", "false"]
    assert not bench.commands(api.Cancel)
    assert len(bench.commands(api.DropSpeech)) == 1


def test_a_doubted_word_may_become_a_sure_one() -> None:
    """What is said next decides, at once."""
    bench = answering()
    sing(bench, 600)
    bench.hearing("Store", likely=(0.13,))
    assert not bench.commands(api.Cancel)
    bench.hearing("Stop it", likely=(0.81, 0.98))
    assert len(bench.commands(api.Cancel)) == 1


def test_words_interrupt() -> None:
    """Two words of a sentence: speech_started as of its beginning, the answer is cancelled, what
    is queued is cleared, the voice stopped; the words follow under the same item."""
    bench = answering()
    bench.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
    generation = 1
    began_ms = bench.session._speech.clock_samples // 16
    bench.hear(clip_pcm("capital.wav")[: 48 * 1200])
    assert STARTED not in bench.types()
    ref = bench.told_ref()
    bench.engine(api.Hearing("sess_test", ref, "What is", " the", 16_000))
    started = bench.last(STARTED)
    assert began_ms <= started["audio_start_ms"] < began_ms + 400
    delta = bench.last("conversation.item.input_audio_transcription.delta")
    assert (delta["item_id"], delta["delta"]) == (started["item_id"], "What is")
    assert [c.generation for c in bench.commands(api.Cancel)] == [generation]
    assert bench.playout_cleared == 1
    assert not bench.holds()
    assert Stop("sess_test", generation) in bench.uttered
    assert states(bench) == ["possible", "real"]


def test_one_word_interrupts_when_a_pause_confirms_it() -> None:
    """ "Louder!" is enough; while it may still become another word it is not."""
    bench = answering()
    said = clip_pcm("capital.wav")[: 48 * 800]
    bench.hear(said)
    bench.hearing(" Louder")
    assert not bench.commands(api.Cancel)
    bench.hear(silence_pcm(260))
    bench.hearing(" Louder.", final=True)
    assert len(bench.commands(api.Cancel)) == 1
    hushes = bench.commands(api.Hush)
    assert hushes[0].speculate is None  # an answer ran
    assert hushes[1].speculate is not None  # and now there is something to begin
    assert hushes[1].ref == hushes[0].ref
    bench.finish(1, "It is big.", api.FinishReason.CANCELLED)
    bench.hear(silence_pcm(600))
    assert bench.last(STOPPED)["item_id"] == bench.last(STARTED)["item_id"]
    assert len(bench.commands(api.Respond)) == 2


def test_a_word_that_takes_the_turn_needs_no_pause() -> None:
    """ "Stop" cannot become a sign of listening."""
    bench = answering()
    sing(bench, 600)
    bench.hearing(" Stop", likely=(0.58,))
    assert len(bench.commands(api.Cancel)) == 1


def test_a_hum_that_is_heard_as_a_likely_word_passes() -> None:
    """Its timbre stands still: the answer goes on."""
    bench = answering()
    sing(bench, 420)
    bench.hear(silence_pcm(260))
    bench.hearing("Bye!", final=True, likely=(0.92,))
    bench.hear(silence_pcm(600))
    assert states(bench) == ["possible", "false"]
    assert not bench.commands(api.Cancel)


def test_the_ears_hear_more_often_while_an_answer_waits() -> None:
    """Chunks of 200 ms until the words decide; then of the session's length again."""
    bench = answering()
    sing(bench, 900)
    assert {audio.samples for audio in bench.commands(api.Audio)} == {3200}
    bench.hearing("wait a")
    bench.told.clear()
    sing(bench, 1200)
    assert {audio.samples for audio in bench.commands(api.Audio)} == {8000}


def test_sound_waits_two_seconds_for_words() -> None:
    """Longer noise without a word plays under the answer; words that come after all interrupt."""
    bench = answering()
    sing(bench, 1000)
    bench.tick(900)
    assert bench.holds()
    bench.tick(300)
    assert not bench.holds()
    assert not bench.commands(api.Cancel)
    assert states(bench) == ["possible", "false"]
    bench.hearing("wait a moment")
    assert len(bench.commands(api.Cancel)) == 1
    assert states(bench) == ["possible", "false", "real"]


def test_words_that_come_late_are_waited_for() -> None:
    """A busy engine: the turn is over before its words are known. Then they decide, both ways."""
    for words, interrupts in (("Wait.", True), ("Mm.", False)):
        bench = answering()
        sing(bench, 400)
        bench.hear(silence_pcm(700))
        assert not bench.commands(api.EndSpeech)
        bench.hearing(words, final=True)
        assert bool(bench.commands(api.EndSpeech)) is interrupts
        assert bool(bench.commands(api.DropSpeech)) is not interrupts
        assert bool(bench.commands(api.Cancel)) is interrupts
        kinds = [STARTED, STOPPED, "input_audio_buffer.committed"] if interrupts else []
        assert [k for k in bench.types() if k.startswith("input_audio")] == kinds


def test_a_question_over_an_answer_outlasts_a_busy_engine() -> None:
    """The engine comes to it ten seconds after its end. The answer plays on, and is interrupted
    then; if it is over by then, the question is answered behind it."""
    for is_answered in (False, True):
        bench = answering()
        sing(bench, 1500)
        bench.hear(silence_pcm(700))
        bench.tick(9_300)
        assert not bench.holds()
        assert not bench.commands(api.DropSpeech)
        if is_answered:
            bench.answer(" red.")
            bench.tick(100)
        bench.hearing("What is the capital of France?", final=True)
        assert bool(bench.commands(api.Cancel)) is not is_answered
        assert len(bench.commands(api.EndSpeech)) == 1
        kinds = [STARTED, STOPPED, "input_audio_buffer.committed"]
        assert [k for k in bench.types() if k.startswith("input_audio")] == kinds


def test_who_clears_the_buffer_discards_speech_that_waits_for_its_words() -> None:
    """The client knows of nothing that was committed; words that come later change nothing."""
    bench = answering()
    sing(bench, 1500)
    bench.hear(silence_pcm(700))
    bench.client("input_audio_buffer.clear")
    assert len(bench.commands(api.DropSpeech)) == 1
    assert not bench.holds()
    bench.hearing("What is the capital of France?", final=True)
    bench.tick(20_000)
    assert not bench.commands(api.Cancel)
    assert not bench.commands(api.EndSpeech)
    assert [k for k in bench.types() if k.startswith("input_audio")] == [
        "input_audio_buffer.cleared"
    ]


def test_an_engine_that_never_tells_does_not_hold_for_ever() -> None:
    """After two seconds what is known decides, after 17 that nothing is; and at the next utterance
    what is known of all its sound, or that it was as short as a cough."""
    for words, wait_ms in (("Mm.", 2_000), ("", 17_000)):
        bench = answering()
        sing(bench, 400)
        bench.hear(silence_pcm(700))
        bench.hearing(words)
        bench.tick(wait_ms - 300)
        assert not bench.commands(api.DropSpeech)
        bench.tick(300)
        assert bench.commands(api.DropSpeech)
    for words, ms in (("Mm.", 400), ("", 200)):
        bench = answering()
        for _ in range(2):
            sing(bench, ms)
            bench.hear(silence_pcm(700))
            if words:
                bench.hearing(words)
        assert len(bench.commands(api.DropSpeech)) == 1
        assert not bench.commands(api.Cancel)


@pytest.mark.parametrize("heard", [None, "Okay."], ids=["nothing", "its beginning"])
def test_what_a_busy_engine_has_not_heard_is_not_dropped_for_more(heard: str | None) -> None:
    """Somebody speaks twice over an answer before the engine has come to all of the first: it is a
    message, and both are read in order by the one answer that follows."""
    bench = answering()
    sing(bench, 700)
    if heard is not None:
        bench.hearing(heard)
    sing(bench, 900)
    bench.hear(silence_pcm(700))
    bench.tick(3_000)
    assert not bench.commands(api.DropSpeech)
    sing(bench, 900)
    bench.hear(silence_pcm(700))
    bench.finish(1, "It is big. And it is", api.FinishReason.CANCELLED)
    assert not bench.commands(api.DropSpeech)
    speech_kinds = (api.BeginSpeech, api.EndSpeech, api.Respond)
    told = [c for c in bench.told if isinstance(c, speech_kinds)][1:]
    assert [type(c).__name__ for c in told] == ["BeginSpeech", "EndSpeech"] * 2 + ["Respond"]
    kinds = [STARTED, STOPPED, "input_audio_buffer.committed"]
    assert [k for k in bench.types() if k.startswith("input_audio")] == kinds * 2


def test_a_click_behind_a_question_over_an_answer_costs_it_nothing() -> None:
    """The interrupted answer has not ended yet when a sound too short for speech comes: the
    question that waits is answered all the same."""
    bench = answering()
    sing(bench, 900)
    bench.hear(silence_pcm(700))
    bench.hearing("What is the capital of France?", final=True)
    assert bench.commands(api.Cancel)
    assert len(bench.commands(api.Respond)) == 1
    sing(bench, 100)
    bench.client("input_audio_buffer.clear")
    assert bench.commands(api.DropSpeech)
    bench.finish(1, "It is big. And it is", api.FinishReason.CANCELLED)
    assert len(bench.commands(api.Respond)) == 2


def test_okay_behind_the_answer_is_a_turn() -> None:
    """Begun while it was played, over when it is not: there is nothing it could go along with."""
    bench = answering(speaks=False)
    sing(bench, 500)
    bench.answer(" red.")
    bench.hear(silence_pcm(260))
    bench.hearing("Okay.", final=True)
    bench.hear(silence_pcm(600))
    assert bench.of("input_audio_buffer.committed")
    assert bench.commands(api.EndSpeech)


@pytest.mark.parametrize("late", [False, True], ids=["words in time", "late words"])
@pytest.mark.parametrize("stock", [False, True], ids=["stands still", "stock"])
def test_okay_over_the_end_of_an_answers_sound(stock: bool, late: bool) -> None:
    """Begun while it was played: a stock client has played on meanwhile and is through, so that it
    is a turn. One that stands still has some of the answer left, and an okay goes along with it."""
    bench = answering(stock=stock)
    bench.answer(" red.")
    bench.say_all(SECOND)
    bench.hear(silence_pcm(3_600))  # of four seconds
    sing(bench, 500)
    assert bench.holds() != stock
    bench.hear(silence_pcm(600 if late else 260))
    bench.hearing("Okay.", final=True)
    bench.hear(silence_pcm(200 if late else 500))
    assert (STARTED in bench.types()) == stock
    assert bool(bench.of("input_audio_buffer.committed")) == stock
    assert bool(bench.commands(api.DropSpeech)) != stock


def test_a_stock_client_is_through_with_an_answer_when_its_sound_is_over() -> None:
    """What began over its end is held no longer: its words decide as they do without an answer."""
    bench = answering(stock=True)
    bench.answer(" red.")
    bench.say_all(SECOND)
    bench.hear(silence_pcm(3_600))  # of four seconds
    sing(bench, 300)
    assert bench.holds()
    sing(bench, 200)
    assert not bench.holds()


def test_a_client_that_plays_by_itself_is_not_disturbed_either() -> None:
    """After response.done its sound still plays for as long as it lasts: a cough then is no event,
    and behind it speech is announced at once."""
    bench = answering()
    bench.answer(" red.")
    bench.say_all(SECOND)
    assert bench.of("response.done")
    sing(bench, 400)
    assert STARTED not in bench.types()
    bench.hear(silence_pcm(260))
    bench.hearing("", final=True)
    bench.hear(silence_pcm(4000))
    sing(bench, 400)
    assert STARTED in bench.types()


def test_in_text_nothing_stands_still_and_nothing_is_lost() -> None:
    """Text goes on through a cough, letter for letter."""
    bench = answering(speaks=False)
    sing(bench, 400)
    bench.engine(api.Delta("sess_test", 1, " red", bench.now_ns))
    bench.hear(silence_pcm(260))
    bench.hearing("", final=True)
    bench.hear(silence_pcm(600))
    bench.finish(1, "It is big. And it is red")
    assert bench.last("response.output_text.done")["text"] == "It is big. And it is red"


def test_any_speech_interrupts_where_that_is_wanted() -> None:
    """interruption "speech", of the server or of the session: at once, as the API has it."""
    for bench in (answering(interruption="speech"), answering()):
        bench.update(gateway={"interruption": "speech"})
        sing(bench, 200)
        assert STARTED in bench.types()
        assert len(bench.commands(api.Cancel)) == 1


def test_ears_without_words_go_by_length() -> None:
    """A short sound passes, a long one interrupts."""
    for ms, interrupts in ((400, False), (1500, True)):
        bench = answering()
        sing(bench, ms)
        bench.hear(silence_pcm(260))
        bench.hearing("", final=True, wordless=True)
        assert bool(bench.commands(api.Cancel)) is interrupts


def test_a_commit_by_hand_is_meant() -> None:
    """Whoever commits wants it heard, whatever it was."""
    bench = answering()
    sing(bench, 400)
    bench.client("input_audio_buffer.commit")
    assert bench.of("input_audio_buffer.committed")
    assert bench.commands(api.Cancel)
    bench = answering()
    sing(bench, 400)
    bench.client("input_audio_buffer.clear")
    assert not bench.holds()
    assert not bench.commands(api.Cancel)


def test_a_lost_engine_leaves_nothing_held() -> None:
    """Neither an open nor an undecided utterance."""
    for pause_ms in (0, 700):
        bench = answering()
        sing(bench, 400)
        bench.hear(silence_pcm(pause_ms))
        bench.engine_lost()
        assert not bench.holds()
        assert STARTED not in bench.types()


def test_what_was_heard_of_an_interrupted_answer_is_what_was_said() -> None:
    """Where the server plays: the item, the model and later engines know it up to that point."""
    bench = answering()
    bench.hear(clip_pcm("capital.wav")[: 48 * 1200])
    bench.hearing("What is the")
    bench.cleared(2 * SECOND)
    bench.finish(1, "It is big. And it is", api.FinishReason.CANCELLED)
    assert bench.last("conversation.item.truncated")["audio_end_ms"] == 1000
    assert bench.commands(api.RemoveItem)
    heard = bench.commands(api.AddItem)[-1].item.parts[0].text
    assert heard in "It is big. And it is"
    assert len(heard) < len("It is big.")
    assert not [speak for speak in bench.uttered if isinstance(speak, Speak)]


def asked() -> SessionBench:
    """A question's endpoint has come, its answer not yet."""
    bench = SessionBench()
    sing(bench, 800)
    bench.hear(silence_pcm(220))
    bench.hearing("I would like", final=True)
    bench.hear(silence_pcm(340))
    assert len(bench.commands(api.Respond)) == 1
    return bench


def test_who_goes_on_behind_the_endpoint_is_not_held() -> None:
    """Nothing was said yet that a cough could be over: the turn was not over, and the answer is
    taken back before a word of it is out."""
    bench = asked()
    sing(bench, 300)
    assert len(bench.of(STARTED)) == 2
    assert len(bench.commands(api.Cancel)) == 1


def test_a_click_behind_the_endpoint_costs_the_answer_nothing_but_time() -> None:
    """Too short to be speech: the question is answered after all."""
    bench = asked()
    bench.hear(speech.join(speech.voice(80)) + silence_pcm(1000))
    if bench.commands(api.Cancel):
        bench.finish(1, "", api.FinishReason.CANCELLED)
        assert len(bench.commands(api.Respond)) == 2
    assert not bench.commands(api.EndSpeech)[1:]


def test_once_it_speaks_who_goes_on_is_held_as_well() -> None:
    """Then it may be a cough."""
    bench = asked()
    bench.engine(api.Delta("sess_test", 1, "Yes", bench.now_ns))
    sing(bench, 300)
    assert len(bench.of(STARTED)) == 1
    assert not bench.commands(api.Cancel)
