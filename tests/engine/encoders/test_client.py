"""An engine's calls to an encoder process that is not there, goes away, or comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import zmq

from headstart.engine.encoders import client as client_module
from headstart.engine.encoders.client import EncoderClient, UnitOfPictures
from headstart.engine.encoders.errors import EncoderAway, EncoderFailed, EncoderStopped
from headstart.engine.encoders.messages import Block, Encoded, Failed, Picture, header
from headstart.engine.errors import PictureNotEncoded
from tests.engine.encoders.rig import IDENTITY, PATIENCE_S, picture, served, until

Answer = list[list[Picture] | None]


@pytest.fixture
def client(address: str) -> Iterator[EncoderClient]:
    made = EncoderClient(address, IDENTITY)
    yield made
    made.close()


class Beside:
    """The client's calls from a thread of its own, as the encoder thread makes them."""

    def __init__(self, client: EncoderClient) -> None:
        self._client, self._pool = client, ThreadPoolExecutor(1)

    def ask(self, look: int) -> Future[Answer]:
        return self._pool.submit(self._client.encode, [UnitOfPictures([picture(look)])])


def look_of(answer: Answer) -> float:
    (unit,) = answer
    assert unit is not None
    return float(unit[0].vectors[0, 0])


def test_a_picture_waits_for_an_encoder_that_is_being_started(
    address: str, client: EncoderClient
) -> None:
    """Beside the steps; nothing else of the engine waits."""
    asking = Beside(client).ask(1)
    with served(address) as encoder:
        encoder.encoder.may.release()
        assert look_of(asking.result(PATIENCE_S)) == 1


def test_without_one_it_fails_by_name(
    client: EncoderClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while; the next ones at once, and so do those within a step."""
    monkeypatch.setattr(client_module, "AWAY_WAIT_S", 0.2)
    monkeypatch.setattr(client_module, "STEP_WAIT_S", 0.1)
    beside = Beside(client)
    for _ in range(20):
        with pytest.raises(EncoderAway):
            beside.ask(1).result(PATIENCE_S)
    with pytest.raises(PictureNotEncoded, match="not there"):
        client.encode([UnitOfPictures([picture(1)])])


def test_a_picture_is_lost_with_its_encoder_and_the_next_one_is_not(
    address: str, client: EncoderClient
) -> None:
    """The one under way fails at once, and is not sent again; one that waits for the next encoder
    gets it."""
    beside = Beside(client)
    with served(address) as encoder:
        asking = beside.ask(1)
        until(lambda: encoder.encoder.looks)
        encoder.server.stopping = True
        encoder.join()
        encoder.server._socket.close()
        with pytest.raises(EncoderAway, match="it ended"):
            asking.result(PATIENCE_S)
    asking = beside.ask(2)
    with served(address) as encoder:
        encoder.encoder.may.release(5)
        assert look_of(asking.result(PATIENCE_S)) == 2
        assert encoder.encoder.looks == [2]


def test_a_call_ends_with_its_session(address: str, client: EncoderClient) -> None:
    """It is cancelled from the engine's thread, and the encoder forgets it; the next call is not
    touched."""
    beside = Beside(client)
    with served(address) as encoder:
        other = EncoderClient(address, IDENTITY, "other")
        assert other.wait(lambda: None, PATIENCE_S)
        first = Beside(other).ask(1)
        until(lambda: encoder.encoder.looks)
        asking = beside.ask(2)
        until(lambda: len(encoder.server._queue) == 1)
        client.cancel()
        with pytest.raises(EncoderStopped):
            asking.result(PATIENCE_S)
        until(lambda: len(encoder.server._queue) == 0)
        client.cancel()  # nothing is under way
        asking = beside.ask(3)
        encoder.encoder.may.release(5)
        assert look_of(first.result(PATIENCE_S)) == 1
        assert look_of(asking.result(PATIENCE_S)) == 3
        assert encoder.encoder.looks == [1, 3]
        other.close()


def test_a_call_within_a_step_does_not_wait_for_those_beside(
    address: str, client: EncoderClient
) -> None:
    """Two connections: a step's picture that is known is there at once."""
    with served(address) as encoder:
        encoder.encoder.may.release()
        assert client.wait(lambda: None, PATIENCE_S)
        assert look_of(client.encode([UnitOfPictures([picture(1)])])) == 1
        asking = Beside(client).ask(2)
        until(lambda: encoder.encoder.looks == [1, 2])
        assert look_of(client.encode([UnitOfPictures([picture(1)])])) == 1
        assert not asking.done()
        encoder.encoder.may.release()
        assert look_of(asking.result(PATIENCE_S)) == 2


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ([b"garbage"], "Invalid MessagePack|malformed|Object|Expected"),
        ([header(Encoded(1, IDENTITY, ()))], "1 units were sent, 0 came back"),
        ([header(Encoded(1, IDENTITY, ((Block(1, 4),),))), bytes(3)], "expected bytes"),
        ([header(Failed(1, "no such code", "why"))], "why"),
    ],
)
def test_what_is_no_answer_is_not_taken_for_one(
    tmp_path: Path, said: list[bytes], fault: str
) -> None:
    """Of an encoder that has gone wrong: the picture fails, with a name. An answer to an earlier
    question is passed over."""
    with zmq.Context() as context:
        socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        address = f"ipc://{tmp_path / 'odd.sock'}"
        socket.bind(address)

        def answer() -> None:
            peer, *_ = socket.recv_multipart()
            socket.send_multipart([peer, header(Failed(99, "other"))])
            socket.send_multipart([peer, *said])

        thread = threading.Thread(target=answer)
        thread.start()
        client = EncoderClient(address, IDENTITY, limit_s=PATIENCE_S)
        assert client.wait(lambda: None, PATIENCE_S)
        with pytest.raises(EncoderFailed, match=fault):
            client.encode([UnitOfPictures([picture(1)])])
        thread.join()
        client.close()
        socket.close(linger=0)


def test_it_says_whether_there_is_one(address: str, client: EncoderClient) -> None:
    """Before an engine is ready, while something else goes on."""
    ticks: list[float] = []
    assert not client.wait(lambda: ticks.append(time.monotonic()), 0.5)
    assert ticks
    with served(address):
        assert client.wait(lambda: None, PATIENCE_S)
