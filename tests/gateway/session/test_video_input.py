"""headstart.gateway.session.video_input: what a session sees, in virtual time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.engine import api
from headstart.gateway.protocol.parse import parse_session
from headstart.gateway.session.video_input import BROKEN, REPLACED, UNSENT
from headstart.gateway.telemetry import names
from headstart.gateway.telemetry.observer import Observer
from headstart.gateway.telemetry.turn_record import TurnRecord
from headstart.gateway.video.sampling import FrameVerdict
from tests.gateway.session.camera_bench import BRIGHT, DARK, NS_PER_S, fate, seeing, seen, show
from tests.gateway.session_bench import SessionBench, clip_pcm, silence_pcm
from tests.gateway.video.drawn import png

ROOT = Path(__file__).parents[3]


def picture_item(*urls: str) -> dict[str, Any]:
    content = [{"type": "input_image", "image_url": url} for url in urls]
    return {"type": "message", "role": "user", "content": content, "id": "item_p"}


def test_an_items_pictures_are_decoded_before_anything_else_happens() -> None:
    """The item exists, for client and engine, once its pictures are decoded; the shell is told to
    read no further until then."""
    bench = SessionBench()
    bench.clear()
    bench.hold_pictures = True
    bench.client("conversation.item.create", item=picture_item(DARK, BRIGHT))
    assert bench.types() == []
    assert [action.ordered for action in bench.held] == [True]
    bench.decode()
    assert bench.types() == ["conversation.item.added", "conversation.item.done"]
    (added,) = (c for c in bench.told if isinstance(c, api.AddItem))
    firsts = [part.rgb[0] for part in added.item.parts if isinstance(part, api.Image)]
    assert firsts == [10, 240]


def test_a_broken_picture_of_an_item_is_refused_by_name() -> None:
    """The error names the field and the client's event; the conversation is as before."""
    bench = SessionBench()
    bench.clear()
    bench.client(
        "conversation.item.create",
        item=picture_item(DARK, "data:image/png;base64,AAAA"),
        event_id="e7",
    )
    error = bench.last("error")["error"]
    assert (error["param"], error["event_id"]) == ("item.content[1].image_url", "e7")
    assert not any(isinstance(command, api.AddItem) for command in bench.told)
    bench.client("conversation.item.retrieve", item_id="item_p")
    assert bench.last("error")["error"]["param"] == "item_id"


def test_an_out_of_band_response_may_bring_pictures() -> None:
    """Its input's pictures are decoded first, then the response begins."""
    bench = SessionBench()
    bench.clear()
    bench.hold_pictures = True
    bench.client(
        "response.create", response={"conversation": "none", "input": [picture_item(DARK)]}
    )
    assert bench.types() == []
    bench.decode()
    assert bench.types()[0] == "response.created"
    (respond,) = (c for c in bench.told if isinstance(c, api.Respond))
    assert respond.items is not None
    assert isinstance(respond.items[0].parts[0], api.Image)


def test_a_camera_is_seen_when_it_changes() -> None:
    """The first frame counts; then what differs, not sooner than the rate; what comes too soon is
    not even decoded."""
    bench = seeing()
    show(bench, DARK)
    show(bench, DARK, after_s=1.1)
    bench.hold_pictures = True
    show(bench, BRIGHT, after_s=1.1)
    assert len(bench.held) == 1
    bench.decode()
    show(bench, DARK, after_s=0.3)
    assert bench.held == []
    assert seen(bench) == [10, 240]
    assert [fate(bench, name) for name in ("kept", "unchanged", "too_soon")] == [2, 1, 1]


def test_a_client_that_asks_is_told_what_became_of_each_frame() -> None:
    """By the append's event id: kept or why not, and how much it differs from the one kept before.
    Who did not ask is told nothing."""
    bench = seeing()
    show(bench, DARK)
    assert bench.types() == []
    bench = SessionBench()
    bench.update(gateway={"events": ["frames"]})
    bench.clear()
    show(bench, DARK)
    show(bench, DARK, after_s=1.1)
    show(bench, BRIGHT, after_s=1.1)
    show(bench, DARK, after_s=0.3)
    show(bench, "AAAA", after_s=1.1)
    told = [event for event in bench.sent if event["type"] == "gateway.frame.judged"]
    assert [event["verdict"] for event in told] == [
        "kept",
        "unchanged",
        "kept",
        "too_soon",
        "broken",
    ]
    assert {event["frame_event_id"] for event in told} == {"mine"}
    changed = [event["changed"] for event in told]
    assert changed == [None, 0.0, pytest.approx(230 / 255, abs=0.02), None, None]
    since_ms = [event["since_kept_ms"] for event in told]
    assert since_ms == [None, *map(pytest.approx, (1100.0, 2200.0, 300.0, 1400.0))]


