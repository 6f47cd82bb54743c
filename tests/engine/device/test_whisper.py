"""A Whisper on a device: the words of the C kernels and of `transformers`, alone and in company.

On CPU tensors in fp32, where rounding decides nothing; in fp16, as on a GPU; and with tensors that
claim to be on one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from headstart.benchmarks.inputs.recordings import load_f32
from headstart.benchmarks.references.offline import Offline, normaliser
from headstart.engine.asr.decoding import GreedyDecoder, Job, Task
from headstart.engine.asr.recognizer import WhisperRecognizer
from headstart.engine.asr.recording import LONGEST_SAMPLES
from headstart.engine.asr.silence import FarSilence
from headstart.engine.asr.tokens import WhisperTokens
from headstart.engine.asr.whisper.caches import EncodedSound, Text
from headstart.engine.asr.whisper.checkpoint import Checkpoint, load_checkpoint
from headstart.engine.asr.whisper.torch_layers import HeardTogether
from headstart.engine.device import encoders
from headstart.engine.device.place import Place
from headstart.engine.device.whisper import PlacedDecoder, in_parts, placed, whisper_place
from headstart.engine.errors import DeviceFull
from tests.engine.asr.whisper_dirs import Kind, write_whisper
from tests.engine.device.fake_gpu import GPU, Waits

Sound = npt.NDArray[np.float32]

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]
CLIPS = (
    ROOT / "headstart/clips/capital.wav",
    ROOT / "headstart/clips/followup.wav",
    ROOT / "headstart/clips/demo.mp4",
    ROOT / "tests/data/captured/question-by-webrtc.wav",
)
CHUNK_SAMPLES = 8000


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """The machine is shared."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def exact(whisper_dir: Path) -> Checkpoint:
    return load_checkpoint(whisper_dir, exact=True)


@pytest.fixture(scope="module")
def on_device(exact: Checkpoint) -> Checkpoint:
    """On CPU tensors, in fp32."""
    return placed(exact, whisper_place(CPU, torch.float32))


@pytest.fixture(scope="module")
def recognizer(on_device: Checkpoint, whisper_dir: Path) -> WhisperRecognizer:
    return WhisperRecognizer.over(on_device, whisper_dir)


@pytest.fixture(scope="module")
def sounds() -> list[Sound]:
    return [load_f32(path, 16_000) for path in CLIPS]


def streamed(recognizer: WhisperRecognizer, sound: Sound) -> tuple[list[tuple[str, str]], str]:
    """What is committed and shown after each chunk, and the final words."""
    utterance, shown = recognizer.open(), []
    for start in range(0, len(sound), CHUNK_SAMPLES):
        heard = recognizer.recognize(utterance, sound[start : start + CHUNK_SAMPLES])
        shown.append((heard.committed, heard.tentative))
    return shown, recognizer.finish(utterance).committed


@pytest.mark.weights
def test_the_words_are_those_of_the_kernels_and_of_transformers(
    recognizer: WhisperRecognizer, exact: Checkpoint, whisper_dir: Path, sounds: list[Sound]
) -> None:
    """While it is spoken, those of exact weights on the CPU; in the end also those of packed ones,
    and of the same Whisper offline."""
    on_cpu, packed = WhisperRecognizer.over(exact, whisper_dir), WhisperRecognizer.load(whisper_dir)
    offline, normal = Offline(whisper_dir, "en"), normaliser()
    for sound in sounds:
        found = streamed(recognizer, sound)
        assert found == streamed(on_cpu, sound)
        assert found[1] == streamed(packed, sound)[1]
        assert normal(found[1]) == normal(offline.transcribe(sound))


@pytest.mark.weights
def test_heard_together_as_alone(recognizer: WhisperRecognizer, sounds: list[Sound]) -> None:
    """Utterances of several lengths, begun at different times, say what each says alone: what fills
    a batch up is seen by nobody."""
    alone = [streamed(recognizer, sound) for sound in sounds]
    starts = (0, 2, 1, 3)
    utterances = [recognizer.open() for _ in sounds]
    shown: list[list[tuple[str, str]]] = [[] for _ in sounds]
    for step in range(20):
        now = [
            (number, sounds[number][at : at + CHUNK_SAMPLES])
            for number, start in enumerate(starts)
            if 0 <= (at := (step - start) * CHUNK_SAMPLES) < len(sounds[number])
        ]
        given = [utterances[number] for number, _ in now], [piece for _, piece in now]
        for (number, _), heard in zip(now, recognizer.recognize_batch(*given), strict=True):
            shown[number].append((heard.committed, heard.tentative))
    finals = [recognizer.finish(utterance).committed for utterance in utterances]
    assert list(zip(shown, finals, strict=True)) == alone


