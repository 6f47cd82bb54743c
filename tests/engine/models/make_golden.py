"""Makes `golden.json` by another version of `transformers` than the tests run beside.

    pip install --target OLD transformers==4.57.6
    PYTHONPATH=OLD:. python -m tests.engine.models.make_golden > tests/engine/models/golden.json

4.57.6 is the last version whose Qwen2-VL positions are those that the model was trained with; its
checkpoints are keyed as the released ones are, and their config.json has the older fields.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from headstart.engine.models.checkpoint.directory import Config
from headstart.engine.models.perception import anyres
from headstart.engine.models.perception.interface import VideoFrame
from headstart.engine.models.perception.pixels import Normalisation, patches, resize
from tests.engine.models import golden_cases as cases
from tests.engine.models.golden_cases import WORDS_BEFORE, WORDS_BEHIND
from tests.engine.models.golden_pixels import Halves, recorder
from tests.engine.models.omni_twin import offline_mel
from tests.engine.models.sizes import OMNI_AUDIO, OMNI_VISION, QWEN2_VISION, SIGLIP, TEXT

transformers: Any = importlib.import_module("transformers")
ROPE = {"rope_theta": 1e6, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
STORED = {
    "qwen2_vl": {"model.visual.": "visual.", "model.language_model.": "model."},
    "qwen2_5_omni_thinker": {},
    "llava_onevision": {
        "model.language_model.": "language_model.model.",
        "lm_head.": "language_model.lm_head.",
        "model.": "",
    },
}
PLAIN = Normalisation((0.5,) * 3, (0.5,) * 3)


def main() -> None:
    out = {
        "transformers": transformers.__version__,
        "mel": _mel(),
        "qwen2_vl": _qwen2_vl(),
        "qwen2_5_omni": _omni(),
        "llava_onevision": _llava(),
    }
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in out.items())
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


def _made(kind: Any, config: Any) -> Any:
    config._attn_implementation = "sdpa"
    model = kind(config).eval().double()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            name_there = stored(name, config.model_type)
            tensor.copy_(cases.weight(name_there, list(tensor.shape)))
    return model


def stored(name: str, family: str) -> str:
    """A parameter's name in 4.57's files, from its name in memory."""
    for now, then in STORED[family].items():
        if name.startswith(now):
            return then + name.removeprefix(now)
    return name


def _told(model: Any, ids: list[int], seen: dict[str, Any]) -> dict[str, Any]:
    """The model as a directory would have it, what it read, and its last logits."""
    inputs = {"input_ids": torch.tensor([ids])}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    with torch.inference_mode():
        logits = model(**inputs, **seen).logits[0, -1]
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        files = [load_file(path) for path in Path(folder).glob("*.safetensors")]
        config = json.loads(Path(folder, "config.json").read_text())
    shapes = {name: list(tensor.shape) for file in files for name, tensor in file.items()}
    family = config["model_type"]
    assert set(shapes) == {stored(name, family) for name in model.state_dict()}
    return {
        "config": config,
        "shapes": shapes,
        "ids": ids,
        "logits": [round(float(x), 9) for x in logits],
    }


def _grid(pictures: list[VideoFrame]) -> tuple[Tensor, list[int]]:
    """A video's patches, and its grid: time, rows, columns."""
    normal = Normalisation()
    pixels = [normal(resize(frame.rgb, *frame.rgb.shape[:2])) for frame in pictures]
    units = [patches(torch.stack(pixels[i : i + 2]), 14, 2) for i in range(0, len(pixels), 2)]
    rows, columns = (side // 14 for side in pixels[0].shape[1:])
    return torch.cat(units).double(), [len(units), rows, columns]


def _qwen2_vl() -> dict[str, Any]:
    config = transformers.Qwen2VLConfig(
        **TEXT,
        **ROPE,
        vision_config={**QWEN2_VISION},
        image_token_id=cases.IMAGE,
        video_token_id=cases.VIDEO,
        vision_start_token_id=cases.VISION_BOS,
        vision_end_token_id=cases.VISION_EOS,
    )
    model = _made(transformers.Qwen2VLForConditionalGeneration, config)
    values, grid = _grid(cases.frames(16))  # eight units: longer in time than wide
    video = [cases.VISION_BOS, *[cases.VIDEO] * (len(values) // 4), cases.VISION_EOS]
    ids = [*WORDS_BEFORE, *video, *WORDS_BEHIND]
    seen = {"pixel_values_videos": values, "video_grid_thw": torch.tensor([grid])}
    where, delta = model.model.get_rope_index(
        torch.tensor([ids]), None, seen["video_grid_thw"], torch.ones(1, len(ids))
    )
    told = _told(model, ids, seen)
    return told | {"positions": where[:, 0].tolist(), "answer_at": int(delta) + len(ids)}


def _omni_config() -> Any:
    return transformers.Qwen2_5OmniThinkerConfig(
        audio_config={**OMNI_AUDIO},
        vision_config={**OMNI_VISION},
        text_config={**TEXT, **ROPE},
        audio_token_index=cases.AUDIO,
        image_token_index=cases.IMAGE,
        video_token_index=cases.VIDEO,
        position_id_per_seconds=25,
        seconds_per_chunk=2,
        audio_start_token_id=cases.AUDIO_BOS,
        audio_end_token_id=cases.AUDIO_EOS,
        user_token_id=195,
        vision_start_token_id=cases.VISION_BOS,
        vision_end_token_id=cases.VISION_EOS,
    )


def _omni() -> dict[str, Any]:
    config = _omni_config()
    model = _made(transformers.Qwen2_5OmniThinkerForConditionalGeneration, config)
    mel = offline_mel(cases.sound())
    values, grid = _grid(cases.frames(4))  # two units of a second, both in the first window
    picture = [cases.VIDEO] * (len(values) // 4)
    ids = [*WORDS_BEFORE, cases.VISION_BOS, cases.AUDIO_BOS, *picture]
    ids += [*[cases.AUDIO] * 60, cases.AUDIO_EOS, cases.VISION_EOS, *WORDS_BEHIND]
    frames = torch.tensor([mel.shape[1]])
    where, delta = model.get_rope_index(
        torch.tensor([ids]),
        None,
        torch.tensor([grid]),
        torch.ones(1, len(ids), dtype=torch.long),
        True,
        frames,
        torch.tensor([1.0]),
    )
    seen = {
        "input_features": mel[None].double(),
        "feature_attention_mask": torch.ones(1, mel.shape[1], dtype=torch.long),
        "pixel_values_videos": values,
        "video_grid_thw": torch.tensor([grid]),
        "video_second_per_grid": torch.tensor([1.0]),
        "use_audio_in_video": True,
    }
    told = _told(model, ids, seen)
    return told | {"positions": where[:, 0].tolist(), "answer_at": int(delta) + len(ids)}


def _llava() -> dict[str, Any]:
    config = transformers.LlavaOnevisionConfig(
        vision_config={**SIGLIP},
        text_config={"model_type": "qwen2", **TEXT},
        image_token_index=cases.IMAGE,
        video_token_index=cases.VIDEO,
        image_grid_pinpoints=[[70 * i, 70 * j] for i in (1, 2, 3) for j in (1, 2, 3)],
        vision_aspect_ratio="anyres_max_6",
    )
    model = _made(transformers.LlavaOnevisionForConditionalGeneration, config)
    picture = cases.still()
    rgb = np.frombuffer(picture.rgb, np.uint8).reshape(*cases.STILL_SIZE, 3)
    plain = json.loads(config.to_json_string(use_diff=False))
    halves: Halves = []
    noting = recorder(halves)
    setattr(anyres, "resize", noting)  # noqa: B010 - a name that the module only imports
    tiles = anyres.Anyres.of(Config(Path("golden"), plain), 70, 5).cut(rgb)
    video = torch.stack([PLAIN(noting(frame.rgb, 70, 70)) for frame in cases.frames(3)])
    ids = [*WORDS_BEFORE, *[cases.IMAGE] * (25 + 8 * 11), *WORDS_BEHIND]
    ids += [*[cases.VIDEO] * (3 * 9 + 1), *WORDS_BEHIND]
    seen = {
        "pixel_values": PLAIN(tiles)[None].double(),
        "image_sizes": torch.tensor([cases.STILL_SIZE]),
        "pixel_values_videos": video[None].double(),
    }
    return _told(model, ids, seen) | {"halves": halves}


def _mel() -> list[float]:
    """Their features of the first second at `MEL_AT`, under the whole sound's maximum."""
    extractor = transformers.WhisperFeatureExtractor(feature_size=80)
    one = cases.sound()[:16_000].numpy()
    features = extractor(one, sampling_rate=16_000, return_tensors="np").input_features[0]
    return [round(float(features[band, frame]), 6) for frame, band in cases.MEL_AT]


if __name__ == "__main__":
    main()
