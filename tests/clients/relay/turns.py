"""A call through a TURN server that nobody here wrote, coturn: `turns TURNSERVER`.

Both ends can reach each other only there: the client gathers relay candidates and no others, and
sees none of the server's but those.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import av
import numpy as np
from aiortc import RTCConfiguration, RTCIceServer, RTCIceTransportPolicy

from headstart.gateway.audio.resample import StreamResampler
from tests.clients import servers, steps
from tests.gateway.transport.webrtc.peer import (
    Microphone,
    Peer,
    connect,
    ice_connections,
    post_offer,
    prepared,
)

USER, PASSWORD = "headstart", "a-long-password"
RELAY_WAIT_S = 20.0


@contextlib.contextmanager
def relay() -> Iterator[int]:
    """coturn on this machine: its port."""
    program = Path(sys.argv[1])
    port = next(free_ports())
    argv = [str(program), "-n", "--listening-ip=127.0.0.1", f"--listening-port={port}"]
    argv += ["--relay-ip=127.0.0.1", "--allow-loopback-peers", "--no-tls", "--no-dtls", "--no-cli"]
    argv += ["--lt-cred-mech", "--realm=headstart.test", f"--user={USER}:{PASSWORD}"]
    with tempfile.TemporaryDirectory() as folder:
        argv += [f"--{what}={folder}/{what}" for what in ("db", "pidfile")] + ["--log-file=stdout"]
        beside = {str(library.parent) for library in program.parents[2].glob("usr/lib/**/*.so*")}
        libraries = {} if shutil.which("turnserver") else {"LD_LIBRARY_PATH": ":".join(beside)}
        with (
            open(f"{folder}/log", "w") as log,
            subprocess.Popen(argv, stdout=log, stderr=log, env=os.environ | libraries) as process,
        ):
            try:
                wait_for(port, process, Path(folder, "log"))
                yield port
            finally:
                process.terminate()


def free_ports() -> Iterator[int]:
    """UDP ports of this machine that nobody has."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            yield free.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until somebody has the port. Raises `AssertionError` with the end of the log."""
    deadline_s = time.monotonic() + RELAY_WAIT_S
    while time.monotonic() < deadline_s and process.poll() is None:
        with socket.socket(type=socket.SOCK_DGRAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return
        time.sleep(0.1)
    raise AssertionError("the TURN server did not start:\n" + log.read_text()[-2000:])


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