@pytest.mark.weights
def test_a_window_that_slides(recognizer: WhisperRecognizer, whisper_dir: Path) -> None:
    """Twenty seconds without a pause: frozen positions, prompts of settled words, and sound that is
    dropped."""
    sound = load_f32(ROOT / "headstart/clips/monologue.ogg", 16_000)
    utterance = recognizer.open()
    for start in range(0, len(sound), 2 * CHUNK_SAMPLES):
        recognizer.recognize(utterance, sound[start : start + 2 * CHUNK_SAMPLES])
    assert utterance.settled
    packed = WhisperRecognizer.load(whisper_dir)
    wanted = packed.finish(packed.open(), sound).committed
    assert recognizer.finish(utterance).committed == wanted
    assert wanted.startswith("I would like to tell you about the small garden")


@pytest.mark.weights
def test_the_final_words_do_not_depend_on_chunks(
    recognizer: WhisperRecognizer, sounds: list[Sound]
) -> None:
    """Streamed equals offline: all of the sound at once, and in chunks."""
    whole = recognizer.open()
    assert recognizer.finish(whole, sounds[0]).committed == streamed(recognizer, sounds[0])[1]


@pytest.mark.weights
def test_the_words_in_fp16(exact: Checkpoint, whisper_dir: Path, sounds: list[Sound]) -> None:
    """As a GPU computes: matrices, keys and values in fp16, what is added up over the layers in
    fp32."""
    half = placed(exact, whisper_place(CPU))
    assert half.encoder.stack[0].mlp.up.weight.dtype == torch.float16
    assert half.encoder.stack[0].mlp_norm.weight.dtype == torch.float32
    recognizer = WhisperRecognizer.over(half, whisper_dir)
    utterance = recognizer.open()
    heard = recognizer.recognize(utterance, sounds[0][:32_000])
    assert "What is the" in heard.text
    assert utterance.frozen.keys.dtype == torch.float16
    assert recognizer.finish(utterance, sounds[0][32_000:]).committed == (
        "What is the capital of France?"
    )


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random Whisper of several languages, its head of its own."""
    folder = tmp_path_factory.mktemp("whisper")
    write_whisper(folder, Kind(tied=False))
    return folder


def random_sounds(mels: int) -> list[EncodedSound]:
    """Of three lengths, an odd one too."""
    noise = torch.Generator().manual_seed(0)
    return [
        EncodedSound(torch.randn(mels, frames, generator=noise), keep=keep)
        for frames, keep in ((120, 20), (50, 0), (301, 100))
    ]


def close(ours: Tensor, theirs: Tensor) -> bool:
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_a_batch_of_any_lengths_is_encoded_as_on_the_cpu(tiny: Path) -> None:
    """Convolutions at both ends, frozen positions, and what lies beyond; sound by sound."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    given = random_sounds(exact.settings.mels)
    beyond = FarSilence(exact.encoder, exact.decoder).thinned(4)
    first = ours.encoder.encode(given)
    wanted = [exact.encoder.encode([sound])[0] for sound in given]
    again = [
        EncodedSound(sound.features, frozen, sound.keep + 5, beyond.encoded(len(rows)))
        for sound, (rows, frozen) in zip(given, wanted, strict=True)
    ]
    second = ours.encoder.encode(again)
    wanted += [exact.encoder.encode([sound])[0] for sound in again]
    for (rows, frozen), (their_rows, theirs) in zip([*first, *second], wanted, strict=True):
        assert close(rows, their_rows)
        assert frozen.positions == theirs.positions
        assert close(frozen.keys, theirs.keys)
        assert close(frozen.values, theirs.values)


