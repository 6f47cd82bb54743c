import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import psutil
import pytest

from headstart.gateway.config import load
from headstart.gateway.errors import ConfigError
from headstart.gateway.transport.webrtc import aiortc_hooks
from headstart.gateway.transport.webrtc import call as call_module
from headstart.gateway.transport.webrtc.call import describe_ice
from headstart.gateway.transport.webrtc.call_metrics import CallEnd
from headstart.gateway.transport.webrtc.calls import Calls
from headstart.gateway.transport.webrtc.rtp_clock import NetworkPath
from tests.gateway.shell_fakes import RunningGateway, running_gateway, until
from tests.gateway.transport.webrtc.peer import (
    Camera,
    Microphone,
    calling,
    delay,
    garble,
    lose,
    post_offer,
    prepared,
)
from tests.gateway.transport.webrtc.sound import pitch_hz, sine

FRAME_BYTES = 2 * 480  # 20 ms of s16 at 24 kHz
LATE_FRAMES = 40
"""A crowded machine may be this far behind when counting begins or ends; what is counted is long
enough that a clock which loses packets is further off."""


@pytest.fixture
async def running() -> AsyncIterator[RunningGateway]:
    async with running_gateway() as gateway:
        yield gateway


def ended(running: RunningGateway, end: CallEnd) -> float:
    calls = running.gateway.calls
    assert calls is not None
    return float(calls.metrics.calls.labels(end)._value.get())


async def test_events_go_both_ways(running: RunningGateway) -> None:
    """The data channel is the session's, as a WebSocket is: `session.created` comes first."""
    async with calling(running.url, Microphone()) as peer:
        await peer.event("session.created")
        assert peer.events[0]["type"] == "session.created"
        assert peer.channel is not None
        peer.channel.send("hello")
        assert (await peer.event("echo"))["text"] == "hello"
        peer.channel.send(b"1234567")
        assert (await peer.event("binary"))["size"] == 7


async def test_sound_is_heard_without_an_event(running: RunningGateway) -> None:
    """What the microphone's track carries reaches the session as 24 kHz mono, at its pitch."""
    async with calling(running.url, Microphone(sine(440, 5, 48_000))):
        session = running.sessions[0]
        await until(lambda: len(session.heard) >= 2 * 24_000 * 2)
        sound = np.frombuffer(bytes(session.heard[: 2 * 24_000 * 2]), np.int16)
        assert pitch_hz(sound[12_000:], 24_000) == pytest.approx(440, abs=0.5)


async def test_a_call_shows_how_its_sound_comes_in(running: RunningGateway) -> None:
    """For who watches, by session; nothing of it is left when it is over."""
    calls = running.gateway.calls
    assert calls is not None
    async with calling(running.url, Microphone(sine(440, 5, 48_000))):
        (session_id,) = running.gateway.runners
        assert running.gateway.hub.sessions[session_id].transport == "webrtc"
        await until(lambda: (calls.state_of(session_id) or {}).get("lost_share") is not None)
        state = calls.state_of(session_id)
        assert state is not None
        assert set(state) == {"lost_share", "jitter_ms", "buffer_ms", "rtt_ms", "concealed_ms"}
        assert 0 <= (state["lost_share"] or 0) < 1
        assert (state["jitter_ms"] or 0) >= 0
    await until(lambda: calls.state_of(session_id) is None)
    assert calls._carrying == {}


