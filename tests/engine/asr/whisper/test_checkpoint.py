"""headstart.engine.asr.whisper.checkpoint: both formats, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import WhisperConfig, WhisperForConditionalGeneration

from headstart.benchmarks.references.transformers_whisper import hugging_face_state
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from headstart.engine.checkpoints.named import read_json
from headstart.engine.errors import BadWeights

SIZES: dict[str, Any] = {
    "vocab_size": 200,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "num_mel_bins": 16,
    "max_source_positions": 1500,
    "max_target_positions": 448,
}


def _config(**changed: object) -> str:
    """A config.json of `hf_dir` with something else in it."""
    return json.dumps(SIZES | changed)


@pytest.fixture(scope="module")
def hf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Whisper, saved by transformers."""
    directory = tmp_path_factory.mktemp("hf")
    torch.manual_seed(0)
    config = WhisperConfig(
        **SIZES,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    WhisperForConditionalGeneration(config).save_pretrained(directory)
    (directory / "tokenizer.json").write_text("{}")
    (directory / "generation_config.json").write_text(
        json.dumps(
            {"alignment_heads": [[2, 1]], "suppress_tokens": [7], "begin_suppress_tokens": []}
        )
    )
    return directory


def _changed(source: Path, target: Path, change: Callable[[dict[str, Tensor]], None]) -> Path:
    shutil.copytree(source, target)
    tensors = load_file(target / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors")
    return target


@pytest.mark.weights
def test_packaged_weights(exact: Checkpoint) -> None:
    """The CTranslate2 file gives Whisper-tiny.en's sizes and hints."""
    settings = exact.settings
    assert (settings.mels, settings.width, settings.heads, settings.ffn) == (80, 384, 6, 1536)
    assert (settings.encoder_layers, settings.decoder_layers) == (4, 4)
    assert not exact.extras.multilingual
    assert exact.extras.ids["<|startoftranscript|>"] == 50257
    assert len(exact.extras.alignment_heads) == 8
    assert exact.extras.suppress_first == (220, 50256)


def test_hugging_face_directory(hf_dir: Path) -> None:
    """Every tensor of a transformers directory arrives where it belongs."""
    checkpoint = load_checkpoint(hf_dir, exact=True)
    ours, theirs = hugging_face_state(checkpoint), load_file(hf_dir / "model.safetensors")
    theirs.pop("proj_out.weight", None)
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    assert checkpoint.extras.alignment_heads == ((2, 1),)
    assert checkpoint.extras.suppress == (7,)


def test_missing_tensor_is_named(hf_dir: Path, tmp_path: Path) -> None:
    """A tensor that is not there is told by name."""
    name = "model.decoder.layers.1.encoder_attn.v_proj.weight"

    def lose(tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    with pytest.raises(BadWeights, match=f"tensors: expected {name}, got no such tensor"):
        load_checkpoint(_changed(hf_dir, tmp_path / "x", lose))


def test_misshapen_tensor_is_named(hf_dir: Path, tmp_path: Path) -> None:
    """A tensor of the wrong size is told with both sizes."""

    def shorten(tensors: dict[str, Tensor]) -> None:
        tensors["model.encoder.layer_norm.weight"] = torch.ones(63)

    with pytest.raises(BadWeights, match=r"encoder.norm.weight: expected \[64\], got \[63\]"):
        load_checkpoint(_changed(hf_dir, tmp_path / "x", shorten))


def test_wrong_type_is_named(hf_dir: Path, tmp_path: Path) -> None:
    """Whole numbers are no weights."""

    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors["model.encoder.layer_norm.weight"] = torch.ones(64, dtype=torch.int64)

    with pytest.raises(BadWeights, match=r"encoder\.norm\.weight: expected floating point"):
        load_checkpoint(_changed(hf_dir, tmp_path / "x", spoil))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "expected config.json, got no such file"),
        ("tokenizer.json", None, "expected tokenizer.json, got no such file"),
        (
            "model.safetensors",
            None,
            r"or model\.safetensors \(.*\), got neither",
        ),
        ("config.json", "{", "content: expected JSON"),
        ("config.json", "[]", "expected a JSON object, got list"),
        ("config.json", '{"num_mel_bins": "many"}', "num_mel_bins: expected a positive whole"),
        ("config.json", '{"model_type": "llama"}', "model_type: expected 'whisper', got 'llama'"),
        ("config.json", '{"activation_function": "relu"}', "expected 'gelu', got 'relu'"),
        ("config.json", _config(decoder_ffn_dim=64), "decoder_ffn_dim: expected 96, as encoder"),
        ("config.json", _config(d_model=96), r"embedding: expected \[200, 96\], got \[200, 64\]"),
        ("config.json", _config(d_model=72), "expected multiples of 2 heads and of 32, got 72, 96"),
        (
            "config.json",
            _config(encoder_layers=3),
            r"expected model\.encoder\.layers\.2",
        ),
        ("config.json", _config(max_source_positions=750), "positions: expected at least 1500"),
        (
            "config.json",
            _config(tie_word_embeddings=False),
            "expected proj_out.weight, got no",
        ),
        ("generation_config.json", '{"alignment_heads": [3]}', "expected a list of pairs"),
        ("generation_config.json", '{"suppress_tokens": ["a"]}', "expected a list of whole"),
        (
            "generation_config.json",
            '{"alignment_heads": [[3, 0]]}',
            "alignment head: expected below",
        ),
    ],
)
def test_faulty_directories(
    hf_dir: Path, tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    """Each fault of a directory is told with what was expected and what came."""
    shutil.copytree(hf_dir, tmp_path / "x")
    if content is None:
        (tmp_path / "x" / file).unlink()
    else:
        (tmp_path / "x" / file).write_text(content)
    with pytest.raises(BadWeights, match=message):
        load_checkpoint(tmp_path / "x")


def test_older_files_are_told_from_none(hf_dir: Path, tmp_path: Path) -> None:
    """A directory with weights of another kind says which."""
    shutil.copytree(hf_dir, tmp_path / "x")
    (tmp_path / "x" / "model.safetensors").rename(tmp_path / "x" / "pytorch_model.bin")
    with pytest.raises(BadWeights, match=r"got pytorch_model\.bin"):
        load_checkpoint(tmp_path / "x")


def test_without_alignment_heads_the_upper_half_is_taken(hf_dir: Path, tmp_path: Path) -> None:
    """Words are placed in the sound, whoever saved the model without hints."""
    shutil.copytree(hf_dir, tmp_path / "x")
    (tmp_path / "x" / "generation_config.json").unlink()
    heads = load_checkpoint(tmp_path / "x").extras.alignment_heads
    assert heads == ((1, 0), (1, 1), (2, 0), (2, 1))


def test_a_model_saved_without_its_head(hf_dir: Path, tmp_path: Path) -> None:
    """`WhisperModel` writes names without a prefix; they are the same tensors."""

    def strip(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("model.")] = tensors.pop(name)

    changed = _changed(hf_dir, tmp_path / "x", strip)
    ours, theirs = (load_checkpoint(path, exact=True) for path in (changed, hf_dir))
    for name, tensor in theirs.encoder.state_dict().items():
        assert torch.equal(ours.encoder.state_dict()[name], tensor), name


@pytest.mark.weights
def test_truncated_packaged_weights(whisper_dir: Path, tmp_path: Path) -> None:
    """The packaged file cut short is refused before any module is built."""
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(whisper_dir / name, tmp_path)
    with (whisper_dir / "model.bin").open("rb") as file:
        (tmp_path / "model.bin").write_bytes(file.read(1_000_000))
    with pytest.raises(BadWeights, match=r"model\.bin: decoder/embeddings/weight: expected bytes"):
        load_checkpoint(tmp_path)


def test_json_that_is_no_text(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are a named error too."""
    path = tmp_path / "config.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(BadWeights, match="content: expected JSON"):
        read_json(path)
