"""A decoded picture as RGB that a screen can show: on white, of one moment, of standard range.

High dynamic range (PQ, SMPTE ST 2084; HLG, ARIB STD-B67; both with the primaries of ITU-R BT.2020)
is mapped to what a screen of 203 cd/m² shows (ITU-R BT.2408's reference white) by Reinhard's curve
with a white point of 1000 cd/m², on the brightest of the three colours, so that hues stay. A
picture is scaled first, so that an 8K frame costs little more than its decoding. Each `reformat`
is told `threads=1`, for PyAV's default starts a pool of as many threads as there are cores.

"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter

PQ: Final = 16
HLG: Final = 18
"""Transfer characteristics of ITU-T H.273, as are the primaries below."""
BT2020: Final = 9
REFERENCE_WHITE_CD_M2: Final = 203.0
BRIGHTEST_CD_M2: Final = 1000.0
_UNSAID: Final = 2
_FIELD_ROWS_MIN: Final = 4
_OPAQUE: Final = 255
_BAND_PIXELS: Final = 1 << 18  # processed at once: bounds the memory for flattening

Rgb = npt.NDArray[np.uint8]
"""[height, width, 3]."""
_Linear = npt.NDArray[np.float32]

# ITU-R BT.2087: linear RGB of BT.2020 to that of BT.709.
_TO_BT709 = np.array(
    ((1.6605, -0.5876, -0.0728), (-0.1246, 1.1329, -0.0083), (-0.0182, -0.1006, 1.1187)), np.float32
)


def has_high_range(frame: VideoFrame) -> bool:
    """Whether its values stand for more light than a screen shows."""
    return int(frame.color_trc) in (PQ, HLG)


def to_screen(frame: VideoFrame, width: int, height: int) -> Rgb:
    """A frame at that size: on white, of standard range. Raises FFmpegError or ValueError for one
    that cannot be converted."""
    if has_high_range(frame):
        return _standard_range(frame, width, height)
    scaled = flatten(frame).reformat(
        width, height, format="rgb24", interpolation=Interpolation.AREA, threads=1
    )
    return np.asarray(scaled.to_ndarray(), np.uint8)


def one_moment(frame: VideoFrame) -> VideoFrame:
    """The upper field of an interlaced frame, half as high: its two fields are of two moments. Any
    other frame as it is."""
    if not frame.interlaced_frame or frame.height < _FIELD_ROWS_MIN:
        return frame
    pixels = np.asarray(frame.reformat(format="rgb24", threads=1).to_ndarray(), np.uint8)
    return VideoFrame.from_ndarray(np.ascontiguousarray(pixels[::2]), format="rgb24")


def flatten(frame: VideoFrame) -> VideoFrame:
    """Draw on white, as a web page does. A frame without transparency is returned as it is."""
    if not frame.format.has_palette and not any(c.is_alpha for c in frame.format.components):
        return frame
    flat = frame.reformat(format="rgba", threads=1)
    if flat is frame:  # a decoder may still refer to it
        flat = VideoFrame.from_ndarray(frame.to_ndarray(), format="rgba")
    plane = flat.planes[0]
    pixels = np.ndarray(
        (flat.height, flat.width, 4), np.uint8, memoryview(plane), strides=(plane.line_size, 4, 1)
    )
    rows = max(1, _BAND_PIXELS // flat.width)
    for top in range(0, flat.height, rows):
        band = pixels[top : top + rows]
        opacity = band[..., 3:].astype(np.uint16)
        if opacity.min() < _OPAQUE:
            mixed = band[..., :3] * opacity + _OPAQUE * (_OPAQUE - opacity)
            band[..., :3] = (mixed + _OPAQUE // 2) // _OPAQUE
            band[..., 3] = _OPAQUE
    return flat


def _standard_range(frame: VideoFrame, width: int, height: int) -> Rgb:
    """A frame of high dynamic range, for an ordinary screen."""
    is_wide = int(frame.color_primaries) in (BT2020, _UNSAID)
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
