"""Scripted model services, with known words and without weights.

A token is a byte; the chat template's pieces are single tokens above 255. The recogniser gives one
word of its script per `word_samples`; the model answers by a function of the last user message.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headstart.engine import api
from headstart.engine.backends.local import LocalBackend
from headstart.engine.decoder.sampling import Sampler
from headstart.engine.engine import Backend, Engine, EngineParts
from headstart.engine.errors import CacheFull
from headstart.engine.interfaces import (
    ImageEncoder,
    ModelServices,
    Pcm,
    PictureEncoding,
    PictureReader,
    StillEncoder,
    Thinning,
    View,
)
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.eviction import KvMove
from headstart.engine.kvcache.offload import BlockMemory, HostMemory
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.admission import AdmissionController, AdmissionRules
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan, Scheduler
from headstart.engine.session.recognition import PassSharing, Worker
from headstart.engine.session.session import NewStream

SYSTEM, USER, USER_END, ASSISTANT, END = 256, 257, 258, 259, 260
VOCAB = 300
HEARD_TOGETHER = 4  # sessions in one pass of the recogniser
WORD_SAMPLES = 4_000


class FakeChat:
    user_open: Sequence[int] = (USER,)
    user_close: Sequence[int] = (USER_END,)
    assistant_open: Sequence[int] = (ASSISTANT,)
    assistant_close: Sequence[int] = (END,)

    call_beginnings = frozenset({ord("<"), ord("{")})
    system_opens_user = False

    def system(self, text: str, tools: Sequence[api.Tool] = ()) -> Sequence[int]:
        names = "".join(f"[{tool.name}]" for tool in tools)
        return (SYSTEM, *f"{text}{names}".encode(), END)

    later_system = system

    def call(self, name: str, arguments: str) -> Sequence[int]:
        body = f'{{"name": "{name}", "arguments": {arguments}}}'
        return tuple(f"<tool_call>\n{body}\n</tool_call>".encode())

    def call_opening(self, tool: api.Tool | None = None) -> Sequence[int]:
        name = "" if tool is None else f' "{tool.name}", "arguments":'
        return tuple(f'<tool_call>\n{{"name":{name}'.encode())

    def result(self, output: str) -> Sequence[int]:
        return tuple(f"<tool_response>{output}</tool_response>".encode())


class FakeTokenizer:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def stream_decoder(self) -> FakeTextDecoder:
        return FakeTextDecoder()


class FakeTextDecoder:
    def feed(self, token: int) -> str:
        return chr(token)

    def flush(self) -> str:
        return ""


@dataclass(frozen=True)
class FakeWords:
    committed: str
    tentative: str
    stages_ms: Mapping[str, float] = field(
        default_factory=lambda: {"mel": 1.0, "encode": 2.0, "decode": 3.0}
    )
    likely: tuple[float, ...] = ()


class FakeRecognizer:
    """Recognises `script` word by word. The newest word is tentative and wrong until the next."""

    def __init__(self, script: str) -> None:
        self.words = script.split()
        self.finishes = 0
        self.passes: list[list[int]] = []  # samples of each utterance heard in each pass

    def open(self, stream: Stream) -> list[int]:
        return [0]

    def recognize_batch(
        self, utterances: Sequence[list[int]], pcms: Sequence[Pcm]
    ) -> list[FakeWords]:
        self.passes.append([len(pcm) for pcm in pcms])
        return [self._hear(u, pcm) for u, pcm in zip(utterances, pcms, strict=True)]

    def _hear(self, utterance: list[int], pcm: Pcm) -> FakeWords:
        utterance[0] += len(pcm)
        count = min(utterance[0] // WORD_SAMPLES, len(self.words))
        if count == 0:
            return FakeWords("", "")
        committed = " ".join(self.words[: count - 1])
        guess = (" " if committed else "") + self.words[count - 1][::-1]
        return FakeWords(committed, guess)

    def finish(self, utterance: list[int], pcm: Pcm | None = None) -> FakeWords:
        self.finishes += 1
        utterance[0] += 0 if pcm is None else len(pcm)
        count = min(utterance[0] // WORD_SAMPLES, len(self.words))
        return FakeWords(" ".join(self.words[:count]), "")


class RespellingRecognizer(FakeRecognizer):
    """Hears the words of its script right, with punctuation that changes with each hypothesis, the
    last word excepted, and spells the final words anew."""

    def _hear(self, utterance: list[int], pcm: Pcm) -> FakeWords:
        utterance[0] += len(pcm)
        count = utterance[0] // WORD_SAMPLES
        mark = "" if count <= 2 else ",.;!"[count % 4]
        words = [f"{word}{mark}" for word in self.words[: count - 1]]
        return FakeWords("", " ".join([*words, self.words[count - 1]]))

    def finish(self, utterance: list[int], pcm: Pcm | None = None) -> FakeWords:
        return FakeWords(", ".join(map(str.title, self.words)) + "?", "")


class FakeImageEncoder:
    """Shows the picture's first byte."""

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        vector = np.full((1, 4), image.rgb[0], dtype=np.float32)
        return View(tuple(stream.soft.intern(vector)), f"picture {image.rgb[0]}", str(image.rgb[0]))


