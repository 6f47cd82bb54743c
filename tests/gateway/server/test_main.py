import asyncio
import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from websockets.sync.client import connect

from headstart.engine import api
from headstart.gateway.config import load
from headstart.gateway.engines.engines import Engines
from headstart.gateway.engines.local import engine_argv, engine_environment
from headstart.gateway.errors import ConfigError, PortInUse
from headstart.gateway.server import main
from headstart.gateway.server.main import Announcer, bind, start_behind, url_of
from headstart.gateway.tts.link import VoiceLink, VoiceOff
from tests.gateway.server.running import WAIT_S, ask, free_port, next_event, server, until

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_server_that_is_told_to_end_in_mid_start_ends_with_0(number: signal.Signals) -> None:
    """As soon as its engine's process is there, before it serves anything. Nothing is left."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--engine", "fake"]
    argv += ["--set", "voice=none", "--set", "retire_grace_s=0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: psutil.Process(process.pid).children())
            children = psutil.Process(process.pid).children()
            process.send_signal(number)
            _, told = process.communicate(timeout=WAIT_S)
            assert process.returncode == 0
            assert "Traceback" not in told
            assert psutil.wait_procs(children, timeout=WAIT_S)[1] == []
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["--model", "smal"],
            "there is no model or weight named 'smal'; known: medium, small, tiny",
        ),
        (["--ears", "whisper"], "--ears whisper: there is no such folder"),
        (["--model", "a/folder"], "got no such directory"),
    ],
)
def test_a_name_that_nothing_has_is_refused_before_anything_else_is_started(
    settings: list[str], sentence: str
) -> None:
    """The engine knows the names. Neither the voice nor a page is there when it refuses one."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce", *settings]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "started the engine" in done.stderr
    assert "listening on" not in done.stderr
    assert "started the voice" not in done.stderr
    refusal = done.stderr.partition("headstart: the engine cannot start with these settings")[2]
    assert sentence in refusal