@torch.inference_mode()
def test_texts_of_any_lengths_are_read_as_on_the_cpu(tiny: Path) -> None:
    """Over sounds of three lengths, pass by pass, and cut back in between: hidden rows, attention
    that is looked at, and the choice of tokens."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    heard, watched = [], exact.extras.alignment_heads
    for sound in random_sounds(exact.settings.mels):
        rows, _ = exact.encoder.encode([sound])[0]
        heard.append([each.decoder.listen_many([rows], [None])[0] for each in (ours, exact)])
    caches = [[each.decoder.text_cache() for each in (ours, exact)] for _ in heard]
    noise = torch.Generator().manual_seed(1)
    for lengths in ((5, 1, 3), (1, 1, 1), (2, 6, 1)):
        tokens = [torch.randint(0, 200, (n,), generator=noise) for n in lengths]
        both: list[list[Text]] = [
            [
                Text(ids, pair[which], sound[which], watched)
                for ids, pair, sound in zip(tokens, caches, heard, strict=True)
            ]
            for which in (0, 1)
        ]
        rows_of = ours.decoder.read(both[0])
        theirs_of = [exact.decoder.read([text])[0] for text in both[1]]
        for mine, other, rows, theirs in zip(*both, rows_of, theirs_of, strict=True):
            assert close(rows, theirs)
            assert close(mine.attention, other.attention)
            assert close(mine.looked(20), other.looked(20))
        hidden, table = torch.cat(rows_of), torch.zeros(2, exact.settings.vocabulary)
        table[1, :100] = -torch.inf
        which = [row % 2 for row in range(len(hidden))]
        found = [
            each.decoder.vocabulary.best(hidden, each.decoder.vocabulary.table(table), which)
            for each in (ours, exact)
        ]
        assert found[0][0] == found[1][0]
        assert found[0][1] == pytest.approx(found[1][1], abs=1e-4)
        beliefs = [each.decoder.vocabulary.probability(hidden, 7) for each in (ours, exact)]
        assert beliefs[0] == pytest.approx(beliefs[1], abs=1e-5)
        for pair in caches:
            for cache in pair:
                cache.cut(cache.length - cache.length // 3)


@torch.inference_mode()
def test_sounds_are_brought_together_once_for_all_passes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decodings that end sooner leave the others as they are; new sounds are brought together
    anew, also where they have the addresses of old ones. A single one with the silence behind it
    is copied once."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    decoder = ours.decoder
    assert isinstance(decoder, PlacedDecoder)
    made: list[int] = []
    of = HeardTogether.of

    def counted(sounds: Sequence[Any]) -> HeardTogether:
        made.append(len(sounds))
        return of(sounds)

    monkeypatch.setattr(HeardTogether, "of", counted)
    rows = [torch.randn(n, exact.settings.width) for n in (9, 4, 6)]
    for _ in range(3):
        sounds = decoder.listen_many(rows, [None] * 3)
        for chosen in (sounds, [*sounds, *sounds], sounds[1:], sounds[:1]):
            heard = decoder._heard(chosen)
            for place, sound in enumerate(chosen):
                keys = heard.keys[place, :, :, : sound.positions]
                assert torch.equal(keys, sound.keys)
        del sounds, chosen, sound, keys, heard
    assert made == [3, 3, 3]
    silence = FarSilence(ours.encoder, decoder)
    with_silence = silence.behind(decoder.listen(rows[0]))
    made.clear()
    for _ in range(2):
        heard = decoder._heard([with_silence])
        keys, values = with_silence.whole()
        assert torch.equal(heard.keys[0], keys)
        assert torch.equal(heard.values[0], values)
        assert keys.shape[2] == with_silence.positions > 9
    assert made == [1]


@pytest.fixture
def gpu_tensors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tensors that have no data and claim to be on `GPU`, where no number may come from."""
    monkeypatch.setattr(Tensor, "pin_memory", lambda host: host)
    monkeypatch.setattr(encoders, "EncoderStream", lambda place: _NoStream())
    with FakeTensorMode(allow_non_fake_inputs=True), Waits():  # type: ignore[no-untyped-call]
        yield


class _NoStream:
    def current(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()


def test_nothing_mixes_and_nothing_waits(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, gpu_tensors: None
) -> None:
    """Several sounds and texts, frozen positions, silence beyond: all of it is on the GPU, and its
    numbers come to the host only when tokens are chosen."""
    monkeypatch.setattr("headstart.engine.device.whisper.EncoderStream", lambda _: _NoStream())
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(GPU))
    sounds = random_sounds(exact.settings.mels)
    encoded = ours.encoder.encode(sounds)
    again = [
        EncodedSound(sound.features, frozen, sound.keep + 3, frozen if frozen.positions else None)
        for sound, (_, frozen) in zip(sounds, encoded, strict=True)
    ]
    encoded += ours.encoder.encode(again)
    heard = ours.decoder.listen_many([rows for rows, _ in encoded[3:]], [None] * 3)
    texts = [
        Text(torch.arange(n), ours.decoder.text_cache(), sound, exact.extras.alignment_heads)
        for n, sound in zip((3, 1, 2), heard, strict=True)
    ]
    hidden = ours.decoder.read(texts)
    hidden += ours.decoder.read([Text(torch.arange(2), texts[0].cache, heard[0])])
    logits = ours.decoder.vocabulary.logits(torch.cat(hidden))
    table = ours.decoder.vocabulary.table(torch.zeros(2, exact.settings.vocabulary))
    found = [logits, table, texts[0].looked(5), texts[0].cache.keys, heard[0].keys]
    found += [rows for rows, _ in encoded] + [
        frozen.keys for _, frozen in encoded if frozen.positions
    ]
    assert {each.device for each in found} == {GPU}
    assert (logits.dtype, heard[0].keys.dtype) == (torch.float32, torch.float16)


