"""The voice's process is kept alive, watched, and its death told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator

import pytest

from headstart.gateway.runtime import tasks
from headstart.gateway.runtime.child_process import FIRST_TRIES
from headstart.gateway.tts.choose import choose, missing
from headstart.gateway.tts.link import VoiceLink, VoiceOff
from headstart.gateway.tts.messages import ClauseDone, Speak, Stop, SynthesisedAudio
from headstart.gateway.tts.status import VoiceStatus
from tests.gateway.shell_fakes import until

HANGS = "import sys, time; from headstart.gateway.tts.messages import *; o = sys.stdout.buffer; \
o.write(pack(Loaded('deaf', 0.1))); o.flush(); time.sleep(60)"


class Listener:
    """One session's listener."""

    def __init__(self) -> None:
        self.events: list[SynthesisedAudio | ClauseDone] = []
        self.states: list[VoiceStatus] = []

    def voice_event(self, event: SynthesisedAudio | ClauseDone) -> None:
        self.events.append(event)

    def voice_changed(self, status: VoiceStatus) -> None:
        self.states.append(status)

    def said(self, generation: int) -> bool:
        return any(isinstance(e, ClauseDone) and e.generation == generation for e in self.events)


@contextlib.asynccontextmanager
async def link_to(*argv: str, stalled_s: float = 20.0) -> AsyncIterator[tuple[VoiceLink, Listener]]:
    async def command() -> list[str]:
        return list(argv)

    link, listener = VoiceLink(command, stalled_s), Listener()
    link.attach("s", listener)
    link.start()
    try:
        yield link, listener
    finally:
        await link.stop()


def espeak() -> tuple[str, ...]:
    return (sys.executable, "-m", "headstart.gateway.tts.worker", "espeak")


async def test_a_clause_comes_back_as_sound() -> None:
    """To the session that asked, and to no other."""
    async with link_to(*espeak()) as (link, listener):
        other = Listener()
        link.attach("other", other)
        assert not link.send(Speak("s", 0, 0, "too early"))
        await until(lambda: link.status.speaks)
        assert link.send(Speak("s", 1, 0, "Hello."))
        await until(lambda: listener.said(1))
        assert sum(e.samples for e in listener.events if isinstance(e, SynthesisedAudio)) > 5_000
        assert not other.events


async def test_a_killed_worker_is_told_and_started_again() -> None:
    """Killed from outside: sessions hear of it at once, and then of the new one, which speaks."""
    async with link_to(*espeak()) as (link, listener):
        await until(lambda: link.status.speaks)
        pid = link.pid
        assert pid is not None
        os.killpg(pid, signal.SIGKILL)
        await until(lambda: any(status.state == "lost" for status in listener.states))
        await until(lambda: link.status.speaks and link.pid not in (None, pid))
        link.send(Speak("s", 2, 0, "Here again."))
        await until(lambda: listener.said(2))
        lost = next(status for status in listener.states if status.state == "lost")
        assert "SIGKILL" in lost.reason
        assert link.restarts == 1


async def test_a_worker_that_hangs_is_killed() -> None:
    """It has work and says nothing: that is noticed and ended."""
    async with link_to(sys.executable, "-c", HANGS, stalled_s=0.5) as (link, listener):
        await until(lambda: link.status.speaks)
        assert link.send(Speak("s", 1, 0, "Hello?"))
        await until(lambda: any(status.state == "lost" for status in listener.states))


async def test_a_worker_that_was_stopped_may_be_silent() -> None:
    """Barge-in, and then quiet for longer than a worker with work may take: it lives. It owes what
    is asked for next, and is killed when that does not come."""
    async with link_to(sys.executable, "-c", HANGS, stalled_s=0.5) as (link, listener):
        await until(lambda: link.status.speaks)
        for generation, stop in ((1, Stop("s", 1)), (2, Stop("s"))):
            link.send(Speak("s", generation, 0, "Hello?"))
            link.send(Speak("s", generation, 1, "Are you there?"))
            link.send(stop)
        pid = link.pid
        await asyncio.sleep(1.5)
        assert (link.status.speaks, link.pid) == (True, pid)
        assert link.send(Speak("s", 3, 0, "Hello?"))
        await until(lambda: any(status.state == "lost" for status in listener.states))