def echo(question: str) -> str:
    return f"You said: {question}."


class FakeRunner:
    """Advances streams and answers with `reply` to the last user message, byte by byte."""

    def __init__(self, reply: Callable[[str], str] = echo) -> None:
        self.reply = reply
        self.steps = 0
        self.rows = 0

    def step(self, plan: Plan) -> StepResult:
        self.steps += 1
        result = StepResult()
        for work in plan.works:
            stream = work.stream
            try:
                stream.reserve(work.num_scheduled_tokens)
            except CacheFull as full:
                result.refused[stream] = full
                continue
            stream.advance(work.num_scheduled_tokens)
            self.rows += work.num_scheduled_tokens
            if work.wants_logits:
                result.logits[stream] = self._logits(list(stream.tokens))
            if work.probe_row is not None:
                place = stream.kv_len - work.num_scheduled_tokens + work.probe_row
                result.probed[stream] = self._behind_a_word(stream.tokens[: place + 1])
                if work.probe_row > 0:
                    result.before[stream] = self._behind_a_word(stream.tokens[:place])
        return result

    def move(self, move: KvMove) -> None:
        """Nothing is in memory here."""

    def _behind_a_word(self, tokens: Sequence[int]) -> Tensor:
        """The message is over, at 99 : 1, behind a full word "france"."""
        over = bytes(t for t in tokens if t < 256).endswith(b"france")
        logits = torch.full((VOCAB,), -torch.inf)
        logits[USER_END] = math.log(0.99 if over else 0.01)
        logits[ord(" ")] = math.log(0.01 if over else 0.99)
        return logits

    def _logits(self, tokens: list[int]) -> Tensor:
        begin = len(tokens) - tokens[::-1].index(ASSISTANT)
        said = tokens[begin:]
        question = tokens[: begin - 1]
        start = len(question) - question[::-1].index(USER) if USER in question else 0
        asked = "".join(chr(t) for t in question[start:] if t < 256)
        answer = [*self.reply(asked).encode(), END]
        logits = torch.zeros(VOCAB)
        logits[answer[len(said)]] = 10.0
        return logits


class FakeMemory:
    """Blocks are empty, so there is nothing to copy."""

    bytes_per_token = narrow_bytes_per_token = 100

    def save_block(self, block: int, num_tokens: int) -> Any:
        return None

    def load_block(self, block: int, saved: Any) -> None:
        pass


def as_text(tokens: Sequence[int]) -> str:
    """Tokens, the template's pieces as letters."""
    names = {SYSTEM: "<S>", USER: "<U>", USER_END: "</U>", ASSISTANT: "<A>", END: "</>"}
    return "".join(names.get(t, chr(t) if t < 256 else "#") for t in tokens)