def test_a_batch_without_room_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Down to one; what is then too large is told."""
    freed: list[int] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append(1))

    def work(items: Sequence[int]) -> list[int]:
        if sum(items) > 5:
            raise torch.OutOfMemoryError
        return [item * 10 for item in items]

    assert in_parts(work, [1, 2, 3, 4, 5]) == [10, 20, 30, 40, 50]
    assert freed
    with pytest.raises(torch.OutOfMemoryError):
        in_parts(work, [1, 6])


@pytest.mark.parametrize("at", ["_fronts", "listen_many", "read", "best"])
def test_a_full_gpu_is_an_error_of_the_session(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """And no fault, in whichever piece of a pass it is: the sound of all steps and of all
    utterances is kept, and heard with the next chunk or by the final pass."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    recognizer = WhisperRecognizer.over(ours, tiny)
    step = int(recognizer.settings.step_s * 16_000)
    noise = np.random.default_rng(0).normal(0, 0.1, 4 * step).astype(np.float32)
    utterances, twin = [recognizer.open() for _ in range(2)], recognizer.open()
    recognizer.recognize(twin, noise)
    wanted = recognizer.finish(twin).committed
    owners = (ours.encoder, ours.decoder, ours.decoder.vocabulary)
    owner = next(each for each in owners if hasattr(each, at))
    method, full = getattr(owner, at), True

    def limited(*arguments: Any) -> Any:
        if full:
            raise torch.OutOfMemoryError
        return method(*arguments)

    monkeypatch.setattr(owner, at, limited)
    with pytest.raises(DeviceFull, match="ears_device cpu"):
        recognizer.recognize_batch(utterances, [noise[: 2 * step], noise[: step + 1]])
    with pytest.raises(DeviceFull, match="ears_device cpu"):
        recognizer.finish(utterances[1], noise[step + 1 :])
    full = False
    recognizer.recognize(utterances[0], noise[2 * step :])
    for utterance in utterances:
        assert np.array_equal(utterance.recording.whole(None), noise)
        assert utterance.window_frames == twin.window_frames
        assert recognizer.finish(utterance).committed == wanted


