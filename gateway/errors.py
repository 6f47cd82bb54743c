"""Errors of the gateway process, shown in the terminal.

    GatewayError
    ├── ConfigError            a setting is wrong; names it and the allowed values      exit 2
    ├── PortInUse              another program listens on the port                      exit 1
    ├── ChildRefused           the engine reports unusable settings                     exit 2
    ├── ChildKeepsDying        the engine never became ready, several times in a row    exit 1
    └── TalkError              `headstart talk` cannot continue                         exit 2
        ├── MediaError         the file is at fault
        │   ├── FileMissing    no such file, or not a file
        │   ├── FileEmpty      0 bytes
        │   ├── FileUndecodable  not an audio or video file
        │   ├── FileTruncated  it ends before its declared end
        │   └── NoAudio        it has no audio stream, or one without a sample
        ├── ServerUnreachable  nothing answers at the URL
        ├── ServerRefused      a server answers, but not with a session
        └── ServerFailed       the server ended the session or broke the protocol

Errors that a client of the protocol causes are `gateway.protocol`'s: they are sent as `error`
events and end nothing. Each error here is one whole sentence that says what to do.

"""

from __future__ import annotations


class GatewayError(Exception):
    """Base class; `exit_code` is the command's exit code."""

    exit_code = 1


class ConfigError(GatewayError):
    """One or more settings are wrong. `problems` has one sentence for each."""

    exit_code = 2

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class PortInUse(GatewayError):
    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} on {host} is in use by another program: stop that one, or choose another "
            f"port with --port (--port 0 takes any free one)"
        )
        self.host = host
        self.port = port


class ChildRefused(GatewayError):
    """`child`: its name; the engine's is "engine"."""

    exit_code = 2

    def __init__(self, child: str, log_tail: list[str]) -> None:
        lines = "\n  ".join(log_tail) or "(it wrote nothing)"
        super().__init__(f"the {child} cannot start with these settings; it said:\n  {lines}")
        self.log_tail = log_tail


class ChildKeepsDying(GatewayError):
    """`ended`: how it ended the last time."""

    def __init__(self, child: str, tries: int, ended: str, log_tail: list[str]) -> None:
        lines = "\n  ".join(log_tail) or "(it wrote nothing)"
        super().__init__(
            f"the {child} died {tries} times before it was ready ({ended}); its last words:\n"
            f"  {lines}"
        )
        self.tries = tries
        self.ended = ended
        self.log_tail = log_tail


class TalkError(GatewayError):
    exit_code = 2


class MediaError(TalkError):
    """`path` is the file at fault."""

    def __init__(self, path: str, sentence: str) -> None:
        super().__init__(f"{path}: {sentence}")
        self.path = path


class FileMissing(MediaError):
    pass


class FileEmpty(MediaError):
    pass


class FileUndecodable(MediaError):
    pass


class FileTruncated(MediaError):
    pass


class NoAudio(MediaError):
    pass


class ServerUnreachable(TalkError):
    pass


class ServerRefused(TalkError):
    pass


class ServerFailed(TalkError):
    pass


class ConnectionLost(ServerFailed):
    """Caused by the network, not by the server."""


class ResumeRefused(ServerRefused):
    """`code`: the protocol's."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.in_use = code == "resume_in_use"
