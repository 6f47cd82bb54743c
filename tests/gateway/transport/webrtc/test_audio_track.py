import asyncio
import socket
import time

import uvloop

from headstart.gateway.runtime.tasks import nothing_depends_on_it
from headstart.gateway.transport.webrtc.audio_receiver import ReceivedAudio
from headstart.gateway.transport.webrtc.audio_track import AudioTrack
from headstart.gateway.transport.webrtc.receive_buffer import PieceKind
from tests.gateway.shell_fakes import until
from tests.gateway.transport.webrtc.sound import FORMATS, opus_packets, rtp, sine

AUDIO, CONCEALED = PieceKind.AUDIO, PieceKind.CONCEALED


async def test_a_hole_is_filled_although_nothing_more_comes() -> None:
    """The track's own timer lets out what waits behind a lost packet."""
    heard: list[ReceivedAudio] = []

    def hear(sound: ReceivedAudio) -> bool:
        heard.append(sound)
        return True

    track = AudioTrack(hear, FORMATS, nothing_depends_on_it)
    payloads = opus_packets(sine(440, 0.1, 48_000), 48_000)
    track.receive(rtp(0, payloads[0]))
    assert len(heard) == 1
    track.receive(rtp(2, payloads[2]))
    assert len(heard) == 1
    await until(lambda: len(heard) >= 3)
    assert [sound.kind for sound in heard[:3]] == [AUDIO, CONCEALED, AUDIO]
    track.close()


async def test_silence_goes_on_and_ends_with_the_track() -> None:
    """A microphone that falls silent is silence, until the track is closed."""
    heard = bytearray()

    def hear(sound: ReceivedAudio) -> bool:
        heard.extend(sound.pcm24k)
        return True

    track = AudioTrack(hear, FORMATS, nothing_depends_on_it)
    track.receive(rtp(0, opus_packets(sine(440, 0.1, 48_000), 48_000)[0]))
    await until(lambda: len(heard) > 2 * 24_000 * 0.3)
    assert track.intake.counters.stalls == 1
    track.close()
    length = len(heard)
    await asyncio.sleep(0.1)
    track.receive(rtp(1, b"\x78"))
    assert len(heard) == length


async def test_what_is_not_taken_is_counted() -> None:
    """A session too far behind drops sound; the track knows how much."""
    track = AudioTrack(lambda _: False, FORMATS, nothing_depends_on_it)
    track.receive(rtp(0, opus_packets(sine(440, 0.1, 48_000), 48_000)[0]))
    assert (track.take_dropped_bytes(), track.take_dropped_bytes()) == (2 * 480, 0)
    track.close()


def test_packets_that_waited_for_the_loop_are_not_called_missing() -> None:
    """A callback holds up the loop for longer than a stall's 200 ms; what came meanwhile lies in
    the socket. uvloop runs timers before it reads again, and yet no silence is inserted."""
    heard: list[ReceivedAudio] = []

    def hear(sound: ReceivedAudio) -> bool:
        heard.append(sound)
        return True

    async def run() -> None:
        payloads = opus_packets(sine(440, 0.5, 48_000), 48_000)
        track = AudioTrack(hear, FORMATS, nothing_depends_on_it)
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        near.setblocking(False)

        def read() -> None:
            number = near.recv(1)[0]
            track.receive(rtp(number, payloads[number]))
            if number == 0:
                for later in range(1, 16):
                    far.send(bytes([later]))
                time.sleep(0.3)  # holds up the loop

        with near, far:
            asyncio.get_running_loop().add_reader(near, read)
            far.send(bytes([0]))
            await until(lambda: len(heard) >= 16)
            asyncio.get_running_loop().remove_reader(near)
            track.close()

    uvloop.run(run())
    assert [sound.kind for sound in heard[:16]] == [AUDIO] * 16
