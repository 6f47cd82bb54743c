import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headstart.cli import PLUGIN_GROUP, build
from headstart.gateway.errors import ConfigError
from headstart.gateway.settings import Settings
from headstart.talk.run import TalkCommand

runner = CliRunner()


def headstart(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headstart", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def plugin(name: str, value: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, value, PLUGIN_GROUP)


def test_help_lists_everything_and_imports_nothing_heavy() -> None:
    """Own commands and plug-ins are listed without torch, av, the schema or a server in memory."""
    code = (
        "import sys\n"
        "from headstart import cli\n"
        "sys.argv = ['headstart', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'av', 'openai', 'uvicorn', 'pydantic', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in ("serve", "talk", "settings", "validate", "engine", "web", "models", "bench"):
        assert f" {name} " in done.stdout


def test_plugin_gets_all_its_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, --help included, go to the plug-in untouched."""
    (tmp_path / "a_plugin.py").write_text(
        "import typer\napp = typer.Typer()\n"
        "@app.command()\ndef one(loud: bool = False): print('one', loud)\n"
        "@app.command()\ndef two(): print('two')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = build([plugin("extra", "a_plugin:app")])
    assert runner.invoke(app, ["extra", "one", "--loud"]).output == "one True\n"
    assert "headstart extra" in runner.invoke(app, ["extra", "--help"]).output


def test_broken_plugin_breaks_itself_alone() -> None:
    """Its call says what is wrong and ends with 1; the help still works."""
    app = build([plugin("broken", "no_such_module_anywhere:app")])
    broken = runner.invoke(app, ["broken"])
    assert broken.exit_code == 1
    assert "cannot be loaded from no_such_module_anywhere:app" in broken.output
    assert runner.invoke(app, ["--help"]).exit_code == 0


def test_version() -> None:
    """--version says the distribution's."""
    output = runner.invoke(build([]), ["--version"]).output
    assert output == f"headstart {importlib.metadata.version('headstart')}\n"


def test_validate(tmp_path: Path) -> None:
    """A good file is called good and its settings named; a bad one ends with 2 and a sentence."""
    file = tmp_path / "headstart.toml"
    file.write_text("port = 1234\n")
    good = headstart("validate", str(file))
    assert (good.returncode, good.stdout) == (0, f"{file}: good; sets port\n")
    file.write_text("port = -1\n")
    bad = headstart("validate", str(file))
    assert bad.returncode == 2
    assert "allowed: a whole number from 0 up to 65535" in bad.stderr
    assert "Traceback" not in bad.stderr


def test_several_llm_servers_are_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--llm` again for each; the same one twice is refused by name."""
    seen: list[Settings] = []
    serve = "headstart.gateway.server.main.serve"
    monkeypatch.setattr(serve, lambda wanted, _: seen.append(wanted))
    app = build([])
    runner.invoke(app, ["serve", "--llm", "http://a:1", "--llm", "http://b:2"])
    assert seen[0].llm_urls == ["http://a:1", "http://b:2"]
    done = runner.invoke(app, ["serve", "--llm", "http://a:1", "--llm", "http://a:1"])
    assert isinstance(done.exception, ConfigError)
    assert "names a server twice" in str(done.exception)


def test_the_demo_may_stand_before_a_persons_own_llm_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `serve` takes for that, the demo hands on, some of it more than once."""
    ran: list[TalkCommand] = []

    def run(command: TalkCommand) -> int:
        ran.append(command)
        return 0

    monkeypatch.setattr("headstart.talk.run.run", run)
    config = tmp_path / "settings.toml"
    given = {
        "--llm": ["http://127.0.0.1:1", "http://127.0.0.1:2"],
        "--llm-model": ["qwen"],
        "--llm-key-env": ["LLM_KEY"],
        "--tokenizer": ["folder"],
        "--senses": ["words"],
        "--config": [str(config)],
        "--set": ["silence_ms=700", "voice=none"],
    }
    words = [word for flag, values in given.items() for value in values for word in (flag, value)]
    assert CliRunner().invoke(build([]), ["demo", *words]).exit_code == 0
    assert CliRunner().invoke(build([]), ["demo"]).exit_code == 0
    asked, plain = ran
    assert list(asked.server_arguments) == words
    assert asked.stay
    assert list(plain.server_arguments) == []

    seen: list[Settings] = []
    monkeypatch.setattr("headstart.gateway.server.main.serve", lambda s, _: seen.append(s))
    config.write_text("")
    assert CliRunner().invoke(build([]), ["serve", *asked.server_arguments]).exit_code == 0
    assert seen[0].llm_urls == given["--llm"]
    assert (seen[0].llm_model, seen[0].silence_ms) == ("qwen", 700)
