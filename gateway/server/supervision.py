"""Keeps engine and encoder processes running: beside a gateway, or alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Iterable, Sequence

from headstart.gateway.engines.engines import Engines, Member
from headstart.gateway.errors import ChildKeepsDying, ChildRefused
from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import ChildProcess

log = logging.getLogger("headstart.serve")

FOREVER_S = 3600.0
GIVEN_UP: dict[type[BaseException], str] = {
    ChildKeepsDying: "it died several times before it was ready, and was given up",
    ChildRefused: "it refused its settings, and was given up",
}
"""Errors of one engine's process that do not concern others, and what its state then says."""


async def supervise(engines: Engines, encoder: ChildProcess | None = None) -> None:
    """Keep a server's own engines, and their encoder process, running until all engines have been
    drained and no others may connect. One that keeps dying, or refuses its settings, is given up
    while others work. The last one to fail ends the server, and so does the encoder process if it
    fails before an engine was ever ready. Raises `ChildRefused`, `ChildKeepsDying`."""
    running = {
        tasks.awaited(member.child.run(), "supervisor"): member
        for member in engines.members.values()
        if member.child is not None
    }
    encoding = [] if encoder is None else [tasks.awaited(encoder.run(), "supervisor")]
    try:
        while running:
            done, _ = await asyncio.wait([*running, *encoding], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if task in encoding:
                    encoding.clear()
                    _judge_encoder(task, engines)
                else:
                    member = running.pop(task)
                    _judge_engine(task, member, running.values(), engines)
        while engines.endpoint is not None:
            await asyncio.sleep(FOREVER_S)
    finally:
        for task in [*running, *encoding]:
            task.cancel()
        await asyncio.gather(*running, *encoding, return_exceptions=True)


def _judge_engine(
    task: asyncio.Task[None], member: Member, others: Iterable[Member], engines: Engines
) -> None:
    """An engine that is given up costs its own sessions while others work, else the server."""
    error = task.exception()
    if error is None:
        return
    others_work = any(other.state in ("ready", "draining") for other in others)
    if type(error) not in GIVEN_UP or not (others_work or engines.is_ready):
        raise error
    log.error("%s", error)
    member.link.give_up(GIVEN_UP[type(error)])


def _judge_encoder(task: asyncio.Task[None], engines: Engines) -> None:
    """An encoder process that is given up costs pictures; one that never worked, the server."""
    error = task.exception()
    if error is None:
        return
    if type(error) not in GIVEN_UP or not engines.is_ready:
        raise error
    log.error("%s", error)
    log.error("pictures fail until this server is started again")


async def supervise_alone(
    processes: Sequence[ChildProcess], encoder: ChildProcess | None = None
) -> None:
    """Keep processes without a gateway running, until SIGTERM or SIGINT, or until all are drained
    (SIGUSR1). `encoder`: their encoder process, which ends after them."""
    loop = asyncio.get_running_loop()
    running = [tasks.awaited(process.run(), "supervisor") for process in processes]
    encoding = [] if encoder is None else [tasks.awaited(_encode(encoder), "supervisor")]

    def end() -> None:
        for task in [*running, *encoding]:
            task.cancel()

    def drain() -> None:
        for process in processes:
            process.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.add_signal_handler(signal.SIGUSR1, drain)
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*running)
    finally:
        end()
        await asyncio.gather(*running, *encoding, return_exceptions=True)


async def _encode(encoder: ChildProcess) -> None:
    try:
        await encoder.run()
    except Exception as error:
        log.error("%s", error)
        log.error("pictures fail until these engines are started again")
