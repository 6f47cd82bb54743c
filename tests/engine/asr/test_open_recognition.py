"""engine.asr.open_recognition: what is known of an utterance, and decoded tokens as words."""

from __future__ import annotations

import pytest

from headstart.engine.asr.decoding import Decoded, Ending
from headstart.engine.asr.languages import Language
from headstart.engine.asr.open_recognition import Recognized, words_of
from headstart.engine.asr.tokens import WhisperTokens


def test_text_is_what_is_sure_and_what_may_change() -> None:
    """One after the other, as they come."""
    assert Recognized("What is", " the", {}, 1, 1, 1).text == "What is the"


@pytest.mark.weights
def test_a_word_is_as_likely_as_its_worst_token(whisper_tokens: WhisperTokens) -> None:
    """Of all its tokens, and of those that are not all punctuation."""
    tokens = whisper_tokens.encode(" Yes, unquestionably.")
    logprobs = tuple(-0.1 * (i + 1) for i in range(len(tokens)))
    decoded = Decoded(tokens, logprobs, (), 0.0, 0.0, Ending.END, 1)
    words = words_of(decoded, whisper_tokens, Language("en"))
    assert [word.text for word in words] == [" Yes,", " unquestionably."]
    assert (words[0].logprob, words[0].letters_logprob) == (-0.2, -0.1)
    assert sum((word.tokens for word in words), ()) == tokens
    assert words[1].logprob == logprobs[-1]
    assert words[1].letters_logprob == logprobs[-2]
