"""engine.asr.whisper.ct2_whisper: a CTranslate2 directory, its matrices whole or quantised."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from headstart.engine.asr.whisper.ct2_whisper import _names
from headstart.engine.asr.whisper.source import EMBEDDING
from headstart.engine.errors import BadWeights
from tests.engine.asr.whisper_dirs import IDS, VOCABULARY, Kind, write_whisper
from tests.engine.checkpoints.test_ctranslate2 import _file, _tensor
from tests.numerics import assert_as_near

CODES = {torch.float32: 0, torch.int8: 1, torch.int16: 2}
HEAD = "decoder/projection/weight"


def _entry(name: str, tensor: Tensor) -> bytes:
    data = tensor.contiguous().numpy().tobytes()
    return _tensor(name, tuple(tensor.shape), CODES[tensor.dtype], data)


def _quantised(weight: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """As the converter does it: int8 with a scale for each row, int16 with one for all."""
    if kind == "int8":
        scale = 127.0 / weight.abs().amax(dim=1)
        return (weight * scale[:, None]).round().to(torch.int8), scale
    scale = 1024.0 / weight.abs().amax()
    return (weight * scale).round().to(torch.int16), scale


def _write(directory: Path, model: Checkpoint, kind: str, head: Tensor | None) -> None:
    state = {f"encoder.{name}": t for name, t in model.encoder.state_dict().items()}
    state |= {f"decoder.{name}": t for name, t in model.decoder.state_dict().items()}
    state[EMBEDDING] = model.decoder.vocabulary.embed(torch.arange(VOCABULARY))
    entries = [_entry("encoder/num_heads", torch.tensor(model.settings.heads, dtype=torch.int16))]
    if head is not None:
        entries.append(_entry(HEAD, head))
    for ours, theirs in _names(model.settings):
        if kind != "float" and state[ours].ndim == 2 and "positions" not in ours:
            weight, scale = _quantised(state[ours], kind)
            entries += [_entry(theirs, weight), _entry(f"{theirs}_scale", scale)]
        else:
            entries.append(_entry(theirs, state[ours]))
    aliases = [] if head is not None else [(HEAD, "decoder/embeddings/weight")]
    if kind != "float":  # the converter gives equal tensors one place, scales too
        aliases += [(f"{alias}_scale", f"{name}_scale") for alias, name in aliases]
    (directory / "model.bin").write_bytes(_file(entries, aliases))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face directory, the source of all of them."""
    directory = tmp_path_factory.mktemp("hf")
    write_whisper(directory, Kind(multilingual=False))
    return directory


@pytest.fixture(scope="module")
def model(saved: Path) -> Checkpoint:
    return load_checkpoint(saved, exact=True)


def _directory(tmp_path: Path, saved: Path) -> Path:
    shutil.copy(saved / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text('{"suppress_ids": [7], "suppress_ids_begin": [9]}')
    return tmp_path


@pytest.mark.parametrize(("kind", "error"), [("float", 0.0), ("int16", 1e-3), ("int8", 5e-3)])
def test_every_tensor_comes_back(
    tmp_path: Path, saved: Path, model: Checkpoint, kind: str, error: float
) -> None:
    """Quantised matrices within half a step of what they were, all else exactly."""
    _write(_directory(tmp_path, saved), model, kind, head=None)
    ours = load_checkpoint(tmp_path, exact=True)
    for mine, theirs in ((ours.encoder, model.encoder), (ours.decoder, model.decoder)):
        for name, tensor in theirs.state_dict().items():
            away = (mine.state_dict()[name] - tensor).abs().max()
            assert away <= error * tensor.abs().max(), name
    assert (ours.settings, ours.extras.suppress) == (model.settings, (7,))
    assert not ours.extras.multilingual


def test_an_alias_is_no_head_of_its_own(tmp_path: Path, saved: Path, model: Checkpoint) -> None:
    """The projection is the embedding again, or another matrix: that one gives the logits."""
    hidden = torch.randn(2, 64)
    embedding = model.decoder.vocabulary.embed(torch.arange(VOCABULARY))
    for head, sign in ((None, 1), (-embedding, -1)):
        _write(_directory(tmp_path, saved), model, "float", head)
        logits = load_checkpoint(tmp_path, exact=True).decoder.vocabulary.logits(hidden)
        exact = sign * hidden.double() @ embedding.double().T
        assert_as_near(logits, sign * hidden @ embedding.T, exact)


@pytest.mark.parametrize("name", ["vocabulary.json", "vocabulary.txt", None])
def test_the_vocabulary_beside_it_is_read(
    tmp_path: Path, saved: Path, model: Checkpoint, name: str | None
) -> None:
    """Special tokens have the places they have there; without the file nothing is claimed."""
    _write(_directory(tmp_path, saved), model, "float", head=None)
    words = [next((w for w, at in IDS.items() if at == n), "x") for n in range(VOCABULARY)]
    if name is not None:
        text = json.dumps(words) if name.endswith("json") else "\n".join(words)
        (tmp_path / name).write_text(text)
    ids = load_checkpoint(tmp_path, exact=True).extras.ids
    assert ids == (IDS if name is not None else {})


def test_a_missing_scale_is_named(tmp_path: Path, saved: Path, model: Checkpoint) -> None:
    """int8 without its scales says nothing."""
    _write(_directory(tmp_path, saved), model, "int8", head=None)
    data = (tmp_path / "model.bin").read_bytes()
    (tmp_path / "model.bin").write_bytes(data.replace(b"/weight_scale", b"/weight_spoil"))
    with pytest.raises(BadWeights, match=r"expected decoder/.*/weight_scale, got no such"):
        load_checkpoint(tmp_path, exact=True)
