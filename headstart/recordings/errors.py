"""What can be wrong with a recording, as sentences for whoever gave the file. Exit code 2.

RecordingError
├── RecordingMissing   no such file, or it cannot be read
├── NotARecording      empty, or it does not begin as one
├── OtherVersion       of a format that this headstart does not read
├── RecordingDamaged   more garbage than a recording, or a line without an end
├── TurnNotFound       `--turn` names none of its turns
├── NothingToShow      it holds no turn, or too few to compare
└── OutputRefused      the file to write cannot be written, or is there already
"""

from __future__ import annotations

from headstart.gateway.errors import GatewayError


class RecordingError(GatewayError):
    exit_code = 2


class RecordingMissing(RecordingError):
    pass


class NotARecording(RecordingError):
    pass


class OtherVersion(RecordingError):
    pass


class RecordingDamaged(RecordingError):
    pass


class TurnNotFound(RecordingError):
    pass


class NothingToShow(RecordingError):
    pass


class OutputRefused(RecordingError):
    pass
