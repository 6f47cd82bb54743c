"""A video's frame as an image that can be sent: small, upright, progressive, of standard range."""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
from av.video.frame import VideoFrame

from headstart.gateway.protocol.frame_pixels import Rgb, one_moment, to_screen
from headstart.gateway.protocol.orientation import UPRIGHT, of_frame, upright

SIDE_PX_MAX = 640
JPEG_QSCALE = "4"  # ffmpeg's scale: 2 is best, 31 worst


def to_rgb(frame: VideoFrame, aspect: Fraction | None = None, side_px: int = SIDE_PX_MAX) -> Rgb:
    """uint8 [height, width, 3], on white, the longer side at most `side_px`. `aspect`: of one
    pixel, width by height, where pixels are not square. Raises `container.UNDECODABLE` for a frame
    that cannot be converted."""
    width, height = _fit(frame.width, frame.height, aspect, side_px)
    orientation = of_frame(frame)
    pixels = to_screen(one_moment(frame), width, height)
    return pixels if orientation == UPRIGHT else np.ascontiguousarray(upright(pixels, orientation))


def to_jpeg(pixels: Rgb) -> bytes:
    """The image as a JPEG file."""
    height, width = (side - side % 2 for side in pixels.shape[:2])
    frame = VideoFrame.from_ndarray(np.ascontiguousarray(pixels[:height, :width]), format="rgb24")
    encoder = av.CodecContext.create("mjpeg", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuvj420p"
    encoder.time_base = Fraction(1)
    encoder.options = {"qmin": JPEG_QSCALE, "qmax": JPEG_QSCALE}
    frame = frame.reformat(format="yuvj420p", threads=1)
    frame.pts = None
    return b"".join(bytes(p) for p in (*encoder.encode(frame), *encoder.encode(None)))


def _fit(width: int, height: int, aspect: Fraction | None, side_px: int) -> tuple[int, int]:
    """Even sides, for JPEG's half-resolution chroma."""
    wide, high = float(width), float(height)
    if aspect is not None and 0.1 <= aspect <= 10:
        wide, high = (wide * float(aspect), high) if aspect >= 1 else (wide, high / float(aspect))
    scale = min(1.0, side_px / max(wide, high))
    return max(2, round(wide * scale / 2) * 2), max(2, round(high * scale / 2) * 2)
