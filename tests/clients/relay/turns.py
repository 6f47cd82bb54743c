"""A call through a TURN server that nobody here wrote (node-turn): `turns NODE RELAY_SCRIPT`.

Both ends can reach each other only there: the client gathers relay candidates and no others, and
sees none of the server's but those.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from typing import IO

import av
import numpy as np
from aiortc import RTCConfiguration, RTCIceServer, RTCIceTransportPolicy

from gateway.media.resample import StreamResampler
from tests.clients import servers, steps
from tests.gateway.rtc.peer import Microphone, Peer, connect, ice_connections, post_offer, prepared

USER, PASSWORD = "headstart", "a-long-password"
RELAY_WAIT_S = 20.0


@contextlib.contextmanager
def relay() -> Iterator[int]:
    """A TURN server on this machine: its port."""
    node, script = sys.argv[1:3]
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    argv = [node, script, str(port), USER, PASSWORD]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "up"
            yield port
        finally:
            process.terminate()


def serving(port: int, password: str, log: IO[str]) -> contextlib.AbstractContextManager[str]:
    """headstart behind that relay."""
    os.environ["HEADSTART_TURN_CREDENTIAL"] = password
    settings = ("voice=espeak", f"engine_args={servers.FAKE_ENGINE}", f"turn_username={USER}")
    return servers.serving(
        *settings, f"ice_servers=turn:127.0.0.1:{port}?transport=udp", engine="fake", log=log
    )


@contextlib.asynccontextmanager
async def calling(url: str, port: int | None) -> AsyncIterator[Peer]:
    """A call; with a `port` only through the relay there."""
    turn = RTCIceServer(f"turn:127.0.0.1:{port}?transport=udp", USER, PASSWORD)
    configuration = RTCConfiguration(iceServers=[])
    if port is not None:
        configuration = RTCConfiguration([turn], iceTransportPolicy=RTCIceTransportPolicy.RELAY)
    question = StreamResampler(24_000, 48_000).feed(steps.spoken_question())
    async with prepared(Microphone(question), configuration=configuration) as peer:
        response = await post_offer(peer, url)
        assert response.status_code == 201, response.text
        answer = response.text
        if port is not None:
            answer = re.sub(r"a=candidate:\S+ \d udp \d+ \S+ \d+ typ host\r\n", "", answer)
            assert "typ relay" in answer, answer
            assert "typ host" not in answer, answer
        await connect(peer, response.headers["Location"], answer)
        yield peer


async def spoken_turn(peer: Peer) -> str:
    """The question is heard and answered aloud; what came of it."""
    loud_s = 0.0

    async def listen() -> None:
        nonlocal loud_s
        while True:
            frame = await peer.tracks[0].recv()
            assert isinstance(frame, av.AudioFrame)
            if np.abs(frame.to_ndarray()).max() > 500:
                loud_s += frame.samples / frame.sample_rate

    listening = asyncio.create_task(listen())
    began_s = time.monotonic()
    transcription = {"transcription": {"model": "whisper-1"}}
    await peer.event("session.created")
    peer.send("session.update", session={"type": "realtime", "audio": {"input": transcription}})
    heard = await peer.event("conversation.item.input_audio_transcription.completed")
    assert heard["transcript"].startswith(steps.HEARD), heard
    said = await peer.event("response.output_audio_transcript.done", wait_s=60)
    assert said["transcript"].startswith(steps.ANSWER_BEGINS), said
    await peer.event("output_audio_buffer.stopped", wait_s=60)
    listening.cancel()
    assert loud_s > 3, f"{loud_s} s of sound"
    assert not [event for event in peer.events if event["type"] == "error"]
    return f"answered with {loud_s:.1f} s of sound in {time.monotonic() - began_s:.1f} s"


async def through_the_relay() -> str:
    """A spoken turn is answered, and what carries it is a pair of relays."""
    with relay() as port, tempfile.TemporaryFile("w+") as log, serving(port, PASSWORD, log) as url:
        async with calling(url, port) as peer:
            for connection in ice_connections(peer.pc):
                for pair in connection._nominated.values():
                    kinds = (pair.local_candidate.type, pair.remote_candidate.type)
                    assert kinds == ("relay", "relay"), kinds
            return await spoken_turn(peer)


async def wrong_credentials() -> str:
    """The log names the server and the settings, and the call goes its own way."""
    with relay() as port, tempfile.TemporaryFile("w+") as log:
        with serving(port, "wrong", log) as url:
            async with calling(url, None) as peer:
                assert "typ relay" not in peer.answer
                result = await spoken_turn(peer)
        log.seek(0)
        lines = [line for line in log if "TURN" in line]
        assert lines, "nothing in the log"
        assert f"127.0.0.1:{port} refuses us: 401" in lines[0], lines
        assert "turn_credential" in lines[0], lines
        assert "wrong" not in lines[0], "a password in the log"
        return f"{result}; log: {lines[0].strip()}"


if __name__ == "__main__":
    steps.run(
        "relay",
        {
            "a call through a TURN server": through_the_relay,
            "wrong credentials": wrong_credentials,
        },
    )
