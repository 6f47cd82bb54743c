"""An encoder process and its engines, over real sockets; what encodes is scripted."""

from __future__ import annotations

import socket as sockets
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq

from headstart.engine.api.keys import BadKeys, make_keys
from headstart.engine.encoders import server as server_module
from headstart.engine.encoders.client import EncoderClient, UnitOfPictures
from headstart.engine.encoders.errors import (
    EncoderBusy,
    EncoderFailed,
    EncoderTooSlow,
    WrongEncoder,
)
from headstart.engine.encoders.messages import (
    Cancel,
    Encode,
    Encoded,
    Failed,
    Picture,
    Size,
    Unit,
    header,
    read_reply,
)
from tests.engine.encoders.rig import HIDDEN, IDENTITY, PATIENCE_S, Served, picture, served, until
from tests.engine.encoders.test_messages import NESTED, NO_TEXT

Answer = list[list[Picture] | None]
REFUSED = "does not accept this engine's key"


class Engines:
    """Clients, each in a thread of its own, so that one waits while others ask."""

    def __init__(self, endpoint: str, *, identity: str = IDENTITY, limit_s: float = 60.0) -> None:
        self.endpoint, self.identity, self.limit_s = endpoint, identity, limit_s
        self._pool = ThreadPoolExecutor(16)

    def ask(
        self, name: str, *looks: int, domain: bytes = b"", still: bool = False
    ) -> Future[Answer]:
        """Have an engine show one picture of each look, as units of one message."""

        def call() -> Answer:
            client = EncoderClient(self.endpoint, self.identity, name, limit_s=self.limit_s)
            try:
                assert client.wait(lambda: None, PATIENCE_S)
                units = [UnitOfPictures([picture(look)], domain) for look in looks]
                return client.encode(units, still=still)
            finally:
                client.close()

        return self._pool.submit(call)


def looks_of(answer: Answer) -> list[float]:
    found = []
    for unit in answer:
        assert unit is not None
        ((vectors, rows, columns),) = [(p.vectors, p.rows, p.columns) for p in unit]
        assert (tuple(vectors.shape), rows, columns) == ((2, HIDDEN), 1, 2)
        found.append(float(vectors[0, 0]))
    return found


def raw(endpoint: str) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(endpoint)
    return socket


def asked(number: int, look: int, engine: str = "raw", within_ms: float = 60_000) -> list[bytes]:
    """A request for one picture, as it is sent."""
    unit = Unit((Size(2, 3),))
    encode = Encode(number, IDENTITY, engine, (unit,), within_ms=within_ms)
    return [header(encode), picture(look).tobytes()]


def test_two_engines_that_show_the_same_picture_cost_one_encode(address: str) -> None:
    """While it is being encoded, and afterwards; another share domain has it encoded again."""
    with served(address) as encoder:
        engines = Engines(encoder.endpoint)
        first = engines.ask("a", 1)
        until(lambda: encoder.encoder.looks)
        second = engines.ask("b", 1)
        until(lambda: encoder.server.joined == 1)
        encoder.encoder.may.release()
        assert looks_of(first.result(PATIENCE_S)) == looks_of(second.result(PATIENCE_S)) == [1]
        assert looks_of(engines.ask("c", 1).result(PATIENCE_S)) == [1]
        assert encoder.encoder.looks == [1]
        assert (encoder.server.encoded, encoder.server.joined, encoder.server.hits) == (1, 1, 1)
        encoder.encoder.may.release()
        assert looks_of(engines.ask("d", 1, domain=b"other").result(PATIENCE_S)) == [1]
        assert encoder.encoder.looks == [1, 1]


def test_one_message_may_show_the_same_picture_twice(address: str) -> None:
    """It is encoded once and answered once, in its places."""
    with served(address) as encoder:
        encoder.encoder.may.release(2)
        answer = Engines(encoder.endpoint).ask("a", 3, 4, 3).result(PATIENCE_S)
        assert looks_of(answer) == [3, 4, 3]
        assert sorted(encoder.encoder.looks) == [3, 4]