@pytest.mark.weights
def test_an_llm_server_that_is_none_is_refused_before_anything_else_is_started() -> None:
    """Another program answers at that address."""

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{other.server_port}"
        argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--model", "tiny"]
        done = subprocess.run(
            [*argv, "--llm", url], capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        other.shutdown()
    assert done.returncode == 2
    assert f"the LLM server at {url} lists no model" in done.stderr
    assert "listening on" not in done.stderr
    assert "started the voice" not in done.stderr


async def test_an_engine_that_takes_long_to_read_its_settings_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The libraries alone are no sign that it has; the next thing it loads is."""

    async def nobody() -> list[str]:
        raise VoiceOff("none")

    monkeypatch.setattr(main, "SETTINGS_WAIT_S", 0.01)
    announcer = Announcer("http://h", None)
    parts = main._Parts(announcer, Engines(), VoiceLink(nobody), None, None)
    supervising = asyncio.create_task(asyncio.sleep(WAIT_S))
    one = announcer.of("engine-1", None)
    one.engine_loading(api.Loading(api.LIBRARIES, 0, 0))
    assert not announcer.settings_taken.is_set()
    await parts.settings_taken(supervising)
    one.engine_loading(api.Loading("header", 0, 0))
    assert announcer.settings_taken.is_set()
    supervising.cancel()


def test_engine_killed_in_mid_answer() -> None:
    """SIGKILL: the answer fails in the session, a session that asked is told, the engine comes
    back, and the next turn of the same session works. Then SIGTERM ends all, with code 0."""
    with server("--set", "engine_args=--delta-ms 300") as running:
        running.until_ready()
        first = running.engine_process()
        with connect(running.url.replace("http", "ws") + "/v1/realtime") as ws:
            session = {"type": "realtime", "gateway": {"events": ["engine"]}}
            ws.send(json.dumps({"type": "session.update", "session": session}))
            ask(ws)
            next_event(ws, "response.output_text.delta")
            first.kill()
            done = next_event(ws, "response.done")
            assert done["response"]["status"] == "failed"
            until(lambda: running.status()["engine"]["restarts"] == 1)
            running.until_ready()
            ask(ws)
            done = next_event(ws, "response.done")
            assert done["response"]["status"] == "completed"
            assert done["response"]["output"][0]["content"][0]["text"].startswith("This is")
        assert "headstart_engine_restarts_total 1.0" in httpx.get(f"{running.url}/metrics").text
        second = running.engine_process()
        assert second.pid != first.pid
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(WAIT_S) == 0
        assert not second.is_running()


def test_port_in_use_ends_with_1_and_a_way_out() -> None:
    """The sentence names the port and what to do; no engine is started, no traceback shown."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "headstart", "serve", "--engine", "fake", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_engine_that_refuses_ends_the_server() -> None:
    """Exit code 2 and the engine's own words; the server has not said that it is there."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--announce"]
    argv += ["--engine", "fake", "--set", "engine_args=--refuse"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the engine cannot start with these settings" in done.stderr
    assert "--refuse was given" in done.stderr
    assert "Traceback" not in done.stderr


def test_procfile_starts_two_processes_that_find_each_other(tmp_path: Path) -> None:
    """`engine:` and `web:` of the Procfile, run by honcho, become one ready server."""
    environment = os.environ | {
        "HEADSTART_ENGINE": "fake",
        "HEADSTART_ENGINE_ENDPOINT": f"ipc://{tmp_path}/engine.sock",
        "HEADSTART_PORT": str(free_port()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    url = f"http://127.0.0.1:{environment['HEADSTART_PORT']}/healthz"

    def healthy() -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(url).status_code == 200
        return False

    command = ["-m", "honcho", "-f", str(PROJECT / "Procfile"), "-d", str(PROJECT), "start"]
    with subprocess.Popen(
        [sys.executable, *command],
        env=environment,
        stdout=subprocess.DEVNULL,
    ) as honcho:
        family = psutil.Process(honcho.pid)
        try:
            until(healthy)
            members = family.children(recursive=True)
        finally:
            honcho.terminate()
            honcho.wait(WAIT_S)
    assert psutil.wait_procs(members, timeout=WAIT_S)[1] == []


def test_bind_names_what_is_wrong() -> None:
    """A taken port and an address of no machine have errors of their own."""
    with bind("127.0.0.1", 0) as sock:
        assert url_of(sock) == f"http://127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(PortInUse):
            bind("127.0.0.1", sock.getsockname()[1])
    with pytest.raises(ConfigError, match="no address of any machine"):
        bind("nowhere.invalid", 0)
    with pytest.raises(ConfigError, match="cannot listen on"):
        bind("192.0.2.1", 0)  # TEST-NET-1: nobody's


def test_engine_command_line() -> None:
    """Settings reach the engine's process as flags and environment; further ones are split."""
    settings = load(flags={"model": "tiny", "threads": 2, "engine_args": "--a 'b c'"})
    argv = engine_argv(settings, "ipc:///x")
    assert argv[1:4] == ["-P", "-m", "headstart.engine"]
    assert argv[4:8] == ["--endpoint", "ipc:///x", "--model", "tiny"]
    assert argv[-4:] == ["--threads", "2", "--a", "b c"]
    assert engine_environment(settings)["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize(
    ("setting", "default", "chosen"),
    [
        ("kv_dtype", "fp32", "int8"),
        ("kv_vision_dtype", "same", "fp8"),
        ("device", "auto", "cuda:1"),
        ("ears_device", "auto", "cuda:1"),
    ],
)
def test_the_engine_is_told(setting: str, default: str, chosen: str) -> None:
    """What is chosen; its default unless something is."""
    for flags, told in (({}, default), ({setting: chosen}, chosen)):
        argv = engine_argv(load(flags=flags), "ipc:///x")
        assert argv[argv.index(f"--{setting.replace('_', '-')}") + 1] == told


def test_people_are_told_what_decodes_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the model; nothing where an LLM server decodes."""
    announcer = Announcer("http://h:1", None)
    announcer.listening()
    model = api.ModelInfo("small", 1, 1, 1, 1, 1.0, device="cpu", device_reason="the default (x)")
    announcer.engine_ready(api.Ready("1", model))
    assert "decoder on cpu: the default (x)" in capsys.readouterr().err
    announcer = Announcer("http://h:1", None)
    announcer.listening()
    announcer.engine_ready(api.Ready("1", api.ModelInfo("small", 1, 1, 1, 1, 1.0)))
    assert "decoder on" not in capsys.readouterr().err


def test_the_engine_is_told_what_to_hear_with() -> None:
    """Its own ears unless others are named; the language in any case."""
    own, others = (load(flags={"ears": ears}) for ears in (None, "/a/whisper dir"))
    assert "--ears" not in engine_argv(own, "ipc:///x")
    argv = engine_argv(others, "ipc:///x")
    assert argv[argv.index("--ears") + 1] == "/a/whisper dir"
    assert argv[argv.index("--ears-language") + 1] == "en"


def test_the_engine_is_told_whom_to_keep_up_with() -> None:
    """People at once, and the length of their chunks: what ears "auto" are measured against."""
    flags = {"ears": "auto", "ears_sessions": 3, "chunk_ms": 200}
    argv = engine_argv(load(flags=flags), "ipc:///x")
    assert argv[argv.index("--ears") + 1] == "auto"
    assert argv[argv.index("--ears-sessions") + 1] == "3"
    assert argv[argv.index("--chunk-ms") + 1] == "200"


def test_people_are_told_what_hears_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside the model, when the server is ready; nothing where nothing was chosen."""
    announcer = Announcer("http://h:1", None)
    announcer.listening()
    model = api.ModelInfo("small", 1, 1, 1, 1, 1.0, ears="whisper-base", ears_reason="it keeps up")
    announcer.engine_ready(api.Ready("1", model))
    assert "ears whisper-base: it keeps up" in capsys.readouterr().err
    model = api.ModelInfo("small", 1, 1, 1, 1, 1.0, ears="whisper-base")
    announcer.engine_ready(api.Ready("2", model))
    assert "ears" not in capsys.readouterr().err
    announcer = Announcer("http://h:1", None)
    announcer.listening()
    model = api.ModelInfo("small", 1, 1, 1, 1, 1.0, ears="whisper-base", ears_device="cuda:0")
    announcer.engine_ready(api.Ready("1", model))
    assert "ears on cuda:0" in capsys.readouterr().err


def test_a_key_that_cannot_be_is_told_before_the_engine_starts() -> None:
    """Code 2, how to make one, and no engine that has to be stopped again."""
    argv = [sys.executable, "-m", "headstart", "serve", "--port", "0", "--set", "api_keys=short"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert "a key has 5 letters" in done.stderr
    assert "started the engine" not in done.stderr


def test_the_engine_is_told_of_its_llm_server() -> None:
    """URL, model, the name of the key's variable, tokenizer and window; the fake is not."""
    flags = {"llm": "http://h:1/v1", "llm_model": "m", "llm_key_env": "KEY", "tokenizer": "/t"}
    argv = engine_argv(load(flags=flags | {"window_tokens": "9"}), "ipc:///x")
    for flag, value in {
        "--llm": "http://h:1/v1",
        "--llm-model": "m",
        "--llm-key-env": "KEY",
        "--tokenizer": "/t",
        "--window-tokens": "9",
    }.items():
        assert argv[argv.index(flag) + 1] == value
    several = engine_argv(
        load(flags={"llm": "http://a:1 http://b:2", "llm_sessions": 3}), "ipc:///x"
    )
    assert several.count("--llm") == 2
    assert several[several.index("--llm-sessions") + 1] == "3"
    assert "--llm" not in engine_argv(load(flags=flags | {"engine": "fake"}), "ipc:///x")
    assert "--llm" not in engine_argv(load(), "ipc:///x")


def test_people_are_told_what_the_llm_server_can(capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each fact, when the server is ready."""
    announcer = Announcer("http://h:1", None)
    announcer.listening()
    facts = {"prefix_block": "16 tokens"}
    model = api.ModelInfo("m", 1, 1, 1, 1, 1.0, llm_server=facts)
    announcer.engine_ready(api.Ready("1", model))
    assert "LLM server, prefix block: 16 tokens" in capsys.readouterr().err


def test_the_engine_is_started_before_the_rest_is_imported() -> None:
    """The protocol's types, media libraries and the web server take a second: they are imported
    while the engine loads."""
    rest = ("openai", "av", "numpy", "uvicorn", "starlette", "aiortc", "prometheus_client")
    asked = (
        "import sys, headstart.gateway.server.main; "
        f"print([name for name in {rest} if name in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout.strip() == "[]"


async def test_picture_decoders_start_behind_the_voice() -> None:
    """Not while it loads; also if there is to be none."""
    asked, allowed = asyncio.Event(), asyncio.Event()
    started: list[bool] = []

    async def argv() -> list[str]:
        asked.set()
        await allowed.wait()
        raise VoiceOff("none here")

    voice = VoiceLink(argv)
    voice.start()
    waiting = asyncio.create_task(start_behind(voice, lambda: started.append(True)))
    await asked.wait()
    assert not started
    allowed.set()
    await waiting
    assert started
    await voice.stop()


async def test_picture_decoders_do_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A voice may be fetched first, for minutes."""
    monkeypatch.setattr(main, "VOICE_WAIT_S", 0.0)
    started: list[bool] = []

    async def argv() -> list[str]:
        raise AssertionError

    await start_behind(VoiceLink(argv), lambda: started.append(True))
    assert started


async def test_picture_decoders_do_not_start_behind_the_servers_end() -> None:
    """It ends in the moment in which the voice is there."""
    started: list[bool] = []

    async def argv() -> list[str]:
        raise AssertionError

    voice = VoiceLink(argv)
    waiting = asyncio.create_task(start_behind(voice, lambda: started.append(True)))
    await asyncio.sleep(0)
    voice.tried.set()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not started
