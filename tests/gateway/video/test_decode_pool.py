"""Pictures decoded in other processes, each session in its turn."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import AsyncIterator

import numpy as np
import psutil
import pytest

from headstart.engine.api import SMALL_PICTURE, Image, PictureSize
from headstart.gateway.protocol.errors import ProtocolError
from headstart.gateway.runtime import child_process
from headstart.gateway.video.decode import DecodedImage, Encoded, is_small
from headstart.gateway.video.decode_pool import Answer, Decoders, NoDecoder, ProcessDecoder
from headstart.gateway.video.sampling import THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH
from tests.gateway.protocol.files import black_png, chunk, header, png_file, zeros
from tests.gateway.shell_fakes import until
from tests.gateway.video.drawn import png

TINY = Encoded(png(32, 32, 9), "image")
BIG_TEXT = "x" * (2 << 20)  # too long to be small; the fakes do not look at it


def uri(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


@pytest.fixture
async def decoders() -> AsyncIterator[Decoders]:
    made = Decoders()
    yield made
    await made.stop()


class Alive:
    """A real decoder that is kept alive, used off the loop as the pool uses it."""

    def __init__(self, decoder: ProcessDecoder) -> None:
        self.decoder = decoder

    async def decode(self, encoded: Encoded) -> Answer:
        return await asyncio.to_thread(self.decoder.decode, encoded, SMALL_PICTURE)

    async def pid(self) -> int:
        """Its process's, once it has one."""
        await until(lambda: self.decoder.pid is not None)
        assert self.decoder.pid is not None
        return self.decoder.pid


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextlib.asynccontextmanager
async def kept_alive(decoder: ProcessDecoder) -> AsyncIterator[Alive]:
    living = asyncio.create_task(decoder.run())
    try:
        yield Alive(decoder)
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


def with_thumbnail(number: int) -> DecodedImage:
    thumbnail = np.zeros((THUMBNAIL_HEIGHT, THUMBNAIL_WIDTH), np.uint8)
    return DecodedImage(Image(1, 1, bytes([number, 0, 0])), thumbnail)


class Held(ProcessDecoder):
    """A decoder that is done with a picture when it is told to, and keeps the order."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order
        self.turn = threading.Semaphore(0)
        self.broken = False
        self.at = ""

    async def run(self) -> None:
        await asyncio.Event().wait()

    def stop(self) -> None:
        self.turn.release(1000)

    def decode(self, encoded: Encoded, size: PictureSize) -> Answer:
        self.at = encoded.param
        self._order.append(encoded.param)
        self.turn.acquire()
        if self.broken:
            raise OSError("no process can be started")
        if encoded.param.endswith("bad"):
            return ProtocolError("invalid_value", "bad", param=encoded.param)
        return with_thumbnail(len(self._order))


class HeldDecoders:
    """`Decoders` over two that are held; the first takes anything, the second small ones."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.made: list[Held] = []
        self.decoders = Decoders(self._make)
        self.decoders.start()

    def _make(self) -> Held:
        self.made.append(Held(self.order))
        return self.made[-1]

    def go_on(self, pictures: int = 100) -> None:
        for held in self.made:
            held.turn.release(pictures)

    def run(self, owner: str, *names: str, small: bool = False) -> asyncio.Task[object]:
        text = TINY.text if small else BIG_TEXT
        pictures = [Encoded(text, f"{owner}{name}") for name in names]
        return asyncio.create_task(self.decoders.run(owner, pictures, SMALL_PICTURE))


@pytest.fixture
async def held() -> AsyncIterator[HeldDecoders]:
    made = HeldDecoders()
    await until(lambda: len(made.made) == 2)
    yield made
    made.go_on()
    await made.decoders.stop()


async def test_sessions_have_turns(held: HeldDecoders) -> None:
    """Two with eight dear pictures each, then one with one: it waits for one of each."""
    tasks = [held.run("a", *"12345678"), held.run("b", *"12345678")]
    await until(lambda: held.order)
    tasks.append(held.run("c", "1"))
    await asyncio.sleep(0)  # until it waits, too
    held.go_on()
    await asyncio.gather(*tasks)
    assert held.order[:5] == ["a1", "b1", "c1", "a2", "b2"]
    assert sorted(held.order) == sorted([f"{o}{n}" for o in "ab" for n in "12345678"] + ["c1"])


async def test_small_pictures_have_a_way_past_dear_ones(held: HeldDecoders) -> None:
    """While a dear one is under way for ever, another session's small ones come through."""
    dear = held.run("a", "1", "2")
    await until(lambda: held.order == ["a1"])
    small = held.run("b", "1", "2", "3", small=True)
    await until(lambda: held.order == ["a1", "b1"])
    while not small.done():  # the other decoder stays where it is
        next(one for one in held.made if one.at.startswith("b")).turn.release()
        await asyncio.sleep(0.01)
    assert held.order == ["a1", "b1", "b2", "b3"]
    assert not dear.done()
    held.go_on()
    await dear


