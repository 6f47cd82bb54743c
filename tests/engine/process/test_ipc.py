"""The engine's end of the wire, over real sockets."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from zmq.auth.thread import ThreadAuthenticator

from headstart.engine import api
from headstart.engine.api.keys import BadKeys, machine_id, make_keys, own_pair
from headstart.engine.process import ipc
from tests.engine.backends.llm_server.bench import ServerBench
from tests.engine.fakes import Bench

MODEL = api.ModelInfo("fake", 1, 1, 1, 1, 0.0)


@contextmanager
def gateway_socket(folder: Path) -> Iterator[tuple[zmq.Socket[bytes], str]]:
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    endpoint = f"ipc://{folder / 'e.sock'}"
    socket.bind(endpoint)
    try:
        yield socket, endpoint
    finally:
        socket.close(linger=0)
        context.term()


def receive(socket: zmq.Socket[bytes]) -> api.Event:
    assert socket.poll(60_000), "the engine said nothing for a minute"
    return api.decode_event(socket.recv())


def serve(
    endpoint: str, bench: Bench | None = None, name: str = ""
) -> tuple[ipc.GatewayLink, threading.Thread]:
    """An engine of scripted model services behind a real link, in a thread of its own."""
    ours = ipc.GatewayLink(endpoint, name)
    bench = bench or Bench()
    bench.engine._emit = ours.send

    def work() -> None:
        ours.serve(bench.engine, MODEL)
        ours.close()

    thread = threading.Thread(target=work)
    thread.start()
    return ours, thread


def test_a_refused_key_is_told_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """ZeroMQ gives up after a refusal; the key may be added later."""
    make_keys(tmp_path, ["a"])
    pair = own_pair(tmp_path / "gateway")
    asked: list[str] = []

    class Provider:
        def callback(self, domain: str, key: bytes) -> bool:
            asked.append(domain)
            return len(asked) > 2

    with zmq.Context() as context:
        authenticator = ThreadAuthenticator(context)
        authenticator.start()
        authenticator.configure_curve_callback("*", Provider())
        socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = pair.public, pair.secret
        number = socket.bind_to_random_port("tcp://127.0.0.1")
        link = ipc.GatewayLink(f"tcp://127.0.0.1:{number}", "", tmp_path / "a")
        link.model = MODEL
        try:
            until_s = time.monotonic() + 60
            while (len(asked) < 3 or not socket.poll(0)) and time.monotonic() < until_s:
                link.pump(wait_ms=50)
            assert len(asked) == 3
            assert isinstance(api.decode_event(socket.recv()), api.Ready)
        finally:
            link.close()
            authenticator.stop()
            socket.close(linger=0)
    told = [text for text in caplog.messages if "does not accept this engine's key" in text]
    assert len(told) == 1


def test_it_says_ready_answers_pings_and_works(tmp_path: Path) -> None:
    """Ready first; a ping is answered with stats; a question with its answer."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        ready = receive(socket)
        assert isinstance(ready, api.Ready)
        socket.send(api.encode(api.Ping(7)))
        stats = receive(socket)
        assert isinstance(stats, api.Stats)
        assert (stats.ping_sent_ns, stats.incarnation) == (7, ready.incarnation)
        socket.send(api.encode(api.Open("s", "Hi")))
        item = api.Item("u", api.Role.USER, (api.Text("one"),))
        socket.send(api.encode(api.AddItem("s", item)))
        socket.send(api.encode(api.Respond("s", 1, "a", api.Sampling(repetition_penalty=1.0))))
        text = ""
        while not isinstance(event := receive(socket), api.Finished):
            assert isinstance(event, api.Delta)
            text += event.text
        assert text == "You said: one."
        socket.send(api.encode(api.Ping(8)))
        stats = receive(socket)
        assert isinstance(stats, api.Stats)
        assert stats.recent_steps.count >= stats.recent_steps.decode_tokens > 0
        assert stats.recent_steps.prefill_tokens > 0
        assert stats.llm_server is None
        ours.stopping = True
        thread.join(60)
        assert not thread.is_alive()


def test_a_gateway_that_was_started_again_has_lost_its_sessions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """However soon it is back: its pings are another one's. The same one's change nothing."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        assert isinstance(receive(socket), api.Ready)

        def sessions_after_ping(gateway: str) -> int:
            socket.send(api.encode(api.Ping(7, gateway)))
            stats = receive(socket)
            assert isinstance(stats, api.Stats)
            return stats.sessions

        assert sessions_after_ping("first") == 0
        for name in ("s", "t"):
            socket.send(api.encode(api.Open(name, "Hi")))
        assert sessions_after_ping("first") == 2
        assert sessions_after_ping("second") == 0
        socket.send(api.encode(api.Open("s", "Hi")))
        assert sessions_after_ping("second") == 1
        ours.stopping = True
        thread.join(60)
        assert not thread.is_alive()
    assert "the gateway was started again: closed 2 sessions of before" in caplog.text


def test_its_stats_say_what_an_llm_server_was_asked(tmp_path: Path) -> None:
    """Where one decodes: here one question."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        bench = ServerBench()
        ours, thread = serve(endpoint, bench)
        assert isinstance(receive(socket), api.Ready)
        socket.send(api.encode(api.Open("s", "Hi")))
        item = api.Item("u", api.Role.USER, (api.Text("one"),))
        socket.send(api.encode(api.AddItem("s", item)))
        socket.send(api.encode(api.Respond("s", 1, "a", api.Sampling(repetition_penalty=1.0))))
        while not isinstance(receive(socket), api.Finished):
            pass
        socket.send(api.encode(api.Ping(8)))
        stats = receive(socket)
        assert isinstance(stats, api.Stats)
        assert stats.llm_server is not None
        assert stats.llm_server.requests["answer"] == 1
        assert sum(stats.llm_server.prompt_tokens["answer"].values()) > 0
        ours.stopping = True
        thread.join(60)
        assert not thread.is_alive()
        bench.close()


