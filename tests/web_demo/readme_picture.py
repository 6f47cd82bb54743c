"""The README's picture: the page in the middle of a conversation with a real server.

    headstart serve --model small                      # in another terminal
    python -m tests.web_demo.readme_picture http://127.0.0.1:8080 docs/page.png

A real browser whose microphone plays the bundled questions and whose camera shows the bundled cat.
The picture is taken while somebody speaks again, two answers being there. It is to show a good
conversation, and the browser's fake microphone drops sound on a crowded machine: so there are
several tries, and it says how many it took.
"""

from __future__ import annotations

import sys
import tempfile
import wave
from pathlib import Path

import av
import numpy as np
from av.video.plane import VideoPlane
from playwright.sync_api import Page, ViewportSize, sync_playwright

from headstart.benchmarks.recordings import CLIPS, load_s16
from tests.web_demo import chromium

MICROPHONE_HZ = 48_000
FIRST_S, PAUSE_S = (2.72, 2.0, 2.13, 2.27, 2.41, 2.56, 2.89, 3.07), 9.0
"""Silence before the first question, try by try, and after each: time for its answer."""
EXPECTED = ("capital of France", "cat")
SIZE: ViewportSize = {"width": 1280, "height": 960}
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


def main(url: str, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        microphone, camera = Path(folder) / "microphone.wav", Path(folder) / "camera.y4m"
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
                return
            browser.close()
    sys.exit("no conversation went as expected")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
