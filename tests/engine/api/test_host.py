"""What may be used, by the machine and by the limits of control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headstart.engine.api.host import Places, allowed_cores, available_bytes, usable_cores


def places(folder: Path, own: str = "0::/\n") -> Places:
    """A machine with 8 MiB available, and groups without limits."""
    made = Places(folder / "meminfo", folder / "cgroup", folder / "own")
    made.groups.mkdir()
    made.meminfo.write_text("MemTotal:  16 kB\nMemAvailable:    8192 kB\n")
    made.own_group.write_text(own)
    return made


def limit(group: Path, memory: str = "max\n", cpu: str = "max 100000\n") -> None:
    """3 MB of a group are taken, 2 MB of these by pages of files."""
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(memory)
    (group / "memory.current").write_text("3000000\n")
    (group / "memory.stat").write_text("anon 1000000\nfile 2000000\n")
    (group / "cpu.max").write_text(cpu)


def test_the_tighter_of_machine_and_container_counts(tmp_path: Path) -> None:
    """A container's limit where it is the lower one; file pages in it are free to take."""
    here = places(tmp_path)
    for memory, left in (("max\n", 8192 * 1024), ("5000000\n", 4_000_000), ("99000000\n", 1 << 23)):
        limit(here.groups, memory)
        assert available_bytes(here) == left


def test_limits_of_a_service_and_above_it_count(tmp_path: Path) -> None:
    """systemd's MemoryMax and CPUQuota are set on a service, or on the slice that it is in."""
    here = places(tmp_path, "1:name=systemd:/other\n0::/system.slice/headstart.service\n")
    service = here.groups / "system.slice" / "headstart.service"
    limit(service, "5000000\n")
    limit(service.parent, "4500000\n")
    assert available_bytes(here) == 3_500_000
    limit(service, "4000000\n")
    assert available_bytes(here) == 3_000_000


@pytest.mark.parametrize(
    ("cpu", "cores"),
    [
        ("max 100000\n", 64),
        ("9900000 100000\n", 64),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("20000 100000\n", 1),
        ("", 64),
    ],
)
def test_processor_time_is_limited_too(
    tmp_path: Path, cpu: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker run --cpus 2` on a machine of 64 cores; a part of a core is one."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    here = places(tmp_path)
    limit(here.groups, cpu=cpu)
    assert (usable_cores(here), allowed_cores()) == (cores, 64)


def test_unreadable_sources_give_none(tmp_path: Path) -> None:
    """No such files, or files of another form: None, and never a crash."""
    gone = tmp_path / "none"
    assert available_bytes(Places(gone, gone, gone)) is None
    odd = places(tmp_path, "0::/is/not/there\n")
    odd.meminfo.write_text("MemAvailable\nx: y\n")
    (odd.groups / "cpu.max").write_text("5 0\n")
    assert available_bytes(odd) is None
    assert usable_cores(odd) == allowed_cores()


def test_this_machine_has_some() -> None:
    """On Linux there is a number."""
    left = available_bytes()
    assert left is None or left > 1 << 20
    assert 1 <= usable_cores() <= allowed_cores()
