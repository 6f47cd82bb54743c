"""A minute of what `headstart bench soak` does for an hour, over an engine without a model."""

from __future__ import annotations

import pytest

from headstart.benchmarks.soak.run import FAKE_ENGINE, Options, soak


@pytest.mark.timeout(420)
async def test_a_server_ends_where_it_began() -> None:
    """Six sessions (two of them calls) at their worst, the engine killed meanwhile: nothing is
    left of them, no exception went uncaught, nobody heard another's words, and every promise was
    kept, to the witnesses of the faults too."""
    result = await soak(
        Options(
            "fake",
            6,
            minutes=0.4,
            live_minutes=0,
            faults_after_s=1,
            listen_live_s=(1, 3),
            fast_phase_max_s=25,
        )
    )
    assert result["ok"], result
    assert result["fds_delta"] == result["threads_delta"] == result["tasks_delta"] == 0
    assert result["kv_blocks_delta"] == result["sessions_delta"] == 0
    did = result["did"]
    assert did["fault: engine killed"] == 1
    assert {"type", "interrupt", "listen", "lie"} <= set(did)
    assert result["secrets_told"] > 0  # so a leaked one would have been told, too


@pytest.mark.timeout(240)
async def test_an_engine_that_mixes_up_its_sessions_is_caught() -> None:
    """The same check fails when answers repeat what others typed."""
    result = await soak(
        Options(
            "fake",
            4,
            minutes=0.15,
            live_minutes=0,
            faults_after_s=None,
            fake_engine=f"{FAKE_ENGINE} --leak",
        )
    )
    assert result["leaks"] > 0
    assert "leaks" in result["broken"]
