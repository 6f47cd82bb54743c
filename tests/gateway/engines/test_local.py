"""What of a machine each of several engines gets, and how they are called."""

from __future__ import annotations

from headstart.engine.api.keys import NAME
from headstart.gateway.config import load
from headstart.gateway.engines.local import (
    Share,
    engine_argv,
    engine_environment,
    name_elsewhere,
    names,
    shares,
    shares_here,
)


def test_cores_are_divided_into_blocks() -> None:
    """Every core once, neighbours together, and a thread for each; one engine gets no limit."""
    assert shares(1, range(8)) == [Share()]
    four = shares(3, [0, 1, 2, 3, 8, 9, 10, 11])
    assert [share.cores for share in four] == [(0, 1), (2, 3, 8), (9, 10, 11)]
    assert [share.threads for share in four] == [2, 3, 3]
    assert shares(0, range(8)) == []


def test_engines_may_be_tied_to_no_core() -> None:
    """`pin_engines` false: so many threads each, wherever the system runs them."""
    assert shares(2, range(4), pin=False) == [Share(threads=2)] * 2
    assert shares_here(load(flags={"engines": 2, "pin_engines": False}))[0].cores == ()


def test_more_engines_than_cores_are_tied_to_none() -> None:
    """One thread each."""
    assert shares(3, [0, 1]) == [Share(threads=1)] * 3


def test_threads_of_the_settings_are_each_engines() -> None:
    """Also of a single one."""
    assert [share.threads for share in shares(2, range(8), threads=3)] == [3, 3]
    assert shares(1, range(8), threads=3) == [Share(threads=3)]


def test_each_engine_sees_one_of_several_gpus() -> None:
    """In turn; of a single GPU nothing is said."""
    assert [share.gpu for share in shares(3, range(8), gpus=["4", "5"])] == ["4", "5", "4"]
    assert [share.gpu for share in shares(2, range(8), gpus=["4"])] == ["", ""]
    settings = load(flags={"engines": 2})
    first, second = shares_here(settings, {"CUDA_VISIBLE_DEVICES": "1,3"})
    assert engine_environment(settings, first)["CUDA_VISIBLE_DEVICES"] == "1"
    assert engine_environment(settings, second)["CUDA_VISIBLE_DEVICES"] == "3"


def test_the_share_is_on_the_command_line() -> None:
    """And in the environment, for libraries that read it when they are loaded."""
    settings, share = load(), Share((2, 3), 2)
    argv = engine_argv(settings, "ipc:///x", "engine-2", share)
    assert argv[-6:] == ["--name", "engine-2", "--cores", "2,3", "--threads", "2"]
    assert engine_environment(settings, share)["OMP_NUM_THREADS"] == "2"


def test_engines_have_names() -> None:
    """Several of a server are counted; one that connects from elsewhere is known by its key, or by
    its host and process."""
    assert names(load()) == ["engine"]
    assert names(load(flags={"engines": 2})) == ["engine-1", "engine-2"]
    assert names(load(flags={"engines": 2, "engine_name": "gpu"})) == ["gpu-1", "gpu-2"]
    assert name_elsewhere(load(flags={"engine_keys": "/k"})) == ""
    assert name_elsewhere(load(flags={"engine_name": "a"})) == "a"
    assert NAME.fullmatch(name_elsewhere(load())) is not None