def watching(**more: Any) -> SessionBench:
    """A session that asks what became of its frames."""
    bench = SessionBench(**more)
    bench.update(gateway={"events": ["frames"]})
    bench.clear()
    return bench


def verdicts(bench: SessionBench) -> list[str]:
    return [event["verdict"] for event in bench.of("gateway.frame.judged")]


def test_nothing_is_kept_while_there_is_no_engine() -> None:
    """The frame is counted as unsent and not decoded; it takes no place among a turn's frames, and
    when the engine is ready the next one is seen at once."""
    bench = watching(engine_ready=False)
    bench.hold_pictures = True
    for _ in range(20):
        show(bench, DARK, after_s=0.1)
    bench.track_frame(api.Image(64, 36, bytes(64 * 36 * 3)))
    assert bench.held == []
    assert (seen(bench), set(verdicts(bench))) == ([], {"unsent"})
    assert (fate(bench, "unsent"), fate(bench, "kept")) == (21, 0)
    assert bench.metrics.totals()["frames"] == {"unsent": 21}
    bench.engine_ready()
    bench.hold_pictures = False
    show(bench, DARK, after_s=0.1)
    assert (seen(bench), verdicts(bench)[-1]) == ([10], "kept")


def test_a_frame_whose_engine_is_lost_during_its_decoding_is_unsent() -> None:
    """It is judged by what is so when it would be sent."""
    bench = watching()
    bench.hold_pictures = True
    show(bench, DARK)
    bench.engine_lost()
    bench.decode()
    assert (seen(bench), verdicts(bench)) == ([], ["unsent"])


def test_a_new_engine_has_seen_nothing() -> None:
    """What the lost one had seen is no reason to leave out a picture that looks the same."""
    bench = watching()
    show(bench, DARK)
    bench.engine_lost()
    bench.engine_ready()
    show(bench, DARK, after_s=1.1)
    assert (seen(bench), verdicts(bench)) == ([10, 10], ["kept", "kept"])
    assert bench.last("gateway.frame.judged")["since_kept_ms"] is None


def test_a_transcription_session_has_nobody_to_look() -> None:
    """Its engine only hears: no frame is sent, or counted as kept."""
    config = parse_session({"type": "transcription", "gateway": {"events": ["frames"]}})
    bench = SessionBench(before_start=lambda bench: bench.session.preset(config, 0))
    show(bench, DARK)
    assert (seen(bench), verdicts(bench)) == ([], ["unsent"])


def test_every_fate_has_its_name_everywhere() -> None:
    """In the metric's help, both documents and the web page."""
    fates = {*FrameVerdict, REPLACED, BROKEN, UNSENT}
    assert set(names.FRAME_FATES) == fates
    assert set(re.findall(r"\w+", names.FRAMES.help.partition(": ")[2])) - {"or"} == fates
    architecture = (ROOT / "docs/architecture.md").read_text()
    (table,) = re.findall(r"^\| fate \|.*?\n\n", architecture, re.M | re.S)
    readme = (ROOT / "gateway/protocol/README.md").read_text()
    (told,) = re.findall(r"`gateway\.frame\.judged` \(([^)]*)\)", readme)
    for page in (table, told):
        assert {name for name in fates if f"`{name}`" in page} == fates
    (why_not,) = re.findall(
        r"WHY_NOT = \{(.*?)\};", (ROOT / "web-demo/frames.js").read_text(), re.S
    )
    assert set(re.findall(r"^ *(\w+):", why_not, re.M)) == fates - {FrameVerdict.KEEP}


def test_the_newest_of_a_camera_wins() -> None:
    """While one frame is being decoded one waits: the newest, and the others are counted."""
    bench = seeing()
    bench.hold_pictures = True
    show(bench, DARK)
    for value in (60, 120, 240):
        show(bench, png(64, 36, value), after_s=1.1)
    assert len(bench.held) == 1
    bench.decode()  # the first; now the newest is asked for
    bench.decode()
    assert seen(bench) == [10, 240]
    assert fate(bench, "replaced") == 2


