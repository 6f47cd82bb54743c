"""Reads pictures in a thread of its own, at low priority, while the engine goes on.

`begin` queues a picture and returns at once. The engine waits for `fileno` beside its socket, and
calls `collect` when it is readable.

Bounds: one live frame of an owner (a session's stream) waits, a newer one replaces it; so many
stills of one owner, so many pictures of all. Beyond a bound a picture is not read: its reading is
done, with nothing written. Owners are served in turn. The thread is one, so that it takes at most
one core, at a priority below everything else here. Should it die, the engine's log says so, and no
picture is read any more.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from hashlib import blake2b

import cv2
import numpy as np
import numpy.typing as npt

from headstart.engine.api import Image
from headstart.engine.background_thread import BackgroundThread
from headstart.engine.interfaces import Look
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.pixels import Rgb
from headstart.engine.vision.reading import notes
from headstart.engine.vision.reading.reader import (
    CLOSELY,
    GLANCE,
    Abandoned,
    TextReader,
    Written,
)

log = logging.getLogger("headstart.engine")

MAX_STILLS = 8
MAX_WAITING = 64
_LOWER_PRIORITY = 10  # nice levels below the engine's
# A frame is read if the mean of a cell of this grid has changed by so much since the last one that
# was: noise is averaged out, a word that appears is not.
_GRID = (40, 30)
_CHANGED_FROM = 10
_ENTRY_BYTES = 512  # of a cached `Written` without its lines

_NOTHING = Written(())


class PictureReading:
    """`headstart.engine.interfaces.Reading`: one picture, queued, being read, or read."""

    def __init__(
        self,
        picture: Image,
        owner: str,
        key: bytes,
        thumbnail: npt.NDArray[np.uint8],
        look: Look,
        *,
        live: bool,
    ) -> None:
        self.picture, self.owner, self.key = picture, owner, key
        self.thumbnail, self.look, self.live = thumbnail, look, live
        self.written = _NOTHING
        self.done = self.given_up = False
        self.queued_ns = self.began_ns = self.ended_ns = 0

    def note(self, *, whole: bool) -> str:
        return notes.note(self.written, whole=whole)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self.written.lines)

    @property
    def has_more(self) -> bool:
        return self.written.more > 0

    def same_as(self, other: object) -> bool:
        return isinstance(other, PictureReading) and notes.is_same(self.written, other.written)


class BackgroundReader:
    """`headstart.engine.interfaces.PictureReader`. All methods are for one thread, the engine's."""

    def __init__(
        self,
        reader: TextReader,
        cache: EncoderCache[Written],
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._reader, self._cache, self._clock = reader, cache, clock
        self._waiting: OrderedDict[str, deque[PictureReading]] = OrderedDict()  # next owner first
        self._thread = BackgroundThread(
            "picture reader",
            self._take,
            self._work,
            nice=_LOWER_PRIORITY,
            instead="pictures are not read until a restart",
        )
        self._thread.start()

    def look_for(self, question: str) -> Look:
        return notes.look_for(question)

    def caveat(self, question: str) -> str:
        return notes.CANNOT_COUNT if notes.asks_to_count_things(question) else ""

    def begin(
        self, picture: Image, owner: str, domain: bytes, after: object, *, live: bool
    ) -> PictureReading | None:
        pixels = _pixels(picture)
        thumbnail = _thumbnail(pixels)
        if live and isinstance(after, PictureReading) and not after.given_up:
            apart = np.abs(thumbnail.astype(np.int16) - after.thumbnail)
            if apart.max() < _CHANGED_FROM:
                return None
        return self._begin(picture, owner, domain, thumbnail, Look.GLANCE, live=live)

    def begin_closer(self, reading: object, domain: bytes) -> PictureReading | None:
        if not isinstance(reading, PictureReading) or reading.look is Look.CLOSELY:
            return None
        args = reading.picture, reading.owner, domain, reading.thumbnail
        return self._begin(*args, Look.CLOSELY, live=False)

    def _begin(
        self,
        picture: Image,
        owner: str,
        domain: bytes,
        thumbnail: npt.NDArray[np.uint8],
        look: Look,
        *,
        live: bool,
    ) -> PictureReading:
        known_by = blake2b(domain + bytes([look]) + picture.width.to_bytes(8, "big"))
        key = blake2b(picture.rgb, digest_size=16, key=known_by.digest()[:32]).digest()
        reading = PictureReading(picture, owner, key, thumbnail, look, live=live)
        reading.queued_ns = reading.began_ns = reading.ended_ns = self._clock()
        known = self._cache.get(key)
        if known is not None:
            reading.written, reading.done = known, True
            return reading
        with self._thread.lock:
            waiting = self._waiting.get(owner, deque())
            if live:
                for older in [one for one in waiting if one.live]:
                    waiting.remove(older)
                    _give_up(older)
            is_full = len(waiting) >= MAX_STILLS or self._num_waiting() >= MAX_WAITING
            if is_full or self._thread.died:
                _give_up(reading)
            else:
                waiting.append(reading)
                self._waiting[owner] = waiting
                self._thread.notify()
        return reading

    def _num_waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def collect(self) -> None:
        finished = self._thread.collect()
        if self._thread.died:
            self._give_up_all()
        for reading in finished:
            if not reading.given_up:
                size_bytes = _ENTRY_BYTES + sum(map(sys.getsizeof, reading.written.lines))
                self._cache.put(reading.key, reading.written, size_bytes)
            reading.done = True

    def _give_up_all(self) -> None:
        with self._thread.lock:
            for waiting in self._waiting.values():
                for reading in waiting:
                    _give_up(reading)
            self._waiting.clear()
            for reading in self._thread.current:
                _give_up(reading)

    def forget(self, owner: str) -> None:
        with self._thread.lock:
            for reading in self._waiting.pop(owner, ()):
                _give_up(reading)
            for reading in self._thread.current:
                if reading.owner == owner:
                    _give_up(reading)

    def fileno(self) -> int:
        return self._thread.fileno()

    def close(self) -> None:
        self._thread.close()

    # --- the thread ------------------------------------------------------------------------------

    def _work(self, readings: Sequence[PictureReading]) -> None:
        for reading in readings:
            self._read(reading)

    def _read(self, reading: PictureReading) -> None:
        detail = CLOSELY if reading.look is Look.CLOSELY else GLANCE
        reading.began_ns = self._clock()
        try:
            reading.written = self._reader.read(
                _pixels(reading.picture), detail, lambda: self._thread.closing or reading.given_up
            )
        except Abandoned:
            reading.given_up = True
        except Exception:  # one picture's fault is not the next one's
            log.exception("a picture could not be read")
            reading.given_up = True
        reading.ended_ns = self._clock()

    def _take(self) -> list[PictureReading]:
        """The next picture, of the owner that waits longest."""
        if not self._waiting:
            return []
        owner, waiting = self._waiting.popitem(last=False)  # never an empty one
        reading = waiting.popleft()
        if waiting:
            self._waiting[owner] = waiting
        return [reading]


def _give_up(reading: PictureReading) -> None:
    reading.given_up = reading.done = True


def _pixels(picture: Image) -> Rgb:
    return np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3)


def _thumbnail(pixels: Rgb) -> npt.NDArray[np.uint8]:
    small = cv2.resize(pixels, _GRID, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY), np.uint8)
