"""A step over scripted model services: head start, speculation, rollback, many sessions."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from headstart.engine import api
from tests.engine.commands import GREEDY, QUESTION, end, hush, respond, user_item
from tests.engine.fakes import WORD_SAMPLES, Bench, RespellingRecognizer, echo

EITHER_BACKEND = True


def test_words_are_in_the_cache_while_they_are_spoken() -> None:
    """After each chunk all of its words, guesses too, have K/V, before any endpoint."""
    bench = Bench()
    bench.open()
    bench.say(words=4)
    stream = bench.engine.sessions["s"].stream
    assert bench.stream_text() == "<S>Hi</><U>what is the latipac"
    assert stream.kv_len == len(stream.tokens)


def test_a_guess_that_was_wrong_is_rolled_back_and_counted() -> None:
    """A misheard word's K/V are thrown away when the next hypothesis differs."""
    bench = Bench()
    bench.open()
    bench.say(words=6)
    chunks = [e for e in bench.events if isinstance(e, api.Chunk)]
    assert sum(chunk.rolled_back_tokens for chunk in chunks) > 0
    assert chunks[-1].prefilled_tokens > 0
    assert chunks[-1].samples == 8_000


def test_the_spelling_of_words_that_were_read_rolls_back_nothing() -> None:
    """The transcript is the final one; the model answers to the same words as it read them."""
    bench = Bench(recognizer=RespellingRecognizer(QUESTION))
    bench.open()
    bench.say(words=6)
    stream = bench.engine.sessions["s"].stream
    assert bench.stream_text() == "<S>Hi</><U>what is, the, capital; of; france"
    assert stream.rolled_back_kv_tokens == 0
    bench.tell(end(), respond())
    bench.run()
    (heard,) = bench.of(api.Heard)
    assert isinstance(heard, api.Heard)
    assert heard.text == "What, Is, The, Capital, Of, France?"
    assert bench.text() == echo("what is, the, capital; of; France?")
    assert stream.rolled_back_kv_tokens == len("france")  # its last word alone


def test_the_answer_stands_ready_at_the_endpoint() -> None:
    """With speculation, the first text leaves at Respond without one more decoder step."""
    bench = Bench()
    bench.open()
    bench.say()
    bench.tell(hush())
    bench.run()
    assert not bench.of(api.Delta)
    steps = bench.runner.steps
    bench.tell(end(), respond())
    bench.engine._carry_out_commands()  # both: neither hears nor encodes anything
    assert bench.runner.steps == steps
    assert echo(QUESTION).startswith(bench.text())
    assert len(bench.text()) > 0
    bench.run()
    assert bench.text() == echo(QUESTION)
    usage = bench.finished().usage
    assert usage.speculated > 0
    assert usage.cached == usage.input


def test_what_a_prepared_answer_says_is_told_to_who_asked() -> None:
    """The text so far with each token. It is the beginning of what is sent once it is asked for."""
    bench = Bench()
    bench.open()
    bench.say(words=6)
    bench.tell(api.Hush("s", api.TurnRef(1), 6 * WORD_SAMPLES, GREEDY, tell_text=True))
    bench.run()
    told = [event for event in bench.of(api.Prepared) if isinstance(event, api.Prepared)]
    assert len(told) > 1
    assert all(event.ref == api.TurnRef(1) for event in told)
    for before, after in pairwise(told):
        assert after.text.startswith(before.text)
    assert not bench.text()
    bench.tell(end(), respond())
    bench.run()
    assert bench.text() == echo(QUESTION)
    assert bench.text().startswith(told[-1].text)
    assert len(bench.of(api.Prepared)) == len(told)


def test_the_end_of_a_prepared_answer_is_told() -> None:
    """With its last text, or behind it."""
    bench = Bench()
    bench.open()
    bench.say(words=6)
    short = msgspec.structs.replace(GREEDY, max_tokens=5)
    bench.tell(api.Hush("s", api.TurnRef(1), 6 * WORD_SAMPLES, short, tell_text=True))
    bench.run()
    told = [event for event in bench.of(api.Prepared) if isinstance(event, api.Prepared)]
    assert [event.complete for event in told] == [False] * (len(told) - 1) + [True]


def test_nobody_is_told_of_an_answer_without_asking_or_after_a_resume() -> None:
    """Text answers need no voice; what was begun in a pause is over with it."""
    quiet = Bench()
    quiet.open()
    quiet.say(words=6)
    quiet.tell(hush())
    quiet.run()
    assert quiet.of(api.Prepared) == []
    resumed = Bench()
    resumed.open()
    resumed.say(words=6)
    resumed.tell(api.Hush("s", api.TurnRef(1), 6 * WORD_SAMPLES, GREEDY, tell_text=True))
    while not resumed.of(api.Prepared):
        resumed.engine.step()
    resumed.tell(api.Resume("s", api.TurnRef(1, 1)))
    told = len(resumed.of(api.Prepared))
    resumed.run()
    assert len(resumed.of(api.Prepared)) == told


