"""Ears in front of a decoder, and in front of a model that sees: streamed equals offline."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headstart.engine.chat.render import Modality
from headstart.engine.errors import BadWeights
from headstart.engine.kvcache.positions import MediaKind
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.composite import Composite, projector_name, whisper_name
from headstart.engine.models.families import Loading, load
from headstart.engine.models.perception.interface import TailPolicy
from tests.engine.models import twins
from tests.engine.models.composite_twin import HIDDEN, projector_weights, write_composite
from tests.engine.models.omni_twin import offline_mel
from tests.engine.models.perception.test_block_whisper import offline
from tests.engine.models.playing import Sounded, camera, play, speech
from tests.engine.models.rig import Rig


def project(x: Tensor) -> Tensor:
    """The projector, written down once more."""
    w = projector_weights()

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    both = norm(x, w["projector.ln_pre.weight"]) @ w["projector.linear_1.weight"].T
    value, gate = both.chunk(2, dim=1)
    inner = norm(value * F.silu(gate), w["projector.ln_mid.weight"])
    return inner @ w["projector.linear_2.weight"].T


class Parts(NamedTuple):
    whisper: Any
    base: Any
    model: Composite
    rig: Rig


@pytest.fixture(scope="module", params=["qwen2", "qwen2_vl"])
def parts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tmp_path_factory.mktemp("composite")
    whisper, base = twins.whisper(), getattr(twins, request.param)()
    write_composite(folder, whisper, base, projector_weights())
    model = load(folder, Loading(dtype=torch.float64))
    assert isinstance(model, Composite)
    return Parts(whisper, base, model, Rig(model, torch.float64))


def reference(parts: Parts, stream: Stream, clip: Sounded) -> Tensor:
    """One forward over embeddings put together offline: words, the sound's, the pictures'."""
    assert clip.pcm is not None
    table = parts.base.get_input_embeddings()
    heard = project(offline(parts.whisper.model.encoder, offline_mel(clip.pcm)))
    seen = iter(())
    if clip.frames:
        frames = [*clip.frames, *list(clip.frames)[-1:] * (len(clip.frames) % 2)]
        eyes = parts.model.base.vision  # type: ignore[attr-defined]
        units = [eyes.patches(frames[i : i + 2]) for i in range(0, len(frames), 2)]
        grid = torch.tensor([[1, 2 * rows, 2 * columns] for _, rows, columns in units])
        values = torch.cat([values for values, _, _ in units]).double()
        with twins.in_double("qwen2_vl"), torch.inference_mode():
            seen = iter(parts.base.model.visual(values, grid_thw=grid).pooler_output)
    sounds = iter(heard)
    rows = []
    for token in stream.tokens:
        place = stream.soft.media_position(token)
        if place is None:
            rows.append(table(torch.tensor(token)))
        else:
            rows.append(next(sounds if place.kind is MediaKind.AUDIO else seen))
    assert next(sounds, None) is None
    assert next(seen, None) is None
    positions = torch.from_numpy(stream.axes(0, len(stream)).copy())[:, None]
    if parts.model.new_positions() is None:
        positions = positions[0]
    family = "qwen2" if parts.model.new_positions() is None else "qwen2_vl"
    with twins.in_double(family), torch.inference_mode():
        out = parts.base(inputs_embeds=torch.stack(rows)[None], position_ids=positions)
    logits: Tensor = out.logits[0]
    return logits


@pytest.mark.parametrize("tail", TailPolicy)
def test_sound_and_pictures_in_random_pieces(parts: Parts, tail: TailPolicy) -> None:
    """The final logits of one forward over everything, to 1e-9."""
    chance = random.Random(tail)
    frames = camera(chance, 5, 0.5) if parts.model.spec.vision is not None else []
    clip = Sounded(speech(chance, 40_000), frames)
    stream = parts.rig.stream()
    stream.append([1, 2])
    play(parts.rig, stream, clip, tail, chance)
    stream.append([4, 5])
    logits = parts.rig.settle(stream, chance)
    assert logits is not None
    wanted = reference(parts, stream, clip)[-1]
    assert wanted.abs().max() > 1
    assert (logits - wanted).abs().max() <= 1e-9
    stream.close()


def test_its_spec_says_when_sound_is_committed(parts: Parts) -> None:
    """Blocks of 20 frames of 20 ms, 5 tokens each, one mel frame of look-ahead."""
    heard = parts.model.spec.audio
    assert heard is not None
    assert (heard.unit_ms, heard.unit_tokens, heard.look_ahead_frames) == (400, 5, 1)
    state = parts.model.open_audio(TailPolicy.CLOSED)
    just = parts.model.encode_audio(torch.zeros(6_400), state, False)
    over = parts.model.encode_audio(torch.zeros(400), just.state, False)
    assert (len(just.committed), len(over.committed)) == (0, 5)
    assert parts.model.project(over.committed, Modality.AUDIO).shape == (5, HIDDEN)


def test_names_of_the_parts() -> None:
    """Whisper's encoder out of either kind of checkpoint, the projector by its own name or
    Ultravox's."""
    assert whisper_name("model.encoder.conv1.weight") == "conv1.weight"
    assert whisper_name("encoder.conv1.weight") == "conv1.weight"
    assert whisper_name("model.decoder.conv1.weight") is None
    assert projector_name("multi_modal_projector.ln_pre.weight") == "ln_pre.weight"
    assert projector_name("projector.linear_1.weight") == "linear_1.weight"
    assert projector_name("language_model.norm.weight") is None


def test_a_projector_that_does_not_fit_is_named(parts: Parts, tmp_path: Path) -> None:
    """A stack of another size than the projector was made for."""
    folder = tmp_path / "bad"
    folder.mkdir()
    weights = projector_weights()
    del weights["projector.linear_2.weight"]
    write_composite(folder, parts.whisper, parts.base, weights)
    with pytest.raises(BadWeights, match=r"bad: tensor linear_2\.weight: .* no such tensor"):
        load(folder, Loading(dtype=torch.float64))
