"""A client that stops its own process while the server sends.

`faults` runs it as `python -m headstart.benchmarks.soak.stuck URL MODEL`. It prints its port once
the server has started to send, and then stops until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

from websockets.asyncio.client import connect

from headstart.benchmarks.soak.sounds import noise_picture
from headstart.benchmarks.soak.visit import DEAF_EVENTS, NOISE_SIDE_PX
from headstart.talk.connection.address import realtime_url


async def main(url: str, model: str) -> None:
    """Ask for far more than is read, and stop reading; prints our port, by which the connection is
    known at the server's end."""
    content = [{"type": "input_image", "image_url": noise_picture(NOISE_SIDE_PX)}]
    item = {"id": "noise", "type": "message", "role": "user", "content": content}
    async with connect(realtime_url(url, model), compression=None) as socket:
        await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
        retrieve = json.dumps({"type": "conversation.item.retrieve", "item_id": "noise"})
        for _ in range(DEAF_EVENTS):
            await socket.send(retrieve)
        await socket.recv()
        print(socket.local_address[1], flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
