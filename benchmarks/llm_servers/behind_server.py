"""An engine behind an LLM server, without sound: its recogniser is told the words."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headstart.benchmarks.harness.scripted_words import Said
from headstart.engine import api
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.capabilities import Capabilities
from headstart.engine.backends.llm_server.http_client import HttpClient, Timeouts
from headstart.engine.backends.llm_server.probe import find_out
from headstart.engine.backends.llm_server.servers import Known, Servers, find_servers
from headstart.engine.config import EngineConfig
from headstart.engine.engine import Engine
from headstart.engine.interfaces import ModelServices, Pcm, SpeechRecognizer, View
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.llm_server import Rendering, ServersSampler, parts_of, server_words

CHUNK_SAMPLES = api.SAMPLE_RATE_HZ // 2
WORDS_S = 2.5
"""Of speech, in words per second."""
WAIT_S = 120.0
_STEP_WAIT_S = 0.05
NO_STREAM = Stream("no stream", BlockPool(1, 16), 1, 16)
"""For recognisers that give words, which leave it alone."""
GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=32)


class CountingRecognizer:
    """A recogniser that hears no sound: `_heard` says what comes of so many samples."""

    def open(self, stream: Stream) -> list[int]:
        return [0]

    def recognize_batch(self, utterances: Sequence[list[int]], pcms: Sequence[Pcm]) -> list[Said]:
        for utterance, pcm in zip(utterances, pcms, strict=True):
            utterance[0] += len(pcm)
        return [self._heard(utterance) for utterance in utterances]

    def finish(self, utterance: list[int], pcm: Pcm | None = None) -> Said:
        if pcm is not None:
            utterance[0] += len(pcm)
        return self._final(utterance)

    def _heard(self, utterance: list[int]) -> Said:
        raise NotImplementedError

    def _final(self, utterance: list[int]) -> Said:
        raise NotImplementedError


class ToldRecognizer(CountingRecognizer):
    """A recogniser that gives `words` at `WORDS_S`; the newest word is tentative."""

    def __init__(self) -> None:
        self.words: Sequence[str] = ()

    def _final(self, utterance: list[int]) -> Said:
        heard = self._heard(utterance)
        return Said(heard.committed + heard.tentative, "")

    def _heard(self, utterance: list[int]) -> Said:
        count = min(int(utterance[0] / api.SAMPLE_RATE_HZ * WORDS_S), len(self.words))
        if count == 0:
            return Said("", "")
        committed = " ".join(self.words[: count - 1])
        return Said(committed, (" " if committed else "") + self.words[count - 1])


class RecordedRecognizer(CountingRecognizer):
    """A recogniser that repeats what real ears made of a sound, chunk by chunk: `hypotheses`,
    revisions included, and the `final` words."""

    def __init__(self, hypotheses: Sequence[Said], final: str) -> None:
        self.hypotheses, self.final = hypotheses, final

    def _final(self, utterance: list[int]) -> Said:
        return Said(self.final, "")

    def _heard(self, utterance: list[int]) -> Said:
        chunks = min(utterance[0] // CHUNK_SAMPLES, len(self.hypotheses))
        return self.hypotheses[chunks - 1] if chunks else Said("", "")


def recorded(sound: Pcm, ears: SpeechRecognizer) -> RecordedRecognizer:
    """What `ears` make of `sound` in chunks of `CHUNK_SAMPLES`."""
    state, hypotheses = ears.open(NO_STREAM), []
    for at in range(0, len(sound) - CHUNK_SAMPLES + 1, CHUNK_SAMPLES):
        (heard,) = ears.recognize_batch([state], [sound[at : at + CHUNK_SAMPLES]])
        hypotheses.append(Said(heard.committed, heard.tentative))
    final = ears.finish(state)
    return RecordedRecognizer(hypotheses, final.committed + final.tentative)


class NoImageEncoder:
    """No pictures come."""

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        raise AssertionError("no pictures come")


class BehindServer:
    """An engine over the server at `url` and `others` of the same model, its events, and turns of
    speech without sound."""

    def __init__(
        self,
        url: str,
        tokenizer: Path,
        changes: Callable[[Capabilities], Capabilities] = lambda found: found,
        recognizer: ToldRecognizer | RecordedRecognizer | None = None,
        *,
        others: Sequence[str] = (),
        timeouts: Timeouts | None = None,
    ) -> None:
        words = server_words(tokenizer)

        def known(address: str) -> Known:
            found = changes(find_out(address, None, words.tokenizer))
            return Known(found, Rendering.of(words, found).vocabulary(found))

        client = HttpClient(timeouts=timeouts)
        found = find_servers([url, *others], known)
        servers = Servers(client, found, known if others else None)
        self.capabilities = servers.capabilities
        rendering = Rendering.of(words, self.capabilities)
        self.backend = LlmServerBackend(client, servers, time.monotonic_ns)
        self.recognizer = ToldRecognizer() if recognizer is None else recognizer
        services = ModelServices(
            chat=rendering.chat,
            tokenizer=rendering.tokenizer,
            recognizer=self.recognizer,
            image_encoder=NoImageEncoder(),
            new_sampler=ServersSampler,
            stop_ids=frozenset(rendering.chat.stop_ids),
            kv_bytes_per_token=0,
        )
        parts = parts_of(
            services,
            self.backend,
            self.capabilities.context_tokens,
            time.monotonic_ns,
            EngineConfig(),
        )
        self.events: list[api.Event] = []
        self.engine = Engine(parts, self.events.append)

    def tell(self, *commands: api.Command) -> None:
        for command in commands:
            self.engine.receive(command)

    def until(self, reached: Callable[[], bool]) -> None:
        """Step until `reached`. Raises `TimeoutError`."""
        until_s = time.monotonic() + WAIT_S
        while not reached():
            if not self.engine.step():
                self.backend.client.wait(_STEP_WAIT_S)
            if time.monotonic() > until_s:
                raise TimeoutError(f"not within {WAIT_S:g} s")

    def settle(self) -> None:
        """Step until nothing is in flight."""
        self.until(lambda: not self.engine.step() and not self.backend.busy)

    def say(self, session: str, text: str, turn: int = 1) -> None:
        """Speak `text` as fast as the server keeps up."""
        self.say_together([session], text, turn)

    def say_together(self, sessions: Sequence[str], text: str, turn: int = 1) -> None:
        """The same words in several sessions at once, chunk by chunk."""
        assert isinstance(self.recognizer, ToldRecognizer), "a recording holds its own words"
        self.recognizer.words = text.split()
        self.play(sessions, len(self.recognizer.words) / WORDS_S + 0.5, turn)

    def play(self, sessions: Sequence[str], seconds: float, turn: int = 1) -> None:
        """Speech of so many seconds, of which the ears know the words."""
        ref, item_id = api.TurnRef(turn), f"u{turn}"
        self.tell(*(api.BeginSpeech(name, ref, item_id, 0) for name in sessions))
        for at in range(0, int(seconds * api.SAMPLE_RATE_HZ), CHUNK_SAMPLES):
            now_ns = time.monotonic_ns()
            for name in sessions:
                self.tell(api.Audio(name, ref, at, bytes(2 * CHUNK_SAMPLES), now_ns))
            self.settle()

    def hush(self, session: str, turn: int = 1, sampling: api.Sampling = GREEDY) -> None:
        self.tell(api.Hush(session, api.TurnRef(turn), 0, speculate=sampling))

    def end(
        self, session: str, generation: int, turn: int = 1, sampling: api.Sampling = GREEDY
    ) -> None:
        """The endpoint: the turn is over and an answer is asked for."""
        self.tell(
            api.EndSpeech(session, api.TurnRef(turn), 0),
            api.Respond(session, generation, f"a{generation}", sampling),
        )

    def text(self, generation: int) -> str:
        deltas = [e for e in self.events if isinstance(e, api.Delta)]
        return "".join(e.text for e in deltas if e.generation == generation)

    def finished(self, generation: int) -> api.Finished | None:
        ended = [e for e in self.events if isinstance(e, api.Finished)]
        return next((e for e in ended if e.generation == generation), None)

    def close(self) -> None:
        self.engine.close()


def without_warm_ups(found: Capabilities) -> Capabilities:
    """The same server, asked for nothing before the endpoint."""
    return replace(found, caches=False, tells_cached=False)
