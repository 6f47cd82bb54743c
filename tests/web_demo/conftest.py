"""A browser, a scripted gateway, and pages between the two.

The browser is Chromium, or with HEADSTART_TEST_BROWSER=firefox Firefox. What only Chromium has,
Firefox skips, and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from asyncio import events
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, sync_playwright

from tests.web_demo import chromium, firefox
from tests.web_demo.mock_gateway import MockGateway

FIND_TIMEOUT_MS = 60_000
POLL_MS = 20
MICROPHONE_FLAG = "--use-file-for-fake-audio-capture="
ON_FIREFOX = os.environ.get("HEADSTART_TEST_BROWSER", "chromium") == "firefox"


def chromium_alone(reason: str) -> pytest.MarkDecorator:
    """Marks a test that Firefox skips for `reason`."""
    return pytest.mark.skipif(ON_FIREFOX, reason=f"Chromium alone: {reason}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything that asks for a browser is marked so."""
    for item in items:
        if "browser_factory" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


@dataclass
class OpenPage:
    """A page of the web demo, and everything its console complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def phase(self, wanted: str) -> None:
        """Waits until the page is in that phase."""
        self.page.wait_for_selector(f"body[data-phase={wanted}]")

    def until(self, holds: Callable[[], bool]) -> None:
        """Waits, with the page going on, until something outside it holds."""
        deadline = time.monotonic() + FIND_TIMEOUT_MS / 1000
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {FIND_TIMEOUT_MS} ms in vain")
            self.page.wait_for_timeout(POLL_MS)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).last.inner_text()


class _DriversLoop:
    """Playwright's synchronous interface keeps a running event loop in this thread. Between tests
    that use it nobody is to see it: an asynchronous test starts one of its own, whatever ran before
    it. (`asyncio` has no public way to say so.)"""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        before = events._get_running_loop()
        events._set_running_loop(self._loop or before)
        try:
            yield
        finally:
            self._loop = events._get_running_loop()
            events._set_running_loop(before if self._loop is not None else None)


_loop = _DriversLoop()


def _uses_browser(item: pytest.Item) -> bool:
    return "playwright_driver" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with _loop.seen() if _uses_browser(item) else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with _loop.seen() if _uses_browser(item) else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with _loop.seen() if _uses_browser(item) else contextlib.nullcontext():
        return (yield)


@pytest.fixture(scope="session")
def playwright_driver() -> Iterator[Playwright]:
    driver = sync_playwright().start()
    yield driver
    with _loop.seen():  # this may be behind a test of another kind
        driver.stop()


BrowserFactory = Callable[..., Browser]


_microphones: dict[Browser, Path] = {}  # of Firefox, where a page plays the file itself


def start_firefox(
    driver: Playwright, folder: Path, flags: tuple[str, ...], pulse_server: str
) -> Browser:
    """Firefox with what Chromium's `flags` for devices mean; skips the test where it has nothing
    alike."""
    known = {*chromium.FAKE_DEVICES}
    wav = next(
        (
            Path(flag[len(MICROPHONE_FLAG) :].removesuffix("%noloop"))
            for flag in flags
            if flag.startswith(MICROPHONE_FLAG)
        ),
        None,
    )
    foreign = [f for f in flags if f not in known and not f.startswith(MICROPHONE_FLAG)]
    if foreign:
        pytest.skip(f"Chromium alone: Firefox has nothing like {' '.join(foreign)}")
    environment: dict[str, str | float | bool] = {**os.environ, "PULSE_SERVER": pulse_server}
    browser = driver.firefox.launch(
        channel="moz-firefox",
        executable_path=firefox.executable(folder),
        env=environment,
        firefox_user_prefs=firefox.PREFERENCES | (firefox.FAKE_DEVICES if flags else {}),
        timeout=firefox.LAUNCH_TIMEOUT_MS,
    )
    if wav:
        _microphones[browser] = wav
    return browser


@pytest.fixture(scope="session")
def loudspeaker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """What Firefox plays on, a value of PULSE_SERVER; Chromium needs none."""
    if not ON_FIREFOX:
        yield ""
        return
    with firefox.loudspeaker(tmp_path_factory.mktemp("sound")) as pulse_server:
        yield pulse_server


@pytest.fixture(scope="session")
def browser_factory(
    playwright_driver: Playwright, tmp_path_factory: pytest.TempPathFactory, loudspeaker: str
) -> Iterator[BrowserFactory]:
    """Starts browsers with the given extra flags of Chromium; all are closed at the end."""
    started: list[Browser] = []

    def start(*flags: str) -> Browser:
        if ON_FIREFOX:
            folder = tmp_path_factory.mktemp("firefox")
            browser = start_firefox(playwright_driver, folder, flags, loudspeaker)
        else:
            browser = playwright_driver.chromium.launch(
                executable_path=chromium.ensure(), args=[*chromium.ARGS, *flags]
            )
        started.append(browser)
        return browser

    yield start
    with _loop.seen():
        for browser in started:
            browser.close()


@pytest.fixture(scope="session")
def browser(browser_factory: BrowserFactory) -> Browser:
    """The shared browser: its microphone beeps, its camera shows a moving pattern."""
    return browser_factory(*chromium.FAKE_DEVICES)


@pytest.fixture(scope="session")
def mock_server() -> Iterator[MockGateway]:
    server = MockGateway()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def mock(mock_server: MockGateway) -> MockGateway:
    """The scripted gateway, as new."""
    mock_server.reset()
    return mock_server


@pytest.fixture
def own_server() -> MockGateway:
    """A scripted gateway of the test's own, which it stops."""
    server = MockGateway()
    server.start()
    return server


PageOpener = Callable[..., OpenPage]


def open_in(browser: Browser, url: str, **settings: Any) -> OpenPage:
    """Opens `url` in a fresh context of `browser`; `settings` go to that context."""
    if ON_FIREFOX:  # from Playwright it takes no media features
        settings.pop("reduced_motion", None)
        if settings.pop("color_scheme", "light") != "light":
            pytest.skip("Chromium alone: Firefox takes no colour scheme from Playwright")
    context = browser.new_context(**settings)
    if browser in _microphones:
        context.add_init_script(firefox.fake_microphone(_microphones[browser]))
    page = context.new_page()
    page.set_default_timeout(FIND_TIMEOUT_MS)
    opened = OpenPage(page)
    page.on("console", opened.note)
    page.on("pageerror", lambda error: opened.complaints.append(str(error)))
    page.goto(url)
    return opened


@pytest.fixture(scope="session")
def workbench(browser: Browser, mock_server: MockGateway) -> Page:
    """One page for all tests that only call the page's modules and leave no trace."""
    return open_in(browser, mock_server.url).page


@pytest.fixture
def open_page() -> Iterator[PageOpener]:
    """`open_in`, closed when the test is over."""
    pages: list[Page] = []

    def start(browser: Browser, url: str, **settings: Any) -> OpenPage:
        opened = open_in(browser, url, **settings)
        pages.append(opened.page)
        return opened

    yield start
    for page in pages:
        page.context.close()


@pytest.fixture
def demo(browser: Browser, mock: MockGateway, open_page: PageOpener) -> OpenPage:
    """The page, connected to the scripted gateway and ready."""
    opened = open_page(browser, mock.url)
    opened.phase("idle")
    return opened


@pytest.fixture(scope="session")
def clips() -> Path:
    return Path(__file__).parents[2] / "headstart" / "clips"