def test_a_hush_tells_how_likely_the_message_is_over() -> None:
    """Behind "of" it is not, behind "france" it is; no token more is waste for it."""
    for words, likely in ((5, 0.01), (6, 0.99)):
        bench = Bench()
        bench.open()
        bench.say(words=words)
        bench.tell(api.Hush("s", api.TurnRef(1), words * WORD_SAMPLES, api.Sampling()))
        bench.run()
        (event,) = bench.of(api.EndOfMessage)
        assert isinstance(event, api.EndOfMessage)
        assert event.probability == pytest.approx(likely)
        assert event.mark_probability is None
        assert (event.ref, event.at_sample) == (api.TurnRef(1), words * WORD_SAMPLES)
        stream = bench.engine.sessions["s"].stream
        assert stream.prefilled_tokens - stream.rolled_back_kv_tokens - stream.kv_len <= 1


@pytest.mark.our_decoder
@pytest.mark.parametrize(("script", "marked"), [("in france.", 0.99), ("be of.", 0.01)])
def test_a_hush_tells_how_likely_the_mark_was(script: str, marked: float) -> None:
    """Behind the last word, before the recogniser's full stop: a mark or the end."""
    bench = Bench(script=script)
    bench.open()
    bench.say(words=2)
    bench.tell(api.Hush("s", api.TurnRef(1), 2 * WORD_SAMPLES, api.Sampling()))
    bench.run()
    (event,) = bench.of(api.EndOfMessage)
    assert isinstance(event, api.EndOfMessage)
    assert event.probability == pytest.approx(0.01)  # as the fake has it behind a full stop
    assert event.mark_probability == pytest.approx(marked)


def test_silence_without_words_has_no_end_to_tell() -> None:
    """Nothing was heard: there is no word to look behind."""
    bench = Bench(script="")
    bench.open()
    bench.say(words=2)
    bench.tell(api.Hush("s", api.TurnRef(1), 2 * WORD_SAMPLES, api.Sampling()))
    bench.run()
    assert bench.of(api.EndOfMessage) == []


def test_the_budget_includes_all_work_done_while_listening() -> None:
    """The first delta carries the spans of every chunk's hearing and prefill, and the answer's."""
    bench = Bench()
    bench.open()
    bench.say(words=6)
    bench.tell(hush(), end(), respond())
    bench.run()
    first = next(e for e in bench.events if isinstance(e, api.Delta))
    stages = [span.stage for span in first.spans]
    assert stages.count("mel") == 3 + 1  # three chunks and the final pass
    assert stages.count("prefill") >= 3 + 1
    scripted = ("mel", "encode", "project")  # of the recogniser, which takes no time here
    for span in first.spans:
        assert span.stage in scripted or span.start_ns <= span.end_ns <= first.at_ns


def test_speculation_changes_nothing_but_time() -> None:
    """The same conversation with and without a hush ends in the same text and the same stream."""
    streams = []
    for speculate in (True, False):
        bench = Bench()
        bench.open()
        bench.say()
        if speculate:
            bench.tell(hush())
            bench.run()
        bench.tell(end(), respond())
        bench.run()
        assert bench.text() == echo(QUESTION)
        streams.append(bench.stream_text())
    assert streams[0] == streams[1]


def test_speech_that_resumes_rolls_the_speculation_back() -> None:
    """After Resume nothing of the speculated answer is left, and its tokens count as wasted."""
    bench = Bench()
    bench.open()
    bench.say(words=4)
    bench.tell(hush())
    bench.run()
    assert "<A>" in bench.stream_text()
    bench.tell(api.Resume("s", api.TurnRef(1, 1)))
    bench.run()
    assert "<A>" not in bench.stream_text()
    ref = api.TurnRef(1, 1)
    bench.tell(api.Audio("s", ref, 16_000, bytes(16_000), bench.now_ns))
    bench.run()
    bench.tell(hush(revision=1), end(revision=1), respond())
    bench.run()
    assert bench.text() == echo(QUESTION)
    assert bench.finished().usage.wasted > 0


def test_a_resumed_hush_that_was_still_queued_costs_nothing() -> None:
    """Hush and Resume that wait together are both skipped: no final pass is made."""
    bench = Bench()
    bench.open()
    bench.say(words=4)
    bench.tell(hush(), api.Resume("s", api.TurnRef(1, 1)))
    bench.run()
    assert bench.recognizer.finishes == 0


