"""Nothing of one session reaches another: each computes, bit for bit, what it computes alone.

Sessions on one engine begin with the same words and pictures, so that they share blocks of the
cache, and go on with secrets of their own, one token apart at most. A leak, whichever way (a block
adopted or copied wrongly, a row of a batch mixed up, a picture taken out of the encoder's cache for
another), would change the logits that somebody's answer is drawn from.
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from headstart.engine import api
from headstart.engine.backends.local import LocalBackend
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.sampling import SamplerFactory
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.interfaces import ModelServices, View
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.load import LoadedModel
from headstart.engine.scheduling.admission import admission_over
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan, Scheduler
from tests.engine.fakes import FakeRecognizer
from tests.engine.harness import EITHER, alike, load_tiny
from tests.engine.tiny_gguf import TinyConfig

NAMES = ("ada", "bob", "cleo")
SHARED = "The weather is fine today and we all begin with the very same words."
SECRETS = {"ada": "the word", "bob": "the world", "cleo": "the wor"}
ANSWER_TOKENS = 4
TOKEN_BUDGET = 24  # less than a prompt: prefill of one is cut, and mixed with the others' rows
BLOCKS = 256


class Eyes:
    """A picture as two vectors of its first byte, kept by content as the engine's own are."""

    def __init__(self, hidden: int) -> None:
        self._hidden = hidden

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        vectors = np.random.default_rng(image.rgb[0]).normal(size=(2, self._hidden))
        soft = stream.soft.intern(vectors.astype(np.float32))
        return View(tuple(soft), f"picture {image.rgb[0]}", str(image.rgb[0]))


@dataclass
class Recorder:
    """The runner, and every row of logits that an answer was drawn from, by session."""

    model: LoadedModel
    drawn: dict[str, list[Tensor]] = field(default_factory=dict)

    def step(self, plan: Plan) -> StepResult:
        result = self.model.runner.step(plan)
        assert not result.refused
        for stream, logits in result.logits.items():
            self.drawn.setdefault(stream.name, []).append(logits.clone())
        return result

    def move(self, move: KvMove) -> None:
        self.model.runner.move(move)


class Rig:
    """An engine over a model's cache, forgotten behind it."""

    def __init__(self, model: LoadedModel) -> None:
        clock = itertools.count(0, 1000)
        self.events: list[api.Event] = []
        self._asked: Counter[str] = Counter()
        self.recorder = Recorder(model)
        services = ModelServices(
            chat=model.chat,
            tokenizer=model.tokenizer,
            recognizer=FakeRecognizer(""),
            image_encoder=Eyes(model.spec.hidden),
            new_sampler=SamplerFactory(model.spec.vocab_size),
            stop_ids=frozenset(),
            kv_bytes_per_token=1,
        )
        admission = admission_over(model.cache, model.pool, EngineConfig(turn_tokens=0))
        scheduler, end = Scheduler(TOKEN_BUDGET), model.chat.user_close[0]
        parts = EngineParts(
            services=services,
            pool=model.pool,
            backend=LocalBackend(self.recorder, scheduler, admission, end, lambda: next(clock)),
            admission=admission,
            new_stream=model.new_stream,
            clock=lambda: next(clock),
        )
        self.engine = Engine(parts, self.events.append)

    def play(self, commands: list[api.Command], beats: list[int]) -> None:
        """The commands in order, so many beats of the engine behind each; then to the end. A
        session is told nothing while it answers: what then follows would depend on the time."""
        for command, count in zip(commands, beats, strict=True):
            assert not isinstance(command, api.Ping | api.Leave)
            while self._answers(command.session):
                self.engine.step()
            self.engine.receive(command)
            if isinstance(command, api.Respond):
                self._asked[command.session] += 1
            for _ in range(count):
                self.engine.step()
        while self.engine.step():
            pass
        self.engine.check_accounting()

    def _answers(self, name: str) -> bool:
        done = [e for e in self.events if isinstance(e, api.Finished) and e.session == name]
        return len(done) < self._asked[name]

    def close(self) -> None:
        """Close all sessions; what they leave in the cache for others is given away."""
        self.engine.close()
        pool = self.engine.pool
        assert pool.used_blocks == 0
        pool.release(pool.allocate(pool.free_blocks))


