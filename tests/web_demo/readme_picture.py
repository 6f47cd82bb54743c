"""The README's pictures: the page in the middle of a conversation with a real server, and the
dashboard over a scripted feed.

    python -m tests.web_demo.readme_picture docs/page.png docs/dashboard.png [URL]

Without the URL of a running server it starts one. A real browser whose microphone plays the bundled
questions and whose camera shows the bundled cat. The picture is taken while somebody speaks again,
two answers being there. It is to show a good conversation, and the browser's fake microphone drops
sound on a crowded machine: so there are several tries, and it says how many it took. The
milliseconds in it are those of the machine that it was taken on: let that be a quiet one.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import wave
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from av.video.plane import VideoPlane
from playwright.sync_api import Page, Playwright, ViewportSize, sync_playwright

from headstart.benchmarks.inputs.recordings import CLIPS, load_s16
from tests.web_demo import chromium
from tests.web_demo.dashboard import screenshots
from tests.web_demo.test_real_server import drain, first_url

MICROPHONE_HZ = 48_000
FIRST_S, PAUSE_S = (2.72, 2.0, 2.13, 2.27, 2.41, 2.56, 2.89, 3.07), 9.0
"""Silence before the first question, try by try, and after each: time for its answer."""
EXPECTED = ("capital of France", "cat")
SIZE: ViewportSize = {"width": 1280, "height": 960}
DASHBOARD_SIZE: ViewportSize = {"width": 1280, "height": 960}
TIMEOUT_MS = 120_000
CAMERA_HZ, CAMERA_FRAMES = 2, 4


def write_microphone(path: Path, first_s: float) -> None:
    """Capital, the picture, and a story: that one is being told at the end."""
    sound = [np.zeros(round(first_s * MICROPHONE_HZ), np.int16)]
    pause = np.zeros(round(PAUSE_S * MICROPHONE_HZ), np.int16)
    for name in ("capital.wav", "demo.mp4", "monologue.ogg"):
        sound += [load_s16(CLIPS / name, MICROPHONE_HZ), pause]
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(MICROPHONE_HZ)
        out.writeframes(np.concatenate(sound).tobytes())


def write_camera(path: Path) -> None:
    """The video's first picture as uncompressed frames, which the browser plays in a loop."""
    with av.open(str(CLIPS / "demo.mp4")) as clip:
        frame = next(iter(clip.decode(video=0))).reformat(format="yuv420p")
    planes = b"".join(_rows(plane) for plane in frame.planes)
    head = f"YUV4MPEG2 W{frame.width} H{frame.height} F{CAMERA_HZ}:1 Ip A1:1 C420jpeg\n"
    with path.open("wb") as out:
        out.write(head.encode())
        for _ in range(CAMERA_FRAMES):
            out.write(b"FRAME\n" + planes)


def _rows(plane: VideoPlane) -> bytes:
    """A plane without what pads its lines."""
    lines = np.frombuffer(bytes(plane), np.uint8).reshape(plane.height, plane.line_size)
    return bytes(lines[:, : plane.width].tobytes())


def converse(page: Page) -> bool:
    """Until somebody is speaking again behind two answers; whether those are as expected."""
    page.wait_for_selector("body[data-phase=idle]", timeout=TIMEOUT_MS)
    page.click("#talk")
    for turn, wanted in enumerate(EXPECTED):
        answer = page.locator(".entry.assistant[data-state=done]").nth(turn)
        answer.wait_for(timeout=TIMEOUT_MS)
        said = answer.inner_text().replace("\n", " | ")
        print(said, flush=True)
        if wanted not in said:
            return False
        if turn == 0:
            page.check("#camera")
    page.wait_for_selector(".entry.user >> nth=2", timeout=TIMEOUT_MS)
    page.wait_for_function(
        "() => [...document.querySelectorAll('.entry.user')].at(-1).innerText.length > 30",
        timeout=TIMEOUT_MS,
    )
    return True


@contextlib.contextmanager
def serving(url: str | None) -> Iterator[str]:
    """The server at `url`, or one of our own."""
    if url is not None:
        yield url
        return
    command = [sys.executable, "-m", "headstart", "serve", "--model", "small", "--port", "0"]
    with subprocess.Popen([*command, "--announce"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        own = first_url(server.stdout)
        threading.Thread(target=drain, args=(server.stdout,), daemon=True).start()
        yield own
        server.terminate()


def talk(driver: Playwright, folder: Path, url: str, path: Path) -> bool:
    """The talk page's picture; whether a try succeeded."""
    microphone, camera = folder / "microphone.wav", folder / "camera.y4m"
    write_camera(camera)
    flags = [f"--use-file-for-fake-video-capture={camera}"]
    flags += chromium.fake_microphone(microphone)
    for number, first_s in enumerate(FIRST_S, 1):
        write_microphone(microphone, first_s)
        browser = driver.chromium.launch(
            executable_path=chromium.ensure(), args=[*chromium.ARGS, *flags]
        )
        page = browser.new_context(viewport=SIZE, color_scheme="light").new_page()
        page.goto(url)
        if converse(page):
            page.screenshot(path=path)
            print(f"{path}: try {number} of {len(FIRST_S)}")
            return True
        browser.close()
    return False


def dashboard(driver: Playwright, path: Path) -> None:
    """The strip and a turn's waterfall, over a scripted feed."""
    fake = screenshots.feed()
    browser = driver.chromium.launch(executable_path=chromium.ensure(), args=[*chromium.ARGS])
    page = browser.new_context(viewport=DASHBOARD_SIZE, color_scheme="light").new_page()
    page.goto(fake.url)
    page.wait_for_selector("body[data-feed=live]")
    fake.run(screenshots.SECONDS, screenshots.TURNS_PER_MIN)
    page.goto(f"{fake.url}#screen=turn")
    screenshots.settle(page)
    page.screenshot(path=path)
    print(path)
    browser.close()
    fake.stop()


def main(page: Path, board: Path, url: str | None) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        dashboard(driver, board)
        with serving(url) as running:
            if not talk(driver, Path(folder), running, page):
                sys.exit("no conversation went as expected")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