def test_engines_take_turns(address: str) -> None:
    """Whoever shows eight pictures at once does not go before one who shows one later."""
    with served(address) as encoder:
        engines = Engines(encoder.endpoint)
        first = engines.ask("many", 1)
        until(lambda: encoder.encoder.looks)
        many = engines.ask("many", *range(10, 18))
        until(lambda: len(encoder.server._queue) == 8)
        one = engines.ask("few", 50)
        until(lambda: len(encoder.server._queue) == 9)
        encoder.encoder.may.release(20)
        assert looks_of(many.result(PATIENCE_S)) == list(range(10, 18))
        assert looks_of(one.result(PATIENCE_S)) == [50]
        assert looks_of(first.result(PATIENCE_S)) == [1]
        assert encoder.encoder.looks.index(50) <= 2


def test_what_is_too_much_is_refused_and_the_rest_goes_on(address: str) -> None:
    """Beyond an engine's bound its message fails at once, whole; others are served."""
    with served(address, limit=2) as encoder:
        engines = Engines(encoder.endpoint)
        first = engines.ask("a", 1)
        until(lambda: encoder.encoder.looks)
        with pytest.raises(EncoderBusy):
            engines.ask("a", 2, 3, 4).result(PATIENCE_S)
        assert len(encoder.server._queue) == 0
        other = engines.ask("b", 5)
        encoder.encoder.may.release(20)
        assert looks_of(first.result(PATIENCE_S)) == [1]
        assert looks_of(other.result(PATIENCE_S)) == [5]


