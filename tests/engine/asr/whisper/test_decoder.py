"""headstart.engine.asr.whisper.decoder against transformers, and its caches against themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from headstart.engine.asr.whisper.caches import CrossCache, Text, TextCache
from headstart.engine.asr.whisper.checkpoint import Checkpoint
from tests.numerics import assert_as_near

pytestmark = pytest.mark.weights

_TOKENS = torch.tensor([50257, 50362, 4222, 3802, 534, 9206, 11, 3940, 416, 262, 12041, 1994, 13])


@pytest.fixture(scope="module")
def audio(exact: Checkpoint) -> Tensor:
    """[90, D] encoder output."""
    with torch.inference_mode():
        noise = torch.randn(80, 180, generator=torch.Generator().manual_seed(2))
        encoded: Tensor = exact.encoder(noise)
    return encoded


@pytest.fixture(scope="module")
def sound(exact: Checkpoint, audio: Tensor) -> CrossCache:
    with torch.inference_mode():
        return exact.decoder.listen(audio)


def _run(checkpoint: Checkpoint, sound: CrossCache, cuts: list[int]) -> Tensor:
    """Logits of all tokens, run in pieces through one cache."""
    cache = TextCache(checkpoint.settings)
    pieces = []
    with torch.inference_mode():
        for start, end in zip([0, *cuts], [*cuts, len(_TOKENS)], strict=True):
            hidden, _ = checkpoint.decoder(_TOKENS[start:end], cache, sound)
            pieces.append(checkpoint.decoder.vocabulary.logits(hidden))
    return torch.cat(pieces)


@pytest.mark.parametrize("cuts", [[], [2], list(range(1, len(_TOKENS))), [5, 6, 11]])
def test_any_cut_equals_transformers(
    exact: Checkpoint,
    twin: Any,
    fp64_twin: Any,
    audio: Tensor,
    sound: CrossCache,
    cuts: list[int],
) -> None:
    """Tokens in one pass, one by one, or mixed: the logits are the reference's."""
    theirs, wanted = (_reference(model, audio).logits[0] for model in (twin, fp64_twin))
    assert_as_near(_run(exact, sound, cuts), theirs, wanted)


def _reference(twin: Any, audio: Tensor) -> Any:
    """What `transformers` says of all tokens at once, with its attention."""
    heard = (audio[None].to(twin.dtype),)
    with torch.inference_mode():
        return twin(decoder_input_ids=_TOKENS[None], encoder_outputs=heard, output_attentions=True)


def test_cutting_back_forgets(
    exact: Checkpoint, fp64_twin: Any, audio: Tensor, sound: CrossCache
) -> None:
    """After a wrong guess is cut off, the rest runs as if it had never been there."""
    cache = TextCache(exact.settings)
    with torch.inference_mode():
        exact.decoder(_TOKENS[:5], cache, sound)
        exact.decoder(torch.tensor([1, 2, 3, 4]), cache, sound)
        cache.cut(5)
        hidden, _ = exact.decoder(_TOKENS[5:], cache, sound)
        logits = exact.decoder.vocabulary.logits(hidden)
    wanted = _reference(fp64_twin, audio).logits[0, 5:]
    assert_as_near(logits, _run(exact, sound, [5])[5:], wanted)


def test_watched_heads_equal_transformers(
    exact: Checkpoint, twin: Any, fp64_twin: Any, audio: Tensor, sound: CrossCache
) -> None:
    """The attention handed out is the reference's cross-attention of those heads."""
    watched = exact.extras.alignment_heads
    assert watched
    theirs, wanted = (_reference(model, audio).cross_attentions for model in (twin, fp64_twin))
    with torch.inference_mode():
        _, ours = exact.decoder(_TOKENS, TextCache(exact.settings), sound, watched)
    for row, (layer, head) in zip(ours, watched, strict=True):
        assert_as_near(row, theirs[layer][0, head], wanted[layer][0, head])


def test_more_text_than_positions_is_refused(exact: Checkpoint, sound: CrossCache) -> None:
    """Past the last text position it says what it holds."""
    cache = TextCache(exact.settings)
    with pytest.raises(ValueError, match="expected at most 448 text tokens, got 449"):
        exact.decoder(torch.zeros(449, dtype=torch.int64), cache, sound)
    assert cache.length == 0


def test_known_sound_is_not_listened_to_again(exact: Checkpoint, audio: Tensor) -> None:
    """Keys and values of a sound in two parts are those of the whole."""
    with torch.inference_mode():
        whole = exact.decoder.listen(audio)
        behind = exact.decoder.listen(audio[30:], whole.first(30))
        for i, layer in enumerate(exact.decoder.stack):
            kv = layer.cross_attention.kv
            wanted = audio.double() @ kv.weight.double().T + kv.bias.double()
            for mine, theirs, half in zip(
                (behind.keys[i], behind.values[i]),
                (whole.keys[i], whole.values[i]),
                wanted.chunk(2, dim=-1),
                strict=True,
            ):
                assert_as_near(mine, theirs, half.view(len(audio), len(mine), -1).transpose(0, 1))


@pytest.mark.usefixtures("our_kernels")
def test_texts_read_together_are_each_read_alone(packed: Checkpoint) -> None:
    """Tokens of two texts over two sounds, in one pass: bit for bit those of each alone."""
    random = torch.Generator().manual_seed(5)
    with torch.inference_mode():
        sounds = [packed.decoder.listen(torch.randn(n, 384, generator=random)) for n in (90, 41)]
        tokens = [_TOKENS[:9], _TOKENS[2:4]]
        watched = packed.extras.alignment_heads

        def texts() -> list[Text]:
            return [
                Text(ids, TextCache(packed.settings), sound, watched)
                for ids, sound in zip(tokens, sounds, strict=True)
            ]

        together, alone = texts(), texts()
        rows = packed.decoder.read(together)
        for mine, text, other in zip(rows, together, alone, strict=True):
            assert torch.equal(mine, packed.decoder.read([other])[0])
            assert torch.equal(text.attention, other.attention)
            assert text.cache.length == len(text.tokens)
