"""An ASGI application on a free port, served by a thread of the tests' process."""

from __future__ import annotations

import socket
import threading
import time

import uvicorn
from starlette.types import ASGIApp

START_WITHIN_S = 60.0


class ThreadedServer:
    """Serves `app` from `start` to `stop`, once."""

    def __init__(self, app: ASGIApp) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )

    def start(self) -> None:
        """Returns when it serves."""
        self._thread.start()
        deadline_s = time.monotonic() + START_WITHIN_S
        while not self._server.started:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"the server did not start within {START_WITHIN_S} s")
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(START_WITHIN_S)
        self._listener.close()
