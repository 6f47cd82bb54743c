"""A real encoder process and engines that use it: shared pictures, kill -9, a restart, a mix-up."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from headstart.engine import api
from headstart.engine.config import EngineConfig
from headstart.engine.device.choice import Found
from headstart.engine.encoders import client
from headstart.engine.engine import Engine
from headstart.engine.errors import BadSettings
from headstart.engine.models.families import Loading, load
from headstart.engine.models.source import source_of, vision_settings, vision_source_of
from headstart.engine.process.encoder_process import cache_bytes, make_encoder
from headstart.engine.process.model_directory import assemble_source
from tests.engine.encoders.rig import EncoderProcess, encoder_process
from tests.engine.models.served import write_pixtral, write_served

GREEDY = api.Sampling(repetition_penalty=1.0, max_tokens=4)
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def pixtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pixtral") / "model"
    folder.mkdir()
    write_pixtral(folder)
    return folder


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path / 'encoder.sock'}"


def settings(folder: Path, **more: Any) -> EngineConfig:
    plain = {"threads": 1, "weights": "fp32", "kv_pool_bytes": 1 << 22, "encoders": "beside"}
    return EngineConfig(model=str(folder), **{**plain, **more})


class Running:
    """An engine in this process, and what it says."""

    def __init__(self, folder: Path, **more: Any) -> None:
        config = settings(folder, **more)
        source = source_of(config)
        assert source is not None
        self.events: list[api.Event] = []
        self.engine: Engine
        self.engine, self.info = assemble_source(
            source, config, self.events.append, lambda *told: None
        )

    def show(self, session: str, number: int, *pictures: api.Image) -> None:
        item = api.Item(f"u{number}", api.Role.USER, (*pictures, api.Text("What is this?")))
        self.engine.receive(api.AddItem(session, item))
        self.engine.receive(api.Respond(session, number, f"a{number}", GREEDY))

    def run(self) -> None:
        """Until nothing is to be done, nor encoded."""
        end_s = time.monotonic() + PATIENCE_S
        while self.engine.step() or self.engine.is_encoding:
            assert time.monotonic() < end_s, "it never ended"
            if self.engine.is_encoding:
                select.select(self.engine.wake_fds, [], [], 0.05)

    def answer(self, number: int, *pictures: api.Image) -> str:
        """What it says of pictures in a fresh session, with the codes of what failed before it."""
        self.events.clear()
        name = f"s{number}"
        self.engine.receive(api.Open(name, "Be brief."))
        self.show(name, number, *pictures)
        self.run()
        self.engine.receive(api.Close(name))
        told = [event.code for event in self.events if isinstance(event, api.Failed)]
        (finished,) = [event for event in self.events if isinstance(event, api.Finished)]
        return " ".join([*told, finished.text])


@pytest.fixture
def engines(pixtral: Path, address: str) -> Iterator[tuple[Running, Running, EncoderProcess]]:
    """Two, and the encoder process that they share."""
    with encoder_process(address, pixtral) as process:
        made = [Running(pixtral, encoder_url=address) for _ in range(2)]
        yield made[0], made[1], process
        for each in made:
            each.engine.close()


def picture(seed: int, side_px: int = 64) -> api.Image:
    rgb = np.random.default_rng(seed).integers(0, 256, (side_px, side_px, 3), dtype=np.uint8)
    return api.Image(side_px, side_px, rgb.tobytes())


def test_engines_answer_as_if_they_saw_by_themselves(
    pixtral: Path, engines: tuple[Running, Running, EncoderProcess]
) -> None:
    """Two engines with one encoder process, the same words as one that has it all; and the engines
    hold no weights of the vision."""
    alone = Running(pixtral)
    first, second, _ = engines
    for number in range(1, 4):
        shown = [picture(number), picture(number + 10, 96)]
        wanted = alone.answer(number, *shown)
        assert wanted
        assert first.answer(number, *shown) == second.answer(number, *shown) == wanted
    assert first.info.weights_bytes < alone.info.weights_bytes
    alone.engine.close()


def test_kill_9_costs_the_picture_under_way_and_nothing_else(
    engines: tuple[Running, Running, EncoderProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In mid-encode: that picture fails with a name, its session goes on; what comes then waits for
    the next process, which is there after some seconds."""
    monkeypatch.setattr(client, "AWAY_WAIT_S", PATIENCE_S)
    first, second, process = engines
    whole = psutil.Process(process.process.pid)
    assert first.answer(1, picture(1))
    first.events.clear()
    first.engine.receive(api.Open("s", "Be brief."))
    whole.suspend()  # so that it is killed while it has the picture
    sent = threading.Event()
    send = client._Connection._send

    def note(*given: Any) -> Any:
        request = send(*given)
        sent.set()
        return request

    monkeypatch.setattr(client._Connection, "_send", note)
    first.show("s", 1, picture(2))
    while not first.engine.is_encoding:
        first.engine.step()
    assert sent.wait(PATIENCE_S)  # by the encoder thread, which is not in a hurry
    os.kill(process.process.pid, signal.SIGKILL)
    process.process.wait()
    process.start()
    first.run()
    (failed,) = [event for event in first.events if isinstance(event, api.Failed)]
    assert (failed.session, failed.code, failed.ref_id) == ("s", "encoder_away", "u1")
    assert "encoder process" in failed.message
    first.events.clear()
    first.show("s", 2, picture(3))
    first.run()
    assert not [event for event in first.events if isinstance(event, api.Failed)]
    assert [e.generation for e in first.events if isinstance(e, api.Finished)] == [2]
    assert second.answer(3, picture(3))


