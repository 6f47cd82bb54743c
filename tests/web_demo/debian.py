"""A browser, or what one needs, as a Debian package: found, or installed where that is allowed.

`python -m tests.web_demo.debian chromium|firefox|pulseaudio` prints where it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.debian_tools import alone

INSTALL_TIMEOUT_S = 300


class BrowserError(RuntimeError):
    """There is no such program, and this user cannot install one; or it does not start."""


@dataclass(frozen=True)
class DebianProgram:
    """`variable`: of the environment, whose value is the path of one to use; `programs`: names on
    the path, the best first; `package`: Debian's; `size_mb`: of the download, about."""

    title: str
    variable: str
    programs: tuple[str, ...]
    package: str
    size_mb: int = 100

    def find(self) -> Path | None:
        """The program named by the variable, else the first one on the path."""
        named = os.environ.get(self.variable)
        found = named or next(filter(None, map(shutil.which, self.programs)), None)
        return Path(found) if found else None

    def ensure(self) -> Path:
        """The program, installed with apt-get if need be. Raises BrowserError, never skips."""
        found = self.find()
        if found is None:
            with alone(Path(__file__).parent):
                if self.find() is None:
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
            f"headstart: installing {self.package} for the browser tests "
            f"(about {self.size_mb} MB, once)",
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


CHROMIUM = DebianProgram(
    "Chromium", "CHROMIUM", ("chromium", "chromium-browser", "google-chrome"), "chromium"
)
FIREFOX = DebianProgram("Firefox", "FIREFOX", ("firefox-esr", "firefox"), "firefox-esr")
PULSEAUDIO = DebianProgram("PulseAudio", "PULSEAUDIO", ("pulseaudio",), "pulseaudio", 10)

if __name__ == "__main__":
    programs = {"chromium": CHROMIUM, "firefox": FIREFOX, "pulseaudio": PULSEAUDIO}
    print(programs[sys.argv[1]].ensure())
