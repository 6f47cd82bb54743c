"""Converts written text to spoken text: removes Markdown, emoji, links and code from a stream.

`**Paris**` is spoken as "Paris", a link as its text, a URL as its host, a table's cells with a
pause between; code blocks, rules and emoji are not spoken. No I/O. Each spoken character knows its
position in the written text, so that what was heard can be mapped back.

Marks are removed where they stand, without pairing, because text cannot be held back until a
closing mark arrives: the listener waits for the first clause. It waits only for a mark that may
continue, and for the end of a short construct (`HOLD_MAX`). So the result does not depend on how
the text was split.

"""

from __future__ import annotations

import html
import re
import unicodedata
from urllib.parse import urlsplit

HOLD_MAX = 300
"""Characters held back for the end of a link's text, a tag or a line that may be a rule."""
ADDRESS_MAX = 2048

Said = tuple[str, int]
"""The spoken text of a piece, and its end in the written text."""
_Step = tuple[int, str] | None  # the consumed length and its spoken text; None: wait for more

_MAYBE_MARK = re.compile(r"[ \t>]*(?:#{1,6}[ \t]*|[-*+][ \t]+\[[ xX]?\]?[ \t]*|[-*+_=|:~` \t]*)")
_FENCE = re.compile(r"[ \t>]*(`{3,}|~{3,})([^\n]*)")
_RULE = re.compile(r"[ \t>]*(?:[-*_=|:+][ \t]*){3,}(?=\n|\Z)")
_MARK = re.compile(r"[ \t]*(?:>[ \t]*)*(?:#{1,6}[ \t]+|[-*+][ \t]+(?:\[[ xX]\][ \t]+)?)?")
_BRACKET = re.compile(r"\[([^\[\]\n]*)\]")
_TAG = re.compile(r"<(/?[A-Za-z][^<>\n]*|!--[^<>\n]*--)>")
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_ENTITY_BEGUN = re.compile(r"&(?:#?[A-Za-z0-9]{0,31})?")
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"|`]*", re.IGNORECASE)
_ADDRESS_STARTS = ("https://", "http://", "www.")
_NO_ADDRESS_END = ".,;:!?*_~'\")]}"
_PICTURES_FROM = 0x2190  # symbols before it (°, ©) are words to a voice
_ARROWS = frozenset(map(chr, range(0x2190, 0x2200)))
_JOINERS = frozenset("\ufe0e\ufe0f\u200d\u20e3")


