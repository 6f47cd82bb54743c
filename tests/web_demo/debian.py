"""A browser as a Debian package: found, or installed where that is allowed.

`python -m tests.web_demo.debian chromium|firefox` prints where it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INSTALL_TIMEOUT_S = 300


class BrowserError(RuntimeError):
    """There is no such browser, and this user cannot install one."""


@dataclass(frozen=True)
class DebianBrowser:
    """`variable`: of the environment, whose value is the path of one to use; `programs`: names on
    the path, the best first; `package`: Debian's."""

    title: str
    variable: str
    programs: tuple[str, ...]
    package: str

    def find(self) -> Path | None:
        """The browser named by the variable, else the first one on the path."""
        named = os.environ.get(self.variable)
        found = named or next(filter(None, map(shutil.which, self.programs)), None)
        return Path(found) if found else None

    def ensure(self) -> Path:
        """The browser, installed with apt-get if need be. Raises BrowserError, never skips."""
        found = self.find()
        if found is None:
            self._install()
            found = self.find()
        if found is None:
            raise BrowserError(f"apt-get installed {self.package}, but it is not on the path")
        return found

    def _install(self) -> None:
        if shutil.which("apt-get") is None or os.geteuid() != 0:
            raise BrowserError(
                f"the browser tests need {self.title}: install it (Debian: apt-get install "
                f"{self.package}), or name one in the environment variable {self.variable}"
            )
        print(
            f"headstart: installing {self.package} for the browser tests (about 100 MB, once)",
            flush=True,
        )
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", self.package],
        ):
            done = subprocess.run(
                command, timeout=INSTALL_TIMEOUT_S, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise BrowserError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


CHROMIUM = DebianBrowser(
    "Chromium", "CHROMIUM", ("chromium", "chromium-browser", "google-chrome"), "chromium"
)
FIREFOX = DebianBrowser("Firefox", "FIREFOX", ("firefox-esr", "firefox"), "firefox-esr")

if __name__ == "__main__":
    print({"chromium": CHROMIUM, "firefox": FIREFOX}[sys.argv[1]].ensure())
