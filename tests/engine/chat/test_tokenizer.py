"""Text to tokens and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.engine.chat.tokenizer import CONTROL, PRE_TOKENIZERS, Tokenizer
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.errors import BadWeights, UnsupportedModel
from tests.engine.reference_tokenizer import reference_tokenizer
from tests.engine.tiny_gguf import QWEN2, TinyConfig, write_tiny_gguf

HARD_TEXTS = (
    "Hello, world! It's 2024; they'LL pay $1,234.50.",
    "  two  spaces,\ttabs\n\n\nand lines \r\n at the end   ",
    "naïve café — “quotes” … 12½ ٣٤ ⅷ",
    "日本語のテキスト 한국어 עברית हिन्दी 🙂👩‍👩‍👧‍👦🏳️‍🌈",
    "def f(x):\n    return x**2  # a comment\n\n\n",
    "cafe\u0301 vs caf\u00e9",
    "",
)
words = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=8)


@pytest.fixture(scope="module", params=PRE_TOKENIZERS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return Tokenizer.from_gguf(GgufFile(write_tiny_gguf(path, TinyConfig(pre=request.param))))


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(GgufFile(smollm2_path))


@pytest.fixture(scope="module")
def qwen(qwen_path: Path) -> Tokenizer:
    return Tokenizer.from_gguf(GgufFile(qwen_path))


def normal_form(tokenizer: Tokenizer, text: str) -> str:
    """What a text reads like after one pass: Qwen2's vocabulary composes accents first."""
    return tokenizer.decode(tokenizer.encode(text))


@pytest.mark.weights
@pytest.mark.parametrize("name", ["smollm2", "qwen"])
def test_text_becomes_the_ids_transformers_gives(name: str, request: pytest.FixtureRequest) -> None:
    """All hard texts, plain and inside the chat's control tokens, both splitting rules."""
    path = {"smollm2": "smollm2_path", "qwen": "qwen_path"}[name]
    ours = request.getfixturevalue(name)
    theirs = reference_tokenizer(GgufFile(request.getfixturevalue(path)))
    for text in HARD_TEXTS:
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False), text
        framed = f"<|im_start|>user\n{text}<|im_end|>\n<|endoftext|>"
        ids = theirs.encode(framed, add_special_tokens=False)
        assert ours.encode(framed, special=True) == ids
        assert ours.decode(ids, special=True) == theirs.decode(ids)


@pytest.mark.weights
def test_qwen_text_becomes_the_published_ids(qwen: Tokenizer) -> None:
    """Ids of Qwen2.5's tokenizer: words, digits one by one, composed accents, the chat."""
    assert qwen.encode("Hello, world!") == [9707, 11, 1879, 0]
    assert qwen.encode("2024") == [17, 15, 17, 19]
    assert qwen.encode("cafe\u0301") == qwen.encode("caf\u00e9")
    framed = qwen.encode("<|im_start|>user\n<|im_end|>\n", special=True)
    assert framed == [151644, 872, 198, 151645, 198]


@pytest.mark.weights
@given(st.lists(words, min_size=1, max_size=6))
@settings(max_examples=60)
def test_words_encoded_one_by_one_read_like_the_whole(smollm2: Tokenizer, said: list[str]) -> None:
    """Pieces of one word with its leading space: the ids are those of the whole sentence. So a
    sentence can be prefilled while it is being spoken."""
    assert_piecewise(smollm2, said)


@pytest.mark.weights
@given(st.lists(words, min_size=1, max_size=6))
@settings(max_examples=60)
def test_qwen_words_encoded_one_by_one_read_like_the_whole(
    qwen: Tokenizer, said: list[str]
) -> None:
    """The same for the other splitting rule."""
    assert_piecewise(qwen, said)


def assert_piecewise(tokenizer: Tokenizer, said: list[str]) -> None:
    pieces = [said[0], *(f" {word}" for word in said[1:])]
    joined = [token for piece in pieces for token in tokenizer.encode(piece)]
    assert joined == tokenizer.encode("".join(pieces))


@given(st.text())
def test_text_survives_a_round_trip(tiny: Tokenizer, text: str) -> None:
    """Decoding gives the text back, in composed form where the vocabulary wants that."""
    once = normal_form(tiny, text)
    assert normal_form(tiny, once) == once
    if text.isascii():
        assert once == text