def test_a_broken_frame_is_said_and_the_camera_goes_on() -> None:
    """Its error names the event; the frame that waited is decoded next."""
    bench = seeing()
    bench.hold_pictures = True
    show(bench, "AAAA")
    show(bench, BRIGHT, after_s=1.1)
    bench.decode()
    error = bench.last("error")["error"]
    assert (error["param"], error["event_id"]) == ("image", "mine")
    bench.decode()
    assert seen(bench) == [240]
    assert fate(bench, "broken") == 1


def test_a_busy_engine_sees_less() -> None:
    """Chunks that take longer than they last halve the rate of a camera that always changes."""
    counts = []
    for latency_ms in (100.0, 900.0):
        bench = seeing()
        for number in range(40):
            ref = api.TurnRef(1)
            bench.engine(api.Chunk("sess_test", ref, 0, 8_000, {}, latency_ms, 0, 0))
            show(bench, (DARK, BRIGHT)[number % 2], after_s=1.0)
        counts.append(len(seen(bench)))
    assert counts[0] == 16  # as many as a turn may have
    bench = seeing(max_frames=0)
    for number in range(40):
        bench.engine(api.Chunk("sess_test", api.TurnRef(1), 0, 8_000, {}, 900.0, 0, 0))
        show(bench, png(64, 36, 5 * number), after_s=1.0)
    assert 20 <= len(seen(bench)) <= 23


def test_a_session_may_see_everything() -> None:
    """`all` keeps every frame however it looks, and the setting is echoed."""
    bench = SessionBench()
    bench.update(gateway={"video": {"sampler": "all"}})
    assert bench.last("session.updated")["session"]["gateway"]["video"] == {"sampler": "all"}
    for _ in range(5):
        show(bench, DARK, after_s=0.01)
    assert len(seen(bench)) == 5


def test_a_session_may_see_each_scene_once() -> None:
    """`scene`: slow change keeps nothing, a cut does; of a track, too."""
    bench = seeing(sampler="scene", fps=4, max_gap_ms=0)
    fade = [*range(10, 100, 6), 240, 236, 232]
    for value in fade:
        show(bench, png(64, 36, value), after_s=0.3)
    assert seen(bench) == [10, 10 + 6 * 7, 240]  # the first, when it has settled, and the cut
    bench = seeing(sampler="scene", fps=4, max_gap_ms=0)
    for value in fade:
        bench.now_ns += round(0.3 * NS_PER_S)
        bench.track_frame(api.Image(64, 36, bytes([value]) * (64 * 36 * 3)))
    assert seen(bench) == [10, 10 + 6 * 7, 240]


def test_scores_are_asked_for_by_the_policies_that_read_them() -> None:
    """Each frame is scored against the one looked at before; a changed policy begins anew."""
    bench = seeing(sampler="flow", fps=4)
    bench.hold_pictures = True
    show(bench, DARK)
    assert [action.pictures[0].before for action in bench.held] == [b""]
    bench.decode()
    show(bench, BRIGHT, after_s=1.0)
    ((encoded,),) = (action.pictures for action in bench.held)
    assert encoded.before is not None
    assert set(encoded.before) == {10}
    bench.decode()
    bench.update(gateway={"events": [], "video": {"sampler": "sharp"}})
    show(bench, DARK, after_s=1.0)
    assert [action.pictures[0].before for action in bench.held] == [b""]
    bench.decode()
    bench.update(gateway={"events": [], "video": {"sampler": "load"}})
    show(bench, DARK, after_s=2.0)
    assert [action.pictures[0].before for action in bench.held] == [None]


def test_a_blurred_frame_is_told_as_such() -> None:
    """`sharp`: a blank one behind one with an edge waits for the next sharp one."""
    bench = watching()
    bench.update(gateway={"events": ["frames"], "video": {"sampler": "sharp"}})
    checkered = np.zeros((36, 64, 3), np.uint8)
    checkered[::2] = 255
    for pixels, after_s in ((checkered, 0.0), (None, 1.1), (checkered, 0.2)):
        bench.now_ns += round(after_s * NS_PER_S)
        rgb = bytes([200]) * (64 * 36 * 3) if pixels is None else pixels.tobytes()
        bench.track_frame(api.Image(64, 36, rgb))
    assert verdicts(bench) == ["kept", "blurred", "kept"]
    assert fate(bench, "blurred") == 1


