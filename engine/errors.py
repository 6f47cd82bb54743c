"""The engine's errors, as a tree.

    EngineError
    ├── BadSettings        a setting of the engine is out of range            (operator)
    ├── BadWeights         a weight file is not what its name promises        (operator)
    │   └── UnsupportedModel   an intact file of a kind that is not supported (operator)
    ├── NoDevice           a GPU is asked for and cannot be used              (operator)
    ├── DeviceFull         a GPU has no memory left for a recogniser's pass   (load)
    ├── KernelFailed       no memory for a kernel within a recogniser's pass  (load)
    ├── BadSampling        a sampling setting is out of range                 (client)
    ├── ContextFull        a session wants more tokens than its limit         (client)
    ├── CacheFull          the paged KV cache has too few free blocks         (load)
    ├── SessionRefused     a session is not opened now                        (load)
    │   └── NoRoom             it would not fit beside the others             (load)
    ├── UnknownSession     a command names a session that is not open         (caller)
    ├── UnknownSoftToken   a token id has no embedding in its stream          (caller)
    ├── SoftTableFull      a session holds too many embeddings                (client)
    ├── StreamClosed       work for a stream that was closed                  (caller)
    ├── PictureNotEncoded  the image encoder failed on a picture              (us)
    │   └── EncoderFault       so did the encoder process (`encoders.errors`) (us)
    └── BrokenNumbers      the model gave NaN or infinite logits              (weights or us)

Every error has a `code` (snake_case, sent to the client), its facts as attributes, a full sentence
as its message for the log, and a `public_message` for the client. What only this program can break
is asserted instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""

    code: ClassVar[str] = "engine_error"

    @property
    def public_message(self) -> str:
        """The message for a client. It names no address of the operator's network."""
        return str(self)


class BadSettings(EngineError):
    code = "bad_settings"

    def __init__(self, field: str, expected: str, got: object) -> None:
        self.field, self.expected, self.got = field, expected, got
        super().__init__(f"setting {field} must be {expected}, got {got!r}")


class BadWeights(EngineError):
    code = "bad_weights"

    def __init__(self, file: Path, what: str, expected: str, got: str) -> None:
        self.file, self.what, self.expected, self.got = file, what, expected, got
        super().__init__(f"{file.name}: {what}: expected {expected}, got {got}")


class UnsupportedModel(BadWeights):
    code = "unsupported_model"

    def __init__(self, file: Path, what: str, known: Iterable[str], got: str) -> None:
        self.known = tuple(known)
        super().__init__(file, what, f"one of {', '.join(self.known)}", got)


class NoDevice(EngineError):
    code = "no_device"

    def __init__(
        self, device: str, missing: str, remedy: str, instead: str = "--device cpu"
    ) -> None:
        """`instead`: what does without the device."""
        self.device, self.missing, self.remedy = device, missing, remedy
        super().__init__(f"device {device} cannot be used: {missing}; {remedy}, or use {instead}")


class DeviceFull(EngineError):
    code = "device_full"

    def __init__(self, device: str) -> None:
        self.device = device
        super().__init__(
            f"speech was not recognised: the memory of device {device} has no room for another "
            "pass; give K/V less of it (kv_pool_mib), or recognise on the CPU (ears_device cpu)"
        )


class KernelFailed(EngineError):
    code = "kernel_failed"

    def __init__(self, reason: str) -> None:
        """`reason`: what the kernel says (`headstart.kernels.errors`)."""
        self.reason = reason
        super().__init__(
            f"speech was not recognised: {reason}; give this process more memory, or K/V less of "
            "it (kv_pool_mib)"
        )


class BadSampling(EngineError):
    code = "bad_sampling"

    def __init__(self, field: str, expected: str, got: object) -> None:
        self.field, self.expected, self.got = field, expected, got
        super().__init__(f"sampling.{field} must be {expected}, got {got!r}")


class ContextFull(EngineError):
    code = "context_full"

    def __init__(self, limit: int, wanted: int, *, by_instructions: bool = False) -> None:
        """`by_instructions`: so many are the instructions' and tools' alone."""
        self.limit, self.wanted = limit, wanted
        super().__init__(
            f"the instructions and tools take {wanted} tokens of a context of {limit}, which "
            "leaves no room for messages and answers; expected shorter ones"
            if by_instructions
            else f"the session would hold {wanted} tokens; its limit is {limit}"
        )


class CacheFull(EngineError):
    code = "cache_full"

    def __init__(self, needed: int, free: int) -> None:
        self.needed, self.free = needed, free
        super().__init__(
            f"the KV cache has {free} free blocks; {needed} are needed; give it more memory "
            "(kv_pool_mib) or a narrower type (kv_dtype int8), or let sessions remember less "
            "(window_tokens)"
        )


class SessionRefused(EngineError):
    """A session was not opened. Another attempt may succeed after `retry_after_s`."""

    retry_after_s: float = 0.0


class NoRoom(SessionRefused):
    code = "no_room"

    def __init__(
        self, needed_tokens: int, free_tokens: int, bytes_per_token: int, retry_after_s: float
    ) -> None:
        self.needed_bytes = needed_tokens * bytes_per_token
        self.free_bytes = free_tokens * bytes_per_token
        self.retry_after_s = round(retry_after_s, 1)
        super().__init__(
            f"no room for another session: it needs {needed_tokens} tokens of KV cache "
            f"({self.needed_bytes} bytes), and {free_tokens} ({self.free_bytes} bytes) are free; "
            f"try again in {self.retry_after_s:g} s"
        )


class UnknownSession(EngineError):
    code = "unknown_session"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"no session {session!r} is open")


class UnknownSoftToken(EngineError):
    code = "unknown_soft_token"

    def __init__(self, token: int) -> None:
        self.token = token
        super().__init__(f"token {token} is beyond the vocabulary and has no embedding")


class SoftTableFull(EngineError):
    code = "soft_table_full"

    def __init__(self, limit: int, wanted: int) -> None:
        self.limit, self.wanted = limit, wanted
        super().__init__(f"the session would hold {wanted} embeddings; its limit is {limit}")


class StreamClosed(EngineError):
    code = "stream_closed"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"stream {name!r} is closed")


class PictureNotEncoded(EngineError):
    code = "picture_not_encoded"

    def __init__(self, width: int, height: int) -> None:
        self.width, self.height = width, height
        super().__init__(
            f"a picture of {width} x {height} could not be encoded; the engine's log has the reason"
        )


class BrokenNumbers(EngineError):
    code = "broken_numbers"

    def __init__(self, where: str, got: float) -> None:
        self.where, self.got = where, got
        super().__init__(f"{where}: expected finite numbers, got {got}")
