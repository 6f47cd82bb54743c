"""Pictures that are encoded beside the engine's steps: who waits for them, and who does not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.interfaces import View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.runner import StepResult
from headstart.engine.scheduling.scheduler import Plan
from tests.engine.fakes import Bench, FakeRunner, echo

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=2_000)
NS_PER_MS = 1_000_000
PICTURE_TOKENS = 250
ENCODE_MS = 200
TOKEN_MS = 1


class Encoded:
    """`headstart.engine.interfaces.EncodedPicture`."""

    def __init__(self, image: api.Image, owner: str, *, live: bool) -> None:
        self.image, self.owner, self.live, self.done = image, owner, live, False


class FakeEncoder:
    """Pictures of 250 tokens. Each takes 200 ms of virtual time: within the step, or, as a
    `PictureEncoding`, one after the other beside the steps."""

    def __init__(self, *, beside: bool) -> None:
        self.bench: Bench
        self.beside = beside
        self.most = 1_000  # pictures that may wait
        self.waiting: list[Encoded] = []
        self.within = 0  # pictures that were encoded in a step
        self.released: list[api.Image] = []
        self._known: dict[int, Encoded] = {}
        self._busy_until_ns = 0
        self._fd = os.eventfd(0)

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        if id(image) not in self._known:
            self.bench.now_ns += ENCODE_MS * NS_PER_MS
            self.within += 1
        vectors = np.full((PICTURE_TOKENS, 4), image.rgb[0], dtype=np.float32)
        vectors[:, 1] = np.arange(PICTURE_TOKENS)
        ids = tuple(stream.soft.intern(vectors))
        return View(ids, f"picture {image.rgb[0]}", str(image.rgb[0]))

    def begin(
        self, image: api.Image, owner: str, domain: bytes, due_ns: int, *, live: bool
    ) -> Encoded | None:
        if not self.beside or len(self.waiting) >= self.most:
            return None
        self._busy_until_ns = max(self._busy_until_ns, self.bench.now_ns)
        self.waiting.append(Encoded(image, owner, live=live))
        self._known[id(image)] = self.waiting[-1]
        return self.waiting[-1]

    def collect(self) -> None:
        while self.waiting and self._busy_until_ns + ENCODE_MS * NS_PER_MS <= self.bench.now_ns:
            self._busy_until_ns += ENCODE_MS * NS_PER_MS
            self.waiting.pop(0).done = True

    def release(self, images: Iterable[api.Image]) -> None:
        self.released += images

    def forget(self, owner: str) -> None:
        self.waiting = [picture for picture in self.waiting if picture.owner != owner]

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


def story(question: str) -> str:
    return "Once upon a time. " * 60 if "story" in question else echo(question)


class TimedRunner(FakeRunner):
    """A step takes a millisecond a token."""

    def __init__(self) -> None:
        super().__init__(story)
        self.bench: Bench
        self.longest_ns = 0

    def step(self, plan: Plan) -> StepResult:
        took_ns = (plan.prefill_tokens + plan.decode_tokens) * TOKEN_MS * NS_PER_MS
        self.bench.now_ns += took_ns
        self.longest_ns = max(self.longest_ns, took_ns)
        return super().step(plan)


def picture(look: int) -> api.Image:
    return api.Image(1, 1, bytes([look, 0, 0]))


def made(*, beside: bool) -> tuple[Bench, FakeEncoder, TimedRunner]:
    encoder, runner = FakeEncoder(beside=beside), TimedRunner()
    bench = Bench(runner=runner, image_encoder=encoder, encoding=encoder, blocks=1_024, limit=8_192)
    encoder.bench = runner.bench = bench
    return bench, encoder, runner


@pytest.fixture
def parts() -> Iterator[tuple[Bench, FakeEncoder, TimedRunner]]:
    found = made(beside=True)
    yield found
    found[0].close()


def ask(bench: Bench, session: str, text: str, *pictures: api.Image) -> None:
    item = api.Item("u1", api.Role.USER, (*pictures, api.Text(text)))
    bench.tell(api.AddItem(session, item), api.Respond(session, 1, "a1", GREEDY))


def gaps_ms(*, beside: bool) -> tuple[float, float]:
    """The longest time between two tokens of an answer in "s" while "t" shows a video of a thousand
    tokens and asks about it, and the longest step."""
    bench, _, runner = made(beside=beside)
    for name in ("s", "t"):
        bench.open(name)
    ask(bench, "s", "tell me a story")
    at_ns: list[int] = []
    told = 0
    for step in range(10_000):
        if step == 5:
            ref = api.TurnRef(1)
            bench.tell(api.BeginSpeech("t", ref, "u1", 0))
            bench.tell(*(api.Frame("t", number, picture(number)) for number in range(4)))
            bench.tell(api.Audio("t", ref, 0, bytes(16_000), bench.now_ns))
            bench.tell(api.EndSpeech("t", ref, 8_000), api.Respond("t", 2, "a1", GREEDY))
        worked = bench.engine.step()
        if len(bench.text()) > told:
            told = len(bench.text())
            at_ns.append(bench.now_ns)
        if not worked:
            if not bench.engine.is_encoding:
                break
            bench.now_ns += NS_PER_MS
    first, second = (event for event in bench.events if isinstance(event, api.Finished))
    assert (first.session, second.session) == ("t", "s")  # all of it fell into the story
    assert first.usage.input_image == 4 * PICTURE_TOKENS
    longest = max(after - before for before, after in pairwise(at_ns))
    bench.close()
    return longest / NS_PER_MS, runner.longest_ns / NS_PER_MS


def test_a_video_delays_anothers_next_token_by_at_most_one_step() -> None:
    """A thousand tokens of pictures that take 0.8 s to encode: between two tokens of the other
    session there is never more than one step of 64 tokens. Within the steps, there would be the
    encoding of a picture."""
    longest, step = gaps_ms(beside=True)
    assert step <= 64
    assert longest <= step + 1  # the clock moves by a microsecond when it is read
    within, _ = gaps_ms(beside=False)
    assert within >= ENCODE_MS


def answered(bench: Bench) -> list[str]:
    """The sessions that were answered, in order."""
    return [event.session for event in bench.events if isinstance(event, api.Finished)]


def test_who_needs_no_encoding_is_not_held_up(
    parts: tuple[Bench, FakeEncoder, TimedRunner],
) -> None:
    """Two queues: a written question of one session is answered before the pictures that came
    before it in another, and those are answered when they are encoded."""
    bench, encoder, _ = parts
    for name in ("s", "t"):
        bench.open(name)
    ask(bench, "s", "what is that", picture(1), picture(2))
    ask(bench, "t", "hello")
    bench.run()
    assert answered(bench) == ["t"]
    assert bench.engine.is_encoding
    bench.now_ns += 2 * ENCODE_MS * NS_PER_MS
    bench.run()
    assert answered(bench) == ["t", "s"]
    assert encoder.within == 0
    assert [image.rgb[0] for image in encoder.released] == [1, 2]


def test_sound_goes_past_a_frame_that_is_being_encoded(
    parts: tuple[Bench, FakeEncoder, TimedRunner],
) -> None:
    """Speech is heard meanwhile; the end of the turn waits, so that the answer has seen it."""
    bench, _, _ = parts
    bench.open()
    ref = api.TurnRef(1)
    bench.tell(api.BeginSpeech("s", ref, "u1", 0), api.Frame("s", 0, picture(7)))
    for start in range(0, 24_000, 8_000):
        bench.tell(api.Audio("s", ref, start, bytes(16_000), bench.now_ns))
    bench.tell(api.EndSpeech("s", ref, 24_000), api.Respond("s", 1, "a1", GREEDY))
    bench.run()
    assert len(bench.of(api.Chunk)) == 3
    assert not bench.of(api.Finished)
    bench.now_ns += ENCODE_MS * NS_PER_MS
    bench.run()
    assert bench.finished().usage.input_image == PICTURE_TOKENS


def test_a_command_that_fails_lets_go_of_its_picture(
    parts: tuple[Bench, FakeEncoder, TimedRunner],
) -> None:
    """An item behind an unknown one is refused when its turn comes; the next one is taken."""
    bench, encoder, _ = parts
    bench.open()
    seen = picture(1)
    bench.tell(api.AddItem("s", api.Item("u1", api.Role.USER, (seen,)), "nobody"))
    bench.now_ns += ENCODE_MS * NS_PER_MS
    bench.run()
    assert [event.code for event in bench.events if isinstance(event, api.Failed)] == [
        "unknown_item"
    ]
    assert encoder.released == [seen]
    ask(bench, "s", "hello")
    bench.run()
    assert bench.finished().reason is api.FinishReason.STOP


def test_pictures_that_were_too_many_are_encoded_beside_when_their_turn_comes(
    parts: tuple[Bench, FakeEncoder, TimedRunner],
) -> None:
    """Ten frames and an item of three pictures, of which one may wait: none is encoded within a
    step, where it would hold up all sessions."""
    bench, encoder, _ = parts
    encoder.most = 1
    bench.open()
    bench.tell(*(api.Frame("s", number, picture(number)) for number in range(10)))
    ask(bench, "s", "hello", *(picture(10 + number) for number in range(3)))
    bench.run()
    for _ in range(20):
        bench.now_ns += ENCODE_MS * NS_PER_MS
        bench.run()
    assert answered(bench) == ["s"]
    assert encoder.within == 0
    assert [image.rgb[0] for image in encoder.released] == list(range(13))


def test_a_closed_session_leaves_no_pictures(
    parts: tuple[Bench, FakeEncoder, TimedRunner],
) -> None:
    """They are forgotten, and nobody waits for them."""
    bench, encoder, _ = parts
    bench.open()
    ask(bench, "s", "what is that", picture(1))
    bench.run()
    bench.tell(api.Close("s"))
    bench.run()
    assert encoder.waiting == []
    assert not bench.engine.is_encoding
