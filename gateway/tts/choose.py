"""Chooses the server's voice from the setting, the installed extra and the weights."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from headstart.gateway.tts.link import VoiceOff, worker_argv

log = logging.getLogger("headstart.voice")

PACKAGES = {"joe": ("piper", "onnx", "onnxruntime"), "espeak": ("espeakng_loader",)}
"""What each voice's worker imports; installed by the extra `voice`."""


def missing(voice: str) -> list[str]:
    """The packages that the voice needs and that are not installed."""
    return [name for name in PACKAGES[voice] if importlib.util.find_spec(name) is None]


async def choose(setting: str) -> list[str]:
    """The worker's command line for the setting `voice`. Downloads the weights if needed.

    "auto" is joe, or espeak if joe is not available. Raises `VoiceOff`.

    """
    if setting == "none":
        raise VoiceOff("the setting voice is 'none'")
    wanted = ("joe", "espeak") if setting == "auto" else (setting,)
    reasons = []
    for voice in wanted:
        lacking = missing(voice)
        if lacking:
            reasons.append(f"{voice}: the extra 'voice' is not installed ({', '.join(lacking)})")
            continue
        try:
            return worker_argv(voice, await weights_of(voice) if voice == "joe" else None)
        except VoiceOff as problem:
            log.warning("the voice %s cannot be had: %s", voice, problem)
            reasons.append(f"{voice}: {problem}")
    raise VoiceOff("; ".join(reasons))


async def weights_of(voice: str) -> Path:
    """The folder of the voice's weights, downloaded and verified by the engine's code in a
    subprocess, as this process does not import it. Raises `VoiceOff`."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-P",
            "-m",
            "headstart.engine.process.weight_path",
            voice,
        ),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        raise VoiceOff(err.decode(errors="replace").strip().removeprefix("error: "))
    return Path(out.decode().strip())
