"""PyTorch's build for CPUs: taken from an index that has it, and done without where none does.

The index is a server of the test's own, with wheels that hold a name and a version alone, and they
are installed into an environment made for it.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import http.server
import importlib.metadata
import os
import re
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import threading
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headstart import setup_check, setup_torch

ROOT = Path(__file__).resolve().parents[2]
PINS = setup_torch.pins()
CPU = [f"{name}=={PINS[name]}+cpu" for name in setup_torch.PACKAGES]
INSTALLED = """
from importlib.metadata import distributions
print(*(f"{each.name}=={each.version}" for each in distributions()))
"""


def wheel(folder: Path, name: str, version: str, *lines: str) -> Path:
    """A wheel with nothing in it but a description with these lines."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    described = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines])
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", described + "\n")
        file.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr(f"{info}/RECORD", "")
    return path


@dataclass
class Index:
    """A package index of the simple kind, in a folder."""

    folder: Path
    url: str
    asked: list[str] = field(default_factory=list)

    def add(self, name: str, version: str, *lines: str, digest: str | None = None) -> None:
        """A wheel and the page that lists it; `digest` "" for none, None for the right one."""
        path = wheel(self.folder / name, name, version, *lines)
        if digest is None:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        end = f"#sha256={digest}" if digest else ""
        link = f'<a href="{path.name.replace("+", "%2B")}{end}">{path.name}</a>'
        (path.parent / "index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    """One that is empty at first."""
    made = Index(tmp_path / "index", "")
    made.folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            made.asked.append(self.path)

    handler = functools.partial(Handler, directory=str(made.folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        made.url = f"http://127.0.0.1:{server.server_port}/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield made
        server.shutdown()


@dataclass
class Environment:
    """A virtual environment with pip and uv."""

    folder: Path

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Its Python, which gets nothing from any other index."""
        no_proxy = {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
        return subprocess.run(
            [self.folder / "bin" / "python", *argv],
            cwd=ROOT,
            env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""} | no_proxy | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def set_up(
        self, choice: str, index: str, before: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """What `make setup TORCH=choice` does about PyTorch, on a machine without a GPU."""
        code = "import sys; from headstart import setup_check, setup_torch"
        code += "; setup_check.has_nvidia_gpu = lambda: False"
        code += "; setup_check.room_problem = lambda *_: ''"
        code += f"{before}; sys.exit(setup_torch.main())"
        return self.run("-c", code, choice, "--index", index, **variables)

    def packages(self) -> set[str]:
        """What is installed, without the tools, and without what `make setup` has left in `ROOT`
        (headstart.egg-info), which Python finds there."""
        tools = ("pip==", "setuptools==", "uv==", "headstart==")
        every = self.run("-c", INSTALLED).stdout.split()
        return {each for each in every if not each.startswith(tools)}

    def put(self, folder: Path, *packages: str) -> None:
        """Install wheels that lie in a folder."""
        done = self.run("-m", "pip", "install", "--no-deps", "--find-links", str(folder), *packages)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def with_uv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment to copy: making one with pip takes seconds."""
    folder = tmp_path_factory.mktemp("made") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--copies", folder], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for path in importlib.metadata.files("uv") or ():
        if path.parts[0] != "..":
            target = folder / "lib" / version / "site-packages" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path.locate(), target)
    shutil.copy(Path(sysconfig.get_path("scripts")) / "uv", folder / "bin" / "uv")
    return folder


@pytest.fixture
def environment(with_uv: Path, tmp_path: Path) -> Environment:
    """One of this test's own."""
    shutil.copytree(with_uv, tmp_path / ".venv", symlinks=True)
    return Environment(tmp_path / ".venv")


class Authority:
    """Certificates for servers, of an authority made for this test."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
        whole = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._certificate(self.name, self.key, whole)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, host: str) -> ssl.SSLContext:
        """What a server of that name shows."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server")])
        alternative = x509.SubjectAlternativeName([x509.DNSName(host)])
        shown = self._certificate(name, key, alternative)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
            file.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
            file.write(shown.public_bytes(pem))
            file.flush()
            context.load_cert_chain(file.name)
        return context

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=False)
            .sign(self.key, hashes.SHA256())
        )


def full(index: Index, digest: str | None = None) -> None:
    """Both packages, PyTorch with dependencies that the index does not have."""
    index.add("torch", f"{PINS['torch']}+cpu", "Requires-Dist: filelock", digest=digest)
    index.add("torchaudio", f"{PINS['torchaudio']}+cpu", digest=digest)