class Bench:
    """An engine over the fakes, with virtual time and all its events."""

    def __init__(
        self,
        script: str = "what is the capital of france",
        reply: Callable[[str], str] = echo,
        blocks: int = 256,
        limit: int = 4096,
        held: int = sys.maxsize,
        host_blocks: int = 0,
        rules: AdmissionRules | None = None,
        memory: BlockMemory | None = None,
        runner: FakeRunner | None = None,
        max_cached: int = 0,
        reader: PictureReader | None = None,
        image_encoder: ImageEncoder | None = None,
        encoding: PictureEncoding | None = None,
        thinning: Thinning | None = None,
        stills: StillEncoder | None = None,
        recognizer: FakeRecognizer | None = None,
        worker: Worker | None = None,
    ) -> None:
        self.now_ns = 0
        self.events: list[api.Event] = []
        self.recognizer = recognizer or FakeRecognizer(script)
        self.runner = runner or FakeRunner(reply)
        self.pool = self.make_pool(blocks, max_cached)
        memory = memory or FakeMemory()
        host = HostMemory(memory, self.pool, host_blocks * 16 * memory.bytes_per_token)
        self.admission = AdmissionController(
            self.pool, host, rules or AdmissionRules(turn_tokens=16)
        )
        backend, new_stream = self.make_backend(limit)
        if held < sys.maxsize:
            new_stream = lambda name: Stream(name, self.pool, VOCAB, limit, held=held)  # noqa: E731
        services = ModelServices(
            chat=FakeChat(),
            tokenizer=FakeTokenizer(),
            recognizer=self.recognizer,
            image_encoder=image_encoder or FakeImageEncoder(),
            new_sampler=lambda sampling: Sampler(sampling, VOCAB),
            stop_ids=frozenset({END}),
            kv_bytes_per_token=100,
            reader=reader,
            encoding=encoding,
            thinning=thinning,
            stills=stills,
        )
        self.engine = Engine(
            EngineParts(
                services=services,
                pool=self.pool,
                backend=backend,
                admission=self.admission,
                new_stream=new_stream,
                clock=self._clock,
                heard_together=PassSharing(HEARD_TOGETHER),
                recognition_worker=worker,
            ),
            self.events.append,
        )

    def make_pool(self, blocks: int, max_cached: int) -> BlockPool:
        """A pool of so many blocks of 16 tokens."""
        return BlockPool(blocks, 16, max_cached)

    def make_backend(self, limit: int) -> tuple[Backend, NewStream]:
        """The backend, and what makes its streams."""
        marks = frozenset({ord(".")})
        backend = LocalBackend(
            self.runner, Scheduler(64), self.admission, USER_END, self._clock, marks
        )
        return backend, lambda name: Stream(name, self.pool, VOCAB, limit)

    def close(self) -> None:
        self.engine.close()

    def _clock(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def tell(self, *commands: api.Command) -> None:
        for command in commands:
            self.engine.receive(command)

    def run(self) -> None:
        """Step until there is nothing to do, then check the accounting."""
        while self.engine.step():
            pass
        self.engine.check_accounting()

    def open(self, name: str = "s", instructions: str = "Hi") -> None:
        self.tell(api.Open(name, instructions))
        self.run()

    def say(self, name: str = "s", turn: int = 1, words: int = 6, item_id: str = "u1") -> None:
        """Send one utterance in half-second chunks, without its hush."""
        ref = api.TurnRef(turn)
        self.tell(api.BeginSpeech(name, ref, item_id, 0))
        for start in range(0, words * WORD_SAMPLES, 8_000):
            samples = min(8_000, words * WORD_SAMPLES - start)
            self.tell(api.Audio(name, ref, start, bytes(2 * samples), self.now_ns))
            self.run()

    def of(self, kind: type[api.Event]) -> list[api.Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def text(self, generation: int = 1) -> str:
        return "".join(
            e.text for e in self.events if isinstance(e, api.Delta) and e.generation == generation
        )

    def finished(self, generation: int = 1) -> api.Finished:
        (event,) = [
            e for e in self.events if isinstance(e, api.Finished) and e.generation == generation
        ]
        return event

    def stream_text(self, name: str = "s") -> str:
        """What the KV stream of a session reads."""
        return as_text(self.engine.sessions[name].stream.tokens)