def test_faster_than_real_time_gives_the_same_answer() -> None:
    """All commands of a turn at once are carried out in order, to the same stream."""
    slow, fast = Bench(), Bench()
    for bench in (slow, fast):
        bench.open()
    slow.say()
    ref = api.TurnRef(1)
    fast.tell(api.BeginSpeech("s", ref, "u1", 0))
    for start in range(0, 24_000, 8_000):
        fast.tell(api.Audio("s", ref, start, bytes(16_000), fast.now_ns))
    for bench in (slow, fast):
        bench.tell(hush(), end(), respond())
        bench.run()
    assert slow.stream_text() == fast.stream_text()
    assert slow.text() == fast.text() == echo(QUESTION)


def test_a_follow_up_keeps_the_conversation() -> None:
    """The second turn follows on the first, and only its own tokens are new."""
    bench = Bench()
    bench.open()
    bench.tell(api.AddItem("s", user_item("u1", "one")), respond(1))
    bench.run()
    rows = bench.runner.rows
    bench.tell(api.AddItem("s", user_item("u2", "two")), respond(2))
    bench.run()
    assert bench.text(2) == echo("two")
    assert bench.stream_text().count("<U>") == 2
    # "</> <U> two </U> <A>", the answer but for its end, and the "</>" that closes it.
    assert bench.runner.rows - rows <= len("two") + len(echo("two")) + 6


@pytest.mark.our_decoder("counts its steps")
def test_cancel_stops_within_a_step_and_keeps_what_was_said() -> None:
    """Finished says cancelled; the words decoded so far stay in the conversation."""
    bench = Bench()
    bench.open()
    bench.tell(api.AddItem("s", user_item("u1", "one")), respond())
    for _ in range(8):
        bench.engine.step()
    steps = bench.runner.steps
    bench.tell(api.Cancel("s", 1))
    assert bench.finished().reason is api.FinishReason.CANCELLED
    assert bench.runner.steps == steps
    bench.run()
    said = bench.finished().text
    assert 0 < len(said) < len(echo("one"))
    assert bench.stream_text().endswith(f"<A>{said}</>")


def test_cancel_of_an_answer_that_waits_its_turn() -> None:
    """A Respond that was not reached yet is taken back and reported as cancelled."""
    bench = Bench()
    bench.open()
    bench.tell(respond(), api.Cancel("s", 1))
    bench.run()
    assert bench.finished().reason is api.FinishReason.CANCELLED
    assert bench.text() == ""


def test_words_recognised_during_an_answer_come_after_it() -> None:
    """With interrupt_response off, speech over an answer is laid out when the answer is over."""
    bench = Bench()
    bench.open()
    bench.tell(api.AddItem("s", user_item("u1", "one")), respond())
    for _ in range(4):
        bench.engine.step()
    ref = api.TurnRef(1)
    bench.tell(
        api.BeginSpeech("s", ref, "u2", 0), api.Audio("s", ref, 0, bytes(16_000), bench.now_ns)
    )
    bench.run()
    assert bench.text() == echo("one")
    assert bench.stream_text().endswith(f"<A>{echo('one')}</><U>what si")


def test_sessions_do_not_hear_each_other() -> None:
    """Two sessions answered in one batch each get their own words."""
    bench = Bench()
    for name in ("a", "b"):
        bench.open(name, f"I am {name}")
        bench.tell(api.AddItem(name, user_item("u", f"secret {name}")))
    bench.tell(respond(1, "a"), respond(1, "b"))
    bench.run()
    for name, other in (("a", "b"), ("b", "a")):
        text = "".join(
            e.text for e in bench.events if isinstance(e, api.Delta) and e.session == name
        )
        assert text == echo(f"secret {name}")
        assert f"secret {other}" not in bench.stream_text(name)


def test_an_answer_out_of_band_leaves_the_conversation_alone() -> None:
    """It is answered from its own items; stream and items of the session stay as they were."""
    bench = Bench()
    bench.open()
    bench.tell(api.AddItem("s", user_item("u1", "main")))
    bench.run()
    before = bench.stream_text()
    aside = api.Respond("s", -1, "x", GREEDY, items=(user_item("q", "aside"),))
    bench.tell(aside)
    bench.run()
    assert bench.text(-1) == echo("aside")
    assert bench.stream_text() == before
    assert bench.pool.used_blocks == len(bench.engine.sessions["s"].stream.table.blocks)


def test_a_removed_item_is_removed_from_the_stream() -> None:
    """RemoveItem lays the stream out anew without it; what stood before it keeps its K/V."""
    bench = Bench()
    bench.open()
    bench.tell(*(api.AddItem("s", user_item(x, x)) for x in ("one", "two", "three")))
    bench.run()
    bench.tell(api.RemoveItem("s", "two"))
    bench.run()
    assert bench.stream_text() == "<S>Hi</><U>one\nthree"