@pytest.mark.parametrize("digest", [None, ""])
def test_the_build_for_cpus_is_taken_and_satisfies_the_pins(
    index: Index, environment: Environment, digest: str | None, tmp_path: Path
) -> None:
    """Only these two are asked of that index, and pip then leaves them alone; a second set-up asks
    nothing. Some of the index's pages have lacked digests."""
    full(index, digest)
    done = environment.set_up("auto", index.url)
    assert (done.returncode, environment.packages()) == (0, set(CPU)), done.stderr
    assert "headstart: about 0.6 GB to download, 2.2 GB on disk" in done.stderr
    names = {path.split("/")[1] for path in index.asked}
    assert names == set(setup_torch.PACKAGES)
    assert not list(environment.folder.glob("uv-*"))

    wheel(tmp_path / "pypi", "filelock", "1.0")
    wheel(tmp_path / "pypi", "torch", PINS["torch"])
    lock = tmp_path / "lock.txt"
    lock.write_text(f"torch=={PINS['torch']}\nfilelock==1.0\n")
    pip = ("-m", "pip", "install", "--find-links", str(tmp_path / "pypi"), "-c", str(lock))
    assert environment.run(*pip, f"torch=={PINS['torch']}").returncode == 0
    assert environment.packages() == {*CPU, "filelock==1.0"}

    asked = len(index.asked)
    again = environment.set_up("auto", index.url)
    assert (again.returncode, again.stderr, len(index.asked)) == (0, "", asked)


class Impostor(socketserver.StreamRequestHandler):
    """A proxy that answers for every host itself, from an index's folder, with a certificate of an
    authority that the test made."""

    index: Index
    sign: Callable[[str], ssl.SSLContext]

    def handle(self) -> None:
        """CONNECT, and then one request after the other inside."""
        host = self.rfile.readline().split()[1].decode().partition(":")[0]
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            with type(self).sign(host).wrap_socket(self.connection, server_side=True) as inside:
                self._serve(host, inside.makefile("rwb", buffering=0))
        except OSError:
            pass  # the client has left

    def _serve(self, host: str, inside: socket.SocketIO) -> None:
        while words := inside.readline().split():
            while inside.readline().strip():
                pass
            path = words[1].decode()
            self.index.asked.append(f"{host}{path}")
            place = self.index.folder / urllib.parse.unquote(path.removeprefix("/whl/cpu/"))
            place = place / "index.html" if place.is_dir() else place
            body = place.read_bytes() if place.is_file() else b""
            status = b"200 OK" if body else b"404 Not Found"
            kind = b"text/html" if place.suffix == ".html" else b"application/octet-stream"
            head = b"HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
            inside.write(head % (status, kind, len(body)) + body)


def test_pytorchs_own_index_is_asked_by_default(
    tmp_path: Path, index: Index, environment: Environment
) -> None:
    """uv knows its address. It is asked for these two packages, and no other place for anything."""
    full(index)
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    members = {"index": index, "sign": staticmethod(authority.server)}
    handler = type("Handler", (Impostor,), members)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        proxy = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY"), address)
        certificates = {"SSL_CERT_FILE": str(tmp_path / "ca.pem"), "NO_PROXY": "", "no_proxy": ""}
        done = environment.set_up("auto", "", **proxy, **certificates)
        server.shutdown()
    assert (done.returncode, environment.packages()) == (0, set(CPU)), done.stderr
    assert len({path.split("/")[0] for path in index.asked}) == 1
    pages = {path.partition("/")[2] for path in index.asked if path.endswith("/")}
    assert pages == {f"whl/cpu/{name}/" for name in setup_torch.PACKAGES}


def test_an_older_index_is_done_without(index: Index, environment: Environment) -> None:
    """It has neither this version nor a page for every package: one line says so, and nothing is
    installed."""
    index.add("torch", "1.0+cpu")
    done = environment.set_up("auto", index.url)
    assert (done.returncode, environment.packages()) == (0, set())
    first, second = done.stderr.splitlines()
    assert first.startswith("headstart: PyTorch's build for CPUs is not to be had (")
    assert f"torch=={PINS['torch']}+cpu" in first or "torchaudio" in first
    assert second.startswith("headstart: about 3.4 GB to download, 6.8 GB on disk")


def test_a_wheel_that_is_not_the_one_listed_is_not_installed(
    index: Index, environment: Environment
) -> None:
    """uv says why; set-up goes on with PyPI's."""
    full(index, digest="0" * 64)
    done = environment.set_up("auto", index.url)
    assert (done.returncode, environment.packages()) == (0, set())
    assert "not to be had" in done.stderr


