"""Debian's Chromium for the browser tests, and the flags that it is started with."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.web_demo.debian import CHROMIUM, BrowserError

ARGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)
FAKE_DEVICES = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")


def ensure() -> Path:
    """A Chromium, installed with apt-get if need be. Raises BrowserError, never skips."""
    return CHROMIUM.ensure()


def fake_microphone(wav: Path) -> list[str]:
    """Flags that make `wav` the microphone, once through; then it is silent."""
    return [*FAKE_DEVICES, f"--use-file-for-fake-audio-capture={wav}%noloop"]


if __name__ == "__main__":
    try:
        print(ensure())
    except BrowserError as error:
        sys.exit(f"headstart: {error}")