def test_a_frame_is_seen_with_the_words_around_it() -> None:
    """A view goes where it came, once; one that looks the same costs nothing."""
    bench = Bench()
    bench.open()
    picture = api.Image(1, 1, b"\x07\x00\x00")
    bench.tell(api.Frame("s", 0, picture))
    bench.run()
    assert bench.stream_text().endswith("<U>#")
    bench.say(words=2)
    bench.tell(api.Frame("s", 0, picture))
    bench.run()
    assert bench.stream_text().endswith("<U>#what si")
    bench.tell(api.Frame("s", 0, api.Image(1, 1, b"\x08\x00\x00")), end(), respond())
    bench.run()
    assert "<U>#what# is</U>" in bench.stream_text()
    assert bench.finished().usage.input_image == 2


def test_an_answer_with_its_own_instructions_shares_the_prompts_prefix() -> None:
    """The speculated answer was greedy, the one that is asked for is not: its prompt is in the
    cache to the last token, and it is answered all the same."""
    bench = Bench()
    bench.open()
    bench.say()
    bench.tell(hush())
    bench.run()
    bench.tell(end(), respond(sampling=api.Sampling(temperature=0.5, seed=1, top_k=1)))
    bench.run()
    assert bench.finished().text == echo(QUESTION)


@pytest.mark.our_decoder("keeps K/V in a pool")
def test_a_full_cache_fails_one_answer_and_spares_the_others() -> None:
    """Without free blocks the answer fails by name; other sessions go on and the books balance."""
    bench = Bench(blocks=12)
    bench.open("big")
    bench.open("small")
    bench.tell(api.AddItem("big", user_item("u", "x" * 400)))
    bench.run()
    (failed,) = [e for e in bench.events if isinstance(e, api.Failed)]
    assert failed.session == "big"
    assert failed.code == "cache_full"
    bench.tell(respond(1, "big"))
    bench.run()
    finished = bench.finished()
    assert finished.reason is api.FinishReason.FAILED
    assert finished.code == "cache_full"
    bench.tell(api.Close("big"), respond(2, "small"))
    bench.run()
    assert bench.finished(2).reason is api.FinishReason.STOP


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (api.Instruct("nobody", "x"), "unknown_session"),
        (api.RemoveItem("s", "nothing"), "unknown_item"),
        (api.AddItem("s", user_item("u", "x"), after="nothing"), "unknown_item"),
        (api.Audio("s", api.TurnRef(1), 0, b"\0\0", 0), "nothing_heard"),
        (hush(), "nothing_heard"),
        (end(), "nothing_heard"),
    ],
)
def test_what_a_peer_gets_wrong_is_answered_by_name(command: api.Command, code: str) -> None:
    """The command is refused with its code and the session goes on."""
    bench = Bench()
    bench.open()
    bench.tell(command)
    bench.run()
    (failed,) = [e for e in bench.events if isinstance(e, api.Failed)]
    assert failed.code == code
    bench.tell(respond())
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP


def test_a_second_answer_at_once_is_refused() -> None:
    """The running answer goes on; the second one fails by name."""
    bench = Bench()
    bench.open()
    bench.tell(respond(1), respond(2))
    bench.run()
    assert bench.finished(2).code == "answer_running"
    assert bench.finished(1).reason is api.FinishReason.STOP


def test_bad_sampling_fails_the_answer_alone() -> None:
    """A setting out of range is named in the failed answer."""
    bench = Bench()
    bench.open()
    bench.tell(respond(1, sampling=api.Sampling(temperature=float("nan"))))
    bench.run()
    assert bench.finished().code == "bad_sampling"


def test_a_flooded_session_is_refused_and_others_are_served() -> None:
    """Beyond its bound a session's commands are refused by name, and the rest still count."""
    bench = Bench()
    bench.open("a")
    bench.open("b")
    for _ in range(2_000):
        bench.engine.receive(api.Instruct("a", "again"))
    failures = [e for e in bench.events if isinstance(e, api.Failed)]
    assert {f.code for f in failures} == {"session_overloaded"}
    bench.tell(respond(1, "b"))
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP


def test_an_engine_that_was_restarted_takes_the_conversation_over() -> None:
    """Open with items gives the stream that a session has which never was interrupted."""
    first, second = Bench(), Bench()
    first.open()
    first.tell(api.AddItem("s", user_item("u1", "one")), respond())
    first.run()
    said = api.Item("a1", api.Role.ASSISTANT, (api.Text(first.text()),))
    second.tell(api.Open("s", "Hi", (user_item("u1", "one"), said)))
    second.run()
    assert second.stream_text() == first.stream_text()
