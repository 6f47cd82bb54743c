"""The encoder's own thread."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from headstart.engine import api
from headstart.engine.encoders.errors import EncoderAway
from headstart.engine.errors import BadSettings, EngineError, PictureNotEncoded
from headstart.engine.interfaces import View
from headstart.engine.kvcache.block_pool import BlockPool
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.process.encoder_thread import EncoderThread, PictureInThread
from headstart.engine.scheduling.batch_size import BatchSize
from headstart.engine.scheduling.encode_queue import EncodeQueue

PATIENCE_S = 60
LIMIT = 3


class SlowEncoder:
    """Encodes a picture when it may; its first byte says what becomes of it."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.threads: list[str] = []
        self.batches: list[list[int]] = []

    def takes_frames(self) -> bool:
        return False

    def size(self, image: api.Image, *, live: bool) -> tuple[int, int]:
        return 10, image.width

    def features(
        self, images: Sequence[api.Image], domains: Sequence[bytes], *, live: bool
    ) -> list[int]:
        self.threads.append(threading.current_thread().name)
        self.batches.append([image.rgb[0] for image in images])
        if threading.current_thread().name == "encoder":
            assert self.may.acquire(timeout=PATIENCE_S)
        for image in images:
            if image.rgb[0] == 200:
                raise BadSettings("picture", "another one", 200)
            if image.rgb[0] == 201:
                raise ValueError("an odd size")
            if image.rgb[0] == 202:
                raise SystemExit
            if image.rgb[0] == 203:
                raise EncoderAway
        return [image.rgb[0] for image in images]

    def view(self, features: int, image: api.Image, stream: Stream) -> View:
        ids = stream.soft.intern(np.full((1, 4), features, np.float32))
        return View(tuple(ids), str(features), str(features))


class Rig:
    def __init__(self, prepare: Callable[[], None] = lambda: None) -> None:
        self.encoder = SlowEncoder()
        queue: EncodeQueue[PictureInThread] = EncodeQueue(1_000, BatchSize(4), LIMIT)
        self.thread = EncoderThread(self.encoder, queue, prepare=prepare)
        self.stream = Stream("s", BlockPool(8, 4), 10, 100)

    def begin(self, image: api.Image, owner: str = "s") -> PictureInThread | None:
        return self.thread.begin(image, owner, b"", 0, live=False)

    def until_done(self, *pictures: PictureInThread | None) -> None:
        while not all(picture is None or picture.done for picture in pictures):
            assert select.select([self.thread.fileno()], [], [], PATIENCE_S)[0]
            self.thread.collect()

    def until_at_work(self) -> None:
        """The first picture is being encoded, so that others wait."""
        while not self.encoder.batches:
            threading.Event().wait(0.001)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.encoder.may.release(100)
    made.thread.close()


def picture(look: int, width: int = 1) -> api.Image:
    return api.Image(width, 1, bytes([look] * 3 * width))


def test_a_picture_is_encoded_there_and_taken_here(rig: Rig) -> None:
    """It is not done before somebody collects it; then nothing is computed again. The view says
    when it was encoded, not when it was taken; a picture encoded on the spot has no such time."""
    image = picture(1)
    before_ns = time.monotonic_ns()
    begun = rig.begin(image)
    assert begun is not None
    assert not begun.done
    rig.encoder.may.release()
    rig.until_done(begun)
    done_ns = time.monotonic_ns()
    view = rig.thread.encode_image(image, rig.stream)
    assert view.text == "1"
    assert view.encoded_ns is not None
    began_ns, ended_ns = view.encoded_ns
    assert before_ns <= began_ns < ended_ns <= done_ns
    assert rig.encoder.threads == ["encoder"]
    assert rig.thread.encode_image(picture(2), rig.stream).encoded_ns is None


def test_pictures_of_one_size_share_a_batch(rig: Rig) -> None:
    """What waits while another one is encoded; a picture of another size waits for the next."""
    images = [picture(1), picture(2), picture(3, width=2)]
    begun = [rig.begin(images[0])]
    rig.until_at_work()
    begun += [rig.begin(image) for image in [picture(4), *images[1:]]]
    rig.encoder.may.release(3)
    rig.until_done(*begun)
    assert rig.encoder.batches == [[1], [4, 2], [3]]
    assert [rig.thread.encode_image(image, rig.stream).text for image in images] == ["1", "2", "3"]


def test_what_is_too_much_is_encoded_within_the_step(rig: Rig) -> None:
    """Beyond the bound nobody waits, and the picture is seen all the same. So are frames of a model
    whose recogniser takes them."""
    begun = [rig.begin(picture(0))]
    rig.until_at_work()
    images = [picture(n + 1) for n in range(LIMIT + 1)]
    begun += [rig.begin(image) for image in images]
    assert begun[-1] is None
    assert rig.thread.begin(picture(9), "s", b"", 0, live=True) is None
    rig.encoder.may.release(100)
    rig.until_done(*begun)
    assert rig.thread.encode_image(images[-1], rig.stream).text == str(LIMIT + 1)
    assert rig.encoder.threads[-1] != "encoder"