def test_a_file_fed_fast_is_sampled_by_its_sound() -> None:
    """Two seconds of sound between frames are two seconds, however fast they come."""
    bench = seeing()
    for picture in (DARK, BRIGHT, DARK):
        show(bench, picture)
        bench.hear(silence_pcm(2_000), realtime=False)
    assert seen(bench) == [10, 240, 10]


def test_a_track_is_sampled_too() -> None:
    """Frames of a WebRTC track, decoded already, pass the same rules."""
    bench = seeing()
    for value, after_s in ((10, 0.0), (240, 0.2), (10, 1.0), (240, 1.0)):
        bench.now_ns += round(after_s * NS_PER_S)
        image = api.Image(64, 36, bytes([value]) * (64 * 36 * 3))
        bench.track_frame(image)
    assert seen(bench) == [10, 240]
    assert (fate(bench, "too_soon"), fate(bench, "unchanged")) == (1, 1)


def test_frames_are_the_first_to_give_way_when_memory_is_short() -> None:
    """Told that the engine's memory gets full, a camera's rate is halved at once, whatever the
    session is set to meanwhile; told that it is calm, the rate is as before."""
    bench = seeing(sampler="motion", fps=1.0, motion=0.0, max_frames=0)

    def kept(seconds: int) -> int:
        before = len(seen(bench))
        for n in range(seconds):
            show(bench, (DARK, BRIGHT)[n % 2], after_s=1.0)
        return len(seen(bench)) - before

    assert kept(10) == 10
    bench.engine(api.Pressure("s", api.Level.DEGRADED))
    assert kept(10) == 5
    bench.update(gateway={"events": [], "video": {"fps": 1.0, "motion": 0.0, "max_frames": 0}})
    assert kept(10) == 5
    bench.engine(api.Pressure("s", api.Level.CALM))
    assert kept(10) == 10


def test_short_memory_costs_size_and_in_the_end_all_frames() -> None:
    """The ladder's rungs in one session: smaller frames of the same shape, pooled ones with an
    engine that can, none at last; stills stay as they are. Each is counted, and told."""
    huge = api.PictureSize(pixels=480_000)
    bench = SessionBench(model=ready(huge, huge, pooled_frame=64).model, video_max_pixels=480_000)
    bench.update(gateway={"events": ["frames"], "video": {"sampler": "uniform", "max_frames": 0}})
    bench.clear()
    picture, budgets = png(800, 600, 10), []
    for level in api.Level:
        bench.engine(api.Pressure("s", level))
        show(bench, picture, after_s=2.0)
        budgets.append([c.image.max_tokens for c in bench.told if isinstance(c, api.Frame)][-1])
    assert sizes_sent(bench) == [(800, 600), (600, 450), (400, 300)]
    assert budgets == [0, 0, 64, 64]
    told = [(event["verdict"], event["rung"]) for event in bench.of("gateway.frame.judged")]
    assert told == [
        *[("kept", "full"), ("kept", "size_336"), ("kept", "pooled")],
        ("refused", "refused"),
    ]
    assert fate(bench, "refused") == 1
    counted = bench.metrics.registry.get_sample_value
    assert counted("headstart_frame_rungs_total", {"rung": "size_336"}) == 1
    assert bench.session.camera_rung == "refused"
    bench.client("conversation.item.create", item=picture_item(picture))
    assert sizes_sent(bench)[-1] == (800, 600)


def test_audio_is_not_touched_by_the_ladder() -> None:
    """On its last rung speech is heard as on its first: the same commands."""
    heard = []
    for level in (api.Level.CALM, api.Level.REFUSING):
        bench = seeing()
        bench.engine(api.Pressure("s", level))
        show(bench, DARK)
        bench.told.clear()
        bench.hear(clip_pcm("capital.wav"))
        heard.append([(type(c), getattr(c, "pcm", b"")) for c in bench.told])
    assert any(kind is api.Audio for kind, _ in heard[0])
    assert heard[0] == heard[1]


