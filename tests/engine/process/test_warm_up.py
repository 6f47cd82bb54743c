"""A loaded model runs once before anybody comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.models.source import source_of
from headstart.engine.process.model_directory import assemble_source
from tests.engine.models import twins
from tests.engine.models.served import write_served, write_tokenizer


@pytest.mark.parametrize("family", ["omni", "qwen2"])
def test_every_path_runs_and_nothing_stays(tmp_path: Path, family: str) -> None:
    """A model that hears and sees answers a turn with both; one that only reads, a written one.
    Neither a failure nor a session nor a held block of K/V is left."""
    if family == "omni":
        write_served(tmp_path)
    else:
        twins.save(twins.qwen2(vocab_size=280), tmp_path)
        write_tokenizer(tmp_path)
    events: list[api.Event] = []
    phases: list[str] = []
    config = EngineConfig(model=str(tmp_path), kv_pool_bytes=1 << 22, threads=1, weights="fp32")
    source = source_of(config)
    assert source is not None
    engine, _ = assemble_source(
        source, config, events.append, lambda what, done, total: phases.append(what)
    )
    assert not [event for event in events if isinstance(event, api.Failed)]
    (finished,) = [event for event in events if isinstance(event, api.Finished)]
    heard, seen = finished.usage.input_audio, finished.usage.input_image
    assert finished.usage.output > 0
    assert (heard > 0, seen > 0) == ((family == "omni",) * 2)
    assert phases[0] == "tokenizer"
    assert {"weights", "warm-up"} <= set(phases)
    assert not engine.sessions
    engine.check_accounting()
