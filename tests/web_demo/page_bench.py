"""What tests of the talk page do again and again: what axe finds, and devices that fail."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

AXE_SCRIPT = Axe().axe_script

FAILS = """(name) => {
  navigator.mediaDevices.getUserMedia = async () => { throw new DOMException("it failed", name); };
}"""
"""Has the page's devices fail with a DOMException of that name."""


AXE = """axe.run(document).then(({ violations }) => violations.flatMap(
  ({ id, nodes }) => nodes.map((node) =>
    `${id}: ${node.target.join(' ')}: ${node.failureSummary}`)))"""


def findings(page: Page) -> list[str]:
    """What axe-core says of the page as it is: rule, element, why. It is put in as a debugger would
    do it, since the page's own policy lets no such script in; Playwright does so in Firefox."""
    browser = page.context.browser
    assert browser is not None
    found: list[str]
    if browser.browser_type.name == "firefox":
        page.evaluate(f"{AXE_SCRIPT};0")
        found = page.evaluate(AXE)
        return found
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": f"{AXE_SCRIPT};0"})
    done = session.send(
        "Runtime.evaluate", {"expression": AXE, "awaitPromise": True, "returnByValue": True}
    )
    assert "exceptionDetails" not in done, done
    found = done["result"]["value"]
    return found
