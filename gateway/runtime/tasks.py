"""Creates tasks whose failures are always noticed.

    own(work, name, failed)    a task that nobody awaits. If it raises, that is logged and counted
                               by `name`, and `failed` closes what depended on it
    awaited(work, name)        a task whose creator awaits it, and so gets its exception
    guard(call, name, failed)  as `own`, for a callback: the returned function never raises
    report(name, error)        logs and counts a failure that other code has caught
    unhandled                  the loop's exception handler: counts what libraries leave unhandled

Plain `asyncio` does none of this: the failure of a task that nobody awaits is noticed when it is
collected, if ever, and a callback that raises is a line in the log. A test finds tasks created
elsewhere (tests/gateway/runtime/test_tasks.py). Names are few and fixed, because they are labels of
a metric.

"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger("headstart.tasks")

UNOWNED = "unowned"

failures: Counter[str] = Counter()
"""Failures since the process started, by task."""

_running: set[asyncio.Task[Any]] = set()
"""The loop holds tasks weakly: without this one could be collected while it waits."""

Result = TypeVar("Result")
Given = ParamSpec("Given")
Failed = Callable[[BaseException], object]
"""Called on the loop with the exception, after it was logged and counted."""


def nothing_depends_on_it(error: BaseException) -> None:
    """For tasks whose failure affects nothing else."""


def own(work: Coroutine[Any, Any, Result], name: str, failed: Failed) -> asyncio.Task[Result]:
    """Run `work` as a task of its own; see the module's docstring. A cancellation is no failure."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(functools.partial(_ended, name, failed))
    return task


def awaited(work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
    """Run `work` as a task that the caller awaits on every path but its own cancellation."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def guard(call: Callable[Given, object], name: str, failed: Failed) -> Callable[Given, None]:
    """Wrap a callback for the loop, a timer or a library so that it never raises."""

    def guarded(*arguments: Given.args, **named: Given.kwargs) -> None:
        try:
            call(*arguments, **named)
        except Exception as error:
            _notify(name, failed, error)

    return guarded


def report(name: str, error: BaseException) -> None:
    """Log a failure with its traceback, and count it."""
    failures[name] += 1
    log.error("the task %r failed", name, exc_info=error)


def unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler: as asyncio's own, and counted."""
    if context.get("exception") is not None:
        failures[UNOWNED] += 1
    loop.default_exception_handler(context)


def _ended(name: str, failed: Failed, task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        _notify(name, failed, error)


def _notify(name: str, failed: Failed, error: BaseException) -> None:
    report(name, error)
    try:
        failed(error)
    except Exception as another:
        report(name, another)