async def test_sound_that_the_engine_is_too_far_behind_for_is_counted(
    running: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a microphone sends meanwhile is dropped, as it cannot be held back; how much is a
    metric."""
    async with calling(running.url, Microphone(sine(440, 5, 48_000))):
        (runner,) = running.gateway.runners.values()
        monkeypatch.setattr(runner, "hear", lambda *_: False)
        assert running.gateway.calls is not None
        dropped_s = running.gateway.calls.metrics.sound_dropped_s
        await until(lambda: dropped_s._value.get() >= 0.5)


async def test_how_long_sound_is_under_way(running: RunningGateway) -> None:
    """With 60 ms there and 60 ms back the session is told that packets take 60 ms, as soon as one
    round trip was not held up by this machine; nothing before the first has been timed."""
    async with calling(running.url, Microphone(sine(440, 5, 48_000))) as peer:
        assert running.gateway.calls is not None
        (call,) = running.gateway.calls._calls.values()
        delay(call._peer, 0.06)
        delay(peer.pc, 0.06)
        call._path = NetworkPath()  # as if it had been so from the start
        session = running.sessions[0]
        session.under_way_ns.clear()
        await until(lambda: session.under_way_ns and min(session.under_way_ns) < 80e6)
        assert min(session.under_way_ns) >= 60e6


async def test_sound_is_heard_through_loss(running: RunningGateway) -> None:
    """With a fifth of the packets gone the session's clock keeps the microphone's time, and the
    sine in it is still a sine."""
    microphone = Microphone(sine(440, 20, 48_000))
    async with calling(running.url, microphone) as peer:
        session = running.sessions[0]
        await until(lambda: session.heard)
        lose(peer.pc, 0.2, seed=4)
        before, at = microphone.frames_sent, len(session.heard)
        await until(lambda: microphone.frames_sent >= before + 250)
        frames = (len(session.heard) - at) / FRAME_BYTES
        assert frames == pytest.approx(microphone.frames_sent - before, abs=LATE_FRAMES)
        heard = np.frombuffer(bytes(session.heard[at:]), np.int16)
        assert pitch_hz(heard, 24_000) == pytest.approx(440, abs=2)


async def test_garbage_is_lost_packets_and_no_more(running: RunningGateway) -> None:
    """Random and empty payloads and payload types nobody knows, three of four: the session's clock
    keeps the microphone's time, and the sine is heard as before once they end."""
    microphone = Microphone(sine(440, 20, 48_000))
    async with calling(running.url, microphone) as peer:
        session = running.sessions[0]
        await until(lambda: session.heard)
        transport: Any = peer.pc.getTransceivers()[0].sender.transport
        clean = transport._send_rtp
        garble(peer.pc, seed=2)
        before, at = microphone.frames_sent, len(session.heard)
        await until(lambda: microphone.frames_sent >= before + 150)
        frames = (len(session.heard) - at) / FRAME_BYTES
        assert frames == pytest.approx(microphone.frames_sent - before, abs=LATE_FRAMES)
        transport._send_rtp = clean
        await asyncio.sleep(0.3)
        at = len(session.heard)
        await until(lambda: len(session.heard) >= at + 48_000)
        sound = np.frombuffer(bytes(session.heard[at : at + 48_000]), np.int16)
        assert pitch_hz(sound, 24_000) == pytest.approx(440, abs=1)


async def test_the_camera_is_seen(running: RunningGateway) -> None:
    """A video track's newest picture reaches the session, in its colours and no larger than the
    session wants it, about once a second."""
    async with calling(running.url, Microphone(), Camera((200, 30, 30))):
        await until(lambda: len(running.sessions[0].seen) >= 2)
        image = running.sessions[0].seen[-1]
        assert (image.width, image.height) == (81, 61)  # of 320 x 240, and 5000 pixels wanted
        pixels = np.frombuffer(image.rgb, np.uint8).reshape(-1, 3).mean(axis=0)
        assert np.abs(pixels - (200, 30, 30)).max() < 15


async def test_a_call_without_a_data_channel(running: RunningGateway) -> None:
    """Sound alone makes a session; its events go nowhere and hold nothing up."""
    async with calling(running.url, Microphone(sine(300, 3, 48_000)), data=False):
        await until(lambda: len(running.sessions[0].heard) > 24_000)
    await until(lambda: running.sessions[0].closed)


@pytest.mark.parametrize("name", ["-", "m=audio 9"])
async def test_a_call_without_sound(running: RunningGateway, name: str) -> None:
    """A data channel alone makes one too, whatever the session's name in the offer looks like."""
    async with calling(running.url, edit=lambda sdp: sdp.replace("s=-", f"s={name}")) as peer:
        await peer.event("session.created")


async def test_a_peer_that_closes_is_gone_at_once(running: RunningGateway) -> None:
    """The session is closed and its slot free as soon as the peer says goodbye."""
    async with calling(running.url, Microphone()):
        assert len(running.gateway.runners) == 1
    await until(lambda: not running.gateway.runners)
    assert running.sessions[0].closed
    await until(lambda: ended(running, CallEnd.GONE) == 1)


async def test_a_peer_that_vanishes_is_noticed(running: RunningGateway) -> None:
    """Its sockets die without a word: the heartbeat ends the session (in 5 s, and a bit for a busy
    machine) long before the connection's own consent would expire, after 24 to 36 s."""
    async with calling(running.url, Microphone()) as peer:
        await until(lambda: running.sessions[0].heard)
        peer.vanish()
        began_s = asyncio.get_running_loop().time()
        await until(lambda: running.sessions[0].closed)
        assert asyncio.get_running_loop().time() - began_s < 20
    await until(lambda: ended(running, CallEnd.VANISHED) == 1)  # counted when all is closed


async def test_a_silent_peer_is_not_taken_for_a_vanished_one(running: RunningGateway) -> None:
    """Seven seconds without sound, events or anything: it answers the heartbeat, and stays."""
    async with calling(running.url) as peer:
        await asyncio.sleep(7)
        assert peer.channel is not None
        peer.channel.send("still here")
        await peer.event("echo")


async def test_a_peer_that_never_connects(
    running: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offer whose answer nobody takes up frees its slot after a while."""
    monkeypatch.setattr(call_module, "CONNECT_WAIT_S", 1.0)
    async with prepared(Microphone()) as peer:
        assert (await post_offer(peer, running.url)).status_code == 201
        await until(lambda: running.gateway.runners)
        await until(lambda: not running.gateway.runners)
    await until(lambda: ended(running, CallEnd.NEVER_CONNECTED) == 1)


async def test_a_session_that_hangs_up_ends_the_call(running: RunningGateway) -> None:
    """The last event arrives, then the connection closes."""
    async with calling(running.url, Microphone()) as peer:
        assert peer.channel is not None
        peer.channel.send("bye")
        assert (await peer.event("echo"))["text"] == "bye"
        await until(lambda: peer.pc.connectionState in ("closed", "failed"))
    await until(lambda: ended(running, CallEnd.SERVER) == 1)


async def test_a_bug_ends_one_call_only(running: RunningGateway) -> None:
    """An exception in one session's core ends its call; the neighbour talks on."""
    async with (
        calling(running.url, Microphone()) as first,
        calling(running.url, Microphone()) as second,
    ):
        assert first.channel is not None
        assert second.channel is not None
        first.channel.send("bug")
        await until(lambda: len(running.gateway.runners) == 1)
        second.channel.send("still there")
        assert (await second.event("echo"))["text"] == "still there"


async def test_a_reader_that_reads_nothing_is_shed(running: RunningGateway) -> None:
    """A flood no data channel can carry away ends the call instead of filling memory."""
    async with calling(running.url) as peer:
        assert peer.channel is not None
        peer.channel.send("flood 2000")
        await until(lambda: not running.gateway.runners)
        assert running.gateway.sessions_shed == 1


async def test_fifty_calls_leave_nothing_behind(running: RunningGateway) -> None:
    """Open, speak, show, close, fifty times: descriptors, threads and tasks end where they were
    after the first few (thread pools have grown by then)."""
    process = psutil.Process()

    async def once() -> None:
        async with calling(running.url, Microphone(sine(440, 1, 48_000)), Camera()) as peer:
            await peer.event("session.created")
        await until(lambda: not running.gateway.runners)

    def counts() -> tuple[int, int, int]:
        return process.num_fds(), threading.active_count(), len(asyncio.all_tasks())

    for _ in range(5):
        await once()
    await asyncio.sleep(0.2)
    before = counts()
    for _ in range(45):
        await once()
    await asyncio.sleep(0.2)
    after = counts()
    # The default executor may still grow by a thread, never by one a call.
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
    assert after[2] <= before[2]
    calls = running.gateway.calls
    assert isinstance(calls, Calls)
    assert len(calls) == 0


def test_ice_servers_as_settings_have_them() -> None:
    """URLs between spaces, with one login for all; none by default; other URLs are refused."""
    assert describe_ice(load().ice_servers, "", "") == []
    with pytest.raises(ConfigError, match="ice_servers"):
        load(flags={"ice_servers": "stun:a.example http://b.example"})
    stun, turn = describe_ice("stun:a.example turn:b.example:3478", "me", "secret")
    assert stun.urls == "stun:a.example"
    assert (turn.urls, turn.username, turn.credential) == ("turn:b.example:3478", "me", "secret")


async def test_a_connection_that_closes_slowly_closes_all_the_same(
    running: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a crowded machine. The call is over meanwhile, and nothing that it opened stays open."""
    monkeypatch.setattr(call_module, "CLOSE_WAIT_S", 0.05)
    closed = asyncio.Event()
    async with calling(running.url, Microphone()):
        assert running.gateway.calls is not None
        (call,) = running.gateway.calls._calls.values()
        (connection,) = aiortc_hooks._connections(call._peer)
        sctp = call._peer.sctp
        assert sctp is not None
        stop = sctp.stop

        async def slowly() -> None:
            await closed.wait()
            await stop()

        monkeypatch.setattr(sctp, "stop", slowly)
        protocols = list(connection._protocols)
        assert protocols
        call.hang_up()
        await until(lambda: "did not close in time" in caplog.text)
        await until(lambda: not running.gateway.runners)
        closed.set()
        await until(lambda: all(each.transport.is_closing() for each in protocols))