def test_the_batch_of_the_engine_counts() -> None:
    """Asked for at each frame: with 32 sessions a step or more a frame is smaller."""
    batch = 40.0
    bench = SessionBench(batch=lambda: batch)
    show(bench, png(800, 600, 10))
    batch = 0.0
    show(bench, png(800, 600, 200), after_s=2.1)
    assert sizes_sent(bench) == [(256, 192), (341, 256)]


def test_a_turns_record_says_what_became_of_its_frames() -> None:
    """Those since the turn before, by fate, and the rung; null for a turn without any."""
    records: list[TurnRecord] = []

    class Watching(Observer):
        def turn(self, record: TurnRecord) -> None:
            records.append(record)

    bench = SessionBench(observer=Watching())
    for after_s in (0.0, 0.2):
        show(bench, DARK, after_s=after_s)
    for generation in (1, 2):
        bench.client("response.create")
        bench.engine(api.Delta("sess_test", generation, "A dark wall.", 0))
        stop = api.FinishReason.STOP
        end = api.Finished("sess_test", generation, stop, "", api.Usage(), api.KvStats())
        bench.engine(end)
    wire = [record.to_wire()["camera"] for record in records]
    assert wire == [{"rung": "full", "frames": {"kept": 1, "too_soon": 1}}, None]


def test_a_scaled_frame_keeps_its_shape() -> None:
    """From 5 to 90 % of the sides that the model can use; a still is not scaled."""
    picture = png(800, 600, 10)
    for scale, size in ((0.05, (17, 13)), (0.5, (171, 128)), (0.9, (307, 230))):
        bench = seeing(scale=scale)
        show(bench, picture)
        bench.client("conversation.item.create", item=picture_item(picture))
        assert sizes_sent(bench) == [size, (341, 256)]


def ready(still: api.PictureSize, frame: api.PictureSize, pooled_frame: int = 0) -> api.Ready:
    model = api.ModelInfo(
        *("eyes", 8192, 100, 1 << 20, 1 << 20, 1.0),
        still=still,
        frame=frame,
        pooled_frame=pooled_frame,
    )
    return api.Ready("x", model)


def sizes_sent(bench: SessionBench) -> list[tuple[int, int]]:
    """Of all pictures that the engine got, in items and as frames."""
    images = []
    for command in bench.told:
        if isinstance(command, api.AddItem):
            images += [part for part in command.item.parts if isinstance(part, api.Image)]
        elif isinstance(command, api.Frame):
            images.append(command.image)
    return [(image.width, image.height) for image in images]


def test_the_models_eyes_decide_how_large_a_picture_is() -> None:
    """A still and a camera's frame come as large as the engine says that they are of use; of one
    that says nothing, as small as the packaged eyes take them."""
    picture = png(800, 600, 10)
    bench = seeing()
    bench.client("conversation.item.create", item=picture_item(picture))
    show(bench, picture)
    assert sizes_sent(bench) == [(341, 256), (341, 256)]
    bench = seeing()
    still, frame = api.PictureSize(pixels=480_000), api.PictureSize(short_side=300)
    bench.session.engine_ready(ready(still, frame), bench.now_ns)
    bench.client("conversation.item.create", item=picture_item(picture))
    show(bench, picture)
    assert sizes_sent(bench) == [(800, 600), (400, 300)]
    assert bench.session.frame_size == api.PictureSize(short_side=300, pixels=196_608)
    bench = SessionBench(model=ready(still, frame).model)
    bench.client("conversation.item.create", item=picture_item(picture))
    assert sizes_sent(bench) == [(800, 600)]


def test_the_servers_settings_cap_what_eyes_ask_for() -> None:
    """Each picture by itself; more than four at once have together what four may have."""
    bench = SessionBench(image_max_pixels=120_000, video_max_pixels=76_800)
    huge = api.PictureSize(pixels=12_845_056)
    bench.session.engine_ready(ready(huge, huge), bench.now_ns)
    picture = png(800, 600, 10)
    bench.client("conversation.item.create", item=picture_item(*[picture] * 4))
    show(bench, picture)
    assert sizes_sent(bench) == [(400, 300)] * 4 + [(320, 240)]
    bench.told.clear()
    crowd = picture_item(*[picture] * 16) | {"id": "item_q"}
    bench.client("conversation.item.create", item=crowd)
    assert sizes_sent(bench) == [(200, 150)] * 16
