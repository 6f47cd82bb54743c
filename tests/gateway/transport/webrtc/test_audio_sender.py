import asyncio

import av
import numpy as np
import pytest
from aiortc import RTCSessionDescription
from aiortc.mediastreams import MediaStreamError

from headstart.gateway.audio.clock import CLIENT_RATE_HZ, NS_PER_MS
from headstart.gateway.transport.webrtc.audio_sender import (
    FRAME_BYTES,
    FRAME_NS,
    FRAME_SAMPLES,
    QUEUE_SAMPLES_MAX,
    TAIL_FRAMES,
    AudioSender,
    Playout,
)
from headstart.gateway.transport.webrtc.codecs import Codec
from headstart.gateway.transport.webrtc.opus import packet_samples
from tests.gateway.shell_fakes import until
from tests.gateway.transport.webrtc.peer import Microphone, connect, offer_of, prepared
from tests.gateway.transport.webrtc.sound import Samples, pitch_hz, rms, sine


def played(playout: Playout, until_ns: int) -> list[tuple[int, bytes]]:
    frames = []
    while playout.due_ns is not None and playout.due_ns <= until_ns:
        frames.append((playout.due_ns, playout.take()))
    return frames


def test_one_frame_each_20_ms_and_a_silent_tail() -> None:
    """Three and a half frames of sound: four frames, the last one padded, then silence, then
    nothing."""
    playout = Playout()
    pcm = b"\1\0" * (FRAME_SAMPLES * 7 // 2)
    assert playout.put(pcm, 1000)
    frames = played(playout, 10**10)
    assert [at for at, _ in frames] == [1000 + i * FRAME_NS for i in range(4 + TAIL_FRAMES)]
    sound = b"".join(frame for _, frame in frames)
    assert sound.rstrip(b"\0") == pcm.rstrip(b"\0")
    assert all(len(frame) == FRAME_BYTES for _, frame in frames)
    assert playout.due_ns is None
    assert playout.sent_samples == FRAME_SAMPLES * 7 // 2


def test_after_a_pause_it_begins_at_once() -> None:
    """The pace is counted anew from the next word."""
    playout = Playout()
    playout.put(bytes(FRAME_BYTES), 0)
    played(playout, 10**10)
    playout.put(bytes(FRAME_BYTES), 60 * 10**9 + 7)
    assert playout.due_ns == 60 * 10**9 + 7


def test_clear_drops_what_is_not_sent() -> None:
    """Barge-in: the position stays, the rest is gone and counted."""
    playout = Playout()
    playout.put(bytes(FRAME_BYTES * 10), 0)
    played(playout, 2 * FRAME_NS)
    assert playout.clear() == 7 * FRAME_SAMPLES
    assert playout.queued_samples == 0
    assert playout.sent_samples == 3 * FRAME_SAMPLES
    assert not any(any(frame) for _, frame in played(playout, 10**10))


def test_it_stands_still_and_goes_on_where_it_stood() -> None:
    """Held: the silent tail, and then nothing; no sound is lost, nor is what comes meanwhile."""
    playout = Playout()
    playout.put(b"\1\0" * FRAME_SAMPLES * 3, 0)
    assert any(played(playout, 0)[0][1])
    playout.hold(True, FRAME_NS)
    tail = played(playout, 10**10)
    assert len(tail) == TAIL_FRAMES
    assert not any(any(frame) for _, frame in tail)
    playout.put(b"\2\0" * FRAME_SAMPLES, 10**10)
    assert playout.due_ns is None
    assert not playout.is_empty
    playout.hold(False, 2 * 10**10)
    sound = b"".join(frame for _, frame in played(playout, 10**11)).rstrip(b"\0")
    assert sound == (b"\1\0" * FRAME_SAMPLES * 2 + b"\2\0" * FRAME_SAMPLES).rstrip(b"\0")


def test_a_clear_ends_a_hold() -> None:
    """What is put behind an interruption is played."""
    playout = Playout()
    playout.put(bytes(FRAME_BYTES), 0)
    playout.hold(True, 0)
    assert playout.clear() == FRAME_SAMPLES
    played(playout, 10**10)
    playout.put(bytes(FRAME_BYTES), 2 * 10**10)
    assert playout.due_ns == 2 * 10**10


def test_what_was_sent_into_the_void_is_played_again() -> None:
    """From the frame after the peer's last sign of life, in order, and counted once."""
    playout = Playout()
    pcm = bytes(range(200)) * (FRAME_BYTES * 10 // 200)
    playout.put(pcm, 0)
    played(playout, 6 * FRAME_NS)
    playout.rewind(3 * FRAME_NS)
    assert playout.sent_samples == 4 * FRAME_SAMPLES
    assert playout.queued_samples == 6 * FRAME_SAMPLES
    playout.start(10**9)
    again = played(playout, 10**10)
    assert again[0][0] == 10**9
    assert b"".join(frame for _, frame in again[:6]) == pcm[4 * FRAME_BYTES :]
    assert playout.sent_samples == 10 * FRAME_SAMPLES


async def test_a_track_goes_on_where_another_stopped() -> None:
    """The new track plays what the old one had queued, and its place counts on."""
    before, after = AudioSender(lambda: 0), AudioSender(lambda: 0)
    before.put(bytes(3 * FRAME_BYTES))
    await before.recv()
    before.alive_ns = 0
    before.put(bytes(FRAME_BYTES))
    after.take_over(before)
    assert before.queued_samples == 0
    assert after.queued_samples == 3 * FRAME_SAMPLES
    assert after.sent_samples == FRAME_SAMPLES
    async with asyncio.timeout(60):
        await after.recv()
    assert after.sent_samples == 2 * FRAME_SAMPLES


def test_the_queue_is_bounded() -> None:
    """What does not fit is refused whole; half a sample is a mistake of ours."""
    playout = Playout()
    assert playout.put(bytes(2 * QUEUE_SAMPLES_MAX), 0)
    assert not playout.put(bytes(2), 0)
    assert playout.queued_samples == QUEUE_SAMPLES_MAX
    with pytest.raises(ValueError, match="even"):
        playout.put(b"\0", 0)


async def test_rtp_time_goes_on_in_pauses() -> None:
    """Two words ten seconds apart on the wire's clock, though nothing was sent between them."""
    now_ns = 5 * 10**9
    track = AudioSender(lambda: now_ns)
    track.put(bytes(FRAME_BYTES))
    first = await track.recv()
    for _ in range(TAIL_FRAMES):
        now_ns += FRAME_NS
        await track.recv()
    waiting = asyncio.create_task(track.recv())
    await asyncio.sleep(0)
    assert not waiting.done()
    now_ns = 15 * 10**9
    track.put(bytes(FRAME_BYTES))
    second = await waiting
    assert first.pts is not None
    assert second.pts is not None
    assert second.pts - first.pts == 10 * CLIENT_RATE_HZ
    assert packet_samples(bytes(second)) == 960
    track.stop()


@pytest.mark.parametrize(("codec", "ticks"), [(Codec.OPUS, 960), (Codec.PCMU, 160)])
async def test_it_may_send_by_itself(codec: Codec, ticks: int) -> None:
    """Each frame goes out with its RTP time, a pause included, and `recv` does not return."""
    now_ns = 0
    sent: list[tuple[bytes, int]] = []
    track = AudioSender(lambda: now_ns)
    track.codec = codec
    track.send = lambda payload, timestamp: sent.append((payload, timestamp))
    now_ns = 10**12  # nothing that is queued before is late
    sending = asyncio.create_task(track.recv())
    track.put(bytes(2 * FRAME_BYTES))
    now_ns += 2 * FRAME_NS + TAIL_FRAMES * FRAME_NS
    await until(lambda: len(sent) == 2 + TAIL_FRAMES)
    now_ns += 10**10
    track.put(bytes(FRAME_BYTES))
    await until(lambda: len(sent) > 2 + TAIL_FRAMES)
    assert not sending.done()
    times = [timestamp - sent[0][1] for _, timestamp in sent]
    assert times[: 2 + TAIL_FRAMES] == [i * ticks for i in range(2 + TAIL_FRAMES)]
    assert times[2 + TAIL_FRAMES] == (2 + TAIL_FRAMES + 500) * ticks
    assert all(payload for payload, _ in sent)
    sending.cancel()
    track.stop()


async def test_what_cannot_be_sent_is_told() -> None:
    """The call ends for a reason, and not in a task of aiortc's."""
    failures: list[BaseException] = []
    track = AudioSender(lambda: 0)
    track.on_failed = failures.append

    def fail(payload: bytes, timestamp: int) -> None:
        raise RuntimeError("no way")

    track.send = fail
    track.put(bytes(FRAME_BYTES))
    with pytest.raises(MediaStreamError):
        await track.recv()
    assert [str(error) for error in failures] == ["no way"]


async def test_it_tells_when_it_starts_and_stops() -> None:
    """Once each for a stretch of sound; a clear stops it at once."""
    now_ns = 0
    said: list[str] = []
    track = AudioSender(lambda: now_ns)
    track.on_started = lambda: said.append("started")
    track.on_stopped = lambda: said.append("stopped")
    track.put(bytes(FRAME_BYTES * 3))
    for i in range(3 + TAIL_FRAMES):
        now_ns = i * FRAME_NS
        await track.recv()
    assert said == ["started", "stopped"]
    track.put(bytes(FRAME_BYTES * 3))
    now_ns += 10 * NS_PER_MS
    await track.recv()
    assert track.clear() == 2 * FRAME_SAMPLES
    assert said == ["started", "stopped", "started", "stopped"]
    track.stop()


async def test_standing_still_is_no_stop() -> None:
    """The answer is not over: nothing is told until it is."""
    now_ns = 0
    said: list[str] = []
    track = AudioSender(lambda: now_ns)
    track.on_started = lambda: said.append("started")
    track.on_stopped = lambda: said.append("stopped")
    track.put(bytes(FRAME_BYTES * 3))
    await track.recv()
    track.hold(True)
    for _ in range(TAIL_FRAMES):
        now_ns += FRAME_NS
        await track.recv()
    assert said == ["started"]
    track.hold(False)
    for _ in range(2 + TAIL_FRAMES):
        now_ns += FRAME_NS
        await track.recv()
    assert said == ["started", "stopped"]
    track.stop()


async def test_a_peer_hears_it() -> None:
    """Over a real connection: a sine of a second arrives, at its pitch and strength."""
    track = AudioSender()
    async with prepared(Microphone(), data=False) as listener, prepared(data=False) as speaker:
        speaker.pc.addTrack(track)
        offer = RTCSessionDescription(await offer_of(listener.pc), "offer")
        await speaker.pc.setRemoteDescription(offer)
        await speaker.pc.setLocalDescription(await speaker.pc.createAnswer())
        await connect(listener, "", speaker.pc.localDescription.sdp)
        await until(lambda: listener.tracks)
        track.put(sine(440, 1.0, CLIENT_RATE_HZ).tobytes())
        heard: list[Samples] = []
        async with asyncio.timeout(60):
            # The last frames stay in that receiver's buffer.
            while sum(map(len, heard)) < 0.95 * 48_000:
                frame = await listener.tracks[0].recv()
                assert isinstance(frame, av.AudioFrame)
                heard.append(frame.to_ndarray()[0][::2])
        await until(lambda: track.sent_samples == CLIENT_RATE_HZ)
    sound = np.concatenate(heard)
    assert pitch_hz(sound[9600:38_400], 48_000) == pytest.approx(440, abs=1)
    assert rms(sound[9600:38_400]) == pytest.approx(8000 / 2**0.5, rel=0.2)
