"""Stock clients, unmodified, against real servers: `python -m tests.clients.run [NAME ...]`.

Each client lives in an environment of its own under `.venv-clients/`, built from its pinned list
and kept until that list changes. Every turn is a line as it happens; the end names what failed,
and the exit status is 1 if anything did.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.clients import servers

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
ENVIRONMENTS = ROOT / ".venv-clients"
STAMP = ".installed"
NODE_MAJOR_MIN = 20
PYTHON_CLIENTS = ("openai_agents", "pipecat", "livekit")
JS_CLIENTS = ("openai_agents_js",)
RELAY = "relay"
"""coturn, at which our own client and server meet."""
CLIENT_LIMIT_S = 900


def say(text: str) -> None:
    print(f"clients: {text}", flush=True)


def environment(name: str, lists: Sequence[str], build: Callable[[Path], None]) -> Path:
    """The client's environment, built anew if one of its `lists` has changed. Raises
    `CalledProcessError` or `OSError` when it cannot be built."""
    folder = ENVIRONMENTS / name
    wanted = hashlib.sha256(b"".join((HERE / name / each).read_bytes() for each in lists))
    stamp = folder / STAMP
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        return folder
    say(f"{name}: building its environment (once; a minute or two)")
    shutil.rmtree(folder, ignore_errors=True)
    began_s = time.monotonic()
    build(folder)
    stamp.write_text(wanted.hexdigest())
    say(f"{name}: built in {time.monotonic() - began_s:.0f} s")
    return folder


def pip_install(folder: Path, requirements: Path) -> None:
    """A virtual environment with what the list names."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-qq", "-r", str(requirements)], check=True)


def python_client(name: str) -> list[str]:
    """The command that runs a Python client's turns."""

    def build(folder: Path) -> None:
        pip_install(folder, HERE / name / "requirements.txt")

    folder = environment(name, ["requirements.txt"], build)
    return [str(folder / "bin" / "python"), "-m", f"tests.clients.{name}.turns"]


def js_client(name: str) -> list[str]:
    """The command that runs a JavaScript client's turns. Packages are found beside the script, so
    it is copied to where they are."""
    tools = node_folder()
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"

    def build(folder: Path) -> None:
        folder.mkdir(parents=True)
        for each in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name / each, folder)
        npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(npm, cwd=folder, check=True, env=os.environ | {"PATH": path})

    folder = environment(name, ["package.json", "package-lock.json"], build)
    shutil.copy(HERE / name / "turns.mjs", folder)
    return [str(tools / "node"), str(folder / "turns.mjs")]


def relay() -> list[str]:
    """The command that calls through coturn: the system's, or Debian's package, unpacked with its
    libraries in a folder, for which nobody has to be root."""
    turnserver = shutil.which("turnserver")
    if turnserver is None:
        folder = environment(RELAY, ["packages.txt"], unpack_relay)
        turnserver = str(folder / "usr" / "bin" / "turnserver")
    return [sys.executable, "-m", "tests.clients.relay.turns", turnserver]


def unpack_relay(folder: Path) -> None:
    """The packages of the list and the libraries they need, but for those every system has."""
    folder.mkdir(parents=True)
    wanted = (HERE / RELAY / "packages.txt").read_text().split()
    depends = subprocess.run(
        ["apt-cache", "depends", *wanted], capture_output=True, text=True, check=True
    ).stdout
    libraries = re.findall(r"Depends: (lib(?:event|hiredis|mariadb|pq|sqlite)\S+)", depends)
    subprocess.run(["apt-get", "download", "-qq", *wanted, *libraries], cwd=folder, check=True)
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=folder, check=True)


def node_folder() -> Path:
    """Where `node` and `npm` are: the system's if new enough, else those of PyPI's wheel."""
    node = shutil.which("node")
    if node is not None and shutil.which("npm") is not None:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        if int(version.stdout.strip().lstrip("v").split(".")[0]) >= NODE_MAJOR_MIN:
            return Path(node).parent

    def build(folder: Path) -> None:
        pip_install(folder, HERE / "node" / "requirements.txt")

    return environment("node", ["requirements.txt"], build) / "bin"


def run(name: str, urls: dict[str, str]) -> str:
    """One client's turns; "" or why it failed."""
    try:
        if name == RELAY:
            command = relay()
        else:
            command = python_client(name) if name in PYTHON_CLIENTS else js_client(name)
    except (subprocess.CalledProcessError, OSError) as error:
        return f"its environment could not be built: {error}"
    own = {"PYTHONPATH": str(ROOT), "HEADSTART_ROOT": str(ROOT), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | urls | own, timeout=CLIENT_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"it did not end within {CLIENT_LIMIT_S} s"
    return "" if done.returncode == 0 else f"exit status {done.returncode}; see FAILED above"


def main(names: Sequence[str]) -> int:
    known = (*PYTHON_CLIENTS, *JS_CLIENTS, RELAY)
    unknown = [name for name in names if name not in known]
    if unknown:
        say(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
        return 2
    wanted = names or known
    say("starting two servers: a scripted engine, and the real model `tiny`")
    with servers.fake() as fake, servers.tiny() as tiny:
        urls = {"HEADSTART_FAKE_URL": fake, "HEADSTART_TINY_URL": tiny}
        results = {name: run(name, urls) for name in wanted}
    for name, problem in results.items():
        say(f"{name}: {'FAILED: ' + problem if problem else 'passed'}")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
