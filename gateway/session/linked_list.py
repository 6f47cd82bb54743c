"""A doubly linked list with constant-time insertion and removal at any position."""

from __future__ import annotations

from collections.abc import Iterator


class Link:
    """One node. A node that is in no list is its own neighbour."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.before: Link = self
        self.after: Link = self


class Chain:
    """A circular list of links. `head` is a sentinel before the first link and after the last."""

    def __init__(self) -> None:
        self.head = Link()

    @property
    def last(self) -> Link:
        """The last link; the head if the list is empty."""
        return self.head.before

    def put(self, link: Link, behind: Link) -> None:
        """Insert a link that is in no list after `behind`."""
        assert link.before is link
        link.before, link.after = behind, behind.after
        behind.after.before = link
        behind.after = link

    def take(self, link: Link) -> None:
        """Remove a link."""
        link.before.after, link.after.before = link.after, link.before
        link.before = link.after = link

    def clear(self) -> None:
        """Remove all links. Breaks their reference cycles, so that memory is freed at once."""
        link = self.head.after
        while link is not self.head:
            following = link.after
            self.take(link)
            link = following

    def back_from(self, link: Link) -> Iterator[Link]:
        """The links before `link`, nearest first."""
        while (link := link.before) is not self.head:
            yield link

    def __iter__(self) -> Iterator[Link]:
        link = self.head.after
        while link is not self.head:
            yield link
            link = link.after