async def test_after_an_error_the_rest_is_forgotten(held: HeldDecoders) -> None:
    """The first that is wrong is the answer; those behind it are not decoded."""
    task = held.run("a", "1", "bad", "3", "4")
    await until(lambda: held.order)
    held.go_on(2)
    outcome = await task
    held.go_on()
    assert isinstance(outcome, ProtocolError)
    assert outcome.param == "abad"
    assert isinstance(await held.run("b", "1"), tuple)
    assert "a4" not in held.order


async def test_a_session_that_ends_takes_its_pictures_along(held: HeldDecoders) -> None:
    """What waits is forgotten; what is under way ends, and nobody minds."""
    task = held.run("a", "1", "2", "3")
    await until(lambda: held.order == ["a1"])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    held.go_on()
    assert isinstance(await held.run("b", "1"), tuple)
    assert held.order == ["a1", "b1"]


async def test_a_decoder_that_cannot_start_is_the_servers_fault(held: HeldDecoders) -> None:
    """An error by name, of the server's; the thread goes on with the next."""
    for one in held.made:
        one.broken = True
    held.go_on()
    outcome = await held.run("a", "1")
    assert isinstance(outcome, ProtocolError)
    assert (outcome.type, outcome.param) == ("server_error", "a1")
    for one in held.made:
        one.broken = False
    assert isinstance(await held.run("a", "2"), tuple)


@pytest.mark.parametrize(
    ("text", "small"),
    [
        (TINY.text, True),
        (TINY.text.partition(",")[2], True),
        ("no picture", True),
        (uri(png_file(header(1000, 4000), b"")), True),
        (uri(png_file(header(1001, 4000), b"")), False),
        (TINY.text + "A" * (1 << 20), False),
    ],
)
def test_small_is_few_bytes_and_few_pixels(text: str, small: bool) -> None:
    """By the file's beginning; what is no picture is refused at once, and small."""
    assert is_small(Encoded(text, "image")) == small


# --- real processes -----------------------------------------------------------------------------


async def test_the_loop_and_others_go_on_while_files_unfold(decoders: Decoders) -> None:
    """Files that unfold into gigabytes, one after the other, of two sessions: another session's
    pictures are there before either of them is through, which takes the loop as well."""
    text = chunk(b"zTXt", b"k\0\0" + zeros(256 << 20))
    bombs = [
        Encoded(uri(black_png(32, 32, text)), "image"),
        Encoded(uri(png_file(header(32, 32), zeros(256 << 20))), "image"),
        Encoded(uri(black_png(3000, 3000)), "image"),
    ]
    await decoders.run("w", [TINY], SMALL_PICTURE)
    attacks = [asyncio.create_task(decoders.run(n, bombs[::-1], SMALL_PICTURE)) for n in "ab"]
    for _ in range(4):
        assert isinstance(await decoders.run("c", [TINY], SMALL_PICTURE), tuple)
    assert not any(attack.done() for attack in attacks), "small pictures waited for large ones"
    for attack in attacks:
        outcome = await attack
        assert isinstance(outcome, ProtocolError)
        assert "it unfolds into more" in outcome.message


async def test_a_picture_that_is_late_costs_its_process_and_no_other() -> None:
    """Killed at its limit; the client has a sentence, the next picture a new process."""
    before = child_process.restarts["decoder"]
    async with kept_alive(ProcessDecoder(limit_s=2)) as alive:
        assert isinstance(await alive.decode(TINY), DecodedImage)
        first = await alive.pid()
        os.kill(first, signal.SIGSTOP)
        late = await alive.decode(TINY)
        assert isinstance(late, ProtocolError)
        assert "within 2 s" in late.message
        await until(lambda: not psutil.pid_exists(first))
        assert isinstance(await alive.decode(TINY), DecodedImage)
        assert await alive.pid() != first
    assert child_process.restarts["decoder"] == before + 1


async def test_a_decoder_that_breaks_is_started_anew() -> None:
    """Killed between two pictures nobody notices; in the middle of one, its client does. The one
    that breaks it again and again waits for no back-off, nor does the next client."""
    async with kept_alive(ProcessDecoder()) as alive:
        assert isinstance(await alive.decode(TINY), DecodedImage)
        pid = await alive.pid()
        os.kill(pid, signal.SIGKILL)
        while is_running(pid):
            time.sleep(0.01)  # so that the loop does not notice
        assert isinstance(await alive.decode(TINY), DecodedImage)
        for _ in range(4):
            pid = await alive.pid()
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
            broken = await alive.decode(TINY)
            assert isinstance(broken, ProtocolError)
            assert "breaks the decoder" in broken.message
            began_s = time.monotonic()
            assert isinstance(await alive.decode(TINY), DecodedImage)
            assert time.monotonic() - began_s < 4, "the fourth in a row would wait 4 s"
        assert psutil.pid_exists(await alive.pid())


