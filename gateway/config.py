"""Where the gateway's settings come from: defaults < TOML file < `HEADSTART_*` < command line.

`headstart validate FILE` checks a file without starting anything. What is wrong is one
`ConfigError`, with a sentence for each fault: of an invalid value the setting, its source and the
allowed values; of an unknown key the likely one; and settings that contradict each other.
"""

from __future__ import annotations

import difflib
import json
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

from headstart.gateway.errors import ConfigError
from headstart.gateway.settings import ENV_PREFIX, Settings

NAMES = Settings.model_fields.keys()


def load(file: Path | None = None, flags: Mapping[str, Any] | None = None) -> Settings:
    """Settings from all four layers. `flags` holds command-line values by field name; None is
    "not given". Raises `ConfigError` with all that is wrong."""
    from_file = read_file(file) if file is not None else {}
    from_env = EnvSettingsSource(Settings)()
    from_flags = {key: value for key, value in (flags or {}).items() if value is not None}
    origin = dict.fromkeys(from_file, f"in {file}")
    origin |= {key: f"from {ENV_PREFIX}{key.upper()}" for key in from_env}
    origin |= {key: f"from --{key.replace('_', '-')}" for key in from_flags}
    given = from_file | from_env | from_flags
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = list(_problems(error.errors(), given, origin))
        raise ConfigError(problems) from error


def _problems(
    errors: Iterable[Any], given: Mapping[str, Any], origin: Mapping[str, str]
) -> Iterator[str]:
    """Each of pydantic's errors as a sentence. It looks for contradictions only if each value is
    valid by itself: so they are looked for again without the values that are not."""
    wrong: set[str] = set()
    for error in errors:
        if error["loc"]:
            wrong.add(str(error["loc"][0]))
            yield _sentence(error, origin)
    # Of a variable the value has to be replaced, or it would be read again.
    instead = {name: Settings.model_fields[name].default for name in wrong & origin.keys() & NAMES}
    try:
        Settings(**{key: value for key, value in given.items() if key in NAMES} | instead)
    except ValidationError as error:
        for each in error.errors():
            for contradiction in each["ctx"]["error"].found:
                if not wrong & set(contradiction.names):
                    yield contradiction.sentence


def read_file(file: Path) -> dict[str, Any]:
    """The TOML file's table. Raises `ConfigError` if it cannot be read."""
    try:
        with file.open("rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise ConfigError([f"{file}: cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file}: is not TOML: {error}"]) from error
    return table


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """`NAME=VALUE` strings of `--set` as flags for `load`. Raises `ConfigError`."""
    flags: dict[str, str] = {}
    problems = []
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            problems.append(f"--set {assignment!r}: expected NAME=VALUE")
        elif name not in NAMES:
            problems.append(_unknown(name, "from --set"))
        flags[name] = value.strip()
    if problems:
        raise ConfigError(problems)
    return flags


def as_toml() -> str:
    """Every setting as a TOML file that sets none: its meaning, and its default behind a `#`."""
    lines = [
        "# Settings of headstart: take the # from a line and change it; what stays is the default.",
        f"# headstart serve --config FILE; or {ENV_PREFIX}NAME=VALUE, or --set NAME=VALUE.",
    ]
    for name, field in Settings.model_fields.items():
        lines += ["", f"# {field.description}", f"#   {_kind_and_bounds(field)}"]
        # Of text and plain numbers JSON's spelling is TOML's as well.
        unset = field.default is None
        value = '""   # not set' if unset else json.dumps(field.default, ensure_ascii=False)
        lines.append(f"#{name} = {value}")
    return "\n".join(lines) + "\n"


def near_misses(environment: Mapping[str, str]) -> list[str]:
    """One warning for each `HEADSTART_*` variable that looks like a mistyped setting."""
    warnings = []
    for variable in environment:
        name = variable.removeprefix(ENV_PREFIX).lower()
        if not variable.startswith(ENV_PREFIX) or name in Settings.model_fields:
            continue
        close = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.75)
        if close:
            warnings.append(f"{variable} is not a setting: {ENV_PREFIX}{close[0].upper()} is")
    return warnings


def _unknown(key: str, where: str) -> str:
    close = difflib.get_close_matches(key, Settings.model_fields, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`headstart settings` lists them all"
    return f"{key} ({where}): there is no such setting; {hint}"


def _sentence(problem: Any, origin: Mapping[str, str]) -> str:
    """One pydantic error as a sentence: which setting, whence, what came, what is allowed."""
    name = str(problem["loc"][0])
    where = origin.get(name, "the default")
    if name not in NAMES:
        return _unknown(name, where)
    field = Settings.model_fields[name]
    if problem["type"] == "value_error":
        return f"{name} ({where}): {str(problem['msg']).removeprefix('Value error, ')}"
    return f"{name} ({where}): got {problem['input']!r}; allowed: {allowed(field)}"


def allowed(field: FieldInfo) -> str:
    """A setting's allowed values in words, with its meaning and default."""
    return f"{_kind_and_bounds(field)} ({field.description}; default {field.default!r})"


def _kind_and_bounds(field: FieldInfo) -> str:
    kind: Any = field.annotation
    if isinstance(kind, types.UnionType):  # of something and None
        kind = get_args(kind)[0]
    names = {int: "a whole number", float: "a number", str: "text", Path: "a path"}
    names[bool] = "true or false"
    words = names.get(kind, "a value") if isinstance(kind, type) else "a value"
    if get_origin(kind) is Literal:
        words = " or ".join(repr(value) for value in get_args(kind))
    bounds = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("ge", "gt", "le", "min_length", "pattern")
        if getattr(rule, key, None) is not None
    }
    if "ge" in bounds or "gt" in bounds:
        low = f"from {bounds['ge']}" if "ge" in bounds else f"above {bounds['gt']}"
        words += f" {low} up to {bounds['le']}" if "le" in bounds else f" {low} up"
    if "min_length" in bounds:
        words += ", not empty"
    if field.examples:
        words += f" such as {' or '.join(map(repr, field.examples))}"
    elif "pattern" in bounds:
        words += f" like {bounds['pattern']}"
    return words
