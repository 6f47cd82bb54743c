"""Pictures of each screen of the dashboard, light and dark, wide and narrow, for people to look at.

python -m tests.web_demo.dashboard.screenshots FOLDER [SCREEN ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.web_demo import chromium
from tests.web_demo.dashboard.fake_feed import SCREENS, FakeFeed
from tests.web_demo.dashboard.feed_fixtures import Server, conversation, gzipped
from tests.web_demo.screenshots import SCHEMES, SIZES

SECONDS = 290
TURNS_PER_MIN = 90
SETTLE_MS = 2_500


def feed() -> FakeFeed:
    fake = FakeFeed()
    fake.server = Server(seed=4, sessions=9)
    fake.start()
    return fake


def settle(page: Page) -> None:
    page.wait_for_timeout(SETTLE_MS)


def shoot(page: Page, folder: Path, name: str) -> None:
    path = folder / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    print(path)


def all_screens(browser: Browser, fake: FakeFeed, folder: Path, wanted: list[str]) -> None:
    other = gzipped(conversation(Server(9, run="run_b", settings={"model": "medium"}), 200, 90))
    for size, (width, height) in SIZES.items():
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            page = context.new_page()
            page.goto(fake.url)
            page.wait_for_selector("body[data-feed=live]")
            fake.server = Server(seed=4, sessions=9)
            for second in range(SECONDS):
                fake.server.slow = 1.5 if second > 200 else 1.0
                fake.run(1, TURNS_PER_MIN)
            for screen in wanted:
                page.goto(f"{fake.url}#screen={screen}")
                settle(page)
                if screen == "sessions":
                    page.locator("button.link").first.click()
                    fake.say(*(fake.server.chunk(fake.server.sessions[-1], i) for i in range(30)))
                    fake.run(1, 0)
                    settle(page)
                if screen == "percentiles":
                    page.locator("button.figure").nth(1).click()
                    settle(page)
                fake.run(1, 0)  # the feed is alive
                page.wait_for_selector("body[data-feed=live]")
                shoot(page, folder, f"{screen}-{size}-{scheme}")
            if "compare" in wanted or len(wanted) == len(SCREENS):
                page.goto(f"{fake.url}#screen=compare")
                page.set_input_files(
                    "#compare input[type=file] >> nth=1",
                    {"name": "after.jsonl.gz", "mimeType": "application/gzip", "buffer": other},
                )
                page.wait_for_selector("#compare table >> nth=1")
                shoot(page, folder, f"compare-{size}-{scheme}")
            context.close()


def main(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fake = feed()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium.ensure(), args=[*chromium.ARGS])
        all_screens(browser, fake, folder, wanted or list(SCREENS))
        browser.close()
    fake.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
