"""Reading recordings: whole, cut anywhere, damaged, of another version, and large."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.recordings.errors import (
    NotARecording,
    OtherVersion,
    RecordingDamaged,
    RecordingMissing,
)
from headstart.recordings.reader import BAD_LINES_MAX, LINE_BYTES_MAX, Recording
from tests.headstart.recordings.files import talk, written
from tests.web_demo.dashboard.feed_fixtures import gzipped, jsonl

MESSAGES = talk(seconds=8)
PLAIN = jsonl(MESSAGES)
PACKED = gzipped(MESSAGES)
HELLO_LINE = jsonl(MESSAGES[:1])


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "gzipped_without_the_ending"])
def test_all_messages_come_with_their_very_lines(tmp_path: Path, name: str) -> None:
    """Packed or not, whatever the file is called; there is nothing to remark."""
    path = tmp_path / name
    path.write_bytes(PLAIN if name == "a.jsonl" else PACKED)
    recording = Recording(path)
    read = list(recording.messages())
    assert [message for _, message in read] == MESSAGES
    assert b"".join(line + b"\n" for line, _ in read) == PLAIN
    assert recording.remarks == []
    assert recording.hello == MESSAGES[0]


def readable(path: Path) -> tuple[list[object], Recording] | None:
    """None for what is no recording at all."""
    recording = Recording(path)
    try:
        return [message for _, message in recording.messages()], recording
    except NotARecording:
        return None


@settings(
    max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(cut=st.integers(0, len(PLAIN) - 1))
def test_any_cut_of_a_plain_file_reads_as_a_prefix(tmp_path: Path, cut: int) -> None:
    """Every whole line before the cut, and a remark unless the cut lies between two lines."""
    path = tmp_path / "cut.jsonl"
    path.write_bytes(PLAIN[:cut])
    whole = PLAIN[:cut].count(b"\n")
    came = readable(path)
    if came is None:
        assert whole == 0
        return
    messages, recording = came
    # A line whose end alone is missing is whole, too.
    assert messages == MESSAGES[: len(messages)]
    assert whole <= len(messages) <= whole + 1
    at_a_line = PLAIN[cut - 1 : cut] == b"\n" or PLAIN[cut : cut + 1] == b"\n"
    assert recording.is_cut_off is not at_a_line


@settings(
    max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(cut=st.integers(0, len(PACKED) - 1))
def test_any_cut_of_a_packed_file_reads_as_a_prefix(tmp_path: Path, cut: int) -> None:
    """All that can be unpacked, as whole messages, and always a remark: gzip says where it ends."""
    path = tmp_path / "cut.gz"
    path.write_bytes(PACKED[:cut])
    unpacked = zlib.decompressobj(31).decompress(PACKED[:cut])
    came = readable(path)
    if came is None:
        assert b"\n" not in unpacked
        return
    messages, recording = came
    assert messages == MESSAGES[: len(messages)]
    assert len(messages) >= unpacked.count(b"\n")
    assert recording.is_cut_off
    assert "breaks off" in recording.remarks[0]


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(at=st.integers(20, len(PACKED) - 9), byte=st.integers(0, 255))
def test_a_flipped_byte_gives_messages_or_a_sentence(tmp_path: Path, at: int, byte: int) -> None:
    """Never another exception, whatever comes out of the unpacking."""
    path = tmp_path / "flipped.gz"
    path.write_bytes(PACKED[:at] + bytes([byte]) + PACKED[at + 1 :])
    try:
        messages = [message for _, message in Recording(path).messages()]
    except (NotARecording, RecordingDamaged, OtherVersion):
        return
    assert messages[0] == MESSAGES[0]


def test_what_a_killed_server_leaves_is_read(tmp_path: Path) -> None:
    """Flushed now and then, without gzip's end."""
    pack = zlib.compressobj(6, zlib.DEFLATED, 31)
    data = b""
    for begin in range(0, len(MESSAGES), 5):
        data += pack.compress(jsonl(MESSAGES[begin : begin + 5])) + pack.flush(zlib.Z_SYNC_FLUSH)
    path = tmp_path / "killed.gz"
    path.write_bytes(data)
    recording = Recording(path)
    assert [message for _, message in recording.messages()] == MESSAGES
    assert recording.is_cut_off


