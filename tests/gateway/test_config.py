from pathlib import Path

import pytest

from headstart.engine.weights.fetch import LOCAL_FOLDER
from headstart.gateway.config import (
    as_toml,
    load,
    near_misses,
    parse_assignments,
)
from headstart.gateway.errors import ConfigError
from headstart.gateway.settings import ENV_PREFIX, Settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "headstart.toml"
    path.write_text("port = 1111\nmodel = 'tiny'\nhush_ms = 100\n")
    return path


def test_layers_override_each_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Default < file < variable < flag; a flag of None was not given."""
    monkeypatch.setenv("HEADSTART_PORT", "2222")
    monkeypatch.setenv("HEADSTART_MODEL", "small")
    settings = load(file, {"port": "3333", "model": None})
    assert settings.port == 3333
    assert settings.model == "small"
    assert settings.hush_ms == 100
    assert settings.silence_ms == Settings.model_fields["silence_ms"].default


def test_settings_are_frozen() -> None:
    """Nobody patches a setting afterwards."""
    with pytest.raises(ValueError, match="frozen"):
        load().port = 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("port", "99999", "a whole number from 0 up to 65535"),
        ("vad_threshold", "1.5", "a number from 0.0 up to 1.0"),
        ("vad_threshold", "nan", "got 'nan'"),
        ("chunk_ms", "300", "200 or 500 or 1000"),
        ("engine", "cloud", "'local' or 'fake' or 'vllm'"),
        ("engine", "vllm", "not in this version"),
        ("llm", "localhost:8000", "got 'localhost:8000'"),
        ("llm", "https://me:secret@host", "got"),
        ("llm_key_env", "sk-123", "got 'sk-123'"),
        ("log_level", "loud", "'debug' or 'info'"),
        ("host", "", "not empty"),
        ("max_sessions", "0", "from 1"),
    ],
)
def test_wrong_value_names_variable_and_what_is_allowed(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the setting, the variable it came from, and what is allowed."""
    variable = f"HEADSTART_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as error:
        load()
    assert f"{name} (from {variable})" in str(error.value)
    assert said in str(error.value)


def test_all_problems_at_once(file: Path) -> None:
    """Two wrong values are two sentences, each with its own origin."""
    file.write_text("port = 'http'\nchunk_ms = 1\n")
    with pytest.raises(ConfigError) as error:
        load(file)
    assert len(error.value.problems) == 2
    assert all(f"(in {file})" in problem for problem in error.value.problems)


def test_all_kinds_of_problems_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mistyped keys, wrong values of two sources, and contradictions: a sentence for each."""
    file.write_text("prot = 1\nchunk_ms = 1\ntls_cert = 'x'\nhush_ms = 900\ntokenizer = 'y'\n")
    monkeypatch.setenv("HEADSTART_PORT", "http")
    with pytest.raises(ConfigError) as error:
        load(file)
    beginnings = [" ".join(problem.split()[:2]) for problem in error.value.problems]
    assert sorted(beginnings) == [
        "chunk_ms (in",
        "hush_ms (900)",
        "port (from",
        "prot (in",
        "tls_cert and",
        "tokenizer is",
    ]


def test_a_wrong_value_contradicts_nothing(file: Path) -> None:
    """What it should have been is not known, so it is named once and not compared."""
    file.write_text("silence_ms = 100\nhush_ms = -1\n")
    with pytest.raises(ConfigError) as error:
        load(file)
    assert [problem.split()[0] for problem in error.value.problems] == ["hush_ms"]


def test_settings_that_contradict_each_other() -> None:
    """A hush longer than the silence that ends the turn could never be."""
    with pytest.raises(ConfigError, match=r"hush_ms \(900\) is longer than silence_ms \(500\)"):
        load(flags={"hush_ms": 900, "silence_ms": 500})


def test_unknown_key_in_a_file(file: Path) -> None:
    """A mistyped key is refused, with the likely one."""
    file.write_text("hots = '0.0.0.0'\n")
    with pytest.raises(ConfigError, match=r"hots .*did you mean 'host'"):
        load(file)


def test_unreadable_files(tmp_path: Path) -> None:
    """Missing and malformed files are named."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("port = = 1")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(bad)


