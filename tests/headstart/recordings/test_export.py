"""Exports: the turns as JSON and CSV, and a trace that Perfetto's own schema reads."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from headstart.recordings.errors import NothingToShow, OtherVersion, OutputRefused
from headstart.recordings.export import Format, export
from headstart.recordings.reader import Recording
from tests.headstart.recordings.files import newest, talk, written
from tests.web_demo.dashboard.feed_fixtures import Json, Server


def exported(tmp_path: Path, messages: list[Json], to: Format) -> bytes:
    recording = Recording(written(tmp_path / "a.gz", messages))
    out = tmp_path / f"out.{to}"
    assert export(recording, to, out) == len(newest(messages))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    return out.read_bytes()


def test_json_has_the_very_turns(tmp_path: Path) -> None:
    """Each in its newest revision, with the greeting's facts."""
    messages = talk()
    whole = json.loads(exported(tmp_path, messages, Format.JSON))
    assert whole["turns"] == list(newest(messages).values())
    assert whole["settings"] == messages[0]["settings"]
    assert whole["run"] == "run_fixture"


def test_csv_has_a_line_a_turn(tmp_path: Path) -> None:
    """Empty for what is unknown, and no formula for a spreadsheet."""
    server = Server(1)
    odd = server.turn(model='=HYPERLINK("x"), a "model"')
    messages = [server.hello(), server.live(), server.turn(), server.unmeasured_turn(), odd]
    data = exported(tmp_path, messages, Format.CSV)
    rows = list(csv.DictReader(io.StringIO(data.decode(), newline="")))
    assert [row["id"] for row in rows] == list(newest(messages))
    assert float(rows[0]["total_ms"]) == messages[2]["total_ms"]
    assert float(rows[0]["prefill_ms"]) == messages[2]["stages_ms"]["prefill"]
    assert (rows[0]["counts"], rows[1]["counts"]) == ("true", "false")
    assert rows[1]["total_ms"] == ""
    assert rows[2]["model"] == '\'=HYPERLINK("x"), a "model"'


def parsed(data: bytes) -> Trace:
    """By Perfetto's own schema; a field that it does not know, or knows otherwise, would show."""
    trace = Trace.FromString(data)
    again = Trace()
    again.CopyFrom(trace)
    again.DiscardUnknownFields()
    assert again == trace
    assert len(again.SerializeToString()) == len(data)
    return trace


def slices(trace: Trace) -> dict[str, list[tuple[str, str, int, int]]]:
    """By session: (track, name, start, end), by the rules of Perfetto's importer: an END ends the
    last BEGIN of its track, and time does not run back on a track."""
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    names = {uuid: track.name for uuid, track in tracks.items()}
    open_slices: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    last_ns: defaultdict[int, int] = defaultdict(int)
    found: defaultdict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    for packet in (p for p in trace.packet if p.HasField("track_event")):
        event = packet.track_event
        if event.type == TrackEvent.TYPE_INSTANT:
            continue
        assert packet.timestamp >= last_ns[event.track_uuid]
        last_ns[event.track_uuid] = packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            assert open_slices[event.track_uuid] == []
            open_slices[event.track_uuid].append((event.name, packet.timestamp))
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END
            name, start = open_slices[event.track_uuid].pop()
            session = names[tracks[event.track_uuid].parent_uuid]
            found[session].append((names[event.track_uuid], name, start, packet.timestamp))
    assert not any(open_slices.values())
    return found


def test_the_trace_is_the_turns(tmp_path: Path) -> None:
    """One track a stage under one a session; slices as long as the stages say."""
    messages = talk(seconds=60)
    trace = parsed(exported(tmp_path, messages, Format.PERFETTO))
    turns = newest(messages)
    found = slices(trace)
    assert set(found) == {turn["session"] for turn in turns.values()}
    for session, rows in found.items():
        mine = [turn for turn in turns.values() if turn["session"] == session]
        for stage in ("vad_hangover", "decode_first", "playout"):
            wanted = [t["stages_ms"].get(stage) for t in mine]
            if stage == "playout":
                wanted = [(t["playout"] or {}).get("delay_ms") for t in mine]
            if stage == "vad_hangover":
                wanted = [t["stages_ms"].get(stage) for t in mine if t["anchor"] != "requested"]
            lengths = sorted((end - start) / 1e6 for track, _, start, end in rows if track == stage)
            assert lengths == pytest.approx(sorted(ms for ms in wanted if ms), abs=0.01)


def test_a_slice_says_whose_it_is(tmp_path: Path) -> None:
    """With its turn's id, what it took, and whether anybody waited for it."""
    server = Server(1)
    turn = server.turn()
    trace = parsed(exported(tmp_path, [server.hello(), server.live(), turn], Format.PERFETTO))
    events = [p.track_event for p in trace.packet if p.HasField("track_event")]
    (whole,) = [event for event in events if event.name == "turn 1"]
    notes: dict[str, Any] = {
        note.name: getattr(note, str(note.WhichOneof("value"))) for note in whole.debug_annotations
    }
    assert notes["response"] == turn["id"]
    assert notes["total_ms"] == turn["total_ms"]
    categories = {event.categories[0] for event in events if event.name == "prefill"}
    assert categories == {"hidden", "waited"}
    marks = {event.name for event in events if event.type == TrackEvent.TYPE_INSTANT}
    assert {"endpoint", "first token", "first sound"} <= marks


def test_slices_that_would_cross_get_a_track_of_their_own(tmp_path: Path) -> None:
    """Two turns of a session at the same time: nothing is cut, and no track has crossing slices."""
    server = Server(1, sessions=1)
    turns = [server.turn(), server.turn()]  # done in the same millisecond
    trace = parsed(exported(tmp_path, [server.hello(), *turns], Format.PERFETTO))
    (rows,) = slices(trace).values()
    lengths = sorted(
        (end - start) / 1e6 for track, _, start, end in rows if track == "vad_hangover"
    )
    wanted = sorted(turn["stages_ms"]["vad_hangover"] for turn in turns)
    assert lengths == pytest.approx(wanted, abs=0.01)


def test_an_export_is_whole_or_not_there(tmp_path: Path) -> None:
    """A recording that turns bad half-way, or holds no turn, leaves nothing behind."""
    messages = talk(seconds=5)
    bad = [*messages, {**messages[0], "version": 7}]
    out = tmp_path / "out.json"
    with pytest.raises(OtherVersion):
        export(Recording(written(tmp_path / "bad.gz", bad)), Format.JSON, out)
    with pytest.raises(NothingToShow, match="no turn"):
        export(Recording(written(tmp_path / "no.gz", messages[:2])), Format.CSV, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.gz", "no.gz"]


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    """Unless it is said to be replaced."""
    recording = Recording(written(tmp_path / "a.gz", talk(seconds=5)))
    out = tmp_path / "out.csv"
    out.write_text("mine")
    with pytest.raises(OutputRefused, match="--force"):
        export(recording, Format.CSV, out)
    assert out.read_text() == "mine"
    export(recording, Format.CSV, out, force=True)
    assert out.read_text().startswith("id,session")
    with pytest.raises(OutputRefused, match="cannot be written"):
        export(recording, Format.CSV, tmp_path / "no" / "folder.csv")