def test_garbage_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    """JSON of another kind, no JSON, no UTF-8, and brackets without end."""
    garbage = [b"{}", b"[1]", b"null", b"no json", b"\xff\xfe", b"[" * 100_000, b'{"type":7}']
    path = tmp_path / "a.jsonl"
    rest = jsonl(MESSAGES[1:])
    path.write_bytes(HELLO_LINE + b"\n".join([*garbage, b"", b"  "]) + b"\n" + rest)
    recording = Recording(path)
    assert [message for _, message in recording.messages()] == MESSAGES
    assert recording.bad_lines == len(garbage)
    assert recording.remarks == [f"{path}: 7 lines are no message and left out"]


def test_nothing_but_garbage_is_damaged(tmp_path: Path) -> None:
    """After so many lines it is no use."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(HELLO_LINE + b"garbage\n" * (BAD_LINES_MAX + 1))
    with pytest.raises(RecordingDamaged, match=f"more than {BAD_LINES_MAX}"):
        list(Recording(path).messages())


@pytest.mark.parametrize("version", [0, 2, None, "1", True, 1.5])
def test_another_version_is_named(tmp_path: Path, version: object) -> None:
    """With what to do about it."""
    path = written(tmp_path / "a.gz", [{**MESSAGES[0], "version": version, "headstart": "9.9"}])
    with pytest.raises(OtherVersion, match=r"reads version 1: read it with .*9\.9"):
        list(Recording(path).messages())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"hello",
        b"a,b\n1,2\n",
        b'{"type":"turn"}\n',
        b"\x1f\x8b",
        b"\x89PNG\r\n\x1a\n",
        gzip.compress(b"", mtime=0),
    ],
)
def test_other_files_are_no_recordings(tmp_path: Path, data: bytes) -> None:
    """Said of the file by name."""
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(NotARecording, match="other"):
        list(Recording(path).messages())


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """One that is not there, and a folder."""
    for path in (tmp_path / "gone.gz", tmp_path):
        with pytest.raises(RecordingMissing, match=str(path)):
            list(Recording(path).messages())


def test_two_files_in_one_are_both_read(tmp_path: Path) -> None:
    """`cat a.gz b.gz` makes such files; what stands behind the end otherwise is remarked."""
    path = tmp_path / "both.gz"
    path.write_bytes(PACKED + gzipped(MESSAGES[1:3]) + b"rubbish")
    recording = Recording(path)
    assert [message for _, message in recording.messages()] == MESSAGES + MESSAGES[1:3]
    assert recording.remarks == [f"{path}: 7 bytes behind its end are left out"]


def peak_bytes(path: Path) -> int:
    tracemalloc.start()
    try:
        for _ in Recording(path).messages():
            pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_a_large_file_needs_little_memory(tmp_path: Path) -> None:
    """Of 40 MB unpacked, some megabytes are held at a time; a line without an end is no way
    around that."""
    snapshot = json.dumps(MESSAGES[-1]).encode() + b"\n"
    large = tmp_path / "large.gz"
    with gzip.open(large, "wb", compresslevel=1) as file:
        file.write(HELLO_LINE)
        for _ in range(40_000_000 // len(snapshot)):
            file.write(snapshot)
    assert peak_bytes(large) < 8_000_000
    endless = tmp_path / "endless.gz"
    with gzip.open(endless, "wb", compresslevel=1) as file:
        file.write(HELLO_LINE)
        for _ in range(200):
            file.write(b" " * 1_000_000)
    tracemalloc.start()
    with pytest.raises(RecordingDamaged, match="more than 16 MiB"):
        list(Recording(endless).messages())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * LINE_BYTES_MAX
