"""A peer's camera: passes its newest frame to the sampler, a few times a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import av

from headstart.engine import api
from headstart.gateway.protocol.frame_pixels import one_moment, to_screen
from headstart.gateway.protocol.images import fit
from headstart.gateway.protocol.orientation import of_frame, upright
from headstart.gateway.runtime.threads import PICTURES
from headstart.gateway.transport.webrtc.aiortc_hooks import NewestFrame
from headstart.gateway.video.decode import DecodedImage, add_thumbnail

log = logging.getLogger("headstart.rtc")

LOOK_INTERVAL_S = 0.25
"""Shorter than the sampler's own intervals (`gateway.video.sampling`), so that a frame is there
when it wants one. Each poll costs a conversion."""


async def watch(
    source: NewestFrame,
    see: Callable[[DecodedImage], None],
    size: Callable[[], api.PictureSize],
    interval_s: float = LOOK_INTERVAL_S,
    before: Callable[[], bytes | None] = lambda: None,
) -> None:
    """Runs until cancelled. Passes on the newest frame, scaled to at most `size`, with scores
    against `before` (`decode.Encoded`). Scaling, colour conversion, thumbnail and scores run off
    the loop, one frame at a time. A frame that cannot be converted is skipped."""
    while True:
        frame = source.take()
        if frame is not None:
            try:
                seen = partial(with_thumbnail, size=size(), before=before())
                see(await PICTURES.run(seen, frame))
            except (av.error.FFmpegError, ValueError) as error:
                log.info("a camera's picture was left out: %s", error)
        await asyncio.sleep(interval_s)


def with_thumbnail(
    frame: av.VideoFrame, size: api.PictureSize, before: bytes | None = None
) -> DecodedImage:
    """The image with its thumbnail and the scores that are wanted."""
    return add_thumbnail(picture_of(frame, size), before)


def picture_of(frame: av.VideoFrame, size: api.PictureSize = api.SMALL_PICTURE) -> api.Image:
    """An RGB image of at most `size`, rotated upright if the encoder gives the orientation (H.264's
    SEI message). Browsers rotate before encoding, as we do not negotiate the `video-orientation`
    header extension (docs/webrtc.md). Of an interlaced frame one field, of standard range, as of a
    file."""
    width, height = fit(frame.width, frame.height, size)
    pixels = upright(to_screen(one_moment(frame), width, height), of_frame(frame))
    return api.Image(pixels.shape[1], pixels.shape[0], pixels.tobytes())
