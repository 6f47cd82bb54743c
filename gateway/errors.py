"""Errors of the gateway process, for people at a terminal.

    GatewayError
    ├── ConfigError            a setting is wrong; names it and what is allowed          exit 2
    ├── PortInUse              another program listens there                            exit 1
    ├── ChildRefused           the engine says its settings cannot work                 exit 2
    ├── ChildKeepsDying        the engine never became ready, several times in a row    exit 1
    └── TalkError              `headstart talk` cannot go on                            exit 2
        ├── MediaError         the file is at fault
        │   ├── FileMissing    no such file, or not a file
        │   ├── FileEmpty      0 bytes
        │   ├── FileUndecodable  no sound or video file
        │   ├── FileTruncated  it ends before its own header says
        │   └── NoAudio        it has no audio stream, or one without a sample
        ├── ServerUnreachable  nobody answers at the URL
        ├── ServerRefused      somebody answers, but not with a session
        └── ServerFailed       the server went away in mid-session or broke the protocol

Errors that a peer of the protocol causes are `gateway.protocol`'s: they travel as `error` events
and end nothing. Each error here is one whole sentence a person can act on.
"""

from __future__ import annotations


class GatewayError(Exception):
    """Base of all; `exit_code` is what the command line ends with."""

    exit_code = 1


class ConfigError(GatewayError):
    """One or more settings are wrong. `problems` holds one sentence for each."""

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
    """The network's doing, not the server's."""


class ResumeRefused(ServerRefused):
    """`code`: the protocol's."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.in_use = code == "resume_in_use"