def user(item: str, *parts: api.Part) -> api.Item:
    return api.Item(item, api.Role.USER, parts)


def life(name: str, picture: int, turns: int) -> list[api.Command]:
    """Everything one session is told: a common beginning, then its secret, then answers."""
    image = api.Image(1, 1, bytes((picture, 0, 0)))
    commands: list[api.Command] = [
        api.Open(name, "Be brief."),
        api.AddItem(name, user("common", api.Text(SHARED), image)),
        api.AddItem(name, user("secret", api.Text(f"My secret is {SECRETS[name]}."))),
    ]
    greedy = api.Sampling(max_tokens=ANSWER_TOKENS)
    for turn in range(1, turns + 1):
        commands.append(api.Respond(name, turn, f"answer{turn}", greedy))
        commands.append(api.AddItem(name, user(f"more{turn}", api.Text("And now?"))))
    commands.append(api.RemoveItem(name, "secret"))
    commands.append(api.Respond(name, turns + 1, "last", greedy))
    return commands


@pytest.fixture(scope="module", params=EITHER)
def model(request: pytest.FixtureRequest) -> LoadedModel:
    folder = Path(tempfile.mkdtemp())
    config = TinyConfig(context_tokens=1024)
    bytes_per_block = 4 * 2 * config.layers * config.kv_width * 4
    return load_tiny(folder, config, request.param, kv_pool_bytes=BLOCKS * bytes_per_block)


@given(data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_session_computes_what_it_computes_alone(
    model: LoadedModel, data: st.DataObject
) -> None:
    """Whatever the order in which three sessions' commands come, and however far the engine gets
    between them: every row of logits is that of the same session alone on an empty engine."""
    lives = {
        name: life(name, data.draw(st.integers(1, 2)), data.draw(st.integers(0, 2)))
        for name in NAMES
    }
    places = data.draw(st.permutations([n for n, told in lives.items() for _ in told]))
    waiting = {name: iter(told) for name, told in lives.items()}
    mixed = [next(waiting[name]) for name in places]
    beats = data.draw(st.lists(st.integers(0, 4), min_size=len(mixed), max_size=len(mixed)))
    together = Rig(model)
    together.play(mixed, beats)
    together.close()
    for name, told in lives.items():
        alone = Rig(model)
        alone.play(told, [beat for beat, place in zip(beats, places, strict=True) if place == name])
        rows, wanted = together.recorder.drawn[name], alone.recorder.drawn[name]
        alone.close()
        assert len(rows) == len(wanted) > 0
        assert all(alike(model, row, want) for row, want in zip(rows, wanted, strict=True))


def test_sessions_with_one_beginning_do_share_and_still_compute_alone(model: LoadedModel) -> None:
    """One after the other, so that the second one takes over the common blocks and no more: the
    claim above is about a cache that is shared."""
    rig = Rig(model)
    for name in NAMES:
        told = life(name, 1, 1)
        rig.play(told, [9] * len(told))
    streams = [session.stream for session in rig.engine.sessions.values()]
    assert streams[0].adopted_tokens == 0
    common = len(SHARED) // 4  # far fewer tokens than letters, and more than nothing
    assert all(stream.adopted_tokens >= common for stream in streams[1:])
    rig.close()


def test_a_wrong_neighbour_would_be_seen(model: LoadedModel) -> None:
    """One token of difference in what a stream reads changes the logits: this can fail."""
    drawn = []
    for name in ("ada", "bob"):
        rig = Rig(model)
        told = life(name, 1, 1)
        rig.play(told, [9] * len(told))
        drawn.append(rig.recorder.drawn[name][0])
        rig.close()
    assert not alike(model, drawn[0], drawn[1])
