"""One session of the engine under random operations on a small cache."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine import api
from headstart.engine.session.command_queue import MAX_WAITING
from headstart.engine.session.session import Session
from tests.engine.fakes import WORD_SAMPLES, Bench

EITHER_BACKEND = True

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=20)
ACTIONS = st.lists(
    st.sampled_from(
        [
            *("begin", "audio", "hush", "resume", "end", "drop", "item", "remove"),
            *("frame", "respond", "cancel", "step", "run", "instruct", "aside", "window"),
            *("clip", "sound", "sound aside"),
            *("end early", "begin again", "continue", "continue", "release"),
        ]
    ),
    max_size=60,
)


class Life:
    """Carries out operations like a gateway, valid or not."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.bench, self.name = bench, name
        self.turn = self.revision = self.generation = self.items = 0

    def act(self, action: str) -> None:
        ref = api.TurnRef(self.turn, self.revision)
        command = self._command(action, ref)
        if command is not None:
            self.bench.tell(command)
        elif action == "step":
            self.bench.engine.step()
        elif action == "run":
            self.bench.run()

    def _command(self, action: str, ref: api.TurnRef) -> api.Command | None:
        name = self.name
        match action:
            case "begin":
                self.turn, self.revision = self.turn + 1, 0
                return api.BeginSpeech(name, api.TurnRef(self.turn), f"u{self.turn}", 0)
            case "begin again":
                self.turn, self.revision = self.turn + 1, 0
                return api.BeginSpeech(name, api.TurnRef(self.turn), f"u{self.turn}", 0, True)
            case "continue":
                before, answer = f"u{self.turn - 1}", f"a{self.generation}"
                return api.ContinueSpeech(name, ref, before, answer)
            case "end early":
                return api.EndSpeech(name, ref, 0, may_continue=True)
            case "release":
                return api.ReleaseSpeech(name)
            case "audio":
                return api.Audio(name, ref, 0, bytes(2 * WORD_SAMPLES), 0)
            case "hush":
                return api.Hush(name, ref, 0, GREEDY)
            case "resume":
                self.revision += 1
                return api.Resume(name, api.TurnRef(self.turn, self.revision))
            case "end":
                return api.EndSpeech(name, ref, 0)
            case "drop":
                return api.DropSpeech(name, ref)
            case "frame":
                return api.Frame(name, 0, api.Image(1, 1, bytes([self.items % 3, 0, 0])))
            case "window":
                return api.Remember(name, api.Window(30 + self.items % 3 * 40, 2, 0.5))
            case "instruct":
                return api.Instruct(name, "x" * (self.items % 7))
            case _:
                return self._command_about_items(action)

    def _command_about_items(self, action: str) -> api.Command | None:
        name = self.name
        match action:
            case "item":
                self.items += 1
                item = api.Item(f"i{self.items}", api.Role.USER, (api.Text("text " * 3),))
                return api.AddItem(name, item)
            case "clip":
                return api.Clip(name, "c", bytes(2 * WORD_SAMPLES), last=self.items % 2 == 0)
            case "sound":
                self.items += 1
                item = api.Item(f"i{self.items}", api.Role.USER, (api.Sound("c"),))
                return api.AddItem(name, item, "root" if self.items % 3 == 0 else None)
            case "sound aside":
                item = api.Item("q", api.Role.USER, (api.Sound("c"),))
                return api.Respond(name, -1, "x", GREEDY, items=(item,))
            case "remove":
                return api.RemoveItem(name, f"i{self.items}")
            case "respond":
                self.generation += 1
                return api.Respond(name, self.generation, f"a{self.generation}", GREEDY)
            case "aside":
                item = api.Item("q", api.Role.USER, (api.Text("aside"),))
                return api.Respond(name, -1, "x", GREEDY, items=(item,))
            case "cancel":
                return api.Cancel(name, self.generation)
            case _:
                return None


@settings(max_examples=60, deadline=None)
@given(ACTIONS, ACTIONS, st.integers(8, 64))
def test_accounting_holds_whatever_two_sessions_do(
    first: list[str], second: list[str], blocks: int
) -> None:
    """Nothing raises, every block has one owner, every requested answer ends exactly once, and
    closing frees everything."""
    bench = Bench(blocks=blocks, limit=700)
    bench.open("a")
    bench.open("b")
    lives = [Life(bench, "a"), Life(bench, "b")]
    for pair in zip(first, second, strict=False):
        for life, action in zip(lives, pair, strict=True):
            life.act(action)
            bench.engine.check_accounting()
    bench.run()
    for life in lives:
        ended = [
            e.generation
            for e in bench.events
            if isinstance(e, api.Finished) and e.session == life.name and e.generation > 0
        ]
        assert sorted(ended) == list(range(1, life.generation + 1))
        bench.tell(api.Close(life.name))
    bench.run()
    assert bench.pool.used_blocks == 0


def test_a_session_states_its_bound() -> None:
    """MAX_WAITING commands wait at most; the next is refused and the session is as it was."""
    bench = Bench()
    bench.open()
    session = bench.engine.sessions["s"]
    assert isinstance(session, Session)
    for _ in range(MAX_WAITING + 5):
        bench.tell(api.Instruct("s", "x"))
    assert len(session.commands) == MAX_WAITING
    assert len(bench.of(api.Failed)) == 5


def test_the_words_at_a_hush_are_final() -> None:
    """Words before a hush are not final; those at it are. After a second hush the new words are
    final, and the probability that the message is over is reported again."""
    bench = Bench()
    bench.open()
    bench.say(words=5)

    def hearings() -> list[api.Hearing]:
        return [event for event in bench.events if isinstance(event, api.Hearing)]

    assert not any(hearing.final for hearing in hearings())
    ref = api.TurnRef(1)
    bench.tell(api.Hush("s", ref, 5 * WORD_SAMPLES, GREEDY))
    bench.run()
    assert (hearings()[-1].final, hearings()[-1].wordless) == (True, False)
    bench.tell(api.Audio("s", ref, 5 * WORD_SAMPLES, bytes(2 * WORD_SAMPLES), bench.now_ns))
    bench.tell(api.Hush("s", ref, 6 * WORD_SAMPLES, GREEDY))
    bench.run()
    assert hearings()[-1].final
    told = [event for event in bench.events if isinstance(event, api.EndOfMessage)]
    assert told[0].probability < 0.5 < told[1].probability
