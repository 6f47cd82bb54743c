"""The same decoder, here and behind an HTTP server: the same conversation, token for token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from torch import Tensor

from headstart.engine import api
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.http_client import HttpClient
from headstart.engine.backends.llm_server.probe import find_out
from headstart.engine.backends.llm_server.servers import Known, Server, Servers, Vocabulary
from headstart.engine.backends.local import LocalBackend
from headstart.engine.config import EngineConfig
from headstart.engine.decoder.sampling import SamplerFactory
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.interfaces import ModelServices
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.process.llm_server import parts_of
from headstart.engine.process.load import LoadedModel
from headstart.engine.scheduling.admission import AdmissionController, AdmissionRules
from headstart.engine.scheduling.scheduler import Scheduler
from tests.engine.backends.llm_server.bench import PATIENT, WAIT_S
from tests.engine.backends.llm_server.scripted_server import LLAMACPP, VLLM, ScriptedServer
from tests.engine.fakes import WORD_SAMPLES, FakeImageEncoder, FakeRecognizer
from tests.engine.harness import finish, load_tiny
from tests.engine.tiny_gguf import TinyConfig

SCRIPT = "tell me what is the capital of france and how many people live in that old city"
GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=40)
SEEDED_TOP = api.Sampling(repetition_penalty=1.0, max_tokens=40, temperature=0.9, top_k=1, seed=7)
BLOCKS_BYTES = 1 << 22


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("tiny")
    return load_tiny(folder, TinyConfig(context_tokens=1024), kv_pool_bytes=BLOCKS_BYTES)


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """The same model again, for the server, which runs in another thread."""
    folder = tmp_path_factory.mktemp("twin")
    return load_tiny(folder, TinyConfig(context_tokens=1024), kv_pool_bytes=BLOCKS_BYTES)


def serving(model: LoadedModel, dialect: str, block: int) -> ScriptedServer:
    """An LLM server that runs `model`, greedily."""
    stream = model.new_stream("served")

    def logits(tokens: Sequence[int]) -> Tensor:
        stream.reconcile(tokens)
        if not stream.pending:
            stream.recompute(len(stream) - 1)
        return finish(model, stream)

    def next_token(tokens: Sequence[int]) -> int:
        return int(logits(tokens).argmax())

    def likely(tokens: Sequence[int]) -> dict[int, float]:
        chances = logits(tokens).softmax(dim=-1)
        return {int(i): float(chances[i]) for i in chances.topk(20).indices}

    return ScriptedServer(
        next_token,
        stop_ids=frozenset(model.chat.stop_ids),
        spell=model.tokenizer.token_bytes,
        parse=model.tokenizer.encode,
        likely=likely,
        dialect=dialect,
        block=block,
        context_tokens=model.context_tokens,
    )


class Talk:
    """An engine, its events, and how to let it finish."""

    def __init__(self, make: Callable[[Any], tuple[Engine, Callable[[], bool]]]) -> None:
        self.events: list[api.Event] = []
        self.engine, self._more = make(self.events.append)

    def tell(self, *commands: api.Command) -> None:
        for command in commands:
            self.engine.receive(command)

    def run(self) -> None:
        while self.engine.step() or self._more():
            pass
        self.engine.check_accounting()

    def say(self, turn: int, words: int, item_id: str, start: int = 0) -> None:
        ref = api.TurnRef(turn)
        if start == 0:
            self.tell(api.BeginSpeech("s", ref, item_id, 0))
        for at in range(start, words * WORD_SAMPLES, 8_000):
            samples = min(8_000, words * WORD_SAMPLES - at)
            self.tell(api.Audio("s", ref, at, bytes(2 * samples), 0))
            self.run()

    def finished(self, generation: int) -> api.Finished:
        (event,) = [
            e for e in self.events if isinstance(e, api.Finished) and e.generation == generation
        ]
        return event


def services_of(model: LoadedModel) -> ModelServices:
    return ModelServices(
        chat=model.chat,
        tokenizer=model.tokenizer,
        recognizer=FakeRecognizer(SCRIPT),
        image_encoder=FakeImageEncoder(),
        new_sampler=SamplerFactory(model.spec.vocab_size),
        stop_ids=frozenset(model.chat.stop_ids),
        kv_bytes_per_token=1,
    )


def clock() -> Callable[[], int]:
    ticks = iter(range(0, 1 << 60, 1000))
    return lambda: next(ticks)


def local(model: LoadedModel, emit: Any) -> tuple[Engine, Callable[[], bool]]:
    now = clock()
    host = HostMemory(model.cache, model.pool, 0)
    admission = AdmissionController(model.pool, host, AdmissionRules(turn_tokens=16))
    end = model.chat.user_close[0]
    backend = LocalBackend(model.runner, Scheduler(64), admission, end, now)
    parts = EngineParts(services_of(model), model.pool, backend, admission, model.new_stream, now)
    return Engine(parts, emit), lambda: False


def remote(
    model: LoadedModel, server: ScriptedServer, emit: Any
) -> tuple[Engine, Callable[[], bool]]:
    tokenizer = model.tokenizer
    capabilities = find_out(server.url, None, tokenizer)
    assert capabilities.tokenizer_checked
    assert capabilities.block_tokens == server.block
    vocabulary = Vocabulary(
        prompt_of=lambda tokens: tokens,
        encode=tokenizer.encode,
        stop_ids=frozenset(model.chat.stop_ids),
        end_token=model.chat.user_close[0],
    )
    client = HttpClient(timeouts=PATIENT)
    servers = Servers(client, [Server(server.url, Known(capabilities, vocabulary))])
    backend = LlmServerBackend(client, servers, clock())
    config = EngineConfig(turn_tokens=16)
    parts = parts_of(services_of(model), backend, model.context_tokens, clock(), config)

    def more() -> bool:
        if not backend.busy:
            return False
        assert backend.client.wait(WAIT_S), "the server is silent"
        return True

    return Engine(parts, emit), more


def conversation(talk: Talk, sampling: api.Sampling) -> None:
    """Speech that pauses and goes on, an answer that is cut off, a typed turn, one out of band."""
    talk.tell(api.Open("s", "You are of few words."))
    talk.say(1, 4, "u1")
    talk.tell(api.Hush("s", api.TurnRef(1), 4 * WORD_SAMPLES, sampling))
    talk.run()
    talk.tell(api.Resume("s", api.TurnRef(1, 1)))
    ref = api.TurnRef(1, 1)
    for at in range(4 * WORD_SAMPLES, 12 * WORD_SAMPLES, 8_000):
        talk.tell(api.Audio("s", ref, at, bytes(16_000), 0))
        talk.run()
    talk.tell(api.Hush("s", ref, 12 * WORD_SAMPLES, sampling))
    talk.run()
    talk.tell(api.EndSpeech("s", ref, 0), api.Respond("s", 1, "a1", sampling))
    talk.run()
    typed = api.Item("u2", api.Role.USER, (api.Text("and now, please?"),))
    talk.tell(api.AddItem("s", typed))
    talk.run()
    talk.tell(api.Respond("s", 2, "a2", sampling))
    talk.run()
    aside = api.Item("x", api.Role.USER, (api.Text("what did they want"),))
    talk.tell(api.Respond("s", -1, "a3", sampling, items=(aside,), instructions="Guess."))
    talk.run()
    talk.tell(api.RemoveItem("s", "a1"), api.Respond("s", 3, "a4", sampling))
    talk.run()


@pytest.fixture(params=[(VLLM, 16), (VLLM, 128), (LLAMACPP, 1)], ids=lambda p: f"{p[0]}, {p[1]}")
def server(request: pytest.FixtureRequest, twin: LoadedModel) -> Iterator[ScriptedServer]:
    with serving(twin, *request.param) as running:
        yield running


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED_TOP], ids=["greedy", "top 1"])
def test_a_conversation_is_the_same_token_for_token(
    model: LoadedModel, server: ScriptedServer, sampling: api.Sampling
) -> None:
    """Answers, what was heard, the estimate of the end, and the streams at the end are equal."""
    here = Talk(lambda emit: local(model, emit))
    there = Talk(lambda emit: remote(model, server, emit))
    for talk in (here, there):
        conversation(talk, sampling)
    for generation in (1, 2, -1, 3):
        ours, theirs = here.finished(generation), there.finished(generation)
        assert (theirs.text, theirs.reason) == (ours.text, ours.reason)
        assert theirs.usage.input == ours.usage.input
        assert theirs.usage.output == ours.usage.output
    assert len(here.finished(1).text) > 0
    streams = [talk.engine.sessions["s"].stream.tokens for talk in (here, there)]
    assert list(streams[0]) == list(streams[1])
    ends = [[e for e in talk.events if isinstance(e, api.EndOfMessage)] for talk in (here, there)]
    assert len(ends[0]) == len(ends[1]) == 2
    for ours_end, theirs_end in zip(*ends, strict=True):
        assert theirs_end.ref == ours_end.ref
        assert theirs_end.probability in (0.0, pytest.approx(ours_end.probability, abs=1e-4))
    for talk in (here, there):
        talk.engine.close()


def test_the_cached_tokens_are_the_servers_own(model: LoadedModel, server: ScriptedServer) -> None:
    """What usage says was cached at the endpoint is what the server found in its cache; without
    any speech ahead it is less."""
    talk = Talk(lambda emit: remote(model, server, emit))
    talk.tell(api.Open("s", "You are of few words, but those are well chosen and to the point."))
    talk.say(1, 16, "u1")
    talk.tell(api.EndSpeech("s", api.TurnRef(1), 0), api.Respond("s", 1, "a1", GREEDY))
    talk.run()
    answer = server.of("answer")[-1]
    usage = talk.finished(1).usage
    assert usage.cached == answer.cached
    assert len(answer.prompt) - answer.cached <= server.block + len(model.chat.user_close) + len(
        model.chat.assistant_open
    ) + len(model.tokenizer.encode(SCRIPT.split()[-1]))
    talk.engine.close()