@pytest.mark.weights
@given(st.text(st.characters(max_codepoint=0x1FFFF, exclude_categories=["C"])))
@settings(max_examples=50)
def test_without_a_normaliser_the_round_trip_is_exact(smollm2: Tokenizer, text: str) -> None:
    """SmolLM2 takes text as it is; some control characters and the lead bytes of planes 4 to 11
    are missing in its vocabulary."""
    assert smollm2.decode(smollm2.encode(text)) == text


@given(st.lists(st.sampled_from(["<|im_end|>", "<|im_start|>", "<|", "|>", "im_end", " ", "a"])))
def test_people_cannot_spell_control_tokens(tiny: Tokenizer, parts: list[str]) -> None:
    """However the letters are put together, no control token comes out, and no letter is lost."""
    text = "".join(parts)
    ids = tiny.encode(text)
    assert not set(ids) & tiny.control_ids
    assert tiny.decode(ids) == text


def test_our_own_text_spells_control_tokens(tiny: Tokenizer) -> None:
    """With `special` each spelling is one token, which decodes to nothing for people."""
    ids = tiny.encode("<|im_start|>a<|im_end|><tool>", special=True)
    assert len(ids) == 4
    assert {ids[0], ids[2]} <= tiny.control_ids
    assert tiny.decode(ids) == "a<tool>"
    assert tiny.decode(ids, special=True) == "<|im_start|>a<|im_end|><tool>"


@given(st.lists(st.integers(0, 258), max_size=40))
def test_streamed_text_is_the_whole_text(tiny: Tokenizer, ids: list[int]) -> None:
    """Any tokens, valid UTF-8 or not: the pieces put together are the text decoded at once, and
    no piece but the last holds a replacement for a character that was only cut in two."""
    decoder = tiny.stream_decoder()
    pieces = [decoder.feed(token) for token in ids]
    assert "".join(pieces) + decoder.flush() == tiny.decode(ids)


def test_half_a_character_is_held_back(tiny: Tokenizer) -> None:
    """The four bytes of an emoji come as one piece, with the token that completes it."""
    decoder = tiny.stream_decoder()
    ids = tiny.encode("🙂")
    assert len(ids) == 4
    assert [decoder.feed(token) for token in ids] == ["", "", "", "🙂"]
    decoder.feed(ids[0])
    assert decoder.flush() == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("tokenizer.ggml.pre", "mystery", UnsupportedModel, "one of qwen2, smollm, got mystery"),
        ("tokenizer.ggml.model", "llama", UnsupportedModel, "one of gpt2, got llama"),
        ("tokenizer.ggml.pre", None, BadWeights, "expected str, got nothing"),
    ],
)
def test_a_vocabulary_of_another_kind_is_refused(
    key: str, value: str | None, error: type[BadWeights], words: str, tmp_path: Path
) -> None:
    """The error lists what is known."""
    path = write_tiny_gguf(tmp_path / "x.gguf", QWEN2, {key: value})
    with pytest.raises(error, match=words):
        Tokenizer.from_gguf(GgufFile(path))


def test_merges_beyond_the_vocabulary_are_refused(tmp_path: Path) -> None:
    """A merge of unknown tokens is `BadWeights`, not a crash in the library."""
    file = GgufFile(write_tiny_gguf(tmp_path / "x.gguf"))
    file.metadata["tokenizer.ggml.merges"].append("zz qq")
    with pytest.raises(BadWeights, match="zz qq"):
        Tokenizer.from_gguf(file)


def test_merges_that_make_a_control_token_are_refused(tmp_path: Path) -> None:
    """Otherwise plain letters could be put together to one."""
    file = GgufFile(write_tiny_gguf(tmp_path / "x.gguf"))
    file.metadata["tokenizer.ggml.tokens"].append("ab")
    file.metadata["tokenizer.ggml.token_type"].append(CONTROL)
    file.metadata["tokenizer.ggml.merges"].append("a b")
    with pytest.raises(BadWeights, match="a b"):
        Tokenizer.from_gguf(file)
