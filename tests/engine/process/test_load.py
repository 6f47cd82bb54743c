"""From a file to a model that can run."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine.config import EngineConfig
from headstart.engine.errors import BadSettings, BadWeights
from headstart.engine.process.load import load_model
from tests.engine.harness import finish, greedy, load_tiny
from tests.engine.tiny_gguf import QWEN2, write_tiny_gguf


def test_progress_is_reported_from_the_header_to_the_last_layer(tmp_path: Path) -> None:
    """Steps come in order and the weights count up to their total."""
    seen: list[tuple[str, int, int]] = []
    path = write_tiny_gguf(tmp_path / "x.gguf")
    load_model(path, EngineConfig(kv_pool_bytes=1 << 20), lambda *step: seen.append(step))
    assert [what for what, _, _ in seen[:2]] == ["header", "tokenizer"]
    assert [(done, total) for what, done, total in seen if what == "weights"] == [
        (layer, QWEN2.layers) for layer in range(QWEN2.layers + 1)
    ]


def test_a_session_is_bounded_by_the_settings_and_by_the_model(tmp_path: Path) -> None:
    """The smaller limit of the two is a stream's limit."""
    assert load_tiny(tmp_path, QWEN2, max_context_tokens=99).new_stream("s").limit == 99
    wide = load_tiny(tmp_path, QWEN2, max_context_tokens=10**6)
    assert wide.new_stream("s").limit == QWEN2.context_tokens


def test_blocks_are_what_the_pool_bytes_allow(tmp_path: Path) -> None:
    """The block pool and the memory agree; too few bytes for one block is `BadSettings`."""
    model = load_tiny(tmp_path, QWEN2)
    assert model.pool.num_blocks == model.cache.num_blocks == 64
    with pytest.raises(BadSettings):
        load_tiny(tmp_path, QWEN2, kv_pool_bytes=10)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """Nothing is half loaded."""
    path = write_tiny_gguf(tmp_path / "x.gguf")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(BadWeights, match="truncated"):
        load_model(path, EngineConfig())


@pytest.mark.weights
def test_the_small_model_knows_the_capital_of_france(qwen_path: Path) -> None:
    """Qwen2.5-Coder-0.5B with native kernels, greedy, its own chat template."""
    model = load_model(qwen_path, EngineConfig(kv_pool_bytes=64 << 20))
    stream = model.new_stream("s")
    stream.append(model.chat.system("You are a helpful assistant."))
    stream.append(model.chat.user_open)
    stream.append(model.tokenizer.encode("What is the capital of France?"))
    stream.append(model.chat.user_close_and_assistant_open)
    first = int(finish(model, stream).argmax())
    stream.append([first])
    answer = [first, *greedy(model, stream, 7)]
    assert model.tokenizer.decode(answer) == "The capital of France is Paris."
    assert answer[-1] in model.chat.stop_ids
