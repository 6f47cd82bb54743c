"""What a session refuses; see `headstart.engine.errors` for the tree these belong to."""

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


class UnknownClip(EngineError):
    code = "unknown_clip"

    def __init__(self, clip: str) -> None:
        self.clip = clip
        super().__init__(f"no sound of the name {clip!r} was heard, or it has been taken")


class AnswerRunning(EngineError):
    code = "answer_running"

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session!r} is answering already; cancel that first")


class SessionOverloaded(EngineError):
    code = "session_overloaded"

    def __init__(self, session: str, limit: int, what: str = "commands") -> None:
        self.session, self.limit = session, limit
        super().__init__(f"session {session!r} has {limit} {what} waiting, which is the limit")
