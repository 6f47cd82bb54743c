from headstart.engine import api
from headstart.gateway.fake_engine import NS_PER_MS, FakeEngine, Script

MS = NS_PER_MS


def started(script: Script) -> FakeEngine:
    """An engine with session "s" open, its `Ready` taken."""
    engine = FakeEngine(script, "incarnation", now_ns=0)
    engine.receive(api.Open("s", "be brief"), 0)
    engine.due(script.load_ms * MS)
    return engine


def text_of(events: list[api.Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, api.Delta))


def test_loading_takes_the_scripted_time() -> None:
    """Progress at once and half-way, ready at the end."""
    engine = FakeEngine(Script(load_ms=100), "i", now_ns=0)
    assert [type(event) for event in engine.due(0)] == [api.Loading]
    assert [type(event) for event in engine.due(50 * MS)] == [api.Loading]
    assert engine.due(99 * MS) == []
    assert [type(event) for event in engine.due(100 * MS)] == [api.Ready]


def test_words_follow_the_audio() -> None:
    """A word for each `word_ms` heard, the newest tentative; the rest is final after the end."""
    engine = started(Script(words="one two three four", word_ms=100, chunk_ms=5, hear_ms=10))
    ref = api.TurnRef(1)
    engine.receive(api.BeginSpeech("s", ref, "item", 0), 0)
    engine.receive(api.Audio("s", ref, 0, bytes(2 * 16 * 250), 0), 0)
    hearing, chunk = engine.due(5 * MS)
    assert isinstance(hearing, api.Hearing)
    assert isinstance(chunk, api.Chunk)
    assert (hearing.committed, hearing.tentative) == ("one", "two")
    assert chunk.samples == 4000
    assert chunk.latency_ms == 5.0
    engine.receive(api.EndSpeech("s", ref, 4000), 5 * MS)
    (heard,) = engine.due(15 * MS)
    assert isinstance(heard, api.Heard)
    assert (heard.item_id, heard.text) == ("item", "one two")


def test_answer_comes_at_its_pace() -> None:
    """First word after `first_delta_ms`, one each `delta_ms`, then the end with the whole text."""
    engine = started(Script(answer="a b c", first_delta_ms=20, delta_ms=10))
    engine.receive(api.Respond("s", 1, "item", api.Sampling()), 0)
    assert engine.due(19 * MS) == []
    assert text_of(engine.due(20 * MS)) == "a"
    assert text_of(engine.due(40 * MS)) == " b c"
    (finished,) = engine.due(50 * MS)
    assert isinstance(finished, api.Finished)
    assert (finished.reason, finished.text) == (api.FinishReason.STOP, "a b c")
    assert engine.next_due_ns is None


def test_an_echo_repeats_what_its_own_session_typed() -> None:
    """Each session hears its own last text again, after a restart too; a leak is somebody's."""
    engine = started(Script(echo=True, first_delta_ms=0, delta_ms=0))
    typed = api.Item("i", api.Role.USER, (api.Text("pears"),))
    engine.receive(api.Open("other", "be brief", items=(typed,)), 0)
    for text in ("plums", "green apples"):
        item = api.Item("i", api.Role.USER, (api.Text(text),))
        engine.receive(api.AddItem("s", item), 0)
    for session, wanted in (("s", "You said: green apples"), ("other", "You said: pears")):
        engine.receive(api.Respond(session, 1, "item", api.Sampling()), 0)
        assert text_of(engine.due(0)) == wanted
    leaky = started(Script(echo=True, leak=True, first_delta_ms=0, delta_ms=0))
    leaky.receive(api.Open("other", "be brief"), 0)
    leaky.receive(api.AddItem("s", typed), 0)
    leaky.receive(api.Respond("other", 1, "item", api.Sampling()), 0)
    assert text_of(leaky.due(0)) == "You said: pears"


