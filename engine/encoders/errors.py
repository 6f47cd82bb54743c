"""What becomes of a picture that an encoder process did not encode. Its session goes on.

PictureNotEncoded
└── EncoderFault        (the encoder process)
    ├── EncoderAway         no encoder process is connected, or it ended under the picture
    ├── EncoderTooSlow      the picture took longer than the limit
    ├── EncoderBusy         too many pictures wait there
    ├── EncoderFailed       it failed on this picture
    ├── EncoderStopped      nobody wants the picture any more
    └── WrongEncoder        it has another model, other settings or another version
"""

from __future__ import annotations

from typing import ClassVar

from headstart.engine.errors import EngineError, PictureNotEncoded


class EncoderFault(PictureNotEncoded):
    code = "encoder_fault"
    is_of_one: ClassVar[bool] = False
    """Whether others of its batch may be encoded without it."""
    what: ClassVar[str] = "the encoder process did not encode it"

    def __init__(self, detail: str = "") -> None:
        self.detail = detail
        EngineError.__init__(
            self, f"a picture was not encoded: {self.what}{f' ({detail})' if detail else ''}"
        )


class EncoderAway(EncoderFault):
    code = "encoder_away"
    what = "the encoder process is not there"


class EncoderTooSlow(EncoderFault):
    code = "encoder_too_slow"
    what = "the encoder process took too long"


class EncoderBusy(EncoderFault):
    code = "encoder_busy"
    what = "too many pictures wait for the encoder process"


class EncoderFailed(EncoderFault):
    code = "encoder_failed"
    is_of_one = True
    what = "the encoder process failed on it; its log has the reason"


class EncoderStopped(EncoderFault):
    code = "encoder_stopped"
    what = "its session has ended"


class WrongEncoder(EncoderFault):
    code = "wrong_encoder"
    what = "the encoder process has another model, other settings or another version"


BY_CODE = {kind.code: kind for kind in (EncoderBusy, EncoderFailed, WrongEncoder)}
"""Those that the encoder process tells."""
