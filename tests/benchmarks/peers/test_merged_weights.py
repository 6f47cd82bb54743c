"""headstart.benchmarks.peers.merged_weights: llama.cpp gets the very weights of the engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from headstart.benchmarks.peers.merged_weights import merged
from headstart.engine.checkpoints.decoder_spec import DecoderSpec
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.decoder.adapter import Adapter
from headstart.engine.errors import BadWeights
from tests.engine.decoder.test_adapter import CONFIGS, Case


def test_a_merged_file_is_what_the_engine_computes(tmp_path: Path) -> None:
    """The same bytes in every tensor, the same metadata, the same logits; made once."""
    case = Case(tmp_path, CONFIGS["qwen2"])
    target = merged(case.gguf, case.folder, tmp_path / "deep" / "merged.gguf")
    before, after = GgufFile(case.gguf), GgufFile(target)
    assert {**after.metadata} == {**before.metadata}
    adapter = Adapter(case.folder, DecoderSpec.from_gguf(before))
    changed = 0
    for name, tensor in before.tensors.items():
        own = adapter.adapted(tensor, None)
        changed += own is not None
        assert np.array_equal(after.tensors[name].raw, tensor.raw if own is None else own)
    assert changed == len(adapter)
    wanted = case.logits(case.folder, "reference")
    case.gguf = target
    assert torch.equal(case.logits(None, "reference"), wanted)
    written_at_ns = target.stat().st_mtime_ns
    merged(case.gguf, case.folder, target)
    assert target.stat().st_mtime_ns == written_at_ns


def test_other_architectures_are_refused(tmp_path: Path) -> None:
    """Whose rows a GGUF file keeps in another order than the adapter."""
    case = Case(tmp_path, CONFIGS["llama"])
    with pytest.raises(BadWeights, match="expected qwen2, got llama"):
        merged(case.gguf, case.folder, tmp_path / "merged.gguf")
    assert not (tmp_path / "merged.gguf").exists()