async def test_a_decoder_that_ends_at_once_is_started_ever_more_rarely() -> None:
    """It is never given up; whoever waits for it meanwhile is told that it is the server's fault,
    and once it works again it serves."""
    decoder = ProcessDecoder(limit_s=1)
    good, decoder._child.argv = decoder._child.argv, [sys.executable, "-c", "raise SystemExit(2)"]
    async with kept_alive(decoder) as alive:

        async def works() -> bool:
            """One that has not ended yet looks as if it would work."""
            with contextlib.suppress(NoDecoder):
                return isinstance(await alive.decode(TINY), DecodedImage)
            return False

        await until(lambda: decoder._child.restarts >= 3)
        assert decoder._child.restarts < 6, "no loop of restarts"
        assert not await works()
        decoder._child.argv = good
        async with asyncio.timeout(60):
            while not await works():
                pass


def test_a_decoder_dies_with_a_killed_gateway() -> None:
    """One that stands still in the middle of a picture, too: it would not see its socket close."""
    code = (
        "import asyncio\n"
        "from headstart.gateway.video.decode_pool import ProcessDecoder\n"
        "async def main():\n"
        "    decoder = ProcessDecoder()\n"
        "    living = asyncio.create_task(decoder.run())\n"
        "    while decoder.pid is None: await asyncio.sleep(0.01)\n"
        "    print(decoder.pid, flush=True); await living\n"
        "asyncio.run(main())\n"
    )
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as gateway:
        assert gateway.stdout is not None
        decoder = psutil.Process(int(gateway.stdout.readline()))
        while decoder.cmdline()[1:3] != ["-P", "-m"]:
            time.sleep(0.01)  # until it is itself
        decoder.suspend()
        gateway.kill()
    decoder.wait(timeout=60)


async def test_a_pool_whose_loop_ended_begins_anew() -> None:
    """Its tasks ended with that loop, and its processes with them."""
    pool = Decoders()
    with asyncio.Runner() as runner:
        first = await asyncio.to_thread(runner.run, pool.run("a", [TINY], SMALL_PICTURE))
        assert isinstance(first, tuple)
        lanes = pool._lanes
        await asyncio.to_thread(runner.close)
    assert isinstance(await pool.run("a", [TINY], SMALL_PICTURE), tuple)
    assert pool._lanes != lanes
    await pool.stop()


async def test_nothing_is_left_at_the_end(decoders: Decoders) -> None:
    """Processes and threads are gone when `stop` returns, a picture that was under way too."""
    assert isinstance(await decoders.run("a", [TINY], SMALL_PICTURE), tuple)
    lanes = list(decoders._lanes)
    pids = [lane.decoder.pid for lane in lanes]
    big = Encoded(uri(black_png(6000, 6000)), "image")
    under_way = asyncio.create_task(decoders.run("a", [big], SMALL_PICTURE))
    await asyncio.sleep(0.1)
    await decoders.stop()
    assert isinstance(await under_way, ProtocolError)
    assert not any(psutil.pid_exists(pid) for pid in pids if pid is not None)
    assert not any(lane.thread is not None and lane.thread.is_alive() for lane in lanes)


async def test_memory_is_bounded() -> None:
    """A picture that takes more than a process may have is refused by name, and small ones are
    decoded by the same process afterwards."""
    async with kept_alive(ProcessDecoder(memory_mib=64)) as alive:
        outcome = await alive.decode(Encoded(uri(black_png(6000, 6000)), "image"))
        assert isinstance(outcome, ProtocolError)
        assert "more memory" in outcome.message
        pid = await alive.pid()
        assert isinstance(await alive.decode(TINY), DecodedImage)
        assert await alive.pid() == pid


async def test_memory_stands_still() -> None:
    """Of the process that decodes, over pictures and errors of a megabyte each."""
    noise = np.random.default_rng(0).bytes(1 << 20)
    broken = Encoded(uri(png_file(header(32, 32), noise)), "image")
    squeezed = zlib.compress(b"".join(b"\0" + noise[:3000] for _ in range(1000)), 0)
    good = Encoded(uri(png_file(header(1000, 1000), squeezed)), "image")
    sizes = []
    async with kept_alive(ProcessDecoder()) as alive:
        for _ in range(40):
            assert isinstance(await alive.decode(broken), ProtocolError)
            assert isinstance(await alive.decode(good), DecodedImage)
            sizes.append(psutil.Process(await alive.pid()).memory_info().rss)
    assert sizes[-1] - sizes[4] < 32 << 20


async def test_the_largest_picture_of_all_fits() -> None:
    """40 million pixels of four times 16 bits, half see-through."""
    squeezed = zeros(6324 * (1 + 8 * 6324))
    largest = Encoded(uri(png_file(header(6324, 6324, 16, 6), squeezed)), "image")
    async with kept_alive(ProcessDecoder(limit_s=100)) as alive:
        outcome = await alive.decode(largest)
    assert isinstance(outcome, DecodedImage)
    assert set(outcome.image.rgb) == {255}
