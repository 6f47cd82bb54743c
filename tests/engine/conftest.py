"""What an engine in a test leaves behind is put in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headstart.kernels import native
from tests.engine.backends.llm_server.bench import ServerBench
from tests.own_kernels import not_in_plain_torch

LOCAL, LLM_SERVER = "our decoder", "an LLM server"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module with `EITHER_BACKEND` run twice, on a `Bench` of each kind. Those marked
    `our_decoder` are about the local one."""
    either = getattr(metafunc.module, "EITHER_BACKEND", False)
    if either and metafunc.definition.get_closest_marker("our_decoder") is None:
        metafunc.parametrize("decoded_by", (LOCAL, LLM_SERVER), indirect=True)


@pytest.fixture(autouse=True)
def decoded_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What decodes in this test; its module's `Bench` is made to suit."""
    kind = getattr(request, "param", LOCAL)
    made: list[ServerBench] = []

    def make(*arguments: Any, **settings: Any) -> ServerBench:
        made.append(ServerBench(*arguments, **settings))
        return made[-1]

    if kind == LLM_SERVER:
        monkeypatch.setattr(request.module, "Bench", make)
    yield kind
    for bench in made:
        bench.close()


@pytest.fixture(scope="module", autouse=True)
def threads_as_before() -> Iterator[None]:
    """An engine takes the kernels' threads from torch; whoever comes next expects torch's."""
    yield
    native.set_threads(None)


@pytest.fixture
def our_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is said of bits is said of our kernels: such a test runs on them also where
    HEADSTART_KERNELS asks for plain torch, whose products round by the batch's shape."""
    with not_in_plain_torch(monkeypatch):
        yield