def test_cancel_ends_at_once() -> None:
    """After a cancel comes `cancelled` and nothing more of that answer."""
    engine = started(Script(answer="a b c"))
    engine.receive(api.Respond("s", 1, "item", api.Sampling()), 0)
    engine.receive(api.Cancel("s", 1), 5 * MS)
    (finished,) = engine.due(1000 * MS)
    assert isinstance(finished, api.Finished)
    assert finished.reason is api.FinishReason.CANCELLED


def test_scripted_failure_and_length() -> None:
    """`fail_after` fails with a code; a token limit ends with `length`."""
    failing = started(Script(answer="a b c", fail_after=1))
    failing.receive(api.Respond("s", 1, "item", api.Sampling()), 0)
    *_, failed = failing.due(1000 * MS)
    assert isinstance(failed, api.Finished)
    assert (failed.reason, failed.code) == (api.FinishReason.FAILED, "scripted_failure")
    short = started(Script(answer="a b c"))
    short.receive(api.Respond("s", 1, "item", api.Sampling(max_tokens=2)), 0)
    *_, cut = short.due(1000 * MS)
    assert isinstance(cut, api.Finished)
    assert (cut.reason, cut.text) == (api.FinishReason.LENGTH, "a b")


def test_unknown_session_is_said_so() -> None:
    """A command for a session that is not open fails by name; pings are answered always."""
    engine = started(Script())
    engine.receive(api.Cancel("other", 1), 0)
    engine.receive(api.Ping(sent_ns=7), 0)
    failed, stats = engine.due(0)
    assert isinstance(failed, api.Failed)
    assert (failed.session, failed.about, failed.code) == ("other", "cancel", "unknown_session")
    assert isinstance(stats, api.Stats)
    assert (stats.ping_sent_ns, stats.sessions) == (7, 1)


def test_a_function_is_called_and_its_result_is_the_next_answer() -> None:
    """Only where the session has that function, and where it may be called."""
    engine = started(Script(answer="hi", call='f {"a": 1}', first_delta_ms=0, delta_ms=0))

    def answer(generation: int, choice: api.ToolChoice = api.ToolChoice.AUTO) -> list[api.Event]:
        sampling = api.Sampling(call=choice)
        engine.receive(api.Respond("s", generation, "item", sampling), 0)
        return engine.due(0)

    assert text_of(answer(1)) == "hi"
    engine.receive(api.Instruct("s", "be brief", tools=(api.Tool("f"),)), 0)
    first, second, finished = answer(2)
    assert isinstance(first, api.Call)
    assert isinstance(second, api.Call)
    assert (first.name, first.arguments + second.arguments) == ("f", '{"a": 1}')
    assert (first.done, second.done) == (False, True)
    assert isinstance(finished, api.Finished)
    result = api.Item("r", api.Role.USER, (api.ToolResult("sunny today"),))
    engine.receive(api.AddItem("s", result), 0)
    assert text_of(answer(3)) == "sunny today"
    assert text_of(answer(4, api.ToolChoice.NONE)) == "hi"


def test_steps_are_counted_as_the_engine_does() -> None:
    """A chunk and a word are a step each, as long as the script says; then they are taken."""
    engine = started(Script(answer="a b c", first_delta_ms=0, delta_ms=10, chunk_ms=5, word_ms=100))
    ref = api.TurnRef(1)
    engine.receive(api.BeginSpeech("s", ref, "item", 0), 0)
    engine.receive(api.Audio("s", ref, 0, bytes(2 * 16 * 250), 0), 0)
    engine.receive(api.Respond("s", 1, "answer", api.Sampling()), 0)
    engine.due(1000 * MS)
    for expected in (
        api.StepStats(4, 35, 10, 10, 10, prefill_tokens=2, decode_tokens=3, sessions=4),
        api.StepStats(),
    ):
        engine.receive(api.Ping(sent_ns=7), 1000 * MS)
        (stats,) = engine.due(1000 * MS)
        assert isinstance(stats, api.Stats)
        assert stats.recent_steps == expected
