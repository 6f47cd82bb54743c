"""The page's wire format against Python's own."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from playwright.sync_api import Page


def call(workbench: Page, expression: str, argument: Any = None) -> Any:
    """Evaluates `expression` of (protocol, argument) in the page, where the module runs."""
    script = (
        f"async (argument) => {{ const p = await import('./protocol.js'); return {expression} }}"
    )
    return workbench.evaluate(script, argument)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1920, 32_767, 32_768, 100_001])
def test_base64_is_pythons(workbench: Page, size: int) -> None:
    """Bytes of any number, also beyond one slice, encode as Python encodes them."""
    data = bytes((7 * i + i // 256) % 256 for i in range(size))
    same = "Uint8Array.from({ length: argument }, (_, i) => (7 * i + (i >> 8)) % 256)"
    assert call(workbench, f"p.toBase64({same})", size) == base64.b64encode(data).decode()


def test_floats_become_little_endian_pcm16(workbench: Page) -> None:
    """Full scale both ways, clipping, rounding and silence for what is no number."""
    floats = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1e-9]
    wanted = struct.pack("<8h", 0, 32_767, -32_768, 32_767, -32_768, 16_384, -16_384, 0)
    got = call(workbench, "[...p.toBytes(p.toPcm16(Float32Array.from(argument)))]", floats)
    assert bytes(got) == wanted
    assert call(workbench, "[...p.toPcm16(Float32Array.from([NaN]))]") == [0]


def test_audio_append_carries_the_samples(workbench: Page) -> None:
    """The message's base64 unpacks to the same samples, low byte first."""
    samples = [0, 1, -1, 258, -32_768, 32_767]
    message = call(workbench, "p.audioAppend(Int16Array.from(argument))", samples)
    assert message["type"] == "input_audio_buffer.append"
    assert struct.unpack("<6h", base64.b64decode(message["audio"])) == tuple(samples)


@pytest.mark.parametrize(
    ("page", "socket"),
    [
        ("http://localhost:8080/", "ws://localhost:8080/v1/realtime?model=a+b"),
        ("https://host/talk/?x=1#y", "wss://host/talk/v1/realtime?model=a+b"),
    ],
)
def test_socket_url_follows_the_page(workbench: Page, page: str, socket: str) -> None:
    """The socket is on the page's own host and folder, encrypted if the page is."""
    assert call(workbench, "p.realtimeUrl(argument, 'a b')", page) == socket