def test_a_gateway_that_comes_later_learns_that_the_engine_is_ready(tmp_path: Path) -> None:
    """Each handshake is answered by Ready, from the same engine."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        first = receive(socket)
    with gateway_socket(tmp_path) as (socket, _):
        second = receive(socket)
        assert isinstance(second, api.Ready)
        assert second == first
        ours.stopping = True
        thread.join(60)


def test_garbage_is_logged_and_survived(tmp_path: Path) -> None:
    """Bytes that are no command change nothing."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        assert isinstance(receive(socket), api.Ready)
        socket.send(b"\xc1garbage")
        socket.send(api.encode(api.Ping(1)))
        assert isinstance(receive(socket), api.Stats)
        ours.stopping = True
        thread.join(60)


def test_an_engine_that_drains_says_so_and_leaves_when_told(tmp_path: Path) -> None:
    """Also to a gateway that comes later. It works until it may leave."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        assert isinstance(receive(socket), api.Ready)
        ours.draining = True
        assert isinstance(receive(socket), api.Draining)
    with gateway_socket(tmp_path) as (socket, _):
        assert isinstance(receive(socket), api.Ready)
        assert isinstance(receive(socket), api.Draining)
        socket.send(api.encode(api.Ping(1)))
        assert isinstance(receive(socket), api.Stats)
        assert not ours.left
        socket.send(api.encode(api.Leave()))
        thread.join(60)
        assert not thread.is_alive()
        assert ours.left


def test_an_engine_says_who_it_is(tmp_path: Path) -> None:
    """Name, machine and process, for its gateway's pages and clock."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint, name="gpu-0")
        ready = receive(socket)
        assert isinstance(ready, api.Ready)
        assert (ready.engine, ready.pid) == ("gpu-0", os.getpid())
        assert ready.machine == machine_id() != ""
        socket.send(api.encode(api.Ping(1)))
        stats = receive(socket)
        assert isinstance(stats, api.Stats)
        assert 0 < stats.now_ns <= time.monotonic_ns()
        ours.stopping = True
        thread.join(60)


def test_an_address_of_others_is_not_used_without_keys(tmp_path: Path) -> None:
    """Nor with keys that are not there."""
    with pytest.raises(BadKeys, match="engine_keys"):
        ipc.GatewayLink("tcp://192.0.2.1:7070")
    with pytest.raises(BadKeys, match=r"own\.key_secret"):
        ipc.GatewayLink("tcp://192.0.2.1:7070", keys=tmp_path)


def test_an_engine_without_a_gateway_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no ping has come for a while, nobody would ever stop it: it ends by itself."""
    monkeypatch.setattr(ipc, "ORPHAN_AFTER_S", 0.0)
    with gateway_socket(tmp_path) as (_, endpoint):
        _, thread = serve(endpoint)
        thread.join(60)
        assert not thread.is_alive()


def test_a_paused_machine_makes_no_orphans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine and gateway stood still together: the engine waits for a ping as long as ever."""
    monkeypatch.setattr(ipc, "STOOD_STILL_S", 1.0)
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        assert isinstance(receive(socket), api.Ready)
        assert ours._engine is not None
        step, paused, went_on = ours._engine.step, threading.Event(), threading.Event()

        def pause() -> bool:
            if paused.is_set():
                went_on.set()
            else:
                monkeypatch.setattr(ipc, "ORPHAN_AFTER_S", 1.5)
                time.sleep(2.0)
                paused.set()
            return step()

        monkeypatch.setattr(ours._engine, "step", pause)
        assert paused.wait(60)
        thread.join(60)  # nobody pings, after all
        assert not thread.is_alive()
        assert went_on.is_set()


def test_a_beat_longer_than_an_orphans_wait_is_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large model may compute for longer than that; the pings meanwhile lie in the socket."""
    with gateway_socket(tmp_path) as (socket, endpoint):
        ours, thread = serve(endpoint)
        assert isinstance(receive(socket), api.Ready)
        assert ours._engine is not None
        step, beats = ours._engine.step, threading.Event()

        def long_step() -> bool:
            if not beats.is_set():
                monkeypatch.setattr(ipc, "ORPHAN_AFTER_S", 0.5)
                beats.set()
                time.sleep(0.8)
            else:  # it was judged in between, and is not again on this machine's time
                monkeypatch.setattr(ipc, "ORPHAN_AFTER_S", 60.0)
            return step()

        monkeypatch.setattr(ours._engine, "step", long_step)
        socket.send(api.encode(api.Ping(1)))
        assert beats.wait(60)
        socket.send(api.encode(api.Ping(2)))  # while it computes
        sent_ns = 0
        while sent_ns != 2:
            stats = receive(socket)
            sent_ns = stats.ping_sent_ns if isinstance(stats, api.Stats) else 0
        assert thread.is_alive()
        ours.stopping = True
        thread.join(60)
