"""Debian's Chromium for the browser tests: found, or installed where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL_TIMEOUT_S = 300

ARGS = (
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
)
FAKE_DEVICES = ("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream")


class ChromiumError(RuntimeError):
    """There is no Chromium, and this user cannot install one."""


def find() -> Path | None:
    """The browser named by CHROMIUM, else the first one on the path."""
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    return Path(found) if found else None


def ensure() -> Path:
    """A Chromium, installed with apt-get if need be. Raises ChromiumError, never skips."""
    found = find()
    if found is None:
        _install()
        found = find()
    if found is None:
        raise ChromiumError("apt-get installed chromium, but it is not on the path")
    return found


def _install() -> None:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ChromiumError(
            "the browser tests need Chromium: install it (Debian: apt-get install chromium), or "
            "name one in the environment variable CHROMIUM"
        )
    print("headstart: installing chromium for the browser tests (about 100 MB, once)", flush=True)
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
    ):
        done = subprocess.run(
            command, timeout=INSTALL_TIMEOUT_S, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise ChromiumError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


def fake_microphone(wav: Path) -> list[str]:
    """Flags that make `wav` the microphone, once through; then it is silent."""
    return [*FAKE_DEVICES, f"--use-file-for-fake-audio-capture={wav}%noloop"]


if __name__ == "__main__":
    print(ensure())
