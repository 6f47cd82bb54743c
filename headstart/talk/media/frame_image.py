"""A video's frame as an image that can be shown: small, upright, progressive, of standard range.

A frame is first scaled down, so that an 8K frame costs little more than its decoding. High dynamic
range (PQ, SMPTE ST 2084; HLG, ARIB STD-B67; both with the primaries of ITU-R BT.2020) is mapped to
what a screen of 203 cd/m² shows (ITU-R BT.2408's reference white) by Reinhard's curve with a white
point of 1000 cd/m², on the brightest of the three colours, so that hues stay.

"""

from __future__ import annotations

from fractions import Fraction

import av
import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

from headstart.gateway.protocol.images import flatten
from headstart.gateway.protocol.orientation import UPRIGHT, of_frame, upright

SIDE_PX_MAX = 640
JPEG_QSCALE = "4"  # ffmpeg's scale: 2 is best, 31 worst
PQ, HLG = 16, 18  # ITU-T H.273
BT2020 = 9
REFERENCE_WHITE_CD_M2 = 203.0
BRIGHTEST_CD_M2 = 1000.0

Rgb = npt.NDArray[np.uint8]
_Linear = npt.NDArray[np.float32]

# ITU-R BT.2087: linear RGB of BT.2020 to that of BT.709.
_TO_BT709 = np.array(
    ((1.6605, -0.5876, -0.0728), (-0.1246, 1.1329, -0.0083), (-0.0182, -0.1006, 1.1187)), np.float32
)


def to_rgb(frame: VideoFrame, aspect: Fraction | None = None, side_px: int = SIDE_PX_MAX) -> Rgb:
    """uint8 [height, width, 3], on white, the longer side at most `side_px`. `aspect`: of one
    pixel, width by height, where pixels are not square. Raises `container.UNDECODABLE` for a frame
    that cannot be converted."""
    if frame.interlaced_frame and frame.height >= 4:
        frame = _one_field(frame)
        aspect = (aspect or Fraction(1)) / 2
    width, height = _fit(frame.width, frame.height, aspect, side_px)
    orientation = of_frame(frame)
    if int(frame.color_trc) in (PQ, HLG):
        pixels = _standard_range(frame, width, height)
    else:
        plain = flatten(frame)
        scaled = plain.reformat(
            width, height, format="rgb24", interpolation=Interpolation.AREA, threads=1
        )
        pixels = np.asarray(scaled.to_ndarray(), np.uint8)
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


def _one_field(frame: VideoFrame) -> VideoFrame:
    """The upper field alone: every second row, of one moment."""
    pixels = np.asarray(frame.reformat(format="rgb24", threads=1).to_ndarray(), np.uint8)
    return VideoFrame.from_ndarray(np.ascontiguousarray(pixels[::2]), format="rgb24")


def _standard_range(frame: VideoFrame, width: int, height: int) -> Rgb:
    """A frame of high dynamic range, for an ordinary screen."""
    is_wide = int(frame.color_primaries) in (BT2020, 2)  # 2: not said
    coded = VideoReformatter().reformat(
        frame,
        width,
        height,
        format="rgb48le",
        src_colorspace=Colorspace.BT2020 if int(frame.colorspace) in (9, 10, 2) else None,
        src_color_range=None if int(frame.color_range) else ColorRange.MPEG,
        dst_color_range=ColorRange.JPEG,
        interpolation=Interpolation.AREA,
        threads=1,
    )
    signal = np.asarray(coded.to_ndarray(), np.float32) / np.float32(65535)
    light = (_pq(signal) if int(frame.color_trc) == PQ else _hlg(signal)) / REFERENCE_WHITE_CD_M2
    if is_wide:
        light = np.clip(light @ _TO_BT709.T, 0, None)
    peak = light.max(axis=-1, keepdims=True)
    white = BRIGHTEST_CD_M2 / REFERENCE_WHITE_CD_M2
    shown = light * (1 + peak / white**2) / (1 + peak)
    # Reinhard halves what is as bright as the reference white; screens show it near their white.
    shown = np.clip(shown * 1.6, 0, 1)
    srgb = np.where(shown <= 0.0031308, 12.92 * shown, 1.055 * shown ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(srgb * 255), np.uint8)


def _pq(signal: _Linear) -> _Linear:
    """cd/m² of SMPTE ST 2084's signal, 0 to 1."""
    m1, m2 = 2610 / 16384, 2523 / 32
    c1, c2, c3 = 3424 / 4096, 2413 / 128, 2392 / 128
    power = np.clip(signal, 0, 1) ** (1 / m2)
    return np.asarray(
        10_000 * (np.clip(power - c1, 0, None) / (c2 - c3 * power)) ** (1 / m1), np.float32
    )


def _hlg(signal: _Linear) -> _Linear:
    """cd/m² of BT.2100's hybrid log-gamma on a screen of 1000, its system gamma on the whole."""
    a, b, c = 0.17883277, 0.28466892, 0.55991073
    scene = np.where(signal <= 0.5, signal**2 / 3, (np.exp((signal - c) / a) + b) / 12)
    luminance = scene @ np.array((0.2627, 0.6780, 0.0593), np.float32)
    gain = np.maximum(luminance, 1e-6) ** 0.2
    return np.asarray(BRIGHTEST_CD_M2 * scene * gain[..., None], np.float32)
