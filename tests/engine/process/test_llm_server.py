"""The engine's process in front of an LLM server: what it refuses, and a spoken question."""

from __future__ import annotations

import time
from pathlib import Path

import av
import pytest

from headstart.engine import api
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.errors import LlmContextShort, LlmTokenizerDiffers
from headstart.engine.config import EngineConfig, LlmServerConfig
from headstart.engine.engine import Engine
from headstart.engine.errors import BadSettings
from headstart.engine.process.llm_server import assemble_llm_server
from headstart.engine.weights import ResolvedSenses
from tests.engine.backends.llm_server.bench import WAIT_S
from tests.engine.backends.llm_server.parrot import parrot
from tests.engine.backends.llm_server.scripted_server import LLAMACPP, VLLM

pytestmark = pytest.mark.weights

CLIPS = Path(__file__).resolve().parents[3] / "headstart" / "clips"
SAMPLING = api.Sampling(repetition_penalty=1.0)


@pytest.fixture(scope="module")
def senses(whisper_dir: Path, efficientnet_path: Path, imagenet_names_path: Path) -> ResolvedSenses:
    return ResolvedSenses(whisper_dir, efficientnet_path, imagenet_names_path, None, None)


def assembled(
    server: LlmServerConfig, senses: ResolvedSenses, events: list[api.Event]
) -> tuple[Engine, api.ModelInfo]:
    config = EngineConfig(model="tiny")
    return assemble_llm_server(
        server, senses, (senses.ears,), config, events.append, lambda *_: None
    )


def settle(engine: Engine) -> None:
    backend = engine.parts.backend
    assert isinstance(backend, LlmServerBackend)
    until_s = time.monotonic() + 10 * WAIT_S
    while engine.step() or backend.busy:
        backend.client.wait(0.05)
        assert time.monotonic() < until_s


def pcm_of(path: Path) -> bytes:
    """16 kHz mono s16."""
    with av.open(str(path)) as file:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=api.SAMPLE_RATE_HZ)
        frames = [r for f in file.decode(audio=0) for r in resampler.resample(f)]
        frames += resampler.resample(None)
    return b"".join(bytes(frame.planes[0])[: 2 * frame.samples] for frame in frames)


@pytest.mark.parametrize("dialect", [VLLM, LLAMACPP])
def test_a_spoken_question_is_heard_here_and_answered_there(
    senses: ResolvedSenses, smollm2_path: Path, dialect: str
) -> None:
    """Words go to the server while they come; a picture goes as a note; the answer is its own."""
    events: list[api.Event] = []
    with parrot(smollm2_path, dialect) as server:
        wanted = LlmServerConfig((server.url + "/v1",), tokenizer=str(smollm2_path))
        engine, info = assembled(wanted, senses, events)
        assert (info.name, info.ears) == ("parrot", "whisper-tiny.en")
        assert info.llm_server["tokenizer"] == "compared"
        engine.receive(api.Open("s", "Be brief."))
        ref = api.TurnRef(1)
        grey = api.Image(64, 64, bytes([128]) * (3 * 64 * 64))
        engine.receive(api.BeginSpeech("s", ref, "u", 0))
        engine.receive(api.Frame("s", 0, grey))
        pcm = pcm_of(CLIPS / "capital.wav")
        for start in range(0, len(pcm), 16_000):
            chunk = pcm[start : start + 16_000]
            engine.receive(api.Audio("s", ref, start // 2, chunk, time.monotonic_ns()))
            settle(engine)
        ahead = len(server.of("warm-up"))
        assert ahead > 0
        engine.receive(api.Hush("s", ref, len(pcm) // 2, SAMPLING))
        settle(engine)
        engine.receive(api.EndSpeech("s", ref, len(pcm) // 2))
        engine.receive(api.Respond("s", 1, "a", SAMPLING))
        settle(engine)
        engine.check_accounting()
        (end,) = [e for e in events if isinstance(e, api.EndOfMessage)]
        assert end.probability == pytest.approx(0.75)
        (done,) = [e for e in events if isinstance(e, api.Finished)]
        assert "capital of France" in done.text
        assert "[camera: " in done.text
        assert done.usage.input_image > 0
        assert done.usage.cached > 0
        engine.close()


def test_a_context_shorter_than_the_window_is_refused(
    senses: ResolvedSenses, smollm2_path: Path
) -> None:
    """With both numbers, before anything is loaded."""
    with parrot(smollm2_path) as server:
        wanted = LlmServerConfig((server.url,), tokenizer=str(smollm2_path), window_tokens=4000)
        with pytest.raises(LlmContextShort, match="window_tokens is 4000") as no:
            assembled(wanted, senses, [])
    assert no.value.context_tokens == 4096


def test_another_models_tokenizer_is_refused(senses: ResolvedSenses, smollm2_path: Path) -> None:
    """By name; the server's has one letter more in front of everything."""
    server = parrot(smollm2_path)
    own = server.parse
    server.parse = lambda text: own("x" + text)
    with server, pytest.raises(LlmTokenizerDiffers, match="--tokenizer"):
        assembled(LlmServerConfig((server.url,), tokenizer=str(smollm2_path)), senses, [])


def test_settings_that_cannot_be_are_refused(
    senses: ResolvedSenses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL that is none, one twice, a key without its variable, a tokenizer that is not there."""
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    bad = {
        "setting llm must be": LlmServerConfig(("localhost:8000",)),
        "URLs of different servers": LlmServerConfig(("http://h:1", "http://h:1/v1/")),
        "setting llm_key_env must be": LlmServerConfig(("http://h",), key_env="NO_SUCH_KEY"),
        "setting tokenizer must be": LlmServerConfig(("http://h",), tokenizer=str(tmp_path)),
    }
    for message, server in bad.items():
        with pytest.raises(BadSettings, match=message):
            assembled(server, senses, [])


def test_a_key_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the line's end that files leave; never from the command line."""
    monkeypatch.setenv("A_KEY", "secret\n")
    assert LlmServerConfig(("http://h",), key_env="A_KEY").key() == "secret"
    assert LlmServerConfig(("http://h",)).key() is None
