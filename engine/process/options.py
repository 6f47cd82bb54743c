"""The options of an engine process or an encoder process, and the settings that they make."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from headstart.engine.config import (
    CHOICES,
    LLM_CHOICES,
    MIB,
    EngineConfig,
    LlmServerConfig,
    process_default,
)


def parse_options(description: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Those in `argv`, or of this process. Ends the process if they are wrong, or if they ask for
    help, which begins with `description`."""
    parser = argparse.ArgumentParser(prog="python -m headstart.engine", description=description)
    _add_process(parser)
    _add_model(parser.add_argument_group("model"))
    _add_llm_server(parser.add_argument_group("LLM server"))
    _add_hearing(parser.add_argument_group("speech recognition"))
    _add_pictures(parser.add_argument_group("pictures"))
    _add_memory(parser.add_argument_group("memory"))
    _add_steps(parser.add_argument_group("steps"))
    return parser.parse_args(argv)


def engine_config(options: argparse.Namespace) -> EngineConfig:
    """Its settings: each is an option of its name, or has no option. Raises `BadSettings`."""
    given = vars(options) | {"prefix_sharing": not options.no_prefix_sharing}
    for name in [name for name in given if name.endswith("_mib")]:
        given[f"{name.removesuffix('_mib')}_bytes"] = given[name] * MIB
    if not options.threads:
        del given["threads"]  # as many as the process may use
    settings = {each.name for each in fields(EngineConfig)}
    return EngineConfig(**{name: value for name, value in given.items() if name in settings})


def server_config(options: argparse.Namespace) -> LlmServerConfig:
    """The settings of LLM servers; only with `--llm`."""
    return LlmServerConfig(
        urls=tuple(options.llm),
        model=options.llm_model,
        key_env=options.llm_key_env,
        tokenizer=options.tokenizer,
        window_tokens=options.window_tokens,
        sessions=options.llm_sessions,
        senses=options.senses,
    )


def _cores(text: str) -> tuple[int, ...]:
    return tuple(int(core) for core in text.split(","))


def _add_setting(
    group: argparse._ArgumentGroup,
    flag: str,
    meaning: str,
    of: type[EngineConfig | LlmServerConfig] = EngineConfig,
) -> None:
    """An option with the default, type and values of a setting, which is named like it; one of
    bytes is in MiB here, and those of LLM servers are named `--llm-…`, or as the setting."""
    name = flag.removeprefix("--").replace("-", "_")
    if of is LlmServerConfig:
        name = name.removeprefix("llm_")
    if name.endswith("_mib"):
        default = process_default(f"{name.removesuffix('_mib')}_bytes", of) // MIB
    else:
        default = process_default(name, of)
    kind = str if default is None else type(default)
    choices = CHOICES.get(name, LLM_CHOICES.get(name))
    group.add_argument(flag, default=default, type=kind, choices=choices, help=meaning)


def _add_process(parser: argparse.ArgumentParser) -> None:
    role = parser.add_mutually_exclusive_group(required=True)
    role.add_argument("--endpoint", help="ZeroMQ address of the gateway")
    encoder = "be an encoder process for engines, at this ZeroMQ address"
    role.add_argument("--serve-encoder", metavar="ADDRESS", help=encoder)
    parser.add_argument("--name", default="", help="its name among the engines of the gateway")
    keys = "folder of CURVE keys, made by `headstart keys`; needed beyond this machine"
    parser.add_argument("--keys", type=Path, help=keys)
    cores = "the cores it may use, such as 0,1,2; default: those of its parent"
    parser.add_argument("--cores", type=_cores, default=(), help=cores)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores this process may use")


def _add_model(group: argparse._ArgumentGroup) -> None:
    models = "medium, small, tiny, or a model directory"
    _add_setting(group, "--model", models)
    _add_setting(group, "--weights", "form of a model directory's weights")
    sizes = "with dummy weights: 3b, 7b, qwen2-vl-7b or tiny, in place of a directory"
    _add_setting(group, "--size", sizes)
    lora = "folder of a LoRA for the language model (PEFT); auto: the model's own; off: none"
    _add_setting(group, "--adapter", lora)
    _add_setting(group, "--device", "what decodes: auto, cpu, cuda or cuda:N")
    _add_setting(group, "--tail", "how much of an open audio unit a model directory reads")


