"""The items of one session as tokens: what was said, written and seen, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from engine import api
from engine.faculties import Faculties, View, Watcher
from engine.layout import Entry, Laid, Modality, Segment, Separator, count, render
from engine.session_errors import UnknownItem
from engine.stream import Stream
from engine.utterance import Utterance

# Room an answer needs behind the prompt before old items have to go.
ANSWER_RESERVE_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an answer follows; `counts` are its tokens by modality (the rest is text)."""

    ids: tuple[int, ...]
    kinds: bytes  # a `Modality` for each of them
    counts: dict[Modality, int]

    @classmethod
    def of(cls, laid: Laid, entries: Sequence[Entry]) -> Prompt:
        return cls(tuple(laid.ids), bytes(laid.kinds), count(entries))


def _seen(view: View) -> Segment:
    return Segment(Modality.IMAGE, view.ids)


class Conversation:
    """Books of one session's items. Holds no K/V: it says what the stream should read."""

    def __init__(self, faculties: Faculties, stream: Stream) -> None:
        self._faculties = faculties
        self._stream = stream
        self._separator = Separator(tuple(faculties.tokenizer.encode("\n")))
        self._system: tuple[int, ...] = ()
        self._blind_system: tuple[int, ...] = ()
        self._entries: list[Entry] = []
        self._dropped = 0  # oldest entries that no longer fit in the context
        self._instructions = ""
        self.tools: tuple[api.Tool, ...] = ()
        self._view: View | None = None  # seen, but not yet part of an item
        self._last_view_key = ""
        self.utterance: Utterance | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def instruct(self, text: str, blind: str = "", tools: Sequence[api.Tool] = ()) -> None:
        """Replace the system prompt; `blind` is added to it while no picture is in the context.
        `tools`: what the model may call."""
        system = self._faculties.chat.system
        self._instructions, self.tools = text, tuple(tools)
        self._system = tuple(system(text, tools))
        self._blind_system = tuple(system(f"{text}\n{blind}", tools)) if blind else self._system

    # --- items -----------------------------------------------------------------------------------

    def add(self, item: api.Item, after: str | None) -> None:
        """Insert an item. Raises `UnknownItem` when `after` names none."""
        if after is None:
            at = len(self._entries)
        elif after == "root":
            at = 0
        else:
            at = self._index(after) + 1
        entry = self.entry(item, self._stream)
        if entry.role is api.Role.USER and self._view is not None:
            entry = Entry(entry.item_id, entry.role, (_seen(self._view), *entry.segments))
            self._view = None
        self._entries.insert(at, entry)

    def insert_answer(
        self, at: int, item_id: str, said: Sequence[int], calls: Sequence[api.ToolCall]
    ) -> None:
        """An answer that is over: the tokens it said, and each call as an item of its own."""
        role = api.Role.ASSISTANT
        entries = []
        if said:
            entries.append(Entry(item_id, role, (Segment(Modality.GENERATED, tuple(said)),)))
        for number, call in enumerate(calls):
            item = api.Item(api.call_item_id(item_id, number), role, (call,))
            entries.append(self.entry(item, self._stream))
        at = min(at, len(self._entries))
        self._entries[at:at] = entries

    def remove(self, item_id: str) -> None:
        """Forget an item. Raises `UnknownItem`."""
        at = self._index(item_id)
        del self._entries[at]
        self._dropped -= at < self._dropped

    def entry(self, item: api.Item, stream: Stream) -> Entry:
        """An item as segments; embeddings of its pictures are interned in `stream`."""
        if item.role is api.Role.SYSTEM:
            text = "\n".join(part.text for part in item.parts if isinstance(part, api.Text))
            ids = tuple(self._faculties.chat.system(text))
            return Entry(item.item_id, item.role, (Segment(Modality.TEXT, ids),))
        segments = tuple(self._segment(part, stream) for part in item.parts)
        continues = bool(item.parts) and isinstance(item.parts[0], api.ToolCall)
        return Entry(item.item_id, item.role, segments, continues)

    def _segment(self, part: api.Part, stream: Stream) -> Segment:
        chat = self._faculties.chat
        match part:
            case api.Text():
                return Segment(Modality.TEXT, tuple(self._faculties.tokenizer.encode(part.text)))
            case api.ToolCall():
                return Segment(Modality.GENERATED, tuple(chat.call(part.name, part.arguments)))
            case api.ToolResult():
                return Segment(Modality.TEXT, tuple(chat.result(part.output)))
            case api.Image():
                return _seen(self._faculties.eyes.look(part, stream))
            case _:
                assert_never(part)

    def _index(self, item_id: str) -> int:
        for i, entry in enumerate(self._entries):
            if entry.item_id == item_id:
                return i
        raise UnknownItem(item_id)

    # --- what is being said and seen -------------------------------------------------------------

    def begin(self, utterance: Utterance) -> None:
        """Someone speaks; what the camera showed just before comes first."""
        self.utterance = utterance
        if self._view is not None:
            utterance.see(self._view)
            self._view = None

    def end(self) -> Entry:
        """The open utterance becomes an item."""
        assert self.utterance is not None
        entry = self.utterance.entry(self._faculties.tokenizer)
        self._entries.append(entry)
        self.utterance = None
        return entry

    def see(self, image: api.Image) -> None:
        """A live frame. One that looks like the last one seen costs tokens and tells nothing."""
        if self.utterance is not None and isinstance(self.utterance.state, Watcher):
            self.utterance.state.watch(image, self.utterance.samples / api.SAMPLE_RATE_HZ)
            return
        view = self._faculties.eyes.look(image, self._stream)
        if view.key == self._last_view_key:
            return
        self._last_view_key = view.key
        if self.utterance is not None:
            self.utterance.see(view)
        else:
            self._view = view

    def settle_view(self) -> None:
        """A view nobody spoke about is part of the prompt now: keep it as an item of its own."""
        if self._view is not None and self.utterance is None:
            self._entries.append(Entry("", api.Role.USER, (_seen(self._view),)))
            self._view = None

    def now(self, *, with_utterance: bool = True, tentative: bool = True) -> list[Entry]:
        """All entries that are in the context, with what is being said or seen at their end."""
        # An utterance without words, or an item without content, is no message.
        entries = [entry for entry in self._entries[self._dropped :] if entry.segments]
        if self.utterance is None:
            if self._view is not None:
                entries.append(Entry("", api.Role.USER, (_seen(self._view),)))
        elif with_utterance:
            entries.append(self.utterance.entry(self._faculties.tokenizer, tentative=tentative))
        return entries

    def forget_unused(self) -> None:
        """Give up embeddings that nothing in the conversation stands for any more, when they fill
        half of the table: an open utterance's change with every chunk."""
        soft = self._stream.soft
        if len(soft) <= soft.limit // 2:
            return
        used = set(self._stream.tokens)
        for entry in [*self._entries, *self.now()]:
            used.update(token for segment in entry.segments for token in segment.ids)
        if self.utterance is not None and isinstance(self.utterance.state, Watcher):
            used.update(self.utterance.state.held())
        soft.keep_only(used)

    # --- tokens ----------------------------------------------------------------------------------

    def laid(self, *, tentative: bool = True) -> Laid:
        """What the stream should read while nobody answers, with or without the words that may
        still change."""
        room = self._stream.limit - ANSWER_RESERVE_TOKENS
        laid = self._render(self.now(tentative=tentative))
        if len(laid.ids) > room:
            # Drop the oldest items, and enough of them that this does not come up at every turn.
            while len(laid.ids) > room // 2 and self._dropped < len(self._entries):
                self._dropped += 1
                laid = self._render(self.now(tentative=tentative))
        return laid

    def tokens(self, *, tentative: bool = True) -> list[int]:
        """The token ids of `laid`."""
        return self.laid(tentative=tentative).ids

    def prompt(
        self,
        instructions: str | None = None,
        *,
        tools: Sequence[api.Tool] = (),
        with_utterance: bool = False,
    ) -> Prompt:
        """What an answer follows. An utterance that is still open is part of it only for
        speculation. `instructions` and `tools` hold for this answer alone; they come last, so that
        the cache stays good."""
        self.laid()  # drops what does not fit
        entries = self.now(with_utterance=with_utterance)
        own = instructions or tools
        extra = self._faculties.chat.system(instructions or "", tools) if own else ()
        laid = self._render(entries, answer_next=True, extra_system=extra)
        return Prompt.of(laid, entries)

    def prompt_aside(
        self,
        items: Sequence[api.Item],
        instructions: str | None,
        tools: Sequence[api.Tool] | None,
        stream: Stream,
    ) -> Prompt:
        """The prompt of an answer out of band: `items` alone, in a stream of its own. None: what
        the session has."""
        chat = self._faculties.chat
        system: Sequence[int] = self._system
        if instructions or tools is not None:
            text = self._instructions if instructions is None else instructions
            system = chat.system(text, self.tools if tools is None else tools)
        entries = [self.entry(item, stream) for item in items]
        laid = render(chat, self._separator, system, entries, answer_next=True)
        return Prompt.of(laid, entries)

    def _render(
        self,
        entries: Sequence[Entry],
        *,
        answer_next: bool = False,
        extra_system: Sequence[int] = (),
    ) -> Laid:
        sees = any(s.modality is Modality.IMAGE for entry in entries for s in entry.segments)
        return render(
            self._faculties.chat,
            self._separator,
            self._system if sees else self._blind_system,
            entries,
            answer_next=answer_next,
            extra_system=extra_system,
        )
