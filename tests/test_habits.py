"""What helps contributors works: hooks, make targets, templates, the Dockerfile."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from headstart.gateway.settings import Settings
from tests.commit_checks import file_faults, message_faults

ROOT = Path(__file__).resolve().parents[1]
HOOKS = ROOT / ".pre-commit-config.yaml"
DOCKERFILE = ROOT / "Dockerfile"
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def run(program: str, *arguments: str) -> str:
    """What a program of the test extra prints; it must end well."""
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    assert found is not None, f"{program} is not installed; it comes with the extra `test`"
    done = subprocess.run(
        [found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# --- hooks ---------------------------------------------------------------------------------------


def test_the_hooks_configuration_is_valid() -> None:
    """By pre-commit's own check."""
    run("pre-commit", "validate-config", str(HOOKS))


def test_each_hook_runs_what_is_there() -> None:
    """All are local, so no network is needed, and name modules and tools of this project."""
    repos = yaml.safe_load(HOOKS.read_text())["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    for hook in repos[0]["hooks"]:
        program, *words = hook["entry"].split()
        assert program in (".venv/bin/python", ".venv/bin/ruff", ".venv/bin/mypy")
        if program.endswith("python"):
            assert words[0] == "-m"
            assert importlib.util.find_spec(words[1]) is not None, words[1]
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"a \n", "f:1: trailing whitespace"),
        (b"a\n<<<<<<< ours\n", "f:2: conflict mark"),
        (b"a\n=======\nb\n", "f:2: conflict mark"),
        (b"a", "f: no newline at the end"),
        (b"a\n\n", "f: empty lines at the end"),
        (bytes(600_000), "f: 600000 bytes; at most 524288 are committed"),
    ],
)
def test_a_file_is_told_what_is_wrong_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, fault: str
) -> None:
    """With the line."""
    monkeypatch.chdir(tmp_path)
    Path("f").write_bytes(data)
    assert list(file_faults(Path("f"))) == [fault]


def test_binary_and_well_kept_files_pass(tmp_path: Path) -> None:
    """Whitespace is a matter of texts."""
    for data in (b"", b"a\n", b"\0 \n \n", b"a\r\nb\r\n"):
        path = tmp_path / "f"
        path.write_bytes(data)
        assert list(file_faults(path)) == []


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("", "empty"),
        ("# a comment\n", "empty"),
        ("a" * 61, "61 characters"),
        ("fix it", "a capital"),
        ("Fix it.", "no full stop"),
        ("Fix it\nbecause", "an empty line"),
    ],
)
def test_a_message_is_told_what_is_wrong_with_it(message: str, fault: str) -> None:
    """The subject is a sentence of at most 60 characters."""
    assert any(fault in told for told in message_faults(message))


def test_a_message_as_it_should_be() -> None:
    """Subject, empty line, body; git's own comments do not count."""
    assert list(message_faults("Fix the fault\n\nIt hurt.\n# On branch main\n")) == []


# --- make ----------------------------------------------------------------------------------------


def test_make_help_lists_every_target() -> None:
    """With a line for each."""
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets is not None
    told = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    missing = [t for t in targets[1].split() if not re.search(rf"^  {t} +\S", told, re.MULTILINE)]
    assert missing == []


# --- templates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [f for f in FORMS if f.stem != "config"], ids=lambda f: f.stem)
def test_an_issue_form_is_one(form: Path) -> None:
    """Name, description, and fields with a label and an id of their own."""
    content: dict[str, Any] = yaml.safe_load(form.read_text())
    assert content["name"]
    assert content["description"]
    fields = content["body"]
    assert all(field["type"] in ("input", "textarea", "dropdown") for field in fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


# --- the container -------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and what follows them, continued lines joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines) if word]


def test_the_dockerfile_passes_its_linter() -> None:
    """hadolint, without a warning."""
    run("hadolint", "--failure-threshold", "info", str(DOCKERFILE))


def test_the_container_is_no_root_and_says_how_it_is() -> None:
    """Two stages; a user of its own by number, before the command; a health check; a volume."""
    told = instructions()
    words = [word for word, _ in told]
    assert words.count("FROM") == 2
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert dict(told)["USER"].isdigit()
    assert "/healthz" in dict(told)["HEALTHCHECK"]
    assert dict(told)["VOLUME"] in dict(told)["ENV"]


def test_the_containers_settings_are_ours() -> None:
    """Each `HEADSTART_NAME` is a setting."""
    names = re.findall(r"HEADSTART_(\w+)=", DOCKERFILE.read_text())
    assert names
    assert {name.lower() for name in names} <= set(Settings.model_fields)


def test_what_the_container_needs_is_let_through() -> None:
    """.dockerignore leaves out all but files that are there, all packages among them."""
    kept = [
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert [name for name in kept if not (ROOT / name).exists()] == []
    links = [path.name for path in (ROOT / "headstart").iterdir() if path.is_symlink()]
    assert set(links) <= set(kept)
