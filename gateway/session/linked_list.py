"""A list whose links know their neighbours: putting in and taking out cost the same anywhere."""

from __future__ import annotations

from collections.abc import Iterator


class Link:
    """One place in a chain. Of none, it is its own neighbour."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.before: Link = self
        self.after: Link = self


class Chain:
    """Links in order. `head` is none of them: it stands before the first and behind the last."""

    def __init__(self) -> None:
        self.head = Link()

    @property
    def last(self) -> Link:
        """The head where there is none."""
        return self.head.before

    def put(self, link: Link, behind: Link) -> None:
        """Put in a link that is in no chain."""
        assert link.before is link
        link.before, link.after = behind, behind.after
        behind.after.before = link
        behind.after = link

    def take(self, link: Link) -> None:
        """Take a link out."""
        link.before.after, link.after.before = link.after, link.before
        link.before = link.after = link

    def clear(self) -> None:
        """Forget all; they hold each other, and would wait for the collector otherwise."""
        link = self.head.after
        while link is not self.head:
            following = link.after
            self.take(link)
            link = following

    def back_from(self, link: Link) -> Iterator[Link]:
        """The links before `link`, from the nearest on."""
        while (link := link.before) is not self.head:
            yield link

    def __iter__(self) -> Iterator[Link]:
        link = self.head.after
        while link is not self.head:
            yield link
            link = link.after
