"""Models whose pictures are encoded elsewhere, beside the same ones that encode them here."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from headstart.engine.config import EngineConfig
from headstart.engine.encoders.client import EncoderClient
from headstart.engine.encoders.elsewhere import VisionElsewhere
from headstart.engine.encoders.errors import EncoderFailed, EncoderFault
from headstart.engine.encoders.messages import Picture, identity_of
from headstart.engine.encoders.model_encoder import ModelEncoder
from headstart.engine.encoders.server import EncoderJob, EncoderServer
from headstart.engine.kvcache.soft_tokens import SoftTokens
from headstart.engine.models.checkpoint.parts import NOT_VISION, VISION, Digest
from headstart.engine.models.families import Loading, load, vision_folder
from headstart.engine.models.perception.clips import ClipEncoder, encode_pictures
from headstart.engine.models.perception.interface import (
    StreamModel,
    TailPolicy,
    VideoFrame,
    VisionUnit,
)
from headstart.engine.models.perception.samples import picture, sound
from headstart.engine.models.pooled import pooled
from headstart.engine.models.source import vision_settings
from headstart.engine.scheduling.batch_size import BatchSize
from headstart.engine.scheduling.encode_queue import EncodeQueue
from headstart.engine.vision.encoder_cache import EncoderCache
from tests.engine.encoders.rig import PATIENCE_S
from tests.engine.models import twins
from tests.engine.models.composite_twin import projector_weights, write_composite
from tests.engine.models.served import write_served

FAMILIES = ("pixtral", "qwen2_vl", "qwen2_5_vl", "llava_onevision", "omni", "composite")


def written(name: str, folder: Path) -> Path:
    if name == "omni":
        write_served(folder)
    elif name == "composite":
        write_composite(folder, twins.whisper(), twins.qwen2_vl(), projector_weights())
    else:
        twins.save(getattr(twins, name)().float(), folder)
    return folder


@dataclass
class Both:
    """A whole model, one whose vision is behind a socket, what encodes for that one, and what it
    holds itself."""

    here: StreamModel
    elsewhere: VisionElsewhere
    server: EncoderServer
    base: StreamModel


@contextlib.contextmanager
def both(folder: Path, address: str) -> Iterator[Both]:
    config = EngineConfig(model=str(folder), weights="fp32")
    theirs, ours = Digest(), Digest()
    seeing = load(vision_folder(folder), Loading(torch.float32, left_out=NOT_VISION, digest=theirs))
    base = load(folder, Loading(torch.float32, left_out=VISION, digest=ours))
    assert theirs.hex() == ours.hex()
    identity = identity_of(ours.hex(), vision_settings(config))
    server = EncoderServer(
        address,
        ModelEncoder(seeing),
        identity,
        EncodeQueue[EncoderJob](4_096, BatchSize(4)),
        EncoderCache[tuple[list[Picture] | None]](1 << 24, 60.0, time.monotonic_ns),
        prepare=lambda: torch.set_num_threads(1),
    )
    thread = threading.Thread(target=server.serve)
    thread.start()
    client = EncoderClient(address, identity)
    torch.set_num_threads(1)
    try:
        assert client.wait(lambda: None, PATIENCE_S)
        yield Both(
            load(folder, Loading(torch.float32)), VisionElsewhere(base, client), server, base
        )
    finally:
        server.stopping = True
        thread.join(PATIENCE_S)
        client.close()
        server.close()


def frames(count: int, side_px: int = 84, max_tokens: int = 0) -> list[VideoFrame]:
    return [VideoFrame(picture(seed, side_px), float(seed), max_tokens) for seed in range(count)]


def vectors(model: StreamModel, shown: Sequence[VideoFrame], *, live: bool) -> list[Tensor]:
    """All embeddings, and the grids and times that belong to them."""
    found = []
    for seen in encode_pictures(model, shown, live=live):
        found += [] if seen.still is None else [seen.still]
        for unit, cells in seen.units:
            place = torch.tensor([unit.rows, unit.columns, unit.time_s])
            found += [place, torch.tensor(unit.grid), cells]
    assert found
    return found


def same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("name", FAMILIES)
def test_embeddings_are_the_same_bits(name: str, tmp_path: Path, address: str) -> None:
    """Of every family: frames one by one, in a batch and as clips, and stills, on one thread each.
    What the engine holds has no vision, and what encodes no decoder."""
    folder = tmp_path / "model"
    folder.mkdir()
    with both(written(name, folder), address) as found:
        here, elsewhere = found.here, found.elsewhere
        for shown, live in ((frames(1), True), (frames(1), False), (frames(3, 56), True)):
            assert same(vectors(elsewhere, shown, live=live), vectors(here, shown, live=live))
        assert found.server.encoded >= 3
        many = frames(5, 56)
        units, state = elsewhere.encode_frames(many[:3], elsewhere.open_frames(), False)
        last, _ = elsewhere.encode_frames(many[3:], state, True)
        ours = [(u.time_s, u.rows, u.columns) for u in [*units, *last]]
        wanted, _ = here.encode_frames(many, here.open_frames(), True)
        assert ours == [(u.time_s, u.rows, u.columns) for u in wanted]
        tower = getattr(found.base, "base", found.base)
        held = [t for t in _tensors(tower) if t.device.type == "meta"]
        assert held, "the engine has the weights of its vision"


def _tensors(thing: object, depth: int = 6) -> list[Tensor]:
    """All tensors that an object of ours holds."""
    if isinstance(thing, Tensor):
        return [thing]
    if depth == 0:
        return []
    if isinstance(thing, list | tuple):
        inside = list(thing)
    else:
        names = getattr(thing, "__dict__", None) or {
            name: getattr(thing, name, None) for name in getattr(thing, "__slots__", ())
        }
        inside = list(names.values())
    return [tensor for each in inside for tensor in _tensors(each, depth - 1)]


def test_pooled_frames_and_budgets_are_the_engines_own(tmp_path: Path, address: str) -> None:
    """Two budgets of one picture cost one encode; both are what the whole model makes of it."""
    config = EngineConfig()
    with both(written("qwen2_vl", tmp_path), address) as found:
        ours, theirs = pooled(found.elsewhere, config), pooled(found.here, config)
        for most in (0, 4):
            shown = frames(1, 140, max_tokens=most)
            assert same(vectors(ours, shown, live=True), vectors(theirs, shown, live=True))
        assert (found.server.encoded, found.server.hits) == (1, 1)


def test_a_clip_keeps_its_sound_if_a_frame_is_lost(tmp_path: Path, address: str) -> None:
    """A model that hears and sees, whose encoder process has gone: frames fail by name, the last
    one of a clip is left out, and what was said is there."""
    with both(written("omni", tmp_path), address) as found:
        clip = ClipEncoder(found.elsewhere, SoftTokens(280, 1_000), TailPolicy.CLOSED)
        clip.feed(sound())
        clip.see(frames(2, 56))
        clip.see(frames(1, 56))
        found.server.stopping = True
        until_gone(found.elsewhere.client)
        with pytest.raises(EncoderFault):
            clip.see(frames(1, 56))
        clip.finish()
        with_frames = ClipEncoder(found.here, SoftTokens(280, 1_000), TailPolicy.CLOSED)
        with_frames.feed(sound())
        with_frames.see(frames(2, 56))
        with_frames.finish()
        assert len(clip.ids()) == len(with_frames.ids())


def until_gone(client: EncoderClient) -> None:
    """Nobody serves any more: calls fail as they would without a process."""

    def fail(*_: object, **__: object) -> list[list[Picture] | None]:
        raise EncoderFailed("gone")

    client.encode = fail  # type: ignore[method-assign]


def test_an_answer_of_another_shape_is_refused(tmp_path: Path, address: str) -> None:
    """A frame is answered with one unit; anything else is a fault of the encoder."""
    with both(written("qwen2_vl", tmp_path), address) as found:
        client = found.elsewhere.client
        width = found.elsewhere.spec.decoder.hidden
        one, wide = (Picture(torch.zeros(1, size), 1, 1) for size in (width, width + 1))
        no_frame = Picture(torch.zeros(1, width))

        def answer_with(answer: list[Picture] | None) -> None:
            client.encode = lambda *_, **__: [answer]  # type: ignore[method-assign]

        def encode() -> list[VisionUnit]:
            model = found.elsewhere
            return model.encode_frames(frames(1, 56), model.open_frames(), True)[0]

        answer_with([one])
        assert len(encode()) == 1
        bad: list[list[Picture] | None] = [None, [], [one, one], [no_frame], [wide]]
        for answer in bad:
            answer_with(answer)
            with pytest.raises(EncoderFailed):
                encode()


def test_a_stills_embeddings_have_the_decoders_width(tmp_path: Path, address: str) -> None:
    """Any others, or none, are a fault of the encoder."""
    with both(written("llava_onevision", tmp_path), address) as found:
        model, width = found.elsewhere, found.elsewhere.spec.decoder.hidden
        (shown,) = frames(1, 56)
        for sizes in ([width + 1], [width, width - 1], []):
            answer = [Picture(torch.zeros(2, size)) for size in sizes]
            model.client.encode = lambda *_, answer=answer, **__: [answer]  # type: ignore[method-assign]
            with pytest.raises(EncoderFailed):
                model.encode_still(shown)


def test_the_digest_is_of_content(tmp_path: Path) -> None:
    """Of the weights for pictures: one number of one tensor, or a name, makes another one; the
    decoder's do not matter."""
    folder = written("qwen2_vl", tmp_path)

    def digest_of(model: Path, **more: object) -> str:
        found = Digest()
        load(model, Loading(torch.float32, digest=found, **more))  # type: ignore[arg-type]
        return found.hex()

    whole = digest_of(folder)
    assert whole == digest_of(folder, left_out=VISION) == digest_of(folder, left_out=NOT_VISION)
    from safetensors.numpy import load_file, save_file

    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    for part, changes in (("visual.", True), ("embed_tokens", False)):
        name = next(n for n in tensors if part in n)
        changed = dict(tensors)
        changed[name] = tensors[name].copy()
        changed[name].ravel()[0] += np.float32(1)
        save_file(changed, file)
        assert (digest_of(folder) != whole) is changes