class SpokenText:
    """`push` text as it arrives, `flush` at its end; both return the spoken text decided so far."""

    def __init__(self) -> None:
        self._held = ""
        self._at = 0  # position of the held text in the written text
        self._before = ""  # the character before it
        self._line_starts = True
        self._fence = ""  # of the current code block
        self._row = False  # in a table row
        self._link = False  # within a link's text
        self._address = False  # within a link's URL
        self._spaced = True

    def push(self, text: str) -> list[Said]:
        self._held += text
        return self._run(final=False)

    def flush(self) -> list[Said]:
        """The spoken text of the rest."""
        return self._run(final=True)

    def _run(self, *, final: bool) -> list[Said]:
        said: list[Said] = []
        while self._held and (step := self._step(self._held, final)) is not None:
            taken, spoken = step
            if taken:
                self._at, self._before = self._at + taken, self._held[taken - 1]
                self._held = self._held[taken:]
            for letter in spoken:
                if letter != " " or not self._spaced:
                    said.append((letter, self._at))
                    self._spaced = letter.isspace()
        return said

    def _step(self, text: str, final: bool) -> _Step:
        if self._fence:
            return self._code(text, final)
        if self._address:
            self._address = text[0] not in ")\n"
            return (1, "") if text[0] != "\n" else (0, "")
        if self._line_starts:
            return self._line_start(text, final)
        if text[0] == "\n":
            self._line_starts, self._row, self._link = True, False, False
            return 1, "\n"
        marks = {"[": self._bracket, "<": self._tag, "&": self._entity, "|": self._cell}
        take = marks.get(text[0])
        if take is not None:
            return take(text, final)
        if text[0] in "*_~`\\!]":
            return self._mark(text, final)
        return self._letter(text, final)

    # --- lines ------------------------------------------------------------------------------------

    def _line_start(self, text: str, final: bool) -> _Step:
        open_ended = not final and "\n" not in text and len(text) < HOLD_MAX
        if open_ended and _MAYBE_MARK.fullmatch(text):
            return None
        fence = _FENCE.match(text)
        if fence is not None and (fence[1][0] == "~" or "`" not in fence[2]):
            if open_ended:
                return None  # its info string may still contain a backtick: then it is inline code
            self._fence = fence[1]
            return fence.end(), ""
        self._line_starts = False
        rule = _RULE.match(text)
        if rule is not None:
            return rule.end(), ""
        mark = _MARK.match(text)
        end = mark.end() if mark is not None else 0
        self._row = text.startswith("|", end)
        return end + self._row, " "

    def _code(self, text: str, final: bool) -> _Step:
        """Nothing of it is spoken. Its last line is a fence at least as long, and nothing else."""
        end = text.find("\n")
        if end < 0 and not final:
            return None
        line = text[: end if end >= 0 else len(text)].strip(" \t>")
        begun = self._before == "\n"
        if begun and len(line) >= len(self._fence) and not line.strip(self._fence[0]):
            self._fence, self._line_starts = "", False
            return (end if end >= 0 else len(text)), ""
        return (end + 1 if end >= 0 else len(text)), ""

    def _cell(self, text: str, final: bool) -> _Step:
        rest = text[1:].lstrip(" \t")
        if not rest and not final:
            return None
        if not rest or rest[0] == "\n":
            return 1, ""
        return 1, ", " if self._row or self._before == " " else "|"

    # --- within a line ----------------------------------------------------------------------------

    def _mark(self, text: str, final: bool) -> _Step:
        first = text[0]
        run = len(text) - len(text.lstrip(first)) if first in "*_~`" else 1
        if run == len(text) and not final:
            return None
        after = text[run : run + 1]
        match first:
            case "*" if run == 1 and self._is_between(str.isspace, after):
                return 1, "times"
            case "*" if run == 1 and self._is_between(str.isdigit, after):
                return 1, " times "
            case "_" if self._is_between(str.isalnum, after):
                return run, " "
            case "~" if run == 1:
                return 1, "~"
            case "!":
                return 1, "" if after == "[" else "!"
            case "\\":
                escapes = bool(after) and after.isascii() and not (after.isalnum() or after == "\n")
                return (2, after) if escapes else (1, "")
            case "]":
                return self._bracket_end(text, final)
        return run, ""

    def _is_between(self, kind: object, after: str) -> bool:
        assert callable(kind)
        return bool(self._before and after and kind(self._before) and kind(after))

    def _bracket(self, text: str, final: bool) -> _Step:
        found = _BRACKET.match(text)
        if found is None or (found.end() == len(text) and not final):
            open_ended = not final and "\n" not in text and len(text) < HOLD_MAX
            whole = found is not None or not set(text[1:]) & set("[]")
            return None if open_ended and whole else (1, "[")
        after = text[found.end() : found.end() + 1]
        if found[1].startswith("^"):  # a footnote
            return found.end() + (after == ":"), ""
        self._link = after in ("(", "[") and bool(after)
        return 1, "" if self._link else "["

    def _bracket_end(self, text: str, final: bool) -> _Step:
        if not self._link:
            return 1, "]"
        self._link = False
        if text[1:2] == "(":
            self._address = True
            return 2, ""
        reference = _BRACKET.match(text, 1)
        if reference is not None:
            return reference.end(), ""
        open_ended = not final and "\n" not in text and len(text) < HOLD_MAX
        if open_ended:
            self._link = True
            return None
        return 1, ""

    def _tag(self, text: str, final: bool) -> _Step:
        found = _TAG.match(text)
        if found is not None:
            inside = found[1]
            if _ADDRESS.match(inside):
                return found.end(), _host(inside)
            breaks = inside.strip("/ ").lower() in ("br", "p", "li", "tr", "div")
            return found.end(), " " if breaks else ""
        begun = len(text) == 1 or text[1].isalpha() or text[1] in "/!"
        open_ended = not final and len(text) < HOLD_MAX and not set(text[1:]) & set("<>\n")
        return None if begun and open_ended else (1, "<")

    def _entity(self, text: str, final: bool) -> _Step:
        found = _ENTITY.match(text)
        if found is not None:
            return found.end(), html.unescape(found[0]).replace("\xa0", " ")
        begun = _ENTITY_BEGUN.fullmatch(text)
        return None if begun and not final else (1, "&")

    def _letter(self, text: str, final: bool) -> _Step:
        if text[0] in "hHwW" and not self._before.isalnum():
            begun = text[:8].lower()
            if any(begun.startswith(start) for start in _ADDRESS_STARTS):
                return self._whole_address(text, final)
            if not final and any(start.startswith(begun) for start in _ADDRESS_STARTS):
                return None
        return 1, "" if _is_picture(text[0]) else text[0]

    def _whole_address(self, text: str, final: bool) -> _Step:
        found = _ADDRESS.match(text)
        assert found is not None
        if found.end() == len(text) and not final and len(text) < ADDRESS_MAX:
            return None
        address = found[0].rstrip(_NO_ADDRESS_END) or found[0]
        return len(address), _host(address)


def clean(text: str) -> str:
    """The spoken text of a whole text."""
    spoken = SpokenText()
    return "".join(letter for letter, _ in [*spoken.push(text), *spoken.flush()])


def _host(address: str) -> str:
    try:
        name = urlsplit(address if "://" in address else f"http://{address}").hostname
    except ValueError:
        name = None
    return (name or "link").removeprefix("www.")


def _is_picture(letter: str) -> bool:
    """Emoji, arrows, dingbats and boxes, and the characters that join and colour them."""
    if letter in _JOINERS or 0x1F3FB <= ord(letter) <= 0x1F3FF or 0xE0000 <= ord(letter) <= 0xE007F:
        return True
    if letter in _ARROWS:
        return True
    return ord(letter) >= _PICTURES_FROM and unicodedata.category(letter) in ("So", "Cn")
