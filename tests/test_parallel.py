"""tests.parallel: how many processes, which files first, and that a fault of one ends the run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.parallel import LONGEST, workers

ROOT = Path(__file__).resolve().parents[1]
GIB = 1 << 30
WAIT_S = 120.0
SLEEPER = (sys.executable, "-c", "print(flush=True); import time; time.sleep(600)")


@pytest.mark.parametrize(
    ("chosen", "cores", "free_bytes", "expected"),
    [
        (None, 2, 24 * GIB, 2),
        (None, 64, 256 * GIB, 8),
        (None, 8, 10 * GIB, 3),
        (None, 4, 1 * GIB, 1),
        (None, 4, None, 4),
        ("", 2, None, 2),
        ("3", 2, 1 * GIB, 3),
        ("1", 64, None, 1),
    ],
)
def test_how_many(chosen: str | None, cores: int, free_bytes: int | None, expected: int) -> None:
    """One for each core that three GiB are free for, eight at most; what is chosen counts more."""
    assert workers(chosen, cores, free_bytes) == expected


@pytest.mark.parametrize("chosen", ["0", "-1", "two", "1.5"])
def test_what_is_no_number_of_workers_is_named(chosen: str) -> None:
    """With the variable."""
    said = f"HEADSTART_TEST_WORKERS must be .* got '{chosen}'"
    with pytest.raises(pytest.UsageError, match=said):
        workers(chosen, 2, None)


def test_the_longest_files_are_there() -> None:
    """Each once."""
    assert [name for name in LONGEST if not (ROOT / name).is_file()] == []
    assert len(set(LONGEST)) == len(LONGEST)


def until(condition: Callable[[], object], running: subprocess.Popen[str] | None = None) -> None:
    """Waits; at the latest until `running` has ended."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert running is None or running.poll() is None, running.communicate()[0]
        assert time.monotonic() < end_s, "it never came true"
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, whoever is to ask for its exit code."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def suite(folder: Path, *options: str, **files: str) -> subprocess.Popen[str]:
    """pytest over test files of these contents, in two workers, with the project's options."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    outer = ("PYTEST_", "COV")  # of the run that this test is in
    environment = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    argv = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-n", "2"]
    argv += ["-p", "tests.parallel", "-p", "no:cacheprovider", f"--rootdir={folder}", *options]
    return subprocess.Popen(
        [*argv, str(folder)],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # a job's may be ignored
    )


def test_folders_of_a_worker_have_short_names(tmp_path: Path) -> None:
    """Each its own, hardly longer than without workers: sockets lie in them."""
    where = "def test_where(tmp_path): assert tmp_path.parent.name in '01', f'<{tmp_path}>'\n"
    folder, base = tmp_path / "tests", tmp_path / "base"
    folder.mkdir()
    with suite(folder, f"--basetemp={base}", test_one=where, test_two=where) as running:
        said, _ = running.communicate(timeout=WAIT_S)
    assert running.returncode == 0, said
    assert sorted(path.name for path in base.iterdir()) == ["0", "1"]


def test_a_test_that_nothing_interrupts_is_named_and_ends_the_run(tmp_path: Path) -> None:
    """Its own timeout is a signal, which code that never returns to Python does not see. The other
    worker's reports come, whatever is in them."""
    stuck = (
        "import ctypes, signal\n"
        "def test_stuck():\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "    ctypes.PyDLL(None).sleep(600)\n"
        "def test_one(): pass\n"
        "def test_two(): pass\n"
    )
    odd = (
        "import logging\n"
        "def test_odd():\n"
        "    logging.getLogger().warning('logged \\udc80')\n"
        "    assert False, 'compared \\udc80'\n"
    )
    limit = ("-o", "faulthandler_timeout=2")
    with suite(tmp_path, *limit, test_stuck=stuck, test_odd=odd) as running:
        said, _ = running.communicate(timeout=WAIT_S)
    assert running.returncode == 1, said
    assert re.search(r"worker 'gw\d' crashed while running 'test_stuck.py::test_stuck'", said), said
    assert 'test_stuck.py", line 4 in test_stuck' in said
    assert "compared \\udc80" in said
    assert re.search(r"WARNING .*logged \\udc80", said), said
    assert "a worker ended amid its tests; 3 tests were not finished" in said


def test_an_interrupt_ends_the_workers_and_their_servers(tmp_path: Path) -> None:
    """Sent to the process that was started: what a module started is ended as after its tests."""
    serving = (
        "import pathlib, subprocess, time, pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def server():\n"
        f"    process = subprocess.Popen({SLEEPER!r}, stdout=subprocess.DEVNULL)\n"
        "    yield process.pid\n"
        "    process.kill(); process.wait()\n"
        "def test_serving(server):\n"
        "    path = pathlib.Path(__file__)\n"
        "    path.with_suffix('.new').write_text(str(server))\n"
        "    path.with_suffix('.new').rename(path.with_suffix('.pid'))\n"
        "    time.sleep(600)\n"
    )
    with suite(tmp_path, test_one=serving, test_two=serving) as running:
        pids = [tmp_path / "test_one.pid", tmp_path / "test_two.pid"]
        try:
            until(lambda: all(path.exists() for path in pids), running)
        finally:
            running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=WAIT_S)
    assert running.returncode == pytest.ExitCode.INTERRUPTED, said
    assert all(is_gone(int(path.read_text())) for path in pids)


def test_servers_of_a_killed_worker_end() -> None:
    """A worker that does not end in time is killed, and cannot end what it started.

    The controller is a process of its own: it kills all that it has started, and the process that
    runs this test may have started a browser for other tests."""
    worker = f"import subprocess; p = subprocess.Popen({SLEEPER!r}); p.wait()"
    controller = (
        "import contextlib, subprocess, sys, psutil\n"
        "from tests import parallel\n"
        "parallel.END_WAIT_S = 0.1\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {worker!r}], stdout=subprocess.PIPE)\n"
        "worker.stdout.readline()  # of the server\n"
        "(server,) = psutil.Process(worker.pid).children()\n"
        "finish = parallel.Controller().pytest_sessionfinish()\n"
        "next(finish)\n"
        "worker.kill()\n"
        "with contextlib.suppress(StopIteration):\n"
        "    next(finish)\n"
        "print(server.pid)\n"
    )
    said = subprocess.check_output(
        [sys.executable, "-c", controller],
        cwd=ROOT,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    pid = int(said)
    until(lambda: is_gone(pid))


def test_servers_of_a_worker_that_the_system_killed_end(tmp_path: Path) -> None:
    """As for want of memory: its servers are nobody's children then."""
    killed = (
        "import os, pathlib, signal, subprocess\n"
        "def test_killed():\n"
        f"    process = subprocess.Popen({SLEEPER!r}, stdout=subprocess.DEVNULL)\n"
        "    pathlib.Path(__file__).with_suffix('.pid').write_text(str(process.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with suite(tmp_path, test_killed=killed, test_other="def test_other(): pass\n") as running:
        said, _ = running.communicate(timeout=WAIT_S)
    pid = int((tmp_path / "test_killed.pid").read_text())
    try:
        assert running.returncode == 1, said
        assert "a worker ended amid its tests; 1 tests were not finished" in said
        until(lambda: is_gone(pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
