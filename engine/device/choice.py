"""Which device decodes: what was asked for, what is there, and what is missing for it."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from headstart.engine.config import EngineConfig
from headstart.engine.decoder.decoder import Decoder
from headstart.engine.decoder.sampling import HostSampler, StepSampler
from headstart.engine.errors import BadSettings, NoDevice
from headstart.kernels.native import COMPILERS

if TYPE_CHECKING:
    from headstart.engine.device.decoder import DeviceDecoder
    from headstart.engine.device.place import Place

log = logging.getLogger("headstart.engine")

# bf16 in matrix units. An AMD chip of torch's ROCm builds has them too, and reports 9 and more.
LEAST_CAPABILITY = (8, 0)
LEAST_RECOGNISING = (7, 0)  # fp16 there


@dataclass(frozen=True, slots=True)
class Found:
    """What this machine and its Python have. `gpus`: names and compute capabilities."""

    torch: str
    built_for_gpu: bool
    gpus: Sequence[tuple[str, tuple[int, int]]]
    triton: bool
    compiler: bool

    @classmethod
    def here(cls) -> Found:
        return cls(
            torch=torch.__version__,
            built_for_gpu=bool(torch.version.cuda or torch.version.hip),
            gpus=_gpus(),
            triton=importlib.util.find_spec("triton") is not None,
            compiler=bool(os.environ.get("CC")) or any(map(shutil.which, COMPILERS)),
        )


def _gpus() -> list[tuple[str, tuple[int, int]]]:
    """None where CUDA does not start: a GPU that another process has for itself, perhaps."""
    try:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [
            (torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i))
            for i in range(count)
        ]
    except RuntimeError as error:
        log.warning("the GPUs of this machine cannot be used: %s", error)
        return []


@dataclass(frozen=True, slots=True)
class Choice:
    """The device that decodes, "cpu" or "cuda:N", and why, in words for people."""

    name: str
    reason: str


CPU = Choice("cpu", "as asked")


def choose(device: str, found: Found) -> Choice:
    """For the setting `device`: auto, cpu, cuda or cuda:N. Raises `NoDevice` naming what is missing
    for a GPU that is asked for."""
    if device == "cpu":
        return CPU
    if device == "auto":
        lack = lacking(0, found)
        if lack is not None:
            return Choice("cpu", f"the default ({lack[0]})")
        # Until it has been run and measured on one, nobody gets it unasked.
        gpu = found.gpus[0][0]
        return Choice("cpu", f"{gpu} is there; --device cuda decodes on it, which was never tried")
    index = int(device.partition(":")[2] or 0)
    lack = lacking(index, found)
    if lack is not None:
        raise NoDevice(f"cuda:{index}", *lack)
    return Choice(f"cuda:{index}", f"{found.gpus[index][0]}, as asked")


def device_of(config: EngineConfig) -> Choice:
    """The device of these settings, on this machine. Asked for the CPU, it touches no GPU: that
    takes time, and memory there. Raises `NoDevice`."""
    return CPU if config.device == "cpu" else choose(config.device, Found.here())


def recognising_device(config: EngineConfig, decoding: Choice) -> Choice:
    """Where a Whisper runs, by the setting `ears_device`: "auto" is the GPU that decodes, if one
    does. Raises `NoDevice` for a GPU that is asked for and cannot be used."""
    if config.ears_device == "cpu":
        return CPU
    if config.ears_device == "auto":
        follows = decoding.name != CPU.name
        return Choice(decoding.name, "where the decoder is" if follows else "no GPU decodes")
    index = int(config.ears_device.partition(":")[2] or 0)
    found = Found.here()
    lack = lacking(index, found, decodes=False)
    if lack is not None:
        raise NoDevice(f"cuda:{index}", *lack, instead="--ears-device cpu")
    return Choice(f"cuda:{index}", f"{found.gpus[index][0]}, as asked")


def lacking(index: int, found: Found, *, decodes: bool = True) -> tuple[str, str] | None:
    """The first thing that GPU number `index` lacks for a decoder, or else for a Whisper, and what
    to do about it; None if nothing."""
    if not found.built_for_gpu:
        return (
            f"torch {found.torch} is built without CUDA",
            "install torch's CUDA build, which PyPI has for Linux: `make setup TORCH=cuda`, or "
            "`pip uninstall torch` and then `pip install torch` (pip keeps a build that is there)",
        )
    if not found.gpus:
        return (
            "torch finds no GPU",
            "look whether `nvidia-smi` lists it: a driver may be missing, CUDA_VISIBLE_DEVICES may "
            "hide it, and a container needs `--gpus all`",
        )
    if index >= len(found.gpus):
        last = len(found.gpus) - 1
        return f"the last GPU is cuda:{last}", f"use one of cuda:0 to cuda:{last}"
    name, capability = found.gpus[index]
    least = LEAST_CAPABILITY if decodes else LEAST_RECOGNISING
    if capability < least:
        have, need = (".".join(map(str, which)) for which in (capability, least))
        form = "bf16" if decodes else "fp16"
        return f"{name} has compute capability {have}", f"use a GPU of {need} or later ({form})"
    if not decodes:
        return None
    if not found.triton:
        return "Triton is not installed", "pip install triton"
    if not found.compiler:
        return (
            "there is no C compiler, which Triton needs to start its kernels",
            "install gcc, or name one in CC",
        )
    return None


def place_of(config: EngineConfig) -> Place | None:
    """Where the decoder of these settings runs; None: on the CPU, on the C kernels or torch. Raises
    `NoDevice`, or `BadSettings` for a backend of the CPU beside a GPU."""
    name = device_of(config).name
    if name == "cpu" and config.backend != "device":
        return None
    # What follows imports kernels that a CPU does without.
    from headstart.engine.device.place import on_cpu, on_gpu

    if name == "cpu":
        return on_cpu()
    if config.backend not in ("auto", "device"):
        raise BadSettings("backend", f"auto with device {config.device}", config.backend)
    return on_gpu(torch.device(name))


def on_gpu_of(decoder: object) -> DeviceDecoder | None:
    """`decoder`, if it is one on a GPU."""
    found = _on_device(decoder)
    return found if found is not None and found.place.is_gpu else None


def step_sampler_of(decoder: object) -> StepSampler:
    """Samples the logits of `decoder` where they are."""
    found = _on_device(decoder)
    if found is None:
        return HostSampler()
    from headstart.engine.device.sampling import DeviceSampler

    return DeviceSampler(found.place)


def _on_device(decoder: object) -> DeviceDecoder | None:
    if decoder is None or isinstance(decoder, Decoder):
        return None
    # Of the kernels that this imports a decoder on the C kernels has no need.
    from headstart.engine.device.decoder import DeviceDecoder

    return decoder if isinstance(decoder, DeviceDecoder) else None
