"""The page in docs/clients.md, served from another address, talks to a server that allows it."""

from __future__ import annotations

import functools
import http.server
import re
import subprocess
import sys
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from tests.web_demo import chromium
from tests.web_demo.conftest import BrowserFactory, PageOpener, chromium_alone
from tests.web_demo.test_real_server import drain, first_url

CLIENTS = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
ADDRESS = "http://127.0.0.1:8080"
MICROPHONE_HZ = 48_000
WAIT_MS = 60_000


@pytest.fixture
def page_url(tmp_path: Path) -> Iterator[str]:
    """Where the page is served from."""
    folder = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@chromium_alone("its fake microphone plays a file over WebRTC")
def test_a_page_of_others_talks(
    page_url: str, tmp_path: Path, browser_factory: BrowserFactory, open_page: PageOpener
) -> None:
    """A spoken question gets an answer; only the server's address is another than in the text."""
    (html,) = re.findall(r"```html\n(.*?)```", CLIENTS.read_text(), re.DOTALL)
    assert ADDRESS in html
    quiet = np.zeros(2 * MICROPHONE_HZ, np.int16)
    sound = np.concatenate([quiet, load_s16(CLIPS / "capital.wav", MICROPHONE_HZ), *[quiet] * 10])
    with wave.open(str(tmp_path / "microphone.wav"), "wb") as out:
        out.setparams((1, 2, MICROPHONE_HZ, 0, "NONE", ""))
        out.writeframes(sound.tobytes())
    command = [sys.executable, "-m", "headstart", "serve", "--engine", "fake", "--port", "0"]
    command += ["--set", "voice=none", "--set", f"allowed_origins={page_url}", "--announce"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = first_url(server.stdout)
        threading.Thread(target=drain, args=(server.stdout,), daemon=True).start()
        (tmp_path / "index.html").write_text(html.replace(ADDRESS, url))
        page = open_page(
            browser_factory(*chromium.fake_microphone(tmp_path / "microphone.wav")), page_url
        ).page
        page.get_by_role("button", name="Talk").click()
        expect(page.locator("#answer")).not_to_be_empty(timeout=WAIT_MS)
        server.terminate()
