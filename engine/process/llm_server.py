"""Builds an engine whose decoder is an LLM server; recogniser and image labels are here."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from headstart.engine import api
from headstart.engine.backends.llm_server.account import AccountPool
from headstart.engine.backends.llm_server.backend import LlmServerBackend
from headstart.engine.backends.llm_server.capabilities import Capabilities, PromptForm
from headstart.engine.backends.llm_server.errors import LlmContextShort
from headstart.engine.backends.llm_server.http_client import HttpClient
from headstart.engine.backends.llm_server.media import (
    MediaParts,
    PartImageEncoder,
    PartRecognizer,
)
from headstart.engine.backends.llm_server.messages import MessageMarks, TextTokens, messages_of
from headstart.engine.backends.llm_server.probe import find_out, split_url
from headstart.engine.backends.llm_server.servers import (
    Known,
    Servers,
    Vocabulary,
    find_servers,
)
from headstart.engine.chat.context_window import ANSWER_RESERVE_TOKENS
from headstart.engine.chat.template import ChatFormat
from headstart.engine.chat.tokenizer import Tokenizer
from headstart.engine.checkpoints.gguf import GgufFile
from headstart.engine.config import EngineConfig, LlmServerConfig
from headstart.engine.decoder.sampling import check_sampling
from headstart.engine.device.choice import CPU, recognising_device
from headstart.engine.engine import Engine, EngineParts
from headstart.engine.errors import BadSettings
from headstart.engine.interfaces import ImageEncoder, ModelServices, SpeechRecognizer, View
from headstart.engine.interfaces import Tokenizer as SessionTokenizer
from headstart.engine.kvcache.offload import HostMemory
from headstart.engine.kvcache.token_stream import Stream
from headstart.engine.models.checkpoint.words import TOKENIZER, Words, words_of
from headstart.engine.models.perception.captions import CaptionedRecognizer
from headstart.engine.process.assemble import require_no_pooling
from headstart.engine.process.cached_labeller import CachedLabeller
from headstart.engine.process.picture_reader import frame_size, reader_of, still_size
from headstart.engine.process.recognizer import (
    chosen_recognizer,
    heard_together,
    recognition_worker,
)
from headstart.engine.scheduling.admission import AdmissionController, AdmissionRules
from headstart.engine.session.session import Emit
from headstart.engine.vision import ConnectorSettings, FrameLabeller, FrameLabels
from headstart.engine.vision.connector import note
from headstart.engine.vision.encoder_cache import EncoderCache
from headstart.engine.vision.reading.background import BackgroundReader
from headstart.engine.weights import ResolvedSenses
from headstart.kernels.native import default_backend, set_threads

log = logging.getLogger("headstart.engine")

Report = Callable[[str, int, int], None]

VOCABULARY = 1 << 48
"""Above all tokens of any server; there are no embeddings of ours."""
JOIN_WAIT_S = 30.0
"""For each reply of a server that comes back while the others serve."""
SEEN_PICTURE = api.PictureSize(short_side=448)
"""For a model that sees: four tiles, or 256 tokens of 28 x 28 pixels, for most of them."""
ACCOUNT_BLOCK_TOKENS = 128
ACCOUNT_BLOCKS_MAX = 16_384
ACCOUNT_SESSIONS = 64
"""Sessions with full contexts at each server that the account of their caches has room for at
first, up to `ACCOUNT_BLOCKS_MAX`. It grows (`backends.llm_server.account`)."""


class NotedImageEncoder:
    """`headstart.engine.interfaces.ImageEncoder`: a picture becomes the words for what it shows."""

    def __init__(self, labeller: CachedLabeller, tokenizer: SessionTokenizer) -> None:
        self._labeller = labeller
        self._tokenizer = tokenizer
        self._settings = ConnectorSettings()

    def encode_image(self, image: api.Image, stream: Stream, *, live: bool = False) -> View:
        """The note on a picture, as tokens; stills and live frames are treated alike."""
        text = note(self._labeller.label(image, stream.share_domain), self._settings)
        return View(tuple(self._tokenizer.encode(text)), text, key=text)


class NoMemory:
    """`headstart.engine.kvcache.offload.BlockMemory` of K/V that are elsewhere."""

    # of none: what is offloaded is never more than nothing
    bytes_per_token = narrow_bytes_per_token = 1

    def save_block(self, block: int, num_tokens: int) -> NoReturn:
        raise AssertionError("no K/V are here")

    def load_block(self, block: int, saved: object) -> NoReturn:
        raise AssertionError("no K/V are here")


class ServersSampler:
    """Stands where sessions expect a sampler; the server samples."""

    def __init__(self, sampling: api.Sampling) -> None:
        check_sampling(sampling)

    def sample(self, logits: object, context: Sequence[int]) -> NoReturn:
        raise AssertionError("the LLM server samples")


@dataclass(frozen=True, slots=True)
class Rendering:
    """Words and marks in the tokens that a server counts in."""

    chat: ChatFormat | MessageMarks
    tokenizer: Tokenizer | TextTokens
    media: MediaParts = field(default_factory=MediaParts)

    @classmethod
    def of(
        cls, words: Words | None, capabilities: Capabilities, media: MediaParts | None = None
    ) -> Rendering:
        media = MediaParts() if media is None else media
        if words is None or capabilities.prompt is PromptForm.MESSAGES:
            return cls(MessageMarks(), TextTokens(), media)
        return cls(words.chat, words.tokenizer, media)

    def vocabulary(self, capabilities: Capabilities) -> Vocabulary:
        """For the backend."""
        if not isinstance(self.tokenizer, Tokenizer):
            part_of = functools.partial(self.media.json, named=capabilities.part_uuids)
            prompt_of = functools.partial(messages_of, part_of=part_of)
            return Vocabulary(prompt_of, self.tokenizer.encode, self.chat.stop_ids)
        tokenizer = self.tokenizer
        end = next(iter(self.chat.user_close), None)

        def text_of(tokens: Sequence[int]) -> str:
            return tokenizer.decode(tokens, special=True)

        def ids_of(tokens: Sequence[int]) -> Sequence[int]:
            return tokens

        return Vocabulary(
            prompt_of=ids_of if capabilities.prompt is PromptForm.IDS else text_of,
            encode=tokenizer.encode,
            stop_ids=frozenset(self.chat.stop_ids),
            end_token=end,
            end_spelling="" if end is None else tokenizer.decode([end], special=True),
        )


def assemble_llm_server(
    server: LlmServerConfig,
    senses: ResolvedSenses,
    ears: Sequence[Path],
    config: EngineConfig,
    emit: Emit,
    report: Report,
) -> tuple[Engine, api.ModelInfo]:
    """Find out what the server can, load the rest, and run it once. `ears`: several Whispers if one
    is to be chosen. Raises `LlmServerError` or another `EngineError`."""
    began_s = time.monotonic()
    hears_on = recognising_device(config, CPU)  # first: nothing is loaded in vain
    require_no_pooling(config)
    if config.kv_text_kept < 1:
        expected = "1: the K/V are the LLM server's"
        raise BadSettings("kv_text_kept", expected, config.kv_text_kept)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    native = "reference" not in (config.backend, default_backend())
    torch.set_num_threads(1 if native else config.threads)
    set_threads(config.threads)
    key = server.key()
    words = None if server.tokenizer is None else server_words(Path(server.tokenizer))
    client, media = HttpClient(key), MediaParts()
    servers = _servers(server, words, client, key, report, media)
    capabilities = servers.capabilities
    media.costs = capabilities.part_costs
    context_tokens = min(capabilities.context_tokens, config.max_context_tokens)
    if server.window_tokens > context_tokens - ANSWER_RESERVE_TOKENS:
        raise LlmContextShort(server.window_tokens, context_tokens, ANSWER_RESERVE_TOKENS)
    for name, fact in capabilities.facts().items():
        log.info("LLM server, %s: %s", name.replace("_", " "), fact)
    report("ears", 0, 0)
    chosen = chosen_recognizer(ears, config, hears_on)
    report("eyes", 0, 0)
    eyes = FrameLabeller.load(senses.eyes, senses.names, senses.faces)
    rendering = Rendering.of(words, capabilities, media)
    backend = LlmServerBackend(client, servers, time.monotonic_ns)
    reader = None if capabilities.sees else reader_of(senses.reading, config)
    services = services_of(rendering, capabilities, chosen.recognizer, eyes, config, reader)
    engine = Engine(parts_of(services, backend, context_tokens, time.monotonic_ns, config), emit)
    report("warm-up", 0, 0)
    chosen.recognizer.recognize(chosen.recognizer.open(), np.zeros(api.SAMPLE_RATE_HZ, np.float32))
    info = api.ModelInfo(
        name=capabilities.model,
        context_tokens=context_tokens,
        kv_bytes_per_token=0,
        kv_pool_bytes=0,
        weights_bytes=0,
        still=SEEN_PICTURE if capabilities.sees else still_size(reader),
        frame=SEEN_PICTURE if capabilities.sees else frame_size(reader),
        load_s=time.monotonic() - began_s,
        ears=chosen.directory.name,
        ears_device=chosen.device,
        ears_reason=chosen.reason,
        llm_server=capabilities.facts(),
    )
    return engine, info


def _servers(
    wanted: LlmServerConfig,
    words: Words | None,
    client: HttpClient,
    key: str | None,
    report: Report,
    media: MediaParts,
) -> Servers:
    """All servers, of which one answers at least. Raises `BadSettings`, `LlmServerError`."""
    tokenizer = None if words is None else words.tokenizer
    urls = [split_url(url) for url in wanted.urls]
    if len(set(urls)) < len(urls):
        raise BadSettings("llm", "the URLs of different servers", " ".join(wanted.urls))

    def known(url: str, **how: Any) -> Known:
        senses = wanted.senses
        found = find_out(url, wanted.model, tokenizer, key, wait_s=0.0, senses=senses, **how)
        return Known(found, Rendering.of(words, found, media).vocabulary(found))

    def join(url: str) -> Known:
        """In a thread of its own: nothing is reported from there."""
        return known(url, reply_wait_s=JOIN_WAIT_S)

    found = find_servers(urls, lambda url: known(url, report=report), report)
    capacity = wanted.sessions or None
    return Servers(client, found, join if len(found) > 1 else None, capacity=capacity)


def server_words(path: Path) -> Words:
    """Tokenizer and chat template of a folder or GGUF file. Raises `BadSettings`, `BadWeights`."""
    path = path.expanduser()
    if path.is_file():
        file = GgufFile(path)
        tokenizer = Tokenizer.from_gguf(file)
        words = Words(tokenizer, ChatFormat.from_gguf(file, tokenizer))
        file.close()
        return words
    if not (path / TOKENIZER).is_file():
        raise BadSettings("tokenizer", f"a folder with {TOKENIZER}, or a GGUF file", str(path))
    return words_of(path)


def services_of(
    rendering: Rendering,
    capabilities: Capabilities,
    recognizer: SpeechRecognizer,
    eyes: FrameLabeller,
    config: EngineConfig,
    reader: BackgroundReader | None = None,
) -> ModelServices:
    """The services that sessions use beside the backend. What the server's model takes itself goes
    there; the words that we recognise are then for people alone."""
    labels_cache: EncoderCache[FrameLabels] = EncoderCache(
        config.encoder_cache_bytes, config.encoder_cache_ttl_s, clock=time.monotonic_ns
    )
    sees, media = capabilities.sees, rendering.media
    if capabilities.hears:
        recognizer = CaptionedRecognizer(PartRecognizer(media, sees=sees), recognizer)
    image_encoder: ImageEncoder = NotedImageEncoder(
        CachedLabeller(eyes, labels_cache), rendering.tokenizer
    )
    return ModelServices(
        chat=rendering.chat,
        tokenizer=rendering.tokenizer,
        recognizer=recognizer,
        image_encoder=PartImageEncoder(media) if sees else image_encoder,
        new_sampler=ServersSampler,
        stop_ids=frozenset(rendering.chat.stop_ids),
        kv_bytes_per_token=0,
        reader=reader,
    )


def parts_of(
    services: ModelServices,
    backend: LlmServerBackend,
    context_tokens: int,
    clock: Callable[[], int],
    config: EngineConfig,
) -> EngineParts:
    """The engine's parts. The pool is an account of what the server has cached."""
    capabilities = backend.capabilities
    block = max(capabilities.block_tokens, ACCOUNT_BLOCK_TOKENS)
    per_session = -(-context_tokens // block)
    num_sessions = ACCOUNT_SESSIONS * len(backend.servers)
    num_blocks = max(min(num_sessions * per_session, ACCOUNT_BLOCKS_MAX), per_session)
    shares = config.prefix_sharing and capabilities.caches
    pool = AccountPool(num_blocks, block, num_blocks // 4 if shares else 0, shares=shares)
    rules = AdmissionRules(config.idle_after_s, config.turn_tokens)
    admission = AdmissionController(pool, HostMemory(NoMemory(), pool, 0), rules)

    def new_stream(name: str) -> Stream:
        ahead = capabilities.block_tokens
        return Stream(name, pool, VOCABULARY, context_tokens, ahead=ahead, movable=False)

    return EngineParts(
        services=services,
        pool=pool,
        backend=backend,
        admission=admission,
        new_stream=new_stream,
        clock=clock,
        heard_together=heard_together(services.recognizer, config),
        recognition_worker=recognition_worker(services.recognizer, config),
    )
