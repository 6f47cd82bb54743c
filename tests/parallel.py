"""The suite in several processes: how many, which files first, and what ends with them.

pytest-xdist runs them; a file's tests stay together, so what a module sets up is set up once.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headstart.engine.api.host import available_bytes, usable_cores

WORKERS = "HEADSTART_TEST_WORKERS"
WORKERS_MAX = 8
WORKER_BYTES = 3 << 30
"""torch and the largest models of the tests are one; a real server beside them two."""
END_WAIT_S = 10.0

LONGEST = (
    "tests/engine/asr/test_every_processor.py",
    "tests/end_to_end/test_soak.py",
    "tests/web_demo/dashboard/test_screens.py",
    "tests/web_demo/dashboard/test_accessibility.py",
    "tests/web_demo/dashboard/test_recordings.py",
    "tests/engine/asr/test_recognizer.py",
    "tests/end_to_end/test_echo.py",
    "tests/web_demo/dashboard/test_feed.py",
    "tests/gateway/server/test_haproxy.py",
    "tests/web_demo/test_accessibility.py",
    "tests/web_demo/test_devices.py",
    "tests/engine/device/test_whisper.py",
    "tests/web_demo/test_real_server.py",
    "tests/gateway/transport/webrtc/test_call.py",
    "tests/engine/process/test_encoder_process.py",
    "tests/benchmarks/gpu/test_sessions.py",
    "tests/headstart/talk/connection/test_resumption.py",
    "tests/gateway/connection/test_pending.py",
)
"""Files that take longest, the longest first, as the end of a run lists them. They are begun first,
so that none is left over for one process while the others have ended."""


SHOWN, SHOWN_FROM_S = 20, 10.0
"""The longest files of a run, from so many seconds on, are listed at its end."""


def workers(chosen: str | None, cores: int, free_bytes: int | None) -> int:
    """How many processes run tests: `chosen`, else one for each core that has memory.

    Raises `pytest.UsageError` if `chosen` is no whole number from 1 on."""
    if chosen:
        if not chosen.isdecimal() or int(chosen) < 1:
            raise pytest.UsageError(f"{WORKERS} must be a whole number from 1 on, got {chosen!r}")
        return int(chosen)
    fitting = WORKERS_MAX if free_bytes is None else free_bytes // WORKER_BYTES
    return max(1, min(cores, fitting, WORKERS_MAX))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means. One worker is pytest itself, as without xdist."""
    number = workers(os.environ.get(WORKERS), usable_cores(), available_bytes())
    print(f"processes that test: {number} ({WORKERS} chooses another number)", flush=True)
    return 0 if number == 1 else number


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker the longest files come first; elsewhere the order stays."""
    if _is_worker(config):
        rank = {file: at for at, file in enumerate(LONGEST)}
        items.sort(key=lambda item: rank.get(file_of(item.nodeid), len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(config: pytest.Config) -> Generator[None, Any, Any]:
    """A worker sends its reports as UTF-8. What a test logged or compared may be no such text."""
    data = yield
    return encodable(data) if _is_worker(config) else data


def encodable(value: Any) -> Any:
    """A report's value with each lone surrogate as its escape."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {key: encodable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [encodable(each) for each in value]
    if isinstance(value, tuple):
        return tuple(encodable(each) for each in value)
    return value


class Controller:
    """What the process without tests of its own does for its workers."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.run_of_lost = ""
        self.ran: set[str] = set()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        """A worker that died is not replaced (`--max-worker-restart=0`): what killed one is named,
        and the others come to an end."""
        if error:
            self.lost.append(str(error))
            self.run_of_lost = node.workerinput["testrunuid"]

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.ran.add(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How much a lost worker left, and what `LONGEST` should have of this run."""
        reporter = terminalreporter
        if self.lost:
            left = reporter._session.testscollected - len(self.ran) if reporter._session else 0
            reporter.write_line(f"a worker ended amid its tests; {left} tests were not finished")
        longest = sorted(((s, file) for file, s in self.seconds.items()), reverse=True)
        long = [(s, file) for s, file in longest[:SHOWN] if s >= SHOWN_FROM_S]
        for seconds, file in long:
            reporter.write_line(f"{seconds:6.0f} s {file}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """xdist tells its workers to end, and kills what does not within ten seconds. Servers and
        browsers of a worker that was killed end here, then or amid the run."""
        family = psutil.Process().children(recursive=True)
        try:
            return (yield)
        finally:
            if self.run_of_lost:
                family += left_of(self.run_of_lost)
            for process in psutil.wait_procs(family, timeout=END_WAIT_S)[1]:
                process.kill()


def left_of(run: str) -> list[psutil.Process]:
    """What workers of a run have started, whoever is its parent now. (A worker names its run for
    them; its own environment, as it began, does not.)"""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # another user's, or ended meanwhile
            if process.environ().get("PYTEST_XDIST_TESTRUNUID") == run:
                found.append(process)
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if _is_worker(config) and config.option.basetemp is not None:
        # `popen-gw0` would make paths of sockets too long (107 characters) below some TMPDIR.
        folder = Path(config.option.basetemp)
        config.option.basetemp = str(folder.with_name(folder.name.removeprefix("popen-gw")))
    if not _is_worker(config) and config.getoption("tx", None):
        config.pluginmanager.register(Controller())
        # Several processes with as many torch threads as cores each: a thread that waits in a busy
        # loop for one that has no core costs ten times the work (measured). Bits do not change.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