def test_the_printed_settings_set_nothing_and_name_everything(file: Path) -> None:
    """As printed it changes nothing; without the #s it sets each default there is."""
    file.write_text(as_toml())
    assert load(file) == load()
    taken = [line[1:] for line in as_toml().splitlines() if line.startswith("#") and line[1] != " "]
    names = [line.partition(" = ")[0] for line in taken]
    assert names == list(Settings.model_fields)
    file.write_text("\n".join(line for line in taken if not line.endswith("# not set")))
    assert load(file) == load()
    assert len(load(file).model_fields_set) == sum(
        field.default is not None for field in Settings.model_fields.values()
    )


def test_mistyped_variables_are_noticed() -> None:
    """HEADSTART_PROT is warned of; other packages' variables are let be."""
    warnings = near_misses({"HEADSTART_PROT": "1", "HEADSTART_WEIGHTS_FOLDER": "/x", "PATH": ""})
    assert warnings == ["HEADSTART_PROT is not a setting: HEADSTART_PORT is"]


def faults(flags: dict[str, str]) -> list[str]:
    """What is wrong with settings; that they go together with others is another matter."""
    try:
        load(None, flags)
    except ConfigError as error:
        return error.problems
    return []


def test_the_form_of_a_text_is_shown_by_examples() -> None:
    """Not by a regular expression, which few read; and each example is valid."""
    with pytest.raises(ConfigError) as raised:
        load(None, {"llm": "localhost"})
    assert "got 'localhost'; allowed: text such as 'http://127.0.0.1:8000' (" in str(raised.value)
    with_form = {
        name: field
        for name, field in Settings.model_fields.items()
        if any(getattr(rule, "pattern", None) for rule in field.metadata)
    }
    assert with_form
    for name, field in with_form.items():
        assert field.examples, name
        for example in field.examples:
            assert not [wrong for wrong in faults({name: example}) if wrong.startswith(f"{name} (")]


def test_a_folder_of_weights_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that names it has another name than the variable of any setting: with the same
    one, no server started beside such a folder."""
    monkeypatch.setenv(LOCAL_FOLDER, "a folder")
    assert load() == load(None, {})
    assert LOCAL_FOLDER.removeprefix(ENV_PREFIX).lower() not in Settings.model_fields
    assert near_misses({LOCAL_FOLDER: "a folder"}) == []


def test_assignments() -> None:
    """NAME=VALUE becomes a flag; anything else is refused."""
    assert parse_assignments(["drain-s=3", "model=a=b"]) == {"drain_s": "3", "model": "a=b"}
    with pytest.raises(ConfigError, match="expected NAME=VALUE"):
        parse_assignments(["drain_s"])
    with pytest.raises(ConfigError, match="did you mean 'drain_s'"):
        parse_assignments(["drian_s=1"])
    with pytest.raises(ConfigError) as error:
        parse_assignments(["drian_s=1", "port", "prot=1"])
    assert len(error.value.problems) == 3


@pytest.mark.parametrize("language", ["German", "de-DE", ""])
def test_a_language_is_a_code(language: str) -> None:
    """Two or three letters, or auto; other words are refused with what is allowed."""
    with pytest.raises(ConfigError, match=r"ears_language \(from --ears-language\): .*'auto'"):
        load(flags={"ears_language": language})
    assert [load(flags={"ears_language": c}).ears_language for c in ("yue", "auto")] == [
        "yue",
        "auto",
    ]


@pytest.mark.parametrize("name", ["llm_model", "llm_key_env", "tokenizer"])
def test_settings_of_an_llm_server_need_its_url(name: str) -> None:
    """Otherwise they would do nothing."""
    with pytest.raises(ConfigError, match=f"{name} is of the LLM server: give its URL as llm"):
        load(flags={name: "x"})
    assert load(flags={name: "x", "llm": "http://h:1/v1"}).llm == "http://h:1/v1"


def test_a_device_is_named_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By flag or variable; and it is our decoder's, so not beside an LLM server."""
    monkeypatch.setenv("HEADSTART_DEVICE", "cuda:1")
    assert load().device == "cuda:1"
    assert load(flags={"device": "cpu", "llm": "http://h:1/v1"}).device == "cpu"
    with pytest.raises(ConfigError, match="device cuda:1 is of our own decoder, but llm decodes"):
        load(flags={"llm": "http://h:1/v1"})
    with pytest.raises(ConfigError, match=r"device \(from --device\)"):
        load(flags={"device": "gpu"})
