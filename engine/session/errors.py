"""Errors of session commands; `headstart.engine.errors` draws the whole tree."""

from __future__ import annotations

from headstart.engine.errors import EngineError


class UnknownItem(EngineError):
    code = "unknown_item"

    def __init__(self, item_id: str) -> None:
        self.item_id = item_id
        super().__init__(f"the conversation has no item {item_id!r}")


class NothingHeard(EngineError):
    code = "nothing_heard"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session!r} has no open utterance")


class NotContinuable(EngineError):
    code = "not_continuable"

    def __init__(self, item_id: str, kept: str | None) -> None:
        self.item_id, self.kept = item_id, kept
        held = "nothing" if kept is None else repr(kept)
        super().__init__(f"no speech can continue {item_id!r}: of ended speech, {held} is kept")


class UnknownClip(EngineError):
    code = "unknown_clip"

    def __init__(self, clip: str) -> None:
        self.clip = clip
        super().__init__(f"no sound with the name {clip!r} was received, or an item has it already")


class AnswerRunning(EngineError):
    code = "answer_running"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session!r} has an answer running already; cancel it first")


class BadTokenBudget(EngineError):
    code = "bad_token_budget"

    def __init__(self, least: int, most: int, got: int) -> None:
        self.least, self.most, self.got = least, most, got
        super().__init__(f"a frame's max_tokens must be 0, or {least} to {most}, got {got}")


class SessionOverloaded(EngineError):
    code = "session_overloaded"

    def __init__(self, session: str, limit: int, what: str = "commands") -> None:
        self.session, self.limit = session, limit
        super().__init__(f"session {session!r} has reached its limit of {limit} waiting {what}")