@pytest.mark.parametrize("how", ["refused", "silent", "no such host"])
def test_an_index_out_of_reach_costs_one_line_and_little_time(
    how: str, environment: Environment
) -> None:
    """Nobody listens, nobody answers, nobody is of that name."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        if how == "refused":
            server.close()
        if how == "no such host":
            url = "http://index.invalid/"
        done = environment.set_up("auto", url, before="; setup_torch.PROBE_TIMEOUT_S = 1.0")
    assert done.returncode == 0, done.stderr
    first, _ = done.stderr.splitlines()
    reason = re.fullmatch(
        r"headstart: PyTorch's build for CPUs is not to be had \((.+)\): going on with PyPI's",
        first,
    )
    assert reason is not None, first
    if how == "silent":
        assert reason[1] == "no answer within 1 s"


def test_whoever_asks_for_it_is_told_that_it_failed(environment: Environment) -> None:
    """`TORCH=cpu` takes nothing else."""
    done = environment.set_up("cpu", "http://index.invalid/")
    assert done.returncode == 1
    assert done.stderr.startswith("headstart: PyTorch's build for CPUs could not be installed: ")


def test_changing_over_to_cuda_makes_way_for_pypis_build(
    index: Index, environment: Environment
) -> None:
    """pip would find the pin satisfied. `auto` keeps what is there."""
    full(index)
    environment.set_up("cpu", index.url)
    assert environment.set_up("auto", "http://index.invalid/").stderr == ""
    done = environment.set_up("cuda", index.url)
    assert (done.returncode, environment.packages()) == (0, set()), done.stderr


def test_changing_over_to_the_cpu_removes_cudas_libraries(
    index: Index, environment: Environment, tmp_path: Path
) -> None:
    """Once the other build is in place, and no others; `auto` keeps what is there."""
    full(index)
    cuda = [f"{name}=={PINS[name]}" for name in ("nvidia-cublas", "cuda-toolkit", "triton")]
    cuda += [f"{name}=={PINS[name]}" for name in setup_torch.PACKAGES]
    others = ["nvidia-of-mine==1.0", f"numpy=={PINS['numpy']}"]
    for each in (*cuda, *others):
        wheel(tmp_path / "pypi", *each.split("=="))
    environment.put(tmp_path / "pypi", *cuda, *others)
    assert environment.set_up("auto", index.url).stderr == ""
    assert environment.packages() == {*cuda, *others}

    assert environment.set_up("cpu", "http://index.invalid/").returncode == 1
    assert environment.packages() == {*cuda, *others}
    done = environment.set_up("cpu", index.url)
    assert (done.returncode, environment.packages()) == (0, {*CPU, *others}), done.stderr


def test_too_little_room_for_cuda_is_told_before_the_download(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check before looked for the build for CPUs."""
    monkeypatch.setattr(setup_torch, "build_here", lambda: None)
    monkeypatch.setattr(setup_check, "room_problem", lambda *_: "2 GB free, needs 10")
    monkeypatch.delenv(setup_check.SWITCH, raising=False)
    assert setup_torch.main(["cuda"]) == 1
    assert capsys.readouterr().err == "headstart: 2 GB free, needs 10\n"
    monkeypatch.setenv(setup_check.SWITCH, "off")
    assert setup_torch.main(["cuda"]) == 0


@pytest.mark.parametrize(
    ("build", "gpu", "told"), [("cpu", True, True), ("cpu", False, False), ("cuda", True, False)]
)
def test_a_gpu_that_came_later_is_told_of(
    build: str,
    gpu: bool,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At each `make setup`, with the command that changes over."""
    monkeypatch.setattr(setup_torch, "build_here", lambda: build)
    monkeypatch.setattr(setup_check, "has_nvidia_gpu", lambda: gpu)
    assert setup_torch.main(["remark"]) == 0
    assert ("`make setup TORCH=cuda`" in capsys.readouterr().err) == told


def test_the_innermost_cause_is_the_reason() -> None:
    """Of what uv and pip say when an index cannot be reached, or lacks something."""
    uv = "error: Failed to fetch\n  cause: client error\n  cause: no such name\n"
    assert setup_torch._reason(uv) == "no such name"
    cross = "\u00d7 No solution"
    assert setup_torch._reason(f"warning: a\n  {cross}\n  ╰─▶ no torch") == f"{cross} ╰─▶ no torch"
    assert setup_torch._reason("ERROR: one\nERROR: two") == "ERROR: two"
    assert setup_torch._reason("") == ""