def _add_llm_server(group: argparse._ArgumentGroup) -> None:
    llm = "URL of an LLM server that decodes in place of the model; again for each of several"
    group.add_argument("--llm", action="append", help=llm)
    model = "which model of the LLM server; default: its only one"
    _add_setting(group, "--llm-model", model, LlmServerConfig)
    key = "environment variable with the LLM server's key"
    _add_setting(group, "--llm-key-env", key, LlmServerConfig)
    most = "most sessions at each LLM server; 0: no limit"
    _add_setting(group, "--llm-sessions", most, LlmServerConfig)
    tokenizer = "tokenizer of the LLM server's model: a folder, or a GGUF file"
    _add_setting(group, "--tokenizer", tokenizer, LlmServerConfig)
    senses = "whether pictures and sounds go to the LLM server's model; auto: if it takes them"
    _add_setting(group, "--senses", senses, LlmServerConfig)
    window = "context that sessions ask for of an LLM server; 0: what there is"
    _add_setting(group, "--window-tokens", window, LlmServerConfig)


def _add_hearing(group: argparse._ArgumentGroup) -> None:
    ears = "Whisper for speech recognition: a folder, packaged weights, or auto: the largest that "
    group.add_argument("--ears", help=ears + "keeps up; default: the model's own")
    _add_setting(group, "--ears-language", "language code such as en, or auto")
    at_once = "simultaneous speakers that --ears auto must keep up with"
    _add_setting(group, "--ears-sessions", at_once)
    _add_setting(group, "--chunk-ms", "duration of an audio chunk")
    _add_setting(group, "--transcribe", "whether a Whisper transcribes beside a model directory")
    together = "sessions whose audio shares one recogniser pass, at most; 0: by load and device"
    _add_setting(group, "--heard-together", together)
    device = "what recognises speech: auto (the GPU that decodes, if one does), or as --device"
    _add_setting(group, "--ears-device", device)
    where = "where the recogniser runs: in a thread beside the decoder's steps, within them, or "
    _add_setting(group, "--recognition", where + "auto: beside if a GPU decodes or recognises")


def _add_pictures(group: argparse._ArgumentGroup) -> None:
    _add_setting(group, "--reading", "whether a packaged model reads what is written in pictures")
    detail = "resolution of a picture in a message to a model directory; asked: by the question"
    _add_setting(group, "--still-detail", detail)
    pooling = "how a model directory's camera frames become fewer tokens; auto: if asked for"
    _add_setting(group, "--frame-pooling", pooling)
    fewer = "tokens of a frame, or of a group of frames, with --frame-pooling mean or merge"
    _add_setting(group, "--frame-tokens", fewer)
    units = "vision units that --frame-pooling makes one group of"
    _add_setting(group, "--pooled-frames", units)
    where = "where a model directory encodes pictures: beside the steps, or within them"
    _add_setting(group, "--encoders", where)
    form = "int8: weights of a model directory's encoders in int8, calibrated when loaded"
    _add_setting(group, "--encoder-weights", form)
    most = "tokens of the pictures in one batch of an encoder beside"
    _add_setting(group, "--encoder-budget-tokens", most)
    together = "pictures of one size in one batch of an encoder beside"
    _add_setting(group, "--encoded-together", together)
    kept = "what encoders made of pictures that may come again, MiB; 0: as little as is needed"
    _add_setting(group, "--encoder-cache-mib", kept)
    unused = "seconds without use after which that is given up"
    _add_setting(group, "--encoder-cache-ttl-s", unused)
    near = "duration to keep such batches near, by fewer pictures; 0: none"
    _add_setting(group, "--encoder-target-ms", near)
    elsewhere = "address of an encoder process, which encodes a model directory's pictures"
    group.add_argument("--encoder-url", metavar="ADDRESS", help=elsewhere)
    keys = "folder of CURVE keys for the encoder process; needed beyond this machine"
    group.add_argument("--encoder-keys", type=Path, help=keys)
    longest = "seconds that the encoder process may take for a picture"
    _add_setting(group, "--encoder-limit-s", longest)


def _add_memory(group: argparse._ArgumentGroup) -> None:
    _add_setting(group, "--kv-pool-mib", "memory of the KV cache")
    _add_setting(group, "--kv-dtype", "storage of K and V")
    _add_setting(group, "--kv-vision-dtype", "storage of pictures' K and V")
    kept = "share of the words of past turns whose K/V stay; those with least attention go"
    _add_setting(group, "--kv-text-kept", kept)
    offload = "host memory for K/V of idle sessions"
    _add_setting(group, "--offload-mib", offload)
    idle = "seconds without work before a session counts as idle"
    _add_setting(group, "--idle-after-s", idle)
    packed = "size of the folder of packed weights, MiB; 0: pack anew at each start"
    _add_setting(group, "--packed-cache-mib", packed)
    no_sharing = "do not share K/V of equal prefixes between sessions"
    group.add_argument("--no-prefix-sharing", action="store_true", help=no_sharing)


def _add_steps(group: argparse._ArgumentGroup) -> None:
    budget = "tokens that the decoder takes per step"
    _add_setting(group, "--token-budget", budget)
    target = "duration to keep steps near, by fewer tokens than the budget; 0: none"
    _add_setting(group, "--step-target-ms", target)