def test_waiting_pixels_are_bounded(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes, over all engines; what has been encoded does not count."""
    monkeypatch.setattr(server_module, "MAX_WAITING_BYTES", 2 * picture(0).nbytes)
    with served(address) as encoder:
        engines = Engines(encoder.endpoint)
        first = [engines.ask("a", 1), engines.ask("b", 2)]
        until(lambda: encoder.server._waiting_bytes == 2 * picture(0).nbytes)
        with pytest.raises(EncoderBusy):
            engines.ask("c", 3).result(PATIENCE_S)
        encoder.encoder.may.release(20)
        assert [looks_of(each.result(PATIENCE_S)) for each in first] == [[1], [2]]
        assert looks_of(engines.ask("c", 3).result(PATIENCE_S)) == [3]
        assert encoder.server._waiting_bytes == 0


def test_requests_are_bounded(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In number, over all engines: those for a picture that is under way take no bytes and no place
    in the queue, whatever limit of time they claim."""
    monkeypatch.setattr(server_module, "MAX_REQUESTS", 3)
    with served(address) as encoder:
        socket = raw(encoder.endpoint)
        for number in range(5):
            socket.send_multipart(asked(number, 1, f"engine {number}"))
        replies = []
        for _ in range(2):
            assert socket.poll(int(PATIENCE_S * 1e3))
            replies.append(read_reply(socket.recv_multipart())[0])
        assert replies == [Failed(number, EncoderBusy.code) for number in (3, 4)]
        encoder.encoder.may.release(20)
        for _ in range(3):
            assert socket.poll(int(PATIENCE_S * 1e3))
            assert isinstance(read_reply(socket.recv_multipart())[0], Encoded)
        socket.close()
        assert looks_of(Engines(encoder.endpoint).ask("a", 2).result(PATIENCE_S)) == [2]


def test_a_limit_of_time_that_is_no_number_is_over(address: str) -> None:
    """So no request stays for ever."""
    with served(address) as encoder:
        socket = raw(encoder.endpoint)
        socket.send_multipart(asked(1, 1))
        until(lambda: encoder.encoder.looks)
        socket.send_multipart(asked(2, 2, within_ms=float("nan")))
        socket.send_multipart(asked(3, 3))
        until(lambda: len(encoder.server._queue) == 1 and len(encoder.server._requests) == 2)
        encoder.encoder.may.release(20)
        for number in (1, 3):
            assert socket.poll(int(PATIENCE_S * 1e3))
            assert read_reply(socket.recv_multipart())[0].number == number
        socket.close()
        assert encoder.encoder.looks == [1, 3]


def test_nobody_encodes_what_nobody_waits_for(address: str) -> None:
    """A cancelled picture, and one whose time is over, leave the queue; a picture that somebody
    else waits for too stays."""
    with served(address) as encoder:
        socket, other = raw(encoder.endpoint), raw(encoder.endpoint)
        socket.send_multipart(asked(1, 1))
        until(lambda: encoder.encoder.looks)
        socket.send_multipart(asked(2, 2))
        socket.send_multipart(asked(3, 3))
        socket.send_multipart(asked(4, 4, within_ms=1))
        other.send_multipart(asked(1, 3))
        until(lambda: encoder.server.joined == 1)
        socket.send_multipart([header(Cancel(2))])
        socket.send_multipart([header(Cancel(3))])
        socket.send_multipart([header(Cancel(99))])
        until(lambda: len(encoder.server._queue) == 1)
        encoder.encoder.may.release(20)
        numbers = []
        for each in (socket, other):
            assert each.poll(int(PATIENCE_S * 1e3))
            reply, _ = read_reply(each.recv_multipart())
            assert isinstance(reply, Encoded)
            numbers.append(reply.number)
            each.close()
        assert numbers == [1, 1]
        assert encoder.encoder.looks == [1, 3]
        assert not encoder.server._requests
        assert not encoder.server._jobs


def test_garbage_is_nobodys_trouble(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """Messages that are none, requests without pixels, and bytes that are not ZeroMQ: logged, not
    without end, and the next picture is encoded."""
    with served(address) as encoder:
        socket = raw(encoder.endpoint)
        for _ in range(200):
            socket.send_multipart([b"garbage", b"more"])
            socket.send_multipart([b""])
        for odd in (NO_TEXT, NESTED):
            socket.send_multipart([odd])
        socket.send_multipart(asked(1, 1)[:1])
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as line:
            line.connect(encoder.endpoint.removeprefix("ipc://"))
            line.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
            encoder.encoder.may.release()
            answer = Engines(encoder.endpoint).ask("a", 7).result(PATIENCE_S)
            assert looks_of(answer) == [7]
        until(lambda: encoder.server._bad == 403)
        socket.close()
    told = [text for text in caplog.messages if "no request" in text]
    assert 0 < len(told) <= server_module.MAX_LOGGED


def test_a_fault_is_its_pictures_own(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """Others of its batch are encoded without it; its message fails by name, the log says why."""
    with served(address, together=4) as encoder:
        engines = Engines(encoder.endpoint)
        first = engines.ask("a", 1)
        until(lambda: encoder.encoder.looks)
        good = engines.ask("b", 2)
        until(lambda: len(encoder.server._queue) == 1)
        bad = engines.ask("c", 201)
        until(lambda: len(encoder.server._queue) == 2)
        encoder.encoder.may.release(20)
        assert looks_of(first.result(PATIENCE_S)) == [1]
        assert looks_of(good.result(PATIENCE_S)) == [2]
        with pytest.raises(EncoderFailed):
            bad.result(PATIENCE_S)
        assert "a fault of the test" in caplog.text


def test_a_slow_encoder_fails_by_name_and_later_works(address: str) -> None:
    """After the engine's limit; the late embeddings are not taken for another picture's."""
    with served(address) as encoder:
        engines = Engines(encoder.endpoint, limit_s=0.2)
        with pytest.raises(EncoderTooSlow, match=r"0\.2 s"):
            engines.ask("a", 1).result(PATIENCE_S)
        encoder.encoder.may.release(20)
        engines.limit_s = 60.0
        assert looks_of(engines.ask("a", 2).result(PATIENCE_S)) == [2]


def test_another_model_is_refused_by_both(address: str, caplog: pytest.LogCaptureFixture) -> None:
    """The encoder encodes nothing for an engine with another model; an engine takes nothing of an
    encoder that answers for another one."""
    with served(address, identity="another") as encoder:
        with pytest.raises(WrongEncoder):
            Engines(encoder.endpoint).ask("a", 1).result(PATIENCE_S)
        assert encoder.encoder.looks == []
        assert "encodes with another" in caplog.text
        encoder.server.identity = IDENTITY
        asking = Engines(encoder.endpoint).ask("a", 2)
        until(lambda: encoder.encoder.looks)
        encoder.server.identity = "swapped"
        encoder.encoder.may.release()
        with pytest.raises(WrongEncoder):
            asking.result(PATIENCE_S)


def test_a_still_may_be_none(address: str) -> None:
    """Of a model that treats stills like frames."""
    with served(address) as encoder:
        encoder.encoder.may.release()
        answer = Engines(encoder.endpoint).ask("a", 1, still=True).result(PATIENCE_S)
        assert answer == [None]


def test_an_engine_that_does_not_read_holds_up_nobody(address: str) -> None:
    """Nor does one that is gone: their answers are dropped."""
    with served(address) as encoder:
        gone = raw(encoder.endpoint)
        gone.send_multipart(asked(1, 1))
        until(lambda: encoder.encoder.looks)
        gone.close()
        encoder.encoder.may.release(20)
        assert looks_of(Engines(encoder.endpoint).ask("a", 2).result(PATIENCE_S)) == [2]


def test_it_ends_when_it_cannot_go_on(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With its thread, with a batch that hangs, or without its socket's file: then it is started
    again."""
    with served(address) as encoder:
        socket = raw(encoder.endpoint)
        socket.send_multipart(asked(1, 202))
        encoder.encoder.may.release()
        encoder.join()
        assert not encoder.server.stopping
        socket.close()
    with served(f"ipc://{tmp_path / 'b.sock'}", hang_s=0.1) as encoder:
        socket = raw(encoder.endpoint)
        socket.send_multipart(asked(1, 1))
        encoder.join()
        socket.close()
    with served(f"ipc://{tmp_path / 'c.sock'}") as encoder:
        (tmp_path / "c.sock").unlink()
        encoder.join()
    assert "the encoder thread died: this process ends" in caplog.text
    assert "takes longer than" in caplog.text
    assert "was removed" in caplog.text


def test_other_hosts_need_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without them no address beyond this machine is served or asked; with them only engines whose
    key is in the encoder's folder, the gateway's own among them, get an answer. A key may be added
    later; until then the engine's log says once what is missing."""
    with pytest.raises(BadKeys):
        Served("tcp://0.0.0.0:*")
    with pytest.raises(BadKeys):
        EncoderClient("tcp://192.0.2.1:7071", IDENTITY)
    folders = make_keys(tmp_path, ["a", "stranger"], encoder=True)
    assert [each.name for each in folders] == ["gateway", "encoder", "a", "stranger"]
    (tmp_path / "encoder" / "engines" / "stranger.key").unlink()
    with served("tcp://127.0.0.1:*", keys=tmp_path / "encoder") as encoder:
        encoder.encoder.may.release(20)
        answers: dict[str, bool] = {}

        def refused(client: EncoderClient, times: int) -> bool:
            """Whether the engine's log has said so often that a key is not accepted."""
            return client.wait(lambda: None, 0.1) or caplog.text.count(REFUSED) == times

        def try_as(name: str) -> None:
            client = EncoderClient(encoder.endpoint, IDENTITY, name, tmp_path / name)
            if name == "stranger":
                until(lambda: refused(client, 1))
            answers[name] = client.wait(lambda: None, 0 if name == "stranger" else PATIENCE_S)
            if answers[name]:
                assert looks_of(client.encode([UnitOfPictures([picture(4)])])) == [4]
            client.close()

        for name in ("a", "gateway", "stranger"):
            thread = threading.Thread(target=try_as, args=(name,))
            thread.start()
            thread.join()
        assert answers == {"a": True, "gateway": True, "stranger": False}
        client = EncoderClient(encoder.endpoint, IDENTITY, "late", tmp_path / "stranger")
        until(lambda: refused(client, 2))
        assert not client.wait(lambda: None, 0)
        key = tmp_path / "stranger" / "own.key"
        (tmp_path / "encoder" / "engines" / "stranger.key").write_bytes(key.read_bytes())
        assert client.wait(lambda: None, PATIENCE_S)
        client.close()
    assert caplog.text.count(REFUSED) == 2