def test_without_its_encoder_an_engine_goes_on(
    engines: tuple[Running, Running, EncoderProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pictures fail by name, words are answered, and with a process the pictures are back."""
    first, _, process = engines
    seen = first.answer(1, picture(1))
    process.end()
    monkeypatch.setattr(client, "AWAY_WAIT_S", 0.1)
    assert first.answer(2, picture(1)).startswith("encoder_away")
    assert not first.answer(3).startswith("encoder_away")
    process.start()
    monkeypatch.setattr(client, "AWAY_WAIT_S", PATIENCE_S)
    assert first.answer(4, picture(1)) == seen


def test_a_closed_session_lets_its_picture_go(
    engines: tuple[Running, Running, EncoderProcess],
) -> None:
    """Its call ends, and the engine encodes for others at once, although the encoder hangs; when it
    goes on, it has forgotten it."""
    first, _, process = engines
    assert first.answer(1, picture(1))
    whole = psutil.Process(process.process.pid)
    whole.suspend()
    first.events.clear()
    for name, seed in (("gone", 5), ("stays", 6)):
        first.engine.receive(api.Open(name, "Be brief."))
        first.show(name, 1, picture(seed))
    first.engine.step()
    first.engine.receive(api.Close("gone"))
    whole.resume()
    first.run()
    assert [e.session for e in first.events if isinstance(e, api.Finished)] == ["stays"]
    assert not [event for event in first.events if isinstance(event, api.Failed)]


def test_another_models_encoder_is_refused(
    pixtral: Path, tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The same sizes and one other weight, or other settings: no embeddings are taken, and the log
    says why. Words are answered."""
    other = tmp_path / "other"
    other.mkdir()
    write_pixtral(other)
    from safetensors.numpy import load_file, save_file

    (file,) = other.glob("*.safetensors")
    tensors = load_file(file)
    name = next(n for n in tensors if "vision" in n)
    tensors[name] = tensors[name] + 1
    save_file(tensors, file)
    with encoder_process(address, other):
        engine = Running(pixtral, encoder_url=address)
        assert engine.answer(1, picture(1)).startswith("wrong_encoder")
        assert not engine.answer(2).startswith("wrong_encoder")
        engine.engine.close()
    assert "start both with the same model" in caplog.text
    with encoder_process(address, pixtral, "--encoder-weights", "int8", "--weights", "bf16"):
        engine = Running(pixtral, encoder_url=address)
        assert engine.answer(1, picture(1)).startswith("wrong_encoder")
        engine.engine.close()


def test_int8_encoders_are_calibrated_there(pixtral: Path, address: str) -> None:
    """By the same settings: as in one process."""
    how = {"weights": "int8", "encoder_weights": "int8"}
    alone = Running(pixtral, **how)
    with encoder_process(address, pixtral, "--weights", "int8", "--encoder-weights", "int8"):
        engine = Running(pixtral, encoder_url=address, **how)
        assert engine.answer(1, picture(1)) == alone.answer(1, picture(1))
        engine.engine.close()
    alone.engine.close()


def test_frames_of_a_model_that_hears_go_there_too(tmp_path: Path, address: str) -> None:
    """Within steps, since they belong to its clips; random weights by name are the same in both."""
    folder = tmp_path / "omni"
    write_served(folder)

    def heard(**more: Any) -> list[str]:
        running = Running(folder, weights="dummy", **more)
        running.events.clear()
        ref, engine = api.TurnRef(1), running.engine
        engine.receive(api.Open("s", "Be brief."))
        engine.receive(api.BeginSpeech("s", ref, "u1", 0))
        for number in range(3):
            engine.receive(api.Frame("s", 8_000 * number, picture(number, 56)))
            sound = np.random.default_rng(number).standard_normal(8_000) * 3_000
            pcm = sound.astype("<i2").tobytes()
            engine.receive(api.Audio("s", ref, 8_000 * number, pcm, 0))
            running.run()
        engine.receive(api.EndSpeech("s", ref, 24_000))
        engine.receive(api.Respond("s", generation=1, item_id="a", sampling=GREEDY))
        running.run()
        assert not [event for event in running.events if isinstance(event, api.Failed)]
        engine.close()
        finished = [event for event in running.events if isinstance(event, api.Finished)]
        return [f"{event.text} {event.usage.input_image}" for event in finished]

    with encoder_process(address, folder, "--weights", "dummy"):
        assert heard(encoder_url=address) == heard()


def test_what_has_no_vision_has_no_encoder(tmp_path: Path) -> None:
    """Packaged models label their pictures, text models take none: refused by name, with exit
    code 2; so is an address that cannot be served."""
    with pytest.raises(BadSettings, match="label their pictures"):
        vision_source_of(EngineConfig(model="small"))
    argv = [sys.executable, "-m", "headstart.engine", "--serve-encoder", f"ipc://{tmp_path}/a"]
    out = subprocess.run([*argv, "--model", "small"], capture_output=True, text=True, check=False)
    assert out.returncode == 2
    assert "label their pictures" in out.stderr
    argv = [sys.executable, "-m", "headstart.engine", "--endpoint", f"ipc://{tmp_path}/b"]
    argv += ["--encoder-url", f"ipc://{tmp_path}/a", "--model", "small"]
    out = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert out.returncode == 2
    assert "only model directories have an encoder process" in out.stderr


def test_its_address_is_checked_and_its_cache_bounded(pixtral: Path) -> None:
    """An address of other hosts needs keys."""
    config = settings(pixtral)
    with pytest.raises(BadSettings, match="headstart keys"):
        make_encoder(config, "tcp://0.0.0.0:*")
    spec = load(pixtral, Loading()).spec
    assert cache_bytes(spec, config) == config.encoder_cache_bytes
    assert cache_bytes(spec, settings(pixtral, encoder_cache_bytes=0)) < 256 << 20


def test_it_needs_no_gpu_for_engines_that_decode_on_one(
    pixtral: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has their command line, and encodes on the CPU: what it encodes with is the same."""
    nothing = Found("2.14", built_for_gpu=True, gpus=[], triton=True, compiler=True)
    monkeypatch.setattr(Found, "here", lambda: nothing)
    identities = []
    for device in ("cpu", "cuda"):
        server = make_encoder(settings(pixtral, device=device), f"ipc://{tmp_path / device}.sock")
        identities.append(server.identity)
        server.close()
    assert identities[0] == identities[1]
    whole = replace(nothing, gpus=[("H200", (9, 0))])
    monkeypatch.setattr(Found, "here", lambda: whole)
    on_a_gpu, on_the_cpu = (settings(pixtral, device=device) for device in ("cuda", "cpu"))
    assert vision_settings(on_a_gpu) == vision_settings(on_the_cpu)