def test_a_gpu_that_stays_full_for_long(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More sound than the encoder takes comes meanwhile: what does not fit is not heard live, and
    the final pass hears as much as of any utterance."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    recognizer = WhisperRecognizer.over(ours, tiny)
    noise = np.random.default_rng(0).normal(0, 0.1, 36 * 16_000).astype(np.float32)
    chunks, utterance = np.split(noise, 36), recognizer.open()
    recognizer.recognize(utterance, chunks[0])
    encode, full = ours.encoder._fronts, True

    def limited(sounds: Sequence[EncodedSound]) -> list[torch.Tensor]:
        found = encode(sounds)
        if full:
            raise torch.OutOfMemoryError
        return found

    monkeypatch.setattr(ours.encoder, "_fronts", limited)
    for chunk in chunks[1:-1]:
        with pytest.raises(DeviceFull):
            recognizer.recognize(utterance, chunk)
    full = False
    recognizer.recognize(utterance, chunks[-1])
    assert recognizer.finish(utterance).audio_tokens == 36 * 50
    assert np.array_equal(utterance.recording.whole(), noise[-LONGEST_SAMPLES:])


@pytest.mark.parametrize("chunks", [2, 4])
def test_parts_that_ended_while_a_gpu_was_full_are_heard_for_good(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    """Of all utterances of the batch, by the next chunk or by the final pass: they are parted where
    one is that met no full GPU, and have its words."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    recognizer = WhisperRecognizer.over(ours, tiny)
    sound = np.random.default_rng(0).normal(0, 0.1, 12 * 16_000).astype(np.float32)
    sound[7 * 16_000 : 8 * 16_000] = 0
    pieces, twin = np.split(sound, 6), recognizer.open()
    utterances = [recognizer.open() for _ in range(2)]
    for piece in pieces:
        recognizer.recognize(twin, piece)
    assert twin.recording.start.sample > 7 * 16_000
    wanted = recognizer.finish(twin).committed
    encode, full = ours.encoder._fronts, False

    def limited(sounds: Sequence[EncodedSound]) -> list[torch.Tensor]:
        if full:
            raise torch.OutOfMemoryError
        return encode(sounds)

    monkeypatch.setattr(ours.encoder, "_fronts", limited)
    for number, piece in enumerate(pieces):
        full = 2 <= number < 2 + chunks
        with pytest.raises(DeviceFull) if full else contextlib.nullcontext():
            recognizer.recognize_batch(utterances, [piece, piece])
    full = False
    for utterance in utterances:
        final = recognizer.finish(utterance)
        assert (final.committed, utterance.recording.start) == (wanted, twin.recording.start)


def test_words_of_a_part_whose_sound_is_gone_stay(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU stays full for longer than sound is kept: the part that ended first cannot be heard
    again, so it has the words that were known of it, and the next part begins behind it."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    recognizer = WhisperRecognizer.over(ours, tiny)
    sound = np.random.default_rng(0).normal(0, 0.1, 44 * 16_000).astype(np.float32)
    sound[7 * 16_000 : 8 * 16_000] = 0
    utterance = recognizer.open()
    recognizer.recognize(utterance, sound[: 6 * 16_000])
    known = (*utterance.committed, *utterance.agreement.tentative)
    assert known
    encode, full = ours.encoder._fronts, True

    def limited(sounds: Sequence[EncodedSound]) -> list[torch.Tensor]:
        if full:
            raise torch.OutOfMemoryError
        return encode(sounds)

    monkeypatch.setattr(ours.encoder, "_fronts", limited)
    for piece in np.split(sound[6 * 16_000 :], 19):
        with pytest.raises(DeviceFull):
            recognizer.recognize(utterance, piece)
    full = False
    recognizer.finish(utterance)
    start = utterance.recording.start
    assert (7 * 16_000 < start.sample < 8 * 16_000, start.words) == (True, len(known))
    assert utterance.final is not None
    assert utterance.final[: len(known)] == known


def test_a_pass_is_on_a_stream_of_its_own(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, the choice of tokens too: so it waits for no step of the decoder's."""
    current: list[str] = []

    class Stream:
        def __init__(self, place: Place) -> None:
            pass

        @contextlib.contextmanager
        def current(self) -> Iterator[None]:
            current.append("own")
            yield
            current.pop()

    monkeypatch.setattr("headstart.engine.device.whisper.EncoderStream", Stream)
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    seen: set[tuple[str, ...]] = set()
    for owner, name in (
        (ours.encoder, "_fronts"),
        (ours.decoder, "listen_many"),
        (ours.decoder, "read"),
        (ours.decoder.vocabulary, "best"),
    ):
        method = getattr(owner, name)

        def watched(*arguments: Any, method: Any = method) -> Any:
            seen.add(tuple(current))
            return method(*arguments)

        monkeypatch.setattr(owner, name, watched)
    recognizer = WhisperRecognizer.over(ours, tiny)
    utterance = recognizer.open()
    recognizer.recognize(utterance, np.zeros(CHUNK_SAMPLES, np.float32))
    recognizer.finish(utterance, np.zeros(CHUNK_SAMPLES, np.float32))
    recognizer.align(np.zeros(CHUNK_SAMPLES, np.float32))
    assert seen == {("own",)}
    assert not current


@torch.inference_mode()
def test_a_draft_changes_no_token(tiny: Path) -> None:
    """Greedy decoding with a guess that is half right is plain greedy decoding, only sooner."""
    exact = load_checkpoint(tiny, exact=True)
    ours = placed(exact, whisper_place(CPU, torch.float32))
    tokens = WhisperTokens(tiny / "tokenizer.json", exact.extras.multilingual)
    greedy = GreedyDecoder(ours.decoder, tokens, exact.extras)
    rows, _ = ours.encoder.encode(random_sounds(exact.settings.mels)[:1])[0]
    heard = ours.decoder.listen(rows)
    opening = tokens.opening((), tokens.language("en"))

    def decoded(draft: tuple[int, ...]) -> tuple[int, ...]:
        task = Task(opening, (), draft, limit=12, positions=40)
        (found,) = greedy.decode_many([Job(heard, task, greedy.memory())])
        return found.tokens

    plain = decoded(())
    assert decoded((*plain[:3], 5, *plain[4:])) == plain
