"""Encodes pictures in a thread of its own, at low priority, while the engine goes on.

`begin` queues a picture (`headstart.engine.scheduling.encode_queue`) and returns at once. The
engine waits for `fileno` beside its socket, calls `collect` when it is readable, and then takes the
picture with `encode_image`, which only has to intern its embeddings.

Bounds: those of the queue, for each session. A picture beyond them is encoded when it is taken,
within the step. So is every picture after the thread has died, which the engine's log reports.

A picture on which the encoder fails is its session's own fault: the others of its batch are encoded
without it, and the engine goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol

from headstart.engine.api import Image
from headstart.engine.background_thread import BackgroundThread
from headstart.engine.encoders.errors import EncoderFault
from headstart.engine.errors import EngineError, PictureNotEncoded
from headstart.engine.interfaces import View
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.scheduling.encode_queue import EncodeQueue

log = logging.getLogger("headstart.engine")

_LOWER_PRIORITY = 5  # nice levels below the engine: a quarter of a core that both want
_CLOSE_S = 5.0  # a large picture of a large model takes longer
_CLOSE_TRIES = 10


class SplitEncoder(Protocol):
    """An image encoder in two parts: `features` takes long and knows no stream; `view` does not."""

    def takes_frames(self) -> bool:
        """Whether live frames come to this encoder, and not to the recogniser."""
        ...

    def size(self, image: Image, *, live: bool) -> tuple[int, Hashable]:
        """A picture's tokens, and its level of detail: pictures of one level can be stacked."""
        ...

    def features(
        self, images: Sequence[Image], domains: Sequence[bytes], *, live: bool
    ) -> Sequence[Any]:
        """Encode pictures of one level, each for its share domain. May run in another thread, one
        call at a time."""
        ...

    def view(self, features: Any, image: Image, stream: Stream) -> View:
        """The tokens of a picture in `stream`."""
        ...


class Remote(Protocol):
    """The encoder process behind a `SplitEncoder`, if it has one."""

    def cancel(self) -> None:
        """Nobody wants what other threads are waiting for."""
        ...

    def close(self) -> None: ...


class PictureInThread:
    """`headstart.engine.interfaces.EncodedPicture`."""

    def __init__(self, image: Image, owner: str, domain: bytes, *, live: bool) -> None:
        self.image, self.owner, self.domain, self.live = image, owner, domain, live
        self.done = self.given_up = False
        self.features: Any = None
        self.encoded_ns = (0, 0)
        self.error: EngineError | None = None


class EncoderThread:
    """`headstart.engine.interfaces.ImageEncoder` and `PictureEncoding` over a `SplitEncoder`.

    All methods are for one thread, the engine's. `prepare` is called first in the other one.
    `remote`: what computes the features, if not this process; the two threads then need not take
    turns.
    """

    def __init__(
        self,
        encoder: SplitEncoder,
        queue: EncodeQueue[PictureInThread],
        clock: Callable[[], int] = time.monotonic_ns,
        prepare: Callable[[], None] = lambda: None,
        remote: Remote | None = None,
    ) -> None:
        self._encoder, self._queue, self._clock, self._remote = encoder, queue, clock, remote
        self._pictures: dict[int, PictureInThread] = {}  # by the identity of an image
        self._at_work = threading.Lock()  # held while features are computed
        self._thread = BackgroundThread(
            "encoder",
            lambda: queue.take(clock()),
            self._encode,
            nice=_LOWER_PRIORITY,
            instead="pictures are encoded within steps from now on",
            prepare=prepare,
        )
        self._thread.start()

    # --- the engine's thread ---------------------------------------------------------------------

    def encode_image(self, image: Image, stream: Stream, *, live: bool = False) -> View:
        """A picture that has been encoded, or, if nobody began to, encoded here."""
        picture = self._pictures.pop(id(image), None)
        if picture is None or picture.given_up or not picture.done:
            try:
                with self._at_work if self._remote is None else nullcontext():
                    (features,) = self._encoder.features([image], [stream.share_domain], live=live)
            except EngineError:
                raise
            except Exception as error:
                raise _not_encoded(image) from error
            return self._encoder.view(features, image, stream)
        if picture.error is not None:
            raise picture.error
        view = self._encoder.view(picture.features, image, stream)
        return replace(view, encoded_ns=picture.encoded_ns)

    def begin(
        self, image: Image, owner: str, domain: bytes, due_ns: int, *, live: bool
    ) -> PictureInThread | None:
        if self._thread.died or (live and not self._encoder.takes_frames()):
            return None
        tokens, level = self._encoder.size(image, live=live)
        picture = PictureInThread(image, owner, domain, live=live)
        with self._thread.lock:
            taken = self._queue.push(
                picture,
                owner,
                tokens=tokens,
                level=(live, level),
                due_ns=due_ns,
                now_ns=self._clock(),
            )
            if not taken:
                return None
            self._thread.notify()
        self._pictures[id(image)] = picture
        return picture

    def collect(self) -> None:
        finished = self._thread.collect()
        if self._thread.died:
            self._give_up_all()
        for picture in finished:
            picture.done = True

    def _give_up_all(self) -> None:
        with self._thread.lock:
            for picture in [*self._queue.clear(), *self._thread.current]:
                picture.given_up = picture.done = True

    def release(self, images: Iterable[Image]) -> None:
        for image in images:
            self._pictures.pop(id(image), None)

    def forget(self, owner: str) -> None:
        with self._thread.lock:
            for picture in self._queue.forget(owner):
                picture.given_up = picture.done = True
            current = self._thread.current
            if self._remote is not None and current and all(p.owner == owner for p in current):
                self._remote.cancel()
        self._pictures = {i: p for i, p in self._pictures.items() if p.owner != owner}

    def fileno(self) -> int:
        return self._thread.fileno()

    def close(self) -> None:
        with self._thread.lock:
            self._queue.clear()
        if not self._end():
            log.warning("the encoder is at work on a picture; it ends with the process")
        elif self._remote is not None:
            self._remote.close()

    def _end(self) -> bool:
        """Whether the thread has ended. It is told again: a call that begins forgets that it was
        cancelled before."""
        for _ in range(_CLOSE_TRIES):
            if self._remote is not None:
                self._remote.cancel()
            if self._thread.close(_CLOSE_S / _CLOSE_TRIES):
                return True
        return False

    # --- the other thread ------------------------------------------------------------------------

    def _encode(self, batch: Sequence[PictureInThread]) -> None:
        began_ns = self._clock()
        try:
            with self._at_work if self._remote is None else nullcontext():
                images = [picture.image for picture in batch]
                domains = [picture.domain for picture in batch]
                found = self._encoder.features(images, domains, live=batch[0].live)
        except Exception as error:
            if isinstance(error, EncoderFault) and not error.is_of_one:
                for picture in batch:
                    picture.error = error
                return
            if len(batch) > 1:  # one picture's fault is not the other ones'
                for picture in batch:
                    self._encode([picture])
                return
            (picture,) = batch
            picture.error = error if isinstance(error, EngineError) else _not_encoded(picture.image)
        else:
            for picture, features in zip(batch, found, strict=True):
                picture.features = features
                picture.encoded_ns = began_ns, self._clock()
        self._queue.together.observe(len(batch), self._clock() - began_ns)


def _not_encoded(image: Image) -> EngineError:
    """For a fault of the encoder that is being handled, which is logged."""
    log.exception("a picture of %d x %d could not be encoded", image.width, image.height)
    return PictureNotEncoded(image.width, image.height)