async def test_a_voice_that_cannot_be_kept_alive_is_off() -> None:
    """Something nobody thought of: sessions go on in text, and are told; it is counted."""

    async def command() -> list[str]:
        raise ZeroDivisionError("a bug in the choice of a voice")

    before = tasks.failures["voice"]
    link, listener = VoiceLink(command), Listener()
    link.attach("s", listener)
    link.start()
    await until(lambda: link.status.state == "off")
    assert "a bug in the choice of a voice" in listener.states[-1].reason
    assert tasks.failures["voice"] == before + 1
    await link.stop()


async def test_a_worker_that_nobody_watches_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started again, with a watchdog."""

    hangs, broke = VoiceLink._hangs, list[VoiceLink]()

    def broken(link: VoiceLink) -> str | None:
        if broke:  # the link keeps the method, so undoing the patch would not reach it
            return hangs(link)
        broke.append(link)
        raise ZeroDivisionError("a bug in the watchdog")

    before = tasks.failures["voice watchdog"]
    monkeypatch.setattr(VoiceLink, "_hangs", broken)
    async with link_to(*espeak()) as (link, _):
        await until(lambda: link.restarts == 1 and link.status.speaks)
    assert tasks.failures["voice watchdog"] == before + 1


async def test_a_session_that_leaves_takes_its_work_along() -> None:
    """Whatever it had asked for: nobody waits for that any more."""
    async with link_to(sys.executable, "-c", HANGS, stalled_s=0.5) as (link, _):
        await until(lambda: link.status.speaks)
        link.attach("other", Listener())
        link.send(Speak("other", 1, 0, "Hello?"))
        link.detach("other")
        pid = link.pid
        await asyncio.sleep(1.5)
        assert (link.status.speaks, link.pid) == (True, pid)


async def test_a_worker_that_cannot_start_is_given_up() -> None:
    """With a reason, and without a loop of restarts."""
    async with link_to(sys.executable, "-c", "import sys; sys.exit(2)") as (link, _):
        await until(lambda: link.status.state == "off")
        assert link.restarts == 0
    async with link_to(sys.executable, "-c", "import sys; sys.exit(1)") as (link, _):
        await until(lambda: link.status.state == "off")
        assert link.restarts == FIRST_TRIES - 1
        assert "ended 3 times" in link.status.reason


async def test_what_a_worker_says_on_stderr_is_log(caplog: pytest.LogCaptureFixture) -> None:
    """Line by line and under the voice's name, where nothing in it passes for another record."""
    with caplog.at_level("INFO", "headstart.voice"):
        async with link_to(sys.executable, "-c", "import sys; sys.exit('no such voice')") as (
            link,
            _,
        ):
            await until(lambda: link.status.state == "off")
    said = [record for record in caplog.records if record.message == "no such voice"]
    assert said
    assert {record.name for record in said} == {"headstart.voice"}


async def test_nothing_is_left_at_the_end() -> None:
    """The process is gone when `stop` returns."""
    async with link_to(*espeak()) as (link, _):
        await until(lambda: link.status.speaks)
        pid = link.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_stop_is_obeyed_while_it_speaks() -> None:
    """A long clause that is stopped never ends."""
    async with link_to(*espeak()) as (link, listener):
        await until(lambda: link.status.speaks)
        link.send(Speak("s", 1, 0, "One. " * 200))
        link.send(Stop("s", 1))
        link.send(Speak("s", 2, 0, "Two."))
        await until(lambda: listener.said(2))


async def test_no_voice_is_a_choice_and_a_missing_extra_has_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reason is what people read in /status."""
    with pytest.raises(VoiceOff, match="none"):
        await choose("none")
    monkeypatch.setattr("headstart.gateway.tts.choose.missing", lambda voice: [f"lib{voice}"])
    with pytest.raises(VoiceOff, match=r"joe: the extra 'voice' is not installed \(libjoe\)"):
        await choose("auto")


async def test_the_setting_chooses() -> None:
    """Each voice has its command line."""
    assert (await choose("espeak"))[-1] == "espeak"
    assert missing("espeak") == []
    await asyncio.sleep(0)
