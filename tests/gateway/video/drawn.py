"""Pictures as clients send them, drawn here."""

from __future__ import annotations

import base64
import io

import av
import numpy as np


def png(width: int, height: int, value: int) -> str:
    """A one-coloured picture as a data URI."""
    out = io.BytesIO()
    with av.open(out, "w", format="image2pipe") as container:
        stream = container.add_stream("png", rate=1)
        stream.width, stream.height, stream.pix_fmt = width, height, "rgb24"
        pixels = np.full((height, width, 3), value, np.uint8)
        for packet in stream.encode(av.VideoFrame.from_ndarray(pixels)):
            container.mux(packet)
        for packet in stream.encode(None):
            container.mux(packet)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
