"""Package clients know where packages are: no registry's host stands in this repository."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# In pieces, for this file is looked at too.
HOSTS = [
    "pypi" + ".org",
    "python" + "hosted.org",
    "npm" + "js.org",
    "npm" + "js.com",
    "yarn" + "pkg.com",
    "deb.debian" + ".org",
    "security.debian" + ".org",
    "archive.ubuntu" + ".com",
    "ana" + "conda.org",
    "download.py" + "torch.org",
    "crates" + ".io",
    "proxy.golang" + ".org",
]
LOCKED = '"resolved": "' + "http"
"""How a lock file of npm's names the mirror that it was made with."""


def found(text: str) -> list[str]:
    """The registries' hosts that a text names."""
    named = [host for host in HOSTS if re.search(re.escape(host), text, re.IGNORECASE)]
    return [*named, *([LOCKED] if LOCKED in text else [])]


def test_hosts_are_found() -> None:
    """In any letters."""
    assert found("https://" + HOSTS[0].upper() + "/simple/name/") == [HOSTS[0]]
    assert found("pip download name") == []


def test_no_registry_is_named() -> None:
    """In no file that git tracks: mirrors and proxies are the package clients' business."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    texts = {path: path.read_bytes().decode(errors="ignore") for path in paths if path.is_file()}
    named = {str(path.relative_to(ROOT)): found(text) for path, text in texts.items()}
    assert {path: hosts for path, hosts in named.items() if hosts} == {}
