"""Errors of placement: what an operator or a caller can get wrong."""

from __future__ import annotations

from collections.abc import Iterable

from headstart.engine.errors import EngineError


class DuplicateNode(EngineError):
    code = "duplicate_node"

    def __init__(self, node: str) -> None:
        self.node = node
        super().__init__(f"node {node!r} is given twice; each node needs a name of its own")


class UnknownNode(EngineError):
    code = "unknown_node"

    def __init__(self, node: str, known: Iterable[str]) -> None:
        self.node, self.known = node, tuple(known)
        super().__init__(f"no node {node!r}; expected one of {', '.join(self.known) or 'none'}")
