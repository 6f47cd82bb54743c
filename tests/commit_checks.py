"""`python -m tests.commit_checks files FILE... | message FILE`: what a commit is checked for.

Called by the hooks of .pre-commit-config.yaml. Prints what is wrong, one line each, and exits 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

SUBJECT_CHARS_MAX = 60
FILE_BYTES_MAX = 512 * 1024
CONFLICT = re.compile(rb"^(<{7} |={7}$|>{7} )", re.MULTILINE)
TRAILING = re.compile(rb"[ \t]+\r?$", re.MULTILINE)


def file_faults(path: Path) -> Iterator[str]:
    """What is wrong with a file that is to be committed."""
    data = path.read_bytes()
    if len(data) > FILE_BYTES_MAX:
        yield f"{path}: {len(data)} bytes; at most {FILE_BYTES_MAX} are committed"
    if b"\0" in data[:8192]:
        return  # not a text
    for match in TRAILING.finditer(data):
        yield f"{path}:{_line(data, match.start())}: trailing whitespace"
    for match in CONFLICT.finditer(data):
        yield f"{path}:{_line(data, match.start())}: conflict mark"
    if data and not data.endswith(b"\n"):
        yield f"{path}: no newline at the end"
    if data.endswith(b"\n\n"):
        yield f"{path}: empty lines at the end"


def message_faults(message: str) -> Iterator[str]:
    """What is wrong with a commit's message."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        yield "the subject is empty"
    if len(subject) > SUBJECT_CHARS_MAX:
        yield f"the subject has {len(subject)} characters; at most {SUBJECT_CHARS_MAX}"
    if subject[:1].islower() or subject.endswith("."):
        yield "the subject is a sentence: a capital at the beginning, no full stop at the end"
    if len(lines) > 1 and lines[1].strip():
        yield "an empty line belongs between subject and body"


def _line(data: bytes, at: int) -> int:
    return data.count(b"\n", 0, at) + 1


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    kind, *names = arguments
    if kind == "message":
        faults = list(message_faults(Path(names[0]).read_text()))
    elif kind == "files":
        faults = [fault for name in names for fault in file_faults(Path(name))]
    else:
        raise SystemExit(f"expected `files` or `message`, got {kind!r}")
    print("\n".join(faults), end="\n" if faults else "")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
