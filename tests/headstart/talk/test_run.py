import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headstart.gateway.errors import FileEmpty, PortInUse
from headstart.talk.client import TalkOptions
from headstart.talk.media.playback import MediaFile, probe
from headstart.talk.run import TalkCommand, run


def test_last_line_is_the_result(
    fake_server_url: str, spoken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--json` against a running server: exit code 0, the last line is the whole."""
    command = TalkCommand([spoken], fake_server_url, as_json=True, options=TalkOptions(fast=True))
    assert run(command) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["answer"] == "This is an answer that comes word by word."


def test_a_file_is_probed_once(
    fake_server_url: str, spoken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first minute is decoded before a server is asked, and not again before it is played."""
    probed: list[Path] = []

    def counted(path: Path) -> MediaFile:
        probed.append(path)
        return probe(path)

    monkeypatch.setattr("headstart.talk.run.probe", counted)
    monkeypatch.setattr("headstart.talk.client.probe", counted)
    command = TalkCommand([spoken], fake_server_url, as_json=True, options=TalkOptions(fast=True))
    assert run(command) == 0
    assert probed == [spoken]


def test_the_port_of_the_demo_is_ours_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--port` reaches the server; one that is in use is refused before anything is started."""
    ports: list[int] = []

    def started(arguments: list[str], port: int) -> None:
        ports.append(port)
        raise FileEmpty("", "enough")

    monkeypatch.setattr("headstart.talk.run.local_server", started)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use"):
            run(TalkCommand([], stay=True, port=port))
    assert ports == []
    with pytest.raises(FileEmpty):
        run(TalkCommand([], stay=True, port=port))
    assert ports == [port]


def test_bad_file_is_named_before_a_server_is_started(tmp_path: Path) -> None:
    """0 bytes: the file's own error, at once."""
    empty = tmp_path / "empty.wav"
    empty.touch()
    with pytest.raises(FileEmpty):
        run(TalkCommand([empty]))


def test_command_starts_its_own_server_and_reports_failure(spoken: Path) -> None:
    """Without --url a server is started; an answer that fails ends with 1 and says why."""
    argv = [sys.executable, "-m", "headstart", "talk", str(spoken), "--fast", "--engine", "fake"]
    done = subprocess.run(
        argv,
        env={"HEADSTART_ENGINE_ARGS": "--fail-after 2", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "failed: the script says so" in done.stdout


def test_command_names_bad_files_with_code_2(tmp_path: Path) -> None:
    """A text file is no sound; one sentence, no traceback."""
    text = tmp_path / "text.wav"
    text.write_text("words " * 1000)
    argv = [sys.executable, "-m", "headstart", "talk", str(text)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 2
    assert "is no sound or video file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "flags", [["--stay"], ["--engine", "fake"], ["--ears", "auto"], ["--config", "a.toml"]]
)
def test_a_flag_for_its_own_server_is_refused_with_an_address(
    flags: list[str], spoken: Path
) -> None:
    """They would be ignored: that server was started by somebody else."""
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "talk", spoken, "--url", "http://127.0.0.1:9", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = " ".join(done.stderr.replace("│", " ").split())
    assert done.returncode == 2
    assert f"{flags[0]} is for the server that talk starts: leave out --url" in said
