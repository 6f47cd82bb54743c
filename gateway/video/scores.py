"""Scores of a frame: how much its content changed, how far things moved, and how sharp it is.

Each frame is compared with the one looked at before it, on small copies of both, so that a score
costs about a millisecond whatever the camera's size: too much for the event loop, so they are
computed where frames are decoded. OpenCV does the work; it is one thread, and gives the same scores
each time.

    content    mean absolute difference of hue, saturation and value, 0 to 255: as PySceneDetect's
               `ContentDetector` scores neighbouring frames
    flow       mean length of the dense optical flow (Farnebäck, 2003), in widths of the frame
    sharpness  variance of the Laplacian of luma (Pech-Pacheco et al., 2000), on a copy whose longer
               side is at most `SHARP_SIDE_PX`, because the variance depends on the size

A frame of any shape is squeezed into the small copy: one pixel wide or high is no exception.
"""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt

from headstart.gateway.video.sampling import FrameScores

Rgb = npt.NDArray[np.uint8]
"""[height, width, 3], neither of them 0."""

LOOK_WIDTH = 64
LOOK_HEIGHT = 36
LOOK_BYTES = LOOK_WIDTH * LOOK_HEIGHT * 3
SHARP_SIDE_PX = 320

# Farnebäck's parameters, as OpenCV's own sample has them but for the window, which is smaller on
# so small a picture: pyramid scale, levels, window, iterations, neighbourhood, its sigma, flags.
_FLOW = (0.5, 3, 9, 3, 5, 1.2, 0)

cv2.setNumThreads(1)  # the other cores are the engine's


def score(rgb: Rgb, before: bytes = b"") -> FrameScores:
    """The scores of a frame. `before`: the `pixels` of the scores of the frame looked at before it;
    empty for the first frame, which has neither `content` nor `flow`."""
    assert len(before) in (0, LOOK_BYTES)
    resized = cv2.resize(rgb, (LOOK_WIDTH, LOOK_HEIGHT), interpolation=cv2.INTER_AREA)
    small = np.asarray(resized, np.uint8)
    pixels = small.tobytes()
    if not before:
        return FrameScores(sharpness(rgb), None, None, pixels)
    last = np.frombuffer(before, np.uint8).reshape(LOOK_HEIGHT, LOOK_WIDTH, 3)
    return FrameScores(sharpness(rgb), content(last, small), flow(last, small), pixels)


def content(one: Rgb, other: Rgb) -> float:
    """Mean absolute difference of hue (0 to 179), saturation and value (0 to 255)."""
    before, now = (cv2.cvtColor(rgb, cv2.COLOR_RGB2HSV) for rgb in (one, other))
    return float(np.mean(cv2.absdiff(before, now)))


def flow(one: Rgb, other: Rgb) -> float:
    """Mean length of the displacements from one small copy to the other, in widths."""
    before, now = (cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY) for rgb in (one, other))
    start = np.zeros((*before.shape, 2), np.float32)
    moved = cv2.calcOpticalFlowFarneback(before, now, start, *_FLOW)
    lengths = np.hypot(moved[..., 0], moved[..., 1])
    return float(np.mean(lengths)) / LOOK_WIDTH


def sharpness(rgb: Rgb) -> float:
    """Variance of the Laplacian of luma (0 to 255); 0 for a blank frame."""
    luma = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    height, width = luma.shape
    scale = SHARP_SIDE_PX / max(height, width)
    if scale < 1:
        size = max(1, round(width * scale)), max(1, round(height * scale))
        luma = cv2.resize(luma, size, interpolation=cv2.INTER_AREA)
    return float(cv2.Laplacian(luma, cv2.CV_32F).var())
