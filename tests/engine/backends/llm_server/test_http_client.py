"""The HTTP client of LLM servers, against real sockets that behave badly."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from headstart.engine.backends.llm_server.errors import LlmConnectionLost
from headstart.engine.backends.llm_server.http_client import (
    Arrived,
    Broken,
    Ended,
    HttpClient,
    HttpRequest,
    Outcome,
)

REPLY = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
WAIT_S = 30.0


class Closing:
    """A server that answers `answered` requests of each connection, and closes it at the next one
    without a reply, as if that had come just after it was closed."""

    def __init__(self, answered: int) -> None:
        self.answered = answered
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                for number in range(self.answered + 1):
                    read = connection.recv(65_536)
                    if read == b"end":
                        return
                    if read and number == 0:
                        self.connections += 1
                    if not read or number == self.answered:
                        break
                    connection.sendall(REPLY)

    def close(self) -> None:
        with socket.create_connection(self._listener.getsockname()) as last:
            last.sendall(b"end")
        self._thread.join()
        self._listener.close()


@pytest.fixture
def client() -> Iterator[HttpClient]:
    client = HttpClient()
    yield client
    client.close()


@contextlib.contextmanager
def closing(client: HttpClient, answered: int) -> Iterator[Closing]:
    """Such a server. The client's connections are closed first: the server reads from one."""
    server = Closing(answered)
    try:
        yield server
    finally:
        client.close()
        server.close()


def ended(client: HttpClient, server: Closing) -> list[Outcome]:
    """Send a request: all that comes of it."""
    client.send(HttpRequest(server.url, {"prompt": "hello"}))
    outcomes: list[Outcome] = []
    while not any(isinstance(outcome, Ended | Broken) for outcome in outcomes):
        assert client.wait(WAIT_S)
        outcomes += client.take()
    return outcomes


def test_a_kept_connection_that_was_closed_meanwhile_is_no_fault(client: HttpClient) -> None:
    """The request goes out once more, over a new connection, and nothing comes twice."""
    with closing(client, answered=1) as server:
        for count in (1, 2, 3):
            arrived, end = ended(client, server)
            assert isinstance(arrived, Arrived)
            assert isinstance(end, Ended)
            assert server.connections == count


def test_a_new_connection_that_is_closed_without_a_reply_is_lost(client: HttpClient) -> None:
    """Once: the server has had the request, so whoever sent it decides."""
    with closing(client, answered=0) as server:
        (broken,) = ended(client, server)
        assert isinstance(broken, Broken)
        assert isinstance(broken.error, LlmConnectionLost)
        assert server.connections == 1
