"""Debian's Firefox for the browser tests: found or installed, and made to fit Playwright.

Without a sound server Firefox never starts an audio graph, and a page waits for it for ever:
`loudspeaker` is one that nobody hears.

Playwright drives a stock Firefox over WebDriver BiDi (its channel "moz-firefox"). It also sends
commands that an older Firefox does not know, and then opens no page. Started as a program
(`python -m tests.web_demo.firefox`), this module is that browser's executable: it starts Firefox,
passes everything on, and answers those commands itself.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.web_demo.debian import FIREFOX, PULSEAUDIO, BrowserError

LAUNCH_TIMEOUT_MS = 180_000  # a first start on a crowded machine takes a minute
SOUND_TIMEOUT_S = 60
LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
# Commands without which a page can be tested all the same.
OPTIONAL = frozenset({"emulation.setMediaFeaturesOverride"})

# No question to a person, no request to anybody but the server under test.
PREFERENCES: dict[str, str | float | bool] = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.aboutwelcome.enabled": False,
    "browser.newtabpage.enabled": False,
    "browser.region.network.url": "",
    "browser.safebrowsing.malware.enabled": False,
    "browser.safebrowsing.phishing.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.startup.homepage_override.mstone": "ignore",
    "browser.startup.page": 0,
    "datareporting.policy.dataSubmissionEnabled": False,
    "dom.ipc.processPrelaunch.enabled": False,
    "extensions.getAddons.cache.enabled": False,
    "extensions.update.enabled": False,
    "focusmanager.testmode": True,  # a window that is not in front counts as the one in use
    "media.gmp-manager.updateEnabled": False,
    "media.navigator.permission.disabled": True,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,none",
    "termsofuse.bypassNotification": True,
    "toolkit.telemetry.server": "",
}
# A page's microphone that plays a file once, for Firefox has no fake one that does.
MICROPHONE = """(() => {
  const devices = navigator.mediaDevices;
  if (!devices) return; // about:blank, before the page
  const open = devices.getUserMedia.bind(devices);
  devices.getUserMedia = async (wanted) => {
    if (!wanted.audio) return open(wanted);
    const context = new AudioContext();
    const bytes = Uint8Array.from(atob("%s"), (char) => char.charCodeAt(0));
    const source = new AudioBufferSourceNode(context, {
      buffer: await context.decodeAudioData(bytes.buffer),
    });
    const microphone = context.createMediaStreamDestination();
    source.connect(microphone);
    await context.resume();
    source.start();
    return microphone.stream;
  };
})()"""
# A microphone that hums and a camera that changes colour, of Firefox's own making.
FAKE_DEVICES: dict[str, str | float | bool] = {"media.navigator.streams.fake": True}


def fake_microphone(wav: Path) -> str:
    """A script that makes `wav` a page's microphone, once through; then it is silent."""
    return MICROPHONE % base64.b64encode(wav.read_bytes()).decode()


@contextlib.contextmanager
def loudspeaker(folder: Path) -> Iterator[str]:
    """A sound server of the tests' own, with its socket in `folder` and one loudspeaker that takes
    sound at its rate and drops it. Yields the value of PULSE_SERVER."""
    socket = folder / "native"
    command = [
        str(PULSEAUDIO.ensure()),
        "-n",  # nothing from a configuration
        "--daemonize=no",
        "--use-pid-file=no",
        "--disable-shm=yes",
        "--exit-idle-time=-1",
        "--log-level=error",
        f"--load=module-native-protocol-unix socket={socket} auth-anonymous=1",
        "--load=module-null-sink",
    ]
    settings = os.environ | {"PULSE_RUNTIME_PATH": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    with subprocess.Popen(command, env=settings) as server:
        try:
            until = time.monotonic() + SOUND_TIMEOUT_S
            while not socket.is_socket():
                if server.poll() is not None:
                    raise BrowserError(f"pulseaudio ended with exit code {server.returncode}")
                if time.monotonic() > until:
                    raise BrowserError(f"pulseaudio made no socket in {SOUND_TIMEOUT_S} s")
                time.sleep(0.02)
            yield f"unix:{socket}"
        finally:
            server.terminate()


def executable(folder: Path) -> Path:
    """A script in `folder` that starts this module with Playwright's arguments."""
    path = folder / "firefox-for-playwright"
    root = Path(__file__).parents[2]
    start = f"exec '{sys.executable}' -m tests.web_demo.firefox \"$@\""
    path.write_text(f"#!/bin/sh\nPYTHONPATH='{root}' {start}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


class _Relay:
    """Between Playwright and one Firefox."""

    def __init__(self, firefox_url: str) -> None:
        self._firefox_url = firefox_url
        self._optional: set[int] = set()  # ids of optional commands under way

    async def serve_one(self, playwright: ServerConnection) -> None:
        assert playwright.request is not None
        url = self._firefox_url + playwright.request.path
        async with connect(
            url,
            max_size=None,
            compression=None,
            ping_interval=None,
            open_timeout=LAUNCH_TIMEOUT_MS / 1000,
        ) as firefox:

            async def commands() -> None:
                async for text in playwright:
                    message = json.loads(text)
                    if message.get("method") in OPTIONAL:
                        self._optional.add(message["id"])
                    await firefox.send(text)
                await firefox.close()

            sender = asyncio.create_task(commands())
            try:
                with contextlib.suppress(ConnectionClosed):
                    async for text in firefox:
                        await playwright.send(self._answer(text))
            finally:
                sender.cancel()
                await playwright.close()

    def _answer(self, text: str | bytes) -> str | bytes:
        """What Playwright is told: an optional command that Firefox does not know succeeded."""
        if not self._optional:
            return text
        message = json.loads(text)
        if message.get("id") not in self._optional:
            return text
        self._optional.discard(message["id"])
        if message.get("error") != "unknown command":
            return text
        return json.dumps({"type": "success", "id": message["id"], "result": {}})


async def run(arguments: list[str]) -> int:
    """Firefox with `arguments`, until it ends or this process is told to; returns its exit code."""
    firefox = await asyncio.create_subprocess_exec(
        str(FIREFOX.ensure()), *arguments, stderr=asyncio.subprocess.PIPE
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, firefox.terminate)
    assert firefox.stderr is not None
    async with contextlib.AsyncExitStack() as stack:
        async for raw in firefox.stderr:
            line = raw.decode(errors="replace").rstrip()
            found = LISTENING.search(line)
            if found:
                relay = _Relay(found[1])
                server = await stack.enter_async_context(
                    serve(
                        relay.serve_one,
                        "127.0.0.1",
                        0,
                        max_size=None,
                        compression=None,
                        ping_interval=None,
                        open_timeout=LAUNCH_TIMEOUT_MS / 1000,
                    )
                )
                port = next(iter(server.sockets)).getsockname()[1]
                line = line.replace(found[1], f"ws://127.0.0.1:{port}")
            print(line, file=sys.stderr, flush=True)
        return await firefox.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[1:])))