def test_a_fault_is_its_pictures_own(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """A named error reaches the command that brought the picture; so does another one, which is
    logged too; the next picture is encoded."""
    images = [picture(look, width) for look, width in ((200, 1), (201, 2), (3, 3))]
    rig.encoder.may.release(100)
    rig.until_done(*[rig.begin(image) for image in images])
    with pytest.raises(BadSettings):
        rig.thread.encode_image(images[0], rig.stream)
    with pytest.raises(PictureNotEncoded, match="2 x 1"):
        rig.thread.encode_image(images[1], rig.stream)
    assert "could not be encoded" in caplog.text
    assert "an odd size" in caplog.text
    assert rig.thread.encode_image(images[2], rig.stream).text == "3"


@pytest.mark.parametrize(("look", "kind"), [(200, BadSettings), (201, PictureNotEncoded)])
def test_others_of_a_batch_are_encoded_without_a_bad_picture(
    rig: Rig, look: int, kind: type[EngineError]
) -> None:
    """They belong to other sessions, which do not notice."""
    images = [picture(1, width=2), picture(2), picture(look), picture(4)]
    begun = [rig.begin(images[0])]
    rig.until_at_work()
    begun += [rig.begin(image, owner) for image, owner in zip(images[1:], "tuv", strict=True)]
    rig.encoder.may.release(100)
    rig.until_done(*begun)
    assert rig.encoder.batches[1:] == [[2, look, 4], [2], [look], [4]]
    for image in (images[1], images[3]):
        assert rig.thread.encode_image(image, rig.stream).text == str(image.rgb[0])
    with pytest.raises(kind):
        rig.thread.encode_image(images[2], rig.stream)


def test_a_batch_that_its_encoder_process_was_lost_with_is_not_sent_again(rig: Rig) -> None:
    """One of its pictures may be what the process died of."""
    images = [picture(1, width=2), picture(2), picture(203)]
    begun = [rig.begin(images[0])]
    rig.until_at_work()
    begun += [rig.begin(image) for image in images[1:]]
    rig.encoder.may.release(100)
    rig.until_done(*begun)
    assert rig.encoder.batches == [[1], [2, 203]]
    for image in images[1:]:
        with pytest.raises(EncoderAway):
            rig.thread.encode_image(image, rig.stream)


def test_a_fault_within_a_step_has_a_name_too(rig: Rig) -> None:
    """So the engine reports it to the session, and does not end."""
    with pytest.raises(PictureNotEncoded, match="2 x 1"):
        rig.thread.encode_image(picture(201, width=2), rig.stream)


def test_without_the_thread_pictures_are_encoded_within_the_step(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Should it die, whoever waits is told at once, and the log says so."""
    last, other = picture(202), picture(5, width=2)
    begun = [rig.begin(last), rig.begin(other)]
    rig.encoder.may.release(100)
    rig.until_done(*begun)
    assert "the encoder thread died" in caplog.text
    assert rig.thread.encode_image(other, rig.stream).text == "5"
    assert rig.begin(picture(6)) is None


def test_a_closed_sessions_pictures_are_dropped(rig: Rig) -> None:
    """Those that wait are never encoded, and what was begun is not kept."""
    first, waiting, others = picture(1), picture(2), picture(3)
    begun = [rig.begin(first)]
    rig.until_at_work()
    begun += [rig.begin(waiting), rig.begin(others, "t")]
    rig.thread.forget("s")
    rig.encoder.may.release(100)
    rig.until_done(*begun)
    assert rig.encoder.batches == [[1], [3]]
    rig.thread.release([others])
    assert rig.thread.encode_image(others, rig.stream).text == "3"  # encoded anew
    assert len(rig.encoder.batches) == 3


def test_it_is_below_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    """The thread's own nice level is above the process's, so that decoding goes first."""
    import os

    found: list[int] = []

    def note() -> None:
        found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    with caplog.at_level(logging.WARNING):
        rig = Rig(prepare=note)
        rig.encoder.may.release(100)
        rig.until_done(rig.begin(picture(1)))
        rig.thread.close()
    assert found[0] == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5) or caplog.text


def test_the_end_cancels_a_call_that_has_just_begun() -> None:
    """It may not have seen the first word of it."""
    encoder = SlowEncoder()

    class Elsewhere:
        cancelled = 0
        closed = False

        def cancel(self) -> None:
            self.cancelled += 1
            if self.cancelled == 2:
                encoder.may.release()

        def close(self) -> None:
            self.closed = True

    remote = Elsewhere()
    queue: EncodeQueue[PictureInThread] = EncodeQueue(1_000, BatchSize(4), LIMIT)
    thread = EncoderThread(encoder, queue, remote=remote)
    assert thread.begin(api.Image(1, 1, bytes(3)), "s", b"", 0, live=False)
    while not encoder.batches:
        threading.Event().wait(0.001)
    thread.close()
    assert remote.cancelled >= 2
    assert remote.closed
