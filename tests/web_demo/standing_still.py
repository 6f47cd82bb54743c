"""How long the page plays on after the server says that somebody may interrupt.

    python -m tests.web_demo.standing_still

A real Chromium, over a WebSocket, plays a tone; `gateway.interruption` comes at random moments.
Prints one JSON line: milliseconds from the event's arrival on the page to silence at the
loudspeaker, by the browser's own clock of its output, p50 and p90.
"""

from __future__ import annotations

import json
import random
import statistics

from playwright.sync_api import sync_playwright

from headstart.gateway.protocol.events import Events
from headstart.gateway.protocol.ids import IdMaker
from tests.web_demo import chromium
from tests.web_demo.conftest import open_in
from tests.web_demo.mock_gateway import MockGateway, Script

TIMES = 20
SOUND_S = 60.0
PLAYED_MS = (200, 700)  # between two interruptions
SEED = 3


def main() -> None:
    """Measures and prints."""
    mock, events, random_ms = MockGateway(), Events(IdMaker()), random.Random(SEED)
    mock.script = Script(sound_s=SOUND_S)
    mock.start()
    found: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.ensure(), args=[*chromium.ARGS, *chromium.FAKE_DEVICES]
        )
        demo = open_in(browser, mock.url)
        page = demo.page
        demo.phase("idle")
        page.fill("#text", "Say something long.")
        page.click("#send")
        page.wait_for_selector("body[data-sound=playing]")
        for turn in range(TIMES):
            page.wait_for_timeout(random_ms.uniform(*PLAYED_MS))
            mock.tell(events.interruption("possible", turn=turn, item_id="item"))
            page.wait_for_selector("body[data-sound=held]")
            found.append(float(page.locator("body").get_attribute("data-held-after-ms") or "nan"))
            mock.tell(events.interruption("false", turn=turn, item_id="item"))
            page.wait_for_selector("body[data-sound=playing]")
        browser.close()
    mock.stop()
    p90 = statistics.quantiles(found, n=10)[-1]
    print(json.dumps({"times": TIMES, "p50_ms": statistics.median(found), "p90_ms": round(p90)}))


if __name__ == "__main__":
    main()
