"""Options of the commands that run a server, or a part of one, and of those that start their own.

Each overrides the setting of its name (`headstart settings`); None: it was not given.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="TOML file of settings (`headstart settings` prints one).",
        metavar="FILE",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="small, medium, tiny, or a model's directory (docs/models.md).",
        metavar="NAME|DIR",
        show_default="small",
    ),
]
Ears = Annotated[
    str | None,
    typer.Option(
        help="Whisper for recognition: folder, weights by name, or auto (the largest fetched one "
        "that this machine can run in real time).",
        metavar="WHISPER",
        show_default="the model's own",
    ),
]
EarsLanguage = Annotated[
    str | None,
    typer.Option(
        help="Spoken language: a code, or auto; others than en need a multilingual --ears.",
        metavar="CODE",
        show_default="en",
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="local, or fake: a script answers, without a model, for tests of clients.",
        metavar="ENGINE",
        show_default="local",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        help="What decodes: cpu, cuda or cuda:N; auto is the CPU (docs/gpu.md).",
        metavar="DEVICE",
        show_default="auto",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Storage of a model directory's weights: auto, bf16, fp32, int8, or dummy (random).",
        metavar="FORM",
        show_default="auto",
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        help="With dummy weights: 3b, 7b or qwen2-vl-7b, without any files.",
        metavar="SIZE",
        show_default=False,
    ),
]
Tail = Annotated[
    str | None,
    typer.Option(
        help="What a directory's model reads of an unfinished unit of audio: closed (nothing) or "
        "provisional.",
        metavar="HOW",
        show_default="auto",
    ),
]
Llm = Annotated[
    list[str] | None,
    typer.Option(
        "--llm",
        help="URL of an LLM server that decodes: vLLM, SGLang, llama.cpp (docs/backends.md). Give "
        "it again for each of several.",
        metavar="URL",
        show_default="the model's own decoder",
    ),
]
LlmModel = Annotated[
    str | None,
    typer.Option(help="Which model of that server.", metavar="NAME", show_default="its only one"),
]
LlmKeyEnv = Annotated[
    str | None,
    typer.Option(
        help="Environment variable with that server's key.",
        metavar="VARIABLE",
        show_default=False,
    ),
]
LlmTokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        help="Tokenizer and chat template of that server's model: a folder, or a GGUF file.",
        metavar="PATH",
        show_default="chat messages",
    ),
]
Senses = Annotated[
    str | None,
    typer.Option(
        help="Whether pictures and sounds go to the LLM server's model: words (never), native "
        "(always), auto (if it takes them).",
        metavar="WHICH",
        show_default="auto",
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--engine-endpoint", help="ZeroMQ address between gateway and engine.", metavar="ADDRESS"
    ),
]
EngineCount = Annotated[
    str | None,
    typer.Option(
        "--engines",
        help="Engine processes, each with its share of the cores (docs/many-engines.md).",
        metavar="INTEGER",
        show_default="1",
    ),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="What encodes a model directory's pictures: thread (of each engine) or process (one "
        "for all; docs/encoders.md).",
        metavar="WHERE",
        show_default="thread",
    ),
]
EncoderUrl = Annotated[
    str | None,
    typer.Option("--encoder-url", help="ZeroMQ address of the encoder process.", metavar="ADDRESS"),
]
Host = Annotated[
    str | None,
    typer.Option(
        help="Address to listen on; 0.0.0.0: all of this machine's (docs/security.md).",
        metavar="ADDRESS",
        show_default="127.0.0.1",
    ),
]
Port = Annotated[
    str | None,
    typer.Option(help="TCP port; 0: any free one.", metavar="INTEGER", show_default="8080"),
]
DemoPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        help="TCP port of the web page; 0: any free one.",
        show_default="8080, or any free one",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Any setting of `headstart settings`. Repeatable.", metavar="NAME=VALUE"
    ),
]
Record = Annotated[
    str | None,
    typer.Option(
        "--record",
        metavar="FILE",
        help="Record the dashboard's feed in a new file, gzipped JSON lines.",
        show_default=False,
    ),
]
Announce = Annotated[bool, typer.Option("--announce", hidden=True)]
