"""One answer's tokens, text and end."""

from __future__ import annotations

from headstart.engine.api import FinishReason, Sampling
from headstart.engine.chat.context_window import Prompt
from headstart.engine.chat.stopping import SentenceLimit, StopStrings
from headstart.engine.chat.tools import CallReader
from headstart.engine.decoder.sampling import Sampler
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.session.generation import SPECULATION_LIMIT_TOKENS, Answer, ToolCalling
from tests.engine.fakes import END, VOCAB, FakeTextDecoder


def answer(sampling: Sampling | None = None, generation: int | None = 1) -> Answer:
    sampling = sampling or Sampling()
    return Answer(
        stream=Stream("s", BlockPool(4, 16), VOCAB, 64),
        prompt=Prompt((1, 2), bytes(2), {}),
        sampling=sampling,
        sampler=Sampler(sampling, VOCAB),
        decoder=FakeTextDecoder(),
        stop_ids=frozenset({END}),
        sentences=SentenceLimit(sampling.max_sentences),
        calling=ToolCalling(StopStrings(sampling.stop), CallReader(())),
        generation=generation,
    )


def take(a: Answer, text: str) -> None:
    for i, letter in enumerate(text.encode()):
        a.take(letter, i * 10**9)


def test_a_stop_token_ends_it_and_is_no_text() -> None:
    """The answer ends with reason stop; the token is not among its own."""
    a = answer()
    take(a, "Hi")
    a.take(END, 3 * 10**9)
    assert (a.finished, a.text, len(a.tokens)) == (FinishReason.STOP, "Hi", 2)


def test_the_limit_ends_it() -> None:
    """max_tokens are decoded, not one more."""
    a = answer(Sampling(max_tokens=3))
    take(a, "abc")
    assert (a.finished, a.text) == (FinishReason.LENGTH, "abc")


def test_a_stop_string_ends_it_before_the_string() -> None:
    """Text that could begin a stop string is not sent until it is known not to."""
    a = answer(Sampling(stop=("\n\n",)))
    take(a, "one\n")
    assert a.unsent() == "one"
    take(a, "\n")
    assert (a.finished, a.text) == (FinishReason.STOP, "one")


def test_a_speculative_answer_sends_nothing_and_pauses() -> None:
    """It decodes so far and no further, and has nothing to send until it is adopted."""
    a = answer(generation=None)
    take(a, "x" * SPECULATION_LIMIT_TOKENS)
    assert a.unsent() == ""
    assert a.paused
    adopted = answer(generation=1)
    take(adopted, "x" * SPECULATION_LIMIT_TOKENS)
    assert not adopted.paused
    assert adopted.unsent() == "x" * SPECULATION_LIMIT_TOKENS


def test_it_is_adopted_only_for_the_same_question_and_settings() -> None:
    """Another prompt or another temperature means another answer."""
    a = answer(generation=None)
    assert a.matches(Prompt((1, 2), bytes(2), {}), Sampling())
    assert not a.matches(Prompt((1, 2, 3), bytes(3), {}), Sampling())
    assert not a.matches(Prompt((1, 2), bytes(2), {}), Sampling(temperature=0.5))


def test_speed_is_measured_between_tokens() -> None:
    """n tokens in n-1 seconds are one a second; a single token has no speed."""
    a = answer()
    take(a, "a")
    assert a.tok_s() is None
    take(a, "ab")
    assert answer().tok_s() is None
    a = answer()
    take(a, "abcd")
    assert a.tok_s() == 1.0


def test_it_ends_with_its_last_whole_sentence() -> None:
    """The token that would begin the next sentence is neither text nor among its tokens."""
    a = answer(Sampling(max_sentences=2))
    take(a, "Yes. No. ")
    assert (a.finished, a.text, len(a.tokens)) == (FinishReason.STOP, "Yes. No.", 8)


def test_tokens_held_back_are_not_said_either() -> None:
    """With a stop string that could still come, the same: what was not said is forgotten."""
    a = answer(Sampling(max_sentences=1, stop=("  ",)))
    take(a, "Yes. N")
    assert (a.finished, a.text, bytes(a.tokens)) == (FinishReason.STOP, "Yes.", b"Yes.")
